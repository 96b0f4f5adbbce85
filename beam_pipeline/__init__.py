"""Records audio as sharded GZIP TFRecords with Apache Beam; replays it as ``tf.data``.

::

    from beam_pipeline import record, replay

    record("sounds/", "records/", win_seconds=1.0, features={"log_mel": "log_mel()"})
    examples = replay("records/", batch_size=32, as_supervised=("log_mel", "target"))

Transforms, selections and augmentations are in :mod:`beam_pipeline.transforms`.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from beam_pipeline.api import plan as plan
    from beam_pipeline.api import record as record
    from beam_pipeline.api import write_template as write_template
    from beam_pipeline.conversion.convert import convert as convert
    from beam_pipeline.conversion.records import replay_files as replay_files
    from beam_pipeline.dataset.metadata import Metadata as Metadata
    from beam_pipeline.elements.record_dataset import record_dataset as record_dataset
    from beam_pipeline.elements.record_examples import encode_example as encode_example
    from beam_pipeline.elements.record_examples import (
        record_examples as record_examples,
    )
    from beam_pipeline.pipeline.graph import WriteToTFRecord as WriteToTFRecord
    from beam_pipeline.read.audit import audit as audit
    from beam_pipeline.read.audit import write_clean_manifest as write_clean_manifest
    from beam_pipeline.read.predict import open_audio as open_audio
    from beam_pipeline.read.predict import predict as predict
    from beam_pipeline.read.records import mix as mix
    from beam_pipeline.read.records import open_records as open_records
    from beam_pipeline.read.replay import replay as replay
    from beam_pipeline.read.replay import replay_dataset as replay_dataset
    from beam_pipeline.read.show import show as show
    from beam_pipeline.read.verify import repair as repair
    from beam_pipeline.read.verify import verify as verify
    from beam_pipeline.read.window_table import window_table as window_table
    from beam_pipeline.recipe.recipe import Recipe as Recipe
    from beam_pipeline.reporting.page import report as report
    from beam_pipeline.storage.tfrecord import read_records as read_records
    from beam_pipeline.storage.tfrecord import write_records as write_records

# Imported on first use: writing never loads TensorFlow, and reading never loads Beam.
_MODULES = {
    "Metadata": "dataset.metadata",
    "Recipe": "recipe.recipe",
    "WriteToTFRecord": "pipeline.graph",
    "audit": "read.audit",
    "convert": "conversion.convert",
    "encode_example": "elements.record_examples",
    "mix": "read.records",
    "open_audio": "read.predict",
    "open_records": "read.records",
    "plan": "api",
    "predict": "read.predict",
    "read_records": "storage.tfrecord",
    "record": "api",
    "record_dataset": "elements.record_dataset",
    "record_examples": "elements.record_examples",
    "report": "reporting.page",
    "replay": "read.replay",
    "replay_dataset": "read.replay",
    "replay_files": "conversion.records",
    "repair": "read.verify",
    "show": "read.show",
    "verify": "read.verify",
    "window_table": "read.window_table",
    "write_clean_manifest": "read.audit",
    "write_records": "storage.tfrecord",
    "write_template": "api",
}

__version__ = "0.2.0"
__all__ = sorted(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
