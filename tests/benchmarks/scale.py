"""What a job costs as its corpus grows: time and memory.

    python -m tests.benchmarks.scale [--clips 10000,100000,1000000] [--workers 2]

The corpus is simulated: names are made as they are asked for, and each file is a header
and a second of sound that lie in memory. All else is the job as it is, from the listing
to ``metadata.json``. Every size is a process of its own.
"""

import argparse
import io
import itertools
import json
import os
import resource
import shutil
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

RATE = 4000
CLASSES = 100
CLIPS_PER_SHARD = 2500
FOLDER = "/simulated"


def sound(seconds):
    """A WAV file of so many seconds, 8 bits a sample."""
    samples = np.random.default_rng(0).integers(0, 256, RATE * seconds, np.uint8)
    header = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 36 + len(samples), b"WAVE", b"fmt ", 16, 1, 1,
        RATE, RATE, 1, 8, b"data", len(samples),
    )  # fmt: skip
    return header + samples.tobytes()


def loudness(windows):
    """One number a window."""
    return np.sqrt(np.mean(np.square(windows), axis=-1, keepdims=True))


def simulate(clips):
    """Puts a folder of so many clips where the package looks for files."""
    from beam_pipeline.inputs import listing as inputs_listing
    from beam_pipeline.inputs import sources
    from beam_pipeline.storage import files

    # One clip in a hundred is sixty times as long: shards must not feel it.
    short, long = sound(1), sound(60)
    names = (f"{i % CLASSES:03d}/{i:09d}.wav" for i in range(clips))
    listing = sorted(names) if clips <= 1000 else None

    def list_files(folder):
        if folder != FOLDER:
            return real_list_files(folder)
        if listing is not None:
            return iter(listing)
        return (
            f"{label:03d}/{i:09d}.wav"
            for label in range(CLASSES)
            for i in range(label, clips, CLASSES)
        )

    def begin_read(path, expected_bytes=0, share=1.0):
        number = int(path[-13:-4])
        return io.BytesIO(long if number % 100 == 7 else short)

    real_list_files = files.list_files
    files.list_files = list_files
    files.begin_read = begin_read
    entry = sources.Input(sources.FOLDER, FOLDER, FOLDER)
    inputs_listing.resolve_inputs = lambda texts: [entry]


class Children:
    """The peak of each writer's memory, and when it grew, by looking often."""

    def __init__(self):
        self.peaks = {}
        self._done = threading.Event()

    def __enter__(self):
        threading.Thread(target=self._look, daemon=True).start()
        return self

    def __exit__(self, *_):
        self._done.set()

    def _look(self):
        me = os.getpid()
        while not self._done.wait(0.2):
            for pid in filter(str.isdigit, os.listdir("/proc")):
                try:
                    text = Path("/proc", pid, "status").read_text()
                except OSError:
                    continue
                if f"\nPPid:\t{me}\n" in text:
                    peak = int(text.split("VmHWM:")[1].split()[0]) / 1024
                    self.peaks[pid] = max(self.peaks.get(pid, 0), peak)


def measure(clips, workers):
    """Records a simulated corpus; returns what it cost."""
    from beam_pipeline import record
    from beam_pipeline.run import local

    simulate(clips)
    out = tempfile.mkdtemp(prefix="audio-tfrecords-scale-")
    written = []
    planned = []
    # A fork takes what was simulated along; threads would forbid it.
    threading.active_count = lambda: 1
    real = local.plan_here

    def make_plan(*arguments):
        summary = real(*arguments)
        planned.append((time.perf_counter(), peak_mb()))
        return summary

    local.plan_here = make_plan
    started = time.perf_counter()
    try:
        with Children() as children:
            metadata = record(
                FOLDER,
                out,
                win_len=RATE,
                max_windows=2,
                elements_per_file=CLIPS_PER_SHARD,
                features={"loudness": "tests.benchmarks.scale.loudness"},
                workers=workers,
            )
        seconds = time.perf_counter() - started
        for path in Path(out).glob("*.gz"):
            number = int(path.name.split("-")[1])
            written.append((number % workers, path.stat().st_mtime))
    finally:
        shutil.rmtree(out)
    assert metadata.splits["records"].clips == clips
    # A shard took as long as since the one before of the same writer; the first and
    # the last of each writer are other than the rest.
    took = []
    for writer in range(workers):
        ends = sorted(at for number, at in written if number == writer)
        took += [b - a for a, b in itertools.pairwise(ends[:-1])]
    return {
        "clips": clips,
        "examples": metadata.splits["records"].examples,
        "seconds": round(seconds, 1),
        "plan_s": round(planned[0][0] - started, 1),
        "ms_per_clip": round(1000 * seconds / clips, 3),
        "plan_mb": round(planned[0][1]),
        "writer_mb": round(max(children.peaks.values(), default=0)),
        "end_mb": round(peak_mb()),
        "longest_shard": round(max(took) / statistics.median(took), 2),
    }


def peak_mb():
    """The peak of this process' memory so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", default="10000,100000,1000000")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(args.one, args.workers)))
        return
    rows = []
    for clips in args.clips.split(","):
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.scale", "--one", clips,
             "--workers", str(args.workers)],
            capture_output=True, text=True,
        )  # fmt: skip
        if done.returncode:
            sys.exit(done.stderr)
        rows.append(json.loads(done.stdout.splitlines()[-1]))
        print(rows[-1], file=sys.stderr)
    print("| " + " | ".join(rows[0]) + " |\n|" + "---|" * len(rows[0]))
    for row in rows:
        print("| " + " | ".join(map(str, row.values())) + " |")


if __name__ == "__main__":
    main()
