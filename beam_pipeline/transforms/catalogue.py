"""Every transform that comes with the package, by the name that recipes use."""

from __future__ import annotations

from typing import Any

from beam_pipeline.transforms.base import Identity
from beam_pipeline.transforms.levels import PeakGain, RmsGain
from beam_pipeline.transforms.spectral import LogMel

BUILT_IN: dict[str, type[Any]] = {
    "identity": Identity,
    "log_mel": LogMel,
    "peak_gain": PeakGain,
    "rms_gain": RmsGain,
}
