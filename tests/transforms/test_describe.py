"""The list of transforms, and that each is tested, measured and documented."""

import inspect
import re
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline.cli import main
from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.describe import EXAMPLES, list_all, list_some, streamed
from beam_pipeline.transforms.steps import (
    STEP_FIELDS,
    TRANSFORM,
    parse_stream,
)
from tests.raising import raises

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "transforms.md"


@pytest.fixture(scope="module")
def sources():
    return {path: path.read_text() for path in TESTS.rglob("*.py")}


@pytest.mark.parametrize("name", TRANSFORM.table)
def test_each_is_tested_and_measured(name, sources):
    constructed = re.compile(rf"\b{TRANSFORM.table[name].__name__}\(")
    measured = re.compile(rf"[\"'|]{name}\(")
    assert any(
        constructed.search(text)
        for path, text in sources.items()
        if path.is_relative_to(TESTS / "transforms")
    )
    assert any(
        measured.search(text) for path, text in sources.items() if "peers" in path.parts
    )


def test_names_are_sorted_and_documented():
    assert list(TRANSFORM.table) == sorted(TRANSFORM.table)
    for table in (TRANSFORM.table, *(kind.table for kind in STEP_FIELDS.values())):
        for cls in table.values():
            summary = cls.__doc__.partition("\n\n")[0]
            assert summary.endswith("."), cls


@pytest.mark.parametrize("name", TRANSFORM.table)
def test_each_is_listed(name):
    ((kind, entry),) = list_some([name], 16000, 8000)
    assert kind.field == "feature"
    assert entry.call.startswith(f"{name}(")
    follows = name in ("as_image", "cmvn", "delta", "spec_augment")
    assert ("=?" in entry.call or follows) == (name in EXAMPLES)
    assert entry.text == inspect.cleandoc(TRANSFORM.table[name].__doc__)
    assert entry.cost_us > 0
    assert re.fullmatch(r"(float32|complex64|uint8) (scalar|\d+(x\d+)*)", entry.result)


def test_the_documentation_lists_each_with_its_defaults():
    page = PAGE.read_text()
    for kind, entry in list_all(16000, 800):
        assert f"`{entry.call}`" in page, (kind.field, entry.call)


def test_steps_of_every_field_are_listed_with_result_and_cost():
    entries = list(list_all(16000, 8000))
    for kind in (TRANSFORM, *STEP_FIELDS.values()):
        found = [entry for of, entry in entries if of is kind]
        names = [entry.call.partition("(")[0] for entry in found]
        assert names == sorted(kind.table)
        results = {entry.result for entry in found}
        if kind.field == "keep":
            assert results == {"bool scalar"}
        elif kind.field == "windows_at":
            assert results == {"int64 scalar"}  # how many passages
        elif kind is not TRANSFORM and kind.table:
            assert results == {"float32 8000"}
    assert all(entry.cost_us > 0 and "\n" not in entry.text for _, entry in entries)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("low_pass(cutoff_hz=1000)|log_mel(n_fft=256,hop=64,n_mels=9)", "float32 59x9"),
        ("mfcc(n_fft=256,hop=64,n_mels=20)|delta", "float32 59x20"),
        ("energy(above_db=-3)|peak()", "bool scalar"),
        ("noise()|speed(low=0.5)", "float32 4000"),
        ("clip_gain(kind='rms')|high_pass(cutoff_hz=50)", "float32 4000"),
        ("high_pass(cutoff_hz=50)|clip_gain(kind='peak')", "float32 4000"),
    ],
)
def test_expressions_are_tried(text, result):
    ((_, entry),) = list_some([text], 16000, 4000)
    assert (entry.call, entry.tried, entry.text) == (text, text, "")
    assert entry.result == result


def test_a_clip_gain_is_tried_as_it_is():
    samples = np.full(1000, 0.25, np.float32)
    steps = parse_stream("clip_gain(kind='peak',level_db=0)")
    assert streamed(steps, samples, 8000).tolist() == [1.0] * 1000


def test_what_does_not_suit_the_window_says_so():
    ((_, entry),) = list_some(["log_mel()"], 16000, 100)
    assert entry.result is None
    assert entry.text.startswith("(here: n_fft: must not exceed the window's 100 fra")


def test_a_name_that_does_not_exist():
    with raises(RecipeError, "feature", "mell", naming="mel"):
        list(list_some(["mell"], 16000, 8000))


def test_the_command(capsys):
    assert main.main(["transforms", "rms", "--win-len", "4000"]) == 0
    said = capsys.readouterr().out
    assert re.match(r"rms\(frame=1024,hop=256\)  -> float32 12, \d+ us\n    Root", said)
    assert "--augment" not in said
    assert main.main(["transforms", "--win-len", "2000"]) == 0
    assert "\n--augment:\nbackground(" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main.main(["transforms", "--win-len", "0"])
