"""The stages: each calls a plain function of another package, and adds counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput
from apache_beam.typehints import with_input_types, with_output_types

from beam_pipeline.dataset.suspect_files import read_suspects
from beam_pipeline.dataset.work_folder import keeping_verdict, receipt_path
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.freed_memory import keep_freed_memory
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import Input
from beam_pipeline.marks import Marks
from beam_pipeline.pipeline.job import Job
from beam_pipeline.pipeline.sink import (
    COUNTERS,
    find_finished,
)
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Reject
from beam_pipeline.plan.corpus import format_of, merge_corpora
from beam_pipeline.plan.prober import BlockProber
from beam_pipeline.plan.segments import ShardWork
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.write.blocks import (
    EncodedBlock,
    FeatureBlock,
    FrameBlock,
    WindowBlock,
    apply_transforms,
    cut_windows,
    decode_audio,
    select_and_augment,
)
from beam_pipeline.write.observations import merge_observations
from beam_pipeline.write.one_thread import OneThread
from beam_pipeline.write.shard import ShardEncoder

REJECTS = "rejects"
LISTING = "listing"
FINISHED = "finished"
OBSERVED = "observed"


def _counter(name: str) -> Any:
    """One of the job's counters; the same names on every runner."""
    return Metrics.counter(COUNTERS, name)


@dataclass(eq=False)
class ListSources(beam.DoFn):  # type: ignore[misc]
    """Calls :meth:`Listing.blocks`: [Input] -> (key, [SourceRow]).

    The key spreads the blocks over workers. Side output: ListingSummary.
    """

    job: Job

    def process(self, _: Any) -> Iterator[Any]:
        listing = self.job.listing()
        with keeping_verdict(self.job.work_folder):
            for number, block in enumerate(listing.blocks()):
                yield number, Batch(block)
        summary = listing.summary()
        _counter("clips_listed").inc(summary.clips)
        _counter("files_ignored").inc(summary.ignored)
        yield TaggedOutput(LISTING, summary)


@dataclass(eq=False)
class ProbeAudio(beam.DoFn):  # type: ignore[misc]
    """Calls :meth:`BlockProber.probe`: [SourceRow] -> [Clip]; side output Reject.

    The listing holds the names that several files share, which no row shows by itself.
    """

    job: Job

    def setup(self) -> None:
        suspects = read_suspects(self.job.work_folder)
        self._prober = BlockProber(self.job.inputs, self.job.recipe, suspects)

    def teardown(self) -> None:
        self._prober.close()

    def process(
        self, keyed: tuple[int, Iterable[Sequence[SourceRow]]], listing: ListingSummary
    ) -> Iterator[Any]:
        rows = chain.from_iterable(keyed[1])
        with keeping_verdict(self.job.work_folder):
            clips, rejects = self._prober.probe(rows, listing.alike)
        yield from map(_rejected, rejects)
        _counter("clips").inc(len(clips))
        yield Batch(clips)


def _rejected(reject: Reject) -> TaggedOutput:
    _counter(f"rejected_{reject.error}").inc()
    return TaggedOutput(REJECTS, reject)


def resolve_job_format(
    _: Any, corpora: Iterable[Corpus], job: Job, listing: ListingSummary
) -> ExampleFormat | None:
    """Calls :func:`format_of` for all clips together."""
    corpus, columns = merge_corpora(corpora), job.inputs[0].columns
    with keeping_verdict(job.work_folder):
        return format_of(corpus, job.recipe, listing, columns)


@dataclass(eq=False)
class SkipFinished(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`find_finished`: ShardWork -> ShardWork; side output ShardInfo.

    Shards that an earlier run has finished go to the side output, unless a clip in them
    is a suspect since then.
    """

    prefixes: Sequence[str]
    work_folder: str

    def setup(self) -> None:
        self._suspects = read_suspects(self.work_folder)

    def process(self, work: ShardWork) -> Iterator[Any]:
        shard = work.task.shard
        found = (
            find_finished(shard, prefix, self.work_folder) for prefix in self.prefixes
        )
        info = next((info for info in found if info is not None), None)
        if info is not None and self._suspects.among(work):
            files.delete([receipt_path(shard.name, self.work_folder)])
            info = None
        if info is None:
            yield work
        else:
            Marks.add(info.examples, 0.0)
            yield TaggedOutput(FINISHED, info)


@with_input_types(ShardWork)
@with_output_types(FrameBlock)
@dataclass(eq=False)
class DecodeAudio(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`decode_audio`: ShardWork -> FrameBlock, in order."""

    inputs: tuple[Input, ...]
    recipe: Recipe
    work_folder: str

    def setup(self) -> None:
        self._suspects = read_suspects(self.work_folder)
        keep_freed_memory()
        OneThread.begin()

    def teardown(self) -> None:
        OneThread.end()

    def process(self, work: ShardWork) -> Iterator[FrameBlock]:
        yield from decode_audio(work, self.inputs, self.recipe, self._suspects)


@with_input_types(FrameBlock)
@with_output_types(WindowBlock)
class CutWindows(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`cut_windows`: FrameBlock -> WindowBlock."""

    def process(self, block: FrameBlock) -> Iterator[WindowBlock]:
        yield cut_windows(block)


@with_input_types(WindowBlock)
@with_output_types(WindowBlock)
class SelectAndAugment(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`select_and_augment`: WindowBlock -> WindowBlock."""

    def process(self, block: WindowBlock) -> Iterator[WindowBlock]:
        yield select_and_augment(block)


@with_input_types(WindowBlock)
@with_output_types(FeatureBlock)
class ApplyTransforms(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`apply_transforms`: WindowBlock -> FeatureBlock."""

    def process(self, block: WindowBlock) -> Iterator[FeatureBlock]:
        yield apply_transforms(block)


@with_input_types(FeatureBlock)
@with_output_types(EncodedBlock)
class EncodeExamples(beam.DoFn):  # type: ignore[misc]
    """Calls :class:`ShardEncoder`: FeatureBlock -> EncodedBlock; side output Reject."""

    def start_bundle(self) -> None:
        self._encoder = ShardEncoder()

    def process(self, block: FeatureBlock) -> Iterator[Any]:
        encoded = self._encoder.encode(block)
        if encoded.reject is not None:
            yield _rejected(encoded.reject)
        else:
            _count(encoded)
        # To write a shard may take long, and is not the work of a clip.
        Marks.unmark()
        yield encoded


def _count(block: EncodedBlock) -> None:
    slot, written = block.slot, len(block.records)
    frames = slot.example_format.window_frames(slot.clip.frames)
    seconds = written * frames / slot.clip.sample_rate_hz
    _counter("windows").inc(written)
    if written < slot.examples:
        _counter("windows_left_out").inc(slot.examples - written)
    _counter("audio_microseconds").inc(round(1e6 * seconds))
    Marks.add(slot.examples, seconds)


def split_info(info: ShardInfo) -> Iterator[Any]:
    """ShardInfo -> ShardInfo without observations; these go to the side output."""
    yield info._replace(seen=None)
    if info.seen is not None:
        yield TaggedOutput(OBSERVED, (info.shard.split, info.seen))


class MergeObservations(beam.CombineFn):  # type: ignore[misc]
    """Calls :func:`merge_observations`: the result does not depend on the order."""

    def create_accumulator(self) -> Any:
        return None

    def add_input(self, merged: Any, seen: Any) -> Any:
        return merge_observations(merged, seen)

    def merge_accumulators(self, several: Iterable[Any]) -> Any:
        return reduce(merge_observations, several, None)

    def extract_output(self, merged: Any) -> Any:
        return merged
