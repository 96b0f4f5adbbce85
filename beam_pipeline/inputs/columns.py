"""Rows: what a clip's name or a manifest says of it; opens no file.

A recipe gives columns their use, and some say which part of its file a row is.
"""

from __future__ import annotations

import functools
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import permutations
from typing import Any, NamedTuple

from beam_pipeline.arrays import BYTES
from beam_pipeline.audio.clip_reader import output_frames
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.inputs.sources import FileIdentities, Input
from beam_pipeline.inputs.splits import GROUP_SEPARATOR, Splitter, group_key
from beam_pipeline.inputs.table_files import (
    CSV_SUFFIXES,
    FLOAT32,
    Column,
    ColumnType,
    Row,
    convert,
    optional_number,
    optional_whole,
    target_value,
)
from beam_pipeline.parameters import is_real
from beam_pipeline.recipe.recipe import (
    LABEL_SOURCES,
    RESERVED_NAMES,
    VALID_FRAMES,
    Recipe,
)
from beam_pipeline.text import hidden, holds_credentials

# Columns of a data set's manifest: their types, and the fields of a planned clip that
# they hold. The plan decides the last ones.
MANIFEST_FIELDS = {
    "path": ("string", "filepath"),
    "input": ("int32", "source"),
    "file": ("int64", "file"),
    "index": ("int64", "row"),
    "class": ("string", "label"),
    "split": ("string", "split"),
    "group": ("string", "group"),
    "start": ("int64", "start"),
    "frames": ("int64", "frames"),
    "sample_rate_hz": ("int32", "sample_rate_hz"),
    "channels": ("int32", "channels"),
    "channel": ("int32", "channel"),
    "native_frames": ("int64", "native_frames"),
    "native_sample_rate_hz": ("int32", "native_rate_hz"),
    "format": ("string", "format"),
    "subtype": ("string", "subtype"),
    "first_index": ("int64", ""),
    "windows": ("int64", ""),
}
# Of these, clips may have none.
NULLABLE_FIELDS = ("class", "group", "channel")
# The last ones: a hash of so many bytes of all windows of the clip, and its sketch.
CONTENT, SKETCH = "window_hash", "start_sketch"
CONTENT_BYTES = 8
SKETCH_FIELDS: dict[str, ColumnType | int] = {
    CONTENT: CONTENT_BYTES,
    SKETCH: ColumnType(BYTES),
}
# Present if the recipe asks for it: the SHA-256 of the file, in hexadecimal.
FILE_SHA256 = "file_sha256"

# Names of the path's column if the recipe gives none, the first that exists.
PATH_NAMES = ("path", "filepath", "file", "filename", "file_name", "audio", "wav",
              "audio_filepath", "audio_path", "wav_path")  # fmt: skip
# Columns with what a probe would find.
KNOWN_COLUMNS = ("frames", "sample_rate_hz", "channels")


@dataclass(frozen=True)
class Layout:
    """The use of each column of a table under a recipe.

    An input without a table has columns, too: the named groups of the expression in
    ``label_from``.
    """

    path: str | None
    label: str | None
    split: str | None
    group_by: tuple[str, ...]
    targets: tuple[str, ...]
    extra: tuple[str, ...]
    part: PartColumns

    @classmethod
    def of(cls, entry: Input, recipe: Recipe) -> Layout:
        """Returns the layout of an input: of its table, or of the names of its files.

        Raises
        ------
        RecipeError
            If the recipe names a column that does not exist or cannot have this use.
        """
        where = "the table" if entry.in_memory else entry.location
        is_table = entry.table is not None
        names = tuple(n for n in named_groups(recipe.label_from) if n != "class")
        if entry.table is not None:
            names = entry.table.names
        has = f"the columns {', '.join(names)}" if names else "no columns"

        def check(option: str, wanted: Sequence[str]) -> tuple[str, ...]:
            for name in wanted:
                if name not in names:
                    raise RecipeError(
                        option, f"must name a column; {where} has {has}", name
                    )
            return tuple(wanted)

        path, part = None, PartColumns()
        if entry.table is not None:
            usual = [name for name in PATH_NAMES if name in names]
            if not (recipe.path_column or usual):
                is_text = entry.table.suffix in CSV_SUFFIXES and entry.table.has_header
                first = "; if its first line is a clip, give `column_names`" * is_text
                raise RecipeError(
                    "path_column",
                    f"must name the column that holds the paths; {where} has {has}, "
                    f"but none of the usual ones ({', '.join(PATH_NAMES)}){first}",
                )
            (path,) = check("path_column", [recipe.path_column or usual[0]])
            part = PartColumns.of(names, path, where)
        label = _label_column(names, recipe, f"{where} has {has}")
        split = recipe.split_column
        check("split_column", [split] if split else ())
        group_by = check("group_by", recipe.group_by or ())
        targets = check("target_columns", recipe.target_columns or ())
        if recipe.columns is None:
            taken = {path, label, split, *targets, *part.names()}
            if part.in_frames:
                taken.update(MANIFEST_FIELDS, SKETCH_FIELDS, [FILE_SHA256])
            elif is_table and set(KNOWN_COLUMNS[:2]) <= set(names):
                taken.update(KNOWN_COLUMNS)
            extra = tuple(name for name in names if name not in taken)
        else:
            extra = check("columns", recipe.columns)
        _check_extra(extra, recipe)
        return cls(path, label, split, group_by, targets, extra, part)

    def columns(self, types: Mapping[str, ColumnType]) -> tuple[Column, ...]:
        """The columns of the rows' values: the extra ones, then the targets.

        ``types`` are those of the extra ones.
        """
        extra = ((name, types[name]) for name in dict.fromkeys(self.extra))
        return *extra, *((name, ColumnType(FLOAT32)) for name in self.targets)


def _label_column(names: Sequence[str], recipe: Recipe, what: str) -> str | None:
    """Returns the column with the class; None if there is none."""
    if recipe.label_from in names:
        return recipe.label_from
    label_from = recipe.label_from
    if label_from not in LABEL_SOURCES and "class" not in named_groups(label_from):
        raise RecipeError(
            "label_from",
            f"must be {', '.join(LABEL_SOURCES)}, a column, or a regular expression "
            f"with a group like (?P<class>[a-z]+); {what}",
            label_from,
        )
    has_classes = recipe.label_from != "none" or recipe.events is not None
    if recipe.classes is not None and not has_classes:
        raise RecipeError(
            "classes",
            "need labels, but `label_from` is none; leave `classes` out, or give "
            "another `label_from`",
            recipe.to_json()["classes"],
        )
    return None


def _check_extra(extra: Sequence[str], recipe: Recipe) -> None:
    """Refuses columns with the name of something else in the examples."""
    features = {*(recipe.features or ["signal"]), *(recipe.target_columns or ())}
    if recipe.mark_padding:
        features.add(VALID_FRAMES)
    for name in extra:
        if name in RESERVED_NAMES or name in features:
            is_class = name == "class" and recipe.events is None
            use = "read classes from it with `label_from` class, " * is_class
            raise RecipeError(
                "columns",
                "examples already use this name for something else; "
                f"{use}rename the column, or give `columns` without it",
                name,
            )


# Parts of files

# NeMo's manifests name the path so, and then mean seconds by `offset` and `duration`.
_NEMO_PATH = "audio_filepath"

# What people call the start and the end of a part, in units that only they know.
_LIKE_STARTS = {"start", "begin", "onset", "offset", "from", "start_time", "begin_time",
                "time_start", "t_start", "tmin", "xmin"}  # fmt: skip
_LIKE_ENDS = {"end", "stop", "offset", "duration", "length", "to", "end_time",
              "stop_time", "time_end", "t_end", "tmax", "xmax"}  # fmt: skip


_OF_PART = (
    "start", "frames", "sample_rate_hz", "native_frames", "native_sample_rate_hz",
)  # fmt: skip


@dataclass(frozen=True)
class PartColumns:
    """The columns of a table that say which part of its file each clip is.

    Each is None if the table has no such column. A part has a duration or an end. With
    ``in_frames``, the table is the manifest of a data set, in frames of its rate.
    """

    start: str | None = None
    duration: str | None = None
    end: str | None = None
    channel: str | None = None
    in_frames: bool = False

    @classmethod
    def of(cls, names: Sequence[str], path: str | None, where: str) -> PartColumns:
        """Returns those among the columns of a table whose path column is ``path``.

        Raises
        ------
        RecipeError
            If two columns say the same.
        """
        if set(MANIFEST_FIELDS) <= set(names):  # a data set's manifest
            return cls("start", "frames", channel="channel", in_frames=True)
        nemo = path == _NEMO_PATH

        def one(*usual: str) -> str | None:
            found = [name for name in usual if name in names]
            if len(found) > 1:
                raise RecipeError(
                    "columns",
                    f"{where} has the columns {' and '.join(found)}, but only one of "
                    "them can say which part of its file a clip is; rename or remove "
                    "the other",
                )
            return found[0] if found else None

        start = one("offset_s", "start_s", *["offset"] * nemo)
        length = one("duration_s", "end_s", *["duration"] * nemo)
        duration, end = (None, length) if length == "end_s" else (length, None)
        return cls(start, duration, end, one("channel"))

    def names(self) -> set[str]:
        """Returns the names of the columns."""
        return {name for name in astuple(self) if isinstance(name, str)}

    def read(self, values: Row) -> tuple[float, float | None, int | None]:
        """Returns the start and the duration of a row's part, in s, and its channel.

        Raises
        ------
        ValueError
            If there is no such part.
        """
        channel = optional_whole(values, self.channel, least=0)
        if self.in_frames:
            numbers = [_needed_whole(values, name) for name in _OF_PART]
            return *part_in_seconds(*numbers), channel
        start_s = optional_number(values, self.start) or 0.0
        duration_s = optional_number(values, self.duration)
        end_s = optional_number(values, self.end)
        if start_s < 0:
            raise ValueError(f"has {self.start} {start_s:g}, which is negative")
        if duration_s is not None and duration_s <= 0:
            raise ValueError(
                f"has {self.duration} {duration_s:g}, which is not positive"
            )
        if end_s is not None and end_s <= start_s:
            raise ValueError(f"has {self.end} {end_s:g}, but it starts at {start_s:g}")
        return start_s, duration_s if end_s is None else end_s - start_s, channel


def _needed_whole(values: Row, name: str) -> int:
    number = optional_whole(values, name, least=name != "start")
    if number is None:
        raise ValueError(f"has no {name}, but needs a whole number")
    return number


def check_no_parts(
    extra: Sequence[str], types: Mapping[str, ColumnType], where: str
) -> None:
    """Refuses columns of data that probably say which part of its file a clip is.

    Without this, each row would be recorded as its whole file.

    Raises
    ------
    InputError
        If one has the name of a start and another that of an end or a duration, and
        both have numbers.
    """
    numbers = [name for name in extra if types[name].is_one_number]
    for start, end in permutations(numbers, 2):
        if start.lower() in _LIKE_STARTS and end.lower() in _LIKE_ENDS:
            kind = "duration_s" if end in ("duration", "length") else "end_s"
            raise InputError(
                f"{where} has the columns {start} and {end}. If they say which part of "
                f"its file each clip is, in seconds, name them start_s and {kind}. If "
                "they are data for the examples, list them in `columns`, with all "
                "others that examples need. Without either, each row would be its "
                "whole file."
            )


def part_in_seconds(
    start: int, frames: int, rate_hz: int, native_frames: int, native_rate_hz: int
) -> tuple[float, float | None]:
    """Returns where a recorded clip starts in its file, and its length, in seconds.

    The length is None if the clip is its whole file.

    Examples
    --------
    >>> part_in_seconds(0, 8000, 8000, 16000, 16000)
    (0.0, None)
    >>> part_in_seconds(2000, 4000, 8000, 16000, 16000)
    (0.25, 0.5)
    """
    if start == 0 and frames == output_frames(native_frames, native_rate_hz, rate_hz):
        return 0.0, None
    return start / rate_hz, frames / rate_hz


# Classes in names of files


def label_of(label_from: str, filepath: str, root: str) -> str | None:
    """Returns the class of a clip, from its name below a root.

    ================== ========================= ===========
    label_from         filepath                  class
    ================== ========================= ===========
    folder             ``sea/tug/01.wav``        ``tug``
    folder             ``01.wav`` in ``/x/tug``  ``tug``
    name               ``12_24346_tug.wav``      ``tug``
    ``(?P<class>\\d)_``  ``7_theo_3.wav``          ``7``
    none               anything                  None
    ================== ========================= ===========

    Raises
    ------
    ValueError
        If the name has no class.
    """
    folder, _, name = filepath.rpartition("/")
    if label_from == "none":
        return None
    if label_from == "folder":
        return (folder or root.rstrip("/")).rpartition("/")[2]
    if label_from == "name":
        label = os.path.splitext(name)[0].rpartition("_")
        if not (label[1] and label[2]):
            raise ValueError(
                "has no class: its name has no text after an underscore; give "
                "`label_from` folder, none or a regular expression"
            )
        return label[2]
    found = matched_groups(label_from, filepath)["class"]
    if not found:
        raise ValueError(
            f"has no class: its path relative to the input does not match {label_from}"
        )
    return found


def named_groups(label_from: str) -> tuple[str, ...]:
    """Returns the groups of the expression in ``label_from``; none if it is none."""
    try:
        groups = tuple(re.compile(label_from).groupindex)
    except re.error:  # a column's name
        return ()
    return () if label_from in LABEL_SOURCES else groups


def matched_groups(label_from: str, filepath: str) -> dict[str, str]:
    """Returns what these groups match in a name; empty text without a match."""
    names = named_groups(label_from)
    match = re.search(label_from, filepath) if names else None
    return match.groupdict("") if match else dict.fromkeys(names, "")


def composed(text: str) -> str:
    """Returns text in Unicode's form NFC: file systems spell accents in two ways."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def label_parts(label: str, separator: str) -> list[str]:
    """Returns the classes in a label, sorted, each once.

    Raises
    ------
    ValueError
        If one of them is empty.
    """
    parts = sorted({part.strip() for part in label.split(separator)})
    if "" in parts:
        raise ValueError(f"has an empty class in {label!r}")
    return parts


# Rows


class Header(NamedTuple):
    """What the header of a file says: from a table, or when it was recorded."""

    frames: int
    sample_rate_hz: int
    channels: int = 1


class SourceRow(NamedTuple):
    """One clip in the listing.

    Attributes
    ----------
    row : int
        The clip's number in the listing of all inputs, from 0.
    source : int
        The number of its input, from 0.
    filepath : str
        Its name in the examples: ``/``-separated, relative to the input's root.
    label : str or None
        Its class, or several classes with the recipe's separator between them.
    problem : str or None
        Why the clip is rejected, if the listing alone shows it.
    split : str
        Its split; empty if it is decided later, or if there are no splits.
    group : str
        Clips of one group are in one split. Without ``group_by``, the key of its file.
    offset_s, duration_s : float
        The part of the file, in seconds; without a duration, to the file's end.
    channel : int or None
        The only channel to use, from 0; None: those of the recipe.
    known : Header or None
        What the table gives, so that the file needs no probe.
    columns : tuple
        Values of :meth:`Layout.columns`, in their order.
    line : int
        Its line in the table, from 1, including the header; 0: it is in no table.
    file : int
        The row of the first clip of the same file.
    recorded : Header or None
        What its file had, if another data set holds the clip; then it becomes no clip.
    """

    row: int
    source: int
    filepath: str
    label: str | None
    problem: str | None = None
    split: str = ""
    group: str = ""
    offset_s: float = 0.0
    duration_s: float | None = None
    channel: int | None = None
    known: Header | None = None
    columns: tuple[Any, ...] = ()
    line: int = 0
    file: int = 0
    recorded: Header | None = None


class RowReader:
    """Turns names of files and rows of tables into :class:`SourceRow`.

    A row that cannot be used gets a problem, and becomes a reject.
    """

    def __init__(
        self, source: int, entry: Input, recipe: Recipe, identities: FileIdentities
    ):
        self._source = source
        self._root = entry.root
        self._split = entry.split
        self._layout = layout = Layout.of(entry, recipe)
        types = dict(entry.columns)
        self._columns = [(name, types[name]) for name in layout.extra]
        self._identities = identities
        self._has_parts = bool(layout.part.names())
        self._classes = {composed(name) for name in recipe.classes or ()}
        self._recipe = recipe
        decided = recipe.splits_are_decided() or not recipe.stratify
        self._splitter = Splitter.of(recipe) if decided else None

    def of_name(self, row: int, filepath: str) -> SourceRow:
        """Returns the row of a file that is in no table."""
        values = matched_groups(self._recipe.label_from, filepath)
        return self._row(row, filepath, values, {}, 0)

    def of_values(self, row: int, line: int, values: Row) -> SourceRow:
        """Returns the row for one line of a table."""
        layout = self._layout
        assert layout.path is not None
        path = values.get(layout.path)
        if not isinstance(path, str) or not path.strip():
            return self._reject(row, "", line, f"has no path in column {layout.path}")
        return self._row(row, path.strip(), values, values, line)

    def _row(
        self, row: int, filepath: str, values: Mapping[str, Any], table: Row, line: int
    ) -> SourceRow:
        layout = self._layout
        raw = filepath.encode(errors="surrogateescape")
        name = raw.decode(errors="backslashreplace")
        encoding = sys.getfilesystemencoding()
        if encoding != "utf-8" and not filepath.isascii():
            problem = (
                f"has a name that Python takes for {encoding} in this locale; set the "
                "environment variable PYTHONUTF8=1"
            )
            return self._reject(row, name, line, problem)
        if name != filepath:
            problem = "has a name that is not valid UTF-8; rename it"
            return self._reject(row, name, line, problem)
        if holds_credentials(filepath):
            problem = "holds credentials in its address; give it without them"
            return self._reject(row, hidden(filepath), line, problem)
        try:
            group = self._group(filepath, values)
            columns = [convert(name, values.get(name), t) for name, t in self._columns]
            columns += [target_value(n, values.get(n)) for n in layout.targets]
            part = layout.part.read(table) if self._has_parts else (0.0, None, None)
            return SourceRow(
                row,
                self._source,
                filepath,
                self._label(filepath, values),
                None,
                self._split_of(group, values),
                group,
                *part,
                None if layout.part.in_frames else _known(table),
                tuple(columns),
                line,
                row,
            )
        except ValueError as error:
            return self._reject(row, filepath, line, str(error))

    def _reject(self, row: int, filepath: str, line: int, problem: str) -> SourceRow:
        return SourceRow(
            row, self._source, filepath, None, problem, line=line, file=row
        )

    def _label(self, filepath: str, values: Mapping[str, Any]) -> str | None:
        if self._recipe.events is not None:
            return None  # each window has its own label
        if self._layout.label is None:
            label = label_of(self._recipe.label_from, filepath, self._root)
        else:
            label = self._label_of_column(values.get(self._layout.label))
        if label is None:
            return None
        # Interned: a million rows share the few classes in memory.
        label = sys.intern(composed(label))
        parts, separator = [label], self._recipe.label_separator
        if separator is not None:
            parts = label_parts(label, separator)
            label = separator.join(parts)
        for part in parts if self._classes else ():
            if part not in self._classes:
                raise ValueError(
                    f"has class {part}, but it is not in `classes`; `convert "
                    "--classes` adds it to a data set"
                )
        return label

    def _label_of_column(self, value: Any) -> str:
        """Returns the class in a table; several have the separator between them."""
        column, separator = self._layout.label, self._recipe.label_separator
        if isinstance(value, list | tuple):
            if separator is None:
                raise ValueError(
                    f"has a list of classes in column {column}; set `label_separator` "
                    "to a text that no class contains"
                )
            for label in value:
                is_class = isinstance(label, str) or is_real(label)
                if not is_class or label != label or separator in str(label):
                    raise ValueError(
                        f"has {label!r} in a list in column {column}, which is not a "
                        f"class, or contains the separator {separator!r}; give another "
                        "`label_separator`"
                    )
            value = separator.join(map(str, value))
        if isinstance(value, bytes):
            raise ValueError(f"has bytes in column {column}, but needs a class")
        label = "" if value is None else str(value).strip()
        if not label:
            raise ValueError(f"has no class in column {column}")
        return label

    def _group(self, filepath: str, values: Mapping[str, Any]) -> str:
        if not self._layout.group_by:
            return self._identities.key(self._root, filepath)
        parts = {name: group_name(values.get(name)) for name in self._layout.group_by}
        for name, group in parts.items():
            if not group:
                raise ValueError(
                    f"has an empty column {name}, but `group_by` needs a value there"
                )
        return GROUP_SEPARATOR.join(parts.values())

    def _split_of(self, group: str, values: Mapping[str, Any]) -> str:
        if self._split:
            return self._split
        if (column := self._layout.split) is not None:
            name = group_name(values.get(column))
            if name.isdecimal():  # the number of a fold: fold1
                name = column + name
            if not name.isidentifier():
                raise ValueError(
                    f"has {name!r} in column {column}, but this cannot name a split; "
                    "use letters, digits and _, and do not begin with a digit"
                )
            return name
        if self._splitter is not None:
            return self._splitter.split_of(group_key(self._recipe.seed, group))
        return ""


def group_name(value: Any) -> str:
    """Returns a group's name in one spelling: speakers 1, 1.0 and `` 1`` are the same.

    The name is empty if the value is missing.
    """
    is_missing = value is None or value != value  # NaN
    return "" if is_missing else _group_spelt(str(value))


@functools.lru_cache(4096)
def _group_spelt(text: str) -> str:
    text = composed(text.strip())
    whole, point, rest = text.partition(".")
    is_whole = point and rest.strip("0") == "" and whole.lstrip("-").isdecimal()
    return whole if is_whole and whole.isascii() else text


def _known(values: Row) -> Header | None:
    frames = optional_whole(values, "frames")
    rate = optional_whole(values, "sample_rate_hz")
    if frames is None or rate is None:
        return None
    return Header(frames, rate, optional_whole(values, "channels") or 1)
