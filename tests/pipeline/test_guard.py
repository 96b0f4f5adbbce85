"""guard.py: what the process beside a worker notes when the worker ends."""

import signal

import pytest

from beam_pipeline.planning.clips import (
    count_exits,
    only_one_thread,
    read_poison_clips,
)
from tests.processes import run_python
from tests.raising import assert_names
from tests.sounds import write_sound

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
