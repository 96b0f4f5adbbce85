"""Rows: what a clip's name or a table says of it, before its file is touched."""

from __future__ import annotations

import functools
import json
import math
import os
import re
import sys
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from beam_pipeline.errors import RecipeError
from beam_pipeline.manifests import Row, is_number
from beam_pipeline.places import Places
from beam_pipeline.recipe import (
    GROUP_SEPARATOR,
    LABEL_SOURCES,
    RESERVED_NAMES,
    Recipe,
    comma_list,
)
from beam_pipeline.splits import Splitter, group_key, shares_of

# Names that the path's column may have where the recipe gives none.
PATH_NAMES = ("path", "filepath", "file", "filename", "file_name", "audio", "wav",
              "audio_filepath", "audio_path", "wav_path")  # fmt: skip
# Columns that are taken wherever there are such: parts of files, and what was probed.
SEGMENT_COLUMNS = ("offset_s", "duration_s", "channel")
KNOWN_COLUMNS = ("frames", "sample_rate_hz", "channels")
# The part of a file that is all of it: offset_s, duration_s and channel.
ALL = 0.0, None, None

INT64, FLOAT32, STRING = "int64", "float32", "string"
LEAST_INT64 = -(2**63)
MOST_FLOAT32 = 3.4028234663852886e38
# No file holds more frames: at 8 bits they are a terabyte.
MOST_KNOWN = 2**40

Column = tuple[str, str]  # name, dtype


class Known(NamedTuple):
    """What a probe would find, as a table says it."""

    frames: int
    sample_rate_hz: int
    channels: int = 1


class SourceRow(NamedTuple):
    """One clip as it was listed.

    Attributes
    ----------
    row : int
        Its place in the listing over all inputs, from 0.
    source : int
        Which input it came from.
    filepath : str
        Its name in the examples: ``/``-separated, relative to the input's root.
    label : str or None
        Its class; several with the recipe's separator between them.
    problem : str or None
        Why it cannot be taken, if the listing alone shows that.
    split : str
        Empty where it is for the whole corpus to decide.
    group : str
        Clips of one group are in one split: its file, if nothing else says so.
    offset_s, duration_s : float
        Which part of its file it is; to the end where there is no duration.
    channel : int or None
        The only one to be taken.
    known : Known or None
        What need not be probed.
    columns : tuple
        Values of the extra columns, in their order.
    line : int
        Its row in a table, from 1; the header counts. 0: it is in no table.
    file : int
        Stands for its file: the row of the first clip that was listed of it.
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
    known: Known | None = None
    columns: tuple[Any, ...] = ()
    line: int = 0
    file: int = 0


class Labeler:
    """Reads a clip's class off its name. ``label_from`` as in the recipe."""

    def __init__(self, label_from: str):
        self._from = label_from
        known = label_from in LABEL_SOURCES
        self._pattern = None if known else re.compile(label_from)

    def groups(self) -> tuple[str, ...]:
        """The named groups of the expression that are columns."""
        names = () if self._pattern is None else tuple(self._pattern.groupindex)
        return tuple(name for name in names if name != "class")

    def values(self, filepath: str) -> dict[str, str]:
        """What those groups match in a name; empty where it does not."""
        if self._pattern is None:
            return {}
        match = self._pattern.search(filepath)
        found = {} if match is None else match.groupdict()
        return {name: found.get(name) or "" for name in self.groups()}

    def label(self, filepath: str, root: str) -> str | None:
        """The class of a name below a root.

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
            If the name has no such part.
        """
        folder, _, name = filepath.rpartition("/")
        stem = os.path.splitext(name)[0]
        if self._from == "none":
            return None
        if self._from == "folder":
            return (folder or root.rstrip("/")).rpartition("/")[2]
        if self._pattern is None:
            label = stem.rpartition("_")[2] if "_" in stem else ""
            if not label:
                raise ValueError(
                    "has no class: no text after an underscore in its name; "
                    "use --label-from folder, none or a regular expression"
                )
            return label
        match = self._pattern.search(filepath)
        if match is None or not match["class"]:
            raise ValueError(
                f"has no class: its path does not match {self._pattern.pattern}"
            )
        return match["class"]


def named_groups(recipe: Recipe) -> tuple[str, ...]:
    """The columns that the recipe's expression makes of every name."""
    try:
        return Labeler(recipe.label_from).groups()
    except re.error:  # it is a column's name
        return ()


def _reads_names(label_from: str) -> bool:
    if label_from in LABEL_SOURCES:
        return True
    try:
        return "class" in re.compile(label_from).groupindex
    except re.error:
        return False


@dataclass(frozen=True)
class Layout:
    """Which column of a table is what, under a recipe.

    ``names`` are the table's columns; those of a folder are the named groups of the
    expression that classes come from.
    """

    names: tuple[str, ...]
    path: str | None
    label: str | None
    split: str | None
    group_by: tuple[str, ...]
    targets: tuple[str, ...]
    extra: tuple[str, ...]

    @classmethod
    def of(
        cls, names: Sequence[str], recipe: Recipe, where: str, is_table: bool
    ) -> Layout:
        """The layout of a table, or of a folder's names.

        Raises
        ------
        RecipeError
            If the recipe names a column that is not there.
        """
        names = tuple(names)

        def check(field: str, wanted: Sequence[str]) -> tuple[str, ...]:
            for name in wanted:
                if name not in names:
                    has = ", ".join(names) or "no columns at all"
                    raise RecipeError(field, f"{where} has {has}", name)
            return tuple(wanted)

        path = None
        if is_table:
            if recipe.path_column is not None:
                (path,) = check("path_column", [recipe.path_column])
            else:
                path = next((name for name in PATH_NAMES if name in names), None)
            if path is None:
                raise RecipeError(
                    "path_column",
                    f"{where} has no column {', '.join(PATH_NAMES)}; name the one with "
                    f"the path, of {', '.join(names)}",
                    None,
                )
        label = recipe.label_from if recipe.label_from in names else None
        if label is None and not _reads_names(recipe.label_from):
            has = f"only {', '.join(names)}" if names else "no columns"
            raise RecipeError(
                "label_from",
                f"must be one of {', '.join(LABEL_SOURCES)}, a regular expression with "
                f"a group like (?P<class>[a-z]+), or a column; {where} has {has}",
                recipe.label_from,
            )
        has_labels = label is not None or recipe.label_from != "none"
        if recipe.classes is not None and not has_labels and recipe.events is None:
            raise RecipeError(
                "classes",
                "are those of labels, and label_from is none; leave them out, or say "
                "where a clip's class comes from",
                recipe.classes,
            )
        split = None
        if recipe.split_column is not None:
            (split,) = check("split_column", [recipe.split_column])
        group_by = check("group_by", comma_list(recipe.group_by))
        targets = check("target_columns", comma_list(recipe.target_columns))
        taken = {path, label, split, *targets}
        if is_table:
            taken.update(SEGMENT_COLUMNS)
            taken.update(KNOWN_COLUMNS if set(KNOWN_COLUMNS[:2]) <= set(names) else ())
        if recipe.columns is None:
            extra = tuple(name for name in names if name not in taken)
        else:
            wanted = [] if recipe.columns == "none" else comma_list(recipe.columns)
            extra = check("columns", wanted)
        for name in extra:
            if name in RESERVED_NAMES or name in (recipe.features or {"signal": ""}):
                use = "take classes from it with --label-from class, " * (
                    name == "class" and recipe.events is None
                )
                raise RecipeError(
                    "columns",
                    f"this name is one of the examples' own; {use}rename the column, "
                    "or leave it out with --columns",
                    name,
                )
        return cls(names, path, label, split, group_by, targets, extra)


class RowReader:
    """Turns names and rows of tables into :class:`SourceRow`.

    Problems of a row are told in the row: it becomes a reject, which has a name.
    """

    def __init__(
        self, source: int, root: str, layout: Layout, types: Mapping[str, str],
        recipe: Recipe, places: Places, split: str = "",
    ):  # fmt: skip
        self._source = source
        self._root = root
        self._layout = layout
        self._columns = [(name, types[name]) for name in layout.extra]
        self._places = places
        self._has_parts = not set(SEGMENT_COLUMNS).isdisjoint(layout.names)
        self._split = split
        self._labeler = Labeler(recipe.label_from) if layout.label is None else None
        self._classes = {_composed(name) for name in comma_list(recipe.classes)}
        self._separator = recipe.label_separator
        self._has_events = recipe.events is not None
        self._seed = recipe.seed
        shares = shares_of(recipe)
        self._splitter = None
        if shares is not None and not recipe.stratify:
            self._splitter = Splitter(shares, recipe.split_salt or 0)
        elif shares is not None and recipe.split_salt is not None:
            self._splitter = Splitter(shares, recipe.split_salt)

    def of_name(self, row: int, filepath: str) -> SourceRow:
        """The row of a file that was found by its name."""
        values = {} if self._labeler is None else self._labeler.values(filepath)
        return self._row(row, filepath, values, {}, 0)

    def of_values(self, row: int, line: int, values: Row) -> SourceRow:
        """The row of a table, which stands on this line of it."""
        layout = self._layout
        assert layout.path is not None
        path = values.get(layout.path)
        if not isinstance(path, str) or not path.strip():
            problem = f"has no path in column {layout.path}"
            return SourceRow(row, self._source, "", None, problem, line=line, file=row)
        return self._row(row, path.strip(), values, values, line)

    def _row(
        self, row: int, filepath: str, values: Mapping[str, Any], table: Row, line: int
    ) -> SourceRow:
        try:
            filepath.encode()
        except UnicodeEncodeError:
            shown = filepath.encode(errors="surrogateescape").decode(
                errors="backslashreplace"
            )
            problem = "its name is not valid UTF-8; rename it"
            return SourceRow(row, self._source, shown, None, problem, file=row)
        try:
            label = self._label(filepath, values)
            group = self._group(filepath, values)
            offset_s, duration_s, channel = _segment(table) if self._has_parts else ALL
            return SourceRow(
                row,
                self._source,
                filepath,
                label,
                None,
                self._split_of(group, values),
                group,
                offset_s,
                duration_s,
                channel,
                _known(table),
                tuple(
                    [convert(name, values.get(name), t) for name, t in self._columns]
                    + [_target(n, values.get(n)) for n in self._layout.targets]
                ),
                line,
                row,
            )
        except ValueError as error:
            return SourceRow(
                row, self._source, filepath, None, str(error), line=line, file=row
            )

    def _label(self, filepath: str, values: Mapping[str, Any]) -> str | None:
        if self._has_events:
            return None  # each window has its own
        if self._labeler is not None:
            label = self._labeler.label(filepath, self._root)
            label = None if label is None else _composed(label)
        else:
            value = values.get(self._layout.label or "")
            if isinstance(value, list | tuple):
                value = self._joined(value)
            # Interned: of a million rows, the few classes are in memory once.
            label = "" if value is None else sys.intern(_composed(str(value).strip()))
            if not label:
                raise ValueError(f"has no class in column {self._layout.label}")
        if label is None:
            return None
        parts = [label] if self._separator is None else _parts(label, self._separator)
        for part in parts if self._classes else ():
            if part not in self._classes:
                raise ValueError(f"has class {part}, which is not one of --classes")
        return label if self._separator is None else self._separator.join(parts)

    def _joined(self, labels: Sequence[Any]) -> str:
        """Several classes that came as a list, as text."""
        column = self._layout.label
        if self._separator is None:
            raise ValueError(
                f"has a list of classes in column {column}; give --label-separator, "
                "a character that is in none of them"
            )
        for label in labels:
            if isinstance(label, list | dict | bool) or label is None or label != label:
                raise ValueError(
                    f"has {json.dumps(label, default=str)} in the list of column "
                    f"{column}, which is no class"
                )
            if self._separator in str(label):
                raise ValueError(
                    f"has class {label} in column {column}, and {self._separator!r} "
                    "stands between classes; give another --label-separator"
                )
        return self._separator.join(map(str, labels))

    def _group(self, filepath: str, values: Mapping[str, Any]) -> str:
        if not self._layout.group_by:
            return self._places.key(self._root, filepath)
        parts = []
        for name in self._layout.group_by:
            group = group_name(values.get(name))
            if not group:
                raise ValueError(f"has no {name} to group it by")
            parts.append(group)
        return GROUP_SEPARATOR.join(parts)

    def _split_of(self, group: str, values: Mapping[str, Any]) -> str:
        if self._split:
            return self._split
        if self._layout.split is not None:
            name = str(values.get(self._layout.split) or "").strip()
            if not name.isidentifier():
                raise ValueError(
                    f"has {name!r} in column {self._layout.split}, which cannot be the "
                    "name of a split; take letters, digits and _"
                )
            return name
        if self._splitter is not None:
            return self._splitter.split_of(group_key(self._seed, group))
        return ""


def group_name(value: Any) -> str:
    """A group in one spelling: the speakers 1, 1.0 and `` 1`` are one.

    Empty where there is none.
    """
    return "" if value is None or value != value else _group_spelt(str(value))  # NaN


@functools.lru_cache(4096)
def _group_spelt(text: str) -> str:
    text = _composed(text.strip())
    whole, point, rest = text.partition(".")
    is_whole = point and rest.strip("0") == "" and whole.lstrip("-").isdecimal()
    return whole if is_whole and whole.isascii() else text


def _composed(text: str) -> str:
    """Text with its accents in one spelling, NFC: file systems have two."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def _segment(values: Row) -> tuple[float, float | None, int | None]:
    offset_s = _number(values, "offset_s")
    duration_s = _number(values, "duration_s")
    channel = _number(values, "channel")
    if offset_s is not None and offset_s < 0:
        raise ValueError(f"has offset_s {offset_s:g}, which is negative")
    if duration_s is not None and duration_s <= 0:
        raise ValueError(f"has duration_s {duration_s:g}, which is not positive")
    if channel is not None and (channel < 0 or channel != int(channel)):
        raise ValueError(f"has channel {channel:g}, which is no number from 0")
    return offset_s or 0.0, duration_s, None if channel is None else int(channel)


def _known(values: Row) -> Known | None:
    frames = _count(values, "frames")
    rate = _count(values, "sample_rate_hz")
    if frames is None or rate is None:
        return None
    return Known(frames, rate, _count(values, "channels") or 1)


def _count(values: Row, name: str) -> int | None:
    value = values.get(name)
    if value is None or value == "":
        return None
    if isinstance(value, str) and value.isdecimal() and value.isascii():
        number: float = int(value)
    else:
        number = _finite(name, value)
    if number != int(number) or not 1 <= number <= MOST_KNOWN:
        raise ValueError(
            f"has {name} {number:g}, which is no whole number from 1 to 2**40"
        )
    return int(number)


def _number(values: Row, name: str) -> float | None:
    value = values.get(name)
    if value is None or value == "":
        return None
    return _finite(name, value)


def _finite(name: str, value: Any) -> float:
    try:
        number = float(value) if is_number(value) else math.nan
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number) or abs(number) > MOST_FLOAT32:
        raise ValueError(f"has {value!r} in column {name}, which is no number")
    return number


def convert(name: str, value: Any, dtype: str) -> Any:
    """A table's value as an example holds it.

    Raises
    ------
    ValueError
        If it is not of the type.
    """
    if dtype == STRING:
        if isinstance(value, list | dict):
            return json.dumps(value, ensure_ascii=False, default=str)
        # In a column of text, a whole number of a data frame with gaps.
        whole = isinstance(value, float) and value.is_integer()
        return "" if value is None else str(int(value) if whole else value)
    if dtype == FLOAT32:
        return math.nan if value in (None, "") else _finite(name, value)
    try:
        number = int(value)
        if not LEAST_INT64 <= number <= -LEAST_INT64 - 1:
            raise ValueError
        return number
    except (TypeError, ValueError):
        raise ValueError(
            f"has {value!r} in column {name}, which is no whole number of 64 bits"
        ) from None


def _target(name: str, value: Any) -> float:
    """A number to be predicted, which must be there."""
    if value in (None, ""):
        raise ValueError(f"has no number in column {name}, which is to be predicted")
    return _finite(name, value)


def _parts(label: str, separator: str) -> list[str]:
    parts = sorted({part.strip() for part in label.split(separator)})
    if "" in parts:
        raise ValueError(f"has an empty class in {label!r}")
    return parts
