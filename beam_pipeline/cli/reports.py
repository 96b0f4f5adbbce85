"""Data sets, plans and examples, for people to look at."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.work_folder import RunProgress
from beam_pipeline.examples.encoding import example_bytes
from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.plan.clips import Reject
from beam_pipeline.plan.copies import copies_in
from beam_pipeline.plan.summary import PlanSummary, TallyKey, seconds_of, split_by_class
from beam_pipeline.recipe.recipe import Recipe

REJECTS_SHOWN = 20
CLASSES_SHOWN = 50


def describe_metadata(metadata: Metadata) -> str:
    """A data set in a few lines."""
    seconds = {name: split.seconds for name, split in metadata.splits.items()}
    shares = _shares(seconds, metadata.recipe)
    rows = [
        (
            name,
            f"{split.examples:,}",
            f"{split.clips:,}",
            f"{split.seconds / 3600:.2f}",
            *shares.get(name, ()),
            f"{len(split.shards):,}",
            _bytes(sum(shard.bytes for shard in split.shards)),
        )
        for name, split in metadata.splits.items()
    ]
    header = ("split", "examples", "clips", "hours", *shares[""], "shards", "size")
    table = _table(header, rows)
    return f"{table}\n{_inputs(metadata.clips, metadata.rejected, metadata.ignored)}"


def describe_plan(
    summary: PlanSummary, rejects: Sequence[Reject], recipe: Recipe
) -> str:
    """A plan: splits, classes, features, rejects.

    Counts are at most what will be recorded where only the audio tells what is kept.
    """
    example_format = summary.example_format
    if example_format is None:
        raise ValueError("a plan without clips")
    size = example_bytes(example_format.features)
    kept = {name: summary.kept(name) for name in summary.layouts}
    seconds = {name: some for name, (_, some) in kept.items()}
    shares = _shares(seconds, recipe)
    rows = []
    for name, layout in summary.layouts.items():
        clips = sum(n for key, (n, _) in summary.tally.items() if key[0] == name)
        examples, _ = kept[name]
        rows.append(
            (
                name,
                f"{examples:,}",
                f"{clips:,}",
                f"{seconds[name] / 3600:.2f}",
                *shares.get(name, ()),
                f"{layout.shards:,}",
                _bytes(examples * size),
            )
        )
    at_most = _at_most(example_format)
    header = (
        "split", f"examples{at_most}", "clips", f"hours{at_most}", *shares[""],
        "shards", f"before GZIP{at_most}",
    )  # fmt: skip
    parts = [_table(header, rows)]
    if example_format.classes:
        parts.append(_describe_classes(summary, example_format))
    parts.append(_describe_features(example_format.features.specs))
    rejected = len({reject.row for reject in rejects})
    listing = summary.listing
    parts.append(_inputs(listing.clips, rejected, listing.ignored))
    lines = [f"  {r.filepath}: {r.reason}" for r in sorted(rejects)[:REJECTS_SHOWN]]
    if rejected > REJECTS_SHOWN:
        lines.append(f"  ... and {rejected - REJECTS_SHOWN} more")
    return "\n\n".join(parts) + "".join(f"\n{line}" for line in lines)


def _shares(seconds: Mapping[str, float], recipe: Recipe) -> dict[str, list[str]]:
    """Cells of each split: its share, and what was asked for; "" has their header.

    Of audio; copies of it do not count.
    """
    if len(seconds) < 2:
        return {"": []}
    once = {
        name: s / (1 + copies_in(recipe.augmentation.copies, name))
        for name, s in seconds.items()
    }
    total = math.fsum(once.values()) or 1.0
    cells = {name: [f"{100 * s / total:.1f} %"] for name, s in once.items()}
    cells[""] = ["share"]
    asked = recipe.splits.hashed_shares()
    if asked is not None:
        for name, some in cells.items():
            some.append(f"{100 * asked[name]:.3g} %" if name else "asked")
    return cells


def _describe_classes(summary: PlanSummary, example_format: ExampleFormat) -> str:
    splits = list(summary.layouts)
    tally = summary.by_class()
    windows = [(key, n) for key, (_, n) in tally.items()]
    clips = [(key, n) for key, (n, _) in tally.items()]
    counts, numbers = (
        split_by_class(example_format, windows),
        split_by_class(example_format, clips),
    )

    def cell(label: str, split: str) -> str:
        hours = seconds_of(example_format, counts[label], split) / 3600
        windows = _in_split(split, counts[label])
        return f"{windows:,} / {_in_split(split, numbers[label]):,} / {hours:.2f}"

    rows = []
    for label in example_format.classes[:CLASSES_SHOWN]:
        rows.append((label, *(cell(label, split) for split in splits)))
    if len(example_format.classes) > CLASSES_SHOWN:
        more = f"... and {len(example_format.classes) - CLASSES_SHOWN} more"
        rows.append((more, *[""] * len(splits)))
    titles = (
        f"{split} examples / clips / hours{_at_most(example_format)}"
        for split in splits
    )
    return _table(("class", *titles), rows)


def _at_most(example_format: ExampleFormat) -> str:
    """What is said of numbers from which --keep will take some."""
    return ", at most" if example_format.treatment.selections else ""


def _in_split(split: str, counts: Sequence[tuple[TallyKey, int]]) -> int:
    return sum(n for key, n in counts if key[0] == split)


def missing_in_plan(summary: PlanSummary) -> list[str]:
    """A warning for each split that has nothing, or lacks classes."""
    example_format = summary.example_format
    if example_format is None:
        return []
    windows = [(key, n) for key, (_, n) in summary.by_class().items()]
    counts = split_by_class(example_format, windows)
    return _empty(summary.empty) + _missing(
        {
            split: {label: _in_split(split, some) for label, some in counts.items()}
            for split in summary.layouts
        }
    )


def missing_in_data(metadata: Metadata) -> list[str]:
    """A warning for what splits have not, and for NaN in features."""
    shares = metadata.recipe.splits.hashed_shares() or ()
    warnings = _empty(name for name in shares if name not in metadata.splits)
    for name, split in metadata.splits.items():
        if split.examples == 0:
            reason = "its clips were rejected"
            if split.left_out:
                reason = f"--keep has left out {split.left_out:,} windows"
            warnings.append(f"split {name} has no example at all: {reason}")
    filled = {n: s for n, s in metadata.splits.items() if s.examples}
    warnings += _missing({n: s.examples_per_class for n, s in filled.items()})
    for name, split in metadata.splits.items():
        for feature, values in split.statistics.get("features", {}).items():
            share = values["nonfinite_share"]
            if share:
                warnings.append(
                    f"{100 * share:.3g} % of the values of {feature} in {name} are NaN "
                    "or infinite"
                )
    return warnings


def _empty(splits: Iterable[str]) -> list[str]:
    return [
        f"split {name} has no clip at all: there are too few groups for its share"
        for name in splits
    ]


def _missing(counts: Mapping[str, Mapping[str, int]]) -> list[str]:
    warnings = []
    for split, per_class in counts.items():
        lacks = [label for label, n in per_class.items() if n == 0]
        if lacks:
            more = f" and {len(lacks) - 5} more" if len(lacks) > 5 else ""
            warnings.append(
                f"split {split} has no example of {', '.join(lacks[:5])}{more}"
            )
    return warnings


def _describe_features(specs: Mapping[str, FeatureSpec]) -> str:
    rows = [
        (name, spec.dtype, "x".join(map(str, spec.shape)) or "scalar", spec.description)
        for name, spec in specs.items()
    ]
    return _table(("feature", "type", "shape", "from"), rows, left=4)


def _inputs(clips: int, rejected: int, ignored: int) -> str:
    return f"inputs: {clips:,} clips, {rejected:,} rejected; {ignored:,} files ignored"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Columns aligned: the first ``left`` to the left, the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def _bytes(count: float) -> str:
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def describe_progress(seen: RunProgress) -> str:
    """One line on how far a run is."""
    if not seen.totals.examples:
        return "planning: the headers are being read"
    share = 100 * seen.examples // seen.totals.examples
    return (
        f"writing: {seen.shards_done} of {seen.shards} shards, {seen.examples} of "
        f"{seen.totals.examples} windows ({share}%), {seen.seconds / 3600:.2f} of "
        f"{seen.totals.seconds / 3600:.2f} h of audio"
    )
