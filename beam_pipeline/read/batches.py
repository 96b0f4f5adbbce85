"""Batches of records in any order, which restart in the middle of an epoch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any

from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.read.choices import check_number, check_values
from beam_pipeline.read.mixup import Mixup, check_mixup
from beam_pipeline.read.orders import Shuffle, check_shuffle
from beam_pipeline.read.sizes import READ_AHEAD_BYTES, usable_cores
from beam_pipeline.read.source_reader import (
    Batch,
    Reading,
    Source,
    SourceReader,
    Submit,
    Task,
    read_ahead,
)

if TYPE_CHECKING:
    import tensorflow as tf

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
    _batch_size : int
    _drop_remainder : bool
    """

    features: Mapping[str, FeatureSpec]
    _batch_size: int
    _drop_remainder: bool

    def __init__(self, state: State, threads: int | None, batch_bytes: int):
        self._state = state
        self._threads = check_threads(threads)
        self._batch_bytes = batch_bytes
        self._iteration = 0

    @abstractmethod
    def _plan(self, state: State, submit: Submit) -> Iterator[tuple[Task, State]]:
        """Yields a task for each batch of an iteration, and the state after it."""

    @abstractmethod
    def _next_epoch(self, state: State) -> State:
        """Returns the state at the beginning of the next epoch."""

    @abstractmethod
    def _identity(self) -> dict[str, Any]:
        """Returns what decides the order and the data, as JSON values."""

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

        batches = read_ahead(plan, self._threads, READ_AHEAD_BYTES, self._batch_bytes)
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
        check_number("batch_size", batch_size, 1)
        check_values(batch_size, drop_remainder, False, False, shard, normalize)
        if not isinstance(repeat, bool):
            raise OptionError(
                "repeat",
                "must be True or False; iterate again for more",
                repeat,
            )
        self._batch_size = int(batch_size)
        self._shuffle = check_shuffle(shuffle)
        self._seed = check_number("seed", seed, None)
        self._shard = None if shard is None else (int(shard[0]), int(shard[1]))
        self._drop_remainder = drop_remainder
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
        state = {"epoch": check_number("epoch", epoch), "position": 0}
        super().__init__(state, threads, self._batch_size * self._reader.read_bytes)

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
                    task = self._mixup.of(task, epoch, self._reader.first + position)
                if position + size < stop:
                    after = {"epoch": epoch, "position": position + size}
                else:
                    after = self._next_epoch(state)
                yield task, after
            if not self._repeat:
                return
            state = self._next_epoch(state)

    def _next_epoch(self, state: State) -> State:
        return {"epoch": state["epoch"] + 1, "position": 0}

    def _identity(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "shuffle": self._shuffle,
            "shard": None if self._shard is None else list(self._shard),
            "batch_size": self._batch_size,
            "drop_remainder": self._drop_remainder,
            **self._reader.identity(),
        }

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
