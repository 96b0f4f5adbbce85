"""The features of examples that nothing describes, from the first of them.

======================================  =================================
values of a feature                     feature
======================================  =================================
always one                              a single value
always n                                a list of fixed length
otherwise                               a list of any length
absent in some examples                 optional
``float_list``                          float32
``int64_list``                          int64
``bytes_list``                          string
======================================  =================================

The first examples decide which features there are, and their types. All examples
decide the lengths, and what is optional: until the end, each feature is an optional
list of any length.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from beam_pipeline.conversion.input_files import InputFile, read_source
from beam_pipeline.elements.values import STORED_DTYPES, checked_dtype
from beam_pipeline.errors import InputError, OptionError, check_feature
from beam_pipeline.examples.decoding import arrow_columns
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    LISTS,
    RAW,
    FeatureSpec,
)
from beam_pipeline.examples.wire import is_sequence_example
from beam_pipeline.write.element_blocks import Seen

# These many examples of each split decide the features, or as many as have these bytes.
FIRST = 256
_FIRST_BYTES = 64 << 20

_STORED = {
    "float": ("float32", FLOAT_LIST),
    "int64": ("int64", INT64_LIST),
    "binary": ("string", BYTES_LIST),
    "large_binary": ("string", BYTES_LIST),
}
_INTEGERS = STORED_DTYPES[:8]  # all but uint64


def infer_features(
    sources: Iterable[InputFile], dtypes: Mapping[str, str]
) -> dict[str, FeatureSpec]:
    """Returns the features that the first examples of each split have.

    Parameters
    ----------
    dtypes : mapping
        Feature to dtype, see :func:`with_dtypes`.

    Raises
    ------
    InputError
        If there are no examples, one cannot be read, or they do not fit each other.
    OptionError
        If ``dtypes`` does not fit them.
    """
    places, records = [], []
    for place, record in first_records(sources):
        places.append(place)
        records.append(record)
    if not records:
        raise InputError(
            "The files hold no records, so they show no features. Give a `schema`."
        )
    try:
        specs = _loose_specs(records)
    except ValueError:
        bad, error = first_failing(_loose_specs, records)
        raise InputError(
            f"{places[bad]}: {error}. If the records before it are right, convert the "
            "file by itself."
        ) from error
    return with_dtypes(specs, dtypes)


def first_records(sources: Iterable[InputFile]) -> Iterator[tuple[str, bytes]]:
    """Yields the first records of each split, with the file and number of each."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for source in sources:
        split = source.split
        for number, record in enumerate(read_source(source)):
            if counts.get(split, 0) >= FIRST or sizes.get(split, 0) >= _FIRST_BYTES:
                break
            yield f"{source.path}, record {number}", record
            counts[split] = counts.get(split, 0) + 1
            sizes[split] = sizes.get(split, 0) + len(record)


def first_failing(
    function: Callable[[Any], Any], records: Sequence[bytes]
) -> tuple[int, ValueError]:
    """Returns the place of the first record that fails with those before, and how."""

    def failure(count: int) -> ValueError | None:
        try:
            function(records[:count])
        except ValueError as error:
            return error
        return None

    counts = range(1, len(records) + 1)
    place = bisect_left(counts, True, key=lambda n: failure(n) is not None)
    error = failure(place + 1)
    assert error is not None
    return place, error


def has_sequences(specs: Iterable[FeatureSpec], records: Sequence[bytes]) -> bool:
    """Whether lists of features must be read, too."""
    return any(spec.sequence for spec in specs) or any(
        map(is_sequence_example, records)
    )


def _loose_specs(records: Sequence[bytes]) -> dict[str, FeatureSpec]:
    """Returns the features of records, as lists of any length; ValueError if unfit."""
    made = {}
    for name, column in sorted(
        arrow_columns(records, has_sequences((), records)).items()
    ):
        inner = getattr(column.type, "value_type", None)
        if inner is None:  # without a value, a feature has no type
            continue
        is_sequence = hasattr(inner, "value_type")
        dtype, encoding = _STORED[str(inner.value_type if is_sequence else inner)]
        shape: tuple[int | None, ...] = (None,)
        if is_sequence:
            widths = {len(step or ()) for step in column.flatten().to_pylist()}
            if len(widths) > 1:
                raise ValueError(
                    f"the steps of the sequence {name} have "
                    f"{' or '.join(map(str, sorted(widths)))} values, but all must "
                    "have the same number"
                )
            shape = (None,) if widths == {1} else (None, *widths)
        made[name] = FeatureSpec(
            name, dtype, shape, encoding, optional=True, sequence=is_sequence
        )
    return made


def with_dtypes(
    specs: Mapping[str, FeatureSpec], dtypes: Mapping[str, str]
) -> dict[str, FeatureSpec]:
    """Returns the specs with other dtypes.

    Bytes become an array of rank 1 with any dtype of numpy, little-endian; integers
    become other integers or booleans.

    Raises
    ------
    OptionError
        If no feature has this name, or its values cannot have this dtype.
    """
    made = dict(specs)
    for name, dtype in dtypes.items():
        check_feature("dtypes", name, specs)
        spec, dtype = specs[name], checked_dtype(f"dtypes: {name}", dtype)
        if dtype == spec.dtype:
            continue
        if spec.encoding == BYTES_LIST and dtype != "string":
            made[name] = replace(spec, dtype=dtype, shape=(None,), encoding=RAW)
        elif spec.encoding == INT64_LIST and dtype in _INTEGERS:
            made[name] = replace(spec, dtype=dtype)
        else:
            raise OptionError(
                f"dtypes: {name}",
                f"values of a {spec.encoding} cannot have this dtype",
                dtype,
            )
    return made


def settle_specs(specs: Iterable[FeatureSpec], seen: Seen) -> list[FeatureSpec]:
    """Returns the specs with the lengths that all examples have."""
    settled = []
    for spec in specs:
        shape = seen.shapes.get(spec.name)
        if spec.sequence or shape is None or 0 in shape:
            shape = spec.shape or (None,)
        elif shape == (1,) and spec.encoding in LISTS:
            shape = ()
        optional = spec.name in seen.missing
        settled.append(replace(spec, shape=shape, optional=optional))
    return settled
