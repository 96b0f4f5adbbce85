"""One shard in blocks: the same bytes however it is cut; refused unless it is whole."""

import hashlib
import io
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import IncompleteRun
from beam_pipeline.planning.shards import Shard
from beam_pipeline.storage.tfrecord import (
    PLAIN_SUFFIX,
    SUFFIX,
    Members,
    read_any_records,
    unpack_columns,
)
from beam_pipeline.write.shard import ShardDraft, mixed_order
from beam_pipeline.write.window_rows import WindowRows
from tests.raising import raises
from tests.shards import FORMAT, blocks_of, record_at


def write(blocks, path):
    compression = "gzip" if path.suffix == ".gz" else "none"
    draft = ShardDraft(blocks[0].slot.shard, FORMAT, str(path), compression)
    for block in blocks:
        draft.write(block)
    return draft.close(path.name)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_bytes_do_not_depend_on_how_blocks_are_cut(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("x")
    examples = data.draw(st.integers(1, 30))
    suffix = data.draw(st.sampled_from([SUFFIX, PLAIN_SUFFIX]))
    per_member = data.draw(st.integers(1, 7)) if suffix == SUFFIX else 1
    left_out = data.draw(st.sets(st.integers(0, examples - 1)))
    cuts = data.draw(st.sets(st.integers(0, examples)))
    lost = data.draw(st.sets(st.sampled_from([0, *sorted(cuts)])))
    seed = data.draw(st.sampled_from([None, 0, 5]))
    shard = Shard("shard", "records", 0, examples, "", per_member, seed)
    order = range(examples) if seed is None else mixed_order(shard).tolist()
    assert sorted(order) == list(range(examples))

    blocks = blocks_of(shard, cuts, left_out, lost)
    info = write(blocks, folder / f"cut{suffix}")
    content = (folder / f"cut{suffix}").read_bytes()
    assert [path.name for path in folder.iterdir()] == [f"cut{suffix}"]
    kept = {
        position
        for block in blocks
        for position in block.positions
        if block.reject is None and position not in left_out
    }
    if not any(block.reject for block in blocks):
        whole = write(blocks_of(shard, (), left_out), folder / f"whole{suffix}")
        assert (folder / f"whole{suffix}").read_bytes() == content
        assert whole._replace(file=info.file, clips=info.clips) == info
    assert info.sha256 == hashlib.sha256(content).hexdigest()
    assert info.bytes == len(content)
    assert info.examples == len(kept)
    in_lost = sum(len(block.positions) for block in blocks if block.reject)
    assert info.left_out == examples - len(kept) - in_lost
    assert info.is_whole() == (in_lost == 0)
    assert WindowRows.unpack(info.windows).starts.tolist() == list(order)
    if seed is None:
        assert info.clips == ""
    else:
        clips = unpack_columns(info.clips, 1)[0].tolist()
        assert clips == [max(c for c in {0, *cuts} if c <= p) for p in order]

    with open(folder / info.file, "rb") as file:
        records = list(read_any_records(file))
    assert records == [record_at(shard, p) for p in order if p in kept]
    members = Members.unpack(info.members)
    ends = np.cumsum(members.sizes)
    assert len(content) == ends[-1] if kept else not members.counts.sum()
    for end, size, count in zip(ends, *members, strict=True):
        alone = io.BytesIO(content[end - size : end])
        assert len(list(read_any_records(alone))) == count
    written = [k for k, position in enumerate(order) if position in kept]
    expected = [
        len([k for k in written if k // per_member == m]) for m in range(examples)
    ]
    assert members.counts.tolist() == [n for n in expected if n]


SHARD = Shard("train/one", "train", 0, 12)


def others(blocks):
    """The same blocks, of another shard."""
    slot = blocks[0].slot
    other = slot.shard._replace(name="other")
    return [replace(b, slot=replace(b.slot, shard=other)) for b in blocks]


@pytest.mark.parametrize(
    ("changed", "facts"),
    [
        (lambda b: b[1:], ["position 4", "first 0"]),
        (lambda b: [b[0], b[2]], ["position 8", "first 4"]),
        (lambda b: [b[0], b[0]], ["position 0", "first 4"]),
        (lambda b: [b[0], b[2], b[1]], ["position 8", "first 4"]),
        (lambda b: [b[0], *others(b)[1:]], ["other", "first 4"]),
        (lambda b: b[:-1], ["8 of 12"]),
        (lambda b: [*b, b[-1]], ["position 8", "first 12"]),
    ],
    ids=[
        "first is missing", "gap", "repeated", "other order", "two shards mixed",
        "last is missing", "beyond the end",
    ],
)  # fmt: skip
@pytest.mark.parametrize("mix_seed", [None, 3])
def test_only_a_whole_shard_is_written(tmp_path, changed, facts, mix_seed):
    shard = SHARD._replace(mix_seed=mix_seed)
    blocks = blocks_of(shard, (4, 8), lost={4})
    write(blocks, tmp_path / "good.tfrecord")
    draft = ShardDraft(shard, FORMAT, str(tmp_path / "bad.tfrecord"))
    with raises(IncompleteRun, naming=[shard.name, *facts]):
        for block in changed(blocks):
            draft.write(block)
        draft.close("bad")
    draft.abandon()
    assert [path.name for path in tmp_path.iterdir()] == ["good.tfrecord"]
