"""Processes of this interpreter and of this checkout; the largest memory of one."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


def run_python(*words, status=0, stdin=None, cwd=ROOT, path=(), **environment):
    """Runs this interpreter to its end; returns what it said.

    Parameters
    ----------
    *words : str or Path
        What follows ``python``.
    status : int
        How the process has to end; negative: by a signal.
    path : sequence of Path
        More folders of modules.
    **environment : str
        Variables that are added, or replaced.
    """
    folders = ":".join(map(str, (ROOT, *path)))
    done = subprocess.run(
        [sys.executable, *map(str, words)], input=stdin, capture_output=True, text=True,
        timeout=900, cwd=cwd, env={**os.environ, "PYTHONPATH": folders, **environment},
    )  # fmt: skip
    assert done.returncode == status, done.stdout + done.stderr
    return done


def forget_peak_memory():
    """Starts the measurement of the peak anew."""
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError:
        pytest.skip("this system does not forget the peak of a process's memory")


def peak_memory_mib():
    """Returns the peak since then, in MiB."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) / 1024
