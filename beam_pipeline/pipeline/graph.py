"""The whole job on one screen.

::

    inputs -> list_rows -> probe_clips -> plan_shards -> write_shards -> finish
              names        headers        one worker     samples to      metadata.json
                                                         records

Clips and tasks are in pages of the work folder (see :mod:`.planner`). Between the
steps, only their names move.
"""

from __future__ import annotations

import apache_beam as beam
from apache_beam.pvalue import AsIter, AsSingleton

from beam_pipeline.dataset.job import Job
from beam_pipeline.pipeline.sink import WriteToTFRecord
from beam_pipeline.pipeline.stages import (
    FINISHED,
    LISTING,
    REJECTS,
    DecodeAudio,
    EncodeExamples,
    ListSources,
    ProbeClips,
    SkipFinished,
    Written,
    finish_planned,
    plan_pages,
    read_tasks,
    step,
)
from beam_pipeline.plan.shards import ShardWork
from beam_pipeline.storage.pages import Place
from beam_pipeline.storage.tfrecord import suffix_for
from beam_pipeline.write.blocks import (
    FeatureBlock,
    FrameBlock,
    WindowBlock,
    apply_transforms,
    cut_windows,
    select_and_augment,
)

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


def write_shards(work: beam.PCollection, job: Job) -> Written:
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
    written = encoded.records | "WriteToTFRecord" >> WriteToTFRecord(
        job.shards_folder(), file_name_suffix=suffix_for(job.recipe.compression),
        compression=job.recipe.compression, work_folder=job.work_folder,
        claim=job.claim,
    )                                               # ShardInfo
    return Written(checked[FINISHED], written, encoded[REJECTS])


def finish(
    once: beam.PCollection, written: Written, job: Job
) -> beam.PCollection:
    """Compares the shards with the plan, and writes ``metadata.json`` last."""
    shards = (
        (written.finished, written.shards)
        | "AllShards" >> beam.Flatten()             # ShardInfo
    )
    return (
        once
        | "FinishDataSet" >> beam.Map(
            finish_planned, AsIter(shards), AsIter(written.rejects), job,
        )                                           # path of metadata.json
    )
