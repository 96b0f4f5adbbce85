"""The table of windows: a row for each planned window, from its block to its file.

Workers note the rows of a block, a receipt has those of a shard as text, and the end of
a run writes all of them to ``windows.parquet``. A new column is a field of
:class:`WindowRows` and an entry of :func:`table_columns`. ``window_table`` then has it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import Booleans, FloatArray, Integers
from beam_pipeline.storage.pages import in_groups, write_parquet
from beam_pipeline.storage.tfrecord import pack_columns, unpack_columns

if TYPE_CHECKING:
    from beam_pipeline.planning.shards import ShardInfo

# Why a window is not in the data set. The codes are only in receipts.
LEFT_OUT = (None, "keep", "no_event", "rejected")
KEPT, BY_KEEP, BY_NO_EVENT, REJECTED = range(len(LEFT_OUT))

# In hundredths of a decibel; those of float32 are within -500 to 400 dB.
_SILENT, _UNKNOWN = -(10**6), 10**6

# How many squares of samples are in memory at once, unless a window has more.
_SQUARES = 1 << 16

CLIP = "clip"  # a column that only tables of mixed examples have
_WINDOWS_IN_GROUP = 1 << 17
_STEPS = "DELTA_BINARY_PACKED"  # the encoding of Parquet for columns in steps


class WindowRows(NamedTuple):
    """Some planned windows, in the order of their positions; columns of int64.

    Attributes
    ----------
    starts : numpy.ndarray, shape (n,)
        The first frame of each window in its clip, at the output rate.
    frames : numpy.ndarray, shape (n,)
        The frames of each window that are of its clip; zeros follow them.
    copies : numpy.ndarray, shape (n,)
        0 for a window as it is, k for its k-th augmented copy.
    levels : numpy.ndarray, shape (n,)
        See :func:`window_levels`.
    left_out : numpy.ndarray, shape (n,)
        Indices of ``LEFT_OUT``.
    """

    starts: Integers
    frames: Integers
    copies: Integers
    levels: Integers
    left_out: Integers

    @classmethod
    def of(cls, starts: Integers, frames: Integers, copies: Integers) -> WindowRows:
        """Returns rows of windows in the data set; their levels are not known."""
        n = len(starts)
        return cls(starts, frames, copies, np.full(n, _UNKNOWN), np.full(n, KEPT))

    def part(self, first: int, stop: int) -> WindowRows:
        """Returns the rows ``first .. stop - 1``."""
        return WindowRows(*(column[first:stop] for column in self))

    def keep_only(self, selected: Booleans, reason: int) -> WindowRows:
        """Returns the rows; those kept so far, but not selected, get a reason."""
        out = (self.left_out == KEPT) & ~selected
        return self._replace(left_out=np.where(out, reason, self.left_out))

    def rejected(self) -> WindowRows:
        """Returns the rows of windows that could not be made."""
        return self.keep_only(np.zeros(len(self.starts), np.bool_), REJECTED)

    @property
    def kept(self) -> Booleans:
        """Which windows are in the data set, shape (n,)."""
        return np.equal(self.left_out, KEPT)

    def covered_frames(self) -> int:
        """Returns the frames of the clip in windows that are kept.

        Where windows overlap, a frame counts once.
        """
        from beam_pipeline.examples.windows import frames_in  # it needs SciPy

        starts, frames = self.starts[self.kept], self.frames[self.kept]
        order = np.argsort(starts, kind="stable")
        return frames_in(starts[order], frames[order])

    def pack(self) -> str:
        """Returns the rows as a short text, which a receipt in JSON can hold."""
        steps = np.diff(self.starts, prepend=0)
        return pack_columns((steps, *self[1:]))

    @classmethod
    def unpack(cls, text: str) -> WindowRows:
        """Returns the rows that :meth:`pack` packed."""
        steps, *others = unpack_columns(text, len(cls._fields))
        return cls(np.cumsum(steps), *others)


def join_rows(several: Iterable[WindowRows]) -> WindowRows:
    """Returns the rows of consecutive positions together."""
    return WindowRows(*map(np.concatenate, zip(*several, strict=True)))


NO_ROWS = WindowRows(*np.zeros((len(WindowRows._fields), 0), np.int64))


def table_columns(rows: WindowRows) -> dict[str, tuple[Any, str | None]]:
    """Returns the columns of ``windows.parquet``: their values and Parquet's encoding.

    ::

        start      int64    the window's first frame in its clip, at the output rate
        frames     int32    the window's frames in the clip; zeros follow them
        copy       int16    0: the window as it is; k: its k-th augmented copy
        level_db   float    10 * log10(mean(x ** 2)), see window_levels; null: not known
        left_out   string   null: the window is in the data set; keep: a step of `keep`
                            left it out; no_event: no event overlaps it; rejected: its
                            clip could not be read or transformed there
    """
    import pyarrow as pa

    level_db = levels_db(rows.levels)
    reasons = pa.DictionaryArray.from_arrays(
        pa.array(rows.left_out - 1, pa.int8(), mask=np.equal(rows.left_out, 0)),
        pa.array(LEFT_OUT[1:], pa.string()),
    )
    return {
        "start": (pa.array(rows.starts, pa.int64()), _STEPS),
        "frames": (pa.array(rows.frames, pa.int32()), _STEPS),
        "copy": (pa.array(rows.copies, pa.int16()), _STEPS),
        "level_db": (
            pa.array(level_db, pa.float32(), mask=np.isnan(level_db)),
            "BYTE_STREAM_SPLIT",
        ),
        "left_out": (reasons, None),
    }


def write_windows(
    path: str, infos: Iterable[ShardInfo], are_mixed: bool = False
) -> None:
    """Writes the table of the windows of some shards, in their order.

    Where examples are mixed, it also has the column ``clip``, int64: ``index`` of the
    clip in the manifest.
    """
    import pyarrow as pa

    columns = _columns_of((), are_mixed)
    schema = pa.schema({name: values.type for name, (values, _) in columns.items()})
    groups = in_groups(infos, lambda info: info.shard.examples, _WINDOWS_IN_GROUP)
    tables = (
        [values for values, _ in _columns_of(group, are_mixed).values()]
        for group in groups
    )
    write_parquet(
        path,
        schema,
        (pa.Table.from_arrays(arrays, schema=schema) for arrays in tables),
        use_dictionary=["left_out"],
        column_encoding={name: how for name, (_, how) in columns.items() if how},
    )


def _columns_of(
    infos: Sequence[ShardInfo], are_mixed: bool
) -> dict[str, tuple[Any, str | None]]:
    """Returns the columns of the windows of some shards."""
    import pyarrow as pa

    rows = join_rows([NO_ROWS, *(WindowRows.unpack(info.windows) for info in infos)])
    columns = table_columns(rows)
    if are_mixed:
        clips = [unpack_columns(info.clips, 1)[0] for info in infos]
        numbers = np.concatenate([NO_ROWS.starts, *clips])
        columns[CLIP] = (pa.array(numbers, pa.int64()), _STEPS)
    return columns


def window_levels(windows: FloatArray) -> Integers:
    """Returns the level of each window: its mean square in dB, as an integer.

    ``100 * 10 * log10(mean(x ** 2))`` over all samples of a window, with the zeros
    after the end of a clip; a square wave of full scale has 0. For integers that stand
    for silence, whose squares are 0 as float32, and for squares that are not finite,
    see :func:`levels_db`.

    Each square is rounded to float32, and ``np.add.reduce`` adds them in pairs, in an
    order that depends on their number alone. So the level of a window is the same on
    all processors, whatever other windows are in the array. A product of matrices or
    ``np.einsum`` is faster, but promises neither.

    Parameters
    ----------
    windows : numpy.ndarray, shape (n, ...), float32
    """
    samples = math.prod(windows.shape[1:])
    flat = windows.reshape(len(windows), samples)
    power = np.zeros(len(flat), np.float32)
    step = max(1, _SQUARES // max(samples, 1))
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        for k in range(0, len(flat), step):
            squares = np.square(flat[k : k + step], order="C")
            np.add.reduce(squares, axis=1, out=power[k : k + step])
        mean = power.astype(np.float64) / max(samples, 1)
        millibels = np.rint(1000 * np.log10(mean))
    millibels = np.where(power == 0, _SILENT, millibels)
    return np.where(np.isfinite(millibels), millibels, _UNKNOWN).astype(np.int64)


def levels_db(levels: Integers) -> FloatArray:
    """Returns levels in dB: ``-inf`` for silence, NaN where it is not known."""
    found = levels / np.float32(100)
    found[levels == _SILENT] = -np.inf
    found[levels == _UNKNOWN] = np.nan
    return found.astype(np.float32)
