"""Audio files to sharded GZIP TFRecords by Apache Beam, and back as ``tf.data``.

Every class of :mod:`beam_pipeline.transforms` can be imported from here as well.
"""

from __future__ import annotations

import importlib
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beam_pipeline.api import record as record
    from beam_pipeline.dataset.metadata import Metadata as Metadata
    from beam_pipeline.pipeline.sink import WriteToTFRecord as WriteToTFRecord
    from beam_pipeline.read.audit import audit as audit
    from beam_pipeline.read.replay import replay as replay
    from beam_pipeline.recipe.recipe import Recipe as Recipe
    from beam_pipeline.transforms import *  # noqa: F403
    from beam_pipeline.transforms.streams import ClipGain as ClipGain

# Looked up on first use: writing never loads TensorFlow, and reading never Beam.
_HOME = {
    "ClipGain": "transforms.streams",
    "Metadata": "dataset.metadata",
    "Recipe": "recipe.recipe",
    "WriteToTFRecord": "pipeline.sink",
    "audit": "read.audit",
    "record": "api",
    "replay": "read.replay",
}

__version__ = "0.1.0"
__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(importlib.import_module(f"{__name__}.{_HOME[name]}"), name)
    elif name.startswith("_") or name not in _transforms().__all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    else:
        value = getattr(_transforms(), name)
    globals()[name] = value
    return value


def _transforms() -> ModuleType:
    return importlib.import_module(f"{__name__}.transforms")


def __dir__() -> list[str]:
    return sorted({*__all__, *_transforms().__all__, "__version__"})
