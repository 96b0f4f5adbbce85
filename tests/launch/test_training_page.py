"""docs/training.md shows parts of the scripts of launch/train as they are."""

from __future__ import annotations

import pytest

from tests.test_docs import ROOT, blocks_of

SCRIPTS = sorted((ROOT / "launch" / "train").glob("*.py"))


def code_of(text: str) -> str:
    """A text without its empty lines."""
    return "\n".join(line for line in text.splitlines() if line) + "\n"


def test_each_block_is_a_part_of_a_script() -> None:
    scripts = [code_of(path.read_text()) for path in SCRIPTS]
    blocks = [b for b in blocks_of(ROOT / "docs" / "training.md") if b.tag == "python"]
    assert len(blocks) == 3
    for block in blocks:
        assert any(code_of(block.text) in script for script in scripts), block.text


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.name)
def test_a_script_is_a_page(path) -> None:
    assert len(path.read_text().splitlines()) <= 120
