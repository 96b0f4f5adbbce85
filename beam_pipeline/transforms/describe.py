"""The list of steps: their parameters, results, and cost on this machine."""

from __future__ import annotations

import functools
import inspect
import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import MISSING, fields
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.augment import Sound, white_noise
from beam_pipeline.transforms.base import (
    FloatArray,
    Transform,
    apply_transform,
    chain_of,
    rate_after,
    steps_of,
)
from beam_pipeline.transforms.steps import (
    AUGMENTATION,
    PLACEMENT,
    SELECTION,
    STEP_FIELDS,
    STREAM,
    TRANSFORM,
    Kind,
    parse_steps,
    parse_transform,
    split_steps,
)
from beam_pipeline.transforms.stream import (
    SteppedReader,
    in_clip,
    measure_factors,
    with_factors,
)

WINDOWS = 16
LEAST_S = 0.05

KINDS = (TRANSFORM, *STEP_FIELDS.values())

# What to run for steps that have a parameter without a default, or must follow others.
EXAMPLES = {
    "as_image": "log_mel()|as_image()",
    "background": "background(folder='noises')",
    "band_pass": "band_pass(low_hz=300,high_hz=3000)",
    "cmvn": "log_mel()|cmvn()",
    "delta": "log_mel()|delta()",
    "gain": "gain(gain_db=-6)",
    "high_pass": "high_pass(cutoff_hz=50)",
    "low_pass": "low_pass(cutoff_hz=1000)",
    "spec_augment": "log_mel()|spec_augment()",
    "resample": "resample(rate_hz=8000)",
    "reverb": "reverb(folder='rooms')",
}

# In the place of the sounds of a folder: half a second of noise that fades.
_SOUND = Sound(
    "noise", white_noise(0, 0, 8000) * np.exp(np.arange(8000) / -1e3, dtype="f4")
)


class Entry(NamedTuple):
    """One entry of the list.

    ``tried`` is the expression that was run. ``result`` is the dtype and shape of one
    window's result, and ``cost_us`` the microseconds for each window on one core. Both
    are None if the expression does not suit the window; ``text`` then says why.
    """

    call: str
    tried: str
    result: str | None
    cost_us: float | None
    text: str


def list_all(sample_rate_hz: int, frames: int) -> Iterator[tuple[Kind, Entry]]:
    """Lists every step of every kind with its defaults, run and timed on noise."""
    for kind in KINDS:
        for name in sorted(kind.table):
            text = _sentence(kind.table[name])
            yield kind, _entry(kind, name, text, sample_rate_hz, frames)


def list_some(
    texts: Sequence[str], sample_rate_hz: int, frames: int
) -> Iterator[tuple[Kind, Entry]]:
    """Lists named steps, with their documentation, or expressions; times all on noise.

    Raises
    ------
    RecipeError
        If no step has a name, or an expression cannot be read.
    """
    for text in texts:
        kind, name = _kind_of(text), text.strip()
        cls = kind.table.get(name)
        documentation = inspect.cleandoc(cls.__doc__ or "") if cls else ""
        yield (
            kind,
            _entry(kind, name if cls else text, documentation, sample_rate_hz, frames),
        )


def _kind_of(text: str) -> Kind:
    """The first kind whose table has all steps of an expression; else transforms."""
    names = [step.name for step in split_steps(text, TRANSFORM)]
    return next(
        (kind for kind in KINDS if all(name in kind.table for name in names)), TRANSFORM
    )


def _entry(
    kind: Kind, given: str, text: str, sample_rate_hz: int, frames: int
) -> Entry:
    """The entry of a step by its name, or of an expression."""
    call = tried = given
    if given in kind.table:
        call = _call_of(given, kind.table[given])
        tried = EXAMPLES.get(given, f"{given}()")
    rng = np.random.default_rng(0)
    noise = (0.1 * rng.standard_normal((WINDOWS, frames))).astype(np.float32)
    if kind is TRANSFORM:
        steps = steps_of(parse_transform(tried))
    else:
        steps = parse_steps(tried, kind)
    run = functools.partial(_results, kind, steps, sample_rate_hz=sample_rate_hz)
    try:
        first = run(noise[:1])
    except RecipeError as error:
        return Entry(call, tried, None, None, f"{text} (here: {error})".lstrip())
    shape = "x".join(map(str, first.shape[1:])) or "scalar"
    cost_us = 1e6 * _seconds(run, noise) / WINDOWS
    return Entry(call, tried, f"{first.dtype} {shape}", cost_us, text)


def _results(
    kind: Kind, steps: Sequence[Any], windows: FloatArray, sample_rate_hz: int
) -> npt.NDArray[Any]:
    """What steps of a kind give for windows."""
    if kind is STREAM:
        return np.stack([streamed(steps, each, sample_rate_hz) for each in windows])
    if kind is SELECTION:
        kept = [step.keep(windows, sample_rate_hz) for step in steps]
        return np.asarray(np.logical_and.reduce(kept))
    if kind is PLACEMENT:
        (placement,) = steps
        places = (placement.passages([each], sample_rate_hz) for each in windows)
        return np.array([len(each) for each in places])
    if kind is AUGMENTATION:
        keys = np.arange(len(windows), dtype=np.uint64)
        for step in steps:
            loads = hasattr(step, "with_sounds")
            loaded = step.with_sounds([_SOUND]) if loads else step
            windows = loaded.augment(windows, keys, sample_rate_hz)
        return windows
    return apply_to_copies(chain_of(steps), windows, sample_rate_hz)


def apply_to_copies(
    transform: Transform, windows: FloatArray, sample_rate_hz: int
) -> npt.NDArray[Any]:
    """Applies a transform as to augmented copies, some with each of the first keys."""
    keys = np.arange(len(windows), dtype=np.uint64)
    features: npt.NDArray[Any] = windows
    for step in steps_of(transform):
        features = apply_transform(step, features, sample_rate_hz)
        sample_rate_hz = rate_after(step, sample_rate_hz)
        if hasattr(step, "on_copies"):
            features = step.on_copies(features, keys, sample_rate_hz)
    return features


def streamed(
    steps: Sequence[Any], window: FloatArray, sample_rate_hz: int
) -> FloatArray:
    """Applies the steps to a window as if it were a whole clip."""
    frames = window.size
    steps = in_clip(steps, "noise", 0, 0)
    clip = SimpleNamespace(read=lambda start, stop: window[start:stop])
    factors = measure_factors(
        steps, lambda: nullcontext(clip), frames, sample_rate_hz, "noise"
    )
    known = with_factors(steps, factors)
    return SteppedReader(clip, known, frames, sample_rate_hz).read(0, frames)


def _seconds(run: Callable[[FloatArray], Any], windows: FloatArray) -> float:
    """The shortest time of several runs, on one core as in a job."""
    least, began = math.inf, time.perf_counter()
    with threadpool_limits(1):
        while time.perf_counter() - began < LEAST_S:
            at = time.perf_counter()
            run(windows)
            least = min(least, time.perf_counter() - at)
    return least


def _call_of(name: str, cls: type[Any]) -> str:
    """``name(parameter=default,...)``; ``parameter=?`` if there is no default."""
    parameters = [
        f"{f.name}={'?' if f.default is MISSING else repr(f.default)}"
        for f in fields(cls)
        if f.init
    ]
    return f"{name}({','.join(parameters)})"


def _sentence(cls: type[Any]) -> str:
    """The first sentence of a step's documentation."""
    return (cls.__doc__ or "").strip().partition("\n\n")[0].replace("\n    ", " ")


def describe_steps(entries: Sequence[tuple[Kind, Entry]]) -> str:
    """The list as text."""
    lines: list[str] = []
    before = TRANSFORM
    for kind, entry in entries:
        if kind is not before:
            lines += ["", f"--{kind.field.replace('_', '-')}:"]
            before = kind
        bare = f"{entry.call.partition('(')[0]}()"
        if entry.tried not in (entry.call, bare):
            lines += [entry.call, f"  {entry.tried}{_outcome(entry)}"]
        else:
            lines.append(f"{entry.call}{_outcome(entry)}")
        lines += [f"    {line}".rstrip() for line in entry.text.splitlines()]
    return "\n".join(lines)


def _outcome(entry: Entry) -> str:
    if entry.result is None or entry.cost_us is None:
        return ""
    return f"  -> {entry.result}, {entry.cost_us:.0f} us"
