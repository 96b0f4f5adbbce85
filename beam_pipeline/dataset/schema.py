"""``schema.pbtxt``: the features of an example as a TensorFlow Metadata schema."""

from __future__ import annotations

from collections.abc import Mapping

from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    LISTS,
    FeatureSpec,
)


def schema_text(features: Mapping[str, FeatureSpec]) -> bytes:
    """Returns the schema of the examples as a TensorFlow Metadata text proto.

    TFX, TF Transform, TFDV and tfx-bsl read it. They see raw arrays as byte strings.
    """
    from google.protobuf import text_format
    from tensorflow_metadata.proto.v0 import schema_pb2

    kinds = {
        FLOAT_LIST: schema_pb2.FLOAT,
        INT64_LIST: schema_pb2.INT,
        BYTES_LIST: schema_pb2.BYTES,
    }
    schema = schema_pb2.Schema()
    for name, spec in features.items():
        feature = schema.feature.add(
            name=name, type=kinds.get(spec.encoding, schema_pb2.BYTES)
        )
        feature.annotation.comment.append(spec.description)
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
