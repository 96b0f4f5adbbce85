"""Peers of the steps from signals to signals, and of loudness."""

import functools

import librosa
import numpy as np
import pyloudnorm
import scipy.signal
import scipy.stats
import soxr
import tensorflow as tf

from beam_pipeline.transforms.signals import low_pass_taps
from tests.benchmarks.peers import Case

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)


def hilbert(windows, rate):
    return scipy.signal.hilbert(windows)


@tf.function
def _tf_analytic(windows):
    frames = windows.shape[-1]
    gains = np.zeros(frames, np.complex64)
    gains[[0, frames // 2]] = 1
    gains[1 : frames // 2] = 2
    return tf.signal.ifft(tf.signal.fft(tf.cast(windows, tf.complex64)) * gains)


def tf_analytic(windows, rate):
    return _tf_analytic(windows)


def sosfiltfilt(kind, edges, order=4):
    def apply(windows, rate):
        sections = scipy.signal.butter(order, edges, kind, fs=rate, output="sos")
        return scipy.signal.sosfiltfilt(sections, windows)

    return apply


def resample_poly(up, down, **kwargs):
    return lambda windows, rate: scipy.signal.resample_poly(
        windows, up, down, axis=-1, **kwargs
    )


def same_taps(up, down):
    taps = low_pass_taps(up, down).astype(np.float32)
    return resample_poly(up, down, window=taps)


def soxr_hq(to_hz):
    return lambda window, rate: soxr.resample(window, rate, to_hz)


@functools.cache
def _meter(rate):
    return pyloudnorm.Meter(rate)


def pyloudnorm_lufs(window, rate):
    return _meter(rate).integrated_loudness(window)


def librosa_loudness(windows, rate):
    power = abs(librosa.stft(windows, n_fft=1024, hop_length=256, center=False)) ** 2
    weights = librosa.A_weighting(librosa.fft_frequencies(sr=rate, n_fft=1024))
    weighted = (power * 10 ** (weights[:, np.newaxis] / 10)).sum(axis=-2)
    return librosa.power_to_db(weighted, top_db=None)


def librosa_rms(windows, rate):
    rms = librosa.feature.rms(
        y=windows, frame_length=1024, hop_length=256, center=False
    )
    return librosa.amplitude_to_db(rms, top_db=None)


def pre_emphasis(windows, rate):
    return librosa.effects.preemphasis(windows, coef=0.97)


def lfilter(windows, rate):
    return scipy.signal.lfilter(np.float32([1, -0.97]), np.float32([1]), windows)


@tf.function
def _tf_pre_emphasis(windows):
    first = windows[:, :1] * 0.03
    return tf.concat([first, windows[:, 1:] - 0.97 * windows[:, :-1]], axis=-1)


def tf_pre_emphasis(windows, rate):
    return _tf_pre_emphasis(windows)


def zscore(windows, rate):
    return scipy.stats.zscore(windows, axis=-1)


def median(windows, rate):
    return windows - np.median(windows, axis=-1, keepdims=True)


CASES = [
    Case("analytic()", {"scipy": hilbert, "tf.signal": tf_analytic}),
    Case("band_pass(low_hz=300,high_hz=3400)",
         {"scipy": sosfiltfilt("bandpass", (300, 3400))}),
    Case("downsample(ratio=2)",
         {"scipy, same taps": same_taps(1, 2), "scipy, its taps": resample_poly(1, 2)},
         {"soxr HQ": soxr_hq(8000)}),
    Case("high_pass(cutoff_hz=50)", {"scipy": sosfiltfilt("highpass", 50)}),
    Case("loudness(frame=1024,hop=256,weighting='a')",
         {"librosa, batch": librosa_loudness}),
    Case("loudness(frame=1024,hop=256,weighting='none')",
         {"librosa, batch, no taper": librosa_rms}),
    Case("low_pass(cutoff_hz=1000)", {"scipy": sosfiltfilt("lowpass", 1000)}),
    Case("lufs()", {}, {"pyloudnorm": pyloudnorm_lufs}),
    Case("normalize(kind='median')", {"numpy": median}),
    Case("normalize(kind='standard')", {"scipy": zscore}),
    Case("pre_emphasis()",
         {"librosa, batch": pre_emphasis, "scipy": lfilter,
          "TensorFlow": tf_pre_emphasis}),
    Case("resample(rate_hz=22050)",
         {"scipy, same taps": same_taps(441, 320),
          "scipy, its taps": resample_poly(441, 320)},
         {"soxr HQ": soxr_hq(22050)}),
]  # fmt: skip
