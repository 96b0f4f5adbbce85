import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import encode_example, read_records, record_examples
from beam_pipeline.errors import InputError, OptionError
from tests.test_layers import loaded_after

ROW = {
    "age": 29,
    "movies": ["Alien", "é"],
    "price": 9.99,
    "image": np.arange(12, dtype=np.uint8).reshape(2, 2, 3),
    "nested": {"x": [1, 2, 3], "none": None},
    "none": None,
}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"dtypes": {"price": "float64", "late": "int8"}},
        {"encodings": {"image": "tensor", "nested/x": "raw"}},
        {"encodings": {"image": "png"}},
        {"sequences": ["movies", "image"]},
    ],
)
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


def test_in_a_py_function():
    ds = tf.data.Dataset.from_tensor_slices(
        {"x": [[1.5, 2], [3, 4]], "label": [1, 0], "text": ["a", "b\0"]}
    )

    def encode(x, label, text):
        return encode_example({"x": x, "label": label, "text": text})

    records = ds.map(
        lambda e: tf.py_function(encode, [e["x"], e["label"], e["text"]], tf.string)
    )
    spec = {
        "x": tf.io.FixedLenFeature((2,), tf.float32),
        "label": tf.io.FixedLenFeature((), tf.int64),
        "text": tf.io.FixedLenFeature((), tf.string),
    }
    found = [tf.io.parse_single_example(record, spec) for record in records]
    assert [e["x"].numpy().tolist() for e in found] == [[1.5, 2], [3, 4]]
    assert [int(e["label"]) for e in found] == [1, 0]
    assert [e["text"].numpy() for e in found] == [b"a", b"b\0"]


@pytest.mark.parametrize(
    ("values", "options", "error", "word"),
    [
        ([1], {}, InputError, "dict of values; got list"),
        ({"a": object()}, {}, InputError, "a: .*cannot be stored"),
        ({"a": 1.5}, {"dtypes": {"a": "int64"}}, InputError, "a is int64"),
        ({"a": 1}, {"dtypes": {"a": "number"}}, OptionError, "dtypes"),
        ({"a": 1}, {"encodings": {"b": "raw"}}, OptionError, "encodings.*a"),
        ({"a": 1}, {"sequences": ["a"]}, OptionError, "sequences.*a"),
    ],
)
def test_errors(values, options, error, word):
    with pytest.raises(error, match=word):
        encode_example(values, **options)


def test_no_tensorflow_and_no_beam(tmp_path):
    loaded = loaded_after(
        "from beam_pipeline import encode_example, write_records, read_records\n"
        f"write_records('{tmp_path}/x.gz', [encode_example({{'a': ['b']}})])\n"
        f"assert len(list(read_records('{tmp_path}/x.gz'))) == 1"
    )
    assert loaded & {"tensorflow", "apache_beam", "tfx_bsl"} == set()
