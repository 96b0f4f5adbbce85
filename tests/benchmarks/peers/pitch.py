"""Peers of the pitch."""

import librosa

from tests.benchmarks.peers import Case

RANGE = {"fmin": 65, "fmax": 2093, "frame_length": 2048, "hop_length": 512}


def librosa_yin(windows, rate):
    return librosa.yin(windows, sr=rate, center=False, **RANGE)


def librosa_pyin(windows, rate):
    return librosa.pyin(windows, sr=rate, center=False, **RANGE)


CASES = [
    Case("yin()", {"librosa, batch": librosa_yin}, {"librosa": librosa_yin}),
    Case("pyin()", {"librosa, batch": librosa_pyin}, {"librosa": librosa_pyin}),
]
