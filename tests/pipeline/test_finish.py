"""finish.py: what was written against what was planned, and the counts of both."""

import json
import shutil
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline import record
from beam_pipeline.dataset.folders import receipt_path
from beam_pipeline.dataset.tables import NAMED_IN_ERRORS, ManifestPart, check_rejects
from beam_pipeline.errors import IncompleteRun, OptionError, TooManyRejected
from beam_pipeline.inputs.columns import MANIFEST_FIELDS
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.inputs.sources import Input
from beam_pipeline.pipeline.finish import (
    check_clips,
    check_complete,
    finish_job,
    merge_observed,
)
from beam_pipeline.planning.clips import Reject
from beam_pipeline.planning.shards import PlanSummary, ShardInfo, ShardLayout, TallyKey
from beam_pipeline.recipe.recipe import Recipe, allowed_rejects
from beam_pipeline.run import local
from beam_pipeline.write.shard import Observations
from beam_pipeline.write.statistics import DataStatistics
from tests.data_sets import contents
from tests.raising import assert_names, names, raises
from tests.sounds import write_samples

RATE = 8000
RECIPE = Recipe(win_len=100, elements_per_file=4)
FOLDER = Input("folder", "/sounds", "/sounds")


# allowed_rejects


@pytest.mark.parametrize(("text", "clips", "number"), [
    ("0", 100, 0), (" 5 ", 100, 5), ("500", 100, 500), ("0%", 100, 0), ("2.5%", 39, 0),
    ("2.5%", 40, 1), ("2.5 %", 80, 2), ("100%", 0, 0), ("100%", 7, 7), ("29%", 100, 29),
    ("0.1%", 999, 0), ("0.1%", 1000, 1),
])  # fmt: skip
def test_allowed_rejects_are_a_number_or_a_share_rounded_down(text, clips, number):
    assert allowed_rejects(text, clips) == number


@pytest.mark.parametrize("text", [
    "", "%", "lots", "1.5", "1e3", "5%%", "nan%", "-1", "100.1%", "inf", "-1%", "inf%",
])  # fmt: skip
@pytest.mark.parametrize("clips", [0, 100])  # before and after the clips are known
def test_what_is_no_number_of_rejects_is_refused(text, clips):
    with raises(OptionError, "max_rejected", text):
        allowed_rejects(text, clips)


# A plan and what was written of it


def summary_of(clips=20, **sizes):
    layouts = {name: ShardLayout.of(name, n, 1000, RECIPE) for name, n in sizes.items()}
    return PlanSummary(ListingSummary(clips, 3), None, layouts)


def infos_of(summary, short=None):
    """Every shard as planned, but for those that are short of some examples."""
    return [
        ShardInfo(shard, f"{shard.name}.tfrecord.gz",
                  shard.examples - (short or {}).get(shard.name, 0), 100, "00")
        for layout in summary.layouts.values()
        for shard in map(layout.shard, range(layout.shards))
    ]  # fmt: skip


def late(row, shard, windows):
    """Windows that the plan had counted, and that could not be made."""
    return Reject(
        row, f"a/{row}.wav", "decode", "UnreadableAudio", "broke", "a", shard, "train",
        windows, RATE,
    )  # fmt: skip


def early(row):
    return Reject(row, f"a/{row}.wav", "probe", "EmptyAudio", "holds no frames")


def manifest_of(summary, rejects=()):
    """Parts that hold all clips and windows, one for each split."""
    clips = summary.listing.clips - sum(reject.shard is None for reject in rejects)
    parts = []
    for layout in summary.layouts.values():
        rows = ((None,) * len(MANIFEST_FIELDS),) * clips
        parts.append(ManifestPart(layout.total, rows))
        clips = 0
    return parts


def write_receipts(infos, work):
    """Receipts in the work folder, each with observations of its examples."""
    for info in infos:
        key = info.shard.split, "a", RATE
        seen = Observations(DataStatistics({}), Counter({key: info.examples})).state()
        receipt = {**info._asdict(), "shard": info.shard._asdict(), "seen": seen}
        path = Path(receipt_path(info.shard.name, str(work), info.is_whole()))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(receipt))


def name_of(summary, split, k):
    return summary.layouts[split].shard(k).name


# What is compared


@pytest.mark.parametrize(
    ("short", "lost"), [(1, 0), (0, 1), (2, 1), (1, 2), (4, 0), (-1, 0)]
)
def test_examples_and_lost_windows_must_add_up(short, lost):
    summary = summary_of(train=10)
    name = name_of(summary, "train", 1)
    rejects = [late(0, name, lost)] if lost else []
    with raises(IncompleteRun, naming=[name, 4 - short, lost, 4]):
        check_complete(summary, infos_of(summary, {name: short}), rejects)


@pytest.mark.parametrize("times", [0, 2])
@pytest.mark.parametrize("wrong", [1, NAMED_IN_ERRORS, NAMED_IN_ERRORS + 1, 25])
def test_the_first_missing_or_repeated_shards_are_named(times, wrong):
    infos = infos_of(summary_of(train=4 * 30))
    found = [*infos[:wrong] * times, *infos[wrong:]]
    with raises(IncompleteRun, naming=[infos[0].shard.name, times]) as raised:
        check_complete(summary_of(train=4 * 30), found, [])
    text = str(raised.value)
    assert text.count(" times") == min(wrong, NAMED_IN_ERRORS)
    assert all(info.shard.name not in text for info in infos[wrong:])
    more = wrong - NAMED_IN_ERRORS
    assert (f"and {more} more shards" in text) == (more > 0)


@pytest.mark.parametrize("rejects", [[], [early(3)]])
def test_lost_rows_of_the_manifest_and_lost_rejects_are_noticed(rejects):
    summary = summary_of(train=10, eval=4)
    parts = manifest_of(summary, rejects)
    clips = 20 - len(rejects)
    for some, found, wanted in [
        ([], len(rejects), 20),
        (parts[1:], len(rejects), 20),
        (parts[:1], 10, 14),
        ([*parts, parts[0]], 20 + clips, 20),
        ([*parts, parts[1]], 18, 14),
    ]:
        with raises(IncompleteRun, naming=[found, wanted, "a/work"]):
            check_clips(summary, rejects, some, "a/work")
    if rejects:
        with raises(IncompleteRun, naming=[19, 20]):
            check_clips(summary, [], parts, "work")


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "11"},
        {"seen": None},
        {"shard": {"name": "x", "split": "train", "number": 1, "examples": 4}},
        None,
    ],
)
def test_observations_come_from_the_receipts_of_these_very_shards(tmp_path, change):
    infos = infos_of(summary_of(train=10, eval=4))
    write_receipts(infos, tmp_path)
    observed = merge_observed(infos, str(tmp_path))
    assert {split: each.examples for split, each in observed.items()} == {
        split: {TallyKey(split, "a", RATE): n}
        for split, n in (("train", 10), ("eval", 4))
    }
    path = Path(receipt_path(infos[1].shard.name, str(tmp_path)))
    if change is None:
        path.unlink()
    else:
        path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with raises(IncompleteRun, naming=[infos[1].shard.name, str(tmp_path)]):
        merge_observed(infos, str(tmp_path))


@pytest.mark.parametrize(("rows", "allowed", "fails"), [
    ([], "0", False), ([1], "0", True), ([1, 1, 1], "1", False), ([1, 2], "1", True),
    ([1, 2], "10%", False), ([1, 2, 3], "10%", True), (list(range(20)), "100%", False),
    (list(range(9))[::-1], "0", True), (list(range(NAMED_IN_ERRORS)), "0", True),
])  # fmt: skip
def test_rejected_clips_are_counted_once_each(rows, allowed, fails):
    rejects = [late(row, f"shard {i}", 1) for i, row in enumerate(rows)]
    if not fails:
        check_rejects(ListingSummary(20, 0), rejects, allowed)
        return
    with pytest.raises(TooManyRejected) as raised:
        check_rejects(ListingSummary(20, 0), rejects, allowed)
    text, count = str(raised.value), len(set(rows))
    assert_names(text, count, 20, "--max-rejected", allowed, f"`max_rejected` {count}")
    assert raised.value.exit_status == 3
    lines = text.splitlines()
    named = [line.split(":")[0].strip() for line in lines if "a/" in line]
    assert named == [f"a/{row}.wav" for row in sorted(rows)[:NAMED_IN_ERRORS]]
    assert "broke" in text
    more = count - NAMED_IN_ERRORS
    assert any(names(line, more) for line in lines[1 + len(named) :]) == (more > 0)


# Whole runs


def write_clip(path, windows, loud=(), rate=RATE):
    """Writes a clip of windows of 500 frames, of which some are loud."""
    samples = np.full((windows, 500), 0.1)
    samples[list(loud)] = 0.95
    write_samples(path, samples.ravel(), rate)


def test_counts_with_windows_lost_in_several_shards(tmp_path):
    sounds, out = tmp_path / "in", tmp_path / "out"
    write_clip(sounds / "train/a/1.wav", 6, loud=[1, 4])
    write_clip(sounds / "train/b/2.wav", 5, loud=[4])
    write_clip(sounds / "train/b/3.wav", 3, rate=2 * RATE)
    write_clip(sounds / "eval/b/4.wav", 4, rate=2 * RATE)
    (sounds / "eval/b/5.wav").write_text("no sound")
    inputs = {split: sounds / split for split in ("train", "eval")}
    metadata = record(
        inputs, out, win_len=500, elements_per_file=4, order="listed",
        features={"x": "tests.sounds.fail_on_loud"}, max_rejected=3,
    )  # fmt: skip
    assert (metadata.clips, metadata.rejected) == (5, 3)
    assert metadata.classes == ("a", "b")
    train, evaluation = metadata.splits["train"], metadata.splits["eval"]
    # The windows of a clip that share a shard are lost together.
    assert [(s.file, s.examples) for s in train.shards] == [
        (f"train/train-0000{k}-of-00004.tfrecord.gz", n)
        for k, n in enumerate((0, 2, 1, 2))
    ]
    assert (train.examples, train.clips) == (5, 1)
    assert train.examples_per_class == {"a": 0, "b": 5}
    assert train.seconds == 2 * 500 / RATE + 3 * 500 / (2 * RATE)
    assert (evaluation.examples, evaluation.clips) == (4, 1)
    assert evaluation.seconds == 4 * 500 / (2 * RATE)
    assert evaluation.examples_per_class == {"a": 0, "b": 4}


def test_the_end_may_come_twice(tmp_path, monkeypatch):
    write_clip(tmp_path / "in/a/1.wav", 3)
    out = tmp_path / "out"

    def finish_twice(folder, infos, rejects, job):
        infos = list(infos)
        path = finish_job(folder, infos, rejects, job)
        shutil.rmtree(folder)
        before = contents(out)
        # A runner may do it again, when the plan is gone; but not with other shards.
        assert finish_job(folder, infos, (), job) == path == f"{out}/metadata.json"
        with raises(IncompleteRun, naming="deleted"):
            finish_job(folder, (), (), job)
        assert contents(out) == before

    monkeypatch.setattr(local, "finish_job", finish_twice)
    record(tmp_path / "in", out, win_len=500)
    assert {path.name for path in out.iterdir()} == {
        "manifest.parquet", "members.index", "metadata.json", "rejected.jsonl",
        "records-00000-of-00001.tfrecord.gz", "schema.pbtxt", "windows.parquet",
    }  # fmt: skip
