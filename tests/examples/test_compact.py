"""float16, bfloat16 and int8: their errors, their bytes, and every way to read them."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from beam_pipeline.errors import InputError
from beam_pipeline.examples.array_bytes import pack_int8, round_to_half, unpack_int8
from beam_pipeline.examples.decoding import decode_columns
from beam_pipeline.examples.encoding import ExampleEncoder
from beam_pipeline.examples.record_parser import BatchMaker, ExampleMaker, RecordParser
from beam_pipeline.examples.spec import BFLOAT16, FLOAT16, INT8, FeatureSpec
from tests.data_sets import decode_examples
from tests.raising import raises

COMPACT = (FLOAT16, BFLOAT16, INT8)
HALVES = {
    FLOAT16: (np.dtype(np.float16), 2.0**-11, 2.0**-25),
    BFLOAT16: (np.dtype(ml_dtypes.bfloat16), 2.0**-8, 0.0),
}
arrays = hnp.arrays(
    np.float32,
    st.integers(0, 40),
    elements=st.floats(allow_nan=False, allow_infinity=False, width=32),
)


@pytest.mark.parametrize("encoding", HALVES)
@given(hnp.arrays(np.float32, 20, elements=st.floats(-(2.0**15), 2.0**15, width=32)))
def test_half_precision_is_within_its_bound(encoding: str, values: Any) -> None:
    dtype, relative, least = HALVES[encoding]
    normal = (np.abs(values) >= 2.0**-126) | (values == 0)
    error = np.abs(round_to_half("x", values, dtype).astype("f8") - values)
    bound = np.maximum(relative * np.abs(values.astype("f8")), least)
    assert (error <= bound)[normal].all()


def test_what_half_precision_cannot_hold() -> None:
    dtype = HALVES[FLOAT16][0]
    kept = round_to_half("x", np.array([65504, np.inf, np.nan], "f4"), dtype)
    assert kept[:2].tolist() == [65504, np.inf]
    assert np.isnan(kept[2])
    # Halfway to the next number, float16 would become infinity.
    assert round_to_half("x", np.array([65519], "f4"), dtype).tolist() == [65504]
    with raises(InputError, naming=["Feature x", "65520", "float16", "raw"]):
        round_to_half("x", np.array([0, 65520], "f4"), dtype)
    largest = np.array([np.finfo("f4").max], "f4")
    with raises(InputError, naming=["Feature x", "3.40282e+38", "bfloat16"]):
        round_to_half("x", largest, HALVES[BFLOAT16][0])


@given(arrays)
def test_int8_is_within_half_a_step_and_is_packed_again_the_same(values: Any) -> None:
    packed = pack_int8("x", values)
    assert len(packed) == 4 + len(values)
    read = unpack_int8(packed)
    assert read.dtype == np.float32
    exact, peak = values.astype("f8"), np.abs(values.astype("f8")).max(initial=0)
    error = np.abs(read.astype("f8") - exact)
    assert (error <= np.frombuffer(packed, "<f4", 1)[0] / 2).all()
    if peak >= 127 * 2.0**-126:
        assert (error <= peak / 254).all()
    assert (read[exact == 0] == 0).all()
    assert pack_int8("x", read) == packed


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_int8_holds_finite_values(bad: float) -> None:
    with raises(InputError, naming=["Feature x", str(bad), "int8"]):
        pack_int8("x", np.array([1, bad], "f4"))


@pytest.mark.parametrize(
    "packed", [b"", b"\0\0\0", np.array([np.nan], "<f4").tobytes(), bytes(4)]
)
def test_int8_without_a_scale_is_damaged(packed: bytes) -> None:
    with pytest.raises(ValueError, match="scale"):
        unpack_int8(packed)


def expected(encoding: str, values: Any) -> Any:
    if encoding == INT8:
        return np.stack(
            [unpack_int8(pack_int8("", v)).reshape(v.shape) for v in values]
        )
    return values.astype(HALVES[encoding][0]).astype("f4")


@pytest.mark.parametrize("encoding", COMPACT)
@pytest.mark.parametrize("shape", [(), (1,), (3, 2), (7, 33)])
def test_every_reader_gives_the_same_float32(encoding: str, shape: Any) -> None:
    import tensorflow as tf

    from beam_pipeline.read.parse import Parsing, make_element_parser, make_parser

    values = np.random.default_rng(0).normal(size=(4, *shape)).astype("f4")
    fixed = FeatureSpec("x", "float32", shape, encoding)
    records = ExampleEncoder([fixed]).encode(4, {"x": values})
    meant = expected(encoding, values)
    columns = {"x": list(values)} if shape else {"x": values.tolist()}
    assert ExampleEncoder([fixed]).encode(4, columns) == records
    for spec in (fixed, *([] if not shape else [replaced(fixed)])):
        specs = {"x": spec}
        parser = RecordParser(specs, ["x"])
        ones, many = ExampleMaker(parser, ["x"]), BatchMaker(parser, ["x"], 4)
        for k, record in enumerate(records):
            stored = parser.stored(record + bytes(4), 0, len(record))
            same(ones.make(stored, dict)["x"], meant[k])
            many.put(k, stored)
        same(np.stack(many.finish()["x"]), meant)
        same(np.stack([e["x"] for e in decode_examples(records, specs)]), meant)
        from beam_pipeline.examples.decoding import arrow_columns

        decoded = decode_columns(arrow_columns(records, False), 4, specs)
        same(np.stack(decoded["x"]), meant)
        parsing = Parsing(specs, names=("x",))
        parse = make_element_parser(parsing)
        same(np.stack([parse(record)["x"].numpy() for record in records]), meant)
        if parsing.is_fixed:
            same(make_parser(parsing, {})(tf.constant(records))["x"].numpy(), meant)


def replaced(spec: FeatureSpec) -> FeatureSpec:
    """The spec with a first axis of any length."""
    return FeatureSpec("x", spec.dtype, (None, *(spec.shape or ())[1:]), spec.encoding)


def same(found: Any, meant: Any) -> None:
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, meant)


@pytest.mark.parametrize("encoding", COMPACT)
def test_bytes_that_do_not_fit_the_shape_are_named(encoding: str) -> None:
    spec = FeatureSpec("x", "float32", (5,), encoding)
    (record,) = ExampleEncoder([spec]).encode(1, {"x": np.ones((1, 5), "f4")})
    other = {"x": FeatureSpec("x", "float32", (6,), encoding)}
    with pytest.raises(ValueError, match=r"feature x.* 5 values.*\(6,\)"):
        RecordParser(other, ["x"]).stored(record, 0, len(record))
