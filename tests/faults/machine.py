"""Faults of the machine while sounds and shards are read.

``failing_reads.c`` fails calls of open and read with an error of choice. It is loaded
into the processes of every try, and does nothing until a try tells it to.
"""

import errno
import os
from pathlib import Path

from tests.data_sets import rejects_in
from tests.faults.cases import case
from tests.faults.world import CannotTry, start_server

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

    def __init__(self, world, path, command=None):
        if not start_server():
            raise CannotTry("there is no C compiler")
        self._world, self._path = world, path
        self._count = world.root / "count"
        self.call = world.random.choice(("open", "read"))
        self.number = world.random.choice(ERRORS)
        self.wanted = world.reference() if command is None else {}
        command = command or world.arguments(output=world.root / "counted")
        status, said = self.run(*command, times=0)
        assert status == 0, said
        self.calls = int.from_bytes(self._count.read_bytes(), "little")
        assert self.calls, "no call can fail"

    def run(self, *command, first=0, times=FOR_EVER, flags=()):
        """Runs the job, or another command, while some calls fail."""
        self._count.write_bytes(bytes(8))
        environment = {
            "FAULT_PATH": str(self._path), "FAULT_CALL": self.call,
            "FAULT_ERRNO": str(self.number), "FAULT_COUNT": str(self._count),
            "FAULT_FIRST": str(first), "FAULT_TIMES": str(times),
        }  # fmt: skip
        arguments = list(command) or self._world.arguments(*flags)
        return self._world.start_command(arguments, **environment).end()

    def some_call(self):
        """The number of a call of an undisturbed run."""
        return self._world.random.randrange(self.calls)


@case("a call for a sound that fails once, twice or three times")
def some_calls_fail(world):
    faults = Faults(world, world.sounds)
    times = world.random.randint(1, 3)
    status, said = faults.run(first=faults.some_call(), times=times)
    assert status == 0, said
    world.check(faults.wanted)
    return f"recorded, {faults.call}"


def _for_ever(world, path, named):
    faults = Faults(world, path)
    first = faults.some_call()
    status, said = faults.run(first=first)
    assert status == 1, said
    assert named in said, said
    assert "same command again" in said, said
    assert os.strerror(faults.number) in said, said
    assert not (world.output / "metadata.json").exists()
    stage = "no plan" if "no plan yet" in said else "all others written"
    again, said = faults.run()
    assert again == 1, said
    world.continue_to(faults.wanted)
    return f"named ({stage}), and continued"


@case("a sound that is not readable from some moment on")
def a_sound_fails(world):
    path = world.random.choice(sorted(world.sounds.rglob("*.*")))
    return _for_ever(world, path, f"{path.parent.name}/{path.name}: ")


@case("a mount that is gone from some moment on")
def all_sounds_fail(world):
    return _for_ever(world, world.sounds, ": ")


@case("a sound on a dead sector, with --allow-unreadable")
def unreadable_sound(world):
    path = world.random.choice(sorted(world.sounds.rglob("*.*")))
    faults = Faults(world, path)
    status, said = faults.run(flags=["--allow-unreadable"])
    assert status == 3, said
    assert path.name in said, said
    status, said = faults.run(flags=["--allow-unreadable", "--max-rejected=1"])
    assert status == 0, said
    found = {(Path(e["path"]).name, e["error"]) for e in rejects_in(world.output)}
    assert found == {(path.name, "Unreadable")}
    world.check_nothing_left()
    return "rejected as unreadable"


@case("a limit of open files that is too low")
def few_open_files(world):
    wanted = world.reference()
    most = world.random.randint(2, 16)
    run = world.start_command(world.arguments(), FAULT_OPEN_FILES=str(most))
    status, said = run.end()
    if status:
        assert not (world.output / "metadata.json").exists()
        assert status == 1, said
    world.continue_to(wanted)
    return "was enough" if not status else "named, and continued"


@case("shards that are not readable")
def shards_fail(world):
    world.succeed()
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
