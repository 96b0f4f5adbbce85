"""Peers of the levels."""

import librosa
import numpy as np
import pyloudnorm

from tests.benchmarks.peers import Case


def peak(windows, rate):
    return librosa.util.normalize(windows, axis=-1)


def rms(windows, rate):
    level = np.sqrt(np.mean(windows**2, axis=-1, keepdims=True))
    return windows * (np.float32(0.1) / level)


def scaled(windows, rate):
    return windows * np.float32(10 ** (6 / 20))


def as_int16(windows, rate):
    return (windows * 32767).astype(np.int16)


def loudness(window, rate):
    level = pyloudnorm.Meter(rate).integrated_loudness(window)
    return pyloudnorm.normalize.loudness(window, level, -23.0)


CASES = [
    Case("gain(gain_db=6)", {"numpy": scaled}),
    Case(
        "identity(dtype='int16')", {"numpy": lambda w, rate: (w * 32767).astype("i2")}
    ),
    Case("lufs_gain()", {}, {"pyloudnorm": loudness}),
    Case("peak_gain()", {"librosa, batch": peak}),
    Case("rms_gain()", {"numpy, float32": rms}),
]
