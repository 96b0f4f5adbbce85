"""The end of a run: compare what was written with the plan, then say so on disk."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from beam_pipeline import files, metadata
from beam_pipeline.blocks import Format
from beam_pipeline.errors import (
    IncompleteRun,
    InputError,
    RecipeError,
    TooManyRejected,
)
from beam_pipeline.metadata import Metadata, SplitEntry
from beam_pipeline.observations import Observations, Seen
from beam_pipeline.plan import Listing, Reject, ShardInfo, ShardLayout, Tally, TallyKey
from beam_pipeline.progress import clear_work, keeping_verdict
from beam_pipeline.recipe import Recipe

NAMED_IN_ERRORS = 5


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """The plan in a few numbers, whatever the size of the corpus.

    ``tally`` holds (clips, windows), ``by_event`` those by the classes of events in
    windows; ``form`` is None where no clip was accepted; ``salt`` is what splits were
    decided with; ``empty`` are splits that have a share, and no clip; ``dropped`` are
    windows that will be left out for want of an event, which the others count as well.
    """

    listing: Listing
    form: Format | None
    layouts: Mapping[str, ShardLayout]
    tally: Tally
    by_event: Tally = field(default_factory=dict)
    salt: int | None = None
    empty: tuple[str, ...] = ()
    dropped: Mapping[TallyKey, int] = field(default_factory=dict)

    def by_class(self) -> Tally:
        """What counts for classes: those of clips, or of events."""
        has_events = self.form is not None and self.form.features.events is not None
        return self.by_event if has_events else self.tally

    def seconds(self, split: str) -> float:
        """Seconds of audio in a split's windows."""
        return seconds_of(
            self.form, [(k, n) for k, (_, n) in self.tally.items()], split
        )

    def kept(self, split: str) -> tuple[int, float]:
        """A split's examples, and their seconds, without what is dropped."""
        lost = sum(n for key, n in self.dropped.items() if key[0] == split)
        lost_s = seconds_of(self.form, self.dropped.items(), split)
        return self.layouts[split].total - lost, self.seconds(split) - lost_s


def seconds_of(
    form: Format | None, windows: Iterable[tuple[TallyKey, int]], split: str
) -> float:
    """Seconds of audio in a split's windows, of those that are counted."""
    if form is None:
        return 0.0
    by_rate: Counter[int] = Counter()
    for key, n in windows:
        if key[0] == split:
            by_rate[key[2]] += n
    return sum(n * form.win_len / r for r, n in sorted(by_rate.items()))


def split_by_class(
    form: Format, windows: Iterable[tuple[TallyKey, int]]
) -> dict[str, list[tuple[TallyKey, int]]]:
    """What counts for each class; a clip with several classes counts for each."""
    found: dict[str, list[tuple[TallyKey, int]]] = {name: [] for name in form.classes}
    separator = form.features.separator
    for key, n in windows:
        labels = [key[1]] if separator is None else key[1].split(separator)
        for label in labels if form.classes else ():
            found[label].append((key, n))
    return found


def allowed_rejects(max_rejected: str, clips: int) -> int:
    """``5`` or ``2.5%`` of the clips as a number of clips.

    Raises
    ------
    RecipeError
        If it is neither.
    """
    text = max_rejected.strip()
    try:
        value = float(text[:-1]) if text.endswith("%") else int(text)
    except ValueError as error:
        raise RecipeError(
            "max_rejected", "must be a number of clips or a percentage", max_rejected
        ) from error
    if not 0 <= value <= (100 if text.endswith("%") else math.inf):
        raise RecipeError(
            "max_rejected", "must not be negative, nor above 100%", max_rejected
        )
    # A share that is a whole number of clips may come out a little below it.
    return int(value / 100 * clips + 1e-9) if isinstance(value, float) else value


def check_rejects(
    listing: Listing, rejects: Sequence[Reject], max_rejected: str
) -> None:
    """Raises TooManyRejected if there are more rejected clips than allowed."""
    rejected = len({reject.row for reject in rejects})
    if rejected > allowed_rejects(max_rejected, listing.clips):
        raise TooManyRejected(
            f"{rejected} of {listing.clips} clips were rejected, and --max-rejected is "
            f"{max_rejected}:\n{_named(rejects)}\nEverything else is written and kept. "
            "To accept the data set without them, give the same command again with "
            f"--max-rejected {rejected}."
        )


def check_any_accepted(summary: PlanSummary, rejects: Sequence[Reject]) -> None:
    """Raises TooManyRejected if every clip was, however many may be."""
    lost = sum(reject.windows for reject in rejects)
    planned = sum(layout.total for layout in summary.layouts.values())
    if summary.form is None or lost >= planned:
        raise TooManyRejected(
            f"Not one of {summary.listing.clips} clips can be recorded:\n"
            f"{_named(rejects)}"
        )


def check_any_kept(infos: Sequence[ShardInfo], recipe: Recipe) -> None:
    """Raises InputError if windows were left out and none was kept."""
    left_out = sum(info.left_out for info in infos)
    if left_out and not any(info.examples for info in infos):
        if not recipe.keep:
            raise InputError(
                f"Not one of {left_out} windows has an event that counts, and "
                "--no-event is drop. Check the times in --events, or lower "
                f"--event-overlap ({recipe.event_overlap:g}); add --overwrite to "
                "replace this run."
            )
        first = (
            f", or raise --num-elems ({recipe.num_elems}), which counts windows before "
            "--keep chooses among them"
            if recipe.num_elems
            else ""
        )
        raise InputError(
            f"Not one of {left_out} windows has passed --keep '{recipe.keep}'. Lower "
            f"its threshold{first}, and add --overwrite to replace this run."
        )


def _named(rejects: Sequence[Reject]) -> str:
    first = sorted(rejects, key=lambda reject: reject.row)
    lines = [f"  {r.filepath}: {r.reason}" for r in first[:NAMED_IN_ERRORS]]
    if len(first) > NAMED_IN_ERRORS:
        lines.append(
            f"  ... and {len(first) - NAMED_IN_ERRORS} more in {metadata.REJECTED}"
        )
    return "\n".join(lines)


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
            lost[reject.shard] += reject.windows
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
    form = summary.form
    if form is None:
        raise ValueError("a data set without clips has no metadata")
    clips = Counter({key: n for key, (n, _) in summary.tally.items()})
    windows = Counter({key: n for key, (_, n) in summary.tally.items()})
    late = [reject for reject in rejects if reject.shard is not None]
    for reject in {reject.row: reject for reject in late}.values():
        clips[_tally_key(reject)] -= 1
    for reject in late:
        windows[_tally_key(reject)] -= reject.windows
    for seen in observed.values():
        windows.subtract(seen.left_out)
    splits = {}
    for split in summary.layouts:
        shards = sorted(
            (info for info in infos if info.shard.split == split),
            key=lambda info: info.shard.name,
        )
        counted = list(windows.items())
        if recipe.events is not None:  # each window has classes of its own
            labelled = observed[split].classes if split in observed else {}
            counted = [((split, *key), n) for key, n in labelled.items()]
        by_class = split_by_class(form, counted)
        splits[split] = SplitEntry(
            sum(info.examples for info in shards),
            sum(n for key, n in clips.items() if key[0] == split),
            seconds_of(form, windows.items(), split),
            sum(info.left_out for info in shards),
            {
                label: sum(n for key, n in some if key[0] == split)
                for label, some in by_class.items()
            },
            {label: seconds_of(form, some, split) for label, some in by_class.items()},
            observed[split].statistics.to_json() if split in observed else {},
            tuple(metadata.shard_entry(info) for info in shards),
        )
    return Metadata(
        recipe,
        form.features.specs,
        form.classes,
        splits,
        summary.listing.clips,
        len({reject.row for reject in rejects}),
        summary.listing.ignored,
        metadata.writer_versions(),
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

    Running it again does no harm. ``columns`` are name and type of each that the clips
    bring. Returns the path of the metadata.

    Raises
    ------
    IncompleteRun, TooManyRejected
        Then there is no ``metadata.json``; ``rejected.jsonl`` is there in any case.
    """
    infos, rejects = list(infos), list(rejects)
    seen = merge_observed(observed)
    rejected = metadata.rejects_text(rejects)
    files.write_bytes(files.join(output, metadata.REJECTED), rejected)
    with keeping_verdict(work_folder):
        check_any_accepted(summary, rejects)
        check_any_kept(infos, recipe)
        check_complete(summary, infos, rejects)
        check_rejects(summary.listing, rejects, max_rejected)
    # So that the recipe in the metadata moves nothing when files are added.
    recipe = replace(recipe, split_salt=summary.salt)
    described = assemble_metadata(summary, infos, rejects, seen, recipe)
    files.write_bytes(
        files.join(output, metadata.SCHEMA), metadata.schema_text(described.features)
    )
    fields = metadata.manifest_fields(recipe, columns)
    metadata.write_manifest(files.join(output, metadata.MANIFEST), manifest, fields)
    path = files.join(output, metadata.METADATA)
    files.write_bytes(path, metadata.to_text(described.to_json()))
    clear_work(work_folder)
    return path
