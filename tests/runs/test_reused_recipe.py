"""A recipe of a data set for other data: its classes keep their numbers."""

import pytest

from beam_pipeline import Metadata, Recipe, open_records, plan, record
from beam_pipeline.cli.main import main
from beam_pipeline.dataset.side_by_side import as_recorded, reused_recipe
from beam_pipeline.elements.record_examples import record_examples
from beam_pipeline.errors import InputError, OutputError, TooManyRejected
from beam_pipeline.read.verify import verify
from tests.raising import raises
from tests.sounds import write_sound


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """``a`` has owl and tit, ``b`` only tit, ``c`` only bat; ``out`` is of ``a``."""
    folder = tmp_path_factory.mktemp("before")
    for path in ("a/owl/1", "a/tit/2", "b/tit/3", "c/bat/4"):
        write_sound(folder / f"{path}.wav", 1200, seed=int(path[-1]))
    record(folder / "a", folder / "out", win_len=500)
    return folder


def targets(folder):
    return {(e["class"], int(e["target"])) for e in open_records(folder)}


def test_classes_keep_their_numbers(before, tmp_path):
    metadata = Metadata.load(before / "out")
    made = record(before / "b", tmp_path / "python", recipe=metadata)
    assert targets(tmp_path / "python") == {("tit", 1)}
    assert made.classes == ("owl", "tit")
    places = ["--input", str(before / "b"), "--output", str(tmp_path / "shell")]
    recipe = ["--recipe", str(before / "out" / "metadata.json")]
    assert main(["record", *places, *recipe]) == 0
    assert Metadata.load(tmp_path / "shell") == made
    # Recorded twice, resumed, verified and planned like any other.
    assert record(before / "b", tmp_path / "python", recipe=metadata) == made
    assert verify(tmp_path / "shell", deep=True, input=before / "b") == []
    summary, _ = plan(before / "b", recipe=metadata)
    assert summary.example_format.classes == ("owl", "tit")


def test_the_data_set_itself_is_complete(before, tmp_path, capsys):
    found = []
    metadata = Metadata.load(before / "out")
    record(before / "a", before / "out", recipe=metadata, found=found.append)
    assert found == [metadata]
    with raises(OutputError, naming=["classes", "'tit,owl'"]):
        record(before / "a", before / "out", recipe=metadata, classes="tit,owl")


def test_another_class_is_rejected(before, tmp_path):
    metadata = Metadata.load(before / "out")
    with raises(TooManyRejected, naming=["bat/4.wav", "classes"]):
        record(before / "c", tmp_path / "out", recipe=metadata)
    # The options alone, with classes of their own:
    other = record(before / "c", tmp_path / "out", recipe=metadata.recipe)
    assert other.classes == ("bat",)
    record(before / "c", tmp_path / "named", recipe=metadata, classes="bat,owl")
    assert targets(tmp_path / "named") == {("bat", 0)}


def test_without_labels_there_are_no_classes(before, tmp_path):
    places = ["--input", str(before / "c"), "--output", str(tmp_path / "shell")]
    flags = ["--recipe", str(before / "out/metadata.json"), "--label-from", "none"]
    assert main(["record", *places, *flags]) == 0
    metadata = Metadata.load(before / "out")
    made = record(before / "c", tmp_path / "out", recipe=metadata, label_from="none")
    assert made == Metadata.load(tmp_path / "shell")
    assert made.classes == ()
    # A data set without classes has none to bring.
    assert reused_recipe(made) == made.recipe


def test_a_list_of_the_user_stays(before, tmp_path):
    made = record(before / "a", tmp_path / "out", win_len=500, classes="tit,owl,bat")
    assert reused_recipe(made) == made.recipe
    # It is an option of this recipe, so the same classes without it are another one.
    assert as_recorded(Recipe(win_len=500), made) == Recipe(win_len=500)


def test_elements_have_no_recipe(before, tmp_path):
    record_examples([{"x": 1}], tmp_path / "elements")
    made = Metadata.load(tmp_path / "elements")
    with raises(InputError, naming=["recipe", "audio"]):
        record(before / "a", tmp_path / "out", recipe=made)
