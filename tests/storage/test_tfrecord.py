"""Tests tfrecord.py against Beam's framing, Python's gzip and damage at every byte."""

import gzip
import hashlib
import io
import random
import struct

import google_crc32c
import pytest
from apache_beam.io.tfrecordio import _TFRecordUtil
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.storage.gzip_members import GzipWriter, inflate
from beam_pipeline.storage.tfrecord import (
    frame_record,
    masked_crc32c,
    read_any_records,
    read_records,
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
    writer = GzipWriter(ReadableWhenClosed())
    for record in records:
        writer.write(frame_record(record))
    writer.close()
    return writer._file.content


def read(data, **kwargs):
    return list(read_records(io.BytesIO(data), **kwargs))


def some_bytes(size, seed=0):
    return random.Random(seed).randbytes(size)


# Frames


@pytest.mark.parametrize("size", [0, 1, 2, 255, 256, 65535, 65536, 65537, 3 << 20])
def test_frames_are_those_of_beam(size):
    data = some_bytes(size)
    file = io.BytesIO()
    _TFRecordUtil.write_record(file, data)
    assert frame_record(data) == file.getvalue()
    assert masked_crc32c(data) == _TFRecordUtil._masked_crc32c(data)


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=300))
def test_checksums_are_those_of_beam(data):
    assert masked_crc32c(data) == _TFRecordUtil._masked_crc32c(data)


@pytest.mark.parametrize("crc", [0, 1, 0x7FFF, 0x8000, 0x12345678, 0xFFFFFFFF])
def test_the_mask_turns_right_by_15_bits(crc):
    def rotate(bits):
        return int(f"{bits:032b}"[-15:] + f"{bits:032b}"[:-15], 2)

    assert google_crc32c.value(b"123456789") == 0xE3069283  # the check value of CRC-32C
    wanted = (rotate(0xE3069283) + 0xA282EAD8) % 2**32
    assert masked_crc32c(b"123456789") == wanted
    assert rotate(rotate(crc)) == int(f"{crc:032b}"[-30:] + f"{crc:032b}"[:-30], 2)


# GzipWriter


def test_the_header_holds_no_time_and_no_name():
    data = compress(RECORDS)
    magic, method, flags, mtime = struct.unpack_from("<HBBI", data)
    assert (magic, method, flags, mtime) == (0x8B1F, 8, 0, 0)


@pytest.mark.parametrize("records", [[], [b""], RECORDS, [some_bytes(3 << 20)]])
def test_gzip_of_python_reads_it(records):
    assert gzip.decompress(compress(records)) == b"".join(map(frame_record, records))


def test_the_same_records_are_the_same_bytes():
    assert compress(RECORDS) == compress(RECORDS)
    assert compress(RECORDS) != compress(RECORDS[:-1])


def test_flushing_changes_nothing():
    flushed = GzipWriter(ReadableWhenClosed())
    for record in RECORDS:
        assert flushed.write(frame_record(record)) == len(record) + 16
        flushed.flush()
    flushed.close()
    assert flushed._file.content == compress(RECORDS)


@pytest.mark.parametrize("records", [[], RECORDS, [some_bytes(3 << 20)]])
def test_the_writer_counts_and_hashes_what_it_wrote(records):
    file = ReadableWhenClosed()
    writer = GzipWriter(file)
    for record in records:
        writer.write(frame_record(record))
    writer.close()
    assert file.closed
    assert writer.bytes_written == len(file.content)
    assert writer.sha256() == hashlib.sha256(file.content).hexdigest()


# Reading


@settings(max_examples=100, deadline=None)
@given(st.lists(st.lists(st.binary(max_size=200), max_size=5), max_size=5))
def test_any_members_come_back_in_order(members):
    data = b"".join(compress(records) for records in members)
    assert read(data) == [record for records in members for record in records]


def test_gzip_of_python_is_read():
    data = gzip.compress(b"".join(map(frame_record, RECORDS)))
    assert read(data) == RECORDS


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


@pytest.mark.parametrize("pad", range(0, 40, 3))
def test_a_member_may_end_with_a_block(pad):
    """Tests members that end near the end of a block that is read."""
    first = compress([some_bytes((1 << 20) - 58 + pad)])
    assert read(first + compress([b"next"]))[1:] == [b"next"]


def test_an_empty_file_has_no_records():
    assert read(b"") == []
    assert read(compress([])) == []


def test_the_file_is_hashed_along_the_way():
    data = compress([some_bytes(2 << 20)]) + compress(RECORDS)
    sha256 = hashlib.sha256()
    read(data, sha256=sha256)
    assert sha256.hexdigest() == hashlib.sha256(data).hexdigest()


def test_a_file_cut_anywhere_is_an_error():
    first, second = compress(RECORDS[:2]), compress(RECORDS[2:])
    whole = first + second
    for size in range(1, len(whole)):
        if size == len(first):  # a whole member is a whole file
            assert read(whole[:size]) == RECORDS[:2]
            continue
        with raises(ValueError, naming="GZIP"):
            read(whole[:size])


def test_content_cut_anywhere_is_an_error_but_between_records():
    frames = [frame_record(record) for record in RECORDS[:3]]
    content = b"".join(frames)
    bounds = {len(b"".join(frames[:n])): n for n in range(4)}
    for size in range(len(content) + 1):
        data = gzip.compress(content[:size])
        if size in bounds:
            assert read(data) == RECORDS[: bounds[size]]
            continue
        whole = max(n for bound, n in bounds.items() if bound < size)
        with raises(ValueError, naming=f"record {whole}"):
            read(data)


@pytest.mark.parametrize("bit", range(8))
def test_a_flipped_bit_anywhere_is_found(bit):
    data = compress(RECORDS[:3])
    wanted = read(data)
    unnoticed = set()
    for position in range(len(data)):
        damaged = bytearray(data)
        damaged[position] ^= 1 << bit
        try:
            assert read(bytes(damaged)) == wanted
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
def test_a_flipped_bit_in_the_content_is_found_with_its_record(bit):
    frames = [frame_record(record) for record in RECORDS[:3]]
    content = b"".join(frames)
    owners = [n for n, frame in enumerate(frames) for _ in frame]
    for position, owner in enumerate(owners):
        damaged = bytearray(content)
        damaged[position] ^= 1 << bit
        with raises(ValueError, naming=f"record {owner}"):
            read(gzip.compress(damaged))


@pytest.mark.parametrize(
    "data",
    [b"x", bytes(50), b"not a GZIP file at all", frame_record(b"cat")],
    ids=["byte", "zeros", "text", "not compressed"],
)
@pytest.mark.parametrize("before", [b"", compress(RECORDS)], ids=["alone", "behind"])
def test_other_data_than_gzip_is_an_error(before, data):
    with raises(ValueError, naming="GZIP"):
        read(before + data)


def test_records_before_the_damage_are_returned():
    records = read_records(io.BytesIO(compress([b"first"]) + b"rubbish here"))
    assert next(records) == b"first"
    with raises(ValueError, naming="GZIP"):
        next(records)


@pytest.mark.parametrize("size", [0, 1, 1 << 20, 3 << 20])
def test_inflate_is_the_inverse_of_the_writer(size):
    content = some_bytes(size)
    assert b"".join(inflate(io.BytesIO(gzip.compress(content)))) == content


# Compressed or not


def read_any(data, **kwargs):
    return list(read_any_records(io.BytesIO(data), **kwargs))


@pytest.mark.parametrize("records", [[], [b""], RECORDS], ids=len)
def test_the_content_decides_how_a_file_is_read(records):
    plain = b"".join(map(frame_record, records))
    members = compress(records[:1]) + compress(records[1:])
    for data in (plain, compress(records), members):
        sha256 = hashlib.sha256()
        assert read_any(data, sha256=sha256) == records
        assert sha256.hexdigest() == hashlib.sha256(data).hexdigest()


def test_a_length_that_looks_like_gzip_is_a_length():
    data = some_bytes(0x8B1F)
    plain = frame_record(data)
    assert plain[:2] == b"\x1f\x8b"
    assert read_any(plain) == [data]


def test_damage_to_a_plain_file_is_an_error_that_names_the_record():
    plain = b"".join(map(frame_record, RECORDS))
    starts = [0]
    for record in RECORDS:
        starts.append(starts[-1] + 16 + len(record))
    for at in range(len(plain)):
        number = sum(start <= at for start in starts) - 1
        damaged = bytearray(plain)
        damaged[at] ^= 4
        with raises(ValueError, naming=f"record {number}"):
            read_any(bytes(damaged))
        if at not in starts:
            with raises(ValueError, naming=f"record {number}"):
                read_any(plain[:at])


def test_a_damaged_gzip_file_is_an_error():
    data = compress(RECORDS)
    for cut in (1, 2, 5, 11, len(data) - 1):
        with raises(ValueError):
            read_any(data[:cut])
