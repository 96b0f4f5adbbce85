"""One run at a time writes into an output, and what it finds decides what it does."""

import errno
import fcntl
import multiprocessing
import os
import threading
import time
from contextlib import contextmanager
from typing import Any

import pytest

from beam_pipeline import convert, record, record_examples, repair, verify
from beam_pipeline.dataset import folders
from beam_pipeline.errors import IncompleteRun, OutputError
from beam_pipeline.storage import claim as claims
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import Claim, Owner, claimed
from tests.claims import write_claim
from tests.raising import raises
from tests.sounds import write_corpus

ELSEWHERE = {"host": "elsewhere", "boot": "another start"}


@pytest.fixture(autouse=True)
def short(monkeypatch):
    for name, seconds in {"PATIENCE_S": 0.1, "WATCH_S": 1.0, "BEAT_S": 0.05}.items():
        monkeypatch.setattr(claims, name, seconds)


@pytest.fixture(params=["local", "without locks", "s3", "gs"])
def output(request, tmp_path):
    """An output on each kind of file system."""
    if request.param in ("s3", "gs"):
        return f"{request.param}://{request.getfixturevalue('bucket')}/out"
    if request.param == "without locks":
        turn_locks_off(request.getfixturevalue("monkeypatch"))
    return str(tmp_path / "out")


def turn_locks_off(monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "no locks here")

    monkeypatch.setattr(fcntl, "flock", refuse)


@contextmanager
def held_elsewhere(output):
    """A claim of a run on another machine, which changes it until the block ends.

    Its clock is wrong by years.
    """
    ended = threading.Event()

    def beat():
        beats = 0
        while not ended.wait(0.02):
            beats += 1
            write_claim(output, beats=beats, **ELSEWHERE, since="1970-01-01")

    write_claim(output, **ELSEWHERE)
    thread = threading.Thread(target=beat)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_a_second_run_is_refused_and_told_who_holds_the_output(output):
    refusal = raises(OutputError, naming=[output, os.getpid(), os.uname().nodename])
    with claimed(output), refusal, claimed(output):
        pass
    with claimed(output):
        pass


def test_nothing_stays_on_this_machine(tmp_path):
    (tmp_path / "there").mkdir()
    for name in ("there", "deep/er", "there"):
        with claimed(str(tmp_path / name)) as claim:
            assert os.listdir(claim.folder) == []
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    refusal = raises(OutputError, naming=[link, "cannot be made"])
    with refusal, claimed(str(link)):
        pass


def test_in_a_store_a_claim_stays_that_was_given_up(bucket):
    output = f"s3://{bucket}/out"
    for number in (1, 2):
        with claimed(output) as claim:
            assert claim.number == number
        owner = Owner.parse(files.read_bytes(claim.path))
        assert owner is not None
        assert owner.is_gone
        assert list(files.list_files(output)) == [f"_work/claims/{number}"]


def add_often(output, counter, times):
    """Adds to a number in a file so often, each time while it holds the claim."""
    claims.PATIENCE_S = claims.WATCH_S = 60.0
    for _ in range(times):
        with claimed(output):
            number = int(counter.read_text())
            time.sleep(0.0002)
            counter.write_text(str(number + 1))


@pytest.mark.parametrize("locks", [True, False])
def test_no_two_processes_hold_it(tmp_path, locks, monkeypatch):
    if not locks:
        turn_locks_off(monkeypatch)
    (counter := tmp_path / "counter").write_text("0")
    start = multiprocessing.get_context("fork").Process
    given = str(tmp_path / "out"), counter, 30
    processes = [start(target=add_often, args=given) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert counter.read_text() == "90"


def claim_and_die(output):
    with claimed(output):
        os._exit(9)


def test_a_dead_process_is_recognised_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "WATCH_S", 1e6)
    output = str(tmp_path / "out")
    context = multiprocessing.get_context("fork")
    process = context.Process(target=claim_and_die, args=(output,))
    process.start()
    process.join()
    with claimed(output) as claim:
        assert claim.number == 2
    assert not (tmp_path / "out").exists() or not os.listdir(output)


@pytest.mark.parametrize("owner", [{"boot": "before"}, {"is_gone": True, **ELSEWHERE}])
def test_owners_that_are_gone_are_recognised_at_once(output, owner, monkeypatch):
    monkeypatch.setattr(claims, "WATCH_S", 1e6)
    write_claim(output, 7, **owner)
    with claimed(output) as claim:
        assert claim.number == 8


def test_an_owner_elsewhere_lives_while_its_claim_changes(output, monkeypatch):
    refusal = raises(OutputError, naming=[output, "elsewhere"])
    with monkeypatch.context() as patch:
        patch.setattr(claims, "WATCH_S", 20.0)  # the owner may be kept waiting
        with held_elsewhere(output), refusal, claimed(output):
            pass
    started = time.monotonic()
    with claimed(output) as claim:
        assert claim.number == 2
    assert time.monotonic() - started >= claims.WATCH_S


def test_an_owner_changes_its_claim(output):
    with claimed(output) as claim:
        before = files.read_bytes(claim.path)
        wait_for(lambda: files.read_bytes(claim.path) != before)
        assert len(files.read_bytes(claim.path)) == len(before)


def wait_for(event):
    """Waits until something is true."""
    deadline = time.monotonic() + 60
    while not event():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def taken_over(claim):
    """Takes an output over, as a run elsewhere does when its owner sleeps."""
    now = Claim(claim.output, claim.number + 1, "f" * 32)
    write_claim(claim.output, now.number, token=now.token)
    if files.is_local(claim.output):
        files.delete_below(claim.folder)
        files.delete([claim.path])
    return now


def commits(claim, folder):
    """What a run does to the files of its output."""
    draft, target = folder / "draft", f"{claim.output}/shard"
    draft.write_bytes(b"late")
    return (
        lambda: claim.move(str(draft), target),
        lambda: claim.write(target, b"late"),
        lambda: claim.discard(target),
        lambda: claim.discard(f"{claim.output}/train", is_folder=True),
    )


def asleep_after(checks):
    """What a run finds that sleeps after so many checks of its claim."""
    real, awake = Claim.is_held, iter(range(checks))
    return lambda claim: next(awake, None) is not None or real(claim)


@pytest.mark.parametrize("checks", [0, 1])
def test_who_slept_changes_nothing(output, tmp_path, checks, monkeypatch):
    if checks and not files.is_local(output):
        pytest.skip("a request to a store that is under way cannot be called back")
    kept = [f"{output}/shard", f"{output}/train/shard"]
    with claimed(output) as claim:
        for commit in commits(claim, tmp_path):  # while it is held, all is done
            commit()
        if files.is_local(output):
            os.makedirs(f"{output}/train", exist_ok=True)
        for path in kept:
            files.write_bytes(path, b"kept")
        taken_over(claim)
        for commit in commits(claim, tmp_path):
            with monkeypatch.context() as patch:
                patch.setattr(Claim, "is_held", asleep_after(checks))
                with raises(IncompleteRun, naming=[claim.path, "again"]):
                    commit()
    assert [files.read_bytes(path) for path in kept] == [b"kept"] * 2
    assert files.exists(f"{output}/_work/claims/2")


def test_a_run_claims_nothing_if_numbers_begin_again(tmp_path, monkeypatch):
    """The claim that it has seen is gone, and a third run holds that number."""
    output, real, third = str(tmp_path / "out"), claims._create, list[Any]()
    seen = write_claim(output, 1, is_gone=True)

    def late(output, number):
        os.remove(seen)
        third.append(real(output, 1))
        monkeypatch.undo()
        return real(output, number)

    monkeypatch.setattr(claims, "_create", late)
    monkeypatch.setattr(claims, "PATIENCE_S", 0.1)
    with raises(OutputError, naming=output), claimed(output):
        pass
    assert third[0].claim.is_held()
    third[0].end()


def test_the_same_number_is_created_once(output):
    held = claims._create(output, 1)
    assert held is not None
    assert claims._create(output, 1) is None
    assert held.claim.is_held()
    held.end()


def test_a_number_that_another_run_has_now_is_not_deleted(tmp_path):
    with claimed(str(tmp_path)) as claim:
        os.remove(claim.path)
        write_claim(tmp_path, 1, token="of another run")
        with raises(IncompleteRun, naming=claim.path):
            claim.check()
    assert os.path.exists(claim.path)


# Whole runs.


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sounds")
    write_corpus(folder / "in", clips=1)
    record(folder / "in", folder / "done", win_len=500)
    return folder


@pytest.mark.parametrize("command", ["record", "overwrite", "convert", "elements"])
def test_every_command_respects_the_claim(sounds, tmp_path, command):
    out = tmp_path / "out"
    commands = {
        "record": lambda: record(sounds / "in", out, win_len=500),
        "overwrite": lambda: record(sounds / "in", out, win_len=500, overwrite=True),
        "convert": lambda: convert(sounds / "done", out),
        "elements": lambda: record_examples([{"a": 1}], out),
    }
    with claimed(str(out)), raises(OutputError, naming=[out, os.getpid()]):
        commands[command]()
    assert not out.exists()
    commands[command]()
    assert not (out / "_work").exists()
    if command in ("record", "overwrite"):
        with claimed(str(out)), raises(OutputError, naming=[out, os.getpid()]):
            repair(out)


@pytest.mark.parametrize("way", ["link", "work_dir", "TMPDIR"])
def test_one_output_is_one_output_whatever_leads_there(
    sounds, tmp_path, way, monkeypatch
):
    out, options = tmp_path / "out", {}
    out.mkdir()
    with claimed(str(out)):
        if way == "link":
            (tmp_path / "link").symlink_to("out")
            out = tmp_path / "link"
        elif way == "work_dir":
            options = {"work_dir": tmp_path / "work"}
        else:
            monkeypatch.setenv("TMPDIR", str(tmp_path))
            monkeypatch.setattr("tempfile.tempdir", None)
        with raises(OutputError, naming=[out, os.getpid()]):
            record(sounds / "in", out, win_len=500, **options)


# A moment of a run -> a part of the path that it writes then.
MOMENTS = {
    "page": "phases/pages", "plan": "plan.json", "draft": "drafts/",
    "shard": "out/records-", "receipt": "receipts", "metadata": "metadata.json",
}  # fmt: skip


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_run_that_lost_its_claim_ends_and_harms_nothing(
    sounds, tmp_path, moment, monkeypatch
):
    """The run that takes over is one of another job, and finishes at once."""
    out, wanted = tmp_path / "out", tmp_path / "wanted"
    options = {"win_len": 250, "overwrite": True, "workers": 1}
    record(sounds / "in", wanted, **options)
    slept = []

    def falls_asleep(real):
        def call(*args):
            if not slept and MOMENTS[moment] in "/".join(map(str, args)):
                slept.append(moment)
                (claim,) = (out / "_work/claims").glob("*-*")
                number, _, token = claim.name.partition("-")
                write_claim(out, int(number), token=token, **ELSEWHERE)
                monkeypatch.setattr(claims, "WATCH_S", 0.1)
                monkeypatch.setattr(claims, "_is_locked", lambda _: None)
                record(sounds / "in", out, **options)
            return real(*args)

        return call

    for owner, name in ((Claim, "move"), (Claim, "write"), (files, "draft_path")):
        monkeypatch.setattr(owner, name, falls_asleep(getattr(owner, name)))
    monkeypatch.setattr("beam_pipeline.run.workers.can_fork", lambda: False)
    with raises(IncompleteRun, naming=[out, "again"]):
        record(sounds / "in", out, win_len=500, workers=1)
    assert verify(out) == []
    for path in wanted.iterdir():
        assert (out / path.name).read_bytes() == path.read_bytes()
    assert {path.name for path in out.iterdir()} == {p.name for p in wanted.iterdir()}


def test_a_run_that_is_taken_over_after_its_end_has_succeeded(
    sounds, tmp_path, monkeypatch
):
    out, clear = tmp_path / "out", folders.clear_work

    def falls_asleep(*args):
        if (out / "metadata.json").exists():
            write_claim(out, 9, **ELSEWHERE)
        clear(*args)

    monkeypatch.setattr(folders, "clear_work", falls_asleep)
    record(sounds / "in", out, win_len=500, workers=1)
    assert (out / "_work/claims/9").exists()
    assert verify(out) == []
