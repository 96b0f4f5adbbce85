"""An example is a dict, also where it goes."""

import copy
import pickle

import numpy as np

from beam_pipeline.read.records import Example


def test_copies_are_ordinary(sounds):
    example = sounds[0]
    for other in (
        copy.copy(example), pickle.loads(pickle.dumps(example)), example | {},
    ):  # fmt: skip
        assert set(other) == set(example)
        np.testing.assert_array_equal(other["signal"], example["signal"])
    assert Example(example)._repr_html_()
    assert example == example.copy()
