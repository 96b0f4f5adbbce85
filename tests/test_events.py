"""Events: label files, and what they say of windows, against slow loops."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import InputError
from beam_pipeline.events import (
    Event,
    counts_in,
    frame_mask,
    main_class,
    multi_hot,
    overlaps,
    read_events,
)

RAVEN = (
    "Selection\tView\tChannel\tBegin Time (s)\tEnd Time (s)\tLow Freq (Hz)\tSpecies\n"
    "1\tWaveform 1\t1\t0.5\t1.25\t100\twren\n"
    "1\tSpectrogram 1\t1\t0.5\t1.25\t100\twren\n"
    "2\tSpectrogram 1\t1\t2.0\t2.5\t100\towl\n"
)
AUDACITY = "0.500000\t1.250000\twren\n\\\t100.0\t2000.0\n2.0\t2.5\towl\n"
EXPECTED = [Event(0.5, 1.25, "wren"), Event(2.0, 2.5, "owl")]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.txt", AUDACITY),
        ("a.txt", AUDACITY.replace("\n", "\r\n")),
        ("a.selections.txt", RAVEN),
        ("a.csv", "start_s,end_s,label\n2,2.5,owl\n0.5,1.25,wren\n"),
        ("a.csv", "\ufeffonset;offset;event_label\n0.5;1.25;wren\n2;2.5;owl\n"),
        ("a.csv", 'start,end,label\n0.5,1.25,"wren"\n2,2.5,owl\n'),
        ("a.json", json.dumps([e._asdict() for e in EXPECTED])),
        ("a.json", json.dumps({"events": [e._asdict() for e in EXPECTED]})),
        ("a.jsonl", "".join(json.dumps(e._asdict()) + "\n" for e in EXPECTED)),
    ],
)
def test_formats(name, text):
    assert read_events(text.encode(), name) == {None: EXPECTED}


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


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("a.txt", "1\t0.5\towl\n", r"a.txt, line 1: the event ends at 0.5 s, before 1"),
        ("a.txt", "0\tx\towl\n", r"line 1: 'x' is not a time in seconds"),
        ("a.txt", "0\t1\towl\n-1\t2\towl\n", r"line 2: '-1' is not a time"),
        ("a.txt", "0\tinf\towl\n", r"'inf' is not a time"),
        ("a.txt", "0\t1\t \n", r"line 1: the event has an empty label"),
        ("a.txt", "0\t1\n", r"line 1: the event has an empty label"),
        ("a.csv", "start,label\n1,owl\n", r"line 2: there is no column for the end"),
        ("a.csv", "start,end\n1,2\n", r"no column for the label .*only start, end"),
        ("a.json", "{", r"a.json: Expecting property name"),
        ("a.json", "3", r"a.json must hold a list"),
        ("a.jsonl", "[1]\n", r"a.jsonl, entry 1: must be an object"),
        ("a.json", '[{"start": null, "end": 1, "label": "x"}]', "for the start"),
    ],
)
def test_what_is_wrong_is_named(name, text, problem):
    with pytest.raises(InputError, match=problem):
        read_events(text.encode(), name)


def test_what_is_not_text():
    with pytest.raises(InputError, match=r"a.txt is not UTF-8 text"):
        read_events(b"\xff\xfe\x00", "a.txt")


# Windows

CLASSES = {"owl": 0, "tit": 1, "wren": 2}
# Quarters are exact in binary, so that the slow loops compare the same numbers.
times = st.integers(0, 40).map(lambda n: n / 4)
events = st.lists(
    st.tuples(times, times, st.sampled_from(sorted(CLASSES))).map(
        lambda e: Event(min(e[:2]), max(e[:2]), e[2])
    ),
    max_size=6,
)
starts = st.lists(times, min_size=1, max_size=5).map(lambda s: np.array(sorted(s)))


def slow_counts(event, start, length, share):
    if event.start_s == event.end_s:
        return start <= event.start_s < start + length
    shared = min(event.end_s, start + length) - max(event.start_s, start)
    return shared > 0 and shared >= share * min(event.end_s - event.start_s, length)


@given(events, starts, st.sampled_from([0.25, 1.0, 3.5]), st.sampled_from([0, 0.5, 1]))
@settings(deadline=None, max_examples=300)
def test_windows_against_slow_loops(some, at, length, share):
    counted = counts_in(some, at, length, share)
    hot = multi_hot(some, CLASSES, at, length, share)
    best = main_class(some, CLASSES, at, length, share)
    assert counted.shape == (len(at), len(some))
    assert hot.dtype == np.uint8
    for i, start in enumerate(at):
        seconds = {}
        for k, event in enumerate(some):
            expected = slow_counts(event, start, length, share)
            assert counted[i, k] == expected
            if expected:
                shared = min(event.end_s, start + length) - max(event.start_s, start)
                seconds[event.label] = seconds.get(event.label, 0) + max(shared, 0)
        assert [bool(h) for h in hot[i]] == [c in seconds for c in CLASSES]
        longest = max(seconds.values(), default=None)
        expected = next((c for c in CLASSES if seconds.get(c) == longest), None)
        assert best[i] == (CLASSES[expected] if seconds else -1)


@given(events, starts, st.integers(1, 8), st.sampled_from([0.25, 0.5]))
@settings(deadline=None, max_examples=300)
def test_masks_against_slow_loops(some, at, frames, step):
    centres = step / 2 + step * np.arange(frames)
    mask = frame_mask(some, CLASSES, at, centres)
    assert mask.shape == (len(at), frames, len(CLASSES))
    for i, start in enumerate(at):
        for t, centre in enumerate(centres):
            expected = {e.label for e in some if e.start_s <= start + centre < e.end_s}
            assert {c for c in CLASSES if mask[i, t, CLASSES[c]]} == expected


def test_overlaps_of_edges():
    event = [Event(1.0, 2.0, "owl")]
    at = np.array([0.0, 0.5, 1.0, 1.5, 2.0])
    assert overlaps(event, at, 1.0)[:, 0].tolist() == [0, 0.5, 1, 0.5, 0]
    assert counts_in(event, at, 1.0, 0.0)[:, 0].tolist() == [0, 1, 1, 1, 0]
