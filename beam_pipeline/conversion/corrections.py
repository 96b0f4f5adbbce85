"""Corrections of a data set of audio files: labels, clips that go, other splits.

::

    manifest, windows --labels, drop-> clips --planning.balance-> the split of each clip
                                                                     |
        tables of the new data set, splits and labels of its records <

Nothing is decoded. All windows of a clip share its label and its split, so the tables
say what becomes of each record.
"""

from __future__ import annotations

import tempfile
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from beam_pipeline.arrays import Integers
from beam_pipeline.conversion.records import InputFile, InputFolder, RecordChanges
from beam_pipeline.dataset.folders import MANIFEST, METADATA, WINDOWS
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.side_by_side import count_on
from beam_pipeline.dataset.tables import with_columns
from beam_pipeline.errors import InputError, OptionError, did_you_mean
from beam_pipeline.examples.features import FeatureSet
from beam_pipeline.examples.serialisation import encode_entry
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs import table_files
from beam_pipeline.inputs.columns import (
    PATH_NAMES,
    PartColumns,
    group_name,
    label_parts,
)
from beam_pipeline.parameters import Declared, Flag, Names, WholeNumber, parameter
from beam_pipeline.planning.balance import assign_splits, choose_moves, tally_groups
from beam_pipeline.planning.clips import Clip, copies_in
from beam_pipeline.read.audit import SECONDS_ROUNDED, joined_texts
from beam_pipeline.read.window_table import join_tables
from beam_pipeline.recipe.recipe import Recipe, Shares, relative_shares
from beam_pipeline.reporting.problems import warn_of_splits
from beam_pipeline.storage import files
from beam_pipeline.write.window_rows import CLIP

_COLUMNS = ("class", "split", "group")


class Corrections(Declared):
    """What is asked for; see :func:`.convert`."""

    labels: Any = None
    drop: Any = None
    splits: Mapping[str, float] | None = parameter(None, Shares())
    group_by: tuple[str, ...] | None = parameter(None, Names())
    stratify: bool = parameter(False, Flag())
    seed: int | None = parameter(None, WholeNumber(None))
    classes: tuple[str, ...] | None = parameter(None, Names())

    def check(self) -> None:
        """Checks what needs splits; shares add up to 1 then."""
        if self.splits is not None:
            object.__setattr__(self, "splits", relative_shares(self.splits))
            return
        for name in ("group_by", "stratify"):
            if getattr(self, name):
                raise OptionError(name, "needs `splits`")


def correct_clips(
    folder: InputFolder, asked: Corrections
) -> tuple[InputFolder, dict[str, Any], dict[str, int]]:
    """Returns what becomes of the records of data sets, and of their tables.

    Returns
    -------
    folder : InputFolder
        Its files have ``changes``; its metadata have the new classes and recipe.
    tables : dict
        The manifest and the table of windows of the new data set, by their names.
    counts : dict
        How many clips were ``relabelled_clips`` and ``dropped_clips``.

    Raises
    ------
    InputError
        If a line names no clip, or has no label; if two lines give a clip two labels,
        or if the tables do not fit the data set.
    OptionError
        If an option cannot be used with this data set.
    """
    data = folder.data_sets
    assert data is not None
    tables = join_tables(data)
    assert tables is not None  # there is a recipe
    windows, manifest, clips, sizes = tables
    manifest = count_on(manifest, sizes)
    if CLIP in windows.column_names:
        windows = with_columns(windows, {CLIP: manifest["index"].to_numpy()[clips]})
    old = {name: np.array(manifest[name].to_pylist(), object) for name in _COLUMNS}
    new, stays = _asked_for(manifest, old, asked)
    metadata = _with_classes(folder.metadata, new["class"][stays], asked)
    has_new_classes = metadata.classes != folder.metadata.classes
    is_relabelled = stays & (new["class"] != old["class"])
    is_rewritten = stays & (is_relabelled | has_new_classes)
    labels = tuple(sorted({*new["class"][is_rewritten]} - {None}))
    label_of = np.where(is_rewritten, _numbers(new["class"], labels), -1)

    splits, holds = folder.splits, stays[clips]
    if asked.splits is not None:
        splits, is_copy = tuple(asked.splits), windows["copy"].to_numpy() > 0
        planned = np.bincount(clips[~is_copy], minlength=len(manifest)) * stays
        recipe = _split_again(manifest, new, planned, metadata, asked)
        metadata = with_recipe(metadata, recipe, metadata.classes)
        has_copies = np.array([copies_in(1, split) > 0 for split in new["split"]])
        holds &= has_copies[clips] | ~is_copy
    split_of = np.where(holds, _numbers(new["split"], splits)[clips], -1)

    # The rows of windows in the order in which the files hold their examples.
    before = _numbers(old["split"], folder.splits)
    order = np.argsort(before[clips], kind="stable")
    stored = order[windows["left_out"].is_null().to_numpy()[order]]
    changes = RecordChanges(split_of[stored], label_of[clips[stored]])
    # `record` has the tables in the order of the names of splits.
    place = _numbers(new["split"], sorted(splits))
    order = order[holds[order]]
    order = order[np.argsort(place[clips[order]], kind="stable")]
    rows = np.lexsort((before, place))
    rows = rows[stays[rows]]
    counts = np.bincount(clips[order], minlength=len(manifest))[rows]
    first = np.cumsum(counts) - counts
    first -= first[np.searchsorted(place[rows], place[rows])]
    made = {name: values[rows] for name, values in new.items()}
    made |= {"first_index": first, "windows": counts}
    corrected = replace(
        folder, files=_with_changes(folder.files, changes), metadata=metadata,
        splits=splits, labels=labels,
    )  # fmt: skip
    return (
        corrected,
        {
            MANIFEST: with_columns(manifest.take(rows), made),
            WINDOWS: windows.take(order),
        },
        {
            "relabelled_clips": int(is_relabelled.sum()),
            "dropped_clips": int((~stays).sum()),
        },
    )


def _asked_for(
    manifest: Any, old: Mapping[str, Any], asked: Corrections
) -> tuple[dict[str, Any], Any]:
    """Returns the classes, splits and groups of clips, and which clips stay."""
    names = ClipNames(manifest)
    new, stays = {n: old[n].copy() for n in _COLUMNS}, np.ones(len(manifest), np.bool_)
    if asked.drop is not None:
        for _, row, rows in names.of("drop", asked.drop):
            stays[rows] &= not row.get("drop", True)
        if not stays.any():
            raise OptionError("drop", "names all clips, so none would stay")
    if asked.labels is not None:
        for clip, (label, group) in read_labels(asked.labels, names).items():
            new["class"][clip] = label or old["class"][clip]
            new["group"][clip] = group or old["group"][clip]
    if asked.group_by is not None:
        manifest = with_columns(manifest, {"group": new["group"]})
        groups = joined_texts(manifest, asked.group_by)
        if groups.null_count:
            path = manifest.filter(groups.is_null())["path"][0].as_py()
            problem = f"needs a value for each clip, also {path}"
            raise OptionError("group_by", problem, ",".join(asked.group_by))
        new["group"][:] = groups.to_pylist()
    return new, stays


def label_entries(
    folder: InputFolder, specs: Mapping[str, FeatureSpec]
) -> tuple[dict[bytes, bytes], ...]:
    """Returns the features of each new label, as entries of examples."""
    metadata = folder.metadata
    numbers = {name: number for number, name in enumerate(metadata.classes)}
    recipe = metadata.recorded_with
    separator = None if recipe is None else recipe.label_separator
    has_targets = recipe is not None and bool(recipe.target_columns)
    features = FeatureSet({}, separator=separator)
    return tuple(
        {
            name.encode(): encode_entry(specs[name], value)
            for name, value in features.of_clip(label, (), numbers).items()
            if name in specs and not (name == "target" and has_targets)
        }
        for label in folder.labels
    )


class ClipNames:
    """Finds the clips of a manifest that the rows of a table name.

    A row names a clip by its path; by its part of the file, if the row has one; and by
    the number of its input, if the table has this column. A row without a part names
    all clips of the file.
    """

    def __init__(self, manifest: Any):
        rate, start, frames = (
            manifest[name].to_numpy() for name in ("sample_rate_hz", "start", "frames")
        )
        self._starts, self._ends = start / rate, (start + frames) / rate
        self._channels = manifest["channel"].to_pylist()
        self._inputs = manifest["input"].to_pylist()
        self._rows: dict[str, list[int]] = {}
        paths = manifest["path"].to_pylist()
        for row in np.argsort(self._starts, kind="stable").tolist():
            self._rows.setdefault(paths[row], []).append(row)

    def of(
        self, option: str, given: Any, columns: Sequence[str] = ()
    ) -> Iterator[tuple[str, table_files.Row, list[int]]]:
        """Yields where each row of a table is, its values, and the clips it names.

        Parameters
        ----------
        option : str
            The name of the option, for errors.
        given : path, table in memory, or list of paths of clips
            A path whose suffix is not that of a table has a clip's path on each line.
        columns : sequence of str
            The table must have one of these.
        """
        if isinstance(given, list | tuple) and not table_files.is_rows(given):
            given = [{"path": path} for path in given]
            if not given:
                return
        in_memory = table_files.is_rows(given)
        with tempfile.TemporaryDirectory() as folder:
            location = table_files.write_rows(given, folder) if in_memory else given
            location = files.given_path(option, location, table_files.PATH_OR_ROWS)
            if not files.exists(location) or files.is_folder(location):
                raise OptionError(option, "must be a file that exists", given)
            table = table_files.Table(location, ("path",), "\x1f", has_header=False)
            if table_files.is_manifest(location):
                table = table_files.open_table(location)
            table_rows = list(table_files.read_rows(table))
        what = "the table" if in_memory else table.location
        for wanted in (PATH_NAMES, columns):
            if wanted and not {*wanted} & {*table.names}:
                problem = f"{what} needs one of the columns {', '.join(wanted)}"
                problem += "" if in_memory else "; its first line names its columns"
                raise OptionError(option, problem, list(table.names))
        part = PartColumns.of(table.names, None, table.location)
        path = next(column for column in PATH_NAMES if column in table.names)
        for number, row in table_rows:
            where = f"{table.location}, line {number}"
            where = f"`{option}`, row {number}" if in_memory else where
            try:
                rows = self._named(str(row[path]), part.read(row), row)
                if "drop" in row:
                    drop = Flag().parse(str(row["drop"]))
                    row = {**row, "drop": Flag().value("drop", drop)}
            except ValueError as error:
                raise InputError(f"{where} {error}.") from error
            yield where, row, rows

    def _named(
        self,
        path: str,
        part: tuple[float, float | None, int | None],
        row: table_files.Row,
    ) -> list[int]:
        """Returns the rows of clips; ValueError if there are none, or of two files."""
        start_s, duration_s, channel = part
        end_s = None if duration_s is None else start_s + duration_s
        source = None if table_files.is_missing(row.get("input")) else int(row["input"])

        known = rows = self._rows.get(path, [])
        if start_s or end_s is not None:
            start_of = self._starts.__getitem__
            first = bisect_left(rows, start_s - SECONDS_ROUNDED, key=start_of)
            rows = rows[
                first : bisect_right(rows, start_s + SECONDS_ROUNDED, key=start_of)
            ]
        rows = [
            k
            for k in rows
            if source in (None, self._inputs[k])
            and channel in (None, self._channels[k])
            and (end_s is None or abs(self._ends[k] - end_s) <= SECONDS_ROUNDED)
        ]
        if not rows:
            any_path = next(iter(self._rows), "")
            other = path if known else did_you_mean(path, self._rows) or any_path
            k = self._rows.get(other, [0])[0]
            raise ValueError(
                f"names {path!r}, but the {MANIFEST} has no such clip; it has, for "
                f"example, {other!r} from {self._starts[k]:g} to {self._ends[k]:g} s"
            )
        inputs = sorted({self._inputs[k] for k in rows})
        if len(inputs) > 1:
            several = ", ".join(map(str, inputs))
            raise ValueError(
                f"names {path!r}, which is in the inputs {several}; "
                "say which in a column `input`"
            )
        return rows


def read_labels(given: Any, names: ClipNames) -> dict[int, tuple[str, str]]:
    """Returns the label and the group that a table gives to clips, by their rows.

    Either may be empty: the clip keeps its own.
    """
    found: dict[int, tuple[tuple[str, str], str]] = {}
    for where, row, rows in names.of("labels", given, ("label", "class", "group")):
        column = next((name for name in ("label", "class") if name in row), "")
        value = row.get(column)
        label = "" if table_files.is_missing(value) else str(value).strip()
        here = label, group_name(row.get("group"))
        if not any(here):
            raise InputError(f"{where} has no label in the column {column or 'group'}.")
        for clip in rows:
            before, place = found.setdefault(clip, (here, where))
            if before != here:
                one, other = (
                    " of group ".join(filter(None, e)) for e in (before, here)
                )
                raise InputError(
                    f"{where} gives {other} to a clip that is {one} by {place}. Leave "
                    "out one of them."
                )
    return {clip: given for clip, (given, _) in found.items()}


def _with_classes(
    metadata: Metadata, labels: Iterable[str | None], asked: Corrections
) -> Metadata:
    """Returns metadata with the classes of the new data set, and a recipe with them.

    Parameters
    ----------
    labels : iterable of str or None
        Those of all clips. Where no list of classes is given, new ones are added.
    """
    known, recipe = metadata.classes, metadata.recorded_with
    assert recipe is not None
    used = {label for label in labels if label}
    if recipe.label_separator is not None:
        used = {p for label in used for p in label_parts(label, recipe.label_separator)}
    classes = known if asked.classes is None else asked.classes
    lacking = sorted(used - {*classes})
    if asked.classes is not None and (lacking or len({*classes}) < len(classes)):
        problem = f"must have each class once, also {', '.join(lacking or used)}"
        raise OptionError("classes", problem, list(classes))
    classes += tuple(lacking)
    if asked.classes is None and [*known] == sorted(known):
        classes = tuple(sorted(classes))
    if classes == known:
        return metadata
    if recipe.events is not None or not known:
        option = "labels" if asked.classes is None else "classes"
        raise OptionError(option, "needs a data set in which each clip has a class")
    specs = dict(metadata.features)
    if recipe.label_separator is not None and "labels" in specs:
        specs["labels"] = replace(specs["labels"], shape=(len(classes),))
    recipe = recipe.replace(classes=list(classes))
    return with_recipe(replace(metadata, features=specs), recipe, classes)


def _split_again(
    manifest: Any,
    columns: Mapping[str, Any],
    planned: Integers,
    metadata: Metadata,
    asked: Corrections,
) -> Recipe:
    """Puts the splits that ``record`` chooses into ``columns``; returns its recipe.

    ``planned`` has the windows of each clip, without copies; clips with none do not
    count.
    """
    recipe = metadata.recorded_with
    assert recipe is not None
    recipe = recipe.replace(
        splits=asked.splits, folds=None, split_column=None, split_moves=None,
        group_by=asked.group_by or recipe.group_by, stratify=asked.stratify,
        seed=recipe.seed if asked.seed is None else asked.seed,
    )  # fmt: skip
    # Without a group, a file is one; its clips have the number of the first of them.
    paths, numbers, own = (
        manifest[name].to_pylist() for name in ("path", "file", "index")
    )
    path_of = dict(zip(own, paths, strict=True))
    clips = [
        Clip(
            k, 0, path, label, "", 0, 0, 0, "", "", 0, 0, int(planned[k]),
            group=group or path_of.get(file, path),
        )
        for k, (path, file, label, group) in enumerate(
            zip(paths, numbers, columns["class"], columns["group"], strict=True)
        )
    ]  # fmt: skip
    moves = choose_moves(tally_groups([clips], recipe), recipe)
    counts = {split: Counter[str]() for split in asked.splits or ()}
    for clip in assign_splits(clips, moves, recipe):
        columns["split"][clip.row] = clip.split
        counts[clip.split][clip.label or ""] += clip.examples
    warn_of_splits(counts)
    return recipe.replace(split_moves=moves or {})


def _numbers(values: Iterable[str | None], names: Sequence[str]) -> Integers:
    """Returns the place of each value among some names; -1 if it is not there."""
    places = {name: number for number, name in enumerate(names)}
    return np.array([places.get(value or "", -1) for value in values], np.int64)


def _with_changes(
    sources: Sequence[InputFile], changes: RecordChanges
) -> tuple[InputFile, ...]:
    """Returns the files with what becomes of each of their records."""
    ends = np.cumsum([0, *(file.examples or 0 for file in sources)])
    if len(changes.splits) != ends[-1]:
        raise InputError(
            f"{WINDOWS} has {len(changes.splits)} examples, but {METADATA} has "
            f"{ends[-1]}. Restore it, or record the data set again."
        )
    of_files = zip(*(np.split(column, ends[1:-1]) for column in changes), strict=True)
    return tuple(
        file._replace(changes=RecordChanges(*columns))
        for file, columns in zip(sources, of_files, strict=True)
    )


def with_recipe(
    metadata: Metadata, recipe: Recipe, classes: tuple[str, ...]
) -> Metadata:
    """Returns metadata of a data set of audio files with another recipe and classes."""
    elements = metadata.elements
    if elements is None:
        return replace(metadata, recipe=recipe, classes=classes)
    options = {**elements.options, "recipe": recipe.to_json()}
    elements = replace(elements, options=options)
    return replace(metadata, classes=classes, elements=elements)
