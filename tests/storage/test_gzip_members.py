"""Tests GZIP members: any content comes back, and has the same bytes at any time."""

import gzip
import io
import zlib

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.storage.tfrecord import (
    MemberWriter,
    compress_member,
    frame_record,
    inflate_member,
)

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
    assert inflate_member(member, size) == content(size)
    assert len(member) <= size + 64 + size // 500


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.binary(max_size=40) | st.sampled_from([audio(5000), bytes(400)])),
    st.sampled_from([bytes, bytearray, memoryview]),
)
def test_pieces_come_back(pieces, kind):
    file = io.BytesIO()
    file.close, close = lambda: None, file.close
    writer = MemberWriter(file)
    for piece in pieces:
        assert writer.write(kind(piece)) == len(piece)
    writer.close()
    assert gzip.decompress(file.getvalue()) == b"".join(pieces)
    close()


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
