"""Recordings to measure with, made once and kept in a folder.

    python -m tests.benchmarks.corpus [--data DIR] [--files 60] [--seconds 60]

prints the folder of the wanted recordings and makes those that are not there yet.
"""

import argparse
import importlib.util
import os
import tempfile
from pathlib import Path

import numpy as np
import soundfile

ROOT = Path(__file__).parents[2]
DATA = Path(tempfile.gettempdir(), "audio-tfrecords-benchmarks")
RATE = 16000
BLOCK_S = 60
# Sounds that differ; a larger corpus links to them again.
DISTINCT = 600


def load_synthesiser():
    """Return the module `launch/synthesise.py`, which is in no package."""
    path = ROOT / "launch" / "synthesise.py"
    spec = importlib.util.spec_from_file_location("synthesise", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def make_corpus(data, *, files=60, seconds=60):
    """Return a folder of `files` mono PCM_16 recordings of `seconds` each at 16 kHz.

    They lie one folder per class below it. A file gets its name only when it is
    complete, so that an interrupted call can be repeated.
    """
    folder = Path(data, f"{files}-files-of-{seconds}-s")
    synthesiser = load_synthesiser()
    labels = sorted(synthesiser.CLASSES)

    def path_of(number):
        label = labels[number % len(labels)]
        return folder / label / f"{label}_{number // len(labels):04d}.wav"

    for number in range(files):
        path = path_of(number)
        if path.exists():
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        if number >= DISTINCT:
            os.link(path_of(number % DISTINCT), path)
            continue
        unfinished = path.with_suffix(".part")
        write_recording(unfinished, path.parent.name, number, seconds, synthesiser)
        unfinished.replace(path)
    return folder


def write_recording(path, label, number, seconds, synthesiser):
    """Write one recording in blocks of a minute, so that it may be of any length."""
    with soundfile.SoundFile(path, "w", RATE, 1, "PCM_16", format="WAV") as file:
        for start in range(0, seconds, BLOCK_S):
            rng = np.random.default_rng([number, start])
            frames = min(BLOCK_S, seconds - start) * RATE
            file.write(synthesiser.synthesise(label, frames, RATE, rng))


def main(argv=None):
    """Make a corpus and print its folder."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=DATA, help="where corpora are kept")
    parser.add_argument("--files", type=int, default=60, help="60, or 600 for more")
    parser.add_argument("--seconds", type=int, default=60, help="of each; 36000 = 10 h")
    options = parser.parse_args(argv)
    print(make_corpus(options.data, files=options.files, seconds=options.seconds))


if __name__ == "__main__":
    main()
