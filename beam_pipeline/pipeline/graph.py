"""The whole job on one screen.

::

    inputs -> find_clips -> place_clips -> plan_shards -> write_shards -> finish
              headers       arithmetic     the only       samples to      metadata.json
                                           shuffle        records
"""

from __future__ import annotations

import apache_beam as beam
from apache_beam.pvalue import AsDict, AsIter, AsSingleton

from beam_pipeline.dataset.manifest import make_manifest_part
from beam_pipeline.dataset.work_folder import announce_plan
from beam_pipeline.pipeline.finish import finish_job
from beam_pipeline.pipeline.job import Job
from beam_pipeline.pipeline.outputs import Found, Placed, Planned, Written
from beam_pipeline.pipeline.placing import AssignSplits, IndexClips, MeasureGroups
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
    resolve_job_format,
    split_info,
)
from beam_pipeline.plan.corpus import describe_clips, describe_reject, merge_corpora
from beam_pipeline.plan.segments import cut_shards, make_task
from beam_pipeline.plan.shards import lay_out
from beam_pipeline.plan.summary import summarise, tally_bucket
from beam_pipeline.storage.tfrecord import suffix_for

# In each chain, a line is a stage, and its comment is the type of what comes out of it;
# after a semicolon, the type of its side output.
# fmt: off

def build_pipeline(pipeline: beam.Pipeline, job: Job) -> beam.PCollection:
    """Builds the job, from its inputs to ``metadata.json``, whose path it returns."""
    found = find_clips(pipeline, job)
    placed = place_clips(found, job)
    planned = plan_shards(found, placed, job)
    written = write_shards(planned.work, job)
    return finish(planned, written, job)


def find_clips(pipeline: beam.Pipeline, job: Job) -> Found:
    """Lists the inputs, reads the headers, and decides the split of each clip."""
    list_sources = beam.ParDo(ListSources(job))
    once = pipeline | "Once" >> beam.Create([job.inputs], reshuffle=False)  # [Input]
    listed = (
        once
        | "ListSources" >> list_sources.with_outputs(LISTING, main="rows")
    )                                               # key, [SourceRow]; ListingSummary
    listing = listed[LISTING]
    probe_audio = beam.ParDo(ProbeAudio(job), AsSingleton(listing))
    probed = (
        listed.rows
        | "SpreadRows" >> beam.GroupByKey()         # key, [[SourceRow]]
        | "ProbeAudio" >> probe_audio.with_outputs(REJECTS, main="clips")
    )                                               # [Clip]; Reject
    clips, moves = (
        probed.clips
        | "AssignSplits" >> AssignSplits(job)
    )                                               # [Clip]; groups that were moved
    return Found(once, listing, clips, moves, probed[REJECTS])


def place_clips(found: Found, job: Job) -> Placed:
    """Gives every example its number in its split, and every split its shards."""
    recipe = job.recipe
    describe = beam.Map(describe_clips, recipe)
    placed, counts = (
        found.clips
        | "IndexClips" >> IndexClips(recipe.shards)
    )                                               # PlacedClips; (bucket, examples)
    described = found.clips | "DescribeClips" >> describe             # Corpus
    short = found.rejects | "DescribeRejects" >> beam.Map(describe_reject)  # Corpus
    corpora = (
        (described, short)
        | "AllCorpora" >> beam.Flatten()            # Corpus
        | "MergeCorpora" >> beam.CombineGlobally(merge_corpora)  # one Corpus
    )
    example_format = found.once | "ResolveFormat" >> beam.Map(
        resolve_job_format, AsIter(corpora), job, AsSingleton(found.listing),
    )                                               # ExampleFormat
    layouts = found.once | "LayOutShards" >> beam.Map(
        lay_out, AsDict(counts), AsSingleton(example_format), recipe,
    )                                               # {split: ShardLayout}
    measured = (
        placed
        | "MeasureGroups" >> MeasureGroups(layouts, recipe)
    )                                               # PlacedClips
    return Placed(measured, layouts, example_format)


def plan_shards(found: Found, placed: Placed, job: Job) -> Planned:
    """Gathers the segments of each shard: the only shuffle of the plan."""
    recipe, layouts = job.recipe, AsSingleton(placed.layouts)
    cut = beam.FlatMap(cut_shards, layouts, recipe)
    make = beam.Map(make_task, AsSingleton(placed.example_format), recipe.sha256())
    work = (
        placed.clips
        | "CutShards" >> cut                        # name, (Shard, [Segment])
        | "GroupShards" >> beam.GroupByKey()        # name, [(Shard, [Segment])]
        | "MakeTasks" >> make                       # ShardWork
    )
    manifest = (
        placed.clips
        | "MakeManifest" >> beam.Map(
            make_manifest_part, layouts, recipe
        )
    )                                               # ManifestPart
    return Planned(work, found.rejects, manifest, sum_up(found, placed, job))


def sum_up(found: Found, placed: Placed, job: Job) -> beam.PCollection:
    """Sums the plan up: for the user, and for the end of the job."""
    example_format = AsSingleton(placed.example_format)
    layouts = AsSingleton(placed.layouts)
    tally = beam.Map(tally_bucket, layouts, example_format, job.recipe)
    tallies = (
        placed.clips
        | "TallyBuckets" >> tally                   # counts by split, class and rate
    )
    return (
        found.once
        | "Summarise" >> beam.Map(
            summarise, AsSingleton(found.listing), example_format, layouts,
            AsIter(tallies), AsSingleton(found.moves),
            job.recipe.splits.hashed_shares(),
        )                                           # PlanSummary
        | "AnnouncePlan" >> beam.Map(announce_plan, job.work_folder)  # PlanSummary
    )


def write_shards(work: beam.PCollection, job: Job) -> Written:
    """Decodes, cuts, transforms, encodes and writes: one worker writes one shard."""
    places = tuple(dict.fromkeys([job.shards_folder(), job.output]))
    skip = beam.ParDo(SkipFinished(places, job.work_folder))
    decode = DecodeAudio(job.inputs, job.recipe, job.work_folder)
    encode = beam.ParDo(EncodeExamples())
    checked = (
        work
        | "SkipFinished" >> skip.with_outputs(FINISHED, main="work")
    )                                               # ShardWork; ShardInfo
    encoded = (
        checked.work
        | "DecodeAudio" >> beam.ParDo(decode)       # FrameBlock
        | "CutWindows" >> beam.ParDo(CutWindows())  # WindowBlock
        | "SelectAndAugment" >> beam.ParDo(SelectAndAugment())  # WindowBlock
        | "ApplyTransforms" >> beam.ParDo(ApplyTransforms())    # FeatureBlock
        | "EncodeExamples" >> encode.with_outputs(REJECTS, main="records")
    )                                               # EncodedBlock; Reject
    written = encoded.records | "WriteToTFRecord" >> WriteToTFRecord(
        job.shards_folder(), file_name_suffix=suffix_for(job.recipe.shards.compression),
        work_folder=job.work_folder,
    )                                               # ShardInfo
    return Written(checked[FINISHED], written, encoded[REJECTS])


def finish(planned: Planned, written: Written, job: Job) -> beam.PCollection:
    """Compares the shards with the plan, and writes ``metadata.json`` last."""
    shards = (
        (written.finished, written.shards)
        | "AllShards" >> beam.Flatten()             # ShardInfo
        | "SplitInfo" >> beam.FlatMap(split_info).with_outputs(OBSERVED, main="infos")
    )                                               # ShardInfo; split, observations
    observed = (
        shards[OBSERVED]
        | "MergeObservations" >> beam.CombinePerKey(MergeObservations())
    )                                               # split, merged observations
    rejects = (
        (planned.rejects, written.rejects)
        | "AllRejects" >> beam.Flatten()            # Reject
    )
    return (
        planned.summary
        | "FinishDataSet" >> beam.Map(
            finish_job, AsIter(shards.infos), AsIter(rejects),
            AsIter(planned.manifest), AsIter(observed), job,
        )                                           # path of metadata.json
    )
