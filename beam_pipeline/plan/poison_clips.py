"""Clips that ended or stalled the process that worked on them, twice.

::

    two processes end or stall at a clip -> poison clip, in the work folder -> reject

If decoding was at fault, all clips of the file are rejected. If a step of the recipe
was at fault, only the clip is.
All examples of a clip are lost together, also those in shards that were finished
before: which shards were finished depends on the number of workers, and the bytes must
not. The work folder has a file for each, so that the same command rejects these clips
at once, on any machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from beam_pipeline import errors
from beam_pipeline.errors import ClipError
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.marks import Mark, Marked
from beam_pipeline.plan.segments import ShardWork
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import Claim

# The folder, in the work folder.
POISON_CLIPS = "poison_clips"

PROBE = "probe"
DECODE = "decode"

# What is at fault: a stage and a file, or "step" and a row.
Cause = tuple[str, int, str | int]


class PoisonClip(NamedTuple):
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
    limit_s : float
        The time limit that was passed; 0 if the process ended.
    changed_ns : int
        When its file was last changed; 0 if unknown. The clip is tried again after
        another change.
    """

    row: int
    source: int
    filepath: str
    stage: str
    error: str
    reason: str
    limit_s: float = 0.0
    changed_ns: int = 0

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
        self._by_cause = {cause_of(clip): clip for clip in clips}

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

    def among(self, work: ShardWork) -> bool:
        """Whether a shard has examples of a poison clip."""
        return bool(self._by_cause) and any(
            self.recorded(segment.clip) for segment in work.task.segments
        )


NO_POISON_CLIPS = PoisonClips()


def write_poison_clip(clip: PoisonClip, work_folder: str, claim: Claim) -> None:
    """Adds a poison clip to those of a run."""
    content = json.dumps(clip._asdict(), indent=2).encode()
    claim.write(_path_of(clip, work_folder), content)


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
        yield PoisonClip(**json.loads(files.read_bytes(files.join(folder, name))))


def _path_of(clip: PoisonClip, work_folder: str) -> str:
    digest = hashlib.blake2b(repr(cause_of(clip)).encode(), digest_size=16)
    return files.join(work_folder, POISON_CLIPS, f"{digest.hexdigest()}.json")
