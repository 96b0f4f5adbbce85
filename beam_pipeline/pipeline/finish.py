"""The end of each shard, and that of a run, on whatever runner.

::

    check -> files beside the shards -> metadata.json -> the place of a data set that is
    replaced -> clear the work folder

Whatever fails before ``metadata.json``, the same command can be given again. A runner
may call the end twice.

A shard that has its name has a receipt in the work folder: with what was observed in
it, for the end of the run, and so that the next run need not write it again.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter, itemgetter

from beam_pipeline.audio.formats import DEMUXERS
from beam_pipeline.dataset import folders, tables
from beam_pipeline.dataset.job import Job, version_differences, versions_for
from beam_pipeline.dataset.metadata import Metadata, ShardEntry, SplitEntry
from beam_pipeline.errors import AudioTFRecordsError, IncompleteRun, InputError
from beam_pipeline.examples.features import ExampleFormat
from beam_pipeline.pipeline.planner import planned_rejects, read_plan
from beam_pipeline.planning.clips import Reject
from beam_pipeline.planning.shards import (
    ClipSketch,
    PlanSummary,
    Shard,
    ShardInfo,
    in_frames,
    seconds_of,
    split_by_class,
)
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import Claim
from beam_pipeline.storage.pages import Pages, SortedValues
from beam_pipeline.text import parse_json
from beam_pipeline.write.shard import Observations
from beam_pipeline.write.window_rows import write_windows


def finish_job(
    plan_folder: str, infos: Iterable[ShardInfo], rejects: Iterable[Reject], job: Job
) -> str:
    """Completes the data set of a job, or raises why it is not complete.

    Parameters
    ----------
    plan_folder : str
        The folder that has the plan.
    infos, rejects : iterable
        What the workers have written, and the rejects that they found.

    Returns
    -------
    str
        The path of ``metadata.json``. Empty if the run had nothing to add to the data
        sets whose clips it left out: then it writes nothing but the list of its rejects
        in the work folder.

    Raises
    ------
    IncompleteRun, TooManyRejected, InputError
        If the data set is not complete. ``metadata.json`` is not written then;
        ``rejected.jsonl`` is.
    """
    written, shards = sort_shards(infos)
    output, work, claim = job.output, job.work_folder, job.claim
    has_started = folders.has_run(work)
    if not has_started and is_finished(output, shards):
        folders.clear_finished(work, claim)  # an earlier call ended after that
        return files.join(output, folders.METADATA)
    claim.check()
    plan = read_plan(plan_folder)
    summary, manifest = plan.summary, Pages(plan_folder, plan.manifest)
    rejects = tables.sort_rejects(chain(planned_rejects(plan, plan_folder), rejects))
    folder = job.shards_folder()
    is_new = any(info.examples for info in shards) or not job.skip_recorded
    # Whether the output has a data set that stays, until the end or for ever.
    has_metadata = files.exists(files.join(output, folders.METADATA))
    stays = folder != output or (has_metadata and not is_new)
    with folders.storing_error(work, claim):
        if not job.allow_unreadable:
            kept = "All other clips are written."
            tables.check_readable(summary.listing, rejects, kept)
        if job.repairs:
            return finish_repair(shards, job)
        try:
            if is_new:
                tables.check_any_accepted(summary, rejects)
                check_any_selected(shards, job.recipe)
            check_complete(summary, shards, rejects)
            check_clips(summary, rejects, manifest, work)
            observed = merge_observed(shards, work)
            listed = work if stays else ""
            tables.check_rejects(summary.listing, rejects, job.max_rejected, listed)
        except AudioTFRecordsError:
            _list_rejects(folders.REJECTED, work if stays else output, rejects, claim)
            raise
        current = [info.file for info in shards if is_new]
        if has_started and (is_new or folder == output) and files.is_folder(folder):
            folders.delete_stale(folder, current, claim)  # the shards of earlier plans
    if not is_new:
        _list_rejects(folders.NOTHING_NEW, work, rejects, claim)
        return ""
    stage = claim.stage(folder)
    tables.write_rejects(files.join(stage, folders.REJECTED), rejects)
    fields = tables.manifest_fields(job.recipe, job.inputs[0].columns)
    sketches = sort_sketches(written)
    tables.write_manifest(
        files.join(stage, folders.MANIFEST), manifest, fields, sketches
    )
    are_mixed = job.recipe.examples_are_mixed
    write_windows(files.join(stage, folders.WINDOWS), written, are_mixed)
    formats = tables.recorded_formats(files.join(stage, folders.MANIFEST))
    metadata = assemble_metadata(
        summary, shards, rejects, observed, job.recipe, formats
    )
    claim.check()
    metadata.save(stage, folders.BESIDE, written)
    _publish((*folders.BESIDE, folders.METADATA), folder, claim)
    if folder != output:
        folders.finish_switch(output, claim)
    folders.clear_finished(work, claim)
    return files.join(output, folders.METADATA)


def _publish(names: Iterable[str], folder: str, claim: Claim) -> None:
    """Moves files to their place, unless they were written there."""
    stage = claim.stage(folder)
    for name in names if stage != folder else ():
        claim.move(files.join(stage, name), files.join(folder, name))


def _list_rejects(
    name: str, folder: str, rejects: Iterable[Reject], claim: Claim
) -> None:
    """Writes the list of rejects under a name into a folder."""
    tables.write_rejects(files.join(claim.stage(folder), name), rejects)
    _publish((name,), folder, claim)


def sort_shards(
    infos: Iterable[ShardInfo],
) -> tuple[SortedValues[ShardInfo], list[ShardInfo]]:
    """Returns the shards of a run in their order, twice: on disk, and as a list.

    In the list, they lack what grows with the clips: members, windows and sketches.
    """
    written = SortedValues(lambda info: (info.shard.split, info.shard.number), infos)
    return written, [
        info._replace(members="", windows="", sketches=()) for info in written
    ]


def sort_sketches(infos: Iterable[ShardInfo]) -> Iterator[ClipSketch]:
    """Yields what shards know of their clips, in the order of the manifest."""
    of_splits = ((info.shard.split, each) for info in infos for each in info.sketches)
    ordered = SortedValues(lambda pair: (pair[0], *pair[1][:2]), of_splits)
    return map(itemgetter(1), ordered)


def check_any_selected(infos: Sequence[ShardInfo], recipe: Recipe) -> None:
    """Raises InputError if every window was left out."""
    left_out = sum(info.left_out for info in infos)
    if not left_out or any(info.examples for info in infos):
        return
    raise InputError(
        f"None of {left_out} windows is left: `keep` ('{recipe.keep}') or `no_event` "
        "leaves out all of them. Lower the threshold of `keep`, lower `event_overlap` "
        f"({recipe.event_overlap:g}), or check the times in `events`. Give `overwrite` "
        "to replace this run."
    )


def check_complete(
    summary: PlanSummary, infos: Sequence[ShardInfo], rejects: Iterable[Reject]
) -> None:
    """Compares what was written with the plan, shard by shard.

    Raises
    ------
    IncompleteRun
        If shards are missing or were written twice, or if the examples and the lost
        windows of a shard do not add up to the plan. The error names the shards.
    """
    lost: Counter[str] = Counter()
    for reject in rejects:
        if reject.shard is not None:
            lost[reject.shard] += reject.examples
    written = Counter(info.shard.name for info in infos)
    filled = {info.shard.name: info.examples + info.left_out for info in infos}
    problems = []
    for layout in summary.layouts.values():
        for k in range(layout.shards):
            shard = layout.shard(k)
            name = shard.name
            if written[name] != 1:
                problems.append((name, f"written {written[name]} times"))
            elif filled[name] + lost[name] != shard.examples:
                found = f"{filled[name]} examples written and {lost[name]} lost"
                problems.append((name, f"{found}, but {shard.examples} planned"))
    if problems:
        raise IncompleteRun(
            "The written shards differ from the plan:\n"
            f"{tables.first_lines(problems, len(problems), ' shards')}\n"
            f"The runner lost or repeated work. {folders.CONTINUE}"
        )


def check_clips(
    summary: PlanSummary,
    rejects: Iterable[Reject],
    manifest: Iterable[tables.ManifestPart],
    work_folder: str,
) -> None:
    """Checks that the manifest and the rejects have every clip and every window.

    Raises
    ------
    IncompleteRun
        If some of them did not reach the end of the run.
    """
    clips = tables.count_clips(reject for reject in rejects if reject.shard is None)
    windows = 0
    for part in manifest:
        clips += len(part.rows)
        windows += part.windows
    planned = sum(layout.total for layout in summary.layouts.values())
    for what, found, expected in (
        ("clips", clips, summary.listing.clips),
        ("windows of clips", windows, planned),
    ):
        if found != expected:
            raise IncompleteRun(
                f"At the end of the run there are {found} {what} instead of "
                f"{expected}. Files of {work_folder} were deleted during the run, or "
                f"the runner lost or repeated work. {folders.CONTINUE}"
            )


def assemble_metadata(
    summary: PlanSummary,
    infos: Sequence[ShardInfo],
    rejects: Iterable[Reject],
    observed: Mapping[str, Observations],
    recipe: Recipe,
    formats: Iterable[str] = (),
) -> Metadata:
    """Returns the metadata; they count what was written, not what was planned.

    ``infos`` are in order. ``rejects`` are iterated several times; those of one row
    must follow each other. ``formats`` are those of the clips.
    """
    example_format = summary.example_format
    if example_format is None:
        raise ValueError("a data set without clips has no metadata")
    if recipe.hashed_shares() is not None:
        # So no group changes its split in a data set beside this one.
        recipe = recipe.replace(split_moves=summary.moves or {})
    clips = recorded_clips(summary, rejects)
    return Metadata(
        recipe,
        example_format.features.specs,
        example_format.classes,
        {
            split: split_entry(
                split,
                [info for info in infos if info.shard.split == split],
                clips[split],
                observed[split],
                example_format,
            )
            for split in summary.layouts
        },
        summary.listing.clips,
        tables.count_clips(rejects),
        summary.listing.ignored,
        versions_for(recipe, ffmpeg=not DEMUXERS.keys().isdisjoint(formats)),
        listing_sha256=summary.listing.sha256,
        left_out=dict(sorted(summary.left_out.items())) or None,
    )


def recorded_clips(summary: PlanSummary, rejects: Iterable[Reject]) -> Counter[str]:
    """Returns the clips of each split that have lost no example."""
    clips = Counter[str]()
    for key, n in summary.clips.items():
        clips[key.split] += n
    late = (reject for reject in rejects if reject.shard is not None)
    for _, of_clip in groupby(late, key=attrgetter("row")):
        clips[next(of_clip).split or ""] -= 1
    return clips


def split_entry(
    split: str,
    infos: Sequence[ShardInfo],
    clips: int,
    observed: Observations,
    example_format: ExampleFormat,
) -> SplitEntry:
    """Returns the entry of a split, from its shards and what was observed in them."""
    # With events, classes belong to windows, not to clips.
    has_events = example_format.features.events is not None
    counted = observed.classes if has_events else observed.examples
    of_all, of_classes = (
        in_frames(counts, observed.frames, example_format)
        for counts in (observed.examples, counted)
    )
    return SplitEntry(
        examples=sum(info.examples for info in infos),
        clips=clips,
        seconds=seconds_of(of_all, split),
        left_out=sum(info.left_out for info in infos),
        examples_per_class={
            label: sum(some.values())
            for label, some in split_by_class(example_format, counted).items()
        },
        seconds_per_class={
            label: seconds_of(some, split)
            for label, some in split_by_class(example_format, of_classes).items()
        },
        statistics=observed.to_json(),
        shards=tuple(map(ShardEntry.like, infos)),
    )


def merge_observed(
    shards: Iterable[ShardInfo], work_folder: str
) -> dict[str, Observations]:
    """Returns the observations of each split, from the receipts of its shards.

    One receipt after the other is read, in the order of ``shards``. This order decides
    how statistics are rounded.

    Raises
    ------
    IncompleteRun
        If a receipt is missing, or is of other bytes than the shard.
    """
    merged: dict[str, Observations] = {}
    for info in shards:
        receipt = read_receipt(info.shard, work_folder, info.is_whole())
        if receipt is None or receipt.seen is None or receipt.sha256 != info.sha256:
            raise IncompleteRun(
                f"Shard {info.shard.name} has no receipt in {work_folder}, or its "
                "receipt is of another file. Files there were deleted during the run, "
                f"or two runs wrote this shard. {folders.CONTINUE}"
            )
        seen = Observations.from_state(receipt.seen)
        if info.shard.split in merged:
            merged[info.shard.split].merge(seen)
        else:
            merged[info.shard.split] = seen
    return merged


def finish_repair(infos: Iterable[ShardInfo], job: Job) -> str:
    """Puts the metadata of a data set back, if every shard has its recorded bytes.

    Returns
    -------
    str
        The path of ``metadata.json``.

    Raises
    ------
    IncompleteRun
        If a shard has other bytes, or there are others. The metadata stay in the work
        folder, and any run with the recorded recipe can try again.
    """
    saved = folders.recorded_metadata(job.output)
    path = files.join(job.output, folders.METADATA)
    if not files.exists(saved):
        return path  # a runner has called this twice
    text = files.read_bytes(saved)
    metadata = Metadata.parse(text, saved)
    recorded = {entry.file: entry.sha256 for entry in metadata.shards()}
    found = {info.file: info.sha256 for info in infos}
    both = {*recorded, *found}
    other = sorted(file for file in both if recorded.get(file) != found.get(file))
    if other:
        job.claim.discard(files.join(job.work_folder, folders.JOB_FILE))
        raise IncompleteRun(_other_bytes(other, metadata, saved))
    folders.delete_stale(job.output, recorded, job.claim)
    job.claim.write(path, text)
    job.claim.discard(saved)
    folders.clear_finished(job.work_folder, job.claim)
    return path


def _other_bytes(other: Sequence[str], metadata: Metadata, saved: str) -> str:
    """Returns why shards that were made again do not complete a data set."""
    recipe = metadata.recipe
    assert recipe is not None
    found = ((file, "would have other bytes") for file in other)
    shown = tables.first_lines(found, len(other), " shards")
    versions = [
        f"\n  {version}" for version in version_differences(metadata.writer, recipe)
    ]
    return (
        f"These inputs do not give the recorded shards again:\n{shown}"
        f"{''.join(versions)}\nThe metadata stay in {saved}. Restore the inputs and "
        "the versions of before, and give the command again. Or give `overwrite` to "
        "record a new data set."
    )


def is_finished(output: str, infos: Sequence[ShardInfo]) -> bool:
    """Whether the output holds a data set of just these shards."""
    try:
        entries = list(Metadata.load(output).shards())
    except InputError:
        return False
    return {(entry.file, entry.sha256) for entry in entries} == {
        (info.file, info.sha256) for info in infos
    }


# Receipts

# There is no receipt, or it was cut off, or somebody else has written it.
_NO_RECEIPT = (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError)


def write_receipt(info: ShardInfo, job: Job) -> None:
    """Writes the receipt of a shard that has its name; only it has the observations."""
    content = json.dumps({**info._asdict(), "shard": info.shard._asdict()}).encode()
    path = folders.receipt_path(info.shard.name, job.work_folder, info.is_whole())
    job.claim.write(path, content)


def read_receipt(
    shard: Shard, work_folder: str, is_whole: bool = True
) -> ShardInfo | None:
    """Returns what the receipt of this very shard says; None if there is none."""
    path = folders.receipt_path(shard.name, work_folder, is_whole)
    try:
        values = parse_json(files.read_bytes(path))
        sketches = tuple(ClipSketch(*each) for each in values.pop("sketches"))
        info = ShardInfo(Shard(**values.pop("shard")), sketches=sketches, **values)
    except _NO_RECEIPT:
        return None
    return info if info.shard == shard else None


def find_finished(shard: Shard, folder: str, work_folder: str) -> ShardInfo | None:
    """Returns this very shard, without observations; None if no run has finished it.

    One that lost windows is tried again. The file must still have the bytes that were
    written, by their SHA-256.
    """
    info = read_receipt(shard, work_folder)
    if info is None:
        return None
    target = files.join(folder, info.file)
    if files.size(target) < 0 or files.hash_of(target) != (info.bytes, info.sha256):
        return None
    return info._replace(seen=None)


def read_recorded_shards(output: str) -> dict[str, ShardEntry]:
    """Returns the shards of a data set that is repaired, by name."""
    path = folders.recorded_metadata(output)
    metadata = Metadata.parse(files.read_bytes(path), path)
    return {entry.file.partition(".")[0]: entry for entry in metadata.shards()}


def find_recorded(
    shard: Shard, output: str, recorded: Mapping[str, ShardEntry]
) -> ShardInfo | None:
    """Returns a shard of a data set that is repaired; None if it must be made again."""
    entry = recorded.get(shard.name)
    try:
        found = entry and files.hash_of(files.join(output, entry.file))
    except FileNotFoundError:
        found = None
    if entry is None or found != (entry.bytes, entry.sha256):
        return None
    missing = shard.examples - entry.examples
    return ShardInfo(
        shard, entry.file, entry.examples, entry.bytes, entry.sha256, missing
    )
