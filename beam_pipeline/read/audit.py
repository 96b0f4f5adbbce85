"""Finds clips of a finished data set that are in two splits, or in it twice.

The audit reads ``manifest.parquet`` alone and computes with its columns as arrays; it
reads no audio and no shard. What it finds is a table with a row for each clip of a
finding; the command line prints it.

Copies that the recipe makes of windows belong to the same clip. They are no findings.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.fingerprint import NEAR_BITS, SKETCH_BITS, SKETCH_BYTES
from beam_pipeline.dataset.clip_windows import read_columns
from beam_pipeline.dataset.output_folder import MANIFEST
from beam_pipeline.dataset.side_by_side import Folders, open_data_sets
from beam_pipeline.errors import AudioTFRecordsError, InputError, OptionError
from beam_pipeline.inputs.rows import group_name
from beam_pipeline.inputs.splits import GROUP_SEPARATOR
from beam_pipeline.read.similarity import joined, near_sketches
from beam_pipeline.recipe.values import comma_list
from beam_pipeline.storage import files
from beam_pipeline.storage.parquet import open_parquet, read_parquet
from beam_pipeline.text import html_line, html_table

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FILE, GROUP, AUDIO, PARTS, SIMILAR = "file", "group", "audio", "parts", "similar"
KINDS = (FILE, GROUP, AUDIO, PARTS, SIMILAR)

# The option that records what a kind compares.
_RECORDED_WITH = {GROUP: "group_by", AUDIO: "fingerprint", SIMILAR: "fingerprint"}
# Within a split, clips of one file and clips of one group are expected.
_ONLY_ACROSS = (FILE, GROUP)
_WITH_CLASSES = (AUDIO, SIMILAR)

# Tables round seconds, so shorter overlaps are accidents.
SECONDS_ROUNDED = 0.005

NO_VALUE = -1

# What a notebook shows of an audit.
_FINDINGS_SHOWN, _CLIPS_SHOWN = 10, 4


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


@dataclass(frozen=True)
class Clusters:
    """Sets of clips: cluster k is ``rows[bounds[k] : bounds[k + 1]]``."""

    rows: Integers
    bounds: Integers

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def select(self, wanted: Mask) -> Clusters:
        """Returns the clusters for which ``wanted`` is true."""
        sizes = np.diff(self.bounds)
        rows = self.rows[np.repeat(wanted, sizes)]
        return Clusters(rows, np.r_[0, np.cumsum(sizes[wanted])])

    def sorted(self, order: Integers) -> Clusters:
        """Returns the clusters in another order."""
        bounds = list(pairwise(self.bounds.tolist()))
        parts = [self.rows[slice(*bounds[k])] for k in order.tolist()]
        rows = np.concatenate([np.zeros(0, np.int64), *parts])
        return Clusters(rows, np.r_[0, np.cumsum(np.diff(self.bounds)[order])])

    def differing(self, values: Integers) -> Mask:
        """Returns for each cluster whether ``values`` differ between its clips."""
        if not len(self):
            return np.zeros(0, np.bool_)
        of_rows, firsts = values[self.rows], self.bounds[:-1]
        least = np.minimum.reduceat(of_rows, firsts)
        differ: Mask = np.maximum.reduceat(of_rows, firsts) > least
        return differ


@dataclass(frozen=True, repr=False)
class Audit:
    """What an audit has found.

    Attributes
    ----------
    clips : int
        The clips that were compared.
    splits : tuple of str
    findings : pyarrow.Table
        A row for each clip of a finding, the findings in the order of ``KINDS``, those
        across splits first:

        ============== ======= =====================================================
        kind           text    one of ``KINDS``
        finding        int64   the number of the finding; its clips follow each other
        across         bool    whether its clips are in several splits
        mixed          bool    whether its clips have several classes
        detail         text    what the kind does not say: the group, the hash of the
                               samples, how much sketches differ, the classes
        split, path    text    of the clip
        start_s, end_s float64 its place in the file, in seconds
        class          text    null without classes
        ============== ======= =====================================================
    not_compared : mapping of str to str
        The kinds that were not compared: to the option that the data set was recorded
        without.
    incomplete : tuple of str
        The kinds that may have more findings, because too many clips are alike to
        compare all pairs.
    """

    clips: int
    splits: tuple[str, ...]
    findings: Any
    not_compared: Mapping[str, str]
    incomplete: tuple[str, ...] = ()

    @property
    def leaks(self) -> int:
        """The number of findings across splits, of all kinds."""
        return sum(self.count(kind, across=True) for kind in KINDS)

    def count(self, kind: str, **wanted: bool) -> int:
        """Returns the number of findings of a kind: all, or ``across=True``, ..."""
        import pyarrow.compute as pc

        chosen = pc.field("kind") == kind
        for name, value in wanted.items():
            chosen &= pc.field(name) == value
        numbers = self.findings.filter(chosen)["finding"]
        return int(pc.count_distinct(numbers).as_py())

    def of_kind(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yields the findings of a kind, those across splits first.

        A finding is a dict with ``kind``, ``across``, ``detail`` and ``clips``, which
        are dicts with ``split``, ``path``, ``start_s``, ``end_s`` and ``class``.
        """
        import pyarrow.compute as pc

        table = self.findings.filter(pc.field("kind") == kind)
        numbers = table["finding"].to_numpy()
        firsts = np.flatnonzero(np.diff(numbers, prepend=NO_VALUE)).tolist()
        for first, end in pairwise([*firsts, len(table)]):
            clips = table.slice(first, end - first).to_pylist()
            finding = {name: clips[0][name] for name in ("kind", "across", "detail")}
            names = ("split", "path", "start_s", "end_s", "class")
            finding["clips"] = [{name: clip[name] for name in names} for clip in clips]
            yield finding

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for kind in KINDS:
            yield from self.of_kind(kind)

    def __repr__(self) -> str:
        kinds = ", ".join(
            f"{kind}: not compared"
            if kind in self.not_compared
            else f"{kind}: {self.count(kind)}"
            for kind in KINDS
        )
        return f"<Audit of {self.clips:,} clips: {kinds}; {self.leaks} across splits>"

    def _repr_html_(self) -> str:
        rows = [
            (kind, "not recorded", "", "")
            if kind in self.not_compared
            else (
                kind, self.count(kind, across=True), self.count(kind, across=False),
                self.count(kind, mixed=True),
            )
            for kind in KINDS
        ]  # fmt: skip
        header = ("in common", "across splits", "within one", "with several classes")
        first = [
            (
                finding["kind"],
                "across splits" if finding["across"] else "within one",
                ", ".join(clip["path"] for clip in finding["clips"][:_CLIPS_SHOWN]),
                len(finding["clips"]),
            )
            for finding in islice(self, _FINDINGS_SHOWN)
        ]
        columns = ("in common", "where", "first clips", "clips")
        return (
            html_line(f"{self.clips:,} clips in {', '.join(self.splits)}")
            + html_table(header, rows)
            + (html_table(columns, first) if first else "")
        )


def audit(records: Folders, group_by: str | None = None) -> Audit:
    """Finds leaks between the splits of data sets, and duplicates in them.

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
    records : path or sequence of paths
        A finished data set, on any file system; or several that belong together. A file
        of one is that of another if its input has the same number, its path below that
        input is the same, and its header, too.
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
        If there is no finished data set of audio files.
    OptionError
        If ``group_by`` names a column that the manifest does not have.
    """
    data = open_data_sets(records)
    if any(metadata.recipe is None for metadata in data.each):
        raise InputError(
            f"{data.name} was not recorded from audio files, so it has no clips to "
            "audit."
        )
    by = None if group_by is None else comma_list(group_by)
    table = read_clips(data.folders, by)
    columns = columns_of(table, has_groups=by is not None)
    numbers, complete = shared_numbers(columns)
    missing = {kind: _RECORDED_WITH[kind] for kind in KINDS if numbers[kind] is None}
    return Audit(
        table.num_rows,
        tuple(sorted(table["split"].unique().to_pylist())),
        _findings(numbers, columns, table),
        missing,
        () if complete else (SIMILAR,),
    )


def count_overlaps(records: str | os.PathLike[str]) -> tuple[int, int]:
    """Counts overlapping parts: the findings, and those across splits.

    It takes little time where no file has two clips.
    """
    folder = files.absolute(os.fspath(records))
    numbers = read_columns(folder, MANIFEST, ["file"])["file"].to_numpy()
    if len(np.unique(numbers)) == len(numbers):
        return 0, 0
    columns = columns_of(read_clips([folder], None))
    found = clusters_of(overlapping_parts(columns))
    return len(found), int(found.differing(columns.split).sum())


def shared_numbers(columns: Columns) -> tuple[dict[str, Integers | None], bool]:
    """Returns for each kind numbers of the clips, equal for those with it in common.

    None stands for a kind that cannot be compared. The second value is that of
    :func:`similar_audio`.
    """
    similar, complete = similar_audio(columns)
    return {
        FILE: columns.file,
        GROUP: columns.group,
        AUDIO: columns.content,
        PARTS: overlapping_parts(columns),
        SIMILAR: similar,
    }, complete


def _findings(
    numbers: Mapping[str, Integers | None], columns: Columns, clips: Any
) -> Any:
    """Returns the table of findings; see :class:`Audit`."""
    import pyarrow as pa

    tables, first = [], 0
    for kind, shared in numbers.items():
        clusters = clusters_of(np.zeros(0, np.int64) if shared is None else shared)
        if kind in _ONLY_ACROSS:
            clusters = clusters.select(clusters.differing(columns.split))
        if kind == SIMILAR and columns.content is not None:
            clusters = clusters.select(clusters.differing(columns.content))
        across = clusters.differing(columns.split)
        firsts = clusters.rows[clusters.bounds[:-1]]
        order = np.lexsort((firsts, ~across))
        clusters, across = clusters.sorted(order), across[order]
        mixed = clusters.differing(columns.label) & (kind in _WITH_CLASSES)
        found = clips.take(clusters.rows)
        sizes = np.diff(clusters.bounds)
        details = _details(kind, clusters, mixed, found)
        rate = found["sample_rate_hz"].to_numpy()
        start = found["start"].to_numpy()
        tables.append(
            pa.table(
                {
                    "kind": pa.repeat(kind, len(found)),
                    "finding": np.repeat(first + np.arange(len(clusters)), sizes),
                    "across": np.repeat(across, sizes),
                    "mixed": np.repeat(mixed, sizes),
                    "detail": np.repeat(np.array(details, object), sizes),
                    "split": found["split"],
                    "path": found["path"],
                    "start_s": start / rate,
                    "end_s": (start + found["frames"].to_numpy()) / rate,
                    "class": found["class"],
                }
            )
        )
        first += len(clusters)
    return pa.concat_tables(tables, promote_options="permissive")


def _details(kind: str, clusters: Clusters, mixed: Mask, found: Any) -> list[str]:
    """Returns what the clips of each cluster have in common, where it is not plain."""
    firsts = clusters.bounds[:-1]
    details = [""] * len(clusters)
    if kind == GROUP:
        names = found["group"].take(firsts).to_pylist()
        details = [name.replace(GROUP_SEPARATOR, ", ") for name in names]
    elif kind == AUDIO and len(clusters):
        details = [
            content.hex() for content in found["content"].take(firsts).to_pylist()
        ]
    elif kind == SIMILAR and len(clusters):
        sketches = np.frombuffer(b"".join(found["sketch"].to_pylist()), np.uint8)
        bits = np.unpackbits(sketches.reshape(len(found), -1), axis=1)
        first = np.repeat(bits[firsts], np.diff(clusters.bounds), axis=0)
        most = np.maximum.reduceat((bits != first).sum(axis=1), firsts)
        details = [f"{n} of {SKETCH_BITS} bits differ from the first" for n in most]
    for k in np.flatnonzero(mixed).tolist():
        labels = found["class"][clusters.bounds[k] : clusters.bounds[k + 1]]
        classes = dict.fromkeys(map(str, labels.to_pylist()))
        details[k] = f"{details[k]}; classes {', '.join(classes)}".removeprefix("; ")
    return details


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


_FINGERPRINT = ("content", "sketch")
_NEEDED = (
    "path", "class", "split", "group", "file", "start", "frames", "sample_rate_hz",
    "channel", "windows",
)  # fmt: skip
# What tells files of several data sets apart.
_OF_FILE = ("input", "path", "native_frames", "native_sample_rate_hz")


def read_clips(
    folders: Sequence[str], by: Sequence[str] | None, every_column: bool = False
) -> Any:
    """Reads the columns that an audit needs, for the clips that have examples.

    With ``by``, the values of these columns are the groups. A file has one number in
    all folders.
    """
    import pyarrow as pa

    tables = [_read_clips(folder, by, every_column) for folder in folders]
    if len(tables) == 1:
        return tables[0]
    numbers: dict[tuple[Any, ...], int] = {}
    for place, table in enumerate(tables):
        # A file without a number of its own here has that of its first clip.
        keys = zip(*(table[name].to_pylist() for name in _OF_FILE), strict=True)
        here: dict[int, int] = {}
        for key, file in zip(keys, table["file"].to_pylist(), strict=True):
            known = numbers.setdefault(key, len(numbers))
            here.setdefault(file, known)
        files_here = [here[file] for file in table["file"].to_pylist()]
        at = table.column_names.index("file")
        tables[place] = table.set_column(at, "file", pa.array(files_here, pa.int64()))
    return pa.concat_tables(tables, promote_options="default").unify_dictionaries()


def _read_clips(folder: str, by: Sequence[str] | None, every_column: bool) -> Any:
    """Reads the clips of one data set."""
    import pyarrow.compute as pc

    path = files.join(folder, MANIFEST)
    if not files.exists(path):
        raise InputError(
            f"{path} is missing, so the data set cannot be audited. Record it again."
        )
    try:
        with open_parquet(path) as parquet:
            names = parquet.schema_arrow.names
        _check_columns(path, names, by or ())
        more = [*(name for name in _FINGERPRINT if name in names), *(by or ())]
        wanted = dict.fromkeys(
            [*_NEEDED, *_OF_FILE, *more, *(names if every_column else ())]
        )
        table = read_parquet(path, list(wanted)).select(list(wanted))
    except AudioTFRecordsError:
        raise
    except (ValueError, OSError) as error:
        raise InputError(f"{path} cannot be read as Parquet: {error}") from error
    table = table.filter(pc.field("windows") > 0)
    if by is not None:
        at = table.column_names.index("group")
        table = table.set_column(at, "group", _joined_texts(table, by))
    return table


def _check_columns(path: str, names: Sequence[str], by: Sequence[str]) -> None:
    missing = [name for name in _NEEDED if name not in names]
    if missing:
        raise InputError(
            f"{path} has no column {missing[0]}, so it is not the manifest of a data "
            "set. Restore it, or record the data set again."
        )
    for name in by:
        if name not in names:
            raise OptionError(
                "group_by",
                f"must name a column of the manifest, which has {', '.join(names)}",
                name,
            )


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
