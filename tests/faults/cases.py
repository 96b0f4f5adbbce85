"""The faults. Each function tries one, and returns what happened in a few words.

It fails with an AssertionError if an example is lost, doubled or altered, if a run
hangs, or if an error does not name what the user needs.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np
import soundfile

from beam_pipeline.storage import files, object_store
from beam_pipeline.storage.tfrecord import read_any_records
from tests import loopback
from tests.faults.world import (
    RATE,
    Run,
    World,
    check_same,
    digest,
    digests,
    small_disk,
)

CASES: dict[str, Callable[[World], str]] = {}


def case(title: str) -> Callable[[Callable[[World], str]], Callable[[World], str]]:
    """Adds a function to the faults under a title."""

    def add(function: Callable[[World], str]) -> Callable[[World], str]:
        function.__doc__ = function.__doc__ or title
        CASES[title] = function
        return function

    return add


# Processes


def strike_and_continue(
    world: World,
    strike: Callable[[Run], None],
    wanted: dict[str, str] | None = None,
    flags: Sequence[str] = (),
    look: Callable[[], object] = lambda: None,
) -> str:
    """Strikes a run up to three times, then gives its command until it is done.

    Parameters
    ----------
    wanted : dict, optional
        The digests of the output in the end. Default: those of an undisturbed run.
    flags : sequence of str
        More flags of the command.
    look : callable
        Looks at the output after each strike.
    """
    wanted = wanted or world.reference()
    ended = "ended before"
    for _ in range(world.random.randint(1, 3)):
        run = world.start(*flags)
        world.some_moment()
        if run.is_alive():
            strike(run)
            ended = "continued"
        status, said = run.end()
        look()
        if status == 0:
            break
    status, said = world.run(*flags)
    assert status == 0, said
    world.check(wanted)
    return ended


def kill(run: Run) -> None:
    os.kill(run.pid, signal.SIGKILL)


def kill_all(run: Run) -> None:
    run.signal_all(signal.SIGKILL)


@case("SIGKILL of the run")
def killed_run(world: World) -> str:
    return strike_and_continue(world, kill)


@case("SIGKILL of a worker")
def killed_worker(world: World) -> str:
    world.workers = 2

    def strike(run: Run) -> None:
        if children := run.children():
            with suppress(ProcessLookupError):
                os.kill(world.random.choice(children), signal.SIGKILL)

    return strike_and_continue(world, strike)


@case("SIGKILL of all processes at once")
def killed_group(world: World) -> str:
    return strike_and_continue(world, kill_all)


@case("SIGTERM, or Ctrl-C")
def interrupted(world: World) -> str:
    number = world.random.choice((signal.SIGTERM, signal.SIGINT))
    return strike_and_continue(world, lambda run: run.signal_all(number))


# Disks


def _on_a_disk(world: World, folder: Path, at_most: float, names: str) -> str:
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
        again, said = world.run()
        assert again == 0, said
        world.check(wanted)
    return "named and continued" if status else "had room"


@case("a full disk under the output")
def full_output(world: World) -> str:
    return _on_a_disk(world, world.output, 4.0, str(world.output))


@case("a full disk under the temporary folder")
def full_temporary(world: World) -> str:
    return _on_a_disk(world, world.temporary, 0.5, str(world.temporary))


@case("an output that becomes read-only")
def read_only(world: World) -> str:
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
        again, said = world.run()
        assert again == 0, said
        world.check(wanted)
    return early if status or early == "was busy" else "ended before"


@case("a work folder that is deleted")
def deleted_work(world: World) -> str:
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


def _with_changed_input(world: World, change: Callable[[Path], None]) -> str:
    """Changes a sound during a run, restores it, and gives the command again."""
    wanted = world.reference()
    path = world.random.choice(sorted(world.sounds.rglob("*.*")))
    kept = world.root / "kept"
    shutil.copy2(path, kept)
    run = world.start()
    world.some_moment()
    change(path)
    status, said = run.end()
    found = digests(world.output)
    happened = "read before"
    if status:
        assert status == 3, said
        assert path.name in said, said
        happened = "named"
    elif found != wanted:
        happened = "read after"
        other = world.root / "after"
        status, said = world.run(output=other)
        assert status == 0, said
        assert found == digests(other), "a sound was recorded in part"
    if path.is_dir():
        path.rmdir()
    os.replace(kept, path)
    # A finished data set of other sounds is not replaced without a word.
    again, said = world.run(*["--overwrite"] * (happened != "named"))
    assert again == 0, said
    world.check(wanted)
    return happened


@case("a sound that disappears, is replaced, rewritten in place, grows, or is a folder")
def changed_sound(world: World) -> str:
    def replace(path: Path) -> None:
        draft = path.with_name(f".draft{path.suffix}")
        soundfile.write(draft, np.zeros(soundfile.info(path).frames, np.float32), RATE)
        os.replace(draft, path)

    def rewrite(path: Path) -> None:
        soundfile.write(path, np.zeros(soundfile.info(path).frames, np.float32), RATE)

    def grow(path: Path) -> None:
        with open(path, "ab") as file:
            file.write(bytes(10_000))

    def become_folder(path: Path) -> None:
        path.unlink()
        path.mkdir()

    changes = (Path.unlink, replace, rewrite, grow, become_folder)
    return _with_changed_input(world, world.random.choice(changes))


@case("pipes, devices, sockets, folders, link loops and dead links as sounds")
def odd_files(world: World) -> str:
    wanted = world.reference()
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
        again, said = world.run("--max-rejected=50%")
    assert again == 0, said
    rejected = (world.output / "rejected.jsonl").read_text()
    for name in ("pipe", "loop", "dead", "empty", "device", "socket"):
        assert f"{name}.wav" in rejected, rejected
    _check_same_examples(world, wanted, "--max-rejected=50%")
    return "named, and the rest recorded"


def _check_same_examples(world: World, wanted: dict[str, str], *more: str) -> None:
    """Fails unless a run with the same rejects gives the same bytes."""
    found = digests(world.output)
    other = world.root / "other"
    status, said = world.run(*more, output=other)
    assert status == 0, said
    assert digests(other) == found
    world.check_nothing_left()
    assert set(found) >= {name for name in wanted if name.endswith(".json")}


# Clips that harm their process


def _with_a_bad_clip(world: World, step: str, *more: str) -> str:
    """Runs a step that harms its process at one window of a random clip."""
    path = world.random.choice(sorted(world.sounds.rglob("*.*")))
    samples, _ = soundfile.read(path)
    samples[world.random.randrange(len(samples))] = 0.95
    soundfile.write(path, samples, RATE)
    allowed = "--max-rejected=1"
    lost = world.root / "lost"
    status, said = world.run(
        allowed, "--feature=odd=tests.sounds.fail_on_loud", output=lost
    )
    assert status == 0, said
    status, said = world.run(allowed, f"--feature=odd=tests.sounds.{step}", *more)
    assert status == 0, said
    # A step that only fails loses some windows; one that harms its process, the clip.
    wanted, found = (
        [
            record for file in sorted(folder.rglob("*.tfrecord.gz"))
            for record in read_any_records(io.BytesIO(file.read_bytes()))
            if f"/{path.name}".encode() not in record
        ]
        for folder in (lost, world.output)
    )  # fmt: skip
    assert found == wanted
    reasons = (world.output / "rejected.jsonl").read_text()
    assert path.name in reasons, reasons
    assert "feature odd" in reasons, reasons
    world.check_nothing_left()
    return "named, and the rest recorded"


@case("a step that crashes its process at a clip")
def crashing_step(world: World) -> str:
    return _with_a_bad_clip(world, "crash_on_loud")


@case("a step that hangs at a clip")
def hanging_step(world: World) -> str:
    return _with_a_bad_clip(world, "dawdle_on_loud", "--time-limit=1.5")


# Object stores


@contextmanager
def store() -> Iterator[tuple[loopback.Proxy, dict[str, str]]]:
    """A proxy before a store with a bucket, and the environment that leads there."""
    with loopback.store_server() as port, loopback.proxy_to(port) as proxy:
        loopback.put(port, "/bucket")
        address = f"http://127.0.0.1:{proxy.port}"
        places = {"AWS_ENDPOINT_URL": address, "GOOGLE_BASE_URL": address}
        yield proxy, {**loopback.ENVIRONMENT, **places}


@contextmanager
def environment_of(variables: dict[str, str]) -> Iterator[None]:
    """Sets variables of this process, for its own client of the store."""
    os.environ.update(variables)
    object_store._client.cache_clear()
    try:
        yield
    finally:
        object_store._client.cache_clear()
        for name in variables:
            del os.environ[name]


def _in_store(world: World, disturb: Callable[[loopback.Proxy, Run], None]) -> str:
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
        found = {
            name: digest(files.read_bytes(f"{bucket}/records/{name}"))
            for name in loopback.names_in(f"{bucket}/records")
        }
    check_same(found, wanted)
    world.check_nothing_left()
    return "continued" if status else "went on"


@case("a store that answers 503, cuts answers, and is slow")
def failing_store(world: World) -> str:
    def disturb(proxy: loopback.Proxy, run: Run) -> None:
        for _ in range(10):
            proxy.refuse = world.random.randint(0, 2)
            proxy.cut = world.random.randint(0, 2)
            proxy.delay_s = world.random.uniform(0, 0.05)
            time.sleep(0.5)
            proxy.refuse = proxy.cut = 0

    return _in_store(world, disturb)


@case("a store that refuses access in the middle")
def refusing_store(world: World) -> str:
    def disturb(proxy: loopback.Proxy, run: Run) -> None:
        time.sleep(world.random.uniform(0, 3) * world.seconds)
        proxy.deny = "/bucket"

    return _in_store(world, disturb)


@case("SIGKILL of a run that writes into a store")
def killed_at_store(world: World) -> str:
    def disturb(proxy: loopback.Proxy, run: Run) -> None:
        time.sleep(world.random.uniform(0, 3) * world.seconds)
        with suppress(ProcessLookupError):
            run.signal_all(signal.SIGKILL)

    return _in_store(world, disturb)
