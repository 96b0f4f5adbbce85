"""The whole job on one screen."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsSingleton

from beam_pipeline import stages
from beam_pipeline.recipe import Recipe
from beam_pipeline.sink import WriteToTFRecord
from beam_pipeline.sources import Input
from beam_pipeline.tfrecord import SUFFIX


@dataclass(frozen=True)
class Job:
    """What to record, how, and where to: ``output`` ends in a separator."""

    inputs: tuple[Input, ...]
    output: str
    work_folder: str
    recipe: Recipe
    max_rejected: str = "0"


class Planned(NamedTuple):
    """The plan, as collections."""

    tasks: beam.PCollection  # ShardTask
    rejects: beam.PCollection  # Reject
    manifest: beam.PCollection  # (split, bucket, part of the manifest)
    summary: beam.PCollection  # one PlanSummary
    form: beam.PCollection  # one Format


class Written(NamedTuple):
    """The shards, as collections."""

    infos: beam.PCollection  # ShardInfo
    rejects: beam.PCollection  # Reject


def build_pipeline(pipeline: beam.Pipeline, job: Job) -> beam.PCollection:
    """From inputs to ``metadata.json``; returns its path."""
    planned = plan_shards(pipeline, job)
    written = write_shards(planned.tasks, planned.form, job)
    return finish(planned, written, job)


def plan_shards(pipeline: beam.Pipeline, job: Job) -> Planned:
    """Reads headers; gives every window its place."""
    recipe, salt = job.recipe, job.recipe.fingerprint()
    listed = (
        pipeline
        | "Inputs" >> beam.Create([job.inputs], reshuffle=False)
        | "ListSources"
        >> beam.ParDo(stages.ListSources(recipe.label_from)).with_outputs(
            stages.LISTING, main="rows"
        )
    )  # [SourceRow]; Listing
    probed = (
        listed.rows
        | "SpreadRows" >> beam.Reshuffle()
        | "ProbeAudio"
        >> beam.ParDo(stages.ProbeAudio(job.inputs, recipe)).with_outputs(
            stages.REJECTS, main="clips"
        )
    )  # [Clip]; Reject
    placed, repeated, counts = probed.clips | "IndexClips" >> stages.IndexClips(
        recipe
    )  # PlacedClips; Reject; ((split, bucket), windows)
    form = placed | "DescribeCorpus" >> stages.DescribeCorpus(recipe)  # Format
    once = pipeline | "Once" >> beam.Create([None], reshuffle=False)
    layouts = once | "LayOutShards" >> beam.Map(
        stages.lay_out, AsDict(counts), AsSingleton(form), recipe
    )  # {split: ShardLayout}
    pieces = placed | "CutShards" >> beam.FlatMap(
        stages.cut_shards, AsSingleton(layouts)
    )  # (name, [(Shard, [Segment])])
    tasks = (
        pieces
        | "GroupShards" >> beam.GroupByKey()
        | "MakeTasks" >> beam.Map(stages.make_task, salt)
    )  # ShardTask
    tally = (
        pieces
        | "TallySegments" >> beam.FlatMapTuple(stages.tally_segments)
        | "SumTallies" >> beam.CombinePerKey(stages.sum_pairs)
    )  # (TallyKey, (clips, windows))
    manifest = placed | "DescribeClips" >> beam.Map(
        stages.make_manifest_part, AsSingleton(layouts)
    )  # (split, bucket, bytes)
    summary = once | "Summarise" >> beam.Map(
        stages.summarise,
        AsSingleton(listed[stages.LISTING]),
        AsSingleton(form),
        AsSingleton(layouts),
        AsDict(tally),
    )  # PlanSummary
    rejects = (probed[stages.REJECTS], repeated) | "PlanRejects" >> beam.Flatten()
    return Planned(tasks, rejects, manifest, summary, form)


def write_shards(tasks: beam.PCollection, form: beam.PCollection, job: Job) -> Written:
    """Decodes, cuts, transforms, encodes and writes; one shard is one worker's work."""
    checked = (
        tasks
        | "SpreadShards" >> beam.Reshuffle()
        | "SkipFinished"
        >> beam.ParDo(stages.SkipFinished(job.output, job.work_folder)).with_outputs(
            stages.FINISHED, main="tasks"
        )
    )  # ShardTask; ShardInfo
    encoded = (
        checked.tasks
        | "DecodeAudio" >> beam.ParDo(stages.DecodeAudio(job.inputs, job.recipe))
        | "CutWindows" >> beam.ParDo(stages.CutWindows(job.recipe))
        | "ApplyTransforms" >> beam.ParDo(stages.ApplyTransforms(), AsSingleton(form))
        | "EncodeExamples"
        >> beam.ParDo(stages.EncodeExamples(), AsSingleton(form)).with_outputs(
            stages.REJECTS, main="records"
        )
    )  # PlacedRecords; Reject
    written = encoded.records | "WriteToTFRecord" >> WriteToTFRecord(
        job.output, file_name_suffix=SUFFIX, work_folder=job.work_folder
    )  # ShardInfo
    infos = (checked[stages.FINISHED], written) | "AllShards" >> beam.Flatten()
    return Written(infos, encoded[stages.REJECTS])


def finish(planned: Planned, written: Written, job: Job) -> beam.PCollection:
    """Compares with the plan and writes the metadata."""
    rejects = (planned.rejects, written.rejects) | "AllRejects" >> beam.Flatten()
    return (
        written.infos,
        rejects,
        planned.manifest,
        planned.summary,
    ) | "WriteMetadata" >> stages.WriteMetadata(
        job.output, job.work_folder, job.recipe, job.max_rejected
    )  # path of metadata.json
