"""Synthetic recordings for tests, and transforms that misbehave."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import numpy as np
import soundfile

RATE = 8000


def write_sound(
    path: Path,
    frames: int,
    *,
    rate: int = RATE,
    channels: int = 1,
    seed: int = 0,
    subtype: str = "PCM_16",
) -> np.ndarray:
    """Writes noise of a seed; returns what soundfile reads back, float32."""
    path.parent.mkdir(parents=True, exist_ok=True)
    shape = (frames, channels) if channels > 1 else frames
    noise = np.random.default_rng(seed).uniform(-0.5, 0.5, shape)
    soundfile.write(path, noise, rate, subtype=subtype)
    return soundfile.read(path, dtype="float32")[0]


def write_corpus(
    folder: Path,
    classes: tuple[str, ...] = ("cat", "dog", "owl"),
    clips: int = 4,
    frames: int = 2500,
) -> dict[str, np.ndarray]:
    """A folder for each class with clips of different lengths; name -> samples."""
    return {
        f"{label}/{label}_{i}.wav": write_sound(
            folder / label / f"{label}_{i}.wav",
            frames + 100 * i,
            seed=100 * number + i,
        )
        for number, label in enumerate(classes)
        for i in range(clips)
    }


def _is_silent(windows: np.ndarray) -> bool:
    return not windows.any()


def die(windows: np.ndarray) -> np.ndarray:
    """Kills its process, as running out of memory does; silence survives."""
    if not _is_silent(windows):
        os.kill(os.getpid(), signal.SIGKILL)
    return windows


def fail_on_sound(windows: np.ndarray) -> np.ndarray:
    """Works on silence alone."""
    if not _is_silent(windows):
        raise ZeroDivisionError("a bug of one's own")
    return windows


def fail_on_loud(windows: np.ndarray) -> np.ndarray:
    """Fails where a sample is above 0.9."""
    if windows.max() > 0.9:
        raise ValueError("too loud")
    return windows


def grow_on_sound(windows: np.ndarray) -> np.ndarray:
    """Returns another shape than on silence."""
    return windows if _is_silent(windows) else windows[:, :-1]


def widen_on_sound(windows: np.ndarray) -> np.ndarray:
    """Returns another dtype than on silence."""
    return windows if _is_silent(windows) else windows.astype(np.float64)


def always_fail(windows: np.ndarray) -> np.ndarray:
    """Fails on anything."""
    raise ZeroDivisionError("a bug of one's own")


def spectrum(windows: np.ndarray) -> np.ndarray:
    """The complex spectrum; complex64."""
    return np.fft.rfft(windows).astype(np.complex64)


def name_of_level(windows: np.ndarray) -> np.ndarray:
    """One text a window."""
    return np.array(["quiet" if _is_silent(w) else "läut" for w in windows])


def first_sample(windows: np.ndarray) -> np.ndarray:
    """One float64 a window."""
    return windows[:, 0].astype(np.float64)
