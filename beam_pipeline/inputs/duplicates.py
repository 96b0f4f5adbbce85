"""Rows that list a clip twice, or that contradict each other about its file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from beam_pipeline.inputs.event_files import EventTable
from beam_pipeline.inputs.file_identity import FileIdentities
from beam_pipeline.inputs.recorded_clips import RecordedClips
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import FOLDER, Input
from beam_pipeline.inputs.splits import GROUP_SEPARATOR
from beam_pipeline.storage import files


class DuplicateCheck:
    """Compares each row with the rows before it.

    Folders that do not overlap list a file once, so their rows need no check. Lists and
    manifests may list a clip twice, and several rows may be parts of one file. For
    these, and if inputs or groups have splits, the check keeps hashes in memory.

    Attributes
    ----------
    identities : FileIdentities
        Finds the files that names mean.
    named : dict
        For each name in the table of events: the first file with that name.
    alike : dict
        For each of these names that several files have: another such file.
    rejected : set
        Those of these names whose clips were rejected before, with other values.
    """

    def __init__(
        self,
        inputs: Sequence[Input],
        has_groups: bool,
        events: EventTable | None,
        recorded: RecordedClips | None = None,
    ):
        self.identities = FileIdentities([entry.root for entry in inputs])
        self.named: dict[str, str] = {}
        self.alike: dict[str, str] = {}
        self.rejected: set[str | None] = set()
        self._inputs = inputs
        self._events = events
        self._by_hand = any(entry.kind != FOLDER for entry in inputs)
        self._has_splits = any(entry.split for entry in inputs)
        self._has_groups = has_groups
        self._parts: dict[int, int] = {}
        self._files: dict[int, int] = {}
        self._groups: dict[int, int] = {}
        self._group_splits: dict[str, str] = {}
        self._file_splits: dict[int, str] = {}
        if recorded is not None:
            self._add_recorded(recorded)

    def _add_recorded(self, recorded: RecordedClips) -> None:
        """Adds the clips that the data set has already."""
        self._group_splits.update(recorded.group_splits)
        for file, group in recorded.file_groups.items():
            self._groups[file] = hash(group)
        if self._events is not None:
            for path in recorded.names:
                self.named.setdefault(self._events.name_of(path) or "", path)
            self.rejected = {self._events.name_of(n) for n in recorded.rejected}

    def check(self, row: SourceRow) -> SourceRow:
        """Returns the row with the number of its file, or with its problem."""
        watched = self._by_hand or self._has_splits or self._has_groups
        if not watched and self._events is None:
            return row
        path = self.identities.path(self._inputs[row.source].root, row.filepath)
        problem = row.problem
        if self._by_hand and problem is None:
            # Two links to a file are two clips on purpose, so links are not followed.
            name = normal_path(self._inputs[row.source].root, row.filepath)
            part = (name, row.offset_s, row.duration_s, row.channel)
            first = self._parts.setdefault(hash(part), row.row)
            if first != row.row:
                problem = f"is listed twice: first as clip {first}, counted from 0"
        if watched and row.problem is None:
            file = self._files.setdefault(hash(path), row.file)
            if file != row.file:
                row = row._replace(file=file)
        if self._has_splits and problem is None:
            split = self._file_splits.setdefault(hash(path), row.split)
            if split != row.split:
                problem = (
                    f"is in the split {row.split}, but an earlier clip of the same "
                    f"file is in {split}; a file must be in one split"
                )
        if self._has_groups and problem is None:
            problem = self._group_problem(row)
        if self._events is not None:
            unclear = self._event_problem(row, path, self._events)
            problem = problem or unclear
        return row if problem == row.problem else row._replace(problem=problem)

    def _group_problem(self, row: SourceRow) -> str | None:
        """The problem if the file has two groups, or the group two splits."""
        group = row.group.replace(GROUP_SEPARATOR, ", ")
        if self._groups.setdefault(row.file, hash(row.group)) != hash(row.group):
            return (
                f"is in the group {group}, but clip {row.file}, counted from 0, is a "
                "part of the same file and in another group; a file must be in one "
                "group"
            )
        split = self._group_splits.setdefault(row.group, row.split) if row.split else ""
        if split != row.split:
            return (
                f"is in the split {row.split}, but an earlier clip of its group "
                f"{group} is in {split}; a group must be in one split"
            )
        return None

    def _event_problem(
        self, row: SourceRow, path: str, events: EventTable
    ) -> str | None:
        """The problem if the table of events has one name for this and another file."""
        name = events.name_of(row.filepath)
        if name is None or self.named.setdefault(name, path) == path:
            return None
        self.alike.setdefault(name, path)
        return events.unclear(name, self.named[name])


def normal_path(root: str, name: str) -> str:
    """Returns a file's path in its normal spelling: ``x.wav`` for ``./x.wav``."""
    path = files.join(root, name)
    # Most paths are normal already, and normpath costs more than this whole check.
    may_differ = "/." in path or "//" in path or path.endswith("/")
    return os.path.normpath(path) if may_differ and files.is_local(path) else path
