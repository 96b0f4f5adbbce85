"""Clips that ended or stalled the process that worked on them.

::

    a process dies or stalls -> suspect, in the work folder -> reject, from then on

A suspect found by decoding stands for its file, so for every clip of that file. One
found by a step stands for its clip. All examples of a clip are lost together, also
those in shards that were finished before: which shards were finished depends on the
number of workers, and the bytes must not.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from beam_pipeline import errors
from beam_pipeline.errors import ClipError
from beam_pipeline.marks import Mark, Marked
from beam_pipeline.plan.segments import ShardWork

PROBE = "probe"
DECODE = "decode"


class Suspect(NamedTuple):
    """A clip that must not be worked on again.

    Attributes
    ----------
    row, source, filepath
        As in the listing.
    stage : str
        Where it happened; its reject has the same stage.
    error : str
        The name of a kind of ClipError.
    reason : str
        What happened.
    limit : float
        The limit that was passed, seconds or bytes; 0 if there was none.
    changed_ns : int
        When its file was last changed; 0 if unknown. The suspicion ends if it changes.
    """

    row: int
    source: int
    filepath: str
    stage: str
    error: str
    reason: str
    limit: float = 0.0
    changed_ns: int = 0

    @property
    def fault(self) -> tuple[str, int, str | int]:
        """What is at fault: a file, or a row whose windows a step cannot bear."""
        return fault_of(self)

    def to_error(self) -> ClipError:
        """Returns the error that rejects the clip."""
        kind: type[ClipError] = getattr(errors, self.error)
        return kind(self.filepath, self.reason)


def fault_of(found: Suspect | Mark) -> tuple[str, int, str | int]:
    """What is at fault if a process ends or stalls at a mark."""
    if found.stage in (PROBE, DECODE):
        return found.stage, found.source, found.filepath
    return "step", found.source, found.row


class Suspects:
    """The suspects of a run, by what is at fault."""

    def __init__(self, suspects: Iterable[Suspect] = ()) -> None:
        self._by_fault = {suspect.fault: suspect for suspect in suspects}

    def probed(self, row: Marked) -> Suspect | None:
        """Returns the suspect, found while headers were read, that a row is."""
        return self._by_fault.get((PROBE, row.source, row.filepath))

    def recorded(self, clip: Marked) -> Suspect | None:
        """Returns the suspect, found while shards were written, that a clip is."""
        if not self._by_fault:
            return None
        return self._by_fault.get(
            (DECODE, clip.source, clip.filepath)
        ) or self._by_fault.get(("step", clip.source, clip.row))

    def among(self, work: ShardWork) -> bool:
        """Whether a shard has examples of a suspect."""
        return bool(self._by_fault) and any(
            self.recorded(segment.clip) for segment in work.task.segments
        )


NO_SUSPECTS = Suspects()
