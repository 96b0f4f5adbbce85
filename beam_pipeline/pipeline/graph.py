"""The whole job on one screen.

::

    inputs -> find_clips -> place_clips -> plan_shards -> write_shards -> finish
              headers       arithmetic     the only       samples to      metadata.json
                                           shuffle        records
"""

from __future__ import annotations

from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter, AsSingleton

from beam_pipeline.dataset.finish import finish_data_set
from beam_pipeline.pipeline.job import Job
from beam_pipeline.pipeline.placing import AssignSplits, IndexClips
from beam_pipeline.pipeline.sink import WriteToTFRecord
from beam_pipeline.pipeline.stages import (
    FINISHED,
    LISTING,
    OBSERVED,
    REJECTS,
    ApplyTransforms,
    CutWindows,
    DecodeAudio,
    EncodeExamples,
    ListSources,
    MergeObservations,
    ProbeAudio,
    SelectAndAugment,
    SkipFinished,
    announce_plan,
    make_manifest_part,
    resolve_format,
    split_info,
)
from beam_pipeline.plan.corpus import describe_clips, merge_corpora
from beam_pipeline.plan.segments import cut_shards, make_task
from beam_pipeline.plan.shards import lay_out
from beam_pipeline.plan.summary import summarise, tally_bucket
from beam_pipeline.storage.tfrecord import SUFFIX


class Found(NamedTuple):
    """The clips, as collections."""

    once: beam.PCollection  # the inputs, as one element
    listing: beam.PCollection  # one ListingSummary
    clips: beam.PCollection  # [Clip], each with its split
    salt: beam.PCollection  # one number or None: what the splits were decided with
    rejects: beam.PCollection  # Reject


class Placed(NamedTuple):
    """Every clip's position, as collections."""

    clips: beam.PCollection  # PlacedClips
    layouts: beam.PCollection  # one {split: ShardLayout}
    example_format: beam.PCollection  # one ExampleFormat


class Planned(NamedTuple):
    """The plan, as collections."""

    work: beam.PCollection  # ShardWork
    rejects: beam.PCollection  # Reject
    manifest: beam.PCollection  # (split, bucket, part of the manifest)
    summary: beam.PCollection  # one PlanSummary


class Written(NamedTuple):
    """The shards, as collections."""

    infos: beam.PCollection  # ShardInfo
    rejects: beam.PCollection  # Reject
    observed: beam.PCollection  # (split, what was observed of its windows)


# One step a line, and behind it what comes out of it.
# fmt: off

def build_pipeline(pipeline: beam.Pipeline, job: Job) -> beam.PCollection:
    """From inputs to ``metadata.json``; returns its path."""
    found = find_clips(pipeline, job)
    placed = place_clips(found, job)
    planned = plan_shards(found, placed, job)
    written = write_shards(planned.work, job)
    return finish(planned, written, job)


def find_clips(pipeline: beam.Pipeline, job: Job) -> Found:
    """Lists the inputs, reads headers, and decides each clip's split."""
    once = pipeline | "Once" >> beam.Create([job.inputs], reshuffle=False)
    list_sources = beam.ParDo(ListSources(job.recipe))
    listed = (
        once
        | "ListSources" >> list_sources.with_outputs(LISTING, main="rows")  # key, rows
    )
    probe_audio = beam.ParDo(
        ProbeAudio(job.inputs, job.recipe), AsSingleton(listed[LISTING])
    )
    probed = (
        listed.rows
        | "SpreadRows" >> beam.GroupByKey()  # key, [SourceRow]
        | "ProbeAudio" >> probe_audio.with_outputs(REJECTS, main="clips")  # [Clip]
    )
    clips, salt = (
        probed.clips
        | "AssignSplits" >> AssignSplits(job.recipe)  # [Clip]; the salt
    )
    return Found(once, listed[LISTING], clips, salt, probed[REJECTS])


def place_clips(found: Found, job: Job) -> Placed:
    """Gives every example its number in its split, and splits their shards."""
    recipe, columns = job.recipe, job.inputs[0].columns
    placed, counts = (
        found.clips
        | "IndexClips" >> IndexClips(recipe.shards)  # PlacedClips; (bucket, examples)
    )
    corpora = (
        found.clips
        | "DescribeClips" >> beam.Map(describe_clips, recipe.labels, recipe.events)
        | "MergeCorpora" >> beam.CombineGlobally(merge_corpora)  # one Corpus
    )
    example_format = found.once | "ResolveFormat" >> beam.Map(
        resolve_format, AsIter(corpora), recipe, job.work_folder,
        AsSingleton(found.listing), columns,
    )  # ExampleFormat
    layouts = found.once | "LayOutShards" >> beam.Map(
        lay_out, AsDict(counts), AsSingleton(example_format), recipe.shards,
        recipe.augmentation.copies,
    )  # {split: ShardLayout}
    return Placed(placed, layouts, example_format)


def plan_shards(found: Found, placed: Placed, job: Job) -> Planned:
    """Gathers what each shard takes of which clips: the only shuffle of plans."""
    recipe = job.recipe
    layouts, example_format = AsSingleton(placed.layouts), AsSingleton(placed.example_format)
    work = (
        placed.clips
        | "CutShards" >> beam.FlatMap(cut_shards, layouts, recipe)  # name, pieces
        | "GroupShards" >> beam.GroupByKey()  # name, [pieces]
        | "MakeTasks" >> beam.Map(make_task, example_format, recipe.sha256())  # ShardWork
    )
    manifest = (
        placed.clips
        | "MakeManifest" >> beam.Map(make_manifest_part, layouts, recipe)  # bytes
    )
    return Planned(work, found.rejects, manifest, sum_up(found, placed, job))


def sum_up(found: Found, placed: Placed, job: Job) -> beam.PCollection:
    """The plan in a few numbers, for people and for the end of the job."""
    layouts, example_format = AsSingleton(placed.layouts), AsSingleton(placed.example_format)
    tallies = (
        placed.clips
        | "TallyBuckets" >> beam.Map(tally_bucket, layouts, example_format, job.recipe)  # counts
    )
    return (
        found.once
        | "Summarise" >> beam.Map(
            summarise, AsSingleton(found.listing), example_format, layouts, AsIter(tallies),
            AsSingleton(found.salt), job.recipe.splits.hashed_shares(),
        )  # PlanSummary
        | "AnnouncePlan" >> beam.Map(announce_plan, job.work_folder)  # PlanSummary
    )


def write_shards(work: beam.PCollection, job: Job) -> Written:
    """Decodes, cuts, transforms, encodes and writes; one worker writes one shard."""
    skip_finished = beam.ParDo(SkipFinished(job.output, job.work_folder))
    encode_examples = beam.ParDo(EncodeExamples())
    write_records = WriteToTFRecord(
        job.output, file_name_suffix=SUFFIX, work_folder=job.work_folder
    )
    checked = (
        work
        | "SkipFinished" >> skip_finished.with_outputs(FINISHED, main="work")
    )  # ShardWork; ShardInfo
    encoded = (
        checked.work
        | "DecodeAudio" >> beam.ParDo(DecodeAudio(job.inputs, job.recipe))  # FrameBlock
        | "CutWindows" >> beam.ParDo(CutWindows())  # WindowBlock
        | "TreatWindows" >> beam.ParDo(SelectAndAugment())  # WindowBlock
        | "ApplyTransforms" >> beam.ParDo(ApplyTransforms())  # FeatureBlock
        | "EncodeExamples" >> encode_examples.with_outputs(REJECTS, main="records")
    )  # PlacedRecords; Reject
    written = encoded.records | "WriteToTFRecord" >> write_records  # ShardInfo
    return gather(checked[FINISHED], written, encoded[REJECTS])


def gather(
    finished: beam.PCollection, written: beam.PCollection, rejects: beam.PCollection
) -> Written:
    """Shards of this run and of earlier ones, and what was observed in them."""
    split = (
        (finished, written)
        | "AllShards" >> beam.Flatten()  # ShardInfo
        | "SplitInfo" >> beam.FlatMap(split_info).with_outputs(OBSERVED, main="infos")
    )
    observed = (
        split[OBSERVED]
        | "MergeObservations" >> beam.CombinePerKey(MergeObservations())  # split, all
    )
    return Written(split.infos, rejects, observed)


def finish(planned: Planned, written: Written, job: Job) -> beam.PCollection:
    """Compares what was written with the plan; ``metadata.json`` comes last."""
    rejects = (planned.rejects, written.rejects) | "AllRejects" >> beam.Flatten()
    return (
        planned.summary
        | "FinishDataSet" >> beam.Map(
            finish_data_set, AsIter(written.infos), AsIter(rejects),
            AsIter(planned.manifest), AsIter(written.observed), output=job.output,
            work_folder=job.work_folder, recipe=job.recipe,
            max_rejected=job.max_rejected, columns=job.inputs[0].columns,
        )  # path of metadata.json
    )
