"""Data sets, plans, forecasts, progress and tables as text."""

from __future__ import annotations

import heapq
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Any

import numpy as np

from beam_pipeline.dataset.folders import MANIFEST
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.progress import RunProgress
from beam_pipeline.dataset.tables import count_clips, lost_audio, lost_words, read_table
from beam_pipeline.encodings import LISTS, RAW
from beam_pipeline.examples.features import ExampleFormat
from beam_pipeline.examples.serialisation import example_bytes
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.windows import TOO_SHORT
from beam_pipeline.planning.clips import Reject, copies_in
from beam_pipeline.planning.shards import (
    CLIPS_NAMED,
    PlanSummary,
    TallyKey,
    left_out_words,
    seconds_of,
    split_by_class,
)
from beam_pipeline.read.window_table import QUANTILES, WindowSummary
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.text import time_text, time_unit

if TYPE_CHECKING:
    from beam_pipeline.run.local import Forecast

REJECTS_SHOWN = 20
CLASSES_SHOWN = 50

_ROWS_AT_ONCE = 1 << 14  # of CSV

# The cells of a column, from the top down; None for a column that is not shown.
Cells = Iterable[object] | None

# Padding counts, and audio counts in each of the windows and copies that it is in.
OF_EXAMPLES = "of examples"
# Audio in several windows counts once; padding and copies do not count.
OF_AUDIO = "of audio"


def describe_metadata(metadata: Metadata, folder: str | None = None) -> str:
    """Returns a data set's splits as a table, and its numbers of clips and rejects.

    Of a ``folder``, the audio of its rejects is summed up, and some files without a
    window are named. Without clips, the features follow.
    """
    splits, recipe = metadata.splits, metadata.recipe
    columns: dict[str, Cells] = {
        "split": splits,
        "examples": [split.examples for split in splits.values()],
    }
    if recipe is not None:
        seconds = {name: split.seconds for name, split in splits.items()}
        unit, unit_s = time_unit(seconds.values())
        columns |= {
            "clips": [split.clips for split in splits.values()],
            f"{unit} {OF_EXAMPLES}": _times(seconds.values(), unit_s),
            **_shares(seconds, recipe),
        }
    columns |= {
        "shards": [len(split.shards) for split in splits.values()],
        "size": [
            bytes_text(sum(shard.bytes for shard in split.shards))
            for split in splits.values()
        ],
    }
    if recipe is None:
        return f"{_table(columns)}\n{_describe_features(metadata.features)}"
    windows_left_out = [split.left_out for split in splits.values()]
    if any(windows_left_out):
        columns["windows left out"] = windows_left_out
    lost, named = "", list[str]()
    if folder is not None:
        lost = lost_audio(folder, metadata)
        named = _clips_left_out(folder) if metadata.left_out else []
    rejected = f"{metadata.rejected:,} rejected{lost}"
    counts = metadata.clips, rejected, metadata.ignored_files
    inputs = _inputs(*counts, metadata.left_out or {}, named, recipe)
    return f"{_table(columns)}\n{inputs}"


def _clips_left_out(folder: str) -> list[str]:
    """Returns the files of the first clips for which no window was planned."""
    clips = read_table(folder, MANIFEST, ["path", "windows"])
    paths = clips.filter(np.equal(clips["windows"].to_numpy(), 0))["path"]
    return sorted(paths[:CLIPS_NAMED].to_pylist())


def describe_windows(metadata: Metadata, windows: Mapping[str, WindowSummary]) -> str:
    """Returns what the windows of each split are, and their levels, as two tables."""
    if not windows:
        return "This data set has no table of windows."
    found, splits = windows.values(), [metadata.splits[name] for name in windows]
    reasons = sorted({reason for each in found for reason in each.left_out})
    unit, unit_s = time_unit(split.seconds for split in splits)
    counts: dict[str, Cells] = {
        "split": windows,
        "windows": [each.windows for each in found],
        **{f"left out: {r}": [each.left_out.get(r, 0) for each in found]
           for r in reasons},
        "examples": [split.examples for split in splits],
        "clips without one": [each.clips_without for each in found],
    }  # fmt: skip
    if metadata.recipe is not None:
        seconds = (split.seconds for split in splits)
        counts[f"{unit} {OF_EXAMPLES}"] = _times(seconds, unit_s)
    heard = {name: each.levels for name, each in windows.items() if each.levels}
    levels: dict[str, Cells] = {"dB of windows": heard}
    for q in QUANTILES:
        levels[f"{100 * q:g} %"] = [f"{of[q]:.1f}" for of in heard.values()]
    text = f"{_table(counts)}\n\n{_table(levels)}"
    left_out = left_out_words(metadata.left_out or {})
    return text + (left_out and f"\n\nclips left out: {left_out}")


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
    clips: Counter[str] = Counter()
    for key, n in summary.clips.items():
        clips[key.split] += n
    unit, unit_s = time_unit(seconds.values())
    at_most = _at_most(example_format)
    columns: dict[str, Cells] = {
        "split": planned,
        f"examples{at_most}": [examples for examples, _ in planned.values()],
        "clips": [clips[name] for name in planned],
        f"{unit} {OF_AUDIO}{at_most}": _times(
            map(summary.audio_seconds, planned), unit_s
        ),
        f"{unit} {OF_EXAMPLES}{at_most}": _times(seconds.values(), unit_s),
        **_shares(seconds, recipe),
        "shards": [layout.shards for layout in summary.layouts.values()],
        f"before GZIP{at_most}": [bytes_text(n * size) for n, _ in planned.values()],
    }
    parts = [_table(columns)]
    if example_format.classes:
        parts.append(_describe_classes(summary, example_format))
    parts.append(_describe_features(example_format.features.specs))
    rejected, listing = count_clips(rejects), summary.listing
    words = f"{rejected:,} rejected{lost_words(r.seconds for r in rejects)}"
    counts = listing.clips, words, listing.ignored
    named = sorted(summary.first_left_out)
    parts.append(_inputs(*counts, summary.left_out, named, recipe))
    first = heapq.nsmallest(REJECTS_SHOWN, rejects)
    lines = [_one_line(f"  {r.filepath}: {r.reason}") for r in first]
    if rejected > REJECTS_SHOWN:
        lines.append(f"  ... and {rejected - REJECTS_SHOWN} more")
    return "\n\n".join(parts) + "".join(f"\n{line}" for line in lines)


def _shares(seconds: Mapping[str, float], recipe: Recipe) -> dict[str, Cells]:
    """Returns columns: the share of the audio that each split has, and the requested.

    Copies do not count.
    """
    if len(seconds) < 2:
        return {}
    once = {
        name: s / (1 + copies_in(recipe.copies, name)) for name, s in seconds.items()
    }
    total, asked = math.fsum(once.values()) or 1.0, recipe.hashed_shares()
    return {
        "share": [f"{100 * s / total:.1f} %" for s in once.values()],
        "requested": asked and [f"{100 * asked[name]:.3g} %" for name in once],
    }


def _describe_classes(summary: PlanSummary, example_format: ExampleFormat) -> str:
    counts = summary.by_class()
    clips, examples = (split_by_class(example_format, each) for each in counts)
    frames = split_by_class(example_format, summary.in_frames(counts[1]))
    classes = example_format.classes
    shown, more = classes[:CLASSES_SHOWN], len(classes) - CLASSES_SHOWN
    seconds = {
        split: [seconds_of(frames[label], split) for label in classes]
        for split in summary.layouts
    }
    unit, unit_s = time_unit(chain.from_iterable(seconds.values()))
    header = f"examples / clips / {unit} {OF_EXAMPLES}{_at_most(example_format)}"

    def of_split(counts: Mapping[TallyKey, int], split: str) -> int:
        return sum(n for key, n in counts.items() if key.split == split)

    columns: dict[str, Cells] = {
        "class": [*shown, f"... and {more} more"] if more > 0 else shown
    }
    for split, of_classes in seconds.items():
        columns[f"{split} {header}"] = [
            f"{of_split(examples[label], split):,} / "
            f"{of_split(clips[label], split):,} / {of_class / unit_s:.2f}"
            for label, of_class in zip(shown, of_classes, strict=False)
        ]
    return _table(columns)


def _at_most(example_format: ExampleFormat) -> str:
    """What headers add if ``--keep`` may leave out some of the counted examples."""
    return ", at most" if example_format.window_steps.selections else ""


def _describe_features(specs: Mapping[str, FeatureSpec]) -> str:
    """Returns a table of features; ``?`` is a length that differs between examples."""

    def type_of(spec: FeatureSpec) -> str:
        is_plain = spec.encoding in (*LISTS, RAW)
        return spec.dtype if is_plain else f"{spec.dtype} as {spec.encoding}"

    def shape_of(spec: FeatureSpec) -> str:
        if spec.shape is None:
            return "?"
        return "x".join("?" if n is None else str(n) for n in spec.shape) or "scalar"

    columns: dict[str, Cells] = {
        "feature": specs,
        "type": map(type_of, specs.values()),
        "shape": map(shape_of, specs.values()),
        "from": [spec.description for spec in specs.values()],
    }
    return _table(columns, left=4)


def _inputs(
    clips: int,
    rejected: str,
    ignored: int,
    out: Mapping[str, int],
    named: Sequence[str],
    recipe: Recipe,
) -> str:
    left_out = f", {left_out_words(out)}" if out else ""
    line = f"inputs: {clips:,} clips, {rejected}{left_out}; {ignored:,} files ignored"
    if named:
        more = sum(out.values()) - len(named)
        line += f"\n  left out: {', '.join(named)}{f' and {more:,} more' * (more > 0)}"
    if TOO_SHORT in out and recipe.min_seconds is None:
        line += "\n  `short_clips` = pad records clips that are too short, with zeros"
    return line


def _times(seconds: Iterable[float], unit_s: int) -> list[str]:
    return [f"{each / unit_s:.2f}" for each in seconds]


def _table(columns: Mapping[str, Cells], left: int = 1) -> str:
    """Aligns the first ``left`` columns to the left, and the others to the right.

    Columns without cells, which are None, are left out; short ones end in empty cells.
    """
    shown = [
        [
            _one_line(f"{cell:,}" if isinstance(cell, int) else str(cell))
            for cell in (title, *cells)
        ]
        for title, cells in columns.items()
        if cells is not None
    ]
    widths = [max(map(len, column)) for column in shown]
    return "\n".join(
        "  ".join(
            cell.ljust(width) if i < left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(line, widths, strict=True))
        ).rstrip()
        for line in zip_longest(*shown, fillvalue="")
    )


def _one_line(text: str) -> str:
    """Returns a text whose names of files and classes break no line."""
    return text.replace("\n", "\\n")


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

    Texts are in quotes, and nothing stands for null. Lists and bytes are as Python
    prints them.
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
            values = (None if v is None else str(v) for v in column.to_pylist())
            texts = pa.array(values, pa.string())
        else:
            continue
        table = table.set_column(k, field.name, texts)
    return table
