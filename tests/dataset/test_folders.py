"""What a work folder tells about its run, and how errors come back from an engine."""

import os
import pty
import threading
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import apache_beam as beam
import numpy as np
import pytest
import soundfile
from apache_beam.runners.runner import PipelineResult, PipelineRunner, PipelineState

from beam_pipeline import Recipe, record
from beam_pipeline.cli.main import main
from beam_pipeline.dataset.folders import read_run_error, receipt_path
from beam_pipeline.dataset.job import Job
from beam_pipeline.dataset.progress import (
    Reporter,
    RunProgress,
    Totals,
    make_bar,
    read_progress,
    write_totals,
)
from beam_pipeline.errors import IncompleteRun, TooManyRejected, WorkerDied
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.pipeline.finish import finish_job
from beam_pipeline.pipeline.graph import build_pipeline
from beam_pipeline.planning.shards import ShardLayout
from beam_pipeline.process import new_state
from beam_pipeline.run import local
from beam_pipeline.storage.claim import UNCLAIMED
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_corpus

ENGINE = ["--runner=FnApiRunner"]


class CancelledResult(PipelineResult):
    def wait_until_finish(self, duration=None):
        return self.state


class CancellingRunner(PipelineRunner):
    """An engine on which somebody cancels every job."""

    def run_pipeline(self, pipeline, options):
        return CancelledResult(PipelineState.CANCELLED)


def claimed(folder):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "job.json").write_text("{}")
    return str(folder)


@pytest.mark.parametrize(
    ("done", "examples", "seconds"),
    [([], 0, 0.0), ([0], 4, 1.625), ([0, 2], 6, 2.4375)],
)
def test_finished_shards_are_counted(tmp_path, done, examples, seconds):
    work = claimed(tmp_path)
    assert read_progress(work) == RunProgress()
    train = ShardLayout("train", 10, 3, 4)
    layouts = {"train": train, "test": ShardLayout("test", 6, 1, None)}
    seconds_of = {"train": 5.0, "test": 1.5}.get
    write_totals(SimpleNamespace(layouts=layouts, seconds=seconds_of), work, UNCLAIMED)
    paths = [Path(receipt_path(train.shard(k).name, work)) for k in done]
    other = tmp_path / "receipts" / "train.train-00000-of-00099.json"
    for path in (other, *paths):
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
    assert read_progress(work) == RunProgress(
        Totals(16, 6.5), examples, seconds, 4, len(done)
    )


@pytest.fixture
def places(tmp_path):
    """Sounds, and where their data set will be."""
    write_corpus(tmp_path / "in", clips=1)
    return tmp_path / "in", tmp_path / "out"


@pytest.fixture
def with_bad(places):
    """The same, with a file that is no sound."""
    (places[0] / "cat" / "bad.wav").write_bytes(b"RIFF and no more")
    return places


def test_status_follows_a_run_to_its_end(places, cli):
    out = str(places[1])
    cli("status", out, status=2)
    die = {"num_shards": 4, "workers": 2, "features": {"x": "tests.sounds.die"}}
    with pytest.raises(WorkerDied):
        record(*places, win_len=500, **die)
    assert_names(cli("status", out).out, "0", "4", "15")
    record(*places, win_len=500, overwrite=True)
    assert "complete" in cli("status", out).out
    assert "complete" in cli("status", "--watch", f"{out}/_work").out


def test_a_shard_that_lost_windows_is_not_done_when_the_run_continues(
    places, monkeypatch
):
    """Ctrl-C ends the second try before it writes."""
    soundfile.write(places[0] / "owl" / "loud.wav", np.full(2000, 0.95), RATE)
    options = {"num_shards": 4, "features": {"x": "tests.sounds.fail_on_loud"}}
    with pytest.raises(TooManyRejected):
        record(*places, win_len=500, **options)
    work = str(places[1] / "_work")
    assert read_progress(work).shards_done == 4
    monkeypatch.setattr(local, "write_here", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        record(*places, win_len=500, **options)
    assert 0 < read_progress(work).shards_done < 4


def test_too_many_rejects_have_one_exit_status_on_every_engine(with_bad):
    sounds, out = with_bad
    flags = ["--input", str(sounds), "--output", str(out), "--win-len", "500"]
    dashes = ["--", *ENGINE]
    assert main(["record", *flags, *dashes]) == 3
    assert not (out / "metadata.json").exists()
    assert main(["status", str(out)]) == 3
    assert [*(out / "_work" / "receipts").iterdir()]
    assert main(["record", *flags, "--max-rejected", "1", *dashes]) == 0
    assert main(["status", str(out)]) == 0


def test_a_cancelled_job_is_not_taken_for_a_finished_one_nor_for_the_one_before(
    with_bad,
):
    with pytest.raises(TooManyRejected):
        record(*with_bad, win_len=500)
    assert read_run_error(str(with_bad[1] / "_work")) is not None
    cancelling = ["--runner=tests.dataset.test_folders.CancellingRunner"]
    with raises(IncompleteRun, naming="CANCELLED"):
        record(*with_bad, win_len=500, beam_args=cancelling)


def test_counters_say_what_the_metadata_say(with_bad):
    (with_bad[0] / "notes.txt").write_text("not audio")
    counts = {}
    options = {"win_len": 500, "num_shards": 3, "max_rejected": 1}
    metadata = record(*with_bad, beam_args=ENGINE, counted=counts.update, **options)
    split = metadata.splits["records"]
    assert counts == {
        "audio_microseconds": round(1e6 * split.seconds),
        "bytes": sum(shard.bytes for shard in split.shards),
        "clips": split.clips,
        "clips_listed": metadata.clips,
        "files_ignored": metadata.ignored_files,
        "rejected_UnreadableAudio": 1,
        "shards": 3,
        "windows": split.examples,
    }


def test_the_submitter_sees_the_progress_of_an_engine(places, tmp_path, monkeypatch):
    monkeypatch.setattr("beam_pipeline.dataset.progress.WATCH_S", 0.001)
    seen, told = tmp_path / "seen", []

    def finish_when_seen(*args):
        """The job could end before the submitter looks at it."""
        deadline = time.monotonic() + 60
        while not seen.exists() and time.monotonic() < deadline:
            time.sleep(0.01)
        return finish_job(*args)

    def watch(totals):
        told.append(("totals", totals.examples))
        return update

    def update(examples, seconds):
        told.append((examples, seconds))
        seen.touch()

    monkeypatch.setattr("beam_pipeline.pipeline.graph.finish_job", finish_when_seen)
    options = {"win_len": 500, "num_shards": 20, "beam_args": ENGINE}
    split = record(*places, watch=watch, **options).splits["records"]
    assert told[0] == ("totals", split.examples)
    assert told[1:] == sorted(told[1:])
    assert told[-1] == (split.examples, split.seconds)


def test_the_whole_job_is_one_pipeline_for_an_engine(places, tmp_path):
    inputs = tuple(resolve_inputs([str(tmp_path / "in")]))
    job = Job(inputs, str(tmp_path / "o/"), str(tmp_path / "w"), Recipe(win_len=500))
    pipeline = beam.Pipeline()
    build_pipeline(pipeline, job)
    shuffles = str(pipeline.to_runner_api()).count("beam:transform:group_by_key:v1")
    # Of rows to those that probe, and of the places of tasks to those that write.
    assert shuffles == 2


# What a watcher sees of a run


TOTALS = Totals(6, 3.0)


def test_progress_never_goes_back():
    """A run deletes its receipts before it ends."""
    looks = iter([(0, 0.0), (4, 2.0), (2, 1.0), (6, 3.0)])
    seen, over = [], threading.Event()

    def read(work):
        look = next(looks, None)
        if look is None:
            over.set()
            raise FileNotFoundError(work)
        return RunProgress(TOTALS, *look)

    def watch(totals):
        seen.append(totals)
        return lambda *done: seen.append(done)

    reporter = Reporter(watch, partial(read, "work"))
    with reporter.looking(0.001):
        assert over.wait(30)
    reporter.finish()
    assert seen == [TOTALS, (0, 0.0), (4, 2.0), (4, 2.0), (6, 3.0), (6, 3.0)]


def test_writers_are_summed_and_reported_at_the_end():
    seen = []
    states = [new_state(), new_state()]
    for state, examples in zip(states, (2, 4), strict=True):
        state.examples, state.seconds = examples, examples / 2
    reporter = Reporter.of_workers(
        lambda totals: lambda *done: seen.append(done), TOTALS, states
    )
    reporter.look()
    states[1].clear()  # another process takes its place
    reporter.look()
    assert seen == [(6, 3.0), (6, 3.0)]


def test_a_bar_is_seen_in_a_terminal_of_no_columns():
    ours, theirs = pty.openpty()
    assert os.get_terminal_size(theirs).columns == 0
    with open(theirs, "w") as terminal:
        bar = make_bar(total=4, file=terminal)
        bar.update(4)
        bar.close()
        assert b"0/4" in os.read(ours, 10_000)
    os.close(ours)
