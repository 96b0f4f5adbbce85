"""guard.py: what it decides, with workers that only pretend."""

import logging
import os
import threading
from collections import namedtuple

import pytest

from beam_pipeline.dataset.suspect_files import read_suspects
from beam_pipeline.errors import WorkerDied
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.marks import Marks, new_states
from beam_pipeline.pipeline.job import Job
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.run import guard
from beam_pipeline.run.guard import Guard
from beam_pipeline.run.limits import Limits
from tests.raising import assert_names, raises
from tests.sounds import write_sound

CLIP = namedtuple("Row", "row source filepath")(7, 0, "a.wav")


class Worker:
    """This process, which cannot be killed."""

    pid = os.getpid()
    killed = 0

    def __init__(self, died_of="SIGSEGV"):
        self._died_of = died_of

    def has_ended(self):
        return False

    def kill(self):
        self.killed += 1

    def died_of(self):
        return self._died_of

    def obituary(self):
        return f"it died of {self._died_of}"


@pytest.fixture
def watched(tmp_path):
    """Returns what makes a guard with some limits, and the work folder.

    The only worker is decoding a clip.
    """
    write_sound(tmp_path / "in" / "a.wav", 10)
    inputs = tuple(resolve_inputs([str(tmp_path / "in")]))
    job = Job(inputs, "", str(tmp_path / "work"), Recipe(win_len=1))
    states = new_states(1)

    def make(**limits):
        return Guard(job, Limits(**limits), states)

    with Marks.kept_in(states[0]):
        Marks.mark(CLIP, "decode")
        yield make, job.work_folder


def let_pass(guarding, seconds):
    """Makes a guard look again after some time."""
    guarding._looked -= seconds


def test_time_in_which_nobody_looked_does_not_count(watched):
    guarding, worker = watched[0](time_s=5), Worker()
    guarding.look({0: worker})
    let_pass(guarding, 3600)  # a suspended machine
    guarding.look({0: worker})
    assert not worker.killed
    for _ in range(5):
        let_pass(guarding, 1)
        guarding.look({0: worker})
    assert worker.killed == 1


def test_progress_starts_the_clock_again(watched):
    guarding, worker = watched[0](time_s=3), Worker()
    for _ in range(10):
        let_pass(guarding, 1)
        guarding.look({0: worker})
        Marks.progress()
    assert not worker.killed


def test_a_clip_that_went_on_before_it_was_killed_is_no_suspect(watched):
    make, work = watched
    for goes_on in (True, False):
        guarding, worker = make(time_s=0.5), Worker("SIGKILL")
        for _ in range(2):
            guarding.look({0: worker})
            let_pass(guarding, 1)
        assert worker.killed == 1
        if goes_on:
            Marks.progress()
        guarding.after_death(0, worker, "again")
        assert (read_suspects(work).recorded(CLIP) is None) == goes_on


def test_a_message_says_what_a_run_waits_for(watched, caplog):
    guarding = watched[0]()
    with caplog.at_level(logging.WARNING):
        for _ in range(100):
            let_pass(guarding, 1)
            guarding.look({0: Worker()})
    assert len(caplog.messages) == 2  # after 30 and 60 seconds
    assert_names(caplog.messages[0], "a.wav", "decoding", "30 s", "600 s")


def test_the_second_crash_at_a_clip_makes_it_a_suspect(watched):
    make, work = watched
    guarding = make()
    for found in (False, True):
        guarding.after_death(0, Worker(), "again")
        suspect = read_suspects(work).recorded(CLIP)
        assert (suspect is not None) == found
    assert_names(suspect.reason, "decoding", "SIGSEGV", "twice")


def test_a_crash_at_several_clips_is_tried_again_with_one_thread(watched):
    make, work = watched
    marked, over = threading.Event(), threading.Event()

    def probe():
        Marks.mark(CLIP._replace(row=8, filepath="b.wav"), "decode")
        marked.set()
        over.wait(30)

    thread = threading.Thread(target=probe)
    thread.start()
    marked.wait(30)
    guarding = make()
    for _ in range(3):
        assert not Marks.one_thread()
        guarding.after_death(0, Worker(), "again")
    over.set()
    thread.join()
    guarding.begin(0)
    assert Marks.one_thread()
    assert read_suspects(work).recorded(CLIP) is None


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGTERM", "SIGINT"])
def test_a_signal_from_outside_is_no_fault_of_a_clip(watched, signal):
    with raises(WorkerDied, naming=[signal, "again"]):
        watched[0]().after_death(0, Worker(signal), "again")


def test_a_crash_at_no_clip_ends_the_run(watched):
    Marks.unmark()
    with raises(WorkerDied, naming=["SIGSEGV", "again"]):
        watched[0]().after_death(0, Worker(), "again")


def test_too_many_deaths_end_the_run(watched, monkeypatch):
    monkeypatch.setattr(guard, "MOST_DEATHS", 3)
    guarding = watched[0]()
    for row in range(3):
        Marks.mark(CLIP._replace(row=row, filepath=f"{row}.wav"), "decode")
        guarding.after_death(0, Worker(), "again")
    with raises(WorkerDied, naming=[3, "2.wav", "decoding", "again"]):
        guarding.after_death(0, Worker(), "again")


@pytest.mark.skipif(not os.path.exists("/proc/self/smaps_rollup"), reason="no /proc")
def test_memory_that_no_clip_took_ends_the_run(watched):
    guarding, worker = watched[0](memory_bytes=1e6), Worker()
    with raises(WorkerDied, naming=["0.0 GB", "--memory-limit", "--workers"]):
        guarding.look({0: worker})
    assert not worker.killed
