"""What one source of batches reads: rows at positions of its epochs, ahead by threads.

::

    SourceReader    a trainer's share of some records, in the order of an epoch
      Reading       one iteration: which examples are read together, and where they go
    read_ahead      runs the tasks of batches in threads, within a limit of bytes
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.read.orders import (
    POOLED,
    MixedStretches,
    Shuffle,
    make_order,
    stretch_length,
)
from beam_pipeline.read.scales import Scale, choose_scales
from beam_pipeline.read.sizes import READ_AHEAD_BYTES, example_bytes, memory_bytes
from beam_pipeline.write.process_settings import keep_freed_memory

# The order of so many examples is computed at once.
PLANNED = 8192

Integers = npt.NDArray[np.int64]
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
    part_of: npt.NDArray[np.int64],
    row_of: npt.NDArray[np.int64],
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


def normalise(batch: Batch, scales: Mapping[str, Scale]) -> Batch:
    """Returns the batch with ``(x - mean) * factor`` for features with scales."""
    for name, (mean, factor) in scales.items():
        values = batch[name]
        if isinstance(values, np.ndarray):
            batch[name] = _scaled(values, mean, factor)
        else:
            batch[name] = [
                None if value is None else _scaled(value, mean, factor)
                for value in values
            ]
    return batch


def _scaled(values: Any, mean: np.ndarray, factor: np.ndarray) -> Any:
    dtype = values.dtype
    return (values - mean.astype(dtype)) * factor.astype(dtype)


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
