"""Events: labels with a start and an end, read from files.

The files are label files of Audacity, selection tables of Raven, CSV, TSV, JSON or
JSONL. Times are seconds from the start of the audio file. An event covers
``[start_s, end_s)``.
"""

from __future__ import annotations

import functools
import io
import math
import os
import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from beam_pipeline.errors import InputError, UnusableEntry
from beam_pipeline.inputs.table_files import (
    CSV_SUFFIXES,
    JSON_SUFFIXES,
    decoded,
    json_lines,
    named,
    split_lines,
)
from beam_pipeline.recipe.recipe import Events, Recipe
from beam_pipeline.storage import files
from beam_pipeline.text import parse_json

# Names of columns in lower case. The first that a row has is used.
START_NAMES = ("start_s", "start", "begin time (s)", "onset", "begin", "start_time",
               "tmin", "begin_time", "start (s)", "start time (s)")  # fmt: skip
END_NAMES = ("end_s", "end", "end time (s)", "offset", "end_time", "tmax", "stop",
             "end (s)", "stop time (s)")  # fmt: skip
LENGTH_NAMES = ("duration_s", "duration", "duration (s)", "delta time (s)")
LABEL_NAMES = ("label", "class", "event_label", "annotation", "species", "tag", "code",
               "call type", "text", "event", "common name")  # fmt: skip
FILE_NAMES = ("path", "filepath", "filename", "file", "begin file", "begin path")


class Event(NamedTuple):
    """A label that applies from ``start_s`` to ``end_s`` of its audio file."""

    start_s: float
    end_s: float
    label: str


def read_events(
    content: bytes, location: str, label_column: str | None = None
) -> dict[str | None, list[Event]]:
    """Reads a file's events, by the audio file that their rows name; else by None.

    Parameters
    ----------
    content : bytes
        The file's content.
    location : str
        Its path. The suffix decides whether it is JSON or text.
    label_column : str, optional
        The column that holds the label. Default: the first of ``LABEL_NAMES``.

    Raises
    ------
    InputError
        If the file cannot be parsed; the error names the line and the problem.
    """
    with decoded(io.BytesIO(content), location) as file:
        text = file.read()
    is_json = location.lower().endswith((".json", *JSON_SUFFIXES))
    events: dict[str | None, list[Event]] = {}
    selections: set[Any] = set()
    names = LABEL_NAMES if label_column is None else (label_column.lower(),)
    rows = _json_rows(text, location) if is_json else _text_rows(text, location, names)
    for line, row in rows:
        try:
            event = _event(row, names)
        except ValueError as error:
            raise InputError(f"{location}, line {line}: {error}.") from error
        name = _find(row, FILE_NAMES)
        # Raven writes an event once for each view: waveform and spectrogram.
        selection = row.get("selection")
        if selection is not None and (selection, event) in selections:
            continue
        selections.add((selection, event))
        events.setdefault(None if name is None else str(name), []).append(event)
    for some in events.values():
        some.sort()
    return events


def _text_rows(
    text: str, location: str, label_names: Sequence[str]
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (line, values by column in lower case) for each row.

    Files of Audacity have no header.
    """
    first = next((line for line in text.splitlines() if line.strip()), "")
    # In CSV, quotes enclose values. In Audacity and Raven, which have tabs, they are
    # part of the label.
    is_csv = location.lower().endswith(CSV_SUFFIXES) or "\t" not in first
    delimiter = max("\t,;", key=first.count) if is_csv else "\t"
    lines = split_lines(io.StringIO(text, newline=""), location, delimiter, is_csv)
    rows = [(n, row) for n, row in lines if any(map(str.strip, row))]
    if not rows:
        return iter(())
    number, names = rows[0]
    header = [name.strip().lower() for name in names]
    if _number(header[0]) is not None and len(header) >= 2:
        # A line that starts with a backslash has the frequencies of the line before.
        rows = [(n, row) for n, row in rows if row[0].strip() != "\\"]
        # A line without a label may lack its last tab.
        rows = [(n, [*row, ""] if len(row) == 2 else row) for n, row in rows]
        return named(rows, ["start_s", "end_s", "label"], location)
    if len(rows) == 1 and not {*header} & {*START_NAMES, *END_NAMES, *LABEL_NAMES}:
        raise InputError(
            f"{location}, line {number}: this line must be a header or an event "
            f"(start, end and label, with tabs between them), not {first!r}."
        )
    for kind in (START_NAMES, END_NAMES, LENGTH_NAMES, FILE_NAMES, label_names):
        name = next((name for name in kind if name in header), "")
        if name and header.count(name) > 1:
            raise InputError(
                f"{location} has the column {name!r} twice: its columns are "
                f"{', '.join(map(repr, names))}. Rename one of them."
            )
    return named(rows[1:], header, location)


def _json_rows(text: str, location: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yields (number, values by column in lower case) for each event of a file."""
    rows: Iterable[tuple[int, Any]]
    if location.lower().endswith(JSON_SUFFIXES):
        rows = json_lines(io.StringIO(text), location)
    else:
        try:
            values = parse_json(text)
        except ValueError as error:
            raise InputError(f"{location}: {error}.") from error
        if isinstance(values, Mapping):
            values = values.get("events")
        if not isinstance(values, list):
            raise InputError(f'{location} must hold a list, or {{"events": [...]}}.')
        rows = enumerate(values, 1)
    for number, row in rows:
        if not isinstance(row, Mapping):
            raise InputError(
                f"{location}, entry {number}: this entry must be an object, not "
                f"{row!r}."
            )
        yield number, {str(key).lower(): value for key, value in row.items()}


def _event(row: Mapping[str, Any], label_names: Sequence[str]) -> Event:
    """Returns the event of a row.

    Raises
    ------
    ValueError
        If a value is missing, or is not of an event.
    """
    start = _seconds(_needed(row, "start", START_NAMES))
    length = _find(row, LENGTH_NAMES)
    if length is not None and _find(row, END_NAMES) is None:
        end = start + _seconds(length)
    else:
        end = _seconds(_needed(row, "end", END_NAMES))
    # In a table of several files, Raven's times continue from file to file.
    if (offset := row.get("file offset (s)")) not in (None, ""):
        start, end = _seconds(offset), _seconds(offset) + (end - start)
    if end < start:
        raise ValueError(f"the event ends at {end:g} s, but starts at {start:g} s")
    label = str(_needed(row, "label", label_names)).strip()
    if not label or len(label.splitlines()) > 1:
        raise ValueError(
            f"the label {label!r} must be one line of text. Check for a missing "
            "closing quote"
        )
    return Event(start, end, label)


def _needed(row: Mapping[str, Any], kind: str, names: Sequence[str]) -> Any:
    value = _find(row, names)
    if value is None:
        raise ValueError(
            f"the event has no {kind} in a column with the name {' or '.join(names)}. "
            f"The columns are {', '.join(map(str, row))}"
        )
    return value


def _find(row: Mapping[str, Any], names: Iterable[str]) -> Any:
    return next((row[name] for name in names if row.get(name) is not None), None)


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _seconds(value: Any) -> float:
    seconds = _number(str(value))
    if seconds is None or not 0 <= seconds < math.inf:
        raise ValueError(f"{value!r} must be a time in seconds, 0 or more")
    return seconds


@dataclass(frozen=True)
class EventTable:
    """One file's events of many clips, by the name that the file has for each clip.

    Every process that reads headers keeps the whole table in memory.
    """

    where: str
    by_name: Mapping[str, tuple[Event, ...]]

    @classmethod
    def of(cls, events: Events) -> EventTable | None:
        """Reads the recipe's table; None if it has none for all clips.

        Raises
        ------
        InputError
            If the table does not exist, cannot be parsed, or does not name the files.
        """
        if events.events is None or "{" in events.events:
            return None
        location = files.absolute(events.events)
        if files.size(location) < 0:
            raise InputError(
                f"{location}: there is no such file, or it is a folder. Give one table "
                "of all events as `events`, or where the table of each clip is: "
                f"{events.events}/{{stem}}.txt."
            )
        content = files.read_bytes(location)
        return _parse_table(content, location, events.event_column)

    def name_of(self, filepath: str) -> str | None:
        """Returns a clip's name in the table: its path or its file name, or None."""
        plain = posixpath.normpath(filepath) if "./" in filepath else filepath
        for name in (filepath, plain, filepath.rpartition("/")[2]):
            if name in self.by_name:
                return name
        return None

    def unclear(self, name: str, other: str) -> str:
        """Returns the problem of a clip whose name in the table another clip has."""
        return (
            f"has the name {name} in {self.where}, but {other} has the same name "
            "there; write paths instead, so that each event belongs to one file"
        )


@functools.lru_cache(maxsize=1)  # for all threads that read headers
def _parse_table(content: bytes, location: str, label_column: str | None) -> EventTable:
    found = read_events(content, location, label_column)
    if None in found:
        raise InputError(
            f"{location} does not name the file of each event: it has none of the "
            f"columns {', '.join(FILE_NAMES)}. If each clip has its own table, give "
            "`events` as '{folder}/{stem}.txt'."
        )
    written = [str(name).replace("\\", "/") for name in found]  # on Windows, too
    count = Counter(map(_plain_name, set(written)))
    by_name: dict[str, list[Event]] = {}
    for name, events in zip(written, found.values(), strict=True):
        plain = _plain_name(name)
        # Files of two folders may have the same name, so they keep their paths.
        name = name if count[plain] > 1 and _is_elsewhere(name) else plain
        by_name.setdefault(name, []).extend(events)
    return EventTable(location, {n: tuple(sorted(e)) for n, e in by_name.items()})


def _plain_name(name: str) -> str:
    """Returns a path as clips have it; only the file name of an absolute path."""
    return name.rpartition("/")[2] if _is_elsewhere(name) else posixpath.normpath(name)


def _is_elsewhere(name: str) -> bool:
    return name.startswith("/") or name[1:3] == ":/"


def clip_events(
    filepath: str, root: str, recipe: Recipe, table: EventTable | None
) -> tuple[Event, ...]:
    """Returns a clip's events, by time, from the table of all clips or its own table.

    Raises
    ------
    UnusableEntry
        If its own table is missing or cannot be parsed, or if the recipe has classes,
        and that of an event is not among them.
    """
    if recipe.events is None:
        return ()
    if table is not None:
        events = table.by_name.get(table.name_of(filepath) or "", ())
    else:
        events = _own_events(filepath, root, recipe)
    for event in events if recipe.classes else ():
        if event.label not in (recipe.classes or ()):
            raise UnusableEntry(
                filepath,
                f"has an event of class {event.label} at {event.start_s:g} s, but this "
                "class is not in `classes`",
            )
    return events


def events_file(filepath: str, root: str, asked: Events) -> str:
    """Returns the path of the table with a clip's events."""
    if "{" not in (asked.events or ""):
        return files.absolute(asked.events or "")
    return files.join(root, os.path.normpath(_own_name(filepath, asked)))


def _own_name(filepath: str, asked: Events) -> str:
    folder, _, name = filepath.rpartition("/")
    stem = os.path.splitext(name)[0]
    return (asked.events or "").format(folder=folder or ".", stem=stem, name=name)


def _own_events(filepath: str, root: str, asked: Events) -> tuple[Event, ...]:
    name = filepath.rpartition("/")[2]
    below = _own_name(filepath, asked)
    location = events_file(filepath, root, asked)
    if not files.exists(location):
        raise UnusableEntry(
            filepath,
            f"has no file of events: {below.removeprefix('./')} does not exist in its "
            "input; create it, and leave it empty if the clip has no events",
        )
    try:
        found = read_events(files.read_bytes(location), location, asked.event_column)
    except InputError as error:
        problem = f"has events that cannot be read: {error}"
        raise UnusableEntry(filepath, problem) from error
    for other in found:
        if other is not None and other.replace("\\", "/").rpartition("/")[2] != name:
            raise UnusableEntry(
                filepath,
                f"has a file of events, {below}, that holds events of another file, "
                f"{other}",
            )
    return tuple(sorted(event for some in found.values() for event in some))
