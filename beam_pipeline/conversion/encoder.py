"""The records of some files as the examples of a data set."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_pipeline.conversion.inference import first_failing, has_sequences
from beam_pipeline.conversion.input_files import InputFile, read_together
from beam_pipeline.errors import InputError
from beam_pipeline.examples.decoding import arrow_columns, decode_columns
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.wire import keep_features
from beam_pipeline.inputs.splits import Splitter, group_key
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
    """

    specs: tuple[FeatureSpec, ...]
    takes_all: bool
    advice: str
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
                except ValueError:
                    bad, error = first_failing(self._decoded, records)
                    raise InputError(
                        f"{source.path}, record {first + bad}: {error}. {self.advice}"
                    ) from error
                yield from made

    def _encode(
        self, source: InputFile, first: int, records: Sequence[bytes]
    ) -> list[Encoded]:
        kept, columns = self._decoded(records)
        if self.shares is None:
            return [Encoded(source.split, kept, columns, sources=len(kept))]
        if self.group is None:
            groups = [f"{source.name}:{first + i}" for i in range(len(kept))]
        else:
            groups = [_text(value) for value in columns[self.group.name]]
        splitter = Splitter(self.shares)
        splits = [splitter.split_of(group_key(self.seed, text)) for text in groups]
        encoded = []
        for split in self.shares:
            chosen = [i for i, name in enumerate(splits) if name == split]
            if chosen:
                some = {name: _some(column, chosen) for name, column in columns.items()}
                examples = [kept[i] for i in chosen]
                encoded.append(Encoded(split, examples, some, sources=len(chosen)))
        return encoded

    def _decoded(
        self, records: Sequence[bytes]
    ) -> tuple[Sequence[bytes], dict[str, Any]]:
        """Returns the records with the features that stay, and their values.

        The values of the group are among them. ValueError: if a record does not fit.
        """
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
