"""Forecasts of bytes, time and memory, against the data sets that runs write."""

from __future__ import annotations

import math
import pickle
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import example, given
from hypothesis import strategies as st

from beam_pipeline import record
from beam_pipeline.api import plan
from beam_pipeline.cli.main import main
from beam_pipeline.errors import RecipeError
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.order import PlacedClips
from beam_pipeline.plan.shards import ShardLayout
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.run.forecast import BlockSampler, Forecast, _block_examples
from beam_pipeline.run.plan_result import Plan
from tests.raising import assert_names, raises
from tests.sounds import RATE

LENGTHS = (1, 2, 3, 5, 8, 13, 21, 70)  # windows of a second


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Clips of several lengths and levels: the quieter, the smaller compressed."""
    folder = tmp_path_factory.mktemp("forecast") / "sounds"
    folder.mkdir()
    draw = np.random.default_rng(0)
    for k in range(24):
        noise = draw.normal(0, 0.1 / (1 + k % 3), RATE * LENGTHS[k % len(LENGTHS)])
        soundfile.write(folder / f"{k}.wav", noise, RATE)
    return folder


def bytes_of(metadata: Any) -> int:
    return sum(entry.bytes for entry in metadata.shards())


OPTIONS: Any = {"win_len": RATE, "features": {"mel": "log_mel()", "s": "identity()"}}


@pytest.mark.runs
@pytest.mark.parametrize(
    ("changes", "tolerance"),
    [
        ({}, 0.03),
        ({"compression": "none"}, 0.001),
        ({"splits": "train=2,test=1", "copies": 2, "augment": "random_gain()"}, 0.03),
        ({"keep": "energy(above_db=-25)"}, 0.3),
        ({"num_elems": 100}, 0.04),
        # Members hold examples of many clips.
        ({"max_windows": 1, "features": {"rms": "rms(frame=400,hop=50)"}}, 0.02),
        ({"win_len": 400, "features": {"rms": "rms(frame=100,hop=50)"}}, 0.04),
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
    assert found.bytes_per_example == found.bytes / found.examples


@pytest.mark.runs
def test_a_sample_of_all_examples_is_exact(sounds, tmp_path):
    options = {**OPTIONS, "keep": "energy(above_db=-25)", "num_elems": 301}
    found = plan(sounds, sample=10**6, **options).forecast
    metadata = record(sounds, tmp_path / "out", **options)
    examples = metadata.splits["records"].examples
    assert 0 < examples < 301
    assert found.examples == pytest.approx(examples)
    assert found.sampled == examples
    assert found.bytes == pytest.approx(bytes_of(metadata), rel=1e-3)
    # One process is as large as another, up to what was there before.
    assert 2e7 < found.memory_bytes < 2e9
    assert 0 < found.seconds < 60
    assert 0 < found.plan_seconds < 60


@pytest.mark.runs
def test_examples_that_cannot_be_made(sounds, tmp_path):
    (tmp_path / "loud").mkdir()
    for name in ("a", "b", "c"):
        loud = np.full(RATE, 0.95 if name == "b" else 0.1)
        soundfile.write(tmp_path / f"loud/{name}.wav", loud, RATE)
    features = {"x": "tests.sounds:fail_on_loud"}
    made = plan(tmp_path / "loud", sample=9, win_len=RATE // 2, features=features)
    assert made.forecast.lost == 2
    assert made.forecast.sampled == 4
    again = pickle.loads(pickle.dumps(Plan(made.summary, (), made.forecast)))
    assert (again.summary.listing.clips, again.forecast) == (3, made.forecast)
    summary, rejects = made
    assert (summary, rejects) == (made.summary, made.rejects)
    without = plan(tmp_path / "loud", win_len=RATE)
    assert without.forecast is None
    assert "forecast" in made._repr_html_()
    assert "forecast" not in without._repr_html_()


@pytest.mark.runs
def test_a_clip_that_ends_the_process(tmp_path):
    for name, level in (("a", 0.1), ("b", 0.95)):
        soundfile.write(tmp_path / f"{name}.wav", np.full(RATE, level), RATE)
    features = {"x": "tests.sounds:crash_on_loud"}
    found = plan(tmp_path, sample=9, win_len=RATE, features=features).forecast
    assert (found.sampled, found.lost) == (1, 1)


def clip_of(row: int, examples: int) -> Clip:
    return Clip(
        row, 0, f"{row}.wav", None, "a", RATE, RATE, 1, "WAV", "PCM_16", RATE,
        examples * RATE, examples,
    )  # fmt: skip


@given(
    counts=st.lists(st.integers(0, 200), min_size=1, max_size=8),
    cut=st.integers(0, 8),
    asked=st.integers(1, 300),
    less=st.integers(0, 20),
)
@example(counts=[1], cut=0, asked=1, less=0)
def test_each_chosen_example_has_a_block(counts, cut, asked, less):
    """Two buckets, of which the last examples are beyond the total."""
    recipe = Recipe(win_len=RATE)
    total = max(1, sum(counts) - less)
    if sum(counts) < total:
        return
    clips = [clip_of(row, n) for row, n in enumerate(counts)]
    layouts = {"a": ShardLayout("a", total, 1, None)}
    corpus = Corpus((), {RATE: 1}, {1: 1}, {("Hz", RATE): "x", ("channels", 1): "x"})
    sampler = BlockSampler(layouts, ExampleFormat.of(corpus, recipe), recipe, asked)
    before = sum(counts[:cut])
    blocks = [
        *sampler.find(PlacedClips("a", 0, 0, tuple(clips[:cut]))),
        *sampler.find(PlacedClips("a", 1, before, tuple(clips[cut:]))),
    ]
    assert sum(block.chosen for block in blocks) == min(asked, total)
    size = _block_examples(clips[0], recipe)
    places = []
    for block in blocks:
        (segment,) = block.work.task.segments
        assert segment.first % size == 0
        assert 1 <= block.chosen <= segment.examples <= size
        first = sum(counts[: segment.clip.row]) + segment.first
        places.append(range(first, first + segment.examples))
    assert all(one.stop <= two.start for one, two in pairwise(places))
    assert places[-1].stop <= total
    if asked >= total:
        assert sum(map(len, places)) == total


@pytest.mark.parametrize(
    ("shards", "workers", "rounds"),
    [(5, 1, 5), (5, 2, 3), (5, 4, 2), (5, 5, 1), (5, 100, 1), (1, 3, 1)],
)
def test_a_worker_writes_whole_shards(shards, workers, rounds):
    found = Forecast(
        1, 0, 1.0, 1.0, math.inf, 3600.0, math.inf, 10.0, 1, shards, workers
    )
    assert found.wall_seconds() == pytest.approx(10 + rounds * 3600 / shards)
    assert found.wall_seconds(workers) == found.wall_seconds()
    assert found.vcpu_hours == pytest.approx(3610 / 3600)
    assert found.cost(0.5) == pytest.approx(0.5 * 3610 / 3600)


@pytest.mark.parametrize("sample", [-1, 1.5, "20"])
def test_a_sample_is_a_whole_number(sample, sounds):
    with raises(RecipeError, "sample", sample):
        plan(sounds, sample=sample, **OPTIONS)


@pytest.mark.runs
def test_the_command(sounds, capsys):
    flags = ["plan", "--input", str(sounds), "--win-len", "8000"]
    assert main([*flags, "--sample", "1"]) == 0
    said = capsys.readouterr().out
    assert_names(said, "forecast", "369 examples")
    assert "±" not in said  # of one block nobody knows the error
    more = ["--on-workers", "16", "--price-per-vcpu-hour", "0.05"]
    assert main([*flags, "--sample", "8", *more]) == 0
    said = capsys.readouterr().out
    assert_names(said, "16 workers", "0.05", "±")
    assert main([*flags, *more]) == 2
    assert_names(capsys.readouterr().err, "--on-workers", "--sample")
    for wrong in (["--sample", "0"], ["--sample", "2", "--on-workers", "0"],
                  ["--sample", "2", "--price-per-vcpu-hour", "nan"]):  # fmt: skip
        assert main([*flags, *wrong]) == 2
        assert_names(capsys.readouterr().err, wrong[-2])
