"""The columns of inputs with the types that a data set has recorded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.inputs.column_types import STRING, ColumnType
from beam_pipeline.inputs.sources import Input

Choose = Callable[[ColumnType, ColumnType], ColumnType]


def with_recorded_types(entry: Input, metadata: Metadata) -> Input:
    """Returns the input with the types that its columns have in the data set."""
    return _changed(entry, metadata, lambda _, recorded: recorded)


def with_text_of_lists(inputs: Sequence[Input], metadata: Metadata) -> list[Input]:
    """Returns the inputs with lists as text where the data set has a single text.

    Earlier versions recorded lists so, as JSON.
    """

    def choose(found: ColumnType, recorded: ColumnType) -> ColumnType:
        is_text = recorded == ColumnType(STRING)
        return recorded if is_text and found.shape else found

    return [_changed(entry, metadata, choose) for entry in inputs]


def _changed(entry: Input, metadata: Metadata, choose: Choose) -> Input:
    assert metadata.recipe is not None
    extra = len(entry.columns) - len(metadata.recipe.columns.targets)
    columns = []
    for name, kind in entry.columns[:extra]:
        spec = metadata.features.get(name)
        if spec is not None:
            kind = choose(kind, ColumnType(spec.dtype, spec.shape or ()))
        columns.append((name, kind))
    return replace(entry, columns=(*columns, *entry.columns[extra:]))
