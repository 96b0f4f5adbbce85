"""The whole job on one screen; below it, the stages.

::

    names            headers         one worker    samples to records   metadata.json
    ListSources  ->  ProbeClips  ->  MakePlan  ->  WriteToTFRecord  ->  FinishDataSet

Clips and tasks are in pages of the work folder (see :mod:`.planner`). Between workers,
only rows of the inputs and names of pages move. A stage calls a plain function of
another package, and adds counters. At the end is ``WriteToTFRecord``: Beam's, with a
faster GZIP stream.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

import apache_beam as beam
from apache_beam.coders import BytesCoder, Coder
from apache_beam.io import tfrecordio
from apache_beam.io.filesystem import CompressionTypes
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsIter, AsSingleton, TaggedOutput
from apache_beam.transforms.window import GlobalWindow
from apache_beam.typehints import with_input_types, with_output_types
from apache_beam.utils.windowed_value import WindowedValue

from beam_pipeline.dataset import folders
from beam_pipeline.dataset.job import Job
from beam_pipeline.errors import IncompleteRun
from beam_pipeline.inputs.columns import SourceRow
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.pipeline import planner
from beam_pipeline.pipeline.engine_guard import Guard
from beam_pipeline.pipeline.finish import (
    find_finished,
    find_recorded,
    finish_job,
    read_recorded_shards,
    write_receipt,
)
from beam_pipeline.planning.clips import Reject, read_poison_clips
from beam_pipeline.planning.shards import ShardInfo, ShardWork
from beam_pipeline.process import Marks, OneThread, keep_freed_memory
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import Batch, Page, Pages, Place
from beam_pipeline.storage.tfrecord import MemberWriter, frame_record, suffix_for
from beam_pipeline.write.shard import (
    BlockEncoder,
    EncodedBlock,
    FeatureBlock,
    FrameBlock,
    ShardDraft,
    WindowBlock,
    apply_transforms,
    cut_windows,
    decode_audio,
    select_and_augment,
)

# The namespace of this package's counters.
COUNTERS = "audio_tfrecords"

REJECTS = "rejects"
LISTING = "listing"
FINISHED = "finished"

# In each chain, a line is a stage, and its comment is the type of what comes out of it;
# after a semicolon, the type of its side output.
# fmt: off

def build_pipeline(pipeline: beam.Pipeline, job: Job) -> beam.PCollection:
    """Builds the job, from its inputs to ``metadata.json``, whose path it returns."""
    once = pipeline | "Once" >> beam.Create([job.inputs], reshuffle=False)  # [Input]
    work = plan_shards(once, job)
    written = write_shards(work, job)
    return finish(once, written, job)


def plan_shards(once: beam.PCollection, job: Job) -> beam.PCollection:
    """Lists the inputs, reads the headers, and plans the shards on one worker."""
    list_sources = beam.ParDo(ListSources(job))
    listed = (
        once
        | "ListSources" >> list_sources.with_outputs(LISTING, main="rows")
    )                                               # key, [SourceRow]; ListingSummary
    pages = (
        listed.rows
        | "SpreadRows" >> beam.GroupByKey()         # key, [[SourceRow]]
        | "ProbeClips" >> beam.ParDo(ProbeClips(job))  # Page
    )
    return (
        once
        | "MakePlan" >> beam.FlatMap(
            plan_pages, AsIter(pages), AsSingleton(listed[LISTING]), job,
        ).with_output_types(tuple[int, Place])      # number, Place of a task
        | "SpreadShards" >> beam.GroupByKey()       # number, [Place]
        | "ReadTasks" >> beam.FlatMap(read_tasks, job.plan_folder())
            .with_output_types(ShardWork)
    )


def write_shards(work: beam.PCollection, job: Job) -> WrittenShards:
    """Decodes, cuts, transforms, encodes and writes: one worker writes one shard."""
    skip = beam.ParDo(SkipFinished(job))
    encode = beam.ParDo(EncodeExamples())
    checked = (
        work
        | "SkipFinished" >> skip.with_outputs(FINISHED, main="work")
    )                                               # ShardWork; ShardInfo
    encoded = (
        checked.work
        | "DecodeAudio" >> beam.ParDo(DecodeAudio(job))  # FrameBlock
        | "CutWindows" >> step(cut_windows, FrameBlock, WindowBlock)
        | "SelectAndAugment" >> step(select_and_augment, WindowBlock, WindowBlock)
        | "ApplyTransforms" >> step(apply_transforms, WindowBlock, FeatureBlock)
        | "EncodeExamples" >> encode.with_outputs(REJECTS, main="records")
    )                                               # EncodedBlock; Reject
    write = beam.ParDo(WriteShards(job))
    written = encoded.records | "WriteToTFRecord" >> write  # ShardInfo
    shards = (checked[FINISHED], written) | "AllShards" >> beam.Flatten()  # ShardInfo
    return WrittenShards(shards, encoded[REJECTS])


def finish(
    once: beam.PCollection, written: WrittenShards, job: Job
) -> beam.PCollection:
    """Compares the shards with the plan, and writes ``metadata.json`` last."""
    return (
        once
        | "FinishDataSet" >> beam.Map(
            finish_planned, AsIter(written.shards), AsIter(written.rejects), job,
        )                                           # path of metadata.json
    )

# fmt: on


# The stages


def _counter(name: str) -> Any:
    """One of the job's counters; the same names on every runner."""
    return Metrics.counter(COUNTERS, name)


class OneThreadStep(beam.DoFn):  # type: ignore[misc]
    """A step whose process computes with one thread; see :class:`.OneThread`."""

    def setup(self) -> None:
        OneThread.begin()

    def teardown(self) -> None:
        OneThread.end()


@with_output_types(tuple[int, Any], listing=ListingSummary)
@dataclass(eq=False)
class ListSources(beam.DoFn):  # type: ignore[misc]
    """Calls :meth:`.Listing.blocks`: [Input] -> (key, [SourceRow]).

    The key spreads the blocks over workers. Side output: ListingSummary.
    """

    job: Job

    def process(self, _: Any) -> Iterator[Any]:
        listing = self.job.listing()
        with folders.storing_error(self.job.work_folder, self.job.claim):
            for number, block in enumerate(listing.blocks()):
                yield number, Batch(block)
        summary = listing.summary()
        _counter("clips_listed").inc(summary.clips)
        _counter("files_ignored").inc(summary.ignored)
        yield TaggedOutput(LISTING, summary)


def at_the_end(value: Any) -> WindowedValue:
    """Wraps an output of ``finish_bundle``, where Beam knows no window for it."""
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), [window])


@with_input_types(tuple[int, Iterable[Any]])
@with_output_types(Page)
@dataclass(eq=False)
class ProbeClips(beam.DoFn):  # type: ignore[misc]
    """Calls :meth:`ClipPages.add`: (key, [[SourceRow]]) -> Page, of all in a bundle."""

    job: Job

    def setup(self) -> None:
        Guard.begin(self.job)
        self._pages = planner.ClipPages(self.job, self.job.plan_folder())

    def start_bundle(self) -> None:
        self._pages.clear()

    def teardown(self) -> None:
        self._pages.close()

    def process(
        self, keyed: tuple[int, Iterable[Sequence[SourceRow]]]
    ) -> Iterator[Page]:
        with Marks.working():
            clips, rejects = self._pages.add(chain.from_iterable(keyed[1]))
        _counter("clips").inc(len(clips))
        for reject in rejects:
            _counter(f"rejected_{reject.error}").inc()
        if self._pages.is_full():
            yield from self._pages.flush()

    def finish_bundle(self) -> Iterator[Any]:
        return map(at_the_end, self._pages.flush())


def plan_pages(
    _: Any, pages: Iterable[Page], listing: ListingSummary, job: Job
) -> Iterator[tuple[int, Place]]:
    """Calls :func:`make_plan`: pages of clips -> numbered places of tasks."""
    folder = job.plan_folder()
    check_poison_clips(job)
    planner.make_plan(pages, listing, job, folder)
    yield from enumerate(Pages(folder, planner.read_plan(folder).tasks).places())


def read_tasks(keyed: tuple[int, Iterable[Place]], folder: str) -> Iterator[ShardWork]:
    """Calls :func:`read_work`: (number, [Place]) -> ShardWork."""
    for place in keyed[1]:
        yield planner.read_work(_plan_of(folder), place, folder)


# Each run has a folder of its own, so one plan is enough.
_plan_of = lru_cache(maxsize=1)(planner.read_plan)


def finish_planned(
    _: Any, infos: Iterable[ShardInfo], rejects: Iterable[Reject], job: Job
) -> str:
    """Calls :func:`finish_job`."""
    check_poison_clips(job)
    path = finish_job(job.plan_folder(), infos, rejects, job)
    job.claim.end()
    return path


def check_poison_clips(job: Job) -> None:
    """Raises IncompleteRun if a clip became a poison clip after the job was sent.

    Shards that were written before hold its examples, so the run must begin again.
    """
    if len(read_poison_clips(job.work_folder)) > job.known_poison:
        with folders.storing_error(job.work_folder, job.claim):
            raise IncompleteRun(
                "Clips ended their workers twice while the job ran, and must be left "
                f"out of all shards. {folders.CONTINUE}"
            )


class WrittenShards(NamedTuple):
    """What :func:`write_shards` gives."""

    shards: beam.PCollection  # ShardInfo, also of shards that an earlier run wrote
    rejects: beam.PCollection  # Reject


@with_input_types(ShardWork)
@with_output_types(ShardWork, finished=ShardInfo)
@dataclass(eq=False)
class SkipFinished(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`find_finished`: ShardWork -> ShardWork; side output ShardInfo.

    Shards that an earlier run has finished go to the side output, unless a clip in them
    is a poison clip since then. A repair keeps the shards whose bytes are those that
    ``metadata.json`` has.
    """

    job: Job

    def setup(self) -> None:
        self._poison_clips = read_poison_clips(self.job.work_folder)
        if self.job.repairs:
            self._recorded = read_recorded_shards(self.job.output)

    def process(self, work: ShardWork) -> Iterator[Any]:
        shard, job = work.shard, self.job
        if job.repairs:
            info = find_recorded(shard, job.output, self._recorded)
        else:
            info = find_finished(shard, job.shards_folder(), job.work_folder)
        clips = (segment.clip for segment in work.segments)
        if info is not None and not job.repairs and self._poison_clips.among(clips):
            files.delete([folders.receipt_path(shard.name, job.work_folder)])
            info = None
        if info is None:
            yield work
        else:
            Marks.add(info.examples, 0.0)
            yield TaggedOutput(FINISHED, info)


@with_input_types(ShardWork)
@with_output_types(FrameBlock)
@dataclass(eq=False)
class DecodeAudio(OneThreadStep):
    """Calls :func:`decode_audio`: ShardWork -> FrameBlock, in order."""

    job: Job

    def setup(self) -> None:
        Guard.begin(self.job)
        self._poison_clips = read_poison_clips(self.job.work_folder)
        keep_freed_memory()
        super().setup()

    def process(self, work: ShardWork) -> Iterator[FrameBlock]:
        job = self.job
        with Marks.working():  # for the steps that take its blocks, too
            yield from decode_audio(work, job.inputs, job.recipe, self._poison_clips)


def step(function: Callable[[Any], Any], given: type, made: type) -> Any:
    """Returns a step that makes one block of each, of these types."""
    return beam.Map(function).with_input_types(given).with_output_types(made)


@with_input_types(FeatureBlock)
@with_output_types(EncodedBlock, rejects=Reject)
class EncodeExamples(beam.DoFn):  # type: ignore[misc]
    """Calls :class:`BlockEncoder`: FeatureBlock -> EncodedBlock; side output Reject."""

    def setup(self) -> None:
        self._encoder = BlockEncoder()

    def process(self, block: FeatureBlock) -> Iterator[Any]:
        encoded = self._encoder.encode(block)
        if encoded.reject is not None:
            _counter(f"rejected_{encoded.reject.error}").inc()
            yield TaggedOutput(REJECTS, encoded.reject)
        else:
            _count(encoded)
        # To write a shard may take long, and is not the work of a clip.
        Marks.unmark()
        yield encoded


def _count(block: EncodedBlock) -> None:
    slot, written = block.slot, len(block.records)
    seconds = written * slot.length / slot.clip.sample_rate_hz
    _counter("windows").inc(written)
    if written < slot.examples:
        _counter("windows_left_out").inc(slot.examples - written)
    _counter("audio_microseconds").inc(round(1e6 * seconds))
    Marks.add(slot.examples, seconds)


@with_input_types(EncodedBlock)
@with_output_types(ShardInfo)
@dataclass(eq=False)
class WriteShards(beam.DoFn):  # type: ignore[misc]
    """Calls :class:`ShardDraft`: EncodedBlock -> ShardInfo, at the end of each shard.

    A shard must come in one bundle, block after block, up to its last position; so the
    steps that make its blocks must be fused with this one. A draft has a name of its
    own, and a shard that is written twice has the same bytes. So a runner may compute a
    bundle again, also at the same time.

    Raises
    ------
    IncompleteRun
        If a bundle ends within a shard, or holds its blocks in another order.
    """

    job: Job

    def setup(self) -> None:
        self._draft: ShardDraft | None = None

    def start_bundle(self) -> None:
        self._abandon()

    def process(self, block: EncodedBlock) -> Iterator[ShardInfo]:
        shard, job = block.slot.shard, self.job
        compression = job.recipe.compression
        suffix = suffix_for(compression)
        if self._draft is None:
            name = shard.name.replace("/", ".")
            path = folders.new_draft(f"{name}-", suffix, job.work_folder, job.claim)
            example_format = block.slot.example_format
            self._draft = ShardDraft(shard, example_format, path, compression)
        with folders.storing_error(job.work_folder, job.claim):
            self._draft.write(block)
        if self._draft.is_complete:
            info = self._draft.close(shard.name + suffix)
            draft, self._draft = self._draft, None
            job.claim.move(draft.path, files.join(job.shards_folder(), info.file))
            _counter("shards").inc()
            _counter("bytes").inc(info.bytes)
            write_receipt(info, job)
            yield info._replace(seen=None)

    def finish_bundle(self) -> None:
        if self._draft is not None:
            with folders.storing_error(self.job.work_folder, self.job.claim):
                self._draft.check_complete()

    def teardown(self) -> None:
        self._abandon()

    def _abandon(self) -> None:
        """Deletes the open file; there is one only if a stage failed."""
        if self._draft is not None:
            self._draft.abandon()
            self._draft = None


# TFRecords in any pipeline


class _Sink(tfrecordio._TFRecordSink):  # type: ignore[misc]
    """Beam's sink, with ISA-L instead of zlib for GZIP."""

    def open(self, temp_path: str) -> Any:
        detected = CompressionTypes.detect_compression_type(temp_path)
        if CompressionTypes.GZIP not in (
            self.compression_type,
            detected if self.compression_type == CompressionTypes.AUTO else None,
        ):
            return super().open(temp_path)
        file = FileSystems.create(
            temp_path, self.mime_type, CompressionTypes.UNCOMPRESSED
        )
        return MemberWriter(file)

    def write_encoded_record(self, file_handle: Any, value: bytes) -> None:
        file_handle.write(frame_record(value))


class WriteToTFRecord(beam.io.WriteToTFRecord):  # type: ignore[misc]
    """Writes TFRecord files, with the parameters of ``beam.io.WriteToTFRecord``.

    It does the same as Beam's transform; GZIP is some ten times faster. GZIP files hold
    no time and no name. They consist of members of whole records, up to 1 MiB before
    GZIP, which can be inflated without those before them.

    Parameters
    ----------
    file_path_prefix, coder, file_name_suffix, num_shards, shard_name_template, \
compression_type, triggering_frequency
        As in ``beam.io.WriteToTFRecord``.
    """

    def __init__(
        self,
        file_path_prefix: str,
        coder: Coder = BytesCoder(),  # noqa: B008  (as Beam's; it has no state)
        file_name_suffix: str = "",
        num_shards: int = 0,
        shard_name_template: str | None = None,
        compression_type: str = CompressionTypes.AUTO,
        triggering_frequency: int | None = None,
    ):
        beam.PTransform.__init__(self)
        self._sink = _Sink(
            file_path_prefix,
            coder,
            file_name_suffix,
            num_shards,
            shard_name_template,
            compression_type,
            triggering_frequency,
        )
