"""What iterables of batches share: threads, a state, and one iteration at a time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any

from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.read.choices import check_number
from beam_pipeline.read.cores import usable_cores
from beam_pipeline.read.read_ahead import Batch, Submit, Task, read_ahead
from beam_pipeline.read.sizes import READ_AHEAD_BYTES

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
        from beam_pipeline.read.tf_batches import dataset_of

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
