"""The blocks of docs/frameworks.md run, in order, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

from launch.synthesise import write_clips
from tests.frameworks.conftest import need_installed

ROOT = Path(__file__).parents[2]

RUN = """
from tests.test_docs import Page, ROOT, blocks_of

path = ROOT / "docs" / "frameworks.md"
page = Page(path)
for block in blocks_of(path):
    page.run(block)
print("done")
"""


def test_the_blocks_run(tmp_path):
    need_installed("torch", "torchdata", "datasets", "keras", "grain", "jax")
    write_clips(tmp_path / "sounds", clips_per_class=8, seconds=2)
    environment = {
        **os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "USE_TF": "0",
        "USE_JAX": "0", "KERAS_BACKEND": "jax",
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", RUN],
        capture_output=True, text=True, cwd=tmp_path, env=environment,
    )  # fmt: skip
    assert done.stdout.endswith("done\n"), done.stderr  # after what record says
