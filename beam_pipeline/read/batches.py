"""Batches of records, shuffled and read ahead; their state is a few numbers.

The order of an epoch is arithmetic, see :mod:`.orders`. What was given out is therefore
the epoch and a position in it, and everything after is known from that.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.batch_iteration import BatchIteration, State, state_number
from beam_pipeline.read.choices import check_number, check_values
from beam_pipeline.read.mixup import Mixup, check_mixup
from beam_pipeline.read.orders import Shuffle, check_shuffle
from beam_pipeline.read.read_ahead import Batch, Submit, Task
from beam_pipeline.read.source_reader import Reading, Source, SourceReader


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
