"""The order ``mixed``: every example has one place, and neighbours differ."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.permutation import Permutation
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.shards import (
    PlacedClips,
    ShardLayout,
    cut_segments,
    strip_examples,
)
from beam_pipeline.plan.summary import longest_walk
from beam_pipeline.recipe.recipe import Recipe


def clip(row, examples, *, fmt="WAV", subtype="PCM_16", split="train"):
    sizes = (examples * 100, 8000, 1, fmt, subtype, 8000, examples * 100, examples)
    return Clip(row, 0, f"{row}.{fmt.lower()}", "a", split, *sizes)


def places_of(total, strip, seed, name):
    """The strips in their order, one by one."""
    count = total // strip
    order = Permutation(count, seed, name=f"strips of {name}").at(np.arange(count))
    mixed = [k for s in order for k in range(s * strip, (s + 1) * strip)]
    mixed += range(len(mixed), total)
    return {index: place for place, index in enumerate(mixed)}


@settings(max_examples=150, deadline=None)
@given(data=st.data())
def test_every_example_has_one_place(data):
    counts = data.draw(st.lists(st.integers(0, 12), min_size=1, max_size=20))
    total = data.draw(st.integers(0, sum(counts)))  # `num_elems` may leave some out
    strip = data.draw(st.integers(1, 9))
    shards = data.draw(st.integers(1, 6))
    layout = ShardLayout("train", total, min(shards, total), None, strip=strip, seed=7)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(counts)), max_size=3)))
    bounds = [0, *cuts, len(counts)]
    wanted = places_of(total, strip, 7, "train")
    found, begins = {}, {}
    ends = np.cumsum([0, *counts]).tolist()
    for low, high in itertools.pairwise(bounds):  # the buckets
        clips = tuple(clip(row, counts[row]) for row in range(low, high))
        placed = PlacedClips("train", 0, ends[low], clips)
        for shard, segment in cut_segments(placed, layout):
            assert shard.mix_seed == 7
            assert segment.position >= 0 < segment.examples
            assert segment.position + segment.examples <= shard.examples
            first = ends[segment.clip.row] + segment.first
            for k in range(segment.examples):
                found[first + k] = layout.bound(shard.number) + segment.position + k
                begins[first + k] = first
    assert found == wanted
    for place, begin in begins.items():
        # A segment begins with its strip, its shard or its clip, whichever is last.
        of_layout = layout.begin_of_segment(place)
        of_clip = max(c for c in ends if c <= place)
        assert begin == max(of_layout, of_clip)


@pytest.mark.parametrize("order", ["shuffled", "listed"])
def test_other_orders_keep_clips_together(order):
    recipe = Recipe(win_len=100, order=order, elements_per_file=10)
    layout = ShardLayout.of("train", 25, 1000, recipe)
    assert [layout.begin_of_segment(k) for k in (0, 9, 10, 24)] == [0, 0, 10, 20]
    assert layout.shard(0).mix_seed is None
    clips = PlacedClips("train", 0, 0, (clip(0, 12), clip(1, 13)))
    segments = [tuple(s[1:]) for _, s in cut_segments(clips, layout)]
    assert segments == [(0, 10, 0), (10, 2, 0), (0, 8, 2), (8, 5, 0)]


@pytest.mark.parametrize(
    ("options", "shard", "walk", "examples"),
    [
        ({"win_len": 100}, 1000, 0, 8),
        ({"win_len": 100}, 128, 0, 8),
        ({"win_len": 100}, 127, 0, 7),
        ({"win_len": 100}, 31, 0, 1),
        ({"win_len": 100}, 1, 0, 1),
        ({"win_len": 100}, 1000, 64, 8),
        ({"win_len": 100}, 1000, 65, 9),
        ({"win_len": 100}, 31, 65, 9),
        ({"win_len": 100, "hop": 100}, 1000, 0, 8),
        ({"win_len": 100, "hop": 99}, 1000, 0, 16),
        ({"win_len": 100, "hop": 10}, 10_000, 0, 80),
        ({"win_len": 100, "hop": 10}, 1000, 0, 62),
        ({"win_len": 10, "hop": 100}, 1000, 0, 8),
        ({"win_seconds": 1.0, "hop_seconds": 0.25}, 1000, 0, 32),
        ({"win_len": "clip"}, 1000, 0, 8),
        ({"win_len": 100, "windows_at": "peaks(above_db=-40)"}, 1000, 0, 8),
        ({"win_len": 100, "copies": 2, "augment": "noise"}, 1000, 0, 24),
        ({"win_len": 100, "copies": 2, "augment": "noise"}, 100, 0, 6),
        ({"win_len": 100, "copies": 2, "augment": "noise"}, 10, 0, 3),
    ],
)
def test_strips_are_worth_a_seek_and_many_in_a_shard(options, shard, walk, examples):
    recipe = Recipe(order="mixed", elements_per_file=shard, **options)
    assert strip_examples(recipe, "train", shard, walk) == examples
    layout = ShardLayout.of("train", 100_000, 10, recipe, longest_walk=walk)
    assert (layout.strip, layout.seed) == (examples, recipe.seed)
    small = ShardLayout.of("train", shard // 2 + 1, 10, recipe)  # it is one shard
    assert small.strip == strip_examples(recipe, "train", shard // 2 + 1, 0)
    assert ShardLayout.of("train", 0, 10, recipe).strip is None


def test_the_longest_clip_that_is_decoded_from_its_start():
    recipe = Recipe(win_len=100, order="mixed")
    wave = [clip(0, 500), clip(1, 400, fmt="FLAC")]
    assert longest_walk(wave, recipe) == 0
    assert longest_walk([], recipe) == 0
    vorbis: Any = {"fmt": "OGG", "subtype": "VORBIS"}
    mp3: Any = {"fmt": "MPEG", "subtype": "MPEG_LAYER_III"}
    others = [clip(2, 30, **mp3), clip(3, 90, **vorbis)]
    assert longest_walk([*wave, *others], recipe) == 90
    filtered = recipe.replace(stream="high_pass(cutoff_hz=100)")
    assert longest_walk([*wave, *others], filtered) == 500
    copies = recipe.replace(copies=2, augment="noise")
    assert longest_walk([clip(2, 30, **vorbis)], copies) == 10
    test = clip(2, 30, split="test", **vorbis)
    assert longest_walk([test], copies) == 30  # it has no copies
