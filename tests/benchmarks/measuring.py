"""What the benchmarks share: a row, its fresh process, and what is measured there.

This module imports nothing big: on Linux a child's peak memory starts at that of its
parent.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[2]
DATA = Path(tempfile.gettempdir(), "audio-tfrecords-benchmarks")
LIMIT_S = 3600
NOT_AVAILABLE = "not available"


@dataclass(frozen=True)
class Row:
    """One line of the table: what is run, and whether the others refer to it."""

    name: str
    case: str
    arguments: dict = field(default_factory=dict)
    reference: bool = False


class Watch:
    """Takes the time of a `with` block and the peak memory before and after it."""

    def __enter__(self):
        self.imports_mb = peak_mb()
        self.cpu_seconds = -cpu_seconds()
        self.seconds = -time.perf_counter()
        return self

    def __exit__(self, *error):
        self.seconds += time.perf_counter()
        self.cpu_seconds += cpu_seconds()
        self.peak_mb = peak_mb()

    def result(self, **more):
        return {
            "seconds": round(self.seconds, 3),
            "cpu_s": round(self.cpu_seconds, 2),
            "peak_mb": round(self.peak_mb),
            "imports_mb": round(self.imports_mb),
            **more,
        }


def peak_mb():
    """Return the peak of the largest of this process and its ended children, in MB."""
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10
    return max(usage.ru_maxrss for usage in usages()) / unit


def cpu_seconds():
    """Return the time that all cores spent on this process and its ended children."""
    return sum(usage.ru_utime + usage.ru_stime for usage in usages())


def usages():
    """Return the resources used by this process and by its ended children."""
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return [resource.getrusage(who) for who in both]


def run_module(name, *words, root=ROOT):
    """Run one of our modules, with one thread for each linear algebra library.

    `root` is the checkout that it is run in.
    """
    one_thread = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    return subprocess.run(
        [sys.executable, "-m", name, *map(str, words)],
        cwd=root,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **one_thread},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
    )


def measure(module, row, output, root=ROOT):
    """Return what a row's case prints in a process of its own, and the process' time.

    The module's `main` passes the words of `--case` to `run_case`. `root` is the
    checkout that it is run in.
    """
    began = time.perf_counter()
    words = ["--case", row.case, output, json.dumps(row.arguments)]
    try:
        done = run_module(module, *words, root=root)
    except subprocess.TimeoutExpired:
        return {"error": f"not done after {LIMIT_S} s"}
    seconds = time.perf_counter() - began
    lines = done.stdout.strip().splitlines()
    if done.returncode != 0 or not lines:
        reason = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        return {"error": f"failed: {reason[-1][:200]}"}
    result = json.loads(lines[-1])
    return result if "error" in result else {**result, "process_s": round(seconds, 2)}


def run_case(cases, words, optional=("beam_pipeline",)):
    """Run one case in this process and print its result as one line of JSON.

    `words` are the name of the case, a folder for its output, and its arguments as
    JSON. A case that lacks one of the `optional` packages is not available.
    """
    case, output, arguments = words
    try:
        result = cases[case](output, **json.loads(arguments))
    except ImportError as error:
        if not (error.name or "").startswith(tuple(optional)):
            raise
        result = {"error": NOT_AVAILABLE}
    print("\n" + json.dumps(result))


def median_of(results):
    """Return the medians of several results of one row, or the first error."""
    for result in results:
        if "error" in result:
            return result
    keys = results[0]
    return {key: statistics.median(result[key] for result in results) for key in keys}
