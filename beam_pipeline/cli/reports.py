"""Data sets, plans, forecasts, progress and tables as text."""

from __future__ import annotations

import base64
import heapq
import io
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.rejects import LostAudio, count_clips
from beam_pipeline.dataset.work_folder import RunProgress
from beam_pipeline.examples.encoding import example_bytes
from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.examples.spec import LISTS, RAW, FeatureSpec, Shape
from beam_pipeline.plan.clips import Reject, copies_in
from beam_pipeline.plan.summary import (
    PlanSummary,
    TallyKey,
    left_out_words,
    seconds_of,
    split_by_class,
)
from beam_pipeline.read.window_summary import QUANTILES, WindowSummary
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.run.forecast import Forecast
from beam_pipeline.text import time_text, time_unit

REJECTS_SHOWN = 20
CLASSES_SHOWN = 50

_ROWS_AT_ONCE = 1 << 14  # of CSV

# Padding counts, and audio counts in each of the windows and copies that it is in.
OF_EXAMPLES = "of examples"
# Audio in several windows counts once; padding and copies do not count.
OF_AUDIO = "of audio"


def describe_metadata(
    metadata: Metadata,
    windows: Mapping[str, WindowSummary] | None = None,
    lost: object = "",
) -> str:
    """Returns a data set's splits as a table, and its numbers of clips and rejects.

    ``windows`` has what the examples do not show, and ``lost`` the audio of rejects.
    """
    if metadata.recipe is None:
        return _describe_elements(metadata)
    seconds = {name: split.seconds for name, split in metadata.splits.items()}
    shares = _shares(seconds, metadata.recipe)
    any_left_out = any(split.left_out for split in metadata.splits.values())
    windows = windows or {}
    unit, unit_s = time_unit(seconds.values())
    any_without = any(found.clips_without for found in windows.values())
    rows = [
        (
            name,
            f"{split.examples:,}",
            f"{split.clips:,}",
            *([f"{windows[name].clips_without:,}"] if any_without else []),
            *([f"{windows[name].audio_s / unit_s:.2f}"] if windows else []),
            f"{split.seconds / unit_s:.2f}",
            *shares.get(name, ()),
            f"{len(split.shards):,}",
            bytes_text(sum(shard.bytes for shard in split.shards)),
            *([f"{split.left_out:,}"] if any_left_out else []),
        )
        for name, split in metadata.splits.items()
    ]
    header = (
        "split", "examples", "clips", *(["clips without one"] if any_without else []),
        *([f"{unit} {OF_AUDIO}"] if windows else []), f"{unit} {OF_EXAMPLES}",
        *shares[""], "shards", "size",
        *(["windows left out"] if any_left_out else []),
    )  # fmt: skip
    counts = metadata.clips, f"{metadata.rejected:,} rejected{lost}", metadata.ignored
    return f"{_table(header, rows)}\n{_inputs(*counts, metadata.left_out or {})}"


def describe_windows(metadata: Metadata, windows: Mapping[str, WindowSummary]) -> str:
    """Returns what the windows of each split are, and their levels, as two tables."""
    if not windows:
        return "This data set has no table of windows."
    reasons = sorted(
        {reason for found in windows.values() for reason in found.left_out}
    )
    unit, unit_s = time_unit(found.audio_s for found in windows.values())
    rows = [
        (
            name,
            f"{found.windows:,}",
            *(f"{found.left_out.get(reason, 0):,}" for reason in reasons),
            f"{metadata.splits[name].examples:,}",
            f"{found.clips_without:,}",
            f"{found.audio_s / unit_s:.2f}",
            f"{metadata.splits[name].seconds / unit_s:.2f}",
        )
        for name, found in windows.items()
    ]
    header = (
        "split", "windows", *(f"left out: {reason}" for reason in reasons), "examples",
        "clips without one", f"{unit} {OF_AUDIO}", f"{unit} {OF_EXAMPLES}",
    )  # fmt: skip
    levels = [
        (name, *(f"{level:.1f}" for level in found.levels.values()))
        for name, found in windows.items()
        if found.levels
    ]
    ranks = ("dB of windows", *(f"{100 * q:g} %" for q in QUANTILES))
    text = f"{_table(header, rows)}\n\n{_table(ranks, levels)}"
    left_out = left_out_words(metadata.left_out or {})
    return text + (left_out and f"\n\nclips left out: {left_out}")


def _describe_elements(metadata: Metadata) -> str:
    rows = [
        (
            name,
            f"{split.examples:,}",
            f"{len(split.shards):,}",
            bytes_text(sum(shard.bytes for shard in split.shards)),
        )
        for name, split in metadata.splits.items()
    ]
    table = _table(("split", "examples", "shards", "size"), rows)
    return f"{table}\n{_describe_features(metadata.features)}"


def describe_plan(
    summary: PlanSummary, rejects: Sequence[Reject], recipe: Recipe
) -> str:
    """Returns a plan as tables of splits, classes, features and rejects.

    With ``--keep``, the audio decides which windows are recorded, so that the plan's
    counts are upper bounds; the headers then say "at most".
    """
    example_format = summary.example_format
    if example_format is None:
        raise ValueError("cannot describe a plan that has no clips")
    size = example_bytes(example_format.features)
    planned = {name: summary.kept(name) for name in summary.layouts}
    seconds = {name: some for name, (_, some) in planned.items()}
    shares = _shares(seconds, recipe)
    unit, unit_s = time_unit(seconds.values())
    rows = []
    for name, layout in summary.layouts.items():
        clips = sum(n for key, (n, _) in summary.tally.items() if key[0] == name)
        examples, _ = planned[name]
        rows.append(
            (
                name,
                f"{examples:,}",
                f"{clips:,}",
                f"{summary.audio_seconds(name) / unit_s:.2f}",
                f"{seconds[name] / unit_s:.2f}",
                *shares.get(name, ()),
                f"{layout.shards:,}",
                bytes_text(examples * size),
            )
        )
    at_most = _at_most(example_format)
    header = (
        "split", f"examples{at_most}", "clips", f"{unit} {OF_AUDIO}{at_most}",
        f"{unit} {OF_EXAMPLES}{at_most}", *shares[""], "shards",
        f"before GZIP{at_most}",
    )  # fmt: skip
    parts = [_table(header, rows)]
    if example_format.classes:
        parts.append(_describe_classes(summary, example_format))
    parts.append(_describe_features(example_format.features.specs))
    rejected, listing = count_clips(rejects), summary.listing
    words = f"{rejected:,} rejected{LostAudio.of(r.seconds for r in rejects)}"
    parts.append(_inputs(listing.clips, words, listing.ignored, summary.left_out))
    first = heapq.nsmallest(REJECTS_SHOWN, rejects)
    lines = [f"  {r.filepath}: {r.reason}" for r in first]
    if rejected > REJECTS_SHOWN:
        lines.append(f"  ... and {rejected - REJECTS_SHOWN} more")
    return "\n\n".join(parts) + "".join(f"\n{line}" for line in lines)


def _shares(seconds: Mapping[str, float], recipe: Recipe) -> dict[str, list[str]]:
    """Returns the cells of each split: its share of the audio, and the requested share.

    The key "" has the cells of the header. Copies do not count.
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
            some.append(f"{100 * asked[name]:.3g} %" if name else "requested")
    return cells


def _describe_classes(summary: PlanSummary, example_format: ExampleFormat) -> str:
    splits = list(summary.layouts)
    tally = summary.by_class()
    examples = split_by_class(example_format, [(k, n) for k, (_, n) in tally.items()])
    clips = split_by_class(example_format, [(k, n) for k, (n, _) in tally.items()])
    frames = split_by_class(example_format, summary.lengths(tally))

    seconds = {
        (label, split): seconds_of(frames[label], split)
        for label in example_format.classes
        for split in splits
    }
    unit, unit_s = time_unit(seconds.values())

    def cell(label: str, split: str) -> str:
        return (
            f"{_in_split(split, examples[label]):,} / "
            f"{_in_split(split, clips[label]):,} / {seconds[label, split] / unit_s:.2f}"
        )

    rows = []
    for label in example_format.classes[:CLASSES_SHOWN]:
        rows.append((label, *(cell(label, split) for split in splits)))
    if len(example_format.classes) > CLASSES_SHOWN:
        more = f"... and {len(example_format.classes) - CLASSES_SHOWN} more"
        rows.append((more, *[""] * len(splits)))
    at_most = _at_most(example_format)
    titles = (
        f"{split} examples / clips / {unit} {OF_EXAMPLES}{at_most}" for split in splits
    )
    return _table(("class", *titles), rows)


def _at_most(example_format: ExampleFormat) -> str:
    """What headers add if ``--keep`` may leave out some of the counted examples."""
    return ", at most" if example_format.treatment.selections else ""


def _in_split(split: str, counts: Sequence[tuple[TallyKey, int]]) -> int:
    return sum(n for key, n in counts if key[0] == split)


def _describe_shape(shape: Shape | None) -> str:
    """A shape as text; ``?`` stands for what differs between examples."""
    if shape is None:
        return "?"
    return "x".join("?" if n is None else str(n) for n in shape) or "scalar"


def _describe_type(spec: FeatureSpec) -> str:
    """The dtype, and the encoding if readers decode it."""
    if spec.encoding not in (*LISTS, RAW):
        return f"{spec.dtype} as {spec.encoding}"
    return spec.dtype


def _describe_features(specs: Mapping[str, FeatureSpec]) -> str:
    rows = [
        (name, _describe_type(spec), _describe_shape(spec.shape), spec.description)
        for name, spec in specs.items()
    ]
    return _table(("feature", "type", "shape", "from"), rows, left=4)


def _inputs(clips: int, rejected: str, ignored: int, out: Mapping[str, int]) -> str:
    left_out = f", {left_out_words(out)}" if out else ""
    return f"inputs: {clips:,} clips, {rejected}{left_out}; {ignored:,} files ignored"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]], left: int = 1) -> str:
    """Aligns the first ``left`` columns to the left, and the others to the right."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in lines
    )


def counted(count: int, noun: str) -> str:
    """Returns ``1 shard``, ``2 shards``."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def bytes_text(count: float) -> str:
    """Returns a number of bytes with three digits or so."""
    for unit in ("B", "kB", "MB", "GB", "TB"):
        if count < 1000 or unit == "TB":
            break
        count /= 1000
    return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"


def describe_progress(progress: RunProgress) -> str:
    """Returns the progress of a run on one line."""
    totals = progress.totals
    if not totals.examples:
        return "planning: reading headers"
    percent = 100 * progress.examples // totals.examples
    unit, unit_s = time_unit([totals.seconds])
    return (
        f"writing: {progress.shards_done:,} of {progress.shards:,} shards, "
        f"{progress.examples:,} of {totals.examples:,} examples ({percent}%), "
        f"{progress.seconds / unit_s:.2f} of {totals.seconds / unit_s:.2f} {unit} "
        f"{OF_EXAMPLES}"
    )


def describe_forecast(forecast: Forecast) -> str:
    """Returns a forecast as some lines."""
    size, seconds = forecast.bytes, forecast.seconds
    title = f"forecast from {forecast.sampled:,} examples"
    if forecast.lost:
        title += f"; {forecast.lost:,} more could not be made"
    return "\n".join(
        (
            title,
            f"  size    {bytes_text(size)}{_error(size, forecast.bytes_error)}, "
            f"{bytes_text(forecast.bytes_per_example)} for each of "
            f"{forecast.examples:,.0f} examples",
            f"  work    {time_text(seconds)}{_error(seconds, forecast.seconds_error)} "
            "of one worker",
        )
    )


def _error(value: float, error: float) -> str:
    """Two standard errors as a percentage; empty if they are not known."""
    if not (value and math.isfinite(error)):
        return ""
    return f" ± {100 * error / value:.2g} %"


def table_as_csv(table: Any) -> Iterator[str]:
    """Yields a table as CSV, some lines at a time, without the last line break.

    Texts are in quotes, and nothing stands for null. Lists become JSON, and bytes
    Base64.
    """
    import pyarrow.csv

    for first in range(0, max(len(table), 1), _ROWS_AT_ONCE):
        lines = io.BytesIO()
        options = pyarrow.csv.WriteOptions(include_header=first == 0)
        some = _with_texts(table.slice(first, _ROWS_AT_ONCE))
        pyarrow.csv.write_csv(some, lines, options)
        yield lines.getvalue().decode().removesuffix("\n")


def _with_texts(table: Any) -> Any:
    """Returns a table with texts in place of what CSV cannot hold."""
    import pyarrow as pa

    for k, field in enumerate(table.schema):
        column = table.column(k)
        if pa.types.is_dictionary(field.type):
            texts = column.cast(field.type.value_type)
        elif pa.types.is_list(field.type) or pa.types.is_binary(field.type):
            texts = pa.array(map(_as_text, column.to_pylist()), pa.string())
        else:
            continue
        table = table.set_column(k, field.name, texts)
    return table


def _as_text(value: Any) -> str | None:
    if isinstance(value, bytes):
        return _base64(value)
    if value is None:
        return None
    return json.dumps(value, ensure_ascii=False, default=_base64)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode()
