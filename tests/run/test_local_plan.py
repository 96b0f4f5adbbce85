"""local_plan.py: the same plan as that of the Beam graph, to the last byte."""

import json
import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import IncompleteRun, RecipeError
from beam_pipeline.inputs import listing
from beam_pipeline.inputs.in_memory import resolved
from beam_pipeline.pipeline import graph
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan import group_counts, order
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.run import local_plan
from beam_pipeline.run.limits import Limits
from beam_pipeline.run.local_plan import plan_local, plan_phase
from beam_pipeline.run.phases import in_memory_pipeline, store
from beam_pipeline.run.stored import (
    ElementFile,
    check_ours,
    phase_folder,
    stored,
    stored_work,
)
from beam_pipeline.storage import spilled
from tests.raising import raises
from tests.sounds import write_corpus

pytestmark = pytest.mark.runs

SPLITS = {"train": 0.5, "eval": 0.5}


def plan_by_beam(job):
    """The plan of the graph, in Beam's in-memory runner."""
    with phase_folder(job) as folder:
        with in_memory_pipeline() as pipeline:
            found = graph.find_clips(pipeline, job)
            planned = graph.plan_shards(found, graph.place_clips(found, job), job)
            for name, collection in planned._asdict().items():
                store(collection, folder, name)
        (summary,) = stored(folder, "summary")
        return summary, in_order(folder, stored(folder, "work"))


def plan_here(job):
    with phase_folder(job) as folder:
        summary = plan_phase(job, folder)
        names = {path.name for path in Path(folder).iterdir()}
        assert names == {"rejects", "manifest", "work.db"}
        return summary, in_order(folder, stored_work(0, folder, 1))


def test_unfinished_shards_of_an_interrupted_run_give_their_room_back(tmp_path):
    job = Job((), "unused", str(tmp_path / "work"), Recipe(win_len=9))
    parts = Path(job.work_folder, "parts")
    parts.mkdir(parents=True)
    drafts = "a-0.7.tfrecord.gz", "a-0.7.tfrecord.gz.planned", "a-0.7.tfrecord"
    for name in (*drafts, "room-made"):
        (parts / name).touch()
    with phase_folder(job):
        assert [path.name for path in parts.iterdir()] == ["room-made"]


def in_order(folder, work):
    """What the other phases get, as text, which shows types and every field."""
    return {
        "work": sorted(map(repr, work)),
        "rejects": sorted(map(repr, stored(folder, "rejects"))),
        "manifest": sorted(map(repr, stored(folder, "manifest"))),
    }


def compare(folder, source, **options):
    """Compares both plans of a job; returns the plan."""
    recipe = Recipe(**{"win_len": 100, "elements_per_file": 4, **options})
    with resolved(source, recipe) as inputs:
        jobs = [
            Job(tuple(inputs), "unused", str(folder / f"work-{name}"), recipe)
            for name in ("beam", "here", "only")
        ]
        wanted, found = plan_by_beam(jobs[0]), plan_here(jobs[1])
        assert repr(found[0]) == repr(wanted[0])  # the order of the splits, too
        assert found[0] == wanted[0]
        assert found[1] == wanted[1]
        summary, rejects = plan_local(jobs[2], Limits())
    assert summary == wanted[0]
    assert sorted(map(repr, rejects)) == wanted[1]["rejects"]
    assert [r.row for r in rejects] == sorted(r.row for r in rejects)
    totals = [(Path(job.work_folder) / "plan.json").read_bytes() for job in jobs]
    assert totals == totals[:1] * 3
    return found


def rows_of(lengths, every=1):
    """Rows of a table that gives the length of clips; some of files with two clips."""
    return [
        {
            "path": f"{i // every}.wav",
            "offset_s": 0.0125 * (i % every),
            "kind": f"k{i % 3}",
            "who": i // every % 5,
            "frames": length,
            "sample_rate_hz": (8000, 16000)[i // every % 2],
        }
        for i, length in enumerate(lengths)
    ]


def write_table(folder, rows):
    path = folder / "table.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


LENGTHS = [200 + 37 * i % 700 for i in range(70)]
KINDS = {
    "no splits": {},
    "splits": {"splits": SPLITS},
    "groups": {"splits": SPLITS, "group_by": "who"},
    "stratified": {"splits": SPLITS, "stratify": True},
    "stratified groups": {"splits": SPLITS, "stratify": True, "group_by": "who"},
    "an empty split": {"splits": "a=1,b=1,c=1,d=1,e=1", "group_by": "who"},
    "copies and an empty split": {
        "splits": "train=1,b=1,c=1,d=1,e=1",
        "group_by": "who",
        "augment": "random_gain()",
        "copies": 2,
        "sample_rate": 8000,
    },
    "a column": {"split_column": "kind"},
    "listed": {"order": "listed", "splits": SPLITS},
    "mixed": {"order": "mixed", "splits": SPLITS, "elements_per_file": 20},
    "mixed after a filter": {"order": "mixed", "stream": "gain(gain_db=1)"},
    "cut off": {"num_elems": 17, "splits": SPLITS},
    "one shard": {"elements_per_file": None, "num_shards": 1},
    "more shards": {"elements_per_file": None, "num_shards": 9, "splits": SPLITS},
    "copies": {"augment": "random_gain()", "copies": 2, "sample_rate": 8000},
    "columns": {"columns": "who"},
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_plan_is_that_of_beam(tmp_path, kind):
    options = {"label_from": "kind", "columns": "none", **KINDS[kind]}
    source = write_table(tmp_path, rows_of(LENGTHS))
    _, plan = compare(tmp_path, source, **options)
    assert len(plan["work"]) >= 1
    assert plan["rejects"] == []


def set_limits(patch, limit):
    """Lets no more than so many rows, clips, files or sums wait in memory."""
    patch.setattr(listing, "ROWS_PER_BLOCK", limit)
    patch.setattr(order, "CLIPS_HELD", limit)
    patch.setattr(group_counts, "CLIPS_COUNTED", limit)
    patch.setattr(spilled, "ENTRIES_HELD", limit)
    patch.setattr(local_plan, "MERGED_AT_ONCE", max(2, limit))


@pytest.mark.parametrize("limit", [1, 9, 10])
def test_the_plan_is_that_of_beam_however_little_is_in_memory(
    tmp_path, monkeypatch, limit
):
    """Ten clips of five files, and one of each kind that is rejected."""
    set_limits(monkeypatch, limit)
    monkeypatch.setattr(order, "ROWS_PER_LISTED_BUCKET", limit)
    rows = rows_of([500] * 10, every=2)
    rows += [rows[3], {**rows[0], "path": "short.wav", "frames": 99}]
    rows += [{**rows[5], "who": 4, "offset_s": 0.02}, {**rows[6], "path": ""}]
    options = {"label_from": "kind", "columns": "none", "order": "listed"}
    _, plan = compare(
        tmp_path, write_table(tmp_path, rows), splits=SPLITS, group_by="who", **options
    )
    assert len(plan["rejects"]) == 4


@settings(
    max_examples=20, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    lengths=st.lists(st.integers(90, 700), min_size=1, max_size=12),
    every=st.integers(1, 3),
    # A single group may leave train empty, and copies need train.
    kind=st.sampled_from(sorted(set(KINDS) - {"copies and an empty split"})),
    limit=st.integers(1, 13),
)
def test_a_plan_is_the_same_however_little_is_in_memory(
    tmp_path, lengths, every, kind, limit
):
    options = {"win_len": 100, "elements_per_file": 4, "label_from": "kind"}
    recipe = Recipe(**{**options, "columns": "none", **KINDS[kind]})
    rows = rows_of(lengths, every)
    rows += [*rows[::2], {**rows[0], "who": 9, "channel": 0}]  # which are rejected
    with resolved(write_table(tmp_path, rows), recipe) as inputs:
        job = Job(tuple(inputs), "unused", str(tmp_path / "work"), recipe)
        wanted = plan_here(job)
        with pytest.MonkeyPatch.context() as patch:
            set_limits(patch, limit)
            assert plan_here(job) == wanted


@pytest.mark.parametrize("kind", ["splits", "stratified"])
def test_a_plan_without_clips(tmp_path, kind):
    source = write_table(tmp_path, rows_of([9, 9]))
    options = {"label_from": "kind", "columns": "none", **KINDS[kind]}
    summary, plan = compare(tmp_path, source, **options)
    assert summary.example_format is None
    assert (plan["work"], len(plan["rejects"])) == ([], 2)


@pytest.mark.parametrize("limit", [1, 9])
@pytest.mark.parametrize("by", ["beam", "here"])
def test_rates_are_counted_over_all_clips(tmp_path, monkeypatch, by, limit):
    """Also those of clips without a window, and rates that only such clips have."""
    set_limits(monkeypatch, limit)
    lengths = [(8000, 500), (16000, 500), (8000, 9), (8001, 9), (8001, 8)]
    rows = [
        {"path": f"{k}.wav", "frames": frames, "sample_rate_hz": rate}
        for k, (rate, frames) in enumerate(lengths)
    ]
    recipe = Recipe(win_seconds=0.01, label_from="none")
    with resolved(write_table(tmp_path, rows), recipe) as inputs:
        job = Job(tuple(inputs), "unused", str(tmp_path / "work"), recipe)
        facts = [
            "2 of 8000 Hz (for example 0.wav)",
            "2 of 8001 Hz (for example 3.wav)",
            "1 of 16000 Hz (for example 1.wav)",
            "3 of them are shorter than a window",
        ]
        with raises(RecipeError, "sample_rate", naming=facts):
            (plan_by_beam if by == "beam" else plan_here)(job)


def test_a_plan_of_files(tmp_path):
    write_corpus(tmp_path / "in")
    (tmp_path / "in" / "cat" / "bad.wav").write_text("no sound")
    (tmp_path / "in" / "notes.md").touch()
    summary, plan = compare(tmp_path, str(tmp_path / "in"))
    assert len(plan["rejects"]) == 1
    assert summary.listing.ignored == 1


def test_names_that_are_not_unique_in_a_table_of_events(tmp_path):
    """Only the last file shows that the first one's name is not unique."""
    write_corpus(tmp_path / "in", clips=2)
    names = sorted((tmp_path / "in").rglob("*.wav"))
    (tmp_path / "in" / "zebra").mkdir()
    (tmp_path / "in" / "zebra" / names[0].name).write_bytes(names[0].read_bytes())
    lines = [f"{path.name},0,0.1,call" for path in names]
    table = tmp_path / "events.csv"
    table.write_text("\n".join(["file,start,end,label", *lines, ""]))
    summary, plan = compare(tmp_path, str(tmp_path / "in"), events=str(table))
    assert len(plan["rejects"]) == 2
    assert list(summary.listing.alike) == [names[0].name]


def test_a_plan_that_fails_leaves_no_clips_behind(tmp_path):
    options = {"augment": "random_gain()", "copies": 1}  # for one sample rate only
    recipe = Recipe(win_len=100, label_from="none", columns="none", **options)
    with resolved(write_table(tmp_path, rows_of(LENGTHS)), recipe) as inputs:
        job = Job(tuple(inputs), "unused", str(tmp_path / "work"), recipe)
        with phase_folder(job) as folder, raises(RecipeError, naming="0.wav"):
            plan_phase(job, folder)
    assert (tmp_path / "work" / "verdict.json").exists()
    assert not list((tmp_path / "work").rglob("*.db"))


@pytest.mark.parametrize("how", ["deleted", "another run"])
def test_a_run_notices_that_its_files_were_deleted(tmp_path, how):
    work = tmp_path / "work"
    job = Job((), "unused", str(work), Recipe(win_len=100))
    with raises(IncompleteRun, naming=[str(work), "another machine"]):  # noqa: SIM117
        with phase_folder(job) as folder:
            check_ours(folder)
            if how == "deleted":
                shutil.rmtree(work)
            else:
                with phase_folder(job) as other:
                    check_ours(other)
            ElementFile(folder, "infos").close()
            next(stored(folder, "rejects"), None)
            raise KeyError("the error that the user would not understand")
