"""NaN, infinity and what grows beyond float32: for every transform there is."""

import warnings

import numpy as np
import pytest

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import apply_transform
from beam_pipeline.transforms.cqt import Chroma
from beam_pipeline.transforms.steps import parse_transform
from tests.raising import raises
from tests.transform_checks import EVERY_CALL, FLOAT_CALLS, noise

RATE = 16000
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


def depends_on(transform, place):
    """Which values of the second window differ for at least one other sample there."""
    features = [
        apply_transform(transform, with_sample(place, value), RATE)[1]
        for value in (0.0, 0.9, -0.9, 0.05, -30.0)
    ]
    return np.any([f != features[0] for f in features[1:]], axis=0)


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("call", FLOAT_CALLS)
def test_nan_goes_wherever_its_sample_counts(call, place):
    transform = parse_transform(call)
    clean = apply_transform(transform, windows(), RATE)
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
        assert unknown[depends_on(transform, place)].all()
        np.testing.assert_array_equal(features[1][~unknown], clean[1][~unknown])


@pytest.mark.parametrize("value", [np.inf, -np.inf])
@pytest.mark.parametrize("call", FLOAT_CALLS)
def test_infinity_is_no_ordinary_number(call, value):
    transform = parse_transform(call)
    clean = apply_transform(transform, windows(), RATE)
    features = apply_transform(transform, with_sample(4001, value), RATE)
    np.testing.assert_array_equal(features[[0, 2]], clean[[0, 2]])
    changed = features[1] != clean[1]
    # A median is the same for whatever is greatest; a sign is one, and pYIN's path as
    # above.
    if not call.startswith(("normalize(kind='median')", "zero_crossing", "pyin")):
        assert not (changed & np.isfinite(features[1])).any()
    if not call.startswith("zero_crossing"):
        assert not np.isfinite(features[1]).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("call", [call for call in EVERY_CALL if "as_image" in call])
def test_what_has_no_grey_level_is_refused(call, value):
    """Not a black pixel: a reader could not find it."""
    transform = parse_transform(call)
    with raises(RecipeError, "feature", naming="as_image"):
        apply_transform(transform, with_sample(4001, value), RATE)
    assert apply_transform(transform, windows(), RATE).dtype == np.uint8


def test_shares_of_a_class_that_overflows():
    """Beside an infinite class the others would be 0, and it would be NaN alone."""
    tone = np.sin(2 * np.pi * 440 / RATE * np.arange(FRAMES)).astype(np.float32)
    classes = Chroma(norm="none")(np.float32(1.7e38) * tone[np.newaxis], RATE)[0, 8]
    assert np.isinf(classes[9])
    assert np.isfinite(classes[3])
    assert np.isnan(Chroma()(np.float32(1.7e38) * tone[np.newaxis], RATE)[0, 8]).all()
