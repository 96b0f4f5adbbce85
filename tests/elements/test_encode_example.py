import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import encode_example, read_records, record_examples
from beam_pipeline.errors import InputError, OptionError
from tests.raising import raises
from tests.test_layers import loaded_after

ROW = {
    "age": 29,
    "movies": ["Alien", "é"],
    "price": 9.99,
    "image": np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
    "nested": {"x": [1, 2, 3], "none": None},
    "none": None,
}


@pytest.mark.parametrize("options", [
    {},
    {"dtypes": {"price": "float64", "late": "int8"}},
    {"encodings": {"image": "tensor", "nested/x": "raw"}},
    {"encodings": {"image": "png"}},
    {"sequences": ["movies", "image"]},
])  # fmt: skip
def test_the_record_is_that_of_a_data_set(tmp_path, options):
    row = {name: value for name, value in ROW.items() if name != "none"}
    row["nested"] = {"x": [1, 2, 3]}
    folder = record_examples([row], tmp_path / "out", **options)
    (shard,) = tmp_path.glob("out/*.gz")
    assert list(read_records(shard)) == [encode_example(ROW, **options)], folder


def test_none_is_left_out():
    example = tf.train.Example.FromString(encode_example(ROW))
    assert sorted(example.features.feature) == [
        "age", "image", "movies", "nested/x", "price",
    ]  # fmt: skip
    assert encode_example({}) == encode_example({"a": None, "b": {"c": None}})
    assert not tf.train.Example.FromString(encode_example({})).features.feature


def test_errors():
    with raises(InputError, naming="a"):
        encode_example({"a": object()})
    for options in ({"encodings": {"b": "raw"}}, {"sequences": ["a"]}):
        with raises(OptionError, naming=[*options, "a"]):
            encode_example({"a": 1}, **options)


def test_no_tensorflow_and_no_beam(tmp_path):
    loaded = loaded_after(
        "from beam_pipeline import encode_example, write_records, read_records\n"
        f"write_records('{tmp_path}/x.gz', [encode_example({{'a': ['b']}})])\n"
        f"assert len(list(read_records('{tmp_path}/x.gz'))) == 1"
    )
    assert loaded & {"tensorflow", "apache_beam", "tfx_bsl"} == set()
