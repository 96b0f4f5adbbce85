"""Events: label files, and the targets of windows, compared with slow loops."""

import json
from collections import Counter
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import record
from beam_pipeline.api import plan
from beam_pipeline.cli.reports import describe_plan
from beam_pipeline.errors import InputError, RecipeError, TooManyRejected
from beam_pipeline.examples.event_targets import EventRule, TimedWindows
from beam_pipeline.inputs.event_files import Event, read_events
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.shards import Segment, narrow_events
from beam_pipeline.read.replay import replay
from beam_pipeline.read.verify import find_problems
from beam_pipeline.recipe.recipe import Recipe
from tests.raising import assert_names, raises
from tests.sounds import write_sound

RAVEN = (
    "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tSpecies\n"
    "1\tWaveform 1\t1\t0.5\t1.25\t100\twren\n"
    "1\tSpectrogram 1\t1\t0.5\t1.25\t100\twren\n"
    "2\tSpectrogram 1\t1\t2.0\t2.5\t100\towl\n"
)
AUDACITY = "0.500000\t1.250000\twren\n\\\t100.0\t2000.0\n2.0\t2.5\towl\n"
EXPECTED = [Event(0.5, 1.25, "wren"), Event(2.0, 2.5, "owl")]


@pytest.mark.parametrize(("name", "text"), [
    ("a.txt", AUDACITY), ("a.txt", AUDACITY.replace("\n", "\r\n")),
    ("a.selections.txt", RAVEN),
    ("a.csv", "start_s,end_s,label\n2,2.5,owl\n0.5,1.25,wren\n"),
    ("a.csv", "\ufeffonset;offset;event_label\n0.5;1.25;wren\n2;2.5;owl\n"),
    ("a.csv", 'start,end,label\n0.5,1.25,"wren"\n2,2.5,owl\n'),
    ("a.json", json.dumps([e._asdict() for e in EXPECTED])),
    ("a.json", json.dumps({"events": [e._asdict() for e in EXPECTED]})),
    ("a.jsonl", "".join(json.dumps(e._asdict()) + "\n" for e in EXPECTED)),
])  # fmt: skip
def test_formats(name, text):
    assert read_events(text.encode(), name) == {None: EXPECTED}


@pytest.mark.parametrize("header", ["", "Begin Time (s)\tEnd Time (s)\tSpecies\n"])
def test_quotes_are_a_part_of_labels_of_programs_that_do_not_quote(header):
    """A quote that is never closed must not swallow the lines after it."""
    lines = '0\t1\t"owl, barn, of a, b, or c\n2\t3\t5" gun\n4\t5\t"tit"\n'
    found = read_events((header + lines).encode(), "a.txt")
    labels = [event.label for event in found[None]]
    assert labels == ['"owl, barn, of a, b, or c', '5" gun', '"tit"']


def test_text_in_quotes_may_have_several_lines():
    text = 'note,start,end,label\n"one\ntwo",0,1,owl\n\n,2,x,"tit"\n'
    with raises(InputError, naming=["a.csv", "5", "x"]):
        read_events(text.encode(), "a.csv")
    found = read_events(text.replace("x", "3").encode(), "a.csv")
    assert found == {None: [Event(0, 1, "owl"), Event(2, 3, "tit")]}


def test_a_table_of_several_files():
    text = "filename,start,end,label\nb.wav,1,2,x\na.wav,0,1,y\nb.wav,0,1,z\n"
    assert read_events(text.encode(), "t.csv") == {
        "b.wav": [Event(0, 1, "z"), Event(1, 2, "x")],
        "a.wav": [Event(0, 1, "y")],
    }


def test_the_label_column_may_be_named():
    text = "start,end,label,species\n0,1,call,owl\n"
    assert read_events(text.encode(), "t.csv", "Species") == {
        None: [Event(0, 1, "owl")]
    }


@pytest.mark.parametrize("text", ["", "\n\n", "start,end,label\n"])
def test_no_events(text):
    assert read_events(text.encode(), "a.csv") == {}


@pytest.mark.parametrize(("name", "text", "facts"), [
    ("a.txt", "1\t0.5\towl\n", ["a.txt", "1", "0.5"]),
    ("a.txt", "0\tx\towl\n", ["1", "x"]),
    ("a.txt", "0\t1\towl\n-1\t2\towl\n", ["2", "-1"]),
    ("a.txt", "0\tinf\towl\n", "inf"),
    ("a.txt", "0\t1\t \n", ["a.txt", "line 1"]),
    ("a.txt", "0\t1\n", ["a.txt", "line 1"]),
    ("a.csv", "start,label\n1,owl\n", ["a.csv", "line 2", "end"]),
    ("a.csv", "start,end\n1,2\n", ["a.csv", "line 2", "label", "start, end"]),
    ("a.csv", 'start,end,label\n0,1,"owl\n2,3,tit\n', ["a.csv", "2"]),
    ("a.csv", 'start,end,label\n0,1,owl\n\n0,1,"owl\n2,3,"tit"\n', ["4", '"']),
    ("a.tsv", '0\t1\towl\n0\t1\t"tit\n', ["a.tsv", "2"]),
    ("a.csv", 'label,start,end\n"owl\n2,3,",0,1\n',
     ["a.csv", "line 2", r"'owl\n2,3,'"]),
    ("a.csv", "path,start,end,label\na.wav,0,1,owl\na.wav,0,1,owl, barn\n",
     ["a.csv", "3", "5", "4"]),
    ("a.csv", "start,end,label,by\n0,1,owl\n", ["2", "3", "4"]),
    ("a.csv", "0,1,owl, barn\n", ["1", "4", "3"]),
    ("a.txt", "0\t1\towl\tbarn\n", ["1", "4", "3"]),
    ("a.json", "{", "a.json"),
    ("a.json", "3", "a.json"),
    ("a.jsonl", "[1]\n", ["a.jsonl", "1"]),
    ("a.json", '[{"start": null, "end": 1, "label": "x"}]',
     ["a.json", "start", "start, end, label"])])  # fmt: skip
def test_errors_name_the_file_and_the_fault(name, text, facts):
    with raises(InputError, naming=facts):
        read_events(text.encode(), name)


def test_files_that_are_not_text():
    with raises(InputError, naming=["a.txt", "UTF-8"]):
        read_events(b"\xff\xfe\x00", "a.txt")


# Windows

CLASSES = {"owl": 0, "tit": 1, "wren": 2}
# Quarters are exact in binary, so the slow loops compare the same numbers.
times = st.integers(0, 40).map(lambda n: n / 4)
labels = st.sampled_from(sorted(CLASSES))
lives = st.tuples(times, times, labels).map(
    lambda e: Event(min(e[:2]), max(e[:2]), e[2])
)
# Events of one class often overlap, or are equal.
crowded = st.builds(
    lambda some, label: [event._replace(label=label) for event in some],
    st.lists(lives, min_size=2, max_size=4),
    labels,
)
events = st.one_of(
    st.lists(lives, max_size=6),
    st.builds(lambda a, b: a + b, crowded, st.lists(lives, max_size=3)),
    st.builds(lambda a, b: a + b + a[:1], crowded, crowded),
)
starts = st.lists(times, min_size=1, max_size=5).map(lambda s: np.array(sorted(s)))


def slow_counts(event, start, length, share):
    if event.start_s == event.end_s:
        return start <= event.start_s < start + length
    shared = min(event.end_s, start + length) - max(event.start_s, start)
    return shared > 0 and shared >= share * min(event.end_s - event.start_s, length)


def slow_union(events, start, end):
    """Seconds of a window with at least one of the events."""
    edges = {min(max(t, start), end) for event in events for t in event[:2]}
    cuts = sorted({start, end, *edges})
    return sum(
        b - a
        for a, b in pairwise(cuts)
        if any(event.start_s <= a and b <= event.end_s for event in events)
    )


@given(events, starts, st.sampled_from([0.25, 1.0, 3.5]), st.sampled_from([0, 0.5, 1]))
@settings(deadline=None, max_examples=300)
def test_windows_against_slow_loops(some, at, length, share):
    windows, rule = TimedWindows(tuple(some), at, length), EventRule((*CLASSES,), share)
    counted, hot = windows.counted(share), rule.found(windows)
    best = rule.main_class(windows)
    assert counted.shape == (len(at), len(some))
    assert hot.dtype == np.bool_
    for i, start in enumerate(at):
        held = {}
        for k, event in enumerate(some):
            expected = slow_counts(event, start, length, share)
            assert counted[i, k] == expected
            if expected:
                held.setdefault(event.label, []).append(event)
        seconds = {c: slow_union(held[c], start, start + length) for c in held}
        assert [bool(h) for h in hot[i]] == [c in seconds for c in CLASSES]
        longest = max(seconds.values(), default=None)
        expected = next((c for c in CLASSES if seconds.get(c) == longest), None)
        assert best[i] == (CLASSES[expected] if seconds else -1)


@given(events, starts, st.integers(1, 8), st.sampled_from([0.25, 0.5]))
@settings(deadline=None, max_examples=300)
def test_masks_against_slow_loops(some, at, frames, step):
    centres = step / 2 + step * np.arange(frames)
    windows = TimedWindows(tuple(some), at, 1.0)
    mask = EventRule((*CLASSES,)).frame_mask(windows, centres)
    assert mask.shape == (len(at), frames, len(CLASSES))
    for i, start in enumerate(at):
        for t, centre in enumerate(centres):
            expected = {e.label for e in some if e.start_s <= start + centre < e.end_s}
            assert {c for c in CLASSES if mask[i, t, CLASSES[c]]} == expected


# Whole runs, from audio files and event files to the examples of replay

WIN_LEN, HOP = 2000, 1500
LOG_MEL = "log_mel(n_fft=512,hop=128,n_mels=8)"
LIVES = {
    "a/x.wav": [
        Event(0.1, 0.5, "wren"),
        Event(0.3, 1.4, "owl"),
        Event(2.0, 2.0, "tit"),
    ],
    "a/y.wav": [],
    "b/z.wav": [Event(0.0, 9.0, "tit"), Event(1.31, 1.33, "wren")],
}


@pytest.fixture
def sounds(tmp_path):
    for number, name in enumerate(LIVES):
        write_sound(tmp_path / "in" / name, 20000 + 3000 * number, seed=number)
    return tmp_path / "in"


def write_audacity(folder):
    """A label file beside each sound; some labels have a line of frequencies."""
    for name, some in LIVES.items():
        lines = [f"{e.start_s}\t{e.end_s}\t{e.label}\n\\\t10\t20\n" for e in some]
        (folder / name).with_suffix(".txt").write_text("".join(lines))
    return {"events": "{folder}/{stem}.txt"}


def write_raven(folder):
    """One selection table for all files, two rows for each selection."""
    rows = ["Selection\tView\tBegin Time (s)\tEnd Time (s)\tBegin File\tSpecies\n"]
    for name, some in LIVES.items():
        for n, e in enumerate(some):
            rows += [
                f"{n}\t{view} 1\t{e.start_s}\t{e.end_s}\t{Path(name).name}\t{e.label}\n"
                for view in ("Waveform", "Spectrogram")
            ]
    (folder.parent / "all.selections.txt").write_text("".join(rows))
    return {
        "events": str(folder.parent / "all.selections.txt"), "event_column": "species"
    }  # fmt: skip


def slow_labels(events, start_s, length_s, share, classes):
    """Which labels are in a window, and for how long."""
    held = {}
    for event in events:
        if slow_counts(event, start_s, length_s, share):
            held.setdefault(event.label, []).append(event)
    return [
        slow_union(held[label], start_s, start_s + length_s) if label in held else None
        for label in classes
    ]


@pytest.mark.runs
@pytest.mark.parametrize("write", [write_audacity, write_raven])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"event_overlap": 0.5, "tail": "overlap", "order": "listed"},
        {"random_starts": True, "max_windows": 4, "num_shards": 3,
         "encodings": {"m": "tensor", "s": "raw"}},
        {"copies": 2, "augment": "noise()", "sample_rate": 4000},
    ],
)  # fmt: skip
def test_runs_against_slow_loops(sounds, tmp_path, write, options):
    metadata = record(
        sounds, tmp_path / "out", win_len=WIN_LEN, hop=HOP,
        features={"m": LOG_MEL, "s": "identity()"},
        event_targets="class,multi_hot,mask:m", **write(sounds), **options,
    )  # fmt: skip
    classes = ("owl", "tit", "wren")
    assert metadata.classes == classes
    time, axis = metadata.features["m_mask"].axes
    assert axis["labels"] == list(classes)
    counts = Counter()
    some = list(replay(str(tmp_path / "out")).as_numpy_iterator())
    assert len(some) > 10
    for example in some:
        events, rate = LIVES[example["filepath"].decode()], example["fs"]
        start_s, length_s = example["win_start_idx"] / rate, WIN_LEN / rate
        share = options.get("event_overlap", 0)
        seconds = slow_labels(events, start_s, length_s, share, classes)
        hot = [int(s is not None) for s in seconds]
        assert example["labels"].tolist() == hot
        counts.update(label for label, h in zip(classes, hot, strict=True) if h)
        longest = max((s for s in seconds if s is not None), default=None)
        target = -1 if longest is None else seconds.index(longest)
        assert example["target"] == target
        assert example["class"].decode() == ("" if target < 0 else classes[target])
        mask = example["m_mask"]
        assert (mask.dtype, mask.shape) == (np.uint8, (len(example["m"]), 3))
        for t, frame in enumerate(mask):
            centre = start_s + (time["start"] + time["step"] * t + time["length"] / 2)
            held = {e.label for e in events if e.start_s <= centre < e.end_s}
            assert [c for c, m in zip(classes, frame, strict=True) if m] == sorted(held)
    assert metadata.splits["records"].examples_per_class == dict(counts)
    assert list(find_problems(str(tmp_path / "out"), metadata)) == []


@pytest.mark.runs
@pytest.mark.parametrize("transform", ["cqt(n_bins=12)", "chroma(n_octaves=2)"])
def test_masks_of_frames_without_a_length(sounds, tmp_path, transform):
    metadata = record(
        sounds, tmp_path / "out", win_len=WIN_LEN, features={"q": transform},
        event_targets="mask:q", **write_audacity(sounds),
    )  # fmt: skip
    time, _ = metadata.features["q_mask"].axes
    found = 0
    for example in replay(str(tmp_path / "out")).as_numpy_iterator():
        events, rate = LIVES[example["filepath"].decode()], example["fs"]
        assert len(example["q"]) == len(example["q_mask"])
        for t, frame in enumerate(example["q_mask"]):
            middle = example["win_start_idx"] / rate + time["step"] * t
            held = {e.label for e in events if e.start_s <= middle < e.end_s}
            assert [c for c, m in zip(metadata.classes, frame, strict=True) if m] == (
                sorted(held)
            )
            found += len(held)
    assert found


def test_files_of_one_name_in_two_folders_elsewhere(sounds, tmp_path):
    table = tmp_path / "events.csv"
    table.write_text(
        "path,start,end,label\n/old/2024/x.wav,0,1,owl\n/old/2025/x.wav,0,1,tit\n"
    )
    _, rejects = plan(sounds, win_len=2000, events=str(table), classes="owl,tit")
    assert {(r.filepath, "not among the inputs" in r.reason) for r in rejects} == {
        ("/old/2024/x.wav", True), ("/old/2025/x.wav", True)
    }  # fmt: skip


@pytest.mark.runs
def test_parts_of_files_have_the_events_of_their_time(sounds, tmp_path):
    table = "path,offset_s,duration_s\na/x.wav,0,1\na/x.wav,1,1\na/x.wav,0.25,0.5\n"
    (sounds / "parts.csv").write_text(table)
    record(
        sounds / "parts.csv", tmp_path / "out", win_len=2000,
        **write_audacity(sounds),
    )  # fmt: skip
    found = {}
    for example in replay(str(tmp_path / "out")).as_numpy_iterator():
        at = (int(example["index"]), int(example["win_start_idx"]))
        found[at] = example["labels"].tolist()
    # At 8 kHz windows last 0.25 s; the third part begins where the second window does.
    owl, tit, wren = [1, 0, 0], [0, 1, 0], [0, 0, 1]
    both = [1, 0, 1]
    assert found == {
        (0, 0): wren, (0, 2000): both, (0, 4000): owl, (0, 6000): owl,
        (1, 0): owl, (1, 2000): owl, (1, 4000): [0, 0, 0], (1, 6000): [0, 0, 0],
        (2, 0): both, (2, 2000): owl,
    }  # fmt: skip
    assert tit not in found.values()


@pytest.mark.runs
@pytest.mark.parametrize(("no_event", "classes"), [
    ("keep", ("owl", "tit", "wren")), ("drop", ("owl", "tit", "wren")),
    ("quiet", ("owl", "quiet", "tit", "wren")),
])  # fmt: skip
def test_windows_without_an_event(sounds, tmp_path, no_event, classes):
    options = {"win_len": 2000, "event_targets": "class,multi_hot"}
    metadata = record(
        sounds, tmp_path / "out", no_event=no_event, **options, **write_raven(sounds)
    )
    assert metadata.classes == classes
    (split,) = metadata.splits.values()
    found = list(replay(str(tmp_path / "out")).as_numpy_iterator())
    names = Counter(example["class"].decode() for example in found)
    sums = [int(example["labels"].sum()) for example in found]
    assert split.examples == len(found)
    assert split.examples + split.left_out == 10 + 11 + 13
    assert (split.left_out > 0) == (no_event == "drop")
    if no_event == "keep":
        assert names[""] == sums.count(0) > 10
        assert {e["target"] for e in found if e["class"] == b""} == {-1}
    elif no_event == "drop":
        assert names[""] == sums.count(0) == 0
    else:
        assert names[""] == sums.count(0) == 0
        assert names["quiet"] > 10
        assert split.examples_per_class["quiet"] == names["quiet"]
    total = split.seconds_per_class["tit"]
    assert total == pytest.approx(split.examples_per_class["tit"] * 0.25)


def rejected(folder):
    lines = (folder / "rejected.jsonl").read_text().splitlines()
    return {row["path"]: row["reason"] for row in map(json.loads, lines)}


@pytest.mark.runs
def test_a_clip_without_its_file_of_events_is_named(sounds, tmp_path):
    options = write_audacity(sounds)
    (sounds / "a" / "x.txt").unlink()
    (sounds / "b" / "z.txt").write_text("1\tend\towl\n")
    with pytest.raises(TooManyRejected):
        record(sounds, tmp_path / "out", win_len=2000, no_event="quiet", **options)
    reasons = rejected(tmp_path / "out")
    assert_names(reasons["a/x.wav"], "a/x.txt")
    assert_names(reasons["b/z.wav"], "z.txt", "line 1", "'end'")
    # An empty file has no events, so there is no class at all.
    with raises(InputError, naming="--no-event"):
        record(sounds, tmp_path / "o", win_len=2000, max_rejected=2, **options)
    metadata = record(
        sounds, tmp_path / "out", win_len=2000, max_rejected=2, **options,
        overwrite=True, no_event="quiet",
    )  # fmt: skip
    assert metadata.splits["records"].examples_per_class == {"quiet": 11}


@pytest.mark.runs
def test_a_name_in_the_table_that_is_no_clip_is_named(sounds, tmp_path):
    table = tmp_path / "events.csv"
    table.write_text("file,start,end,label\nx.wav,0,1,owl\ngone.wav,0,1,owl\n")
    options = {"win_len": 2000, "events": str(table)}
    with raises(TooManyRejected, naming=["gone.wav", "events.csv"]):
        record(sounds, tmp_path / "out", **options)
    write_sound(sounds / "b" / "x.wav", 4000)
    table.write_text("file,start,end,label\nx.wav,0,1,owl\n")
    with raises(InputError, naming=["x.wav", "/b/x.wav"]):
        record(sounds, tmp_path / "two", **options)
    table.write_text("file,start,end,label\nx.wav,0,1,owl\nz.wav,0,1,owl\n")
    with raises(TooManyRejected, naming=["2", "4"]):
        record(sounds, tmp_path / "both", **options, max_rejected=1)
    reasons = rejected(tmp_path / "both")
    assert sorted(reasons) == ["a/x.wav", "b/x.wav"]
    assert_names(reasons["a/x.wav"], f"{sounds}/b/x.wav")
    assert_names(reasons["b/x.wav"], f"{sounds}/a/x.wav")
    table.write_text("file,start,end,label\na/x.wav,0,1,owl\nb\\x.wav,0,1,tit\n")
    metadata = record(sounds, tmp_path / "three", **options)
    assert metadata.classes == ("owl", "tit")


@pytest.mark.runs
def test_names_that_match_no_clip_are_shown(sounds, tmp_path):
    table = tmp_path / "events.csv"
    table.write_text("file,start,end,label\nin/a/x.wav,0,1,owl\nin/b,0,1,owl\n")
    options = {"win_len": 2000, "events": str(table)}
    with raises(InputError, naming=[table, "in/a/x.wav", "a/x.wav", "--events"]):
        record(sounds, tmp_path / "out", **options)
    table.write_text("file,start,end,label\n")
    with raises(InputError, naming=[table, "--events"]):
        record(sounds, tmp_path / "out", **options)


@pytest.mark.runs
def test_changed_events_are_not_mixed_with_earlier_ones(sounds, tmp_path):
    """A run that continues writes shards again if their events have changed."""
    options = write_audacity(sounds) | {"win_len": 2000, "num_shards": 2}
    (sounds / "b" / "z.txt").unlink()
    with pytest.raises(TooManyRejected):
        record(sounds, tmp_path / "out", **options)
    write_audacity(sounds)
    (sounds / "a" / "x.txt").write_text("0\t1\ttit\n")
    metadata = record(sounds, tmp_path / "out", **options)
    again = record(sounds, tmp_path / "again", **options)
    assert metadata == again


@pytest.mark.runs
@pytest.mark.parametrize(("options", "facts"), [
    ({"event_overlap": 0.5}, ["event_overlap", "--events"]),
    ({"no_event": "drop"}, ["no_event", "--events"]),
    ({"events": "{stem}.{suffix}"}, ["events", "{folder}", "{stem}", "{name}"]),
    ({"events": "a.csv", "event_overlap": 2}, ["event_overlap", "2"]),
    ({"events": "a.csv", "event_targets": "hot"}, ["event_targets", "'hot'"]),
    ({"events": "a.csv", "event_targets": "mask:x"}, ["event_targets", "mask:x"]),
    ({"events": "a.csv", "label_separator": ";"}, ["label_separator", "--events"]),
    ({"events": "a.csv", "event_targets": "mask:m", "copies": 1,
      "augment": "noise()|speed()"}, ["event_targets", "Speed"]),
    ({"events": "a.csv", "event_targets": "mask:m", "copies": 1,
      "augment": "tests.transform_checks.Slower()"}, ["event_targets", "Slower"]),
    ({"events": "a.csv", "no_event": "none", "classes": "tit,owl"},
     ["classes", "none", "--no-event", "tit", "owl"]),
    ({"events": "gone.csv"}, ["gone.csv", "--events"]),
    ({"events": "{stem}.txt", "event_targets": "mask:s"}, ["event_targets", "mask:s"]),
])  # fmt: skip
def test_options_that_are_refused(sounds, tmp_path, options, facts):
    write_audacity(sounds)
    for name in LIVES:
        text = (sounds / name).with_suffix(".txt").read_text()
        (sounds / Path(name).name).with_suffix(".txt").write_text(text)
    features = {"m": LOG_MEL, "s": "identity()"}
    with raises((RecipeError, InputError), naming=facts):
        record(sounds, tmp_path / "out", win_len=2000, features=features, **options)


@pytest.mark.runs
def test_what_moves_time_is_known_by_the_step_not_by_a_word(sounds, tmp_path):
    """The sounds of a folder that has the name of a step stay where they are."""
    options = write_raven(sounds) | {"win_len": 2000, "event_targets": "mask:m"}
    write_sound(tmp_path / "speed" / "hum.wav", 500)
    metadata = record(
        sounds,
        tmp_path / "out",
        features={"m": LOG_MEL},
        copies=1,
        augment=f"background(folder='{tmp_path / 'speed'}')",
        **options,
    )
    assert "m_mask" in metadata.features


@pytest.mark.runs
def test_a_class_that_is_not_in_the_given_list(sounds, tmp_path):
    options = write_raven(sounds) | {"win_len": 2000, "classes": "owl,tit"}
    with raises(TooManyRejected, naming=["wren", "0.1"]):
        record(sounds, tmp_path / "out", **options)
    metadata = record(
        sounds, tmp_path / "ok", **options | {"classes": "wren, owl,tit,crow"}
    )
    assert metadata.classes == ("wren", "owl", "tit", "crow")
    assert metadata.splits["records"].examples_per_class["crow"] == 0


@pytest.mark.runs
def test_a_column_cannot_give_the_class_beside_events(sounds, tmp_path):
    (sounds / "clips.csv").write_text("path,species\na/x.wav,owl\n")
    options = {"win_len": 2000, **write_audacity(sounds)}

    for function in (plan, partial(record, output=tmp_path / "out")):
        with raises(RecipeError, "label_from", "species", naming="--events"):
            function(sounds / "clips.csv", label_from="species", **options)
    metadata = record(sounds / "clips.csv", tmp_path / "out", **options)
    assert metadata.features["species"].dtype == "string"


@pytest.mark.runs
@pytest.mark.parametrize("options", [
    {"event_overlap": 0.5},
    {"num_elems": 25, "tail": "overlap", "event_targets": "class"},
    {"splits": "train=1,test=1", "copies": 2, "augment": "noise()"},
])  # fmt: skip
def test_the_plan_counts_no_windows_that_are_dropped(sounds, tmp_path, options):
    options = {"win_len": 2000, "no_event": "drop", **write_raven(sounds), **options}
    metadata = record(sounds, tmp_path / "out", **options)
    assert sum(split.left_out for split in metadata.splits.values()) > 5
    summary, _ = plan(sounds, **options)
    for name, split in metadata.splits.items():
        examples, seconds = summary.kept(name)
        assert (examples, seconds) == (split.examples, pytest.approx(split.seconds))
    said = describe_plan(summary, [], metadata.recipe)
    assert "at most" not in said
    rows = [line.split() for line in said.splitlines()[1 : 1 + len(metadata.splits)]]
    shown = {name: int(examples) for name, examples, *_ in rows}
    assert shown == {name: split.examples for name, split in metadata.splits.items()}


@pytest.mark.runs
def test_windows_that_are_all_dropped(sounds, tmp_path):
    table = tmp_path / "events.csv"
    table.write_text("file,start,end,label\nx.wav,2.4,2.45,owl\n")
    options = {"win_len": 2000, "no_event": "drop", "max_windows": 1}
    with raises(InputError, naming="3"):
        record(sounds, tmp_path / "out", events=str(table), **options)


def test_selections_make_the_plan_an_upper_bound(sounds):
    options = {"win_len": 2000, "no_event": "drop", **write_raven(sounds)}
    summary, _ = plan(sounds, keep="energy(above_db=-50)", **options)
    said = describe_plan(summary, [], Recipe(win_len=2000)).splitlines()
    times = "seconds of audio, at most  seconds of examples, at most"
    assert f"examples, at most  clips  {times}  shards" in said[0]
    assert any("/ clips / seconds of examples, at most" in line for line in said)


@given(events, starts, st.sampled_from([0.25, 1.0, 3.5]), st.sampled_from([0, 0.5, 1]))
@settings(deadline=None)
def test_events_that_are_not_near_change_nothing(some, at, length, share):
    windows, rule = TimedWindows(tuple(some), at, length), EventRule((*CLASSES,), share)
    mask = partial(rule.frame_mask, centres_s=np.linspace(0, length, 5))
    for function in (rule.found, rule.main_class, mask):
        np.testing.assert_array_equal(function(windows.near()), function(windows))
    assert TimedWindows(tuple(some), at[:0], length).near().events == ()


@pytest.mark.runs
def test_a_shard_holds_only_the_events_of_its_windows(tmp_path):
    write_sound(tmp_path / "in" / "day.wav", 100 * 8000)
    calls = [f"{k + 0.25}\t{k + 0.5}\tcall\n" for k in range(100)]
    (tmp_path / "in" / "day.txt").write_text("".join(calls))
    options = {
        "win_seconds": 1.0, "num_shards": 10, "events": "{stem}.txt", "no_event": "none"
    }  # fmt: skip
    metadata = record(tmp_path / "in", tmp_path / "out", **options)
    assert metadata.splits["records"].examples_per_class == {"call": 100, "none": 0}
    recipe = Recipe(**options)
    events = tuple(Event(k + 0.25, k + 0.5, "call") for k in range(100))
    clip = Clip(
        0, 0, "day.wav", None, "records", 800_000, 8000, 1, "WAV", "PCM_16", 8000,
        800_000, 100, events=events,
    )  # fmt: skip
    narrowed = narrow_events(Segment(clip, 20, 10, 0), recipe)
    assert narrowed.clip.events == events[20:30]
    assert narrowed._replace(clip=clip) == Segment(clip, 20, 10, 0)


@pytest.mark.runs
def test_events_beyond_the_end_of_a_file_are_errors(sounds, tmp_path):
    options = write_audacity(sounds)
    (sounds / "a" / "y.txt").write_text("0\t1\towl\n12\t13\ttit\n")
    with raises(TooManyRejected, naming=["tit", "12"]):
        record(sounds, tmp_path / "out", win_len=2000, **options)


@pytest.mark.parametrize("text", ["garbage\n", "1.0 2.0 tit\n"])
def test_a_single_line_that_is_no_header(text):
    with raises(InputError, naming="line 1"):
        read_events(text.encode(), "b.lab")


def test_times_of_several_files_that_run_on():
    text = (
        "Begin Time (s)\tEnd Time (s)\tBegin File\tFile Offset (s)\tSpecies\n"
        "1\t1.5\ta.wav\t1\towl\n11.25\t12\tb.wav\t1.25\ttit\n"
    )
    assert read_events(text.encode(), "r.txt") == {
        "a.wav": [Event(1, 1.5, "owl")], "b.wav": [Event(1.25, 2.0, "tit")]
    }  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        "Start (s),End (s),Common name,File\n0.5,1.25,wren,a.wav\n",  # BirdNET
        "filename,onset,offset,event_label\na.wav,0.5,1.25,wren\n",  # DCASE
        "file,start,duration,label\na.wav,0.5,0.75,wren\n",
    ],
)
def test_headers_of_other_programs(text):
    assert read_events(text.encode(), "t.csv") == {"a.wav": [Event(0.5, 1.25, "wren")]}


@pytest.mark.runs
@pytest.mark.parametrize(
    "name", ["./a/x.wav", "a\\x.wav", "C:\\field\\x.wav", "/elsewhere/x.wav"]
)
def test_names_from_other_machines(sounds, tmp_path, name):
    table = tmp_path / "events.csv"
    table.write_text(f"path,start,end,label\n{name},0,1,owl\n")
    metadata = record(sounds, tmp_path / "o", win_len=2000, events=str(table))
    assert metadata.splits["records"].examples_per_class == {"owl": 4}


@pytest.mark.runs
def test_one_name_in_a_table_cannot_mean_two_files(sounds, tmp_path):
    write_sound(tmp_path / "more" / "a" / "x.wav", 8000)
    table = tmp_path / "events.csv"
    table.write_text("path,start,end,label\na/x.wav,0,1,owl\n")
    with raises(InputError, naming=["a/x.wav", "/more/a/x.wav"]):
        record([sounds, tmp_path / "more"], tmp_path / "o", win_len=2000,
               events=str(table))  # fmt: skip


@pytest.mark.runs
def test_classes_are_counted_as_examples_have_them(sounds, tmp_path):
    metadata = record(
        sounds, tmp_path / "out", win_len=2000, event_targets="class",
        **write_raven(sounds),
    )  # fmt: skip
    found = Counter(
        example["class"].decode()
        for example in replay(str(tmp_path / "out")).as_numpy_iterator()
    )
    del found[""]
    counts = metadata.splits["records"].examples_per_class
    assert {name: n for name, n in counts.items() if n} == dict(found)
