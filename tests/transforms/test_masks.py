"""Masks on spectra: against a loop over their draws, and only in copies."""

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import SpecAugment, record
from beam_pipeline.api import plan
from beam_pipeline.errors import RecipeError
from beam_pipeline.read.replay import replay
from tests.raising import raises
from tests.transforms.test_augment import random_keys, splitmix

RATE = 8000


def spectra(*shape, seed=0):
    return np.random.default_rng(seed).normal(-9, 2, shape).astype(np.float32)


def uniform(key, number):
    """A draw in Python's whole numbers."""
    word = splitmix(number, key) if number else key
    return (splitmix(0, word) >> 11) / 2**53


def slow_masks(spectrum, key, step):
    """Masks one mask after the other, of one channel."""
    frames, bins = spectrum.shape
    out = spectrum.copy()
    fill = {
        "mean": spectrum.mean(dtype=np.float64),
        "least": spectrum.min(),
        "zero": 0,
    }[step.fill]
    for k in range(step.time_masks):
        most = min(step.max_frames, int(step.max_share * frames))
        width = int(uniform(key, 4 * k) * (most + 1))
        first = int(uniform(key, 4 * k + 1) * (frames - width + 1))
        out[first : first + width] = fill
    for k in range(step.freq_masks):
        width = int(uniform(key, 4 * k + 2) * (min(step.max_bins, bins) + 1))
        first = int(uniform(key, 4 * k + 3) * (bins - width + 1))
        out[:, first : first + width] = fill
    return out


@given(
    frames=st.integers(1, 12),
    bins=st.integers(1, 12),
    masks=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    most=st.tuples(st.integers(0, 14), st.integers(0, 14)),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    fill=st.sampled_from(["mean", "least", "zero"]),
    channels=st.sampled_from([None, 2]),
)
@settings(deadline=None, max_examples=100)
def test_masks_are_those_that_are_drawn(
    frames, bins, masks, most, share, fill, channels
):
    step = SpecAugment(
        freq_masks=masks[0], time_masks=masks[1], max_bins=most[0], max_frames=most[1],
        max_share=share, fill=fill,
    )  # fmt: skip
    x = spectra(4, *([] if channels is None else [channels]), frames, bins)
    x.flags.writeable = False
    keys = random_keys(4)
    found = step.on_copies(x, keys, RATE)
    assert (found.dtype, found.shape) == (np.float32, x.shape)
    for window, made, key in zip(x, found, keys.tolist(), strict=True):
        pairs = zip(
            window.reshape(-1, frames, bins),
            made.reshape(-1, frames, bins),
            strict=True,
        )
        for channel, masked in pairs:
            expected = slow_masks(channel, key, step)
            np.testing.assert_allclose(masked, expected, rtol=1e-6, atol=0)
    np.testing.assert_array_equal(step.on_copies(x[1:2], keys[1:2], RATE), found[1:2])
    assert step.on_copies(x[:0], keys[:0], RATE).shape == (0, *x.shape[1:])


def test_widths_and_places_are_uniform():
    step = SpecAugment(freq_masks=1, max_bins=4, time_masks=0)
    drawn = step.drawn(random_keys(20_000), 10, 6)
    widths, starts = drawn["bins"][:, 0], drawn["first_bin"][:, 0]
    counts = np.bincount(widths, minlength=5)
    assert len(counts) == 5
    assert np.abs(counts - 4000).max() < 5 * 4000**0.5
    of_two = np.bincount(starts[widths == 2], minlength=5)
    assert len(of_two) == 5
    assert np.abs(of_two - of_two.mean()).max() < 5 * of_two.mean() ** 0.5
    assert drawn["first_frame"].shape == (20_000, 0)


def test_more_masks_keep_the_first_ones():
    keys = random_keys(5)
    one, three = (
        SpecAugment(time_masks=n, freq_masks=n).drawn(keys, 50, 40) for n in (1, 3)
    )
    for name, values in one.items():
        np.testing.assert_array_equal(three[name][:, :1], values)


def test_what_is_no_copy_is_not_masked():
    x = spectra(3, 20, 10)
    np.testing.assert_array_equal(SpecAugment()(x), x)


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        (lambda: SpecAugment()(np.zeros((2, 5), np.float32)), "feature", (2, 5)),
    ],
)
def test_errors(make, field, value):
    with raises(RecipeError, field, value):
        make()


# Whole runs

FEATURES = {
    "plain": "log_mel(n_fft=64,hop=32,n_mels=8)",
    "masked": "log_mel(n_fft=64,hop=32,n_mels=8)|spec_augment(max_bins=3)",
    "other": "log_mel(n_fft=64,hop=32,n_mels=8)|spec_augment(max_bins=3)",
}


@pytest.fixture
def corpus(tmp_path):
    rng = np.random.default_rng(0)
    for i in range(4):
        path = tmp_path / "in" / f"{i}.wav"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, 0.1 * rng.normal(size=1200 + 300 * i), RATE)
    return str(tmp_path / "in")


@pytest.mark.runs
def test_only_copies_are_masked_and_always_alike(corpus, tmp_path, monkeypatch):
    options = {"win_len": 600, "hop": 150, "label_from": "none", "order": "listed",
               "features": FEATURES, "copies": 2}  # fmt: skip
    record(corpus, str(tmp_path / "a"), **options)
    monkeypatch.setattr("beam_pipeline.write.blocks.BLOCK_BYTES", 5000)
    more = {"elements_per_file": 7, "workers": 2, "augment": "random_gain()"}
    record(corpus, str(tmp_path / "b"), **{**options, **more, "copies": 3})
    (a, b) = (list(replay(str(tmp_path / n)).as_numpy_iterator()) for n in "ab")
    found = {(e["filepath"], e["win_start_idx"], e["copy"]): e for e in a}
    assert len(found) == len(a) == 3 * len(b) // 4 > 90
    same = 0
    for example in b:
        key = example["filepath"], example["win_start_idx"], example["copy"]
        masked = example["masked"] != example["plain"]
        assert masked.any() <= bool(example["copy"])
        if key in found:
            # The gain moves the levels, not the masks.
            np.testing.assert_array_equal(
                masked, found[key]["masked"] != found[key]["plain"]
            )
            same += 1
        if not example["copy"]:
            np.testing.assert_array_equal(example["other"], found[key]["other"])
    assert same == len(a)
    masks = {(e["masked"] != e["plain"]).tobytes() for e in a if e["copy"]}
    assert len(masks) > 40
    # Each feature has masks of its own.
    assert sum(not np.array_equal(e["masked"], e["other"]) for e in a) > 40


def test_masks_need_copies_and_copies_need_a_change(corpus):
    options = {"win_len": 600, "features": FEATURES}
    with raises(RecipeError, "feature masked", 0, naming="copies"):
        plan(corpus, **options)
    with raises(RecipeError, "copies and augment", (1, ""), naming="spec_augment"):
        plan(corpus, win_len=600, copies=1)
    summary, _ = plan(corpus, copies=1, **options)
    assert summary.layouts["records"].total == 2 * (2 + 2 + 3 + 3)
