"""What holds for every step, whatever it computes: transforms, and what changes copies.

A window has the same bytes whichever windows are beside it, in blocks of any size, and
whatever its layout in memory. Channels are treated one by one. Silence gives finite
values. The axes fit. Text stands for the step. Parameters of a wrong type or far out of
their range are refused by their name.
"""

import pickle
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.augment import Sound
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
    patch.setattr("beam_pipeline.transforms.cqt.SEGMENT_SAMPLES", 2500)
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


SOUNDS = [
    Sound("a", np.exp(-np.arange(900, dtype="f4") / 99) * noise(900)),
    Sound("b", noise(40_000, seed=3)),
]
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
    with raises(RecipeError, "feature", "int64"):
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
    with raises(RecipeError, "feature", "int64"):
        step.keep(np.ones((1, 4000), int), RATE)
    text = format_steps(call, SELECTION)
    assert parse_steps(text, SELECTION) == (step,)
    assert format_steps(text, SELECTION) == text
    monkeypatch.setattr("beam_pipeline.transforms.selection._PIECE", 130)
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
