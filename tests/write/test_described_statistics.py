"""Statistics that come from what metadata say of others."""

import numpy as np
import pytest

from beam_pipeline.examples.spec import FLOAT_LIST, FeatureSpec
from beam_pipeline.write.described_statistics import described_state
from beam_pipeline.write.statistics import DataStatistics

SPECS = [
    FeatureSpec("x", "float32", (), FLOAT_LIST),
    FeatureSpec("mel", "float32", (5, 3), FLOAT_LIST, axes=({"name": "mel"},)),
]


def measured(values, mel, windows):
    made = DataStatistics.of(SPECS)
    made.add({"x": values, "mel": mel}, windows)
    return made


def some(seed, gaps=0):
    rng = np.random.default_rng(seed)
    values = rng.normal(3, 2, 200).astype(np.float32)
    values[:gaps] = np.nan
    windows = rng.uniform(-1.1, 1.1, (200, 20)).astype(np.float32)
    return values, rng.normal(-4, 1, (200, 5, 3)).astype(np.float32), windows


@pytest.mark.parametrize("gaps", [0, 7])
def test_statistics_survive_their_description(gaps):
    wanted = measured(*some(0, gaps)).to_json()
    state = described_state(wanted, 200, 200 * 20)
    found = DataStatistics.from_state(state).to_json()
    assert found["windows"] == wanted["windows"]
    for name in ("x", "mel"):
        ours, theirs = found["features"][name], wanted["features"][name]
        for key in ("count", "min", "max"):
            assert ours[key] == theirs[key]
        assert ours["nonfinite_share"] == pytest.approx(theirs["nonfinite_share"])
        assert ours["mean"] == pytest.approx(theirs["mean"], rel=1e-12)
        assert ours["std"] == pytest.approx(theirs["std"], rel=1e-9)
        for q, value in theirs["quantiles"].items():
            assert ours["quantiles"][q] == pytest.approx(value, abs=0.2)
    assert (
        found["features"]["mel"]["bins"]["min"]
        == wanted["features"]["mel"]["bins"]["min"]
    )


def test_merged_descriptions_are_near_the_whole():
    first, second = some(0), some(1)
    merged = DataStatistics.from_state(
        described_state(measured(*first).to_json(), 200, 4000)
    )
    merged.merge(measured(*second))
    both = [np.concatenate(pair) for pair in zip(first, second, strict=True)]
    wanted, found = measured(*both).to_json(), merged.to_json()
    assert found["windows"] == wanted["windows"]
    for name in ("x", "mel"):
        ours, theirs = found["features"][name], wanted["features"][name]
        assert ours["std"] == pytest.approx(theirs["std"], rel=1e-9)
        for q, value in theirs["quantiles"].items():
            assert ours["quantiles"][q] == pytest.approx(value, abs=0.3)


def test_a_feature_without_values():
    empty = DataStatistics.of(SPECS).to_json()
    state = described_state(empty, 0, 0)
    assert DataStatistics.from_state(state).to_json()["features"]["x"]["count"] == 0
