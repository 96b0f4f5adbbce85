"""The clips that a data set has already, when files are added to it.

A listed clip is known by its name and by which part of its file it is. Its class or its
columns may have changed since; the data set keeps those that it has.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.clip_reader import output_frames
from beam_pipeline.errors import InputError
from beam_pipeline.hashing import text_key
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.splits import GROUP_SEPARATOR
from beam_pipeline.seconds import seconds_to_frames
from beam_pipeline.storage import files

NAMED_IN_ERRORS = 5

Integers = npt.NDArray[np.int64]


class Header(NamedTuple):
    """What the header of a file said when it was recorded."""

    frames: int
    sample_rate_hz: int
    channels: int


@dataclass(frozen=True)
class Part:
    """A part of a file that is a clip of the data set.

    ``start`` and ``frames`` are at the output rate. ``channel`` is -1 if the clip has
    all channels. ``file`` is the number of the first clip of its file.
    """

    header: Header
    rate_hz: int
    start: int
    frames: int
    channel: int
    file: int

    def is_of(self, row: SourceRow, channel: int) -> bool:
        """Whether a row asks for this part, if the file is as it was."""
        total = output_frames(*self.header[:2], self.rate_hz)
        start = seconds_to_frames(row.offset_s, self.rate_hz)
        stop = total
        if row.duration_s is not None:
            stop = min(start + seconds_to_frames(row.duration_s, self.rate_hz), total)
        return (start, stop - start, channel) == (self.start, self.frames, self.channel)


@dataclass
class RecordedClips:
    """The clips of a data set, by name; some 200 bytes of memory for each of them.

    It counts the ``known`` and the ``new`` rows that it sorts out, and keeps the names
    that are ``retried``.

    Parameters
    ----------
    names : sequence of str
        Of the files of the clips.
    numbers : numpy.ndarray, shape (clips, 8), int64
        The fields of a :class:`Part`, the header's first.
    rejected : set of str
        Names of clips that were rejected.
    channel : int
        The only channel that the recipe takes; -1: all, or their mean.
    retry : bool
        Whether only clips that were rejected are taken.
    group_splits, file_groups : mapping
        Group to split, and number of a file to group, if the recipe has groups.
    file_splits : mapping
        Name of a file to split, if the inputs give the splits.
    groups_are_whole : bool
        Whether a feature depends on all clips of a group, so that none can be added.
    """

    names: Sequence[str]
    numbers: Integers
    rejected: frozenset[str] = frozenset()
    channel: int = -1
    retry: bool = False
    group_splits: Mapping[str, str] = field(default_factory=dict)
    file_groups: Mapping[int, str] = field(default_factory=dict)
    file_splits: Mapping[str, str] = field(default_factory=dict)
    groups_are_whole: bool = False

    def __post_init__(self) -> None:
        keys = np.array([_key(plain_name(n)) for n in self.names], np.uint64)
        order = np.argsort(keys, kind="stable")
        self._keys, self._numbers = keys[order], self.numbers[order]
        self._absolute = any(n.startswith("/") for n in self.names)
        self.new = self.known = 0
        self.retried: set[str] = set()
        self._named: list[str] = []

    def parts_of(self, name: str) -> list[Part]:
        """Returns the clips of a file."""
        key = _key(name)
        first, stop = (
            int(np.searchsorted(self._keys, key, s)) for s in ("left", "right")
        )
        return [
            Part(Header(*numbers[:3]), *numbers[3:])
            for numbers in self._numbers[first:stop].tolist()
        ]

    def sort_out(self, row: SourceRow, root: str) -> SourceRow | None:
        """Returns a listed row, or None if there is nothing to do with it.

        A row that the data set has gets the header that its file had, and becomes no
        clip. Another part of a known file gets the number of its file.

        Raises
        ------
        InputError
            If the row is new, and its group must have no other clips.
        """
        name = plain_name(row.filepath, root)
        parts = self.parts_of(name)
        if self._absolute and not parts:
            parts = self.parts_of(posixpath.normpath(files.join(root, row.filepath)))
        channel = self.channel if row.channel is None else row.channel
        same = [part for part in parts if part.is_of(row, channel)]
        was_rejected = row.filepath in self.rejected
        if self.retry:
            if same or not was_rejected:
                return None
            self.retried.add(row.filepath)
        elif same or was_rejected:
            self.known += 1
            if len(self._named) < NAMED_IN_ERRORS:
                self._named.append(row.filepath)
            return row._replace(recorded=same[0].header) if same else None
        self.new += 1
        if self.groups_are_whole and row.problem is None:
            self._check_group(row, has_parts=bool(parts))
        if not parts:
            return row
        row = row._replace(file=parts[0].file)
        problem = row.problem or self._file_problem(row, name)
        return row._replace(problem=problem)

    def _check_group(self, row: SourceRow, *, has_parts: bool) -> None:
        """Raises InputError if the data set has clips of a row's group."""
        if row.group in self.group_splits:
            whose = f"of the group {row.group.replace(GROUP_SEPARATOR, ', ')}"
        elif has_parts and not self.file_groups:
            whose = "a part of a file"
        else:
            return
        raise InputError(
            f"{row.filepath} is {whose}, of which the data set has other clips. Its "
            "recipe measures all clips of a group together, as cmvn(over='group') "
            "does, so that more clips would change the examples of the others. Add "
            "clips of new groups alone, or record all clips again."
        )

    def _file_problem(self, row: SourceRow, name: str) -> str | None:
        """The problem if another part of the file has another split or group."""
        split = self.file_splits.get(name, row.split)
        if split != row.split:
            return (
                f"is in the split {row.split}, but another clip of the same file is in "
                f"{split} of the data set; a file must be in one split"
            )
        if self.file_groups.get(row.file, row.group) != row.group:
            return (
                f"is in the group {row.group.replace(GROUP_SEPARATOR, ', ')}, but clip "
                f"{row.file} of the data set is a part of the same file and in another "
                "group; a file must be in one group"
            )
        return None

    def check(self, skip: bool) -> None:
        """Raises InputError if clips are known, and not to be skipped."""
        if skip or not self.known:
            return
        more = self.known - len(self._named)
        shown = "\n  ".join(self._named) + (f"\n  ... and {more} more" if more else "")
        raise InputError(
            f"{self.known} of {self.known + self.new} clips have names that the data "
            f"set has already, or that it has rejected:\n  {shown}\nIf they are the "
            "same files, give `known` skip to add only the others. If not, give the "
            "folder above as `input`, so that names contain the folder, or rename them."
        )


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


def _key(name: str) -> int:
    return text_key("recorded", name)
