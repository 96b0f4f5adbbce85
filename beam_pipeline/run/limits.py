"""The limits of a run on this machine, and how much memory processes use."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from beam_pipeline.errors import ClipMemory, ClipTimeout
from beam_pipeline.plan.suspects import Suspect
from beam_pipeline.recipe.options import RunOptions

SECONDS = 600.0
SHARE_OF_MEMORY = 0.9

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")


@dataclass(frozen=True)
class Limits:
    """How long a step may take for one block of a clip, and how much memory a run may.

    ``given`` says whether the user has set one of them.
    """

    time_s: float = SECONDS
    memory_bytes: float = float("inf")
    given: bool = False

    @classmethod
    def of(cls, run: RunOptions) -> Limits:
        """Returns the limits of a run, with the defaults for this machine."""
        given = run.time_limit is not None or run.memory_limit is not None
        memory = run.memory_bytes()
        return cls(
            SECONDS if run.time_limit is None else run.time_limit,
            SHARE_OF_MEMORY * machine_bytes() if memory is None else memory,
            given,
        )

    def exclude(self, suspect: Suspect) -> bool:
        """Whether a suspect of an earlier run would not pass the limits of this one."""
        today = {
            ClipTimeout.__name__: self.time_s,
            ClipMemory.__name__: self.memory_bytes,
        }
        return today.get(suspect.error, 0.0) <= suspect.limit


NO_LIMITS = Limits(time_s=float("inf"))


def machine_bytes() -> float:
    """The memory of this machine, or of the container that this process is in."""
    found = list(_container_bytes())
    with suppress(OSError, ValueError):
        pages, size = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
        found.append(float(pages * size))
    return min(found, default=float("inf"))


def _container_bytes() -> Iterator[float]:
    """The limits of this process's control groups, of both versions."""
    places = [_CGROUPS / "memory.max", _CGROUPS / "memory" / "memory.limit_in_bytes"]
    with suppress(OSError):
        for line in (_PROC / "self" / "cgroup").read_text().splitlines():
            _, kinds, path = line.split(":", 2)
            own = Path(path.lstrip("/"))
            for group in (own, *own.parents):
                if not kinds:
                    places.append(_CGROUPS / group / "memory.max")
                elif kinds == "memory":
                    above = _CGROUPS / "memory" / group
                    places.append(above / "memory.limit_in_bytes")
    for place in places:
        with suppress(OSError, ValueError):  # there is none, or it is "max"
            yield float(place.read_text())


def resident_bytes(process: int) -> float:
    """The memory that a process has; 0 if that is not known.

    Fast, but memory that processes share counts for each of them.
    """
    with suppress(OSError, ValueError, IndexError):
        pages = (_PROC / str(process) / "statm").read_text().split()[1]
        return float(int(pages) * os.sysconf("SC_PAGE_SIZE"))
    return 0.0


def own_bytes(process: int) -> float:
    """The memory that a process has, with its part of what it shares; without files."""
    found = 0
    with suppress(OSError, ValueError, IndexError):
        for line in (_PROC / str(process) / "smaps_rollup").read_text().splitlines():
            name, _, value = line.partition(":")
            if name in ("Pss_Anon", "Pss_Shmem", "SwapPss"):
                found += int(value.split()[0]) * 1024
    return float(found)
