"""Windows, compared with lists of every start."""

from functools import partial
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_pipeline import plan, record
from beam_pipeline.errors import RecipeError
from beam_pipeline.examples.windows import (
    WindowPlan,
    count_windows,
    covered_frames,
    frames_in,
    slice_windows,
    window_starts,
)
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.text import time_text
from beam_pipeline.transforms.base import seconds_to_frames
from tests.raising import raises
from tests.sounds import write_sound
from tests.transform_checks import noise


@pytest.mark.parametrize(("seconds", "rate", "frames"), [
    (0.0, 16000, 0), (1, 16000, 16000), (0.5, 11025, 5513), (0.1, 44100, 4410),
    (0.0625, 8, 1), (0.0624, 8, 0), (0.1875, 8, 2), (1e-9, 16000, 0),
    (36000.0, 192000, 6912000000)])  # fmt: skip
def test_seconds_to_frames_rounds_halves_up(seconds, rate, frames):
    assert seconds_to_frames(seconds, rate) == frames


@pytest.mark.parametrize(("seconds", "of_s", "text"), [
    (0.0, 0.0, "0.00 seconds"), (59.99, 0.0, "59.99 seconds"),
    (60.0, 0.0, "1.00 minutes"), (3599.4, 0.0, "59.99 minutes"),
    (3600.0, 0.0, "1.00 hours"), (90.0, 3600.0, "0.03 hours"),
    (1.5, 60.0, "0.03 minutes")])  # fmt: skip
def test_printed_times(seconds, of_s, text):
    assert time_text(seconds, of_s) == text


@pytest.mark.parametrize(("options", "rate", "length", "hop"), [
    ({"win_len": 100}, 8000, 100, 100), ({"win_len": 100, "hop": 130}, 8000, 100, 130),
    ({"win_seconds": 0.5, "hop_seconds": 0.25}, 16000, 8000, 4000),
    ({"win_seconds": 0.5, "hop": 7}, 8000, 4000, 7),
    ({"win_len": 100, "hop_seconds": 0.25}, 8000, 100, 2000),
    ({"win_seconds": 0.0000625, "hop_seconds": 0.0000625}, 8000, 1, 1)])  # fmt: skip
def test_plan_of_a_recipe_is_in_frames(options, rate, length, hop):
    plan = WindowPlan.of(Recipe(**options), rate, 100)
    assert (plan.length, plan.hop) == (length, hop)


@pytest.mark.parametrize(("options", "field", "value", "facts"), [
    ({"win_seconds": 1e-5}, "win_seconds", 1e-05, ["0.08", "8000"]),
    ({"win_seconds": 0.0000624}, "win_seconds", 6.24e-05, ["0.499", "8000"]),
    ({"win_seconds": 1.0, "hop_seconds": 1e-5}, "hop_seconds", 1e-05, "0.000125"),
])  # fmt: skip
def test_less_than_a_frame_is_refused(options, field, value, facts, tmp_path):
    write_sound(tmp_path / "in" / "a" / "x.wav", 500, rate=8000)
    for run in (plan, partial(record, output=tmp_path / "out")):
        with raises(RecipeError, field, value, naming=facts):
            run(tmp_path / "in", **options)
    assert not (tmp_path / "out").exists()
    # At a higher rate the same seconds are enough.
    WindowPlan.of(Recipe(**options), 2_000_000_000, 100)


def every_start(frames, plan):
    """The starts on the grid, one after the other, as far as the tail allows."""
    length, hop, tail = plan.length, plan.hop, plan.tail
    starts, start, covered = [], 0, 0
    while start < frames:
        if start + length <= frames:
            starts.append(start)
        elif tail == "drop" or covered >= frames:
            break
        elif tail == "pad":
            starts.append(start)
        elif length <= frames:
            starts.append(frames - length)
        else:
            break
        covered = start + length
        start += hop
    return starts[: plan.max_windows]


def all_starts(frames, plan, key=0):
    return window_starts(frames, plan, 0, count_windows(frames, plan), key)


PLANS, RANDOM_PLANS = (
    st.builds(
        WindowPlan,
        st.integers(1, 12),
        st.integers(1, 20),
        st.sampled_from(["drop", "pad", "overlap"]),
        st.none() | st.integers(1, 8),
        st.just(random_starts),
    )
    for random_starts in (False, True)
)
FRAMES = st.integers(0, 80)
KEYS = st.integers(0, 2**64 - 1)


@settings(max_examples=1000, deadline=None)
@given(FRAMES, PLANS)
def test_starts_are_those_of_walking_along_the_clip(frames, plan):
    wanted = every_start(frames, plan)
    assert count_windows(frames, plan) == len(wanted)
    assert all_starts(frames, plan).tolist() == wanted


def strata(frames, plan):
    """The parts of the possible starts, one for each random start, as ranges."""
    windows = count_windows(frames, plan)
    possible = max(0, frames - plan.length) + 1
    return [
        range(k * possible // windows, (k + 1) * possible // windows)
        for k in range(windows)
    ]


@settings(max_examples=500, deadline=None)
@given(FRAMES, RANDOM_PLANS, KEYS)
@example(10, WindowPlan(12, 1, "pad", None, True), 0)
@example(80, WindowPlan(1, 1, "drop", None, True), 2**64 - 1)
def test_random_starts_are_in_their_part_of_the_clip(frames, plan, key):
    starts = all_starts(frames, plan, key).tolist()
    assert len(starts) == len(every_start(frames, plan))
    assert starts == sorted(starts)
    for start, part in zip(starts, strata(frames, plan), strict=True):
        # With more windows than starts, some parts are empty: then the lower bound.
        assert start in part or (not part and start == part.start)
        assert 0 <= start <= max(0, frames - plan.length)


@settings(max_examples=500, deadline=None)
@given(
    FRAMES,
    st.one_of(PLANS, RANDOM_PLANS),
    KEYS,
    st.lists(st.integers(0, 80), max_size=4),
)
def test_starts_do_not_depend_on_where_shards_begin(frames, plan, key, cuts):
    count = count_windows(frames, plan)
    bounds = [0, *sorted(min(cut, count) for cut in cuts), count]
    parts = [
        window_starts(frames, plan, low, high - low, key)
        for low, high in pairwise(bounds)
    ]
    assert np.concatenate(parts).tolist() == all_starts(frames, plan, key).tolist()


def test_random_starts_never_change():
    plan = WindowPlan(1000, 1000, random_starts=True)
    assert all_starts(10_000, plan, 2**63 + 5).tolist() == [
        672, 1267, 1991, 2837, 4177, 5084, 6238, 6564, 7998, 8816,
    ]  # fmt: skip


@pytest.mark.parametrize("hours", [1, 100, 100_000])
def test_long_clips_do_not_overflow(hours):
    frames = hours * 3600 * 48000
    plan = WindowPlan(48000, 1, "drop", None, True)
    count = count_windows(frames, plan)
    assert count == frames - 47999
    last = window_starts(frames, plan, count - 2, 2, 2**64 - 1)
    assert last.tolist() == [count - 2, count - 1]


# slice_windows


def slice_one(clip, start, length):
    window = clip[..., start : start + length]
    missing = length - window.shape[-1]
    return np.concatenate([window, np.zeros((*clip.shape[:-1], missing), "f4")], -1)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=8).map(sorted),
    st.integers(1, 12),
    st.sampled_from([(), (1,), (3,)]),
    st.integers(31, 45),
    st.data(),
)
@example([3], 4, (), 31, None)
@example([3, 3, 3], 4, (2,), 31, None)
@example([0, 10, 20], 5, (2,), 31, None)
@example([0, 10, 21], 5, (2,), 31, None)
def test_any_ascending_starts_in_any_stretch(starts, length, channels, frames, data):
    clip = noise(*channels, frames)
    end = min(starts[-1] + length, frames)
    stop = data.draw(st.integers(end, frames)) if data else end
    found = slice_windows(clip[..., starts[0] : stop], np.array(starts), length)
    wanted = np.stack([slice_one(clip, s, length) for s in starts])
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize("starts", [[0], [0, 3], [0, 3, 6], [0, 3, 7]])
def test_windows_cannot_be_written(starts):
    windows = slice_windows(noise(20), np.array(starts), 5)
    with pytest.raises(ValueError, match="read-only"):
        windows[0, 0] = 1


@settings(max_examples=300, deadline=None)
@given(
    frames=st.integers(0, 60),
    length=st.integers(1, 12),
    hop=st.integers(1, 15),
    tail=st.sampled_from(["drop", "pad", "overlap"]),
    share=st.floats(0, 1),
)
@example(frames=11, length=4, hop=5, tail="overlap", share=1.0)
def test_covered_frames_are_those_of_all_windows(frames, length, hop, tail, share):
    plan = WindowPlan(length, hop, tail)
    count = round(share * count_windows(frames, plan))
    starts = window_starts(frames, plan, 0, count)
    covered = {
        frame
        for start in starts.tolist()
        for frame in range(start, min(start + length, frames))
    }
    assert covered_frames(frames, plan, count) == len(covered)
    assert frames_in(starts, np.minimum(length, frames - starts)) == len(covered)
    assert frames_in(np.repeat(starts, 3), length) >= len(covered)
