"""Batches on JAX devices, one batch ahead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np


class JaxBatches:
    """Batches of arrays on devices, made by :meth:`.Records.to_jax`.

    The next batch is sent while the current one is in use. Like :class:`.Batches`, each
    iteration is the next epoch, and one that is left early is continued by the next.
    """

    def __init__(
        self, records: Any, batch_size: int, sharding: Any, options: Mapping[str, Any]
    ):
        options = dict(options)
        if options.get("shard") is None and jax.process_count() > 1:
            options["shard"] = jax.process_index(), jax.process_count()
        self._sharding = sharding
        self._batches = records.batches(batch_size, **options)
        self._state = self._batches.state_dict()

    def __len__(self) -> int:
        return len(self._batches)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        # Another iteration may have read one batch more than it gave.
        self._batches.load_state_dict(self._state)
        return self._iterate(iter(self._batches))

    def _iterate(self, batches: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        sent: tuple[dict[str, Any], Any] | None = None
        for batch in batches:
            following = self._send(batch), self._batches.state_dict()
            if sent is not None:
                yield self._give(sent)
            sent = following
        if sent is not None:
            yield self._give(sent)

    def _give(self, sent: tuple[dict[str, Any], Any]) -> dict[str, Any]:
        batch, self._state = sent
        return batch

    def _send(self, batch: Mapping[str, Any]) -> dict[str, Any]:
        arrays = {k: v for k, v in batch.items() if is_numeric(v)}
        made: dict[str, Any] = dict(batch)
        if self._sharding is not None and jax.process_count() > 1:
            made |= jax.tree.map(self._global, arrays)
        else:
            made |= jax.device_put(arrays, self._sharding)
        return made

    def _global(self, local: Any) -> Any:
        return jax.make_array_from_process_local_data(self._sharding, local)

    def state_dict(self) -> dict[str, Any]:
        """Returns where the next batch is, as JSON values.

        It counts the batches that the caller has, not the one that was sent ahead.
        """
        return dict(self._state)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues after the last batch before ``state_dict``.

        Raises
        ------
        InputError
            If the state is of other records or arguments.
        """
        self._batches.load_state_dict(state)
        self._state = self._batches.state_dict()


def is_numeric(values: Any) -> bool:
    """Whether JAX has arrays of this dtype; it has no texts and no lists of arrays."""
    return isinstance(values, np.ndarray) and values.dtype != object
