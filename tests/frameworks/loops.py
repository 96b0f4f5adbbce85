"""Training loops of each framework, which can be killed: ``loops.py NAME FOLDER LAST``.

Each step appends the numbers of its examples to LOG, and then saves the state in STATE,
in place of the one before, with the number of steps until then. Both are in the current
folder. A loop that finds a state continues from it. At the step LAST, the process kills
itself: after some steps that it has logged but whose state it did not save.
"""

import json
import os
import pickle
import signal
import sys

from beam_pipeline.read.records import open_records

BATCH = 4
EPOCHS = 2
# The latest steps before the end are lost.
UNSAVED = 2

LOG, STATE = "log.jsonl", "state.pickle"


def torch(records, state):
    from torchdata.stateful_dataloader import StatefulDataLoader

    dataset = records.to_torch(BATCH, shuffle="global", seed=1)
    loader = StatefulDataLoader(dataset, batch_size=None)
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


def torch_records(records, state):
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


def grain(records, state):
    import grain

    data = grain.MapDataset.source(records).seed(1).shuffle().repeat(EPOCHS)
    iterator = iter(data.batch(BATCH).to_iter_dataset())
    if state is not None:
        iterator.set_state(state)
    for batch in iterator:
        yield batch["number"].tolist(), iterator.get_state


def tensorflow(records, state):
    batches = records.batches(BATCH, shuffle="global")
    if state is not None:
        batches.load_state_dict(state)
    dataset = batches.to_tf()
    while batches.epoch < EPOCHS:
        for batch in dataset:
            yield batch["number"].numpy().tolist(), batches.state_dict


LOOPS = {loop.__name__: loop for loop in (torch, torch_records, grain, tensorflow)}


def saved():
    """Returns the steps before the state that was saved, and the state."""
    if not os.path.exists(STATE):
        return 0, None
    with open(STATE, "rb") as file:
        return pickle.load(file)  # type: ignore[no-any-return]


def main(name, folder, features, last):
    """Runs a loop to its end, or to the step at which it is killed."""
    steps, state = saved()
    records = open_records(folder, features=features.split(","))
    for numbers, state_dict in LOOPS[name](records, state):
        with open(LOG, "a") as file:
            file.write(f"{json.dumps(numbers)}\n")
        steps += 1
        if steps <= int(last) - UNSAVED:
            with open(f"{STATE}.new", "wb") as file:
                pickle.dump((steps, state_dict()), file)
            os.replace(f"{STATE}.new", STATE)
        if steps == int(last):
            os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(*sys.argv[1:])
