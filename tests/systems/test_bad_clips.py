"""Clips that crash or stall a process are rejected, and the run goes on."""

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from tests.processes import run_python
from tests.raising import assert_names
from tests.systems import bad_clips

# A fork of a process sees it in its environment.
MARK = f"BAD_CLIPS={uuid.uuid4().hex}"

REPOSITORY = Path(__file__).parents[2]
ENGINES = Path(os.environ.get("AUDIO_TFRECORDS_ENGINES", REPOSITORY / ".engines"))
PRISM = ENGINES / "prism" / "prism"
needs_prism = pytest.mark.skipif(
    not PRISM.exists(), reason="launch/prism/submit.sh fetches Prism"
)


def processes_left():
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
def runs(tmp_path_factory):
    """What each run of bad_clips.py printed."""
    if sys.platform != "linux":
        pytest.skip("processes are forked on Linux alone")
    folder = tmp_path_factory.mktemp("bad-clips")
    name, _, value = MARK.partition("=")
    places = folder, *[PRISM][: PRISM.exists()]
    environment = {name: value, "TMPDIR": str(folder)}
    done = run_python(bad_clips.__file__, *places, **environment)
    found = dict(map(json.loads, done.stdout.splitlines()))
    left = [path.name for path in folder.glob("audio-*/**/*") if path.is_file()]
    return {**found, "left": {"processes": processes_left(), "files": left}}


def rejects_of(run):
    return [(line["path"], line["stage"], line["error"]) for line in run["rejected"]]


def test_a_step_that_ends_its_process_loses_one_clip(runs):
    run = runs["crash"]
    assert (run["ended"], run["work"]) == ("done", False)
    assert rejects_of(run) == [("2.wav", "transform", "ClipCrash")]
    assert_names(run["rejected"][0]["reason"], "feature x", "SIGSEGV", "twice")
    # As if the step had raised an error.
    assert run["digest"] == runs["lost"]["digest"]


def test_a_longer_time_limit_gives_a_clip_another_try(runs):
    run = runs["dawdle"]
    assert_names(run["ended"], "TooManyRejected", "2.wav", "feature x", "1.5 s")
    assert rejects_of(run) == [("2.wav", "transform", "ClipTimeout")]
    assert (run["work"], runs["dawdle longer"]["work"]) == (True, False)
    assert runs["dawdle longer"]["ended"] == "done"
    assert runs["dawdle longer"]["rejected"] == []


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


def test_a_header_that_stalls_is_as_if_its_clip_were_not_there(runs):
    assert runs["here-stall"]["digest"] == runs["without"]["digest"]


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


@pytest.mark.parametrize(
    ("what", "rejects"),
    [
        ("step", 3 * [("2.wav", "transform", "ClipCrash")]),
        ("decode", [("0.wav", "decode", "ClipCrash")]),
        ("probe", [("1.wav", "probe", "ClipCrash")]),
        ("stall", [("5.wav", "probe", "ClipTimeout")]),
    ],
)
@pytest.mark.parametrize(
    "engine", ["FnApiRunner", pytest.param("PrismRunner", marks=needs_prism)]
)
def test_engines_reject_the_same_clips(runs, engine, what, rejects):
    run, here = runs[f"{engine}-{what}"], runs[f"here-{what}"]
    assert (run["ended"], run["work"]) == ("done", False)
    assert rejects_of(here) == rejects
    for fact in ("rejected", "digest"):
        assert run[fact] == here[fact]


@needs_prism
@pytest.mark.parametrize(
    "number", [None, signal.SIGINT, signal.SIGTERM, signal.SIGKILL]
)
@pytest.mark.parametrize("runner", ["PrismRunner", "DirectRunner"])
def test_prism_ends_with_the_command(tmp_path, runner, number):
    bad_clips.write_clips(tmp_path / "in", [0.0])
    name, _, value = MARK.partition("=")
    step = "fail_on_loud" if number is None else "stall_on_sound"
    command = subprocess.Popen(
        [sys.executable, "-m", "beam_pipeline", "record", "--input", tmp_path / "in",
         "--output", tmp_path / "out", "--win-seconds=0.25", "--label-from=none",
         f"--feature=x=tests.sounds.{step}", "--", f"--runner={runner}",
         f"--prism_location={PRISM}"],
        stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True, cwd=REPOSITORY,
        env={**os.environ, name: value, "TMPDIR": str(tmp_path),
             "PYTHONPATH": str(REPOSITORY)},
    )  # fmt: skip
    with command:
        for line in command.stderr:
            if "Serving JobManagement" in line:
                break
        assert any("prism" in name for name in processes_left())
        if number is not None:
            command.send_signal(number)
        errors = command.stderr.read()
    assert "Traceback" not in errors
    assert (command.returncode == 0) == (number is None)
    deadline = time.monotonic() + 60
    while processes_left() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert processes_left() == []


def test_nothing_is_left(runs):
    assert runs["left"] == {"processes": [], "files": []}
