"""The list of transforms, and that each is tested, measured and documented."""

import inspect
import re
from pathlib import Path

import pytest

from beam_pipeline.cli import main
from beam_pipeline.transforms.steps import EXAMPLES, KINDS, TRANSFORM, describe_steps

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "transforms.md"
RESULT = r"  -> (float32|complex64|uint8) (scalar|\d+(x\d+)*), \d+ us$"


def test_each_is_listed_as_the_documentation_has_it():
    page = PAGE.read_text()
    sections = describe_steps([], 16000, 8000).split("\n\n")
    assert [text.splitlines()[0] for text in sections[1:]] == [
        f"--{kind.field.replace('_', '-')}:" for kind in KINDS if kind.table
    ][1:]
    for kind, section in zip(KINDS, sections, strict=False):
        found = re.findall(r"^(\w.*\))(.*)\n(  \w.*)?(?:\n)?    (.*)$", section, re.M)
        assert [call.partition("(")[0] for call, *_ in found] == sorted(kind.table)
        for call, result, tried, text in found:
            name = call.partition("(")[0]
            assert text.endswith("."), name
            assert f"`{call}`" in page, name
            if kind is not TRANSFORM:
                assert result + tried == ""
                continue
            assert bool(tried) == (name in EXAMPLES)
            assert re.search(RESULT, result or tried)


@pytest.mark.parametrize(("text", "result"), [
    ("low_pass(cutoff_hz=1000)|log_mel(n_fft=256,hop=64,n_mels=9)", "float32 59x9"),
    ("mfcc(n_fft=256,hop=64,n_mels=20)|delta", "float32 59x20"),
    ("log_mel(n_fft=8000)", "(here: n_fft: must not exceed the window's 4000 fra"),
    ("noise()|speed(low=0.5)", None),
])  # fmt: skip
def test_expressions_are_tried(text, result):
    said = describe_steps([text], 16000, 4000)
    assert said.endswith(text) if result is None else said.startswith(text)
    assert (result or "--augment:\n") in said


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
