"""Finds clips of a finished data set that are in two splits, or in it twice.

The audit reads ``manifest.parquet`` alone and computes with its columns as arrays; it
reads no audio and no shard. What it finds is a table with a row for each clip of a
finding, and that table says itself what it holds: as text, as dicts.

Copies that the recipe makes of windows belong to the same clip. They are no findings.
A manifest without leaks and doubles follows from the same numbers of clips::

    clips --same file, group, audio; overlapping, similar--> components: a group each
    clips with the same samples and class --drop_doubles--> the first of them
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, groupby, islice
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.arrays import Integers
from beam_pipeline.audio.sketch import LEAST_WORDS, MOST_DIFFERENT, SKETCH_SECONDS, WORD
from beam_pipeline.dataset import side_by_side
from beam_pipeline.dataset.folders import MANIFEST
from beam_pipeline.dataset.tables import read_table
from beam_pipeline.errors import InputError, OptionError, listed
from beam_pipeline.inputs.columns import (
    CONTENT,
    FILE_SHA256,
    MANIFEST_FIELDS,
    SKETCH,
    SKETCH_FIELDS,
    group_name,
    part_in_seconds,
)
from beam_pipeline.inputs.splits import GROUP_SEPARATOR
from beam_pipeline.parameters import Names
from beam_pipeline.read.window_table import input_roots
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.text import counted

# What clips without a sketch are.
UNLIKE_ANY = "silent, steady, or too short"

FILE, GROUP, AUDIO, PARTS, SIMILAR = "file", "group", "audio", "parts", "similar"
# Kind of finding -> what its clips have in common.
KINDS = {
    FILE: "same path",
    GROUP: "same group",
    AUDIO: "same audio",
    PARTS: "overlapping parts",
    SIMILAR: f"near-identical audio in the first {SKETCH_SECONDS:g} s",
}
# Why a kind cannot be compared.
_NOT_COMPARED = {
    GROUP: "not recorded; name columns of the manifest with --group-by",
    SIMILAR: f"not compared; all clips are {UNLIKE_ANY}",
}
# Within a split, clips of one file and clips of one group are expected.
_ONLY_ACROSS = (FILE, GROUP)
_WITH_CLASSES = (AUDIO, SIMILAR)

# Tables round seconds, so shorter overlaps are accidents.
SECONDS_ROUNDED = 0.005

_OF_CLIP = ("split", "path", "start_s", "end_s", "class")

# How many findings of each kind are shown, and clips of each split of a finding.
FINDINGS_SHOWN, CLIPS_SHOWN = 20, 3


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
        detail         text    what the kind does not say: the group, the classes
        split, path    text    of the clip
        start_s, end_s float64 its place in the file, in seconds
        class          text    null without classes
        ============== ======= =====================================================
    not_compared : mapping of str to str
        The kinds that were not compared: to the reason.
    incomplete : mapping of str to str
        The kinds that may have more findings: to the reason.
    """

    clips: int
    splits: tuple[str, ...]
    findings: Any
    not_compared: Mapping[str, str]
    incomplete: Mapping[str, str]

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
        return len(self.findings.filter(chosen)["finding"].unique())

    def of_kind(self, kind: str) -> Iterator[dict[str, Any]]:
        """Yields the findings of a kind, those across splits first.

        A finding is a dict with ``kind``, ``across``, ``detail`` and ``clips``, which
        are dicts with ``split``, ``path``, ``start_s``, ``end_s`` and ``class``.
        """
        import pyarrow.compute as pc

        table = self.findings.filter(pc.field("kind") == kind)
        clips = chain.from_iterable(
            some.to_pylist() for some in table.to_batches(max_chunksize=1 << 12)
        )
        for _, found in groupby(clips, itemgetter("finding")):
            rows = list(found)
            yield {
                **{name: rows[0][name] for name in ("kind", "across", "detail")},
                "clips": [{name: row[name] for name in _OF_CLIP} for row in rows],
            }

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return chain.from_iterable(map(self.of_kind, KINDS))

    def _counts(self, kind: str) -> str:
        if kind in self.not_compared:
            return self.not_compared[kind]
        counts = [
            f"{count:,} {where}"
            for where, count in (
                ("across splits", self.count(kind, across=True)),
                ("within one split", self.count(kind, across=False)),
                ("with several classes", self.count(kind, mixed=True)),
            )
            if count
        ]
        more = f"; {self.incomplete[kind]}" if kind in self.incomplete else ""
        return (", ".join(counts) or "none") + more

    def __str__(self) -> str:
        """Returns a line for each kind of finding."""
        lines = (f"{title}: {self._counts(kind)}" for kind, title in KINDS.items())
        return "\n".join([f"{self.clips:,} clips in {', '.join(self.splits)}", *lines])

    def describe(self) -> str:
        """Returns the counts, then some findings of each kind and of their clips."""
        lines = [str(self)]
        for kind, title in KINDS.items():
            for finding in islice(self.of_kind(kind), FINDINGS_SHOWN):
                lines += ["", *_describe_finding(finding)]
            more = self.count(kind) - FINDINGS_SHOWN
            if more > 0:
                lines += ["", f"... and {more:,} more of {title}; --json prints all"]
        return "\n".join(lines)


def _describe_finding(finding: Mapping[str, Any]) -> Iterator[str]:
    where = "across splits"
    if not finding["across"]:
        where = f"within {finding['clips'][0]['split']}"
    detail = f": {finding['detail']}" if finding["detail"] else ""
    yield f"{KINDS[finding['kind']]} {where}{detail}"
    counts: Counter[str] = Counter()
    for clip in finding["clips"]:
        split = clip["split"]
        counts[split] += 1
        if counts[split] <= CLIPS_SHOWN:
            seconds = f"{clip['start_s']:g} to {clip['end_s']:g} s"
            label = "" if clip["class"] is None else f"  {clip['class']}"
            yield f"  {split}  {clip['path']}  {seconds}{label}"
    for split, count in counts.items():
        if count > CLIPS_SHOWN:
            yield f"  {split}  ... and {count - CLIPS_SHOWN:,} more"


def audit(records: side_by_side.Folders, group_by: str | None = None) -> Audit:
    """Finds leaks between the splits of data sets, and duplicates in them.

    ========= ==================================================== =================
    kind      clips with                                           listed
    ========= ==================================================== =================
    file      the same file                                        across splits
    group     the same group                                       across splits
    audio     the same samples in all windows, in any files        across and within
    parts     overlapping parts of one file                        across and within
    similar   nearly the same first two seconds: encoded again,    across and within
              resampled, louder, noisy, or with the start cut off
    ========= ==================================================== =================

    What clips share only after their first two seconds is not looked for, unless all is
    the same. See :func:`similar_sketches` for what is alike.

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
    _, clips = read_clips(records, group_by)
    numbers, incomplete = shared_numbers(clips, has_groups=group_by is not None)
    return Audit(
        clips.num_rows,
        tuple(sorted(clips["split"].unique().to_pylist())),
        _findings(numbers, clips),
        {kind: _NOT_COMPARED[kind] for kind in _NOT_COMPARED if kind not in numbers},
        incomplete,
    )


def shared_numbers(
    clips: Any, has_groups: bool
) -> tuple[dict[str, Integers], dict[str, str]]:
    """Returns for each kind numbers of the clips, equal for those with it in common.

    Kinds that cannot be compared are left out. The second value is why a kind may lack
    some pairs, see :class:`Audit`.

    Parameters
    ----------
    clips : pyarrow.Table
        See :func:`read_clips`.
    has_groups : bool
        Whether clips without a group are in none, though no clip has one.
    """
    numbers, incomplete = {FILE: codes_of(clips["file"])[1]}, {}
    if has_groups or clips["group"].null_count < len(clips):
        numbers[GROUP] = codes_of(clips["group"])[1]
    numbers[AUDIO] = codes_of(clips[CONTENT])[1]
    numbers[PARTS] = overlapping_parts(clips)
    without = clips[SKETCH].null_count
    if without < len(clips):
        values, codes = codes_of(clips[SKETCH])
        groups, complete = similar_sketches(values.to_pylist())
        # The number of a clip without a sketch is -1: the last place.
        numbers[SIMILAR] = np.r_[groups, NO_VALUE][codes]
        reasons = [f"{without:,} clips are {UNLIKE_ANY}"] * bool(without)
        reasons += ["too many clips are alike to compare all"] * (not complete)
        if reasons:
            incomplete[SIMILAR] = "; ".join(reasons)
    return numbers, incomplete


def codes_of(column: Any) -> tuple[Any, Integers]:
    """Returns the values of a column, and for each row the number of its value.

    Null has the number ``NO_VALUE``.
    """
    encoded = column.combine_chunks().dictionary_encode()
    numbers = encoded.indices.fill_null(NO_VALUE).to_numpy(zero_copy_only=False)
    return encoded.dictionary, np.asarray(numbers, np.int64)


def alike(numbers: Integers, clips: Any) -> Any:
    """Returns the sets of at least two clips with the same number.

    Returns
    -------
    pyarrow.Table
        A row for each set, those across splits first, then in the order of their first
        clips. Its columns are ``number``, ``rows`` (of its clips), ``clips`` (how
        many), ``first`` (its first row), and whether the clips have several splits
        (``across``), classes (``mixed``), contents (``differ``), and do not all overlap
        in one file (``apart``).
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {"across": "split", "mixed": "class", "differ": CONTENT, "apart": PARTS}
    known = {name: c for name, c in columns.items() if c in clips.column_names}
    rows = pa.table(
        {
            "number": numbers,
            "row": np.arange(len(numbers)),
            **{name: codes_of(clips[column])[1] for name, column in known.items()},
        }
    ).filter(pa.array(numbers != NO_VALUE))
    sets = rows.group_by("number", use_threads=False).aggregate(
        [("row", "list"), *((name, "count_distinct") for name in known)]
    )
    made = pa.table(
        {
            "number": sets["number"],
            "rows": sets["row_list"],
            "clips": pc.list_value_length(sets["row_list"]),
            "first": pc.list_element(sets["row_list"], 0),
            **{n: pc.greater(sets[f"{n}_count_distinct"], 1) for n in known},
        }
    )
    made = made.filter(pc.greater(made["clips"], 1))
    return made.sort_by([("across", "descending"), ("first", "ascending")])


def _findings(numbers: Mapping[str, Integers], clips: Any) -> Any:
    """Returns the table of findings; see :class:`Audit`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    tables, first = [], 0
    clips = clips.append_column(PARTS, pa.array(numbers[PARTS]))
    for kind, shared in numbers.items():
        sets = alike(shared, clips)
        if kind in _ONLY_ACROSS:
            sets = sets.filter(sets["across"])
        if kind == SIMILAR:
            sets = sets.filter(pc.and_(sets["differ"], sets["apart"]))
        rows = sets["rows"].combine_chunks()
        some = clips.take(rows.flatten())
        mixed = pc.and_(sets["mixed"], kind in _WITH_CLASSES)
        rate, start = (some[n].to_numpy() for n in ("sample_rate_hz", "start"))
        of_sets = {
            "kind": pa.repeat(kind, len(sets)),
            "finding": pa.array(np.arange(first, first + len(sets))),
            "across": sets["across"],
            "mixed": mixed,
            "detail": pa.array(_details(kind, sets, mixed, some), pa.string()),
        }
        of_set = pc.list_parent_indices(rows)
        columns = {
            **{name: column.take(of_set) for name, column in of_sets.items()},
            "split": some["split"],
            "path": some["path"],
            "start_s": start / rate,
            "end_s": (start + some["frames"].to_numpy()) / rate,
            "class": some["class"],
        }
        tables.append(pa.table(columns))
        first += len(sets)
    return pa.concat_tables(tables, promote_options="permissive")


def _details(kind: str, sets: Any, mixed: Any, clips: Any) -> list[str]:
    """Returns what the clips of each set have in common, where it is not plain.

    ``clips`` has those of the sets, one set after the other.
    """
    ends = np.cumsum(sets["clips"].to_numpy())
    firsts = ends - sets["clips"].to_numpy()
    details = [""] * len(sets)
    if kind == GROUP:
        names = clips["group"].take(firsts).to_pylist()
        details = [name.replace(GROUP_SEPARATOR, ", ") for name in names]
    for k in np.flatnonzero(mixed).tolist():
        labels = clips["class"][firsts[k] : ends[k]].to_pylist()
        details[k] = f"classes {', '.join(dict.fromkeys(map(str, labels)))}"
    return details


def overlapping_parts(clips: Any) -> Integers:
    """Equal numbers for overlapping clips of one file and channel.

    Clips that are linked by overlapping others have equal numbers, too. A clip of all
    channels overlaps clips of each single channel. Two clips that share at most 5 ms,
    or at most half of the shortest clip of the file, do not overlap.
    """
    file, start, frames, rate, channel = (
        clips[name].fill_null(NO_VALUE).to_numpy().astype(np.int64)
        for name in ("file", "start", "frames", "sample_rate_hz", "channel")
    )
    _, number = np.unique(file, return_inverse=True)
    shortest = np.full(len(file), np.iinfo(np.int64).max)
    np.minimum.at(shortest, number, frames)
    rounded = (rate * SECONDS_ROUNDED).astype(np.int64)
    allowed = np.minimum(rounded, shortest[number] // 2)
    # Puts files one after the other on one time axis.
    start = start + number * int((start + frames).max(initial=0) + 1)
    end = start + frames
    ones, others = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    chosen = np.unique(channel[channel != NO_VALUE])
    for each in chosen if chosen.size else [NO_VALUE]:
        rows = np.flatnonzero((channel == each) | (channel == NO_VALUE))
        rows = rows[np.argsort(start[rows], kind="stable")]
        # A clip that overlaps any earlier clip of its file also overlaps the earlier
        # clip that ends last, so that pair is enough.
        last = np.maximum.accumulate(end[rows])
        ends_last = np.where(end[rows] == last, np.arange(len(rows)), 0)
        ends_last = np.maximum.accumulate(ends_last)
        shared = np.minimum(last[:-1], end[rows][1:]) - start[rows][1:]
        at = np.flatnonzero(shared > allowed[rows[1:]]) + 1
        ones.append(rows[ends_last[at - 1]])
        others.append(rows[at])
    return joined(len(file), np.concatenate(ones), np.concatenate(others))


_NEEDED = (
    "path", "class", "split", "group", "file", "start", "frames", "sample_rate_hz",
    "channel", "windows", "input", "index", "native_frames", "native_sample_rate_hz",
    *SKETCH_FIELDS,
)  # fmt: skip
# What tells files of several data sets apart.
_OF_FILE = ("input", "path", "native_frames", "native_sample_rate_hz")


def read_clips(
    records: side_by_side.Folders, group_by: str | None = None, whole: bool = False
) -> tuple[side_by_side.DataSets, Any]:
    """Reads what an audit needs of the manifests, for the clips that have examples.

    With ``group_by``, the values of these columns are the groups. A file has one number
    in all data sets. ``whole`` is whether to read all other columns, too.

    Raises
    ------
    InputError, OptionError
        See :func:`audit`.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    names = None if group_by is None else Names().value("group_by", group_by)
    data = side_by_side.open_data_sets(records)
    for folder in data.folders:
        if missing := side_by_side.missing_table(folder):
            raise InputError(
                f"{folder} has no {missing}, so an audit does not know its clips. It "
                "was not recorded from audio files, or the file was deleted."
            )
    every = whole or names is not None
    tables = [
        read_table(folder, MANIFEST, _NEEDED, every).filter(pc.field("windows") > 0)
        for folder in data.folders
    ]
    table = side_by_side.count_on(
        side_by_side.concatenated(tables), list(map(len, tables))
    )
    if names is not None:
        table = _replaced(table, "group", joined_texts(table, names))
    if len(tables) > 1:
        keys = (table[name].cast(pa.string()) for name in _OF_FILE)
        same = codes_of(pc.binary_join_element_wise(*keys, "/"))[1]
        file = components_of([table["file"].to_numpy(), same])
        table = _replaced(table, "file", pa.array(file))
    return data, table


def _replaced(table: Any, name: str, column: Any) -> Any:
    return table.set_column(table.column_names.index(name), name, column)


def joined_texts(table: Any, names: Sequence[str]) -> Any:
    """The values of some columns as one text; null where one is missing.

    Values are spelled as the groups of a data set are, so ``1.0`` equals ``1``.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    texts = []
    for name in names:
        if name not in table.column_names:
            known = listed(table.schema.names, name)
            need = f"must name columns of the manifest: {known}"
            raise OptionError("group_by", need, name)
        values, numbers = codes_of(table[name])
        spelled = [group_name(value) or None for value in values.to_pylist()]
        # The number of null is -1: the last place.
        texts.append(np.array([*spelled, None], object)[numbers])
    columns = (pa.array(each, pa.string()) for each in texts)
    return pc.binary_join_element_wise(*columns, GROUP_SEPARATOR)


_PART = ("start", "frames", "sample_rate_hz", "native_frames", "native_sample_rate_hz")


class CleanManifest(NamedTuple):
    """What :func:`write_clean_manifest` has written; ``str`` says it in words.

    Attributes
    ----------
    clips, groups : int
    dropped : int
        Doubles that were left out.
    mixed : int
        Clips with the same samples as others of another class. All of them are written,
        in one group, because only a person knows which class is right.
    """

    clips: int
    groups: int
    dropped: int
    mixed: int

    def __str__(self) -> str:
        text = (
            f"{counted(self.clips, 'clip')} in {counted(self.groups, 'group')}, "
            f"{counted(self.dropped, 'double')} left out"
        )
        if self.mixed:
            text += (
                f"; {counted(self.mixed, 'clip')} with the same samples as a clip of "
                "another class: correct the classes, or delete them"
            )
        return text


def write_clean_manifest(
    records: side_by_side.Folders,
    manifest: str | os.PathLike[str],
    input: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    group_by: str | None = None,
    drop_doubles: bool = False,
) -> CleanManifest:
    """Writes a manifest of a data set's clips, with a group for all that is alike.

    Recorded with ``group_by="group"``, no two splits have a file, a group or audio in
    common. The columns are ``path``, ``group``, ``class`` if the data set has classes,
    ``start_s``, ``duration_s`` and ``channel`` if clips are parts of files, and the
    extra columns of the data set.

    Parameters
    ----------
    records : path or sequence of paths
        A finished data set, or several that belong together.
    manifest : path
        A new file: ``.csv`` or ``.parquet``. Paths of files below its folder are
        relative to it, all others are absolute.
    input : path or sequence of paths, optional
        What the data set was recorded from, as for ``record``. Default: the manifest is
        for ``labels`` and ``drop`` of :func:`.convert`. Its paths are those of the data
        set, and doubles are not left out, but marked in a column ``drop``.
    group_by : str, optional
        See :func:`.audit.audit`.
    drop_doubles : bool
        Keeps only the first clip, in the order of the inputs, of those with the same
        samples in all windows and the same class.

    Raises
    ------
    InputError
        If there is no such data set, or the inputs are not those of it.
    OptionError
        If the manifest exists or has another suffix, or a column is missing.
    OutputError
        If no file can be written there.
    """
    text = files.path_text("write_manifest", manifest)
    target = files.absolute(text)
    files.check_file("write_manifest", text, ".csv", ".parquet")
    if files.exists(target):
        raise OptionError("write_manifest", "must be a new file, but exists", text)
    data, table = read_clips(records, group_by, whole=True)
    numbers, _ = shared_numbers(table, has_groups=group_by is not None)
    samples = numbers[AUDIO]
    keep, sets = np.ones(len(table), np.bool_), alike(samples, table)
    several = np.array(sets["mixed"], np.bool_)
    mixed = int(sets["clips"].to_numpy()[several].sum())
    if drop_doubles:
        clear = sets["number"].to_numpy()[~several]
        order = np.argsort(table["index"].to_numpy())
        _, firsts = np.unique(samples[order], return_index=True)
        keep = ~np.isin(samples, clear)
        keep[order[firsts]] = True
    components = components_of(list(numbers.values()))
    recipe = data.metadata.recorded_with
    assert recipe is not None
    roots = None if input is None else input_roots(input, table, every=True)
    made = _clean_table(table, components, target, roots, recipe)
    for_convert = made.append_column("drop", [~keep])
    _write(for_convert if roots is None else made.filter(keep), target)
    kept = int(keep.sum())
    return CleanManifest(
        kept, len(np.unique(components[keep])), len(keep) - kept, mixed
    )


def _clean_table(
    table: Any,
    components: Integers,
    target: str,
    roots: Sequence[str] | None,
    recipe: Recipe,
) -> Any:
    import pyarrow as pa

    paths, inputs = (table[name].to_pylist() for name in ("path", "input"))
    if roots is not None:
        below = target.rpartition("/")[0].rstrip("/") + "/"
        paths = [
            files.join(roots[number], path).removeprefix(below)
            for number, path in zip(inputs, paths, strict=True)
        ]
    made: dict[str, Any] = {"path": pa.array(paths, pa.string())}
    if roots is None and any(inputs):
        made["input"] = table["input"]
    made["group"] = _group_names(table, components)
    if table["class"].null_count < len(table):
        made["class"] = table["class"]
    parts = [
        part_in_seconds(*row)
        for row in zip(*(table[name].to_pylist() for name in _PART), strict=True)
    ]
    if any(part != (0.0, None) for part in parts):
        starts, lengths = zip(*parts, strict=True)
        made["start_s"] = pa.array(starts, pa.float64())
        made["duration_s"] = pa.array(lengths, pa.float64())
    # A channel that the recipe takes of all clips, it takes again.
    of_recipe = isinstance(recipe.channels, int)
    if not of_recipe and table["channel"].null_count < len(table):
        made["channel"] = table["channel"]
    ours = {*MANIFEST_FIELDS, *SKETCH_FIELDS, *made}
    if recipe.hash_files:
        ours.add(FILE_SHA256)
    made.update((n, table[n]) for n in table.column_names if n not in ours)
    return pa.table(made)


def _group_names(table: Any, components: Integers) -> Any:
    """Returns the name of each clip's component.

    It is that of the first recorded group of its clips. So the split of a group without
    findings stays. Without groups, it is the first path.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {"component": components, "path": table["path"], "group": table["group"]}
    found = pa.table(columns).group_by("component", use_threads=False)
    found = found.aggregate([("path", "min"), ("group", "min")])
    groups = pc.replace_substring(found["group_min"], GROUP_SEPARATOR, ", ")
    names = pc.coalesce(groups, found["path_min"])
    return names.take(pc.index_in(pa.array(components), found["component"]))


def _write(table: Any, target: str) -> None:
    """Writes a manifest, which appears when it is whole.

    Raises
    ------
    OptionError
        If it is CSV, which cannot hold the values of a column as they are.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    is_csv = target.lower().endswith(".csv")
    for name, kind in zip(table.schema.names, table.schema.types, strict=True):
        if is_csv and (pa.types.is_list(kind) or pa.types.is_binary(kind)):
            raise OptionError(
                "write_manifest",
                f"must end in .parquet, because the column {name} is of type {kind}, "
                "which CSV cannot hold",
                target,
            )
    with files.replacing(target) as file:
        (pa.csv.write_csv if is_csv else pa.parquet.write_table)(table, file)


Words = npt.NDArray[np.uint16]

_BITS = 8 * WORD.itemsize
_APART = 2  # words
# Limits of the bits that are equal to begin with.
_FEWEST_BITS, _MOST_BITS = 8, 2 * _BITS
# Each place of a sketch is compared with at most this many others of equal bits. So
# work and memory are proportional to the number of sketches.
NEIGHBOURS = 64
_PLACES_AT_ONCE = 1 << 23
_PAIRS_AT_ONCE = 1 << 14
_ONES = np.array([n.bit_count() for n in range(1 << _BITS)], np.uint8)


def similar_sketches(sketches: Sequence[bytes]) -> tuple[Integers, bool]:
    """Returns equal numbers for sketches that are alike, directly or through others.

    A sketch is a word of 16 bits every 24 ms; see :mod:`beam_pipeline.audio.sketch`.
    Two sketches are laid on each other where some bits of two words of one, 48 ms
    apart, equal those of the other, so not all pairs are compared::

        sketch      . . A . B . . . . .
        another         A . B . . . . . . .       its start was cut off
        compared        | | | | | | | |           the words that both have

    They are alike if at most ``8 n - 16.8 sqrt(n)`` of the bits of the ``n`` words that
    both have differ, and at most 30 %: 17 % of the bits of 10 words, 24 % of 16, and
    30 % of 28. Fewer words are more often alike by chance. ``n`` is at least five, and
    two fifths of the words of the shorter sketch.

    The more sketches there are, the more bits must be equal to begin with, so that few
    are by chance. So a few more pairs are missed in a large data set.

    Returns
    -------
    groups : numpy.ndarray, shape (n,), int64
    complete : bool
        False if too many places had equal bits to compare all of them.
    """
    count, longest = len(sketches), max(map(len, sketches), default=0) // WORD.itemsize
    words = np.zeros((count, longest + _APART), np.uint16)
    for row, sketch in zip(words, sketches, strict=True):
        row[: len(sketch) // WORD.itemsize] = np.frombuffer(sketch, WORD)
    first, second = words[:, :-_APART].ravel(), words[:, _APART:].ravel()
    places = np.flatnonzero((first != 0) & (second != 0))
    width = 3 * len(places).bit_length() // 2 - 12
    width = min(max(width, _FEWEST_BITS), _MOST_BITS)
    keys = (first >> (_BITS - (width + 1) // 2)).astype(np.uint32) << (width // 2)
    keys |= second >> (_BITS - width // 2)
    words = words[:, :longest]
    groups, crowded = np.arange(count), 0
    parts = 1 + len(places) // _PLACES_AT_ONCE
    for part in range(parts):
        some = places[keys[places] % parts == part]
        some = some[np.argsort(keys[some], kind="stable")]
        at = np.arange(len(some))
        for step in range(1, NEIGHBOURS + 1):
            at = at[at + step < len(some)]
            at = at[keys[some[at]] == keys[some[at + step]]]
            if not at.size:
                break
            one, other = some[at], some[at + step]
            apart = groups[one // longest] != groups[other // longest]
            pairs = _alike(words, one[apart], other[apart])
            if pairs[0].size:
                numbers = joined(count, *(groups[pair] for pair in pairs))
                groups = numbers[groups]
        else:
            crowded += at.size
    return groups, crowded <= len(places) // 2


def _alike(words: Words, one: Integers, other: Integers) -> tuple[Integers, Integers]:
    """Returns the sketches that are alike if a place of each lies on the other."""
    longest = words.shape[1]
    loud = np.count_nonzero(words, axis=1)
    hops = np.arange(longest)
    alike = np.zeros(len(one), np.bool_)
    for first in range(0, len(one), _PAIRS_AT_ONCE):
        some = slice(first, first + _PAIRS_AT_ONCE)
        (row, place), (others, at) = (divmod(k[some], longest) for k in (one, other))
        moved = hops + (at - place)[:, None]
        inside = (moved >= 0) & (moved < longest)
        ours = words[row]
        theirs = words[others[:, None], np.where(inside, moved, 0)]
        both = inside & (ours != 0) & (theirs != 0)
        n = both.sum(axis=1)
        differ = np.sum(_ONES[ours ^ theirs], axis=1, where=both, dtype=np.int64)
        most = np.minimum(8 * n - 16.8 * np.sqrt(n), MOST_DIFFERENT * _BITS * n)
        least = np.maximum(LEAST_WORDS, 0.4 * np.minimum(loud[row], loud[others]))
        alike[some] = (differ <= most) & (n >= least)
    return one[alike] // longest, other[alike] // longest


def joined(count: int, one: Integers, other: Integers) -> Integers:
    """Returns numbers for ``count`` items, equal for items that pairs connect."""
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    links: Any = coo_array((np.ones(len(one), np.bool_), (one, other)), (count, count))
    numbers: Integers = connected_components(links, directed=False)[1].astype(np.int64)
    return numbers


NO_VALUE = -1  # the number of an item that has nothing to be compared


def components_of(numbers: Sequence[Integers]) -> Integers:
    """Gives items that share some number, directly or through others, the same one.

    Each array has a number for each item.
    """
    ones, others = [], []
    for each in numbers:
        items = np.flatnonzero(each != NO_VALUE)
        _, first, inverse = np.unique(
            each[items], return_index=True, return_inverse=True
        )
        ones.append(items[first[inverse]])
        others.append(items)
    return joined(len(numbers[0]), np.concatenate(ones), np.concatenate(others))
