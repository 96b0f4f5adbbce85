"""Examples in a global random order as ``tf.data``, with iterators that can be saved.

::

    passes -> (epoch, batch) -> serialised examples -> elements
              arithmetic        Records, in Python     TensorFlow

An iterator is at an epoch and a batch, so a checkpoint of it holds these two numbers,
and the few batches that were read ahead.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from beam_pipeline.permutation import Permutation
from beam_pipeline.read.choices import Parsing
from beam_pipeline.read.cores import usable_cores
from beam_pipeline.read.parse_examples import PARSED_TOGETHER
from beam_pipeline.read.records import Records

# Batches that are read at the same time.
_MOST_THREADS = 4


class Share(NamedTuple):
    """The examples of a trainer: ``first .. stop - 1`` of each epoch's order."""

    first: int
    stop: int


class EpochCounter:
    """Numbers the passes over a data set of this process.

    Each new iterator begins with the epoch after all that were begun. One that is
    restored continues its own epoch, and the next one begins after it; unless all the
    rest of the epoch was in the checkpoint, so that nothing of it is read here.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._next = 0

    def begin(self) -> np.int64:
        with self._lock:
            self._next += 1
            return np.int64(self._next - 1)

    def saw(self, epoch: int) -> None:
        with self._lock:
            self._next = max(self._next, epoch + 1)


class EpochReader:
    """Reads the serialised examples of a batch, by the epoch and the batch's number."""

    def __init__(self, records: Records, share: Share, size: int, seed: int):
        self._records, self._share, self._size = records, share, size
        self._seed = seed
        self._orders: dict[int, Permutation] = {}
        self.counter = EpochCounter()

    def read(self, epoch: int, batch: int) -> npt.NDArray[np.object_]:
        """Returns the serialised examples of a batch, as an array of bytes."""
        self.counter.saw(int(epoch))
        order = self._order(int(epoch))
        first = self._share.first + int(batch) * self._size
        positions = np.arange(first, min(first + self._size, self._share.stop))
        return np.array(self._records.serialised(order.at(positions)), np.object_)

    def _order(self, epoch: int) -> Permutation:
        order = self._orders.get(epoch)
        if order is None:
            order = Permutation(len(self._records), self._seed, epoch)
            # Threads may be at two epochs at once.
            self._orders = {**dict(list(self._orders.items())[-3:]), epoch: order}
        return order


def replay_permuted(
    records: Records,
    parsing: Parsing,
    parse: Callable[[Any], Any],
    *,
    batch_size: int | None,
    drop_remainder: bool,
    seed: int,
    repeat: bool | int,
    shard: tuple[int, int] | None,
    deterministic: bool,
) -> tf.data.Dataset:
    """Returns the elements of each pass in a random order of all examples."""
    index, count = shard or (0, 1)
    total = len(records)
    share = Share(index * total // count, (index + 1) * total // count)
    size = batch_size or PARSED_TOGETHER
    whole, rest = divmod(share.stop - share.first, size)
    steps = whole + bool(rest and not (drop_remainder and batch_size))
    reader = EpochReader(records, share, size, seed)
    threads = min(usable_cores(), _MOST_THREADS)

    def read(epoch: Any, batch: Any) -> Any:
        found = tf.numpy_function(reader.read, [epoch, batch], tf.string)
        return tf.ensure_shape(found, [size if batch_size and drop_remainder else None])

    numbers = _batch_numbers(reader.counter, steps, repeat)
    serialised = numbers.map(read, threads, deterministic)
    if parsing.is_fixed:
        elements = serialised.map(parse, threads, deterministic)
        if batch_size is None:
            elements = elements.unbatch()
    else:

        def parse_each(examples: Any) -> tf.data.Dataset:
            parsed = tf.data.Dataset.from_tensor_slices(examples).map(parse)
            if batch_size is None:
                return parsed
            return parsed.ragged_batch(batch_size, drop_remainder)

        # Each of them yields one batch, or less than a block, so the order is kept.
        elements = serialised.interleave(
            parse_each, threads, size, threads, deterministic
        )
    passes = 1 if repeat is False else repeat
    length = tf.data.INFINITE_CARDINALITY
    if passes is not True or not steps:
        length = passes * (steps if batch_size else share.stop - share.first)
    return elements.apply(tf.data.experimental.assert_cardinality(length))


def _batch_numbers(
    counter: EpochCounter, steps: int, repeat: bool | int
) -> tf.data.Dataset:
    """Returns (epoch, batch) of each batch of all passes of an iterator."""
    numbers = tf.data.Dataset.counter()
    if not steps or repeat is not True:
        numbers = tf.data.Dataset.range(steps * int(repeat or 1))

    def begin(_: Any) -> Any:
        return tf.ensure_shape(tf.numpy_function(counter.begin, [], tf.int64), [])

    def count(first: Any) -> tf.data.Dataset:
        return numbers.map(lambda number: (first + number // steps, number % steps))

    # A checkpoint holds the first epoch, because flat_map saves its input.
    return tf.data.Dataset.from_tensors(0).map(begin).flat_map(count)
