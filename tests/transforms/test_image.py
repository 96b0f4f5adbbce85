"""Grey levels, against the equation in exact fractions."""

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import AsImage, Chain, apply_transform
from beam_pipeline.transforms.cepstral import Mfcc
from beam_pipeline.transforms.frames import Fft
from beam_pipeline.transforms.mel import LogMel
from beam_pipeline.transforms.signals import Gain
from tests.raising import raises
from tests.transform_checks import noise

RATE = 16000
LARGEST = np.finfo(np.float32).max


def exact_level(x, low, high):
    """The equation in fractions, whose rounding is half to even."""
    level = 255 * (Fraction(float(x)) - low) / (Fraction(high) - low)
    return min(max(round(level), 0), 255)


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20),
    st.integers(-40, 39),
    st.integers(1, 40),
)
def test_levels_are_the_equations(values, low, width):
    image = AsImage(low=low, high=low + width)(np.array([values], np.float32))
    near_half = [
        abs(255 * (Fraction(x) - low) / width % 1 - Fraction(1, 2)) < Fraction(1, 10**9)
        for x in values
    ]
    for x, level, close in zip(values, image[0], near_half, strict=True):
        # Float64 rounds, too: within 1e-9 of a half, either level is right.
        wanted = exact_level(x, low, low + width)
        assert abs(int(level) - wanted) <= close


def test_halves_round_to_even():
    halves = np.arange(-2, 514, dtype=np.float32)[np.newaxis] / 2
    image = AsImage(low=0, high=255)(halves)
    assert image.dtype == np.uint8
    assert image.tolist() == [[exact_level(x, 0, 255) for x in halves[0]]]
    assert image[0, 2:8].tolist() == [0, 0, 1, 2, 2, 2]


def test_every_level_comes_back():
    levels = np.arange(256)
    values = (-23 + levels * 32 / 255).astype(np.float32)
    assert AsImage()(values[np.newaxis]).tolist() == [levels.tolist()]


def test_a_tiny_or_huge_range():
    values = np.array([[-LARGEST, -1.0, 0.0, 1.0, LARGEST]], np.float32)
    tiny = AsImage(low=0, high=5e-324)(values)
    assert tiny.tolist() == [[0, 0, 0, 255, 255]]
    huge = AsImage(low=-LARGEST, high=LARGEST)(values)
    assert huge.tolist() == [[0, 128, 128, 128, 255]]


@pytest.mark.parametrize("log", ["ln", "db"])
def test_log_mel_fits_into_its_range(log):
    """Silence is black; the loudest sine and square wave are not white."""
    image = AsImage() if log == "ln" else AsImage(low=-100, high=40)
    chain = Chain((LogMel(log=log), image))
    assert not chain(np.zeros((2, 16000), np.float32), RATE).any()
    phase = 2 * np.pi * np.outer([60, 440, 1000, 5000], np.arange(16000)) / RATE
    sines = np.sin(phase).astype(np.float32)
    for loud in (sines, np.sign(sines)):
        assert 230 < chain(loud, RATE).max() < 255


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_refused(value):
    features = noise(2, 3, 4)
    features[1, 2, 3] = value
    with raises(RecipeError, "feature", value, naming="as_image"):
        AsImage()(features)


def test_only_real_values_before_and_nothing_after():
    with raises(RecipeError, "feature", "complex64"):
        AsImage()(Fft()(noise(1, 64)))
    with raises(RecipeError, "feature", "uint8", naming="as_image"):
        apply_transform(Chain((AsImage(), Gain(gain_db=1))), noise(1, 64), RATE)
    with raises(RecipeError, "feature", (3,)):
        AsImage()(noise(3))
    assert apply_transform(Chain((Mfcc(), AsImage())), noise(1, 4000), RATE).ndim == 3


@given(
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=20),
    st.integers(-40, 39),
    st.integers(1, 40),
)
def test_values_beyond_black_and_white_are_counted(values, low, width):
    image = AsImage(low=low, high=low + width)
    levels = [255 * (Fraction(x) - low) / width for x in values]
    half = Fraction(1, 10**9)  # float64 may round a level at 255.5 either way
    least = sum(x < -Fraction(1, 2) - half or x > 255.5 + half for x in levels)
    most = sum(x < -Fraction(1, 2) + half or x >= 255.5 - half for x in levels)
    assert least <= image.count_clipped(np.array([values], np.float32)) <= most
