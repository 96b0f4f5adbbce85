"""An example as HTML, for notebooks: a player, a drawing, and a table of other values.

Everything is inline, without scripts or style sheets, so that a saved notebook shows
it. Which arrays are sounds, and at which rate, is said here for all that play them.
"""

from __future__ import annotations

import base64
import io
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
from beam_pipeline.text import html_table

# For one player: two seconds at 32 kHz.
MOST_WAV_BYTES = 128_000
MOST_PLAYERS, MOST_DRAWN = 2, 6

SHORT_SIGNAL = 64  # shorter arrays are values
_MOST_HZ = 10_000_000
LONG_TEXT = 300
_DOTS_PER_INCH = 64

Array = npt.NDArray[Any]


def view_example(
    example: Mapping[str, Any],
    features: Mapping[str, FeatureSpec],
    recipe: Recipe | None = None,
) -> str:
    """Returns an example as HTML.

    Signals get a player if their sample rate is known, see :func:`signals_of`; a long
    one plays its beginning. Matplotlib draws arrays, if it is installed.

    Parameters
    ----------
    example : mapping
        Name to value.
    features : mapping
        The specs, which may be more or fewer than the values.
    recipe : Recipe, optional
        Of the data set, if it was recorded from audio files.
    """
    heard = list(signals_of(example, features, recipe))
    names = dict.fromkeys([name for name, _, _ in heard] + [*example])
    first = [name for name in names if _can_be_drawn(example[name])][:MOST_DRAWN]
    picture = _picture(example, first, features, recipe)
    drawn = first if picture.startswith("<img") else []
    rows = [
        (_short(name), _short(v if isinstance(v, str) else describe_value(v)))
        for name, v in example.items()
        if name not in drawn
    ]
    parts = [f"<strong>{escape(_short(title_of(example)))}</strong>"]
    for name, signal, rate in heard[:MOST_PLAYERS]:
        parts += _player(name, signal, rate)
    parts.append(picture)
    if rows:
        parts.append(html_table(("feature", "value"), rows))
    return f"<div>{''.join(parts)}</div>"


def signals_of(
    example: Mapping[str, Any],
    features: Mapping[str, FeatureSpec],
    recipe: Recipe | None,
) -> Iterator[tuple[str, Array, int]]:
    """Yields the features that are samples, and their rates; ``signal`` comes first.

    They are real arrays without axes, of shape ``(frames,)`` or ``(channels, frames)``.
    The rate is ``fs`` of the example, or else that of the recipe, as the feature's
    transform changes it. Without a recipe it is ``fs`` or ``sample_rate`` of the
    example.
    """
    for name in sorted(example, key=lambda name: (name != "signal", name)):
        value = example[name]
        has_axes = name in features and features[name].axes
        if not isinstance(value, np.ndarray) or value.ndim not in (1, 2) or has_axes:
            continue
        channels = 1 if value.ndim == 1 else len(value)
        is_real = value.dtype.kind in "iuf" or value.dtype.name == "bfloat16"
        if is_real and channels <= 8 and value.shape[-1] >= SHORT_SIGNAL:
            rate = _rate_of(name, example, recipe)
            if rate is not None:
                yield name, value, rate


def _can_be_drawn(value: Any) -> bool:
    if not isinstance(value, np.ndarray) or value.ndim > 3:
        return False
    is_number = value.dtype.kind in "biufc" or value.dtype.name == "bfloat16"
    return is_number and value.size >= SHORT_SIGNAL


def _picture(
    example: Mapping[str, Any],
    names: list[str],
    features: Mapping[str, FeatureSpec],
    recipe: Recipe | None,
) -> str:
    """Returns the drawing of some features as an element of HTML."""
    from beam_pipeline.read.drawing import draw_examples

    others = ("class", "filepath", "fs", "win_start_idx")
    shown = {n: example[n] for n in [*names, *others] if n in example}
    try:
        figure, _ = draw_examples([shown], features, recipe)
    except ImportError:
        return _small("To draw arrays, install matplotlib.")
    if figure is None:
        return ""
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DOTS_PER_INCH)
    content = base64.b64encode(file.getvalue()).decode()
    return f'<img alt="" style="max-width:100%" src="data:image/png;base64,{content}"/>'


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


def _rate_of(
    name: str, example: Mapping[str, Any], recipe: Recipe | None
) -> int | None:
    """Returns the sample rate of a feature in hertz; None if it is not known."""
    rate = None if recipe is None else recipe.sample_rate
    for key in ("fs", "sample_rate"):
        value = example.get(key)
        if isinstance(value, int | float | np.number) and 1 <= value <= _MOST_HZ:
            rate = int(value)
            break
    if recipe is None or rate is None:
        return rate
    from beam_pipeline.transforms.base import rate_after, steps_of
    from beam_pipeline.transforms.steps import names_own_code, parse_transform

    expression = recipe.features.get(name, "identity()")
    if names_own_code(expression):  # it is not run for a drawing
        if recipe.windows_are_clips:
            return None
        same = WindowPlan.of(recipe, rate, 0).length == example[name].shape[-1]
        return rate if same else None
    steps = steps_of(parse_transform(expression))
    return reduce(lambda hz, step: rate_after(step, hz), steps, rate)


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


def _player(name: str, signal: Array, rate: int) -> Iterator[str]:
    """Yields the elements of HTML that play the beginning of a signal."""
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


def _short(text: str) -> str:
    """Returns a text, or its beginning if it is long."""
    if len(text) <= LONG_TEXT:
        return text
    return f"{text[: LONG_TEXT - 1]}\N{HORIZONTAL ELLIPSIS}"


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
