"""The plan of a job on this machine.

It is made as on an engine, by the same functions, without a runner::

    inputs -> rows -> pages of clips -> plan

A clip that ends or stalls a process is rejected, so the plan is made in a process that
is watched, if one starts fast.
"""

from __future__ import annotations

from contextlib import closing
from functools import partial

from beam_pipeline.dataset.rejects import sort_rejects
from beam_pipeline.pipeline.job import Job
from beam_pipeline.pipeline.planner import (
    ClipPages,
    make_plan,
    planned_rejects,
    planned_work,
    read_plan,
)
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.run.forecast import forecast
from beam_pipeline.run.plan_result import Plan
from beam_pipeline.run.stored import phase_folder
from beam_pipeline.run.workers import Workers
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import Page


def plan_here(job: Job, folder: str, processes: Workers) -> PlanSummary:
    """Publishes the plan of a job in a folder, in a process that is watched."""
    return processes.call(partial(plan_phase, job, folder), job, "plan")


def plan_phase(job: Job, folder: str, _: int = 0) -> PlanSummary:
    """Publishes the plan of a job in a folder, which is emptied before."""
    files.delete_below(folder)  # a process before this one may have died
    files.make_folder(folder)
    listing, pages = job.listing(), list[Page]()
    with closing(ClipPages(job, folder)) as clips:
        for rows in listing.blocks():
            clips.add(rows)
            if clips.is_full():
                pages += clips.flush()
        pages += clips.flush()
    return make_plan(pages, listing.summary(), job, folder)


def plan_local(job: Job, time_limit: float | None, sample: int = 0) -> Plan:
    """Returns a plan and the rejects by header; writes only into the work folder.

    With a sample of this many examples, it has a forecast of the run.
    """
    with phase_folder(job) as folder, Workers(time_limit) as processes:
        summary = plan_here(job, folder, processes)
        found = None
        if sample:
            works = planned_work(0, folder)
            found = forecast(summary, works, sample, job, folder, processes)
        rejects = planned_rejects(read_plan(folder), folder)
        return Plan(summary, sort_rejects(rejects), found)
