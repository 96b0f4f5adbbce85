"""The tables beside the shards: where each example is, and where it comes from.

::

    windows.parquet, manifest.parquet --join_tables--> both of all data sets, checked
            --window_table-------> a row for each window: its shard, file and stretch
            --make_source--------> where one example comes from, as its file is now
            --summarise_windows--> counts and levels of each split
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.arrays import Integers
from beam_pipeline.dataset.folders import MANIFEST, METADATA, WINDOWS
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.side_by_side import (
    DataSets,
    Folders,
    concatenated,
    open_data_sets,
)
from beam_pipeline.dataset.tables import belonging_together, clips_of, read_table
from beam_pipeline.errors import InputError
from beam_pipeline.inputs.columns import FILE_SHA256, MANIFEST_FIELDS, SKETCH_FIELDS
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.read.choices import Split, choose_splits
from beam_pipeline.storage import files
from beam_pipeline.text import bytes_sha256
from beam_pipeline.write.window_rows import CLIP, NO_ROWS, table_columns

# Columns of the manifest that are not shown as they are. All others are of the input.
_OURS = {*MANIFEST_FIELDS, *SKETCH_FIELDS}
# Columns of windows that have another name here, or say which clip one is of.
_NAMED_ANEW = ("start", "frames", CLIP)
_AT_ONCE = 32  # files that are looked for


def read_window_table(
    data: DataSets, splits: Sequence[str], sources: bool = False, as_one: bool = True
) -> Any:
    """Returns a row for each planned window of splits, in the order of the examples.

    No shard is read. A data set that was not recorded from audio files has only the
    columns ``record``, ``split``, ``shard`` and ``position``.

    Parameters
    ----------
    data : DataSets
        What was opened.
    sources : bool
        Whether the table has ``native_start``, ``native_frames``,
        ``native_sample_rate_hz``, ``channels`` and ``file_sha256``: the stretch of the
        file in its own frames, and the file; see :class:`.Source`.
    as_one : bool
        Whether ``record`` counts on from one split to the next.

    Returns
    -------
    pyarrow.Table
        ==================== ======= ===============================================
        record               int64   the number of the example in its split; several
                                     splits count as one
        split                text
        shard                text    the file with the example
        position             int64   the place of the example in the shard
        left_out             text    null, or why the window is not in the data set:
                                     ``keep``, ``no_event`` or ``rejected``; the four
                                     columns above are then null, but for ``split``
        path                 text    relative to the input
        input                int32   the number of the input
        start_s, end_s       float64 seconds in the file; zeros after the end of the
                                     clip do not count
        valid_frames         int32   the frames before these zeros
        level_db             float32 the mean square of all frames, in dB
        class, group         text
        copy                 int16   0: the window as it is; k: its k-th copy
        clip                 int64   the number of the clip in the listing
        sample_rate_hz       int32
        channel              int32   null: all, or their mean
        ==================== ======= ===============================================

        After them, the columns that the manifest of the input brought; null where a
        cell was empty.

    Raises
    ------
    InputError
        If files are missing, are damaged or do not fit the data set, or if another
        process has recorded into the folder since the metadata were read.
    """
    tables, found, first = join_tables(data), [], 0
    for split in splits:
        found.append(_table_of_split(data, split, tables, sources, first))
        if as_one:
            first += sum(shard.examples for shard in data.metadata.splits[split].shards)
    return concatenated(found)


def window_table(
    folder: Folders, split: Split | None = None, sources: bool = False
) -> Any:
    """Returns a row for each planned window of a data set, also for those left out.

    This is the index of the data set: path, seconds, level, whether a window is in the
    data set and why not, split, shard and position. No shard is read.

    Parameters
    ----------
    folder : path or sequence of paths
        Of a data set, or of several that belong together.
    split : str or list of str, optional
        One or several, see :mod:`.choices`. Default: all, one after the other.
        ``record`` is the number in each of them.
    sources : bool
        See :func:`read_window_table`.

    Returns
    -------
    pyarrow.Table
        Its columns are those of :func:`read_window_table`.

    Raises
    ------
    InputError
        If there is no such data set or split, or if files are missing or damaged.
    """
    data = open_data_sets(folder)
    metadata = data.metadata
    splits = tuple(metadata.splits)
    if split is not None:
        splits = choose_splits(metadata, split)
    return read_window_table(data, splits, sources, as_one=False)


def _table_of_split(
    data: DataSets, split: str, tables: Tables | None, sources: bool, first: int
) -> Any:
    """Returns the rows of a split, whose first example has the number ``first``."""
    import pyarrow as pa

    metadata = data.metadata
    shards = metadata.splits[split].shards
    total = sum(shard.examples for shard in shards)
    if tables is None:
        return pa.table(_places(pa.array(np.arange(total)), split, shards, first))
    windows, manifest, clips, _ = tables
    of_split = manifest["split"].to_numpy(zero_copy_only=False) == split
    rows = np.flatnonzero(of_split[clips])
    clip = pa.array(clips[rows])
    windows = windows.take(pa.array(rows)).combine_chunks()
    left_out = windows["left_out"].is_valid().to_numpy()
    with belonging_together(data.name):
        if len(rows) - left_out.sum() != total:
            raise ValueError(
                f"{WINDOWS} has {len(rows) - left_out.sum()} examples of split {split},"
                f" but {METADATA} has {total}"
            )

    numbers = pa.array(np.cumsum(~left_out) - 1, mask=left_out)
    of_clip = manifest.take(clip).combine_chunks().column
    hz = of_clip("sample_rate_hz").to_numpy().astype(np.int64)
    frames = windows["frames"].to_numpy()
    start = of_clip("start").to_numpy() + windows["start"].to_numpy()
    columns = {
        **_places(numbers, split, shards, first),
        "left_out": windows["left_out"],
        "path": of_clip("path"),
        "input": of_clip("input"),
        "start_s": pa.array(start / hz),
        "end_s": pa.array((start + frames) / hz),
        "valid_frames": windows["frames"],
        "level_db": windows["level_db"],
        "class": of_clip("class"),
        "group": of_clip("group"),
        "copy": windows["copy"],
        "clip": of_clip("index"),
        "sample_rate_hz": of_clip("sample_rate_hz"),
        "channel": of_clip("channel"),
    }
    recipe = metadata.recorded_with
    has_hashes = recipe is not None and recipe.hash_files
    columns |= {
        name: windows[name] for name in windows.column_names if name not in _NAMED_ANEW
    }
    if sources:
        native_hz = of_clip("native_sample_rate_hz")
        rate, most = (
            column.to_numpy().astype(np.int64)
            for column in (native_hz, of_clip("native_frames"))
        )
        begin = start * rate // hz
        stop = np.minimum(-(-(start + frames) * rate // hz), most)
        no_hashes = pa.nulls(len(begin), pa.string())
        columns |= {
            "native_start": pa.array(begin),
            "native_frames": pa.array(stop - begin),
            "native_sample_rate_hz": native_hz,
            "channels": of_clip("channels"),
            FILE_SHA256: of_clip(FILE_SHA256) if has_hashes else no_hashes,
        }
    for name in manifest.column_names:
        if name not in _OURS and not (name == FILE_SHA256 and has_hashes):
            free = name if name not in columns else f"{name}_"
            columns[free] = _without_empty(of_clip(name))
    return pa.table(columns)


def examples_of(table: Any) -> Any:
    """Returns the rows of windows that are in the data set."""
    return table.filter(table["record"].is_valid())


def check_clips(table: Any, folder: str) -> None:
    """Raises InputError if a table does not say of which clips the examples are."""
    if "path" not in table.column_names:
        raise InputError(
            f"{folder} was not recorded from audio files, so it has no table of clips, "
            "with their paths and classes."
        )


def _places(rows: Any, split: str, shards: Any, first: int) -> dict[str, Any]:
    """Returns the columns that say where the examples are.

    ``rows`` has the number of each in the split; null for one that is left out.
    """
    import pyarrow as pa

    held = np.array([entry.examples for entry in shards], np.int64)
    shard = np.repeat(np.arange(len(shards), dtype=np.int32), held)
    number = np.arange(len(shard))
    columns = {
        "record": number + first,
        "shard": pa.DictionaryArray.from_arrays(
            shard, pa.array([entry.file for entry in shards], pa.string())
        ),
        "position": number - (np.cumsum(held) - held)[shard],
    }
    placed = pa.table(columns).take(rows)
    names = pa.array([split], pa.string())
    of_split = pa.DictionaryArray.from_arrays(np.zeros(len(rows), np.int32), names)
    record, shard, position = placed.columns
    return {"record": record, "split": of_split, "shard": shard, "position": position}


class Tables(NamedTuple):
    """The tables of data sets, one after the other.

    Attributes
    ----------
    windows, manifest : pyarrow.Table
    clips : numpy.ndarray, shape (windows,), int64
        The row of the manifest of each window.
    sizes : list of int
        How many rows of the manifest each data set has.
    """

    windows: Any
    manifest: Any
    clips: Integers
    sizes: list[int]


def join_tables(data: DataSets) -> Tables | None:
    """Returns the windows and the manifests of data sets as one, if they have any.

    Raises
    ------
    InputError
        See :func:`read_window_table`.
    """
    each = zip(data.folders, data.each, data.hashes, strict=True)
    found = [some for one in each if (some := _read_tables(*one)) is not None]
    if not found:
        return None
    if len(found) < len(data.folders):
        raise InputError(
            f"Of {data.name}, only some have {WINDOWS}, so there is no table of all."
        )
    sizes, clips = list[int](), []
    for folder, (windows, manifest) in zip(data.folders, found, strict=True):
        with belonging_together(folder):
            clips.append(clips_of(windows, manifest) + sum(sizes))
        sizes.append(len(manifest))
    windows, manifest = map(concatenated, zip(*found, strict=True))
    return Tables(windows, manifest, np.concatenate(clips), sizes)


def _read_tables(
    folder: str, metadata: Metadata, sha256: str
) -> tuple[Any, Any] | None:
    """Returns the windows and the manifest that belong to the metadata, if any.

    A run deletes the metadata before any other file, and writes them last. So files
    that were read between two looks at the same metadata belong to them.
    """
    path = files.join(folder, WINDOWS)
    _check_metadata(folder, sha256)
    try:
        if not files.exists(path):
            if metadata.recipe is not None:
                raise InputError(
                    f"{folder} has no {WINDOWS}: the file was deleted. Restore it, or "
                    "record the data set again."
                )
            return None
        windows = read_table(folder, WINDOWS, [*table_columns(NO_ROWS)], whole=True)
        manifest = read_table(folder, MANIFEST, [*MANIFEST_FIELDS], whole=True)
    finally:
        _check_metadata(folder, sha256)
    return windows, manifest


def _check_metadata(folder: str, sha256: str) -> None:
    """Raises InputError unless the metadata are those that were opened."""
    path = files.join(folder, METADATA)
    try:
        if bytes_sha256(files.read_bytes(path)) == sha256:
            return
        what = "has changed"
    except FileNotFoundError:
        what = "is gone"
    raise InputError(
        f"{path} {what}: another process has recorded into the folder since; open it "
        "again."
    )


def _without_empty(column: Any) -> Any:
    """Returns a column with null where a cell of the input was empty."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if pa.types.is_floating(column.type):
        is_empty = pc.is_nan(column)
    elif pa.types.is_string(column.type) or pa.types.is_binary(column.type):
        is_empty = pc.equal(pc.binary_length(column), 0)
    else:
        return column
    return pc.if_else(is_empty, pa.scalar(None, column.type), column)


def input_roots(input: Folders, table: Any, every: bool = False) -> list[str]:
    """Returns the root of each input of a data set.

    Parameters
    ----------
    table : pyarrow.Table
        With the columns ``path`` and ``input``.
    every : bool
        Whether all files are looked for, and not only the first one of each input.

    Raises
    ------
    InputError
        If there are fewer inputs than the data set has, or a file is not there.
    """
    roots = [entry.root for entry in resolve_inputs(files.path_texts("input", input))]
    numbers = table["input"].to_numpy()
    needed = int(numbers.max(initial=0)) + 1
    if needed > len(roots):
        raise InputError(
            f"The clips are from {needed} inputs, but `input` names {len(roots)}. "
            "Give the same as for `record`, in the same order."
        )
    for number, root in enumerate(roots[:needed]):
        names = table.select(["path"]).filter(numbers == number)["path"].unique()
        names = names if every else names[:1]
        paths = [files.join(root, name) for name in names.to_pylist()]
        with ThreadPoolExecutor(_AT_ONCE) as pool:  # in stores, each is a request
            found = zip(paths, pool.map(files.exists, paths), strict=True)
            missing = next((path for path, exists in found if not exists), None)
        if missing is not None:
            raise InputError(
                f"{missing} does not exist, but a clip of the data set has this name. "
                "Give as `input` what the data set was recorded from."
            )
    return roots


class Source(NamedTuple):
    """Where an example comes from.

    ``soundfile.read(file, frames, first_frame, dtype="float32")`` reads its samples.
    They are those of the window if the recipe neither resamples nor changes them. If it
    resamples, these are all frames that the window touches.

    Attributes
    ----------
    path : str
        The file, relative to its input.
    input : int
        The number of the input in its run, from 0.
    file : str or None
        The path of the file; None if no ``input`` was named.
    start_s, end_s : float
        The stretch in the file, in seconds. Zeros after the clip's end do not count.
    first_frame, frames : int
        The stretch in frames of the file, from 0.
    sample_rate_hz, channels : int
        Those of the file.
    channel : int or None
        The channel that was taken, from 0; None: all, or their mean.
    copy : int
        0: the window as it is; k: its k-th augmented copy.
    sha256 : str or None
        The SHA-256 of the file, in hexadecimal, if the recipe has ``hash_files``.
    """

    path: str
    input: int
    file: str | None
    start_s: float
    end_s: float
    first_frame: int
    frames: int
    sample_rate_hz: int
    channels: int
    channel: int | None
    copy: int
    sha256: str | None


def make_source(folder: str, table: Any, number: int, input: Folders | None) -> Source:
    """Returns where the example in a row of a data set's table comes from."""
    check_clips(table, folder)
    (row,) = table.slice(number, 1).to_pylist()
    path = None
    if input is not None:
        roots = input_roots(input, table)
        path = files.join(roots[row["input"]], row["path"])
    same = ("path", "input", "start_s", "end_s", "channels", "channel", "copy")
    return Source(
        **{name: row[name] for name in same},
        file=path,
        first_frame=row["native_start"],
        frames=row["native_frames"],
        sample_rate_hz=row["native_sample_rate_hz"],
        sha256=row[FILE_SHA256],
    )


QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True)
class WindowSummary:
    """What the planned windows of a split are.

    Attributes
    ----------
    windows : int
        All of them, with their copies.
    left_out : mapping
        Reason to how many are not in the data set, as in ``windows.parquet``.
    clips_without : int
        The clips of which no window is in the data set.
    levels : mapping
        Quantile to the level of that rank, in dB, of all windows that were read, also
        of those that were left out; copies do not count. Empty without windows.
    """

    windows: int
    left_out: Mapping[str, int]
    clips_without: int
    levels: Mapping[float, float]


def summarise_windows(folder: str, metadata: Metadata) -> dict[str, WindowSummary]:
    """Returns a summary of the windows of each split.

    Returns
    -------
    dict
        Empty if the data set has no table of windows.

    Raises
    ------
    InputError
        If a table cannot be read, or does not fit the other.
    """
    tables = join_tables(open_data_sets(folder))
    if tables is None:
        return {}
    windows, manifest, clips, _ = tables
    split_of = manifest["split"].to_numpy(zero_copy_only=False)
    found = {}
    for name in metadata.splits:
        of_split = np.flatnonzero((split_of == name)[clips])
        rows, of_clip = windows.take(of_split), clips[of_split]
        left_out = Counter(rows["left_out"].drop_null().to_pylist())
        held = np.unique(of_clip[rows["left_out"].is_null().to_numpy()])
        levels = rows.filter(np.equal(rows["copy"], 0))["level_db"].drop_null()
        found[name] = WindowSummary(
            len(rows),
            left_out,
            len(np.unique(of_clip)) - len(held),
            _quantiles(np.sort(levels.to_numpy())),
        )
    return found


def _quantiles(levels: npt.NDArray[Any]) -> dict[float, float]:
    """Returns the levels of some ranks, from levels in their order."""
    ranks = {q: max(1, int(np.ceil(q * len(levels)))) for q in QUANTILES}
    return {q: float(levels[rank - 1]) for q, rank in ranks.items() if len(levels)}
