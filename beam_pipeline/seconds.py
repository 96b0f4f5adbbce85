"""The conversion of seconds to frames, used everywhere, and of seconds to text."""

from __future__ import annotations

import math
from collections.abc import Iterable


def seconds_to_frames(seconds: float, sample_rate_hz: int) -> int:
    """Converts seconds to a number of frames; halves are rounded up.

    ======== ======== ======
    seconds  rate     frames
    ======== ======== ======
    1.0      16000    16000
    0.5      11025    5513
    0.1      44100    4410
    1e-9     16000    0
    ======== ======== ======
    """
    return math.floor(seconds * sample_rate_hz + 0.5)


def time_unit(times_s: Iterable[float]) -> tuple[str, int]:
    """Returns the unit in which some times are printed together, and its seconds.

    It is that of the longest. Two decimals of it are enough for a data set of some
    seconds as for one of some days.
    """
    longest = max(times_s, default=0.0)
    for name, unit_s in (("hours", 3600), ("minutes", 60)):
        if longest >= unit_s:
            return name, unit_s
    return "seconds", 1


def time_text(seconds: float, of_s: float = 0.0) -> str:
    """Returns a time such as ``1.50 minutes``; ``of_s`` is a total beside it."""
    name, unit_s = time_unit([seconds, of_s])
    return f"{seconds / unit_s:.2f} {name}"
