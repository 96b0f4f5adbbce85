"""Reads from files of old systems how much audio they declare.

libsndfile reads most of these files to their end, whatever their header declares. PAF,
PVF, IRCAM and XI declare nothing that could be compared.
"""

from __future__ import annotations

import re
import struct
from typing import BinaryIO

import numpy as np

from beam_pipeline.audio.containers import Condition, DataSize, read_at

_HEAD_BYTES = 1024
_MAT4_SAMPLE_BYTES = (8, 4, 4, 2, 2, 1)
_WAVE_DATA = b"wavedata"
_VOC_SOUND = {1: 2, 9: 12}  # block type -> bytes before the samples
_VOC_ENDS, _VOC_CONTINUES = 0, 2
_SDS_HEADER, _SDS_PACKET = 21, 127


def find_old_data_size(file: BinaryIO, file_bytes: int) -> DataSize | None:
    """Returns the declared and the present size of the samples of an old container.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    file_bytes
        Size of the file.

    Returns
    -------
    DataSize or None
        ``None`` if the container is not one of AVR, MAT4, MAT5, MPC2K, VOC and WVE, or
        if its header is damaged.
    """
    head = read_at(file, 0, _HEAD_BYTES)
    found: tuple[int, int] | None = None
    try:
        if head[:4] == b"2BIT":
            found = _avr(head)
        elif head[:15] == b"ALawSoundFile**":
            found = 32, int.from_bytes(head[18:22], "big")
        elif head[:6] == b"MATLAB":
            found = _mat5(head)
        elif head[20:30] == b"samplerate":
            found = _mat4(head)
        elif head[:2] == b"\x01\x04" and len(head) > 42:
            found = _mpc2k(head)
        elif head[:20] == b"Creative Voice File\x1a":
            found = _voc(file, head)
    except struct.error:
        return None  # the header ends early
    if found is None:
        return None
    start, declared = found
    return DataSize(declared, max(0, file_bytes - start))


def _avr(head: bytes) -> tuple[int, int]:
    stereo, bits = struct.unpack_from(">HH", head, 12)
    (frames,) = struct.unpack_from(">I", head, 26)
    return 128, frames * (2 if stereo else 1) * (bits // 8)


def _mpc2k(head: bytes) -> tuple[int, int]:
    (frames,) = struct.unpack_from("<I", head, 30)
    return 42, frames * (2 if head[21] else 1) * 2


def _mat4(head: bytes) -> tuple[int, int] | None:
    name = head.find(_WAVE_DATA)
    if name < 20:
        return None
    for order in "<>":
        kind, rows, columns = struct.unpack_from(f"{order}III", head, name - 20)
        if kind // 10 % 10 < len(_MAT4_SAMPLE_BYTES) and kind < 5000:
            size = _MAT4_SAMPLE_BYTES[kind // 10 % 10]
            return name + len(_WAVE_DATA) + 1, rows * columns * size
    return None


def _mat5(head: bytes) -> tuple[int, int]:
    name = 248  # of the second matrix
    order = "<" if head[126:128] == b"IM" else ">"
    (size,) = struct.unpack_from(f"{order}I", head, name + len(_WAVE_DATA) + 4)
    return name + len(_WAVE_DATA) + 8, size


def _voc(file: BinaryIO, head: bytes) -> tuple[int, int] | None:
    """Finds the first block with samples; libsndfile reads no other."""
    (at,) = struct.unpack_from("<H", head, 20)
    while (block := read_at(file, at, 4)) and len(block) == 4:
        kind, size = block[0], int.from_bytes(block[1:], "little")
        if kind in _VOC_SOUND:
            return at + 4 + _VOC_SOUND[kind], max(0, size - _VOC_SOUND[kind])
        if kind in (_VOC_ENDS, _VOC_CONTINUES):
            break
        at += 4 + size
    return None


def check_sphere(file: BinaryIO, file_bytes: int) -> Condition | None:
    """Checks that a NIST SPHERE file declares its length; ``None``: other formats."""
    head = read_at(file, 0, _HEAD_BYTES)
    if head[:7] != b"NIST_1A":
        return None
    if re.search(rb"\nsample_count -i \d+\s", head):
        return Condition()
    return Condition("is damaged: its header has no sample_count")


def check_sds(file: BinaryIO, file_bytes: int) -> Condition | None:
    """Checks the packets of a MIDI sample dump; returns ``None`` for other formats.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    file_bytes
        Size of the file.
    """
    head = read_at(file, 0, _SDS_HEADER)
    if head[:2] != b"\xf0\x7e" or len(head) < _SDS_HEADER or head[3] != 1:
        return None
    frames = head[10] | head[11] << 7 | head[12] << 14
    per_packet = 120 // max(2, -(-head[6] // 7))
    declared = -(-frames // per_packet)
    present = (file_bytes - _SDS_HEADER) // _SDS_PACKET
    data = read_at(file, _SDS_HEADER, min(declared, present) * _SDS_PACKET)
    packets = np.frombuffer(data, np.uint8).reshape(-1, _SDS_PACKET)
    right = packets[:, [0, 1, 3, 126]] == (0xF0, 0x7E, 2, 0xF7)
    numbers = packets[:, 4] == np.arange(len(packets)) % 128
    sums = np.bitwise_xor.reduce(packets[:, 1:125], axis=1) & 0x7F == packets[:, 125]
    good = right.all(axis=1) & numbers & sums & (packets[:, 1:126] < 128).all(axis=1)
    if not good.all():
        at = _SDS_HEADER + _SDS_PACKET * int(np.argmin(good))
        return Condition(
            f"is damaged: no packet with a right checksum begins at byte {at}"
        )
    if present < declared:
        return Condition(
            cut=f"its header declares {frames} frames in {declared} packets, but the "
            f"file holds only {present} packets",
            frames=present * per_packet,
        )
    return Condition(frames=frames)
