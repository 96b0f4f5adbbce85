"""The job on this machine: one plan, then its shards, written by several processes.

::

    this process                                    finish <- work folder
    one process      plan -> work folder            /
    writers 0..n-1           shards k, k+n, k+2n ..

The plan is made as on an engine, by the same functions, without a runner. The writers
are pipelines in Beam's in-memory runner, with the steps of the whole job; the end is
the same function. Beam's own multi-process mode takes seconds to start, waits for ever
for a worker that died, and loses records.

A clip that ends or stalls a process twice is rejected, see :mod:`.workers`. So the
plan, and a single writer, have a process, too, if that starts fast; else they run in
this one.

Before anything is written, each run tries its recipe here, on silence.

With a sample, a plan has a forecast of the bytes and seconds of its run::

    shards      example 0 ... example 7,411 ... example 52,902 ...      chosen at random
                                 |                   |
    segments    |----|----|----|####|----|     |###############|        their blocks
                                 |                   |
    a process        decode, transform, encode, compress, as a run does
                                 |                   |
    forecast     mean over examples of bytes and seconds of their blocks, times all

A block is what a worker holds at once: some windows of one clip. An example chooses its
block, so a block is chosen with a probability that grows with its examples. That makes
the mean over the chosen examples of "per example" an unbiased estimate.

What one process leaves for the next is in pages. Only the names in its answer count, so
a process that ended early leaves nothing that is read, and pages that somebody has
deleted are missed.
"""

from __future__ import annotations

import bisect
import math
import os
import sys
import time
import uuid
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, ClassVar, NamedTuple

import apache_beam as beam
import numpy as np
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_pipeline.arrays import DoubleArray
from beam_pipeline.dataset.folders import PHASES, delete_all_drafts
from beam_pipeline.dataset.job import Job
from beam_pipeline.dataset.progress import Reporter, Totals, Watch
from beam_pipeline.dataset.tables import sort_rejects
from beam_pipeline.errors import RecipeError
from beam_pipeline.examples.event_targets import named_no_event
from beam_pipeline.examples.features import Corpus, ExampleFormat
from beam_pipeline.inputs.columns import SourceRow
from beam_pipeline.inputs.listing import Listing
from beam_pipeline.inputs.sources import Input
from beam_pipeline.pipeline import planner
from beam_pipeline.pipeline.finish import finish_job
from beam_pipeline.pipeline.graph import write_shards
from beam_pipeline.planning.clips import (
    Clip,
    Reject,
    check_split_of_copies,
    drop_changed,
    read_poison_clips,
    window_frames,
)
from beam_pipeline.planning.prober import Prober
from beam_pipeline.planning.shards import (
    PlanSummary,
    Segment,
    ShardInfo,
    ShardWork,
    narrow_events,
)
from beam_pipeline.process import OneThread, usable_cores
from beam_pipeline.recipe.recipe import LABEL_SOURCES, Recipe
from beam_pipeline.run.engine import original
from beam_pipeline.run.workers import Workers, can_start
from beam_pipeline.storage import files
from beam_pipeline.storage.files import temporary_folder
from beam_pipeline.storage.pages import Page, Pages, PageWriter
from beam_pipeline.storage.tfrecord import compress_member, suffix_for
from beam_pipeline.write.shard import BLOCK_BYTES, ShardDraft, encode_shard

# Starting another process costs more time than it saves with less audio than this.
SECONDS_PER_WRITER = 600.0
# A recipe is tried on one of so many rows.
FIRST_ROWS = 20


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a run will take, estimated from a sample.

    Attributes
    ----------
    sampled : int
        How many examples were made.
    lost : int
        How many of them could not be made: their clips would be rejected.
    examples : float
        How many examples the data set will have. Selections may leave some out.
    bytes, bytes_error : float
        The bytes of all shards, and two standard errors of this number; infinite if
        there was only one example.
    seconds, seconds_error : float
        The time that one worker of this machine needs to write all shards, likewise.
    """

    sampled: int
    lost: int
    examples: float
    bytes: float
    bytes_error: float
    seconds: float
    seconds_error: float

    @property
    def bytes_per_example(self) -> float:
        """The compressed bytes of an example; 0 if there is none."""
        return self.bytes / self.examples if self.examples else 0.0


@dataclass(frozen=True, repr=False)
class Plan:
    """A plan, and the clips that cannot be recorded, as far as headers show.

    It can be taken apart as a pair, ``summary, rejects = plan(...)``.

    Attributes
    ----------
    summary : PlanSummary
        Splits, shards, examples and seconds.
    rejects : sequence of Reject
        In the order of the inputs. They are on disk if they are many.
    forecast : Forecast or None
        What a run will take, if a ``sample`` was asked for.
    """

    summary: PlanSummary
    rejects: Sequence[Reject]
    forecast: Forecast | None = None

    def __iter__(self) -> Iterator[Any]:
        return iter((self.summary, self.rejects))

    def __repr__(self) -> str:
        return f"<Plan: {self.summary.described()}; {len(self.rejects):,} rejects>"


def run_local(
    job: Job, workers: int | None, time_limit: float | None, watch: Watch | None = None
) -> None:
    """Runs the job on this machine.

    Parameters
    ----------
    workers : int, optional
        Number of processes that write. Default: one for each core, but fewer for a
        small plan, see :func:`writers_for`.
    time_limit : float, optional
        See :class:`beam_pipeline.recipe.recipe.RunOptions`.
    watch : callable, optional
        See :class:`beam_pipeline.dataset.progress.Reporter`.

    Raises
    ------
    AudioTFRecordsError
        The error of a phase; WorkerDied if a process ended without one.
    """
    with phase_folder(job) as folder, Workers(time_limit) as processes:
        drop_changed(job.work_folder, job.inputs, processes.limit_s)
        summary = plan_here(job, folder, processes)
        written = write_here(job, folder, summary, workers, processes, watch)
        infos = [page for one in written for page in one.shards]
        rejects = [page for one in written for page in one.rejects]
        finish_job(folder, Pages(folder, infos), Pages(folder, rejects), job)


def write_here(
    job: Job,
    folder: str,
    summary: PlanSummary,
    workers: int | None,
    processes: Workers,
    watch: Watch | None,
) -> list[WrittenPages]:
    """Writes the shards of the plan in a folder, each in one of several processes.

    If clips were rejected because of their processes, shards that hold them may be
    finished already. So the writers look at all shards again.
    """
    writers = writers_for(summary, workers)
    states = processes.states(writers)
    reporter = Reporter.of_workers(watch, totals_of(summary), states)
    write = partial(write_phase, job, folder, writers)
    while True:
        before = len(read_poison_clips(job.work_folder))
        written = processes.run(
            write, writers, job, reporter=reporter, apart=in_ipython()
        )
        if len(read_poison_clips(job.work_folder)) == before:
            return written


def plan_local(job: Job, time_limit: float | None, sample: int = 0) -> Plan:
    """Returns a plan and the rejects by header; writes only into the work folder.

    With a sample of this many examples, it has a forecast of the run.
    """
    with phase_folder(job) as folder, Workers(time_limit) as processes:
        summary = plan_here(job, folder, processes)
        found = forecast(summary, sample, job, folder, processes) if sample else None
        rejects = planner.planned_rejects(planner.read_plan(folder), folder)
        return Plan(summary, sort_rejects(rejects), found)


@contextmanager
def phase_folder(job: Job) -> Iterator[str]:
    """A new folder on this machine, for pages that later phases read.

    Raises
    ------
    IncompleteRun
        If the block fails after another run has taken the output over.
    """
    if not files.is_local(job.work_folder):
        with temporary_folder() as folder:
            yield folder
        return
    # An interrupted run may have left files here. Finished shards are elsewhere.
    job.claim.discard(files.join(job.work_folder, PHASES), is_folder=True)
    delete_all_drafts(job.work_folder)  # the disk may be full
    folder = files.join(job.claim.stage(job.work_folder), PHASES)
    files.make_folder(folder)
    try:
        yield folder
    except Exception:
        job.claim.check()  # its files are gone then
        raise


def plan_here(job: Job, folder: str, processes: Workers) -> PlanSummary:
    """Publishes the plan of a job in a folder, in a process that is watched."""
    return processes.call(partial(plan_phase, job, folder), job, "plan")


def plan_phase(job: Job, folder: str) -> PlanSummary:
    """Publishes the plan of a job in a folder, which is emptied before."""
    files.delete_below(folder)  # a process before this one may have died
    files.make_folder(folder)
    listing, pages = job.listing(), list[Page]()
    with closing(planner.ClipPages(job, folder)) as clips:
        for rows in listing.blocks():
            clips.add(rows)
            if clips.is_full():
                pages += clips.flush()
        pages += clips.flush()
    return planner.make_plan(pages, listing.summary(), job, folder)


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
        workers = min(
            usable_cores(), 1 + int(totals_of(summary).seconds / SECONDS_PER_WRITER)
        )
        if not can_start():
            workers = 1
    return max(1, min(workers, shards))


def in_ipython() -> bool:
    """Whether Beam would take a pipeline in this process for an interactive one.

    It would load its interactive package, which logs a warning and loads scripts from
    the internet into a notebook.
    """
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


class WrittenPages(NamedTuple):
    """Pages of what :func:`write_shards` gives in one process."""

    shards: list[Page]
    rejects: list[Page]


def write_phase(job: Job, folder: str, writers: int, writer: int) -> WrittenPages:
    """Writes every ``writers``-th shard of the plan."""
    run = uuid.uuid4().hex
    with in_memory_pipeline() as pipeline:
        work = (
            pipeline
            | "Once" >> beam.Create([writer], reshuffle=False)
            | "MyShards" >> beam.FlatMap(planner.planned_work, folder, writers)
        )
        for name, elements in write_shards(work, job)._asdict().items():
            elements | f"Keep_{name}" >> beam.ParDo(KeepInPages(folder, run + name))
    pages = (KeepInPages.written.pop(run + name, []) for name in WrittenPages._fields)
    return WrittenPages(*pages)


class KeepInPages(beam.DoFn):  # type: ignore[misc]
    """Writes the elements of each bundle to pages, which it lists under a name.

    Only for the in-memory runner, which runs in this process and repeats no bundle.
    """

    written: ClassVar[dict[str, list[Page]]] = {}

    def __init__(self, folder: str, name: str) -> None:
        self._folder, self._name = folder, name

    def start_bundle(self) -> None:
        self._writer = PageWriter(self._folder)

    def process(self, element: Any) -> None:
        self._writer.add(element)

    def finish_bundle(self) -> None:
        KeepInPages.written.setdefault(self._name, []).extend(self._writer.finish())


@contextmanager
def in_memory_pipeline() -> Iterator[beam.Pipeline]:
    """A pipeline that runs in this process when the block ends.

    Errors of this package leave the block as they were raised, without the name of the
    stage that Beam adds.
    """
    pipeline = beam.Pipeline(runner=FnApiRunner(), options=_Options([]))
    # Only transforms in other languages use it. Beam deletes it only for a pipeline
    # that it has run, never in IPython, and a process that ends early does not.
    files.delete_below(pipeline.local_tempdir)
    yield pipeline
    try:
        pipeline.run().wait_until_finish()
    except Exception as error:
        first = original(error)
        if first is error:
            raise
        # Without Beam's copy, whose traceback is long and says no more.
        raise first from first.__cause__


class _Options(PipelineOptions):  # type: ignore[misc]
    """Options that make each of their views once.

    Beam asks for views hundreds of times while it builds a pipeline. Each new view
    makes an argument parser, which takes a quarter of the time of a small job.
    """

    def view_as(self, cls: type) -> Any:
        views = self.__dict__.setdefault("_views", {})
        if cls not in views:
            views[cls] = super().view_as(cls)
        return views[cls]


def choose_blocks(
    works: Iterable[ShardWork], total: int, sample: int, recipe: Recipe
) -> Iterator[tuple[Segment, int]]:
    """Yields the blocks of some examples, and how many of them each block has.

    A block is a part of a segment. The shards of a plan have ``total`` examples, of
    which ``sample`` are chosen at random.
    """
    draw = np.random.default_rng([0, recipe.seed & (1 << 63) - 1])
    chosen = np.sort(draw.choice(total, min(sample, total), replace=False))
    before = 0
    for work in works:
        for segment in work.segments:
            first = before + segment.position
            inside = chosen[(first <= chosen) & (chosen < first + segment.examples)]
            channels = segment.clip.channels if recipe.channels == "keep" else 1
            length = 4 * channels * window_frames(segment.clip, recipe)
            size = max(1, BLOCK_BYTES // length)
            for number, times in Counter(((inside - first) // size).tolist()).items():
                at = number * size
                block = segment._replace(
                    first=segment.first + at, examples=min(size, segment.examples - at)
                )
                yield narrow_events(block, recipe), times
        before += work.shard.examples


def forecast(
    summary: PlanSummary, sample: int, job: Job, folder: str, processes: Workers
) -> Forecast | None:
    """Makes some examples of the plan in a folder; returns what all of them take.

    They are made in a process of its own. Returns None if the plan has no examples.
    """
    total = sum(layout.total for layout in summary.layouts.values())
    if not total:
        return None
    works = planner.planned_work(0, folder)
    found = list(choose_blocks(works, total, sample, job.recipe))
    work = _one_shard(
        [block for block, _ in found], next(planner.planned_work(0, folder))
    )
    measure = partial(_measure, work, job, folder)
    info, taken = processes.call(measure, job, "sample", apart=True)
    planned = np.array([block.examples for block, _ in found])
    # Examples, bytes and seconds for each planned example; one row for each chosen one.
    rates = np.repeat(taken / planned[:, None], [times for _, times in found], 0)
    examples, size, seconds = (total * rates.mean(0)).tolist()
    size_error = seconds_error = math.inf
    if len(rates) > 1:
        errors = 2 * total * rates.std(0, ddof=1) / math.sqrt(len(rates))
        _, size_error, seconds_error = errors.tolist()
    lost = info.shard.examples - info.examples - info.left_out
    return Forecast(
        info.examples, lost, examples, size, size_error, seconds, seconds_error
    )


def _one_shard(blocks: Sequence[Segment], work: ShardWork) -> ShardWork:
    """Returns the work for one shard of these blocks, like that of another shard."""
    ends = np.cumsum([block.examples for block in blocks]).tolist()
    segments = tuple(
        block._replace(position=end - block.examples)
        for block, end in zip(blocks, ends, strict=True)
    )
    shard = work.shard._replace(examples=ends[-1], mix_seed=None)
    return work._replace(shard=shard, segments=segments)


def _measure(work: ShardWork, job: Job, folder: str) -> tuple[ShardInfo, DoubleArray]:
    """Writes a shard; returns it, and what each of its segments took.

    The array has a row for each segment, with its examples, bytes and seconds. Its
    bytes are a part of those of the file: a GZIP member may hold examples of several
    clips.
    """
    poison_clips = read_poison_clips(job.work_folder)
    compression = job.recipe.compression
    path = os.path.join(folder, "sample" + suffix_for(compression))
    shard, segments = work.shard, work.segments
    starts = [segment.position for segment in segments]
    taken = np.zeros((len(segments), 3))
    with OneThread.held():
        # What a process needs once, such as tables of a filter.
        first = _one_shard(segments[:1], work)
        deque(encode_shard(first, job.inputs, job.recipe, poison_clips), maxlen=0)
        draft = ShardDraft(shard, work.example_format, path, compression)
        start = time.perf_counter()
        for block in encode_shard(work, job.inputs, job.recipe, poison_clips):
            draft.write(block)
            seconds = time.perf_counter() - start
            content = b"".join(block.records)
            size = len(compress_member(content, compression))
            row = bisect.bisect(starts, block.slot.position) - 1
            taken[row] += len(block.records), size, seconds
            start = time.perf_counter()
        info = draft.close(path)
    taken[:, 1] *= info.bytes / max(1, taken[:, 1].sum())
    return info._replace(members="", windows="", seen=None), taken


def check_transforms(
    recipe: Recipe, inputs: Sequence[Input], time_limit: float | None
) -> None:
    """Runs every transform on silence with the shape of the first readable clip.

    Raises
    ------
    InputError
        If the inputs hold no audio file.
    RecipeError
        If a transform fails.
    """
    check_label_column(recipe, inputs)
    shares = recipe.hashed_shares()
    named = [entry.split for entry in inputs if entry.split]
    check_split_of_copies(recipe.copies, shares or named)
    first = list(islice(Listing(inputs, recipe).rows(), FIRST_ROWS))
    recipe = recipe.replace(hash_files=False)  # it would read whole files
    # In a process of its own: a bad one must not end the run.
    with temporary_folder() as work, Workers(time_limit) as processes:
        job = Job(tuple(inputs), "", work, recipe)
        clip = processes.call(partial(_first_clip, first, job), job, "probe")
    if clip is None:
        return
    labels = set() if clip.label is None else {clip.label}
    if recipe.events is not None:
        # This clip may have no event.
        labels = {event.label for event in clip.events} or {"?"}
        labels.update(named_no_event(recipe))
    rate, channels = clip.sample_rate_hz, clip.channels
    corpus = Corpus(
        tuple(sorted(labels)),
        {rate: 1},
        {channels: 1},
        dict.fromkeys([("Hz", rate), ("channels", channels)], clip.filepath),
    )
    ExampleFormat.of(corpus, recipe, inputs[0].columns)


def _first_clip(rows: Sequence[SourceRow], job: Job) -> Clip | None:
    """Returns the first clip that has a window; or the first that a decoder opens."""
    prober = Prober(job.inputs, job.recipe, read_poison_clips(job.work_folder))
    opened = None
    for clip in map(prober.probe, rows):
        if isinstance(clip, Clip):
            opened = opened or clip
            if clip.examples:
                return clip
    return opened


def check_label_column(recipe: Recipe, inputs: Sequence[Input]) -> None:
    """Raises RecipeError if both a column and events give the classes.

    The recipe itself does not check this: the metadata of data sets that exist may have
    both, and must stay readable.
    """
    label_from = recipe.label_from
    if recipe.events is None or label_from in LABEL_SOURCES:
        return
    if any(e.table is not None and label_from in e.table.names for e in inputs):
        raise RecipeError(
            "label_from",
            "must not be a column if `events` is given, because the events give the "
            "classes; leave `label_from` out (`columns` can name the column instead)",
            label_from,
        )
