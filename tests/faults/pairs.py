"""Pairs of runs at once on one output: at most one of them writes it.

    python -m tests.faults --only pairs --times 100

Each try takes two of the commands of :data:`COMMANDS` at random. In the end, the output
has the bytes of a command that succeeded, and no others.
"""

import atexit
import os
import shutil
import signal
import socket
import tempfile
import time
from contextlib import ExitStack
from functools import cache, partial
from pathlib import Path

from beam_pipeline import verify
from beam_pipeline.storage import claim
from tests import loopback
from tests.data_sets import contents
from tests.faults.cases import case, environment_of, store
from tests.faults.world import main_command, start_run, write_sounds

COMMANDS = ["record", "record other", "overwrite", "convert", "elements"]

# By how much the times of claims are shortened for these tries.
BEAT_S, WATCH_S = 0.1, 1.5


def arguments_of(command, sounds, output):
    """Returns the arguments of a command; ``elements`` is none of the command line."""
    if command == "elements":
        return ["elements", output]
    if command == "convert":
        return ["convert", f"{sounds}-recorded", output, "--num-shards=3"]
    more = {"record": [], "record other": ["--seed=3"],
            "overwrite": ["--seed=9", "--overwrite"]}[command]  # fmt: skip
    return ["record", f"--input={sounds}", f"--output={output}", "--win-seconds=.5",
            "--num-shards=4", "--workers=1", *more]  # fmt: skip


def run_command(arguments):
    """What the process of a run does; ``MACHINE`` is the name of a pretended one."""
    claim.BEAT_S, claim.WATCH_S, claim.PATIENCE_S = BEAT_S, WATCH_S, 0.2
    machine = os.environ.get("MACHINE")
    if machine:  # with a disk that both use, but without common locks
        vars(claim)["_boot"] = lambda: machine
        vars(claim)["_is_locked"] = lambda _: None
        socket.gethostname = lambda: machine
    if arguments[0] != "elements":
        return main_command(arguments)
    from beam_pipeline import record_examples
    from beam_pipeline.errors import AudioTFRecordsError

    try:
        examples = ({"number": n} for n in range(3000))
        record_examples(examples, arguments[1], num_shards=4, progress=False)
    except AudioTFRecordsError as error:
        print(error)
        return error.exit_status
    return 0


def start(root, command, output, *more, **environment):
    """Starts a command into an output."""
    (root / "tmp").mkdir(exist_ok=True)
    environment = {"TMPDIR": str(root / "tmp"), **environment}
    arguments = [*arguments_of(command, sounds(), output), *more]
    return start_run(root, run_command, arguments, environment)


@cache
def sounds():
    """Sounds for all tries, and beside them a data set to convert."""
    folder = Path(tempfile.mkdtemp(prefix="faults-pairs-"))
    atexit.register(partial(shutil.rmtree, folder, ignore_errors=True))
    write_sounds(folder / "sounds")
    return folder / "sounds"


@cache
def reference(command):
    """The files of a command that runs alone."""
    recorded = Path(f"{sounds()}-recorded")
    root = sounds().parent
    output = root / command.replace(" ", "-")
    if command == "convert" and not recorded.exists():
        assert start(root, "record", str(recorded)).end()[0] == 0
    status, said = start(root, command, str(output)).end()
    assert status == 0, said
    return contents(output)


def check(output, ends):
    """Fails unless the output is that of one command; returns what happened."""
    done = [command for command, status, _ in ends if status == 0]
    for _, status, said in ends:
        assert status == 0 or output in said, said
    assert done, ends
    found = loopback.contents_in(output)
    assert found in [reference(command) for command in done], (ends, sorted(found))
    assert verify(output) == []
    if len(done) == 2:  # one after the other
        assert done[0] == done[1] or "overwrite" in done, ends
        return "both done, one after the other"
    return "one refused"


def pair(world, places):
    """Starts two commands at nearly the same time."""
    commands = [world.random.choice(COMMANDS) for _ in places]
    for command in commands:
        reference(command)
    runs = []
    for command, (output, more, environment) in zip(commands, places, strict=True):
        flags = more if command.startswith(("record", "overwrite")) else []
        runs.append(start(world.root, command, output, *flags, **environment))
        time.sleep(world.random.choice((0.0, world.random.uniform(0, 0.3))))
    ends = [(c, *run.end()) for c, run in zip(commands, runs, strict=True)]
    real = places[0][0]
    said = [(c, status, text.replace(places[1][0], real)) for c, status, text in ends]
    return check(real, said)


@case("pairs of runs on one output")
def pairs(world):
    """Of two work folders, two temporary folders, a link, or two machines."""
    output, other = str(world.output), world.root / "other"
    ways = [
        [(output, [], {}), (output, [f"--work-dir={other}"], {})],
        [(output, [], {}), (output, [], {"TMPDIR": str(world.root)})],
        [(output, [], {}), (str(other), [], {})],
        [(output, [], {"MACHINE": name}) for name in "ab"],  # without common locks
    ]
    way = world.random.randrange(len(ways))
    if way == 2:
        other.symlink_to(world.output)
    return pair(world, ways[way])


@cache
def one_store():
    """Starts a store for all tries; returns the environment that leads there."""
    stack = ExitStack()
    atexit.register(stack.close)
    _, environment = stack.enter_context(store())
    return environment


@case("pairs of runs on two machines into a store")
def pairs_store(world):
    scheme = world.random.choice(("s3", "gs"))
    output = f"{scheme}://bucket/{world.root.name}"
    places = [(output, [], {"MACHINE": name, **one_store()}) for name in "ab"]
    with environment_of(one_store()):
        return pair(world, places)


@case("pairs: SIGSTOP of a run, another one takes over, SIGCONT")
def pairs_asleep(world):
    output = str(world.output)
    first = world.random.choice(COMMANDS)
    second = world.random.choice(COMMANDS)
    for command in (first, second):
        reference(command)
    asleep = start(world.root, first, output, MACHINE="a")
    time.sleep(world.random.uniform(0, 0.8))
    asleep.signal_all(signal.SIGSTOP)
    awake = start(world.root, second, output, MACHINE="b")
    end = awake.end()
    between = loopback.contents_in(output)
    asleep.signal_all(signal.SIGCONT)
    ends = [(second, *end), (first, *asleep.end())]
    if end[0] == 0 and ends[1][1] != 0:
        assert loopback.contents_in(output) == between == reference(second), ends
        assert verify(output) == []
        return "taken over"
    if all(status for _, status, _ in ends):  # the second refused what had begun
        assert not (world.output / "metadata.json").exists(), ends
        assert start(world.root, first, output).end()[0] == 0, ends
        assert loopback.contents_in(output) == reference(first)
        return "taken over and refused, then continued"
    if ends[1][1] == 0:  # what it could not delete, because it slept, the next one does
        shutil.rmtree(world.output / "_work", ignore_errors=True)
    check(output, ends)
    return "the first was done, or had not begun"
