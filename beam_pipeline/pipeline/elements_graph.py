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

from beam_pipeline.dataset import element_set, folders
from beam_pipeline.dataset.element_set import (
    BlockResult,
    ElementSet,
    SourceEncoder,
    StoredBlock,
)
from beam_pipeline.pipeline import sink
from beam_pipeline.planning.shards import ShardInfo
from beam_pipeline.write.member_files import JoinedShard, join_shard

# A line is a stage, and its comment is the type of what comes out of it.
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
class WriteBlocks(sink.OneThreadStep):
    """Calls :func:`write_block`: StoredBlock -> BlockResult."""

    job: ElementSet
    encoder: SourceEncoder

    def process(self, block: StoredBlock) -> Iterator[BlockResult]:
        with folders.storing_error(self.job.target.work, self.job.target.claim):
            yield element_set.write_block(
                block, self.encoder, self.job.sizes, self.job.target
            )


def _lay_out(
    _: None, results: Iterable[BlockResult], job: ElementSet
) -> Iterator[JoinedShard]:
    with folders.storing_error(job.target.work, job.target.claim):
        yield from element_set.lay_out(job, results)


def _join(shard: JoinedShard, job: ElementSet) -> ShardInfo:
    with folders.storing_error(job.target.work, job.target.claim):
        return join_shard(shard, job.sizes, job.target.output, job.target.drafts)


def _finish(
    _: None,
    infos: Iterable[ShardInfo],
    results: Iterable[BlockResult],
    job: ElementSet,
) -> str:
    with folders.storing_error(job.target.work, job.target.claim):
        return element_set.finish_elements(job, infos, results)
