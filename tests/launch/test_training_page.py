"""docs/training.md shows the scripts of launch/train as they are."""

from __future__ import annotations

import pytest

from tests.test_docs import ROOT, blocks_of

SCRIPTS = ROOT / "launch" / "train"
SHOWN = (
    "digits.py", "keras_digits.py", "torch_digits.py", "jax_digits.py",
    "keras_events.py",
)  # fmt: skip


def lines_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line]


def test_each_line_is_shown_once_and_in_order() -> None:
    blocks = [b for b in blocks_of(ROOT / "docs" / "training.md") if b.tag == "python"]
    shown = [line for block in blocks for line in lines_of(block.text)]
    written = [
        line for name in SHOWN for line in lines_of((SCRIPTS / name).read_text())
    ]
    assert shown == written


@pytest.mark.parametrize("name", SHOWN)
def test_a_script_is_a_page(name: str) -> None:
    assert len((SCRIPTS / name).read_text().splitlines()) <= 120
