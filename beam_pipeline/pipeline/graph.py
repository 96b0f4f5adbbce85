"""The whole job on one screen."""

from __future__ import annotations

from typing import NamedTuple

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter, AsSingleton

from beam_pipeline.dataset.finish import finish_data_set
from beam_pipeline.pipeline.job import Job
from beam_pipeline.pipeline.sink import WriteToTFRecord
from beam_pipeline.pipeline.stages import (
    FINISHED,
    LISTING,
    OBSERVED,
    REJECTS,
    ApplyTransforms,
    AssignSplits,
    CutWindows,
    DecodeAudio,
    EncodeExamples,
    IndexClips,
    ListSources,
    MergeObservations,
    ProbeAudio,
    SkipFinished,
    TreatWindows,
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


class Placed(NamedTuple):
    """Every clip's place, as collections."""

    clips: beam.PCollection  # PlacedClips
    rejects: beam.PCollection  # Reject
    layouts: beam.PCollection  # one {split: ShardLayout}
    form: beam.PCollection  # one Format
    summary: beam.PCollection  # one PlanSummary


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


def build_pipeline(pipeline: beam.Pipeline, job: Job) -> beam.PCollection:
    """From inputs to ``metadata.json``; returns its path."""
    planned = plan_shards(pipeline, job)
    written = write_shards(planned.work, job)
    return finish(planned, written, job)


def plan_shards(pipeline: beam.Pipeline, job: Job) -> Planned:
    """Gives every window its place."""
    placed = place_clips(pipeline, job)
    layouts, form = AsSingleton(placed.layouts), AsSingleton(placed.form)
    recipe = job.recipe
    work = (
        placed.clips
        | "CutShards" >> beam.FlatMap(cut_shards, layouts, recipe)  # name, pieces
        | "GroupShards" >> beam.GroupByKey()
        | "MakeTasks" >> beam.Map(make_task, form, recipe.sha256())  # ShardWork
    )
    manifest = (
        placed.clips
        | "DescribeClips" >> beam.Map(make_manifest_part, layouts, recipe)  # bytes
    )
    return Planned(work, placed.rejects, manifest, placed.summary)


def place_clips(pipeline: beam.Pipeline, job: Job) -> Placed:
    """Reads headers; gives every clip its place, and sums up: a plan to look at."""
    recipe = job.recipe
    list_sources = beam.ParDo(ListSources(recipe))
    once = pipeline | "Once" >> beam.Create([job.inputs], reshuffle=False)
    listed = (
        once
        | "ListSources" >> list_sources.with_outputs(LISTING, main="rows")  # key, rows
    )
    listing = AsSingleton(listed[LISTING])
    probe_audio = beam.ParDo(ProbeAudio(job.inputs, recipe), listing)
    probed = (
        listed.rows
        | "SpreadRows" >> beam.GroupByKey()  # key, [SourceRow]
        | "ProbeAudio" >> probe_audio.with_outputs(REJECTS, main="clips")  # [Clip]
    )
    clips, salt = (
        probed.clips | "AssignSplits" >> AssignSplits(recipe)  # [Clip]; the salt
    )
    placed, counts = (
        clips | "IndexClips" >> IndexClips(recipe)  # PlacedClips; (bucket, windows)
    )
    corpora = (
        clips
        | "DescribeCorpus" >> beam.Map(describe_clips, recipe)  # Corpus
        | "MergeCorpora" >> beam.CombineGlobally(merge_corpora)  # one Corpus
    )
    form = (
        once
        | "ResolveFormat"
        >> beam.Map(
            resolve_format,
            AsIter(corpora),
            recipe,
            job.work_folder,
            listing,
            job.inputs[0].columns,
        )  # Format
    )
    layouts = (
        once
        | "LayOutShards"
        >> beam.Map(lay_out, AsDict(counts), AsSingleton(form), recipe)  # split: Layout
    )
    tallies = (
        placed
        | "TallyBuckets"
        >> beam.Map(
            tally_bucket, AsSingleton(layouts), AsSingleton(form), recipe
        )  # key: counts, of all kinds
    )
    summary = (
        once
        | "Summarise"
        >> beam.Map(
            summarise,
            listing,
            AsSingleton(form),
            AsSingleton(layouts),
            AsIter(tallies),
            AsSingleton(salt),
            recipe,
        )  # PlanSummary
        | "AnnouncePlan" >> beam.Map(announce_plan, job.work_folder)
    )
    return Placed(placed, probed[REJECTS], layouts, form, summary)


def write_shards(work: beam.PCollection, job: Job) -> Written:
    """Decodes, cuts, transforms, encodes and writes; one shard is one worker's work."""
    skip_finished = beam.ParDo(SkipFinished(job.output, job.work_folder))
    encode_examples = beam.ParDo(EncodeExamples())
    checked = work | "SkipFinished" >> skip_finished.with_outputs(
        FINISHED, main="work"
    )  # ShardWork; ShardInfo
    encoded = (
        checked.work
        | "DecodeAudio" >> beam.ParDo(DecodeAudio(job.inputs, job.recipe))  # FrameBlock
        | "CutWindows" >> beam.ParDo(CutWindows())  # WindowBlock
        | "TreatWindows" >> beam.ParDo(TreatWindows())  # WindowBlock
        | "ApplyTransforms" >> beam.ParDo(ApplyTransforms())  # FeatureBlock
        | "EncodeExamples"
        >> encode_examples.with_outputs(REJECTS, main="records")  # PlacedRecords
    )
    written = (
        encoded.records
        | "WriteToTFRecord"
        >> WriteToTFRecord(
            job.output, file_name_suffix=SUFFIX, work_folder=job.work_folder
        )  # ShardInfo
    )
    infos = (
        (checked[FINISHED], written)
        | "AllShards" >> beam.Flatten()
        | "SplitInfo" >> beam.FlatMap(split_info).with_outputs(OBSERVED, main="infos")
    )  # ShardInfo; (split, observations)
    observed = (
        infos[OBSERVED]
        | "MergeObservations" >> beam.CombinePerKey(MergeObservations())  # split, all
    )
    return Written(infos.infos, encoded[REJECTS], observed)


def finish(planned: Planned, written: Written, job: Job) -> beam.PCollection:
    """Compares what was written with the plan; ``metadata.json`` comes last."""
    rejects = (planned.rejects, written.rejects) | "AllRejects" >> beam.Flatten()
    return (
        planned.summary
        | "FinishDataSet"
        >> beam.Map(
            finish_data_set,
            AsIter(written.infos),
            AsIter(rejects),
            AsIter(planned.manifest),
            AsIter(written.observed),
            output=job.output,
            work_folder=job.work_folder,
            recipe=job.recipe,
            max_rejected=job.max_rejected,
            columns=job.inputs[0].columns,
        )  # path of metadata.json
    )
