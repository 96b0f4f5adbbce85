"""Breaks the package on purpose, one mutant at a time: do the tests notice?

::

    python -m tests.mutants                        all mutants of mutants.yaml
    python -m tests.mutants --only other-job-continues
    python -m tests.mutants --unchanged            no patch: each has to survive

Each mutant is a copy of the package and its tests with one patch. A mutant is killed if
one of its tests fails, or does not end. The exit status is 1 if a mutant survived, if
its patch does not apply, or if its tests cannot be run.
"""

from __future__ import annotations

import argparse
import compileall
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import yaml

TABLE = Path(__file__).with_name("mutants.yaml")
COPIED = ("beam_pipeline", "tests", "docs", "launch")
COPIED_FILES = ("pyproject.toml", "setup.py", "README.md", "mkdocs.yml")

KILLED, SURVIVED, NO_PATCH = "killed", "SURVIVED", "patch does not apply"
# Exit statuses of pytest.
_PASSED, _FAILED = 0, 1


def main() -> int:
    """Runs the mutants that the command line names; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", action="append", metavar="NAME")
    parser.add_argument("--base", type=Path, default=Path(__file__).parents[2])
    parser.add_argument("--timeout", type=float, default=600.0, metavar="SECONDS")
    parser.add_argument("--unchanged", action="store_true", help="apply no patch")
    args = parser.parse_args()
    mutants = yaml.safe_load(TABLE.read_text())
    unknown = set(args.only or ()) - mutants.keys()
    if unknown:
        parser.error(f"no mutant is named {', '.join(sorted(unknown))}")
    results: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        template = copy_tree(args.base, Path(folder, "template"))
        for name in args.only or mutants:
            started = time.monotonic()
            copied = copy_tree(template, Path(folder, "mutant"))
            result = run(mutants[name], copied, args.unchanged, args.timeout)
            shutil.rmtree(copied)
            results[result.partition(":")[0]] += 1
            print(
                f"{name:32} {result} ({time.monotonic() - started:.0f} s)", flush=True
            )
    print(", ".join(f"{count} {result}" for result, count in results.items()))
    return int(set(results) != {KILLED})


def copy_tree(source: Path, target: Path) -> Path:
    """Copies what tests need, compiled, so that each mutant compiles one module."""
    for name in COPIED:
        shutil.copytree(source / name, target / name)
    for name in COPIED_FILES:
        shutil.copy2(source / name, target / name)
    compileall.compile_dir(target / "beam_pipeline", quiet=2)
    return target


def run(mutant: dict[str, Any], root: Path, unchanged: bool, timeout: float) -> str:
    """Applies the patch of a mutant in a copy, and returns what its tests said."""
    path = root / "beam_pipeline" / mutant["module"]
    text = path.read_text() if path.exists() else ""
    if text.count(mutant["old"]) != 1:
        return NO_PATCH
    if not unchanged:
        path.write_text(text.replace(mutant["old"], mutant["new"]))
    tests = [part for text in mutant["killed"]["by"] for part in shlex.split(text)]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider"]
    with subprocess.Popen(
        [*command, *tests],
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    ) as process:
        try:
            output, _ = process.communicate(timeout=timeout)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            return f"{KILLED}: the tests did not end in {timeout:g} s"
    if process.returncode == _PASSED:
        return SURVIVED
    lines = [line for line in output.splitlines() if "::" in line]
    failed = [line for line in lines if line.startswith(("FAILED ", "ERROR "))]
    if process.returncode == _FAILED and failed:
        return f"{KILLED}: {failed[0].split()[1]}"
    # A test file that is gone, or cannot be imported, kills nothing.
    return f"tests cannot be run: {output[-500:]}"


if __name__ == "__main__":
    sys.exit(main())
