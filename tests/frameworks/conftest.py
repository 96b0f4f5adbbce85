"""A data set of numbered examples, and packages that may be missing."""

import importlib
import importlib.util
import os

import numpy as np
import pytest

from beam_pipeline import record_examples
from beam_pipeline.read.records import open_records

COUNT = 50


def need(name):
    """A package of a framework: where there is none, tests are skipped.

    launch/frameworks/test.sh has them all, so there it is an error.
    """
    if os.environ.get("AUDIO_TFRECORDS_FRAMEWORKS_MUST"):
        return importlib.import_module(name)
    return pytest.importorskip(name, reason=f"launch/frameworks/test.sh has {name}")


def need_installed(*names):
    """Like :func:`need`, for a process of its own: imports nothing, which is fast."""
    for name in names:
        if importlib.util.find_spec(name) is None:
            need(name)


def example(i):
    """The values of an example; their types are those that need care."""
    rng = np.random.default_rng(i)
    made = {
        "number": np.int64(i),
        "level": np.float32(-i / 3),
        "is_even": np.bool_(i % 2 == 0),
        "x": rng.normal(size=(6, 3)).astype(np.float32),
        "pcm": rng.integers(-100, 100, 8).astype(np.int16),
        "image": rng.integers(0, 255, (5, 4, 3)).astype(np.uint8),
        "complex": (rng.normal(size=4) + 1j * i).astype(np.complex64),
        "text": f"ä{i}",
        "target": np.int64(i % 3),
        "list": np.arange(i % 4, dtype=np.float32),
    }
    if i % 3:
        made["maybe"] = np.float32(i)
    return made


FIXED = (
    "number", "level", "is_even", "x", "pcm", "image", "complex", "text", "target",
)  # fmt: skip


@pytest.fixture(scope="session")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("frameworks") / "records"
    record_examples([example(i) for i in range(COUNT)], str(out), num_shards=3)
    return str(out)


@pytest.fixture(scope="session")
def everything(folder):
    """All features, also those whose shape differs."""
    return open_records(folder)


@pytest.fixture(scope="session")
def records(folder):
    """The features that every example has in the same shape."""
    return open_records(folder, features=FIXED)


def numbers_on_disk(records):
    return [int(e["number"]) for e in records]
