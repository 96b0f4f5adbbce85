"""Measure the package against other ways to do the same, side by side.

    python -m tests.benchmarks [--data DIR] [--only signal,memory] [--runs 3]
    python -m tests.benchmarks seeds      against older libraries; see seeds.py
    python -m tests.benchmarks readers    reading, against others; see readers.py

Every measurement is a fresh process that prints one line of JSON. Rows that are
compared alternate, the medians make one Markdown table. Machines differ and are busy
at times: only the ratios within one table mean something.
"""

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.benchmarks.measuring import (
    DATA,
    Row,
    Watch,
    measure,
    median_of,
    run_case,
    run_module,
)

# This process imports nothing big: on Linux a child's peak memory starts at its own.
MODULE = "tests.benchmarks"
WIN_LEN = 16000
LOG_MEL = {"log_mel": "log_mel(n_fft=1024,hop=256,n_mels=64)"}
BATCH = 64
EPOCHS = 5

# The cases, each run in a process of its own. They return what is known beyond time
# and memory.


def run_baseline(output, *, job, corpus):
    """Run a function of `baselines` with what it needs imported."""
    from tests.benchmarks import baselines

    if job.startswith("run_"):
        importlib.import_module("tensorflow")
        importlib.import_module("apache_beam.runners.portability.fn_api_runner")
    if job.endswith("log_mel"):
        # librosa imports and compiles its parts when they are first used.
        baselines.log_mel(baselines.np.zeros(WIN_LEN, "float32"), WIN_LEN)
    with Watch() as watch:
        getattr(baselines, job)(f"{corpus}/*/*.wav", f"{output}/records", 4)
    return watch.result(**count_output(output))


def run_ours(output, *, corpus, **keywords):
    """Run `beam_pipeline.record` with what it needs imported, by a short run before."""
    import numpy
    import soundfile

    from beam_pipeline import record

    with tempfile.TemporaryDirectory() as folder:
        soundfile.write(f"{folder}/a.wav", numpy.zeros(4 * WIN_LEN), WIN_LEN)
        record(f"{folder}/a.wav", f"{folder}/records", win_len=WIN_LEN, **keywords)
    with Watch() as watch:
        record(corpus, f"{output}/records", win_len=WIN_LEN, **keywords)
    return watch.result(**count_output(output))


def run_command(output, *, words):
    """Run a command to its end, in another process."""
    words = [word.format(python=sys.executable, output=output) for word in words]
    with Watch() as watch:
        done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        if "No module named beam_pipeline" in done.stderr:
            raise ModuleNotFoundError(done.stderr.strip(), name="beam_pipeline")
        raise RuntimeError(done.stderr.strip() or f"exit status {done.returncode}")
    return watch.result(**count_output(output))


def read_by_hand(output, *, records, variant):
    """Read a data set with `tf.data`, put together by hand in one of several ways."""
    from tests.benchmarks import baselines

    del output
    files = sorted(map(str, Path(records).rglob("*.tfrecord.gz")))
    return time_epochs(baselines.read_batches(files, BATCH, variant))


def read_ours(output, *, records, **keywords):
    """Read a data set with `beam_pipeline.replay`."""
    importlib.import_module("tensorflow")
    from beam_pipeline import replay

    del output
    return time_epochs(replay(records, batch_size=BATCH, **keywords))


def time_epochs(dataset):
    """Read a `tf.data.Dataset` several times: its tuning takes a while to settle."""
    import tensorflow as tf

    examples = 0
    with Watch() as watch:
        for batch in dataset.repeat(EPOCHS):
            examples += int(tf.nest.flatten(batch)[0].shape[0])
    return watch.result(examples=examples)


def count_output(output):
    """Return the bytes and the records in the shards below a folder."""
    shards = sorted(Path(output).rglob("*.tfrecord.gz"))
    if not shards:
        return {}
    size = sum(shard.stat().st_size for shard in shards)
    return {"output_mb": round(size / 1e6, 1), "examples": sum(map(records_in, shards))}


def records_in(shard):
    """Return the number of records in a shard, after inflating all of it."""
    from isal import igzip

    records = 0
    with igzip.open(shard) as file:
        while head := file.read(12):
            size = int.from_bytes(head[:8], "little") + 4
            if len(file.read(size)) != size:
                raise ValueError(f"{shard} ends in the middle of record {records}")
            records += 1
    return records


CASES = {
    "baseline": run_baseline,
    "ours": run_ours,
    "command": run_command,
    "read_by_hand": read_by_hand,
    "read_ours": read_ours,
}


# The table.


def signal_rows(bench):
    """The samples of 60 files of a minute."""
    return job_rows(bench.corpus(60, 60), "signal", {})


def log_mel_rows(bench):
    """The log-mel spectra of 60 files of a minute."""
    return job_rows(bench.corpus(60, 60), "log_mel", {"features": LOG_MEL})


def job_rows(corpus, name, keywords):
    """One job in three ways."""
    ours = {"corpus": corpus, "num_shards": 4, "workers": 1, **keywords}
    plain = {"corpus": corpus, "job": f"run_{name}"}
    loop = {"corpus": corpus, "job": f"loop_{name}"}
    return [
        Row("plain Beam", "baseline", plain, reference=True),
        Row("ours, 1 worker", "ours", ours),
        Row("loop without Beam", "baseline", loop),
    ]


def long_rows(bench):
    """Ten times the signal job, against the same loop without Beam."""
    corpus = bench.corpus(600, 60)
    ours = {"corpus": corpus, "num_shards": 4, "workers": 1}
    return [
        Row("ours, 600 files, 1 worker", "ours", ours),
        Row(
            "loop without Beam, 600 files",
            "baseline",
            {"corpus": corpus, "job": "loop_signal"},
            reference=True,
        ),
    ]


def memory_rows(bench):
    """Corpora of all lengths, one worker."""
    rows = []
    for name, files, seconds in (
        ("1 file of 1 min", 1, 60),
        ("1 file of 10 h", 1, 36000),
        ("60 files of 1 min", 60, 60),
        ("600 files of 1 min", 600, 60),
    ):
        corpus = bench.corpus(files, seconds)
        keywords = {"corpus": corpus, "num_shards": 4, "workers": 1}
        rows.append(Row(f"ours, {name}", "ours", keywords, reference=not rows))
    return rows


def scaling_rows(bench):
    """Signal and log-mel of a large corpus, with one and with two workers."""
    files = bench.scaling_files
    keywords = {
        "corpus": bench.corpus(files, 60),
        "num_shards": max(4, files // 15),
        "features": {"signal": "identity()", **LOG_MEL},
    }
    return [
        Row(
            f"ours, {files} files, workers={workers}",
            "ours",
            {**keywords, "workers": workers},
            reference=workers == 1,
        )
        for workers in (1, 2)
    ]


def startup_rows(bench):
    """Whole processes, from the shell to the shell."""
    corpus = bench.corpus(10, 3)
    module = ["{python}", "-m", "beam_pipeline"]
    record = [*module, "record", "--input", corpus, "--output", "{output}/records"]
    return [
        Row(
            "python -c 'import apache_beam'",
            "command",
            {"words": ["{python}", "-c", "import apache_beam"]},
            reference=True,
        ),
        Row("ours, --help", "command", {"words": [*module, "--help"]}),
        Row(
            "ours, record of 10 files of 3 s",
            "command",
            {"words": [*record, "--win-len", str(WIN_LEN)]},
        ),
    ]


def replay_rows(bench):
    """Reading back the samples of 60 files of a minute, in batches of 64."""
    records = {"records": bench.records()}
    hand = {
        "tf.data, reads in parallel, parse_example": "parse_example",
        "tf.data, reads in parallel, parse_single_example": "parse_single_example",
        "tf.data, interleave, parse_example": "interleave",
        "tf.data, interleave of parsed batches": "interleave_parsed",
    }
    rows = [
        Row(name, "read_by_hand", {**records, "variant": variant}, reference=True)
        for name, variant in hand.items()
    ]
    any_order = {**records, "deterministic": False}
    return [
        Row("ours, replay, order of the disk", "read_ours", records),
        Row("ours, replay, any order", "read_ours", any_order),
        *rows,
    ]


GROUPS = {
    "signal": signal_rows,
    "log_mel": log_mel_rows,
    "long": long_rows,
    "memory": memory_rows,
    "startup": startup_rows,
    "scaling": scaling_rows,
    "replay": replay_rows,
}


class Bench:
    """Where data lie, and how a measurement is made with them."""

    def __init__(self, data, scaling_files):
        self.data = Path(data).absolute()
        self.data.mkdir(parents=True, exist_ok=True)
        self.scaling_files = scaling_files
        self._records = None

    def corpus(self, files, seconds):
        """Return the folder of a corpus, made if it is not there."""
        words = ["--data", self.data, "--files", files, "--seconds", seconds]
        done = run_module("tests.benchmarks.corpus", *words)
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        return done.stdout.strip()

    def records(self):
        """Return a data set to read: ours, or the loop's while there is none of ours.

        It is kept until the object is closed.
        """
        self._records = tempfile.TemporaryDirectory(dir=self.data)
        _, ours, loop = signal_rows(self)
        for row in (ours, loop):
            output = Path(self._records.name, row.case)
            output.mkdir()
            result = measure(MODULE, row, str(output))
            if "error" not in result:
                return str(output / "records" if row is ours else output)
        raise RuntimeError(f"nothing to read: {loop.name} {result['error']}")

    def measure_fresh(self, row):
        """Return the result of a row, whose output is deleted afterwards."""
        with tempfile.TemporaryDirectory(dir=self.data) as output:
            return measure(MODULE, row, output)

    def close(self):
        """Delete what was recorded."""
        if self._records is not None:
            self._records.cleanup()


def table(group, rows, results):
    """Return the Markdown lines of a group; ratios refer to its best reference."""
    quantity = "peak_mb" if group == "memory" else "seconds"
    references = [
        result[quantity]
        for row, result in zip(rows, results, strict=True)
        if row.reference and quantity in result
    ]
    lines = []
    for row, result in zip(rows, results, strict=True):
        cells = [group, row.name]
        if "error" in result:
            cells += [result["error"], *[""] * 7]
        else:
            cells.append(f"{result['seconds']:.2f}")
            for key in ("cpu_s", "peak_mb", "imports_mb", "output_mb", "examples"):
                cells.append(f"{result[key]:g}" if key in result else "")
            examples = result.get("examples", 0)
            cells.append(f"{examples / result['seconds']:.0f}" if examples else "")
            value = result[quantity]
            cells.append(f"{value / min(references):.3f}" if references else "")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


COLUMNS = (
    "group", "what", "s", "CPU s", "peak MB", "of it imports", "output MB",
    "examples", "examples/s", "ratio",
)  # fmt: skip
FOOT = """
Medians. Ratio: time (memory: peak) relative to the reference of the group, which is
plain Beam, the loop, the shortest file, `import apache_beam`, one worker, the best
`tf.data`."""


def main(argv=None):
    """Run the wanted groups and print one table."""
    words = sys.argv[1:] if argv is None else argv
    if words[:1] in (["seeds"], ["readers"]):
        importlib.import_module(f"tests.benchmarks.{words[0]}").main(words[1:])
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=DATA, help="where corpora and outputs lie")
    parser.add_argument("--only", default=",".join(GROUPS), help="groups, by comma")
    parser.add_argument("--runs", type=int, default=3, help="of each row")
    parser.add_argument(
        "--scaling-files",
        type=int,
        default=1500,
        help="minutes of audio in the scaling corpus; one worker should take a minute",
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
    if options.runs < 1:
        parser.error(f"--runs must be at least 1, got {options.runs}")
    bench = Bench(options.data, options.scaling_files)
    lines = []
    try:
        for group in groups:
            rows = GROUPS[group](bench)
            results = [[] for _ in rows]
            for _ in range(options.runs):
                for row, so_far in zip(rows, results, strict=True):
                    so_far.append(bench.measure_fresh(row))
                    line = f"{group} | {row.name} | {json.dumps(so_far[-1])}"
                    print(line, file=sys.stderr, flush=True)
            lines += table(group, rows, [median_of(several) for several in results])
    finally:
        bench.close()
    print("| " + " | ".join(COLUMNS) + " |", "|---" * len(COLUMNS) + "|", sep="\n")
    print(*lines, FOOT, sep="\n")


if __name__ == "__main__":
    main()
