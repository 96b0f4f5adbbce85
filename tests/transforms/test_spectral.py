"""Fourier transforms and mel bands, against defining sums, librosa and TensorFlow."""

import tracemalloc

import librosa
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import apply_transform
from beam_pipeline.transforms.frames import PAD_MODE, Fft, Stft, framed
from beam_pipeline.transforms.mel import KaldiFbank, LogMel, Mel, mel_filter_bank
from tests.raising import raises
from tests.transform_checks import noise

RATE = 16000
SPECTRA = ("complex", "magnitude", "power", "db")


def of_kind(spectrum, kind, floor=1e-10):
    if kind == "complex":
        return spectrum
    power = np.abs(spectrum) ** 2
    if kind == "db":
        return 10 * np.log10(np.maximum(power, floor))
    return np.sqrt(power) if kind == "magnitude" else power


def assert_near(ours, exact, tolerance=1e-6):
    assert ours.shape == exact.shape
    np.testing.assert_allclose(
        ours, exact, rtol=0, atol=tolerance * np.abs(exact).max()
    )


# Frames, which may reach beyond the ends


@given(
    frames=st.integers(1, 60), length=st.integers(1, 40), hop=st.integers(1, 50),
    first=st.integers(-60, 60), start=st.integers(0, 5), count=st.integers(1, 5),
    pad_mode=st.sampled_from((*PAD_MODE.choices, "symmetric")),
)  # fmt: skip
@settings(deadline=None, max_examples=300)
def test_frames_are_those_of_a_padded_signal(
    frames, length, hop, first, start, count, pad_mode
):
    signals = noise(2, frames)
    times = range(start, start + count)
    beyond = 700
    padded = np.pad(signals, [(0, 0), (beyond, beyond)], mode=pad_mode)
    starts = [beyond + first + t * hop for t in times]
    expected = np.stack([padded[:, s : s + length] for s in starts], axis=1)
    ours = framed(signals, times, length, hop, first, pad_mode)
    np.testing.assert_array_equal(ours, expected)


@pytest.mark.parametrize(
    "transform",
    [
        Stft(n_fft=1024, hop=2048, kind="power", center=True),
        LogMel(hop=512, center=True, pad_mode="reflect"),
        KaldiFbank(snip_edges=False),
    ],
)
def test_a_long_window_is_never_copied(transform):
    windows = np.zeros((1, 2**23), np.float32)
    tracemalloc.start()
    features = apply_transform(transform, windows, RATE)
    peak = tracemalloc.get_traced_memory()[1] - features.nbytes
    tracemalloc.stop()
    assert peak < windows.nbytes


# fft


@pytest.mark.parametrize("frames", [2, 3, 16, 17, 1000, 16000, 16001])
@pytest.mark.parametrize("more", [0, 1, 24])
@pytest.mark.parametrize("kind", SPECTRA[:3])
def test_fft_of_any_length(frames, more, kind):
    windows = noise(3, frames)
    n_fft = frames + more
    exact = of_kind(np.fft.rfft(windows.astype(np.float64), n_fft), kind)
    assert_near(Fft(kind=kind, n_fft=n_fft)(windows), exact)


# stft


@pytest.mark.parametrize("kind", SPECTRA)
@pytest.mark.parametrize("window", ["hann", "hamming", "blackman", "rectangular"])
def test_stft_is_librosa_s(kind, window):
    windows = noise(2, 5000)
    name = {"rectangular": "boxcar"}.get(window, window)
    spectrum = librosa.stft(
        windows.astype(np.float64), n_fft=512, hop_length=130, window=name, center=False
    )
    exact = of_kind(np.moveaxis(spectrum, -1, -2), kind)
    ours = Stft(n_fft=512, hop=130, window=window, kind=kind)(windows)
    assert_near(ours, exact, 1e-5 if kind == "db" else 1e-6)


@given(
    frames=st.integers(1, 700), n_fft=st.integers(2, 300), hop=st.integers(1, 400),
    short=st.integers(0, 100), pad_mode=st.sampled_from(PAD_MODE.choices),
    center=st.booleans(),
)  # fmt: skip
@settings(deadline=None, max_examples=150)
def test_stft_of_any_layout(frames, n_fft, hop, short, pad_mode, center):
    windows = noise(2, frames)
    length = max(1, n_fft - short)
    made = Stft(
        n_fft=n_fft, hop=hop, win_length=length, center=center, pad_mode=pad_mode
    )
    if not center and frames < n_fft:
        with raises(RecipeError, "n_fft", naming=frames):
            made(windows)
        return
    if center and pad_mode == "reflect" and n_fft // 2 >= frames:
        with raises(RecipeError, "pad_mode", "reflect"):
            made(windows)
        return
    padded = windows.astype(np.float64)
    if center:
        padded = np.pad(padded, [(0, 0), (n_fft // 2, n_fft // 2)], mode=pad_mode)
    taper = np.zeros(n_fft)
    before = (n_fft - length) // 2
    hann = 0.5 - 0.5 * np.cos(2 * np.pi * np.arange(length) / length)
    taper[before : before + length] = hann
    starts = range(0, padded.shape[1] - n_fft + 1, hop)
    framed = np.stack([padded[:, s : s + n_fft] * taper for s in starts], axis=1)
    ours = made(windows)
    exact = np.fft.rfft(framed)
    assert ours.shape == exact.shape
    np.testing.assert_allclose(ours, exact, rtol=0, atol=2e-6)
    assert [axis["size"] for axis in made.axes(RATE, frames)] == list(exact.shape[1:])


def test_stft_is_tensorflow_s():
    tf = pytest.importorskip("tensorflow")
    windows = noise(3, 4000)
    theirs = tf.signal.stft(windows, 400, 160, fft_length=400).numpy()
    assert_near(Stft(n_fft=400, hop=160)(windows), theirs, 5e-7)


# mel, log_mel


@pytest.mark.parametrize("htk", [False, True])
@pytest.mark.parametrize("norm", ["slaney", "none"])
@pytest.mark.parametrize("n_mels", [1, 40])
def test_banks_are_librosa_s(htk, norm, n_mels):
    ours = mel_filter_bank(
        22050, 1024, n_mels, 30.0, 9000.0, "htk" if htk else "slaney", norm
    )
    theirs = librosa.filters.mel(
        sr=22050, n_fft=1024, n_mels=n_mels, fmin=30.0, fmax=9000.0, htk=htk,
        norm=None if norm == "none" else norm, dtype=np.float64,
    )  # fmt: skip
    assert_near(ours, theirs, 1e-6)


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("pad_mode", ["constant", "reflect"])
def test_mel_is_librosa_s(center, pad_mode):
    windows = noise(2, 5000)
    theirs = librosa.feature.melspectrogram(
        y=windows.astype(np.float64), sr=RATE, n_fft=512, hop_length=128, n_mels=40,
        center=center, pad_mode=pad_mode, htk=True, norm=None,
    )  # fmt: skip
    options = {"n_fft": 512, "hop": 128, "n_mels": 40, "center": center,
               "pad_mode": pad_mode, "mel_scale": "htk", "norm": "none"}  # fmt: skip
    exact = np.moveaxis(theirs, -1, -2)
    assert_near(Mel(**options)(windows, RATE), exact, 1e-6)
    ours = LogMel(**options, log="db")(windows, RATE)
    np.testing.assert_allclose(ours, 10 * np.log10(exact), rtol=0, atol=1e-4)
