"""Clips that other data sets hold, so that a run leaves them out.

A listed clip is known by the number of its input, its path relative to the input, and
by which part of its file it is. Its class or its columns may have changed since.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from beam_pipeline.arrays import Integers, Keys
from beam_pipeline.audio.clip_reader import output_frames
from beam_pipeline.errors import InputError
from beam_pipeline.hashing import text_key
from beam_pipeline.inputs.columns import Header, SourceRow
from beam_pipeline.inputs.splits import shown_group
from beam_pipeline.storage import files
from beam_pipeline.transforms.base import seconds_to_frames


class RecordedPart(NamedTuple):
    """A part of a file that is a clip of a data set.

    ``start`` and ``frames`` are at the output rate. ``channel`` is -1 if the clip has
    all channels, or their mean.
    """

    header: Header
    rate_hz: int
    start: int
    frames: int
    channel: int

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
    """The clips of data sets that need not be recorded; some 70 bytes for each of them.

    Parameters
    ----------
    keys : numpy.ndarray, shape (clips,), uint64
        The :func:`recorded_key` of each clip.
    numbers : numpy.ndarray, shape (clips, 7), int64
        The fields of a :class:`RecordedPart`, the header's first.
    channel : int
        The only channel that the recipe takes; -1: all, or their mean.
    splits : mapping
        The :func:`recorded_group` of groups to their splits, if columns or inputs give
        the splits.
    has_groups : bool
        Whether the recipe names the columns of groups; else each file is one.
    names : sequence of str
        The paths of the clips, if a table of events names files.
    """

    keys: Keys
    numbers: Integers
    channel: int = -1
    splits: Mapping[str, str] = field(default_factory=dict)
    has_groups: bool = False
    names: Sequence[str] = ()

    def __post_init__(self) -> None:
        order = np.argsort(self.keys, kind="stable")
        self.keys, self.numbers = self.keys[order], self.numbers[order]

    def compared(self, row: SourceRow, root: str) -> SourceRow:
        """Marks a row that is recorded already with its header when it was recorded.

        Another row gets a problem if its group is in another split of the data sets.
        """
        name = plain_name(row.filepath, root)
        channel = self.channel if row.channel is None else row.channel
        for part in self._parts_of(recorded_key(row.source, name)):
            if part.is_of(row, channel):
                return row._replace(recorded=part.header)
        if row.problem is None and self.splits:
            row = row._replace(problem=self._group_problem(row, name))
        return row

    def _parts_of(self, key: int) -> list[RecordedPart]:
        first, stop = (
            int(np.searchsorted(self.keys, np.uint64(key), side))
            for side in ("left", "right")
        )
        return [
            RecordedPart(Header(*numbers[:3]), *numbers[3:])
            for numbers in self.numbers[first:stop].tolist()
        ]

    def _group_problem(self, row: SourceRow, name: str) -> str | None:
        group = row.group if self.has_groups else name
        split = self.splits.get(recorded_group(row.source, group, self.has_groups))
        if split is None:
            return None
        what = (
            f"of its group {shown_group(row.group)}"
            if self.has_groups
            else "of the same file"
        )
        if row.split and row.split != split:
            return (
                f"is in the split {row.split}, but another clip {what} is in {split} "
                "of a data set of `skip_recorded`"
            )
        return None


def recorded_key(source: int, name: str) -> int:
    """Returns the hash by which a file of an input is known."""
    return text_key(f"recorded {source}", name)


def recorded_group(source: int, group: str, has_groups: bool) -> str:
    """Returns the name of a group among those of all inputs; a file is of one input."""
    return group if has_groups else f"{source} {group}"


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
