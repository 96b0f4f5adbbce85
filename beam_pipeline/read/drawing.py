"""Draws examples into a picture."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

Array = npt.NDArray[Any]

PLOTS_ACROSS = 3
# Longest class or file name above a panel.
TITLE_LENGTH = 24
LAYERS_SHOWN = 8


@dataclass(frozen=True)
class Panel:
    """One drawing of a feature.

    Attributes
    ----------
    title : str
    layers : numpy.ndarray
        Shape (layers, entries): a line each; (1, ...): an image. A layer is one channel
        of the feature.
    axes : sequence of mapping
        Descriptions of the axes of a layer, as far as they are known.
    names : sequence of str
        What the lines are called, if there are several.
    is_picture : bool
        Whether the values are pixels, from the top down.
    """

    title: str
    layers: Array
    axes: Sequence[Mapping[str, Any]]
    names: Sequence[str] = ()
    is_picture: bool = False


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
    folder = os.path.dirname(path)
    problem = ""
    if os.path.splitext(path)[1][1:].lower() not in formats:
        listed = ", .".join(formats)
        problem = f"the name must end in the suffix of an image format: .{listed}"
    elif folder and not os.path.isdir(folder):
        problem = f"the folder {folder} does not exist. Create it"
    elif os.path.isdir(path):
        problem = "this is a folder. Name a file"
    if problem:
        raise InputError(f"--plot {text}: {problem}.")
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
    for number, panels in enumerate(arranged):
        grid = axes[number * down : (number + 1) * down].ravel()
        for cell, panel in zip(grid, panels, strict=False):
            _draw(cell, panel)
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
    win_len = _win_len(recipe, example)
    arrays = {name: np.asarray(value) for name, value in example.items()}
    axes_of = {n: features[n].axes if n in features else () for n in arrays}
    channels = _channels(arrays, axes_of, win_len) if keeps else None
    what = _title_of(example)
    panels, left_out = [], []
    for name, array in arrays.items():
        axes = axes_of[name]
        if is_image(array) and not axes:
            title = f"{name}: {what}" if what else name
            panels.append(Panel(title, array[None], (), is_picture=True))
            continue
        inner = len(axes) or array.ndim - (array.shape[:1] == (channels,))
        dtype = features[name].dtype if name in features else str(array.dtype)
        problem = _not_drawn(array, dtype, inner, noun)
        if problem is not None:
            if name not in CLIP_FEATURES:
                left_out.append(f"{name} ({problem})")
            continue
        shape = array.shape[array.ndim - inner :]
        if not axes and shape == (win_len,) and "win_start_idx" in example:
            rate = float(example["fs"])
            start = float(example["win_start_idx"]) / rate
            axes = ({"name": "time", "unit": "s", "start": start, "step": 1 / rate},)
        layers = _as_real(array).reshape(-1, *shape)
        count, shown = len(layers), layers[:LAYERS_SHOWN]
        if count > len(shown):
            left_out.append(f"{name} (those after the first {len(shown)})")
        names = [f"{noun} {k}" for k in range(len(shown))]
        if inner == 1:
            few = f", {len(shown)} of {count} {noun}s" if count > len(shown) else ""
            drawn = [(f"{name}{few}", shown, names)]
        elif count == 1:
            drawn = [(name, shown, [])]
        else:
            drawn = [
                (f"{name}, {names[k]}", shown[k : k + 1], []) for k in range(len(shown))
            ]
        panels += [
            Panel(f"{title}: {what}" if what else title, some, axes, of_lines)
            for title, some, of_lines in drawn
        ]
    return panels, left_out


def _not_drawn(array: Array, dtype: str, inner: int, noun: str) -> str | None:
    """Returns why a feature is not drawn; None if it is."""
    if array.dtype.kind not in "biufc" and array.dtype.name != "bfloat16":
        return f"a list of {dtype}" if array.ndim else dtype
    if inner == 0:
        return f"a value for each {noun}" if array.ndim else "a single value"
    if array.size == 0:
        return "no values"
    return None if inner <= 2 else f"{inner} dimensions"


def is_image(array: Array) -> bool:
    """Whether an array is a picture: uint8, grey or with 1, 3 or 4 channels."""
    if array.dtype != np.uint8 or not array.size:
        return False
    return array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))


def _channels(
    arrays: Mapping[str, Array], axes_of: Mapping[str, Any], win_len: int
) -> int | None:
    """The number of channels of windows, if the first axis of a feature shows it."""
    for name, array in arrays.items():
        if axes_of[name] and array.ndim == len(axes_of[name]) + 1:
            return int(array.shape[0])
    # A resampled signal has neither axes nor the window's length.
    plain = [a for name, a in arrays.items() if a.ndim == 2 and not axes_of[name]]
    plain.sort(key=lambda array: array.shape[1] != win_len)
    return len(plain[0]) if plain else None


def _as_real(array: Array) -> Array:
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    return np.abs(array) if array.dtype.kind == "c" else array


def _title_of(example: Mapping[str, Any]) -> str:
    """Returns the class of an example, or else the name of its file; may be empty."""
    found = ""
    for name in ("filepath", "class"):
        value = example.get(name)
        if isinstance(value, str) and value:
            stem = os.path.splitext(os.path.basename(value))[0]
            found = value if name == "class" else stem
    if len(found) > TITLE_LENGTH:
        return f"{found[: TITLE_LENGTH - 1]}\N{HORIZONTAL ELLIPSIS}"
    return found


def _draw(axes: Any, panel: Panel) -> None:
    axes.set_title(panel.title)
    if panel.layers.ndim == 2:
        described = panel.axes[0] if panel.axes else {"name": "entry"}
        x = _values_of(described, panel.layers.shape[1])
        axes.plot(x, panel.layers.T, linewidth=0.6)
        axes.set_xlabel(_label_of(described))
        if len(panel.names) > 1:
            lines = axes.get_lines()
            axes.legend(lines, panel.names, loc="upper right", fontsize="small")
        return
    (picture,) = panel.layers
    if panel.is_picture:
        pixels = picture[..., 0] if picture.shape[2:] == (1,) else picture
        axes.imshow(pixels, cmap="gray", vmin=0, vmax=255)
    elif panel.axes and "labels" in panel.axes[-1]:
        # A line for each column, with its own axis because its meaning differs.
        axes.set_xlabel(_label_of(panel.axes[0]))
        x = _values_of(panel.axes[0], len(picture))
        for number, label in enumerate(panel.axes[-1]["labels"]):
            beside = axes if number == 0 else axes.twinx()
            beside.plot(x, picture[:, number], f"C{number}", linewidth=0.6)
            beside.set_ylabel(label, color=f"C{number}")
    else:
        axes.imshow(picture.T, origin="lower", aspect="auto", interpolation="nearest")
        sides = (axes.xaxis, axes.yaxis)
        for axis, described, size in zip(
            sides, panel.axes, picture.shape, strict=False
        ):
            values = _values_of(described, size)
            texts = [v if isinstance(v, str) else f"{v:.4g}" for v in values]
            ticks = np.linspace(0, size - 1, min(6, size)).round().astype(int)
            axis.set_label_text(_label_of(described))
            axis.set_ticks(ticks, [texts[tick] for tick in ticks])


def _label_of(described: Mapping[str, Any]) -> str:
    unit = described.get("unit")
    return str(described["name"]) + (f" ({unit})" if unit else "")


def _values_of(described: Mapping[str, Any], size: int) -> Sequence[Any] | Array:
    """Returns the values of an axis, by its description."""
    values: Sequence[Any] | None = described.get("values")
    if values is not None:
        return values
    first, step = described.get("start", 0), described.get("step", 1)
    return np.asarray(first + step * np.arange(size))
