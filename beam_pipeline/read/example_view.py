"""Examples for people: as lines of text, as a picture, and as HTML for notebooks.

::

    example --describe_example--> lines of text
            --signals_of--------> which features are samples, and their rates
            --draw_examples-----> a figure of matplotlib
            --view_example------> HTML for a notebook: players, the figure, a table

The figure is the same in a picture and in a notebook. HTML has everything inline,
without scripts or style sheets, so that a saved notebook shows it.
"""

from __future__ import annotations

import base64
import io
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from html import escape
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError, needing
from beam_pipeline.examples.windows import WindowPlan
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.text import html_table

Array = npt.NDArray[Any]
# Descriptions of the axes of an array, as far as they are known.
Axes = Sequence[Mapping[str, Any]]
# A title, and what draws a feature into axes of matplotlib.
Panel = tuple[str, Callable[[Any], None]]

# Of an example that belongs to no data set.
NO_METADATA = Metadata(None, {}, (), {})

PICTURES = ".png", ".svg", ".pdf", ".jpg"
SHORT_SIGNAL = 64  # shorter arrays are values
_MOST_CHANNELS, _MOST_HZ = 8, 10_000_000

PLOTS_ACROSS, LAYERS_SHOWN = 3, 8
TITLE_LENGTH = 60  # of the class, the file and the second above an example

# In HTML: for one player, two seconds at 32 kHz.
MOST_WAV_BYTES = 128_000
MOST_PLAYERS, MOST_DRAWN = 2, 6
LONG_TEXT = 300
_DOTS_PER_INCH = 64


def example_text(record: bytes, metadata: Metadata) -> str:
    """Returns a record as protobuf text, features sorted; it ends in a newline.

    ``print`` of a ``tf.train.Example`` gives the same text, but in any order.
    """
    import tensorflow as tf
    from google.protobuf import text_format

    has_steps = any(spec.sequence for spec in metadata.features.values())
    kind = tf.train.SequenceExample if has_steps else tf.train.Example
    return str(text_format.MessageToString(kind.FromString(record)))


def describe_example(example: Mapping[str, Any], metadata: Metadata) -> str:
    """Returns one line for each feature: its dtype, shape, first values and range."""
    names = [name for name in metadata.features if name in example]
    width = max(map(len, names), default=0)
    return "\n".join(
        f"  {name:{width}}  {_described(name, example, metadata.classes)}"
        for name in names
    )


def start_of(example: Mapping[str, Any]) -> float | None:
    """Returns where an example begins in its clip, in seconds, if it says so."""
    start, rate = example.get("win_start_idx"), example.get("fs")
    if not isinstance(start, int | np.integer) or not isinstance(
        rate, int | np.integer
    ):
        return None  # of elements, which name features as they like
    return int(start) / int(rate) if rate else None


def class_of(example: Mapping[str, Any], classes: Sequence[str]) -> str:
    """Returns the class of an example, or its classes; empty if they are not known."""
    if isinstance(example.get("class"), str):
        return str(example["class"])
    labels, target = example.get("labels"), example.get("target")
    if labels is not None and np.shape(labels) == (len(classes),):
        return ", ".join(np.array(classes, object)[np.asarray(labels, np.bool_)])
    if target is not None and np.ndim(target) == 0 and 0 <= int(target) < len(classes):
        return classes[int(target)]
    return ""


def _described(name: str, example: Mapping[str, Any], classes: Sequence[str]) -> str:
    """Returns a value, and the classes that numbers stand for."""
    text = describe_value(example[name])
    named = class_of(example, classes) if name in ("labels", "target") else ""
    return f"{text}: {named}" if named and "class" not in example else text


def describe_value(value: Any) -> str:
    """Returns a value, or the dtype, shape, first values and range of an array."""
    if isinstance(value, str):
        return repr(value)
    array = np.asarray(value)
    if array.ndim == 0:
        return str(array[()])
    flat = array.reshape(-1)
    start = np.array2string(flat[:4], precision=4, separator=", ")[1:-1]
    dtype = "string" if array.dtype.kind == "O" else array.dtype
    text = f"{dtype} {array.shape} [{start}{', ...' if flat.size > 4 else ''}]"
    if array.dtype.kind in "iuf" and flat.size:
        text += f" from {flat.min():.4g} to {flat.max():.4g}"
    return text


# Sounds.


class Sound(NamedTuple):
    """Samples, of shape (frames,) or (channels, frames), and their rate in hertz."""

    samples: Array
    rate: int


def signals_of(example: Mapping[str, Any], metadata: Metadata) -> dict[str, Sound]:
    """Returns the features that are samples; ``signal`` comes first.

    They are real arrays without axes, of shape ``(frames,)`` or ``(channels, frames)``.
    The rate is ``fs`` of the example, or else that of the recipe, as the feature's
    transform changes it. Without a recipe it is ``fs`` or ``sample_rate`` of the
    example.
    """
    found, features, recipe = {}, metadata.features, metadata.recorded_with
    for name in sorted(example, key=lambda name: (name != "signal", name)):
        value = example[name]
        has_axes = name in features and features[name].axes
        if not isinstance(value, np.ndarray) or value.ndim not in (1, 2) or has_axes:
            continue
        channels = 1 if value.ndim == 1 else len(value)
        is_real = value.dtype.kind in "iuf" or value.dtype.name == "bfloat16"
        if is_real and channels <= _MOST_CHANNELS and value.shape[-1] >= SHORT_SIGNAL:
            rate = _rate_of(name, example, recipe)
            if rate is not None:
                found[name] = Sound(value, rate)
    return found


def _rate_of(
    name: str, example: Mapping[str, Any], recipe: Recipe | None
) -> int | None:
    """Returns the sample rate of a feature in hertz; None if it is not known."""
    rate = None if recipe is None else recipe.sample_rate
    for key in ("sample_rate", "fs"):
        value = example.get(key)
        if isinstance(value, int | float | np.number) and 1 <= value <= _MOST_HZ:
            rate = int(value)
    if recipe is None or rate is None:
        return rate
    from beam_pipeline.transforms.base import rate_after
    from beam_pipeline.transforms.steps import names_own_code, parse_transform

    expression = recipe.features.get(name, "identity()")
    if names_own_code(expression):  # it is not run to show an example
        length = WindowPlan.of(recipe, rate, 0).length
        same = not recipe.windows_are_clips and length == example[name].shape[-1]
        return rate if same else None
    return rate_after(parse_transform(expression), rate)


def as_float(samples: Any) -> npt.NDArray[np.float64]:
    """Returns samples with a full scale of 1; integers are divided by theirs."""
    made = np.asarray(samples)
    if made.dtype.kind not in "iu":
        return made.astype(np.float64)
    limits = np.iinfo(made.dtype)
    middle = 0 if limits.min else (limits.max + 1) / 2
    return (made.astype(np.float64) - middle) / (limits.max + 1 - middle)


def encode_sound(samples: Any, rate: int, form: str) -> tuple[bytes, float]:
    """Returns samples as a file of 16 bits, and by what they were divided.

    Parameters
    ----------
    samples : numpy.ndarray, shape (frames,) or (channels, frames)
        See :func:`as_float`. Those beyond full scale are divided by the loudest. NaN
        is 0.
    rate : int
        In hertz.
    form : str
        ``WAV`` or ``FLAC``.
    """
    import soundfile

    signal = np.nan_to_num(as_float(samples), posinf=1, neginf=-1)
    gain = max(1.0, float(np.abs(signal).max(initial=0.0)))
    pcm = np.round(signal / gain * 32767).astype(np.int16)
    file = io.BytesIO()
    soundfile.write(file, pcm.T, rate, format=form, subtype="PCM_16")
    return file.getvalue(), gain


# Pictures.


def plot_examples(
    examples: Sequence[Mapping[str, Any]], metadata: Metadata, path: str
) -> None:
    """Draws every array feature of some examples into one picture.

    Parameters
    ----------
    path : str
        Its suffix is the format, one of ``PICTURES``.

    Raises
    ------
    InputError
        If matplotlib is not installed, or no feature can be drawn.
    OptionError
        If it has another suffix.
    OutputError
        If it cannot be written.
    """
    files.check_file("plot", path, *PICTURES)
    names = metadata.components
    shown = [{n: example[n] for n in names if n in example} for example in examples]
    with needing("matplotlib", "`plot`"):
        figure = draw_examples(shown, metadata)
    if figure is None:
        raise InputError("These examples have no signal, spectrum or image to draw.")
    with files.replacing(path) as file:
        figure.savefig(file, format=os.path.splitext(path)[1][1:])


def draw_examples(examples: Sequence[Mapping[str, Any]], metadata: Metadata) -> Any:
    """Draws the array features of examples, one example below the other.

    Above each example are its class, its file, and the second where it begins. Signals
    are lines; spectra are images with their axes in seconds and hertz. Channels are
    lines in one panel, or images side by side, the first eight of them. Images are
    drawn as they are.

    Returns
    -------
    matplotlib.figure.Figure or None
        None if there is nothing to draw.
    """
    from matplotlib.figure import Figure

    arranged = [[*_panels(each, metadata)] for each in examples]
    most = max(map(len, arranged), default=0)
    if not most:
        return None
    # A grid of panels for each example.
    across = min(most, PLOTS_ACROSS)
    down = -(-most // across)
    size = (5 * across, (2.6 * down + 0.3) * len(examples))
    figure = Figure(figsize=size, layout="constrained")
    parts = figure.subfigures(len(examples), squeeze=False)[:, 0]
    for example, panels, part in zip(examples, arranged, parts, strict=True):
        if title := _title_of(example, metadata.classes):
            part.suptitle(_short(title, TITLE_LENGTH))
        grid = part.subplots(down, across, squeeze=False).ravel()
        for cell, (title, draw) in zip(grid, panels, strict=False):
            cell.set_title(title)
            draw(cell)
        for cell in grid[len(panels) :]:
            cell.set_axis_off()
    return figure


def _panels(example: Mapping[str, Any], metadata: Metadata) -> Iterator[Panel]:
    """Yields the panels of an example."""
    heard, classes = signals_of(example, metadata), metadata.classes
    for name, value in example.items():
        if name == "labels" and np.shape(value) == (len(classes),):
            continue  # the title names them
        array = np.asarray(value)
        spec = metadata.features.get(name)
        axes: Axes = () if spec is None else spec.axes
        if not axes and is_image(array):
            yield name, partial(_draw_picture, array)
            continue
        if name in heard:
            axes = (_time_of(example, heard[name]),)
        inner = len(axes) or array.ndim
        if not _is_number(array) or inner not in (1, 2) or not array.size:
            continue
        # A layer is a channel.
        layers = _as_real(array).reshape(-1, *array.shape[array.ndim - inner :])
        layers = layers[:LAYERS_SHOWN]
        names = [f"channel {k}" for k in range(len(layers))]
        if inner == 1:
            yield name, partial(_draw_lines, layers, axes, names)
            continue
        for label, layer in zip(names, layers, strict=True):
            title = f"{name}, {label}" if len(layers) > 1 else name
            yield title, partial(_draw_image, layer, axes)


def _time_of(example: Mapping[str, Any], sound: Sound) -> dict[str, Any]:
    """Returns the axis of samples: seconds from the beginning of the clip."""
    start_s = start_of(example) or 0.0
    return {"name": "time", "unit": "s", "start": start_s, "step": 1 / sound.rate}


def _is_number(array: Array) -> bool:
    return array.dtype.kind in "biufc" or array.dtype.name == "bfloat16"


def is_image(array: Array) -> bool:
    """Whether an array is a picture: uint8, grey or with 1, 3 or 4 channels."""
    if array.dtype != np.uint8 or not array.size:
        return False
    return array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (1, 3, 4))


def _as_real(array: Array) -> Array:
    if array.dtype.name == "bfloat16":
        return array.astype(np.float32)
    return np.abs(array) if array.dtype.kind == "c" else array


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
        _draw_lines(image.T, described[:1], described[-1]["labels"], axes)
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


# HTML.


def view_example(example: Mapping[str, Any], metadata: Metadata = NO_METADATA) -> str:
    """Returns an example as HTML.

    Signals get a player if their sample rate is known, see :func:`.signals_of`; a long
    one plays its beginning. Matplotlib draws arrays, if it is installed.

    Parameters
    ----------
    example : mapping
        Name to value.
    metadata : Metadata, optional
        Of the data set; it may describe more or fewer features than there are values.
    """
    heard, classes = signals_of(example, metadata), metadata.classes
    names = [n for n in {**heard, **example} if _can_be_drawn(example[n])][:MOST_DRAWN]
    picture = _picture(example, names, metadata)
    drawn = names if picture.startswith("<img") else []
    rows = [
        (
            _short(name),
            _short(v if isinstance(v, str) else _described(name, example, classes)),
        )
        for name, v in example.items()
        if name not in drawn
    ]
    parts = [f"<strong>{escape(_short(_title_of(example, classes)))}</strong>"]
    for name in [*heard][:MOST_PLAYERS]:
        parts += _player(name, heard[name])
    parts.append(picture)
    if rows:
        parts.append(html_table(("feature", "value"), rows))
    return f"<div>{''.join(parts)}</div>"


def _title_of(example: Mapping[str, Any], classes: Sequence[str]) -> str:
    """Returns the class of an example and where it is from; may be empty."""
    path = os.path.basename(str(example.get("filepath", "")))
    words = [class_of(example, classes), path]
    if (start_s := start_of(example)) is not None:
        words.append(f"from {start_s:.3f} s")
    return ", ".join(filter(None, words))


def _can_be_drawn(value: Any) -> bool:
    is_array = isinstance(value, np.ndarray) and value.ndim <= 3
    return is_array and _is_number(value) and value.size >= SHORT_SIGNAL


def _picture(
    example: Mapping[str, Any], names: Sequence[str], metadata: Metadata
) -> str:
    """Returns the drawing of some features as an element of HTML."""
    others = ("class", "filepath", "fs", "labels", "sample_rate", "win_start_idx")
    shown = {n: example[n] for n in [*names, *others] if n in example}
    try:
        figure = draw_examples([shown], metadata)
    except ImportError:
        return _small("To draw arrays, install matplotlib.")
    if figure is None:
        return ""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DOTS_PER_INCH)
    content = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="" style="max-width:100%" src="data:image/png;base64,{content}"/>'


def _player(name: str, sound: Sound) -> Iterator[str]:
    """Yields the elements of HTML that play the beginning of a signal."""
    signal, rate = sound
    channels, frames = (1, *signal.shape)[-2:]
    notes = [f"{name}: {signal.dtype} {signal.shape}"]
    samples = as_float(signal)
    if channels > 2:
        notes.append(f"the mean of {channels} channels")
        samples, channels = samples.mean(axis=0), 1
    kept = min(frames, MOST_WAV_BYTES // (2 * channels))
    if kept < frames:
        notes.append(f"the first {kept / rate:.3g} s of {frames / rate:.3g} s")
    wav, _ = encode_sound(samples[..., :kept], rate, "WAV")
    yield _small(", ".join(notes))
    yield (
        '<audio controls style="width:100%" '
        f'src="data:audio/wav;base64,{base64.b64encode(wav).decode()}"></audio>'
    )


def _small(words: str) -> str:
    return f"<div><small>{escape(_short(words))}</small></div>"


def _short(text: str, most: int = LONG_TEXT) -> str:
    """Returns a text, or its beginning if it is long."""
    return text if len(text) <= most else f"{text[: most - 1]}\N{HORIZONTAL ELLIPSIS}"
