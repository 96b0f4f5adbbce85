"""Errors of the machine: no clip is rejected, and the same command continues."""

import errno
import os
import tempfile
from pathlib import Path

import pytest
import soundfile

from beam_pipeline import plan, record
from beam_pipeline.audio import decoder
from beam_pipeline.errors import (
    DiskError,
    IncompleteRun,
    StoreError,
    TooManyRejected,
    Unreadable,
    UnreadableAudio,
    is_of_machine,
)
from tests.data_sets import contents, rejects_in
from tests.faults import cases, machine
from tests.faults.world import CannotTry, World
from tests.raising import raises
from tests.sounds import write_corpus

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


@pytest.mark.parametrize("name", OF_MACHINE + OF_FILE)
def test_every_error_of_the_system_is_of_one(name):
    error = OSError(getattr(errno, name), "what the system says")
    assert is_of_machine(error) == (name in OF_MACHINE)


def test_errors_without_a_number():
    machines = [
        MemoryError(), ConnectionResetError(), TimeoutError(),
        StoreError("s3://a/b", "503"), DiskError("a", "b", "c"), Unreadable("a", "b"),
    ]  # fmt: skip
    assert all(map(is_of_machine, machines))
    others = [
        OSError("no number"), ValueError(), UnreadableAudio("a", "b"), EOFError(),
    ]  # fmt: skip
    assert not any(map(is_of_machine, others))


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
        return list(decoder.retried(self.begin, "a.wav", self.slept.append))


@pytest.fixture(autouse=True)
def no_failures(monkeypatch):
    monkeypatch.setattr(decoder._Failed, "in_a_row", 0)


def test_values_come_once_however_often_reading_begins():
    reads = Reads({1: 0, 2: 2, 3: 1})
    assert reads.all() == [0, 1, 2]
    assert tuple(reads.slept) == decoder.PAUSES_S


def test_what_stays_unreadable_says_how_often_it_was_tried():
    with raises(Unreadable, naming=("a.wav", "Input/output error", "4 times")):
        Reads(dict.fromkeys(range(1, 9), 1)).all()


def test_after_some_sources_nothing_is_waited_for():
    always = dict.fromkeys(range(1, 9), 0)
    for _ in range(decoder.MOST_IN_A_ROW):
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
