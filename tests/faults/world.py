"""One try: a job, its processes, and the bytes that it has to give."""

import contextlib
import functools
import multiprocessing
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import soundfile

from tests.data_sets import contents

RATE = 8000
CLIPS = 12
SHARDS = 8
PATIENCE_S = 120.0  # a run that takes longer hangs
_MARK = "AUDIO_TFRECORDS_FAULT"

# Runs are forks of a server that has imported everything: they start at once.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["beam_pipeline.cli.main", "beam_pipeline.api", "beam_pipeline.run.local",
     "beam_pipeline.read.verify", "beam_pipeline.audio.decoder",
     "beam_pipeline.read.audit", "tests.data_sets"]
)  # fmt: skip


@functools.cache
def start_server():
    """Starts the server; returns whether it could load ``failing_reads.c``."""
    source = Path(__file__).with_name("failing_reads.c")
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None or sys.platform != "linux":
        return False
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        library = f"{folder}/failing_reads.so"
        words = [compiler, "-shared", "-fPIC", "-o", library, str(source), "-ldl"]
        subprocess.run(words, check=True)
        os.environ["LD_PRELOAD"] = library
        try:
            first = _FORKS.Process(target=int)  # starts the server
            first.start()
            first.join()
        finally:
            del os.environ["LD_PRELOAD"]
    return True


class World:
    """A folder with sounds, a job on them, and a seed for the moments of faults.

    Attributes
    ----------
    root : Path
        Everything of this try is below it.
    random : random.Random
        From the seed of the try.
    seconds : float
        The time that a run takes that nothing disturbs.
    """

    def __init__(self, root, seed):
        self.root = root
        self.random = random.Random(seed)
        self.sounds = root / "sounds"
        self.output = root / "records"
        self.temporary = root / "tmp"
        self.workers = self.random.choice((1, 2))
        self._mark = f"{os.getpid()}-{seed}-{root.name}"
        self.temporary.mkdir(parents=True)
        write_sounds(self.sounds)
        self.output.mkdir()

    def arguments(self, *more, output=None):
        """Returns the command of the job."""
        return [
            "record", f"--input={self.sounds}", f"--output={output or self.output}",
            "--win-seconds=.5", "--hop-seconds=.1", f"--num-shards={SHARDS}",
            "--feature=mel=log_mel(n_fft=256,hop=64,n_mels=32)",
            "--feature=signal=identity()",
            f"--workers={self.workers}", *more,
        ]  # fmt: skip

    def start(self, *more, **options):
        """Starts the job."""
        return self.start_command(self.arguments(*more, **options))

    def start_command(self, arguments, **environment):
        """Starts a command in a session of its own."""
        start_server()
        marked = {"TMPDIR": str(self.temporary), _MARK: self._mark, **environment}
        return start_run(self.root, main_command, list(arguments), marked)

    def run(self, *more, **options):
        """Runs the job; returns its exit status and what it said."""
        return self.start(*more, **options).end()

    def succeed(self, *more, **options):
        """Runs the job; fails unless it ends well."""
        status, said = self.run(*more, **options)
        assert status == 0, said

    def continue_to(self, wanted, *more):
        """Gives the command again; fails unless the output has these files then."""
        self.succeed(*more)
        self.check(wanted)

    def reference(self):
        """The files of a run that nothing disturbs; also measures its time."""
        output = self.root / "undisturbed"
        started = time.monotonic()
        self.succeed(output=output)
        self.seconds = time.monotonic() - started
        found = contents(output)
        shutil.rmtree(output)
        return found

    def some_moment(self):
        """Waits for a random part of the time of a run."""
        time.sleep(self.random.uniform(0.0, 1.1) * self.seconds)

    def processes(self):
        """The processes of this try that are alive."""
        mark = f"{_MARK}={self._mark}".encode()
        found = []
        for entry in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if entry.name.isdigit() and mark in (entry / "environ").read_bytes():
                    state = (entry / "stat").read_text().rpartition(")")[2].split()[0]
                    if state not in "ZX":
                        found.append(int(entry.name))
        return found

    def check(self, wanted):
        """Fails unless the output has these files, and nothing else is left."""
        check_same(contents(self.output), wanted)
        self.check_nothing_left()

    def check_nothing_left(self):
        """Fails if processes are left."""
        deadline = time.monotonic() + 5
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not left, f"processes are left: {left}"


class Run:
    """A run of a command."""

    def __init__(self, process, said):
        self._process = process
        self._said = said

    @property
    def pid(self):
        return int(self._process.pid)

    def children(self):
        """The processes that the run has started."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        try:
            return [int(word) for word in path.read_text().split()]
        except OSError:
            return []

    def signal_all(self, number):
        """Sends a signal to the run and to its processes."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # it is still about to make its group
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def is_alive(self):
        return bool(self._process.is_alive())

    def end(self):
        """Waits; returns the exit status (negative: a signal) and what was said."""
        self._process.join(PATIENCE_S)
        if self._process.exitcode is None:
            self.signal_all(signal.SIGKILL)
            self._process.join()
            raise AssertionError(f"the run hangs; it said: {self._said.read_text()}")
        return int(self._process.exitcode), self._said.read_text()


def start_run(root, command, arguments, environment):
    """Starts a command in a session of its own; what it says goes to a file."""
    said = root / f"said-{len(list(root.glob('said-*')))}.txt"
    said.touch()
    process = _FORKS.Process(
        target=_in_session, args=(command, arguments, str(said), environment)
    )
    process.start()
    return Run(process, said)


def _in_session(command, arguments, said, environment):
    os.setsid()
    out = os.open(said, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.environ.pop("LD_PRELOAD", None)
    os.environ.update(environment)
    tempfile.tempdir = None
    signal.signal(signal.SIGINT, signal.default_int_handler)
    status = command(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    sys.exit(status)


def main_command(arguments):
    """The command line, with as many open files as the environment says."""
    from beam_pipeline.cli.main import main

    if more := os.environ.get("FAULT_OPEN_FILES"):
        most = len(os.listdir("/proc/self/fd")) + int(more)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return main(arguments)


def check_same(found, wanted):
    """Fails unless these are the same files."""
    differing = {n for n in {*found, *wanted} if found.get(n) != wanted.get(n)}
    assert not differing, f"differ from an undisturbed run: {sorted(differing)}"


def write_sounds(folder):
    """Writes clips of noise of different lengths in two formats, in three classes."""
    noise = np.random.default_rng(0).normal(0, 0.1, CLIPS * RATE).astype(np.float32)
    for k in range(CLIPS):
        path = folder / "abc"[k % 3] / f"{k}.{'flac' if k % 2 else 'wav'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, noise[k * 4000 : k * 4000 + (3 + k) * 4000], RATE)


@contextlib.contextmanager
def small_disk(folder, size):
    """A file system of a size in bytes at a folder; yields a function to remount it.

    Raises
    ------
    CannotTry
        If this user cannot mount file systems.
    """

    def remount(options):
        words = ["mount", "-o", f"remount,{options}", str(folder)]
        subprocess.run(words, check=True)

    folder.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(words, capture_output=True).returncode:
        raise CannotTry("file systems cannot be mounted here")
    try:
        yield remount
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


class CannotTry(Exception):
    """This machine cannot produce a fault."""
