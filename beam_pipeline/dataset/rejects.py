"""Rejected clips: the file that lists them, and the limit on their number."""

from __future__ import annotations

import heapq
import json
import math
import warnings
from collections.abc import Collection, Iterable
from dataclasses import asdict, dataclass
from itertools import islice
from typing import NamedTuple

import numpy as np

from beam_pipeline.dataset.folders import METADATA, NOTHING_NEW, REJECTED, clear_work
from beam_pipeline.dataset.job import Job
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import (
    DataSetWarning,
    IncompleteRun,
    InputError,
    TooManyRejected,
    Unreadable,
)
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.planning.clips import Reject
from beam_pipeline.planning.summary import PlanSummary, left_out_words
from beam_pipeline.recipe.run_options import allowed_rejects
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import SortedValues
from beam_pipeline.text import hidden, parse_json, time_text, typed

NAMED_IN_ERRORS = 5


@dataclass(frozen=True)
class RejectLine:
    """A line of ``rejected.jsonl``."""

    path: str
    stage: str
    error: str
    reason: str
    seconds: float | None


def check_rejects(
    listing: ListingSummary,
    rejects: Collection[Reject],
    max_rejected: str,
    drafts: str = "",
) -> None:
    """Raises TooManyRejected if there are more rejected clips than allowed.

    ``drafts`` is the work folder if the output folder has a data set, which the run
    replaces or adds to: until the run is complete, the list of its rejects is there.
    """
    file = files.join(drafts, REJECTED) if drafts else REJECTED
    before = " Until then, the data set stays as it was before." if drafts else ""
    rejected = count_clips(rejects)
    if rejected > allowed_rejects(max_rejected, listing.clips):
        raise TooManyRejected(
            f"The run rejected {rejected} of {listing.clips} clips, but `max_rejected` "
            f"is {max_rejected}:\n{name_some(rejects, f' in {file}')}\n"
            "All other clips are written. "
            "To accept the data set without the rejected clips, give the same command "
            f"again with `max_rejected` {rejected}.{before}"
        )


def check_readable(
    listing: ListingSummary, rejects: Iterable[Reject], kept: str
) -> None:
    """Raises IncompleteRun if the machine failed at a clip, for this may pass.

    ``kept`` is a sentence that says what was done with all other clips.
    """
    failed = {r.row: r for r in rejects if r.error == Unreadable.__name__}
    if failed:
        raise IncompleteRun(
            f"The disk, the network or the memory failed at {len(failed)} of "
            f"{listing.clips} clips:\n{name_some(failed.values(), '')}\n{kept} To try "
            "the clips above again, give the same command again. If they stay "
            "unreadable, `allow_unreadable` rejects them."
        )


def check_any_accepted(summary: PlanSummary, rejects: Collection[Reject]) -> None:
    """Raises TooManyRejected if no clip is left, whatever ``max_rejected`` allows.

    Raises InputError if all of them are left out.
    """
    if summary.listing.clips and not rejects and summary.example_format is None:
        raise InputError(
            f"All {summary.listing.clips} clips are left out: "
            f"{left_out_words(summary.left_out)}. Use a shorter "
            "window, or change `min_seconds`, `max_seconds`, `short_clips`, "
            "`windows_at`, or its `events`."
        )
    lost = sum(reject.examples for reject in rejects)
    planned = sum(layout.total for layout in summary.layouts.values())
    if summary.example_format is None or lost >= planned:
        left_out = left_out_words(summary.left_out)
        raise TooManyRejected(
            f"None of {summary.listing.clips} clips can be recorded:\n"
            f"{name_some(rejects, '')}" + (f"\n  {left_out}" if left_out else "")
        )


def name_some(rejects: Collection[Reject], file: str = f" in {REJECTED}") -> str:
    """The first rejects with their reasons, one line each, for an error.

    ``file`` says where all of them are.
    """
    first = heapq.nsmallest(NAMED_IN_ERRORS, rejects, key=lambda reject: reject.row)
    return first_lines(((r.filepath, r.reason) for r in first), len(rejects), file)


def first_lines(found: Iterable[tuple[str, str]], count: int, more: str = "") -> str:
    """Returns a line for each of the first files and what is wrong with them.

    ``count`` is the number of all of them; ``more`` ends the line of the others.
    """
    lines = [f"  {path}: {why}" for path, why in islice(found, NAMED_IN_ERRORS)]
    if count > NAMED_IN_ERRORS:
        lines.append(f"  ... and {count - NAMED_IN_ERRORS} more{more}")
    return "\n".join(lines)


def count_clips(rejects: Iterable[Reject]) -> int:
    """Returns the number of clips that some rejects are of."""
    return len(np.unique(np.fromiter((reject.row for reject in rejects), np.int64)))


def sort_rejects(rejects: Iterable[Reject]) -> SortedValues[Reject]:
    """Returns rejects in the order of their rows."""
    return SortedValues(lambda r: (r.row, r.shard or "", r.reason), rejects)


def reject_line(reject: Reject) -> bytes:
    """Returns the line of a reject in ``rejected.jsonl``."""
    line = RejectLine(
        reject.filepath,
        reject.stage,
        reject.error,
        hidden(reject.reason),
        reject.seconds,
    )
    return (json.dumps(asdict(line), ensure_ascii=False) + "\n").encode()


class LostAudio(NamedTuple):
    """The audio of rejects together, and how many have an unknown length."""

    seconds: float
    unknown: int

    @classmethod
    def of(cls, seconds: Iterable[float | None]) -> LostAudio:
        """Returns the sum of the seconds of rejects."""
        found = list(seconds)
        known = [some for some in found if some is not None]
        return cls(math.fsum(known), len(found) - len(known))

    def __str__(self) -> str:
        """Returns `` (1.50 hours, 3 of unknown length)``; empty if there is none."""
        words = []
        if self.seconds:
            words.append(time_text(self.seconds))
        if self.unknown:
            words.append(f"{self.unknown:,} of unknown length")
        return f" ({', '.join(words)})" if words else ""


def write_rejects(path: str, rejects: Iterable[Reject]) -> None:
    """Writes ``rejected.jsonl``: one line for each reject, in the given order."""
    with files.replacing(path) as file:
        file.writelines(map(reject_line, rejects))


def read_rejects(folder: str, name: str = REJECTED) -> list[RejectLine]:
    """Returns the rejects of a data set, as the file lists them.

    Raises
    ------
    InputError
        If the list of rejects is missing or damaged.
    """
    path, rejects = files.join(folder, name), list[RejectLine]()
    try:
        for number, line in enumerate(files.read_bytes(path).splitlines(), 1):
            rejects.append(typed(RejectLine, parse_json(line), f"line {number}"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}. Restore it.") from error
    return rejects


def lost_audio(folder: str, metadata: Metadata) -> LostAudio:
    """Returns how much audio a data set's rejects have; see :func:`read_rejects`."""
    rejects = []
    if metadata.recipe is not None and metadata.rejected:
        rejects = read_rejects(folder)
    return LostAudio.of(reject.seconds for reject in rejects)


def nothing_new(job: Job) -> Metadata | None:
    """Ends a run that had nothing to record beside other data sets: no folder is left.

    Warns if clips were rejected.

    Returns
    -------
    Metadata or None
        Without splits. None if the run had something to record.
    """
    work, output = job.work_folder, job.output_folder
    if not files.exists(files.join(work, NOTHING_NEW)):
        return None
    rejects = read_rejects(work, NOTHING_NEW)
    if rejects:
        found = ((each.path, each.reason) for each in rejects)
        lines = first_lines(found, len(rejects))
        text = f"Nothing was recorded. These clips were rejected:\n{lines}"
        warnings.warn(text, DataSetWarning, stacklevel=4)  # of `record`
    clear_work(work, job.claim)
    if not files.exists(files.join(output, METADATA)):
        job.claim.discard(files.join(output, REJECTED))
    number = len({each.path for each in rejects})
    return Metadata(job.recipe, {}, (), {}, clips=number, rejected=number)
