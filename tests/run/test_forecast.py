"""Forecasts of bytes and time, against the data sets that runs write."""

import pickle

import numpy as np
import pytest

from beam_pipeline import plan, record
from beam_pipeline.errors import RecipeError
from beam_pipeline.run.local import Plan
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_samples

LENGTHS = (1, 2, 3, 5, 8, 13, 21, 70)  # windows of a second


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """Clips of several lengths and levels: the quieter, the smaller compressed."""
    folder = tmp_path_factory.mktemp("forecast") / "sounds"
    draw = np.random.default_rng(0)
    for k in range(24):
        noise = draw.normal(0, 0.1 / (1 + k % 3), RATE * LENGTHS[k % len(LENGTHS)])
        write_samples(folder / f"{k}.wav", noise, RATE)
    return folder


def bytes_of(metadata):
    return sum(entry.bytes for entry in metadata.shards())


OPTIONS = {"win_len": RATE, "features": {"mel": "log_mel()", "s": "identity()"}}


@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({}, 0.03),
        ({"splits": "train=2,test=1", "copies": 2, "augment": "random_gain()"}, 0.03),
        ({"keep": "energy(above_db=-25)"}, 0.3),
        # Members hold examples of many clips.
        ({"max_windows": 1, "features": {"rms": "rms(frame=400,hop=50)"}}, 0.02),
    ],
)
def test_the_size_is_that_of_the_data_set(changes, tolerance, sounds, tmp_path):
    options = {**OPTIONS, **changes}
    found = plan(sounds, sample=60, **options).forecast
    metadata = record(sounds, tmp_path / "out", **options)
    examples = sum(split.examples for split in metadata.splits.values())
    assert found.bytes == pytest.approx(bytes_of(metadata), rel=tolerance)
    assert abs(found.bytes - bytes_of(metadata)) < 2 * found.bytes_error + 100_000
    assert found.examples == pytest.approx(examples, rel=tolerance)
    assert found.lost == 0
    assert "keep" in changes or found.sampled >= min(60, examples)
    assert found.bytes_per_example == found.bytes / found.examples


def test_a_sample_of_all_examples_is_exact(sounds, tmp_path):
    options = {**OPTIONS, "keep": "energy(above_db=-25)", "num_elems": 301}
    found = plan(sounds, sample=10**6, **options).forecast
    metadata = record(sounds, tmp_path / "out", **options)
    examples = metadata.splits["records"].examples
    assert 0 < examples < 301
    assert found.examples == pytest.approx(examples)
    assert found.sampled == examples
    assert found.bytes == pytest.approx(bytes_of(metadata), rel=1e-3)
    assert 0 < found.seconds < 60


def test_examples_that_cannot_be_made(sounds, tmp_path):
    for name in ("a", "b", "c"):
        loud = np.full(RATE, 0.95 if name == "b" else 0.1)
        write_samples(tmp_path / f"loud/{name}.wav", loud, RATE)
    features = {"x": "tests.sounds.fail_on_loud"}
    made = plan(tmp_path / "loud", sample=9, win_len=RATE // 2, features=features)
    assert made.forecast.lost == 2
    assert made.forecast.sampled == 4
    again = pickle.loads(pickle.dumps(Plan(made.summary, (), made.forecast)))
    assert (again.summary.listing.clips, again.forecast) == (3, made.forecast)
    summary, rejects = made
    assert (summary, rejects) == (made.summary, made.rejects)
    without = plan(tmp_path / "loud", win_len=RATE)
    assert without.forecast is None


def test_a_clip_that_ends_the_process(tmp_path):
    for name, level in (("a", 0.1), ("b", 0.95)):
        write_samples(tmp_path / f"{name}.wav", np.full(RATE, level), RATE)
    features = {"x": "tests.sounds.crash_on_loud"}
    found = plan(tmp_path, sample=9, win_len=RATE, features=features).forecast
    assert (found.sampled, found.lost) == (1, 1)


@pytest.mark.parametrize("sample", [-1, 1.5, "20"])
def test_a_sample_is_a_whole_number(sample, sounds):
    with raises(RecipeError, "sample", sample):
        plan(sounds, sample=sample, **OPTIONS)


def test_the_command(sounds, cli):
    flags = ["plan", "--input", str(sounds), "--win-len", "8000"]
    said = cli(*flags, "--sample", "1").out
    assert_names(said, "forecast", "369 examples")
    assert "±" not in said  # of one block nobody knows the error
    assert_names(cli(*flags, "--sample", "8").out, "one worker", "±")
    assert_names(cli(*flags, "--sample", 0, status=2).err, "--sample")
