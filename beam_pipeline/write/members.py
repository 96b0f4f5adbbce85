"""The members of a shard, while it is written.

Members hold whole records, so that an example can be read without what is before it.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.storage.gzip_members import compress_member, inflate_member
from beam_pipeline.storage.limits import most_bytes

Integers = npt.NDArray[Any]


class Members(NamedTuple):
    """The members of a file, in its order: their bytes, and their records.

    Both have shape (members,), int64.
    """

    sizes: Integers
    counts: Integers

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Members:
        """Returns members from pairs of bytes and records."""
        table = np.array(list(pairs), np.int64).reshape(-1, 2)
        return cls(table[:, 0], table[:, 1])

    def pack(self) -> str:
        """Returns the members as a short text, which a receipt in JSON can hold."""
        return pack_columns(self)

    @classmethod
    def unpack(cls, text: str) -> Members:
        """Returns the members that :meth:`pack` packed."""
        return cls(*unpack_columns(text, 2))


def pack_columns(columns: Iterable[Integers]) -> str:
    """Returns integer columns of equal length as a short text."""
    table = np.stack([np.asarray(column, "<i8") for column in columns])
    # The bytes of a significance together: those of high significance are mostly 0.
    planes = np.ascontiguousarray(table.view(np.uint8).reshape(-1, 8).T)
    return base64.b64encode(compress_member(planes.tobytes())).decode()


def unpack_columns(text: str, columns: int) -> list[Integers]:
    """Returns the columns that :func:`pack_columns` packed, as int64."""
    packed = base64.b64decode(text)
    planes = np.frombuffer(inflate_member(packed, most_bytes(len(packed))), np.uint8)
    table = np.ascontiguousarray(planes.reshape(8, -1).T).view("<i8")
    return list(table.reshape(columns, -1).astype(np.int64))
