"""Clips that end or stall processes: who watches, what is noted, whom that rejects."""

import os
import signal
from collections import namedtuple

import pytest

from beam_pipeline.dataset.job import Job
from beam_pipeline.errors import ClipCrash, OptionError, WorkerDied
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.planning.clips import (
    Exits,
    PoisonClip,
    PoisonClips,
    count_exits,
    drop_changed,
    only_one_thread,
    read_poison_clips,
)
from beam_pipeline.process import Mark, Marks, new_state
from beam_pipeline.recipe.recipe import Recipe, RunOptions
from beam_pipeline.run import workers
from beam_pipeline.run.workers import TIME_LIMIT_S, ClipWatch
from beam_pipeline.storage.claim import UNCLAIMED
from tests.processes import run_python
from tests.raising import assert_names, raises
from tests.sounds import write_sound

Row = namedtuple("Row", "row source filepath")
CLIP = Row(7, 0, "a.wav")

# The watch of this machine, with workers that only pretend


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
        Marks.mark(CLIP, "probe")
        with Marks.working(threads=2):
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


# guard.py: what the process beside a worker notes when the worker ends.


WORKER = """
import os, signal, sys, time
from collections import namedtuple
from beam_pipeline.dataset.job import Job
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.process import Marks
from beam_pipeline.pipeline.engine_guard import Guard
from beam_pipeline.recipe.recipe import Recipe

sounds, work, harm = sys.argv[1:]
inputs = tuple(resolve_inputs([sounds]))
job = Job(inputs, "", work, Recipe(win_len=1), limit_s=0.5)
Guard.begin(job)
Guard.begin(job)  # once for a process
with Marks.working(threads=2 if harm == "abort in one of two threads" else 1):
    Marks.mark(namedtuple("Row", "row source filepath")(0, 0, "a.wav"), "decode")
    if harm.startswith("abort"):
        os.abort()
    if harm == "stall":
        time.sleep(600)
    if harm == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.parametrize(
    ("harm", "status", "exits", "facts"),
    [
        ("abort", -signal.SIGABRT, 2, ["ClipCrash", "SIGABRT"]),
        ("stall", -signal.SIGKILL, 2, ["ClipTimeout", "0.5 s"]),
        ("kill", -signal.SIGKILL, 0, []),
        ("nothing", 0, 0, []),
        ("abort in one of two threads", -signal.SIGABRT, 1, []),
    ],
)
def test_what_ends_a_worker_twice(tmp_path, harm, status, exits, facts):
    sounds, work = tmp_path / "in", tmp_path / "work"
    write_sound(sounds / "a.wav", 10)
    for _ in range(2):
        # The guard holds the worker's files until it has written its note.
        run_python("-c", WORKER, sounds, work, harm, status=status)
    assert count_exits(str(work)) == exits
    assert only_one_thread(str(work)) == ("threads" in harm)
    clips = read_poison_clips(str(work))
    assert len(clips) == (exits == 2)
    for clip in clips:
        assert (clip.filepath, clip.stage) == ("a.wav", "decode")
        assert_names(f"{clip.error}: {clip.reason}", *facts)


# Poison clips: whom they reject, and how they outlive a process.


def found(clips, row):
    return clips.probed(row) is not None, clips.recorded(row) is not None


def test_a_decoder_rejects_the_file_and_a_step_the_clip():
    clip, of_same_file = Row(1, 0, "a.wav"), Row(2, 0, "a.wav")
    others = [Row(1, 1, "a.wav"), Row(3, 0, "b.wav")]  # the first: of another input
    for stage, own, same in (
        ("probe", (True, False), (True, False)),
        ("decode", (False, True), (False, True)),
        ("select_and_augment", (False, True), (False, False)),
        ("transform", (False, True), (False, False)),
        ("encode", (False, True), (False, False)),
    ):
        poison = PoisonClip(1, 0, "a.wav", stage, "ClipCrash", "it ended the process")
        clips = PoisonClips([poison])
        assert found(clips, clip) == own
        assert found(clips, of_same_file) == same
        assert [found(clips, other) for other in others] == [(False, False)] * 2
    assert found(PoisonClips(), clip) == (False, False)


def test_poison_clips_outlive_a_process_until_their_file_changes(tmp_path):
    work = str(tmp_path / "work")
    assert found(read_poison_clips(work), Row(1, 0, "a.wav")) == (False, False)
    names = ("a.wav", "b.wav", "slow.wav", "slower.wav", "gone.wav")
    for name in names[:-1]:
        write_sound(tmp_path / "in" / name, 100)
    inputs = resolve_inputs([str(tmp_path / "in")])
    limits = {"slow.wav": 5.0, "slower.wav": 7.0}
    for row, name in enumerate(names):
        limit_s = limits.get(name)
        exits = Exits(inputs, work, UNCLAIMED, limit_s or 0.0)
        for _ in range(2):
            assert read_poison_clips(work).recorded(Row(row, 0, name)) is None
            mark = Mark(row, 0, name, "decode", "", 1)
            exits.note(mark, "SIGSEGV" if limit_s is None else None)
    assert count_exits(work) == 2 * len(names)
    assert len(list((tmp_path / "work" / "poison_clips").iterdir())) == len(names)
    os.utime(tmp_path / "in" / "b.wav")
    drop_changed(work, inputs, limit_s=7.0)
    left = read_poison_clips(work)
    rows = [Row(row, 0, name) for row, name in enumerate(names)]
    kept = [left.recorded(row) is not None for row in rows]
    assert kept == [True, False, False, True, True]
    error = left.recorded(rows[0]).to_error()
    assert isinstance(error, ClipCrash)
    assert error.path == "a.wav"
    mixed = Mark(9, 0, "a.wav", "transform", "", 1)
    for exit_text in (None, "SIGSEGV"):
        exits.note(mixed, exit_text)
    reason = read_poison_clips(work).recorded(Row(9, 0, "b.wav")).reason
    assert_names(reason, "SIGSEGV; before that,", "time limit")
    assert not only_one_thread(work)
    exits.want_one_thread()
    assert only_one_thread(work)
    assert (len(read_poison_clips(work)), count_exits(work)) == (4, 9)
