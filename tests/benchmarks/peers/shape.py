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


def contrast(windows, rate):
    return librosa.feature.spectral_contrast(y=windows, sr=rate, **FRAMES)


def zero_crossing_rate(windows, rate):
    return librosa.feature.zero_crossing_rate(windows, **SIGNAL)


def rms(windows, rate):
    return librosa.feature.rms(y=windows, **SIGNAL)


def onset_strength(windows, rate):
    mel = librosa.feature.melspectrogram(y=windows, sr=rate, n_mels=64, **FRAMES)
    levels = librosa.power_to_db(mel, top_db=None)
    return librosa.onset.onset_strength_multi(S=levels, sr=rate, center=False)


CASES = [
    Case(expression, {"librosa, batch": other}, {"librosa": other})
    for expression, other in (
        ("onset_strength(n_fft=1024,hop=256,n_mels=64)", onset_strength),
        ("rms(frame=1024,hop=256)", rms),
        ("spectral_bandwidth(n_fft=1024,hop=256)", bandwidth),
        ("spectral_centroid(n_fft=1024,hop=256)", centroid),
        ("spectral_contrast(n_fft=1024,hop=256)", contrast),
        ("spectral_flatness(n_fft=1024,hop=256)", flatness),
        ("spectral_rolloff(n_fft=1024,hop=256)", rolloff),
        ("zero_crossing_rate(frame=1024,hop=256)", zero_crossing_rate),
    )
]
