"""Checks the packets of Apple Lossless audio in CAF files.

libsndfile does not report a packet that it cannot decode: it gives the samples of an
earlier packet again. This module reads the table of packets, and finds such repeats.
"""

from __future__ import annotations

import struct
from typing import BinaryIO

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.containers import Condition, caf_chunks, read_at

PACKET_FRAMES = 4096  # libsndfile writes and reads no other
_TABLE = struct.Struct(">qqii")
_MOST_PACKETS = 1 << 24  # 430 hours at 44.1 kHz


def check_alac(file: BinaryIO, file_bytes: int) -> Condition | None:
    """Compares the table of packets with the data; ``None`` for other formats.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    file_bytes
        Size of the file.
    """
    found = {name: (at, size) for name, at, size in caf_chunks(file, file_bytes)}
    if b"desc" not in found or read_at(file, found[b"desc"][0] + 8, 4) != b"alac":
        return None
    if b"pakt" not in found or b"data" not in found:
        return Condition("is damaged: it has no table of packets")
    at, size = found[b"pakt"]
    head = read_at(file, at, _TABLE.size)
    if len(head) < _TABLE.size:
        return Condition("is damaged: its table of packets ends early")
    packets, frames, priming, remainder = _TABLE.unpack(head)
    count = min(size - _TABLE.size, 5 * _MOST_PACKETS)
    sizes = _packet_sizes(read_at(file, at + _TABLE.size, max(0, count)), packets)
    data_bytes = found[b"data"][1] - 4  # without the number of edits
    if len(sizes) != packets or sum(sizes) != data_bytes:
        return Condition(
            f"is damaged: its table has {packets} packets of {sum(sizes)} bytes, but "
            f"its data chunk has {data_bytes} bytes"
        )
    if frames + priming + remainder != packets * PACKET_FRAMES:
        return Condition(
            f"is damaged: its table has {packets} packets and {frames} frames, which "
            "contradict each other"
        )
    return Condition(frames=frames)


def repeats(block: npt.NDArray[np.float32], before: npt.NDArray[np.float32]) -> bool:
    """Whether a packet has the samples of the one before; silence may."""
    return np.array_equal(block, before) and bool((block != block[:1]).any())


def _packet_sizes(data: bytes, packets: int) -> list[int]:
    """Returns the sizes in a table, each coded in bytes of seven bits."""
    sizes, size = [], 0
    for byte in data:
        size = size << 7 | byte & 0x7F
        if not byte & 0x80:
            sizes.append(size)
            size = 0
            if len(sizes) >= packets:
                break
    return sizes
