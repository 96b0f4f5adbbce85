"""Processes of this interpreter, which import the package from this checkout."""

import os
import subprocess
import sys
from pathlib import Path

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
