"""Peers of cepstra and of what follows mel spectra in time."""

import kaldi_native_fbank
import librosa
import numpy as np
import tensorflow as tf

from tests.benchmarks.peers import Case

tf.config.threading.set_intra_op_parallelism_threads(1)
tf.config.threading.set_inter_op_parallelism_threads(1)

N_FFT, HOP, N_MELS, N_MFCC = 1024, 256, 64, 20
FRAMES = {"n_fft": N_FFT, "hop_length": HOP, "n_mels": N_MELS, "center": False}


def librosa_mfcc(windows, rate):
    return librosa.feature.mfcc(y=windows, sr=rate, n_mfcc=N_MFCC, **FRAMES)


@tf.function
def _tf_mfcc(windows, weights):
    power = tf.abs(tf.signal.stft(windows, N_FFT, HOP)) ** 2
    log_mel = tf.math.log(tf.maximum(tf.matmul(power, weights), 1e-10))
    return tf.signal.mfccs_from_log_mel_spectrograms(log_mel)[..., :N_MFCC]


def tf_mfcc(windows, rate):
    weights = tf.signal.linear_to_mel_weight_matrix(
        N_MELS, N_FFT // 2 + 1, rate, 0, 8000
    )
    return _tf_mfcc(windows, weights)


def kaldi_mfcc(window, rate):
    options = kaldi_native_fbank.MfccOptions()
    options.frame_opts.samp_freq = rate
    options.frame_opts.frame_length_ms = 1000 * N_FFT / rate
    options.frame_opts.frame_shift_ms = 1000 * HOP / rate
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = N_MELS
    options.num_ceps = N_MFCC
    mfcc = kaldi_native_fbank.OnlineMfcc(options)
    mfcc.accept_waveform(rate, window)
    return [mfcc.get_frame(t) for t in range(mfcc.num_frames_ready)]


def librosa_pcen(windows, rate):
    mel = librosa.feature.melspectrogram(y=windows, sr=rate, **FRAMES)
    return librosa.pcen(mel * 2**31, sr=rate, hop_length=HOP)


def librosa_delta(windows, rate):
    return librosa.feature.delta(librosa_mfcc(windows, rate))


def numpy_cmvn(windows, rate):
    cepstra = librosa_mfcc(windows, rate).swapaxes(-1, -2)
    cepstra = cepstra - cepstra.mean(axis=-2, keepdims=True)
    return cepstra / np.maximum(cepstra.std(axis=-2, keepdims=True), 1e-5)


def librosa_masked(windows, rate):
    mel = librosa.feature.melspectrogram(y=windows, sr=rate, **FRAMES)
    mel = np.log(np.maximum(mel, 1e-10))
    rng = np.random.default_rng(0)
    for window in mel.reshape(-1, *mel.shape[-2:]):
        mean = window.mean()
        for axis, most in ((0, 27), (0, 27), (1, 11), (1, 11)):
            width = rng.integers(0, most + 1)
            first = rng.integers(0, window.shape[axis] - width + 1)
            window.swapaxes(0, axis)[first : first + width] = mean
    return mel


CASES = [
    Case(
        "log_mel(n_fft=1024,hop=256,n_mels=64)|spec_augment()",
        {"librosa and numpy, batch": librosa_masked},
        {"librosa and numpy": librosa_masked},
    ),
    Case(
        "mfcc(n_mfcc=20,n_fft=1024,hop=256,n_mels=64)",
        {"librosa, batch": librosa_mfcc, "tf.signal": tf_mfcc},
        {"librosa": librosa_mfcc, "kaldi-native-fbank": kaldi_mfcc},
    ),
    Case(
        "mfcc(n_mfcc=20,n_fft=1024,hop=256,n_mels=64)|delta(width=9)",
        {"librosa, batch": librosa_delta},
        {"librosa": librosa_delta},
    ),
    Case(
        "mfcc(n_mfcc=20,n_fft=1024,hop=256,n_mels=64)|cmvn()",
        {"librosa and numpy, batch": numpy_cmvn},
        {"librosa and numpy": numpy_cmvn},
    ),
    Case(
        "pcen(n_fft=1024,hop=256,n_mels=64)",
        {"librosa, batch": librosa_pcen},
        {"librosa": librosa_pcen},
    ),
]
