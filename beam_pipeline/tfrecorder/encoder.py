"""Makes the records of rows in workers: load, split, serialise."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from beam_pipeline.errors import ExampleError, UnstorableAttribute
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.tfrecorder.example import Example, encoder_of
from beam_pipeline.tfrecorder.recording import (
    Source,
    SourceExample,
    examples_of,
    failed,
    released,
    source_name,
)
from beam_pipeline.write.element_blocks import Encoded

# Values wait for the statistics up to this number of examples, and of bytes.
_WAITING = 4096
_WAITING_BYTES = 1 << 20


@dataclass(frozen=True)
class RowEncoder:
    """Makes the examples of a block of rows; see :class:`.BlockEncoder`."""

    example_class: type[Example]
    kwargs: Mapping[str, Any]
    log_in_csv_file: bool

    @property
    def specs(self) -> Sequence[FeatureSpec]:
        """The features, in the order of declaration."""
        return self.example_class.feature_specs()

    def encode(self, sources: tuple[str, Sequence[Source]]) -> Iterator[Encoded]:
        """Yields the records of each row, as soon as they are made."""
        split, rows = sources
        waiting = _Waiting()
        for example in examples_of(
            rows, self.example_class, self.kwargs, log_in_csv_file=self.log_in_csv_file
        ):
            lines = () if example.csv_line is None else (example.csv_line,)
            if example.ignored is not None:
                yield Encoded(split, (), {}, lines, 1, (example.ignored,))
                continue
            yield Encoded(split, (), {}, lines, 1)
            for records, columns in self._runs(example):
                yield Encoded(split, records, {})
                waiting.add(columns)
            released(example)
            del example  # before the next one is loaded
            if waiting.is_full():
                yield Encoded(split, (), waiting.take())
        if waiting.columns:
            yield Encoded(split, (), waiting.take())

    def _runs(self, example: SourceExample) -> Iterator[Any]:
        encoder = encoder_of(self.example_class)
        try:
            yield from encoder.encode_all(example.chunks)
        except UnstorableAttribute as error:
            name = source_name(example.source)
            raise UnstorableAttribute(name, str(error)) from error
        except ExampleError:
            raise
        except Exception as error:
            raise failed(example.source, "an attribute", error) from error


class _Waiting:
    """Values of features that are added to the statistics together."""

    def __init__(self) -> None:
        self.columns: dict[str, list[Any]] = {}
        self._examples = self._bytes = 0

    def add(self, columns: Mapping[str, Any]) -> None:
        """Adds the arrays of some examples, each with a first axis for them."""
        for name, values in columns.items():
            self.columns.setdefault(name, []).append(values)
            self._bytes += values.nbytes
        self._examples += len(next(iter(columns.values()), ()))

    def is_full(self) -> bool:
        """Whether it is time to take them."""
        return self._examples >= _WAITING or self._bytes >= _WAITING_BYTES

    def take(self) -> dict[str, Any]:
        """Returns the arrays of each feature, and forgets them."""
        taken = {name: tuple(pieces) for name, pieces in self.columns.items()}
        self.__init__()  # type: ignore[misc]
        return taken
