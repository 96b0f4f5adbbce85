"""Peers of the shapes of spectra and of signals."""

import librosa

from tests.benchmarks.peers import Case

FRAMES = {"n_fft": 1024, "hop_length": 256, "center": False}
SIGNAL = {"frame_length": 1024, "hop_length": 256, "center": False}


def centroid(windows, rate):
    return librosa.feature.spectral_centroid(y=windows, sr=rate, **FRAMES)


def bandwidth(windows, rate):
    return librosa.feature.spectral_bandwidth(y=windows, sr=rate, **FRAMES)


def flatness(windows, rate):
    return librosa.feature.spectral_flatness(y=windows, **FRAMES)


def rolloff(windows, rate):
    return librosa.feature.spectral_rolloff(y=windows, sr=rate, **FRAMES)


def zero_crossing_rate(windows, rate):
    return librosa.feature.zero_crossing_rate(windows, **SIGNAL)


def rms(windows, rate):
    return librosa.feature.rms(y=windows, **SIGNAL)


CASES = [
    Case(expression, {"librosa, batch": other}, {"librosa": other})
    for expression, other in (
        ("rms(frame=1024,hop=256)", rms),
        ("spectral_bandwidth(n_fft=1024,hop=256)", bandwidth),
        ("spectral_centroid(n_fft=1024,hop=256)", centroid),
        ("spectral_flatness(n_fft=1024,hop=256)", flatness),
        ("spectral_rolloff(n_fft=1024,hop=256)", rolloff),
        ("zero_crossing_rate(frame=1024,hop=256)", zero_crossing_rate),
    )
]
