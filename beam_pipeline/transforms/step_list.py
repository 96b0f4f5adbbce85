"""The list of steps: their parameters and texts, and what transforms give and cost."""

from __future__ import annotations

import functools
import inspect
import timeit
from collections.abc import Callable, Iterator, Sequence
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import FloatArray
from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import apply_transform
from beam_pipeline.transforms.steps import (
    STEP_FIELDS,
    TRANSFORM,
    Kind,
    parse_steps,
    parse_transform,
    split_steps,
)

WINDOWS = 16
REPEATS = 5

KINDS = (TRANSFORM, *STEP_FIELDS.values())

# What to run for transforms that have a parameter without a default, or must follow
# others.
EXAMPLES = {
    "as_image": "log_mel()|as_image()",
    "band_pass": "band_pass(low_hz=300,high_hz=3000)",
    "cmvn": "log_mel()|cmvn()",
    "delta": "log_mel()|delta()",
    "gain": "gain(gain_db=-6)",
    "high_pass": "high_pass(cutoff_hz=50)",
    "low_pass": "low_pass(cutoff_hz=1000)",
    "resample": "resample(rate_hz=8000)",
    "spec_augment": "log_mel()|spec_augment()",
}


class Entry(NamedTuple):
    """One entry of the list.

    ``tried`` is the expression that was run. ``result`` is the dtype and shape of one
    window's result, and ``cost_us`` the microseconds for each window on one core. Both
    are None for steps that are no transforms, and if the expression does not suit the
    window; ``text`` then says why.
    """

    call: str
    tried: str
    result: str | None
    cost_us: float | None
    text: str


def list_steps(
    texts: Sequence[str], sample_rate_hz: int, frames: int
) -> Iterator[tuple[Kind, Entry]]:
    """Lists named steps, with their documentation, or expressions.

    Transforms are run and timed on noise. Without texts, all steps are listed, with
    the first sentence of their documentation.

    Raises
    ------
    RecipeError
        If no step has a name, or an expression cannot be read.
    """
    for kind in KINDS if not texts else ():
        for name in sorted(kind.table):
            summary = (kind.table[name].__doc__ or "").strip().partition("\n\n")[0]
            text = summary.replace("\n    ", " ")
            yield kind, _entry(kind, name, text, sample_rate_hz, frames)
    for given in map(str.strip, texts):
        kind = _kind_of(given)
        cls = kind.table.get(given)
        text = inspect.cleandoc(cls.__doc__ or "") if cls else ""
        yield kind, _entry(kind, given, text, sample_rate_hz, frames)


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
    if kind is not TRANSFORM:
        if given not in kind.table:
            parse_steps(given, kind)
        return Entry(call, call, None, None, text)
    rng = np.random.default_rng(0)
    noise = (0.1 * rng.standard_normal((WINDOWS, frames))).astype(np.float32)
    transform = parse_transform(tried)
    run = functools.partial(apply_transform, transform, sample_rate_hz=sample_rate_hz)
    try:
        first = run(noise[:1])
    except RecipeError as error:
        return Entry(call, tried, None, None, f"{text} (here: {error})".lstrip())
    shape = "x".join(map(str, first.shape[1:])) or "scalar"
    cost_us = 1e6 * _seconds(run, noise) / WINDOWS
    return Entry(call, tried, f"{first.dtype} {shape}", cost_us, text)


def _seconds(run: Callable[[FloatArray], Any], windows: FloatArray) -> float:
    """The shortest time of several runs, on one core as in a job."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(1):
        return min(timeit.repeat(lambda: run(windows), number=1, repeat=REPEATS))


def _call_of(name: str, cls: type[Any]) -> str:
    """``name(parameter=default,...)``; ``parameter=?`` if there is no default."""
    parameters = [
        f"{f.name}={'?' if f.default is MISSING else repr(f.default)}"
        for f in fields(cls)
        if f.init
    ]
    return f"{name}({','.join(parameters)})"


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
