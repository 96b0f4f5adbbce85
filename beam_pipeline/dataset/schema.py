"""``schema.pbtxt``: the features of an example as a TensorFlow Metadata schema."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    LISTS,
    FeatureSpec,
    Shape,
)

# Encoding -> the type in a schema, and the dtype that it is read as.
_TYPES = {
    BYTES_LIST: ("BYTES", "string"),
    FLOAT_LIST: ("FLOAT", "float32"),
    INT64_LIST: ("INT", "int64"),
}


def schema_text(
    features: Mapping[str, FeatureSpec], classes: Sequence[str] = ()
) -> bytes:
    """Returns the schema of the examples as a TensorFlow Metadata text proto.

    TFX, TF Transform, TFDV and tfx-bsl read it. They see raw arrays as byte strings.
    With classes, ``class``, ``target`` and ``labels`` have their values as domains.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    schema = schema_pb2.Schema()
    for name, spec in features.items():
        kind, _ = _TYPES.get(spec.encoding, _TYPES[BYTES_LIST])
        feature = schema.feature.add(name=name, type=schema_pb2.FeatureType.Value(kind))
        feature.annotation.comment.append(spec.description)
        if classes:
            _add_domain(feature, spec, classes)
        if not spec.optional:
            feature.presence.min_fraction = 1.0
            feature.presence.min_count = 1
        if spec.encoding in LISTS and not spec.has_fixed_shape:
            feature.value_count.min = 0
            continue
        feature.shape.SetInParent()
        for size in spec.sizes if spec.encoding in LISTS else ():
            feature.shape.dim.add(size=size)
    return str(text_format.MessageToString(schema)).encode()


def _add_domain(feature: Any, spec: FeatureSpec, classes: Sequence[str]) -> None:
    """Describes the values of a feature that says the class of an example."""
    if spec.name == "class":
        feature.string_domain.value.extend(classes)
    elif spec.name in ("target", "labels") and spec.encoding == INT64_LIST:
        largest = 1 if spec.name == "labels" else len(classes) - 1
        feature.int_domain.min, feature.int_domain.max = 0, largest
        feature.int_domain.is_categorical = True


def parse_schema(text: bytes, where: str) -> dict[str, FeatureSpec]:
    """Returns the features that a TensorFlow Metadata schema describes, by name.

    A feature has a fixed shape if the schema has its ``shape``, or a ``value_count``
    with equal ends, of which 1 is a single value; otherwise a list of any length. It
    may be missing, unless its ``presence`` has a ``min_fraction`` of 1.

    Parameters
    ----------
    text : bytes
        A text proto.
    where : str
        The path of the text, for messages.

    Raises
    ------
    InputError
        If the text is not a schema, or a feature has no type that an example stores.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    try:
        schema = text_format.Parse(text.decode(), schema_pb2.Schema())
    except (text_format.ParseError, UnicodeDecodeError) as error:
        raise InputError(
            f"{where} is not a schema of TensorFlow Metadata as text: {error}. Restore "
            "the file, or give another `schema`."
        ) from error
    encodings = {kind: encoding for encoding, (kind, _) in _TYPES.items()}
    specs: dict[str, FeatureSpec] = {}
    for feature in schema.feature:
        kind = schema_pb2.FeatureType.Name(feature.type)
        encoding = encodings.get(kind)
        if encoding is None or feature.name in specs:
            problem = "is there twice"
            if encoding is None:
                problem = f"has the type {kind}, not BYTES, INT or FLOAT"
            raise InputError(f"{where}: feature {feature.name!r} {problem}.")
        specs[feature.name] = FeatureSpec(
            feature.name,
            _TYPES[encoding][1],
            _shape_of(feature),
            encoding,
            "".join(feature.annotation.comment[:1]),
            optional=feature.presence.min_fraction < 1,
        )
    return specs


def _shape_of(feature: Any) -> Shape:
    if feature.HasField("shape"):
        sizes = tuple(dim.size for dim in feature.shape.dim)
        return sizes if all(size > 0 for size in sizes) else (None,)
    count = feature.value_count
    if count.min != count.max or not count.min:
        return (None,)
    return () if count.min == 1 else (count.min,)
