"""Faults of runs that replace a finished data set."""

from __future__ import annotations

from beam_pipeline import verify
from tests.faults.cases import case, kill, strike_and_continue
from tests.faults.world import World, digests, small_disk

REPLACE = ("--overwrite", "--seed=9")


class Replaced:
    """A finished data set, and what has to replace it."""

    def __init__(self, world: World):
        self._output = world.output
        status, said = world.run()
        assert status == 0, said
        self._old = digests(world.output)
        world.output = world.root / "undisturbed"
        self.wanted = world.reference_of(*REPLACE)
        world.output = self._output

    def is_old(self) -> bool:
        """Whether the old data set is there; fails if it is not whole then."""
        if not (self._output / "metadata.json").exists():
            return False
        found = digests(self._output)
        if self.wanted.items() <= found.items():
            return False
        differing = {n for n, each in self._old.items() if found.get(n) != each}
        assert not differing, f"have changed: {sorted(differing)}"
        assert verify(str(self._output)) == []
        return True


@case("SIGKILL of a run that replaces a data set")
def killed_replacement(world: World) -> str:
    replaced = Replaced(world)
    whole: list[bool] = []
    ended = strike_and_continue(
        world, kill, replaced.wanted, REPLACE, lambda: whole.append(replaced.is_old())
    )
    return f"{ended}; the old one was whole" if any(whole) else ended


@case("a full disk under a data set that is replaced")
def full_disk_of_replacement(world: World) -> str:
    with small_disk(world.output, 200 << 20) as remount:
        replaced = Replaced(world)
        used = sum(path.stat().st_size for path in world.output.rglob("*"))
        size = used + int(world.random.uniform(0.05, 1.2) * used)
        remount(f"size={size}")
        status, said = world.run(*REPLACE)
        if status:
            assert status == 2, said
            assert "disk is full" in said, said
            assert replaced.is_old()
        remount("size=200m")
        again, said = world.run(*REPLACE)
        assert again == 0, said
        world.check(replaced.wanted)
    return "named and continued; the old one was whole" if status else "had room"
