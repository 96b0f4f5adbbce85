"""Training loops of each framework, which can be killed: ``loops.py NAME FOLDER LAST``.

Each step appends the numbers of its examples to LOG, and then saves the state in STATE,
in place of the one before, with the number of steps until then. Both are in the current
folder. A loop that finds a state continues from it. At the step LAST, the process kills
itself: after some steps that it has logged but whose state it did not save.
"""

from __future__ import annotations

import itertools
import json
import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from typing import Any

from beam_pipeline.read.records import open_records

BATCH = 4
EPOCHS = 2
# The latest steps before the end are lost.
UNSAVED = 2

LOG, STATE = "log.jsonl", "state.pickle"

Step = tuple[list[int], Callable[[], Any]]


def torch(records: Any, state: Any) -> Iterator[Step]:
    from torchdata.stateful_dataloader import StatefulDataLoader

    dataset = records.to_torch(BATCH, shuffle="global", seed=1, threads=1)
    loader = StatefulDataLoader(dataset, batch_size=None, num_workers=2)
    first = 0
    if state is not None:
        loader.load_state_dict(state["loader"])
        first = state["epoch"]
    for epoch in range(first, EPOCHS):
        for batch in loader:
            at = epoch
            yield (
                batch["number"].tolist(),
                lambda: {"loader": loader.state_dict(), "epoch": at},  # noqa: B023
            )


def torch_records(records: Any, state: Any) -> Iterator[Step]:
    import torch
    from torchdata.stateful_dataloader import StatefulDataLoader

    loader = StatefulDataLoader(
        records, BATCH, shuffle=True, num_workers=2,
        generator=torch.Generator().manual_seed(3),
    )  # fmt: skip
    if state is not None:
        loader.load_state_dict(state)
    for batch in loader:
        yield batch["number"].tolist(), loader.state_dict


def grain(records: Any, state: Any) -> Iterator[Step]:
    import grain

    data = grain.MapDataset.source(records).seed(1).shuffle().repeat(EPOCHS)
    iterator = iter(data.batch(BATCH).to_iter_dataset())
    if state is not None:
        iterator.set_state(state)
    for batch in iterator:
        yield batch["number"].tolist(), iterator.get_state


def jax(records: Any, state: Any) -> Iterator[Step]:
    batches = records.to_jax(BATCH, shuffle="global", seed=1)
    if state is not None:
        batches.load_state_dict(state)
    while batches.state_dict()["epoch"] < EPOCHS:
        for batch in batches:
            yield batch["number"].tolist(), batches.state_dict


def keras(records: Any, state: Any) -> Iterator[Step]:
    """Keras calls back, so the steps are taken where it does."""
    import keras as library

    data = records.to_keras(BATCH, "number", "level", shuffle="global")
    first = 0
    if state is not None:
        data.load_state_dict(state)
        first = state["epoch"]

    class Trained(library.Model):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.dense = library.layers.Dense(1)

        def call(self, x: Any) -> Any:
            return self.dense(library.ops.cast(x, "float32")[:, None])

        def train_step(self, batch: Any) -> Any:
            self.latest = batch[0].numpy().tolist()
            return super().train_step(batch)

    class Take(library.callbacks.Callback):  # type: ignore[misc]
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            take(self.model.latest, lambda: data.state_dict(batch))

    model = Trained()
    model.compile("sgd", "mse", run_eagerly=True)
    model.fit(
        data, initial_epoch=first, epochs=EPOCHS, shuffle=False, verbose=0,
        callbacks=[Take()],
    )  # fmt: skip
    yield from ()


def hugging_face(records: Any, state: Any) -> Iterator[Step]:
    stream = records.to_datasets(streaming=True, shuffle="global", seed=1)
    batches = stream.batch(BATCH)
    if state is not None:
        batches.load_state_dict(state)
    for batch in batches:
        yield list(batch["number"]), batches.state_dict


LOOPS = {
    loop.__name__: loop
    for loop in (torch, torch_records, grain, jax, keras, hugging_face)
}


def take(numbers: list[int], state: Callable[[], Any]) -> None:
    """Takes a step."""
    global steps
    with open(LOG, "a") as file:
        file.write(f"{json.dumps(numbers)}\n")
    steps += 1
    if steps <= last - UNSAVED:
        with open(f"{STATE}.new", "wb") as file:
            pickle.dump((steps, state()), file)
        os.replace(f"{STATE}.new", STATE)
    if steps == last:
        os.kill(os.getpid(), signal.SIGKILL)


def saved() -> tuple[int, Any]:
    """Returns the steps before the state that was saved, and the state."""
    if not os.path.exists(STATE):
        return 0, None
    with open(STATE, "rb") as file:
        return pickle.load(file)  # type: ignore[no-any-return]


steps, last = 0, sys.maxsize


def main(name: str, folder: str, features: str, last_step: str) -> None:
    """Runs a loop to its end, or to the step at which it is killed."""
    global last, steps
    last = int(last_step)
    steps, state = saved()
    records = open_records(folder, features=features.split(","))
    for numbers, state_dict in itertools.chain(LOOPS[name](records, state)):
        take(numbers, state_dict)


if __name__ == "__main__":
    main(*sys.argv[1:])
