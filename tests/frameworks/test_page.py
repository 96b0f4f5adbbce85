"""The blocks of pages on frameworks run, in order, in a process of their own."""

import pytest

from launch.synthesise import write_clips
from tests.frameworks.conftest import need_installed
from tests.processes import run_python

RUN = """
import sys

from tests.test_docs import Page, ROOT, blocks_of

path = ROOT / "docs" / sys.argv[1]
page = Page(path)
for block in blocks_of(path):
    page.run(block)
"""


@pytest.mark.parametrize(("page", "backend", "packages"), [
    ("frameworks.md", "jax", ("torch", "torchdata", "datasets", "grain", "jax")),
    ("scoring.md", "torch", ("torch",)),
])  # fmt: skip
def test_the_blocks_run(tmp_path, page, backend, packages):
    need_installed("keras", *packages)
    write_clips(tmp_path / "sounds", clips_per_class=8, seconds=2)
    run_python(
        "-c", RUN, page, cwd=tmp_path, HF_HUB_OFFLINE="1", USE_TF="0", USE_JAX="0",
        KERAS_BACKEND=backend,
    )  # fmt: skip
