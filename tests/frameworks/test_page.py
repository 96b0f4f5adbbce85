"""The blocks of pages on frameworks run, in order, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from launch.synthesise import write_clips
from tests.frameworks.conftest import need_installed

ROOT = Path(__file__).parents[2]

RUN = """
import sys

from tests.test_docs import Page, ROOT, blocks_of

path = ROOT / "docs" / sys.argv[1]
page = Page(path)
for block in blocks_of(path):
    page.run(block)
print("done")
"""


@pytest.mark.parametrize(("page", "backend", "packages"), [
    ("frameworks.md", "jax", ("torch", "torchdata", "datasets", "grain", "jax")),
    ("scoring.md", "torch", ("torch",)),
])  # fmt: skip
def test_the_blocks_run(tmp_path, page, backend, packages):
    need_installed("keras", *packages)
    write_clips(tmp_path / "sounds", clips_per_class=8, seconds=2)
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "USE_TF": "0",
        "USE_JAX": "0", "KERAS_BACKEND": backend,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", RUN, page],
        capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.stdout.endswith("done\n"), done.stderr  # after what record says
