"""Faults of runs that add to a finished data set."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from beam_pipeline import Metadata, open_records, verify
from tests.faults.cases import case, kill, kill_all, strike_and_continue
from tests.faults.world import RATE, Run, World, digests, small_disk

APPEND = ("--append", "--known=skip")


class Growing:
    """A finished data set, files to add to it, and what both have to become."""

    def __init__(self, world: World):
        self.output = world.output
        status, said = world.run()
        assert status == 0, said
        self._old = digests(world.output)
        self._examples = len(open_records(str(world.output)))
        write_more_sounds(world.sounds)
        # An append that nothing disturbs, to a copy; world.reference() is another run.
        shutil.copytree(world.output, world.root / "copy")
        world.output = world.root / "copy"
        self.wanted = world.reference_of(*APPEND)
        world.output = self.output

    def check_readable(self) -> None:
        """Fails unless a reader sees either the old data set, or the new one, whole."""
        found = digests(self.output)
        changed = {n for n, each in self._old.items() if found.get(n) != each}
        assert changed <= {"metadata.json"}, f"have changed: {sorted(changed)}"
        grown = bool(changed)
        assert grown == (len(Metadata.load(str(self.output)).generations) > 1)
        assert verify(str(self.output)) == []
        examples = len(open_records(str(self.output)))
        assert (examples > self._examples) == grown, examples


def write_more_sounds(folder: Path) -> None:
    """Adds clips of noise in two of the classes."""
    noise = np.random.default_rng(1).normal(0, 0.1, 8 * RATE).astype(np.float32)
    for k in range(8):
        soundfile.write(
            folder / "ab"[k % 2] / f"more-{k}.wav", noise[: (k + 1) * 4000], RATE
        )


def _strike(world: World, strike: Callable[[Run], None]) -> str:
    growing = Growing(world)
    look = growing.check_readable
    ended = strike_and_continue(world, strike, growing.wanted, APPEND, look)
    look()
    return ended


@case("SIGKILL of a run that appends")
def killed_append(world: World) -> str:
    return _strike(world, kill)


@case("SIGKILL of all processes of a run that appends")
def killed_append_group(world: World) -> str:
    return _strike(world, kill_all)


@case("a full disk under a data set that grows")
def full_disk_of_append(world: World) -> str:
    with small_disk(world.output, 200 << 20) as remount:
        growing = Growing(world)
        used = sum(path.stat().st_size for path in world.output.rglob("*"))
        size = used + int(world.random.uniform(0.05, 1.5) * 2**20)
        remount(f"size={size}")
        status, said = world.run(*APPEND)
        if status:
            assert status == 2, said
            assert str(world.output) in said, said
            assert "disk is full" in said, said
        growing.check_readable()
        remount("size=200m")
        again, said = world.run(*APPEND)
        assert again == 0, said
        world.check(growing.wanted)
    return "named and continued" if status else "had room"


@case("two runs that append to one data set")
def two_appends(world: World) -> str:
    growing = Growing(world)
    first = world.start(*APPEND)
    second = world.start(*APPEND)
    ends = sorted([first.end(), second.end()])
    (status, _), (other, said) = ends
    assert status == 0, ends
    assert other in (0, 2), said
    growing.check_readable()
    world.check(growing.wanted)
    return "one was refused" if other else "one after the other"
