"""Draws examples into a picture."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.structure import component_names
from beam_pipeline.examples.windows import WindowPlan
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.sections import CLIP_FEATURES, DEFAULT_FEATURE

Array = npt.NDArray[Any]
# Descriptions of the axes of an array, as far as they are known.
Axes = Sequence[Mapping[str, Any]]

PLOTS_ACROSS = 3
# Longest class or file name above a panel.
TITLE_LENGTH = 24
LAYERS_SHOWN = 8


# A title, and what draws a feature into axes of matplotlib.
Panel = tuple[str, Callable[[Any], None]]


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
        for cell, (title, draw) in zip(grid, panels, strict=False):
            cell.set_title(title)
            draw(cell)
        for cell in grid[len(panels) :]:
            cell.set_axis_off()
    return figure, list(left_out)


def _win_len(recipe: Recipe | None, example: Mapping[str, Any]) -> int:
    """The frames of an example's window; of a whole clip, those of its signal."""
    if recipe is None or "fs" not in example:
        return 0
    if not recipe.windows_are_clips:
        return WindowPlan.of(recipe, int(example["fs"]), 0).length
    signal = np.asarray(example.get(DEFAULT_FEATURE, ()))
    return signal.shape[-1] if signal.ndim else 0


def _arrange(
    example: Mapping[str, Any],
    features: Mapping[str, FeatureSpec],
    recipe: Recipe | None,
) -> tuple[list[Panel], list[str]]:
    """Returns the panels of an example, and the features that are not drawn."""
    keeps = recipe is not None and recipe.channels == "keep"
    noun = "channel" if keeps else "row"
    win_len = _win_len(recipe, example)
    arrays = {name: np.asarray(value) for name, value in example.items()}
    axes_of = {n: features[n].axes if n in features else () for n in arrays}
    channels = _channels(arrays, axes_of, win_len) if keeps else None
    what = _title_of(example)
    panels: list[Panel] = []
    left_out: list[str] = []
    for name, array in arrays.items():
        axes = axes_of[name]
        if is_image(array) and not axes:
            panels.append((name, partial(_draw_picture, array)))
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
            panels.append((f"{name}{few}", partial(_draw_lines, shown, axes, names)))
            continue
        for label, layer in zip(names, shown, strict=True):
            title = f"{name}, {label}" if count > 1 else name
            panels.append((title, partial(_draw_image, layer, axes)))
    titled = [(f"{title}: {what}" if what else title, draw) for title, draw in panels]
    return titled, left_out


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


def _draw_picture(pixels: Array, axes: Any) -> None:
    """Draws pixels, from the top down."""
    pixels = pixels[..., 0] if pixels.shape[2:] == (1,) else pixels
    axes.imshow(pixels, cmap="gray", vmin=0, vmax=255)


def _draw_lines(lines: Array, described: Axes, names: Sequence[str], axes: Any) -> None:
    """Draws lines, which have names if they are several."""
    along = described[0] if described else {"name": "entry"}
    axes.plot(_values_of(along, lines.shape[1]), lines.T, linewidth=0.6)
    axes.set_xlabel(_label_of(along))
    if len(names) > 1:
        axes.legend(axes.get_lines(), names, loc="upper right", fontsize="small")


def _draw_image(image: Array, described: Axes, axes: Any) -> None:
    """Draws a spectrum over time, or a line for each column that has a label."""
    if described and "labels" in described[-1]:
        # Each line has an axis of its own, because its meaning differs.
        axes.set_xlabel(_label_of(described[0]))
        x = _values_of(described[0], len(image))
        for number, label in enumerate(described[-1]["labels"]):
            beside = axes if number == 0 else axes.twinx()
            beside.plot(x, image[:, number], f"C{number}", linewidth=0.6)
            beside.set_ylabel(label, color=f"C{number}")
        return
    axes.imshow(image.T, origin="lower", aspect="auto", interpolation="nearest")
    sides = zip((axes.xaxis, axes.yaxis), described, image.shape, strict=False)
    for axis, along, size in sides:
        values = _values_of(along, size)
        texts = [v if isinstance(v, str) else f"{v:.4g}" for v in values]
        ticks = np.linspace(0, size - 1, min(6, size)).round().astype(int)
        axis.set_label_text(_label_of(along))
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
