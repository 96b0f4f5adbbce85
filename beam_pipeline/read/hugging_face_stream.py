"""Records as streams of Hugging Face, whose states know which order they are of.

::

    RecordStream, a datasets.IterableDataset     its epoch
      RecordExamples                             its pieces, and their order
        read_pieces                              examples

What a method of a stream makes, such as ``batch`` or ``map``, is another
``IterableDataset``, which reads the same :class:`RecordExamples`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import datasets
import numpy as np
from datasets.iterable_dataset import ExamplesIterable

from beam_pipeline.errors import OptionError
from beam_pipeline.read.batch_iteration import check_identity, state_number
from beam_pipeline.read.choices import check_binary, check_number
from beam_pipeline.read.hugging_face import (
    Making,
    features_of,
    named_split,
    pieces_of,
    read_pieces,
)

IDENTITY = "records"


def make_stream(
    records: Any, shuffle: Any, seed: int, epoch: int, binary: Sequence[str]
) -> datasets.IterableDataset:
    """Returns a ``datasets.IterableDataset``, which reads what is asked for."""
    if shuffle not in (False, "global"):
        raise OptionError("shuffle", "must be 'global' or False", shuffle)
    names = check_binary(binary, records.features)
    making = Making(shuffle, int(seed), check_number("epoch", epoch), names)
    identity = {
        "split": records.split,
        "examples": len(records),
        "fingerprint": records.fingerprint,
        "shuffle": shuffle,
        "seed": making.seed,
    }
    return RecordStream(
        RecordExamples(records, pieces_of(len(records)), making, identity),
        info=datasets.DatasetInfo(
            features=features_of(records.features, records.classes, names)
        ),
        split=named_split(records.split),
    )


class RecordExamples(ExamplesIterable):  # type: ignore[misc]
    """The examples of some pieces of an order.

    Hugging Face asks it for other pieces, for a worker or a rank; for another order,
    for an epoch; and for its state.
    """

    def __init__(
        self,
        records: Any,
        pieces: Sequence[tuple[int, int]],
        making: Making,
        identity: Mapping[str, Any],
    ):
        arguments = {"records": records, "pieces": list(pieces), "making": making}
        super().__init__(_numbered, arguments)
        self._identity = dict(identity)

    def _like(self, arguments: Mapping[str, Any]) -> RecordExamples:
        return RecordExamples(**arguments, identity=self._identity)

    def shard_data_sources(self, *args: Any, **options: Any) -> RecordExamples:
        return self._like(super().shard_data_sources(*args, **options).kwargs)

    def reshard_data_sources(self) -> RecordExamples:
        return self._like(self.kwargs)

    def shuffle_data_sources(self, generator: np.random.Generator) -> RecordExamples:
        """Returns the examples of a later epoch.

        For an epoch, Hugging Face gives a generator whose seed is its number. The order
        on disk is permuted by pieces.
        """
        making = self.kwargs["making"]
        if not making.shuffle:
            return self._like(super().shuffle_data_sources(generator).kwargs)
        entropy: Any = generator.bit_generator.seed_seq.entropy  # type: ignore[attr-defined]
        epoch = making.epoch + int(entropy) % 2**31
        return self._like({**self.kwargs, "making": making._replace(epoch=epoch)})

    def _init_state_dict(self) -> dict[str, Any]:
        state: dict[str, Any] = super()._init_state_dict()
        state[IDENTITY] = self._identity_of_epoch()
        return state

    def _identity_of_epoch(self) -> dict[str, Any]:
        return {**self._identity, "epoch": self.kwargs["making"].epoch}

    def __iter__(self) -> Iterator[tuple[int, dict[str, Any]]]:
        # What reads these examples writes its state into this one, without a call.
        if self._state_dict:
            identity = self._identity_of_epoch()
            check_identity(self._state_dict[IDENTITY], identity, "examples")
        yield from super().__iter__()

    def check(self, state: Mapping[str, Any]) -> None:
        """Raises InputError if a state is of other records or another order."""
        check_identity(_find(state) or {}, self._identity, "examples")


class RecordStream(datasets.IterableDataset):  # type: ignore[misc]
    """A stream whose ``load_state_dict`` also chooses the epoch of the state."""

    def set_epoch(self, epoch: int) -> None:
        """The next pass is this epoch, counted from the first epoch of the stream."""
        super().set_epoch(check_number("epoch", epoch))

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continues after the last example before ``state_dict``.

        Raises
        ------
        InputError
            If the state is of other records, or of another order.
        """
        self._ex_iterable.check(state_dict)
        self.set_epoch(state_number(state_dict, "epoch"))
        super().load_state_dict(state_dict)


def _numbered(**arguments: Any) -> Iterator[tuple[int, dict[str, Any]]]:
    return enumerate(read_pieces(**arguments))


def _find(state: Any) -> Any:
    """Returns the identity in a state, which holds that of its source within."""
    if not isinstance(state, Mapping):
        return None
    if IDENTITY in state:
        return state[IDENTITY]
    found = (_find(inner) for inner in state.values())
    return next((identity for identity in found if identity is not None), None)
