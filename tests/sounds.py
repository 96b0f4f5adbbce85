"""Synthetic recordings for tests, and transforms that misbehave."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

RATE = 8000


def write_samples(
    path: Path, samples: np.ndarray, rate: int = RATE, **options: Any
) -> None:
    """Writes samples by soundfile, in a folder that need not be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, samples, rate, **options)


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
    shape = (frames, channels) if channels > 1 else frames
    noise = np.random.default_rng(seed).uniform(-0.5, 0.5, shape)
    write_samples(path, noise, rate, subtype=subtype)
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
            folder / label / f"{label}_{i}.wav", frames + 100 * i, seed=100 * number + i
        )
        for number, label in enumerate(classes)
        for i in range(clips)
    }


def damage(path: Path, share: float = 0.5, count: int = 1) -> None:
    """Turns all bits of some bytes of a file, which begin at a share of its length."""
    content = bytearray(path.read_bytes())
    place = slice(int(share * len(content)), int(share * len(content)) + count)
    content[place] = bytes(255 - byte for byte in content[place])
    path.write_bytes(content)


def _is_silent(windows: np.ndarray) -> bool:
    return not windows.any()


def die(windows: np.ndarray) -> np.ndarray:
    """Kills its process, as running out of memory does; silence survives."""
    if not _is_silent(windows):
        os.kill(os.getpid(), signal.SIGKILL)
    return windows


def stall_on_sound(windows: np.ndarray) -> np.ndarray:
    """Takes as long as the test."""
    if not _is_silent(windows):
        time.sleep(600)
    return windows


def fail_on_loud(windows: np.ndarray) -> np.ndarray:
    """Fails where a sample is above 0.9."""
    if windows.max() > 0.9:
        raise ValueError("too loud")
    return windows


def spectrum(windows: np.ndarray) -> np.ndarray:
    """The complex spectrum; complex64."""
    return np.fft.rfft(windows).astype(np.complex64)


def name_of_level(windows: np.ndarray) -> np.ndarray:
    """One text a window."""
    return np.array(["quiet" if _is_silent(w) else "läut" for w in windows])


def first_sample(windows: np.ndarray) -> np.ndarray:
    """One float64 a window."""
    return windows[:, 0].astype(np.float64)


def _is_loud(windows: np.ndarray) -> bool:
    return bool(windows.max() > 0.9)


def crash_on_loud(windows: np.ndarray) -> np.ndarray:
    """Reads address 0, as a bug of a library does."""
    if _is_loud(windows):
        ctypes.string_at(0)
    return windows


def dawdle_on_loud(windows: np.ndarray) -> np.ndarray:
    """Takes five seconds."""
    if _is_loud(windows):
        time.sleep(5)
    return windows


def interrupt_on_loud(windows: np.ndarray) -> np.ndarray:
    """Looks like the user, who has pressed Ctrl-C."""
    if _is_loud(windows):
        raise KeyboardInterrupt
    return windows


def misbehave(windows: np.ndarray) -> np.ndarray:
    """Ends its process at two clips.

    The first sample of a clip, times ten, says how; 5 and 6 lose the clip.
    """
    kind = round(float(windows[0, 0]) * 10)
    if kind == 5:
        sys.exit()
    if kind == 6:
        os._exit(0)
    return windows


def lose_five_and_six(windows: np.ndarray) -> np.ndarray:
    """Loses the same clips as `misbehave`, in a good way."""
    if round(float(windows[0, 0]) * 10) in (5, 6):
        raise ValueError("5 or 6")
    return windows


def similarity(windows: np.ndarray) -> np.ndarray:
    """Products of all pairs of every 500th sample: two axes as long as the window."""
    some = windows[:, ::500]
    return some[:, :, np.newaxis] * some[:, np.newaxis, :]


def level_and_sign(windows: np.ndarray) -> dict[str, np.ndarray]:
    """Two features: the level of each frame, float32, and a text a window."""
    frames = windows[..., : windows.shape[-1] // 100 * 100]
    level = np.abs(frames.reshape(len(windows), -1, 100)).mean(-1)
    above = windows[:, 0] > 0
    return {"sign": np.where(above, "+", "-"), "level": level.astype(np.float32)}
