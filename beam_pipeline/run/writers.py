"""How many processes write the shards of a plan on this machine."""

from __future__ import annotations

import os
import sys

from beam_pipeline.dataset.work_folder import Totals
from beam_pipeline.plan.summary import PlanSummary

# Starting another process costs more time than it saves with less audio than this.
SECONDS_PER_WRITER = 600.0


def totals_of(summary: PlanSummary) -> Totals:
    """Returns the number of examples, and the seconds of audio, of a plan."""
    layouts = summary.layouts
    return Totals(
        sum(layout.total for layout in layouts.values()),
        sum(summary.seconds(split) for split in layouts),
    )


def writers_for(summary: PlanSummary, workers: int | None) -> int:
    """Returns the number of processes that write: at most one for each shard.

    ``workers`` is the number that the user wants. None means one for each core, but no
    more than one for each ten minutes of audio, rounded up.
    """
    shards = max((layout.shards for layout in summary.layouts.values()), default=1)
    if workers is None:
        cores = (
            len(os.sched_getaffinity(0))
            if sys.platform == "linux"
            else (os.cpu_count() or 1)
        )
        workers = min(cores, 1 + int(totals_of(summary).seconds / SECONDS_PER_WRITER))
    return max(1, min(workers, shards))
