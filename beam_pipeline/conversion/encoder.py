"""The records of some files as the examples of a data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from beam_pipeline.conversion.inference import first_failing, has_sequences
from beam_pipeline.conversion.input_files import (
    InputFile,
    RecordChanges,
    read_together,
)
from beam_pipeline.errors import InputError
from beam_pipeline.examples.decoding import arrow_columns, decode_columns
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.wire import keep_features, replace_features
from beam_pipeline.inputs.splits import Splitter, group_key
from beam_pipeline.permutation import Integers
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
    shares : mapping or None
        The share of each split; None: records stay in the splits of their files.
    group : FeatureSpec or None
        Examples with the same value of this feature go to one split; None: each
        example by itself.
    seed : int
    splits : tuple of str
        The names of the splits that the changes of files number.
    labels : tuple of mapping
        For each label that these number, the features of it: name to entry, see
        :func:`.replace_features`.
    """

    specs: tuple[FeatureSpec, ...]
    takes_all: bool
    advice: str
    shares: Mapping[str, float] | None = None
    group: FeatureSpec | None = None
    seed: int = 0
    splits: tuple[str, ...] = ()
    labels: tuple[Mapping[bytes, bytes], ...] = ()

    def encode(self, sources: Sequence[InputFile]) -> Iterator[Encoded]:
        """Yields the examples of some files, in their order.

        Raises
        ------
        InputError
            If a record is damaged or does not fit; the message names file and record.
        """
        for source in sources:
            for first, records in read_together(source):
                numbers = np.arange(first, first + len(records))
                if source.changes is not None:
                    numbers = numbers[source.changes.splits[numbers] >= 0]
                    records = [records[number - first] for number in numbers.tolist()]
                decode = partial(self._decoded, source.changes, numbers)
                try:
                    made = self._encode(source, numbers, *decode(records))
                except ValueError:
                    bad, error = first_failing(decode, records)
                    raise InputError(
                        f"{source.path}, record {numbers[bad]}: {error}. {self.advice}"
                    ) from error
                yield from made

    def _encode(
        self,
        source: InputFile,
        numbers: Integers,
        kept: Sequence[bytes],
        columns: Mapping[str, Any],
    ) -> list[Encoded]:
        if source.changes is not None:
            found = source.changes.splits[numbers].tolist()
            splits = [self.splits[number] for number in found]
        elif self.shares is None:
            return [Encoded(source.split, kept, columns, sources=len(kept))]
        else:
            splits = self._hashed(source, numbers, columns)
        encoded = []
        for split in dict.fromkeys(splits):
            chosen = [i for i, name in enumerate(splits) if name == split]
            some = {name: _some(column, chosen) for name, column in columns.items()}
            examples = [kept[i] for i in chosen]
            encoded.append(Encoded(split, examples, some, sources=len(chosen)))
        return encoded

    def _hashed(
        self, source: InputFile, numbers: Integers, columns: Mapping[str, Any]
    ) -> list[str]:
        """Returns the split of each record, by the hash of its group."""
        if self.group is None:
            groups = [f"{source.name}:{number}" for number in numbers.tolist()]
        else:
            groups = [_text(value) for value in columns[self.group.name]]
        splitter = Splitter(self.shares or {})
        return [splitter.split_of(group_key(self.seed, text)) for text in groups]

    def _decoded(
        self,
        changes: RecordChanges | None,
        numbers: Integers,
        records: Sequence[bytes],
    ) -> tuple[Sequence[bytes], dict[str, Any]]:
        """Returns the records with the features that stay, and their values.

        The values of the group are among them. ``numbers`` has those of the records in
        their file. ValueError: if a record does not fit.
        """
        if not records:
            return [], {}
        if changes is not None:
            labels = changes.labels[numbers[: len(records)]].tolist()
            records = [
                record if label < 0 else replace_features(record, self.labels[label])
                for label, record in zip(labels, records, strict=True)
            ]
        specs = {spec.name: spec for spec in self.specs}
        names = {name.encode() for name in specs}
        if self.group is not None:
            specs[self.group.name] = self.group
        if not self.takes_all:
            records = [
                keep_features(record, {name.encode() for name in specs})
                for record in records
            ]
        found = arrow_columns(records, has_sequences(specs.values(), records))
        for name, column in found.items():
            if name not in specs and hasattr(column.type, "value_type"):
                raise ValueError(
                    f"feature {name} is not among the known features, "
                    f"{', '.join(specs)}"
                )
        columns = decode_columns(found, len(records), specs)
        if self.group is not None:
            if any(value is None for value in columns[self.group.name]):
                raise ValueError(
                    f"the record lacks feature {self.group.name}, which decides its "
                    "split"
                )
            if len(specs) > len(names):
                records = [keep_features(record, names) for record in records]
        return records, columns


def _some(column: Any, chosen: Sequence[int]) -> Any:
    if isinstance(column, np.ndarray):
        return column[list(chosen)]
    return [column[i] for i in chosen]


def _text(value: Any) -> str:
    """Returns the text of a group, which decides the split."""
    value = np.asarray(value, object if isinstance(value, bytes | str) else None)
    texts = [
        v.decode(errors="backslashreplace") if isinstance(v, bytes) else str(v)
        for v in value.ravel().tolist()
    ]
    return "\x1f".join(texts)
