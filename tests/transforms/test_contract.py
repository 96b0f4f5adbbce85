"""What holds for every step, whatever it computes: transforms, and what changes copies.

A window has the same bytes whichever windows are beside it, in blocks of any size, and
whatever its layout in memory. Channels are treated one by one. Axes and what silence
gives are listed here. Text stands for the step. Parameters out of their range or
against others are refused by their name.
"""

import dataclasses
import pickle
import re
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import apply_transform, steps_of
from beam_pipeline.transforms.frames import PAD_MODE, stretch
from beam_pipeline.transforms.steps import (
    AUGMENTATION,
    PLACEMENT,
    SELECTION,
    STREAM,
    TRANSFORM,
    format_steps,
    format_transform,
    parse_steps,
    parse_transform,
)
from tests.raising import raises
from tests.transform_checks import CALLS, EVERY_CALL, FLOAT_CALLS, noise

RATE = 16000
# A gain and a loudness are those of all channels together.
OF_ALL_CHANNELS = ("lufs", "peak_gain", "rms_gain")


def small_blocks(patch):
    """Blocks and stretches of a few frames, as of very long windows."""
    frames = "beam_pipeline.transforms.frames"
    patch.setattr(f"{frames}.BLOCK_SAMPLES", 2500)
    patch.setattr(f"{frames}.STRETCH_SAMPLES", 5000)
    patch.setattr("beam_pipeline.transforms.signals.PIECE_SAMPLES", 1000)
    patch.setattr("beam_pipeline.transforms.frames.SEGMENT_SAMPLES", 2500)
    patch.setattr("beam_pipeline.transforms.pitch.HISTORY_BYTES", 2**14)


@pytest.mark.parametrize("call", EVERY_CALL)
def test_a_transform(call, monkeypatch):
    transform = parse_transform(call)
    frames = 9000
    stretch = noise(2, frames + 3 * 37)
    before = stretch.copy()
    views = np.lib.stride_tricks.sliding_window_view(stretch, frames, axis=-1)
    windows = views[:, ::37].swapaxes(0, 1)

    def features_of(given):
        return apply_transform(transform, given, RATE)

    features = features_of(windows)
    assert len(features) == 4
    np.testing.assert_array_equal(stretch, before)
    for part in (slice(0, 1), slice(1, 3), slice(3, 4), slice(0, 0)):
        np.testing.assert_array_equal(features_of(windows[part].copy()), features[part])
    np.testing.assert_array_equal(features_of(np.asfortranarray(windows)), features)
    for channel in range(2):
        alone = features_of(windows[:, channel].copy())
        if not call.startswith(OF_ALL_CHANNELS):
            np.testing.assert_array_equal(alone, features[:, channel])
    assert np.isfinite(features_of(np.zeros((2, frames), np.float32))).all()
    if hasattr(transform, "axes"):
        sizes = [axis["size"] for axis in transform.axes(RATE, frames)]
        assert list(features.shape[features.ndim - len(sizes) :]) == sizes
    assert parse_transform(format_transform(transform)) == transform
    for refused in (np.zeros((2, 9000), np.int16), np.zeros(9000, np.float32)):
        with pytest.raises(RecipeError):
            features_of(refused)
    again = pickle.loads(pickle.dumps(transform))
    with ThreadPoolExecutor(3) as pool:
        for of_thread in pool.map(
            lambda each: apply_transform(again, each, RATE), [windows] * 3
        ):
            np.testing.assert_array_equal(of_thread, features)
    small_blocks(monkeypatch)
    # Products of other shapes round in another way, on some processors.
    has_products = call.startswith(("chroma", "cqt", "mfcc"))
    most = 2e-6 * max(1, np.abs(features).max()) if has_products else 0
    np.testing.assert_allclose(features_of(windows), features, rtol=0, atol=most)


SOUNDS = [np.exp(-np.arange(900, dtype="f4") / 99) * noise(900), noise(40_000, seed=3)]
COPIES = [
    "random_gain()", "random_polarity()", "time_shift()", "time_shift(wrap=True)",
    "noise()", "noise(color='pink')", "speed()", "speed(low=0.5,high=2)",
    "reverb(folder='x')", "reverb(folder='x',wet=0.5)", "background(folder='x')",
]  # fmt: skip


def copies_of(call, windows, keys):
    (step,) = parse_steps(call, AUGMENTATION)
    step = step.with_sounds(SOUNDS) if hasattr(step, "with_sounds") else step
    return step.augment(windows, keys, RATE)


@pytest.mark.parametrize("call", COPIES)
@pytest.mark.parametrize("shape", [(3000,), (2, 3000)])
def test_an_augmentation(call, shape, monkeypatch):
    stretch = noise(*shape[:-1], shape[-1] + 4 * 37)
    views = np.lib.stride_tricks.sliding_window_view(stretch, 3000, axis=-1)
    windows = np.moveaxis(views[..., ::37, :], -2, 0)
    before = stretch.copy()
    keys = np.random.default_rng(0).integers(0, 2**64, 5, dtype=np.uint64)
    out = copies_of(call, windows, keys)
    assert out.dtype == np.float32
    assert out.shape == windows.shape
    assert (out != windows).any()
    np.testing.assert_array_equal(stretch, before)
    for part in (slice(0, 1), slice(1, 3), slice(4, 5), slice(None, None, 2)):
        alone = np.ascontiguousarray(windows[part])
        np.testing.assert_array_equal(copies_of(call, alone, keys[part]), out[part])
    assert copies_of(call, windows[:0], keys[:0]).shape == (0, *shape)
    # Channels share what is drawn; the level of noises and rooms is that of all.
    if len(shape) == 2 and not call.startswith(("noise", "reverb", "background")):
        for channel in range(2):
            alone = copies_of(call, windows[:, channel].copy(), keys)
            np.testing.assert_array_equal(alone, out[:, channel])
    for level in (0, 1e-42, 1e-20, 1e20):
        loud = copies_of(call, windows * np.float32(level), keys)
        assert np.isfinite(loud).all()
        assert loud.any() == (level > 0)
    for value in (np.nan, np.inf):
        broken = windows.copy()
        broken[1, ..., 777] = value
        found = copies_of(call, broken, keys)
        np.testing.assert_array_equal(found[[0, 2, 3, 4]], out[[0, 2, 3, 4]])
        # The sample itself may be cut off.
        cut = call.startswith(("time_shift", "speed")) and np.isfinite(found[1]).all()
        assert cut or not np.isfinite(found[1]).all()
    with raises(RecipeError, "feature", naming="int64"):
        copies_of(call, windows.astype(int), keys)
    text = format_steps(call, AUGMENTATION)
    assert parse_steps(text, AUGMENTATION) == parse_steps(call, AUGMENTATION)
    assert format_steps(text, AUGMENTATION) == text
    monkeypatch.setattr("beam_pipeline.transforms.augment._PIECE", 300)
    np.testing.assert_array_equal(copies_of(call, windows, keys), out)


@pytest.mark.parametrize("call", [f"{name}()" for name in SELECTION.table])
def test_a_selection(call, monkeypatch):
    (step,) = parse_steps(call, SELECTION)
    rng = np.random.default_rng(0)
    levels = 10.0 ** rng.uniform(-4, 0, (60, 1, 1))
    windows = (levels * rng.standard_normal((60, 2, 600))).astype(np.float32)
    windows[3], windows[4, 0, 9] = 0, np.nan
    kept = step.keep(windows, RATE)
    assert kept.any()
    assert not kept.all()
    assert not kept[3]
    for k in range(60):
        assert step.keep(windows[k : k + 1].copy(), RATE) == kept[k]
    with raises(RecipeError, "feature", naming="int64"):
        step.keep(np.ones((1, 4000), int), RATE)
    text = format_steps(call, SELECTION)
    assert parse_steps(text, SELECTION) == (step,)
    assert format_steps(text, SELECTION) == text
    monkeypatch.setattr("beam_pipeline.transforms.signals.SQUARED_SAMPLES", 130)
    np.testing.assert_array_equal(step.keep(windows, RATE), kept)


def test_there_is_a_call_of_each():
    assert set(CALLS) <= set(TRANSFORM.table)
    used = {
        type(step) for call in EVERY_CALL for step in steps_of(parse_transform(call))
    }
    assert used == set(TRANSFORM.table.values())
    used = {type(step) for call in COPIES for step in parse_steps(call, AUGMENTATION)}
    assert used == set(AUGMENTATION.table.values())
    for kind in (AUGMENTATION, TRANSFORM, PLACEMENT, SELECTION, STREAM):
        assert list(kind.table) == sorted(kind.table)


@given(
    frames=st.integers(1, 60), start=st.integers(-300, 300), count=st.integers(0, 300),
    pad_mode=st.sampled_from((*PAD_MODE.choices, "symmetric")),
)  # fmt: skip
@settings(max_examples=300)
def test_a_stretch_is_that_of_a_padded_signal(frames, start, count, pad_mode):
    signals = noise(2, frames)
    padded = np.pad(signals, [(0, 0), (700, 700)], mode=pad_mode)
    ours = stretch(signals, start, start + count, pad_mode)
    np.testing.assert_array_equal(ours, padded[:, 700 + start : 700 + start + count])


@pytest.mark.parametrize(("call", "frames", "most"), [
    ("stft(hop=2048,kind='power',center=True)", 2**23, 2**25),
    ("log_mel(hop=512,center=True,pad_mode='reflect')", 2**23, 2**25),
    ("kaldi_fbank(snip_edges=False)", 2**23, 2**25),
    ("cqt(hop=64)", 2**22, 12e6),
    ("yin()", 10**6, 25e6),
    ("yin(frame=60000,hop=1,f_min=1000)", 60_300, 25e6),
    ("pyin(f_min=120,f_max=500)", 10**6, 25e6),
])  # fmt: skip
def test_memory_is_bounded(call, frames, most):
    transform, windows = parse_transform(call), np.zeros((1, frames), np.float32)
    apply_transform(transform, windows[:, :60_000], RATE)
    tracemalloc.start()
    made = apply_transform(transform, windows, RATE)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < most + 2 * made.nbytes


# NaN and infinity

FRAMES = 8000
# Of the window in the middle: its first sample, one that a frame's taper weighs 0 in
# frames of 1024 by 256, one like any other, and one of the last that all make use of.
PLACES = (0, 2048, 4001, 7423)


def windows():
    made = noise(3, FRAMES, seed=7)
    made[1] += 0.2 * np.sin(0.1 * np.arange(FRAMES)).astype(np.float32)
    return made


def with_sample(place, value):
    changed = windows()
    changed[1, place] = value
    return changed


def depends_on(transform, clean, place):
    """Which values of the second window differ for at least one other sample there."""
    features = [
        apply_transform(transform, with_sample(place, value)[1:2], RATE)[0]
        for value in (0.0, 0.9, -0.9, 0.05, -30.0)
    ]
    return np.any([f != clean[1] for f in features], axis=0)


@pytest.mark.parametrize("call", FLOAT_CALLS)
def test_nan_goes_wherever_its_sample_counts(call):
    transform = parse_transform(call)
    clean = apply_transform(transform, windows(), RATE)
    for place in PLACES:
        features = apply_transform(transform, with_sample(place, np.nan), RATE)
        np.testing.assert_array_equal(features[[0, 2]], clean[[0, 2]])
        unknown = np.isnan(features[1])
        if call.startswith("pyin"):
            # Of frames alone: their neighbours' path takes them for unvoiced.
            first = np.arange(len(unknown)) * transform.hop
            inside = (first <= place) & (place < first + transform.frame)
            np.testing.assert_array_equal(unknown, np.stack([inside, inside], axis=1))
        else:
            assert unknown.any()
            assert unknown[depends_on(transform, clean, place)].all()
            np.testing.assert_array_equal(features[1][~unknown], clean[1][~unknown])


@pytest.mark.parametrize("call", [call for call in EVERY_CALL if "as_image" in call])
def test_what_has_no_grey_level_is_refused(call):
    """Not a black pixel: a reader could not find it."""
    transform = parse_transform(call)
    for value in (np.nan, np.inf, -np.inf):
        with raises(RecipeError, "feature", naming="as_image"):
            apply_transform(transform, with_sample(4001, value), RATE)
    assert apply_transform(transform, windows(), RATE).dtype == np.uint8


# The axes of windows of 4000 frames: name, unit, size, then start, step, and the length
# of a frame or the labels; or the values.
AXES = """
log_mel(n_mels=3): time s 12 0.0 0.016 0.064; mel_band Hz 3 (754.094, 1688.908, 3675.768)
log_mel(center=True,n_mels=1,mel_scale='htk'): time s 16 -0.032 0.016 0.064; mel_band Hz 1 (1767.793,)
stft(hop=160): time s 19 0.0 0.01 0.064; frequency Hz 513 0.0 15.625
stft(center=True,hop=160): time s 26 -0.032 0.01 0.064; frequency Hz 513 0.0 15.625
fft(): frequency Hz 2001 0.0 4.0
fft(n_fft=8192): frequency Hz 4097 0.0 1.953125
mfcc(n_mfcc=13,n_mels=40): time s 12 0.0 0.016 0.064; cepstral_coefficient 1 13 0.0 1.0
pcen(n_mels=2): time s 12 0.0 0.016 0.064; mel_band Hz 2 (1005.645, 2836.4)
kaldi_fbank(n_mels=1,use_energy=True): time s 23 0.0 0.01 0.025; mel_band Hz 2 (0.0, 1802.798)
kaldi_fbank(n_mels=1,snip_edges=False): time s 25 -0.0075 0.01 0.025; mel_band Hz 1 (1802.798,)
linear_prediction(): coefficient 1 16 1 1
linear_prediction(output='gain'):
linear_prediction(order=8,frame=400,hop=160): time s 23 0.0 0.01 0.025; coefficient 1 8 1 1
linear_prediction(output='gain',frame=400,hop=160): time s 23 0.0 0.01 0.025
ar_spectrum(n_fft=64): frequency Hz 33 0.0 250.0
ar_spectrum(frame=400,hop=160): time s 23 0.0 0.01 0.025; frequency Hz 257 0.0 31.25
rms(frame=512,hop=200): time s 18 0.0 0.0125 0.032
spectral_centroid(n_fft=512,hop=300): time s 12 0.0 0.01875 0.032
spectral_contrast(bands=3): time s 12 0.0 0.016 0.064; octave_band Hz 4 (0.0, 200.0, 400.0, 800.0)
onset_strength(): time s 12 0.0 0.016 0.064
loudness(): time s 12 0.0 0.016 0.064
yin(): time s 4 0.0 0.032 0.128; column  2 0 1 ['f0_hz', 'aperiodicity']
pyin(): time s 4 0.0 0.032 0.128; column  2 0 1 ['f0_hz', 'voiced_probability']
cqt(f_min=440.0,n_bins=3): time s 8 0.0 0.032; frequency Hz 3 (440.0, 466.164, 493.883)
chroma(hop=100): time s 41 0.0 0.00625; pitch_class semitone 12 0 1
log_mel(n_mels=2)|as_image(): time s 12 0.0 0.016 0.064; mel_band Hz 2 (1005.645, 2836.4)
resample(rate_hz=8000)|rms(): time s 4 0.0 0.032 0.128
"""  # noqa: E501


def as_text(axis):
    parts = [axis[key] for key in ("name", "unit", "size")]
    if "values" in axis:
        parts.append(tuple(round(value, 3) for value in axis["values"]))
    else:
        parts += [axis["start"], axis["step"]]
    return " ".join(
        map(str, parts + [axis[k] for k in ("length", "labels") if k in axis])
    )


@pytest.mark.parametrize("row", AXES.strip().splitlines())
def test_axes(row):
    call, _, expected = row.partition(":")
    found = parse_transform(call).axes(RATE, 4000)
    assert "; ".join(map(as_text, found)) == expected.strip()


# What silence gives; what is not here gives zeros.
SILENCE = {
    "ar_spectrum()": -160, "cqt(kind='db')": -100, "kaldi_fbank()": np.log(2.0**-23),
    "kaldi_fbank(use_energy=True)": np.log(2.0**-23), "log_mel()": np.log(1e-10),
    "log_mel(floor=1e-8)": np.log(1e-8), "log_mel(log='db')": -100,
    "loudness(floor_db=-70)": -70, "lufs()": -70, "spectral_flatness()": 1,
    "stft(kind='db',floor=1e-8)": -80,
}  # fmt: skip
ZEROS = """
analytic chroma cqt fft lufs_gain mel normalize onset_strength pcen pcen(bias=0)
peak_gain pre_emphasis pyin rms rms_gain spectral_bandwidth spectral_centroid
spectral_contrast spectral_rolloff stft linear_prediction normalize(kind='log')
linear_prediction(output='gain') log_mel()|cmvn() log_mel()|delta()
low_pass(cutoff_hz=9) resample(rate_hz=8000) zero_crossing_rate
kaldi_fbank(log=False) log_mel()|as_image()
"""


@pytest.mark.parametrize("call", [*SILENCE, *ZEROS.split()])
def test_silence(call):
    made = apply_transform(parse_transform(call), np.zeros((2, 8000), "f4"), RATE)
    expected = np.full_like(made, SILENCE.get(call, 0))
    np.testing.assert_allclose(made, expected, rtol=1e-7, atol=0)


KINDS = (TRANSFORM, AUGMENTATION, SELECTION, PLACEMENT, STREAM)
STEPS = {name: cls for kind in KINDS for name, cls in kind.table.items()}


def test_each_parameter_is_of_a_type():
    """Types refuse values of another kind or out of bounds, see tests/recipe."""
    for cls in STEPS.values():
        assert all("values" in field.metadata for field in dataclasses.fields(cls))


# A step, the parameter that the error names, its value there, and facts.
AGAINST_OTHERS = """
ar_spectrum(n_fft=16)                 n_fft 16 order 16
as_image(high=-23)                    high -23.0 low -23
background(folder='x',low_snr_db=30)  high_snr_db 20.0 low_snr_db 30
band_pass(low_hz=9,high_hz=9)         high_hz 9.0 low_hz
chroma(bins_per_octave=10)            bins_per_octave 10 12
chroma(bins_per_octave=6000)          n_bins 42000 4096
cmvn(window=5,over='clip')            window 5 clip
delta(width=3,order=3)                order 3 width 3
delta(width=4)                        width 4 odd
delta(order=5)                        order 5 1 4
kaldi_fbank(f_min=9,f_max=9)          f_max 9.0 f_min 9
linear_prediction(frame=400)          hop None frame
log_mel(floor=0)                      floor 0 positive
log_mel(log='bel')                    log 'bel' db ln
mfcc(n_mels=10)                       n_mfcc 20 n_mels 10
noise(low_snr_db=50)                  high_snr_db 40.0 low_snr_db 50
pcen(gain=1.01)                       gain 1.01 0 1
random_gain(low_db=7)                 high_db 6.0 low_db 7
spectral_rolloff(share=1)             share 1 positive
speed(low=0.905)                      low 0.905 0.01
speed(low=1.2)                        high 1.1 low 1.2
stft(win_length=1025)                 win_length 1025 n_fft 1024
"""


@pytest.mark.parametrize("row", AGAINST_OTHERS.strip().splitlines())
def test_values_that_do_not_fit_each_other(row):
    step, found = re.split(r"  +", re.sub(r"\) ", ")  ", row), maxsplit=1)
    field, value, *facts = found.split()
    name, arguments = step.rstrip(")").split("(")
    given = eval(f"dict({arguments})")
    with raises(RecipeError, field, eval(value), naming=facts):
        STEPS[name](**given)


# A transform, the frames of windows and their rate, then the same.
DOES_NOT_SUIT = """
log_mel()                                  1023 16000  n_fft 1024 1023
log_mel(f_max=8001)                        2000 16000  f_max 8001.0 8000 16000
log_mel(f_min=8000)                        2000 16000  f_min 8000.0
log_mel(n_fft=64,n_mels=40)                2000 16000  n_mels 40 n_fft 64 16000 250.0
fft(n_fft=99)                              100 16000   n_fft 99 100
kaldi_fbank()                              399 16000   frame_length_s 400 399
kaldi_fbank(n_mels=300)                    4000 16000  n_mels 300
rms(frame=512)                             499 16000   frame 512 499
spectral_contrast()                        2000 8000   bands 6 6400
spectral_contrast(n_fft=512,f_min=31)      2000 16000  bands 6 31.2
linear_prediction(frame=16,hop=1)          2000 16000  order 16 17
linear_prediction()                        16 16000    order 16 17
linear_prediction(frame=400,hop=160)       399 16000   frame 400 399
yin()                                      4000 2000   f_max 2093.0 1000
cqt()                                      4000 8000   f_min 32.703 84 3951.04
log_mel()|delta()                          2600 16000  width 9 7
resample(rate_hz=1000000000)               9 16000     rate_hz 1000000000 62500/1
resample(rate_hz=7999)                     9 8000      rate_hz 7999 7999/8000
downsample(ratio=3)                        9 16000     ratio 3 16000
downsample(ratio=16000)                    9 16000     rate_hz 1 1/16000
low_pass(cutoff_hz=8000)                   9 16000     cutoff_hz 8000.0 7999.84
band_pass(low_hz=50,high_hz=9000)          9 16000     high_hz 9000.0
band_pass(low_hz=50,high_hz=50.1)          9 16000     high_hz 50.1 50.16 16000
lufs()                                     6399 16000  feature 6399 0.4
lufs()                                     4000 3999   sample_rate_hz 3999 4000
loudness(weighting='k')                    1024 3999   sample_rate_hz 3999 4000
"""


@pytest.mark.parametrize("row", DOES_NOT_SUIT.strip().splitlines())
def test_windows_that_do_not_suit(row):
    call, frames, rate, field, value, *facts = row.split()
    transform = parse_transform(call)
    for windows in (0, 2) if call.startswith(("log_mel(", "stft")) else (2,):
        with raises(RecipeError, field, eval(value), naming=facts):
            shape = (windows, int(frames))
            apply_transform(transform, np.zeros(shape, np.float32), int(rate))
    of_axes = ("n_fft", "frame", "order", "bands", "frame_length_s")
    if field in of_axes or call.startswith(("cqt", "chroma")):
        with raises(RecipeError, field, eval(value), naming=facts):
            steps_of(transform)[-1].axes(int(rate), int(frames))
