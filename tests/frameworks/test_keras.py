"""Keras: fit and its callbacks over batches by number, with TensorFlow.

test_page fits with JAX, and test_killed with PyTorch.
"""

import sys
from collections import Counter

import numpy as np
import pytest

from beam_pipeline.errors import InputError, OptionError
from tests.frameworks.conftest import COUNT, need, numbers_on_disk

keras = need("keras")

# Fits a model, with another data set for validation, and predicts.
FIT = """
import sys
import keras
import numpy as np
from beam_pipeline.read.records import open_records

assert keras.backend.backend() == sys.argv[2], keras.backend.backend()
records = open_records(sys.argv[1])
examples = records.to_keras(8, "x", "target", shuffle="global", normalize=["x"])
model = keras.Sequential([
    keras.layers.Flatten(),
    keras.layers.Dense(3, activation="softmax"),
])
model.compile("adam", "sparse_categorical_crossentropy")
history = model.fit(
    examples, epochs=2, shuffle=False, verbose=0, validation_data=examples
)
assert np.isfinite(history.history["loss"]).all()
assert len(history.history["val_loss"]) == 2
assert model.predict(records.to_keras(8, "x"), verbose=0).shape == (len(records), 3)
print("fitted")
"""


def numbers_of(dataset):
    return [x.tolist() for x, *_ in dataset]


def test_fit(folder, capsys, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fit", folder, "tensorflow"])
    exec(compile(FIT, "fit", "exec"), {})
    assert capsys.readouterr().out == "fitted\n"


class Trained(keras.Model):
    """Remembers which examples it was trained with."""

    def __init__(self):
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.numbers = []

    def call(self, x):
        return self.dense(keras.ops.cast(x, "float32")[:, None])

    def train_step(self, data):
        self.numbers.append(np.asarray(data[0]).tolist())
        return super().train_step(data)


class Save(keras.callbacks.Callback):
    def __init__(self, dataset):
        super().__init__()
        self.dataset, self.states = dataset, []

    def on_train_batch_end(self, batch, logs=None):
        self.states.append(self.dataset.state_dict(batch))


def fit(dataset, epochs=3, initial_epoch=0):
    """Fits, and returns the numbers in each step and the state after it."""
    model, save = Trained(), Save(dataset)
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(
        dataset, epochs=epochs, initial_epoch=initial_epoch, shuffle=False, verbose=0,
        callbacks=[save],
    )  # fmt: skip
    return model.numbers, save.states


@pytest.fixture(scope="module", params=[1, 2])
def make(records, request):
    def make(**options):
        return records.to_keras(
            8, "number", "level", shuffle="global", workers=request.param, **options
        )

    return make


def test_each_epoch_has_another_order(make, records):
    trained, _ = fit(make(seed=1))
    wanted = records.batches(8, shuffle="global", seed=1)
    assert trained == [b["number"].tolist() for _ in range(3) for b in wanted]


@pytest.mark.parametrize("steps", [1, 7, 20])
def test_a_state_continues_at_the_next_example(make, steps):
    trained, states = fit(make())
    dataset = make()
    dataset.load_state_dict(states[steps - 1])
    rest, _ = fit(dataset, initial_epoch=states[steps - 1]["epoch"])
    assert len(rest) % 7 == 0
    assert (trained[:steps] + rest)[: len(trained)] == trained


def test_batches_by_number(records):
    dataset = records.to_keras(8, ["x", "pcm"], "target", sample_weight="level")
    assert len(dataset) == 7
    x, y, weight = dataset[6]
    assert set(x) == {"x", "pcm"}
    assert x["x"].shape == (2, 6, 3)
    assert len(y) == len(weight) == 2
    (only,) = records.to_keras(8, "number")[1]
    assert only.tolist() == numbers_on_disk(records)[8:16]
    assert len(records.to_keras(8, "x", drop_remainder=True)) == 6
    with pytest.raises(IndexError, match="only 7"):
        dataset[7]


def test_iterated_by_hand(records):
    dataset = records.to_keras(8, "number", shuffle="global")
    first = numbers_of(dataset)
    assert Counter(n for numbers in first for n in numbers) == Counter(range(COUNT))
    assert numbers_of(dataset) == first
    dataset.on_epoch_end()
    assert dataset.epoch == 1
    assert numbers_of(dataset) != first


def test_an_epoch_that_was_only_tried_does_not_count(records):
    dataset = records.to_keras(8, "number", shuffle="global")
    dataset.on_epoch_end()
    dataset.on_epoch_begin()
    _ = dataset[0], dataset[1]
    dataset.on_epoch_end()
    assert dataset.epoch == 0


def test_wrong_arguments(records, everything):
    with pytest.raises(InputError, match="levle"):
        records.to_keras(8, "x", "levle")
    with pytest.raises(OptionError, match="in the same shape"):
        everything.to_keras(8, "list")
    with pytest.raises(OptionError, match="shuffle"):
        records.to_keras(8, "x", shuffle="shards")
    for batch in (-5, -1, 7, "a", 1.5):
        with pytest.raises(OptionError, match=r"^batch: .* 0 to 6; got "):
            records.to_keras(8, "x").state_dict(batch)
    state = records.to_keras(8, "x").state_dict(2)
    with pytest.raises(InputError, match="batch_size"):
        records.to_keras(4, "x").load_state_dict(state)
    with pytest.raises(InputError, match="damaged"):
        records.to_keras(8, "x").load_state_dict({**state, "position": 99})
