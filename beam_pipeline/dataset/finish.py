"""The end of a run: compare what was written with the plan, then say so on disk."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from beam_pipeline.dataset.manifest import manifest_fields, write_manifest
from beam_pipeline.dataset.metadata import (
    Metadata,
    SplitEntry,
    shard_entry,
    to_text,
    writer_versions,
)
from beam_pipeline.dataset.output_folder import (
    MANIFEST,
    METADATA,
    REJECTED,
    SCHEMA,
    is_shard_file,
)
from beam_pipeline.dataset.rejects import (
    NAMED_IN_ERRORS,
    check_any_accepted,
    check_rejects,
    rejects_text,
)
from beam_pipeline.dataset.schema import schema_text
from beam_pipeline.dataset.work_folder import JOB_FILE, clear_work, keeping_verdict
from beam_pipeline.errors import IncompleteRun, InputError
from beam_pipeline.plan.clips import Reject
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.plan.summary import PlanSummary, TallyKey, seconds_of, split_by_class
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.write.observations import Observations, Seen


def check_any_kept(infos: Sequence[ShardInfo], recipe: Recipe) -> None:
    """Raises InputError if windows were left out and none was kept."""
    left_out = sum(info.left_out for info in infos)
    if left_out and not any(info.examples for info in infos):
        if not recipe.windows.keep:
            raise InputError(
                f"Not one of {left_out} windows has an event that counts, and "
                "--no-event is drop. Check the times in --events, or lower "
                f"--event-overlap ({recipe.events.overlap:g}); add --overwrite to "
                "replace this run."
            )
        first = (
            f", or raise --num-elems ({recipe.shards.num_elems}), which counts windows before "
            "--keep chooses among them"
            if recipe.shards.num_elems
            else ""
        )
        raise InputError(
            f"Not one of {left_out} windows has passed --keep '{recipe.windows.keep}'. Lower "
            f"its threshold{first}, and add --overwrite to replace this run."
        )


def check_complete(
    summary: PlanSummary, infos: Sequence[ShardInfo], rejects: Iterable[Reject]
) -> None:
    """Compares what was written with the plan, shard by shard.

    Raises
    ------
    IncompleteRun
        Naming the shards that are missing, that came twice, or whose examples and lost
        windows do not add up to the plan.
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
                    f"{name}: {filled[name]} examples and {lost[name]} lost of "
                    f"{shard.examples} planned"
                )
    if problems:
        more = len(problems) - NAMED_IN_ERRORS
        shown = "\n  ".join(problems[:NAMED_IN_ERRORS])
        raise IncompleteRun(
            f"What was written is not what was planned:\n  {shown}"
            + (f"\n  ... and {more} more shards" if more > 0 else "")
            + "\nThe runner lost work. Give the same command again to continue."
        )


def assemble_metadata(
    summary: PlanSummary,
    infos: Sequence[ShardInfo],
    rejects: Sequence[Reject],
    observed: Mapping[str, Observations],
    recipe: Recipe,
) -> Metadata:
    """The metadata of what was written; counts are the true ones."""
    example_format = summary.example_format
    if example_format is None:
        raise ValueError("a data set without clips has no metadata")
    clips = Counter({key: n for key, (n, _) in summary.tally.items()})
    windows = Counter({key: n for key, (_, n) in summary.tally.items()})
    late = [reject for reject in rejects if reject.shard is not None]
    for reject in {reject.row: reject for reject in late}.values():
        clips[_tally_key(reject)] -= 1
    for reject in late:
        windows[_tally_key(reject)] -= reject.examples
    for seen in observed.values():
        windows.subtract(seen.left_out)
    splits = {}
    for split in summary.layouts:
        shards = sorted(
            (info for info in infos if info.shard.split == split),
            key=lambda info: info.shard.name,
        )
        counted = list(windows.items())
        if recipe.events.source is not None:  # each window has classes of its own
            labelled = observed[split].classes if split in observed else {}
            counted = [((split, *key), n) for key, n in labelled.items()]
        by_class = split_by_class(example_format, counted)
        splits[split] = SplitEntry(
            sum(info.examples for info in shards),
            sum(n for key, n in clips.items() if key[0] == split),
            seconds_of(example_format, windows.items(), split),
            sum(info.left_out for info in shards),
            {
                label: sum(n for key, n in some if key[0] == split)
                for label, some in by_class.items()
            },
            {
                label: seconds_of(example_format, some, split)
                for label, some in by_class.items()
            },
            observed[split].statistics.to_json() if split in observed else {},
            tuple(shard_entry(info) for info in shards),
        )
    return Metadata(
        recipe,
        example_format.features.specs,
        example_format.classes,
        splits,
        summary.listing.clips,
        len({reject.row for reject in rejects}),
        summary.listing.ignored,
        writer_versions(),
    )


def merge_observed(
    observed: Iterable[tuple[str, Seen]],
) -> dict[str, Observations]:
    """What was observed in each split."""
    merged: dict[str, Observations] = {}
    for split, state in observed:
        seen = Observations.from_state(state)
        if split in merged:
            merged[split].merge(seen)
        else:
            merged[split] = seen
    return merged


def _tally_key(reject: Reject) -> TallyKey:
    return reject.split or "", reject.label or "", reject.sample_rate_hz


def delete_stale_shards(output: str, work_folder: str, shards: Iterable[str]) -> None:
    """Deletes the shards that earlier plans of this run have left in its output.

    Inputs that changed between two runs make another plan, whose shards have other
    names, and perhaps other splits. A file is deleted only if it is called exactly as
    a shard is, in a folder of its split or beside the metadata, and only while the
    output is claimed. What is gone already is no error: a runner may do this again.
    ``shards`` are the files that stay.
    """
    if not files.exists(files.join(work_folder, JOB_FILE)):
        return
    kept = set(shards)
    stale = [
        name
        for name in files.list_files(output)
        if name not in kept and is_shard_file(name)
    ]
    files.delete(files.join(output, name) for name in stale)
    if files.is_local(output):
        for folder in {name.rpartition("/")[0] for name in stale} - {""}:
            with suppress(OSError):  # it holds something else
                os.rmdir(files.join(output, folder))


def finish_data_set(
    summary: PlanSummary,
    infos: Iterable[ShardInfo],
    rejects: Iterable[Reject],
    manifest: Iterable[tuple[str, int, bytes]],
    observed: Iterable[tuple[str, Seen]],
    *,
    output: str,
    work_folder: str,
    recipe: Recipe,
    max_rejected: str,
    columns: Sequence[tuple[str, str]] = (),
) -> str:
    """Writes what stands beside the shards, ``metadata.json`` last.

    Before that, shards of earlier plans are deleted, so that the output holds exactly
    those of the metadata, see :func:`delete_stale_shards`. Running it again does no
    harm. ``columns`` are name and type of each that the clips bring. Returns the path
    of the metadata.

    Raises
    ------
    IncompleteRun, TooManyRejected
        Then there is no ``metadata.json``; ``rejected.jsonl`` is there in any case.
    """
    infos, rejects = list(infos), list(rejects)
    seen = merge_observed(observed)
    rejected = rejects_text(rejects)
    files.write_bytes(files.join(output, REJECTED), rejected)
    with keeping_verdict(work_folder):
        check_any_accepted(summary, rejects)
        check_any_kept(infos, recipe)
        check_complete(summary, infos, rejects)
        check_rejects(summary.listing, rejects, max_rejected)
        delete_stale_shards(output, work_folder, (info.file for info in infos))
    # So that the recipe in the metadata moves nothing when files are added.
    recipe = recipe.replace(split_salt=summary.salt)
    described = assemble_metadata(summary, infos, rejects, seen, recipe)
    files.write_bytes(files.join(output, SCHEMA), schema_text(described.features))
    fields = manifest_fields(recipe.audio.fingerprint, columns)
    write_manifest(files.join(output, MANIFEST), manifest, fields)
    path = files.join(output, METADATA)
    files.write_bytes(path, to_text(described.to_json()))
    clear_work(work_folder)
    return path
