"""Draws examples into a picture."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.structure import component_names
from beam_pipeline.examples.windows import WindowPlan
from beam_pipeline.recipe.example_sections import DEFAULT_FEATURE
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.values import CLIP_FEATURES

PLOTS_ACROSS = 3
# Longest class or file name above a panel.
TITLE_LENGTH = 24
LAYERS_SHOWN = 8


@dataclass(frozen=True)
class Panel:
    """One drawing of a feature: all its layers as lines, or one layer as an image.

    A layer is one channel of the feature; it has the shape ``shape``. ``layers`` are
    the numbers of the drawn layers, out of ``count``; titles call a layer by ``noun``.
    ``is_picture`` says that the values are pixels, from the top down.
    """

    spec: FeatureSpec
    shape: tuple[int, ...]
    layers: tuple[int, ...]
    count: int
    noun: str
    is_picture: bool = False

    def title(self) -> str:
        """The feature's name, and the layers that are drawn if not all are."""
        if self.count == 1:
            return self.spec.name
        if len(self.layers) == 1:
            return f"{self.spec.name}, {self.noun} {self.layers[0]}"
        if len(self.layers) < self.count:
            return f"{self.spec.name}, {len(self.layers)} of {self.count} {self.noun}s"
        return self.spec.name


def picture_path(text: str) -> str:
    """Returns the path of a picture: ``text``, with ``.png`` if it has no suffix.

    Raises
    ------
    InputError
        If matplotlib is not installed or does not write this format, or if the folder
        of the picture does not exist.
    """
    try:
        from matplotlib.backend_bases import FigureCanvasBase
    except ImportError as error:
        raise InputError(
            "--plot needs matplotlib. Install it: pip install 'audio-tfrecords[plot]'"
        ) from error
    path = text if os.path.splitext(text)[1].strip(".") else f"{text.rstrip('.')}.png"
    formats = sorted(FigureCanvasBase.get_supported_filetypes())
    if os.path.splitext(path)[1][1:].lower() not in formats:
        raise InputError(
            f"--plot {text}: the name must end in the suffix of an image format: "
            f".{', .'.join(formats)}."
        )
    folder = os.path.dirname(path)
    if folder and not os.path.isdir(folder):
        raise InputError(
            f"--plot {text}: the folder {folder} does not exist. Create it."
        )
    if os.path.isdir(path):
        raise InputError(f"--plot {text}: this is a folder. Name a file.")
    return path


def plot_examples(
    examples: Sequence[Mapping[str, Any]], metadata: Metadata, path: str
) -> list[str]:
    """Draws every array feature of some examples into one picture.

    Signals are lines; spectra are images with their axes in seconds and hertz. Channels
    are lines in one panel, or images side by side. Images are drawn as they are.

    Returns
    -------
    list of str
        The features that are not drawn, and why.

    Raises
    ------
    InputError
        If no feature can be drawn, or the picture cannot be written.
    """
    from matplotlib.figure import Figure

    lengths: list[int] = []
    arranged: list[list[Panel]] = []
    left_out: list[str] = []
    if examples and metadata.recipe is not None:
        for example in examples:
            lengths.append(_win_len(metadata.recipe, example))
            panels, left_out = _arrange(metadata, example, lengths[-1])
            arranged.append(panels)
    elif examples:
        arranged, left_out = _arrange_elements(metadata, examples)
    most = max(map(len, arranged), default=0)
    if not most:
        raise InputError("These examples have no signal, spectrum or image to draw.")
    # A grid of panels for each example, one example below the other.
    across = min(most, PLOTS_ACROSS)
    down = -(-most // across)
    size = (5 * across, 2.6 * down * len(examples))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down * len(examples), across, squeeze=False)
    for number, (example, panels) in enumerate(zip(examples, arranged, strict=True)):
        grid = axes[number * down : (number + 1) * down].ravel()
        for cell, panel in zip(grid, panels, strict=False):
            _draw(cell, panel, example, lengths[number] if lengths else 0)
        for cell in grid[len(panels) :]:
            cell.set_axis_off()
    try:
        figure.savefig(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from error
    return left_out


def _win_len(recipe: Recipe, example: Mapping[str, Any]) -> int:
    """The frames of an example's window; of a whole clip, those of its signal."""
    if not recipe.windows.are_clips:
        return WindowPlan.of(recipe.windows, int(example["fs"]), 0).length
    signal = np.asarray(example.get(DEFAULT_FEATURE, ()))
    return signal.shape[-1] if signal.ndim else 0


def _arrange(
    metadata: Metadata, example: Mapping[str, Any], win_len: int
) -> tuple[list[Panel], list[str]]:
    """Returns the panels of an example, and the features that are not drawn."""
    recipe = metadata.recipe
    keeps = recipe is not None and recipe.audio.channels == "keep"
    noun = "channel" if keeps else "row"
    specs = [
        replace(spec, shape=np.shape(example[spec.name]))
        for spec in metadata.features.values()
        if spec.name in example
    ]
    channels = _channels(specs, win_len) if keeps else None
    panels, left_out = [], []
    for spec in specs:
        inner = len(spec.sizes)
        if inner and spec.is_text:
            left_out.append(f"{spec.name} (a list of {spec.dtype})")
            continue
        if spec.axes:
            inner = len(spec.axes)
        elif channels and spec.sizes[:1] == (channels,):
            inner -= 1
        outer = len(spec.sizes) - inner
        count, shape = math.prod(spec.sizes[:outer]), spec.sizes[outer:]
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


def _arrange_elements(
    metadata: Metadata, examples: Sequence[Mapping[str, Any]]
) -> tuple[list[list[Panel]], list[str]]:
    """Returns the panels of each example, whose shapes may differ."""
    assert metadata.elements is not None
    names = component_names(metadata.features, metadata.elements.structure)
    arranged: list[list[Panel]] = []
    left_out: dict[str, None] = {}
    for example in examples:
        panels = []
        for name in names:
            spec = metadata.features[name]
            if name not in example:
                continue
            array = np.asarray(example[name])
            problem = None
            if array.dtype.kind not in "biufc":
                problem = f"{spec.dtype}"
            elif array.ndim == 0:
                problem = "a single value"
            elif array.size == 0:
                problem = "no values"
            elif array.ndim > 2 and not _is_image(array):
                problem = f"{array.ndim} dimensions"
            if problem is None:
                picture = _is_image(array)
                panels.append(Panel(spec, array.shape, (0,), 1, "row", picture))
            else:
                left_out[f"{name} ({problem})"] = None
        arranged.append(panels)
    return arranged, list(left_out)


def _is_image(array: npt.NDArray[Any]) -> bool:
    """Whether an array is a picture: grey, or with 1, 3 or 4 channels."""
    channels = array.shape[2:]
    return array.dtype == np.uint8 and (
        array.ndim == 2 or (len(channels) == 1 and channels[0] in (1, 3, 4))
    )


def _channels(specs: Sequence[FeatureSpec], win_len: int) -> int | None:
    """The number of channels of windows, if the first axis of a feature shows it."""
    for spec in specs:
        inner = spec.sizes[1:]
        if spec.axes and len(inner) == len(spec.axes):
            return spec.sizes[0]
        if not spec.axes and inner == (win_len,):
            return spec.sizes[0]
    # A resampled signal has neither axes nor the window's length.
    return next((s.sizes[0] for s in specs if len(s.sizes) == 2 and not s.axes), None)


def _draw(axes: Any, panel: Panel, example: Mapping[str, Any], win_len: int) -> None:
    spec = panel.spec
    values = np.asarray(example[spec.name])
    if values.dtype.kind == "c":
        values = np.abs(values)
    layers = values.reshape(panel.count, *panel.shape)[list(panel.layers)]
    what = _title_of(example)
    if len(what) > TITLE_LENGTH:
        what = f"{what[: TITLE_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"
    axes.set_title(f"{panel.title()}: {what}" if what else panel.title())
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
    if panel.is_picture:
        pixels = picture[..., 0] if picture.shape[2:] == (1,) else picture
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=255)
        return
    if spec.axes and "labels" in spec.axes[-1]:
        _draw_columns(axes, spec, picture)
    else:
        axes.imshow(picture.T, origin="lower", aspect="auto", interpolation="nearest")
        for axis, described in zip((axes.xaxis, axes.yaxis), spec.axes, strict=False):
            _label_axis(axis, described, picture.shape)


def _title_of(example: Mapping[str, Any]) -> str:
    """Returns the class of an example, or else the name of its file; may be empty."""
    for name in ("class", "filepath"):
        found = example.get(name)
        if isinstance(found, str) and found:
            stem = os.path.splitext(os.path.basename(found))[0]
            return found if name == "class" else stem
    return ""


def _draw_series(axes: Any, spec: FeatureSpec, values: Any) -> None:
    """Draws a line for each column, over the feature's last axis."""
    described: Mapping[str, Any] = spec.axes[0] if spec.axes else {"name": "entry"}
    x = described.get("values")
    if x is None:
        step = described.get("step", 1)
        x = described.get("start", 0) + step * np.arange(len(values))
    axes.plot(x, values, linewidth=0.8)
    unit = described.get("unit")
    axes.set_xlabel(described["name"] + (f" ({unit})" if unit else ""))


def _draw_columns(axes: Any, spec: FeatureSpec, values: Any) -> None:
    """Draws a line for each column, with its own axis because its meaning differs."""
    time = spec.axes[0]
    x = time["start"] + time["step"] * np.arange(len(values))
    axes.set_xlabel(f"{time['name']} ({time['unit']})")
    for number, label in enumerate(spec.axes[-1]["labels"]):
        beside = axes if number == 0 else axes.twinx()
        beside.plot(x, values[:, number], f"C{number}", linewidth=0.8)
        beside.set_ylabel(label, color=f"C{number}")


def _label_axis(
    axis: Any, described: Mapping[str, Any], shape: tuple[int, ...]
) -> None:
    """Labels an axis, and a few ticks on it, by its description."""
    unit = described.get("unit")
    axis.set_label_text(described["name"] + (f" ({unit})" if unit else ""))
    values = described.get("values")
    size = (described.get("size") or shape[0]) if values is None else len(values)
    ticks = np.linspace(0, size - 1, min(6, size)).round().astype(int)
    if values is None:
        step = described.get("step", 1)
        values = described.get("start", 0) + step * np.arange(size)
    texts = [v if isinstance(v, str) else f"{v:.4g}" for v in values]
    axis.set_ticks(ticks, [texts[tick] for tick in ticks])
