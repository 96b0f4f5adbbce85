"""An example as HTML, for notebooks: a player, drawings, and a table of other values.

Everything is inline, without scripts or style sheets, so that a saved notebook shows
it. Lines and texts take the notebook's colour, in the light and in the dark.
"""

from __future__ import annotations

import base64
import io
import math
import os
from collections.abc import Iterator, Mapping
from functools import reduce
from html import escape
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.windows import WindowPlan
from beam_pipeline.recipe.recipe import Recipe

# All drawings and players take at most this; what has no room is listed in the table.
MOST_BYTES = 250_000
# Of it for one player: two seconds at 32 kHz.
MOST_WAV_BYTES = 128_000
MOST_TABLE_BYTES = 40_000
MOST_HZ = 10_000_000

WIDTH, LINE_HEIGHT = 600, 80
MOST_ROWS = 256  # of pixels
SHORT_SIGNAL = 64  # shorter arrays are values
LONG_TEXT, LONG_LIST = 300, 12

# Dark to bright, evenly in lightness: five colours that are interpolated.
_COLOURS = np.array(
    [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]]
)

_PALETTE = bytes(
    np.stack(
        [
            np.interp(np.linspace(0, 1, 256), np.linspace(0, 1, len(_COLOURS)), column)
            for column in _COLOURS.T
        ],
        axis=-1,
    ).astype(np.uint8)
)

_LINE = "border:1px solid rgba(128,128,128,.4)"
_BOX = f"width:100%;height:{{height}}px;display:block;{_LINE}"

Array = npt.NDArray[Any]


def view_example(
    example: Mapping[str, Any],
    features: Mapping[str, FeatureSpec],
    recipe: Recipe | None = None,
) -> str:
    """Returns an example as HTML.

    Signals are real arrays without axes, of shape ``(frames,)`` or ``(channels,
    frames)``. They get a player if their sample rate is known; a long one plays its
    beginning. Complex values are drawn by their magnitude, and ``uint8`` images as
    they are.

    Parameters
    ----------
    example : mapping
        Name to value.
    features : mapping
        The specs, which may be more or fewer than the values.
    recipe : Recipe, optional
        Of the data set, if it was recorded from audio files. The sample rate is then
        ``fs`` of the example, or else that of the recipe, as the feature's transform
        changes it. Without a recipe it is ``fs`` or ``sample_rate`` of the example.

    Returns
    -------
    str
        Less than 300 KB.
    """
    drawn = _draw_all(example, features, recipe)
    parts = [
        _small(f"{name}: {example[name].dtype} {example[name].shape}") + drawing
        for name, drawing in drawn.items()
    ]
    rows = [(k, describe_value(v)) for k, v in example.items() if k not in drawn]
    title = escape(_short(title_of(example)))
    inner = "".join(parts) + _table(rows)
    return f'<div style="max-width:{WIDTH}px"><strong>{title}</strong>{inner}</div>'


def describe_value(value: Any) -> str:
    """Returns a value as a short text: itself, or the dtype, shape and range."""
    if isinstance(value, np.ndarray) and value.size > LONG_LIST:
        words = f"{value.dtype} {value.shape}"
        if value.dtype.kind in "biuf":
            words += f", {_range_of(value)}"
        return words
    if isinstance(value, np.ndarray):
        if value.dtype.kind == "f":
            return _short(np.array2string(value, precision=4, separator=", "))
        return _short(str(value.tolist()))
    if isinstance(value, float | np.floating):
        return f"{float(value):.6g}"
    return _short(str(value))


def encode_wav(samples: Array, rate: int) -> bytes:
    """Returns samples as a WAV file of 16 bits.

    Parameters
    ----------
    samples : numpy.ndarray, shape (frames,) or (channels, frames)
        Floating-point samples from -1 to 1, beyond which all are divided by the
        loudest; or integers, whose dtype gives the range. NaN is 0.
    rate : int
        In hertz.
    """
    import wave

    if samples.dtype.kind == "f":
        values = np.nan_to_num(samples.astype(np.float64), posinf=1, neginf=-1)
        values = values / max(1.0, float(np.abs(values).max(initial=0)))
    else:
        limits = np.iinfo(samples.dtype)
        middle = 0 if limits.min else (limits.max + 1) / 2
        values = (samples.astype(np.float64) - middle) / (limits.max + 1 - middle)
    pcm = np.clip(np.round(values * 32767), -32767, 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1 if pcm.ndim == 1 else len(pcm))
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(pcm.T.tobytes())
    return file.getvalue()


def rate_of(name: str, example: Mapping[str, Any], recipe: Recipe | None) -> int | None:
    """Returns the sample rate of a feature in hertz; None if it is not known."""
    rate = None if recipe is None else recipe.audio.sample_rate
    for key in ("fs", "sample_rate"):
        value = example.get(key)
        if isinstance(value, int | float | np.number) and 1 <= value <= MOST_HZ:
            rate = int(value)
            break
    if recipe is None or rate is None:
        return rate
    expression = recipe.features.expressions.get(name, "identity()")
    if ":" in expression:  # the user's own code, which is not run for a drawing
        if recipe.windows.are_clips:
            return None
        same = WindowPlan.of(recipe.windows, rate, 0).length == example[name].shape[-1]
        return rate if same else None
    from beam_pipeline.transforms.base import rate_after, steps_of
    from beam_pipeline.transforms.expressions import parse_transform

    steps = steps_of(parse_transform(expression))
    return reduce(lambda hz, step: rate_after(step, hz), steps, rate)


def _draw_all(
    example: Mapping[str, Any], features: Mapping[str, FeatureSpec], recipe: Any
) -> dict[str, str]:
    """Returns the drawings that have room: signals with a player, others, spectra.

    What is left for the spectra is shared among them, and they become smaller.
    """
    ranked: dict[int, list[str]] = {0: [], 1: [], 2: []}
    rates = {}
    for name, value in example.items():
        if isinstance(value, np.ndarray) and value.size:
            rates[name] = rate_of(name, example, recipe)
            heard = is_signal(value, _axes_of(name, features))
            ranked[2 - heard - (heard and rates[name] is not None)].append(name)
    drawn: dict[str, str] = {}
    left = MOST_BYTES
    for rank, names in ranked.items():
        for number, name in enumerate(names):
            room = left if rank < 2 else left // (len(names) - number)
            for smaller in (1, 2, 4, 8):
                parts = _draw(
                    example[name], _axes_of(name, features), rates[name], smaller
                )
                drawing = "".join(parts)
                if not drawing or len(drawing) <= room:
                    break
            if drawing and len(drawing) <= room:
                drawn[name] = drawing
                left -= len(drawing)
    return drawn


def _axes_of(name: str, features: Mapping[str, FeatureSpec]) -> Any:
    return features[name].axes if name in features else ()


def _draw(value: Array, axes: Any, rate: int | None, smaller: int) -> Iterator[str]:
    """Yields the player and the drawings of a feature; nothing if it has none.

    Spectra and pictures have at most ``1 / smaller`` of their pixels in each direction.
    """
    if value.dtype.name == "bfloat16":
        value = value.astype(np.float32)
    if value.dtype.kind not in "biufc":
        return
    if is_image(value):
        yield _picture(value, MOST_ROWS // smaller)
    elif is_signal(value, axes):
        if value.dtype.kind in "iuf" and rate is not None:
            yield from _player(value, rate)
        yield _waveform(_real(value))
    elif value.ndim == 1 and value.size >= SHORT_SIGNAL:
        yield _waveform(_real(value))
    elif value.ndim in (2, 3) and min(value.shape[-2:]) > 1:
        layers = _real(value).reshape(-1, *value.shape[-2:])
        for layer in layers[:2]:
            yield _spectrum(layer, axes, smaller)


def is_image(value: Array) -> bool:
    """Whether an array is a picture: uint8, grey or with 1, 3 or 4 channels."""
    if value.dtype != np.uint8 or min(value.shape, default=0) < 1:
        return False
    return value.ndim == 2 or (value.ndim == 3 and value.shape[2] in (1, 3, 4))


def is_signal(value: Array, axes: Any) -> bool:
    """Whether an array is of samples: real, ``(frames,)`` or ``(channels, frames)``."""
    if axes or value.dtype.kind not in "iuf":
        return False
    channels = 1 if value.ndim == 1 else len(value)
    return value.ndim in (1, 2) and channels <= 8 and value.shape[-1] >= SHORT_SIGNAL


def _real(value: Array) -> npt.NDArray[np.float64]:
    """Returns finite numbers; the magnitude of complex ones."""
    real = np.abs(value) if value.dtype.kind == "c" else value
    return np.nan_to_num(real.astype(np.float64), posinf=0, neginf=0)


def _player(signal: Array, rate: int) -> Iterator[str]:
    samples = signal
    if signal.ndim == 2 and len(signal) > 2:
        samples = signal.astype(np.float64).mean(axis=0)
        if signal.dtype.kind != "f":
            samples = np.round(samples).astype(signal.dtype)
    channels = 1 if samples.ndim == 1 else len(samples)
    frames = samples.shape[-1]
    kept = min(frames, MOST_WAV_BYTES // (2 * channels))
    content = base64.b64encode(encode_wav(samples[..., :kept], rate)).decode()
    yield (
        '<audio controls style="width:100%" '
        f'src="data:audio/wav;base64,{content}"></audio>'
    )
    notes = []
    if channels == 1 and signal.ndim == 2 and len(signal) > 2:
        notes.append(f"the mean of {len(signal)} channels")
    if kept < frames:
        notes.append(f"the first {kept / rate:.3g} s of {frames / rate:.3g} s")
    if notes:
        yield f"<div><small>{', '.join(notes)}</small></div>"


def _waveform(signal: npt.NDArray[np.float64]) -> str:
    """Draws the range of the values in each column of pixels, channel by channel."""
    channels = np.atleast_2d(signal)[:4]
    columns = min(WIDTH, channels.shape[1])
    starts = np.arange(columns) * channels.shape[1] // columns
    low = np.minimum.reduceat(channels, starts, axis=1)
    high = np.maximum.reduceat(channels, starts, axis=1)
    bottom, top = float(channels.min()), float(channels.max())
    scale = (LINE_HEIGHT - 2) / ((top - bottom) or 1.0)
    lines = []
    for number, (lows, highs) in enumerate(zip(low, high, strict=True)):
        base = number * LINE_HEIGHT + 1
        points = [
            # Neighbours meet, because each column starts where the one before ended.
            f"{x * WIDTH / columns:.4g},{base + (top - y) * scale:.4g}"
            for x in range(columns)
            for y in ((lows[x], highs[x]) if x % 2 else (highs[x], lows[x]))
        ]
        lines.append(f'<polyline points="{" ".join(points)}"/>')
    height = LINE_HEIGHT * len(channels)
    return (
        f'<svg viewBox="0 0 {WIDTH} {height}" preserveAspectRatio="none" role="img" '
        f'style="{_BOX.format(height=height)}"><g fill="none" stroke="currentColor" '
        f'stroke-width="1">{"".join(lines)}</g></svg>'
    )


def _spectrum(values: npt.NDArray[np.float64], axes: Any, smaller: int) -> str:
    """Draws an array: its first axis to the right, its second upwards."""
    pixels = _reduce(values.T[::-1], (MOST_ROWS // smaller, WIDTH // smaller))
    bottom, top = float(pixels.min()), float(pixels.max())
    levels = (pixels - bottom) / ((top - bottom) or 1.0) * 255
    picture = _png(np.round(levels).astype(np.uint8), _PALETTE)
    words = ", ".join(
        f"{where} {_words_of(axis)}"
        for where, axis in zip(("right:", "up:"), axes[-2:], strict=False)
    )
    words = f"{words}; colour: {_range_of(values)}" if words else _range_of(values)
    style = f"{_BOX.format(height=2 * LINE_HEIGHT)};image-rendering:pixelated"
    return f'<img alt="" src="{picture}" style="{style}"/>' + _small(words)


def _words_of(axis: Mapping[str, Any]) -> str:
    """Returns the name of an axis, and from where to where it goes."""
    if "labels" in axis:
        return _short(", ".join(map(str, axis["labels"])))
    values = axis.get("values")
    first = axis.get("start", 0) if values is None else values[0]
    step, size = axis.get("step", 1), axis.get("size", 1)
    if size is None:  # it depends on the length of the clip
        return str(axis["name"])
    last = first + step * (size - 1) if values is None else values[-1]
    if isinstance(first, str) or isinstance(last, str):
        return f"{axis['name']} {first} to {last}"
    unit = f" {axis['unit']}" if axis.get("unit") else ""
    return f"{axis['name']} {first:.4g} to {last:.4g}{unit}"


def _picture(image: Array, most: int) -> str:
    pixels = image[..., 0] if image.shape[2:] == (1,) else image
    step = max(1, math.ceil(max(pixels.shape[:2]) / most))
    height = len(pixels[::step])
    style = f"max-width:100%;height:{max(height, 64)}px;image-rendering:pixelated"
    return f'<img alt="" src="{_png(pixels[::step, ::step])}" style="{style}"/>'


def _reduce(values: Array, most: tuple[int, int]) -> Array:
    """Returns the largest value of each block, so that there are at most so many."""
    for axis, limit in enumerate(most):
        size = values.shape[axis]
        if size > limit:
            starts = np.arange(limit) * size // limit
            values = np.maximum.reduceat(values, starts, axis=axis)
    return values


def _png(pixels: Array, palette: bytes | None = None) -> str:
    """Returns pixels, or places in a palette, as a PNG within a URL."""
    from PIL import Image

    file = io.BytesIO()
    image = Image.fromarray(np.ascontiguousarray(pixels))
    if palette is not None:
        image.putpalette(palette)
    image.save(file, "PNG", optimize=True)
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode()}"


def _small(words: str) -> str:
    return f"<div><small>{escape(_short(words))}</small></div>"


def _range_of(values: Array) -> str:
    real = _real(values)
    return f"{real.min():.4g} to {real.max():.4g}"


def _short(text: str) -> str:
    """Returns a text, or its beginning if it is long."""
    if len(text) <= LONG_TEXT:
        return text
    return f"{text[: LONG_TEXT - 1]}\N{HORIZONTAL ELLIPSIS}"


def _table(rows: list[tuple[str, str]]) -> str:
    if not rows:
        return ""
    cell, size = 'style="text-align:left"', 0
    lines: list[str] = []
    for name, text in rows:
        name, text = escape(_short(name)), escape(text)
        line = f"<tr><th {cell}>{name}</th><td {cell}>{text}</td></tr>"
        size += len(line.encode())
        if size > MOST_TABLE_BYTES:
            lines.append(f"<tr><td>and {len(rows) - len(lines)} more</td></tr>")
            break
        lines.append(line)
    return f"<table>{''.join(lines)}</table>"


def title_of(example: Mapping[str, Any]) -> str:
    """Returns the class of an example and where it is from; may be empty."""
    words = []
    for name in ("class", "filepath"):
        value = example.get(name)
        if isinstance(value, str) and value:
            words.append(os.path.basename(value) if name == "filepath" else value)
    rate, start = example.get("fs"), example.get("win_start_idx")
    if rate is not None and start is not None:
        words.append(f"from {float(start) / float(rate):.3f} s")
    return ", ".join(words)
