"""``windows.parquet``: one row for each planned window of a data set, and its clip.

The rows have the order of the examples. Windows that were left out have a row, too,
with the reason. Where a clip's examples are together, the first ``windows`` rows belong
to the manifest's first clip, and so on. Where examples are mixed, each row names its
clip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipeline.dataset.output_folder import MANIFEST, WINDOWS
from beam_pipeline.errors import InputError
from beam_pipeline.permutation import Integers
from beam_pipeline.storage import files
from beam_pipeline.storage.gzip_members import unpack_columns
from beam_pipeline.storage.parquet import in_groups, read_parquet, write_parquet
from beam_pipeline.write.window_rows import (
    LEFT_OUT,
    WindowRows,
    join_rows,
    levels_db,
)

if TYPE_CHECKING:
    from beam_pipeline.plan.shards import ShardInfo
    from beam_pipeline.recipe.recipe import Recipe

_ROW_GROUP = 1 << 17


def write_windows(
    path: str, infos: Iterable[ShardInfo], are_mixed: bool = False
) -> None:
    """Writes the table of the windows of some shards, in their order.

    ::

        start      int64    the window's first frame in its clip, at the output rate
        frames     int32    the window's frames in the clip; zeros follow them
        copy       int16    0: the window as it is; k: its k-th augmented copy
        level_db   float    10 * log10(mean(x ** 2)), see window_levels; null: not known
        left_out   string   null: the window is in the data set; keep: a step of `keep`
                            left it out; no_event: no event overlaps it; rejected: its
                            clip could not be read or transformed there
        clip       int64    if examples are mixed: ``index`` of the clip in the manifest
    """
    import pyarrow as pa

    columns = {
        "start": (pa.int64(), "DELTA_BINARY_PACKED"),
        "frames": (pa.int32(), "DELTA_BINARY_PACKED"),
        "copy": (pa.int16(), "DELTA_BINARY_PACKED"),
        "level_db": (pa.float32(), "BYTE_STREAM_SPLIT"),
        "left_out": (pa.dictionary(pa.int8(), pa.string()), None),
    }
    if are_mixed:
        columns[CLIP] = (pa.int64(), "DELTA_BINARY_PACKED")
    schema = pa.schema({name: kind for name, (kind, _) in columns.items()})
    groups = in_groups(infos, lambda info: info.shard.examples, _ROW_GROUP)
    write_parquet(
        path,
        schema,
        (_table(group, schema) for group in groups),
        use_dictionary=["left_out"],
        column_encoding={name: how for name, (_, how) in columns.items() if how},
    )


def _table(infos: Sequence[ShardInfo], schema: Any) -> Any:
    import pyarrow as pa

    rows = join_rows(WindowRows.unpack(info.windows) for info in infos)

    level_db = levels_db(rows.levels)
    reasons = pa.DictionaryArray.from_arrays(
        pa.array(rows.left_out - 1, pa.int8(), mask=np.equal(rows.left_out, 0)),
        pa.array(LEFT_OUT[1:], pa.string()),
    )
    clips = []
    if CLIP in schema.names:
        found = [unpack_columns(info.clips, 1)[0] for info in infos]
        clips = [pa.array(np.concatenate(found), pa.int64())]
    return pa.Table.from_arrays(
        [
            pa.array(rows.starts, pa.int64()),
            pa.array(rows.frames, pa.int32()),
            pa.array(rows.copies, pa.int16()),
            pa.array(level_db, pa.float32(), mask=np.isnan(level_db)),
            reasons,
            *clips,
        ],
        schema=schema,
    )


CLIP = "clip"  # the column of mixed examples


def with_clips(columns: Sequence[str], recipe: Recipe | None) -> list[str]:
    """Returns columns of a table of windows, and the one that :func:`clips_of` needs.

    Parameters
    ----------
    columns : sequence of str
    recipe : Recipe or None
        That of the data set.
    """
    are_mixed = recipe is not None and recipe.examples_are_mixed
    return [*columns, *([CLIP] if are_mixed else [])]


def clips_of(windows: Any, manifest: Any) -> Integers:
    """Returns the row of the manifest of each window.

    Parameters
    ----------
    windows : pyarrow.Table
        With ``clip`` if the examples are mixed.
    manifest : pyarrow.Table
        With ``windows``, and with ``index`` if the examples are mixed.

    Raises
    ------
    ValueError
        If the tables do not belong together.
    """
    counts = manifest["windows"].to_numpy()
    if counts.sum() != len(windows):
        raise ValueError(
            f"{WINDOWS} has {len(windows)} rows, but the clips in {MANIFEST} have "
            f"{int(counts.sum())} windows"
        )
    if CLIP not in windows.column_names or not len(windows):
        return np.repeat(np.arange(len(manifest)), counts)
    numbers, found = manifest["index"].to_numpy(), windows[CLIP].to_numpy()
    order = np.argsort(numbers, kind="stable")
    at = np.searchsorted(numbers, found, sorter=order)
    clips: Integers = order[np.minimum(at, len(order) - 1)]
    if (numbers[clips] != found).any() or (
        np.bincount(clips, minlength=len(counts)) != counts
    ).any():
        raise ValueError(f"{WINDOWS} has windows of other clips than {MANIFEST}")
    return clips


def clip_by_clip(windows: Any, clips: Integers) -> Integers:
    """Returns the rows of windows in the order of the clips, and of their windows.

    Parameters
    ----------
    windows : pyarrow.Table
    clips : numpy.ndarray, shape (windows,), int64
        What :func:`clips_of` returns.
    """
    if CLIP not in windows.column_names:
        return np.arange(len(windows))
    columns = (windows[name].to_numpy() for name in ("copy", "start"))
    return np.lexsort((*columns, clips))


def read_table(
    folder: str, name: str, columns: Sequence[str], whole: bool = False
) -> Any:
    """Returns the manifest or the table of windows of a data set.

    Parameters
    ----------
    name : str
        The file in the folder.
    columns : sequence of str
        The columns to read.
    whole : bool
        Whether to read the other columns, too.

    Raises
    ------
    InputError
        If the file cannot be read, or lacks one of the columns.
    """
    path = files.join(folder, name)
    remedy = "Restore it, or record the data set again."
    try:
        table = read_parquet(path, None if whole else columns)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}. {remedy}") from error
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise InputError(
            f"{path} is not of this data set: it has no column {missing[0]!r}. {remedy}"
        )
    return table if whole else table.select(list(columns))
