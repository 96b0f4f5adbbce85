"""Training that is killed in the middle of an epoch continues at the next example."""

import json
import random
import signal
import sys
from pathlib import Path

import pytest

from tests.frameworks.conftest import COUNT, FIXED, need_installed
from tests.frameworks.loops import BATCH, EPOCHS, LOG, LOOPS, STATE, UNSAVED, saved
from tests.processes import run_python

NEEDS = {"torch": "torchdata", "torch_records": "torchdata"}
ONE_EPOCH = ("torch_records",)
PER_EPOCH = -(-COUNT // BATCH)


def run(name, folder, last, status):
    """Runs a loop in a process of its own."""
    run_python(
        "-m", "tests.frameworks.loops", name, folder, ",".join(FIXED), last,
        status=status, cwd=None,
    )  # fmt: skip


def logged():
    return [json.loads(line) for line in Path(LOG).read_text().splitlines()]


@pytest.mark.parametrize("name", LOOPS)
def test_killed_and_restored(name, folder, tmp_path, monkeypatch):
    need_installed(NEEDS.get(name, name))
    monkeypatch.chdir(tmp_path)
    epochs = 1 if name in ONE_EPOCH else EPOCHS
    # Another step in each run of the tests, in any epoch.
    last = random.SystemRandom().randint(UNSAVED + 1, epochs * PER_EPOCH - 1)
    run(name, folder, last, -signal.SIGKILL)
    assert len(logged()) == last
    steps, _ = saved()
    assert steps == last - UNSAVED
    before = logged()

    run(name, folder, sys.maxsize, 0)
    after = logged()[last:]
    # What was done after the state, is done again.
    assert after[:UNSAVED] == before[steps:]
    flat = [number for numbers in before[:steps] + after for number in numbers]
    for epoch in range(epochs):
        one = flat[epoch * COUNT : (epoch + 1) * COUNT]
        assert sorted(one) == list(range(COUNT)), (last, epoch)
        assert one != sorted(one)
    assert len(flat) == epochs * COUNT
    assert Path(STATE).exists()
