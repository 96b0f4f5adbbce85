"""The hash of code of a script or a notebook: what changes it, and what has none."""

import itertools
import linecache
import re
import sys

import pytest

from beam_pipeline.transforms.own_code import UnknownCode, code_sha256
from tests.processes import run_python
from tests.raising import assert_names

CELL = '''
import dataclasses, functools, re, threading
import numpy as np
from beam_pipeline.transforms import per_window

GAIN = 2.0
EDGES = [1, (2.5, "a"), {"b": {3, 4}}]
KERNEL = np.arange(4, dtype=np.float32)
UNUSED = threading.Lock()
PATTERN = re.compile("x+")

def helper(windows):
    return windows * GAIN

def direct(windows, by=1.5, *, more=None):
    """Doc."""
    return [helper(windows) for _ in EDGES], KERNEL, np.abs, PATTERN

def forever(windows):
    return forever(windows)

@per_window
def decorated(window):
    return window * GAIN

def wrap(function):
    @functools.wraps(function)
    def wrapped(windows):
        return function(windows) + GAIN
    return wrapped

@wrap
def twice(windows):
    return windows

class Base:
    LEVEL = GAIN

    def level(self):
        return self.LEVEL

@dataclasses.dataclass(frozen=True)
class Band(Base):
    low: float = 1.0
    high: float = 2.0

    def __call__(self, windows):
        return helper(windows) + self.level() + super().level()

    @property
    def width(self):
        return self.high - self.low

    @staticmethod
    def of(windows):
        return KERNEL

@dataclasses.dataclass(frozen=True, slots=True)
class Slotted:
    low: float = 1.0

    def __call__(self, windows):
        return BAND
BAND = Band(3.0)

def by_band(windows):
    return BAND(windows)

def opaque(windows):
    return UNUSED

def defaulted(windows, by=UNUSED):
    return by

'''
NAMES = (
    "helper", "direct", "forever", "decorated", "twice", "Band", "Slotted", "by_band",
)  # fmt: skip
_number = itertools.count()


def run_cell(text, known=True, name="__main__"):
    """Runs a cell as a notebook does; returns its names."""
    file = f"<cell {next(_number)}>"
    if known:
        lines = text.splitlines(keepends=True)
        linecache.cache[file] = (len(text), None, lines, file)
    module = type(sys)(name)
    exec(compile(text, file, "exec"), vars(module))
    return vars(module)


@pytest.fixture(autouse=True)
def main(monkeypatch):
    """``dataclass`` looks its class's module up."""
    monkeypatch.setitem(sys.modules, "__main__", type(sys)("__main__"))


def hashes(text):
    cell = run_cell(text)
    return {name: code_sha256(cell[name]) for name in NAMES}


def test_hashes_are_equal_in_every_process():
    here = hashes(CELL)
    assert len(set(here.values())) == len(NAMES)
    assert all(re.fullmatch("[0-9a-f]{64}", each) for each in here.values())
    # Sets have another order there, and the script begins with other lines.
    script = (
        "import sys\n\n" + CELL + "from beam_pipeline.transforms.own_code "
        "import code_sha256\n"
        f"print(*(code_sha256(globals()[n]) for n in {NAMES}))\n"
    )
    code = (
        "import sys, linecache, types; text = sys.stdin.read()\n"
        "linecache.cache['s'] = (len(text), None, text.splitlines(True), 's')\n"
        "exec(compile(text, 's', 'exec'))"
    )
    found = run_python("-c", code, stdin=script).stdout.split()
    assert found == list(here.values())


@pytest.mark.parametrize(("old", "new", "changed"), [
    ("UNUSED = threading.Lock()", "UNUSED = 1", ""),
    ("def opaque", "# more\n\ndef opaque", ""),
    ("GAIN = 2.0", "GAIN = 2", "helper direct decorated twice Band Slotted "
     "by_band"),
    ("{3, 4}", "{3, 5}", "direct"),
    ("2.5", "2.25", "direct"),
    ("np.arange(4,", "np.arange(5,", "direct Band Slotted by_band"),
    ("dtype=np.float32", "dtype=np.float64", "direct Band Slotted by_band"),
    ('"x+"', '"x*"', "direct"),
    ("by=1.5", "by=1.6", "direct"),
    ("np.abs", "np.sin", "direct"),
    ("more=None", "more=0", "direct"),
    ('"""Doc."""', '"""Other."""', "direct"),
    ("return function(windows) + GAIN", "return function(windows) - GAIN",
     "twice"),
    ("@per_window", "@wrap", "decorated"),
    ("return self.LEVEL", "return -self.LEVEL", "Band Slotted by_band"),
    ("LEVEL = GAIN", "LEVEL = 7", "Band Slotted by_band"),
    ("class Band(Base)", "class Band(Base, Generic[T])", "Band Slotted by_band"),
    ("high: float = 2.0", "high: float = 2.5", "Band Slotted by_band"),
    ("self.high - self.low", "self.high", "Band Slotted by_band"),
    ("BAND = Band(3.0)", "BAND = Band(4.0)", "Slotted by_band"),
])  # fmt: skip
def test_what_changes_a_hash(old, new, changed):
    assert old in CELL
    first = "from typing import Generic, TypeVar\nT = TypeVar('T')\n"
    text = first + CELL.replace(old, new)
    if new == "@wrap":  # defined before it is used
        wrap = text[text.index("def wrap") : text.index("@wrap\ndef twice")]
        text = text.replace("@wrap\ndef decorated", wrap + "@wrap\ndef decorated")
    before, after = hashes(CELL), hashes(text)
    others = {name for name in NAMES if before[name] != after[name]}
    assert others == set(changed.split())


@pytest.mark.parametrize(("name", "facts"), [
    ("opaque", ["opaque", "the global UNUSED", "lock"]),
    ("defaulted", ["defaulted", "default", "lock"]),
    *((name, ["source"]) for name in NAMES),  # which is not known
])  # fmt: skip
def test_code_without_a_hash(name, facts):
    with pytest.raises(UnknownCode) as caught:
        code_sha256(run_cell(CELL, known=name not in NAMES)[name])
    assert_names(str(caught.value), *facts)


@pytest.mark.parametrize("new", ["* GAIN", "/ GAIN", "syntax error"])
def test_a_script_that_was_edited_while_it_runs(new):
    cell = run_cell(CELL)
    file = cell["helper"].__code__.co_filename
    size, time, lines, _ = linecache.cache[file]
    edited = [line.replace("windows * GAIN", f"windows {new}") for line in lines]
    linecache.cache[file] = (size, time, edited, file)
    if new == "* GAIN":
        assert code_sha256(cell["helper"]) == hashes(CELL)["helper"]
        return
    with pytest.raises(UnknownCode) as caught:
        code_sha256(cell["helper"])
    assert_names(str(caught.value), "helper", file)
