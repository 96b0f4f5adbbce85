"""Recording with the two older libraries' way of working, and with ours.

    python -m tests.benchmarks seeds [--runs 3] [--only int32,examples]

``tests.originals`` writes as they do: eager, one element at a time, uncompressed. Ours
is ``record_dataset``, and ``beam_pipeline.tfrecorder``. Every measurement is a fresh
process; the order of the rows is reversed in every second run. Ratios are those of the
medians to the first row of each group.
"""

import argparse
import csv
import gzip
import importlib
import json
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.measuring import DATA, Row, Watch, measure, median_of, run_case

# This process imports nothing big: on Linux a child's peak memory starts at its own.
MODULE = "tests.benchmarks.seeds"
WIN_LEN = 32768
POOL = 64
SCALARS_PER_SIGNAL = 10

# Of the typed examples: values in a file, and in a chunk. The document cuts chunks of 5
# values, so that what a library adds to each example decides. For large chunks, GZIP
# decides, which the older library does not write.
DOCUMENT_CHUNKS = 1000, 5
LARGE_CHUNKS = 16384, 4096


# The data.


def make_elements(kind, count):
    """Return a `tf.data.Dataset` whose elements cost next to nothing to make."""
    import numpy as np
    import tensorflow as tf

    if kind == "scalars":
        return tf.data.Dataset.range(count).map(
            lambda i: {"index": i, "value": tf.cast(i, tf.float32) / 7}
        )
    rng = np.random.default_rng(0)
    pool = np.empty((POOL, WIN_LEN), kind)
    for row in pool:  # one by one, so that making them is not the peak of memory
        wave = 0.5 * np.sin(rng.uniform(0.01, 0.5) * np.arange(WIN_LEN))
        wave += 0.05 * rng.standard_normal(WIN_LEN)
        row[:] = np.round(wave * 32767) / (1 if kind == "int32" else 32768)
    pool = tf.constant(pool)
    classes = tf.constant(["cargo", "passenger", "tanker", "tug"])

    def element(i):
        target = i % 4
        name = tf.strings.join(["C:\\internal\\data\\", tf.as_string(i), ".wav"])
        return {
            "class": classes[target],
            "filepath": name,
            "index": i,
            "num_classes": tf.constant(4, tf.int64),
            "signal": pool[i % POOL],
            "target": target,
            "win_start_idx": tf.cast(i, tf.int32) * WIN_LEN,
        }

    return tf.data.Dataset.range(count).map(element)


def make_source_files(data, count, values):
    """Return the folder of `count` arrays of some values, and of `examples.csv`.

    It is made if it is not there; the CSV file is written last.
    """
    import numpy as np

    folder = Path(data, f"{count}-arrays-of-{values}")
    table = folder / "examples.csv"
    if not table.exists():
        folder.mkdir(parents=True, exist_ok=True)
        for i in range(count):
            rng = np.random.default_rng(i)
            np.save(folder / f"{i:06d}.npy", rng.standard_normal(values, np.float32))
        with table.open("w", newline="") as file:
            csv.writer(file).writerows((f"{i:06d}", i % 10) for i in range(count))
    return str(folder)


# The cases, each run in a process of its own.


def run_replica_records(output, *, kind, count, elements_per_file):
    """Record elements as tf_dataset does, but lose none."""
    from tests.originals import write_like_tf_dataset

    elements = make_elements(kind, count)
    with Watch() as watch:
        write_like_tf_dataset(elements, output, elements_per_file)
    return watch.result(**count_records(output, ".tfrecord"))


def run_our_records(output, *, kind, count, elements_per_file):
    """Record elements with `beam_pipeline.record_dataset`."""
    from beam_pipeline import record_dataset

    elements = make_elements(kind, count)
    with Watch() as watch:
        record_dataset(elements, output, elements_per_file=elements_per_file)
    return watch.result(**count_records(output, ".tfrecord.gz"))


def run_replica_examples(output, *, sources, chunk):
    """Record typed examples as TFRecorder does."""
    from tests.benchmarks.tfrecorder_engine import write_like_tfrecorder
    from tests.benchmarks.toy_example import ReplicaToyExample

    with Watch() as watch:
        write_like_tfrecorder(
            output,
            ReplicaToyExample,
            f"{sources}/examples.csv",
            **keywords(sources, chunk),
        )
    return watch.result(**count_records(output, ".tfr"))


def run_our_examples(output, *, sources, chunk, workers):
    """Record typed examples with `beam_pipeline.tfrecorder`."""
    factory = importlib.import_module("beam_pipeline.tfrecorder.factory")
    from tests.benchmarks.toy_example import ToyExample

    with Watch() as watch:
        factory.generate_and_save_train_eval_test_tfrecords_files(
            save_directory_path=output,
            example_class=ToyExample,
            examples_list_filepath=f"{sources}/examples.csv",
            workers=workers,
            **keywords(sources, chunk),
        )
    return watch.result(**count_records(output, ".tfrecord.gz"))


def keywords(sources, chunk):
    """Return what the hooks of the examples are given."""
    return {"src_data_dirpath": sources, "normalize": True, "chunk_size_in_bins": chunk}


def count_records(output, suffix):
    """Return the bytes and the records in the files with a suffix below a folder."""
    paths = [p for p in Path(output).rglob(f"*{suffix}") if "_work" not in p.parts]
    records = 0
    for path in paths:
        with (gzip.open if suffix.endswith(".gz") else open)(path, "rb") as file:
            while head := file.read(12):
                file.seek(int.from_bytes(head[:8], "little") + 4, 1)
                records += 1
    size = sum(path.stat().st_size for path in paths)
    return {"output_mb": round(size / 1e6, 1), "records": records}


CASES = {
    "replica_records": run_replica_records,
    "our_records": run_our_records,
    "replica_examples": run_replica_examples,
    "our_examples": run_our_examples,
}


# The groups: rows, and the number of records that each must write.


def record_rows(kind, options):
    """Elements of a dataset in files of a twentieth of them."""
    count = options.elements * (SCALARS_PER_SIGNAL if kind == "scalars" else 1)
    arguments = {"kind": kind, "count": count, "elements_per_file": max(1, count // 20)}
    return count, [
        Row("as tf_dataset", "replica_records", arguments, reference=True),
        Row("ours", "our_records", arguments),
    ]


def example_rows(options, values, chunk):
    """Arrays in files of their own, each split into chunks."""
    folder = make_source_files(options.data, options.files, values)
    sources = {"sources": folder, "chunk": chunk}
    return options.files * -(-values // chunk), [
        Row("as TFRecorder", "replica_examples", sources, reference=True),
        *(
            Row(f"ours, workers={n}", "our_examples", {**sources, "workers": n})
            for n in (1, 2)
        ),
    ]


GROUPS = {
    "int32": lambda options: record_rows("int32", options),
    "float32": lambda options: record_rows("float32", options),
    "scalars": lambda options: record_rows("scalars", options),
    "examples": lambda options: example_rows(options, *DOCUMENT_CHUNKS),
    "large": lambda options: example_rows(options, *LARGE_CHUNKS),
}


QUANTITIES = (
    "seconds", "process_s", "cpu_s", "peak_mb", "imports_mb", "output_mb", "records",
)  # fmt: skip
COLUMNS = (
    "group", "what", "s", "whole process s", "CPU s", "peak MB", "of it imports",
    "output MB", "records", "time ratio", "process ratio", "memory ratio",
)  # fmt: skip


def table(group, rows, results, wanted):
    """Return the Markdown lines of a group; ratios refer to its reference."""
    reference = next(
        result for row, result in zip(rows, results, strict=True) if row.reference
    )
    lines = []
    for row, result in zip(rows, results, strict=True):
        cells = [group, row.name]
        if "error" in result:
            cells += [result["error"], *[""] * (len(COLUMNS) - 3)]
        else:
            cells += [f"{result[key]:g}" for key in QUANTITIES]
            if result["records"] != wanted:
                cells[-1] += f" (expected {wanted})"
            for key in ("seconds", "process_s", "peak_mb"):
                known = reference.get(key)
                cells.append(f"{result[key] / known:.3f}" if known else "")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def main(argv=None):
    """Run the wanted groups and print one table."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks seeds", description=__doc__.splitlines()[0]
    )
    parser.add_argument("--data", default=DATA, help="where inputs and outputs are")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, by comma")
    parser.add_argument("--runs", type=int, default=3, help="of each row")
    parser.add_argument("--elements", type=int, default=2000, help="signals to record")
    parser.add_argument(
        "--files", type=int, default=3000, help="arrays of the examples"
    )
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.case:
        run_case(CASES, options.case)
        return
    groups = options.only.split(",")
    for name in groups:
        if name not in GROUPS:
            parser.error(f"--only must be of {', '.join(GROUPS)}, got {name!r}")
    for name in ("runs", "elements", "files"):
        if getattr(options, name) < 1:
            parser.error(f"--{name} must be at least 1, got {getattr(options, name)}")
    Path(options.data).mkdir(parents=True, exist_ok=True)
    lines = []
    for group in groups:
        wanted, rows = GROUPS[group](options)
        results = [[] for _ in rows]
        for run in range(options.runs):
            pairs = list(zip(rows, results, strict=True))
            for row, so_far in pairs if run % 2 == 0 else reversed(pairs):
                with tempfile.TemporaryDirectory(dir=options.data) as output:
                    so_far.append(measure(MODULE, row, f"{output}/out"))
                line = f"{group} | {row.name} | {json.dumps(so_far[-1])}"
                print(line, file=sys.stderr, flush=True)
        lines += table(group, rows, [median_of(several) for several in results], wanted)
    print("| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|", sep="\n")
    print(*lines, sep="\n")


if __name__ == "__main__":
    main()
