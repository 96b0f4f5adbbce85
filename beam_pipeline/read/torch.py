"""Batches of tensors for PyTorch, divided between ranks and workers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.utils.data

from beam_pipeline.parameters import check_whole
from beam_pipeline.process import usable_cores
from beam_pipeline.read.choices import check_share

MOST_WORKERS = 256


class TorchBatches(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """Batches of tensors, made by :meth:`.Records.to_torch`.

    Worker ``w`` of ``W`` of rank ``r`` of ``R`` reads the piece ``(r * W + w, R * W)``
    of each epoch. With ``drop_remainder``, all of them give the same number of batches.

    Each pass is the next epoch. A pass that is left early is repeated by the next one,
    unless its state was loaded. After a pass whose state was loaded, the passes go on
    with the next epoch.
    """

    def __init__(
        self,
        records: Any,
        batch_size: int,
        rank: tuple[int, int] | None,
        options: Mapping[str, Any],
    ):
        self._options = dict(options)
        epoch = check_whole("epoch", self._options.pop("epoch", 0), 0)
        self._records, self._batch_size = records, batch_size
        self._rank = find_rank() if rank is None else check_share("rank", rank)
        # The next epoch of each worker; in memory that the workers share.
        self._next = torch.full((MOST_WORKERS,), epoch).share_memory_()
        self._batches(0, 1, epoch)  # checks the arguments

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch; call it between two passes."""
        self._next.fill_(check_whole("epoch", epoch, 0))

    @property
    def epoch(self) -> int:
        """The epoch of the next pass."""
        return int(self._next[0])

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return TorchPass(self, worker, workers)

    def _batches(self, worker: int, workers: int, epoch: int) -> Any:
        index, count = self._rank
        options = {"threads": max(usable_cores() // workers, 1), **self._options}
        return self._records.batches(
            self._batch_size,
            shard=(index * workers + worker, count * workers),
            epoch=epoch,
            **options,
        )


class TorchPass(Iterator[dict[str, Any]]):
    """One pass of one worker; torchdata's ``StatefulDataLoader`` saves its state."""

    def __init__(self, dataset: TorchBatches, worker: int, workers: int):
        self._next = dataset._next[:workers]
        self._all = dataset._next
        # A worker may finish before another one starts, but no worker is ahead of the
        # pass by its own number.
        self._epoch = int(self._next.min())
        self._worker = worker
        self._batches = dataset._batches(worker, workers, self._epoch)
        self._iterator: Iterator[dict[str, Any]] | None = None
        self._is_finished = False

    def __next__(self) -> dict[str, Any]:
        if not self._is_finished:
            if self._iterator is None:
                self._iterator = iter(self._batches)
            batch = next(self._iterator, None)
            if batch is not None:
                return {name: to_tensor(values) for name, values in batch.items()}
            self._finish()
        raise StopIteration

    def _finish(self) -> None:
        self._is_finished = True
        self._next[self._worker] = self._epoch + 1
        if bool((self._next > self._epoch).all()):
            # The last worker: a later pass may have more of them.
            self._all.fill_(self._epoch + 1)

    def state_dict(self) -> dict[str, Any]:
        """Returns where the next batch is, as JSON values."""
        return {
            "epoch": self._epoch,
            "is_finished": self._is_finished,
            "batches": self._batches.state_dict(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues after the last batch before ``state_dict``.

        Raises
        ------
        InputError
            If the state is of other records, arguments, ranks or workers.
        """
        self._batches.load_state_dict(state["batches"])
        self._epoch = state["epoch"]
        self._iterator = None
        # A loader drops a pass that had ended, and begins the next one at once. So the
        # epoch of the next pass must be right before anything is read.
        if state["is_finished"]:
            self._finish()
            return
        self._next[self._worker] = self._epoch
        # After the last batch, the state of the batches is that of the next epoch.
        if self._batches.epoch > self._epoch:
            self._finish()


def find_rank() -> tuple[int, int]:
    """Returns the number of this trainer, and of all.

    They are those of ``torch.distributed``, if it is initialised; or the environment
    variables ``RANK`` and ``WORLD_SIZE``, which torchrun sets; or (0, 1).
    """
    distributed = torch.distributed
    if distributed.is_available() and distributed.is_initialized():
        return distributed.get_rank(), distributed.get_world_size()
    if "RANK" not in os.environ:
        return 0, 1
    given = [int(os.environ[name]) for name in ("RANK", "WORLD_SIZE")]
    return check_share("rank", given)


def to_tensor(values: Any) -> Any:
    """Returns numbers as a tensor that shares their memory, and texts as a list."""
    if not isinstance(values, np.ndarray):
        if isinstance(values, list):
            return [to_tensor(value) for value in values]
        return values
    if values.dtype == object:
        return values.tolist()
    if values.dtype.kind == "V":  # bfloat16 and its kin, of ml_dtypes
        integers = values.view(f"u{values.dtype.itemsize}")
        return torch.from_numpy(integers).view(getattr(torch, values.dtype.name))
    return torch.from_numpy(values)
