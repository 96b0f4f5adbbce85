"""Batches of records in any order, which restart in the middle of an epoch.

::

    Share    a trainer's part of the epochs of some records, in their order
    Draws    the source of each example of a mix: a hash of its number draws it
    Batches  reads batches in threads ahead, and knows where the next one is
"""

from __future__ import annotations

import functools
import os
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict, Unpack

import numpy as np
import numpy.typing as npt

from beam_pipeline.arrays import Integers
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.parameters import Number, check_flag, check_whole
from beam_pipeline.permutation import BalancedDraws, Permutation, hash64, unit_floats
from beam_pipeline.process import keep_freed_memory, usable_cores
from beam_pipeline.read import choices
from beam_pipeline.text import shown, text_key

if TYPE_CHECKING:
    import tensorflow as tf


# The order of so many examples is computed at once.
PLANNED = 8192

# What mixup makes weights of classes of.
TARGETS = ("target", "labels")

Shuffle = Literal["global", "balanced"] | bool
Ends = Literal["repeat", "stop", "leave"]
Batch = dict[str, Any]
# JSON values that say where the next batch is.
State = dict[str, Any]
Task = Callable[[], Batch]


class BatchOptions(TypedDict, total=False):
    """The keywords of :class:`Batches`."""

    shuffle: Shuffle
    seed: int
    epoch: int
    shard: tuple[int, int] | None
    drop_remainder: bool
    normalize: bool | Sequence[str]
    threads: int | None
    mixup: float | None


def batch_bytes(batch: Mapping[str, Any]) -> int:
    """Returns about how many bytes of memory a batch takes."""
    return sum(
        values.nbytes
        if isinstance(values, np.ndarray) and values.dtype != object
        else sum(v.nbytes if isinstance(v, np.ndarray) else 64 for v in values)
        for values in batch.values()
    )


class Share:
    """A trainer's share of the epochs of some records, in their order.

    Parameters
    ----------
    records : Records
    shuffle : "global", "balanced" or False
    seed : int
    shard : (int, int)
    normalize : bool or sequence of str

    Attributes
    ----------
    first, examples : int
        The share is the positions ``first .. first + examples - 1`` of each epoch.
    smallest : int
        Examples of the smallest share of a trainer; it differs by at most one.
    read_bytes : int
        About how many bytes an example takes in memory.
    """

    def __init__(
        self,
        records: Any,
        shuffle: Shuffle,
        seed: int,
        shard: tuple[int, int],
        normalize: bool | Sequence[str],
    ):
        self._records, self._shuffle, self._seed = records, shuffle, seed
        self._draws = None
        if shuffle == "balanced":
            self._draws = BalancedDraws(records.class_numbers(), seed)
        self._scales = choices.choose_scales(
            records.features, normalize, records.statistics
        )
        (index, count), total = shard, len(records)
        self.first = index * total // count
        self.examples = (index + 1) * total // count - self.first
        self.smallest = total // count
        specs = records.features.values()
        self.read_bytes = choices.memory_bytes(records.metadata, specs)
        # The block that was planned last: its epoch, its number and its examples.
        self._planned = -1, -1, np.zeros(0, np.int64)

    def identity(self) -> dict[str, Any]:
        """Returns what the examples are, whose order the seed decides."""
        records = self._records
        return {"examples": len(records), "fingerprint": records.fingerprint}

    def task(self, epoch: int, position: int, count: int) -> Task:
        """Returns what reads so many examples from a position of an epoch on."""
        return functools.partial(self._read, self._indices(epoch, position, count))

    def _read(self, indices: Integers) -> Batch:
        return choices.normalise(self._records.read(indices), self._scales)

    def _indices(self, epoch: int, first: int, count: int) -> Integers:
        """Returns the examples at some positions of an epoch."""
        blocks = range(first // PLANNED, -(-(first + count) // PLANNED))
        planned = np.concatenate([self._plan(epoch, block) for block in blocks])
        return planned[first % PLANNED :][:count]

    def _plan(self, epoch: int, block: int) -> Integers:
        """Returns the examples of a block of an epoch, in its order."""
        if self._planned[:2] != (epoch, block):
            stop = min((block + 1) * PLANNED, self.examples)
            order = np.arange(self.first + block * PLANNED, self.first + stop)
            if self._draws is not None:
                order = self._draws.at(epoch, order)
            elif self._shuffle == "global":
                order = Permutation(len(self._records), self._seed, epoch).at(order)
            self._planned = epoch, block, order
        return self._planned[2]


_OF_STATE_DICT = "Give what `state_dict()` has returned."


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


class Mixup(NamedTuple):
    """How batches are mixed.

    Attributes
    ----------
    alpha : float
        The parameter of the Beta distribution of the weights.
    seed : int
    classes : int
        The number of classes; 0 if the data set has none.
    """

    alpha: float
    seed: int
    classes: int

    def features(self, specs: Mapping[str, FeatureSpec]) -> dict[str, FeatureSpec]:
        """Returns the features of batches that are mixed."""
        made = dict(specs)
        for name in TARGETS:
            if name in made and not made[name].dtype.startswith("float"):
                shape = (self.classes,) if name == "target" else made[name].shape
                made[name] = replace(made[name], dtype="float32", shape=shape)
        return made

    def mix(
        self, batch: Mapping[str, Any], epoch: int, position: int
    ) -> dict[str, Any]:
        """Returns a batch whose example ``i`` is mixed with another one, ``p[i]``.

        ::

            y[i] = w[i] x[i] + (1 - w[i]) x[p[i]]

        ``position`` is that of the batch's first example in its epoch.

        Raises
        ------
        InputError
            If nothing can be mixed, or the target has no classes.
        """
        names = [name for name, values in batch.items() if _is_float(values)]
        if not [name for name in names if name not in TARGETS]:
            raise InputError(
                "mixup: no feature can be mixed. It needs floating-point features of "
                "one shape."
            )
        made = dict(batch)
        size = len(batch[names[0]])
        weights, partners = draw_pairs(size, self.alpha, self.seed, epoch, position)
        for name in TARGETS:
            if name in batch and not _is_float(batch[name]):
                made[name] = self._weighted_classes(name, batch[name])
                names.append(name)
        for name in names:
            values = made[name]
            weight = weights.astype(values.dtype)
            weight = weight.reshape(-1, *[1] * (values.ndim - 1))
            made[name] = weight * values + (1 - weight) * values[partners]
        return made

    def _weighted_classes(self, name: str, values: Any) -> npt.NDArray[np.float32]:
        """Targets as weights of all classes, of shape (n, classes)."""
        values = np.asarray(values)
        if name == "labels":
            return np.asarray(values, np.float32)
        if values.ndim != 1 or not self.classes:
            raise InputError(
                "mixup: the target is a whole number, but the data set has no classes, "
                "so there is nothing between two targets."
            )
        # A target of -1 has no class.
        hot = values[:, np.newaxis] == np.arange(self.classes)
        return np.asarray(hot, np.float32)


def draw_pairs(
    size: int, alpha: float, seed: int, epoch: int, position: int
) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.int64]]:
    """Returns the weight of each example of a batch, and its partner's number.

    Weights have the distribution Beta(alpha, alpha); the partners are a permutation.
    All depends on the seed, the epoch and the position alone.
    """
    from scipy.special import betaincinv  # here: other readers do without it

    key = text_key(str(seed), f"pairs of epoch {epoch} at {position}")
    words = hash64(key, np.arange(2 * size))
    partners = np.argsort(words[:size], kind="stable")
    return betaincinv(alpha, alpha, unit_floats(words[size:])), partners


def _is_float(values: Any) -> bool:
    return isinstance(values, np.ndarray) and values.dtype.kind == "f"


# Several sequences of records, in given proportions.


@dataclass(frozen=True)
class Draws:
    """The draws of a mix, for one of several trainers.

    Draw ``i`` is source ``s`` if the hash of ``(seed, epoch, i)``, as a number from 0
    to 1, is in its part of the sum of weights. Trainer ``k`` of ``count`` has the draws
    ``k``, ``k + count``, ...

    Parameters
    ----------
    weights : sequence of float
        Positive; only their ratios count.
    lengths : sequence of int
        How many examples each source has for this trainer.
    ends : "repeat", "stop" or "leave"
        What happens when a source has given its last example. ``"repeat"``: it begins
        its next epoch, and the draws never end. ``"stop"``: the draws end. ``"leave"``:
        the others share its weight, and the draws end with the last of them.
    seed : int
    shard : (int, int), optional
    """

    weights: Sequence[float]
    lengths: Sequence[int]
    ends: Ends
    seed: int
    shard: tuple[int, int] = (0, 1)

    def take(self, epoch: int, taken: Integers, count: int) -> Integers:
        """Returns the sources of the next draws.

        Parameters
        ----------
        epoch : int
        taken : numpy.ndarray of int64, shape (sources,)
            How often each source was among the draws before.
        count : int

        Returns
        -------
        numpy.ndarray of int64
            Of ``count`` sources, or fewer if the draws end.
        """
        if len(self.lengths) == 1:
            most = count if self.ends == "repeat" else self.lengths[0] - int(taken[0])
            return np.zeros(min(count, most), np.int64)
        key = text_key(str(self.seed), f"draws of epoch {epoch}")
        index, trainers = self.shard
        numbers = (int(taken.sum()) + np.arange(count)) * trainers + index
        values = unit_floats(hash64(key, numbers))
        weights = np.array(self.weights, np.float64)
        if self.ends == "repeat":
            return _sources(values, weights)
        found, left = [], self.lengths - taken
        has_next = np.all if self.ends == "stop" else np.any
        while len(values) and has_next(left):
            sources = _sources(values, np.where(left > 0, weights, 0.0))
            stop = len(sources)
            for source in range(len(left)):
                places = np.flatnonzero(sources[:stop] == source)
                # The draw after a source's last example may have other weights.
                if left[source] and len(places) >= left[source]:
                    stop = int(places[left[source] - 1]) + 1
            found.append(sources[:stop])
            left = left - np.bincount(sources[:stop], minlength=len(left))
            values = values[stop:]
        return np.concatenate(found) if found else np.zeros(0, np.int64)


def _sources(
    values: npt.NDArray[np.float64], weights: npt.NDArray[np.float64]
) -> Integers:
    """Returns the source in whose part of the sum of weights each value is."""
    ends = np.cumsum(weights)
    found = np.searchsorted(ends, values * ends[-1], "right")
    # A product may be rounded up to the sum of all weights.
    last = np.flatnonzero(weights)[-1]
    return np.asarray(np.minimum(found, last), np.int64)


@dataclass(frozen=True)
class Mixed:
    """Data sets that are mixed, see :func:`.mix`."""

    sources: Sequence[Any]  # of Records
    weights: Sequence[float]
    seed: int
    ends: Ends

    def batches(self, batch_size: int, **options: Unpack[BatchOptions]) -> Batches:
        """Returns batches of the mix, with ``state_dict`` and ``load_state_dict``.

        The options are those of :class:`.Batches`, without ``seed``; ``shuffle`` is
        ``"global"`` by default. Each source has an order of its own. ``normalize`` uses
        the statistics of each example's own source. With ``shard``, a trainer has its
        share of each source.
        """
        given: dict[str, Any] = {"shuffle": "global", **options}
        return Batches(self, batch_size, **given, seed=self.seed)


class Batches:
    """Batches, made by :meth:`.Records.batches` or :meth:`Mixed.batches`.

    Iterating gives the batches from the current position to the end of the epoch, and
    the next iteration gives the next epoch::

        batches = records.batches(32, shuffle="global")
        for epoch in range(3):
            for batch in batches:
                ...

    A batch is a dict, as of :meth:`.Records.read`. An iteration that is left early is
    continued by the next one, at the next batch. Only the latest iteration of an object
    may be continued. A mix that repeats its sources never ends.

    Threads read up to 256 MiB ahead, in the process that iterates. They end when the
    iterator is exhausted, closed or collected, or raises.

    Parameters
    ----------
    records : Records or Mixed
    batch_size : int
    shuffle : bool, "global" or "balanced"
        True or ``"global"``: every order of all examples is equally likely. False: the
        order on disk. ``"balanced"``: each class is drawn equally often, see
        :class:`.BalancedDraws`; an epoch has as many draws as there are examples, so
        some come several times, and others in a later epoch.
    seed : int
        Seed of the shuffled order, which is the same on every machine.
    epoch : int
        The first epoch; each has another order.
    shard : (int, int), optional
        ``(index, count)``, for one of several trainers: of each epoch's order, the
        examples from ``index * n // count`` up to ``(index + 1) * n // count``.
    drop_remainder : bool
        Leaves out a last batch that is smaller. With ``shard``, all trainers then give
        as many batches as the smallest share has; otherwise one may give one more. A
        mix has no such promise.
    normalize : bool or sequence of str
        As in :func:`.replay`: features become ``(x - mean) / std``.
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

    Attributes
    ----------
    features : mapping
        Name to :class:`.FeatureSpec`, for each feature of a batch.

    Raises
    ------
    OptionError, InputError
        If an argument has a wrong value. Errors of reading are raised where the batch
        would be; the position stays, so that the next iteration begins with this batch.
    """

    def __init__(
        self,
        records: Any,
        batch_size: int,
        *,
        shuffle: Shuffle = False,
        seed: int = 0,
        epoch: int = 0,
        shard: tuple[int, int] | None = None,
        drop_remainder: bool = False,
        normalize: bool | Sequence[str] = False,
        threads: int | None = None,
        mixup: float | None = None,
    ):
        self._batch_size = check_whole("batch_size", batch_size)
        self._drop_remainder = check_flag("drop_remainder", drop_remainder)
        if not isinstance(shuffle, bool) and shuffle not in ("global", "balanced"):
            orders = "must be True, False, 'global' or 'balanced'"
            raise OptionError("shuffle", orders, shuffle)
        self._shuffle: Shuffle = "global" if shuffle is True else shuffle
        self._seed = check_whole("seed", seed, None)
        self._shard = choices.check_share("shard", (0, 1) if shard is None else shard)
        cores = usable_cores()
        self._threads = cores if threads is None else check_whole("threads", threads, 0)
        self._iteration = 0
        self._is_mix = isinstance(records, Mixed)
        mixed = records if self._is_mix else Mixed([records], [1.0], self._seed, "stop")
        self._shares = []
        for number, source in enumerate(mixed.sources):
            own = self._seed
            if self._is_mix:  # its sources have orders of their own
                own = text_key(str(self._seed), f"source {number}")
            share = Share(source, self._shuffle, own, self._shard, normalize)
            if mixed.ends == "repeat" and not share.examples:
                index, count = self._shard
                raise InputError(
                    f"{source.folder} has {len(source)} examples, so trainer {index} "
                    f"of {count} has none to repeat."
                )
            self._shares.append(share)
        lengths = [share.examples for share in self._shares]
        if self._drop_remainder and not self._is_mix:
            lengths = [self._shares[0].smallest]
        self._draws = Draws(mixed.weights, lengths, mixed.ends, self._seed, self._shard)
        first = mixed.sources[0]
        self._mixup, self.features = None, dict(first.features)
        if mixup is not None:
            classes = len(first.metadata.classes)
            alpha = Number(least=0, most=1000, is_positive=True).value("mixup", mixup)
            self._mixup = Mixup(alpha, self._seed, classes)
            self.features = self._mixup.features(self.features)
        self._example_bytes = max(share.read_bytes for share in self._shares)
        # Where the batch is that the caller gets next.
        self._state = self._start(check_whole("epoch", epoch, 0))

    def __len__(self) -> int:
        """The number of batches in an epoch; TypeError if it is a mix."""
        if self._is_mix:
            raise TypeError("a mix does not know its length before it ends")
        (examples,), size = self._draws.lengths, self._batch_size
        return examples // size if self._drop_remainder else -(-examples // size)

    def _start(self, epoch: int) -> State:
        """Returns the state at an epoch's beginning."""
        return self._place(epoch, [0] * len(self._shares))

    def _place(self, epoch: int, taken: list[int]) -> State:
        """Returns the state after so many examples of each source."""
        return {"epoch": epoch, "position": taken if self._is_mix else taken[0]}

    def _is_place(self, epoch: Any, taken: Any) -> bool:
        """Whether what may come from anywhere is a place between batches."""
        lengths = self._draws.lengths
        if not (isinstance(taken, list) and len(taken) == len(lengths)):
            return False
        if not all(map(_is_count, [epoch, *taken])) or sum(taken) % self._batch_size:
            return False
        if self._draws.ends == "repeat" or not any(taken):
            return True
        if any(n > most for n, most in zip(taken, lengths, strict=True)):
            return False
        # After the last batch of an epoch, the place is the beginning of the next one.
        return len(self._draw(epoch, np.array(taken))) > 0

    def _plan(self, state: State) -> Iterator[tuple[Task, State]]:
        """Yields a task for each batch of an iteration, and the state after it."""
        epoch = state["epoch"]
        taken: Integers = np.array(state["position"], np.int64).reshape(-1)
        sources = self._draw(epoch, taken)
        while len(sources):
            task = functools.partial(_gather, self._parts(epoch, taken, sources))
            if self._mixup is not None:
                task = functools.partial(self._mix, task, epoch, int(taken.sum()))
            taken = taken + np.bincount(sources, minlength=len(taken))
            sources = self._draw(epoch, taken)
            is_last = not len(sources)
            after = self._place(epoch, taken.tolist())
            yield task, self._start(epoch + 1) if is_last else after

    def _draw(self, epoch: int, taken: Integers) -> Integers:
        """Returns the sources of the next batch; none if there is no other."""
        sources = self._draws.take(epoch, taken, self._batch_size)
        is_whole = len(sources) == self._batch_size
        return sources if is_whole or not self._drop_remainder else sources[:0]

    def _parts(self, epoch: int, taken: Integers, sources: Integers) -> list[_Part]:
        """Returns the parts of a batch: the next examples of each source."""
        parts: list[_Part] = []
        for number, share in enumerate(self._shares):
            places, drawn = np.flatnonzero(sources == number), int(taken[number])
            # A source may end, and begin its next epoch, within a batch.
            while len(places):
                passes, position = divmod(drawn, share.examples)
                here = places[: share.examples - position]
                task = share.task(epoch + passes, position, len(here))
                parts.append(_Part(task, here))
                drawn, places = drawn + len(here), places[len(here) :]
        return parts

    def _mix(self, task: Task, epoch: int, drawn: int) -> Batch:
        assert self._mixup is not None
        first = sum(share.first for share in self._shares)
        return self._mixup.mix(task(), epoch, first + drawn)

    def _identity(self) -> dict[str, Any]:
        """Returns what decides the order and the data, as JSON values."""
        sources = [share.identity() for share in self._shares]
        weights = list(self._draws.weights)
        mix = {"ends": self._draws.ends, "weights": weights, "sources": sources}
        return {
            "seed": self._seed,
            "shuffle": self._shuffle,
            "shard": list(self._shard),
            "batch_size": self._batch_size,
            "drop_remainder": self._drop_remainder,
            **(mix if self._is_mix else sources[0]),
        }

    @property
    def epoch(self) -> int:
        """The epoch of the next batch."""
        return int(self._state["epoch"])

    def __iter__(self) -> Iterator[Batch]:
        """Starts to give the batches from the current position to the epoch's end."""
        self._iteration += 1
        return self._iterate(self._iteration)

    def _iterate(self, iteration: int) -> Iterator[Batch]:
        self._check_latest(iteration)
        keep_freed_memory()  # batches are freed where the next ones are made
        threads, process = self._threads, os.getpid()
        pool = ThreadPoolExecutor(threads, "batches") if threads else None
        waiting: deque[tuple[Task, State]] = deque()
        expected, largest = self._batch_size * self._example_bytes, 0
        after, is_empty = self._start(self.epoch + 1), True
        try:
            plan = self._plan(self._state)
            while True:
                fitting = choices.READ_AHEAD_BYTES // max(largest or expected, 1)
                wanted = max(min(2 * threads, fitting), 1) - len(waiting)
                for task, after in islice(plan, max(wanted, 0)):
                    read = task if pool is None else pool.submit(task).result
                    waiting.append((read, after))
                if not waiting:
                    break
                is_empty = False
                batch = waiting[0][0]()
                largest = max(largest, batch_bytes(batch))
                # Before the caller has the batch, and may ask for the state.
                self._state = waiting.popleft()[1]
                yield batch
                del batch  # the caller's, who may be done with it
                self._check_latest(iteration)
                if os.getpid() != process:
                    raise InputError(
                        "The iteration began in another process, whose threads this "
                        "one does not have. Iterate over the batches anew, in this "
                        "process."
                    )
        finally:
            if pool is not None and os.getpid() == process:
                pool.shutdown(wait=False, cancel_futures=True)
        if is_empty:
            self._state = after

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
            ``epoch``, ``normalize``, ``mixup`` and ``threads`` may differ, and the
            features that are read.

        Raises
        ------
        InputError
            If the state is of another order or data set, which it names; or if it is
            none of these batches.
        """
        if not isinstance(state, Mapping):
            raise InputError(f"{shown(state)} is no state. {_OF_STATE_DICT}")
        identity = self._identity()
        differ = [
            f"{name} is {state.get(name, 'missing')!r} in the state, but {value!r} here"
            for name, value in identity.items()
            if name not in state or state[name] != value
        ]
        if differ:
            raise InputError(
                "The state is of other batches, so it cannot be continued: "
                f"{'; '.join(differ)}."
            )
        place = {name: state.get(name) for name in ("epoch", "position")}
        epoch, position = place.values()
        if not self._is_place(epoch, position if self._is_mix else [position]):
            raise InputError(
                f"The state is damaged: {place} is no place between these batches. "
                f"{_OF_STATE_DICT}"
            )
        self._iteration += 1
        self._state = place


class _Part(NamedTuple):
    """Some rows of a batch: what ``read`` returns, and where its rows go, in order."""

    read: Task
    places: Integers


def _gather(parts: Sequence[_Part]) -> Batch:
    """Gathers parts, which have all rows together, into one batch."""
    found = [part.read() for part in parts]
    if len(parts) == 1:
        return found[0]
    order, batch = np.argsort(np.concatenate([part.places for part in parts])), Batch()
    for name, first in found[0].items():
        columns = [values[name] for values in found]
        if isinstance(first, np.ndarray):
            batch[name] = np.concatenate(columns)[order]
        else:
            joined = list(chain.from_iterable(columns))
            batch[name] = [joined[place] for place in order.tolist()]
    return batch
