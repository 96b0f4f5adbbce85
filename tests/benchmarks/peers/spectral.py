"""Peers of the spectra."""

import librosa
import numpy as np
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


CASES = [
    Case(
        "log_mel(n_fft=1024,hop=256,n_mels=64)",
        {"librosa, batch": librosa_log_mel, "tf.signal": tf_log_mel},
        {"librosa": librosa_log_mel},
    ),
]
