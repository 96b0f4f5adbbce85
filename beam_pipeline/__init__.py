"""Audio files to sharded GZIP TFRecords by Apache Beam, and back as ``tf.data``."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beam_pipeline.auditor import audit as audit
    from beam_pipeline.metadata import Metadata as Metadata
    from beam_pipeline.reader import replay as replay
    from beam_pipeline.recipe import Recipe as Recipe
    from beam_pipeline.recorder import record as record
    from beam_pipeline.sink import WriteToTFRecord as WriteToTFRecord
    from beam_pipeline.transforms.base import Identity as Identity
    from beam_pipeline.transforms.base import per_window as per_window
    from beam_pipeline.transforms.levels import PeakGain as PeakGain
    from beam_pipeline.transforms.levels import RmsGain as RmsGain
    from beam_pipeline.transforms.spectral import LogMel as LogMel

# Looked up on first use: writing never loads TensorFlow, and reading never Beam.
_HOME = {
    "Identity": "transforms.base",
    "LogMel": "transforms.spectral",
    "Metadata": "metadata",
    "PeakGain": "transforms.levels",
    "Recipe": "recipe",
    "RmsGain": "transforms.levels",
    "WriteToTFRecord": "sink",
    "audit": "auditor",
    "per_window": "transforms.base",
    "record": "recorder",
    "replay": "reader",
}

__version__ = "0.1.0"
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
