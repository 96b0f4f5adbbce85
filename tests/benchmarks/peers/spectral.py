"""Peers of the spectra."""

import librosa
import numpy as np
import scipy.fft
import scipy.signal
import tensorflow as tf

from tests.benchmarks.peers import Case

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)

N_FFT, HOP = 1024, 256


@tf.function
def _tf_log_mel(windows, weights):
    power = tf.abs(tf.signal.stft(windows, N_FFT, HOP)) ** 2
    return tf.math.log(tf.maximum(tf.matmul(power, weights), 1e-10))


def tf_log_mel(windows, rate):
    weights = tf.signal.linear_to_mel_weight_matrix(64, N_FFT // 2 + 1, rate, 0, 8000)
    return _tf_log_mel(windows, weights)


def librosa_log_mel(windows, rate):
    mel = librosa.feature.melspectrogram(
        y=windows, sr=rate, n_fft=N_FFT, hop_length=HOP, n_mels=64, center=False
    )
    return np.log(np.maximum(mel, 1e-10))


def librosa_image(windows, rate):
    levels = 255 / 32 * (librosa_log_mel(windows, rate) + 23)
    return np.clip(np.rint(levels), 0, 255).astype(np.uint8)


def librosa_mel(windows, rate):
    return librosa.feature.melspectrogram(
        y=windows, sr=rate, n_fft=N_FFT, hop_length=HOP, n_mels=64, center=False
    )


def librosa_stft(windows, rate):
    return librosa.stft(windows, n_fft=N_FFT, hop_length=HOP, center=False)


def scipy_stft(windows, rate):
    return scipy.signal.stft(
        windows, rate, nperseg=N_FFT, noverlap=N_FFT - HOP, boundary=None, padded=False
    )[2]


@tf.function
def _tf_stft(windows):
    return tf.signal.stft(windows, N_FFT, HOP)


@tf.function
def _tf_magnitude(windows):
    return tf.abs(tf.signal.stft(windows, N_FFT, HOP))


@tf.function
def _tf_fft(windows):
    return tf.signal.rfft(windows)


def without_rate(function):
    return lambda windows, rate: function(windows)


CASES = [
    Case(
        "log_mel(n_fft=1024,hop=256,n_mels=64)",
        {"librosa, batch": librosa_log_mel, "tf.signal": tf_log_mel},
        {"librosa": librosa_log_mel},
    ),
    Case(
        "log_mel(n_fft=1024,hop=256,n_mels=64)|as_image(low=-23,high=9)",
        {"librosa, batch": librosa_image},
        {"librosa": librosa_image},
    ),
    Case(
        "mel(n_fft=1024,hop=256,n_mels=64)",
        {"librosa, batch": librosa_mel},
        {"librosa": librosa_mel},
    ),
    Case(
        "stft(n_fft=1024,hop=256)",
        {
            "librosa, batch": librosa_stft,
            "tf.signal": without_rate(_tf_stft),
            "scipy": scipy_stft,
        },
        {"librosa": librosa_stft},
    ),
    Case(
        "stft(n_fft=1024,hop=256,kind='magnitude')",
        {
            "librosa, batch": lambda w, rate: np.abs(librosa_stft(w, rate)),
            "tf.signal": without_rate(_tf_magnitude),
        },
    ),
    Case(
        "stft(n_fft=1024,hop=256,kind='power')",
        {"librosa, batch": lambda w, rate: np.abs(librosa_stft(w, rate)) ** 2},
    ),
    Case(
        "fft()",
        {
            "scipy": lambda w, rate: scipy.fft.rfft(w),
            "numpy": lambda w, rate: np.fft.rfft(w),
            "tf.signal": without_rate(_tf_fft),
        },
    ),
    Case("fft(kind='magnitude')", {"scipy": lambda w, rate: np.abs(scipy.fft.rfft(w))}),
]
