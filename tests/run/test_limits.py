"""limits.py: how much memory there is, and when a suspect gets another try."""

import os
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline.errors import OptionError
from beam_pipeline.plan.suspects import Suspect
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.run import limits
from beam_pipeline.run.limits import Limits
from tests.raising import raises

PHYSICAL = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def suspect(error: str, limit: float) -> Suspect:
    return Suspect(0, 0, "a.wav", "decode", error, "it is bad", limit)


def test_the_defaults():
    found = Limits.of(RunOptions())
    assert (found.time_s, found.given) == (600, False)
    assert 0 < found.memory_bytes <= 0.9 * PHYSICAL


@pytest.mark.parametrize(
    ("value", "wanted"), [("8GB", 8e9), ("1MiB", 1 << 20), (12345, 12345)]
)
def test_given_limits(value, wanted):
    found = Limits.of(RunOptions(memory_limit=value, time_limit=0.5))
    assert found == Limits(0.5, wanted, given=True)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("time_limit", 0), ("time_limit", -1.0), ("time_limit", float("nan")),
        ("time_limit", "1"), ("time_limit", True),
        ("memory_limit", 0), ("memory_limit", -1), ("memory_limit", "much"),
        ("memory_limit", "0GB"), ("memory_limit", True), ("memory_limit", 1.5),
    ],
)  # fmt: skip
def test_limits_that_are_none(option, value):
    with raises(OptionError, option):
        RunOptions(**{option: value})


@pytest.mark.parametrize("option", ["time_limit", "memory_limit"])
def test_limits_are_none_of_a_runner(option):
    with raises(OptionError, option, naming="--runner"):
        RunOptions(**{option: 8}, beam_args=["--runner=FnApiRunner"])


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ({}, PHYSICAL),
        ({"fs/memory.max": "max\n"}, PHYSICAL),
        ({"fs/memory.max": "5000\n"}, 5000),
        ({"fs/memory/memory.limit_in_bytes": "6000\n"}, 6000),
        ({"fs/memory/memory.limit_in_bytes": f"{2**63 - 4096}\n"}, PHYSICAL),
        (
            {
                "proc/self/cgroup": "0::/pod/one\n",
                "fs/pod/one/memory.max": "max\n",
                "fs/pod/memory.max": "7000\n",
            },
            7000,
        ),
        (
            {
                "proc/self/cgroup": "12:cpu:/a\n9:memory:/b/c\n0::/\n",
                "fs/memory/b/c/memory.limit_in_bytes": "8000\n",
                "fs/memory/a/memory.limit_in_bytes": "1\n",
            },
            8000,
        ),
    ],
)
def test_the_memory_of_a_container(files, wanted, tmp_path: Path, monkeypatch):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr(limits, "_PROC", tmp_path / "proc")
    monkeypatch.setattr(limits, "_CGROUPS", tmp_path / "fs")
    assert limits.machine_bytes() == wanted


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="no /proc")
def test_the_memory_of_a_process():
    before = limits.resident_bytes(os.getpid()), limits.own_bytes(os.getpid())
    held = np.ones(1 << 24)
    after = limits.resident_bytes(os.getpid()), limits.own_bytes(os.getpid())
    for small, large in zip(before, after, strict=True):
        assert 0.9 * held.nbytes < large - small < 1.5 * held.nbytes
    assert limits.resident_bytes(2**30) == limits.own_bytes(2**30) == 0


def test_a_higher_limit_clears_a_suspect():
    today = Limits(time_s=5, memory_bytes=1000)
    assert today.exclude(suspect("ClipTimeout", 5))
    assert today.exclude(suspect("ClipTimeout", 6))
    assert not today.exclude(suspect("ClipTimeout", 4))
    assert today.exclude(suspect("ClipMemory", 1000))
    assert not today.exclude(suspect("ClipMemory", 999))
    assert today.exclude(suspect("ClipCrash", 0))
