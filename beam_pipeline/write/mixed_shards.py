"""A shard whose examples are in a random order, written from those in order.

::

    records of stretches    0   1   2   3   4   5
    mixed_order             4   0   5   2   1   3
    members of the shard    |  4 0  |  5 2  |  1 3  |

The records of a stretch go to a file as they are. When all positions are there, the
members of the shard are put together from them, wherever they are.
"""

from __future__ import annotations

import mmap
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.permutation import Permutation
from beam_pipeline.plan.shards import Shard
from beam_pipeline.storage import files

Integers = npt.NDArray[np.int64]


class PlannedRecords(NamedTuple):
    """A file with framed records of a shard, and their positions in the plan.

    Attributes
    ----------
    path : str
    positions, sizes : numpy.ndarray, shape (records,), int64
        In the order of the file.
    """

    path: str
    positions: Integers
    sizes: Integers


def mixed_order(shard: Shard) -> Integers:
    """Returns for each position of a mixed shard which planned one it takes."""
    assert shard.mix_seed is not None
    order = Permutation(
        shard.examples, shard.mix_seed, name=f"examples of {shard.name}"
    )
    return order.at(np.arange(shard.examples))


def mixed_members(
    shard: Shard, order: Integers, several: Sequence[PlannedRecords]
) -> Iterator[tuple[int, list[bytes]]]:
    """Yields (number, framed records) of each member of a mixed shard.

    ``order`` is what :func:`mixed_order` returns.

    Records that were lost, or left out, leave no gap in their member. A member without
    any is left out.
    """
    file_of = np.full(shard.examples, -1)
    starts, sizes = np.zeros((2, shard.examples), np.int64)
    with ExitStack() as stack:
        contents = []
        for number, some in enumerate(several):
            file_of[some.positions] = number
            starts[some.positions] = np.cumsum(some.sizes) - some.sizes
            sizes[some.positions] = some.sizes
            contents.append(_content(some.path, stack))
        for begin in range(0, shard.examples, shard.per_member):
            planned = order[begin : begin + shard.per_member]
            planned = planned[file_of[planned] >= 0]
            columns = (some[planned].tolist() for some in (file_of, starts, sizes))
            records = [
                contents[file][start : start + size]
                for file, start, size in zip(*columns, strict=True)
            ]
            if records:
                yield begin // shard.per_member, records


def _content(path: str, stack: ExitStack) -> mmap.mmap | bytes:
    """Returns the content of a file, of which any part can be read."""
    if not files.is_local(path) or not files.size(path):
        return files.read_bytes(path)
    file = stack.enter_context(files.open_read(path))
    return stack.enter_context(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
