"""Each transform against an outside reference: librosa, scipy, Kaldi, or its formula.

References get the windows in float64. Tolerances are relative to the largest value.
Autoregressive models, pitch, constant-Q and loudness of clips have tests of their own.
"""

import functools

import kaldi_native_fbank as knf
import librosa
import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.transforms.base import apply_transform
from beam_pipeline.transforms.descriptors import integrated_lufs
from beam_pipeline.transforms.mel import Cmvn, LogMel
from beam_pipeline.transforms.signals import low_pass_taps
from beam_pipeline.transforms.steps import parse_transform
from tests.transform_checks import noise

RATE = 16000
TONE = np.sin(np.arange(8000) * 0.1).astype(np.float32)
WINDOWS = noise(2, 2, 8000) + np.float32([[0.5], [0.02]]) * TONE + np.float32(0.01)


def of_kind(spectrum, kind, floor=1e-10):
    power = np.abs(spectrum) ** 2
    return {
        "complex": spectrum,
        "magnitude": np.sqrt(power),
        "power": power,
        "db": 10 * np.log10(np.maximum(power, floor)),
    }[kind]


def frames_last(values):
    """librosa's axis of time is its last one."""
    return np.moveaxis(values, -1, -2)


def stft(x, kind, window="hann", **options):
    name = {"rectangular": "boxcar"}.get(window, window)
    found = librosa.stft(x, n_fft=512, hop_length=130, window=name, **options)
    return frames_last(of_kind(found, kind))


def mel_power(x, **options):
    given = {"n_fft": 1024, "hop_length": 256, "n_mels": 64, "center": False} | options
    power = librosa.feature.melspectrogram(y=x, sr=RATE, **given)
    return frames_last(power)


def levels(x):
    return 10 * np.log10(np.maximum(mel_power(x), 1e-10))


def shape(name, x, **options):
    """A shape of librosa's magnitudes."""
    spectra = np.abs(librosa.stft(x, n_fft=1023, hop_length=256, center=False))
    given = {} if name == "spectral_flatness" else {"sr": RATE}
    return getattr(librosa.feature, name)(S=spectra, n_fft=1023, **given, **options)


def framewise(function, x, **options):
    frames = {"frame_length": 512, "hop_length": 200, "center": False}
    return function(x, **frames, **options)[..., 0, :]


def onsets(x):
    found = librosa.onset.onset_strength_multi(
        S=np.moveaxis(levels(x), -1, -2), sr=RATE, center=False
    )
    return found[..., 0, :]


def of_each(function, x):
    """A function of one window or channel, for all of them."""
    flat = x.reshape(-1, x.shape[-1])
    made = np.stack([function(row) for row in flat])
    return made.reshape(*x.shape[:-1], *made.shape[1:])


def delta(x, **options):
    spectra = LogMel()(x.astype(np.float32), RATE).astype(np.float64)
    return librosa.feature.delta(spectra, axis=-2, **options)


def standardized(x, axes, norm_vars=True):
    x = x.astype(np.float64)
    std = x.std(axis=axes, keepdims=True) if norm_vars else 1
    return (x - x.mean(axis=axes, keepdims=True)) / std


def filtered(kind, edges, x):
    sections = scipy.signal.butter(3, edges, kind, fs=RATE, output="sos")
    poles = 3 * np.size(edges)
    return scipy.signal.sosfiltfilt(sections, x, padlen=3 * (poles + 1))


def normalized(kind, row):
    if kind == "log":
        return np.sign(row) * np.log1p(abs(row))
    if kind == "minmax":
        return (row - row.min()) / np.ptp(row)
    if kind == "median":
        return row - np.median(row)
    return (row - row.mean()) / (row.std() if kind == "standard" else 1)


def scaled(measure, level_db, x):
    """Each window, with all of its channels, at a level."""
    sizes = [measure(window) for window in x]
    return x * 10 ** (level_db / 20) / np.array(sizes)[:, np.newaxis, np.newaxis]


def rms(x):
    return np.sqrt(np.mean(x**2))


def loudness(weighting, x):
    taper = scipy.signal.get_window("hann", 1024)
    spectra = librosa.stft(x, n_fft=1024, hop_length=256, center=False)
    weights = np.ones(513)
    if weighting == "a":
        hertz = librosa.fft_frequencies(sr=RATE, n_fft=1024)
        weights = 10 ** (librosa.A_weighting(hertz, min_db=None) / 10)
    power = np.abs(spectra) ** 2 * weights[:, np.newaxis] * 2
    power[..., [0, -1], :] /= 2
    sums = power.sum(axis=-2) / (1024 * np.sum(taper**2))
    return np.maximum(10 * np.log10(sums), -80)


def kaldi(x, rate=RATE, **options):
    made = knf.FbankOptions()
    made.frame_opts.samp_freq = rate
    made.frame_opts.dither = 0
    made.mel_opts.num_bins = 80
    for name, value in options.items():
        where, _, field = name.rpartition("__")
        setattr(getattr(made, where) if where else made, field, value)

    def of_one(row):
        bank = knf.OnlineFbank(made)
        bank.accept_waveform(rate, (row * 32768).tolist())
        bank.input_finished()
        return np.stack([bank.get_frame(i) for i in range(bank.num_frames_ready)])

    return of_each(of_one, x)


part = functools.partial
# A call, its reference, and the largest difference.
CASES = [
    *((f"fft(kind={kind!r},n_fft=8007)",
       lambda x, kind=kind: of_kind(np.fft.rfft(x, 8007), kind), 1e-6)
      for kind in ("complex", "magnitude", "power")),
    *((f"stft(n_fft=512,hop=130,kind={kind!r})",
       part(stft, kind=kind, center=False), 1e-4 if kind == "db" else 1e-6)
      for kind in ("complex", "magnitude", "power", "db")),
    ("stft(n_fft=400,hop=160)", lambda x: frames_last(
        librosa.stft(x, n_fft=400, hop_length=160, center=False)), 1e-6),
    *((f"stft(n_fft=512,hop=130,window={window!r},win_length=400)",
       part(stft, kind="complex", window=window, center=False, win_length=400), 1e-6)
      for window in ("hamming", "blackman", "rectangular")),
    *((f"stft(n_fft=512,hop=130,center=True,pad_mode={mode!r})",
       part(stft, kind="complex", pad_mode=mode), 1e-6)
      for mode in ("constant", "reflect", "edge")),
    *((f"mel(center={center},pad_mode='reflect',mel_scale='htk',norm='none')",
       part(mel_power, center=center, pad_mode="reflect", htk=True, norm=None), 1e-6)
      for center in (False, True)),
    ("log_mel(log='db')", levels, 4e-6),
    ("log_mel()", lambda x: np.log(np.maximum(mel_power(x), 1e-10)), 4e-6),
    *((f"mfcc(lifter={lifter})", lambda x, lifter=lifter: frames_last(
        librosa.feature.mfcc(S=frames_last(levels(x)), lifter=lifter)), 1e-6)
      for lifter in (0, 22)),
    *((f"pcen(gain={gain},bias={bias},power={power})", lambda x, given=given:
       frames_last(librosa.pcen(
           frames_last(mel_power(x)) * 2.0**31, sr=RATE, hop_length=256, **given)),
       1e-5)
      for gain, bias, power in ((0.98, 2.0, 0.5), (0.98, 0.0, 0.5), (0.8, 9.0, 0.25))
      for given in [{"gain": gain, "bias": bias, "power": power}]),
    *((f"log_mel()|delta(width={width},order={order})",
       part(delta, width=width, order=order), 2e-7)
      for width, order in ((3, 1), (9, 1), (9, 2), (25, 3))),
    *((f"{name}(n_fft=1023)", lambda x, name=name: shape(name, x)[..., 0, :], 1e-6)
      for name in ("spectral_centroid", "spectral_bandwidth", "spectral_rolloff",
                   "spectral_flatness")),
    ("spectral_contrast(n_fft=1023)",
     lambda x: frames_last(shape("spectral_contrast", x)), 2e-6),
    ("zero_crossing_rate(frame=512,hop=200)",
     part(framewise, librosa.feature.zero_crossing_rate), 1e-7),
    ("rms(frame=512,hop=200)",
     lambda x: librosa.feature.rms(y=x, frame_length=512, hop_length=200,
                                   center=False)[..., 0, :], 1e-6),
    ("onset_strength()", onsets, 1e-6),
    ("analytic()", scipy.signal.hilbert, 5e-7),
    ("pre_emphasis()",
     lambda x: librosa.effects.preemphasis(x, coef=0.97, zi=-0.97 * x[..., :1]), 2e-7),
    ("low_pass(cutoff_hz=900,order=3)", part(filtered, "lowpass", 900), 2e-7),
    ("high_pass(cutoff_hz=50,order=3)", part(filtered, "highpass", 50), 2e-7),
    ("band_pass(low_hz=100,high_hz=3000,order=3)",
     part(filtered, "bandpass", (100, 3000)), 2e-7),
    *((f"normalize(kind={kind!r})", part(of_each, part(normalized, kind)), 2e-7)
      for kind in ("log", "mean", "median", "minmax", "standard")),
    ("gain(gain_db=-7.5)", lambda x: x * 10 ** (-7.5 / 20), 1e-7),
    ("peak_gain(level_db=-3)", part(scaled, lambda w: abs(w).max(), -3), 1e-7),
    ("rms_gain()", part(scaled, rms, -20), 1e-7),
    *((f"loudness(weighting={name!r})", part(loudness, name), 3e-5)
      for name in ("a", "none")),
    *((f"kaldi_fbank({ours})", part(kaldi, **theirs), 1e-5) for ours, theirs in (
        ("", {}),
        ("snip_edges=False", {"frame_opts__snip_edges": False}),
        ("window='hamming'", {"frame_opts__window_type": "hamming"}),
        ("window='hanning'", {"frame_opts__window_type": "hanning"}),
        ("window='rectangular'", {"frame_opts__window_type": "rectangular"}),
        ("pre_emphasis=0", {"frame_opts__preemph_coeff": 0.0}),
        ("remove_dc=False", {"frame_opts__remove_dc_offset": False}),
        ("f_min=60,f_max=7600",
         {"mel_opts__low_freq": 60.0, "mel_opts__high_freq": 7600.0}),
        ("frame_length_s=0.032,frame_shift_s=0.0125",
         {"frame_opts__frame_length_ms": 32.0, "frame_opts__frame_shift_ms": 12.5}),
        ("log=False", {"use_log_fbank": False}),
        ("use_power=False", {"use_power": False}),
        ("use_energy=True", {"use_energy": True}))),
]  # fmt: skip


@pytest.mark.parametrize(
    ("call", "reference", "most"), CASES, ids=[call for call, *_ in CASES]
)
def test_values_are_those_of_the_reference(call, reference, most):
    found = apply_transform(parse_transform(call), WINDOWS, RATE)
    exact = reference(WINDOWS.astype(np.float64))
    assert found.shape == exact.shape
    np.testing.assert_allclose(found, exact, rtol=0, atol=most * np.abs(exact).max())


@pytest.mark.parametrize("rate", [8000, 22050, 44100])
@pytest.mark.parametrize("snip_edges", [True, False])
def test_kaldi_at_other_rates(rate, snip_edges):
    transform = parse_transform(f"kaldi_fbank(n_mels=23,snip_edges={snip_edges})")
    exact = kaldi(
        WINDOWS, rate, mel_opts__num_bins=23, frame_opts__snip_edges=snip_edges
    )
    found = transform(WINDOWS, rate)
    np.testing.assert_allclose(found, exact, rtol=0, atol=1e-5 * np.abs(exact).max())


def test_lufs_gain_reaches_its_level_and_leaves_what_is_below_the_gate():
    transform = parse_transform("lufs_gain(level_lufs=-17.5)")
    out = transform(WINDOWS, RATE)
    np.testing.assert_allclose(integrated_lufs(out, RATE), -17.5, atol=1e-5)
    ratio = (out / WINDOWS).reshape(2, -1)
    np.testing.assert_allclose(ratio, ratio[:, :1] + 0 * ratio, rtol=1e-5)
    quiet = np.stack([np.zeros(8000, np.float32), noise(8000) * np.float32(1e-5)])
    np.testing.assert_array_equal(transform(quiet, RATE), quiet)


def test_response_of_the_low_pass_of_other_rates():
    for up, down in ((1, 2), (160, 441), (3, 1)):
        response = abs(np.fft.rfft(low_pass_taps(up, down), 2**20))
        # In halves of the lower rate.
        frequency = np.arange(len(response)) / 2**19 * max(up, down)
        level = 20 * np.log10(np.maximum(response, 1e-9))
        assert abs(level[frequency < 0.9]).max() < 0.001
        assert level[frequency >= 1].max() < -99.5


def test_the_faintest_bins_beside_loud_ones():
    # A float32 FFT would be rounded to the loud tone, and fill the valleys with that.
    tone = np.sin(2 * np.pi * 100 * np.arange(512) / 512)
    window = (tone + 1e-4 * noise(512)).astype(np.float32)
    hann = np.sin(np.pi * np.arange(512) / 512) ** 2
    power = np.abs(np.fft.rfft(hann * window.astype(np.float64))) ** 2
    power = np.maximum(power, 1e-10)
    found = parse_transform("spectral_flatness(n_fft=512)")(window[np.newaxis])
    expected = np.exp(np.log(power).mean()) / power.mean()
    np.testing.assert_allclose(found, [[expected]], rtol=2e-6)


def spectra(*shape, seed=0):
    """Spectra whose level is far from 0, as decibels are."""
    rng = np.random.default_rng(seed)
    return (rng.normal(-40, 9, shape)).astype(np.float32)


def kaldi_sliding(x, window, min_window, center, norm_vars):
    """Kaldi's loop over frames, of one spectrum (t, bins), in float64."""
    x = x.astype(np.float64)
    out = np.empty_like(x)
    count = len(x)
    for t in range(count):
        if center:
            start = t - window // 2
            stop = start + window
        else:
            start, stop = t - window, t + 1
        if start < 0:
            stop -= start
            start = 0
        if not center and stop > t:
            stop = max(t + 1, min_window)
        if stop > count:
            start = max(0, start - (stop - count))
            stop = count
        part = x[start:stop]
        out[t] = x[t] - part.mean(axis=0)
        if norm_vars:
            out[t] /= np.sqrt(np.maximum(part.var(axis=0), 1e-10))
    return out


@pytest.mark.parametrize("shape", [(3, 7, 4), (2, 3, 9, 5)])
@pytest.mark.parametrize("norm_vars", [True, False])
def test_a_window_has_mean_0_and_deviation_1(shape, norm_vars):
    x = spectra(*shape)
    expected = standardized(x, -2, norm_vars)
    np.testing.assert_allclose(Cmvn(norm_vars=norm_vars)(x), expected, atol=1e-5)


@given(
    count=st.integers(1, 14),
    window=st.integers(1, 16),
    min_window=st.integers(1, 16),
    center=st.booleans(),
    norm_vars=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(max_examples=150)
def test_a_sliding_window_is_kaldi_s(
    count, window, min_window, center, norm_vars, seed
):
    step = Cmvn(
        norm_vars=norm_vars, window=window, min_window=min_window, center=center
    )
    x = spectra(2, count, 3, seed=seed)
    found = step(x)
    for spectrum, made in zip(x, found, strict=True):
        expected = kaldi_sliding(spectrum, window, min_window, center, norm_vars)
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


def test_the_floor_is_the_least_variance():
    x = np.array([[[0.0], [2.0]]], np.float32)
    np.testing.assert_allclose(Cmvn(floor=4.0)(x)[0, :, 0], [-0.5, 0.5])
    np.testing.assert_allclose(Cmvn(floor=0.25)(x)[0, :, 0], [-1, 1])


# Clips


@pytest.mark.parametrize("shape", [(5, 7, 3), (5, 2, 7, 3)])
def test_a_clip_is_measured_over_all_its_windows(shape):
    x = spectra(*shape)
    step = Cmvn(over="clip")
    measured = step.measure([x])
    assert step.measure([x[:2], x[2:3], x[3:]]) == measured
    found = step.of_measured(measured)(x)
    np.testing.assert_allclose(found, standardized(x, (0, x.ndim - 2)), atol=1e-5)
    np.testing.assert_array_equal(step.of_measured(measured)(x[2:3]), found[2:3])
