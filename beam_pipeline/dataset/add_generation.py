"""The end of an addition: its files, and the switch to the new metadata.

::

    shards, members, windows, manifest, rejects, statistics    new names; not listed yet
    metadata-a000.json                                         the metadata as they were
    metadata.json                                              the switch

A run that ends anywhere before the switch leaves the data set as it was.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from beam_pipeline.dataset.addition import Addition, lost_rows
from beam_pipeline.dataset.exact_statistics import (
    read_statistics,
    statistics_text,
)
from beam_pipeline.dataset.finish import (
    assemble_metadata,
    check_any_selected,
    check_nothing_lost,
    merge_observed,
    publish,
    sort_shards,
)
from beam_pipeline.dataset.generation import Generation
from beam_pipeline.dataset.generations import (
    RECORD,
    metadata_text,
    newest_file,
    read_columns,
    shards_by_generation,
)
from beam_pipeline.dataset.manifest import (
    ManifestPart,
    manifest_fields,
    recorded_formats,
    sort_manifest,
    write_manifest,
)
from beam_pipeline.dataset.member_index import ShardMembers, write_index
from beam_pipeline.dataset.metadata import Metadata, SplitEntry, to_text
from beam_pipeline.dataset.output_folder import (
    INDEX,
    MANIFEST,
    METADATA,
    REJECTED,
    SCHEMA,
    STATISTICS,
    WINDOWS,
    earlier_metadata,
    generation_file,
    generation_of_file,
    without_draft,
)
from beam_pipeline.dataset.rejects import (
    check_any_accepted,
    check_rejects,
    sort_rejects,
    write_rejects,
)
from beam_pipeline.dataset.schema import schema_text
from beam_pipeline.dataset.window_table import write_windows
from beam_pipeline.dataset.work_folder import SWITCH, clear_work, keeping_verdict
from beam_pipeline.errors import InputError, OutputError
from beam_pipeline.examples.windows import WindowPlan
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.inputs.column_types import Column
from beam_pipeline.plan.clips import Reject
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.plan.summary import PlanSummary
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.json_text import parse_json
from beam_pipeline.write.described_statistics import described_state
from beam_pipeline.write.observations import Observations, Seen
from beam_pipeline.write.statistics import DataStatistics


def add_generation(
    summary: PlanSummary,
    infos: Iterable[ShardInfo],
    rejects: Iterable[Reject],
    manifest: Iterable[ManifestPart],
    observed: Iterable[tuple[str, Seen]],
    *,
    addition: Addition,
    output: str,
    shards_folder: str,
    work_folder: str,
    recipe: Recipe,
    max_rejected: str,
    columns: Sequence[Column] = (),
) -> str:
    """Adds the shards of a run to a data set. A runner may call it twice.

    If there is nothing to add, the data set stays as it is.

    Parameters
    ----------
    shards_folder : str
        Where the shards are. They get their names in the output.
    columns : sequence of (str, str)
        Name and type of each column that the clips bring.

    Returns
    -------
    str
        The path of ``metadata.json``.

    Raises
    ------
    IncompleteRun, TooManyRejected, InputError
        See :func:`finish_data_set`.
    OutputError
        If another run has changed the data set since this one began.
    """
    written, shards = sort_shards(infos)
    rejects = sort_rejects(rejects)
    parts, seen = sort_manifest(manifest), merge_observed(observed)
    path = files.join(output, METADATA)
    with keeping_verdict(work_folder):
        check_nothing_lost(summary, shards, rejects, parts, seen, work_folder)
    has_new = summary.listing.clips and not _adds_nothing(addition, shards)
    if not has_new or _is_added(output, addition, shards):
        clear_work(work_folder)
        return path
    write_rejects(files.join(work_folder, REJECTED), rejects)
    with keeping_verdict(work_folder):
        if not addition.retry:
            check_any_accepted(summary, rejects)
            check_any_selected(shards, recipe)
            check_rejects(summary.listing, rejects, max_rejected, work_folder)

    def own(name: str) -> str:
        return files.join(output, generation_file(name, addition.generation))

    delete_unfinished(output, addition.generation, (info.file for info in shards))
    publish(shards, shards_folder, output)
    write_index(
        output,
        map(ShardMembers.of, written),
        generation_file(INDEX, addition.generation),
    )
    write_windows(own(WINDOWS), written)
    fields = manifest_fields(recipe.audio, columns)
    write_manifest(own(MANIFEST), parts, fields)
    retried = summary.listing.retried
    write_rejects(own(REJECTED), rejects, _still_rejected(output, addition, retried))
    formats = recorded_formats(own(MANIFEST))
    added = assemble_metadata(summary, shards, rejects, seen, recipe, formats)
    merged = _merged_statistics(output, addition, added, seen)
    files.write_bytes(own(STATISTICS), statistics_text(merged))
    replaced = _replaced_rows(output, addition, retried)
    described = extended_metadata(addition, added, summary, merged, replaced)
    if described.classes != addition.before.classes:
        # The schema lists all classes, so that old examples fit it, too.
        schema = schema_text(described.features, described.classes)
        files.write_bytes(files.join(output, SCHEMA), schema)
    _switch(output, work_folder, addition, to_text(described.to_json()))
    clear_work(work_folder)
    return path


def _is_added(output: str, addition: Addition, infos: Iterable[ShardInfo]) -> bool:
    """Whether the data set lists the shards of this run; a runner may finish twice.

    Raises
    ------
    OutputError
        If another run has changed the data set since this one began.
    """
    text = metadata_text(output)
    if bytes_sha256(text) == addition.sha256:
        return False
    written = {(info.file, info.sha256) for info in infos}
    for generation, shards in shards_by_generation(Metadata.parse(text, output)):
        listed = {(shard.file, shard.sha256) for shard in shards}
        if generation == addition.generation and listed == written:
            return True
    raise OutputError(
        f"{output} has changed since this run began: another run has added to it, or "
        "has replaced it. Nothing was added. Give the command again."
    )


def _adds_nothing(addition: Addition, infos: Sequence[ShardInfo]) -> bool:
    """Whether a retry could record nothing of what was rejected."""
    return addition.retry and not any(info.examples for info in infos)


def delete_unfinished(
    output: str, generation: int, current: Iterable[str] = ()
) -> None:
    """Deletes what additions that never finished have left in a data set.

    Parameters
    ----------
    generation : int
        The first one that the metadata do not list.
    current : iterable of str
        Shards that stay, relative to ``output``.
    """
    current = set(current)

    def is_unfinished(name: str) -> bool:
        made = without_draft(name)
        is_draft = made != name and made in (METADATA, SCHEMA)
        return is_draft or (generation_of_file(made) or 0) >= generation

    files.delete(
        files.join(output, name)
        for name in list(files.list_files(output))
        if is_unfinished(name) and name not in current
    )


def _still_rejected(
    output: str, addition: Addition, retried: Collection[str]
) -> list[bytes]:
    """Returns the lines of the clips that were rejected, and not tried again."""
    path = files.join(output, newest_file(addition.before, REJECTED))
    lines = files.read_bytes(path).splitlines(keepends=True)
    return [line for line in lines if parse_json(line)["path"] not in retried]


def _merged_statistics(
    output: str, addition: Addition, added: Metadata, seen: Mapping[str, Observations]
) -> dict[str, DataStatistics]:
    """Returns the statistics of each split of the data set with an addition."""
    before = addition.before
    try:
        merged = read_statistics(output, before)
    except InputError as error:
        raise InputError(
            f"{error} Delete it, and give the command again: the statistics in "
            f"{METADATA} take its place."
        ) from error
    except FileNotFoundError:  # an earlier version has recorded the data set
        states = {
            split: _described(entry, addition)
            for split, entry in before.splits.items()
            if entry.statistics
        }
        merged = {n: DataStatistics.from_state(state) for n, state in states.items()}
    for split in added.splits:
        if split not in seen:
            continue  # every window of it is lost
        if split in merged:
            merged[split].merge(seen[split].statistics)
        else:
            merged[split] = seen[split].statistics
    return dict(sorted(merged.items()))


def _described(entry: SplitEntry, addition: Addition) -> dict[str, Any]:
    """Returns the state of a split's statistics, as far as the metadata have it."""
    recipe, corpus = addition.before.recipe, addition.corpus
    assert recipe is not None
    # If windows are in seconds, all clips have one rate; if all channels are kept, one
    # number of channels.
    rate = min(corpus.rates_hz)
    samples = entry.examples * WindowPlan.of(recipe.windows, rate, 0).length
    if recipe.windows.are_clips:
        samples = round(entry.seconds * rate)
    if recipe.audio.channels == "keep":
        samples *= min(corpus.channels)
    return described_state(entry.statistics, entry.examples, samples)


def extended_metadata(
    addition: Addition,
    added: Metadata,
    summary: PlanSummary,
    statistics: Mapping[str, DataStatistics],
    replaced: Sequence[int] = (),
) -> Metadata:
    """Returns the metadata of a data set with an addition.

    Parameters
    ----------
    added : Metadata
        The metadata of what is added, as if it were a data set.
    replaced : sequence of int
        See :class:`Generation`.
    """
    before, listing = addition.before, summary.listing
    generations = before.generations or (
        Generation(RECORD, before.clips, 0, before.writer),
    )
    newest = Generation(
        addition.added_by(),
        listing.clips,
        listing.known,
        added.writer,
        addition.options,
        list(replaced),
    )
    splits = {}
    for split in sorted({*before.splits, *added.splits}):
        both = _joined(before.splits.get(split), added.splits.get(split), added.classes)
        measured = statistics[split].to_json() if split in statistics else {}
        splits[split] = replace(both, statistics=measured)
    ignored, clips, rejected = before.ignored, before.clips, before.rejected
    if addition.retry:
        rejected += added.rejected - listing.clips
    else:
        clips += listing.clips
        rejected += added.rejected
        # An input that is given again has the files that were ignored before.
        ignored = (
            max(ignored, listing.ignored)
            if listing.known
            else (ignored + listing.ignored)
        )
    return replace(
        before,
        classes=added.classes,
        splits=splits,
        clips=clips,
        rejected=rejected,
        ignored=ignored,
        generations=(*generations, newest),
        left_out=_added_counts(before.left_out, added.left_out),
    )


def _added_counts(
    old: Mapping[str, int] | None, new: Mapping[str, int] | None
) -> Mapping[str, int] | None:
    if old is None or new is None:
        return new
    return {reason: n + old.get(reason, 0) for reason, n in new.items()}


def _joined(
    old: SplitEntry | None, new: SplitEntry | None, classes: Sequence[str]
) -> SplitEntry:
    """Returns the counts of two generations of a split together."""
    some = [entry for entry in (old, new) if entry is not None]
    return SplitEntry(
        sum(entry.examples for entry in some),
        sum(entry.clips for entry in some),
        sum(entry.seconds for entry in some),
        sum(entry.left_out for entry in some),
        {n: sum(e.examples_per_class.get(n, 0) for e in some) for n in classes},
        {n: sum(e.seconds_per_class.get(n, 0.0) for e in some) for n in classes},
        {},
        tuple(shard for entry in some for shard in entry.shards),
    )


def _replaced_rows(
    output: str, addition: Addition, retried: Collection[str]
) -> list[int]:
    """Returns the rows of the manifest of lost clips that a retry has tried again."""
    if not addition.retry:
        return []
    paths = read_columns(output, addition.before, MANIFEST, ["path"])["path"]
    known = {row for each in addition.before.generations for row in each.replaced}
    lost = np.flatnonzero(lost_rows(output, addition.before)).tolist()
    return [r for r in lost if paths[r].as_py() in retried and r not in known]


def _switch(output: str, work_folder: str, addition: Addition, text: bytes) -> None:
    """Puts the new metadata in the place of the old ones, which get another name."""
    _is_added(output, addition, ())  # raises if another run was faster
    name = earlier_metadata(addition.generation - 1)
    files.write_bytes(files.join(output, name), metadata_text(output))
    sha256 = json.dumps({"metadata": bytes_sha256(text)}).encode()
    files.write_bytes(files.join(work_folder, SWITCH), sha256)
    files.write_bytes(files.join(output, METADATA), text)
