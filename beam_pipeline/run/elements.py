"""The job for examples of unknown number: on this machine, or on a runner of Beam.

::

    blocks -> write_block -> lay_out -> join_shard -> finish_elements
              load, split,   bounds     copies        metadata.json
              encode                    members

Each block is written to files of members by one worker. Then the numbers of all files
meet in one place, which decides where shards begin and end. The files stay where they
are until workers join them to shards.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from beam_pipeline.dataset import element_set, folders
from beam_pipeline.dataset.element_set import (
    BlockResult,
    ElementSet,
    JoinedShard,
    StoredBlock,
    join_shard,
)
from beam_pipeline.dataset.progress import (
    WATCH_S,
    Reporter,
    RunProgress,
    Totals,
    Update,
    progress_bar,
)
from beam_pipeline.planning.shards import ShardInfo
from beam_pipeline.process import WorkerState, usable_cores
from beam_pipeline.recipe.recipe import RunOptions
from beam_pipeline.run.engine import check_runner, pipeline_for, run_pipeline
from beam_pipeline.run.workers import Workers, can_fork
from beam_pipeline.transforms.own_code import by_value

if TYPE_CHECKING:
    import apache_beam as beam

# A line is a stage, and its comment is the type of what comes out of it.
# fmt: off

def build_elements_pipeline(
    pipeline: beam.Pipeline, job: ElementSet, blocks: Sequence[StoredBlock]
) -> beam.PCollection:
    """Builds the job, from its blocks to ``metadata.json``, whose path it returns."""
    import apache_beam as beam
    from apache_beam.pvalue import AsIter

    once = pipeline | "Once" >> beam.Create([None], reshuffle=False)
    results = (
        pipeline
        | "Blocks" >> beam.Create(blocks)                       # StoredBlock
        | "SpreadBlocks" >> beam.Reshuffle()
        | "WriteBlocks" >> beam.Map(_write, job)                # BlockResult
    )
    shards = (
        once
        | "LayOut" >> beam.FlatMap(_lay_out, AsIter(results), job)  # JoinedShard
        | "SpreadShards" >> beam.Reshuffle()
        | "JoinShards" >> beam.Map(_join, job)                  # ShardInfo
    )
    return (
        once
        | "Finish" >> beam.Map(_finish, AsIter(shards), AsIter(results), job)
    )                                                           # path

# fmt: on


def _write(block: StoredBlock, job: ElementSet) -> BlockResult:
    with folders.storing_error(job.target.work, job.target.claim):
        return element_set.write_block(block, job)


def _lay_out(
    _: None, results: Iterable[BlockResult], job: ElementSet
) -> Iterator[JoinedShard]:
    with folders.storing_error(job.target.work, job.target.claim):
        yield from element_set.lay_out(job, results)


def _join(shard: JoinedShard, job: ElementSet) -> ShardInfo:
    with folders.storing_error(job.target.work, job.target.claim):
        return join_shard(shard, job.sizes, job.target.output, job.target.drafts)


def _finish(
    _: None, infos: Iterable[ShardInfo], results: Iterable[BlockResult], job: ElementSet
) -> str:
    with folders.storing_error(job.target.work, job.target.claim):
        return element_set.finish_elements(job, infos, results)


_NOTHING_KEPT = "No data set was written. Give the same call again."


def check_run(
    beam_args: Sequence[str], workers: int | None = None, overwrite: bool = False
) -> RunOptions:
    """Returns the options of a run; checks its engine before anything is written.

    Raises
    ------
    OptionError, EngineError
        If a value cannot be used, or the engine cannot be reached.
    """
    run = RunOptions(beam_args=beam_args, workers=workers, overwrite=overwrite)
    check_runner(run)
    return run


def run_elements(
    job: ElementSet,
    blocks: Sequence[StoredBlock],
    run: RunOptions,
    progress: Callable[[int, int], Any] | bool | None,
    description: str,
) -> None:
    """Runs the job, to its metadata.

    Parameters
    ----------
    run : RunOptions
        ``workers`` is the number of processes on this machine. Default: one for each
        core, if they start fast and have work; otherwise one. With ``beam_args``,
        Beam's runner among them runs the job.
    progress : callable or bool, optional
        Called with the number of finished sources, and of all; or whether to show a
        bar. Default: in a terminal or a notebook.
    description : str
        The name of the bar.

    Raises
    ------
    AudioTFRecordsError
        The error of a worker, on whatever machine; WorkerDied or IncompleteRun if one
        ended without an error.
    """
    target, totals = job.target, Totals(job.sources or 0, 0.0)
    with ExitStack() as stack:

        def watch(_: Totals) -> Update:
            if callable(progress):
                return lambda done, _: progress(done, totals.examples)
            # Not before the writers have started: its thread would keep them from
            # forking.
            bar = progress_bar(job.sources, progress, description, " examples")
            stack.enter_context(bar)
            return lambda done, _: bar.update(done - bar.n)

        if not run.beam_args:
            report = partial(Reporter.of_workers, watch, totals)
            _run_here(job, blocks, run.workers, report)
            return

        def finished() -> RunProgress:
            return RunProgress(totals, element_set.count_sources(target.receipts))

        reporter = Reporter(watch, finished)
        with reporter.looking(WATCH_S), pipeline_for(run.beam_args) as pipeline:
            build_elements_pipeline(pipeline, job, blocks)
            run_pipeline(pipeline, target.output, target.work, _NOTHING_KEPT)
        reporter.finish()


def _run_here(
    job: ElementSet,
    blocks: Sequence[StoredBlock],
    workers: int | None,
    report: Callable[[list[WorkerState]], Reporter],
) -> None:
    """Runs the job in processes of this machine."""
    if workers is None:
        workers = usable_cores() if can_fork() else 1
    writers = max(1, min(workers, len(blocks)))
    work: Callable[[int], list[BlockResult]]
    work = partial(_write_share, job, blocks, writers)
    if writers > 1 and not can_fork():
        # A new interpreter does not have the classes of the caller's script.
        work = partial(_write_pickled, by_value(work))
    with Workers() as processes:
        answers = processes.run(
            work,
            writers,
            reporter=report(processes.states(writers)),
            advice=_NOTHING_KEPT,
        )
    element_set.join_elements(job, list(chain.from_iterable(answers)))


def _write_share(
    job: ElementSet, blocks: Sequence[StoredBlock], writers: int, writer: int
) -> list[BlockResult]:
    """Writes every ``writers``-th block."""
    return [element_set.write_block(block, job) for block in blocks[writer::writers]]


def _write_pickled(share: bytes, writer: int) -> list[BlockResult]:
    results: list[BlockResult] = pickle.loads(share)(writer)
    return results
