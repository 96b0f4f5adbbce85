"""Windows that are placed by what a clip sounds like, or by events."""

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline import Metadata, open_records, plan, record, verify
from beam_pipeline.errors import InputError
from beam_pipeline.examples.windows import (
    PlacedWindows,
    WindowPlan,
    cover_passages,
    place_windows,
)
from beam_pipeline.inputs.event_files import Event
from beam_pipeline.read.window_table import window_table
from tests.raising import assert_names, raises
from tests.sounds import RATE, damage, write_samples, write_sound


@given(
    cuts=st.lists(st.integers(0, 60), max_size=8, unique=True),
    length=st.integers(1, 12),
    hop=st.integers(1, 12),
    tail=st.sampled_from(["drop", "pad", "overlap"]),
)
def test_windows_of_several_passages(cuts, length, hop, tail):
    cuts = sorted(cuts)[: len(cuts) // 2 * 2]
    passages = np.array(cuts, np.int64).reshape(-1, 2)
    wanted = set()
    for begin, end in passages.tolist():
        if end - begin < length:
            starts = [(begin + end) // 2 - length // 2]
        else:
            starts = list(range(begin, end - length + 1, hop))
            beyond = starts[-1] + hop
            if starts[-1] + length < end and tail == "overlap":
                starts += [min(beyond, end - length)] if beyond < end else []
            elif starts[-1] + length < end and tail == "pad":
                starts += list(range(beyond, end, hop))[:1]
        wanted |= {min(max(0, start), max(0, 60 - length)) for start in starts}
    found = cover_passages(passages, 60, WindowPlan(length, hop, tail))
    assert found.starts == tuple(sorted(wanted))


CALLS = {"a/one.wav": [8000, 20000, 21000, 60000], "b/two.wav": [40, 79500]}


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """Calls of 50 ms with a peak in their middle, in noise; and a silent clip."""
    folder = tmp_path_factory.mktemp("placed") / "sounds"
    call = 0.3 * np.hanning(400) * np.sin(np.arange(400))
    for number, (name, starts) in enumerate(CALLS.items()):
        clip = np.random.default_rng(number).normal(0, 1e-4, 80000)
        for start in starts:
            clip[start : start + 400] += call
        write_samples(folder / name, clip, RATE)
    write_samples(folder / "b/silent.wav", np.zeros(9000), RATE)
    return folder


PEAKS = {"win_len": 1000, "windows_at": "peaks(above_db=-30,min_gap_s=0.1)"}
SOUNDS = {
    "win_len": 400, "hop": 200, "tail": "overlap", "sample_rate": 4000,
    "windows_at": "sounds(above_db=-30,min_gap_s=0.2)", "elements_per_file": 4,
}  # fmt: skip


@pytest.mark.parametrize("options", [PEAKS, {**PEAKS, "copies": 1, "augment": "noise"}])
def test_windows_at_peaks(options, sounds, tmp_path):
    metadata = record(sounds, tmp_path / "out", **options)
    assert metadata.left_out == {"no_sound": 1}
    assert metadata.rejected == 0
    records = open_records(tmp_path / "out")
    for name, calls in CALLS.items():
        samples, _ = soundfile.read(sounds / name, dtype="float32")
        examples = [e for e in records.of_clip(name) if not e.get("copy")]
        wanted = [min(max(0, call + 200 - 500), 79000) for call in calls]
        starts = [int(example["win_start_idx"]) for example in examples]
        np.testing.assert_allclose(starts, wanted, atol=40)  # half a frame of 10 ms
        for example, start in zip(examples, starts, strict=True):
            window = samples[start : start + 1000]
            np.testing.assert_array_equal(example["signal"], window)
    assert verify(tmp_path / "out", deep=True, input=sounds) == []


def test_engines_of_beam_place_the_same(sounds, tmp_path):
    options = {**SOUNDS, "num_elems": 5, "stream": "clip_gain()"}
    here = record(sounds, tmp_path / "here", **options)
    there = record(
        sounds, tmp_path / "there", beam_args=["--runner=DirectRunner"], **options
    )
    assert here == there
    planned, _ = plan(sounds, **options)
    assert planned.layouts["records"].total == here.splits["records"].examples
    assert planned.left_out == here.left_out == {"no_sound": 1}
    assert verify(tmp_path / "there", deep=True, input=sounds) == []


def test_the_stream_decides_what_is_loud(sounds, tmp_path):
    louder, _ = plan(sounds, **{**PEAKS, "stream": "gain(gain_db=60)"})
    assert louder.layouts["records"].total > 6
    with raises(InputError, naming=["3 without sound", "windows_at"]):
        record(sounds, tmp_path / "out", **{**PEAKS, "stream": "gain(gain_db=-20)"})


@dataclass(frozen=True)
class Halves:
    """A placement of one's own: a passage for each half of a clip."""

    wrong: str = ""

    def passages(self, blocks, sample_rate_hz):
        frames = sum(block.shape[-1] for block in blocks)
        if self.wrong == "raises":
            raise ZeroDivisionError("a bug of one's own")
        if self.wrong == "exits":
            raise SystemExit
        end = frames + (self.wrong == "beyond")
        found = np.array([[0, frames // 2], [frames // 2, end]])
        if self.wrong == "backward":
            return found[:, ::-1]
        if self.wrong == "floats":
            return found.astype(np.float64)
        return found[:, 0] if self.wrong == "flat" else found


def test_a_placement_of_one_s_own(sounds, tmp_path):
    placement = "tests.runs.test_placed_windows.Halves()"
    metadata = record(
        sounds / "b", tmp_path / "out", win_len=4000, hop=1000, windows_at=placement
    )
    assert metadata.recipe.windows_at == placement.replace("()", "(wrong='')")
    assert len(open_records(tmp_path / "out").of_clip("silent.wav")) == 2
    assert verify(tmp_path / "out", deep=True, input=sounds / "b") == []
    for wrong in ("raises", "exits", "beyond", "backward", "flat", "floats"):
        _, rejects = plan(
            sounds / "b/silent.wav", win_len=4000, windows_at=Halves(wrong)
        )
        assert [reject.error for reject in rejects] == ["TransformError"]
        assert_names(rejects[0].reason, "windows_at: Halves")


def test_a_damaged_clip_is_rejected_by_the_plan(sounds, tmp_path):
    clip, _ = soundfile.read(sounds / "a/one.wav")
    write_samples(tmp_path / "cut.flac", clip, RATE)
    damage(tmp_path / "cut.flac", 0.5, 50)
    _, rejects = plan(tmp_path, **PEAKS)
    assert [reject.stage for reject in rejects] == ["probe"]


# At events: around the middle of each, or from its onset


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
def annotated(tmp_path_factory):
    folder = tmp_path_factory.mktemp("events") / "annotated"
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


def test_from_events_to_examples(annotated, tmp_path):
    options = {**OPTIONS, "copies": 2, "augment": "random_gain()"}
    metadata = record(annotated, tmp_path / "out", **options)
    assert metadata.left_out == {"no_event": 1}
    assert metadata.rejected == 0
    records = open_records(tmp_path / "out")
    for name in ("a/one.wav", "a/two.wav", "b/many.wav"):
        samples, _ = soundfile.read(annotated / name, dtype="float32")
        examples = [e for e in records.of_clip(name) if e["copy"] == 0]
        starts = [int(example["win_start_idx"]) for example in examples]
        assert starts == starts_of(name)
        for example, start in zip(examples, starts, strict=True):
            window = samples[start : start + 1000]
            np.testing.assert_array_equal(example["signal"], window)
    # Two events have their middle at 1.25 s: one window, with both classes.
    assert len(records.of_clip("a/one.wav")) == 2 * 3  # two windows, two copies each
    assert records.of_clip("a/one.wav")[3]["labels"].tolist() == [1, 1]
    assert verify(tmp_path / "out", deep=True, input=annotated) == []
    assert record(annotated, tmp_path / "out", **options) == metadata


def test_parts_of_a_file_share_its_events(annotated, tmp_path):
    table = "path,offset_s,duration_s\na/one.wav,0,1\na/one.wav,1,1\na/one.wav,2,1\n"
    (annotated / "parts.csv").write_text(table)
    metadata = record(annotated / "parts.csv", tmp_path / "out", **OPTIONS)
    assert metadata.left_out == {"no_event": 1}
    found = window_table(tmp_path / "out")
    assert sorted(found["start_s"].to_pylist()) == [0.0875, 1.1875]
    (annotated / "parts.csv").unlink()


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


def test_no_clip_has_an_event(tmp_path):
    write_sound(tmp_path / "in/a/quiet.wav", 4000)
    (tmp_path / "in/a/quiet.txt").write_text("")
    with raises(InputError, naming=["1 without event", "--events", "--windows-at"]):
        record(tmp_path / "in", tmp_path / "out", **OPTIONS)
