"""Clips that crash or stall a process are rejected, and the run goes on."""

import json
import os
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.raising import assert_names
from tests.systems import bad_clips

pytestmark = pytest.mark.runs

# A fork of a process sees it in its environment.
MARK = f"BAD_CLIPS={uuid.uuid4().hex}"


def processes_left() -> list[str]:
    """The processes that the runs have left."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if MARK.encode() in (folder / "environ").read_bytes().split(b"\0"):
                found.append((folder / "cmdline").read_text())
        except OSError:
            continue  # it has just ended
    return found


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict]:
    """What each run of bad_clips.py printed."""
    if sys.platform != "linux":
        pytest.skip("processes are forked on Linux alone")
    folder = tmp_path_factory.mktemp("bad-clips")
    name, _, value = MARK.partition("=")
    done = subprocess.run(
        [sys.executable, bad_clips.__file__, folder],
        capture_output=True, text=True, timeout=300, cwd=Path(__file__).parents[2],
        env={**os.environ, name: value, "TMPDIR": str(folder),
             "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = dict(map(json.loads, done.stdout.splitlines()))
    left = [path.name for path in folder.glob("audio-*/**/*") if path.is_file()]
    return {**found, "left": {"processes": processes_left(), "files": left}}


def rejects_of(run: dict) -> list[tuple[str, str, str]]:
    return [(line["path"], line["stage"], line["error"]) for line in run["rejected"]]


def test_a_step_that_ends_its_process_loses_one_clip(runs):
    run = runs["crash"]
    assert (run["ended"], run["work"]) == ("done", False)
    assert rejects_of(run) == [("2.wav", "transform", "ClipCrash")]
    assert_names(run["rejected"][0]["reason"], "feature x", "SIGSEGV", "twice")
    # As if the step had raised an error.
    assert run["digest"] == runs["lost"]["digest"]


def test_a_clip_is_lost_from_finished_shards_too(runs):
    one, two = runs["spread1"], runs["spread2"]
    assert one["ended"] == two["ended"] == "done"
    assert rejects_of(one) == 3 * [("2.wav", "transform", "ClipCrash")]
    assert one["rejected"] == two["rejected"]
    assert one["digest"] == two["digest"]


def test_a_longer_time_limit_gives_a_clip_another_try(runs):
    run = runs["dawdle"]
    assert_names(run["ended"], "TooManyRejected", "2.wav", "feature x", "0.4 s")
    assert rejects_of(run) == [("2.wav", "transform", "ClipTimeout")]
    assert (run["work"], runs["dawdle longer"]["work"]) == (True, False)
    assert (runs["dawdle longer"]["ended"], runs["dawdle longer"]["rejected"]) == (
        "done",
        [],
    )


def test_the_same_command_goes_on_without_another_crash(runs):
    run, again = runs["decode"], runs["decode allowed"]
    assert_names(run["ended"], "TooManyRejected", "0.wav", "SIGSEGV")
    assert again["ended"] == "done"
    assert rejects_of(again) == rejects_of(run) == [("0.wav", "decode", "ClipCrash")]
    # The first probe, the plan and the writers: one at first, then one for each core.
    assert again["processes"] <= 4
    assert run["digest"] == again["digest"]


def test_a_header_that_crashes_the_decoder(runs):
    run, again = runs["probe"], runs["probe complete"]
    assert run["ended"] == again["ended"] == "done"
    assert rejects_of(run) == [("0.wav", "probe", "ClipCrash")]
    assert_names(run["rejected"][0]["reason"], "SIGABRT")
    assert run == {**again, "processes": run["processes"]}


def test_a_header_that_stalls_the_decoder(runs):
    run = runs["stall"]
    assert rejects_of(run) == [("5.wav", "probe", "ClipTimeout")]
    assert run["digest"] == runs["without"]["digest"]


def test_steps_that_misbehave_lose_and_double_nothing(runs):
    for name in ("misbehave1", "misbehave2"):
        run = runs[name]
        assert run["ended"] == "done"
        assert rejects_of(run) == [
            ("4.wav", "transform", "TransformError"),
            ("5.wav", "transform", "ClipCrash"),
        ]
        assert_names(run["rejected"][1]["reason"], "feature x", "exit status 0")
        assert run["digest"] == runs["behave"]["digest"]


def test_a_step_that_raises_keyboard_interrupt_is_named(runs):
    ended = runs["interrupt"]["ended"]
    assert_names(ended, "WorkerDied", "2.wav", "feature x", "KeyboardInterrupt")


def test_nothing_is_left(runs):
    assert runs["left"] == {"processes": [], "files": []}
