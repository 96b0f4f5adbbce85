"""Checks of the parameters of steps: numbers, their bounds, and choices."""

from __future__ import annotations

import math
import numbers
from typing import Any

from beam_pipeline.errors import RecipeError


def check_choice(field: str, value: Any, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise RecipeError(field, f"must be one of {', '.join(choices)}", value)


def whole(field: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise RecipeError(field, "must be a whole number", value)
    if value < 1:
        raise RecipeError(field, "must be at least 1", value)
    return int(value)


def real(field: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise RecipeError(field, "must be a number", value)
    if not math.isfinite(value):
        raise RecipeError(field, "must be finite", value)
    return float(value)


def level_floor(value: Any) -> float:
    floor = real("floor", value)
    if not 1e-30 <= floor <= 1e30:
        raise RecipeError("floor", "must be between 1e-30 and 1e30", floor)
    return floor


def check_range(
    augmentation: Any,
    low_name: str,
    high_name: str,
    least: float,
    most: float,
    whole_parts: int | None = None,
) -> None:
    """Checks two attributes of a step, and makes them floats.

    With ``whole_parts``, they must be multiples of ``1 / whole_parts``.
    """
    for name in (low_name, high_name):
        value = real(name, getattr(augmentation, name))
        if not least <= value <= most:
            raise RecipeError(name, f"must be between {least:g} and {most:g}", value)
        parts = value * (whole_parts or 0)
        if abs(parts - round(parts)) > 1e-9:
            raise RecipeError(name, "must be a multiple of 0.01, like 0.95", value)
        object.__setattr__(augmentation, name, value)
    low, high = getattr(augmentation, low_name), getattr(augmentation, high_name)
    if high < low:
        raise RecipeError(high_name, f"must not be below {low_name} ({low:g})", high)
