"""Converts serialised ``tf.train.Example`` messages to numpy, without TensorFlow.

The inverse of :mod:`.encoding`. tfx-bsl parses the records in C++.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    JPEG,
    PNG,
    RAW,
    TENSOR,
    FeatureSpec,
    numpy_dtype,
)

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
    columns = _columns(records, any(spec.sequence for spec in specs.values()))
    for name, spec in specs.items():
        column = columns.get(name)
        if column is None:
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
    return [_example(columns, specs, i) for i in range(len(records))]


def _columns(records: Sequence[bytes], sequences: bool) -> dict[str, Any]:
    """Returns the columns of Arrow, by feature."""
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
    return values.to_numpy(zero_copy_only=False).astype(spec.dtype, copy=False)


def _texts(spec: FeatureSpec, values: Any) -> Any:
    texts = _as_texts(values.to_pylist())
    if spec.shape == ():
        (text,) = texts
        return text
    return texts


def _as_texts(values: Sequence[bytes]) -> Any:
    texts = [value.decode(errors="backslashreplace") for value in values]
    return np.array(texts, object)


def _raw(spec: FeatureSpec, values: Any) -> Any:
    (value,) = values.to_pylist()
    dtype = numpy_dtype(spec.dtype)
    if dtype.kind == "V":
        return np.frombuffer(value, dtype)
    return np.frombuffer(value, dtype.newbyteorder("<")).astype(dtype)


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
    FLOAT_LIST: "float",
    INT64_LIST: "int64",
    **dict.fromkeys((BYTES_LIST, RAW, TENSOR, PNG, JPEG), "binary"),
}
_SHAPED = (TENSOR, PNG, JPEG)
_DECODERS: Mapping[str, Callable[[FeatureSpec, Any], Any]] = {
    FLOAT_LIST: _numbers,
    INT64_LIST: _numbers,
    BYTES_LIST: _texts,
    RAW: _raw,
    TENSOR: _tensor,
    PNG: _image,
    JPEG: _image,
}
