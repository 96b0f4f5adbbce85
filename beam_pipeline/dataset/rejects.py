"""Rejected clips: the file that lists them, and the limit on their number."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from beam_pipeline.dataset.output_folder import REJECTED
from beam_pipeline.errors import TooManyRejected
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.plan.clips import Reject
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.recipe.values import allowed_rejects
from beam_pipeline.secrets_in_text import hidden

NAMED_IN_ERRORS = 5

# Where clips are rejected before the plan; those that fail later are in the manifest.
HEADER_STAGES = ("sources", "probe")


def check_rejects(
    listing: ListingSummary, rejects: Sequence[Reject], max_rejected: str
) -> None:
    """Raises TooManyRejected if there are more rejected clips than allowed."""
    rejected = len({reject.row for reject in rejects})
    if rejected > allowed_rejects(max_rejected, listing.clips):
        raise TooManyRejected(
            f"The run rejected {rejected} of {listing.clips} clips, but `max_rejected` "
            f"is {max_rejected}:\n{name_some(rejects)}\nAll other clips are written. "
            "To accept the data set without the rejected clips, give the same command "
            f"again with `max_rejected` {rejected}."
        )


def check_any_accepted(summary: PlanSummary, rejects: Sequence[Reject]) -> None:
    """Raises TooManyRejected if no clip is left, whatever ``max_rejected`` allows."""
    lost = sum(reject.examples for reject in rejects)
    planned = sum(layout.total for layout in summary.layouts.values())
    if summary.example_format is None or lost >= planned:
        raise TooManyRejected(
            f"None of {summary.listing.clips} clips can be recorded:\n"
            f"{name_some(rejects, '')}"
        )


def name_some(rejects: Sequence[Reject], file: str = f" in {REJECTED}") -> str:
    """The first rejects with their reasons, one line each, for an error.

    ``file`` says where all of them are.
    """
    ordered = sorted(rejects, key=lambda reject: reject.row)
    lines = [f"  {r.filepath}: {r.reason}" for r in ordered[:NAMED_IN_ERRORS]]
    if len(ordered) > NAMED_IN_ERRORS:
        lines.append(f"  ... and {len(ordered) - NAMED_IN_ERRORS} more{file}")
    return "\n".join(lines)


def rejects_text(rejects: Iterable[Reject]) -> bytes:
    """The content of ``rejected.jsonl``: one line for each reject, ordered by row."""
    lines = [
        json.dumps(
            {
                "path": reject.filepath,
                "stage": reject.stage,
                "error": reject.error,
                "reason": hidden(reject.reason),
            },
            ensure_ascii=False,
        )
        for reject in sorted(rejects, key=lambda r: (r.row, r.shard or "", r.reason))
    ]
    return "".join(line + "\n" for line in lines).encode()
