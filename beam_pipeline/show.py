"""Data sets, plans and examples, for people to look at."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from beam_pipeline import files
from beam_pipeline.blocks import Format
from beam_pipeline.errors import InputError
from beam_pipeline.examples import decode_examples, example_bytes
from beam_pipeline.features import FeatureSpec
from beam_pipeline.finish import PlanSummary, seconds_of, split_by_class
from beam_pipeline.metadata import Metadata
from beam_pipeline.plan import Reject, TallyKey
from beam_pipeline.progress import Progress
from beam_pipeline.splits import shares_of
from beam_pipeline.tfrecord import read_records

REJECTS_SHOWN = 20
CLASSES_SHOWN = 50
PLOTS_ACROSS = 3


def some_examples(
    folder: str, metadata: Metadata, count: int, split: str | None = None
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Examples spread evenly over a split, each with its place in it.

    Neighbours are often windows of one clip; these show more of what there is.

    Raises
    ------
    InputError
        If there is no such split.
    """
    name = split or next(iter(metadata.splits))
    if name not in metadata.splits:
        raise InputError(
            f"There is no split {name!r}, only {', '.join(metadata.splits)}."
        )
    total = metadata.splits[name].examples
    wanted = sorted({i * total // count for i in range(count)} if total else set())
    first = 0
    for shard in metadata.splits[name].shards:
        places = [i for i in wanted if first <= i < first + shard.examples]
        if places:
            path = files.join(files.absolute(folder), shard.file)
            with files.open_read(path) as file:
                records = islice(read_records(file), places[-1] - first + 1)
                found = [r for i, r in enumerate(records, first) if i in places]
            yield from zip(
                places, decode_examples(found, metadata.features), strict=True
            )
        first += shard.examples


def describe_example(example: Mapping[str, Any]) -> str:
    """One line a feature: its type, shape, and values or what they amount to."""
    width = max(len(name) for name in example)
    return "\n".join(
        f"  {name:{width}}  {_describe_value(value)}" for name, value in example.items()
    )


def _describe_value(value: Any) -> str:
    if isinstance(value, str):
        return repr(value)
    array = np.asarray(value)
    if array.ndim == 0:
        return f"{array}"
    flat = array.reshape(-1)
    start = np.array2string(flat[:4], precision=4, separator=", ")[1:-1]
    text = f"{array.dtype} {array.shape} [{start}{', ...' if flat.size > 4 else ''}]"
    if array.dtype.kind in "biuf":
        text += f" from {flat.min():.4g} to {flat.max():.4g}"
    return text


def describe_metadata(metadata: Metadata) -> str:
    """A data set in a few lines."""
    rows = [
        (
            name,
            f"{split.examples:,}",
            f"{split.clips:,}",
            f"{split.seconds / 3600:.2f}",
            f"{len(split.shards):,}",
            _bytes(sum(shard.bytes for shard in split.shards)),
        )
        for name, split in metadata.splits.items()
    ]
    table = _table(("split", "examples", "clips", "hours", "shards", "size"), rows)
    return f"{table}\n{_inputs(metadata.clips, metadata.rejected, metadata.ignored)}"


def describe_plan(summary: PlanSummary, rejects: Sequence[Reject]) -> str:
    """A plan: splits, classes, features, rejects.

    Counts are at most what will be recorded where only the audio tells what is kept.
    """
    form = summary.form
    if form is None:
        raise ValueError("a plan without clips")
    size = example_bytes(form.features)
    rows = []
    for name, layout in summary.layouts.items():
        clips = sum(n for key, (n, _) in summary.tally.items() if key[0] == name)
        examples, seconds = summary.kept(name)
        rows.append(
            (
                name,
                f"{examples:,}",
                f"{clips:,}",
                f"{seconds / 3600:.2f}",
                f"{layout.shards:,}",
                _bytes(examples * size),
            )
        )
    at_most = _at_most(form)
    header = (
        "split", f"examples{at_most}", "clips", f"hours{at_most}", "shards",
        f"before GZIP{at_most}",
    )  # fmt: skip
    parts = [_table(header, rows)]
    if form.classes:
        parts.append(_describe_classes(summary, form))
    parts.append(_describe_features(form.features.specs))
    rejected = len({reject.row for reject in rejects})
    listing = summary.listing
    parts.append(_inputs(listing.clips, rejected, listing.ignored))
    lines = [f"  {r.filepath}: {r.reason}" for r in sorted(rejects)[:REJECTS_SHOWN]]
    if rejected > REJECTS_SHOWN:
        lines.append(f"  ... and {rejected - REJECTS_SHOWN} more")
    return "\n\n".join(parts) + "".join(f"\n{line}" for line in lines)


def _describe_classes(summary: PlanSummary, form: Format) -> str:
    splits = list(summary.layouts)
    tally = summary.by_class()
    windows = [(key, n) for key, (_, n) in tally.items()]
    clips = [(key, n) for key, (n, _) in tally.items()]
    counts, numbers = split_by_class(form, windows), split_by_class(form, clips)

    def cell(label: str, split: str) -> str:
        hours = seconds_of(form, counts[label], split) / 3600
        windows = _in_split(split, counts[label])
        return f"{windows:,} / {_in_split(split, numbers[label]):,} / {hours:.2f}"

    rows = []
    for label in form.classes[:CLASSES_SHOWN]:
        rows.append((label, *(cell(label, split) for split in splits)))
    if len(form.classes) > CLASSES_SHOWN:
        more = f"... and {len(form.classes) - CLASSES_SHOWN} more"
        rows.append((more, *[""] * len(splits)))
    titles = (f"{split} examples / clips / hours{_at_most(form)}" for split in splits)
    return _table(("class", *titles), rows)


def _at_most(form: Format) -> str:
    """What is said of numbers from which --keep will take some."""
    return ", at most" if form.treatment.selections else ""


def _in_split(split: str, counts: Sequence[tuple[TallyKey, int]]) -> int:
    return sum(n for key, n in counts if key[0] == split)


def missing_in_plan(summary: PlanSummary) -> list[str]:
    """A warning for each split that has nothing, or lacks classes."""
    form = summary.form
    if form is None:
        return []
    windows = [(key, n) for key, (_, n) in summary.by_class().items()]
    counts = split_by_class(form, windows)
    return _empty(summary.empty) + _missing(
        {
            split: {label: _in_split(split, some) for label, some in counts.items()}
            for split in summary.layouts
        }
    )


def missing_in_data(metadata: Metadata) -> list[str]:
    """A warning for what splits have not, and for NaN in features."""
    shares = shares_of(metadata.recipe) or ()
    warnings = _empty(name for name in shares if name not in metadata.splits)
    warnings += _missing({n: s.examples_per_class for n, s in metadata.splits.items()})
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


def plot_examples(
    examples: Sequence[Mapping[str, Any]], metadata: Metadata, path: str
) -> None:
    """Draws every array feature of some examples into one picture.

    Signals are lines; spectra are pictures with their axes in seconds and hertz.

    Raises
    ------
    InputError
        If matplotlib is not installed, or there is nothing to draw.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise InputError(
            "--plot needs matplotlib: pip install 'audio-tfrecords[plot]'"
        ) from error
    drawn = [s for s in metadata.features.values() if 1 <= len(s.shape) <= 2]
    if not drawn or not examples:
        raise InputError("There is no signal or spectrum to draw in these examples.")
    # Few examples with many features, or many with few: about as wide as high.
    across = min(len(drawn), PLOTS_ACROSS)
    down = -(-len(drawn) // across)
    size = (5 * across, 2.6 * down * len(examples))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down * len(examples), across, squeeze=False)
    for number, example in enumerate(examples):
        places = axes[number * down : (number + 1) * down].ravel()
        for place, spec in zip(places, drawn, strict=False):
            _draw(place, spec, np.asarray(example[spec.name]), example)
        for place in places[len(drawn) :]:
            place.set_axis_off()
    figure.savefig(path)


def _draw(
    axes: Any, spec: FeatureSpec, values: Any, example: Mapping[str, Any]
) -> None:
    if values.dtype.kind == "c":
        values = np.abs(values)
    rate = float(example["fs"])
    axes.set_title(f"{spec.name}: {example.get('class', example['filepath'])}")
    if values.ndim == 1 and not spec.axes:
        start = float(example["win_start_idx"]) / rate
        axes.plot(start + np.arange(values.size) / rate, values, linewidth=0.5)
        axes.set_xlabel("s")
    elif values.ndim == 1:
        _draw_series(axes, spec, values)
    elif spec.axes and "labels" in spec.axes[-1]:
        _draw_columns(axes, spec, values)
    else:
        axes.imshow(values.T, origin="lower", aspect="auto", interpolation="nearest")
        for axis, described in zip((axes.xaxis, axes.yaxis), spec.axes, strict=False):
            _label_axis(axis, described, values.shape)


def _draw_series(axes: Any, spec: FeatureSpec, values: Any) -> None:
    """A line over the feature's only axis."""
    described: Mapping[str, Any] = spec.axes[0] if spec.axes else {"name": "entry"}
    places = described.get("values")
    if places is None:
        step = described.get("step", 1)
        places = described.get("start", 0) + step * np.arange(values.size)
    axes.plot(places, values, linewidth=0.8)
    unit = described.get("unit")
    axes.set_xlabel(described["name"] + (f" ({unit})" if unit else ""))


def _draw_columns(axes: Any, spec: FeatureSpec, values: Any) -> None:
    """A line for each of a few columns, which differ in what they mean."""
    time = spec.axes[0]
    places = time["start"] + time["step"] * np.arange(len(values))
    axes.set_xlabel(f"{time['name']} ({time['unit']})")
    for number, label in enumerate(spec.axes[-1]["labels"]):
        beside = axes if number == 0 else axes.twinx()
        beside.plot(places, values[:, number], f"C{number}", linewidth=0.8)
        beside.set_ylabel(label, color=f"C{number}")


def _label_axis(
    axis: Any, described: Mapping[str, Any], shape: tuple[int, ...]
) -> None:
    """Writes what an axis means at a few of its places."""
    unit = described.get("unit")
    axis.set_label_text(described["name"] + (f" ({unit})" if unit else ""))
    values = described.get("values")
    size = described.get("size", shape[0]) if values is None else len(values)
    places = np.linspace(0, size - 1, min(6, size)).round().astype(int)
    if values is None:
        step = described.get("step", 1)
        values = described.get("start", 0) + step * np.arange(size)
    texts = [v if isinstance(v, str) else f"{v:.4g}" for v in values]
    axis.set_ticks(places, [texts[place] for place in places])


def describe_progress(seen: Progress) -> str:
    """One line on how far a run is."""
    if not seen.totals.examples:
        return "planning: the headers are being read"
    share = 100 * seen.examples // seen.totals.examples
    return (
        f"writing: {seen.shards_done} of {seen.shards} shards, {seen.examples} of "
        f"{seen.totals.examples} windows ({share}%), {seen.seconds / 3600:.2f} of "
        f"{seen.totals.seconds / 3600:.2f} h of audio"
    )
