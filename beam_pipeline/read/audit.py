"""Finds clips of a finished data set that are in two splits, or in it twice.

The audit reads ``manifest.parquet`` alone and computes with its columns as arrays; it
reads no audio and no shard. Only clips of findings become Python objects.
:mod:`.findings` holds what it returns; the command line prints it.

Copies that the recipe makes of windows belong to the same clip. They are no findings.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.fingerprint import NEAR_BITS, SKETCH_BYTES
from beam_pipeline.dataset.clip_windows import read_columns
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST
from beam_pipeline.errors import AudioTFRecordsError, InputError, OptionError
from beam_pipeline.inputs.rows import group_name
from beam_pipeline.inputs.splits import GROUP_SEPARATOR
from beam_pipeline.read.findings import (
    AUDIO,
    FILE,
    GROUP,
    PARTS,
    SIMILAR,
    Audit,
    Clusters,
    Findings,
    Integers,
)
from beam_pipeline.read.similarity import joined, near_sketches
from beam_pipeline.recipe.values import comma_list
from beam_pipeline.storage import files
from beam_pipeline.storage.parquet import open_parquet, read_parquet

# The option that records what a kind compares.
_RECORDED_WITH = {GROUP: "group_by", AUDIO: "fingerprint", SIMILAR: "fingerprint"}
# Within a split, clips of one file and clips of one group are expected.
_ONLY_ACROSS = (FILE, GROUP)
_WITH_CLASSES = (AUDIO, SIMILAR)

# Tables round seconds, so shorter overlaps are accidents.
SECONDS_ROUNDED = 0.005

NO_VALUE = -1


@dataclass(frozen=True)
class Columns:
    """The manifest as arrays with one entry for each clip.

    Equal values have equal numbers. ``NO_VALUE``: the clip has no value. None: the
    column is not recorded.
    """

    split: Integers
    label: Integers
    file: Integers
    start: Integers
    frames: Integers
    rate: Integers
    channel: Integers
    group: Integers | None = None
    content: Integers | None = None
    sketch: Integers | None = None  # rows of sketches
    sketches: npt.NDArray[np.uint8] | None = None


def same_file(columns: Columns) -> Integers:
    """Equal numbers for clips of one file, also if they are different parts of it."""
    return columns.file


def same_group(columns: Columns) -> Integers | None:
    """Equal numbers for clips of one group."""
    return columns.group


def same_audio(columns: Columns) -> Integers | None:
    """Equal numbers for clips with the same samples."""
    return columns.content


def overlapping_parts(columns: Columns) -> Integers:
    """Equal numbers for overlapping clips of one file and channel.

    Clips that are linked by overlapping others have equal numbers, too. A clip of all
    channels overlaps clips of each single channel. Two clips that share at most 5 ms,
    or at most half of the shortest clip of the file, do not overlap.
    """
    count = len(columns.file)
    _, number = np.unique(columns.file, return_inverse=True)
    shortest = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(shortest, number, columns.frames)
    rounded = (columns.rate * SECONDS_ROUNDED).astype(np.int64)
    allowed = np.minimum(rounded, shortest[number] // 2)
    ones, others = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    chosen = np.unique(columns.channel[columns.channel != NO_VALUE])
    for channel in chosen if chosen.size else [NO_VALUE]:
        with_it = (columns.channel == channel) | (columns.channel == NO_VALUE)
        one, other = _overlaps(columns, allowed, np.flatnonzero(with_it))
        ones.append(one)
        others.append(other)
    return joined(count, np.concatenate(ones), np.concatenate(others))


def _overlaps(
    columns: Columns, allowed: Integers, rows: Integers
) -> tuple[Integers, Integers]:
    """Returns pairs of rows that connect all overlapping clips; ignores channels.

    In the order of starts, a clip that overlaps any earlier clip of its file also
    overlaps the earlier clip that ends last, so that pair is enough.
    """
    start, frames = columns.start[rows], columns.frames[rows]
    order = np.lexsort((start, columns.file[rows]))
    rows, start, frames = rows[order], start[order], frames[order]
    # Puts files one after the other on one time axis.
    file = columns.file[rows]
    number = np.cumsum(np.r_[0, file[1:] != file[:-1]]) if len(file) else file
    start = start + number * int((start + frames).max(initial=0) + 1)
    end = start + frames
    last = np.maximum.accumulate(end)
    ends_last = np.maximum.accumulate(np.where(end == last, np.arange(len(end)), 0))
    shared = np.minimum(last[:-1], end[1:]) - start[1:]
    at = np.flatnonzero(shared > allowed[rows[1:]]) + 1
    return rows[ends_last[at - 1]], rows[at]


def similar_audio(columns: Columns) -> tuple[Integers | None, bool]:
    """Equal numbers for clips with near sketches, directly or by others.

    Returns
    -------
    numbers : numpy.ndarray of int64, or None
        None if the data set has no sketches.
    complete : bool
        As :func:`beam_pipeline.read.similarity.near_sketches`.
    """
    if columns.sketch is None or columns.sketches is None:
        return None, True
    groups, complete = near_sketches(columns.sketches, NEAR_BITS)
    numbers = np.full(len(columns.sketch), NO_VALUE)
    known = columns.sketch >= 0
    numbers[known] = groups[columns.sketch[known]]
    return numbers, complete


def clusters_of(numbers: Integers) -> Clusters:
    """Returns the sets of at least two clips with the same number."""
    order = np.argsort(numbers, kind="stable")
    order = order[numbers[order] != NO_VALUE]
    found = numbers[order]
    firsts = np.flatnonzero(found[1:] != found[:-1]) + 1
    bounds = np.r_[0, firsts, len(order)] if len(order) else np.zeros(1, np.int64)
    every = Clusters(order, bounds)
    return every.select(np.diff(bounds) > 1)


def audit(records: str | os.PathLike[str], group_by: str | None = None) -> Audit:
    """Finds leaks between the splits of a data set, and duplicates in them.

    ========= ==================================================== =================
    kind      clips with                                           listed
    ========= ==================================================== =================
    file      the same file                                        across splits
    group     the same group                                       across splits
    audio     the same samples, in any files                       across and within
    parts     overlapping parts of one file                        across and within
    similar   nearly the same audio: encoded again, louder, noisy  across and within
    ========= ==================================================== =================

    Parameters
    ----------
    records : path
        A finished data set, on any file system.
    group_by : str, optional
        Columns of its manifest that make a group, ``"speaker,day"``. Default: the
        groups that the data set was recorded with.

    Returns
    -------
    Audit
        ``leaks`` counts the findings across splits. Iterating gives all findings.

    Raises
    ------
    InputError
        If there is no finished data set, or another version wrote its manifest.
    OptionError
        If ``group_by`` names a column that the manifest does not have.
    """
    folder = os.fspath(records)
    metadata = Metadata.load(folder)
    if metadata.recipe is None:
        raise InputError(
            f"{folder} was not recorded from audio files, so it has no clips to audit."
        )
    by = None if group_by is None else comma_list(group_by)
    table = read_clips(files.absolute(folder), by)
    columns = columns_of(table, has_groups=by is not None)
    similar, complete = similar_audio(columns)
    found = [
        _find(FILE, same_file(columns), columns, table),
        _find(GROUP, same_group(columns), columns, table),
        _find(AUDIO, same_audio(columns), columns, table),
        _find(PARTS, overlapping_parts(columns), columns, table),
        _find(SIMILAR, similar, columns, table, complete),
    ]
    splits = tuple(sorted(table["split"].unique().to_pylist()))
    return Audit(table.num_rows, splits, {each.kind: each for each in found})


def find_overlaps(records: str | os.PathLike[str]) -> Findings:
    """Finds overlapping parts only; takes little time where no file has two clips."""
    folder = files.absolute(os.fspath(records))
    numbers = read_columns(folder, MANIFEST, ["file"])["file"].to_numpy()
    if len(np.unique(numbers)) == len(numbers):
        return Findings(PARTS)
    table = read_clips(folder, None)
    columns = columns_of(table)
    return _find(PARTS, overlapping_parts(columns), columns, table)


def _find(
    kind: str,
    numbers: Integers | None,
    columns: Columns,
    table: Any,
    complete: bool = True,
) -> Findings:
    if numbers is None:
        return Findings(kind, _RECORDED_WITH[kind])
    clusters = clusters_of(numbers)
    if kind in _ONLY_ACROSS:
        clusters = clusters.select(clusters.differing(columns.split))
    if kind == SIMILAR and columns.content is not None:
        clusters = clusters.select(clusters.differing(columns.content))
    across = clusters.differing(columns.split)
    mixed = clusters.differing(columns.label)
    if kind not in _WITH_CLASSES:
        mixed = np.zeros_like(mixed)
    return Findings(kind, "", complete, clusters, across, mixed, table)


_FINGERPRINT = ("content", "sketch")
_NEEDED = (
    "path", "class", "split", "group", "file", "start", "frames", "sample_rate_hz",
    "channel",
)  # fmt: skip


def read_clips(
    folder: str, by: Sequence[str] | None, every_column: bool = False
) -> Any:
    """Reads the columns that an audit needs, for the clips that have examples."""
    import pyarrow.compute as pc

    table = _read_clips(by, every_column, files.join(folder, MANIFEST))
    table = table.filter(pc.greater(table["windows"], 0))
    if by is not None:
        at = table.column_names.index("group")
        table = table.set_column(at, "group", _joined_texts(table, by))
    return table


def _read_clips(by: Sequence[str] | None, every_column: bool, path: str) -> Any:
    """Reads the columns of one manifest."""

    if not files.exists(path):
        raise InputError(
            f"{path} is missing, so the data set cannot be audited. Record it again."
        )
    try:
        with open_parquet(path) as parquet:
            names = parquet.schema_arrow.names
            missing = [n for n in (*_NEEDED, "windows") if n not in names]
            if missing:
                raise InputError(
                    f"{path} has no column {missing[0]}, because another version of "
                    "this package wrote the file. To audit the data set, record it "
                    "again."
                )
            for name in by or ():
                if name not in names:
                    raise OptionError(
                        "group_by",
                        "must name a column of the manifest, which has "
                        f"{', '.join(names)}",
                        name,
                    )
            more = [*(name for name in _FINGERPRINT if name in names), *(by or ())]
        wanted = dict.fromkeys((*_NEEDED, "windows", *more))
        if every_column:
            wanted.update(dict.fromkeys(names))
        return read_parquet(path, list(wanted)).select(list(wanted))
    except AudioTFRecordsError:
        raise
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}") from error


def _joined_texts(table: Any, names: Sequence[str]) -> Any:
    """The values of some columns as one text; null where one is missing.

    Values are spelled as the groups of a data set are, so ``1.0`` equals ``1``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    def texts_of(column: Any) -> Any:
        encoded = column.combine_chunks().dictionary_encode()
        texts = [group_name(value) or None for value in encoded.dictionary.to_pylist()]
        return pa.array(texts, pa.string()).take(encoded.indices)

    texts = [texts_of(table[name]) for name in names]
    return pc.binary_join_element_wise(*texts, GROUP_SEPARATOR)


def columns_of(table: Any, has_groups: bool = False) -> Columns:
    """Returns a manifest's columns as numbers."""
    split, label, group = (_encoded(table[n])[0] for n in ("split", "class", "group"))
    file, start, frames, rate, channel = (
        table[name].fill_null(NO_VALUE).to_numpy().astype(np.int64)
        for name in ("file", "start", "frames", "sample_rate_hz", "channel")
    )
    columns = Columns(split, label, file, start, frames, rate, channel)
    if has_groups or table["group"].null_count < table.num_rows:
        columns = replace(columns, group=group)
    if "content" in table.column_names:
        sketch, different = _encoded(table["sketch"])
        data = np.frombuffer(different.buffers()[1] or b"", np.uint8)
        columns = replace(
            columns,
            content=_encoded(table["content"])[0],
            sketch=sketch,
            sketches=data.reshape(-1, SKETCH_BYTES)[: len(different)],
        )
    return columns


def _encoded(column: Any) -> tuple[Integers, Any]:
    """Returns a number for each value (``NO_VALUE`` for null), and the values."""
    encoded = column.combine_chunks().dictionary_encode()
    indices = encoded.indices.fill_null(NO_VALUE).to_numpy(zero_copy_only=False)
    return indices.astype(np.int64), encoded.dictionary
