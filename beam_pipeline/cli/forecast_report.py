"""The forecast of ``plan --sample`` as text."""

from __future__ import annotations

import math

from beam_pipeline.cli.reports import bytes_text
from beam_pipeline.run.forecast import Forecast
from beam_pipeline.text import time_text


def describe_forecast(forecast: Forecast) -> str:
    """Returns a forecast as some lines."""
    size, seconds = forecast.bytes, forecast.seconds
    title = f"forecast from {forecast.sampled:,} examples"
    if forecast.lost:
        title += f"; {forecast.lost:,} more could not be made"
    return "\n".join(
        (
            title,
            f"  size    {bytes_text(size)}{_error(size, forecast.bytes_error)}, "
            f"{bytes_text(forecast.bytes_per_example)} for each of "
            f"{forecast.examples:,.0f} examples",
            f"  work    {time_text(seconds)}{_error(seconds, forecast.seconds_error)} "
            "of one worker",
        )
    )


def _error(value: float, error: float) -> str:
    """Two standard errors as a percentage; empty if they are not known."""
    if not (value and math.isfinite(error)):
        return ""
    return f" ± {100 * error / value:.2g} %"
