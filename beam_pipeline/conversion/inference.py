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

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

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

_ENCODINGS = {
    "float": FLOAT_LIST,
    "int64": INT64_LIST,
    "binary": BYTES_LIST,
    "large_binary": BYTES_LIST,
}
_DTYPES = {FLOAT_LIST: "float32", INT64_LIST: "int64", BYTES_LIST: "string"}
_INTEGERS = STORED_DTYPES[:8]  # all but uint64


@dataclass
class _Found:
    """What examples show of a feature; ``widths`` are the values in its steps."""

    encoding: str
    sequence: bool
    where: str
    widths: set[int] = field(default_factory=set)


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
    found: dict[str, _Found] = {}
    seen = 0
    for where, record in _first_records(sources):
        seen += 1
        try:
            _look_at(record, where, found)
        except ValueError as error:
            raise InputError(f"{where}: {error}.") from error
    if not seen:
        raise InputError(
            "The files hold no records, so they show no features. Give a `schema`."
        )
    specs = {name: _loose_spec(name, found[name]) for name in sorted(found)}
    return with_dtypes(specs, dtypes)


def _first_records(sources: Iterable[InputFile]) -> Iterator[tuple[str, bytes]]:
    """Yields the first records of each split, with the file and number of each."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for source in sources:
        split = source.split
        if not _has_room(counts.get(split, 0), sizes.get(split, 0)):
            continue
        for number, record in enumerate(read_source(source)):
            yield f"{source.path}, record {number}", record
            counts[split] = counts.get(split, 0) + 1
            sizes[split] = sizes.get(split, 0) + len(record)
            if not _has_room(counts[split], sizes[split]):
                break


def _has_room(count: int, size: int) -> bool:
    return count < FIRST and size < _FIRST_BYTES


def _look_at(record: bytes, where: str, found: dict[str, _Found]) -> None:
    """Adds what one record shows of its features.

    Raises
    ------
    ValueError
        If it contradicts the records before.
    """
    for name, column in arrow_columns([record], is_sequence_example(record)).items():
        if not hasattr(column.type, "value_type"):
            continue  # without a value, a feature has no type
        inner = column.type.value_type
        sequence = hasattr(inner, "value_type")
        kind = str(inner.value_type if sequence else inner)
        if kind not in _ENCODINGS or not column[0].is_valid:
            continue
        encoding = _ENCODINGS[kind]
        known = found.setdefault(name, _Found(encoding, sequence, where))
        if (known.encoding, known.sequence) != (encoding, sequence):
            raise ValueError(
                f"feature {name} is {_words(encoding, sequence)}, but in {known.where} "
                f"it is {_words(known.encoding, known.sequence)}. One data set cannot "
                "hold both"
            )
        if sequence:
            steps = column[0].values
            known.widths |= {0 if s.values is None else len(s.values) for s in steps}


def _words(encoding: str, sequence: bool) -> str:
    return f"a sequence of {encoding}" if sequence else f"a {encoding}"


def _loose_spec(name: str, found: _Found) -> FeatureSpec:
    dtype = _DTYPES[found.encoding]
    if not found.sequence:
        return FeatureSpec(name, dtype, (None,), found.encoding, optional=True)
    if len(found.widths) > 1:
        raise InputError(
            f"{found.where}: the steps of the sequence {name} have "
            f"{' or '.join(map(str, sorted(found.widths)))} values, but all must have "
            "the same number. Leave the feature out with `features`."
        )
    (width,) = found.widths
    shape = (None,) if width == 1 else (None, width)
    return FeatureSpec(name, dtype, shape, found.encoding, optional=True, sequence=True)


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


def keep_specs(specs: Iterable[FeatureSpec], seen: Seen) -> list[FeatureSpec]:
    """Returns the specs as they are, because something describes the features."""
    return list(specs)
