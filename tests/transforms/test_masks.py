"""Masks on spectra: against a loop over their draws, and only in copies."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.transforms import SpecAugment
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


def test_more_masks_keep_the_first_ones():
    x, keys = spectra(5, 50, 40), random_keys(5)
    one, three = (
        SpecAugment(time_masks=n, freq_masks=n).on_copies(x, keys, RATE) != x
        for n in (1, 3)
    )
    assert three[one].all()
