"""Data sets, plans and examples, for people to look at."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from beam_pipeline.recipe import CLIP_FEATURES, Recipe
from beam_pipeline.splits import shares_of
from beam_pipeline.tfrecord import read_records
from beam_pipeline.treatment import copies_in
from beam_pipeline.windows import WindowPlan

REJECTS_SHOWN = 20
CLASSES_SHOWN = 50
PLOTS_ACROSS = 3
# Of the class, or the file's name, above a panel.
TITLE_LENGTH = 24
LAYERS_SHOWN = 8


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
    form = summary.form
    if form is None:
        raise ValueError("a plan without clips")
    size = example_bytes(form.features)
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
    at_most = _at_most(form)
    header = (
        "split", f"examples{at_most}", "clips", f"hours{at_most}", *shares[""],
        "shards", f"before GZIP{at_most}",
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


def _shares(seconds: Mapping[str, float], recipe: Recipe) -> dict[str, list[str]]:
    """Cells of each split: its share, and what was asked for; "" has their header.

    Of audio; copies of it do not count.
    """
    if len(seconds) < 2:
        return {"": []}
    once = {name: s / (1 + copies_in(recipe, name)) for name, s in seconds.items()}
    total = math.fsum(once.values()) or 1.0
    cells = {name: [f"{100 * s / total:.1f} %"] for name, s in once.items()}
    cells[""] = ["share"]
    asked = shares_of(recipe)
    if asked is not None:
        for name, some in cells.items():
            some.append(f"{100 * asked[name]:.3g} %" if name else "asked")
    return cells


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


@dataclass(frozen=True)
class Panel:
    """One drawing of a feature: all its layers as curves, or one as a picture.

    ``layers`` of ``count`` are drawn, each of ``shape``: the feature's channels.
    """

    spec: FeatureSpec
    shape: tuple[int, ...]
    layers: tuple[int, ...]
    count: int
    noun: str

    def title(self) -> str:
        """The feature's name, and which of its channels these are."""
        if self.count == 1:
            return self.spec.name
        if len(self.layers) == 1:
            return f"{self.spec.name}, {self.noun} {self.layers[0]}"
        if len(self.layers) < self.count:
            return f"{self.spec.name}, {len(self.layers)} of {self.count} {self.noun}s"
        return self.spec.name


def picture_path(text: str) -> str:
    """Where a picture will be: the same, with ``.png`` where no suffix says a format.

    Raises
    ------
    InputError
        If matplotlib is not installed or cannot write such a file, or if there is no
        folder for it.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise InputError(
            "--plot needs matplotlib: pip install 'audio-tfrecords[plot]'"
        ) from error
    path = text if os.path.splitext(text)[1].strip(".") else f"{text.rstrip('.')}.png"
    formats = sorted(FigureCanvasBase.get_supported_filetypes())
    if os.path.splitext(path)[1][1:].lower() not in formats:
        raise InputError(
            f"--plot {text}: the name must end in a format of pictures: "
            f".{', .'.join(formats)}."
        )
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise InputError(f"--plot {text}: there is no folder {folder}. Make it first.")
    if os.path.isdir(path):
        raise InputError(f"--plot {text} is a folder. Name a file.")
    return path


def plot_examples(
    examples: Sequence[Mapping[str, Any]], metadata: Metadata, path: str
) -> list[str]:
    """Draws every array feature of some examples into one picture.

    Signals are lines; spectra are pictures with their axes in seconds and hertz.
    Channels are lines over each other, or pictures beside each other.

    Returns
    -------
    list of str
        What is not drawn, and why.

    Raises
    ------
    InputError
        If there is nothing to draw, or the picture cannot be written.
    """
    from matplotlib.figure import Figure

    panels: list[Panel] = []
    left_out: list[str] = []
    if examples:
        win_len = WindowPlan.of(metadata.recipe, int(examples[0]["fs"])).length
        panels, left_out = _arrange(metadata, win_len)
    if not panels:
        raise InputError("There is no signal or spectrum to draw in these examples.")
    # Few examples with many features, or many with few: about as wide as high.
    across = min(len(panels), PLOTS_ACROSS)
    down = -(-len(panels) // across)
    size = (5 * across, 2.6 * down * len(examples))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down * len(examples), across, squeeze=False)
    for number, example in enumerate(examples):
        places = axes[number * down : (number + 1) * down].ravel()
        for place, panel in zip(places, panels, strict=False):
            _draw(place, panel, example, win_len)
        for place in places[len(panels) :]:
            place.set_axis_off()
    try:
        figure.savefig(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from error
    return left_out


def _arrange(metadata: Metadata, win_len: int) -> tuple[list[Panel], list[str]]:
    """A panel for each thing to draw, and what is not drawn."""
    keeps = metadata.recipe.channels == "keep"
    noun = "channel" if keeps else "row"
    specs = list(metadata.features.values())
    channels = _channels(specs, win_len) if keeps else None
    panels, left_out = [], []
    for spec in specs:
        inner = len(spec.shape)
        if spec.axes:
            inner = len(spec.axes)
        elif channels and spec.shape[:1] == (channels,):
            inner -= 1
        outer = len(spec.shape) - inner
        count, shape = math.prod(spec.shape[:outer]), spec.shape[outer:]
        if inner not in (1, 2):
            if spec.name not in CLIP_FEATURES:
                kind = f"{inner} dimensions" if inner else "a single value"
                if inner == 0 and outer:
                    kind = f"a value for each {noun}"
                left_out.append(f"{spec.name} ({kind})")
            continue
        drawn = tuple(range(min(count, LAYERS_SHOWN)))
        if count > len(drawn):
            left_out.append(f"{spec.name} (those after the first {len(drawn)})")
        together = [drawn] if inner == 1 else [(layer,) for layer in drawn]
        panels += [Panel(spec, shape, layers, count, noun) for layers in together]
    return panels, left_out


def _channels(specs: Sequence[FeatureSpec], win_len: int) -> int | None:
    """How many channels windows have, as far as features tell: they stand first."""
    for spec in specs:
        inner = spec.shape[1:]
        if spec.axes and len(inner) == len(spec.axes):
            return spec.shape[0]
        if not spec.axes and inner == (win_len,):
            return spec.shape[0]
    # Signals of another rate have neither axes nor the window's length.
    return next((s.shape[0] for s in specs if len(s.shape) == 2 and not s.axes), None)


def _draw(axes: Any, panel: Panel, example: Mapping[str, Any], win_len: int) -> None:
    spec = panel.spec
    values = np.asarray(example[spec.name])
    if values.dtype.kind == "c":
        values = np.abs(values)
    layers = values.reshape(panel.count, *panel.shape)[list(panel.layers)]
    stem = os.path.splitext(os.path.basename(example["filepath"]))[0]
    what = example.get("class") or stem
    if len(what) > TITLE_LENGTH:
        what = f"{what[: TITLE_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"
    axes.set_title(f"{panel.title()}: {what}")
    if len(panel.shape) == 1:
        if not spec.axes and panel.shape == (win_len,):
            rate = float(example["fs"])
            start = float(example["win_start_idx"]) / rate
            axes.plot(start + np.arange(win_len) / rate, layers.T, linewidth=0.5)
            axes.set_xlabel("time (s)")
        else:
            _draw_series(axes, spec, layers.T)
        if len(layers) > 1:
            names = [f"{panel.noun} {layer}" for layer in panel.layers]
            axes.legend(axes.get_lines(), names, loc="upper right", fontsize="small")
        return
    (picture,) = layers
    if spec.axes and "labels" in spec.axes[-1]:
        _draw_columns(axes, spec, picture)
    else:
        axes.imshow(picture.T, origin="lower", aspect="auto", interpolation="nearest")
        for axis, described in zip((axes.xaxis, axes.yaxis), spec.axes, strict=False):
            _label_axis(axis, described, picture.shape)


def _draw_series(axes: Any, spec: FeatureSpec, values: Any) -> None:
    """A line for each column, over the feature's last axis."""
    described: Mapping[str, Any] = spec.axes[0] if spec.axes else {"name": "entry"}
    places = described.get("values")
    if places is None:
        step = described.get("step", 1)
        places = described.get("start", 0) + step * np.arange(len(values))
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
