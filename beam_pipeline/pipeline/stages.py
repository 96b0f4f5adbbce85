"""The stages: each calls a plain function of another package, and adds counters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import chain
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics import Metrics
from apache_beam.pvalue import TaggedOutput

from beam_pipeline.dataset.suspect_files import read_suspects
from beam_pipeline.dataset.work_folder import keeping_verdict, receipt_path
from beam_pipeline.examples.encoding import ExampleEncoder
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.freed_memory import keep_freed_memory
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import Input
from beam_pipeline.marks import Marks
from beam_pipeline.pipeline.job import Job
from beam_pipeline.pipeline.sink import (
    COUNTERS,
    at_the_end,
    find_finished,
)
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Reject
from beam_pipeline.plan.corpus import format_of, merge_corpora
from beam_pipeline.plan.prober import BlockProber
from beam_pipeline.plan.segments import ShardWork
from beam_pipeline.plan.shards import Shard, ShardInfo
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.write.blocks import (
    FeatureBlock,
    FrameBlock,
    Lost,
    WindowBlock,
    apply_transforms,
    cut_windows,
    decode_audio,
    encode_examples,
    select_and_augment,
)
from beam_pipeline.write.observations import Observations, merge_observations
from beam_pipeline.write.one_thread import OneThread
from beam_pipeline.write.stretches import PlacedRecords

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


@dataclass(eq=False)
class DecodeAudio(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`decode_audio`: ShardWork -> FrameBlock | Lost, in order."""

    inputs: tuple[Input, ...]
    recipe: Recipe
    work_folder: str

    def setup(self) -> None:
        self._suspects = read_suspects(self.work_folder)
        keep_freed_memory()
        OneThread.begin()

    def teardown(self) -> None:
        OneThread.end()

    def process(self, work: ShardWork) -> Iterator[FrameBlock | Lost]:
        yield from decode_audio(work, self.inputs, self.recipe, self._suspects)


class CutWindows(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`cut_windows`: FrameBlock -> WindowBlock."""

    def process(self, block: FrameBlock | Lost) -> Iterator[WindowBlock | Lost]:
        yield block if isinstance(block, Lost) else cut_windows(block)


class SelectAndAugment(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`select_and_augment`: WindowBlock -> WindowBlock."""

    def process(self, block: WindowBlock | Lost) -> Iterator[WindowBlock | Lost]:
        yield block if isinstance(block, Lost) else select_and_augment(block)


class ApplyTransforms(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`apply_transforms`: WindowBlock -> FeatureBlock."""

    def process(self, block: WindowBlock | Lost) -> Iterator[FeatureBlock | Lost]:
        yield block if isinstance(block, Lost) else apply_transforms(block)


class EncodeExamples(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`encode_examples`: FeatureBlock -> PlacedRecords; side output Reject.

    The observations of a shard go with its last records. If a runner ends a bundle in
    the middle of a shard, they go with a PlacedRecords of span 0.
    """

    def start_bundle(self) -> None:
        self._format: ExampleFormat | None = None
        self._observed: Observations | None = None
        self._end: tuple[Shard, int] | None = None  # the end of the previous block

    def process(self, block: FeatureBlock | Lost) -> Iterator[Any]:
        slot = block.slot
        if self._end != (slot.shard, slot.position):
            yield from self._observations()
        if slot.example_format is not self._format:
            self._format = slot.example_format
            self._encoder = ExampleEncoder(slot.example_format.features.specs.values())
            self._targets = {
                label: i for i, label in enumerate(slot.example_format.classes)
            }
        if self._observed is None:
            features = slot.example_format.features
            self._observed = Observations.of(
                features.specs[name] for name in features.transforms
            )
        records: Sequence[bytes] = ()
        left_out, offsets = 0, None
        if isinstance(block, FeatureBlock):
            encoded = encode_examples(block, self._encoder, self._targets)
            if isinstance(encoded, Lost):
                block = encoded
            else:
                records = encoded
        if isinstance(block, Lost):
            yield _rejected(block.reject)
        else:
            left_out = slot.examples - len(records)
            if left_out:
                offsets = np.flatnonzero(block.rows.kept).tolist()
            self._observed.add(block)
            self._count(block, left_out)
        # To write a shard may take long, and is not the work of a clip.
        Marks.unmark()
        self._end = slot.shard, slot.position + slot.examples
        seen = None
        if self._end[1] == slot.shard.examples:
            seen, self._observed = self._observed.state(), None
        yield PlacedRecords(
            slot.shard,
            slot.position,
            slot.examples,
            records,
            left_out,
            seen,
            offsets,
            block.rows,
            slot.clip.row,
        )

    def finish_bundle(self) -> Iterator[Any]:
        return map(at_the_end, self._observations())

    def _observations(self) -> Iterator[PlacedRecords]:
        """The observations of a shard whose end is in another bundle."""
        if self._observed is not None and self._end is not None:
            shard, position = self._end
            yield PlacedRecords(shard, position, 0, (), 0, self._observed.state())
        self._observed = None

    def _count(self, block: FeatureBlock, left_out: int) -> None:
        slot = block.slot
        frames = slot.example_format.window_frames(slot.clip.frames)
        seconds = len(block.starts) * frames / slot.clip.sample_rate_hz
        _counter("windows").inc(len(block.starts))
        if left_out:
            _counter("windows_left_out").inc(left_out)
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
