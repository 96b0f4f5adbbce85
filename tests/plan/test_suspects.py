"""Suspects: whom they reject, and how they outlive a process."""

import os
from collections import namedtuple
from pathlib import Path

from beam_pipeline.dataset.suspect_files import (
    changed_ns_of,
    drop_cleared,
    read_suspects,
    write_suspect,
)
from beam_pipeline.errors import ClipCrash
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.plan.suspects import Suspect, Suspects
from tests.sounds import write_sound

Row = namedtuple("Row", "row source filepath")


class LowLimits:
    """Limits that no suspect passes."""

    def exclude(self, suspect: Suspect) -> bool:
        return True


def suspect(stage: str, row: int = 1, filepath: str = "a.wav") -> Suspect:
    return Suspect(row, 0, filepath, stage, "ClipCrash", "it ended the process")


def found(suspects: Suspects, row: Row) -> tuple[bool, bool]:
    return suspects.probed(row) is not None, suspects.recorded(row) is not None


def test_a_decoder_condemns_the_file_and_a_step_the_clip():
    clip, of_same_file = Row(1, 0, "a.wav"), Row(2, 0, "a.wav")
    others = [Row(1, 1, "a.wav"), Row(3, 0, "b.wav")]  # the first: of another input
    for stage, own, same in (
        ("probe", (True, False), (True, False)),
        ("decode", (False, True), (False, True)),
        ("treat", (False, True), (False, False)),
        ("transform", (False, True), (False, False)),
        ("encode", (False, True), (False, False)),
    ):
        suspects = Suspects([suspect(stage)])
        assert found(suspects, clip) == own
        assert found(suspects, of_same_file) == same
        assert [found(suspects, other) for other in others] == [(False, False)] * 2
    assert found(Suspects(), clip) == (False, False)


def test_a_suspect_becomes_the_error_that_rejects_it():
    error = suspect("decode").to_error()
    assert isinstance(error, ClipCrash)
    assert (error.path, error.reason) == ("a.wav", "it ended the process")


def test_suspects_outlive_a_process_until_their_file_changes(tmp_path: Path):
    work = str(tmp_path / "work")
    assert found(read_suspects(work), Row(1, 0, "a.wav")) == (False, False)
    inputs = []
    for name in ("a.wav", "b.wav"):
        write_sound(tmp_path / "in" / name, 100)
    inputs = resolve_inputs([str(tmp_path / "in")])
    for row, name in enumerate(("a.wav", "b.wav", "gone.wav")):
        changed_ns = changed_ns_of(str(tmp_path / "in" / name))
        one = suspect("decode", row, name)._replace(changed_ns=changed_ns)
        for _ in range(2):  # a second worker may find it, too
            write_suspect(one, work)
    assert len(list((tmp_path / "work" / "suspects").iterdir())) == 3
    os.utime(tmp_path / "in" / "b.wav")
    drop_cleared(work, inputs, LowLimits())
    rows = [Row(0, 0, "a.wav"), Row(1, 0, "b.wav"), Row(2, 0, "gone.wav")]
    left = read_suspects(work)
    assert [left.recorded(row) is not None for row in rows] == [True, False, True]
