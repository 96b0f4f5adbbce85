"""The notebook on ``tf.train.Example`` with lists, and beside each block our way.

What TensorFlow 2 does not have is replaced, which a comment says.
"""

# ruff: noqa: UP032

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from beam_pipeline import (
    Metadata,
    encode_example,
    read_records,
    record_examples,
    replay,
    write_records,
)
from beam_pipeline.cli.main import main

# Create example data
data = {
    'Age': 29,
    'Movie': ['The Shawshank Redemption', 'Fight Club'],
    'Movie Ratings': [9.0, 9.7],
    'Suggestion': 'Inception',
    'Suggestion Purchased': 1.0,
    'Purchase Price': 9.99
}  # fmt: skip

# Customers whose lists have other lengths, and who lack something.
CUSTOMERS = [
    data,
    data | {"Age": 31, "Movie": ["Alien"], "Movie Ratings": [8.5]},
    data | {"Age": 7, "Movie": [], "Movie Ratings": []},
    {"Age": 55, "Movie": list("abc"), "Suggestion": "Brazil", "Purchase Price": 0.5},
]


def shards_of(folder):
    (entry,) = Metadata.load(folder).splits.values()
    return [f"{folder}/{shard.file}" for shard in entry.shards]


def plain(folder):
    """The records of our data set, by TensorFlow alone."""
    return tf.data.TFRecordDataset(shards_of(folder), "GZIP")


def make_example(data):
    # Create the Example
    example = tf.train.Example(features=tf.train.Features(feature={
        'Age': tf.train.Feature(
            int64_list=tf.train.Int64List(value=[data['Age']])),
        'Movie': tf.train.Feature(
            bytes_list=tf.train.BytesList(
                value=[m.encode('utf-8') for m in data['Movie']])),
        'Movie Ratings': tf.train.Feature(
            float_list=tf.train.FloatList(value=data['Movie Ratings'])),
        'Suggestion': tf.train.Feature(
            bytes_list=tf.train.BytesList(
                value=[data['Suggestion'].encode('utf-8')])),
        'Suggestion Purchased': tf.train.Feature(
            float_list=tf.train.FloatList(
                value=[data['Suggestion Purchased']])),
        'Purchase Price': tf.train.Feature(
            float_list=tf.train.FloatList(value=[data['Purchase Price']]))
    }))  # fmt: skip
    return example  # noqa: RET504


# Define features; tf.FixedLenFeature is tf.io.FixedLenFeature now.
read_features = {
    'Age': tf.io.FixedLenFeature([], dtype=tf.int64),
    'Movie': tf.io.VarLenFeature(dtype=tf.string),
    'Movie Ratings': tf.io.VarLenFeature(dtype=tf.float32),
    'Suggestion': tf.io.FixedLenFeature([], dtype=tf.string),
    'Suggestion Purchased': tf.io.FixedLenFeature([], dtype=tf.float32),
    'Purchase Price': tf.io.FixedLenFeature([], dtype=tf.float32)}  # fmt: skip


def values_of(parsed):
    """Parsed features as Python values: those of a sparse tensor as a list."""
    return {
        name: (t.values if isinstance(t, tf.SparseTensor) else t).numpy().tolist()
        if t.dtype != tf.string
        else np.array(
            (t.values if isinstance(t, tf.SparseTensor) else t).numpy(), object
        ).tolist()
        for name, t in parsed.items()
    }


WANTED = {
    "Age": 29,
    "Movie": [b"The Shawshank Redemption", b"Fight Club"],
    "Movie Ratings": [9.0, float(np.float32(9.7))],
    "Suggestion": b"Inception",
    "Suggestion Purchased": 1.0,
    "Purchase Price": float(np.float32(9.99)),
}


@pytest.fixture(scope="module")
def customers(tmp_path_factory):
    return record_examples(CUSTOMERS, tmp_path_factory.mktemp("movies") / "out")


def test_the_example(capsys):
    print(data)
    example = make_example(data)
    print(example)
    ours = tf.train.Example.FromString(encode_example(data))
    assert ours == example


def test_one_file_is_written_and_read(tmp_path, capsys):
    path = str(tmp_path / "customer_1.tfrecord")
    example = make_example(data)

    # Write TFrecord file; tf.python_io.TFRecordWriter is tf.io.TFRecordWriter now.
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(example.SerializeToString())

    # Read and print data: a data set instead of a reader, a queue and a session.
    for serialized_example in tf.data.TFRecordDataset([path]):
        # Extract features from serialized data
        read_data = tf.io.parse_single_example(
            serialized=serialized_example, features=read_features
        )

        # Print features; eager tensors have numpy() and not eval().
        for name, tensor in read_data.items():
            if isinstance(tensor, tf.SparseTensor):
                tensor = tensor.values
            print("{}: {}".format(name, tensor.numpy()))
    printed = capsys.readouterr().out
    assert "Age: 29\n" in printed
    assert "Movie: [b'The Shawshank Redemption' b'Fight Club']\n" in printed
    assert "Movie Ratings: [9.  9.7]\n" in printed

    # Our file by the notebook's reader, and its file by ours.
    ours = str(tmp_path / "ours.tfrecord")
    assert write_records(ours, [encode_example(data)]) == 1
    (record,) = tf.data.TFRecordDataset([ours])
    again = tf.io.parse_single_example(record, read_features)
    assert values_of(again) == values_of(read_data) == WANTED
    assert again["Movie"].indices.numpy().tolist() == [[0], [1]]
    assert again["Movie"].dense_shape.numpy().tolist() == [2]
    (record,) = read_records(path)
    assert tf.train.Example.FromString(record) == example


def test_a_data_set_of_one_customer(tmp_path):
    folder = record_examples([data], tmp_path / "out")
    (record,) = plain(folder)
    parsed = tf.io.parse_single_example(record, read_features)
    assert values_of(parsed) == WANTED
    (ours,) = replay(folder)
    assert list(ours) == list(data)
    for name, tensor in ours.items():
        print("{}: {}".format(name, tensor.numpy()))
    assert values_of(ours) == WANTED
    assert ours["Age"].dtype == tf.int64
    assert ours["Movie"].shape == (2,)


def test_lists_of_different_lengths(customers):
    three = CUSTOMERS[:3]
    for record, customer in zip(plain(customers), three, strict=False):
        found = values_of(tf.io.parse_single_example(record, read_features))
        theirs = make_example(customer).SerializeToString()
        wanted = values_of(tf.io.parse_single_example(theirs, read_features))
        assert found == wanted
    for found, customer in zip(replay(customers), three, strict=False):
        theirs = make_example(customer).SerializeToString()
        wanted = values_of(tf.io.parse_single_example(theirs, read_features))
        # One customer lacks the flag, so it is a list of one value, or of none.
        wanted["Suggestion Purchased"] = [wanted["Suggestion Purchased"]]
        assert values_of(found) == wanted


def test_missing_values(customers):
    *_, last = replay(customers)
    assert values_of(last) == {
        "Age": 55,
        "Movie": [b"a", b"b", b"c"],
        "Movie Ratings": [],
        "Suggestion": b"Brazil",
        "Suggestion Purchased": [],
        "Purchase Price": 0.5,
    }
    filled = replay(customers, missing={"Suggestion Purchased": -1})
    assert filled.element_spec["Suggestion Purchased"].shape == ()
    found = [float(c["Suggestion Purchased"]) for c in filled]
    assert found == [1.0, 1.0, 1.0, -1.0]
    *_, last = plain(customers)
    stored = tf.train.Example.FromString(last.numpy()).features.feature
    assert sorted(stored) == ["Age", "Movie", "Purchase Price", "Suggestion"]
    (batch,) = replay(customers, batch_size=4)
    assert [len(movies) for movies in batch["Movie"].to_list()] == [2, 1, 0, 3]


def test_the_description_is_that_of_the_notebook(customers):
    description = Metadata.load(customers).feature_description()
    wanted = {
        name: feature._replace(shape=tuple(feature.shape))
        if isinstance(feature, tf.io.FixedLenFeature)
        else feature
        for name, feature in read_features.items()
    }
    # One customer lacks it.
    wanted["Suggestion Purchased"] = tf.io.VarLenFeature(tf.float32)
    assert description == wanted
    batch = tf.io.parse_example(list(plain(customers)), description)
    assert batch["Movie"].dense_shape.numpy().tolist() == [4, 3]
    assert batch["Age"].numpy().tolist() == [29, 31, 7, 55]


def test_print_example(tmp_path, capsys):
    """`show --text` prints what `print(example)` prints in the notebook."""
    folder = record_examples([data], tmp_path / "out")
    capsys.readouterr()
    assert main(["show", folder, "--text"]) == 0
    title, text = capsys.readouterr().out.split("\n", 1)
    assert title == "# example 0"
    keys = [line.split('"')[1] for line in text.splitlines() if "key:" in line]
    assert keys == sorted(data)
    lines = text.splitlines()
    assert lines[:8] == [
        "features {",
        "  feature {",
        '    key: "Age"',
        "    value {",
        "      int64_list {",
        "        value: 29",
        "      }",
        "    }",
    ]
    assert '        value: "Fight Club"' in lines
    from google.protobuf import text_format

    parsed = text_format.Parse(text, tf.train.Example())
    assert parsed == make_example(data)


# tf.train.SequenceExample


def clips():
    """A clip with its frames, and the words that are spoken in it."""
    rng = np.random.default_rng(0)
    for number, count in enumerate((3, 1, 0, 5)):
        yield {
            "clip": number,
            "speaker": f"s{number}",
            "frames": rng.normal(size=(count, 4)).astype(np.float32),
            "words": [f"word{k}" for k in range(count)],
        }


def sequence_example(clip):
    """The message as TensorFlow makes it, by hand."""

    def floats(values):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))

    def text(value):
        return tf.train.Feature(
            bytes_list=tf.train.BytesList(value=[value.encode("utf-8")])
        )

    number = tf.train.Int64List(value=[clip["clip"]])
    return tf.train.SequenceExample(
        context=tf.train.Features(
            feature={
                "clip": tf.train.Feature(int64_list=number),
                "speaker": text(clip["speaker"]),
            }
        ),
        feature_lists=tf.train.FeatureLists(
            feature_list={
                "frames": tf.train.FeatureList(
                    feature=[floats(frame) for frame in clip["frames"]]
                ),
                "words": tf.train.FeatureList(
                    feature=[text(word) for word in clip["words"]]
                ),
            }
        ),
    )


CONTEXT = {
    "clip": tf.io.FixedLenFeature((), tf.int64),
    "speaker": tf.io.FixedLenFeature((), tf.string),
}
STEPS = {
    "frames": tf.io.FixedLenSequenceFeature((4,), tf.float32),
    "words": tf.io.FixedLenSequenceFeature((), tf.string),
}


def test_one_sequence_example():
    for clip in clips():
        record = encode_example(clip, sequences=["frames", "words"])
        assert tf.train.SequenceExample.FromString(record) == sequence_example(clip)


def test_clips_with_their_frames(tmp_path):
    folder = record_examples(
        clips(), tmp_path / "out", sequences=["frames", "words"], num_shards=2
    )
    metadata = Metadata.load(folder)
    assert metadata.feature_description() == (CONTEXT, STEPS)
    replayed = replay(folder)
    assert replayed.element_spec["frames"].shape.as_list() == [None, 4]
    for record, found, clip in zip(plain(folder), replayed, clips(), strict=True):
        theirs = sequence_example(clip)
        assert tf.train.SequenceExample.FromString(record.numpy()) == theirs
        context, lists = tf.io.parse_single_sequence_example(record, CONTEXT, STEPS)
        for parsed in (context | lists, found):
            assert parsed["clip"].numpy() == clip["clip"]
            assert parsed["speaker"].numpy().decode() == clip["speaker"]
            np.testing.assert_array_equal(parsed["frames"], clip["frames"])
            assert [w.decode() for w in parsed["words"].numpy()] == clip["words"]


# Rows


def back(folder):
    """The examples as rows, None where a value is missing."""
    for example in replay(folder).as_numpy_iterator():
        yield {
            name: (value[0] if len(value) else None) if np.ndim(value) else value
            for name, value in example.items()
        }


def test_a_data_frame_and_back(tmp_path):
    frame = pd.DataFrame(
        {
            "age": [29, 31, 7],
            "price": np.array([9.99, 0.5, np.nan], np.float32),
            "name": ["Anna", None, "Émile"],
            "member": [True, False, True],
            "visits": pd.array([3, None, 5], "Int64"),
        }
    )
    folder = record_examples(frame, tmp_path / "out")
    found = pd.DataFrame(list(back(folder)))
    found["name"] = [text.decode() if text else None for text in found["name"]]
    found["visits"] = found["visits"].astype("Int64")
    pd.testing.assert_frame_equal(found, frame)


def test_columns_and_back(tmp_path):
    columns = {
        "age": [29, 31],
        "movies": [["Alien"], ["Brazil", "Fight Club"]],
        "scores": np.arange(6, dtype=np.int16).reshape(2, 3),
    }
    folder = record_examples(columns, tmp_path / "out")
    found = list(replay(folder).as_numpy_iterator())
    assert [row["age"] for row in found] == columns["age"]
    movies = [[m.decode() for m in row["movies"]] for row in found]
    assert movies == columns["movies"]
    scores = np.stack([row["scores"] for row in found])
    assert scores.dtype == np.int16
    np.testing.assert_array_equal(scores, columns["scores"])
