"""What a run finds in its output decides what it does there."""

import json
import os
import shutil
import time
from contextlib import nullcontext
from pathlib import Path

import pytest
import soundfile

from beam_pipeline import Metadata, record
from beam_pipeline.dataset.folders import clear_work
from beam_pipeline.dataset.job import (
    DAMAGED_FILE,
    NEWER_FILE,
    OTHER_EXAMPLES,
    OTHER_INPUTS,
    Asked,
    Case,
    OutputState,
    case_of,
    differences,
)
from beam_pipeline.errors import OutputError, RecipeError, TooManyRejected
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_corpus, write_sound

# The table of cases


def stamp(**options):
    return {"recipe": options, "inputs": [], "writer": {}, "code": {}}


NOTHING = OutputState([])
RUN = OutputState(["records-00000-of-00002.tfrecord.gz"], stamp={})
DAMAGED = OutputState(RUN.held, is_damaged=True)
OLD = OutputState(["metadata.json", "schema.pbtxt"], "old")
SAME = OLD._replace(difference=None)
MINE, OTHER = stamp(win_len=1), stamp(win_len=2)
ELEMENTS = {"recorded_by": "x", "continues": False}
MY_RUN, OTHER_RUN = RUN._replace(stamp=MINE), RUN._replace(stamp=OTHER)
REPLACING = OLD._replace(stamp=MINE, replaces="old")
THESIS = OutputState(["thesis.txt"])


@pytest.mark.parametrize(
    ("found", "overwrite", "case"),
    [
        (NOTHING, False, Case.BEGIN),
        (OutputState(["rejected.jsonl"]), False, Case.BEGIN),
        (MY_RUN, False, Case.CONTINUE),
        (MY_RUN, True, Case.CONTINUE),
        (MY_RUN._replace(is_useless=True), False, Case.CONTINUE),
        (MY_RUN._replace(is_damaged=True), False, Case.CONTINUE),
        (OTHER_RUN, False, "`win_len` was 2, here it is 1"),
        (OTHER_RUN, True, Case.BEGIN),
        (OTHER_RUN._replace(is_useless=True), False, Case.BEGIN),
        (RUN, False, "another kind"),
        (RUN._replace(stamp=None), False, "holds a data set"),
        (DAMAGED, False, Case.REPAIR),
        (DAMAGED, True, Case.BEGIN),
        (OLD, False, "holds a data set"),
        (OLD, True, Case.REPLACE),
        (OLD._replace(held=["metadata.json", "thesis.txt"]), True, "thesis.txt"),
        (OLD._replace(difference="other clips"), False, "other clips"),
        (REPLACING, True, Case.CONTINUE),
        (REPLACING, False, "data set"),
        (REPLACING._replace(stamp=OTHER), True, Case.REPLACE),
        (REPLACING._replace(replaces="older"), True, Case.REPLACE),
        (OLD._replace(stamp=MINE, is_switched=True), True, Case.DONE),
        (OLD._replace(stamp=OTHER, is_switched=True), True, Case.REPLACE),
        (SAME, False, Case.DONE),
        (SAME._replace(stamp=OTHER), False, Case.DONE),
        (THESIS, False, "thesis.txt"),
        (THESIS, True, "thesis.txt"),
    ],
)
def test_what_is_found_decides_what_a_run_does(found, overwrite, case):
    expect_case(case, found, Asked("/out", "/out/_work", MINE, overwrite))


@pytest.mark.parametrize("output", ["/out", "s3://bucket/out"])
@pytest.mark.parametrize(
    ("found", "overwrite", "case"),
    [
        (NOTHING, False, Case.BEGIN),
        (RUN._replace(stamp=ELEMENTS, is_useless=True), False, Case.BEGIN),
        (OTHER_RUN, False, "another kind"),
        (OLD, False, "holds a data set"),
        (OLD, True, Case.REPLACE),
    ],
)
def test_elements_are_never_continued(output, found, overwrite, case):
    expect_case(case, found, Asked(output, f"{output}/_work", ELEMENTS, overwrite))


def expect_case(case, found, asked):
    refused = isinstance(case, str)
    refusal = raises(OutputError, naming=[asked.output, case])
    with refusal if refused else nullcontext():
        assert case_of(found, asked) is case


# How two jobs differ


ENTRY = {"split": "", "location": "/a", "columns": []}
JOB = {
    "recipe": {"features": {"x": "fft()", "y": "fft()"}}, "inputs": [ENTRY],
    "writer": {"numpy": "1"}, "code": {"mine": "a"}, "skip_recorded": {"/b": "a"},
}  # fmt: skip


@pytest.mark.parametrize(("changes", "fact", "was", "now"), [
    ({"recipe": {**JOB["recipe"], "win_len": 5}}, "`win_len`", "not given", "5"),
    ({"recipe": {"features": {"x": "fft()", "y": "mfcc()"}}},
     "`features` y", "'fft()'", "'mfcc()'"),
    ({"inputs": [{**ENTRY, "split": "train", "location": "/b"}]},
     "`input`", "['/a']", "['train=/b']"),
    ({"inputs": [{**ENTRY, "columns": [["x", "int64"]]}]},
     "`input` (columns)", "[[]]", "[[['x', 'int64']]]"),
    ({"writer": {"numpy": "2"}}, "numpy", "'1'", "'2'"),
    ({"code": {"mine": "b"}}, "the code of mine", "'a'", "'b'"),
    ({"skip_recorded": {"/b": "b"}}, "`skip_recorded` /b", "'a'", "'b'"),
    ({"skip_recorded": {}}, "`skip_recorded` /b", "'a'", "not given"),
])  # fmt: skip
def test_every_change_of_a_job_is_named(changes, fact, was, now):
    found = differences(JOB, {**JOB, **changes})
    assert found == [f"{fact} was {was}, here it is {now}"]


@pytest.mark.parametrize("old", [JOB, {"recipe": None}, {}])
def test_a_job_that_is_equal_or_cannot_be_read_has_no_differences(old):
    assert differences(old, JOB) == []


# Runs that are refused leave everything as it is


def state_of(folder):
    """The time and the content of every file and folder."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else b"",
        )
        for path in sorted(folder.rglob("*"))
    }


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with sounds, and the data set of them."""
    folder = tmp_path_factory.mktemp("recorded")
    write_corpus(folder / "in")
    record(folder / "in", folder / "out", win_len=500)
    return folder


@pytest.fixture
def places(recorded, tmp_path):
    """A copy of the sounds and their data set, which a test may change."""
    for name in ("in", "out"):
        shutil.copytree(recorded / name, tmp_path / name)
    return tmp_path / "in", tmp_path / "out"


@pytest.mark.parametrize(
    ("work", "out", "facts"),
    [
        ("precious", "out", ["deep/thesis.txt"]),
        *((work, "out", []) for work in ("in", "in/work", ".")),
        *((work, "a/out", ["--output"]) for work in ("a/out", "a/out/work", "a")),
    ],
)
def test_a_work_dir_with_files_of_others_is_refused(tmp_path, work, out, facts):
    write_corpus(tmp_path / "in", clips=1)
    (tmp_path / "precious" / "deep").mkdir(parents=True)
    (tmp_path / "precious" / "deep" / "thesis.txt").write_text("years")
    before = state_of(tmp_path)
    with raises(OutputError, naming=["--work-dir", tmp_path / work, *facts]):
        record(tmp_path / "in", tmp_path / out, win_len=500, work_dir=tmp_path / work)
    assert state_of(tmp_path) == before


def test_what_others_put_into_a_work_dir_meanwhile_stays(tmp_path):
    (tmp_path / "receipts").mkdir()
    (tmp_path / "receipts" / "x.json").touch()
    (tmp_path / "mine.txt").touch()
    clear_work(str(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_an_output_inside_an_input_is_refused_through_links(tmp_path):
    write_corpus(tmp_path / "in", clips=1)
    (tmp_path / "link").symlink_to(tmp_path / "in")
    for sounds, out in (("in", "link/out"), ("link", "in/out"), ("link", "link")):
        with raises(OutputError, naming=["--output", "inside"]):
            record(tmp_path / sounds, tmp_path / out, win_len=500)


@pytest.mark.parametrize("engine", [[], ["--runner=FnApiRunner"]])
def test_a_run_that_is_refused_while_it_plans_hinders_no_other(tmp_path, engine):
    write_sound(tmp_path / "in" / "a" / "1.wav", 9000, rate=8000)
    write_sound(tmp_path / "in" / "a" / "2.wav", 9000, rate=16000)
    places = tmp_path / "in", tmp_path / "out"
    facts = ["8000", "a/1.wav", "16000", "a/2.wav"]
    with raises(RecipeError, "sample_rate", naming=facts):
        record(*places, win_seconds=0.5, beam_args=engine)
    record(*places, win_seconds=0.5, sample_rate=8000)


def test_a_refused_run_does_not_take_what_an_earlier_one_has_finished(places):
    (places[0] / "cat" / "bad.wav").write_text("no sound")
    shutil.rmtree(places[1])
    with pytest.raises(TooManyRejected):
        record(*places, win_len=500, num_shards=3)
    before = state_of(places[1])
    assert "_work/receipts" in before
    with raises(OutputError, naming=[places[1], "--overwrite", "--output"]):
        record(*places, win_len=400, max_rejected=1)
    assert state_of(places[1]).items() >= before.items()
    record(*places, win_len=400, max_rejected=1, overwrite=True)


def test_the_command_line_says_what_it_found(places, cli):
    """An unfinished run with other options; a data set that is complete."""
    cut = places[0] / "owl" / "owl_1.wav"
    cut.write_bytes(cut.read_bytes()[:1500])
    new = places[1].parent / "new"
    command = ["record", f"--input={places[0]}", f"--output={new}", "--win-len=500"]
    assert_names(cli(*command, status=3).err, "--allow-truncated")
    truncated = [*command, "--allow-truncated"]
    said = cli(*truncated, "--seed=7", status=2).err
    assert_names(said, "--allow-truncated was False, here it is True")
    assert_names(said, "--seed was 0, here it is 7", "--overwrite")
    (new / "_work" / "job.json").write_text("")
    assert_names(cli(*truncated, status=2).err, "--overwrite")
    assert "complete before" not in cli(*truncated, "--overwrite").out
    before = state_of(new)
    assert "new: complete before" in cli(*truncated).out
    said = cli(*truncated, "--win-len=501", status=2).err
    assert_names(said, "--win-len", "500", "501")
    assert state_of(new) == before
    cli(*truncated, "--overwrite")
    assert state_of(new) != before


# The same command again


def again(*places, **options):
    """A call that must find its data set complete."""
    before, found = state_of(places[1]), []
    metadata = record(*places, found=found.append, **options)
    assert found == [metadata]
    assert state_of(places[1]) == before
    assert metadata == Metadata.load(str(places[1]))
    return metadata


def refused(difference, *places, **options):
    before = state_of(places[1])
    with raises(OutputError, naming="--overwrite") as caught:
        record(*places, **options)
    assert difference in str(caught.value)
    assert state_of(places[1]) == before


@pytest.mark.parametrize(
    "options",
    [
        {"elements_per_file": 7},
        {"splits": "train=1,test=1", "stratify": True, "hash_files": True,
         "workers": 2},
        {"keep": "energy(above_db=-200)", "copies": 2, "augment": "random_gain()",
         "beam_args": ["--runner=FnApiRunner"]},
        {"order": "mixed", "keep": "energy(above_db=-12.05)", "tail": "pad", "hop": 300,
         "sample_rate": 6000},
    ],
)  # fmt: skip
def test_the_same_command_is_complete(places, options):
    """Windows that were left out, and resampled ones, do not look like other inputs."""
    new = places[0], places[1].parent / "new"
    first = record(*new, win_len=500, **options)
    assert again(*new, win_len=500, **options) == first
    assert not (new[1] / "_work").exists()
    for clip in places[0].rglob("*.wav"):
        replace_by_older(clip)
    refused(OTHER_EXAMPLES, *new, win_len=500, **options)


def replace_by_older(clip):
    """Puts another sound there, which was written before."""
    write_sound(clip, soundfile.info(clip).frames if clip.exists() else 2500, seed=77)
    os.utime(clip, ns=(0, 1))


def link_to_older(clip):
    shutil.move(clip, clip.parents[2] / "older.wav")
    replace_by_older(clip.parents[2] / "older.wav")
    clip.symlink_to(clip.parents[2] / "older.wav")


SHARD_NAME = "records-00000-of-00001.tfrecord.gz"
DAMAGED_SHARD = DAMAGED_FILE.format(SHARD_NAME)
NEWER_CLIP = NEWER_FILE.format("owl_0.wav")


def edit_metadata(path):
    values = json.loads(path.read_text())
    values["writer"]["numpy"] = "0.1"
    path.write_text(json.dumps(values))


CLIP, METADATA, SHARD = "in/owl/owl_0.wav", "out/metadata.json", f"out/{SHARD_NAME}"


@pytest.mark.parametrize(
    ("path", "change", "difference"),
    [
        (CLIP, lambda clip: shutil.copy2(clip, clip.with_name("more.wav")),
         OTHER_INPUTS),
        (CLIP, Path.unlink, OTHER_INPUTS),
        (CLIP, os.utime, NEWER_CLIP),
        (CLIP, lambda clip: write_sound(clip, 2501, seed=77), NEWER_CLIP),
        (CLIP, replace_by_older, OTHER_EXAMPLES),
        (CLIP, link_to_older, OTHER_EXAMPLES),
        (SHARD, Path.unlink, DAMAGED_SHARD),
        (SHARD, lambda shard: os.truncate(shard, shard.stat().st_size - 1),
         DAMAGED_SHARD),
        (METADATA, lambda metadata: metadata.write_text("{"), "metadata.json"),
        (METADATA, edit_metadata, "numpy was '0.1'"),
    ],
)  # fmt: skip
def test_other_inputs_and_damage_are_refused(places, path, change, difference):
    change(places[1].parent / path)
    refused(difference, *places, win_len=500)


@pytest.mark.parametrize("change", ["rights", "future", "moved", "archived"])
def test_the_same_audio_is_complete(places, change):
    (sounds, out), clip = places, places[0] / "owl" / "owl_0.wav"
    if change == "rights":
        clip.chmod(0o600)
    elif change == "future":
        later = time.time_ns() + 10**15
        os.utime(clip, ns=(later, later))
    elif change == "moved":
        shutil.move(clip, out.parent / "moved.wav")
        shutil.move(out.parent / "moved.wav", clip)
    else:
        sounds = Path(shutil.copytree(sounds, out.parent / "archive"))
    again(sounds, out, win_len=500)


def test_a_file_that_was_rejected_and_is_mended_is_refused(places):
    bad = places[0] / "cat" / "bad.wav"
    bad.write_text("no sound")
    record(*places, win_len=500, max_rejected=1, overwrite=True)
    again(*places, win_len=500, max_rejected=1)
    refused("1 of its 13 clips were rejected", *places, win_len=500)
    write_sound(bad, 2500)
    refused(NEWER_FILE.format(bad), *places, win_len=500, max_rejected=1)


def other_code(folder):
    code = folder / "peaks_of_mine.py"
    code.write_text("def f(windows):\n    return abs(windows).max(axis=-1)\n")
    options = {"features": {"x": "peaks_of_mine.f"}}
    return folder / "in", options, lambda: code.write_text(f"{code.read_text()}\n# x")


def other_events(folder):
    table = write_lines(folder / "events.csv", "path,start,end,label", "{name},0,0.1,x")
    text = table.read_text().replace("0.1", "0.2")
    return folder / "in", {"events": str(table)}, lambda: table.write_text(text)


def a_newer_file_of_known_length(folder):
    head, line = "path,frames,sample_rate_hz", f"in/{{name}},2500,{RATE}"
    table = write_lines(folder / "all.csv", head, line)
    clip = folder / "in" / CLIPS[0]
    return table, {"label_from": "none"}, lambda: os.utime(clip)


def a_deleted_file_of_known_length(folder):
    table, options, _ = a_newer_file_of_known_length(folder)
    return table, options, (folder / "in" / CLIPS[0]).unlink


CLIPS = [f"{name}/{name}_0.wav" for name in ("cat", "dog", "owl")]


def write_lines(path, head, line):
    path.write_text("\n".join([head, *(line.format(name=name) for name in CLIPS)]))
    return path


@pytest.mark.parametrize(
    ("prepare", "difference"),
    [
        (other_code, NEWER_FILE.format("peaks_of_mine.py")),
        (other_events, NEWER_FILE.format("events.csv")),
        (a_newer_file_of_known_length, NEWER_FILE.format("")),
        (a_deleted_file_of_known_length, OTHER_EXAMPLES),
    ],
)
def test_what_clips_depend_on_is_compared(tmp_path, monkeypatch, prepare, difference):
    write_corpus(tmp_path / "in", clips=1)
    monkeypatch.syspath_prepend(str(tmp_path))
    source, options, change = prepare(tmp_path)
    places = source, tmp_path / "out"
    record(*places, win_len=500, **options)
    again(*places, win_len=500, **options)
    change()
    refused(difference, *places, win_len=500, **options)


def test_rows_in_memory_are_compared(tmp_path):
    write_corpus(tmp_path / "in", clips=1)
    rows = [
        {"path": str(tmp_path / "in" / name), "kind": "a", "snr": snr, "day": day}
        for name, snr, day in zip(CLIPS, (1.5, None, 2.5), "xyz", strict=True)
    ]
    out, options = tmp_path / "out", {"win_len": 500, "label_from": "kind"}
    record(rows, out, **options)
    again(rows, out, **options)
    for change in ({"kind": "b"}, {"snr": 1.0}, {"day": "w"}):
        refused(OTHER_INPUTS, [{**rows[0], **change}, *rows[1:]], out, **options)
    refused(OTHER_INPUTS, rows[::-1], out, **options)


def test_a_run_that_was_cut_off_behind_its_metadata_is_complete(places, monkeypatch):
    new = places[0], places[1].parent / "new"
    with monkeypatch.context() as patch:
        patch.setattr("beam_pipeline.dataset.folders.clear_work", lambda *_: None)
        record(*new, win_len=500)
    before = state_of(new[1])
    assert "_work/job.json" in before
    record(*new, win_len=500)
    after = {name for name, _ in state_of(new[1]).items()}
    assert after == {name for name in before if not name.startswith("_work")}
