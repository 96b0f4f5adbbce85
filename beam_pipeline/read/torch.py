"""Batches of tensors for PyTorch, divided between ranks."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
import torch.utils.data

from beam_pipeline.errors import InputError
from beam_pipeline.read.batches import Batches
from beam_pipeline.read.choices import check_share


class TorchBatches(torch.utils.data.IterableDataset):  # type: ignore[misc]
    """Batches of tensors, made by :meth:`.Records.to_torch`.

    As of :class:`.Batches`, each pass is the next epoch, and one that is left early is
    continued by the next one. Its length is the number of batches of an epoch.
    """

    def __init__(self, batches: Batches):
        self._batches = batches

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        if torch.utils.data.get_worker_info() is not None:
            raise InputError(
                "Threads read the batches of `to_torch` ahead, so it has no use for "
                "processes. Give the loader `num_workers=0`, or give it the records."
            )
        for batch in self._batches:
            yield {name: to_tensor(values) for name, values in batch.items()}

    def state_dict(self) -> dict[str, Any]:
        """Returns where the next batch is, see :meth:`.Batches.state_dict`."""
        return self._batches.state_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues after the last batch before ``state_dict``."""
        self._batches.load_state_dict(state)


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
