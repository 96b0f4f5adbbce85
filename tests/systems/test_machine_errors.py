"""Errors of the machine: no clip is rejected, nothing is lost, a command continues."""

import errno
import os
import tempfile
from collections import Counter
from pathlib import Path

import pytest
import soundfile

from beam_pipeline import plan, record
from beam_pipeline.audio import retries
from beam_pipeline.errors import (
    DiskError,
    IncompleteRun,
    OutputError,
    StoreError,
    TooManyRejected,
    Unreadable,
    UnreadableAudio,
    is_of_machine,
)
from beam_pipeline.read.records import open_records
from beam_pipeline.run import local
from tests.data_sets import contents, rejects_in
from tests.faults import cases, machine
from tests.faults.world import CannotTry, World
from tests.processes import run_python
from tests.raising import raises
from tests.sounds import damage, write_corpus, write_sound

# `python -m tests.faults` tries all faults with the seed 0.
CASES = [
    (machine.some_calls_fail, range(1, 4)),
    (machine.a_sound_fails, range(1, 4)),
    (machine.shards_fail, range(1, 4)),
    (cases.full_output, range(1, 2)),
]


@pytest.mark.parametrize(
    ("fault", "seed"),
    [
        pytest.param(fault, seed, id=f"{fault.__name__}-{seed}")
        for fault, seeds in CASES
        for seed in seeds
    ],
)
def test_calls_that_fail(fault, seed, tmp_path):
    try:
        fault(World(tmp_path, seed))
    except CannotTry as error:
        pytest.skip(str(error))


OF_MACHINE = [
    "EIO", "ESTALE", "EMFILE", "ENFILE", "ENOMEM", "ENOSPC", "EDQUOT", "EAGAIN",
    "ETIMEDOUT", "ECONNRESET", "ECONNREFUSED", "EPIPE", "EHOSTUNREACH", "ENETDOWN",
    "EREMOTEIO", "ENODATA", "ENOLINK", "EBUSY", "EINTR",
]  # fmt: skip
OF_FILE = [
    "ENOENT", "ENOTDIR", "EACCES", "EPERM", "EISDIR", "ENAMETOOLONG", "ELOOP", "EINVAL",
    "ENXIO",
]  # fmt: skip


SOME = [OSError(getattr(errno, name), "no") for name in OF_MACHINE] + [
    MemoryError(), ConnectionResetError(), TimeoutError(),
    StoreError("s3://a/b", "503"), DiskError("a", "b", "c"), Unreadable("a", "b"),
]  # fmt: skip
OTHERS = [OSError(getattr(errno, name), "no") for name in OF_FILE] + [
    OSError("no number"), ValueError(), UnreadableAudio("a", "b"), EOFError(),
]  # fmt: skip


@pytest.mark.parametrize("error", SOME + OTHERS, ids=repr)
def test_every_error_is_of_the_machine_or_of_one_file(error):
    assert is_of_machine(error) == (error in SOME)


class Reads:
    """Three values; the machine fails before some of them, at some tries."""

    def __init__(self, fails, error=None):
        self.fails, self.begun = fails, 0
        self.error = error or OSError(errno.EIO, "Input/output error")
        self.slept = []

    def begin(self):
        self.begun += 1
        for k in range(3):
            if self.begun in self.fails and k == self.fails[self.begun]:
                raise self.error
            yield k

    def all(self):
        return list(retries.retried(self.begin, "a.wav", self.slept.append))


@pytest.fixture(autouse=True)
def no_failures(monkeypatch):
    monkeypatch.setattr(retries._Failed, "in_a_row", 0)


def test_values_come_once_however_often_reading_begins():
    reads = Reads({1: 0, 2: 2, 3: 1})
    assert reads.all() == [0, 1, 2]
    assert tuple(reads.slept) == retries.PAUSES_S


def test_what_stays_unreadable_says_how_often_it_was_tried():
    with raises(Unreadable, naming=("a.wav", "Input/output error", "4 times")):
        Reads(dict.fromkeys(range(1, 9), 1)).all()


def test_after_some_sources_nothing_is_waited_for():
    always = dict.fromkeys(range(1, 9), 0)
    for _ in range(retries.MOST_IN_A_ROW):
        with pytest.raises(Unreadable):
            Reads(always).all()
    last = Reads(always)
    with pytest.raises(Unreadable):
        last.all()
    assert (last.begun, last.slept) == (1, [])
    assert Reads({}).all() == [0, 1, 2]
    healed = Reads({1: 0})
    assert healed.all() == [0, 1, 2]


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (PermissionError(errno.EACCES, "no"), UnreadableAudio),
        (UnreadableAudio("a.wav", "no audio"), UnreadableAudio),
        (StoreError("s3://a/b", "503"), StoreError),
        (ValueError("no"), ValueError),
    ],
)
def test_other_errors_are_raised_at_once(error, kind):
    reads = Reads({1: 0}, error)
    with pytest.raises(kind):
        reads.all()
    assert reads.begun == 1


def load_from_a_broken_disk(path):
    if path.endswith("cat_1.wav"):
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)
    return soundfile.read(path, dtype="float32")


def test_a_loader_that_fails(tmp_path):
    write_corpus(tmp_path / "in", ("cat",), clips=3)
    options = {"win_len": 500, "loader": load_from_a_broken_disk, "workers": 1}
    with raises(IncompleteRun, naming=("1 of 3", "cat_1.wav", "allow_unreadable")):
        record(tmp_path / "in", tmp_path / "out", **options)
    with raises(IncompleteRun, naming="cat_1.wav"):
        plan(tmp_path / "in", **options)
    options["allow_unreadable"] = True
    with raises(TooManyRejected, naming="cat_1.wav"):
        record(tmp_path / "in", tmp_path / "out", **options)
    metadata = record(tmp_path / "in", tmp_path / "out", max_rejected=1, **options)
    assert metadata.rejected == 1
    (reject,) = rejects_in(tmp_path / "out")
    assert reject["error"] == "Unreadable"


BROKEN = Path(tempfile.gettempdir(), f"broken-{os.getpid()}")


def lose_the_disk(windows, sample_rate_hz=None):
    """A step whose disk fails while there is a file."""
    if BROKEN.exists() and abs(windows).max() > 0:
        raise OSError(errno.EIO, "Input/output error")
    return windows


@pytest.mark.parametrize("runner", ["", "FnApiRunner"])
def test_a_step_whose_disk_fails(tmp_path, runner):
    write_corpus(tmp_path / "in", ("cat",), clips=3)
    BROKEN.touch()
    options = {"win_len": 500, "features": {"x": lose_the_disk}, "num_shards": 2}
    options |= {"beam_args": [f"--runner={runner}"]} if runner else {"workers": 1}
    try:
        facts = ("3 of 3", "cat_0.wav", "Input/output error")
        with raises(IncompleteRun, naming=facts):
            record(tmp_path / "in", tmp_path / "out", **options)
    finally:
        BROKEN.unlink()
    assert not (tmp_path / "out" / "metadata.json").exists()
    record(tmp_path / "in", tmp_path / "out", **options)
    record(tmp_path / "in", tmp_path / "other", **options)
    assert contents(tmp_path / "out") == contents(tmp_path / "other")


# Disks and processes that fail


@pytest.mark.parametrize("error", ["OSError(5, 'I/O error')", "ValueError('odd')"])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_others_ends_the_run(tmp_path, workers, error):
    write_corpus(tmp_path / "in", clips=1)
    code = (
        "import sys\n"
        "from beam_pipeline import record\n"
        "from beam_pipeline.storage.tfrecord import MemberWriter\n"
        f"def fail(*args): raise {error}\n"
        "MemberWriter.write_member = fail\n"
        f"record(*sys.argv[1:], win_len=500, num_shards=2, workers={workers})\n"
    )
    places = tmp_path / "in", tmp_path / "out"
    done = run_python("-c", code, *places, status=1, TMPDIR=str(tmp_path))
    assert error.partition("'")[2].partition("'")[0] in done.stderr


@pytest.mark.parametrize(
    ("output", "why"),
    [("file/out", "is a file"), ("x" * 300, "too long"), ("link", "leads nowhere")],
)
def test_an_output_that_cannot_be_made_is_named(tmp_path, output, why):
    write_corpus(tmp_path / "in", clips=1)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    with raises(OutputError, naming=[tmp_path / output.partition("/")[0], why]):
        record(tmp_path / "in", tmp_path / output, win_len=500)


@pytest.mark.parametrize("known", [False, True])
def test_whole_clips_leaves_no_window_of_a_clip_that_breaks(tmp_path, known):
    """Of three clips of 40 windows, the middle one breaks after some of them."""
    for seed, name in enumerate("abc"):
        write_sound(tmp_path / f"in/{name}.flac", 40 * 4096, seed=seed)
    damage(tmp_path / "in/b.flac")
    source = tmp_path / "in"
    if known:  # the headers are not read, only what the table says
        source = tmp_path / "clips.csv"
        rows = [f"in/{name}.flac,163840,8000,1" for name in "abc"]
        source.write_text("\n".join(["filepath,frames,sample_rate_hz,channels", *rows]))
    found = {}
    for whole in (False, True):
        out = tmp_path / f"out_{whole}"
        metadata = record(
            source, out, win_len=4096, num_shards=5, order="listed", max_rejected=1,
            label_from="none", whole_clips=whole, workers=1,
        )  # fmt: skip
        found[whole] = Counter(example["filepath"] for example in open_records(out))
        (stage,) = {line["stage"] for line in rejects_in(out)}
        assert stage == ("probe" if whole else "decode")
        assert metadata.recipe.whole_clips == whole
    a, b, c = (f"{'in/' * known}{name}.flac" for name in "abc")
    assert found[False].pop(b) in range(1, 39)
    assert found[True] == found[False] == {a: 40, c: 40}


@pytest.mark.parametrize("name", ["pages", "receipts"])
def test_what_is_deleted_in_the_work_folder_is_not_taken_for_nothing(
    tmp_path, monkeypatch, name
):
    """``rm -r`` deletes the files of a folder one by one, in any order."""
    sounds, out, wanted = (tmp_path / name for name in ("in", "out", "wanted"))
    write_corpus(sounds, clips=1)
    (sounds / "cat" / "bad.wav").write_bytes(b"RIFF")
    options = {"win_len": 500, "num_shards": 2, "workers": 1, "max_rejected": 1}
    record(sounds, wanted, **options)
    finish = local.finish_job

    def delete_and_finish(*args):
        deleted = list((out / "_work").rglob(f"{name}/*"))
        assert deleted
        for path in deleted:
            path.unlink()
        return finish(*args)

    with monkeypatch.context() as patch:
        patch.setattr(local, "finish_job", delete_and_finish)
        again = "Give the same command again"
        with raises(IncompleteRun, naming=[f"{out}/_work", "deleted", again]):
            record(sounds, out, **options)
    assert not (out / "metadata.json").exists()
    record(sounds, out, **options)
    assert contents(out) == contents(wanted)
