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

NAMED_IN_ERRORS = 5


def check_rejects(
    listing: ListingSummary, rejects: Sequence[Reject], max_rejected: str
) -> None:
    """Raises TooManyRejected if there are more rejected clips than allowed."""
    rejected = len({reject.row for reject in rejects})
    if rejected > allowed_rejects(max_rejected, listing.clips):
        raise TooManyRejected(
            f"{rejected} of {listing.clips} clips were rejected, and --max-rejected is "
            f"{max_rejected}:\n{name_some(rejects)}\nEverything else is written and kept. "
            "To accept the data set without them, give the same command again with "
            f"--max-rejected {rejected}."
        )


def check_any_accepted(summary: PlanSummary, rejects: Sequence[Reject]) -> None:
    """Raises TooManyRejected if every clip was, however many may be."""
    lost = sum(reject.examples for reject in rejects)
    planned = sum(layout.total for layout in summary.layouts.values())
    if summary.example_format is None or lost >= planned:
        raise TooManyRejected(
            f"Not one of {summary.listing.clips} clips can be recorded:\n"
            f"{name_some(rejects)}"
        )


def name_some(rejects: Sequence[Reject]) -> str:
    first = sorted(rejects, key=lambda reject: reject.row)
    lines = [f"  {r.filepath}: {r.reason}" for r in first[:NAMED_IN_ERRORS]]
    if len(first) > NAMED_IN_ERRORS:
        lines.append(f"  ... and {len(first) - NAMED_IN_ERRORS} more in {REJECTED}")
    return "\n".join(lines)


def rejects_text(rejects: Iterable[Reject]) -> bytes:
    """``rejected.jsonl``: one line a reject, by place in the listing."""
    lines = [
        json.dumps(
            {
                "path": reject.filepath,
                "stage": reject.stage,
                "error": reject.error,
                "reason": reject.reason,
            },
            ensure_ascii=False,
        )
        for reject in sorted(rejects, key=lambda r: (r.row, r.shard or "", r.reason))
    ]
    return "".join(line + "\n" for line in lines).encode()
