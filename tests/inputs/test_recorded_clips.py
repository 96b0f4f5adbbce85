"""Which listed clips a data set has already."""

import numpy as np
import pytest

from beam_pipeline.audio.clip_reader import output_frames
from beam_pipeline.errors import InputError
from beam_pipeline.inputs.recorded_clips import (
    Header,
    RecordedClips,
    changed_file,
    plain_name,
)
from beam_pipeline.inputs.rows import SourceRow
from tests.raising import raises

# native frames, rate and channels; output rate, start, frames, channel, file
WHOLE = (44100, 44100, 2, 16000, 0, 16000, -1, 0)
PART = (88200, 44100, 1, 16000, 8000, 4000, 0, 1)


def recorded(**options):
    return RecordedClips(["a/x.wav", "y.wav"], np.array([WHOLE, PART]), **options)


def row(name, number=7, **values):
    return SourceRow(number, 0, name, "cat", file=number, **values)


@pytest.mark.parametrize(
    ("listed", "is_known"),
    [
        (row("a/x.wav"), True),
        (row("./a//x.wav"), True),
        (row("/in/a/x.wav"), True),
        (row("x.wav"), False),
        (row("a/x.wav", duration_s=1.0), True),  # all of it
        (row("a/x.wav", duration_s=1.004), True),  # tables round
        (row("a/x.wav", duration_s=0.5), False),
        (row("a/x.wav", offset_s=0.5), False),
        (row("a/x.wav", channel=0), False),
        (row("y.wav"), False),
        (row("y.wav", offset_s=0.5, duration_s=0.25), False),  # of all channels
        (row("y.wav", offset_s=0.5, duration_s=0.25, channel=0), True),
        (row("y.wav", offset_s=0.5, duration_s=0.25, channel=1), False),
    ],
)
def test_a_clip_is_known_by_its_name_and_part(listed, is_known):
    clips = recorded()
    found = clips.sort_out(listed, "/in")
    assert (found.recorded is not None) == is_known
    assert (clips.known, clips.new) == (is_known, not is_known)
    name = plain_name(listed.filepath, "/in")
    number = {"a/x.wav": 0, "y.wav": 1}.get(name, 7)
    assert is_known or found.file == number


def test_the_recipes_channel_counts_as_the_rows():
    listed = row("y.wav", offset_s=0.5, duration_s=0.25)
    assert recorded(channel=0).sort_out(listed, "/in").recorded == (88200, 44100, 1)


def test_rejected_clips_are_known_and_only_a_retry_takes_them():
    again, new = row("bad.wav"), row("new.wav")
    clips = recorded(rejected=frozenset(["bad.wav"]))
    assert clips.sort_out(again, "/in") is None
    assert clips.sort_out(new, "/in") == new
    assert (clips.known, clips.new, clips.retried) == (1, 1, set())
    clips = recorded(rejected=frozenset(["bad.wav", "a/x.wav"]), retry=True)
    assert clips.sort_out(again, "/in") == again
    assert clips.sort_out(new, "/in") is None
    assert clips.sort_out(row("a/x.wav"), "/in") is None  # in part in the data set
    assert (clips.known, clips.new, clips.retried) == (0, 1, {"bad.wav"})


def test_another_part_of_a_file_stays_in_its_split():
    clips = recorded(file_splits={"y.wav": "train"})
    assert clips.sort_out(row("y.wav", split="train"), "/in").problem is None
    problem = clips.sort_out(row("y.wav", split="test"), "/in").problem
    assert "in the split test" in problem
    assert "in train" in problem


@pytest.mark.parametrize("known", [1, 5, 6])
def test_known_clips_are_named_unless_they_are_skipped(known):
    names = [f"{k}.wav" for k in range(known)]
    clips = RecordedClips(names, np.array([WHOLE] * known))
    for name in [*names, "new.wav"]:
        clips.sort_out(row(name), "/in")
    clips.check(skip=True)
    more = ["1 more"] if known == 6 else []
    with raises(InputError, naming=[f"{known} of {known + 1}", *names[:5], *more]):
        clips.check(skip=False)


def test_an_empty_data_set_knows_nothing():
    clips = RecordedClips([], np.zeros((0, 8), np.int64))
    assert clips.sort_out(row("a"), "/in").recorded is None
    clips.check(skip=False)


def test_a_changed_header_is_told():
    error = changed_file("a.wav", Header(5, 8000, 1), Header(6, 16000, 2))
    for fact in ("a.wav", "5 frames at 8000 Hz in 1", "6 frames at 16000 Hz in 2"):
        assert fact in str(error)


def test_a_resampled_length_is_that_of_the_probe():
    total = output_frames(2853360, 48000, 44100)
    numbers = (2853360, 48000, 1, 44100, 0, total, -1, 0)
    clips = RecordedClips(["a.wav"], np.array([numbers]))
    assert clips.sort_out(row("a.wav"), "/in").recorded is not None
