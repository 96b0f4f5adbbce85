"""Steps of features that change copies, or measure clips: own ones, and their keys."""

from dataclasses import dataclass

import numpy as np
import pytest

from beam_pipeline.errors import TransformError
from beam_pipeline.examples.features import FeatureSet
from beam_pipeline.examples.window_steps import Origins, clip_bits, copy_numbers
from beam_pipeline.recipe.recipe import Recipe
from tests.raising import raises
from tests.transform_checks import noise

RATE = 8000
STARTS = np.arange(0, 40, 10)


@dataclass(frozen=True)
class Stamp:
    """Writes the key of a copy into its first value."""

    how: str = "right"

    def __call__(self, windows):
        return windows[:, :3]

    def on_copies(self, features, keys, sample_rate_hz):
        assert sample_rate_hz == RATE
        out = features.copy()
        out[:, 0] = (keys >> np.uint64(40)).astype(np.float32)
        return {"right": out, "type": out.astype("f8"), "shape": out[:, :2]}[self.how]


def features_of(**expressions):
    named = {n: text.replace("Stamp", f"{__name__}.Stamp")
             for n, text in expressions.items()}  # fmt: skip
    recipe = Recipe(win_len=10, features=named, copies=2)
    return FeatureSet.of(recipe, (10,), RATE)


def origins(copies, windows=(7, 7, 7, 8), path="a.wav", seed=0):
    copies = np.array(copies)
    numbers = copy_numbers(np.array(windows), copies)
    bits = clip_bits(seed, path, 0)
    return Origins("a.wav", RATE, STARTS, copies, numbers, bits)


def apply(features, of):
    return features.apply(noise(4, 10), of)[0]


def test_only_copies_change_and_each_has_a_key_of_its_own():
    features = features_of(x="Stamp()", y="Stamp()")
    plain = noise(4, 10)[:, :3]
    found = apply(features, origins([0, 1, 2, 1]))
    keys = set()
    for name in "xy":
        np.testing.assert_array_equal(found[name][0], plain[0])
        np.testing.assert_array_equal(found[name][:, 1:], plain[:, 1:])
        keys.update(found[name][1:, 0].tolist())
    for other in (origins([0, 1, 2, 1], path="b.wav"), origins([0, 1, 2, 1], seed=1)):
        keys.update(apply(features, other)["x"][1:, 0].tolist())
    assert len(keys) == 4 * 3
    assert not keys & {*plain[:, 0].tolist()}


@pytest.mark.parametrize("how", ["type", "shape"])
def test_copies_of_another_type_or_shape_are_refused(how):
    features = features_of(x=f"Stamp(how={how!r})")
    with raises(
        TransformError, path="a.wav", naming=["feature x", "frame 10", "Stamp"]
    ):
        apply(features, origins([0, 1, 2, 1]))
