"""Transforms as text, and back."""

import importlib
import inspect
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline.cli import main
from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms import own_code
from beam_pipeline.transforms.base import Chain, Identity
from beam_pipeline.transforms.mel import LogMel
from beam_pipeline.transforms.signals import PeakGain, RmsGain
from beam_pipeline.transforms.steps import (
    EXAMPLES,
    KINDS,
    PLACEMENT,
    TRANSFORM,
    describe_steps,
    format_transform,
    parse_steps,
    parse_transform,
)
from tests.raising import assert_names, raises

MODULE = '''
import abc, dataclasses, functools

def double(windows):
    return windows * 2

@dataclasses.dataclass(frozen=True)
class Scale:
    by: float = 2.0
    name: str = "x"
    sizes: tuple = ()
    made: int = dataclasses.field(init=False, default=3)

    def __post_init__(self):
        if self.by == 0:
            raise ValueError("by zero")

    def __call__(self, windows):
        return windows * self.by

    @dataclasses.dataclass(frozen=True)
    class Inner:
        def __call__(self, windows):
            return windows

class Abstract(abc.ABC):
    @abc.abstractmethod
    def __call__(self, windows): ...

class Mute:
    """Not callable."""

HALF = Scale(0.5)
PARTIAL = functools.partial(double)
small = lambda windows: windows * 2
NUMBER = 3

def make_local(by):
    def local(windows):
        return windows * by
    return local

def make_class():
    @dataclasses.dataclass(frozen=True)
    class Local:
        by: float = 1.0

        def __call__(self, windows):
            return windows * self.by
    return Local

class Level(float):
    """A float to ==, with the text of a float."""
'''


@pytest.fixture
def own(tmp_path, monkeypatch):
    """A module of somebody's own transforms, importable as ``own_transforms``."""
    (tmp_path / "own_transforms.py").write_text(MODULE)
    (tmp_path / "own_broken.py").write_text("raise RuntimeError('no licence')")
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module("own_transforms")
    sys.modules.pop("own_transforms")


@pytest.mark.parametrize(("expression", "expected"), [
    ("identity()", Identity()),
    ("identity(dtype='int16')", Identity("int16")),
    ("peak_gain(level_db=-1)", PeakGain(-1.0)),
    ("rms_gain", RmsGain()),
    ("log_mel(n_fft=512,\n hop=128,)", LogMel(n_fft=512, hop=128)),
    ("log_mel(f_max=None, log='db')", LogMel(log="db")),
    ("peak_gain|log_mel", Chain((PeakGain(), LogMel()))),
    ("peak_gain() | rms_gain | identity()",
     Chain((PeakGain(), RmsGain(), Identity()))),
    ("own_transforms.double", lambda own: own.double),
    ("own_transforms.HALF", lambda own: own.HALF),
    ("own_transforms.Scale(by=0.5)", lambda own: own.HALF),
    ("own_transforms.Scale", lambda own: own.Scale()),
])  # fmt: skip
def test_parses(own, expression, expected):
    wanted = expected(own) if expression.startswith("own") else expected
    assert parse_transform(expression) == wanted


@pytest.mark.parametrize(("transform", "expected"), [
    (Identity(), "identity(dtype='float32')"),
    (LogMel(), "log_mel(n_fft=1024,hop=256,n_mels=64,f_min=0.0,f_max=None,"
     "center=False,pad_mode='constant',mel_scale='slaney',norm='slaney',"
     "floor=1e-10,log='ln')"),
    (Chain((RmsGain(), Identity("int16"))),
     "rms_gain(level_db=-20.0)|identity(dtype='int16')"),
    (" rms_gain | identity ( dtype = 'int16' ) ",
     "rms_gain(level_db=-20.0)|identity(dtype='int16')"),
    (PeakGain(0), "peak_gain(level_db=0.0)"),
    (LogMel(n_fft=np.int64(512), f_min=np.float32(0.5)),
     format_transform(LogMel(n_fft=512, f_min=0.5))),
    ("own_transforms.double|peak_gain",
     "own_transforms.double|peak_gain(level_db=0.0)"),
    ("own_transforms.HALF", "own_transforms.Scale(by=0.5,name='x',sizes=())"),
])  # fmt: skip
@pytest.mark.usefixtures("own")
def test_formats(transform, expected):
    assert format_transform(transform) == expected


# Somebody's own


@pytest.mark.parametrize(("expression", "facts"), [
    ("", []),
    ("peak_gain|", []),
    ("peak_gain rms_gain", ["invalid syntax"]),
    ("peak_gain()()", ["peak_gain() is no name"]),
    ("(lambda: 1)()", ["no name"]),
    ("noise[0]()", ["noise"]),
    ("log_mell()", ["log_mell", "log_mel", "analytic"]),
    ("zzz", ["zzz", "analytic"]),
    ("os.getcwd", ["os.getcwd", "Python's own"]),
    ("__main__.first", ["first", "Python"]),
    ("log_mel(hop=1,hop=2)", ["hop"]),
    ("log_mel(512)", ["log_mel"]),
    ("log_mel(**{'hop': 1})", ["log_mel"]),
    ("log_mel(log=db)", ["log=db"]),
    ("log_mel(hop=256", ["never closed"]),
    ("log_mel(hop=)", ["invalid syntax"]),
    ("log_mel(hop='\0')", ["null bytes"]),
    ("no_such_module.f", ["no_such_module", "ModuleNotFoundError"]),
    ("own_broken.f", ["own_broken", "RuntimeError: no licence"]),
    ("own_transforms.nothing", ["own_transforms", "nothing"]),
    ("own_transforms.Scale.Outer", ["own_transforms.Scale has no Outer"]),
    ("own_transforms.NUMBER", ["own_transforms.NUMBER", "int"]),
    ("own_transforms.Mute", ["own_transforms.Mute", "Mute"]),
    ("own_transforms.Mute(x=1)", ["own_transforms.Mute", "called"]),
    ("own_transforms.Abstract()", ["own_transforms.Abstract", "TypeError"]),
    ("own_transforms.Scale(by=0)", ["own_transforms.Scale", "ValueError"]),
    ("own_transforms.Scale(made=4)", ["made"]),
    ("own_transforms.double()", ["own_transforms.double"]),
    ("builtins.int", ["builtins.int", "int"]),
])  # fmt: skip
@pytest.mark.usefixtures("own")
def test_expressions_that_are_refused(expression, facts):
    with raises(RecipeError, "feature", expression) as caught:
        parse_transform(expression)
    assert_names(caught.value.args[1], *facts)


def test_a_bad_value_is_named_by_its_field():
    with raises(RecipeError, "feature: log_mel: hop", 0):
        parse_transform("peak_gain|log_mel(hop=0)")
    problem = "no parameter nfft; did you mean n_fft?"
    with raises(RecipeError, "feature: log_mel: LogMel", 512, naming=problem):
        parse_transform("log_mel(nfft=512)")


def test_an_option_of_one_step_takes_no_chain():
    with raises(RecipeError, "windows_at", "peaks()|sounds()", naming="2"):
        parse_steps("peaks()|sounds()", PLACEMENT)


def test_nothing_is_evaluated(tmp_path):
    witness = tmp_path / "witness"
    with pytest.raises(RecipeError):
        parse_transform(f"log_mel(hop=open({str(witness)!r}, 'w'))")
    assert not witness.exists()


@pytest.mark.parametrize(("make", "facts"), [
    (lambda own: own.PARTIAL, "functools.partial"),
    (lambda own: own.Scale, "Scale()"),
    (lambda own: own.HALF.__call__, "Scale.__call__"),
    (lambda own: own.Scale(sizes={1, 2}), "sizes={1, 2}"),
    (lambda own: own.Scale(by=own.Level(1.0)), ["by=1.0", "Level"]),
    (lambda own: own.Scale(by=float("nan")), "by=nan"),
])  # fmt: skip
def test_transforms_that_have_no_text(own, make, facts):
    with raises(RecipeError, "feature", naming=facts):
        format_transform(make(own))


def test_what_the_script_defines_is_found_by_name_and_hash(own, monkeypatch):
    monkeypatch.setattr(own.double, "__module__", "__main__")
    monkeypatch.setattr(own_code, "_given", {})
    text = format_transform(Chain((PeakGain(), own.double)))
    assert re.fullmatch(
        r"peak_gain\(level_db=0.0\)\|__main__\.double\['[0-9a-f]{64}'\]", text
    )
    assert parse_transform(text) == Chain((PeakGain(), own.double))
    assert format_transform(text) == text
    for other in (text[:-3] + "']", text[:-3] + "z']", text.rpartition("[")[0]):
        with raises(RecipeError, "feature", naming="double"):
            parse_transform(other)
    monkeypatch.setattr(own.double, "__defaults__", (1,))
    with raises(RecipeError, "feature", text, naming=["double", "changed"]):
        parse_transform(text)


def test_lambdas_and_local_functions(own, monkeypatch):
    monkeypatch.setattr(own_code, "_given", {})
    steps = own.small, own.make_local(2), own.make_local(3), own.make_class()(by=2.0)
    texts = [format_transform(step) for step in steps]
    assert len(set(texts)) == 4
    assert texts[0].startswith("own_transforms.lambda_['")
    assert texts[1].startswith("own_transforms.make_local.local['")
    assert texts[3].endswith("'](by=2.0)")
    assert [parse_transform(text) for text in texts] == list(steps)
    windows = np.ones((1, 5), np.float32)
    found = [parse_transform(text)(windows)[0, 0] for text in texts]
    assert found == [2, 2, 3, 2]


@pytest.mark.usefixtures("own")
def test_samples_cannot_be_had_again():
    for refused in ("log_mel()|rms()", "lufs()|peak_gain()", "log_mel()|delta()|rms()",
                    "log_mel()|gain(gain_db=1)|stft()",
                    "log_mel()|identity(dtype='int16')"):  # fmt: skip
        with raises(RecipeError, "feature", refused):
            parse_transform(refused)
    assert len(parse_transform("log_mel()|gain(gain_db=1)|delta()|delta()").steps) == 4
    assert len(parse_transform("log_mel()|own_transforms.double|rms()").steps) == 3


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
        found = re.findall(r"^(\w.*\))\n(?:(  \w.*)\n)?    (.*)$", section, re.M)
        assert [call.partition("(")[0] for call, *_ in found] == sorted(kind.table)
        for call, tried, text in found:
            name = call.partition("(")[0]
            assert text.endswith("."), name
            assert f"`{call}`" in page, name
            if kind is not TRANSFORM:
                assert tried == ""
                continue
            assert tried.startswith("  " + EXAMPLES.get(name, f"{name}()"))
            assert re.search(RESULT, tried)


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
    assert re.match(r"rms\(.*\)\n  rms\(\)  -> float32 12, \d+ us\n    Root", said)
    text = inspect.cleandoc(TRANSFORM.table["rms"].__doc__)
    assert text.splitlines()[-1] in said
    assert "--augment" not in said
    assert main.main(["transforms", "--win-len", "2000"]) == 0
    assert "\n--augment:\nbackground(" in capsys.readouterr().out
    with pytest.raises(SystemExit):
        main.main(["transforms", "--win-len", "0"])
