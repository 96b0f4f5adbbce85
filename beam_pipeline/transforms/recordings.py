"""Augmentations that take recorded sounds from a folder: rooms and backgrounds.

A recipe names the folder. The files are listed and decoded elsewhere, see
:mod:`beam_pipeline.examples.sound_folders`; here they are arrays.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy  # loads its packages when they are used

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.augment import (
    MAX_DB,
    Drawn,
    Keys,
    between,
    check_range,
    draw,
    draw_whole,
)
from beam_pipeline.transforms.base import FloatArray, as_float32, real
from beam_pipeline.transforms.quiet import quiet
from beam_pipeline.transforms.selection import mean_square


class Sound(NamedTuple):
    """A recorded sound: its name in its folder, and its samples of shape (frames,)."""

    name: str
    samples: FloatArray


class _FromFolder:
    """An augmentation that takes recorded sounds from a folder."""

    folder: str
    sha256: str

    def __post_init__(self) -> None:
        for name in ("folder", "sha256"):
            value = getattr(self, name)
            if not isinstance(value, str):
                raise RecipeError(name, "must be text", value)
        if not self.folder:
            raise RecipeError("folder", "must name a folder of sounds", self.folder)

    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        """Raises: the sounds must be loaded first, see ``with_sounds``."""
        raise RecipeError(
            "folder", "is not loaded; use with_sounds(sounds).augment", self.folder
        )


@dataclass(frozen=True, kw_only=True)
class Reverb(_FromFolder):
    """Lets each window sound as in a room: convolves it with an impulse response.

    ::

        r = (x * h)[0 .. frames - 1]
        y = (1 - wet) x + wet * rms(x) / rms(r) * r

    ``h`` is a file of the folder, chosen by the window's key, mixed to mono, at the
    window's sample rate. It counts from its largest sample on, so that the direct sound
    stays where it is. ``rms`` is over all frames and channels of the window, so with
    ``wet=1`` the level stays. What sounds after the end of the window is cut off, and
    nothing sounds before its start. All channels have the same ``h``. Silence stays
    silence.

    Attributes
    ----------
    folder : str
        A folder of audio files, local or in a store; its subfolders count. Each process
        holds all of them in memory, decoded, 1 GiB at most. The name of a file decides
        its place, so renaming files changes what is chosen.
    wet : float
        Share of the room, 0 to 1.
    sha256 : str
        SHA-256 of the names and contents of the files. ``record`` fills it in, and
        refuses a folder that has changed.

    Raises
    ------
    RecipeError
        If a value is out of its range; when data are recorded, if the folder has no
        audio file, a file cannot be decoded or is silent, or the files have changed.

    Examples
    --------
    >>> room = Reverb(folder="rooms").with_sounds([Sound("a", np.float32([0, 1, 1]))])
    >>> windows, keys = np.float32([[1, 0, 0, 0]]), np.array([1], np.uint64)
    >>> room.augment(windows, keys, 16000)[:, :2].round(3)
    array([[0.707, 0.707]], dtype=float32)
    """

    folder: str
    wet: float = 1.0
    sha256: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        object.__setattr__(self, "wet", real("wet", self.wet))
        if not 0 <= self.wet <= 1:
            raise RecipeError("wet", "must be between 0 and 1", self.wet)

    def with_sounds(self, sounds: Sequence[Sound]) -> LoadedReverb:
        """The step with the sounds of its folder, in the order of their names."""
        return LoadedReverb(self, tuple(sounds))


@dataclass(frozen=True, eq=False)
class LoadedReverb:
    """A :class:`Reverb` whose impulse responses are loaded."""

    step: Reverb
    sounds: tuple[Sound, ...]

    @quiet
    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        windows = as_float32(windows)
        out = np.empty(windows.shape, np.float32)
        wet = self.step.wet
        chosen = draw_whole(keys, 0, len(self.sounds)).tolist()
        for window, made, number in zip(windows, out, chosen, strict=True):
            room = _convolve(window, self.sounds[number].samples)
            power = float(np.square(room).mean())
            gain = wet * (mean_square(window) / power) ** 0.5 if power else 0.0
            made[...] = (1 - wet) * window.astype(np.float64) + gain * room
        return out

    def drawn(self, keys: Keys, frames: int, sample_rate_hz: int) -> Drawn:
        """The file of each window."""
        return {"file": _names(self.sounds, draw_whole(keys, 0, len(self.sounds)))}


@dataclass(frozen=True, kw_only=True)
class Background(_FromFolder):
    """Adds a recorded sound to each window, at a random signal-to-noise ratio.

    ::

        y = x + n * rms(x) / rms(n) * 10**(-snr_db / 20)

    with ``rms`` over all frames and channels of the window, and ``snr_db`` uniform from
    ``low_snr_db`` to ``high_snr_db``. ``n`` is as long as the window, from a random
    frame on of a file of the folder, which the window's key chooses; it is mixed to
    mono, at the window's sample rate. A sound that is shorter than the window begins
    at a random frame, and repeats. All channels have the same ``n``. Silence stays
    silence. Where the sound is silent for the whole window, nothing is added.

    Attributes
    ----------
    folder : str
        A folder of audio files, local or in a store; its subfolders count. Each process
        holds all of them in memory, decoded, 1 GiB at most. The name of a file decides
        its place, so renaming files changes what is chosen.
    low_snr_db, high_snr_db : float
        dB, -100 to 100.
    sha256 : str
        SHA-256 of the names and contents of the files. ``record`` fills it in, and
        refuses a folder that has changed.

    Raises
    ------
    RecipeError
        If a value is out of its range, or ``high_snr_db`` is below ``low_snr_db``; when
        data are recorded, as for :class:`Reverb`.

    Examples
    --------
    >>> step = Background(folder="noises", low_snr_db=20, high_snr_db=20)
    >>> noise = step.with_sounds([Sound("a", np.float32([0.5, -0.5]))])
    >>> windows, keys = np.ones((1, 4), np.float32), np.array([1], np.uint64)
    >>> noise.augment(windows, keys, 16000).round(3)
    array([[1.1, 0.9, 1.1, 0.9]], dtype=float32)
    """

    folder: str
    low_snr_db: float = 0.0
    high_snr_db: float = 20.0
    sha256: str = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range(self, "low_snr_db", "high_snr_db", -MAX_DB, MAX_DB)

    def with_sounds(self, sounds: Sequence[Sound]) -> LoadedBackground:
        """The step with the sounds of its folder, in the order of their names."""
        return LoadedBackground(self, tuple(sounds))


@dataclass(frozen=True, eq=False)
class LoadedBackground:
    """A :class:`Background` whose sounds are loaded."""

    step: Background
    sounds: tuple[Sound, ...]

    @quiet
    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        windows = as_float32(windows)
        out = np.empty(windows.shape, np.float32)
        frames = windows.shape[-1]
        drawn = self._drawn(keys, frames)
        for window, noisy, number, first, ratio in zip(
            windows, out, *drawn, strict=True
        ):
            samples = self.sounds[number].samples[first : first + frames]
            if len(samples) < frames:
                whole = np.roll(self.sounds[number].samples, -first)
                samples = np.resize(whole, frames)
            power = mean_square(samples)
            gain = ratio * (mean_square(window) / power) ** 0.5 if power else 0.0
            np.multiply(samples, np.float32(gain), out=noisy)
            noisy += window
        return out

    def drawn(self, keys: Keys, frames: int, sample_rate_hz: int) -> Drawn:
        """The file of each window, its first frame there, and the ratio."""
        chosen, firsts, _ = self._drawn(keys, frames)
        return {
            "file": _names(self.sounds, chosen),
            "first_frame": firsts,
            "snr_db": self._snr_db(keys),
        }

    def _snr_db(self, keys: Keys) -> npt.NDArray[np.float64]:
        return between(self.step.low_snr_db, self.step.high_snr_db, keys, 2)

    def _drawn(self, keys: Keys, frames: int) -> tuple[npt.NDArray[Any], ...]:
        """The number of each window's sound, its first frame, and a ratio of levels."""
        chosen = draw_whole(keys, 0, len(self.sounds))
        lengths = np.array([len(sound.samples) for sound in self.sounds])[chosen]
        places = np.where(lengths < frames, lengths, lengths - frames + 1)
        firsts = np.floor(draw(keys, 1) * places).astype(np.int64)
        return chosen, firsts, 10 ** (self._snr_db(keys) / -20)


def _names(sounds: Sequence[Sound], chosen: npt.NDArray[np.int64]) -> npt.NDArray[Any]:
    return np.array([sound.name for sound in sounds])[chosen]


def _convolve(window: FloatArray, response: FloatArray) -> npt.NDArray[np.float64]:
    """The start of a convolution, as long as the window, from the direct sound on."""
    frames = window.shape[-1]
    direct = int(np.abs(response).argmax())
    tail = response[direct : direct + frames].astype(np.float64)
    length = scipy.fft.next_fast_len(frames + len(tail) - 1, real=True)
    spectrum = scipy.fft.rfft(window.astype(np.float64), length)
    spectrum *= scipy.fft.rfft(tail, length)
    convolved: npt.NDArray[np.float64] = scipy.fft.irfft(spectrum, length)
    return convolved[..., :frames]
