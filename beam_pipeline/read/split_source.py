"""Open splits: where its examples are, and how their records become values."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np

from beam_pipeline.dataset.side_by_side import Folders, open_data_sets
from beam_pipeline.errors import DamagedRecord, InputError, OptionError
from beam_pipeline.examples.record_parser import ExampleMaker, RecordParser, Stored
from beam_pipeline.examples.structure import needed_features
from beam_pipeline.read.choices import choose_features
from beam_pipeline.read.example import Example
from beam_pipeline.read.member_records import (
    Integers,
    MemberReader,
    Wanted,
    load_places,
)
from beam_pipeline.read.sizes import most_record_bytes
from beam_pipeline.read.split_choice import Split, choose_splits
from beam_pipeline.read.window_table import (
    examples_of,
    read_window_table,
)
from beam_pipeline.storage import files


class SplitSource:
    """One open split or several, which a sequence and its views share.

    ``numbers`` are those of the chosen examples, which may be a part.
    """

    def __init__(
        self,
        folders: Folders,
        split: Split | None,
        features: Sequence[str] | None,
    ):
        self.data = data = open_data_sets(folders)
        self.metadata, self.folder = data.metadata, data.name
        if not isinstance(features, str | Sequence | None):
            raise OptionError("features", "must be a list of names", features)
        try:
            choice = choose_splits(self.metadata, split)
            names = choose_features(self.metadata, features)
        except InputError as error:  # it does not know the folder
            raise InputError(f"{data.name}: {error}") from error
        self.split, self.splits = choice.text, choice.splits
        self.numbers = choice.numbers(self.metadata)
        self.chosen = None if features is None else tuple(names)
        shards = choice.shards(self.metadata)
        self.places = load_places(data, shards)
        most_bytes = most_record_bytes(self.metadata.features.values())
        self.reader = MemberReader(data.folders, most_bytes)
        elements = self.metadata.elements
        structure = None if elements is None else elements.structure
        specs = needed_features(names, self.metadata.features, structure)
        shapes = {spec.shape_in for spec in specs.values()}
        self.features = {n: s for n, s in specs.items() if n not in shapes}
        self.parser = RecordParser(self.metadata.features, specs)
        self.maker = ExampleMaker(self.parser, self.features)
        self.new_example = partial(Example.of, self.metadata)
        self._table: Any = None
        self._sources: Any = None
        sizes = sum(shard.bytes for shard in shards)
        self.example_bytes = max(2 * sizes // max(len(self.places), 1), 1)

    def table(self) -> Any:
        """Returns the table of the splits' windows; read once."""
        if self._table is None:
            self._table = read_window_table(self.data, self.splits)
        return self._table

    def sources(self) -> Any:
        """Returns the table of the examples, with their sources; read once."""
        if self._sources is None:
            table = read_window_table(self.data, self.splits, sources=True)
            self._sources = examples_of(table)
        return self._sources

    def walk(self, numbers: Integers, use: Callable[[int, Stored], None]) -> None:
        """Calls ``use(place, stored)`` for each example, in the order on disk."""
        for wanted in self._wanted(numbers):
            for place, stored in self.stored(wanted):
                use(place, stored)

    def one(self, number: int) -> Stored:
        """Returns the stored values of one example; faster than :meth:`walk`."""
        shard, _, span = self.places.find_one(number)
        if span.examples > 1:  # neighbours stay inflated
            (wanted,) = self._wanted(np.array([number]))
            ((_, stored),) = self.stored(wanted)
            return stored
        self.reader.check_data_set(shard)
        data, start, stop = self.reader.read_alone(shard, span, number)
        try:
            return self.parser.stored(data, start, stop)
        except ValueError as error:
            path = files.join(self.folder, shard.file)
            raise DamagedRecord(path, span.offset, number, str(error)) from error

    def _wanted(self, numbers: Integers) -> Iterator[Wanted]:
        """Yields what to read, after a test that no process rewrote the data set."""
        for place, wanted in enumerate(self.places.find(numbers)):
            if place == 0:
                self.reader.check_data_set(wanted.shard)
            yield wanted

    def stored(self, wanted: Wanted) -> Iterator[tuple[int, Stored]]:
        """Yields (place, stored values) of the wanted examples of a shard."""
        parse = self.parser.stored
        for place, example, data, start, stop, offset in self.reader.read(wanted):
            try:
                stored = parse(data, start, stop)
            except ValueError as error:
                path = files.join(self.folder, wanted.shard.file)
                raise DamagedRecord(path, offset, example, str(error)) from error
            yield place, stored

    def serialised(self, numbers: Integers) -> list[bytes]:
        """Returns the records of some examples, in the order asked for."""
        found: list[Any] = [None] * len(numbers)
        for wanted in self._wanted(numbers):
            for place, _, data, start, stop, _ in self.reader.read(wanted):
                found[place] = data[start:stop]
        return found

    def fingerprint(self, numbers: Integers | None) -> str:
        """Returns a hash of the shards and of some examples; None: of all of them."""
        hasher = hashlib.sha256()
        for shard in self.places.shards:
            hasher.update(shard.sha256.encode())
        if numbers is not None:
            hasher.update(numbers.astype("<i8").tobytes())
        return hasher.hexdigest()[:32]


def chosen_numbers(keys: Any, numbers: range | Integers, where: str) -> Integers:
    """Returns the elements of ``numbers`` that a list of positions, or a mask, chooses.

    Parameters
    ----------
    keys : array-like
        Integers, of which negative ones count from the end; or a bool for each number.
    numbers : range or numpy.ndarray
        The numbers in the split of the examples to choose from.
    where : str
        What they are, for errors.

    Raises
    ------
    IndexError
        If there is no such example, or a mask has another length.
    """
    chosen: Any = np.asarray(keys)
    length = len(numbers)
    if chosen.dtype == bool:
        if chosen.shape != (length,):
            raise IndexError(
                f"a mask needs a value for each of the {length} examples of {where}, "
                f"but has the shape {chosen.shape}"
            )
        chosen = np.flatnonzero(chosen)
    if chosen.size == 0:
        chosen = chosen.astype(np.int64)
    if chosen.ndim != 1 or chosen.dtype.kind not in "iu":
        hint = " (`records[i]` is one example)" if chosen.ndim == 0 else ""
        raise IndexError(
            "several examples are chosen by a slice, a list of numbers or a mask, not "
            f"by {keys!r}{hint}"
        )
    wrong = (chosen < -length) | (chosen >= length)
    if wrong.any():
        raise no_example(chosen[wrong][0], length, where)
    chosen = chosen.astype(np.int64)
    chosen = np.where(chosen < 0, chosen + length, chosen)
    if isinstance(numbers, range):
        return np.asarray(numbers.start + chosen * numbers.step)
    return np.asarray(numbers[chosen])


def no_example(number: int, length: int, where: str) -> IndexError:
    """Returns the error for an example that does not exist."""
    return IndexError(
        f"there is no example {number}, only {length} examples of {where}"
    )
