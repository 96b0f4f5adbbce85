"""Files that a function of the user reads whole: a loader.

::

    loader(path) -> (samples, sample_rate_hz)      float32 (frames,), (channels, frames)
    loader.probe(path) -> (frames, sample_rate_hz, channels)       only if it has this

The samples of a file are in memory while it is open. Nothing here knows its format.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np

from beam_pipeline.arrays import FloatArray
from beam_pipeline.audio.decoder import (
    AudioInfo,
    ForwardDecoder,
    Source,
    check_finite,
    opened,
)
from beam_pipeline.audio.integrity import naming_reads
from beam_pipeline.errors import (
    EmptyAudio,
    Unreadable,
    UnreadableAudio,
    is_of_machine,
)
from beam_pipeline.process import Marks
from beam_pipeline.text import shown

# What a clip has instead of the name of a subtype.
SUBTYPE = "float32"

_MOST_FRAMES = 1 << 48
_MOST_RATE_HZ = 1 << 40


@dataclass(frozen=True)
class Loader:
    """A loader, and its expression in the recipe, which names it.

    Attributes
    ----------
    load : callable
        From the path of a local file to ``(samples, sample_rate_hz)``.
    name : str
        ``package.module.function``; the format of the files that it reads.
    allow_nonfinite : bool
        Whether samples may be NaN or infinite.
    """

    load: Callable[[str], Any]
    name: str
    allow_nonfinite: bool = False

    def probe(self, source: Source, name: str) -> AudioInfo:
        """Returns what a file holds, by ``probe`` of the loader or by loading it.

        Parameters
        ----------
        source
            Local path, or open seekable binary file, of which the loader gets a copy.
        name
            Name of the file in errors.

        Raises
        ------
        UnreadableAudio
            The loader raises, or returns anything else than it should.
        EmptyAudio, NonFiniteAudio
            The file holds no frames, or samples that are NaN or infinite.
        """
        probe = getattr(self.load, "probe", None)
        with local_path(source, name) as path:
            if probe is None:
                samples, rate = self.samples(path, name)
                frames, channels = samples.shape
                info = AudioInfo(frames, rate, channels, self.name, SUBTYPE)
            else:
                info = self._header(self._call(probe, path, name), name)
        if info.frames == 0:
            raise EmptyAudio(name, "holds no frames")
        return info

    def _header(self, returned: Any, name: str) -> AudioInfo:
        values = returned if isinstance(returned, tuple) else ()
        whole = [n for n in map(_as_whole, values) if n is not None]
        if not len(whole) == len(values) == 3 or min(whole[1:]) < 1:
            raise UnreadableAudio(
                name,
                f"probe of the loader {self.name} returned {shown(returned, 200)}, but "
                "must return three whole numbers: (frames, sample_rate_hz, channels)",
            )
        frames, rate, channels = whole
        return AudioInfo(frames, rate, channels, self.name, SUBTYPE)

    def samples(self, path: str, name: str) -> tuple[FloatArray, int]:
        """Returns all samples of a file, and its sample rate.

        Returns
        -------
        samples : numpy.ndarray, shape (frames, channels), float32
        sample_rate_hz : int

        Raises
        ------
        UnreadableAudio, NonFiniteAudio
            See :meth:`probe`.
        """
        returned = self._call(self.load, path, name)
        is_pair = isinstance(returned, tuple) and len(returned) == 2
        samples, given = returned if is_pair else (None, None)
        rate = _as_whole(given)
        if (
            not isinstance(samples, np.ndarray)
            or samples.dtype != np.float32
            or samples.ndim not in (1, 2)
            or (samples.ndim == 2 and not len(samples))
            or rate is None
            or not 0 < rate <= _MOST_RATE_HZ
        ):
            parts = returned if isinstance(returned, tuple) else (returned,)
            raise UnreadableAudio(
                name,
                f"the loader {self.name} returned {', '.join(map(_shown, parts))}, but "
                "must return (samples, sample_rate_hz) with samples of float32 and "
                "shape (frames,) or (channels, frames), and a whole number of Hz",
            )
        frames = samples[:, np.newaxis] if samples.ndim == 1 else samples.T
        self._check_finite(frames, name)
        return frames, rate

    def _check_finite(self, frames: FloatArray, name: str) -> None:
        # The sum shows it without an array of truths for each sample.
        if self.allow_nonfinite or np.isfinite(frames.sum(dtype=np.float64)):
            return
        check_finite(frames, 0, name)

    def _call(self, function: Callable[[str], Any], path: str, name: str) -> Any:
        try:
            return function(path)
        except Exception as first:  # the loader's own code may raise anything
            error = first
        if not is_of_machine(error):
            # Libraries hide errors of reads. What the file holds fails every time.
            _read_all(path, name)
            try:
                return function(path)
            except Exception as second:
                error = second
        kind = Unreadable if is_of_machine(error) else UnreadableAudio
        raise kind(
            name, f"the loader {self.name} raised {type(error).__name__}: {error}"
        ) from error


class LoadedDecoder(ForwardDecoder):
    """The samples of a file that a loader has read, as a decoder gives them."""

    def __init__(
        self, source: Source, name: str, loader: Loader, probed: AudioInfo
    ) -> None:
        super().__init__(name)
        with local_path(source, name) as path:
            self._samples, rate = loader.samples(path, name)
        frames, channels = self._samples.shape
        header = AudioInfo(frames, rate, channels, loader.name, SUBTYPE)
        self.info = self.agreed(probed, header, is_exact=True)

    def read_into(self, out: np.ndarray) -> int:
        block = self._samples[self.position : self.position + len(out)]
        # Of one channel, the block may have one axis.
        out.reshape(-1, self.info.channels)[: len(block)] = block
        self.position += len(block)
        Marks.progress()
        return len(block)

    def skip_to(self, frame: int) -> None:
        self.position = frame

    def close(self) -> None:
        self._samples = self._samples[:0]


@contextlib.contextmanager
def local_path(source: Source, name: str) -> Iterator[str]:
    """Yields the path of a source: of a remote file, a copy, for the ``with`` block.

    The copy has the suffix of the file's name.
    """
    if isinstance(source, str):
        with opened(source, name):
            pass  # raises if there is no such file, or a pipe
        yield source
        return
    suffix = os.path.splitext(name)[1]
    with tempfile.NamedTemporaryFile(prefix="audio-tfrecords-", suffix=suffix) as copy:
        with naming_reads(name):
            source.seek(0)
            shutil.copyfileobj(source, copy)
        copy.flush()
        yield copy.name


def _read_all(path: str, name: str) -> None:
    """Reads a file to its end; raises a ClipError if the system cannot."""
    with naming_reads(name), open(path, "rb", 0) as file:
        while file.read(1 << 20):
            Marks.progress()


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    return f"{shown(value, 200)} of type {type(value).__name__}"


def _as_whole(value: Any) -> int | None:
    """Returns a whole number, also one that is a float; None for anything else."""
    if isinstance(value, bool) or not isinstance(value, Real | np.number):
        return None
    number = float(value)
    is_whole = number.is_integer() and 0 <= number <= _MOST_FRAMES
    return int(number) if is_whole else None
