"""The list of transforms: parameters, what they give, and what they cost here."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.errors import RecipeError
from beam_pipeline.expressions import STEP_FIELDS, TRANSFORM
from beam_pipeline.transforms.base import apply_transform

WINDOWS = 16
LEAST_S = 0.05


class Entry(NamedTuple):
    """One line of the list.

    ``result`` is the type and shape of a window's feature; ``cost_us`` microseconds for
    each window on one core. Both are None where the defaults do not suit the window,
    and ``text`` says why.
    """

    call: str
    result: str | None
    cost_us: float | None
    text: str


def list_transforms(
    sample_rate_hz: int, frames: int, names: Sequence[str] = ()
) -> Iterator[Entry]:
    """Every transform with its defaults, tried and timed on noise.

    Raises
    ------
    RecipeError
        If there is none of a name.
    """
    rng = np.random.default_rng(0)
    noise = (0.1 * rng.standard_normal((WINDOWS, frames))).astype(np.float32)
    for name in names or sorted(TRANSFORM.table):
        if name not in TRANSFORM.table:
            known = ", ".join(sorted(TRANSFORM.table))
            raise RecipeError("transforms", f"there are only {known}", name)
        cls = TRANSFORM.table[name]
        call, text = _call_of(name, cls), _summary(cls)
        try:
            made = cls()
            first = apply_transform(made, noise[:1], sample_rate_hz)
        except TypeError:  # a parameter without a default
            yield Entry(call, None, None, text)
            continue
        except RecipeError as error:
            yield Entry(call, None, None, f"{text} (here: {error})")
            continue
        shape = "x".join(map(str, first.shape[1:])) or "scalar"
        cost = 1e6 * _seconds(made, noise, sample_rate_hz) / WINDOWS
        yield Entry(call, f"{first.dtype} {shape}", cost, text)


def list_steps() -> Mapping[str, list[Entry]]:
    """What the recipe's other fields take, by the field."""
    return {
        field: [
            Entry(_call_of(name, cls), None, None, _summary(cls))
            for name, cls in sorted(kind.table.items())
        ]
        for field, kind in STEP_FIELDS.items()
    }


def _seconds(transform: Any, windows: Any, sample_rate_hz: int) -> float:
    """The least time of several runs."""
    least, began = math.inf, time.perf_counter()
    while time.perf_counter() - began < LEAST_S:
        at = time.perf_counter()
        apply_transform(transform, windows, sample_rate_hz)
        least = min(least, time.perf_counter() - at)
    return least


def _call_of(name: str, cls: type[Any]) -> str:
    """``name(parameter=default,...)``; ``parameter=?`` where there is no default."""
    parameters = [
        f"{f.name}={'?' if f.default is MISSING else repr(f.default)}"
        for f in fields(cls)
        if f.init
    ]
    return f"{name}({','.join(parameters)})"


def _summary(cls: type[Any]) -> str:
    """The first sentence of its documentation."""
    return (cls.__doc__ or "").strip().partition("\n\n")[0].replace("\n    ", " ")


def describe_transforms(
    entries: Sequence[Entry], others: Mapping[str, Sequence[Entry]]
) -> str:
    """The list as people read it."""
    lines = []
    for entry in entries:
        cost = "" if entry.cost_us is None else f", {entry.cost_us:.0f} us"
        result = "" if entry.result is None else f"  -> {entry.result}{cost}"
        lines += [f"{entry.call}{result}", f"    {entry.text}"]
    for field, some in others.items():
        lines += ["", f"--{field}:"]
        for entry in some:
            lines += [entry.call, f"    {entry.text}"]
    return "\n".join(lines)
