"""The scripts of launch/train, in a small form: synthesised sounds, an epoch or two."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
import soundfile

from tests.frameworks.conftest import need, need_installed
from tests.processes import run_python

SCRIPTS = Path(__file__).parents[2] / "launch" / "train"
RATE = 8000
DIGITS, CLIPS = "0369", 4
# Each starts a process that loads a framework: too long for a test of every change.
trains = pytest.mark.skipif(
    not os.environ.get("AUDIO_TFRECORDS_FRAMEWORKS_MUST"),
    reason="launch/frameworks/test.sh runs the scripts",
)


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Tones as a folder of FSDD: a pitch for each digit, a factor for each speaker."""
    folder = tmp_path_factory.mktemp("digits")
    for speaker, factor in (("ann", 1.0), ("ben", 1.04), ("eve", 1.02)):
        for digit in DIGITS:
            for clip in range(CLIPS):
                # Each has a noise of its own, or an audit finds them alike.
                rng = np.random.default_rng([int(digit), clip, *speaker.encode()])
                time = np.arange(rng.integers(2000, 5000)) / RATE
                hz = factor * 300 * (1 + int(digit)) / 2 + 200
                noise = rng.normal(0, 0.01, len(time))
                sound = 0.3 * np.sin(2 * np.pi * hz * time) + noise
                soundfile.write(folder / f"{digit}_{speaker}_{clip}.wav", sound, RATE)
    return folder


def run(script, *words):
    """Runs a script in a process of its own, as readers do; returns what it prints.

    One process cannot load both TensorFlow and Triton, which PyTorch's optimizers load.
    """
    return run_python(SCRIPTS / script, *words).stdout


@trains
@pytest.mark.parametrize(("script", "package"), [
    ("keras_digits.py", "keras"),
    ("torch_digits.py", "torch"),
    ("jax_digits.py", "jax"),
])  # fmt: skip
def test_digits(digits, tmp_path_factory, script, package):
    need_installed(package, *(["grain"] if package == "jax" else []))
    out = tmp_path_factory.getbasetemp() / "train"  # the scripts share the records
    said = run(script, digits, "--out", out, "--test", "eve", "--epochs", 2)
    share = float(re.search(r"accuracy on unseen speakers: ([\d.]+)%", said)[1])
    lines = said.splitlines()
    head = next(k for k, line in enumerate(lines) if line.split() == list(DIGITS))
    rows = [line.split() for line in lines[head + 1 :][: len(DIGITS)]]
    assert [row[0] for row in rows] == list(DIGITS)
    counts = np.array([row[1:] for row in rows], int)
    assert (counts.sum(axis=1) == CLIPS).all()
    assert share == pytest.approx(100 * counts.trace() / counts.sum(), abs=0.05)
    assert share > 100 / len(DIGITS)  # more than by chance


@trains
def test_events(tmp_path):
    need_installed("keras")
    said = run("keras_events.py", tmp_path, "--epochs", 3, "--scenes", 20)
    found = re.findall(r"^  \w+: ([\d.]+), by chance ([\d.]+)$", said, re.MULTILINE)
    assert len(found) == 4  # each class is in the test split
    scores = np.array(found, float)
    mean = float(re.search(r"^mAP: ([\d.]+)$", said, re.MULTILINE)[1])
    assert mean == pytest.approx(scores[:, 0].mean(), abs=0.001)
    assert mean > scores[:, 1].mean()


def test_average_precision(monkeypatch):
    need("keras")
    monkeypatch.syspath_prepend(SCRIPTS)
    from keras_events import average_precision

    truth = np.array([1, 0, 1, 0, 1])
    assert average_precision(truth, np.array([5, 4, 3, 2, 1.0])) == pytest.approx(
        (1 + 2 / 3 + 3 / 5) / 3
    )
    assert average_precision(truth, np.ones(5)) == pytest.approx(3 / 5)
