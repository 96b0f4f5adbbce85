"""Several data sets as one, in given proportions.

A mix draws the source of each example by a hash of the example's number.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Unpack, get_args

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.side_by_side import check_classes, check_features
from beam_pipeline.errors import InputError, OptionError, UnknownOption
from beam_pipeline.parameters import Number, check_choice, check_known, check_whole
from beam_pipeline.permutation import Integers, hash64, unit_floats
from beam_pipeline.read.batches import (
    Batch,
    BatchIteration,
    MixOptions,
    State,
    Task,
)
from beam_pipeline.read.choices import Split
from beam_pipeline.read.records import Records, open_records
from beam_pipeline.storage import files
from beam_pipeline.text import text_key

Folder = files.PathLike | tuple[files.PathLike, ...]
Sources = (
    Mapping[Folder, float]
    | Mapping[Records, float]
    | Sequence[tuple[Folder | Records, float]]
)

Ends = Literal["repeat", "stop", "leave"]

# What of a feature must be the same in all sources.
_AGREEING = ("dtype", "shape", "optional", "sequence")


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

    def take(self, epoch: int, drawn: int, taken: Integers, count: int) -> Integers:
        """Returns the sources of the next draws.

        Parameters
        ----------
        epoch : int
        drawn : int
            The number of draws before.
        taken : numpy.ndarray of int64, shape (sources,)
            How often each source was among them.
        count : int

        Returns
        -------
        numpy.ndarray of int64
            Of ``count`` sources, or fewer if the draws end.
        """
        key = text_key(str(self.seed), f"draws of epoch {epoch}")
        index, trainers = self.shard
        numbers = np.arange(drawn, drawn + count) * trainers + index
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


def mix(
    sources: Sources,
    *,
    seed: int = 0,
    ends: Ends = "repeat",
    split: Split | None = None,
    features: Sequence[str] | None = None,
) -> Mixed:
    """Mixes data sets, by drawing the source of each example.

    ::

        mixed = mix({"speech/": 0.7, "noise/": 0.3}, seed=1)
        for batch in mixed.batches(32):
            ...

    Parameters
    ----------
    sources : mapping, or sequence of pairs
        Folders or :class:`.Records`, with their weights; a tuple of folders is one
        source; only the ratios of the weights
        count. A weight is the probability of drawing a source, whatever its size.
    seed : int
        Seed of the draws, and of the order of each source.
    ends : "repeat", "stop" or "leave"
        What happens when a source has given all its examples. ``"repeat"``: it begins
        its next epoch, in another order; the mix never ends. ``"stop"``: the mix ends.
        ``"leave"``: the others go on and share its weight; the mix ends with the last.
    split : str or list of str, optional
        The split of each folder, or several, see :func:`.open_records`. Required if a
        folder has several.
    features : sequence of str, optional
        The features to read from each folder. Default: all, which must then agree.

    Raises
    ------
    InputError
        If a data set cannot be opened or has no examples; or if the sources have
        different features, dtypes, shapes or classes.
    OptionError
        If an argument has a wrong value.
    """
    pairs = _pairs_of(sources)
    check_choice("ends", ends, get_args(Ends))
    seed = check_whole("seed", seed, None)
    are_open = all(isinstance(source, Records) for source, _ in pairs)
    for name, value in (("split", split), ("features", features)):
        if are_open and value is not None:
            raise OptionError(
                name, "is for folders; choose it with `open_records` for Records", value
            )
    opened = [
        source if isinstance(source, Records) else open_records(source, split, features)
        for source, _ in pairs
    ]
    for records in opened:
        if not len(records):
            raise InputError(f"{records.folder} has no examples to mix.")
        check_features(
            opened[0].folder, opened[0].features, records.folder, records.features,
            _AGREEING, "Choose features that agree with `features`.",
        )  # fmt: skip
        if "target" in records.features:
            check_classes(opened[0].folder, opened[0], records.folder, records)
    return Mixed(opened, [weight for _, weight in pairs], seed, ends)


def _pairs_of(sources: Any) -> list[tuple[Folder | Records, float]]:
    """Returns the sources and their weights."""
    given = sources.items() if isinstance(sources, Mapping) else sources
    is_several = isinstance(given, Iterable) and not isinstance(given, str | Records)
    pairs = list(given) if is_several else []
    if not pairs or any(not isinstance(p, tuple | list) or len(p) != 2 for p in pairs):
        need = "must be folders or Records with weights, like {'a/': 0.7, 'b/': 0.3}"
        raise OptionError("sources", need, sources)
    weights = Number(is_positive=True)
    return [(source, weights.value("weights", weight)) for source, weight in pairs]


@dataclass(frozen=True)
class Mixed:
    """Data sets that are mixed, see :func:`mix`."""

    sources: Sequence[Records]
    weights: Sequence[float]
    seed: int
    ends: Ends

    def batches(self, batch_size: int, **options: Unpack[MixOptions]) -> MixedBatches:
        """Returns batches of the mix, with ``state_dict`` and ``load_state_dict``.

        The options are those of :class:`.Batches`; ``shuffle`` is ``"global"`` by
        default. Each source has an order of its own. ``normalize`` uses the statistics
        of each example's own source. With ``shard``, a trainer has its share of each
        source.
        """
        if "seed" in options:
            raise UnknownOption("seed", "it is one of `mix`")
        check_known(options, list(MixOptions.__annotations__))
        return MixedBatches(self, batch_size, **options)


class MixedBatches(BatchIteration):
    """Batches of a mix, made by :meth:`Mixed.batches`.

    An iteration gives the mix up to its end, and the next iteration gives it again with
    other draws and orders. A mix that repeats its sources never ends.
    """

    def __init__(
        self,
        mixed: Mixed,
        batch_size: int,
        **options: Any,
    ):
        options = {"shuffle": "global", **options, "seed": mixed.seed}
        super().__init__(batch_size, **options)
        self._mixed = mixed
        self.features = mixed.sources[0].features
        self._shares = []
        for number, records in enumerate(mixed.sources):
            seed = text_key(str(mixed.seed), f"source {number}")  # orders of their own
            share = self._share_of(records, seed)
            if mixed.ends == "repeat" and not share.examples:
                index, count = self._shard
                raise InputError(
                    f"{records.folder} has {len(records)} examples, so trainer {index} "
                    f"of {count} has none to repeat."
                )
            self._shares.append(share)
        lengths = [share.examples for share in self._shares]
        self._draws = Draws(mixed.weights, lengths, mixed.ends, mixed.seed, self._shard)
        self._example_bytes = max(share.read_bytes for share in self._shares)
        self._state = self._start(0)

    def _start(self, epoch: int) -> State:
        return {"epoch": epoch, "taken": [0] * len(self._shares)}

    def _plan(self, state: State) -> Iterator[tuple[Task, State]]:
        epoch, taken = state["epoch"], np.array(state["taken"], np.int64)
        sources = self._draw(epoch, taken)
        while len(sources):
            parts = self._parts(epoch, taken, sources)
            taken = taken + np.bincount(sources, minlength=len(taken))
            sources = self._draw(epoch, taken)
            after = {"epoch": epoch, "taken": taken.tolist()}
            yield (
                functools.partial(_gather, parts),
                after if len(sources) else self._start(epoch + 1),
            )

    def _draw(self, epoch: int, taken: Integers) -> Integers:
        """Returns the sources of the next batch; none if there is no other."""
        sources = self._draws.take(epoch, int(taken.sum()), taken, self._batch_size)
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

    def _identity(self) -> dict[str, Any]:
        return {
            **super()._identity(),
            "ends": self._mixed.ends,
            "weights": list(self._mixed.weights),
            "sources": [share.identity() for share in self._shares],
        }


class _Part(NamedTuple):
    """Some rows of a batch: what ``read`` returns, and where its rows go, in order."""

    read: Task
    places: Integers


def _gather(parts: Sequence[_Part]) -> Batch:
    """Gathers parts, which have all rows together, into one batch."""
    found = [part.read() for part in parts]
    if len(parts) == 1:
        return found[0]
    size, batch = sum(len(part.places) for part in parts), Batch()
    for name, first in found[0].items():
        is_array = isinstance(first, np.ndarray)
        column: Any = [None] * size
        if is_array:
            column = np.empty((size, *first.shape[1:]), first.dtype)
        for part, values in zip(parts, found, strict=True):
            if is_array:
                column[part.places] = values[name]
                continue
            for place, value in zip(part.places.tolist(), values[name], strict=True):
                column[place] = value
        batch[name] = column
    return batch
