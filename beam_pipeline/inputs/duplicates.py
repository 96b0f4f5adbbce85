"""Rows that name a file twice, or that contradict each other about it."""

from __future__ import annotations

import os
from collections.abc import Sequence

from beam_pipeline.inputs.event_files import EventTable
from beam_pipeline.inputs.file_identity import FileIdentities
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import FOLDER, Input
from beam_pipeline.inputs.splits import GROUP_SEPARATOR
from beam_pipeline.storage import files


class DuplicateCheck:
    """What rows before have said, so that none says it twice, or otherwise.

    Folders that do not overlap name a file once; what was put together by hand may not,
    and a row of a manifest may be another part of the same file. Of these, and where
    each input has its split, hashes are remembered.
    """

    def __init__(
        self, inputs: Sequence[Input], has_groups: bool, events: EventTable | None
    ):
        self.places = FileIdentities([entry.root for entry in inputs])
        self.named: dict[str, str] = {}  # in the table of events -> whose they are
        self.alike: dict[str, str] = {}  # of these -> another file that is called so
        self._inputs = inputs
        self._events = events
        self._by_hand = any(entry.kind != FOLDER for entry in inputs)
        self._has_splits = any(entry.split for entry in inputs)
        self._has_groups = has_groups
        self._parts: dict[int, int] = {}
        self._files: dict[int, int] = {}
        self._groups: dict[int, int] = {}
        self._splits: dict[str, str] = {}  # of a group
        self._file_splits: dict[int, str] = {}

    def check(self, row: SourceRow) -> SourceRow:
        """The row with its file's number, or with its problem."""
        watched = self._by_hand or self._has_splits or self._has_groups
        if not watched and self._events is None:
            return row
        place = self.places.place(self._inputs[row.source].root, row.filepath)
        problem = row.problem
        if self._by_hand and problem is None:
            # Two links to a file are two names for it, which is no mistake.
            path = normal_path(self._inputs[row.source].root, row.filepath)
            part = (path, row.offset_s, row.duration_s, row.channel)
            first = self._parts.setdefault(hash(part), row.row)
            if first != row.row:
                problem = f"is listed twice: it is clip {first} from 0, too"
        if watched and row.problem is None:
            file = self._files.setdefault(hash(place), row.row)
            if file != row.row:
                row = row._replace(file=file)
        if self._has_splits and problem is None:
            split = self._file_splits.setdefault(hash(place), row.split)
            if split != row.split:
                problem = (
                    f"is in the split {row.split}, but the same file is in {split} "
                    "before: a file is in one split"
                )
        if self._has_groups and problem is None:
            problem = self._grouped_otherwise(row)
        if self._events is not None:
            alike = self._named_alike(row, place, self._events)
            problem = problem or alike
        return row if problem == row.problem else row._replace(problem=problem)

    def _grouped_otherwise(self, row: SourceRow) -> str | None:
        """Whether its file is in another group, or its group in another split."""
        group = row.group.replace(GROUP_SEPARATOR, ", ")
        if self._groups.setdefault(row.file, hash(row.group)) != hash(row.group):
            return (
                f"is of the group {group}, but clip {row.file} from 0, a part of the "
                "same file, is of another: a file is in one group"
            )
        split = self._splits.setdefault(row.group, row.split) if row.split else ""
        if split != row.split:
            return (
                f"is in the split {row.split}, but its group {group} is in {split} "
                "before: a group is in one split"
            )
        return None

    def _named_alike(
        self, row: SourceRow, place: str, events: EventTable
    ) -> str | None:
        """Whether the events' table calls another file the same."""
        name = events.name_of(row.filepath)
        if name is None or self.named.setdefault(name, place) == place:
            return None
        self.alike.setdefault(name, place)
        return events.unclear(name, self.named[name])


def normal_path(root: str, name: str) -> str:
    """Where a name's file is, in one spelling: ``./x.wav`` is ``x.wav``."""
    path = files.join(root, name)
    # Most are spelt so, and to make sure of it costs more than all else here.
    may_differ = "/." in path or "//" in path or path.endswith("/")
    return os.path.normpath(path) if may_differ and files.is_local(path) else path
