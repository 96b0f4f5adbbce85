"""Peers of the constant-Q transform."""

import librosa
import numpy as np

from tests.benchmarks.peers import Case

F_MIN = 32.703


def librosa_cqt(windows, rate):
    return np.abs(librosa.cqt(windows, sr=rate, hop_length=512, fmin=F_MIN))


def librosa_fine_cqt(windows, rate):
    return np.abs(
        librosa.cqt(
            windows, sr=rate, hop_length=256, fmin=F_MIN,
            n_bins=252, bins_per_octave=36,
        )
    )  # fmt: skip


def librosa_decimal_cqt(windows, rate):
    return np.abs(librosa.cqt(windows, sr=rate, hop_length=160, fmin=F_MIN))


def librosa_chroma(windows, rate):
    return librosa.feature.chroma_cqt(
        y=windows, sr=rate, fmin=F_MIN, hop_length=512, tuning=0.0
    )


CASES = [
    Case(
        "cqt(n_bins=84,hop=512)",
        {"librosa, batch": librosa_cqt},
        {"librosa": librosa_cqt},
    ),
    Case("cqt(n_bins=84,hop=160)", {"librosa, batch": librosa_decimal_cqt}),
    Case(
        "cqt(bins_per_octave=36,n_bins=252,hop=256)",
        {"librosa, batch": librosa_fine_cqt},
    ),
    Case(
        "chroma(bins_per_octave=36,n_octaves=7,hop=512)",
        {"librosa, batch": librosa_chroma},
        {"librosa": librosa_chroma},
    ),
]
