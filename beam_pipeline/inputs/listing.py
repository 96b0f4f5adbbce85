"""The listing: every clip of every input, in order, as rows; none is listed twice."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from beam_pipeline.audio.formats import is_audio_name, is_hidden
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.inputs.column_values import (
    FLOAT32,
    FLOAT64,
    STRING,
    ColumnType,
    column_types,
)
from beam_pipeline.inputs.columns import Layout, check_no_parts
from beam_pipeline.inputs.event_files import EventTable
from beam_pipeline.inputs.file_identity import FileIdentities, normal_path
from beam_pipeline.inputs.labels import named_groups
from beam_pipeline.inputs.recorded_clips import RecordedClips
from beam_pipeline.inputs.rows import RowReader, SourceRow
from beam_pipeline.inputs.sources import FOLDER, GLOB, LIST, TABLE, Input
from beam_pipeline.inputs.splits import GROUP_SEPARATOR
from beam_pipeline.inputs.tables import open_table, read_rows
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.sections import Audio
from beam_pipeline.storage import files
from beam_pipeline.storage.beam_filesystem import glob_regex
from beam_pipeline.storage.spilled import FirstValues

# Number of rows in a block: with fewer, Beam's cost of an element exceeds the work.
ROWS_PER_BLOCK = 256


# The first row of a file: its number, and the hash of its part, its split, and the hash
# of its group.
_First = tuple[int, int, str, int]


class DuplicateCheck:
    """Compares each row with the rows before it.

    Folders that do not overlap list a file once, so their rows need no check. Lists and
    manifests may list a clip twice, and several rows may be parts of one file. For
    these, and if inputs or groups have splits, the check keeps hashes of all files;
    the hashes of large corpora are on disk.

    Attributes
    ----------
    identities : FileIdentities
        Finds the files that names mean.
    named : dict
        For each name in the table of events: the first file with that name.
    alike : dict
        For each of these names that several files have: another such file.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        has_groups: bool,
        events: EventTable | None,
    ):
        self.identities = FileIdentities([entry.root for entry in inputs])
        self.named: dict[str, str] = {}
        self.alike: dict[str, str] = {}
        self._inputs = inputs
        self._events = events
        self._by_hand = any(entry.kind != FOLDER for entry in inputs)
        self._has_splits = any(entry.split for entry in inputs)
        self._has_groups = has_groups
        self._files = FirstValues[_First]()
        # The rows of further parts of files; and the split of each group.
        self._parts = FirstValues[tuple[int]]()
        self._group_splits = FirstValues[tuple[str]]()

    def check(self, row: SourceRow) -> SourceRow:
        """Returns the row with the number of its file, or with its problem."""
        watched = self._by_hand or self._has_splits or self._has_groups
        if not watched and self._events is None:
            return row
        path = self.identities.path(self._inputs[row.source].root, row.filepath)
        if watched and row.problem is None:
            row = self._compared(row, path)
        if self._events is not None:
            unclear = self._event_problem(row, path, self._events)
            if unclear is not None and row.problem is None:
                row = row._replace(problem=unclear)
        return row

    def _compared(self, row: SourceRow, path: str) -> SourceRow:
        """Returns the row after a comparison with the rows of its file and group."""
        part = 0
        if self._by_hand:
            # Two links to a file are two clips on purpose, so links are not followed.
            name = normal_path(self._inputs[row.source].root, row.filepath)
            part = hash((name, row.offset_s, row.duration_s, row.channel))
        this = row.file, part, row.split, hash(row.group)
        first = self._files.setdefault(hash(path), this)
        problem = None
        if first != this:
            row = row._replace(file=first[0])
            problem = self._file_problem(row, part, first)
        if problem is None and self._has_groups and row.split:
            problem = self._group_problem(row)
        return row if problem is None else row._replace(problem=problem)

    def _file_problem(self, row: SourceRow, part: int, first: _First) -> str | None:
        """Returns the problem of a row that does not fit another row of its file.

        The part may be listed twice, or the file may have another split or group.
        ``first`` belongs to the first row of the file.
        """
        earlier, its_part, split, its_group = first
        if self._by_hand:
            if part != its_part:
                (earlier,) = self._parts.setdefault(part, (row.row,))
            if earlier != row.row:
                return f"is listed twice: first as clip {earlier}, counted from 0"
        if self._has_splits and split != row.split:
            return (
                f"is in the split {row.split}, but an earlier clip of the same "
                f"file is in {split}; a file must be in one split"
            )
        if self._has_groups and its_group != hash(row.group):
            return (
                f"is in the group {_shown(row.group)}, but clip {row.file}, counted "
                "from 0, is a part of the same file and in another group; a file must "
                "be in one group"
            )
        return None

    def _group_problem(self, row: SourceRow) -> str | None:
        """The problem if the group has another split."""
        (split,) = self._group_splits.setdefault(hash(row.group), (row.split,))
        if split == row.split:
            return None
        return (
            f"is in the split {row.split}, but an earlier clip of its group "
            f"{_shown(row.group)} is in {split}; a group must be in one split"
        )

    def _event_problem(
        self, row: SourceRow, path: str, events: EventTable
    ) -> str | None:
        """The problem if the table of events has one name for this and another file."""
        name = events.name_of(row.filepath)
        if name is None or self.named.setdefault(name, path) == path:
            return None
        self.alike.setdefault(name, path)
        return events.unclear(name, self.named[name])


def _shown(group: str) -> str:
    return group.replace(GROUP_SEPARATOR, ", ")


class ListingSummary(NamedTuple):
    """How many files the inputs have: clips, and other files, which are ignored.

    ``sha256`` is a hash of all rows: of what the names and the tables say of each clip.
    ``alike`` maps each name in the table of events that several files have to one of
    these files that is not the first.
    """

    clips: int
    ignored: int
    alike: Mapping[str, str] = {}
    sha256: str = ""


class Listing:
    """The rows of all inputs in blocks, and then their summary.

    Clips that are ``recorded`` in other data sets do not count.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        recipe: Recipe,
        recorded: RecordedClips | None = None,
    ):
        self._inputs, self._recorded = inputs, recorded
        self._recipe = recipe
        self._duplicates = DuplicateCheck(
            inputs, bool(recipe.group_by), EventTable.of(recipe)
        )
        self._clips = self._ignored = 0
        self._sha256 = hashlib.sha256()

    def blocks(self) -> Iterator[list[SourceRow]]:
        """Yields every row of :func:`list_sources`, once."""
        block: list[SourceRow] = []
        for row in list_sources(
            self._inputs, self._recipe, self._duplicates, self._recorded
        ):
            if row is None:
                self._ignored += 1
                continue
            if row.recorded is None:
                self._clips += 1
                self._sha256.update(_digested(row, self._recipe))
            block.append(row)
            if len(block) == ROWS_PER_BLOCK:
                yield block
                block = []
        if block:
            yield block

    def summary(self) -> ListingSummary:
        """Returns the summary of the blocks so far."""
        return ListingSummary(
            self._clips,
            self._ignored,
            self._duplicates.alike,
            self._sha256.hexdigest(),
        )


def _digested(row: SourceRow, recipe: Recipe) -> bytes:
    """Returns a row for a hash, without what depends on the machine or the plan."""
    values = (
        row.source,
        row.filepath,
        row.label,
        row.problem is not None,
        row.split if recipe.hashed_shares() is None else "",
        row.group if recipe.group_by else "",
        (row.offset_s, row.duration_s, row.channel, row.known),
        [v.tolist() if isinstance(v, np.ndarray) else v for v in row.columns],
    )
    return repr(values).encode(errors="surrogateescape")


def list_sources(
    inputs: Sequence[Input],
    recipe: Recipe,
    before: DuplicateCheck | None = None,
    recorded: RecordedClips | None = None,
) -> Iterator[SourceRow | None]:
    """Yields every clip of every input, in order; None for each file that is ignored.

    Folders give their files with an audio suffix, in upper or lower case; other and
    hidden files are ignored. Globs, single files, lists and manifests give every file.

    A file and a link to it are two clips, because users link a file into the folders of
    several classes. Both are in the same split.

    If the table of events has one name for several files, the first of them has no
    problem in its row. ``before.alike`` names these files when the listing is complete.

    Clips that are ``recorded`` in other data sets are marked, and take no number.
    """
    events = EventTable.of(recipe)
    before = before or DuplicateCheck(inputs, bool(recipe.group_by), events)
    row = 0
    for found in _listed(inputs, recipe, before):
        if found is not None and recorded is not None:
            found = found._replace(row=row, file=row)
            found = recorded.compared(found, inputs[found.source].root)
        if found is not None and found.recorded is None:
            found = before.check(found)
            row += 1
        yield found
    if events is not None and recorded is not None:
        before.named.update((events.name_of(n) or "", n) for n in recorded.names)
    for name in events.by_name if events is not None else ():
        if name not in before.named:
            problem = f"has events in {recipe.events}, but is not among the inputs"
            yield SourceRow(row, 0, name, None, problem)
            row += 1


def _listed(
    inputs: Sequence[Input], recipe: Recipe, before: DuplicateCheck
) -> Iterator[SourceRow | None]:
    """Yields every clip of every input, numbered from 0."""
    row = 0
    for source, entry in enumerate(inputs):
        reader = row_reader(source, entry, recipe, before.identities)
        for found in _rows(entry, reader, row):
            row += found is not None
            yield found


def row_reader(
    source: int, entry: Input, recipe: Recipe, identities: FileIdentities
) -> RowReader:
    """Returns the reader of an input's names or rows.

    Raises
    ------
    RecipeError
        If the recipe names a column that the input does not have.
    """
    layout = layout_of(entry, recipe)
    return RowReader(
        source, entry.root, layout, dict(entry.columns), recipe, identities, entry.split
    )


def layout_of(entry: Input, recipe: Recipe) -> Layout:
    """Returns the use of each of an input's columns."""
    if entry.table is not None:
        return Layout.of(entry.table.names, recipe, entry.location, is_table=True)
    groups = named_groups(recipe.label_from)
    return Layout.of(groups, recipe, entry.location, is_table=False)


def _rows(entry: Input, reader: RowReader, first: int) -> Iterator[SourceRow | None]:
    if entry.table is not None:
        for row, (number, values) in enumerate(read_rows(entry.table), first):
            yield reader.of_values(row, number, values)
        return
    row = first
    for filepath, taken in list_input(entry, reader.audio):
        yield reader.of_name(row, filepath) if taken else None
        row += taken


def survey(inputs: Sequence[Input], recipe: Recipe) -> list[Input]:
    """Returns the inputs with the names and types of the columns of examples.

    Reads every manifest once, in batches of rows.

    Raises
    ------
    InputError
        If a manifest cannot be read, or two inputs give examples different columns.
    RecipeError
        If the recipe names a column that does not exist.
    """
    decided_by = recipe.splits_decided_by()
    named = any(entry.split for entry in inputs)
    json = recipe.to_json()
    if decided_by is not None and named:
        raise RecipeError(
            decided_by,
            "cannot be given together with `input` as SPLIT=INPUT, because both decide "
            "the splits; give only one of the two",
            json[decided_by],
        )
    if recipe.group_by and decided_by is None and not named:
        raise RecipeError(
            "group_by",
            "needs `splits`, `folds`, `split_column` or an `input` for each split",
            json["group_by"],
        )
    surveyed = []
    for entry in inputs:
        if entry.kind == TABLE:
            table = open_table(
                entry.location,
                recipe.delimiter,
                recipe.column_names,
            )
            entry = replace(entry, table=table)
        layout = layout_of(entry, recipe)
        types = dict.fromkeys(layout.extra, ColumnType(STRING))
        if entry.table is not None and layout.extra:
            types = column_types(entry.table, layout.extra)
            if recipe.columns is None:
                check_no_parts(layout.extra, types, entry.location)
        surveyed.append(replace(entry, columns=layout.columns(types)))
    surveyed = _widened(surveyed)
    for entry in surveyed[1:]:
        if entry.columns != surveyed[0].columns:
            first, other = (
                ", ".join(f"{name} ({kind})" for name, kind in each.columns) or "none"
                for each in (surveyed[0], entry)
            )
            raise InputError(
                f"All examples need the same columns, but {surveyed[0].location} gives "
                f"them {first}, and {entry.location} gives them {other}. Choose common "
                "columns with `columns`, or set `columns` to none."
            )
    return surveyed


def _widened(inputs: Sequence[Input]) -> list[Input]:
    """Returns the inputs with types that hold the values of a column in all of them.

    A float32 column that is float64 in another input is float64, and lists whose length
    is another one there have any length.
    """
    found: dict[str, set[ColumnType]] = {}
    for entry in inputs:
        for name, kind in entry.columns:
            found.setdefault(name, set()).add(kind)

    def widened(name: str, kind: ColumnType) -> ColumnType:
        alike = [k for k in found[name] if len(k.shape) == len(kind.shape)]
        shapes = {k.shape for k in alike}
        is_long = any(k.dtype == FLOAT64 for k in alike)
        return ColumnType(
            FLOAT64 if kind.dtype == FLOAT32 and is_long else kind.dtype,
            kind.shape if len(shapes) == 1 else (None,),
        )

    return [
        replace(entry, columns=tuple((n, widened(n, k)) for n, k in entry.columns))
        for entry in inputs
    ]


def list_input(entry: Input, audio: Audio) -> Iterator[tuple[str, bool]]:
    """Yields (name, whether it is a clip) of each file of an input without a table."""
    if entry.kind == FOLDER:
        for name in files.list_files(entry.location):
            yield name, _is_clip(name, audio)
    elif entry.kind == GLOB:
        for name in _match(entry):
            yield name, True
    elif entry.kind == LIST:
        text = files.read_bytes(entry.location).decode("utf-8-sig", "surrogateescape")
        for line in text.split("\n"):
            if line.strip() and not line.lstrip().startswith("#"):
                path = line.strip(" \t\r")
                yield os.path.normpath(path) if files.is_local(path) else path, True
    else:
        yield entry.location.rpartition("/")[2], True


def _match(entry: Input) -> Iterator[str]:
    """Yields the files that a glob matches, relative to its root, in order."""
    below = len(entry.root.rstrip("/")) + 1
    # Beam's own match would read wildcards in the root, too.
    matches = glob_regex(entry.location[below:]).fullmatch
    return (name for name in files.list_files(entry.root) if matches(name))


def _is_clip(name: str, audio: Audio) -> bool:
    """Whether a folder's file is a clip: audio by its name, or a loader reads it."""
    return is_audio_name(name) or (audio.loads(name) and not is_hidden(name))
