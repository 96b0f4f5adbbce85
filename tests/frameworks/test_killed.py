"""Training that is killed in the middle of an epoch continues at the next example."""

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.frameworks.conftest import COUNT, FIXED, need_installed
from tests.frameworks.loops import BATCH, EPOCHS, LOG, LOOPS, STATE, UNSAVED, saved

ROOT = Path(__file__).parents[2]
NEEDS = {
    "torch": "torchdata", "torch_records": "torchdata", "hugging_face": "datasets",
    "keras": "torch",  # its backend
}  # fmt: skip
ONE_EPOCH = ("torch_records", "hugging_face")
PER_EPOCH = -(-COUNT // BATCH)


def run(name, folder, last):
    """Runs a loop in a process of its own; returns how it ended."""
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "TF_CPP_MIN_LOG_LEVEL": "3",
        "HF_HUB_OFFLINE": "1",
        "KERAS_BACKEND": "tensorflow" if name == "tensorflow" else "torch",
        # datasets imports what it finds.
        "USE_TF": "0", "USE_JAX": "0",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-m", "tests.frameworks.loops", name, folder,
         ",".join(FIXED), str(last)],
        capture_output=True, text=True, env=environment,
    )  # fmt: skip
    return done.returncode, done.stderr


def logged():
    return [json.loads(line) for line in Path(LOG).read_text().splitlines()]


@pytest.mark.parametrize("name", LOOPS)
def test_killed_and_restored(name, folder, tmp_path, monkeypatch):
    need_installed(NEEDS.get(name, name))
    monkeypatch.chdir(tmp_path)
    epochs = 1 if name in ONE_EPOCH else EPOCHS
    # Another step in each run of the tests, in any epoch.
    last = random.SystemRandom().randint(UNSAVED + 1, epochs * PER_EPOCH - 1)
    status, said = run(name, folder, last)
    assert status == -signal.SIGKILL, said
    assert len(logged()) == last
    steps, _ = saved()
    assert steps == last - UNSAVED
    before = logged()

    status, said = run(name, folder, sys.maxsize)
    assert status == 0, said
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
