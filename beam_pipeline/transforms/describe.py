"""The list of steps: their parameters, results, and cost on this machine."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, dataclass, fields
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
    parse_augment,
    parse_placement,
    parse_selection,
    parse_stream,
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
        for name, cls in sorted(kind.table.items()):
            tried = EXAMPLES.get(name, f"{name}()")
            text = _sentence(cls)
            yield (
                kind,
                _entry(kind, _call_of(name, cls), tried, text, sample_rate_hz, frames),
            )


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
        name = text.strip()
        kind = _kind_of(text)
        cls = kind.table.get(name)
        if cls is None:
            _make(kind, text, sample_rate_hz)  # raises if the expression is wrong
            yield kind, _entry(kind, text, text, "", sample_rate_hz, frames)
        else:
            call, tried = _call_of(name, cls), EXAMPLES.get(name, f"{name}()")
            documentation = inspect.cleandoc(cls.__doc__ or "")
            yield kind, _entry(kind, call, tried, documentation, sample_rate_hz, frames)


def _kind_of(text: str) -> Kind:
    """The first kind whose table has all steps of an expression; else transforms."""
    names = [name for name, _ in split_steps(text, TRANSFORM)]
    return next(
        (kind for kind in KINDS if all(name in kind.table for name in names)), TRANSFORM
    )


def _entry(
    kind: Kind, call: str, tried: str, text: str, sample_rate_hz: int, frames: int
) -> Entry:
    rng = np.random.default_rng(0)
    noise = (0.1 * rng.standard_normal((WINDOWS, frames))).astype(np.float32)
    run = _make(kind, tried, sample_rate_hz)
    try:
        first = run(noise[:1])
    except RecipeError as error:
        return Entry(call, tried, None, None, f"{text} (here: {error})".lstrip())
    shape = "x".join(map(str, first.shape[1:])) or "scalar"
    cost_us = 1e6 * _seconds(run, noise) / WINDOWS
    return Entry(call, tried, f"{first.dtype} {shape}", cost_us, text)


def _make(
    kind: Kind, expression: str, sample_rate_hz: int
) -> Callable[[FloatArray], npt.NDArray[Any]]:
    """The function of windows that an expression of a kind describes."""
    if kind is STREAM:
        on_stream = parse_stream(expression)
        return lambda windows: np.stack(
            [streamed(on_stream, window, sample_rate_hz) for window in windows]
        )
    if kind is SELECTION:
        selections = parse_selection(expression)
        return lambda windows: np.logical_and.reduce(
            [step.keep(windows, sample_rate_hz) for step in selections]
        )
    if kind is AUGMENTATION:
        augmentations = [
            step.with_sounds([_SOUND]) if hasattr(step, "with_sounds") else step
            for step in parse_augment(expression)
        ]

        def augment(windows: FloatArray) -> FloatArray:
            keys = np.arange(len(windows), dtype=np.uint64)
            for step in augmentations:
                windows = step.augment(windows, keys, sample_rate_hz)
            return windows

        return augment
    if kind is PLACEMENT:
        placement = parse_placement(expression)
        return lambda windows: np.array(
            [len(placement.passages([w], sample_rate_hz)) for w in windows]
        )
    transform = parse_transform(expression)
    return lambda windows: apply_to_copies(transform, windows, sample_rate_hz)


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


@dataclass(frozen=True)
class _Clip:
    """A window that is read like a clip."""

    samples: FloatArray

    def read(self, start: int, stop: int) -> FloatArray:
        return self.samples[start:stop]

    def __enter__(self) -> _Clip:
        return self

    def __exit__(self, *_: object) -> None:
        pass


def streamed(
    steps: Sequence[Any], window: FloatArray, sample_rate_hz: int
) -> FloatArray:
    """Applies the steps to a window as if it were a whole clip."""
    frames = window.size
    steps = in_clip(steps, "noise", 0, 0)
    factors = measure_factors(
        steps, lambda: _Clip(window), frames, sample_rate_hz, "noise"
    )
    reader = SteppedReader(
        _Clip(window), with_factors(steps, factors), frames, sample_rate_hz
    )
    return reader.read(0, frames)


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
