"""Statistics: moments against numpy, quantiles by rank, folds of blocks and shards."""

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import Metadata, open_records, record, verify
from beam_pipeline.errors import RecipeError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.write.shard import without_padding
from beam_pipeline.write.statistics import (
    BUCKETS,
    QUANTILES,
    DataStatistics,
    FeatureStatistics,
    count_buckets,
    count_levels,
    describe_levels,
    mean_and_deviation,
    quantile,
)
from tests.raising import raises
from tests.sounds import RATE, write_corpus

singles = st.floats(width=32, allow_nan=False, allow_infinity=False)


def spec(shape, axes=(), dtype="float32", name="x"):
    return FeatureSpec(name, dtype, shape, "float_list", "", axes)


BANDS = ({"name": "time"}, {"name": "mel_band"})


def noise(*shape, seed=0, scale=1.0):
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype("f4")


def gathered(blocks, bins=0):
    statistics = FeatureStatistics(bins)
    for block in blocks:
        statistics.add(block)
    return statistics


def travelled(statistics):
    """The same statistics, after their state was JSON text."""
    return type(statistics).from_state(json.loads(json.dumps(statistics.state())))


# Features


def assert_described(made, values, bins=0, spread=1e-9):
    """Asserts what numpy finds, after values that are not finite were left out."""
    exact = np.where(np.isfinite(values), values, np.nan).astype(np.float64)
    rows = exact.reshape(-1, bins or 1)
    middle = np.nanmean(exact) if np.isfinite(exact).any() else 0.0
    near = {"abs": 1e-15 * max(1, abs(middle))}
    found = [(made, exact, {})]
    if bins:
        found += [(made["bins"], rows, {"axis": 0})]
    for one, those, axis in found:
        assert one["mean"] == pytest.approx(np.nanmean(those, **axis), rel=1e-9, **near)
        deviation = np.nanstd(those - middle, **axis)
        assert one["std"] == pytest.approx(deviation, rel=spread, abs=1e-12)
        assert one["min"] == np.nanmin(those, **axis).tolist()
        assert one["max"] == np.nanmax(those, **axis).tolist()
    assert made["count"] == np.isfinite(exact).sum()
    assert made["nonfinite_share"] == np.isnan(exact).sum() / exact.size


@pytest.mark.parametrize("shape", [(1, 1), (3, 5), (16, 59, 64), (2, 3, 4, 5), (2, 0)])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "i2", "u1", "?"])
def test_moments_of_any_shape_and_type(shape, dtype):
    values = noise(*shape, scale=3).astype(dtype)
    made = gathered([values]).to_json()
    if values.size:
        assert_described(made, values)
    else:
        assert made["count"] == 0


def test_complex_values_count_by_their_magnitude():
    values = np.array([[3 + 4j, 0, -5j]], np.complex64)
    made = gathered([values]).to_json()
    assert (made["min"], made["max"], made["mean"]) == (0, 5, pytest.approx(10 / 3))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shape", [(16, 16000), (16, 59, 64), (13, 59, 60), (4, 10, 3)])
@pytest.mark.parametrize("gaps", [(), (np.inf, -np.inf, np.nan)])
def test_each_bin_has_its_own_statistics(shape, gaps):
    values = noise(*shape) * np.arange(shape[-1], dtype="f4")
    values.reshape(-1)[: len(gaps)] = gaps
    bins = shape[-1] if len(shape) > 2 else 0
    more = noise(2, *shape[1:], seed=1)
    made = gathered([values, more], bins).to_json()
    assert_described(made, np.concatenate([values, more]), bins)
    json.dumps(made, allow_nan=False)


@pytest.mark.parametrize(
    ("shape", "axes", "bins"),
    [
        ((59, 64), BANDS, 64),
        ((2, 59, 64), BANDS, 64),
        ((59,), ({"name": "time"},), 0),
        ((513,), ({"name": "frequency"},), 513),
        ((16000,), (), 0),
        ((2, 16000), (), 0),
        ((), (), 0),
        ((5000,), ({"name": "frequency"},), 0),
    ],
)
def test_which_features_have_bins(shape, axes, bins):
    made = FeatureStatistics.of(spec(shape, axes))
    made.add(np.ones((1, *shape), np.float32))
    assert len(made.to_json().get("bins", {}).get("mean", [])) == bins


def test_nothing_but_nan():
    made = travelled(gathered([np.full((2, 3), np.nan, "f4")], bins=3)).to_json()
    assert made == {
        "count": 0, "nonfinite_share": 1.0, "mean": None, "m2": None, "std": None,
    }  # fmt: skip


@pytest.mark.filterwarnings("error")
def test_values_whose_squares_overflow_count_as_infinite():
    values = np.array([[1e300, -1e300, 1e140, -1e140, 1.0]])
    made = gathered([values]).to_json()
    assert (made["count"], made["nonfinite_share"]) == (3, 0.4)
    assert (made["max"], abs(made["mean"]) < 1e125) == (1e140, True)
    assert made["std"] == pytest.approx(1e140 * math.sqrt(2 / 3))


# Quantiles


@given(st.lists(singles, min_size=1, max_size=300), st.sampled_from(QUANTILES))
@settings(deadline=None, max_examples=300)
def test_quantiles_are_near_the_value_of_their_rank(values, q):
    counts = np.zeros(BUCKETS, np.int64)
    count_buckets(counts, np.array(values, np.float32))
    exact = sorted(values)[max(1, math.ceil(q * len(values))) - 1]
    if abs(exact) < 2.0**-133:
        assert quantile(counts, q) == 0
    else:
        # Buckets of subnormal numbers have equal widths.
        assert quantile(counts, q) == pytest.approx(exact, rel=2**-8, abs=2.0**-134)


def test_waiting_blocks_are_copies():
    clip = noise(100_000)
    statistics = gathered([clip[:1000].reshape(10, 100)])
    clip[:] = 0
    assert statistics.to_json()["max"] > 1


def test_values_beyond_float32_are_in_the_last_bucket():
    made = gathered([np.array([[1e100, -1e100, 0.0]])]).to_json()
    assert made["quantiles"]["0.99"] > 3e38
    assert made["quantiles"]["0.01"] < -3e38


# Merging


@pytest.mark.parametrize("bins", [0, 4])
def test_a_state_loses_no_digit(bins):
    blocks = [noise(3, 4, seed=i, scale=10.0**i) + 1e4 for i in range(20)]
    parts = [gathered(blocks[:7], bins), gathered(blocks[7:], bins)]
    whole = FeatureStatistics(bins)
    again = FeatureStatistics(bins)
    for part in parts:
        whole.merge(part)
        again = travelled(again)
        again.merge(travelled(part))
    assert again.state() == whole.state()
    assert json.dumps(again.to_json()) == json.dumps(whole.to_json())


@pytest.mark.parametrize("bins", [0, 3])
@pytest.mark.parametrize("offset", [1e4, -3e5, 1e9, 1e12])
def test_many_shards_far_from_zero_keep_the_spread_that_numpy_finds(bins, offset):
    """float32 at 1e4 has steps of 1e-3: a sum of squares in float64 has 4 digits."""
    dtype, spread = ("f4", 0.01) if abs(offset) < 1e6 else ("f8", 0.1 + offset * 2e-7)
    shards = [
        (offset + noise(900, 3, seed=k, scale=spread).astype("f8")).astype(dtype)
        for k in range(200)
    ]
    shards[7][0, 1] = np.nan
    merged = FeatureStatistics(bins)
    for shard in shards:
        merged.merge(gathered(np.split(shard, 9), bins))
    made = merged.to_json()
    values = np.concatenate(shards).astype(np.float64)
    near = 1e-11 if offset == 1e4 else 1e-6
    assert_described(made, values, bins, near)
    assert made["mean"] == pytest.approx(np.nanmean(values), rel=1e-15)
    count = np.isfinite(values).sum()
    assert made["m2"] == pytest.approx(np.nanvar(values) * count, rel=near)
    if bins:
        wanted = np.nanmean(values, axis=0)
        assert made["bins"]["mean"] == pytest.approx(wanted, rel=near / 1e4)


@pytest.mark.parametrize("bins", [0, 3])
def test_splits_merge_by_what_the_metadata_say(bins):
    several = [noise(50, 3, seed=k, scale=k + 1) + 7 * k for k in range(4)]
    several.insert(0, np.full((2, 3), np.nan, "f4"))  # a split without a finite value
    several[2][:, 1] = np.nan
    described = [gathered([values], bins).to_json() for values in several]
    mean, std = mean_and_deviation(json.loads(json.dumps(described)))
    axis = 0 if bins else None
    whole = np.concatenate(several).astype(np.float64)
    np.testing.assert_allclose(mean, np.nanmean(whole, axis=axis), rtol=1e-12)
    np.testing.assert_allclose(std, np.nanstd(whole, axis=axis), rtol=1e-12)
    assert np.isnan(mean_and_deviation(described[:1])).all()


# Windows


def test_silent_and_clipped_windows():
    windows = np.zeros((5, 100), np.float32)
    windows[0, 3] = 2.0**-17
    windows[1, 3] = -(2.0**-15)
    windows[2, :3] = 1.0, -1.0, 0.5
    windows[3, 0] = 32767 / 32768
    windows[4, 0] = 32766 / 32768
    counts = count_levels(windows) + count_levels(np.zeros((1, 2, 50), np.float32))
    counts += count_levels(np.zeros((0, 50), np.float32))
    assert describe_levels(counts) == {
        "silent_windows": 2, "clipped_windows": 2, "clipped_share": 3 / 600,
    }  # fmt: skip


def test_a_data_set_has_statistics_of_each_numeric_feature():
    specs = [spec((3, 4), BANDS), spec((), dtype="string", name="text")]
    statistics = DataStatistics.of(specs)
    values = {"x": noise(2, 3, 4), "text": np.array(["a", "b"])}
    statistics.add(values)
    other = DataStatistics.of(specs)
    other.merge(travelled(statistics))
    assert set(other.to_json()["features"]) == {"x"}
    assert other.to_json() == statistics.to_json()


# Padding: how much of it examples have, and statistics without it.


TIME = {"name": "time", "unit": "s", "size": 4, "start": 0.0, "step": 2 / RATE}
BAND = {"name": "mel_band", "unit": "Hz", "size": 3, "values": [1, 2, 3]}
SPECS = {
    "signal": FeatureSpec("signal", "float32", (8,), "float_list", ""),
    "mel": FeatureSpec("mel", "float32", (4, 3), "float_list", "", (TIME, BAND)),
    "level": FeatureSpec("level", "float32", (), "float_list", ""),
    "both": FeatureSpec("both", "float32", (2, 4, 3), "float_list", "", (TIME, BAND)),
}


@pytest.mark.parametrize(
    ("valid", "frames", "times"),
    [(1, 1, 1), (2, 2, 1), (3, 3, 2), (6, 6, 3), (7, 7, 4), (8, 8, 4), (0, 0, 0)],
)
def test_what_is_left_of_a_window(valid, frames, times):
    """Windows of 8 frames; a spectrum frame begins at each second one."""
    found, values = {}, {"texts": ["a"]}
    for name, spec in SPECS.items():
        size = np.prod(spec.shape, dtype=int)
        values[name] = np.arange(size).reshape(1, *spec.shape)
    for name, value in values.items():
        found[name] = without_padding(value, SPECS.get(name), valid, 8, RATE)
    np.testing.assert_array_equal(found["signal"], values["signal"][:, :frames])
    np.testing.assert_array_equal(found["mel"], values["mel"][:, :times])
    np.testing.assert_array_equal(found["both"], values["both"][:, :, :times])
    np.testing.assert_array_equal(found["level"], values["level"])
    assert found["texts"] == ["a"]


OPTIONS = {
    "win_len": 1000, "hop": 900, "tail": "pad", "elements_per_file": 7,
    "features": {
        "mel": "log_mel(n_fft=256,hop=128,n_mels=8)", "signal": "identity()",
        "level": "rms(frame=1000,hop=1000)",
    },
}  # fmt: skip


@pytest.fixture(scope="module")
def marked(tmp_path_factory):
    folder = tmp_path_factory.mktemp("padding")
    write_corpus(folder / "in", frames=2050)
    record(folder / "in", folder / "out", mark_padding=True, **OPTIONS)
    return folder


def test_statistics_leave_padding_out(marked):
    metadata = Metadata.load(marked / "out")
    mel, signal, padded = [], [], 0
    for example in open_records(marked / "out"):
        valid = int(example["valid_frames"])
        assert not example["signal"][valid:].any()
        assert example["signal"][max(valid - 5, 0) : valid].any()
        padded += valid < 1000
        signal.append(example["signal"][:valid])
        mel.append(example["mel"][np.arange(len(example["mel"])) * 128 < valid])
    assert padded > 10
    found = metadata.splits["records"].statistics["features"]
    for name, parts in (("mel", mel), ("signal", signal)):
        values = np.concatenate(parts).astype(np.float64)
        assert found[name]["count"] == values.size
        assert found[name]["mean"] == pytest.approx(values.mean(), abs=1e-9)
        assert found[name]["std"] == pytest.approx(values.std(), rel=1e-6)
        assert found[name]["min"] == values.min()
    bins = np.concatenate(mel).astype(np.float64).mean(axis=0)
    assert found["mel"]["bins"]["mean"] == pytest.approx(bins, rel=1e-6)
    assert found["level"]["count"] == metadata.splits["records"].examples
    assert found["mel"]["min"] > -20  # the floor is at -23.03


def test_by_default_padding_counts(marked, tmp_path):
    made = record(marked / "in", tmp_path / "out", **OPTIONS)
    assert "valid_frames" not in made.features
    assert made.recipe.to_json()["mark_padding"] is False
    mel = made.splits["records"].statistics["features"]["mel"]
    assert mel["min"] == pytest.approx(-23.03, abs=0.01)


def test_a_changed_number_of_frames_is_found(marked, tmp_path, monkeypatch):
    """A writer that is wrong about the padding: the table of windows knows better."""
    from beam_pipeline.write.shard import FeatureBlock

    wrong = property(lambda block: block.rows.frames[block.rows.kept] - 1)
    monkeypatch.setattr(FeatureBlock, "valid_frames", wrong)
    record(marked / "in", tmp_path / "out", mark_padding=True, workers=1, **OPTIONS)
    problems = verify(tmp_path / "out", deep=True)
    assert any("valid_frames" in problem for problem in problems)


def test_the_name_of_the_entry_is_taken(tmp_path):
    features = {"valid_frames": "rms()"}
    with raises(RecipeError, "features", "valid_frames", naming="--mark-padding"):
        record(
            tmp_path, tmp_path / "o", win_len=9, features=features, mark_padding=True
        )
    (tmp_path / "a.csv").write_text("path,valid_frames,class\na.wav,1,b\n")
    with raises(RecipeError, "columns", "valid_frames"):
        record(
            tmp_path / "a.csv", tmp_path / "o", win_len=9, mark_padding=True,
            label_from="class", columns="valid_frames",
        )  # fmt: skip
