"""The list of transforms, and that each is tested, measured and documented."""

import inspect
import re
from pathlib import Path

import pytest

from beam_pipeline.cli import main
from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.step_list import EXAMPLES, KINDS, list_steps
from beam_pipeline.transforms.steps import TRANSFORM
from tests.raising import raises

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "transforms.md"


def test_each_is_listed_as_the_documentation_has_it():
    page = PAGE.read_text()
    entries = list(list_steps([], 16000, 8000))
    for kind in KINDS:
        found = [entry for of, entry in entries if of is kind]
        assert [e.call.partition("(")[0] for e in found] == sorted(kind.table)
        for entry in found:
            name = entry.call.partition("(")[0]
            assert entry.text.endswith("."), name
            assert "\n" not in entry.text
            assert f"`{entry.call}`" in page, name
            if kind is not TRANSFORM:
                assert entry.result is entry.cost_us is None
                continue
            follows = name in ("as_image", "cmvn", "delta", "spec_augment")
            assert ("=?" in entry.call or follows) == (name in EXAMPLES)
            assert entry.cost_us > 0
            shape = r"(float32|complex64|uint8) (scalar|\d+(x\d+)*)"
            assert re.fullmatch(shape, entry.result)


@pytest.mark.parametrize(("text", "result"), [
    ("low_pass(cutoff_hz=1000)|log_mel(n_fft=256,hop=64,n_mels=9)", "float32 59x9"),
    ("mfcc(n_fft=256,hop=64,n_mels=20)|delta", "float32 59x20"),
    ("energy(above_db=-3)|peak()", None),
    ("noise()|speed(low=0.5)", None),
])  # fmt: skip
def test_expressions_are_tried(text, result):
    ((_, entry),) = list_steps([text], 16000, 4000)
    assert (entry.call, entry.tried, entry.text) == (text, text, "")
    assert entry.result == result


def test_what_cannot_be_tried_says_so():
    ((_, entry),) = list_steps(["log_mel()"], 16000, 100)
    assert entry.result is None
    assert entry.text.startswith("(here: n_fft: must not exceed the window's 100 fra")
    with raises(RecipeError, "feature", "mell", naming="mel"):
        list(list_steps(["mell"], 16000, 8000))


def test_the_command(capsys):
    assert main.main(["transforms", "rms", "--win-len", "4000"]) == 0
    said = capsys.readouterr().out
    assert re.match(r"rms\(frame=1024,hop=256\)  -> float32 12, \d+ us\n    Root", said)
    text = inspect.cleandoc(TRANSFORM.table["rms"].__doc__)
    assert text.splitlines()[-1] in said
    assert "--augment" not in said
    assert main.main(["transforms", "--win-len", "2000"]) == 0
    assert "\n--augment:\nbackground(" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main.main(["transforms", "--win-len", "0"])
