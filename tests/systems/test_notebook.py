"""What is run in a notebook, in a kernel of its own."""

from pathlib import Path
from xml.etree import ElementTree

import apache_beam as beam
import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

import beam_pipeline
from beam_pipeline import open_records, record
from beam_pipeline.errors import InputError
from beam_pipeline.run.local import in_memory_pipeline
from beam_pipeline.text import MOST_ROWS, html_table
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_sound

REPOSITORY = Path(beam_pipeline.__file__).parents[1]

CELLS = (
    "from beam_pipeline import open_records, record\nfrom beam_pipeline import plan",
    "metadata = record({input!r}, {output!r}, win_seconds=0.5)",
    "print(metadata.splits['records'].examples)",
    "open_records({output!r})[0]",
    "silent = record({input!r}, {output!r} + '2', win_seconds=0.5, watch=False)",
    "from dataclasses import dataclass\n"
    "GAIN = 2\n"
    "def mine(windows): return windows * GAIN\n"
    "@dataclass(frozen=True)\n"
    "class Mine:\n"
    "    def __call__(self, windows): return mine(windows)",
    "%time both = {{'mine': mine, 'of_class': Mine()}}\n"
    "made = record({input!r}, {output!r} + '3', win_len=9, features=both, watch=False)",
    "both['of_lambda'] = lambda windows: windows * GAIN\n"
    "made = record({input!r}, {output!r} + '4', win_len=9, features=both, watch=False)",
    "record({input!r}, {output!r} + '5', win_len=9, features={{'x': 'log_mle()'}})",
)


def text_of(cell, name):
    return "".join(o.text for o in cell.outputs if o.get("name") == name)


def test_record_in_a_notebook(tmp_path, monkeypatch):
    for name in ("cat", "dog"):
        write_sound(tmp_path / "in" / name / "1.wav", 2 * RATE)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    folders = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    cells = [nbformat.v4.new_code_cell(text.format(**folders)) for text in CELLS]
    NotebookClient(
        nbformat.v4.new_notebook(cells=cells),
        kernel_name="python3",
        timeout=300,
        allow_errors=True,
        resources={"metadata": {"path": str(REPOSITORY)}},
    ).execute()
    _, recorded, printed, shown, silent, _, own, of_lambda, failed = cells
    assert text_of(printed, "stdout") == "8\n"
    # The private folder of the user stays, and one of the process, both empty.
    assert [path for path in temporary.rglob("*") if not path.is_dir()] == []
    assert len(list(temporary.rglob("*"))) <= 2

    # A bar and nothing else: no script of Beam, no warning.
    assert {output.output_type for output in recorded.outputs} == {"stream"}
    assert_names(text_of(recorded, "stderr"), "8/8 examples")
    assert "WARNING" not in text_of(recorded, "stderr")
    assert silent.outputs == []
    (output,) = shown.outputs
    assert_names(output.data["text/html"], "signal")
    for cell in (own, of_lambda):
        assert [o for o in cell.outputs if o.output_type == "error"] == []
    example = open_records(tmp_path / "out4")[0]
    assert np.array_equal(example["mine"], example["of_class"])
    assert np.array_equal(example["mine"], example["of_lambda"])
    # An error in a notebook is one line, which says what to do.
    (error,) = failed.outputs
    assert error.ename == "RecipeError"
    assert_names(error.evalue, "feature x", "log_mle", "log_mel")
    assert error.traceback == [f"RecipeError: {error.evalue}"]


def texts_of(html):
    """The texts of a piece of HTML, of which all tags close."""
    return [*ElementTree.fromstring(f"<div>{html}</div>").itertext()]


@pytest.mark.parametrize("rows", [0, 1, MOST_ROWS, MOST_ROWS + 1])
def test_tables_are_escaped_and_short(rows):
    texts = texts_of(html_table(("<a>", "n"), [("<b>&", 1234)] * rows))
    body = min(rows, MOST_ROWS)
    tail = ["... and 1 more"] if rows > MOST_ROWS else []
    assert texts == ["<a>", "n", *["<b>&", "1,234"] * body, *tail]


def test_a_bar_where_it_is_asked_for(tmp_path, capsys):
    write_sound(tmp_path / "in" / "cat" / "1.wav", 2000)
    record(tmp_path / "in", tmp_path / "out", win_len=500)
    assert capsys.readouterr().err == ""
    record(tmp_path / "in", tmp_path / "bar", win_len=500, watch=True)
    assert_names(capsys.readouterr().err, "4/4 examples")


def _refuse(cause):
    raise InputError("no") from cause


@pytest.mark.parametrize("cause", [None, ValueError("why")])
def test_an_error_has_no_traceback_of_beam(cause):
    with raises(InputError) as caught, in_memory_pipeline() as pipeline:
        _ = pipeline | beam.Create([cause]) | beam.Map(_refuse)
    error = caught.value
    assert error.__suppress_context__
    assert repr(error.__cause__) == repr(cause)
