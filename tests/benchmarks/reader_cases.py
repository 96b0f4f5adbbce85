"""The cases of `readers`: each is run in a process of its own."""

import gc
import hashlib
import json
import multiprocessing
import os
import resource
import struct
import time
import zlib
from pathlib import Path

from tests.benchmarks.measuring import Watch, peak_mb

WARM_S = 2
MODULO = 1 << 64
PAGE_VALUES = 4096 // 4

# Of the data set that is opened: examples in a shard, and bytes of an example.
SHARD_EXAMPLES = 4096
EXAMPLE_BYTES = 32000


def read(output, *, reader, form, folder, cache, expected, size, **keywords):
    """Read a form in one way, and compare what was read."""
    from tests.benchmarks.reader_ways import COUNT, WAYS

    del output
    feature = "log_mel" if folder.endswith("log_mel") else "signal"
    folder = f"{folder}/{form}"
    epoch = WAYS[reader](folder, feature, **keywords)
    examples, found, _ = check(epoch(), feature)
    if found is not None and found != expected:
        raise ValueError(f"the examples differ: {found} instead of {expected}")
    if examples != COUNT:
        raise ValueError(f"{examples} examples instead of {COUNT}")
    if cache == "cold":
        del epoch
        gc.collect()
        epoch = WAYS[reader](folder, feature, **keywords)
        drop_pages(folder)
    examples, workers_s = 0, -children_cpu_seconds()
    with Watch() as watch:
        ends = time.perf_counter() + (0 if cache == "cold" else WARM_S)
        while examples == 0 or time.perf_counter() < ends:
            examples += touch(epoch(), feature)
        workers_s += children_cpu_seconds()
    del epoch
    gc.collect()  # ends the workers, whose memory then counts
    result = watch.result(examples=examples, peak_mb=round(peak_mb()))
    result["cpu_s"] = round(result["cpu_s"] + workers_s, 2)
    result["per_cpu_s"] = round(examples / max(result["cpu_s"], 0.01), 1)
    result["rate"] = round(examples / watch.seconds, 1)
    result["mb_s"] = round(examples / watch.seconds * size / 1e6, 1)
    return result


def check(batches, feature):
    """Return the number of examples, the sum of their checksums, the bytes of one.

    The sum is None if they are bytes that are not parsed.
    """
    import numpy as np

    examples, total, size = 0, 0, 0
    for batch in batches:
        if "target" not in batch:
            examples, total = examples + 1, None
            continue
        numbers = [
            np.atleast_1d(np.asarray(batch[name]))
            for name in ("index", "target", "win_start_idx")
        ]
        count = len(numbers[0])
        values = np.asarray(batch[feature]).reshape(count, -1)
        size = values[0].nbytes
        for row, *three in zip(values, *numbers, strict=True):
            words = struct.pack("<qqq", *map(int, three))
            total += zlib.crc32(words, zlib.crc32(np.ascontiguousarray(row)))
        examples += count
    return examples, None if total is None else total % MODULO, size


def touch(batches, feature):
    """Return the number of examples, after reading a value of every page."""
    import numpy as np

    examples = 0
    for batch in batches:
        values = np.asarray(batch[feature])
        values.reshape(-1)[::PAGE_VALUES].max()
        examples += len(batch["target"]) if np.ndim(batch.get("target", 0)) else 1
    return examples


def children_cpu_seconds():
    """Return the time that cores spent on the children that live, on Linux."""
    seconds = 0
    for path in Path("/proc/self/task").glob("*/children"):
        for child in path.read_text().split():
            stat = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            seconds += (int(stat[11]) + int(stat[12])) / os.sysconf("SC_CLK_TCK")
    return seconds


def drop_pages(folder):
    """Tell the kernel to drop the pages of all files below a folder."""
    for path in Path(folder).rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


def checksum(output, *, folder):
    """Return the checksum of the examples as Python wrote them."""
    from tests.benchmarks.reader_forms import read_examples

    del output
    feature = "log_mel" if folder.endswith("log_mel") else "signal"
    examples, total, size = check(read_examples(f"{folder}/members"), feature)
    return {"examples": examples, "sum": total, "bytes": size}


def open_many(output, *, source, count):
    """Open a data set that says it has so many examples, and find one of them.

    It has the metadata and the index of members, without the shards, which are opened
    when an example is read.
    """
    make_index(output, source, count)
    from beam_pipeline import open_records

    imports = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    with Watch() as watch:
        records = open_records(output)
        records[-1:], len(records)
    if len(records) != count:
        raise ValueError(f"{len(records)} examples instead of {count}")
    index = Path(output, "members.index").stat().st_size
    # Not the process that made the index.
    peak = round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)
    result = watch.result(examples=count, output_mb=round(index / 1e6, 1))
    return {**result, "peak_mb": peak, "imports_mb": imports}


def make_index(output, source, count):
    """Write the metadata and the index of many examples, in a process that ends."""
    process = multiprocessing.get_context("spawn").Process(
        target=write_index_of, args=(output, source, count)
    )
    process.start()
    process.join()
    if process.exitcode:
        raise RuntimeError("the index was not made")


def write_index_of(output, source, count):
    """Write the metadata and the index of many examples, one a member."""
    import numpy as np

    from beam_pipeline.dataset.metadata import ShardEntry, ShardIndex, write_index

    described = json.loads(Path(source, "metadata.json").read_text())
    ((name, split),) = described["splits"].items()
    shards = []
    numbers = range(-(-count // SHARD_EXAMPLES))
    for number in numbers:
        examples = min(SHARD_EXAMPLES, count - number * SHARD_EXAMPLES)
        file = f"{name}-{number:05d}-of-{len(numbers):05d}.tfrecord.gz"
        offsets = np.arange(examples, dtype=np.int64) * EXAMPLE_BYTES
        sha256 = hashlib.sha256(file.encode()).hexdigest()
        size = examples * EXAMPLE_BYTES
        ones = np.ones(examples, np.int64)
        shards.append(
            ShardIndex.make(ShardEntry(file, examples, size, sha256), offsets, ones)
        )
    split["examples"] = count
    split["shards"] = [
        {
            **split["shards"][0],
            "file": s.file,
            "examples": s.examples,
            "bytes": s.bytes,
            "sha256": s.sha256,
        }
        for s in shards
    ]
    Path(output, "metadata.json").write_text(json.dumps(described))
    write_index(str(output), shards)


CASES = {"read": read, "checksum": checksum, "open": open_many}
