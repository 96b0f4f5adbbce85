"""One try: a job, its processes, and the bytes that it has to give."""

from __future__ import annotations

import contextlib
import functools
import hashlib
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
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

RATE = 8000
CLIPS = 12
SHARDS = 8
PATIENCE_S = 120.0  # a run that takes longer hangs
_MARK = "AUDIO_TFRECORDS_FAULT"

# Runs are forks of a server that has imported everything: they start at once.
_FORKS: Any = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(
    ["beam_pipeline.cli.main", "beam_pipeline.api", "beam_pipeline.run.local",
     "beam_pipeline.read.decode_again", "beam_pipeline.audio.decoder",
     "beam_pipeline.read.audit"]
)  # fmt: skip


@functools.cache
def start_server() -> bool:
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

    def __init__(self, root: Path, seed: int, workers: int | None = None):
        self.root = root
        self.random = random.Random(seed)
        self.sounds = root / "sounds"
        self.output = root / "records"
        self.temporary = root / "tmp"
        self.workers = workers or self.random.choice((1, 2))
        self._mark = f"{os.getpid()}-{seed}-{root.name}"
        self.temporary.mkdir(parents=True)
        write_sounds(self.sounds)
        self.output.mkdir()

    def arguments(self, *more: str, output: Path | str | None = None) -> list[str]:
        """Returns the command of the job."""
        return [
            "record", f"--input={self.sounds}", f"--output={output or self.output}",
            "--win-seconds=.5", "--hop-seconds=.1", f"--num-shards={SHARDS}",
            "--feature=mel=log_mel(n_fft=256,hop=64,n_mels=32)",
            "--feature=signal=identity()",
            f"--workers={self.workers}", *more,
        ]  # fmt: skip

    def start(self, *more: str, **options: Any) -> Run:
        """Starts the job."""
        return self.start_command(self.arguments(*more, **options))

    def start_command(self, arguments: Sequence[str], **environment: str) -> Run:
        """Starts a command in a session of its own."""
        start_server()
        marked = {"TMPDIR": str(self.temporary), _MARK: self._mark, **environment}
        return start_run(self.root, main_command, list(arguments), marked)

    def run(self, *more: str, **options: Any) -> tuple[int, str]:
        """Runs the job; returns its exit status and what it said."""
        return self.start(*more, **options).end()

    def reference(self) -> dict[str, str]:
        """The digests of a run that nothing disturbs; also measures its time."""
        output, self.output = self.output, self.root / "undisturbed"
        found = self.reference_of()
        shutil.rmtree(self.output)
        self.output = output
        return found

    def reference_of(self, *more: str) -> dict[str, str]:
        """The digests of the output after a run with these flags, and its time."""
        started = time.monotonic()
        status, said = self.run(*more)
        self.seconds = time.monotonic() - started
        assert status == 0, said
        return digests(self.output)

    def some_moment(self) -> None:
        """Waits for a random part of the time of a run."""
        time.sleep(self.random.uniform(0.0, 1.1) * self.seconds)

    def processes(self) -> list[int]:
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

    def check(self, wanted: dict[str, str], output: Path | None = None) -> None:
        """Fails unless the output has these files, and nothing else is left."""
        check_same(digests(output or self.output), wanted)
        self.check_nothing_left()

    def check_nothing_left(self) -> None:
        """Fails if processes, or files in the temporary folder, are left."""
        deadline = time.monotonic() + 5
        while (left := self.processes()) and time.monotonic() < deadline:
            time.sleep(0.02)
        assert not left, f"processes are left: {left}"


class Run:
    """A run of a command."""

    def __init__(self, process: Any, said: Path):
        self._process = process
        self._said = said

    @property
    def pid(self) -> int:
        return int(self._process.pid)

    def children(self) -> list[int]:
        """The processes that the run has started."""
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        try:
            return [int(word) for word in path.read_text().split()]
        except OSError:
            return []

    def signal_all(self, number: int) -> None:
        """Sends a signal to the run and to its processes."""
        try:
            os.killpg(self.pid, number)
        except ProcessLookupError:  # it is still about to make its group
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def is_alive(self) -> bool:
        return bool(self._process.is_alive())

    def end(self) -> tuple[int, str]:
        """Waits; returns the exit status (negative: a signal) and what was said."""
        self._process.join(PATIENCE_S)
        if self._process.exitcode is None:
            self.signal_all(signal.SIGKILL)
            self._process.join()
            raise AssertionError(f"the run hangs; it said: {self._said.read_text()}")
        return int(self._process.exitcode), self._said.read_text()


Command = Callable[[list[str]], int]


def start_run(
    root: Path, command: Command, arguments: list[str], environment: dict[str, str]
) -> Run:
    """Starts a command in a session of its own; what it says goes to a file."""
    said = root / f"said-{len(list(root.glob('said-*')))}.txt"
    said.touch()
    process = _FORKS.Process(
        target=_in_session, args=(command, arguments, str(said), environment)
    )
    process.start()
    return Run(process, said)


def _in_session(
    command: Command, arguments: list[str], said: str, environment: dict[str, str]
) -> None:
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


def main_command(arguments: list[str]) -> int:
    """The command line, with as many open files as the environment says."""
    from beam_pipeline.cli.main import main

    if more := os.environ.get("FAULT_OPEN_FILES"):
        most = len(os.listdir("/proc/self/fd")) + int(more)
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    return main(arguments)


def check_same(found: dict[str, str], wanted: dict[str, str]) -> None:
    """Fails unless these are the digests of the same files."""
    differing = {n for n in {*found, *wanted} if found.get(n) != wanted.get(n)}
    assert not differing, f"differ from an undisturbed run: {sorted(differing)}"


def write_sounds(folder: Path) -> None:
    """Writes clips of noise of different lengths in two formats, in three classes."""
    noise = np.random.default_rng(0).normal(0, 0.1, CLIPS * RATE).astype(np.float32)
    for k in range(CLIPS):
        path = folder / "abc"[k % 3] / f"{k}.{'flac' if k % 2 else 'wav'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        soundfile.write(path, noise[k * 4000 : k * 4000 + (3 + k) * 4000], RATE)


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def digests(folder: Path) -> dict[str, str]:
    """The digest of every file below a folder, by name."""
    return {
        str(path.relative_to(folder)): digest(path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


@contextlib.contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Callable[[str], None]]:
    """A file system of a size in bytes at a folder; yields a function to remount it.

    Raises
    ------
    CannotTry
        If this user cannot mount file systems.
    """

    def remount(options: str) -> None:
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
