"""Poison clips: those that have ended or stalled the process working on them, twice.

::

    a process ends or stalls at a clip -> note in the work folder
    a second one does                  -> poison clip -> reject

If decoding was at fault, all clips of the file are rejected. If a step of the recipe
was at fault, only the clip is. All examples of a clip are lost together, also those in
shards that were finished before: which shards were finished depends on the number of
workers, and the bytes must not. The work folder has a file for each, so that the same
command rejects these clips at once, on any machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from beam_pipeline import errors
from beam_pipeline.errors import ClipCrash, ClipError, ClipTimeout
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.process import DECODE, PROBE, Mark, Marked
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import POISON_CLIPS, Claim

_ONE_THREAD = "one-thread"
_TWICE = ", twice"

# What is at fault: a stage, an input and a file; or "step", an input and a row.
Cause = tuple[str, int, str | int]


class PoisonClip(NamedTuple):
    """A clip at which processes have ended.

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
    limit_s : float
        The time limit that was passed; 0 if the process ended.
    changed_ns : int
        When its file was last changed; 0 if unknown. The clip is tried again after
        another change.
    exits : int
        How many processes have ended.
    """

    row: int
    source: int
    filepath: str
    stage: str
    error: str
    reason: str
    limit_s: float = 0.0
    changed_ns: int = 0
    exits: int = 2

    @property
    def is_poison(self) -> bool:
        """Whether it must not be worked on again."""
        return self.exits > 1

    def to_error(self) -> ClipError:
        """Returns the error that rejects the clip."""
        kind: type[ClipError] = getattr(errors, self.error)
        return kind(self.filepath, self.reason)


def cause_of(found: PoisonClip | Mark) -> Cause:
    """What is at fault if a process ends or stalls at a mark."""
    if found.stage in (PROBE, DECODE):
        return found.stage, found.source, found.filepath
    return "step", found.source, found.row


class PoisonClips:
    """The poison clips of a run, by what is at fault."""

    def __init__(self, clips: Iterable[PoisonClip] = ()) -> None:
        self._by_cause = {cause_of(clip): clip for clip in clips if clip.is_poison}

    def __len__(self) -> int:
        return len(self._by_cause)

    def __iter__(self) -> Iterator[PoisonClip]:
        return iter(self._by_cause.values())

    def probed(self, row: Marked) -> PoisonClip | None:
        """Returns the poison clip, found while headers were read, that a row is."""
        return self._by_cause.get((PROBE, row.source, row.filepath))

    def recorded(self, clip: Marked) -> PoisonClip | None:
        """Returns the poison clip, found while shards were written, that a clip is."""
        if not self._by_cause:
            return None
        return self._by_cause.get(
            (DECODE, clip.source, clip.filepath)
        ) or self._by_cause.get(("step", clip.source, clip.row))

    def among(self, clips: Iterable[Marked]) -> bool:
        """Whether :meth:`recorded` finds one of some clips."""
        return any(map(self.recorded, clips))


NO_POISON_CLIPS = PoisonClips()


@dataclass(frozen=True)
class Exits:
    """Notes in a work folder at which clips processes have ended."""

    inputs: Sequence[Input]
    work_folder: str
    claim: Claim
    limit_s: float

    def note(self, mark: Mark, exit_text: str | None) -> None:
        """Notes an exit; the second one at a clip makes it a poison clip.

        ``exit_text`` says how the process ended; None if the time limit had passed.
        """
        if exit_text is None:
            error, limit_s = ClipTimeout.__name__, self.limit_s
            reason = f"took longer than the time limit of {limit_s:g} s"
        else:
            error, limit_s = ClipCrash.__name__, 0.0
            reason = f"ended the process with {exit_text}"
        reason = f"{mark.describe()} {reason}"
        path = _path_of(mark, self.work_folder)
        exits = 1
        if files.exists(path):
            before = _read(path)
            exits += before.exits
            is_equal = reason == before.reason.removesuffix(_TWICE)
            reason += _TWICE if is_equal else f"; before that, {before.reason}"
        changed_ns = changed_ns_of(locate(self.inputs, mark.source, mark.filepath))
        at = mark.row, mark.source, mark.filepath, mark.stage
        clip = PoisonClip(*at, error, reason, limit_s, changed_ns, exits)
        self.claim.write(path, json.dumps(clip._asdict(), indent=2).encode())

    def want_one_thread(self) -> None:
        """Notes that a process ended while its threads worked on several clips."""
        path = files.join(self.work_folder, POISON_CLIPS, _ONE_THREAD)
        self.claim.write(path, b"")


def only_one_thread(work_folder: str) -> bool:
    """Whether threads of a process must work on one clip after the other."""
    return files.exists(files.join(work_folder, POISON_CLIPS, _ONE_THREAD))


def count_exits(work_folder: str) -> int:
    """Returns how many exits have been noted."""
    exits = sum(clip.exits for clip in _stored(work_folder))
    return exits + only_one_thread(work_folder)


def read_poison_clips(work_folder: str) -> PoisonClips:
    """Returns the poison clips of a run."""
    return PoisonClips(_stored(work_folder))


def changed_ns_of(path: str) -> int:
    """Returns when a file was last changed; 0 if it is gone or its time unknown."""
    try:
        return files.changed_ns(path)
    except FileNotFoundError:
        return 0


def drop_changed(work_folder: str, inputs: Sequence[Input], limit_s: float) -> None:
    """Deletes the poison clips of an earlier run that deserve another try.

    These are clips whose file has changed since, and those that passed a time limit
    which is higher now.
    """
    for clip in list(_stored(work_folder)):
        path = locate(inputs, clip.source, clip.filepath)
        more_time = 0 < clip.limit_s < limit_s
        if more_time or changed_ns_of(path) != clip.changed_ns:
            files.delete([_path_of(clip, work_folder)])


def _stored(work_folder: str) -> Iterator[PoisonClip]:
    folder = files.join(work_folder, POISON_CLIPS)
    if not files.is_folder(folder):
        return
    for name in files.list_files(folder):
        if name != _ONE_THREAD:
            yield _read(files.join(folder, name))


def _read(path: str) -> PoisonClip:
    return PoisonClip(**json.loads(files.read_bytes(path)))


def _path_of(clip: PoisonClip | Mark, work_folder: str) -> str:
    name = bytes_sha256(repr(cause_of(clip)).encode())
    return files.join(work_folder, POISON_CLIPS, f"{name}.json")
