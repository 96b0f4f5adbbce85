"""What planning costs as a corpus grows: seconds, and the memory of all processes.

    python -m tests.benchmarks.plan [--clips 100000,1000000] [--folder DIR]

The corpus is a table that gives the length of each clip, so that no file is opened,
with two or three windows a clip and splits by hash. All else is as it is: `plan`, and
the whole of `record` but for the writing. In its place, each writer reads the work of
its shards, and stores of each shard what a real writer does, with numbers made up.
Every row is a process of its own. The memory is the sum over the job's processes, with
shared pages counted once, at its highest; the disk, what their temporary files and the
output folder held at most.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from tests.benchmarks.measuring import cpu_seconds

RATE = 16000
CLASSES = 100
GROUPS = 20_000
BATCH = 1 << 18
LOOK_S = 0.25
SPLITS = {"train": 0.8, "eval": 0.1, "test": 0.1}

KINDS = {
    "hash": {},
    "groups": {"group_by": "speaker"},
    "stratified": {"group_by": "speaker", "stratify": True},
    "stratified files": {"stratify": True},
    "listed": {"order": "listed"},
}


def write_table(path, clips):
    """Writes the table of a corpus: 2 to 3 seconds of a class and of a speaker each."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = pa.schema(
        {
            "path": pa.string(),
            "kind": pa.string(),
            "speaker": pa.string(),
            "frames": pa.int64(),
            "sample_rate_hz": pa.int32(),
            "channels": pa.int32(),
        }
    )
    with pq.ParquetWriter(path, schema) as writer:
        for start in range(0, clips, BATCH):
            rows = range(start, min(clips, start + BATCH))
            columns = [
                [f"{i % 1000:03d}/{i:09d}.wav" for i in rows],
                [f"class {i % CLASSES}" for i in rows],
                [f"speaker {i % GROUPS}" for i in rows],
                [2 * RATE + i * 7919 % RATE * 2 for i in rows],
                [RATE] * len(rows),
                [1] * len(rows),
            ]
            writer.write_table(pa.table(columns, schema=schema))


def pretend_to_write(job, folder, writers, writer):
    """In the place of `write_phase`: infos and receipts of shards, without files."""
    import numpy as np

    from beam_pipeline.pipeline.finish import write_receipt
    from beam_pipeline.pipeline.planner import planned_work
    from beam_pipeline.planning.shards import ShardInfo, TallyKey, locate_examples
    from beam_pipeline.storage.pages import PageWriter
    from beam_pipeline.storage.tfrecord import SUFFIX, Members
    from beam_pipeline.write.shard import Observations
    from beam_pipeline.write.window_rows import WindowRows

    infos = PageWriter(folder)
    for work in planned_work(writer, folder, writers):
        shard, segments = work.shard, work.segments
        found = [locate_examples(segment, job.recipe) for segment in segments]
        starts, copies = (np.concatenate(part) for part in zip(*found, strict=True))
        random = np.random.default_rng(shard.number)
        sizes = random.integers(25_000, 60_000, shard.examples)
        levels = random.integers(-6000, 0, shard.examples)
        rows = WindowRows.of(starts, np.full(len(starts), RATE), copies)
        rows = rows._replace(levels=levels)
        seen = Observations.of(work.example_format)
        for segment in segments:
            key = TallyKey(shard.split, segment.clip.label, RATE)
            seen.examples[key] += segment.examples
        info = ShardInfo(
            shard,
            shard.name + SUFFIX,
            shard.examples,
            int(sizes.sum()),
            hashlib.sha256(shard.name.encode()).hexdigest(),
            members=Members(sizes, np.ones_like(sizes)).pack(),
            windows=rows.pack(),
            seen=seen.state(),
        )
        write_receipt(info, job.work_folder, job.claim)
        infos.add(info._replace(seen=None))
    return {"finished": [], "shards": list(infos.finish()), "rejects": []}


def run(command, kind, table, folder):
    """Plans or records a table in this process; returns when each part ended."""
    from beam_pipeline.api import plan, record
    from beam_pipeline.run import local

    options = {
        "win_len": RATE,
        "label_from": "kind",
        "columns": "none",
        "splits": SPLITS,
        **KINDS[kind],
    }
    ends = {}

    def timed(name, function):
        def call(*args, **kwargs):
            result = function(*args, **kwargs)
            ends[name] = time.perf_counter()
            return result

        return call

    def ending(name, function):
        def call(*args, **kwargs):
            ends[name] = time.perf_counter()
            return function(*args, **kwargs)

        return call

    started = time.perf_counter()
    if command == "plan":
        summary, rejects = plan(table, **options)
        assert len(rejects) == 0
        clips = summary.listing.clips
    else:
        local.plan_here = timed("planned", local.plan_here)
        local.write_phase = pretend_to_write
        local.finish_job = ending("written", local.finish_job)
        clips = record(table, Path(folder, "records"), **options, workers=2).clips
    ends["seconds"] = time.perf_counter()
    return {
        "clips": clips,
        **{name: round(end - started, 1) for name, end in ends.items()},
        "cpu_s": round(cpu_seconds(), 1),
    }


def memory_mb(root):
    """Returns the memory of a process and its descendants, shared pages once."""
    parents = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = Path("/proc", pid, "stat").read_text()
        except OSError:
            continue
        parents[int(pid)] = int(stat.rpartition(")")[2].split()[1])
    tree = {root}
    while more := {p for p, parent in parents.items() if parent in tree} - tree:
        tree |= more
    total = 0
    for pid in tree:
        try:
            lines = Path("/proc", str(pid), "smaps_rollup").read_text().splitlines()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def disk_mb(folder):
    """Returns the megabytes of the files below a folder."""
    size = 0
    for path in Path(folder).rglob("*"):
        try:
            size += path.stat().st_size
        except OSError:
            continue
    return size / 1e6


class Peaks(threading.Thread):
    """Looks at a process, and at the folder that it writes to, until it ends."""

    def __init__(self, pid, folder):
        super().__init__(daemon=True)
        self.memory_mb = self.disk_mb = 0.0
        self._pid = pid
        self._folder = folder
        self.done = threading.Event()

    def run(self):
        while not self.done.wait(LOOK_S):
            self.memory_mb = max(self.memory_mb, memory_mb(self._pid))
            self.disk_mb = max(self.disk_mb, disk_mb(self._folder))


def measure(command, kind, table):
    """Runs one command in a process of its own, whose temporary files are its own."""
    with tempfile.TemporaryDirectory(dir=Path(table).parent) as folder:
        words = [sys.executable, "-m", "tests.benchmarks.plan", "--one"]
        environment = {**os.environ, "TMPDIR": folder, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(
            [*words, command, kind, table, folder],
            stdout=subprocess.PIPE, text=True, env=environment,
        )  # fmt: skip
        peaks = Peaks(process.pid, folder)
        peaks.start()
        output, _ = process.communicate()
        peaks.done.set()
        if process.returncode:
            sys.exit(f"{command} {kind} failed")
    return {
        "command": command,
        "kind": kind,
        **json.loads(output.splitlines()[-1]),
        "peak_mb": round(peaks.memory_mb),
        "disk_mb": round(peaks.disk_mb),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clips", default="100000,1000000")
    parser.add_argument("--commands", default="plan,record")
    parser.add_argument("--kinds", default="hash,groups,stratified,listed")
    parser.add_argument("--folder", help="for tables and temporary files")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(run(*args.one)))
        return
    with tempfile.TemporaryDirectory(dir=args.folder) as folder:
        for clips in map(int, args.clips.split(",")):
            table = str(Path(folder, f"{clips}.parquet"))
            write_table(table, clips)
            for command in args.commands.split(","):
                for kind in args.kinds.split(","):
                    print(measure(command, kind, table), flush=True)


if __name__ == "__main__":
    main()
