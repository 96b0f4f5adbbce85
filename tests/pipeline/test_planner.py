"""The plan: one and the same wherever it is made, and that of a list of all windows."""

import json
import shutil
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from threading import Barrier

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_pipeline.dataset.job import Job
from beam_pipeline.errors import IncompleteRun
from beam_pipeline.inputs import listing
from beam_pipeline.inputs.listing import resolved
from beam_pipeline.pipeline import planner
from beam_pipeline.pipeline.planner import (
    ClipPages,
    make_plan,
    planned_rejects,
    planned_work,
    publish,
    read_plan,
)
from beam_pipeline.planning import shards
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.run.local import phase_folder, plan_phase
from beam_pipeline.storage import files, pages
from beam_pipeline.storage.pages import Pages, write_page
from tests.raising import raises

SPLITS = {"train": 0.5, "eval": 0.5}


def a_job(folder, inputs, recipe):
    return Job(tuple(inputs), "unused", str(folder / "work"), recipe)


def told(folder):
    """A published plan as text, which shows types and every field."""
    plan = read_plan(folder)
    return {
        "summary": repr(plan.summary),
        "work": list(map(repr, planned_work(0, folder))),
        "rejects": sorted(map(repr, planned_rejects(plan, folder))),
        "manifest": "".join(map(repr, Pages(folder, plan.manifest))),
    }


def plan_here(job):
    folder = job.plan_folder()
    plan_phase(job, folder)
    return told(folder)


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


def set_limits(patch, limit):
    """Lets no more than so many rows, clips, values or bytes wait in memory."""
    patch.setattr(listing, "ROWS_PER_BLOCK", limit)
    patch.setattr(planner, "CLIPS_IN_PAGE", limit)
    patch.setattr(shards, "CLIPS_HELD", limit)
    patch.setattr(pages, "PAGE_BYTES", 100 * limit)


@settings(
    max_examples=25, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    lengths=st.lists(st.integers(90, 700), min_size=1, max_size=12),
    every=st.integers(1, 3),
    # A single group may leave train empty, and copies need train.
    kind=st.sampled_from(sorted(set(KINDS) - {"copies and an empty split"})),
    limit=st.integers(1, 13),
    random=st.randoms(use_true_random=False),
)
def test_the_size_number_and_order_of_pages_do_not_matter(
    tmp_path, lengths, every, kind, limit, random
):
    options = {"win_len": 100, "elements_per_file": 4, "label_from": "kind"}
    recipe = Recipe(**{**options, "columns": "none", **KINDS[kind]})
    rows = rows_of(lengths, every)
    rows += [*rows[::2], {**rows[0], "who": 9, "channel": 0}]  # which are rejected
    shutil.rmtree(tmp_path, ignore_errors=True)
    tmp_path.mkdir()
    with resolved(write_table(tmp_path, rows), recipe) as inputs:
        wanted = plan_here(a_job(tmp_path / "a", inputs, recipe))
        job = a_job(tmp_path / "b", inputs, recipe)
        folder = job.plan_folder()
        with pytest.MonkeyPatch.context() as patch:
            set_limits(patch, limit)
            listed, made = job.listing(), []
            blocks = list(listed.blocks())
            random.shuffle(blocks)
            with closing(ClipPages(job, folder)) as clips:
                for rows in blocks:
                    clips.add(rows)
                    if random.random() < 0.5 or clips.is_full():
                        made += clips.flush()
                made += clips.flush()
            random.shuffle(made)
            make_plan(made, listed.summary(), job, folder)
            assert told(folder) == wanted


def probe_all(job, folder):
    listed = job.listing()
    with closing(ClipPages(job, folder)) as clips:
        for rows in listed.blocks():
            clips.add(rows)
        return list(clips.flush()), listed.summary()


@pytest.fixture
def job(tmp_path):
    recipe = Recipe(win_len=100, label_from="kind", columns="none", splits=SPLITS)
    source = write_table(tmp_path, rows_of(LENGTHS))
    with resolved(source, recipe) as inputs:
        yield a_job(tmp_path, inputs, recipe)


def test_a_step_that_runs_twice_writes_the_same_page(job):
    folder = job.plan_folder()
    (once, _), (twice, _) = (probe_all(job, folder) for _ in range(2))
    assert once == twice
    assert len(list(Path(folder, "pages").iterdir())) == 1


def test_pages_that_no_step_names_do_not_count(job):
    """Those of a bundle that failed after it had written."""
    folder = job.plan_folder()
    found, summary = probe_all(job, folder)
    pages.write_page((("a clip",), ()), folder)
    make_plan(found, summary, job, folder)
    made = told(folder)
    Path(folder, "plan").unlink()
    make_plan(found, summary, job, folder)
    assert told(folder) == made


def test_of_two_planners_the_first_plan_counts(job):
    folder = job.plan_folder()
    found, summary = probe_all(job, folder)
    first = make_plan(found, summary, job, folder)
    published = Path(folder, "plan").read_bytes()
    # Another try, of other inputs: it begins after the first one ended ...
    assert make_plan((), summary, job, folder) == first
    # ... or before.
    publish(planner._plan((), summary, job, folder), folder)
    assert Path(folder, "plan").read_bytes() == published


def test_one_of_many_planners_publishes(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        for turn in range(20):
            path = str(tmp_path / f"plan {turn}")
            together = partial(_create, path, Barrier(8))
            (winner,) = filter(None, pool.map(together, range(1, 9)))
            assert Path(path).read_bytes() == bytes([winner]) * 1000
    assert len(list(tmp_path.iterdir())) == 20  # and no drafts


def _create(path, barrier, number):
    barrier.wait()
    return number if files.create(path, bytes([number]) * 1000) else None


@pytest.mark.parametrize("how", ["deleted", "another run"])
def test_a_run_notices_that_its_files_were_deleted(tmp_path, how):
    work = tmp_path / "work"
    job = Job((), "unused", str(work), Recipe(win_len=100))
    with phase_folder(job) as folder:
        pages = Pages(folder, [write_page("what a writer has written", folder)])
        assert len(list(pages)) == 1
        if how == "deleted":
            shutil.rmtree(work)
        else:
            with phase_folder(job) as other:
                write_page("what another run has written", other)
        for read in (lambda: list(pages), lambda: read_plan(folder)):
            with raises(IncompleteRun, naming=str(work)):
                read()


def test_unfinished_shards_of_an_interrupted_run_give_their_room_back(tmp_path):
    job = Job((), "unused", str(tmp_path / "work"), Recipe(win_len=9))
    parts = Path(job.work_folder, "drafts")
    parts.mkdir(parents=True)
    drafts = "a-0.7.tfrecord.gz", "a-0.7.tfrecord.gz.planned", "a-0.7.tfrecord"
    for name in (*drafts, "room-made"):
        (parts / name).touch()
    with phase_folder(job):
        assert [path.name for path in parts.iterdir()] == ["room-made"]
