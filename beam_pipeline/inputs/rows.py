"""Rows: what a clip's name or a table says of it, before its file is touched."""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from beam_pipeline.inputs.columns import (
    SEGMENT_COLUMNS,
    Layout,
    convert,
    optional_count,
    optional_number,
    target_value,
)
from beam_pipeline.inputs.file_identity import FileIdentities
from beam_pipeline.inputs.labels import Labeler, composed, label_parts
from beam_pipeline.inputs.splits import GROUP_SEPARATOR, Splitter, group_key
from beam_pipeline.inputs.tables import Row
from beam_pipeline.recipe.recipe import Recipe

# The part of a file that is all of it: offset_s, duration_s and channel.
ALL = 0.0, None, None


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


class RowReader:
    """Turns names and rows of tables into :class:`SourceRow`.

    Problems of a row are told in the row: it becomes a reject, which has a name.
    """

    def __init__(
        self, source: int, root: str, layout: Layout, types: Mapping[str, str],
        recipe: Recipe, places: FileIdentities, split: str = "",
    ):  # fmt: skip
        self._source = source
        self._root = root
        self._layout = layout
        self._columns = [(name, types[name]) for name in layout.extra]
        self._places = places
        self._has_parts = not set(SEGMENT_COLUMNS).isdisjoint(layout.names)
        self._split = split
        self._labeler = (
            Labeler(recipe.labels.label_from) if layout.label is None else None
        )
        self._classes = {composed(name) for name in recipe.labels.classes or ()}
        self._separator = recipe.labels.separator
        self._has_events = recipe.events.source is not None
        self._seed = recipe.shards.seed
        splits = recipe.splits
        shares = splits.hashed_shares()
        self._splitter = None
        if shares is not None and not splits.stratify:
            self._splitter = Splitter(shares, splits.salt or 0)
        elif shares is not None and splits.salt is not None:
            self._splitter = Splitter(shares, splits.salt)

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
                    + [target_value(n, values.get(n)) for n in self._layout.targets]
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
            label = None if label is None else composed(label)
        else:
            value = values.get(self._layout.label or "")
            if isinstance(value, list | tuple):
                value = self._joined(value)
            # Interned: of a million rows, the few classes are in memory once.
            label = "" if value is None else sys.intern(composed(str(value).strip()))
            if not label:
                raise ValueError(f"has no class in column {self._layout.label}")
        if label is None:
            return None
        parts = (
            [label] if self._separator is None else label_parts(label, self._separator)
        )
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
    text = composed(text.strip())
    whole, point, rest = text.partition(".")
    is_whole = point and rest.strip("0") == "" and whole.lstrip("-").isdecimal()
    return whole if is_whole and whole.isascii() else text


def _segment(values: Row) -> tuple[float, float | None, int | None]:
    offset_s = optional_number(values, "offset_s")
    duration_s = optional_number(values, "duration_s")
    channel = optional_number(values, "channel")
    if offset_s is not None and offset_s < 0:
        raise ValueError(f"has offset_s {offset_s:g}, which is negative")
    if duration_s is not None and duration_s <= 0:
        raise ValueError(f"has duration_s {duration_s:g}, which is not positive")
    if channel is not None and (channel < 0 or channel != int(channel)):
        raise ValueError(f"has channel {channel:g}, which is no number from 0")
    return offset_s or 0.0, duration_s, None if channel is None else int(channel)


def _known(values: Row) -> Known | None:
    frames = optional_count(values, "frames")
    rate = optional_count(values, "sample_rate_hz")
    if frames is None or rate is None:
        return None
    return Known(frames, rate, optional_count(values, "channels") or 1)
