"""What a notebook shows of an example."""

import copy
import pickle

import numpy as np

from beam_pipeline.read.records import Example


def test_an_example_is_shown_with_its_axes_and_rate(sounds):
    text = sounds[0]._repr_html_()
    assert 'src="data:audio/wav;base64,' in text
    assert 'src="data:image/png;base64,' in text
    assert sounds[0]["class"] in text
    assert len(text) < 600_000


def test_copies_are_ordinary(sounds):
    example = sounds[0]
    for other in (
        copy.copy(example), pickle.loads(pickle.dumps(example)), example | {},
    ):  # fmt: skip
        assert set(other) == set(example)
        np.testing.assert_array_equal(other["signal"], example["signal"])
    assert Example(example)._repr_html_()
    assert example == example.copy()
