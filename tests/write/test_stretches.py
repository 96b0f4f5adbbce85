"""Stretches of a shard: the same bytes and members, however they are cut and joined."""

import hashlib
import itertools
import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.plan.shards import Shard
from beam_pipeline.storage.tfrecord import (
    PLAIN_SUFFIX,
    SUFFIX,
    is_compressed,
    read_any_records,
    scan_members,
)
from beam_pipeline.write.members import Members, unpack_columns
from beam_pipeline.write.mixed_shards import mixed_order
from beam_pipeline.write.stretches import (
    PlacedRecords,
    Stretch,
    clips_text,
    join_stretches,
    members_text,
    rows_text,
)
from beam_pipeline.write.window_rows import WindowRows


def records_at(positions):
    return {p: b"record %d " % p * (p % 5 + 1) for p in positions}


def elements_of(shard, kept, cuts):
    """The records of a shard as elements that end at the cuts; each is a clip's."""
    records = records_at(kept)
    bounds = sorted({0, shard.examples, *cuts})
    elements = []
    for start, stop in itertools.pairwise(bounds):
        positions = [p for p in range(start, stop) if p in records]
        offsets = None
        if len(positions) < stop - start:
            offsets = [p - start for p in positions]
        n = stop - start
        at = np.arange(start, stop)
        rows = WindowRows.of(at, np.ones(n), np.zeros(n), -at)
        found = [records[p] for p in positions]
        clip = start
        elements.append(
            PlacedRecords(shard, start, n, found, 0, None, offsets, rows, clip)
        )
    return elements


def write(elements, path):
    stretch = Stretch(elements[0].shard, elements[0].position, path)
    for element in elements:
        assert stretch.continued_by(element)
        stretch.write(element)
    return stretch.close()


def write_in_stretches(folder, shard, elements, ends, suffix):
    """Writes elements as several stretches, shuffles and joins them."""
    ends = [e for e in sorted(set(ends)) if 0 < e < len(elements)]
    written = [
        write(elements[start:stop], str(folder / f"{shard.name}-{start}{suffix}"))
        for start, stop in zip([0, *ends], [*ends, len(elements)], strict=True)
    ]
    random.Random(0).shuffle(written)
    return join_stretches(written, str(folder / f"{shard.name}-joined{suffix}"))


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_bytes_do_not_depend_on_stretches(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("x")
    examples = data.draw(st.integers(1, 30))
    suffix = data.draw(st.sampled_from([SUFFIX, PLAIN_SUFFIX]))
    per_member = data.draw(st.integers(1, 7)) if suffix == SUFFIX else 1
    kept = data.draw(st.sets(st.integers(0, examples - 1)))
    if data.draw(st.booleans()):
        kept = set(range(examples))
    cuts = data.draw(st.sets(st.integers(0, examples)))
    ends = data.draw(st.sets(st.integers(0, examples)))
    seed = data.draw(st.sampled_from([None, 0, 5]))
    shard = Shard("shard", "records", 0, examples, "", per_member, seed)
    order = range(examples) if seed is None else mixed_order(shard).tolist()
    assert sorted(order) == list(range(examples))

    whole = write(elements_of(shard, kept, ()), str(folder / f"whole{suffix}"))
    joined = write_in_stretches(
        folder, shard, elements_of(shard, kept, cuts), ends, suffix
    )
    content = (folder / f"whole{suffix}").read_bytes()
    assert (folder / f"shard-joined{suffix}").read_bytes() == content
    assert whole.sha256 == joined.sha256 == hashlib.sha256(content).hexdigest()
    assert whole.bytes == joined.bytes == len(content)
    assert whole.examples == joined.examples == len(kept)
    assert members_text(whole) == members_text(joined)
    assert rows_text(whole) == rows_text(joined)
    assert WindowRows.unpack(rows_text(whole)).starts.tolist() == list(order)
    if seed is None:
        assert clips_text(whole) == ""
    else:
        clips = unpack_columns(clips_text(joined), 1)[0].tolist()
        assert clips == [max(c for c in {0, *cuts} if c <= p) for p in order]

    with open(whole.path, "rb") as file:
        records = records_at(kept)
        assert list(read_any_records(file)) == [records[p] for p in order if p in kept]
    members = Members.unpack(members_text(whole))
    with open(whole.path, "rb") as file:
        found = list(scan_members(file, compressed=is_compressed(suffix)))
    assert all(member.is_whole for member in found)
    assert [m.records for m in found if m.records] == members.counts.tolist()
    assert [m.offset for m in found if m.records] == (
        np.cumsum(members.sizes) - members.sizes
    ).tolist()
    written = [k for k, position in enumerate(order) if position in kept]
    expected = [
        len([k for k in written if k // per_member == m]) for m in range(examples)
    ]
    assert members.counts.tolist() == [n for n in expected if n]


@pytest.mark.parametrize("sizes", [[], [1], [5, 300, 70000], [2**40]])
def test_members_survive_their_text(sizes):
    members = Members.of((size, k + 1) for k, size in enumerate(sizes))
    found = Members.unpack(members.pack())
    assert found.sizes.tolist() == sizes
    assert found.counts.tolist() == [k + 1 for k in range(len(sizes))]
