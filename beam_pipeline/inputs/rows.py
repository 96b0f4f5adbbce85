"""Rows: what a clip's name or a manifest says of it; opens no file."""

from __future__ import annotations

import functools
import sys
from collections.abc import Mapping
from typing import Any, NamedTuple

from beam_pipeline.inputs.column_values import convert, optional_whole, target_value
from beam_pipeline.inputs.columns import Labeler, Layout, composed, label_parts
from beam_pipeline.inputs.sources import FileIdentities, Input
from beam_pipeline.inputs.splits import GROUP_SEPARATOR, Splitter, group_key
from beam_pipeline.inputs.tables import Row
from beam_pipeline.parameters import is_real
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.text import hidden, holds_credentials


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
        Values of :meth:`.columns.Layout.columns`, in their order.
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
        self._labeler = Labeler(recipe.label_from) if layout.label is None else None
        self._classes = {composed(name) for name in recipe.classes or ()}
        self._separator = recipe.label_separator
        self._has_events = recipe.events is not None
        self._seed = recipe.seed
        decided = recipe.splits_are_decided() or not recipe.stratify
        self._splitter = Splitter.of(recipe) if decided else None

    def of_name(self, row: int, filepath: str) -> SourceRow:
        """Returns the row of a file that is in no table."""
        values = {} if self._labeler is None else self._labeler.values(filepath)
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
        if self._has_events:
            return None  # each window has its own label
        if self._labeler is not None:
            label = self._labeler.label(filepath, self._root)
        else:
            label = self._label_of_column(values.get(self._layout.label or ""))
        if label is None:
            return None
        # Interned: a million rows share the few classes in memory.
        label = sys.intern(composed(label))
        parts = [label]
        if self._separator is not None:
            parts = label_parts(label, self._separator)
            label = self._separator.join(parts)
        for part in parts if self._classes else ():
            if part not in self._classes:
                raise ValueError(
                    f"has class {part}, but it is not in `classes`; `convert "
                    "--classes` adds it to a data set"
                )
        return label

    def _label_of_column(self, value: Any) -> str:
        """Returns the class in a table; several have the separator between them."""
        column, separator = self._layout.label, self._separator
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
            return self._splitter.split_of(group_key(self._seed, group))
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
