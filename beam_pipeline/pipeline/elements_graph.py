"""The job for examples of unknown number, on one screen.

::

    blocks -> write_block -> lay_out -> join_shard -> finish_elements
              load, split,   bounds     copies        metadata.json
              encode                    members

Each block is written to files of members by one worker. Then the numbers of all files
meet in one place, which decides where shards begin and end. The files stay where they
are until workers join them to shards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import apache_beam as beam
from apache_beam.pvalue import AsIter
from apache_beam.typehints import with_input_types, with_output_types

from beam_pipeline.dataset.element_set import ElementSet, finish_elements, lay_out
from beam_pipeline.dataset.work_folder import keeping_verdict
from beam_pipeline.planning.shards import ShardInfo
from beam_pipeline.write.element_blocks import (
    BlockResult,
    SourceEncoder,
    StoredBlock,
    write_block,
)
from beam_pipeline.write.member_files import JoinedShard, join_shard
from beam_pipeline.write.process_settings import OneThread

# fmt: off

def build_elements_pipeline(
    pipeline: beam.Pipeline, job: ElementSet, encoder: SourceEncoder,
    blocks: Sequence[StoredBlock],
) -> beam.PCollection:
    """Builds the job, from its blocks to ``metadata.json``, whose path it returns."""
    once = pipeline | "Once" >> beam.Create([None], reshuffle=False)
    results = (
        pipeline
        | "Blocks" >> beam.Create(blocks)                       # StoredBlock
        | "SpreadBlocks" >> beam.Reshuffle()
        | "WriteBlocks" >> beam.ParDo(WriteBlocks(job, encoder))  # BlockResult
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


@with_input_types(StoredBlock)
@with_output_types(BlockResult)
@dataclass(eq=False)
class WriteBlocks(beam.DoFn):  # type: ignore[misc]
    """Calls :func:`write_block`: StoredBlock -> BlockResult."""

    job: ElementSet
    encoder: SourceEncoder

    def setup(self) -> None:
        OneThread.begin()

    def teardown(self) -> None:
        OneThread.end()

    def process(self, block: StoredBlock) -> Iterator[BlockResult]:
        with keeping_verdict(self.job.target.work, self.job.target.claim):
            yield write_block(block, self.encoder, self.job.sizes, self.job.target)


def _lay_out(
    _: None, results: Iterable[BlockResult], job: ElementSet
) -> Iterator[JoinedShard]:
    with keeping_verdict(job.target.work, job.target.claim):
        yield from lay_out(job, results)


def _join(shard: JoinedShard, job: ElementSet) -> ShardInfo:
    with keeping_verdict(job.target.work, job.target.claim):
        return join_shard(shard, job.sizes, job.target.output, job.target.drafts)


def _finish(
    _: None, infos: Iterable[ShardInfo], results: Iterable[BlockResult], job: ElementSet
) -> str:
    with keeping_verdict(job.target.work, job.target.claim):
        return finish_elements(job, infos, results)
