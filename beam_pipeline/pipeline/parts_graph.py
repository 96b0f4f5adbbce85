"""The job for examples of unknown number, on one screen.

::

    blocks -> write_block -> parts -> cut_shards -> join_pieces -> finish
              load, split,            bounds        copies         metadata.json
              encode                                members

Each block is written to parts by one worker. Then the numbers of all parts meet in one
place, which decides where shards begin and end; the parts themselves stay where they
are until workers join them to shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton

from beam_pipeline.dataset.parts_job import PartsJob, finish_parts, write_receipt
from beam_pipeline.dataset.work_folder import keeping_verdict
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.write.part_blocks import (
    BlockRef,
    BlockResult,
    merge_results,
    write_block,
)
from beam_pipeline.write.part_shards import ShardParts, cut_shards, join_pieces
from beam_pipeline.write.parts import Part
from beam_pipeline.write.process_settings import OneThread

# fmt: off

def build_parts_pipeline(pipeline: beam.Pipeline, job: PartsJob) -> beam.PCollection:
    """Builds the job, from its blocks to ``metadata.json``, whose path it returns."""
    blocks, job = job.blocks, job.without_blocks()  # each step has a copy of job
    results = (
        pipeline
        | "Blocks" >> beam.Create(blocks)           # BlockRef
        | "SpreadBlocks" >> beam.Reshuffle()
        | "WriteBlocks" >> beam.ParDo(WriteBlocks(job))         # BlockResult
    )
    merged = (
        results
        | "LeaveOutParts" >> beam.Map(_without_parts)           # BlockResult
        | "MergeResults" >> beam.CombineGlobally(merge_results)  # one BlockResult
    )
    room = merged | "MakeRoom" >> beam.Map(_make_room, job)     # once all is made
    shards = (
        results
        | "KeyParts" >> beam.FlatMap(_parts_by_split)           # split, Part
        | "GroupParts" >> beam.GroupByKey()                     # split, [Part]
        | "CutShards" >> beam.FlatMap(_cut_shards, job)         # ShardParts
        | "SpreadShards" >> beam.Reshuffle()
        | "JoinPieces" >> beam.Map(_join, AsSingleton(room), job)  # ShardInfo
    )
    return (
        pipeline
        | "Once" >> beam.Create([None], reshuffle=False)
        | "Finish" >> beam.Map(_finish, AsIter(shards), AsSingleton(merged), job)
    )                                                           # path

# fmt: on


@dataclass(eq=False)
class WriteBlocks(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`write_block`: BlockRef -> BlockResult."""

    job: PartsJob

    def setup(self) -> None:
        OneThread.begin()

    def teardown(self) -> None:
        OneThread.end()

    def process(self, ref: BlockRef) -> Iterator[BlockResult]:
        job = self.job
        with keeping_verdict(job.work):
            result = write_block(ref, job.encoder, job.sizes, job.parts)
        write_receipt(job, ref, result)
        yield result


def _parts_by_split(result: BlockResult) -> Iterator[tuple[str, Part]]:
    for part in result.parts:
        yield part.split, part


def _without_parts(result: BlockResult) -> BlockResult:
    return replace(result, parts=())


def _cut_shards(
    keyed: tuple[str, Iterable[Part]], job: PartsJob
) -> Iterator[ShardParts]:
    split, parts = keyed
    return cut_shards(split, parts, job.sizes)


def _make_room(_: BlockResult, job: PartsJob) -> None:
    job.target.make_room()


def _join(shard: ShardParts, _: None, job: PartsJob) -> ShardInfo:
    with keeping_verdict(job.work):
        return join_pieces(shard, job.output, job.parts)


def _finish(
    _: None, infos: Iterable[ShardInfo], result: BlockResult, job: PartsJob
) -> str:
    with keeping_verdict(job.work):
        return finish_parts(job, infos, result)
