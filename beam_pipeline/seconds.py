"""The conversion of seconds to frames, used everywhere."""

from __future__ import annotations

import math


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
