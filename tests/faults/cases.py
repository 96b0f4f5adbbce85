"""The faults. Each function tries one, and returns what happened in a few words.

It fails with an AssertionError if an example is lost, doubled or altered, if a run
hangs, or if an error does not name what the user needs.
"""

import os
import shutil
import signal
import socket
import threading
import time
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import soundfile

from beam_pipeline.storage import files, object_store
from tests import loopback
from tests.data_sets import contents
from tests.faults.world import RATE, check_same, small_disk

CASES = {}


def case(title):
    """Adds a function to the faults under a title."""

    def add(function):
        function.__doc__ = function.__doc__ or title
        CASES[title] = function
        return function

    return add


# Processes


def strike_and_continue(world, strike):
    """Strikes a run up to three times, then gives its command until it is done."""
    wanted = world.reference()
    ended = "ended before"
    for _ in range(world.random.randint(1, 3)):
        run = world.start()
        world.some_moment()
        if run.is_alive():
            strike(run)
            ended = "continued"
        status, _ = run.end()
        if status == 0:
            break
    world.continue_to(wanted)
    return ended


@case("SIGKILL of the run")
def killed_run(world):
    return strike_and_continue(world, lambda run: os.kill(run.pid, signal.SIGKILL))


@case("SIGKILL of a worker")
def killed_worker(world):
    world.workers = 2

    def strike(run):
        if children := run.children():
            with suppress(ProcessLookupError):
                os.kill(world.random.choice(children), signal.SIGKILL)

    return strike_and_continue(world, strike)


@case("SIGKILL of all processes at once")
def killed_group(world):
    return strike_and_continue(world, lambda run: run.signal_all(signal.SIGKILL))


@case("SIGTERM, or Ctrl-C")
def interrupted(world):
    number = world.random.choice((signal.SIGTERM, signal.SIGINT))
    return strike_and_continue(world, lambda run: run.signal_all(number))


# Disks


def _on_a_disk(world, folder, at_most, names):
    """Fills a disk at ``folder``, makes room, and continues."""
    wanted = world.reference()
    size = max(1 << 14, int(world.random.uniform(0, at_most) * 2**20))
    with small_disk(folder, size) as remount:
        status, said = world.run()
        if status:
            assert status == 2, said
            assert names in said, said
            assert "disk is full" in said, said
        remount("size=200m")
        world.continue_to(wanted)
    return "named and continued" if status else "had room"


@case("a full disk under the output")
def full_output(world):
    return _on_a_disk(world, world.output, 4.0, str(world.output))


@case("a full disk under the temporary folder")
def full_temporary(world):
    return _on_a_disk(world, world.temporary, 0.5, str(world.temporary))


@case("an output that becomes read-only")
def read_only(world):
    wanted = world.reference()
    with small_disk(world.output, 1 << 28) as remount:
        run = world.start()
        world.some_moment()
        early = "ended before"
        if run.is_alive():
            try:
                remount("ro")
                early = "named and continued"
            except OSError:
                pass
            except Exception:  # busy: a file is open for writing
                early = "was busy"
        status, said = run.end()
        remount("rw")
        if status:
            assert str(world.output) in said, said
        world.continue_to(wanted)
    return early if status or early == "was busy" else "ended before"


@case("a work folder that is deleted")
def deleted_work(world):
    wanted = world.reference()
    run = world.start()
    world.some_moment()
    shutil.rmtree(world.output / "_work", ignore_errors=True)
    status, said = run.end()
    assert status == 0 or str(world.output / "_work") in said, said
    again, said = world.run()
    if again:  # shards of whatever run: the user has to say that they may go
        assert again == 2, said
        assert "--overwrite" in said, said
        again, said = world.run("--overwrite")
    assert again == 0, said
    world.check(wanted)
    return "named" if status else "not needed"


# Inputs


def _with_changed_input(world, change):
    """Changes a sound during a run, restores it, and gives the command again."""
    wanted = world.reference()
    path = world.random.choice(sorted(world.sounds.rglob("*.*")))
    kept = world.root / "kept"
    shutil.copy2(path, kept)
    run = world.start()
    world.some_moment()
    change(path)
    status, said = run.end()
    found = contents(world.output)
    happened = "read before"
    if status:
        assert status == 3, said
        assert path.name in said, said
        happened = "named"
    elif found != wanted:
        happened = "read after"
        other = world.root / "after"
        world.succeed(output=other)
        assert found == contents(other), "a sound was recorded in part"
    if path.is_dir():
        path.rmdir()
    os.replace(kept, path)
    # A finished data set of other sounds is not replaced without a word.
    world.continue_to(wanted, *["--overwrite"] * (happened != "named"))
    return happened


@case("a sound that disappears, is replaced, rewritten in place, grows, or is a folder")
def changed_sound(world):
    def replace(path):
        draft = path.with_name(f".draft{path.suffix}")
        soundfile.write(draft, np.zeros(soundfile.info(path).frames, np.float32), RATE)
        os.replace(draft, path)

    def rewrite(path):
        soundfile.write(path, np.zeros(soundfile.info(path).frames, np.float32), RATE)

    def grow(path):
        with open(path, "ab") as file:
            file.write(bytes(10_000))

    def become_folder(path):
        path.unlink()
        path.mkdir()

    changes = (Path.unlink, replace, rewrite, grow, become_folder)
    return _with_changed_input(world, world.random.choice(changes))


@case("pipes, devices, sockets, folders, link loops and dead links as sounds")
def odd_files(world):
    folder = world.sounds / "a"
    os.mkfifo(folder / "pipe.wav")
    os.symlink("loop.wav", folder / "loop.wav")
    os.symlink("nowhere.wav", folder / "dead.wav")
    os.symlink("..", folder / "up")
    (folder / "folder.wav").mkdir()
    (folder / "empty.wav").touch()
    os.symlink("/dev/zero", folder / "device.wav")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(os.path.relpath(folder / "socket.wav"))
        status, said = world.run()
        assert status == 3, said
        world.succeed("--max-rejected=50%")
    rejected = (world.output / "rejected.jsonl").read_text()
    for name in ("pipe", "loop", "dead", "empty", "device", "socket"):
        assert f"{name}.wav" in rejected, rejected
    other = world.root / "other"
    world.succeed("--max-rejected=50%", output=other)
    world.check(contents(other))
    return "named, and the rest recorded"


# Object stores


@contextmanager
def store():
    """A proxy before a store with a bucket, and the environment that leads there."""
    with loopback.store_server() as port, loopback.proxy_to(port) as proxy:
        loopback.put(port, "/bucket")
        address = f"http://127.0.0.1:{proxy.port}"
        places = {"AWS_ENDPOINT_URL": address, "GOOGLE_BASE_URL": address}
        yield proxy, {**loopback.ENVIRONMENT, **places}


@contextmanager
def environment_of(variables):
    """Sets variables of this process, for its own client of the store."""
    os.environ.update(variables)
    object_store._client.cache_clear()
    try:
        yield
    finally:
        object_store._client.cache_clear()
        for name in variables:
            del os.environ[name]


def _in_store(world, disturb):
    """Records from a store into it, while something happens to it; continues."""
    wanted = world.reference()
    world.workers = 1  # others would start as new interpreters
    bucket = "s3://bucket"
    with store() as (proxy, environment), environment_of(environment):
        for path in world.sounds.rglob("*.*"):
            name = path.relative_to(world.sounds)
            files.write_bytes(f"{bucket}/sounds/{name}", path.read_bytes())
        time.sleep(1.1)  # stores tell times in seconds: are sounds newer than runs?
        command = world.arguments(output=f"{bucket}/records")
        command[1] = f"--input={bucket}/sounds"
        run = world.start_command(command, **environment)
        thread = threading.Thread(target=disturb, args=(proxy, run))
        thread.start()
        status, said = run.end()
        thread.join()
        proxy.refuse = proxy.cut = 0
        proxy.delay_s, proxy.deny = 0.0, ""
        if status > 0:
            assert bucket.partition("://")[2] in said, said
        again, said = world.start_command(command, **environment).end()
        assert again == 0, said
        check_same(loopback.contents_in(f"{bucket}/records"), wanted)
    world.check_nothing_left()
    return "continued" if status else "went on"


@case("a store that answers 503, cuts answers, and is slow")
def failing_store(world):
    def disturb(proxy, run):
        for _ in range(10):
            proxy.refuse = world.random.randint(0, 2)
            proxy.cut = world.random.randint(0, 2)
            proxy.delay_s = world.random.uniform(0, 0.05)
            time.sleep(0.5)
            proxy.refuse = proxy.cut = 0

    return _in_store(world, disturb)


@case("a store that refuses access in the middle")
def refusing_store(world):
    def disturb(proxy, run):
        time.sleep(world.random.uniform(0, 3) * world.seconds)
        proxy.deny = "/bucket"

    return _in_store(world, disturb)


@case("SIGKILL of a run that writes into a store")
def killed_at_store(world):
    def disturb(proxy, run):
        time.sleep(world.random.uniform(0, 3) * world.seconds)
        with suppress(ProcessLookupError):
            run.signal_all(signal.SIGKILL)

    return _in_store(world, disturb)
