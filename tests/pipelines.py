"""Runs a step in Beam's in-memory runner, and brings back what it emits, in order."""

from __future__ import annotations

import pickle
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import apache_beam as beam
import numpy as np
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.test_pipeline import TestPipeline

from beam_pipeline.dofns import REJECTS


def exact(value: Any) -> Any:
    """A value that equals another's only if every bit and type does."""
    if isinstance(value, dict):
        return {key: exact(part) for key, part in value.items()}
    if isinstance(value, list):
        return [exact(part) for part in value]
    if isinstance(value, np.ndarray | np.generic):
        return value.dtype.str, value.shape, value.tobytes()
    return type(value), value


def _append(element: Any, path: str) -> None:
    with open(path, "ab") as file:
        pickle.dump(element, file)


def _read(path: Path) -> list[Any]:
    found = []
    if path.exists():
        with path.open("rb") as file:
            while file.peek(1):
                found.append(pickle.load(file))
    return found


def stored_values(folder: Path, metadata: Any, feature: str) -> dict[Any, Any]:
    """(path, start) -> (a float32 feature, rate) of every example of a data set.

    Parsed by protobuf, so that no code of the package is between the file and the test.
    """
    from tensorflow import data, train

    shape = metadata.features[feature].shape
    shards = [s.file for split in metadata.splits.values() for s in split.shards]
    stored = {}
    for record in data.TFRecordDataset([str(folder / s) for s in shards], "GZIP"):
        values = train.Example.FromString(record.numpy()).features.feature
        place = (
            values["filepath"].bytes_list.value[0].decode(),
            values["win_start_idx"].int64_list.value[0],
        )
        assert place not in stored
        array = np.array(values[feature].float_list.value, np.float32).reshape(shape)
        stored[place] = exact(array), values["fs"].int64_list.value[0]
    return stored


def found_values(elements: Iterable[dict[str, Any]], feature: str) -> dict[Any, Any]:
    """The same of the elements of a pipeline."""
    found = {}
    for element in elements:
        place = element["filepath"], element["win_start_idx"]
        assert place not in found
        found[place] = exact(element[feature]), element["fs"]
    return found


def drive(dofn: beam.DoFn, elements: Iterable[Any]) -> list[Any]:
    """What a step emits without a runner, in order."""
    dofn.setup()
    try:
        return [made for element in elements for made in dofn.process(element)]
    finally:
        dofn.teardown()


def run_step(
    elements: Iterable[Any], *steps: beam.DoFn | beam.PTransform
) -> tuple[list[Any], list[dict[str, str]], dict[str, int]]:
    """The elements after some steps, the rejects of all, and the job's counters."""
    with tempfile.TemporaryDirectory() as folder:
        main, rejects = Path(folder, "main"), Path(folder, REJECTS)
        pipeline = TestPipeline(runner=FnApiRunner())
        found = pipeline | beam.Create(list(elements), reshuffle=False)
        for number, step in enumerate(steps):
            if isinstance(step, beam.PTransform):
                found = found | f"step {number}" >> step
                continue
            outputs = found | f"step {number}" >> beam.ParDo(step).with_outputs(
                REJECTS, main="main"
            )
            found = outputs.main
            _ = outputs[REJECTS] | f"rejects {number}" >> beam.Map(
                _append, str(rejects)
            )
        _ = found | "main" >> beam.Map(_append, str(main))
        result = pipeline.run()
        result.wait_until_finish()
        counters = {
            metric.key.metric.name: metric.committed
            for metric in result.metrics().query(MetricsFilter())["counters"]
        }
        return _read(main), _read(rejects), counters
