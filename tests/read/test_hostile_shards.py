"""Shards that request gigabytes, hang or change: errors that name the file."""

import json
import os
import pickle
import subprocess
import sys
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline.dataset.member_index import ShardIndex, load_index, write_index
from beam_pipeline.errors import DamagedRecord, InputError
from beam_pipeline.examples.spec import BYTES_LIST, INT64_LIST, RAW, FeatureSpec
from beam_pipeline.read import members
from beam_pipeline.read.records import open_records
from beam_pipeline.storage.tfrecord import (
    compress_member,
    inflate_member,
    inflate_members,
)
from tests.raising import assert_names, raises
from tests.read.members import make

NUMBER = FeatureSpec("number", "int64", (), INT64_LIST)
NOISE = FeatureSpec("noise", "int16", (100,), RAW)
TEXT = FeatureSpec("text", "string", (), BYTES_LIST)
COUNT = 6
COLUMNS = {
    "number": np.arange(COUNT),
    "noise": np.random.default_rng(0).integers(-9, 9, (COUNT, 100), np.int16),
    "text": list("abcdef"),
}
BOMB_BYTES = 64 << 20
BOMB = compress_member(bytes(BOMB_BYTES))


def stating(member, length):
    return member[:-4] + length.to_bytes(4, "little")


def replace_member(folder, number, member):
    """Puts other bytes in the place of a member of the only shard."""
    (shard,) = load_index(folder).values()
    spans = [shard.span(k) for k in range(len(shard.offsets) - 1)]
    path = Path(folder, shard.file)
    content = path.read_bytes()
    members = [content[s.offset : s.offset + s.size] for s in spans]
    members[number] = member
    sizes = np.array([len(m) for m in members])
    path.write_bytes(b"".join(members))
    metadata = json.loads(Path(folder, "metadata.json").read_text())
    (split,) = metadata["splits"].values()
    split["shards"][0]["bytes"] = int(sizes.sum())
    Path(folder, "metadata.json").write_text(json.dumps(metadata))
    counts = np.array([span.examples for span in spans])
    offsets = np.cumsum(sizes) - sizes
    shard = replace(shard, bytes=int(sizes.sum()))
    write_index(folder, [ShardIndex.make(shard, offsets, counts)])
    return path, int(offsets[number])


def memory_of(work):
    """The most bytes that Python's allocators held while some work was done."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


READS = {
    "single": lambda records: records[2],
    "together": lambda records: records.read([0, 1, 2, 3]),
    "iteration": list,
}


@pytest.mark.parametrize("per_member", [1, 2])
@pytest.mark.parametrize("states", [0, 1, 2000, BOMB_BYTES - 1, 2**32 - 1])
@pytest.mark.parametrize("way", READS)
def test_a_member_that_lies_about_its_length(tmp_path, per_member, states, way):
    folder = make(tmp_path, [NUMBER, NOISE, TEXT], COLUMNS, {"a": [6]}, per_member)
    bomb = stating(compress_member(bytes(8 << 20)), states)
    if states == BOMB_BYTES - 1:
        bomb = stating(BOMB, states)
    place = 2 // per_member
    path, offset = replace_member(folder, place, bomb)
    records = open_records(folder)

    def read():
        with pytest.raises(DamagedRecord) as caught:
            READS[way](records)
        assert_names(str(caught.value), path, offset, 2)

    held = memory_of(read)
    assert held < (4 << 20 if states < 1 << 20 or states > 1 << 30 else 300 << 20)
    assert records[0]["number"] == 0
    assert records[5]["number"] == 5


def test_inflating_is_bounded():
    parts = [b"", b"a", bytes(100_000), b"ab" * 999]
    members = [compress_member(part) for part in parts]
    for part, member in zip(parts, members, strict=True):
        assert inflate_member(member) == inflate_member(member, len(part)) == part
        assert inflate_member(member + b"more") == part
        for wrong in (member[:-1], member[:-9], b"x" + member[1:]):
            for length in (len(part), -1):
                with pytest.raises(ValueError, match="GZIP"):
                    inflate_member(wrong, length)
        if part:
            with pytest.raises(ValueError, match="longer than"):
                inflate_member(member, len(part) - 1)
    whole, joined = b"".join(parts), b"".join(members)
    assert inflate_members(joined, len(whole)) == whole
    for length in (len(whole) - 1, len(whole) + 1, 0):
        with pytest.raises(ValueError, match="do not hold"):
            inflate_members(joined, length)
    with pytest.raises(ValueError, match="GZIP"):
        inflate_members(joined[:-1], len(whole))


@pytest.fixture
def folder(tmp_path):
    return make(tmp_path, [NUMBER, NOISE], COLUMNS, {"a": [3, 3]}, 3)


def shard_paths(folder):
    return sorted(Path(folder, "a").iterdir())


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_shard_that_is_no_regular_file(folder, kind):
    first, _ = shard_paths(folder)
    first.unlink()
    if kind == "pipe":
        os.mkfifo(first)
    elif kind == "device":
        first.symlink_to("/dev/zero")
    else:
        first.mkdir()
    code = (
        "from beam_pipeline import open_records\n"
        "from beam_pipeline.errors import InputError\n"
        f"records = open_records({folder!r})\n"
        "assert records[3]['number'] == 3\n"
        "for read in (lambda: records[0], lambda: records.read([0, 5])):\n"
        "    try: read()\n"
        "    except InputError as error: print(error)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True, text=True, check=True, timeout=60,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert_names(line, first, "regular file")


@pytest.mark.parametrize("per_member", [1, 3])
@pytest.mark.parametrize(
    "read",
    [
        lambda records: records[1],
        lambda records: records.read([1, 2]),
        lambda records: records.serialised([1]),
        lambda records: next(iter(records)),
        lambda records: next(iter(records.batches(2))),
    ],
)
def test_open_shards_of_a_folder_that_was_recorded_again(
    tmp_path, monkeypatch, read, per_member
):
    """The files that are open are the old ones, whose names new files have now."""
    monkeypatch.setattr(members, "CHECK_SECONDS", 0)
    specs = [NUMBER, NOISE]
    folder = make(tmp_path, specs, COLUMNS, {"a": [6]}, per_member)
    records, unread = open_records(folder), open_records(folder)
    pickled = pickle.dumps(records)
    read(records)
    (path,) = shard_paths(folder)
    for file in (path, Path(folder, "metadata.json")):
        file.unlink()
    facts = [path, "metadata.json", "open it again"]
    with raises(InputError, naming=facts):
        read(records)
    columns = {**COLUMNS, "number": 7 + np.arange(COUNT)}
    make(tmp_path, specs, columns, {"a": [6]}, per_member)
    for opened in (records, records, unread):
        with raises(InputError, naming=facts):
            read(opened)
    with raises(InputError, naming=[folder, "metadata.json has changed"]):
        pickle.loads(pickled)
    assert open_records(folder)[1]["number"] == 8


def test_a_rewritten_folder_is_noticed_soon(tmp_path, monkeypatch):
    folder = make(tmp_path, [NUMBER, NOISE], COLUMNS, {"a": [6]})
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    records = open_records(folder)
    assert records[1]["number"] == 1
    Path(folder, "metadata.json").touch()
    assert records[1]["number"] == 1
    now[0] += members.CHECK_SECONDS
    with raises(InputError, naming="metadata.json"):
        records[1]


def test_examples_are_not_searched_for(folder):
    records = open_records(folder)
    example = records[0]
    for search in (
        lambda: example in records,
        lambda: records.index(example),
        lambda: records.index(example, start=1),
        lambda: records.count(example),
        lambda: example in records[1:],
    ):
        with pytest.raises(TypeError, match=r"hold arrays.*`where`"):
            search()
    assert [int(each["number"]) for each in records] == list(range(COUNT))
    assert len(list(reversed(records))) == COUNT
