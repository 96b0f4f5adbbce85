"""Names of generations, and metadata that extend others."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.dataset.generation import Generation
from beam_pipeline.dataset.generations import extends, generation_files, newest_file
from beam_pipeline.dataset.metadata import Metadata, ShardEntry, SplitEntry
from beam_pipeline.dataset.output_folder import (
    MANIFEST,
    generation_file,
    generation_of_file,
    is_ours,
    is_shard_file,
)
from beam_pipeline.plan.shard_names import generation_of, shard_name
from beam_pipeline.recipe.recipe import Recipe


@given(
    st.sampled_from(["records", "train", "a001", "a_a001"]),
    st.integers(0, 200_000),
    st.integers(1, 200_000),
    st.integers(0, 2000),
)
def test_a_shards_name_tells_its_generation(split, k, shards, generation):
    name = shard_name(split, k, shards, generation)
    assert generation_of(name) == (generation if k < shards else None)
    assert is_shard_file(f"{name}.tfrecord.gz") == (k < shards)


@pytest.mark.parametrize(
    ("name", "generation"),
    [
        ("manifest.parquet", 0),
        ("manifest-a001.parquet", 1),
        ("members-a012.index", 12),
        ("rejected-a1000.jsonl", 1000),
        ("metadata-a000.json", 0),
        ("statistics-a003.json", 3),
        ("manifest-a01.parquet", None),
        ("manifest-a0001.parquet", None),
        ("manifest-a000.parquet", None),
        ("other-a001.parquet", None),
        ("train/manifest-a001.parquet", None),
        ("metadata.json", None),
        ("train/train-a001-00000-of-00002.tfrecord.gz", 1),
        ("train/train-a000-00000-of-00002.tfrecord.gz", None),
        ("train/eval-a001-00000-of-00002.tfrecord.gz", None),
        ("train/train-a001-00002-of-00002.tfrecord", None),
    ],
)
def test_which_generation_a_file_is_of(name, generation):
    assert generation_of_file(name) == generation
    assert is_ours(name) == (generation is not None or name == "metadata.json")


def metadata_of(*generations):
    shards = tuple(
        ShardEntry(shard_name("train", 0, 1, g) + ".tfrecord.gz", 1, 1, sha)
        for g, sha in enumerate(generations)
    )
    made = Metadata(Recipe(win_len=1), {}, (), {"train": SplitEntry(1, shards=shards)})
    runs = tuple(Generation("append", 1) for _ in generations)
    return replace(made, generations=runs if len(runs) > 1 else ())


def test_metadata_extend_others_if_their_shards_are_the_first():
    one, two, other = metadata_of("x"), metadata_of("x", "y"), metadata_of("z", "y")
    assert extends(two, one)
    assert extends(metadata_of("x", "y", "z"), two)
    assert not extends(one, one)  # the same data set, recorded again
    assert not extends(one, two)
    assert not extends(other, one)
    renamed = {"test": two.splits["train"]}
    assert not extends(replace(two, splits=renamed), one)


def test_the_files_of_each_generation():
    assert generation_files(metadata_of("x"), MANIFEST) == ["manifest.parquet"]
    three = metadata_of("x", "y", "z")
    names = ["manifest.parquet", "manifest-a001.parquet", "manifest-a002.parquet"]
    assert generation_files(three, MANIFEST) == names
    assert newest_file(three, MANIFEST) == generation_file(MANIFEST, 2) == names[2]
