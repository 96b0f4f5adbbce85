"""The end of a job: its data set becomes complete, or has a generation more."""

from __future__ import annotations

from collections.abc import Iterable

from beam_pipeline.dataset.add_generation import add_generation
from beam_pipeline.dataset.finish import finish_data_set
from beam_pipeline.dataset.manifest import ManifestPart
from beam_pipeline.pipeline.job import Job
from beam_pipeline.plan.clips import Reject
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.write.observations import Seen


def finish_job(
    summary: PlanSummary,
    infos: Iterable[ShardInfo],
    rejects: Iterable[Reject],
    manifest: Iterable[ManifestPart],
    observed: Iterable[tuple[str, Seen]],
    job: Job,
) -> str:
    """Calls :func:`finish_data_set` or :func:`add_generation` for a job."""
    if job.addition is None:
        return finish_data_set(
            summary,
            infos,
            rejects,
            manifest,
            observed,
            output=job.output,
            shards_folder=job.shards_folder(),
            work_folder=job.work_folder,
            recipe=job.recipe,
            max_rejected=job.max_rejected,
            columns=job.inputs[0].columns,
        )
    return add_generation(
        summary,
        infos,
        rejects,
        manifest,
        observed,
        addition=job.addition,
        output=job.output,
        shards_folder=job.shards_folder(),
        work_folder=job.work_folder,
        recipe=job.recipe,
        max_rejected=job.max_rejected,
        columns=job.inputs[0].columns,
    )
