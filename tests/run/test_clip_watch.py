"""workers.py: what a watch decides, with workers that only pretend."""

import os
from collections import namedtuple

import pytest

from beam_pipeline.dataset.job import Job
from beam_pipeline.errors import OptionError, WorkerDied
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.planning.clips import read_poison_clips
from beam_pipeline.process import Marks, new_state
from beam_pipeline.recipe.recipe import Recipe, RunOptions
from beam_pipeline.run import workers
from beam_pipeline.run.workers import TIME_LIMIT_S, ClipWatch
from tests.raising import assert_names, raises
from tests.sounds import write_sound

CLIP = namedtuple("Row", "row source filepath")(7, 0, "a.wav")


class Worker:
    """This process, which cannot be killed."""

    pid = os.getpid()
    killed = 0

    def __init__(self, exit_text="SIGSEGV"):
        self._exit_text = exit_text

    def has_ended(self):
        return False

    def kill(self):
        self.killed += 1

    def exit_text(self):
        return self._exit_text

    def exit_error(self):
        return f"it ended with {self._exit_text}"


@pytest.fixture
def watched(tmp_path):
    """Returns what makes a watch with a time limit, and the work folder.

    The only worker is decoding a clip.
    """
    write_sound(tmp_path / "in" / "a.wav", 10)
    inputs = tuple(resolve_inputs([str(tmp_path / "in")]))
    job = Job(inputs, "", str(tmp_path / "work"), Recipe(win_len=1))
    state = new_state()

    def make(limit_s=TIME_LIMIT_S):
        return ClipWatch(job, [state], limit_s)

    with Marks.kept_in(state):
        Marks.mark(CLIP, "decode")
        yield make, job.work_folder


def let_pass(watch, seconds):
    """Makes a watch look again after some time."""
    for clock in watch._clocks.values():
        clock._looked -= seconds


def test_time_in_which_nobody_looked_does_not_count(watched):
    watch, worker = watched[0](5), Worker()
    watch.look({0: worker})
    let_pass(watch, 3600)  # a suspended machine
    watch.look({0: worker})
    assert not worker.killed
    for _ in range(5):
        let_pass(watch, 1)
        watch.look({0: worker})
    assert worker.killed == 1


def test_progress_starts_the_clock_again(watched):
    watch, worker = watched[0](3), Worker()
    for _ in range(10):
        let_pass(watch, 1)
        watch.look({0: worker})
        Marks.progress()
    assert not worker.killed


def stall_once(watch, goes_on=False):
    """Lets a worker stall until the watch kills it."""
    worker = Worker("SIGKILL")
    for _ in range(2):
        watch.look({0: worker})
        let_pass(watch, 1)
    assert worker.killed == 1
    if goes_on:
        Marks.progress()
    watch.after_exit(0, worker, "again")
    watch.begin(0)
    Marks.mark(CLIP._replace(), "decode")


def test_the_second_stall_at_a_clip_rejects_it(watched):
    make, work = watched
    watch = make(0.5)
    for goes_on, rejected in ((False, False), (True, False), (False, True)):
        stall_once(watch, goes_on)
        found = read_poison_clips(work).recorded(CLIP)
        assert (found is not None) == rejected
    assert (found.error, found.limit_s) == ("ClipTimeout", 0.5)
    assert_names(found.reason, "decode", "0.5 s", "twice")


def test_the_second_exit_at_a_clip_rejects_it(watched):
    make, work = watched
    watch = make()
    for rejected in (False, True):
        watch.after_exit(0, Worker(), "again")
        found = read_poison_clips(work).recorded(CLIP)
        assert (found is not None) == rejected
    assert (found.error, found.limit_s) == ("ClipCrash", 0)
    assert_names(found.reason, "decode", "SIGSEGV", "twice")


@pytest.mark.parametrize("stalls", [True, False])
def test_an_exit_at_several_clips_is_tried_again_with_one_thread(watched, stalls):
    make, work = watched
    watch = make(0.5)
    assert not Marks.one_thread()
    for _ in range(3):
        with Marks.of_several(CLIP, "probe"):
            Marks.mark(CLIP._replace(row=8, filepath="b.wav"), "probe")
            if stalls:
                stall_once(watch)
            else:
                watch.after_exit(0, Worker(), "again")
    watch.begin(0)
    assert Marks.one_thread()
    assert read_poison_clips(work).probed(CLIP) is None


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_a_signal_from_outside_is_no_fault_of_a_clip(watched, signal):
    with raises(WorkerDied, naming=[signal, "again"]):
        watched[0]().after_exit(0, Worker(signal), "again")


def test_an_exit_at_no_clip_ends_the_run(watched):
    Marks.unmark()
    with raises(WorkerDied, naming=["SIGSEGV", "again"]):
        watched[0]().after_exit(0, Worker(), "again")


def test_too_many_exits_end_the_run(watched, monkeypatch):
    monkeypatch.setattr(workers, "MOST_EXITS", 3)
    watch = watched[0]()
    for row in range(3):
        Marks.mark(CLIP._replace(row=row, filepath=f"{row}.wav"), "decode")
        watch.after_exit(0, Worker(), "again")
    with raises(WorkerDied, naming=[3, "2.wav", "decode", "again"]):
        watch.after_exit(0, Worker(), "again")


@pytest.mark.parametrize("value", [0, -1.0, float("nan"), "1", True])
def test_time_limits_that_are_none(value):
    with raises(OptionError, "time_limit"):
        RunOptions(time_limit=value)
