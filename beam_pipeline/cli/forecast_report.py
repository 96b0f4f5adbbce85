"""The forecast of ``plan --sample`` as text."""

from __future__ import annotations

import argparse
import math

from beam_pipeline.cli.reports import bytes_text
from beam_pipeline.errors import OptionError
from beam_pipeline.recipe.values import check_whole, is_real
from beam_pipeline.run.forecast import Forecast


def check_forecast_flags(args: argparse.Namespace) -> None:
    """Checks the flags of a forecast.

    Raises
    ------
    OptionError
        If one is out of its range, or given without ``--sample``.
    """
    if args.sample is not None:
        check_whole("sample", args.sample)
    if args.on_workers is not None:
        check_whole("on_workers", args.on_workers)
    price = args.price_per_vcpu_hour
    if price is not None and not (is_real(price) and 0 <= price < math.inf):
        raise OptionError("price_per_vcpu_hour", "must be a number, 0 or more", price)
    for name in ("on_workers", "price_per_vcpu_hour"):
        if getattr(args, name) is not None and args.sample is None:
            raise OptionError(name, "needs `sample`", getattr(args, name))


def describe_forecast(
    forecast: Forecast, on_workers: int | None, price_per_vcpu_hour: float | None
) -> str:
    """Returns a forecast as some lines."""
    size, work = forecast.bytes, forecast.seconds
    here = f"{_time(forecast.wall_seconds())} with {_workers(forecast.workers)}"
    there = ""
    if on_workers is not None:
        there = f", {_time(forecast.wall_seconds(on_workers))} with "
        there += _workers(on_workers)
    cost = f"{forecast.vcpu_hours:.3g} vCPU-hours"
    if price_per_vcpu_hour is not None:
        total = forecast.cost(price_per_vcpu_hour)
        cost += f", {total:.3g} at {price_per_vcpu_hour:g} for each"
    rows = [
        (
            "size",
            f"{bytes_text(size)}{_error(size, forecast.bytes_error)}, "
            f"{bytes_text(forecast.bytes_per_example)} for each of "
            f"{forecast.examples:,.0f} examples",
        ),
        ("work", f"{_time(work)}{_error(work, forecast.seconds_error)} of one worker"),
        ("time", f"{here}{there}; {_time(forecast.plan_seconds)} of it for the plan"),
        ("memory", f"{bytes_text(forecast.memory_bytes)} for a worker"),
        ("cost", cost),
    ]
    title = f"forecast from {forecast.sampled:,} examples"
    if forecast.lost:
        title += f"; {forecast.lost:,} more could not be made"
    return "\n".join([title, *(f"  {name:<6}  {text}" for name, text in rows)])


def _workers(count: int) -> str:
    return "1 worker" if count == 1 else f"{count:,} workers"


def _error(value: float, error: float) -> str:
    """Two standard errors as a percentage; empty if they are not known."""
    if not (value and math.isfinite(error)):
        return ""
    return f" ± {100 * error / value:.2g} %"


def _time(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.3g} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
