"""The records of some files as the examples of a data set."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_pipeline.conversion.input_files import InputFile, read_together
from beam_pipeline.conversion.originals import decode_originals
from beam_pipeline.errors import InputError
from beam_pipeline.examples.decoding import arrow_columns, decode_columns
from beam_pipeline.examples.encoding import ExampleEncoder
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.wire import is_sequence_example, keep_features
from beam_pipeline.inputs.splits import Splitter, group_key
from beam_pipeline.read.original_records import OriginalSpec
from beam_pipeline.write.element_blocks import Encoded


@dataclass(frozen=True)
class RecordEncoder:
    """Takes the records of files over, as they are if all features stay.

    Attributes
    ----------
    specs : tuple of FeatureSpec
        The features that stay.
    takes_all : bool
        Whether all features stay.
    advice : str
        What to do if a record does not fit the specs.
    original : tuple of OriginalSpec or None
        The features as tf_dataset stores them; records are then encoded anew.
    shares : mapping or None
        The share of each split; None: records stay in the splits of their files.
    group : FeatureSpec or None
        Examples with the same value of this feature go to one split; None: each
        example by itself.
    seed : int
    """

    specs: tuple[FeatureSpec, ...]
    takes_all: bool
    advice: str
    original: tuple[OriginalSpec, ...] | None = None
    shares: Mapping[str, float] | None = None
    group: FeatureSpec | None = None
    seed: int = 0

    def encode(self, sources: Sequence[InputFile]) -> Iterator[Encoded]:
        """Yields the examples of some files, in their order.

        Raises
        ------
        InputError
            If a record is damaged or does not fit; the message names file and record.
        """
        for source in sources:
            for first, records in read_together(source):
                try:
                    made = self._encode(source, first, records)
                except ValueError as error:
                    raise self._error(source, first, records, error) from error
                yield from made

    def _encode(
        self, source: InputFile, first: int, records: Sequence[bytes]
    ) -> list[Encoded]:
        made, columns = self._records(records)
        if self.shares is None:
            return [Encoded(source.split, made, columns, sources=len(records))]
        groups = self._groups(source, first, records, columns)
        splitter = Splitter(self.shares)
        splits = [splitter.split_of(group_key(self.seed, text)) for text in groups]
        encoded = []
        for split in self.shares:
            chosen = [i for i, name in enumerate(splits) if name == split]
            if chosen:
                some = {name: _some(column, chosen) for name, column in columns.items()}
                examples = [made[i] for i in chosen]
                encoded.append(Encoded(split, examples, some, sources=len(chosen)))
        return encoded

    def _records(
        self, records: Sequence[bytes]
    ) -> tuple[Sequence[bytes], dict[str, Any]]:
        """Returns the records with the features that stay, and these features."""
        specs = {spec.name: spec for spec in self.specs}
        if self.original is not None:
            if self.group is not None:
                specs[self.group.name] = self.group
            columns = decode_originals(records, self.original, specs)
            return ExampleEncoder(self.specs).encode(len(records), columns), columns
        if not self.takes_all:
            names = {spec.name.encode() for spec in self.specs}
            records = [keep_features(record, names) for record in records]
        found = arrow_columns(records, has_sequences(self.specs, records))
        for name, column in found.items():
            if name not in specs and hasattr(column.type, "value_type"):
                raise ValueError(
                    f"feature {name} is not among the known features, "
                    f"{', '.join(specs)}"
                )
        return records, decode_columns(found, len(records), specs)

    def _groups(
        self,
        source: InputFile,
        first: int,
        records: Sequence[bytes],
        columns: Mapping[str, Any],
    ) -> list[str]:
        """Returns the text that decides the split of each record."""
        if self.group is None:
            return [f"{source.name}:{first + i}" for i in range(len(records))]
        name = self.group.name
        if name not in columns:
            some = [keep_features(record, {name.encode()}) for record in records]
            found = arrow_columns(some, has_sequences([self.group], some))
            columns = decode_columns(found, len(some), {name: self.group})
        return [_group_text(name, value) for value in columns[name]]

    def _error(
        self,
        source: InputFile,
        first: int,
        records: Sequence[bytes],
        error: ValueError,
    ) -> InputError:
        """Returns an error that names the first record that cannot be converted."""
        where = f"records {first} to {first + len(records) - 1}"
        for number, record in enumerate(records, first):
            try:
                self._encode(source, number, [record])
            except ValueError as found:
                where, error = f"record {number}", found
                break
        return InputError(f"{source.path}, {where}: {error}. {self.advice}")


def has_sequences(specs: Iterable[FeatureSpec], records: Sequence[bytes]) -> bool:
    """Whether lists of features must be read, too."""
    return any(spec.sequence for spec in specs) or any(
        map(is_sequence_example, records)
    )


def _some(column: Any, chosen: Sequence[int]) -> Any:
    if isinstance(column, np.ndarray):
        return column[list(chosen)]
    return [column[i] for i in chosen]


def _group_text(name: str, value: Any) -> str:
    if value is None:
        raise ValueError(f"the record lacks feature {name}, which decides its split")
    value = np.asarray(value, object if isinstance(value, bytes | str) else None)
    values = value.ravel().tolist()
    texts = [
        v.decode(errors="backslashreplace") if isinstance(v, bytes) else str(v)
        for v in values
    ]
    return "\x1f".join(texts)
