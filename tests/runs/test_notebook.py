"""What is run in a notebook, in a kernel of its own."""

from pathlib import Path

import nbformat
from nbclient import NotebookClient

import beam_pipeline
from tests.sounds import RATE, write_sound

REPOSITORY = Path(beam_pipeline.__file__).parents[2]

CELLS = (
    "from beam_pipeline import record",
    "metadata = record({input!r}, {output!r}, win_seconds=0.5)",
    "print(metadata.splits['records'].examples)",
)


def test_record_in_a_notebook(tmp_path, monkeypatch):
    for name in ("cat", "dog"):
        write_sound(tmp_path / "in" / name / "1.wav", 2 * RATE)
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    folders = {"input": str(tmp_path / "in"), "output": str(tmp_path / "out")}
    cells = [nbformat.v4.new_code_cell(text.format(**folders)) for text in CELLS]
    notebook = nbformat.v4.new_notebook(cells=cells)
    NotebookClient(
        notebook,
        kernel_name="python3",
        timeout=300,
        resources={"metadata": {"path": str(REPOSITORY)}},
    ).execute()
    printed = [o.text for o in cells[-1].outputs if o.get("name") == "stdout"]
    assert "".join(printed) == "8\n"
    # The private folder of the user stays, empty.
    assert [path for path in temporary.rglob("*") if not path.is_dir()] == []
    assert len(list(temporary.rglob("*"))) <= 1
