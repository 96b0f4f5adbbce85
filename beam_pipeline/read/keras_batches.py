"""Batches for Keras 3, with any backend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from beam_pipeline.errors import OptionError
from beam_pipeline.read.batch_rows import normalise
from beam_pipeline.read.choices import check_name
from beam_pipeline.read.orders import Order, make_order
from beam_pipeline.read.scales import choose_scales

Names = str | Sequence[str]


class KerasBatches(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches by number, made by :meth:`.Records.to_keras`.

    Keras shuffles the batches once more, unless ``fit`` has ``shuffle=False``. Each
    epoch has another order, if ``shuffle`` is ``"global"``.

    All batches of all epochs are one sequence. An epoch of ``fit`` takes as many of it
    as an epoch has. So if training continues in the middle of an epoch, those of
    ``fit`` begin in the middle, too.
    """

    def __init__(
        self,
        records: Any,
        batch_size: int,
        names: tuple[Names | None, ...],
        *,
        shuffle: str | bool,
        seed: int,
        drop_remainder: bool,
        normalize: bool | Sequence[str],
        workers: int,
    ):
        super().__init__(workers=workers)
        if shuffle not in (False, "global"):
            raise OptionError("shuffle", "must be 'global' or False", str(shuffle))
        for name in (n for group in names for n in _listed(group)):
            check_name("feature", name, records.features)
            if not records.features[name].is_fixed:
                raise OptionError(
                    "x, y, sample_weight",
                    "must be features that every example has in the same shape; for "
                    "others, fit a `replay(...).padded_batch(...)`",
                    name,
                )
        self._records, self._batch_size = records, int(batch_size)
        self._names, self._shuffle, self._seed = names, shuffle, int(seed)
        # Checks the arguments, and later the states; it reads nothing.
        self._batches = records.batches(
            batch_size, shuffle=shuffle, seed=seed, drop_remainder=drop_remainder,
            normalize=normalize, threads=0,
        )  # fmt: skip
        used = {n: records.features[n] for group in names for n in _listed(group)}
        self._scales = choose_scales(
            records.folder, records.metadata, used, normalize, records.statistics
        )
        self._first = 0  # the number of batch 0, in the sequence of all epochs
        self._order: tuple[int, Order] | None = None
        # Keras also calls on_epoch_end for epochs that it only tried out.
        self._has_begun = self._had_last = False

    @property
    def epoch(self) -> int:
        """The number of the current epoch, which decides its order."""
        return self._first // max(len(self), 1)

    def __len__(self) -> int:
        """The number of batches in an epoch."""
        return len(self._batches)

    def __getitem__(self, index: int) -> tuple[Any, ...]:
        """Returns (x, y, sample_weight) of a batch, as far as they were chosen."""
        if not 0 <= index < len(self):
            raise IndexError(f"there is no batch {index}, only {len(self)}")
        self._had_last |= index == len(self) - 1
        epoch, number = divmod(self._first + index, len(self))
        start = number * self._batch_size
        stop = min(start + self._batch_size, len(self._records))
        indices = self._order_of(epoch).at(np.arange(start, stop))
        batch = normalise(self._records.read(indices), self._scales)
        return tuple(
            batch[names] if isinstance(names, str) else {n: batch[n] for n in names}
            for names in self._names
            if names is not None
        )

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        self.on_epoch_begin()
        return iter(super().__iter__())

    def _order_of(self, epoch: int) -> Order:
        order = self._order
        if order is None or order[0] != epoch:
            count = len(self._records)
            made = make_order(count, self._shuffle, self._seed, epoch, 1)  # type: ignore[arg-type]
            self._order = order = epoch, made
        return order[1]

    def on_epoch_begin(self) -> None:
        """Keras calls this before each epoch."""
        self._has_begun, self._had_last = True, False

    def on_epoch_end(self) -> None:
        """Keras calls this after each epoch; the next one has another order."""
        if self._has_begun and self._had_last:
            self._first += len(self)
        self._has_begun = self._had_last = False

    def state_dict(self, batch: int) -> dict[str, Any]:
        """Returns where the next batch is, as JSON values; as :class:`.Batches` do.

        Parameters
        ----------
        batch : int
            The number of the last trained batch, which Keras gives to a callback's
            ``on_train_batch_end``.

        Raises
        ------
        OptionError
            If there is no batch of this number.
        """
        if not (isinstance(batch, int | np.integer) and 0 <= batch < len(self)):
            raise OptionError(
                "batch", f"must be the number of a batch, 0 to {len(self) - 1}", batch
            )
        batch = int(batch)
        epoch, number = divmod(self._first + batch + 1, len(self))
        position = number * self._batch_size
        return {**self._batches.state_dict(), "epoch": epoch, "position": position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """The next ``fit`` begins after the batch of ``state_dict``.

        ``fit`` needs ``shuffle=False``.

        Raises
        ------
        InputError
            If the state is of other records or arguments.
        """
        self._batches.load_state_dict(state)
        done = state["position"] // self._batch_size
        self._first = state["epoch"] * len(self) + done


def _listed(names: Names | None) -> Sequence[str]:
    if names is None:
        return ()
    return (names,) if isinstance(names, str) else names
