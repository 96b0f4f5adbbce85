"""Audit: what a finished data set has in two splits, or twice.

All of it comes from ``manifest.parquet``, by arithmetic on its columns: no audio and no
shard is read, and a clip is a Python object only where something is found.

Copies that the recipe makes of windows are the same clip, so they are never found.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline import files
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.fingerprints import NEAR_BITS, SKETCH_BITS, SKETCH_BYTES
from beam_pipeline.metadata import MANIFEST, Metadata
from beam_pipeline.recipe import GROUP_SEPARATOR, comma_list
from beam_pipeline.rows import group_name
from beam_pipeline.similarity import joined, near_sketches

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FILE, GROUP, AUDIO, PARTS, SIMILAR = "file", "group", "audio", "parts", "similar"
TITLES = {
    FILE: "same path",
    GROUP: "same group",
    AUDIO: "same audio",
    PARTS: "overlapping parts",
    SIMILAR: "near-identical audio",
}
# What it is recorded with, where that was not done.
_NOT_RECORDED = {
    GROUP: "not recorded; name columns of the manifest with --group-by",
    AUDIO: "not recorded; record with --fingerprint",
    SIMILAR: "not recorded; record with --fingerprint",
}
# Within a split, parts of one file and clips of one group belong beside each other.
_ONLY_ACROSS = (FILE, GROUP)
_WITH_CLASSES = (AUDIO, SIMILAR)

# Tables round seconds: what overlaps by less does so by accident.
SECONDS_ROUNDED = 0.005
FINDINGS_SHOWN = 20
CLIPS_SHOWN = 3  # of each split
NO_VALUE = -1


class FoundClip(NamedTuple):
    """A clip that something was found of; ``interval`` is in seconds of its file."""

    split: str
    filepath: str
    interval: tuple[float, float]
    label: str | None


class Finding(NamedTuple):
    """Clips that have something in common, and whether they are in several splits."""

    kind: str
    across: bool
    clips: tuple[FoundClip, ...]
    detail: str

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON values."""
        return {
            "kind": self.kind,
            "across": self.across,
            "detail": self.detail,
            "clips": [
                {
                    "split": clip.split,
                    "path": clip.filepath,
                    "start_s": clip.interval[0],
                    "end_s": clip.interval[1],
                    "class": clip.label,
                }
                for clip in self.clips
            ],
        }


@dataclass(frozen=True)
class Clusters:
    """Sets of clips: cluster k is ``rows[bounds[k] : bounds[k + 1]]``."""

    rows: Integers
    bounds: Integers

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def select(self, wanted: Mask) -> Clusters:
        """Those that are wanted."""
        sizes = np.diff(self.bounds)
        rows = self.rows[np.repeat(wanted, sizes)]
        return Clusters(rows, np.r_[0, np.cumsum(sizes[wanted])])

    def differing(self, values: Integers) -> Mask:
        """For each cluster, whether its clips differ in a value."""
        if not len(self):
            return np.zeros(0, np.bool_)
        of_rows, firsts = values[self.rows], self.bounds[:-1]
        least = np.minimum.reduceat(of_rows, firsts)
        differ: Mask = np.maximum.reduceat(of_rows, firsts) > least
        return differ


_NOTHING = Clusters(np.zeros(0, np.int64), np.zeros(1, np.int64))


def _none() -> Mask:
    return np.zeros(0, np.bool_)


@dataclass(frozen=True)
class Columns:
    """What is known of all clips, one entry each; equal numbers for equal values.

    None: not recorded. ``NO_VALUE``: this clip has none.
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
    sketch: Integers | None = None  # places in sketches
    sketches: npt.NDArray[np.uint8] | None = None


# Each kind is a function from columns to a number for each clip: clips with the same
# number, but for NO_VALUE, have something in common. None: that was not recorded.


def same_file(columns: Columns) -> Integers:
    """Clips of one file, whichever parts of it they are."""
    return columns.file


def same_group(columns: Columns) -> Integers | None:
    """Clips of one group."""
    return columns.group


def same_audio(columns: Columns) -> Integers | None:
    """Clips with the same samples."""
    return columns.content


def overlapping_parts(columns: Columns) -> Integers:
    """Clips of one file and channel that overlap, or are linked by others that do.

    A clip of all channels overlaps those of each. Up to 5 ms, and up to half of the
    shortest clip of the file, are no overlap.
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
    """Pairs of rows that connect all which overlap, whatever their channels.

    In the order of their starts, a clip that overlaps one before it in its file also
    overlaps the one that ends last, and these two overlap each other.
    """
    start, frames = columns.start[rows], columns.frames[rows]
    order = np.lexsort((start, columns.file[rows]))
    rows, start, frames = rows[order], start[order], frames[order]
    # Files one after the other on one axis.
    file = columns.file[rows]
    number = np.cumsum(np.r_[0, file[1:] != file[:-1]]) if len(file) else file
    start = start + number * int((start + frames).max(initial=0) + 1)
    end = start + frames
    last = np.maximum.accumulate(end)
    holder = np.maximum.accumulate(np.where(end == last, np.arange(len(end)), 0))
    shared = np.minimum(last[:-1], end[1:]) - start[1:]
    at = np.flatnonzero(shared > allowed[rows[1:]]) + 1
    return rows[holder[at - 1]], rows[at]


def similar_audio(columns: Columns) -> tuple[Integers | None, bool]:
    """Clips whose sketches are near each other, or linked by others that are.

    Returns
    -------
    numbers : numpy.ndarray of int64
    complete : bool
        As :func:`similarity.near_sketches`.
    """
    if columns.sketch is None or columns.sketches is None:
        return None, True
    groups, complete = near_sketches(columns.sketches, NEAR_BITS)
    numbers = np.full(len(columns.sketch), NO_VALUE)
    known = columns.sketch >= 0
    numbers[known] = groups[columns.sketch[known]]
    return numbers, complete


def clusters_of(numbers: Integers) -> Clusters:
    """The sets of at least two clips with the same number."""
    order = np.argsort(numbers, kind="stable")
    order = order[numbers[order] != NO_VALUE]
    found = numbers[order]
    firsts = np.flatnonzero(found[1:] != found[:-1]) + 1
    bounds = np.r_[0, firsts, len(order)] if len(order) else np.zeros(1, np.int64)
    every = Clusters(order, bounds)
    return every.select(np.diff(bounds) > 1)


@dataclass(frozen=True)
class Findings:
    """All findings of a kind; iterating makes them one by one, leaks first.

    Attributes
    ----------
    kind : str
        A key of ``TITLES``.
    missing : str
        Why it was not checked; empty where it was.
    complete : bool
        False if there may be more, because too many clips are alike to compare all.
    clusters : Clusters
        The clips of each finding.
    across, mixed : numpy.ndarray of bool
        For each, whether its clips are in several splits, and under several classes.
    """

    kind: str
    missing: str = ""
    complete: bool = True
    clusters: Clusters = _NOTHING
    across: Mask = field(default_factory=_none)
    mixed: Mask = field(default_factory=_none)
    table: Any = None

    def __len__(self) -> int:
        return len(self.clusters)

    @property
    def leaks(self) -> int:
        """How many are over several splits."""
        return int(self.across.sum())

    def __iter__(self) -> Iterator[Finding]:
        rows, bounds = self.clusters.rows, self.clusters.bounds
        for k in np.lexsort((rows[bounds[:-1]], ~self.across)):
            clips = self.table.take(rows[bounds[k] : bounds[k + 1]]).to_pydict()
            yield _finding(self.kind, bool(self.across[k]), bool(self.mixed[k]), clips)


def _finding(
    kind: str, across: bool, mixed: bool, values: Mapping[str, Sequence[Any]]
) -> Finding:
    names = ("split", "path", "start", "frames", "sample_rate_hz", "class")
    clips = tuple(
        FoundClip(split, path, (start / rate, (start + frames) / rate), label)
        for split, path, start, frames, rate, label in zip(
            *(values[name] for name in names), strict=True
        )
    )
    details = []
    if kind == GROUP:
        details.append(values["group"][0].replace(GROUP_SEPARATOR, ", "))
    elif kind == AUDIO:
        details.append(values["content"][0].hex())
    elif kind == SIMILAR:
        sketches = np.frombuffer(b"".join(values["sketch"]), np.uint8)
        bits = np.unpackbits(sketches.reshape(len(clips), -1), axis=1)
        most = int((bits[0] != bits).sum(axis=1).max())
        details.append(f"{most} of {SKETCH_BITS} bits differ from the first")
    if mixed:
        classes = dict.fromkeys(str(clip.label) for clip in clips)
        details.append(f"under the classes {', '.join(classes)}")
    return Finding(kind, across, clips, "; ".join(details))


@dataclass(frozen=True)
class Audit:
    """What was found in a data set, by kind, in the order of ``TITLES``."""

    clips: int
    splits: tuple[str, ...]
    kinds: dict[str, Findings]

    @property
    def leaks(self) -> int:
        """How many findings are over several splits."""
        return sum(found.leaks for found in self.kinds.values())

    def __iter__(self) -> Iterator[Finding]:
        for found in self.kinds.values():
            yield from found


def audit(records: str | os.PathLike[str], group_by: str | None = None) -> Audit:
    """Looks for leaks between the splits of a data set, and for doubles.

    ========= ==================================================== =================
    kind      clips with                                           listed
    ========= ==================================================== =================
    file      the same file                                        across splits
    group     the same group                                       across splits
    audio     the same samples, in whatever files                  across and within
    parts     overlapping parts of one file                        across and within
    similar   nearly the same audio: encoded again, louder, noisy  across and within
    ========= ==================================================== =================

    Parameters
    ----------
    records : path
        A finished data set, on any file system.
    group_by : str, optional
        Columns of its manifest, ``speaker,day``, that make a group; default: as it was
        recorded.

    Raises
    ------
    InputError
        If there is no finished data set, or its manifest is not one of this version.
    RecipeError
        If ``group_by`` names a column that the manifest has not.
    """
    folder = os.fspath(records)
    Metadata.load(folder)  # there is a finished one
    path = files.join(files.absolute(folder), MANIFEST)
    by = None if group_by is None else comma_list(group_by)
    table = read_clips(path, by)
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


def describe_overlaps(records: str | os.PathLike[str]) -> str:
    """The summary's line of overlapping parts; empty if there are none."""
    import pyarrow.parquet as pq

    path = files.join(files.absolute(os.fspath(records)), MANIFEST)
    with files.open_read(path) as file:
        # One column of whole numbers is read as fast without threads, which would still
        # be there beside those of a runner when the process ends.
        table = pq.ParquetFile(file).read(columns=["file"], use_threads=False)
        several = table["file"].to_numpy()
    if len(np.unique(several)) == len(several):
        return ""
    clips = read_clips(path, None)
    columns = columns_of(clips)
    found = _find(PARTS, overlapping_parts(columns), columns, clips)
    return _summary(found) if len(found) else ""


def _find(
    kind: str,
    numbers: Integers | None,
    columns: Columns,
    table: Any,
    complete: bool = True,
) -> Findings:
    if numbers is None:
        return Findings(kind, _NOT_RECORDED[kind])
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


def read_clips(path: str, by: Sequence[str] | None) -> Any:
    """The columns of a manifest that an audit needs, of the clips with examples."""
    import pyarrow as pa
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    if not files.exists(path):
        raise InputError(f"{path} is missing; without it there is nothing to audit.")
    with files.open_read(path) as file:
        try:
            parquet = pq.ParquetFile(file)
            names = parquet.schema_arrow.names
            missing = [n for n in (*_NEEDED, "windows") if n not in names]
            if missing:
                raise InputError(
                    f"{path} has no column {missing[0]}: another version has written "
                    "it. Record the data set again to audit it."
                )
            for name in by or ():
                if name not in names:
                    raise RecipeError(
                        "group_by", f"the manifest has only {', '.join(names)}", name
                    )
            more = [*(name for name in _FINGERPRINT if name in names), *(by or ())]
            wanted = dict.fromkeys((*_NEEDED, "windows", *more))
            table = parquet.read(columns=list(wanted))
        except pa.ArrowInvalid as error:
            raise InputError(f"{path} is not a manifest: {error}") from error
    table = table.filter(pc.greater(table["windows"], 0))
    if by is not None:
        at = table.column_names.index("group")
        table = table.set_column(at, "group", _joined_texts(table, by))
    return table


def _joined_texts(table: Any, names: Sequence[str]) -> Any:
    """The values of some columns as one text; null where one is missing.

    In one spelling, as groups are where a data set is recorded.
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
    """A manifest's columns as numbers."""
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
    """A number for each value, ``NO_VALUE`` for null, and the different values."""
    encoded = column.combine_chunks().dictionary_encode()
    indices = encoded.indices.fill_null(NO_VALUE).to_numpy(zero_copy_only=False)
    return indices.astype(np.int64), encoded.dictionary


def summarise_audit(found: Audit) -> str:
    """A line for each kind."""
    lines = [f"{found.clips:,} clips in {', '.join(found.splits)}"]
    return "\n".join([*lines, *map(_summary, found.kinds.values())])


def describe_audit(found: Audit) -> str:
    """The summary, then a few findings of each kind with a few clips each."""
    lines = [summarise_audit(found)]
    for some in found.kinds.values():
        for finding in islice(some, FINDINGS_SHOWN):
            lines += ["", *_describe(finding)]
        if len(some) > FINDINGS_SHOWN:
            left = len(some) - FINDINGS_SHOWN
            lines += [
                "",
                f"... and {left:,} more of {TITLES[some.kind]}; --json has all",
            ]
    return "\n".join(lines)


def _summary(found: Findings) -> str:
    title = TITLES[found.kind]
    if found.missing:
        return f"{title}: {found.missing}"
    counts = [
        f"{count:,} {where}"
        for count, where in (
            (found.leaks, "across splits"),
            (len(found) - found.leaks, "within one"),
            (int(found.mixed.sum()), "under two classes"),
        )
        if count
    ]
    more = "" if found.complete else "; many clips are alike, not all were compared"
    return f"{title}: {', '.join(counts) or 'none'}{more}"


def _describe(finding: Finding) -> Iterator[str]:
    where = "across splits" if finding.across else f"within {finding.clips[0].split}"
    detail = f": {finding.detail}" if finding.detail else ""
    yield f"{TITLES[finding.kind]} {where}{detail}"
    shown: Counter[str] = Counter()
    for clip in finding.clips:
        shown[clip.split] += 1
        if shown[clip.split] <= CLIPS_SHOWN:
            first, last = clip.interval
            label = "" if clip.label is None else f"  {clip.label}"
            yield f"  {clip.split}  {clip.filepath}  {first:g} to {last:g} s{label}"
    for split, count in shown.items():
        if count > CLIPS_SHOWN:
            yield f"  {split}  ... and {count - CLIPS_SHOWN:,} more"
