"""raising.py: the helper misses what is not there, and parts of words and numbers."""

import pytest

from beam_pipeline.errors import RecipeError
from tests.raising import raises


@pytest.mark.parametrize(
    "wrong",
    [{"field": "hops"}, {"value": 1}, {"value": 0.0}, {"value": False},
     {"naming": 7}, {"naming": ["hop", 7]}, {"naming": "ho"}, {"naming": 1}],
)  # fmt: skip
def test_what_is_not_so_fails(wrong):
    with raises(RecipeError, "hop", 0, naming=["hop", 10]):
        raise RecipeError("hop", "must be under 10", 0)
    with pytest.raises(AssertionError), raises(RecipeError, **wrong):
        raise RecipeError("hop", "must be under 10", 0)
