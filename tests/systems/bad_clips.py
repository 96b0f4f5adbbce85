"""Runs with clips that crash or stall a process: ``bad_clips.py FOLDER [PRISM]``.

A process of its own, because the test runner has threads and could not fork. It prints
a line of JSON for each run: its name, how it ended, how many processes it took, what
it rejected, and the digest of its shards.
"""

import hashlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import numpy as np
import soundfile

from beam_pipeline import record
from beam_pipeline.audio.decoder import Decoder
from beam_pipeline.errors import AudioTFRecordsError
from beam_pipeline.run import workers

RATE = 8000
CLIPS = 6
LOUD = "2.wav"
OPTIONS = {"win_seconds": 0.25, "label_from": "none", "order": "listed"}


def write_clips(folder, first):
    """Writes clips of noise with these first samples; one is loud near its end."""
    folder.mkdir()
    for k, start in enumerate(first):
        samples = np.random.default_rng(k).uniform(-0.5, 0.5, 2 * RATE)
        samples[0 :: RATE // 4] = start
        if f"{k}.wav" == LOUD:
            samples[-RATE // 8] = 0.95
        soundfile.write(folder / f"{k}.wav", samples, RATE)


class Runs:
    """Runs of `record` below a folder; counts the processes that they start."""

    def __init__(self, folder):
        self.folder = folder
        self.processes = 0
        start = workers.WorkerProcess

        def counted(*arguments):
            self.processes += 1
            return start(*arguments)

        workers.WorkerProcess = counted

    def run(self, name, sounds, transform, **options):
        self.processes, ended = 0, "done"
        output = self.folder / name.partition(" ")[0]
        if transform:
            options["features"] = {"x": f"tests.sounds.{transform}"}
        try:
            record(self.folder / sounds, output, **{**OPTIONS, **options})
        except AudioTFRecordsError as error:
            ended = f"{type(error).__name__}: {error}"
        shards = sorted(output.glob("records-*"))
        content = b"".join(shard.name.encode() + shard.read_bytes() for shard in shards)
        rejected = output / "rejected.jsonl"
        lines = rejected.read_text().splitlines() if rejected.exists() else []
        result = {
            "ended": ended,
            "processes": self.processes,
            "rejected": list(map(json.loads, lines)),
            "digest": hashlib.sha256(content).hexdigest(),
            "work": (output / "_work").exists(),
        }
        print(json.dumps([name, result]), flush=True)


def break_decoder(method, name, harm):
    """Makes the decoder harm its process at a file; returns how to mend it."""
    real = getattr(Decoder, method)

    def broken(self, *arguments):
        if self.name == name:
            harm()
        return real(self, *arguments)

    setattr(Decoder, method, broken)
    return lambda: setattr(Decoder, method, real)


def main(folder, *prism):
    write_clips(folder / "in", [0.0] * CLIPS)
    write_clips(folder / "odd", [0.1, 0.2, 0.3, 0.4, 0.5, 0.6])
    runs = Runs(folder)

    # The loud clip is in one shard.
    one_bad = {"max_rejected": 1, "elements_per_file": 16}
    runs.run("lost", "in", "fail_on_loud", **one_bad, workers=1)
    runs.run("crash", "in", "crash_on_loud", **one_bad, workers=1)
    runs.run("dawdle", "in", "dawdle_on_loud", workers=1, time_limit=1.5)
    runs.run("dawdle longer", "in", "dawdle_on_loud", workers=1, time_limit=60)
    runs.run("interrupt", "in", "interrupt_on_loud", workers=1)

    mend = break_decoder(
        "read_into", "0.wav", lambda: os.kill(os.getpid(), signal.SIGSEGV)
    )
    runs.run("decode", "in", "", elements_per_file=12, workers=2)
    runs.run("decode allowed", "in", "", elements_per_file=12, max_rejected="20%")
    mend()
    mend = break_decoder("_open", "0.wav", os.abort)
    runs.run("probe", "in", "", workers=1, max_rejected=1)
    runs.run("probe complete", "in", "", workers=1, max_rejected=1)
    mend()
    write_clips(folder / "fresh", [0.0] * CLIPS)
    engines = {"here": [], "FnApiRunner": ["--runner=FnApiRunner"]}
    for path in prism:
        engines["PrismRunner"] = ["--runner=PrismRunner", f"--prism_location={path}"]
    for engine, beam_args in engines.items():
        run_on(engine, runs, beam_args=beam_args, max_rejected=1)
    (folder / "fresh" / "5.wav").unlink()
    runs.run("without", "fresh", "", workers=1)

    for count in (1, 2):
        runs.run(f"misbehave{count}", "odd", "misbehave", max_rejected=2,
                 elements_per_file=8, workers=count)  # fmt: skip
    runs.run("behave", "odd", "lose_five_and_six", max_rejected=2,
             elements_per_file=8)  # fmt: skip


def run_on(engine, runs, **options):
    """Runs with a clip that harms its process in each stage."""
    # Its first shard is finished when it becomes a poison clip.
    runs.run(f"{engine}-step", "fresh", "crash_on_loud", elements_per_file=3, **options)
    mend = break_decoder("read_into", "0.wav", lambda: os._exit(3))
    runs.run(f"{engine}-decode", "fresh", "", elements_per_file=12, **options)
    mend()
    mend = break_decoder("_open", "1.wav", os.abort)
    runs.run(f"{engine}-probe", "fresh", "", **options)
    mend()
    mend = break_decoder("_open", "5.wav", lambda: time.sleep(99))
    runs.run(f"{engine}-stall", "fresh", "", time_limit=1.5, **options)
    mend()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
