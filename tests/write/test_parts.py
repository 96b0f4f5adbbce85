import itertools
import os

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.storage.gzip_members import compress_member, inflate
from beam_pipeline.storage.tfrecord import frame_record, read_any_records, record_bounds
from beam_pipeline.write.part_shards import cut_shards, join_pieces
from beam_pipeline.write.parts import PartWriter, ShardSizes


def records_of(sizes, seed=0):
    """Records of these sizes, each with other bytes."""
    return [bytes([(k + seed) % 256]) * size for k, size in enumerate(sizes)]


def write_blocks(folder, blocks, sizes, **options):
    parts = []
    for order, records in enumerate(blocks):
        writer = PartWriter(f"{folder}/parts", "train", order, sizes, **options)
        for record in records:
            writer.write(record)
        parts += writer.close()
    return parts


def joined(folder, parts, sizes, **options):
    infos = [
        join_pieces(shard, f"{folder}/out", f"{folder}/parts", **options)
        for shard in cut_shards("train", parts, sizes)
    ]
    found = []
    for info in infos:
        path = f"{folder}/out/{info.file}"
        assert os.path.getsize(path) == info.bytes
        with open(path, "rb") as file:
            records = list(read_any_records(file))
        assert len(records) == info.examples
        found.append(records)
    return infos, found


def bounds_by_hand(records, sizes, blocks):
    """The number of records in each shard, one record after the other."""
    n = len(records)
    if sizes.elements_per_file:
        full, rest = divmod(n, sizes.elements_per_file)
        counts = [sizes.elements_per_file] * full + [rest] * (rest > 0)
        if sizes.multiple_of == 1:
            return counts
        shards = len(counts)
    else:
        shards = sizes.num_shards
    shards = -(-shards // sizes.multiple_of) * sizes.multiple_of
    shards = min(shards, n)
    return [
        n // shards + ((k + 1) * n // shards - k * n // shards > n // shards)
        for k in range(shards)
    ]


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.lists(st.integers(0, 400), max_size=9), max_size=5),
    st.one_of(
        st.integers(1, 12).map(lambda n: {"elements_per_file": n}),
        st.integers(1, 12).map(lambda n: {"num_shards": n}),
    ),
    st.integers(1, 4),
)
def test_shards_hold_every_record_once_in_order(
    tmp_path_factory, blocks, size, multiple
):
    folder = tmp_path_factory.mktemp("parts")
    # A limit of 16 kB makes members of 1 kB.
    sizes = ShardSizes(**size, multiple_of=multiple)
    object.__setattr__(sizes, "shard_bytes", 16000)
    blocks = [records_of(block, k) for k, block in enumerate(blocks)]
    flat = [record for block in blocks for record in block]
    infos, found = joined(folder, write_blocks(folder, blocks, sizes), sizes)
    assert [record for records in found for record in records] == flat
    assert [len(records) for records in found] == (
        bounds_by_hand(flat, sizes, blocks) if flat else []
    )
    assert [info.shard.number for info in infos] == list(range(len(infos)))


def test_bytes_do_not_depend_on_the_way(tmp_path):
    """Parts that are moved as shards have the bytes of parts that are copied."""
    records = records_of([100] * 40)
    sizes = ShardSizes(elements_per_file=8)
    direct = write_blocks(
        tmp_path / "a", [records], sizes, examples=itertools.repeat(8)
    )
    moved, _ = joined(tmp_path / "a", direct, sizes, may_move=True)
    cut = [records[i : i + 8] for i in range(0, 40, 8)]
    copied, _ = joined(tmp_path / "b", write_blocks(tmp_path / "b", cut, sizes), sizes)
    assert [info.sha256 for info in moved] == [info.sha256 for info in copied]


@pytest.mark.parametrize("limit", [1, 100, 1600, 16000])
def test_shards_stay_below_their_limit(tmp_path, limit):
    records = records_of([40] * 50 + [3000] + [40] * 50)
    sizes = ShardSizes(shard_bytes=limit)
    parts = write_blocks(tmp_path, [records], sizes, by_bytes=True)
    infos, found = joined(tmp_path, parts, sizes, may_move=True)
    assert [r for some in found for r in some] == records
    for some in found:
        assert len(some) == 1 or sum(len(frame_record(r)) for r in some) <= limit
    again = tmp_path / "again"
    copied, _ = joined(again, write_blocks(again, [records], sizes), sizes)
    assert [info.sha256 for info in copied] == [info.sha256 for info in infos]
    if limit == 1600:  # shards are full up to a sixteenth
        full = [sum(len(frame_record(r)) for r in some) for some in found]
        assert sum(size >= limit * 15 / 16 - 56 for size in full) >= len(full) - 3


def test_tensorflow_reads_shards_of_members(tmp_path):
    records = records_of([50] * 100)
    sizes = ShardSizes(shard_bytes=3200)
    infos, _ = joined(tmp_path, write_blocks(tmp_path, [records], sizes), sizes)
    paths = [f"{tmp_path}/out/{info.file}" for info in infos]
    assert list(tf.data.TFRecordDataset(paths, "GZIP").as_numpy_iterator()) == records


def test_a_part_ends_inside_a_member(tmp_path):
    records = records_of([10] * 10)
    sizes = ShardSizes(elements_per_file=4)
    _, found = joined(tmp_path, write_blocks(tmp_path, [records], sizes), sizes)
    assert [len(some) for some in found] == [4, 4, 2]


def test_a_shard_is_written_again(tmp_path):
    sizes = ShardSizes(elements_per_file=4)
    parts = write_blocks(tmp_path, [records_of([10] * 10)], sizes)
    first, _ = joined(tmp_path, parts, sizes)
    second, _ = joined(tmp_path, parts, sizes)
    assert first == second


def test_members_are_one_stream(tmp_path):
    path = tmp_path / "x.gz"
    path.write_bytes(
        compress_member(b"abc") + compress_member(b"") + compress_member(b"d")
    )
    with path.open("rb") as file:
        assert b"".join(inflate(file)) == b"abcd"


def test_bounds_of_records():
    framed = b"".join(map(frame_record, [b"", b"abc", b"d"]))
    assert record_bounds(framed) == [0, 16, 35, 52]
    assert record_bounds(b"") == [0]


@pytest.mark.parametrize("options", [
    {"elements_per_file": 0}, {"num_shards": -1}, {"multiple_of": 0},
    {"elements_per_file": 1, "num_shards": 1}, {"shard_bytes": 1.5},
])  # fmt: skip
def test_sizes_that_make_no_sense(options):
    with pytest.raises(RecipeError):
        ShardSizes(**options)
