"""Corrections of a data set of audio files: labels, clips that go, other splits.

::

    manifest, windows --labels, drop--> clips --plan.splits--> the split of each clip
                                                                    |
       tables of the new data set, splits and labels of its records <

Nothing is decoded. All windows of a clip share its label and its split, so the tables
say what becomes of each record.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from beam_pipeline.conversion.input_files import InputFile, RecordChanges
from beam_pipeline.conversion.input_folder import InputFolder, with_recipe
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, METADATA, WINDOWS
from beam_pipeline.dataset.side_by_side import join_tables
from beam_pipeline.dataset.tables import clips_of, with_columns
from beam_pipeline.dataset.warn import warn_of_splits
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.encoding import encode_entry
from beam_pipeline.examples.features import FeatureSet
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.column_values import is_missing
from beam_pipeline.inputs.columns import PATH_NAMES, PartColumns, label_parts
from beam_pipeline.inputs.rows import group_name
from beam_pipeline.inputs.tables import (
    Row,
    Table,
    is_manifest,
    is_rows,
    open_table,
    read_rows,
    write_rows,
)
from beam_pipeline.parameters import comma_list
from beam_pipeline.permutation import Integers
from beam_pipeline.plan.clips import Clip, copies_in
from beam_pipeline.plan.splits import assign_splits, choose_moves, tally_groups
from beam_pipeline.read.audit import SECONDS_ROUNDED, joined_texts
from beam_pipeline.recipe.recipe import Recipe

LABEL_NAMES = ("label", "class")
# What a column `drop` may hold.
_FLAGS = {"true": True, "1": True, "false": False, "0": False}


@dataclass(frozen=True)
class Corrections:
    """What is asked for; see :func:`.convert`."""

    labels: Any = None
    drop: Any = None
    shares: Mapping[str, float] | None = None
    group_by: str | None = None
    stratify: bool = False
    seed: int | None = None
    # Whether the list of classes is given, so that labels cannot add to it.
    keep_classes: bool = False

    @property
    def changes_clips(self) -> bool:
        """Whether anything is asked for."""
        return any(x is not None for x in (self.labels, self.drop, self.shares))


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
    data, recipe = folder.data_sets, folder.metadata.recorded_with
    assert data is not None
    assert recipe is not None
    tables = join_tables(data)
    manifest, windows = tables[MANIFEST], tables[WINDOWS]
    try:
        clips = clips_of(windows, manifest)
    except ValueError as error:
        raise InputError(f"{data.name}: {error}. Restore both files.") from error
    names = ClipNames(manifest)
    stays = np.ones(len(manifest), np.bool_)
    if asked.drop is not None:
        for _, row, rows in names.of("drop", asked.drop):
            stays[rows] &= not row.get("drop", True)
        if not stays.any():
            raise OptionError("drop", "names all clips, so none would stay")
    before = manifest["class"].to_pylist()
    labels, groups = [*before], manifest["group"].to_pylist()
    if asked.labels is not None:
        for clip, (label, group) in read_labels(asked.labels, names).items():
            labels[clip], groups[clip] = label or labels[clip], group or groups[clip]
    known = folder.metadata.classes
    classes = _classes(labels, stays, folder.metadata, recipe, asked)
    metadata = folder.metadata
    if classes != known:
        recipe = recipe.replace(classes=list(classes))
        specs = dict(metadata.features)
        if recipe.label_separator is not None and "labels" in specs:
            specs["labels"] = replace(specs["labels"], shape=(len(classes),))
        metadata = replace(metadata, features=specs)
    relabelled = np.array([a != b for a, b in zip(labels, before, strict=True)])
    rewritten = (relabelled | (classes != known)) & stays
    texts = sorted({labels[k] or "" for k in np.flatnonzero(rewritten)} - {""})
    label_of = np.where(rewritten, _numbers(labels, texts), -1)

    old_splits = manifest["split"].to_pylist()
    old_split_of = _numbers(old_splits, folder.splits)
    splits, split_names = old_splits, folder.splits
    copies, holds = windows["copy"].to_numpy(), stays[clips]
    if asked.shares is not None:
        split_names = tuple(asked.shares)
        if asked.group_by is not None:
            groups = _groups_by(manifest, groups, asked.group_by)
        planned = np.bincount(clips[copies == 0], minlength=len(manifest)) * stays
        recipe, splits = _split_again(manifest, labels, groups, planned, recipe, asked)
        has_copies = np.array([copies_in(1, split) > 0 for split in splits])
        holds &= has_copies[clips] | (copies == 0)
    split_of = _numbers(splits, split_names)
    split_of_row = np.where(holds, split_of[clips], -1)

    # The rows of windows in the order in which the files hold their examples.
    order = np.argsort(old_split_of[clips], kind="stable")
    stored = order[windows["left_out"].is_null().to_numpy()[order]]
    changes = RecordChanges(
        split_of_row[stored].astype(np.int16), label_of[clips[stored]].astype(np.int32)
    )
    order = order[holds[order]]
    by_name = _numbers(splits, sorted(split_names))  # as `record` orders its tables
    order = order[np.argsort(by_name[clips[order]], kind="stable")]
    in_order: Integers = np.lexsort((old_split_of, by_name))
    made = _manifest(
        manifest,
        {"class": labels, "split": splits, "group": groups},
        in_order[stays[in_order]],
        np.bincount(clips[order], minlength=len(manifest)),
    )
    corrected = replace(
        folder,
        files=_with_changes(folder, changes),
        metadata=with_recipe(metadata, recipe, classes),
        splits=split_names,
        labels=tuple(texts),
    )
    counts = {
        "relabelled_clips": int((relabelled & stays).sum()),
        "dropped_clips": int((~stays).sum()),
    }
    return corrected, {MANIFEST: made, WINDOWS: windows.take(order)}, counts


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
        for row, path in enumerate(manifest["path"].to_pylist()):
            self._rows.setdefault(path, []).append(row)

    def of(self, option: str, given: Any) -> Iterator[tuple[str, Row, list[int]]]:
        """Yields where each row of a table is, its values, and the clips it names.

        Parameters
        ----------
        option : str
            The name of the option, for errors.
        given : path, table in memory, or sequence of paths of clips
            A path whose suffix is not that of a table has a clip's path on each line.
        """
        in_memory = not isinstance(given, str | os.PathLike)
        if isinstance(given, list | tuple) and not is_rows(given):
            given = [{"path": path} for path in given]
        if isinstance(given, list) and not given:
            return
        with tempfile.TemporaryDirectory() as folder:
            table = _open(write_rows(given, folder) if in_memory else str(given))
            part = PartColumns.of(table.names, None, table.location)
            path = next((n for n in PATH_NAMES if n in table.names), None)
            if path is None:
                problem = f"needs a column with paths: {', '.join(PATH_NAMES)}"
                raise OptionError(option, problem, list(table.names))
            for number, row in read_rows(table):
                where = f"{table.location}, line {number}"
                where = f"`{option}`, row {number}" if in_memory else where
                try:
                    rows = self._named(str(row[path]), part.read(row), row)
                    flag = {"drop": _flag(row["drop"])} if "drop" in row else {}
                except ValueError as error:
                    raise InputError(f"{where} {error}.") from error
                yield where, {**row, **flag}, rows

    def _named(
        self, path: str, part: tuple[float, float | None, int | None], row: Row
    ) -> list[int]:
        """Returns the rows of the clips; ValueError if there are none."""
        start_s, duration_s, channel = part
        rows = self._rows.get(path, [])
        if row.get("input") not in (None, ""):
            rows = [k for k in rows if str(self._inputs[k]) == str(row["input"])]
        if channel is not None:
            rows = [k for k in rows if self._channels[k] == channel]
        if start_s or duration_s is not None:
            near = np.abs(self._starts[rows] - start_s) <= SECONDS_ROUNDED
            if duration_s is not None:
                ends = np.abs(self._ends[rows] - start_s - duration_s)
                near &= ends <= SECONDS_ROUNDED
            rows = [k for k, is_near in zip(rows, near, strict=True) if is_near]
        if not rows:
            problem = f"names {path!r}, but the data set has no such clip"
            if path in self._rows:
                k = self._rows[path][0]
                which = f"{self._starts[k]:g} to {self._ends[k]:g} s"
                raise ValueError(f"{problem}; a clip of this file has {which}")
            known = next(iter(self._rows), "")
            raise ValueError(
                f"{problem}; paths are relative to the input, as {known!r}"
            )
        return rows


def _open(location: str) -> Table:
    if is_manifest(location):
        return open_table(location)
    return Table(location, ("path",), "\x1f", has_header=False)


def _flag(value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in _FLAGS:
        raise ValueError(f"has {value!r} in the column drop, but needs true or false")
    return _FLAGS[text]


def read_labels(given: Any, names: ClipNames) -> dict[int, tuple[str, str]]:
    """Returns the label and the group that a table gives to clips, by their rows.

    Either may be empty: the clip keeps its own.
    """
    found: dict[int, tuple[str, str]] = {}
    places: dict[int, str] = {}
    for where, row, rows in names.of("labels", given):
        column = next((name for name in LABEL_NAMES if name in row), None)
        if column is None and "group" not in row:
            problem = f"needs a column {' or '.join(LABEL_NAMES)}"
            raise OptionError("labels", problem, list(row))
        value = None if column is None else row[column]
        label = "" if is_missing(value) else str(value).strip()
        here = label, group_name(row.get("group"))
        if not any(here):
            raise InputError(f"{where} has no label in the column {column}.")
        for clip in rows:
            before = found.setdefault(clip, here)
            if before != here:
                one, other = (
                    " in group ".join(filter(None, e)) for e in (before, here)
                )
                raise InputError(
                    f"{where} gives {other} to a clip that has {one} by "
                    f"{places[clip]}. Leave out one of them."
                )
            places.setdefault(clip, where)
    return found


def _classes(
    labels: Sequence[str | None],
    stays: Any,
    metadata: Metadata,
    recipe: Recipe,
    asked: Corrections,
) -> tuple[str, ...]:
    """Returns the classes of the new data set; the new ones in sorted order."""
    known = metadata.classes
    if asked.labels is None:
        return known
    used = {label for label, s in zip(labels, stays, strict=True) if s and label}
    if recipe.label_separator is not None:
        used = {p for label in used for p in label_parts(label, recipe.label_separator)}
    new = sorted(used - {*known})
    problem = ""
    if new and asked.keep_classes:
        problem = f"gives the label {new[0]}, which `classes` does not have"
    elif new and (recipe.events is not None or not known):
        problem = "needs a data set in which each clip has a class"
    if problem:
        raise OptionError("labels", problem, new[0])
    is_sorted = list(known) == sorted(known)
    return tuple(sorted({*known, *new}) if is_sorted else [*known, *new])


def _groups_by(manifest: Any, groups: Sequence[str | None], names: str) -> list[str]:
    """Returns the values of columns of the manifest; ``group`` as it is now."""
    manifest = with_columns(manifest, {"group": groups})
    joined = joined_texts(manifest, comma_list(names))
    if joined.null_count:
        path = manifest.filter(joined.is_null())["path"][0].as_py()
        raise OptionError(
            "group_by", f"needs a value for each clip, also {path}", names
        )
    found: list[str] = joined.to_pylist()
    return found


def _split_again(
    manifest: Any,
    labels: Sequence[str | None],
    groups: Sequence[str | None],
    planned: Integers,
    recipe: Recipe,
    asked: Corrections,
) -> tuple[Recipe, list[str]]:
    """Returns the recipe with the new splits, and the split of each clip.

    They are those that ``record`` would choose. ``planned`` has the windows of each
    clip, without copies; clips with none do not count.
    """
    columns = recipe.group_by if asked.group_by is None else comma_list(asked.group_by)
    recipe = recipe.replace(
        splits=dict(asked.shares or {}), folds=None, split_column=None,
        group_by=columns, stratify=asked.stratify, split_moves=None,
        seed=recipe.seed if asked.seed is None else asked.seed,
    )  # fmt: skip
    # Without a group, a file is one; its clips have the number of the first of them.
    first = dict(
        zip(manifest["index"].to_pylist(), manifest["path"].to_pylist(), strict=True)
    )
    rows = zip(*(manifest[n].to_pylist() for n in ("path", "file")), strict=True)
    clips = [
        Clip(
            k, 0, path, labels[k], "", 0, 0, 0, "", "", 0, 0, int(planned[k]),
            group=groups[k] or first.get(file, path),
        )
        for k, (path, file) in enumerate(rows)
    ]  # fmt: skip
    moves = choose_moves(tally_groups([clips], recipe), recipe)
    splits = [clip.split for clip in assign_splits(clips, moves, recipe)]
    counts = {split: Counter[str]() for split in asked.shares or ()}
    for clip, split in zip(clips, splits, strict=True):
        counts[split][clip.label or ""] += clip.examples
    warn_of_splits(counts)
    return recipe.replace(split_moves=moves or {}), splits


def _numbers(values: Sequence[str | None], names: Sequence[str]) -> Integers:
    """Returns the place of each value among some names; -1 if it is not there."""
    places = {name: number for number, name in enumerate(names)}
    return np.array([places.get(value or "", -1) for value in values], np.int64)


def _with_changes(folder: InputFolder, changes: RecordChanges) -> tuple[InputFile, ...]:
    """Returns the files with what becomes of each of their records."""
    ends = np.cumsum([file.examples or 0 for file in folder.files])
    if len(changes.splits) != ends[-1:].sum():
        raise InputError(
            f"{WINDOWS} has {len(changes.splits)} examples, but {METADATA} has "
            f"{ends[-1:].sum()}. Restore it, or record the data set again."
        )
    parts = (np.split(column, ends[:-1]) for column in changes)
    return tuple(
        file._replace(changes=RecordChanges(*of_file))
        for file, *of_file in zip(folder.files, *parts, strict=True)
    )


def _manifest(
    manifest: Any, columns: Mapping[str, Sequence[Any]], rows: Integers, windows: Any
) -> Any:
    """Returns some rows of the manifest, with other columns, and counted anew.

    ``windows`` has the number of windows of each clip of the whole manifest.
    """
    counts = windows[rows]
    first = np.cumsum(counts) - counts
    splits = np.array(columns["split"], object)[rows]
    for split in {*splits}:
        here = np.flatnonzero(splits == split)
        first[here] -= first[here[0]]
    made = {name: np.array(each, object)[rows] for name, each in columns.items()}
    counted = {"first_index": first, "windows": counts}
    return with_columns(manifest.take(rows), {**made, **counted})
