"""One case: a mutated file, and what becomes of it in a process of its own."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector

import numpy as np

from beam_pipeline.audio.clip_reader import ClipReader
from beam_pipeline.audio.probe import probe_audio
from beam_pipeline.errors import ClipError
from tests.fuzz.mutations import MUTATIONS
from tests.fuzz.originals import Original, originals

MEMORY_BYTES = 2 << 30  # of addresses; numpy and libsndfile take a quarter of it
SECONDS = 20.0
_BLOCK = 4096


@dataclass(frozen=True)
class Case:
    """A mutated file."""

    number: int
    original: Original
    mutation: str
    data: bytes


@dataclass(frozen=True)
class Outcome:
    """What the probe and the reader made of a file.

    ``end`` is complete, rejected (by the probe), broke (while its samples were read),
    error (any other exception), crash or hang.
    """

    end: str
    reason: str = ""
    frames: int = 0
    rate: int = 0
    channels: int = 0
    samples: np.ndarray | None = None
    stderr: str = ""


def make_case(seed: int, number: int) -> Case:
    """Returns a case; the same for the same numbers."""
    rng = np.random.default_rng([seed, number])
    files = originals()
    original = files[number % len(files)]
    data, names = original.data, []
    for _ in range(1 if rng.random() < 0.7 else 2):
        mutation = MUTATIONS[int(rng.integers(len(MUTATIONS)))]
        if data:
            data = mutation(rng, data)
            names.append(mutation.__name__)
    return Case(number, original, "+".join(names), data)


def record(path: str) -> Outcome:
    """Probes a file and reads it as `record` does."""
    try:
        info = probe_audio(path, name="clip")
    except ClipError as error:
        return Outcome("rejected", f"{type(error).__name__}: {error.reason}")
    about = (info.frames, info.sample_rate_hz, info.channels)
    blocks = []
    try:
        with ClipReader(path, info, name="clip", channels="keep") as clip:
            for start in range(0, info.frames, _BLOCK):
                block = clip.read(start, min(start + _BLOCK, info.frames))
                blocks.append(block.T.copy())
    except ClipError as error:
        return Outcome("broke", f"{type(error).__name__}: {error.reason}", *about)
    return Outcome("complete", "", *about, np.concatenate(blocks))


class Child:
    """A process that records files; another takes its place if it dies or hangs."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._process: subprocess.Popen[str] | None = None
        self.peak_bytes = 0

    def run(self, case: Case) -> Outcome:
        """Records a case's file."""
        folder = Path(self._folder.name)
        (folder / "clip").write_bytes(case.data)
        if self._process is None:
            self._process = self._started()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError):  # it died since the last case
            process.stdin.write("clip\n")
            process.stdin.flush()
        with DefaultSelector() as selector:
            selector.register(process.stdout, EVENT_READ)
            answered = bool(selector.select(SECONDS))
        line = process.stdout.readline() if answered else ""
        noise = (folder / "stderr").read_text("utf-8", "replace")
        (folder / "stderr").write_text("")
        if not line:
            end = "crash" if answered else "hang"
            self._kill()
            return Outcome(end, noise[-300:], stderr=noise)
        answer = json.loads(line)
        self.peak_bytes = max(self.peak_bytes, answer.pop("peak"))
        samples = None
        if answer["end"] == "complete":
            samples = np.fromfile(folder / "samples", np.float32)
            samples = samples.reshape(-1, answer["channels"])
        return Outcome(**answer, samples=samples, stderr=noise)

    def _started(self) -> subprocess.Popen[str]:
        with open(Path(self._folder.name) / "stderr", "a") as stderr:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.fuzz.cases", self._folder.name],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                text=True,
            )

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            with suppress(BrokenPipeError):
                self._process.communicate()
            self._process = None

    def close(self) -> None:
        self._kill()
        self._folder.cleanup()

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _serve(folder: Path, requests: Iterator[str]) -> None:
    """Answers each line with the outcome for the file of that name."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a library prints is noise on either
    for line in requests:
        try:
            outcome = record(str(folder / line.strip()))
        except Exception as error:
            outcome = Outcome("error", repr(error))
        if outcome.samples is not None:
            outcome.samples.tofile(folder / "samples")
        answer = {
            name: getattr(outcome, name)
            for name in ("end", "reason", "frames", "rate", "channels")
        }
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({**answer, "peak": peak}), file=answers, flush=True)


if __name__ == "__main__":
    _serve(Path(sys.argv[1]), iter(sys.stdin))
