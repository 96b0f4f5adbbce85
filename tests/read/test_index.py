"""members.index: made with the data set, compared with its shards, and verified."""

import json
import struct
from importlib.resources import files as resources

import google_crc32c
import jsonschema
import numpy as np
import pytest

from beam_pipeline import convert, open_records, record, verify
from beam_pipeline.dataset.metadata import (
    ShardEntry,
    ShardIndex,
    load_index,
    write_index,
)
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec
from tests.raising import assert_names, raises
from tests.read.members import index_data_set, make

SCHEMA = json.loads(
    resources("beam_pipeline.dataset").joinpath("members.schema.json").read_text()
)


def header_of(folder):
    content = (folder / "members.index").read_bytes()
    (length,) = struct.unpack_from("<Q", content, 8)
    return json.loads(content[16 : 16 + length])


@pytest.mark.parametrize(
    "options",
    [
        {"compression": "none"},
        {"compression": "gzip:6"},
        {"member_bytes": 5000, "keep": "energy(above_db=-10.8)"},
        {"member_bytes": 1 << 20, "splits": "train=.5,test=.5"},
    ],
    ids=str,
)
def test_the_index_of_a_run_is_that_of_its_shards(sounds, tmp_path, options):
    folder = tmp_path / "out"
    record(sounds, folder, win_len=500, elements_per_file=20, **options)
    written = (folder / "members.index").read_bytes()
    members = index_data_set(str(folder))  # from the shards
    assert (folder / "members.index").read_bytes() == written
    jsonschema.Draft202012Validator(SCHEMA).validate(header_of(folder))
    listed = sum(shard["members"] for shard in header_of(folder)["shards"])
    assert members == listed >= 3
    assert verify(folder) == []
    for split in options.get("splits", "records=1").split(","):
        assert len(list(open_records(str(folder), split.partition("=")[0]))) > 0


@pytest.mark.parametrize("counts", [[], [1], [3, 3, 3], [3, 3, 1], [3, 1, 3], [1, 2]])
@pytest.mark.parametrize("base", [0, 2**33])
def test_every_position_is_in_its_member(tmp_path, counts, base):
    offsets = np.array([base + 10 * i for i in range(len(counts))], np.int64)
    size, n = base + 10 * len(counts) + 5, sum(counts)
    shards = [
        ShardIndex.make(
            ShardEntry("a", n, size, "0" * 64), offsets, np.array(counts, np.int64)
        ),
        ShardIndex.make(ShardEntry("b", 0, 20, "1" * 64), offsets[:0], offsets[:0]),
    ]
    write_index(str(tmp_path), shards)
    jsonschema.Draft202012Validator(SCHEMA).validate(header_of(tmp_path))
    index = load_index(str(tmp_path))["a"]
    index.check()
    owners = np.repeat(np.arange(len(counts)), counts)
    assert index.member_of(np.arange(n)).tolist() == owners.tolist()
    for member, count in enumerate(counts):
        span = index.span(member)
        end = size if member + 1 == len(counts) else offsets[member + 1]
        assert (span.offset, span.offset + span.size) == (offsets[member], end)
        assert (span.first, span.examples) == (sum(counts[:member]), count)


def numbers(count):
    spec = FeatureSpec("n", "int64", (), "int64_list")
    return [spec], {"n": np.arange(count)}


def sealed(content):
    """The content of an index, with the checksum of all that is before its last 4."""
    return content[:-4] + struct.pack("<I", google_crc32c.value(content[:-4]))


def craft(folder, change=lambda header: None, arrays=None):
    """Writes an index again, with another header or other arrays."""
    path = folder / "members.index"
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content, 8)
    described = header_of(folder)
    header = change(described)
    if not isinstance(header, bytes):
        header = json.dumps(described).encode()
    body = content[16 + length : -4] if arrays is None else arrays
    header += b" " * (-len(header) % 8)
    path.write_bytes(
        sealed(content[:8] + struct.pack("<Q", len(header)) + header + body + b"sum ")
    )


@pytest.mark.parametrize("gzip", [True, False])
def test_every_changed_bit_of_an_index_is_found(tmp_path, gzip):
    make(tmp_path, *numbers(3), {"a": [3]}, gzip=gzip)
    path = tmp_path / "members.index"
    content = path.read_bytes()
    for place in range(len(content)):
        changed = bytearray(content)
        changed[place] ^= 1 << place % 8
        path.write_bytes(changed)
        with raises(InputError, naming=[path, "audio-tfrecords convert"]):
            open_records(tmp_path)
    for wrong, fact in (
        (b"", "ATFRMEM1"), (sealed(b"x" + content[1:]), "ATFRMEM1"),
        (sealed(content[:-1]), "arrays"),
    ):  # fmt: skip
        path.write_bytes(wrong)
        with raises(InputError, naming=[path, fact]):
            open_records(tmp_path)
    path.write_bytes(content)
    assert [int(example["n"]) for example in open_records(tmp_path)] == [0, 1, 2]


SHARD = "a/a-00000-of-00001"


def shard_field(name, value):
    return lambda header: header["shards"][0].update({name: value})


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        *(
            (shard_field(name, value), name)
            for name in ("examples", "bytes", "members")
            for value in ("16", -1, 1.0, True, [[]])
        ),
        (shard_field("members", 2), "bytes instead of"),
        (shard_field("members", 10**9), "bytes instead of"),
        (shard_field("file", 7), "file"),
        (shard_field("file", "a/a-00009-of-00001"), SHARD),
        (shard_field("sha256", None), "sha256"),
        (shard_field("sha256", "0" * 64), SHARD),
        (shard_field("examples", 2), "has examples 2, but metadata.json has 3"),
        (shard_field("bytes", 7), "has bytes"),
        (lambda header: header["shards"].__setitem__(0, "a"), "shards[0]"),
        (lambda header: header["shards"][0].pop("members"), "members"),
        (lambda header: header.update(shards={}), "shards"),
        *((lambda _, text=text: text, "members.index")
          for text in (b"[" * 100_000, b"{", b"[]", b"\xff", b"1" * 9999, b"")),
    ],
)  # fmt: skip
def test_a_crafted_header_is_refused(tmp_path, change, fact):
    make(tmp_path, *numbers(3), {"a": [3]})
    craft(tmp_path, change)
    with raises(InputError, naming=[tmp_path, "members.index", fact, "convert"]):
        open_records(tmp_path)


@pytest.mark.parametrize(
    ("place", "values"),
    [
        *((0, offsets) for offsets in ([0, 20, 10], [0, 10, 10], [0, 1, 1 << 20],
                                       [0, 1 << 31, 3 << 30])),
        (3, [7]),  # the file's bytes
        *((4, firsts) for firsts in ([0, 2, 1], [1, 2, 3], [0, 1, 4])),
        (7, [4]),  # the shard's examples
    ],
)  # fmt: skip
@pytest.mark.parametrize("gzip", [True, False])
def test_arrays_that_are_not_of_the_shard_are_refused(tmp_path, place, values, gzip):
    make(tmp_path, *numbers(3), {"a": [3]}, gzip=gzip)
    path = tmp_path / "members.index"
    arrays = np.frombuffer(path.read_bytes()[-4 - 8 * 8 : -4], "<u8").copy()
    arrays[place : place + len(values)] = values
    craft(tmp_path, arrays=arrays.tobytes())
    name = "offsets" if place < 4 else "first examples"
    facts = [path, name, "3 examples", SHARD, "audio-tfrecords convert"]
    with raises(InputError, naming=facts):
        open_records(tmp_path)


def test_an_index_that_is_missing_is_made_by_convert(folder, tmp_path):
    (folder / "members.index").unlink()
    assert_names("\n".join(verify(folder)), "members.index", "audio-tfrecords convert")
    with raises(InputError, naming=f"audio-tfrecords convert {folder}"):
        open_records(folder, "train")
    convert(folder, tmp_path / "other")
    assert len(open_records(tmp_path / "other", "train")) > 0
