"""The listing: every clip of every input, in order, as rows; none is listed twice.

Inputs may be given in Python, too: as tables in memory, and with a mapping from files
to classes.

A run leaves out clips that other data sets hold. Such a clip is known by the number of
its input, its path relative to the input, and by which part of its file it is. Its
class or its columns may have changed since.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import STRING, Integers, Keys
from beam_pipeline.audio.clip_reader import output_frames
from beam_pipeline.audio.formats import is_audio_name, is_hidden
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.inputs.columns import (
    Header,
    Layout,
    RowReader,
    SourceRow,
    check_no_parts,
)
from beam_pipeline.inputs.event_files import EventTable
from beam_pipeline.inputs.sources import (
    FILE,
    FOLDER,
    GLOB,
    LIST,
    TABLE,
    FileIdentities,
    Input,
    normal_path,
    resolve_inputs,
)
from beam_pipeline.inputs.splits import shown_group
from beam_pipeline.inputs.table_files import (
    JSON_SUFFIXES,
    PATH_OR_ROWS,
    ColumnType,
    column_types,
    is_rows,
    open_table,
    read_rows,
    write_rows,
)
from beam_pipeline.recipe.recipe import SPLIT_OPTIONS, Audio, Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.beam_filesystem import glob_regex
from beam_pipeline.storage.files import PathLike, temporary_folder
from beam_pipeline.storage.pages import FirstValues
from beam_pipeline.text import text_key
from beam_pipeline.transforms.base import seconds_to_frames


@dataclass
class RecordedClips:
    """The clips of data sets that need not be recorded; some 70 bytes for each of them.

    Parameters
    ----------
    keys : numpy.ndarray, shape (clips,), uint64
        The :func:`recorded_key` of each clip.
    numbers : numpy.ndarray, shape (clips, 7), int64
        Which part of its file each clip is: the fields of the header, the output rate,
        the first frame and the frames at this rate, and the channel, or -1.
    channel : int
        The only channel that the recipe takes; -1: all, or their mean.
    splits : mapping
        The :func:`recorded_group` of groups to their splits, if columns or inputs give
        the splits.
    has_groups : bool
        Whether the recipe names the columns of groups; else each file is one.
    names : sequence of str
        The paths of the clips, if a table of events names files.
    """

    keys: Keys
    numbers: Integers
    channel: int = -1
    splits: Mapping[str, str] = field(default_factory=dict)
    has_groups: bool = False
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        order = np.argsort(self.keys, kind="stable")
        self.keys, self.numbers = self.keys[order], self.numbers[order]

    def compared(self, row: SourceRow, root: str) -> SourceRow:
        """Marks a row that is recorded already with its header when it was recorded.

        Another row gets a problem if its group is in another split of the data sets.
        """
        name = plain_name(row.filepath, root)
        channel = self.channel if row.channel is None else row.channel
        for *header, rate_hz, start, frames, its_channel in self._numbers_of(name, row):
            then = Header(*header)
            part = start, frames, its_channel
            if part == (*_asked_part(row, then, rate_hz), channel):
                return row._replace(recorded=then)
        if row.problem is None and self.splits:
            row = row._replace(problem=self._group_problem(row, name))
        return row

    def _numbers_of(self, name: str, row: SourceRow) -> list[list[int]]:
        key = np.uint64(recorded_key(row.source, name))
        first, stop = (np.searchsorted(self.keys, key, s) for s in ("left", "right"))
        numbers: list[list[int]] = self.numbers[first:stop].tolist()
        return numbers

    def _group_problem(self, row: SourceRow, name: str) -> str | None:
        group = row.group if self.has_groups else name
        split = self.splits.get(recorded_group(row.source, group, self.has_groups))
        if split is None or row.split in ("", split):
            return None
        what = "the same file"
        if self.has_groups:
            what = f"its group {shown_group(row.group)}"
        return (
            f"is in the split {row.split}, but another clip of {what} is in {split} of "
            "a data set of `skip_recorded`"
        )


def _asked_part(row: SourceRow, header: Header, rate_hz: int) -> tuple[int, int]:
    """Returns the first frame and the frames of a row, if its file has this header."""
    start = seconds_to_frames(row.offset_s, rate_hz)
    stop = output_frames(header.frames, header.sample_rate_hz, rate_hz)
    if row.duration_s is not None:
        stop = min(start + seconds_to_frames(row.duration_s, rate_hz), stop)
    return start, stop - start


def recorded_key(source: int, name: str) -> int:
    """Returns the hash by which a file of an input is known."""
    return text_key(f"recorded {source}", name)


def recorded_group(source: int, group: str, has_groups: bool) -> str:
    """Returns the name of a group among those of all inputs; a file is of one input."""
    return group if has_groups else f"{source} {group}"


def changed_file(path: str, then: Header, now: Header) -> InputError:
    """Returns the error for a file that is not what was recorded under its name."""
    told = (
        f"{header.frames} frames at {header.sample_rate_hz} Hz in {header.channels} "
        "channels"
        for header in (then, now)
    )
    return InputError(
        "{}: its header has changed since it was recorded: then {}, now {}. Restore "
        "the file, or give the new one another name.".format(path, *told)
    )


def plain_name(name: str, root: str = "") -> str:
    """Returns a name in its normal spelling, relative to the root if it is below it."""
    if not files.is_local(name):
        return name
    if root and name.startswith(root.rstrip("/") + "/"):
        name = name[len(root.rstrip("/")) + 1 :]
    may_differ = "./" in name or "//" in name
    return os.path.normpath(name) if may_differ else name


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
        self, inputs: Sequence[Input], recipe: Recipe, events: EventTable | None
    ):
        self.identities = FileIdentities([entry.root for entry in inputs])
        self.named: dict[str, str] = {}
        self.alike: dict[str, str] = {}
        self._inputs = inputs
        self._events = events
        self._by_hand = any(entry.kind != FOLDER for entry in inputs)
        self._has_splits = any(entry.split for entry in inputs)
        self._has_groups = bool(recipe.group_by)
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
        name = self._events.name_of(row.filepath) if self._events is not None else None
        if self._events is not None and name is not None:
            other = self.named.setdefault(name, path)
            if other != path:
                self.alike.setdefault(name, path)
                problem = row.problem or self._events.unclear(name, other)
                row = row._replace(problem=problem)
        return row

    def _compared(self, row: SourceRow, path: str) -> SourceRow:
        """Returns the row after a comparison with the rows of its file and group."""
        part = 0
        if self._by_hand:
            # Two links to a file are two clips on purpose, so links are not followed.
            name = normal_path(self._inputs[row.source].root, row.filepath)
            part = hash((name, row.offset_s, row.duration_s, row.channel))
        this = row.row, part, row.split, hash(row.group)
        number, its_part, its_split, its_group = self._files.setdefault(
            hash(path), this
        )
        earlier = number
        if self._by_hand and part != its_part:
            (earlier,) = self._parts.setdefault(part, (row.row,))
        problem = None
        if self._by_hand and earlier != row.row:
            problem = f"is listed twice: first as clip {earlier}, counted from 0"
        elif self._has_splits and row.split != its_split:
            problem = _in_two_splits("clip of the same file", row.split, its_split)
        elif self._has_groups and hash(row.group) != its_group:
            problem = (
                f"is in the group {shown_group(row.group)}, but clip {number}, counted "
                "from 0, is a part of the same file and in another group; a file must "
                "be in one group"
            )
        elif self._has_groups and row.split:
            (split,) = self._group_splits.setdefault(hash(row.group), (row.split,))
            if row.split != split:
                group = f"clip of its group {shown_group(row.group)}"
                problem = _in_two_splits(group, row.split, split)
        if problem is None and number == row.file:
            return row
        return row._replace(file=number, problem=problem)


def _in_two_splits(other: str, split: str, its_split: str) -> str:
    return (
        f"is in the split {split}, but an earlier {other} is in {its_split}; both must "
        "be in one split"
    )


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
    """The rows of all inputs, and then their summary.

    Clips that are ``recorded`` in other data sets are marked. They take no number, and
    do not count.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        recipe: Recipe,
        recorded: RecordedClips | None = None,
    ):
        self._inputs, self._recipe, self._recorded = inputs, recipe, recorded
        self._events = EventTable.of(recipe)
        self._duplicates = DuplicateCheck(inputs, recipe, self._events)
        self._clips = self._ignored = 0
        self._sha256 = hashlib.sha256()

    def rows(self) -> Iterator[SourceRow]:
        """Yields every clip of every input, in order, once.

        Folders give their files with an audio suffix, in upper or lower case; other and
        hidden files are ignored. Globs, single files, lists and manifests give every
        file.

        A file and a link to it are two clips, because users link a file into the
        folders of several classes. Both are in the same split.

        If the table of events has one name for several files, the first of them has no
        problem in its row. The summary names these files.

        Raises
        ------
        InputError
            If an input has no clip.
        """
        recorded, events = self._recorded, self._events
        for source, entry in enumerate(self._inputs):
            reader = RowReader(source, entry, self._recipe, self._duplicates.identities)
            found = None
            for found in self._read(entry, reader):
                if recorded is not None:
                    found = recorded.compared(found, entry.root)
                yield found if found.recorded is not None else self._counted(found)
            if found is None:
                raise InputError(
                    f"There is no audio file in {entry.location}. Check `input`."
                )
        if events is None:
            return
        named = self._duplicates.named
        for name in recorded.names if recorded is not None else ():
            named[events.name_of(name) or ""] = name
        for name in events.by_name:
            if name not in named:
                problem = (
                    f"has events in {self._recipe.events}, but is not among the inputs"
                )
                yield self._counted(SourceRow(self._clips, 0, name, None, problem))

    def _read(self, entry: Input, reader: RowReader) -> Iterator[SourceRow]:
        """Yields the clips of an input, and counts the files that are none."""
        if entry.table is not None:
            for line, values in read_rows(entry.table):
                yield reader.of_values(self._clips, line, values)
            return
        for filepath, is_clip in list_input(entry, self._recipe):
            if is_clip:
                yield reader.of_name(self._clips, filepath)
            else:
                self._ignored += 1

    def _counted(self, row: SourceRow) -> SourceRow:
        row = self._duplicates.check(row)
        self._clips += 1
        self._sha256.update(_digested(row, self._recipe))
        return row

    def blocks(self) -> Iterator[list[SourceRow]]:
        """Yields all rows, some at once."""
        rows = self.rows()
        while block := [*islice(rows, ROWS_PER_BLOCK)]:
            yield block

    def summary(self) -> ListingSummary:
        """Returns the summary of the rows so far."""
        return ListingSummary(
            self._clips, self._ignored, self._duplicates.alike, self._sha256.hexdigest()
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
        list(row.columns),
    )
    return repr(values).encode(errors="surrogateescape")


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
    json = recipe.to_json()
    decided_by = next((name for name in SPLIT_OPTIONS if json[name] is not None), None)
    named = any(entry.split for entry in inputs)
    if decided_by is not None and named:
        raise RecipeError(
            decided_by,
            "cannot be given together with `input` as SPLIT=INPUT, because both decide "
            "the splits; give only one of the two",
            json[decided_by],
        )
    if recipe.group_by and decided_by is None and not named:
        problem = "needs `splits`, `folds`, `split_column` or an `input` for each split"
        raise RecipeError("group_by", problem, json["group_by"])
    for entry in inputs:
        is_json = entry.kind == FILE and entry.location.lower().endswith(".json")
        if is_json and not recipe.loads(entry.location):
            raise InputError(
                f"{entry.location} is no audio. A manifest in JSON has a row on each "
                f"line, and the suffix {' or '.join(JSON_SUFFIXES)}. Check `input`."
            )
    csv = recipe.delimiter, recipe.column_names
    opened = [
        replace(entry, table=open_table(entry.location, *csv))
        if entry.kind == TABLE
        else entry
        for entry in inputs
    ]
    layouts = [Layout.of(entry, recipe) for entry in opened]
    extra = layouts[0].extra
    for entry, layout in zip(opened, layouts, strict=True):
        if layout.extra != extra:
            first, other = (", ".join(n) or "none" for n in (extra, layout.extra))
            raise InputError(
                f"All examples need the same columns, but {opened[0].location} gives "
                f"them {first}, and {entry.location} gives them {other}. Choose common "
                "columns with `columns`, or set `columns` to none."
            )
    tables = [entry.table for entry in opened if entry.table is not None]
    types = dict.fromkeys(extra, ColumnType(STRING))  # of names
    if extra and len(tables) == len(opened):
        types = column_types(tables, extra)
        if recipe.columns is None:
            check_no_parts(extra, types, opened[0].location)
    return [
        replace(entry, columns=layout.columns(types))
        for entry, layout in zip(opened, layouts, strict=True)
    ]


def list_input(entry: Input, audio: Audio) -> Iterator[tuple[str, bool]]:
    """Yields (name, whether it is a clip) of each file of an input without a table."""
    if entry.kind == FOLDER:
        for name in files.list_files(entry.location):
            yield name, _is_clip(name, audio)
    elif entry.kind == GLOB:
        below = len(entry.root.rstrip("/")) + 1
        # Beam's own match would read wildcards in the root, too.
        matches = glob_regex(entry.location[below:]).fullmatch
        for name in files.list_files(entry.root):
            if matches(name):
                yield name, True
    elif entry.kind == LIST:
        text = files.read_bytes(entry.location).decode("utf-8-sig", "surrogateescape")
        for line in text.split("\n"):
            if line.strip() and not line.lstrip().startswith("#"):
                path = line.strip(" \t\r")
                yield os.path.normpath(path) if files.is_local(path) else path, True
    else:
        yield entry.location.rpartition("/")[2], True


def _is_clip(name: str, audio: Audio) -> bool:
    """Whether a folder's file is a clip: audio by its name, or a loader reads it."""
    return is_audio_name(name) or (audio.loads(name) and not is_hidden(name))


# Inputs as they are given in Python

# A path, a table in memory, several of them, or one for each split.
GivenInput = PathLike | Sequence[Any] | Mapping[str, Any] | Any


class Labelled(NamedTuple):
    """An input with a mapping from its files to their classes."""

    source: GivenInput
    classes: Mapping[str, str]


def with_labels(
    input: GivenInput, options: Mapping[str, Any]
) -> tuple[GivenInput | Labelled, dict[str, Any]]:
    """Moves a mapping in ``label_from`` to the input, where it becomes a column."""
    classes = options.get("label_from")
    if not isinstance(classes, Mapping):
        return input, dict(options)
    return Labelled(input, classes), {**options, "label_from": "class"}


@contextmanager
def resolved(input: GivenInput | Labelled, recipe: Recipe) -> Iterator[list[Input]]:
    """Yields the inputs of ``record``; files hold tables in memory during the block."""
    classes = None
    if isinstance(input, Labelled):
        input, classes = input
    with temporary_folder() as folder:

        def locate(entry: Any) -> str:
            if is_rows(entry):
                return write_rows(entry, folder)
            return files.path_text("input", entry, PATH_OR_ROWS)

        if isinstance(input, Mapping):
            texts = [f"{split}={locate(entry)}" for split, entry in input.items()]
        else:
            is_one = is_rows(input) or isinstance(input, str | os.PathLike)
            several = [input] if is_one or not isinstance(input, Iterable) else input
            texts = [locate(entry) for entry in several]
        inputs = resolve_inputs(texts)
        if classes is not None:
            left = dict(classes)
            tables = [_labelled(entry, left, recipe) for entry in inputs]
            for name in left:
                raise InputError(
                    f"`label_from` has a class for {name}, but the input has no such "
                    "file, or it has another name there with a class. Give paths "
                    f"relative to {inputs[0].root}, or absolute paths."
                )
            inputs = [
                replace(entry, kind=TABLE, location=write_rows(rows, folder))
                for entry, rows in zip(inputs, tables, strict=True)
            ]
        for k, entry in enumerate(inputs):
            if entry.location.startswith(folder):
                # Paths in the rows of a table are relative to the program's folder.
                root = os.getcwd() if entry.root == folder else entry.root
                inputs[k] = replace(entry, root=root, in_memory=True)
        yield survey(inputs, recipe)


def _labelled(
    entry: Input, classes: dict[str, str], audio: Audio
) -> list[dict[str, str]]:
    """Returns a row with path and class for each file of an input.

    Parameters
    ----------
    classes : dict
        From files to classes. Paths are relative to the input's root or absolute, in
        any spelling. Those of the input's files are taken out.
    """
    names = {normal_path(entry.root, os.fspath(name)): name for name in classes}
    rows = []
    for path, is_clip in list_input(entry, audio):
        if is_clip:
            name = names.get(normal_path(entry.root, path))
            label = "" if name is None else classes.pop(name)
            rows.append({"path": path, "class": label})
    return rows
