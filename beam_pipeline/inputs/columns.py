"""Columns of tables: their use under a recipe, and which part of its file a row is."""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from itertools import permutations

from beam_pipeline.audio.clip_reader import output_frames
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.inputs.column_values import (
    BYTES,
    FLOAT32,
    Column,
    ColumnType,
    optional_number,
    optional_whole,
)
from beam_pipeline.inputs.sources import Input
from beam_pipeline.inputs.tables import CSV_SUFFIXES, Row
from beam_pipeline.recipe.recipe import (
    LABEL_SOURCES,
    RESERVED_NAMES,
    VALID_FRAMES,
    Recipe,
    no_label_source,
)

MANIFEST_FIELDS = {
    "path": "string",
    "input": "int32",
    "file": "int64",
    "index": "int64",
    "class": "string",
    "split": "string",
    "group": "string",
    "start": "int64",
    "frames": "int64",
    "sample_rate_hz": "int32",
    "channels": "int32",
    "channel": "int32",
    "native_frames": "int64",
    "native_sample_rate_hz": "int32",
    "format": "string",
    "subtype": "string",
    "first_index": "int64",
    "windows": "int64",
}
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
        where, is_table = entry.location, entry.table is not None
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
        raise no_label_source(label_from, f"; {what}")
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
    features = {*(recipe.features or ["signal"])}
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
        if is_own_manifest(names):
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


def is_own_manifest(names: Sequence[str]) -> bool:
    """Whether a table with these columns is a data set's manifest."""
    return set(MANIFEST_FIELDS) <= set(names)


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


class Labeler:
    """Reads a clip's class from its name, as the recipe's ``label_from`` says."""

    def __init__(self, label_from: str):
        self._from = label_from
        known = label_from in LABEL_SOURCES
        self._pattern = None if known else re.compile(label_from)

    def values(self, filepath: str) -> dict[str, str]:
        """Returns what the groups match in a name; empty text without a match."""
        if self._pattern is None:
            return {}
        match, names = self._pattern.search(filepath), self._pattern.groupindex
        return match.groupdict("") if match else dict.fromkeys(names, "")

    def label(self, filepath: str, root: str) -> str | None:
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
        if self._from == "none":
            return None
        if self._from == "folder":
            return (folder or root.rstrip("/")).rpartition("/")[2]
        if self._pattern is None:
            label = os.path.splitext(name)[0].rpartition("_")
            if not (label[1] and label[2]):
                raise ValueError(
                    "has no class: its name has no text after an underscore; give "
                    "`label_from` folder, none or a regular expression"
                )
            return label[2]
        found = self.values(filepath)["class"]
        if not found:
            raise ValueError(
                f"has no class: its path relative to the input does not match "
                f"{self._pattern.pattern}"
            )
        return found


def named_groups(label_from: str) -> tuple[str, ...]:
    """Returns the groups of the expression in ``label_from``; none if it is none."""
    try:
        groups = tuple(re.compile(label_from).groupindex)
    except re.error:  # a column's name
        return ()
    return () if label_from in LABEL_SOURCES else groups


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
