"""The end of a run, on whatever runner.

::

    check -> files beside the shards -> metadata.json -> the place of a data set that is
    replaced -> clear the work folder

Whatever fails before ``metadata.json``, the same command can be given again. A runner
may call the end twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, groupby
from operator import attrgetter

from beam_pipeline.audio.formats import DEMUXERS
from beam_pipeline.dataset.complete import complete_data_set
from beam_pipeline.dataset.job import Job, version_differences, writer_versions
from beam_pipeline.dataset.manifest import (
    ManifestPart,
    manifest_fields,
    recorded_formats,
    write_manifest,
)
from beam_pipeline.dataset.metadata import (
    Metadata,
    SplitEntry,
    shard_entry,
)
from beam_pipeline.dataset.output_folder import (
    INDEX,
    MANIFEST,
    METADATA,
    REJECTED,
    SCHEMA,
    WINDOWS,
    delete_stale,
    finish_switch,
)
from beam_pipeline.dataset.rejects import (
    NAMED_IN_ERRORS,
    check_any_accepted,
    check_readable,
    check_rejects,
    count_clips,
    sort_rejects,
    write_rejects,
)
from beam_pipeline.dataset.windows import write_windows
from beam_pipeline.dataset.work_folder import (
    JOB_FILE,
    NOTHING_NEW,
    clear_work,
    has_run,
    keeping_verdict,
    recorded_metadata,
)
from beam_pipeline.errors import IncompleteRun, InputError
from beam_pipeline.pipeline.planner import planned_rejects, read_plan
from beam_pipeline.pipeline.sink import read_receipt
from beam_pipeline.plan.clips import Reject, reasons_to_leave_out
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.plan.summary import PlanSummary, seconds_of, split_by_class
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import Claim
from beam_pipeline.storage.pages import Pages
from beam_pipeline.storage.spilled import SortedValues
from beam_pipeline.write.shard import Observations


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
    output, work, claim = job.output, job.work_folder, job.claim
    written, shards = sort_shards(infos)
    claimed = has_run(work)
    if not claimed and is_finished(output, shards):
        clear_work(work, claim)  # an earlier call ended after that
        return files.join(output, METADATA)
    claim.check()
    plan = read_plan(plan_folder)
    summary, manifest = plan.summary, Pages(plan_folder, plan.manifest)
    rejects = sort_rejects(chain(planned_rejects(plan, plan_folder), rejects))
    if not job.allow_unreadable:
        with keeping_verdict(work):
            kept = "All other clips are written."
            check_readable(summary.listing, rejects, kept)
    if job.repairs:
        return finish_repair(shards, job)
    is_new = any(info.examples for info in shards) or not job.skip_recorded
    folder = job.shards_folder()
    replaces = folder != output
    stays = replaces or not is_new  # what the output holds
    listed = work if stays else output
    write_rejects(files.join(claim.stage(listed), REJECTED), rejects)
    _publish((REJECTED,), listed, claim)
    with keeping_verdict(work):
        if is_new:
            check_any_accepted(summary, rejects)
            check_any_selected(shards, job.recipe)
        check_complete(summary, shards, rejects)
        check_clips(summary, rejects, manifest, work)
        seen = merge_observed(shards, work)
        check_rejects(summary.listing, rejects, job.max_rejected, work if stays else "")
        if claimed and (is_new or not replaces) and files.is_folder(folder):
            # Those of earlier plans go.
            delete_stale(folder, (info.file for info in shards if is_new), claim)
    if not is_new:
        write_rejects(files.join(work, NOTHING_NEW), rejects)
        return ""
    stage = claim.stage(folder)
    write_rejects(files.join(stage, REJECTED), rejects)
    fields = manifest_fields(job.recipe, job.inputs[0].columns)
    write_manifest(files.join(stage, MANIFEST), manifest, fields)
    are_mixed = job.recipe.examples_are_mixed
    write_windows(files.join(stage, WINDOWS), written, are_mixed)
    formats = recorded_formats(files.join(stage, MANIFEST))
    described = assemble_metadata(summary, shards, rejects, seen, job.recipe, formats)
    beside = (SCHEMA, MANIFEST, WINDOWS, INDEX, REJECTED)
    claim.check()
    complete_data_set(stage, described, written, beside)
    _publish((*beside, METADATA), folder, claim)
    if replaces:
        finish_switch(output, claim)
    clear_work(work, claim)
    return files.join(output, METADATA)


def _publish(names: Iterable[str], folder: str, claim: Claim) -> None:
    """Moves files to their place, unless they were written there."""
    stage = claim.stage(folder)
    for name in names if stage != folder else ():
        claim.move(files.join(stage, name), files.join(folder, name))


def sort_shards(
    infos: Iterable[ShardInfo],
) -> tuple[SortedValues[ShardInfo], list[ShardInfo]]:
    """Returns the shards of a run in their order, twice: on disk, and as a list.

    In the list, they lack their members and windows, which grow with the clips.
    """
    written = SortedValues(lambda info: (info.shard.split, info.shard.number), infos)
    return written, [info._replace(members="", windows="") for info in written]


def check_any_selected(infos: Sequence[ShardInfo], recipe: Recipe) -> None:
    """Raises InputError if every window was left out."""
    left_out = sum(info.left_out for info in infos)
    if not left_out or any(info.examples for info in infos):
        return
    if not recipe.keep:
        raise InputError(
            f"None of {left_out} windows overlaps an event enough, and `no_event` is "
            "drop, so no window is left. Check the times in `events`, or lower "
            f"`event_overlap` ({recipe.event_overlap:g}). Give `overwrite` to replace "
            "this run."
        )
    more = ""
    if recipe.num_elems:
        more = (
            f", or raise `num_elems` ({recipe.num_elems}), because `keep` can "
            "select only among that many windows"
        )
    raise InputError(
        f"None of {left_out} windows passes `keep` '{recipe.keep}'. Lower the "
        f"threshold of `keep`{more}. Give `overwrite` to replace this run."
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
                problems.append(f"{name}: written {written[name]} times")
            elif filled[name] + lost[name] != shard.examples:
                problems.append(
                    f"{name}: {filled[name]} examples written and {lost[name]} lost, "
                    f"but {shard.examples} planned"
                )
    if problems:
        more = len(problems) - NAMED_IN_ERRORS
        shown = "\n  ".join(problems[:NAMED_IN_ERRORS])
        raise IncompleteRun(
            f"The written shards differ from the plan:\n  {shown}"
            + (f"\n  ... and {more} more shards" if more > 0 else "")
            + "\nThe runner lost or repeated work. Give the same command again to "
            "continue."
        )


def check_clips(
    summary: PlanSummary,
    rejects: Iterable[Reject],
    manifest: Iterable[ManifestPart],
    work_folder: str,
) -> None:
    """Checks that the manifest and the rejects have every clip and every window.

    Raises
    ------
    IncompleteRun
        If some of them did not reach the end of the run.
    """
    clips = count_clips(reject for reject in rejects if reject.shard is None)
    windows = 0
    for part in manifest:
        clips += part.clips
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
                "the runner lost or repeated work. Give the same command again to "
                "continue."
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
    clips = Counter({key: n for key, (n, _) in summary.tally.items()})
    windows = Counter({key: n for key, (_, n) in summary.tally.items()})
    late = (reject for reject in rejects if reject.shard is not None)
    for _, parts in groupby(late, key=attrgetter("row")):
        for number, reject in enumerate(parts):
            key = reject.split or "", reject.label or "", reject.sample_rate_hz
            clips[key] -= number == 0
            windows[key] -= reject.examples
    for of_split in observed.values():
        windows.subtract(of_split.left_out)
    splits = {}
    for split in summary.layouts:
        shards = [info for info in infos if info.shard.split == split]
        seen = observed[split]
        counted = of_clips = [(key, n) for key, n in windows.items() if key[0] == split]
        if recipe.events is not None:  # classes belong to windows, not clips
            counted = [((split, *key), n) for key, n in seen.classes.items()]
        win_len = example_format.win_len
        if win_len is None:
            frames = labelled_frames = list(seen.frames.items())
        else:
            frames, labelled_frames = (
                [(key, n * win_len) for key, n in some] for some in (of_clips, counted)
            )
        by_class = split_by_class(example_format, counted)
        frames_of = split_by_class(example_format, labelled_frames)
        splits[split] = SplitEntry(
            sum(info.examples for info in shards),
            sum(n for key, n in clips.items() if key[0] == split),
            seconds_of(frames, split),
            sum(info.left_out for info in shards),
            {label: sum(n for _, n in some) for label, some in by_class.items()},
            {label: seconds_of(some, split) for label, some in frames_of.items()},
            seen.to_json(),
            tuple(shard_entry(info) for info in shards),
        )
    return Metadata(
        recipe,
        example_format.features.specs,
        example_format.classes,
        splits,
        summary.listing.clips,
        count_clips(rejects),
        summary.listing.ignored,
        writer_versions(
            recipe.encodings.values(),
            ffmpeg=not DEMUXERS.keys().isdisjoint(formats),
        ),
        listing_sha256=summary.listing.sha256,
        left_out={
            why: summary.left_out.get(why, 0) for why in reasons_to_leave_out(recipe)
        }
        or None,
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
                "or two runs wrote this shard. Give the same command again to continue."
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
    saved, path = recorded_metadata(job.output), files.join(job.output, METADATA)
    if not files.exists(saved):
        return path  # a runner has called this twice
    text = files.read_bytes(saved)
    metadata = Metadata.parse(text, saved)
    recorded = {entry.file: entry.sha256 for entry in metadata.shards()}
    found = {info.file: info.sha256 for info in infos}
    both = {*recorded, *found}
    other = sorted(file for file in both if recorded.get(file) != found.get(file))
    with keeping_verdict(job.work_folder):
        if other:
            job.claim.discard(files.join(job.work_folder, JOB_FILE))
            raise IncompleteRun(_other_bytes(other, metadata, saved))
    delete_stale(job.output, recorded, job.claim)
    job.claim.write(path, text)
    job.claim.discard(saved)
    clear_work(job.work_folder, job.claim)
    return path


def _other_bytes(other: Sequence[str], metadata: Metadata, saved: str) -> str:
    """Returns why shards that were made again do not complete a data set."""
    recipe = metadata.recipe
    assert recipe is not None
    lines = [f"{file} would have other bytes" for file in other[:NAMED_IN_ERRORS]]
    if len(other) > NAMED_IN_ERRORS:
        lines.append(f"... and {len(other) - NAMED_IN_ERRORS} more shards")
    lines += [
        f"it was recorded with {name} {before}, but {now} is in use"
        for name, before, now in version_differences(metadata.writer, recipe)
    ]
    shown = "\n  ".join(lines)
    return (
        f"These inputs do not give the recorded shards again:\n  {shown}\nThe metadata "
        f"stay in {saved}. Restore the inputs and the versions of before, and give the "
        "command again. Or give `overwrite` to record a new data set."
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
