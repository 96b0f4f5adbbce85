"""Dither: faint noise on a whole clip, the same however the clip is cut."""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass

import numpy as np

from beam_pipeline.errors import RecipeError
from beam_pipeline.hashing import clip_key, hash64
from beam_pipeline.transforms.augment import white_noise
from beam_pipeline.transforms.base import INT16_SCALE, FloatArray, real

# The standard deviation of the sum of four numbers from 0 to 65535.
_STD = math.sqrt(4 * (65536**2 - 1) / 12)


@dataclass(frozen=True, kw_only=True)
class Dither:
    """Adds faint noise to a whole clip, as Kaldi does to each frame.

    ::

        y[t] = x[t] + amplitude / 32768 * g[t]

    with noise ``g`` of mean 0 and standard deviation 1. So the amplitude is in steps of
    16-bit audio, the scale of Kaldi's samples, where 1 is the default. It keeps the
    logarithm of a band without any energy away from its floor.

    ``g`` depends on the seed, on the clip's path and input, on the number of the frame
    in the clip's file (at the output rate), and on the channel. So a frame has the same
    noise in all windows that have it, in all copies, features and parts of the file, in
    any block, and with any number of workers. Kaldi instead draws new noise for each
    frame of a spectrum and in each run.

    ``g`` is the sum of the four 16-bit parts of a word of SplitMix64, scaled; see
    :class:`Noise`. It is nearly normal (kurtosis 2.7 instead of 3) and ends at 3.46
    standard deviations.

    Attributes
    ----------
    amplitude : float
        Standard deviation of the noise, in steps of 16-bit audio, 0 to 32768.
    seed : int
        Another seed gives other noise.

    Raises
    ------
    RecipeError
        If the amplitude is out of its range, or the seed is not a whole number.

    References
    ----------
    D. Povey et al., The Kaldi Speech Recognition Toolkit, ASRU 2011.

    Examples
    --------
    >>> noise = Dither(amplitude=8).of_clip("a.wav", 0, 0)
    >>> silence = np.zeros((1, 5), np.float32)
    >>> (noise.on_stream_from(0, silence, 16000) * 32768).round(2)[0]
    array([ -1.38,   2.6 ,  -9.5 , -11.78, -13.24], dtype=float32)
    """

    amplitude: float = 1.0
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "amplitude", real("amplitude", self.amplitude))
        if not 0 <= self.amplitude <= INT16_SCALE:
            raise RecipeError(
                "amplitude", f"must be between 0 and {INT16_SCALE}", self.amplitude
            )
        is_whole = isinstance(self.seed, numbers.Integral)
        if not is_whole or isinstance(self.seed, bool):
            raise RecipeError("seed", "must be a whole number", self.seed)

    def context(self, sample_rate_hz: int) -> int:
        """The number of earlier frames that a frame depends on: none."""
        return 0

    def of_clip(self, filepath: str, source: int, start: int) -> ClipDither:
        """The dither of a clip that begins at a frame of its file."""
        key = clip_key(self.seed, filepath, source)
        return ClipDither(self.amplitude / INT16_SCALE / _STD, key, start)


@dataclass(frozen=True)
class ClipDither:
    """A dither whose clip is known: its factor, its key, and its start in its file."""

    factor: float
    key: int
    start: int

    def context(self, sample_rate_hz: int) -> int:
        return 0

    def on_stream_from(
        self, first: int, frames: FloatArray, sample_rate_hz: int
    ) -> FloatArray:
        """Adds noise to frames (rows, frames) of the clip, from ``first`` on."""
        begin = self.start + first
        keys = hash64(self.key, np.arange(len(frames), dtype=np.int64)).tolist()
        out = np.empty(frames.shape, np.float32)
        for row, key in zip(out, keys, strict=True):
            row[:] = white_noise(key, begin, begin + frames.shape[-1])
        out *= np.float32(self.factor)
        out += frames
        return out
