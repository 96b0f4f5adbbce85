"""Records in memory, which count what is read of them; and how batches continue."""

import json
import threading
import time
from itertools import chain, islice, repeat
from types import SimpleNamespace

import numpy as np

from beam_pipeline.codecs import FLOAT_LIST, INT64_LIST
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.read.choices import choose_statistics


class FakeRecords:
    """``number`` is 0 to n - 1, ``pair`` that number twice, ``list`` as many values."""

    def __init__(self, n, name="a", broken=(), seconds=0.0, width=2):
        self.n, self.broken, self.seconds = n, broken, seconds
        self.fingerprint = f"{name}{n}"
        self.features = {
            "number": FeatureSpec("number", "int64", (), INT64_LIST),
            "pair": FeatureSpec("pair", "float32", (width,), FLOAT_LIST),
            "list": FeatureSpec("list", "float32", (None,), FLOAT_LIST),
        }
        of = {
            "count": 1, "mean": 10.0, "m2": 4.0, "std": 2.0, "min": 0.0, "max": 9.0,
        }  # fmt: skip
        statistics = {"features": {"pair": of, "list": of}}
        entry = SimpleNamespace(examples=n, clips=n, statistics=statistics, shards=())
        self.metadata = SimpleNamespace(
            features=self.features, splits={"train": entry}, classes=(), recipe=None
        )
        self.classes = ()
        self.folder, self.statistics = name, choose_statistics(self.metadata, ())
        self.width = width
        self.reads = []
        self.threads = set()

    def __len__(self):
        return self.n

    def class_numbers(self):
        return np.arange(self.n) % 3

    def read(self, indices):
        time.sleep(self.seconds)
        indices = np.asarray(indices)
        self.reads.append(indices)
        self.threads.add(threading.get_ident())
        for index in indices:
            if index in self.broken:
                raise ValueError(f"example {index} is damaged")
        assert indices.size == 0 or 0 <= indices.min() <= indices.max() < self.n
        return {
            "number": indices.astype(np.int64),
            "pair": np.repeat(indices[:, None], self.width, 1).astype(np.float32),
            "list": [
                None if k % 7 == 3 else np.full(k % 4, k, np.float32) for k in indices
            ],
        }


def assert_continues(make, steps):
    """From the state before any of some steps, others give the rest of the batches.

    ``make`` returns batches; an iteration that ends is followed by the next one.
    """

    def given_by(batches, count):
        for batch in islice(chain.from_iterable(repeat(batches)), count):
            given = batch["number"].tolist(), batch["pair"].tobytes()
            yield given, json.dumps(batches.state_dict())

    batches = make()
    start = json.dumps(batches.state_dict())
    found, states = zip(*given_by(batches, steps), strict=True)
    for step, state in enumerate([start, *states]):
        restored = make()
        restored.load_state_dict(json.loads(state))
        assert json.dumps(restored.state_dict()) == state
        rest = [given for given, _ in given_by(restored, steps - step)]
        assert rest == [*found[step:]]
