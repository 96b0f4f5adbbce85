"""The arithmetic of plans, compared with lists of every example."""

import itertools
from collections import Counter
from contextlib import closing

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.permutation import Permutation
from beam_pipeline.planning import shards
from beam_pipeline.planning.clips import Clip
from beam_pipeline.planning.shards import (
    DEFAULT_SHARD_BYTES,
    ROWS_PER_LISTED_BUCKET,
    Buckets,
    PlacedClips,
    Segment,
    Shard,
    ShardLayout,
    bucket_of,
    cut_segments,
    longest_walk,
    make_task,
    order_key,
    strip_examples,
)
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.text import clip_key

RATE = 8000
SHUFFLED = Recipe(win_len=100, seed=3)
LISTED = Recipe(win_len=100, order="listed")


def clip(row, examples=1, name=None, split="train", fmt="WAV", subtype="PCM_16"):
    sizes = (examples * 100, 8000, 1, fmt, subtype, 8000, examples * 100, examples)
    return Clip(row, 0, name or f"a/{row}.{fmt.lower()}", "a", split, *sizes)


def layout_of(examples, split="train", example_bytes=1000, **options):
    recipe = Recipe(win_len=100, **options)
    return ShardLayout.of(split, examples, example_bytes, recipe)


# ShardLayout


@pytest.mark.parametrize(("examples", "options", "sizes"), [
    (2, {"elements_per_file": 3}, [2]),
    (3, {"elements_per_file": 3}, [3]),
    (7, {"elements_per_file": 3}, [3, 3, 1]),
    (2, {"num_shards": 3}, [1, 1]),
    (4, {"num_shards": 3}, [1, 1, 2]),
    (7, {"num_shards": 3}, [2, 2, 3]),
    (10, {"elements_per_file": 4, "num_elems": 5}, [4, 1]),
    (10, {"elements_per_file": 4, "num_elems": 11}, [4, 4, 2]),
    (5, {"shard_bytes": 1}, [1] * 5),
    (5, {"shard_bytes": 1999}, [1] * 5),
    (5, {"shard_bytes": 2000}, [2, 2, 1]),
    (DEFAULT_SHARD_BYTES // 1000 + 1, {}, [DEFAULT_SHARD_BYTES // 1000, 1]),
])  # fmt: skip
def test_sizes_of_shards(examples, options, sizes):
    layout = layout_of(examples, **options)
    assert [layout.shard(k).examples for k in range(layout.shards)] == sizes
    assert layout.total == sum(sizes)
    assert layout.strip is None  # as in all orders but the mixed one


@pytest.mark.parametrize("total", [10**12, 10**12 + 1, 2**62])
@pytest.mark.parametrize("shards", [1, 7, 99_999])
def test_bounds_are_exact_where_floats_are_not(total, shards):
    layout = ShardLayout("train", total, shards, None)
    assert (layout.bound(0), layout.bound(shards)) == (0, total)
    for k in {0, 1, shards // 2, shards - 1} & set(range(shards)):
        assert layout.shard_at(layout.bound(k)) == k
        assert layout.shard_at(layout.bound(k + 1) - 1) == k


def test_names_of_shards():
    for split, name in (("train", "train/train"), (DEFAULT_SPLIT, "records")):
        layout = layout_of(9, split=split, num_shards=3)
        wanted = Shard(f"{name}-00002-of-00003", split, 2, 3)
        assert layout.shard(2) == wanted._replace(per_member=layout.per_member)


@pytest.mark.parametrize(
    ("example_bytes", "options", "expected"),
    [
        (8 << 10, {}, 2),
        ((8 << 10) + 1, {}, 1),
        (100, {"member_bytes": 1}, 1),
        (100, {"member_bytes": 1000, "num_shards": 3}, 10),
        (100, {"compression": "none", "member_bytes": 1000}, 1),
    ],
)
def test_members_hold_as_many_examples_as_fit(example_bytes, options, expected):
    recipe = Recipe(win_len=1, **options)
    layout = ShardLayout.of("train", 500, example_bytes, recipe)
    assert layout.per_member == layout.shard(0).per_member == expected


# Segments


def clips_of(counts):
    return [clip(row, examples) for row, examples in enumerate(counts)]


# Order and buckets


@pytest.mark.parametrize(
    ("seed", "filepath", "source", "key"),
    [
        (0, "a.wav", 0, 3719813630232935755),
        (0, "a.wav", 1, 78910020613972528),
        (1, "a.wav", 0, 13707151268519804963),
        (-1, "sea/täg 1.flac", 0, 16263917689332596197),
    ],
)
def test_clip_key_never_changes(seed, filepath, source, key):
    assert clip_key(seed, filepath, source) == key


@pytest.mark.parametrize("recipe", [SHUFFLED, LISTED], ids=["shuffled", "listed"])
@settings(max_examples=50, deadline=None)
@given(
    st.integers(0, 60), st.integers(1, 70), st.randoms(use_true_random=False),
)  # fmt: skip
def test_buckets_one_by_one_are_one_global_sort(recipe, count, held, random):
    """However few clips are in memory, and in whatever order they come."""
    step = ROWS_PER_LISTED_BUCKET // 4
    clips = [
        clip(step * i, i % 3, f"{i // 2}.wav", ("train", "test")[i % 5 == 0])
        for i in range(count)  # of each name there are two
    ]
    wanted = sorted(clips, key=lambda c: (c.split, order_key(c, recipe), c.row))
    random.shuffle(clips)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(shards, "CLIPS_HELD", held)
        blocks = (clips[start : start + 7] for start in range(0, count, 7))
        buckets = Buckets(recipe, blocks)
        for _ in range(2):  # they can be read again
            placed = list(buckets.placed())
            assert [one for part in placed for one in part.clips] == wanted
            before, seen = Counter(), set()
            for part in placed:
                assert part.first_example == before[part.split]
                before[part.split] += sum(one.examples for one in part.clips)
                (of_part,) = {(c.split, bucket_of(c, recipe)) for c in part.clips}
                assert of_part not in seen  # a part is all of one bucket
                seen.add(of_part)
            assert before == buckets.examples
        buckets.close()


def test_another_seed_is_another_order():
    orders = set()
    for seed in range(10):
        with closing(
            Buckets(Recipe(win_len=1, seed=seed), [clips_of([1] * 8)])
        ) as made:
            orders.add(tuple(c.row for part in made.placed() for c in part.clips))
    assert len(orders) == 10


# Tasks


def test_the_digest_depends_on_every_field_of_a_task():
    shard = Shard("records-00000-of-00001", "records", 0, 6)
    first, *rest = [Segment(clip(k, n), 0, n, k) for k, n in enumerate((1, 2, 3))]
    changed = [
        first._replace(clip=first.clip._replace(**{name: None}))
        for name in first.clip._fields
        if getattr(first.clip, name) is not None
    ]
    tasks = [
        (shard, [first, *rest], "pepper"),
        (shard._replace(examples=7), [first, *rest], "salt"),
        (shard._replace(number=1), [first, *rest], "salt"),
        (shard, rest, "salt"),
        (shard, [first._replace(first=1), *rest], "salt"),
        *((shard, [one, *rest], "salt") for one in (first, *changed)),
    ]
    digests = {make_task(*task)[0].digest for task in tasks}
    assert len(digests) == len(tasks) > 20


# Counts


def places_of(total, strip, seed, name):
    """The strips in their order, one by one; without strips, the given order."""
    if strip is None:
        return {index: index for index in range(total)}
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
    strip = data.draw(st.none() | st.integers(1, 9))
    size = data.draw(st.integers(1, 40))
    shards, per_file = min(size, total), None
    if data.draw(st.booleans()):
        shards, per_file = -(-total // size), size
    layout = ShardLayout("train", total, shards, per_file, strip=strip, seed=7)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(counts)), max_size=3)))
    bounds = [0, *cuts, len(counts)]
    wanted = places_of(total, strip, 7, "train")
    found, begins = {}, {}
    ends = np.cumsum([0, *counts]).tolist()
    for low, high in itertools.pairwise(bounds):  # the buckets
        clips = tuple(clip(row, counts[row]) for row in range(low, high))
        placed = PlacedClips("train", ends[low], clips)
        for shard, segment in cut_segments(placed, layout):
            assert shard == layout.shard(shard.number)
            assert shard.mix_seed == (None if strip is None else 7)
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
    vorbis = {"fmt": "OGG", "subtype": "VORBIS"}
    mp3 = {"fmt": "MPEG", "subtype": "MPEG_LAYER_III"}
    others = [clip(2, 30, **mp3), clip(3, 90, **vorbis)]
    assert longest_walk([*wave, *others], recipe) == 90
    filtered = recipe.replace(stream="high_pass(cutoff_hz=100)")
    assert longest_walk([*wave, *others], filtered) == 500
    copies = recipe.replace(copies=2, augment="noise")
    assert longest_walk([clip(2, 30, **vorbis)], copies) == 10
    test = clip(2, 30, split="test", **vorbis)
    assert longest_walk([test], copies) == 30  # it has no copies
