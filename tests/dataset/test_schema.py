"""Schemas of TensorFlow Metadata as features, and back."""

import pytest

from beam_pipeline.dataset.metadata import parse_schema, schema_text
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    FLOAT_LIST,
    INT64_LIST,
    FeatureSpec,
)
from tests.raising import raises

SPECS = [
    FeatureSpec("one", "float32", (), FLOAT_LIST, "a number"),
    FeatureSpec("several", "int64", (4,), INT64_LIST),
    FeatureSpec("table", "float32", (2, 3), FLOAT_LIST),
    FeatureSpec("any", "string", (None,), BYTES_LIST),
    FeatureSpec("perhaps", "int64", (), INT64_LIST, optional=True),
]


def test_what_a_schema_can_say_comes_back():
    specs = {spec.name: spec for spec in SPECS}
    assert parse_schema(schema_text(specs), "here") == specs


@pytest.mark.parametrize(
    ("more", "shape", "optional"),
    [
        ("", (None,), True),
        ("presence { min_fraction: 1 }", (None,), False),
        ("presence { min_fraction: 0.99 }", (None,), True),
        ("value_count { min: 1 max: 1 }", (), True),
        ("value_count { min: 5 max: 5 }", (5,), True),
        ("value_count { min: 1 max: 5 }", (None,), True),
        ("value_count { min: 0 max: 0 }", (None,), True),
        ("shape { }", (), True),
        ("shape { dim { size: 2 } dim { size: 3 } }", (2, 3), True),
        ("shape { dim { size: 2 } dim { name: 'x' } }", (None,), True),
    ],
)
def test_shapes_and_presence(more, shape, optional):
    text = f'feature {{ name: "x" type: FLOAT {more} }}'
    (spec,) = parse_schema(text.encode(), "here").values()
    assert spec == FeatureSpec("x", "float32", shape, FLOAT_LIST, optional=optional)


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        (b"feature {", []),
        (b"\xff", []),
        (b'{"feature": []}', []),
        (b'feature { name: "x" }', ["x", "TYPE_UNKNOWN"]),
        (b'feature { name: "x" type: STRUCT }', ["x", "STRUCT"]),
        (b'feature { name: "x" type: INT } feature { name: "x" type: INT }', ["x"]),
    ],
)
def test_what_is_no_schema_of_examples_is_an_error(text, facts):
    with raises(InputError, naming=["there.pbtxt", *facts]):
        parse_schema(text, "there.pbtxt")
