"""Poison clips: whom they reject, and how they outlive a process."""

import os
from collections import namedtuple

from beam_pipeline.errors import ClipCrash
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
from beam_pipeline.process import Mark
from beam_pipeline.storage.claim import UNCLAIMED
from tests.raising import assert_names
from tests.sounds import write_sound

Row = namedtuple("Row", "row source filepath")


def poison_clip(stage, row=1, filepath="a.wav"):
    return PoisonClip(row, 0, filepath, stage, "ClipCrash", "it ended the process")


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
        clips = PoisonClips([poison_clip(stage)])
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
