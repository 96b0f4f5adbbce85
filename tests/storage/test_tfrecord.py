"""Tests tfrecord.py against Beam's framing, Python's gzip and damage at every byte."""

import gzip
import hashlib
import io
import random
import zlib

import numpy as np
import pytest
from apache_beam.io.tfrecordio import _TFRecordUtil
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.storage.tfrecord import (
    MemberWriter,
    compress_member,
    content_length,
    frame_record,
    inflate_members,
    read_any_records,
)
from tests.raising import raises

RECORDS = [b"", b"a", b"cat" * 5, bytes(range(256))]


class ReadableWhenClosed(io.BytesIO):
    """A file whose bytes can be read after it was closed."""

    content = b""

    def close(self):
        if not self.closed:
            self.content = self.getvalue()
        super().close()


def compress(records):
    """Returns the bytes of a GZIP member with these records."""
    writer = MemberWriter(ReadableWhenClosed())
    for record in records:
        assert writer.write(frame_record(record)) == len(record) + 16
        writer.flush()  # which changes nothing
    writer.close()
    content = writer._file.content
    assert writer.bytes_written == len(content)
    assert writer.sha256() == hashlib.sha256(content).hexdigest()
    return content


def plain(records):
    return b"".join(map(frame_record, records))


def read(data):
    sha256 = hashlib.sha256()
    records = list(read_any_records(io.BytesIO(data), sha256))
    assert sha256.hexdigest() == hashlib.sha256(data).hexdigest()
    return records


def some_bytes(size, seed=0):
    return random.Random(seed).randbytes(size)


# Frames


@pytest.mark.parametrize("size", [0, 1, 2, 255, 256, 65535, 65536, 65537, 3 << 20])
def test_frames_are_those_of_beam(size):
    data = some_bytes(size)
    file = io.BytesIO()
    _TFRecordUtil.write_record(file, data)
    assert frame_record(data) == file.getvalue()


# Files


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=200), max_size=5), max_size=5))
def test_any_members_come_back_in_order(members):
    records = [record for records in members for record in records]
    assert read(b"".join(map(compress, members))) == records
    assert read(plain(records)) == records
    assert read(gzip.compress(plain(records))) == records


def test_a_record_may_begin_in_one_member_and_end_in_the_next():
    frame = frame_record(b"cat" * 100)
    for cut in range(len(frame) + 1):
        assert read(gzip.compress(frame[:cut]) + gzip.compress(frame[cut:])) == [
            b"cat" * 100
        ]


@pytest.mark.parametrize("size", [(1 << 20) - 1, 1 << 20, (1 << 20) + 1, 5 << 20])
def test_records_larger_than_a_block(size):
    records = [some_bytes(size), b"small", bytes(size)]
    assert read(compress(records)) == records


def test_a_length_that_looks_like_gzip_is_a_length():
    data = some_bytes(0x8B1F)
    assert frame_record(data)[:2] == b"\x1f\x8b"
    assert read(frame_record(data)) == [data]


# Damage


def test_a_compressed_file_cut_anywhere_is_an_error():
    first, second = compress(RECORDS[:2]), compress(RECORDS[2:])
    whole = first + second
    for size in range(1, len(whole)):
        if size == len(first):  # a whole member is a whole file
            assert read(whole[:size]) == RECORDS[:2]
            continue
        with raises(ValueError, naming="GZIP" if size > 1 else "record 0"):
            read(whole[:size])


@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_content_cut_anywhere_is_an_error_but_between_records(packed):
    content = plain(RECORDS)
    bounds = {len(plain(RECORDS[:n])): n for n in range(len(RECORDS) + 1)}
    for size in range(len(content) + 1):
        data = packed(content[:size])
        if size in bounds:
            assert read(data) == RECORDS[: bounds[size]]
            continue
        whole = max(n for bound, n in bounds.items() if bound < size)
        with raises(ValueError, naming=f"record {whole}"):
            read(data)


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_anywhere_is_found(bit):
    data = compress(RECORDS[:3])
    unnoticed = set()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << bit
        try:
            assert read(bytes(damaged)) == RECORDS[:3]
            unnoticed.add(position)
        except ValueError:
            pass
    # No checksum covers the flags, the time, the level and the system in the header,
    # nor the bits that pad the header of the block that is stored and the last byte
    # before the checksum. A copy of the bytes 0 may come from other bytes 0. None of
    # them changes the records; the SHA-256 of the file covers them.
    begin, end = 23, len(data) - 9  # of what is compressed
    assert {at for at in unnoticed if not begin <= at < end} <= {*range(3, 11), end}
    assert len(unnoticed & {*range(begin, end)}) <= 2


@pytest.mark.parametrize("bit", range(8))
@pytest.mark.parametrize("packed", [bytes, gzip.compress])
def test_a_flipped_bit_in_the_content_is_found_with_its_record(packed, bit):
    owners = [n for n, record in enumerate(RECORDS) for _ in frame_record(record)]
    for position, owner in enumerate(owners):
        damaged = bytearray(plain(RECORDS))
        damaged[position] ^= 1 << bit
        with raises(ValueError, naming=f"record {owner}"):
            read(packed(damaged))


@pytest.mark.parametrize("data", [b"x", bytes(50), b"not a GZIP file at all"])
def test_other_data_than_gzip_is_an_error(data):
    with raises(ValueError, naming="GZIP"):
        read(compress(RECORDS) + data)
    with raises(ValueError, naming="record 0"):
        read(data)
    records = read_any_records(io.BytesIO(compress([b"first"]) + data))
    assert next(records) == b"first"
    with raises(ValueError, naming="GZIP"):
        next(records)


SIZES = [0, 1, 7, 8, 9, 11, 12, 16, 287, 288, 296, 297, 32768, 65536, 66000, 200_000]


def audio(size):
    """Returns bytes that compress as a tone with some noise does."""
    rng = np.random.default_rng(size)
    tone = np.sin(np.arange(size // 2 + 1) / 9) * 9000 + rng.normal(
        0, 50, size // 2 + 1
    )
    return tone.astype("<i2").tobytes()[:size]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("content", [audio, bytes])
@pytest.mark.parametrize("compression", ["gzip", "gzip:1", "gzip:9"])
def test_any_content_comes_back(size, content, compression):
    member = compress_member(content(size), compression)
    assert gzip.decompress(member) == content(size)
    assert zlib.decompress(member, 31) == content(size)
    assert content_length(member) == size
    assert inflate_members(member, size) == content(size)
    assert len(member) <= size + 64 + size // 500


def test_the_bytes_do_not_depend_on_where_the_compressor_is():
    # Records of one length begin alike, so the first bytes are found again. They were
    # not at some places of 64 KiB, 3 of 8192, before the head was a dictionary.
    content = b"".join(frame_record(audio(86)) for _ in range(11))
    seen, places = set(), []
    for _ in range(8300):
        seen.add(compress_member(content))
        places.append(np.empty(65536, np.uint8))  # the next one is behind it
    assert len(seen) == 1


def test_a_level_is_that_of_zlib():
    content = audio(50_000)
    for level in range(1, 10):
        member = compress_member(content, f"gzip:{level}")
        deflate = zlib.compressobj(level, zlib.DEFLATED, -15, 9)
        assert member[10:-8] == deflate.compress(content) + deflate.flush()
    assert len(member) < len(compress_member(content))
    assert compress_member(content, "none") == content
