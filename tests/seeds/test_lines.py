"""What the founding documents show: each line with the test that shows it here."""

import ast
import csv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINES = list(csv.DictReader((ROOT / "tests/seeds/lines.csv").read_text().splitlines()))
# The lines of which no test can show anything, because TensorFlow has dropped it.
WITHOUT_TEST = {"capability 133"}


@pytest.fixture(scope="module")
def tests_in():
    """The names of the tests in a file."""
    found = {}

    def names(file):
        if file not in found:
            tree = ast.parse((ROOT / file).read_text())
            functions = (n for n in tree.body if isinstance(n, ast.FunctionDef))
            found[file] = {function.name for function in functions}
        return found[file]

    return names


def test_every_line_is_there_once():
    names = [line["line"] for line in LINES]
    assert names == [
        *(f"document {k}" for k in range(1, 36)),
        *(f"capability {k}" for k in range(1, 135)),
    ]


def test_every_line_names_a_test_that_exists(tests_in):
    missing = []
    for line in LINES:
        if line["line"] in WITHOUT_TEST:
            assert " " in line["shown by"]  # the reason
            continue
        file, _, name = line["shown by"].partition("::")
        if not (ROOT / file).is_file() or name not in tests_in(file):
            missing.append((line["line"], line["shown by"]))
    assert missing == []
