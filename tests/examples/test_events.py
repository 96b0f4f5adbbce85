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

from beam_pipeline import plan, record
from beam_pipeline.cli.reports import describe_plan
from beam_pipeline.errors import InputError, RecipeError, TooManyRejected
from beam_pipeline.examples.event_targets import EventRule, TimedWindows
from beam_pipeline.inputs.event_files import Event, read_events
from beam_pipeline.read.verify import find_problems
from tests.data_sets import examples_in, rejects_in
from tests.raising import assert_names, raises
from tests.sounds import write_sound

RAVEN = (
    "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tSpecies\n"
    "1\tWaveform 1\t1\t0.5\t1.25\t100\twren\n"
    "1\tSpectrogram 1\t1\t0.5\t1.25\t100\twren\n"
    "2\tSpectrogram 1\t1\t2.0\t2.5\t100\towl\n"
)
AUDACITY = "0.500000\t1.250000\twren\n\\\t100.0\t2000.0\n2.0\t2.5\towl\n"
RUNS_ON = (  # times of several files that follow each other
    "Begin Time (s)\tEnd Time (s)\tBegin File\tFile Offset (s)\tSpecies\n"
    "1\t1.5\ta.wav\t1\towl\n11.25\t12\tb.wav\t1.25\ttit\n"
)
# A quote that is never closed must not swallow the lines after it.
UNQUOTED = '0\t1\t"owl, barn, of a, b, or c\n2\t3\t5" gun\n4\t5\t"tit"\n'
WREN, OWL = Event(0.5, 1.25, "wren"), Event(2.0, 2.5, "owl")
BOTH = [WREN._asdict(), OWL._asdict()]
QUOTED = [Event(0, 1, '"owl, barn, of a, b, or c'), Event(2, 3, '5" gun'),
          Event(4, 5, '"tit"')]  # fmt: skip
READ = [
    ("a.txt", AUDACITY, {None: [WREN, OWL]}),
    ("a.txt", AUDACITY.replace("\n", "\r\n"), {None: [WREN, OWL]}),
    ("a.selections.txt", RAVEN, {None: [WREN, OWL]}),
    ("a.csv", "start_s,end_s,label\n2,2.5,owl\n0.5,1.25,wren\n", {None: [WREN, OWL]}),
    ("a.csv", "\ufeffonset;offset;event_label\n0.5;1.25;wren\n", {None: [WREN]}),
    ("a.csv", 'start,end,label\n0.5,1.25,"wren"\n', {None: [WREN]}),
    ("a.csv", 'note,start,end,label\n"one\ntwo",2,2.5,owl\n', {None: [OWL]}),
    ("a.json", json.dumps(BOTH), {None: [WREN, OWL]}),
    ("a.json", json.dumps({"events": BOTH}), {None: [WREN, OWL]}),
    ("a.jsonl", "".join(json.dumps(e) + "\n" for e in BOTH), {None: [WREN, OWL]}),
    ("a.txt", UNQUOTED, {None: QUOTED}),
    ("a.txt", f"Begin Time (s)\tEnd Time (s)\tSpecies\n{UNQUOTED}", {None: QUOTED}),
    *(("a.csv", empty, {}) for empty in ("", "\n\n", "start,end,label\n")),
    # Columns without a meaning may occur twice; that of the label may be named.
    ("a.csv", "start,end,label,,by,,by\n0.5,1.25,wren,a,b,c,d\n", {None: [WREN]}),
    ("a.csv", "start,end,label,species\n2,2.5,call,owl\n", {None: [OWL]}, "Species"),
    # Of several files
    ("a.csv", "filename,start,end,label\nb.wav,2,2.5,owl\na.wav,0.5,1.25,wren\n"
     "b.wav,0.5,1.25,wren\n", {"b.wav": [WREN, OWL], "a.wav": [WREN]}),
    ("a.txt", RUNS_ON,
     {"a.wav": [Event(1, 1.5, "owl")], "b.wav": [Event(1.25, 2.0, "tit")]}),
    ("a.csv", "Start (s),End (s),Common name,File\n0.5,1.25,wren,a.wav\n",  # BirdNET
     {"a.wav": [WREN]}),
    ("a.csv", "filename,onset,offset,event_label\na.wav,0.5,1.25,wren\n",  # DCASE
     {"a.wav": [WREN]}),
    ("a.csv", "file,start,duration,label\na.wav,0.5,0.75,wren\n", {"a.wav": [WREN]}),
]  # fmt: skip


@pytest.mark.parametrize("row", READ)
def test_formats(row):
    name, text, found, *column = row
    assert read_events(text.encode(), name, *column) == found


@pytest.mark.parametrize(("name", "text", "facts"), [
    ("a.txt", "1\t0.5\towl\n", ["a.txt", "1", "0.5"]),
    ("a.txt", "0\tx\towl\n", ["1", "x"]),
    ("a.txt", "0\t1\towl\n-1\t2\towl\n", ["2", "-1"]),
    ("a.txt", "0\tinf\towl\n", "inf"),
    ("a.txt", "0\t1\t \n", ["a.txt", "line 1"]),
    ("a.txt", "0\t1\n", ["a.txt", "line 1"]),
    ("b.lab", "garbage\n", ["b.lab", "line 1"]),  # a single line that is no header
    ("b.lab", "1.0 2.0 tit\n", ["b.lab", "line 1"]),
    ("a.csv", "start,label\n1,owl\n", ["a.csv", "line 2", "end"]),
    ("a.csv", "start,end,Label,label\n0,1,owl,tit\n", ["a.csv", "label", "twice"]),
    ("a.csv", "start,end\n1,2\n", ["a.csv", "line 2", "label", "start, end"]),
    ("a.csv", 'start,end,label\n0,1,"owl\n2,3,tit\n', ["a.csv", "2"]),
    ("a.csv", 'start,end,label\n0,1,owl\n\n0,1,"owl\n2,3,"tit"\n', ["4", '"']),
    ("a.csv", 'note,start,end,label\n"one\ntwo",0,1,owl\n\n,2,x,"tit"\n',
     ["a.csv", "5", "x"]),
    ("a.tsv", '0\t1\towl\n0\t1\t"tit\n', ["a.tsv", "2"]),
    ("a.csv", 'label,start,end\n"owl\n2,3,",0,1\n',
     ["a.csv", "line 2", r"'owl\n2,3,'"]),
    ("a.csv", "path,start,end,label\na.wav,0,1,owl\na.wav,0,1,owl, barn\n",
     ["a.csv", "3", "5", "4"]),
    ("a.csv", "start,end,label,by\n0,1,owl\n", ["2", "3", "4"]),
    ("a.csv", "0,1,owl, barn\n", ["1", "4", "3"]),
    ("a.txt", "0\t1\towl\tbarn\n", ["1", "4", "3"]),
    ("a.txt", "\udcff\udcfe", ["a.txt", "UTF-8"]),
    ("a.json", "{", "a.json"),
    ("a.json", "3", "a.json"),
    ("a.jsonl", "[1]\n", ["a.jsonl", "1"]),
    ("a.json", '[{"start": null, "end": 1, "label": "x"}]',
     ["a.json", "start", "start, end, label"])])  # fmt: skip
def test_errors_name_the_file_and_the_fault(name, text, facts):
    with raises(InputError, naming=facts):
        read_events(text.encode(errors="surrogateescape"), name)


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


def slow_labels(events, start_s, length_s, share):
    """How long each class is in a window; None where it is not."""
    held = {}
    for event in events:
        if slow_counts(event, start_s, length_s, share):
            held.setdefault(event.label, []).append(event)
    end_s = start_s + length_s
    return [slow_union(held[c], start_s, end_s) if c in held else None for c in CLASSES]


def slow_target(seconds):
    """The number of the class that a window holds longest, the first of equals."""
    longest = max((s for s in seconds if s is not None), default=None)
    return -1 if longest is None else seconds.index(longest)


def slow_mask(events, centre_s):
    """Whether each class is there at a time."""
    held = {e.label for e in events if e.start_s <= centre_s < e.end_s}
    return [name in held for name in CLASSES]


@given(events, starts, st.sampled_from([0.25, 1.0, 3.5]), st.sampled_from([0, 0.5, 1]))
@settings(deadline=None, max_examples=300)
def test_windows_against_slow_loops(some, at, length, share):
    windows, rule = TimedWindows(tuple(some), at, length), EventRule((*CLASSES,), share)
    counted, hot = windows.counted(share), rule.found(windows)
    best = rule.main_class(windows)
    centres = np.linspace(0, length, 5)
    mask = partial(rule.frame_mask, centres_s=centres)
    masked = mask(windows)
    assert masked.shape == (len(at), 5, len(CLASSES))
    assert counted.shape == (len(at), len(some))
    assert hot.dtype == np.bool_
    for i, start in enumerate(at):
        counts = [slow_counts(event, start, length, share) for event in some]
        assert counted[i].tolist() == counts
        seconds = slow_labels(some, start, length, share)
        assert hot[i].tolist() == [s is not None for s in seconds]
        assert best[i] == slow_target(seconds)
        assert masked[i].tolist() == [slow_mask(some, start + c) for c in centres]
    # Events that are not near change nothing.
    for function in (rule.found, rule.main_class, mask):
        np.testing.assert_array_equal(function(windows.near()), function(windows))
    assert TimedWindows(tuple(some), at[:0], length).near().events == ()


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


# Options, and a feature whose frames have a length or a place alone.
RUNS = [
    (write_raven, LOG_MEL, {}),
    (write_audacity, "cqt(n_bins=12)",
     {"event_overlap": 0.5, "tail": "overlap", "order": "listed"}),
    (write_raven, LOG_MEL, {"random_starts": True, "max_windows": 4, "num_shards": 3,
                            "encodings": {"m": "tensor", "s": "raw"}}),
    (write_audacity, "chroma(n_octaves=2)",
     {"copies": 2, "augment": "noise()", "sample_rate": 4000}),
]  # fmt: skip


@pytest.mark.parametrize(("write", "feature", "options"), RUNS)
def test_runs_against_slow_loops(sounds, tmp_path, write, feature, options):
    metadata = record(
        sounds, tmp_path / "out", win_len=WIN_LEN, hop=HOP,
        features={"m": feature, "s": "identity()"},
        event_targets="class,multi_hot,mask:m", **write(sounds), **options,
    )  # fmt: skip
    assert metadata.classes == (*CLASSES,)
    time, axis = metadata.features["m_mask"].axes
    assert axis["labels"] == list(CLASSES)
    counts, marked = Counter(), 0
    some = examples_in(tmp_path / "out")
    assert len(some) > 10
    for example in some:
        events, rate = LIVES[example["filepath"]], example["fs"]
        start_s, length_s = example["win_start_idx"] / rate, WIN_LEN / rate
        share = options.get("event_overlap", 0)
        seconds = slow_labels(events, start_s, length_s, share)
        hot = [int(s is not None) for s in seconds]
        assert example["labels"].tolist() == hot
        counts.update(label for label, h in zip(CLASSES, hot, strict=True) if h)
        target = slow_target(seconds)
        assert example["target"] == target
        assert example["class"] == ("" if target < 0 else [*CLASSES][target])
        mask = example["m_mask"]
        assert (mask.dtype, mask.shape) == (np.uint8, (len(example["m"]), 3))
        first_s = start_s + time["start"] + time.get("length", 0) / 2
        centres = [first_s + time["step"] * t for t in range(len(mask))]
        assert mask.tolist() == [slow_mask(events, centre) for centre in centres]
        marked += mask.sum()
    assert marked
    assert metadata.splits["records"].examples_per_class == dict(counts)
    assert list(find_problems(str(tmp_path / "out"), metadata)) == []


# Rows of a table of events, options, how many windows have one, and the rejects.
OLD = ("/old/2024/x.wav", "/old/2025/x.wav")  # one name in two folders elsewhere
TABLES = [
    *(([name], {}, 4, {})
      for name in ("./a/x.wav", "a\\x.wav", "C:\\field\\x.wav", "/elsewhere/x.wav")),
    (OLD, {"classes": "owl"}, 0, dict.fromkeys(OLD, "not among the inputs")),
    (["x.wav", "gone.wav"], {}, 4, {"gone.wav": "events.csv"}),
    (["y.wav", "z.wav"], {}, 4, {"a/y.wav": "/b/y.wav", "b/y.wav": "/a/y.wav"}),
    (["a/y.wav", "b\\y.wav"], {}, 8, {}),
]  # fmt: skip
# Tables that cannot be used: inputs beside the sounds, rows, and what is named.
UNUSABLE = [
    ([], ["y.wav"], ["y.wav", "/b/y.wav"]),  # which of two?
    (["more"], ["a/x.wav"], ["a/x.wav", "/in/a/x.wav"]),
    ([], ["in/a/x.wav", "in/b"], ["events.csv", "in/a/x.wav", "a/x.wav", "--events"]),
    ([], [], ["events.csv", "--events"]),
    ([], ["a/x.wav,9,9,owl"], ["events.csv", "a/x.wav", "owl", "9 s"]),  # too late
]


def plan_of(sounds, rows, more=(), **options):
    """The plan of the windows that have an event of a table."""
    write_sound(sounds / "b" / "y.wav", 8000)
    table = sounds.parent / "events.csv"
    lines = [f"{row}\n" if "," in row else f"{row},0,1,owl\n" for row in rows]
    table.write_text("".join(["path,start,end,label\n", *lines]))
    inputs = [sounds, *(sounds.parent / name for name in more)]
    return plan(inputs if more else sounds, win_len=2000, events=str(table),
                no_event="drop", **options)  # fmt: skip


@pytest.mark.parametrize(("rows", "options", "windows", "rejects"), TABLES)
def test_names_in_a_table(sounds, rows, options, windows, rejects):
    summary, found = plan_of(sounds, rows, **options)
    assert {r.filepath for r in found} == rejects.keys()
    for reject in found:
        assert_names(reject.reason, rejects[reject.filepath])
    assert summary.kept("records")[0] == windows


@pytest.mark.parametrize(("more", "rows", "facts"), UNUSABLE)
def test_names_in_a_table_that_mean_no_clip_or_several(sounds, more, rows, facts):
    for name in more:
        write_sound(sounds.parent / name / "a" / "x.wav", 8000)
    with raises(InputError, naming=facts):
        plan_of(sounds, rows, more)


def test_parts_of_files_have_the_events_of_their_time(sounds, tmp_path):
    table = "path,offset_s,duration_s\na/x.wav,0,1\na/x.wav,1,1\na/x.wav,0.25,0.5\n"
    (sounds / "parts.csv").write_text(table)
    record(
        sounds / "parts.csv", tmp_path / "out", win_len=2000,
        **write_audacity(sounds),
    )  # fmt: skip
    found = {}
    for example in examples_in(tmp_path / "out"):
        at = (int(example["index"]), int(example["win_start_idx"]))
        found[at] = example["labels"].tolist()
    # At 8 kHz windows last 0.25 s; the third part begins where the second window does.
    owl, wren, both = [1, 0, 0], [0, 0, 1], [1, 0, 1]
    assert found == {
        (0, 0): wren, (0, 2000): both, (0, 4000): owl, (0, 6000): owl,
        (1, 0): owl, (1, 2000): owl, (1, 4000): [0, 0, 0], (1, 6000): [0, 0, 0],
        (2, 0): both, (2, 2000): owl,
    }  # fmt: skip


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
    found = examples_in(tmp_path / "out")
    names = Counter(example["class"] for example in found)
    sums = [int(example["labels"].sum()) for example in found]
    assert split.examples == len(found)
    assert split.examples + split.left_out == 10 + 11 + 13
    assert (split.left_out > 0) == (no_event == "drop")
    assert names[""] == sums.count(0)
    assert (names[""] > 10) == (no_event == "keep")
    assert {e["target"] for e in found if e["class"] == ""} <= {-1}
    if no_event == "quiet":
        assert split.examples_per_class["quiet"] == names["quiet"] > 10
    total = split.seconds_per_class["tit"]
    assert total == pytest.approx(split.examples_per_class["tit"] * 0.25)


def test_clips_whose_events_cannot_be_used_are_named(sounds, tmp_path):
    options = write_audacity(sounds)
    (sounds / "a" / "x.txt").unlink()
    (sounds / "a" / "y.txt").write_text("0\t1\towl\n12\t13\ttit\n")
    (sounds / "b" / "z.txt").write_text("1\tend\towl\n")
    with raises(TooManyRejected, naming=3):
        record(sounds, tmp_path / "out", win_len=2000, **options)
    reasons = {r["path"]: r["reason"] for r in rejects_in(tmp_path / "out")}
    assert_names(reasons["a/x.wav"], "a/x.txt")
    assert_names(reasons["a/y.wav"], "tit", "12")  # beyond the end of the file
    assert_names(reasons["b/z.wav"], "z.txt", "line 1", "'end'")


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
    ({"events": "a.csv", "no_event": "dorp"}, ["no_event", "dorp", "drop"]),
    ({"events": "gone.csv"}, ["gone.csv", "--events"]),
    ({"events": "{folder}/{stem}.txt", "event_column": "lable"},
     ["a/x.wav", "lable", "--event-column"]),
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


def test_a_class_that_is_not_in_the_given_list(sounds, tmp_path):
    options = write_raven(sounds) | {"win_len": 2000}
    _, rejects = plan(sounds, classes="owl,tit", **options)
    for reject in rejects:
        assert_names(reject.reason, "wren")
    assert {reject.filepath for reject in rejects} == {"a/x.wav", "b/z.wav"}
    metadata = record(sounds, tmp_path / "ok", classes="wren, owl,tit,crow", **options)
    assert metadata.classes == ("wren", "owl", "tit", "crow")
    assert metadata.splits["records"].examples_per_class["crow"] == 0


def test_a_folder_is_no_table_of_events(sounds):
    with raises(InputError, naming=["--events", str(sounds), "{stem}"]):
        plan(sounds, win_len=2000, events=str(sounds))


def test_a_column_cannot_give_the_class_beside_events(sounds, tmp_path):
    (sounds / "clips.csv").write_text("path,species\na/x.wav,owl\n")
    options = {"win_len": 2000, **write_audacity(sounds)}
    with raises(RecipeError, "label_from", "species", naming="--events"):
        plan(sounds / "clips.csv", label_from="species", **options)
    metadata = record(sounds / "clips.csv", tmp_path / "out", **options)
    assert metadata.features["species"].dtype == "string"


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
