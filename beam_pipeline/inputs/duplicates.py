"""Rows that list a clip twice, or that contradict each other about its file."""

from __future__ import annotations

import os
from collections.abc import Sequence

from beam_pipeline.inputs.event_files import EventTable
from beam_pipeline.inputs.file_identity import FileIdentities
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import FOLDER, Input
from beam_pipeline.inputs.splits import GROUP_SEPARATOR
from beam_pipeline.storage import files
from beam_pipeline.storage.spilled import FirstValues

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
        """The problem if another row has this part, or the file another split or group.

        ``first`` is that of the first row of the same file.
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


def normal_path(root: str, name: str) -> str:
    """Returns a file's path in its normal spelling: ``x.wav`` for ``./x.wav``."""
    path = files.join(root, name)
    # Most paths are normal already, and normpath costs more than this whole check.
    may_differ = "/." in path or "//" in path or path.endswith("/")
    return os.path.normpath(path) if may_differ and files.is_local(path) else path
