"""Batches of records in any order, which restart in the middle of an epoch.

::

    SourceReader    a trainer's share of some records, in the order of an epoch
      Reading       one iteration: which examples are read together, and where they go
    read_ahead      runs the tasks of batches in threads, within a limit of bytes
    Batches         an epoch after the other, and where the next batch is
"""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.permutation import Integers
from beam_pipeline.read.choices import check_number, check_values
from beam_pipeline.read.mixup import Mixup, check_mixup
from beam_pipeline.read.orders import (
    POOLED,
    MixedStretches,
    Shuffle,
    check_shuffle,
    make_order,
    stretch_length,
)
from beam_pipeline.read.scales import choose_scales, normalise
from beam_pipeline.read.sizes import (
    READ_AHEAD_BYTES,
    example_bytes,
    memory_bytes,
    usable_cores,
)
from beam_pipeline.write.process_settings import keep_freed_memory

if TYPE_CHECKING:
    import tensorflow as tf

# The order of so many examples is computed at once.
PLANNED = 8192

Batch = dict[str, Any]
Task = Callable[[], Any]
Submit = Callable[..., "Future[Any]"]


class Inline:
    """Runs a task where it is submitted, for reading without threads."""

    def submit(self, task: Task, *args: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(task(*args))
        except Exception as error:
            done.set_exception(error)
        return done

    def shutdown(self, wait: bool, cancel_futures: bool) -> None:
        pass


def read_ahead(
    plan: Callable[[Submit], Iterator[Task]],
    threads: int,
    limit: int,
    size: int,
) -> Generator[Batch, None, None]:
    """Yields the batches of a plan in its order, and reads the next ones meanwhile.

    Threads start with the first batch, in the process that iterates. They end when the
    iterator is exhausted, closed or collected, or raises. An error of a task is raised
    where its batch would be.

    Parameters
    ----------
    plan : function
        Takes a function that submits parts of batches to the threads, and returns the
        tasks that return batches. A task may wait for parts submitted before it.
    threads : int
        0: the tasks run in the caller, one at a time.
    limit : int
        About how many bytes of batches are held ahead. One batch is always read ahead.
    size : int
        About how many bytes a batch takes; the largest that was read counts, once
        there is one.
    """
    keep_freed_memory()  # batches are freed where the next ones are made
    # A pool without threads of its own also starts none after a fork.
    pool: Any = ThreadPoolExecutor(threads, "batches") if threads else Inline()
    process = os.getpid()
    waiting: deque[Future[Batch]] = deque()
    largest = 0
    try:
        tasks = plan(pool.submit)
        while True:
            fitting = limit // max(largest or size, 1)
            most = max(min(2 * threads, fitting), 1)
            while len(waiting) < most:
                task = next(tasks, None)
                if task is None:
                    break
                waiting.append(pool.submit(task))
            if not waiting:
                return
            batch = waiting.popleft().result()
            largest = max(largest, batch_bytes(batch))
            yield batch
            del batch
            if os.getpid() != process:
                raise InputError(
                    "The iteration began in another process, whose threads this one "
                    "does not have. Iterate over the batches anew, in this process."
                )
    finally:
        if os.getpid() == process:
            pool.shutdown(wait=False, cancel_futures=True)


def batch_bytes(batch: Mapping[str, Any]) -> int:
    """Returns about how many bytes of memory a batch takes."""
    return sum(_bytes(values) for values in batch.values())


def _bytes(values: Any) -> int:
    if isinstance(values, np.ndarray) and values.dtype != object:
        return values.nbytes
    return sum(
        value.nbytes if isinstance(value, np.ndarray) else 64 for value in values
    )


def gather(
    parts: Sequence[Future[Batch]],
    part_of: Integers,
    row_of: Integers,
) -> Batch:
    """Returns a batch whose example ``i`` is row ``row_of[i]`` of ``part_of[i]``."""
    used = [int(part) for part in np.unique(part_of)]
    batches = {part: parts[part].result() for part in used}
    rows = [(part, np.flatnonzero(part_of == part)) for part in used]
    made: Batch = {}
    for name, values in batches[used[0]].items():
        column: Any
        if isinstance(values, np.ndarray):
            column = np.empty((len(part_of), *values.shape[1:]), values.dtype)
            for part, places in rows:
                column[places] = batches[part][name][row_of[places]]
        else:
            column = [None] * len(part_of)
            for place, (part, row) in enumerate(zip(part_of, row_of, strict=True)):
                column[place] = batches[int(part)][name][int(row)]
        made[name] = column
    return made


class Source(Protocol):
    """What batches need of :class:`.Records`."""

    def __len__(self) -> int: ...

    @property
    def metadata(self) -> Metadata: ...

    @property
    def features(self) -> Mapping[str, FeatureSpec]: ...

    @property
    def folder(self) -> str: ...

    @property
    def statistics(self) -> tuple[str, ...]: ...

    @property
    def fingerprint(self) -> str: ...

    def read(self, indices: Any) -> dict[str, Any]: ...


class Rows(NamedTuple):
    """Example ``i`` is row ``row_of[i]`` of the part ``part_of[i]``."""

    parts: list[Future[Batch]]
    part_of: Integers
    row_of: Integers


class SourceReader:
    """A trainer's share of the epochs of some records, in their order.

    Parameters
    ----------
    source : Records
    shuffle : "global", "shards" or False
    seed : int
    shard : (int, int), optional
    normalize : bool or sequence of str

    Attributes
    ----------
    examples : int
        Examples of the share.
    smallest_share : int
        Examples of the smallest share of a trainer; it differs by at most one.
    read_bytes : int
        About how many bytes an example takes in memory.
    """

    def __init__(
        self,
        source: Source,
        shuffle: Shuffle,
        seed: int,
        shard: tuple[int, int] | None,
        normalize: bool | Sequence[str],
    ):
        self._source, self._shuffle, self._seed = source, shuffle, seed
        self._scales = choose_scales(
            source.metadata, source.features, normalize, source.statistics
        )
        index, count = shard or (0, 1)
        total = len(source)
        self.first = index * total // count
        self.examples = (index + 1) * total // count - self.first
        self.smallest_share = total // count
        self.read_bytes = memory_bytes(source.metadata, source.features.values())
        # Of all features, so that the order does not depend on those that are read.
        self._size = example_bytes(source.metadata.features.values())

    def identity(self) -> dict[str, Any]:
        """Returns what decides the order of the examples, and which they are."""
        found = {"examples": len(self._source), "fingerprint": self._source.fingerprint}
        if self._shuffle == "shards":
            found |= {"stretch": stretch_length(self._size), "stretches": POOLED}
        return found

    def order(self, epoch: int) -> Any:
        return make_order(
            len(self._source), self._shuffle, self._seed, epoch, self._size
        )

    def read(self, indices: Integers) -> Batch:
        return normalise(self._source.read(indices), self._scales)


class Reading:
    """One iteration over a source, which asks for ascending positions.

    Parameters
    ----------
    reader : SourceReader
    submit : function
        Gives work to the threads.
    threads : int
    """

    def __init__(self, reader: SourceReader, submit: Submit, threads: int):
        self._reader, self._submit, self._threads = reader, submit, threads
        self._epoch = -1
        self._order: Any = None
        self._planned, self._planned_at = np.zeros(0, np.int64), 0
        self._pools: dict[int, list[Future[Batch]]] = {}

    def task(self, epoch: int, position: int, count: int) -> Task:
        """Returns a task that reads some examples of one epoch."""
        self._begin(epoch)
        if isinstance(self._order, MixedStretches):
            return functools.partial(gather, *self._pooled(position, count))
        indices = self._indices(position, count)
        # Where fewer batches fit ahead than there are threads, they share a batch.
        fitting = READ_AHEAD_BYTES // max(count * self._reader.read_bytes, 1)
        sharing = -(-self._threads // max(fitting, 1))
        if sharing < 2 or count < 2:
            return functools.partial(self._reader.read, indices)
        pieces = np.array_split(indices, min(sharing, count))
        parts = [self._submit(self._reader.read, piece) for piece in pieces]
        part_of = np.repeat(np.arange(len(parts)), [len(piece) for piece in pieces])
        row_of = np.concatenate([np.arange(len(piece)) for piece in pieces])
        return functools.partial(gather, parts, part_of, row_of)

    def rows(self, epoch: int, position: int, count: int) -> Rows:
        """Returns where some examples of one epoch will be."""
        self._begin(epoch)
        if isinstance(self._order, MixedStretches):
            return self._pooled(position, count)
        part = self._submit(self._reader.read, self._indices(position, count))
        return Rows([part], np.zeros(count, np.int64), np.arange(count))

    def _begin(self, epoch: int) -> None:
        if epoch != self._epoch:
            self._epoch, self._order = epoch, self._reader.order(epoch)
            self._planned = self._planned[:0]
            self._pools = {}

    def _indices(self, position: int, count: int) -> Integers:
        start = position - self._planned_at
        if not 0 <= start <= start + count <= len(self._planned):
            stop = min(position + max(PLANNED, count), self._reader.examples)
            places = np.arange(position, stop) + self._reader.first
            self._planned, self._planned_at = self._order.at(places), position
            start = 0
        return self._planned[start : start + count]

    def _pooled(self, position: int, count: int) -> Rows:
        """Returns rows of the stretches of pools in memory.

        A pool is read when its first example is asked for, and the next pool with it.
        It is dropped after its last example.
        """
        first, order = self._reader.first, self._order
        positions = np.arange(position, position + count) + first
        numbers = order.pool_at(positions)
        last = int(order.pool_at(np.array(first + self._reader.examples - 1)))
        upto = min(int(numbers[-1]) + bool(self._threads), last)
        for pool in range(int(numbers[0]), upto + 1):
            if pool not in self._pools:
                self._pools[pool] = [
                    self._submit(self._reader.read, order.members(int(stretch)))
                    for stretch in order.pool(pool).stretches
                ]
        for pool in [pool for pool in self._pools if pool < numbers[0]]:
            del self._pools[pool]
        parts: list[Future[Batch]] = []
        part_of, row_of = np.empty_like(positions), np.empty_like(positions)
        for pool in np.unique(numbers):
            here = numbers == pool
            stretch, place = order.within(int(pool), positions[here])
            part_of[here], row_of[here] = stretch + len(parts), place
            parts += self._pools[int(pool)]
        return Rows(parts, part_of, row_of)


# JSON values that say where the next batch is.
State = dict[str, Any]


class BatchIteration(ABC):
    """An iterable of batches whose state is small.

    Attributes
    ----------
    features : mapping
        Name to :class:`.FeatureSpec`, for each feature of a batch.
    _state : dict
        Where the batch is that the caller gets next.
    _example_bytes : int
        About how much memory an example takes.
    """

    features: Mapping[str, FeatureSpec]
    _state: State
    _example_bytes: int

    def __init__(
        self,
        batch_size: int,
        shuffle: Shuffle,
        seed: int,
        shard: tuple[int, int] | None,
        drop_remainder: bool,
        normalize: bool | Sequence[str],
        threads: int | None,
    ):
        self._batch_size = check_number("batch_size", batch_size, 1)
        check_values(batch_size, drop_remainder, False, False, shard, normalize)
        self._shuffle = check_shuffle(shuffle)
        self._seed = check_number("seed", seed, None)
        self._shard = None if shard is None else (int(shard[0]), int(shard[1]))
        self._drop_remainder = drop_remainder
        self._threads = check_threads(threads)
        self._iteration = 0

    @abstractmethod
    def _plan(self, state: State, submit: Submit) -> Iterator[tuple[Task, State]]:
        """Yields a task for each batch of an iteration, and the state after it."""

    @abstractmethod
    def _next_epoch(self, state: State) -> State:
        """Returns the state at the beginning of the next epoch."""

    def _identity(self) -> dict[str, Any]:
        """Returns what decides the order and the data, as JSON values."""
        return {
            "seed": self._seed,
            "shuffle": self._shuffle,
            "shard": None if self._shard is None else list(self._shard),
            "batch_size": self._batch_size,
            "drop_remainder": self._drop_remainder,
        }

    @abstractmethod
    def _checked(self, state: Mapping[str, Any]) -> State:
        """Returns where a state is; raises InputError if it is damaged."""

    def __iter__(self) -> Iterator[Batch]:
        """Starts to give the batches from the current position to the epoch's end."""
        self._iteration += 1
        return self._iterate(self._iteration)

    def _iterate(self, iteration: int) -> Iterator[Batch]:
        self._check_latest(iteration)
        states: deque[State] = deque()
        start = self._state

        def plan(submit: Submit) -> Iterator[Task]:
            for task, state in self._plan(start, submit):
                states.append(state)
                yield task

        size = self._batch_size * self._example_bytes
        batches = read_ahead(plan, self._threads, READ_AHEAD_BYTES, size)
        with closing(batches):
            is_empty = True
            for batch in batches:
                is_empty = False
                # Before the caller has the batch, and may ask for the state.
                self._state = states.popleft()
                yield batch
                del batch  # the caller's, who may be done with it
                self._check_latest(iteration)
        if is_empty:
            self._state = self._next_epoch(start)

    def _check_latest(self, iteration: int) -> None:
        if iteration != self._iteration:
            raise InputError(
                "A newer iteration of these batches has begun, or a state was loaded. "
                "Iterate over one object at a time, or make another with `batches()`."
            )

    def to_tf(self) -> tf.data.Dataset:
        """Returns these batches as dicts of tensors, in a ``tf.data.Dataset``.

        Each pass over it is the next epoch. It calls Python in the process that
        iterates, so it cannot be saved as a graph, or sent to another process; and
        where it is prefetched, ``state_dict`` counts what was prefetched, too.
        Arrays whose lengths differ become ragged tensors.

        Raises
        ------
        InputError
            If tensors cannot hold a feature.
        """
        from beam_pipeline.read.replay import dataset_of

        size = self._batch_size if self._drop_remainder else None
        return dataset_of(self, self.features, size)

    def state_dict(self) -> dict[str, Any]:
        """Returns where the next batch is, as JSON values.

        It counts the batches that the caller has, not those read ahead. After the last
        batch of an epoch, it is the beginning of the next one.
        """
        return {**self._state, **self._identity()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues after the last batch that was given out before ``state_dict``.

        Parameters
        ----------
        state : mapping
            Of :meth:`state_dict`, of batches with the same records and arguments. Only
            ``epoch``, ``normalize``, ``mixup``, ``repeat`` and ``threads`` may differ,
            and the features that are read.

        Raises
        ------
        InputError
            If the state is of another order or data set; it names what differs.
        """
        check_identity(state, self._identity(), "batches")
        checked = self._checked(state)
        self._iteration += 1
        self._state = checked


def check_identity(
    state: Mapping[str, Any], identity: Mapping[str, Any], what: str
) -> None:
    """Raises InputError if a state is of another order or data set; says what differs.

    Parameters
    ----------
    state, identity : mapping
        The state has all items of the identity of what it is of.
    what : str
        What the state continues, in the plural.
    """
    if not isinstance(state, Mapping):
        raise InputError(f"A state is what `state_dict()` returned, and not {state!r}.")
    lacking = [name for name in identity if name not in state]
    if lacking:
        raise InputError(f"The state is none of {what}: it lacks {', '.join(lacking)}.")
    differ = [
        f"{name} is {state[name]!r} in the state, but {value!r} here"
        for name, value in identity.items()
        if state[name] != value
    ]
    if differ:
        raise InputError(
            f"The state is of other {what}, so it cannot be continued: "
            f"{'; '.join(differ)}."
        )


def check_threads(threads: int | None) -> int:
    """Returns the number of threads; by default, one for each usable core."""
    if threads is None:
        return usable_cores()
    return check_number("threads", threads)


def state_number(state: Mapping[str, Any], name: str, most: int | None = None) -> int:
    """Returns a number of a state; raises :class:`InputError` if there is none."""
    number = state.get(name)
    if isinstance(number, int) and number >= 0 and (most is None or number <= most):
        return number
    raise InputError(f"The state is damaged: {name} is {number!r}.")


class Batches(BatchIteration):
    """Batches of :class:`.Records`, made by :meth:`.Records.batches`.

    Iterating gives the batches from the current position to the end of the epoch, and
    the next iteration gives the next epoch::

        batches = records.batches(32, shuffle="global")
        for epoch in range(3):
            for batch in batches:
                ...

    A batch is a dict, as of :meth:`.Records.read`. An iteration that is left early is
    continued by the next one, at the next batch. Only the latest iteration of an object
    may be continued. Threads read up to 256 MiB ahead.

    Parameters
    ----------
    records : Records
    batch_size : int
    shuffle : "global", "shards" or False
        ``"global"``: every order of all examples is equally likely. ``"shards"``, for
        stores where reading single examples is slow: stretches of 4 MiB of examples are
        read in a random order, and the examples of 32 stretches at a time, 128 MiB, are
        shuffled together. Two such pools are in memory. False: the order on disk.
    seed : int
        Seed of the shuffled order, which is the same on every machine.
    epoch : int
        The first epoch; each has another order.
    shard : (int, int), optional
        ``(index, count)``, for one of several trainers: of each epoch's order, the
        examples from ``index * n // count`` up to ``(index + 1) * n // count``.
    drop_remainder : bool
        Leaves out a last batch that is smaller. With ``shard``, all trainers then give
        as many batches as the smallest share has; otherwise one may give one more.
    normalize : bool or sequence of str
        As in :func:`.replay`: features become ``(x - mean) / std``.
    repeat : bool
        Whether an iteration goes on with the next epoch, without end.
    threads : int, optional
        How many threads read. Default: the usable cores. 0: the caller reads each batch
        when it asks for it.
    mixup : float, optional
        Mixes each example with another one of its batch: ``w x + (1 - w) other``, with
        ``w`` of the distribution Beta(mixup, mixup), 0.2 for example. All
        floating-point features are mixed, after ``normalize``. ``target`` and
        ``labels`` become float32 of shape (n, classes), mixed like them; all else is
        the first example's. What is drawn depends on the seed, the epoch, and the
        position of the batch. (H. Zhang et al., mixup: Beyond empirical risk
        minimization, ICLR 2018.)

    Raises
    ------
    OptionError, InputError
        If an argument has a wrong value. Errors of reading are raised where the batch
        would be; the position stays, so that the next iteration begins with this batch.
    """

    def __init__(
        self,
        records: Source,
        batch_size: int,
        *,
        shuffle: Shuffle = False,
        seed: int = 0,
        epoch: int = 0,
        shard: tuple[int, int] | None = None,
        drop_remainder: bool = False,
        normalize: bool | Sequence[str] = False,
        repeat: bool = False,
        threads: int | None = None,
        mixup: float | None = None,
    ):
        super().__init__(
            batch_size, shuffle, seed, shard, drop_remainder, normalize, threads
        )
        if not isinstance(repeat, bool):
            raise OptionError(
                "repeat",
                "must be True or False; iterate again for more",
                repeat,
            )
        self._repeat = repeat
        alpha = check_mixup(mixup)
        classes = len(records.metadata.classes)
        self._mixup = None if alpha is None else Mixup(alpha, self._seed, classes)
        self.features = dict(records.features)
        if self._mixup is not None:
            self.features = self._mixup.features(self.features)
        self._reader = SourceReader(
            records, self._shuffle, self._seed, self._shard, normalize
        )
        # The positions of an epoch end here.
        self._stop = self._reader.examples
        if drop_remainder:
            smallest = self._reader.smallest_share
            self._stop = smallest - smallest % self._batch_size
        self._state = {"epoch": check_number("epoch", epoch), "position": 0}
        self._example_bytes = self._reader.read_bytes

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return -(-self._stop // self._batch_size)

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return int(self._state["epoch"])

    def __iter__(self) -> Iterator[Batch]:
        """Starts to give the batches from the current position to the epoch's end."""
        if self._repeat and not len(self):
            raise InputError(
                f"An epoch has {self._reader.examples} examples here, so it has no "
                f"batch of {self._batch_size}, and `repeat` would never end."
            )
        return super().__iter__()

    def _plan(self, state: State, submit: Submit) -> Iterator[tuple[Task, State]]:
        reading = Reading(self._reader, submit, self._threads)
        size, stop = self._batch_size, self._stop
        while True:
            epoch = state["epoch"]
            for position in range(state["position"], stop, size):
                task = reading.task(epoch, position, min(size, stop - position))
                if self._mixup is not None:
                    first = self._reader.first + position
                    task = functools.partial(self._mix, task, epoch, first)
                if position + size < stop:
                    after = {"epoch": epoch, "position": position + size}
                else:
                    after = self._next_epoch(state)
                yield task, after
            if not self._repeat:
                return
            state = self._next_epoch(state)

    def _mix(self, task: Task, epoch: int, position: int) -> Batch:
        assert self._mixup is not None
        return self._mixup.mix(task(), epoch, position)

    def _next_epoch(self, state: State) -> State:
        return {"epoch": state["epoch"] + 1, "position": 0}

    def _identity(self) -> dict[str, Any]:
        return {**super()._identity(), **self._reader.identity()}

    def _checked(self, state: Mapping[str, Any]) -> State:
        most = max(self._reader.examples - 1, 0)
        epoch = state_number(state, "epoch")
        position = state_number(state, "position", most)
        if position % self._batch_size:
            raise InputError(
                f"The state is damaged: position is {position}, but batches begin at "
                f"multiples of {self._batch_size}."
            )
        return {"epoch": epoch, "position": position}
