"""Windows that are placed by events: around the middle of each, or from its onset."""

from itertools import pairwise

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline import Metadata, open_records, plan, record, verify
from beam_pipeline.cli.main import main
from beam_pipeline.errors import InputError
from beam_pipeline.examples.windows import PlacedWindows, place_windows
from beam_pipeline.inputs.event_files import Event
from beam_pipeline.read.window_table import window_table
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_sound


@pytest.mark.parametrize(
    ("event", "at", "start"),
    [
        ((10, 20), "events", 13),  # the middle, 15, and two frames before it
        ((10, 20), "onsets", 10),
        ((0, 0), "events", 0),  # it would begin at -2
        ((3, 4), "events", 2),  # the middle is 3.5, which is rounded up
        ((37, 40), "events", 36),
        ((39, 40), "onsets", 36),  # it would end after the clip
        ((38, 1000), "events", 36),  # what is after the end of the file does not count
        ((40.004, 41), "onsets", 36),  # seconds in tables are rounded
    ],
)
def test_one_window_for_each_event(event, at, start):
    """Windows of 4 frames in a clip of 40, at one frame a second."""
    found = place_windows([Event(*event, "owl")], at, 4, (0, 40), 40, 1)
    assert found == PlacedWindows(0, (start,))


@given(
    events=st.lists(st.tuples(st.integers(0, 99), st.integers(0, 30)), max_size=6),
    cuts=st.lists(st.integers(1, 99), max_size=3, unique=True),
    length=st.integers(1, 40),
    at=st.sampled_from(["events", "onsets"]),
)
def test_each_event_is_in_one_part(events, cuts, length, at):
    """A file of 100 frames at 1 Hz, whole and in parts."""
    some = [Event(start, min(start + long, 100), "x") for start, long in events]
    bounds = [0, *sorted(cuts), 100]
    anchors = {
        e.start_s if at == "onsets" else int((e.start_s + e.end_s) / 2 + 0.5)
        for e in some
    }
    for part in pairwise(bounds):
        first, stop = part
        wanted = set()
        for anchor in anchors:
            anchor = min(anchor, 99)
            if first <= anchor < stop:
                start = anchor - (length // 2 if at == "events" else 0)
                start = min(start, stop - length)
                wanted.add(max(start, first) - first)
        found = place_windows(some, at, length, part, 100, 1)
        assert found.starts == tuple(sorted(wanted))


def test_a_segment_has_its_windows_alone():
    placed = PlacedWindows(0, (3, 5, 9, 12))
    some = placed.narrowed(1, 2)
    assert some == PlacedWindows(1, (5, 9))
    assert some.of(2, 1).tolist() == [9] == placed.of(2, 1).tolist()


EVENTS = {
    "a/one.wav": [(0.1, 0.2, "owl"), (1.0, 1.5, "tit"), (1.1, 1.4, "owl")],
    "a/two.wav": [(0.5, 0.6, "tit"), (2.99, 3.0, "owl")],
    "b/none.wav": [],
    "b/many.wav": [(k / 10, k / 10 + 0.05, "owl") for k in range(30)],
}
OPTIONS = {
    "win_len": 1000, "windows_at": "events", "events": "{folder}/{stem}.txt",
    "event_targets": "class,multi_hot", "elements_per_file": 7, "num_shards": None,
}  # fmt: skip


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events") / "sounds"
    for number, (name, events) in enumerate(EVENTS.items()):
        path = folder / name
        write_sound(path, 3 * RATE, seed=number)
        lines = [f"{start}\t{end}\t{label}\n" for start, end, label in events]
        path.with_suffix(".txt").write_text("".join(lines))
    return folder


def starts_of(name):
    """The windows around the middles of the events of a clip, moved into it."""
    middles = [int((a + b) / 2 * RATE + 0.5) for a, b, _ in EVENTS[name]]
    return sorted({min(max(0, m - 500), 3 * RATE - 1000) for m in middles})


def test_from_events_to_examples(sounds, tmp_path):
    options = {**OPTIONS, "copies": 2, "augment": "random_gain()"}
    metadata = record(sounds, tmp_path / "out", **options)
    assert metadata.left_out == {"no_event": 1}
    assert metadata.rejected == 0
    records = open_records(tmp_path / "out")
    for name in ("a/one.wav", "a/two.wav", "b/many.wav"):
        samples, _ = soundfile.read(sounds / name, dtype="float32")
        examples = [e for e in records.of_clip(name) if e["copy"] == 0]
        starts = [int(example["win_start_idx"]) for example in examples]
        assert starts == starts_of(name)
        for example, start in zip(examples, starts, strict=True):
            window = samples[start : start + 1000]
            np.testing.assert_array_equal(example["signal"], window)
    # Two events have their middle at 1.25 s: one window, with both classes.
    assert len(records.of_clip("a/one.wav")) == 2 * 3  # two windows, two copies each
    assert records.of_clip("a/one.wav")[3]["labels"].tolist() == [1, 1]
    assert verify(tmp_path / "out", deep=True, input=sounds) == []
    assert record(sounds, tmp_path / "out", **options) == metadata


def test_parts_of_a_file_share_its_events(sounds, tmp_path):
    table = "path,offset_s,duration_s\na/one.wav,0,1\na/one.wav,1,1\na/one.wav,2,1\n"
    (sounds / "parts.csv").write_text(table)
    metadata = record(sounds / "parts.csv", tmp_path / "out", **OPTIONS)
    assert metadata.left_out == {"no_event": 1}
    found = window_table(tmp_path / "out")
    assert sorted(found["start_s"].to_pylist()) == [0.0875, 1.1875]
    (sounds / "parts.csv").unlink()


def test_short_clips_follow_their_own_rule(tmp_path):
    write_sound(tmp_path / "in/a/short.wav", 400)
    (tmp_path / "in/a/short.txt").write_text("0.01\t0.02\towl\n")
    _, rejects = plan(tmp_path / "in", short_clips="reject", **OPTIONS)
    assert [reject.error for reject in rejects] == ["ShortClip"]
    record(tmp_path / "in", tmp_path / "out", short_clips="pad", **OPTIONS)
    (example,) = open_records(tmp_path / "out")
    assert example["win_start_idx"] == 0
    assert not example["signal"][400:].any()
    assert Metadata.load(tmp_path / "out").recipe.windows_at == "events"


def test_no_clip_has_an_event(tmp_path, capsys):
    write_sound(tmp_path / "in/a/quiet.wav", 4000)
    (tmp_path / "in/a/quiet.txt").write_text("")
    with raises(InputError, naming=["1 without event", "--events"]):
        record(tmp_path / "in", tmp_path / "out", **OPTIONS)
    flags = ["--win-len", "1000", "--windows-at", "events", "--events"]
    status = main(
        ["plan", "--input", str(tmp_path / "in"), *flags, "{folder}/{stem}.txt"]
    )
    assert status == 2
    assert_names(capsys.readouterr().err, "1 without event", "--events", "--windows-at")
