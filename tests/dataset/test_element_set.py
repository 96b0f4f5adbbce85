"""Files of members, and the shards that are joined of them."""

import hashlib
import itertools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_pipeline.dataset.element_set import (
    MemberFileWriter,
    ShardSizes,
    cut_shards,
    join_shard,
)
from beam_pipeline.storage.tfrecord import Members, frame_record, read_any_records


def records_of(sizes, seed=0):
    """Records of these sizes, each with other bytes."""
    return [bytes([(k + seed) % 256]) * size for k, size in enumerate(sizes)]


def write_blocks(folder, blocks, sizes):
    made = []
    with ThreadPoolExecutor(2) as pool:
        for records in blocks:
            writer = MemberFileWriter(f"{folder}/drafts", sizes, pool)
            writer.write_all(records)
            made += writer.close()
    return made


def joined(folder, made, sizes, may_move=False):
    """Joins shards, and returns the SHA-256 and the records of each."""
    found = []
    for number, shard in enumerate(cut_shards("train", made, sizes)):
        places = f"{folder}/out", f"{folder}/drafts"
        info = join_shard(shard, sizes, *places, may_move=may_move)
        path = Path(f"{folder}/out/{info.file}")
        content = path.read_bytes()
        assert info.sha256 == hashlib.sha256(content).hexdigest()
        assert (info.bytes, info.shard.number) == (len(content), number)
        with path.open("rb") as file:
            records = list(read_any_records(file))
        members = Members.unpack(info.members)
        assert len(records) == info.examples == members.counts.sum()
        if records:
            assert members.sizes.sum() == len(content)
        found.append((info.sha256, records))
    return found


def counts_by_hand(n, sizes):
    """The number of records in each shard, if bytes do not decide."""
    if sizes.elements_per_file:
        full, rest = divmod(n, sizes.elements_per_file)
        return [sizes.elements_per_file] * full + [rest] * (rest > 0)
    shards = min(sizes.num_shards, n)
    ends = [k * n // shards for k in range(shards + 1)]
    return [stop - start for start, stop in itertools.pairwise(ends)]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 400), max_size=9), max_size=5),
    st.sampled_from(["elements_per_file", "num_shards"]),
    st.integers(1, 12),
    st.sampled_from(["gzip", "none"]),
)
@example([[10] * 10], "elements_per_file", 4, "gzip")
@example([[], []], "num_shards", 3, "gzip")
def test_shards_hold_every_record_once_in_order(
    tmp_path_factory, blocks, way, number, compression
):
    folder = tmp_path_factory.mktemp("members")
    # Members of 1 kB, so shards begin and end in the middle of some.
    sizes = ShardSizes(**{way: number}, member_bytes=1000, compression=compression)
    blocks = [records_of(block, k) for k, block in enumerate(blocks)]
    flat = [record for block in blocks for record in block]
    made = write_blocks(folder, blocks, sizes)
    found = joined(folder, made, sizes)
    assert [record for _, records in found for record in records] == flat
    counts = counts_by_hand(len(flat), sizes) if flat else [0]
    assert [len(records) for _, records in found] == counts
    assert joined(folder, made, sizes) == found  # a runner may do it again
    assert joined(folder, made, sizes, may_move=True) == found


@pytest.mark.parametrize("limit", [1, 100, 1600, 160_000])
def test_shards_stay_below_their_limit_and_may_be_moved(tmp_path, limit):
    records = records_of([40] * 60 + [3000] + [40] * 60)
    sizes = ShardSizes(shard_bytes=limit)
    made = write_blocks(tmp_path, [records], sizes)
    copied = joined(tmp_path, made, sizes)
    framed = [[len(frame_record(r)) for r in shard] for _, shard in copied]
    assert all(len(some) == 1 or sum(some) <= limit for some in framed)
    assert [record for _, shard in copied for record in shard] == records
    if limit == 1600:  # shards are full up to a sixteenth
        full = [sum(some) >= limit * 15 / 16 - 56 for some in framed]
        assert sum(full) >= len(full) - 3
    names = [
        f"{tmp_path}/out/{each.shard.name}{sizes.suffix}"
        for each in cut_shards("train", made, sizes)
    ]
    again = tf.data.TFRecordDataset(names, "GZIP")
    assert list(again.as_numpy_iterator()) == records
    # Each file is a shard already: it moves, and has the bytes of a copy.
    assert len(made) == len(copied)
    assert joined(tmp_path, made, sizes, may_move=True) == copied
    assert not any(Path(each.path).exists() for each in made)


def test_files_of_so_many_examples_are_moved_as_shards(tmp_path):
    records = records_of([100] * 40)
    sizes = ShardSizes(elements_per_file=8)
    direct = write_blocks(tmp_path, [records], sizes)
    copied = joined(tmp_path, direct, sizes)
    assert [len(shard) for _, shard in copied] == [8] * 5 == [f.records for f in direct]
    assert joined(tmp_path, direct, sizes, may_move=True) == copied
    assert not any(Path(each.path).exists() for each in direct)
