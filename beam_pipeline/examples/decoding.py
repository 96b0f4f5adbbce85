"""Converts serialised ``tf.train.Example`` messages to numpy, without TensorFlow.

The inverse of :mod:`.encoding`. tfx-bsl parses the records in C++.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipeline.examples.compact import unpack_int8
from beam_pipeline.examples.flac_signal import decode_flac
from beam_pipeline.examples.spec import (
    ARRAYS,
    BYTES,
    BYTES_LIST,
    FLAC,
    FLOAT_LIST,
    INT8,
    INT64_LIST,
    JPEG,
    PNG,
    TENSOR,
    FeatureSpec,
    numpy_dtype,
)
from beam_pipeline.recipe.values import ENCODINGS

_STEPS = "##steps##"  # tfx-bsl's column for the lists of a SequenceExample


def decode_examples(
    records: Sequence[bytes], specs: Mapping[str, FeatureSpec]
) -> list[dict[str, Any]]:
    """Returns examples as dicts of numpy arrays and texts.

    A feature that a record lacks, and may lack, is left out of its dict.

    Raises
    ------
    ValueError
        If a record is not a ``tf.train.Example``, lacks a feature, or holds a feature
        with another type or shape than its spec has.
    """
    if not records:
        return []
    sequences = any(spec.sequence for spec in specs.values())
    columns = arrow_columns(records, sequences)
    _check_columns(columns, specs)
    return [_example(columns, specs, i) for i in range(len(records))]


def decode_columns(
    columns: Mapping[str, Any], count: int, specs: Mapping[str, FeatureSpec]
) -> dict[str, Any]:
    """Returns the features of some examples as columns, as the encoder takes them.

    Parameters
    ----------
    columns : mapping
        The examples as :func:`arrow_columns` returns them.
    count : int
        The number of examples.

    Returns
    -------
    dict
        For each feature, an array of shape ``(count, ...)``; or a list with an array
        for each example, and None for those that lack the feature. Texts are bytes or
        str.

    Raises
    ------
    ValueError
        See :func:`decode_examples`.
    """
    _check_columns(columns, specs)
    made: dict[str, Any] = {}
    for name, spec in specs.items():
        column = columns.get(name)
        if column is None or column.null_count == count:
            made[name] = [None] * count
            continue
        try:
            values = _stacked(spec, column)
            if values is None:
                examples = (_example(columns, {name: spec}, i) for i in range(count))
                values = [example.get(name) for example in examples]
        except ValueError as error:
            raise ValueError(f"feature {name}: {error}") from error
        made[name] = values
    return made


def _stacked(spec: FeatureSpec, column: Any) -> Any:
    """Returns the lists of a column as one array; None if their shapes may differ."""
    if spec.sequence or spec.shape_in is not None:
        return None
    sizes = [-1 if size is None else size for size in spec.shape or ()]
    if spec.shape is None:
        sizes = [-1]
    if spec.encoding == BYTES_LIST:
        lists = [None if v is None else np.array(v, object) for v in column.to_pylist()]
        _check_lengths(spec, {len(v) for v in lists if v is not None})
        return [None if v is None else v.reshape(sizes) for v in lists]
    if column.null_count or spec.encoding not in _STACKED:
        return None
    lengths = column.value_lengths().to_numpy(zero_copy_only=False)
    values = column.flatten()
    if spec.encoding in ARRAYS:
        texts = values.to_pylist()
        if np.any(lengths != 1) or len({len(text) for text in texts}) > 1:
            return None
        flat = _from_bytes(spec, b"".join(texts))
    else:
        _check_lengths(spec, set(np.unique(lengths).tolist()))
        if lengths.min() != lengths.max():
            return None
        flat = _numbers(spec, values)
    return flat.reshape([len(column), *sizes])


def _check_lengths(spec: FeatureSpec, lengths: Collection[int]) -> None:
    if spec.has_fixed_shape:
        for length in lengths:
            if length != math.prod(spec.sizes):
                raise ValueError(f"has {length} values, but its shape is {spec.shape}")


def _check_columns(
    columns: Mapping[str, Any], specs: Mapping[str, FeatureSpec]
) -> None:
    """Raises ValueError if a feature is missing or has another type."""
    for name, spec in specs.items():
        column = columns.get(name)
        if column is None or column.null_count == len(column):
            if not spec.optional:
                raise ValueError(f"a record lacks feature {name}")
            continue
        if column.null_count and not spec.optional:
            raise ValueError(f"a record lacks feature {name}")
        found = str(column.type.value_type)
        if not spec.sequence and not found.endswith(_ARROW_TYPES[spec.encoding]):
            raise ValueError(
                f"feature {name} is stored as {found}, but its spec says "
                f"{spec.encoding}"
            )


def arrow_columns(records: Sequence[bytes], sequences: bool) -> dict[str, Any]:
    """Returns the features of records as columns of Arrow, by name.

    Parameters
    ----------
    sequences : bool
        Whether the records are ``tf.train.SequenceExample``.

    Raises
    ------
    ValueError
        If they are not, or one feature has several types.
    """
    try:
        if not sequences:
            from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

            batch = ExamplesToRecordBatchDecoder().DecodeBatch(list(records))
            return {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
        from tfx_bsl.coders.sequence_example_coder import (
            SequenceExamplesToRecordBatchDecoder,
        )

        decoder = SequenceExamplesToRecordBatchDecoder(_STEPS)
        batch = decoder.DecodeBatch(list(records))
    except RuntimeError as error:
        raise ValueError(f"records are not tf.train.Examples: {error}") from error
    columns = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    steps = columns.pop(_STEPS, None)
    if steps is not None:
        lists = zip(steps.type, steps.flatten(), strict=True)
        columns.update((field.name, values) for field, values in lists)
    return columns


def _example(
    columns: Mapping[str, Any], specs: Mapping[str, FeatureSpec], i: int
) -> dict[str, Any]:
    example = {}
    for name, spec in specs.items():
        column = columns.get(name)
        if column is None or not column[i].is_valid:
            continue
        shape = None
        if spec.shape_in is not None:
            shape = columns[spec.shape_in][i].values.to_numpy(zero_copy_only=False)
        if spec.sequence:
            steps = column[i].values or ()
            values = [_DECODERS[spec.encoding](spec, step.values) for step in steps]
            sizes = [-1 if n is None else n for n in (spec.shape or (None,))[1:]]
            example[name] = (
                np.stack([np.reshape(v, sizes) for v in values])
                if values
                else np.zeros((0, *(max(n, 0) for n in sizes)), numpy_dtype(spec.dtype))
            )
            continue
        found = _DECODERS[spec.encoding](spec, column[i].values)
        if isinstance(found, np.ndarray) and spec.encoding not in _SHAPED:
            found = spec.restore_shape(found, shape)[()]
        example[name] = found
    return example


def _numbers(spec: FeatureSpec, values: Any) -> Any:
    found = values.to_numpy(zero_copy_only=False)
    numbers = found.astype(spec.dtype, copy=False)
    if spec.encoding == INT64_LIST and np.any(numbers != found):
        (first,) = found[numbers != found][:1]
        raise ValueError(f"{spec.dtype} cannot hold the value {first}")
    return numbers


def _texts(spec: FeatureSpec, values: Any) -> Any:
    texts = values.to_pylist()
    texts = np.array(texts, object) if spec.dtype == BYTES else _as_texts(texts)
    if spec.shape == ():
        (text,) = texts
        return text
    return texts


def _as_texts(values: Sequence[bytes]) -> Any:
    texts = [value.decode(errors="backslashreplace") for value in values]
    return np.array(texts, object)


def _raw(spec: FeatureSpec, values: Any) -> Any:
    if len(values) != 1:
        raise ValueError(f"has {len(values)} values instead of the bytes of one array")
    return _from_bytes(spec, values[0].as_py())


def _from_bytes(spec: FeatureSpec, value: bytes) -> Any:
    stored = numpy_dtype(spec.stored_dtype)
    # bfloat16 and its kin have no order of bytes to choose.
    little = stored if stored.kind == "V" else stored.newbyteorder("<")
    return np.frombuffer(value, little).astype(numpy_dtype(spec.dtype))


def _int8(spec: FeatureSpec, values: Any) -> Any:
    (value,) = values.to_pylist()
    return unpack_int8(value)


def _flac(spec: FeatureSpec, values: Any) -> Any:
    (value,) = values.to_pylist()
    return decode_flac(value, spec.dtype, spec.shape or ())


def _tensor(spec: FeatureSpec, values: Any) -> Any:
    from beam_pipeline.examples.tensor_proto import decode_tensor

    (value,) = values.to_pylist()
    found = decode_tensor(value, spec.dtype)
    if spec.dtype == "string":
        found = _as_texts(found.ravel().tolist()).reshape(found.shape)
    return found[()]


def _image(spec: FeatureSpec, values: Any) -> Any:
    from beam_pipeline.examples.images import decode_image

    (value,) = values.to_pylist()
    return decode_image(value, spec.encoding, spec.dtype, spec.shape or ())


# The ends of the type names of tfx-bsl's columns; some versions say large_binary.
_ARROW_TYPES = {
    **dict.fromkeys(ENCODINGS, "binary"),
    FLOAT_LIST: "float",
    INT64_LIST: "int64",
}
_STACKED = (FLOAT_LIST, INT64_LIST, *ARRAYS)
_SHAPED = (TENSOR, PNG, JPEG, FLAC)
_DECODERS: Mapping[str, Callable[[FeatureSpec, Any], Any]] = {
    FLOAT_LIST: _numbers,
    INT64_LIST: _numbers,
    BYTES_LIST: _texts,
    **dict.fromkeys(ARRAYS, _raw),
    INT8: _int8,
    FLAC: _flac,
    TENSOR: _tensor,
    PNG: _image,
    JPEG: _image,
}
