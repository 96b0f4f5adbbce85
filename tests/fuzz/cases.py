"""One case: a mutated file, and what becomes of it in a process of its own."""

import multiprocessing
import resource
import tempfile
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from beam_pipeline.audio.clip_reader import ClipReader, probe_audio
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


def make_case(seed, number):
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


def record(path):
    """Probes a file and reads it as `record` does."""
    try:
        return _record(path)
    except Exception as error:
        return Outcome("error", repr(error))


def _record(path):
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

    def __init__(self):
        self._folder = tempfile.TemporaryDirectory()
        self.pool: ProcessPoolExecutor | None = None

    def run(self, case):
        """Records a case's file."""
        path = Path(self._folder.name, "clip")
        path.write_bytes(case.data)
        if self.pool is None:
            context = multiprocessing.get_context("spawn")
            self.pool = ProcessPoolExecutor(1, context, _limit_memory)
        try:
            return self.pool.submit(record, str(path)).result(SECONDS)
        except (TimeoutError, BrokenProcessPool) as error:
            self.close()
            return Outcome("hang" if isinstance(error, TimeoutError) else "crash")

    def close(self):
        """Ends the process."""
        if self.pool is not None:
            for process in list((self.pool._processes or {}).values()):
                process.kill()
            self.pool.shutdown()
            self.pool = None

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
        self._folder.cleanup()


def _limit_memory():
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
