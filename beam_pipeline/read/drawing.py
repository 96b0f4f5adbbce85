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
from beam_pipeline.examples.spec import FLOAT_LIST, FeatureSpec
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
    names: Sequence[str] = tuple(metadata.features)
    if metadata.elements is not None:
        names = component_names(metadata.features, metadata.elements.structure)
    shown = [{n: example[n] for n in names if n in example} for example in examples]
    figure, left_out = draw_examples(shown, metadata.features, metadata.recipe)
    if figure is None:
        raise InputError("These examples have no signal, spectrum or image to draw.")
    try:
        figure.savefig(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}.") from error
    return left_out


def draw_examples(
    examples: Sequence[Mapping[str, Any]],
    features: Mapping[str, FeatureSpec],
    recipe: Recipe | None,
) -> tuple[Any, list[str]]:
    """Draws the array features of examples, one example below the other.

    Returns
    -------
    figure : matplotlib.figure.Figure or None
        None if there is nothing to draw.
    left_out : list of str
        The features that are not drawn, and why.
    """
    from matplotlib.figure import Figure

    arranged: list[list[Panel]] = []
    left_out: dict[str, None] = {}
    for example in examples:
        panels, others = _arrange(example, features, recipe)
        arranged.append(panels)
        left_out.update(dict.fromkeys(others))
    most = max(map(len, arranged), default=0)
    if not most:
        return None, list(left_out)
    # A grid of panels for each example.
    across = min(most, PLOTS_ACROSS)
    down = -(-most // across)
    size = (5 * across, 2.6 * down * len(examples))
    figure = Figure(figsize=size, layout="constrained")
    axes = figure.subplots(down * len(examples), across, squeeze=False)
    for number, (example, panels) in enumerate(zip(examples, arranged, strict=True)):
        grid = axes[number * down : (number + 1) * down].ravel()
        for cell, panel in zip(grid, panels, strict=False):
            _draw(cell, panel, example, _win_len(recipe, example))
        for cell in grid[len(panels) :]:
            cell.set_axis_off()
    return figure, list(left_out)


def _win_len(recipe: Recipe | None, example: Mapping[str, Any]) -> int:
    """The frames of an example's window; of a whole clip, those of its signal."""
    if recipe is None or "fs" not in example:
        return 0
    if not recipe.windows.are_clips:
        return WindowPlan.of(recipe.windows, int(example["fs"]), 0).length
    signal = np.asarray(example.get(DEFAULT_FEATURE, ()))
    return signal.shape[-1] if signal.ndim else 0


def _arrange(
    example: Mapping[str, Any],
    features: Mapping[str, FeatureSpec],
    recipe: Recipe | None,
) -> tuple[list[Panel], list[str]]:
    """Returns the panels of an example, and the features that are not drawn."""
    keeps = recipe is not None and recipe.audio.channels == "keep"
    noun = "channel" if keeps else "row"
    arrays = {name: np.asarray(value) for name, value in example.items()}
    specs = {
        name: replace(features[name], shape=array.shape)
        if name in features
        else FeatureSpec(name, str(array.dtype), array.shape, FLOAT_LIST)
        for name, array in arrays.items()
    }
    channels = _channels(list(specs.values()), _win_len(recipe, example))
    panels, left_out = [], []
    for name, spec in specs.items():
        array, inner = arrays[name], len(spec.sizes)
        if is_image(array) and not spec.axes:
            panels.append(Panel(spec, array.shape, (0,), 1, noun, is_picture=True))
            continue
        if spec.axes:
            inner = len(spec.axes)
        elif keeps and channels and spec.sizes[:1] == (channels,):
            inner -= 1
        outer = len(spec.sizes) - inner
        problem = _not_drawn(array, spec, inner, noun)
        if problem is not None:
            if name not in CLIP_FEATURES:
                left_out.append(f"{name} ({problem})")
            continue
        count, shape = math.prod(spec.sizes[:outer]), spec.sizes[outer:]
        drawn = tuple(range(min(count, LAYERS_SHOWN)))
        if count > len(drawn):
            left_out.append(f"{name} (those after the first {len(drawn)})")
        together = [drawn] if inner == 1 else [(layer,) for layer in drawn]
        panels += [Panel(spec, shape, layers, count, noun) for layers in together]
    return panels, left_out


def _not_drawn(
    array: npt.NDArray[Any], spec: FeatureSpec, inner: int, noun: str
) -> str | None:
    """Returns why a feature is not drawn; None if it is."""
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        return f"a list of {spec.dtype}" if array.ndim else spec.dtype
    if inner == 0:
        return f"a value for each {noun}" if array.ndim else "a single value"
    if array.size == 0:
        return "no values"
    return None if inner <= 2 else f"{inner} dimensions"


def is_image(array: npt.NDArray[Any]) -> bool:
    """Whether an array is a picture: uint8, grey or with 1, 3 or 4 channels."""
    if array.dtype != np.uint8 or not array.size:
        return False
    return array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))


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
    if values.dtype.name == "bfloat16":
        values = values.astype(np.float32)
    if values.dtype.kind == "c":
        values = np.abs(values)
    layers = values.reshape(panel.count, *panel.shape)[list(panel.layers)]
    what = _title_of(example)
    if len(what) > TITLE_LENGTH:
        what = f"{what[: TITLE_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"
    axes.set_title(f"{panel.title()}: {what}" if what else panel.title())
    if len(panel.shape) == 1:
        if not spec.axes and panel.shape == (win_len,) and "win_start_idx" in example:
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
