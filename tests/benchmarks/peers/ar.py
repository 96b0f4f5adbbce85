"""Peers of the autoregressive models."""

import librosa
import numpy as np
import scipy.fft
import scipy.linalg
import scipy.signal

from tests.benchmarks.peers import Case

ORDER = 16


def librosa_lpc(windows, rate):
    return librosa.lpc(windows, order=ORDER)


def librosa_lpc_of_frames(windows, rate):
    framed = np.lib.stride_tricks.sliding_window_view(windows, 512, axis=-1)
    return librosa.lpc(framed[..., ::256, :], order=ORDER)


def librosa_spectrum(windows, rate):
    response = scipy.fft.rfft(librosa.lpc(windows, order=ORDER), 512)
    return -20 * np.log10(np.abs(response))


def scipy_toeplitz(window, rate):
    tapered = window * scipy.signal.get_window("hann", len(window))
    spectrum = scipy.fft.rfft(tapered, scipy.fft.next_fast_len(len(window) + ORDER))
    r = scipy.fft.irfft(np.abs(spectrum) ** 2)[: ORDER + 1]
    return scipy.linalg.solve_toeplitz(r[:-1], -r[1:])


def numpy_lstsq(window, rate):
    rows = np.lib.stride_tricks.sliding_window_view(window.astype(float), ORDER + 1)
    return np.linalg.lstsq(rows[:, -2::-1], -rows[:, -1])[0]


CASES = [
    Case(
        "linear_prediction(order=16)",
        {"librosa, batch": librosa_lpc},
        {"librosa": librosa_lpc},
    ),
    Case(
        "linear_prediction(order=16,frame=512,hop=256)",
        {"librosa, batch": librosa_lpc_of_frames},
        {"librosa": librosa_lpc_of_frames},
    ),
    Case(
        "linear_prediction(order=16,method='yule_walker',taper='hann')",
        one_by_one={"scipy": scipy_toeplitz},
    ),
    Case(
        "ar_spectrum(order=16,n_fft=512)",
        {"librosa, batch": librosa_spectrum},
        {"librosa": librosa_spectrum},
    ),
]
