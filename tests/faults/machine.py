"""Faults of the machine while sounds and shards are read.

``failing_reads.c`` fails calls of open and read with an error of choice. It is loaded
into the processes of every try, and does nothing until a try tells it to.
"""

from __future__ import annotations

import errno
import json
import os
from pathlib import Path

from tests.faults.cases import case
from tests.faults.world import CannotTry, World, start_server

ERRORS = (
    errno.EIO, errno.ESTALE, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN,
    errno.ETIMEDOUT, errno.ENODATA,
)  # fmt: skip
FOR_EVER = -1


class Faults:
    """Calls that fail in a world, and how many there are without faults.

    Attributes
    ----------
    call : str
        ``open`` or ``read``.
    number : int
        That of the error.
    calls : int
        How many calls an undisturbed run makes for the path.
    """

    def __init__(self, world: World, path: Path, command: list[str] | None = None):
        if not start_server():
            raise CannotTry("there is no C compiler")
        self._world, self._path = world, path
        self._count = world.root / "count"
        self.call = world.random.choice(("open", "read"))
        self.number = world.random.choice(ERRORS)
        self.wanted = world.reference() if command is None else {}
        output, world.output = world.output, world.root / "counted"
        world.output.mkdir()
        status, said = self.run(*command or (), times=0)
        assert status == 0, said
        world.output = output
        self.calls = int.from_bytes(self._count.read_bytes(), "little")
        assert self.calls, "no call can fail"

    def run(
        self, *command: str, first: int = 0, times: int = FOR_EVER, more: str = ""
    ) -> tuple[int, str]:
        """Runs the job, or another command, while some calls fail."""
        self._count.write_bytes(bytes(8))
        environment = {
            "FAULT_PATH": str(self._path), "FAULT_CALL": self.call,
            "FAULT_ERRNO": str(self.number), "FAULT_COUNT": str(self._count),
            "FAULT_FIRST": str(first), "FAULT_TIMES": str(times),
        }  # fmt: skip
        arguments = list(command) or self._world.arguments(*more.split())
        return self._world.start_command(arguments, **environment).end()

    def some_call(self) -> int:
        """The number of a call of an undisturbed run."""
        return self._world.random.randrange(self.calls)


def check_nothing_rejected(world: World) -> None:
    """Fails if a run that did not end well has made a data set."""
    assert not (world.output / "metadata.json").exists()


def _continue(world: World, faults: Faults) -> None:
    """Gives the same command again, without faults."""
    status, said = world.run()
    assert status == 0, said
    world.check(faults.wanted)


@case("a call for a sound that fails once, twice or three times")
def some_calls_fail(world: World) -> str:
    faults = Faults(world, world.sounds)
    times = world.random.randint(1, 3)
    status, said = faults.run(first=faults.some_call(), times=times)
    assert status == 0, said
    world.check(faults.wanted)
    return f"recorded, {faults.call}"


def _for_ever(world: World, path: Path, named: str) -> str:
    faults = Faults(world, path)
    first = faults.some_call()
    status, said = faults.run(first=first)
    assert status == 1, said
    assert named in said, said
    assert "same command again" in said, said
    assert os.strerror(faults.number) in said, said
    check_nothing_rejected(world)
    stage = "no plan" if "no plan yet" in said else "all others written"
    again, said = faults.run()
    assert again == 1, said
    _continue(world, faults)
    return f"named ({stage}), and continued"


@case("a sound that is not readable from some moment on")
def a_sound_fails(world: World) -> str:
    path = world.random.choice(sorted(world.sounds.rglob("*.*")))
    return _for_ever(world, path, f"{path.parent.name}/{path.name}: ")


@case("a mount that is gone from some moment on")
def all_sounds_fail(world: World) -> str:
    return _for_ever(world, world.sounds, ".flac: " if world.workers > 9 else ": ")


@case("a sound on a dead sector, with --allow-unreadable")
def unreadable_sound(world: World) -> str:
    path = world.random.choice(sorted(world.sounds.rglob("*.*")))
    faults = Faults(world, path)
    flags = "--allow-unreadable"
    status, said = faults.run(more=flags)
    assert status == 3, said
    assert path.name in said, said
    status, said = faults.run(more=f"{flags} --max-rejected=1")
    assert status == 0, said
    lines = (world.output / "rejected.jsonl").read_text().splitlines()
    rejects = [json.loads(line) for line in lines]
    assert {reject["error"] for reject in rejects} == {"Unreadable"}, rejects
    assert {Path(reject["path"]).name for reject in rejects} == {path.name}, rejects
    kept = world.root / "kept"
    path.rename(kept)
    wanted = world.root / "without"
    status, said = world.run(output=wanted)
    assert status == 0, said
    kept.rename(path)
    shards = sorted(file.name for file in wanted.rglob("*.tfrecord.gz"))
    found = sorted(file.name for file in world.output.rglob("*.tfrecord.gz"))
    assert found == shards
    world.check_nothing_left()
    return "rejected as unreadable"


@case("a limit of open files that is too low")
def few_open_files(world: World) -> str:
    wanted = world.reference()
    most = world.random.randint(2, 16)
    run = world.start_command(world.arguments(), FAULT_OPEN_FILES=str(most))
    status, said = run.end()
    if status:
        check_nothing_rejected(world)
        assert status == 1, said
    status, said = world.run()
    assert status == 0, said
    world.check(wanted)
    return "was enough" if not status else "named, and continued"


@case("shards that are not readable")
def shards_fail(world: World) -> str:
    status, said = world.run()
    assert status == 0, said
    command = world.random.choice(
        (["verify"], ["verify", "--deep"], ["show"], ["report"])
    )
    command = [command[0], str(world.output), *command[1:]]
    if command[0] == "report":
        command.append(f"--output={world.root / 'report.html'}")
    faults = Faults(world, world.output, command)
    status, said = faults.run(*command, first=faults.some_call())
    assert status == 1, said
    assert str(world.output) in said, said
    assert os.strerror(faults.number) in said, said
    assert "repair" not in said, said
    assert "damaged" not in said, said
    status, said = world.start_command(["verify", str(world.output)]).end()
    assert status == 0, said
    return f"named by {command[0]}"
