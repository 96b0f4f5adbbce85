"""The list of transforms, and that each is tested, measured and documented."""

import re
from pathlib import Path

import pytest

from beam_pipeline import cli
from beam_pipeline.errors import RecipeError
from beam_pipeline.expressions import STEP_FIELDS
from beam_pipeline.listing import list_steps, list_transforms
from beam_pipeline.transforms.catalogue import BUILT_IN

TESTS = Path(__file__).parent
README = TESTS.parent / "README.md"


@pytest.fixture(scope="module")
def sources():
    return {path: path.read_text() for path in TESTS.rglob("*.py")}


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_is_tested_measured_and_in_the_readme(name, sources):
    constructed = re.compile(rf"\b{BUILT_IN[name].__name__}\(")
    measured = re.compile(rf"[\"'|]{name}\(")
    assert any(
        constructed.search(text)
        for path, text in sources.items()
        if path.parent == TESTS
    )
    assert any(
        measured.search(text) for path, text in sources.items() if "peers" in path.parts
    )
    assert f"`{name}`" in README.read_text()


def test_names_are_sorted_and_documented():
    assert list(BUILT_IN) == sorted(BUILT_IN)
    for table in (BUILT_IN, *(kind.table for kind in STEP_FIELDS.values())):
        for cls in table.values():
            summary = cls.__doc__.partition("\n\n")[0]
            assert summary.endswith("."), cls


@pytest.mark.parametrize("name", BUILT_IN)
def test_each_is_listed(name):
    (entry,) = list_transforms(16000, 8000, [name])
    assert entry.call.startswith(f"{name}(")
    assert entry.text
    if entry.result is None:  # a parameter without a default, or a step of chains
        assert "=?" in entry.call or name == "delta"
    else:
        assert entry.cost_us > 0
        assert re.fullmatch(r"(float32|complex64) (scalar|\d+(x\d+)*)", entry.result)


def test_what_does_not_suit_the_window_says_so():
    (entry,) = list_transforms(16000, 100, ["log_mel"])
    assert entry.result is None
    assert "n_fft: must not exceed the window's 100 frames" in entry.text


def test_steps_of_other_fields():
    assert set(list_steps()) == {"stream", "keep", "augment"}
    assert any(e.call.startswith("clip_gain(") for e in list_steps()["stream"])


def test_a_name_that_does_not_exist():
    with pytest.raises(RecipeError, match="transforms: there are only analytic, "):
        list(list_transforms(16000, 8000, ["mell"]))


def test_the_command(capsys):
    assert cli.main(["transforms", "rms", "--win-len", "4000"]) == 0
    said = capsys.readouterr().out
    assert re.match(r"rms\(frame=1024,hop=256\)  -> float32 12, \d+ us\n    Root", said)
    assert "--augment" not in said
    assert cli.main(["transforms", "--win-len", "2000"]) == 0
    assert "\n--augment:\nnoise(" in capsys.readouterr().out
    assert cli.main(["transforms", "--win-len", "0"]) == 2
