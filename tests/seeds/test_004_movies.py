"""The notebook on ``tf.train.Example`` with lists, and beside each block our way.

What TensorFlow 2 does not have is replaced, which a comment says.
"""

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from beam_pipeline import (
    Metadata,
    encode_example,
    read_records,
    record_examples,
    replay,
    write_records,
)
from tests.data_sets import plain

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
    'Age': tf.io.FixedLenFeature((), dtype=tf.int64),
    'Movie': tf.io.VarLenFeature(dtype=tf.string),
    'Movie Ratings': tf.io.VarLenFeature(dtype=tf.float32),
    'Suggestion': tf.io.FixedLenFeature((), dtype=tf.string),
    'Suggestion Purchased': tf.io.FixedLenFeature((), dtype=tf.float32),
    'Purchase Price': tf.io.FixedLenFeature((), dtype=tf.float32)}  # fmt: skip


def values_of(parsed):
    """Parsed features as Python values: those of a sparse tensor as a list."""
    made = {}
    for name, t in parsed.items():
        kind = object if t.dtype == tf.string else None
        values = t.values if isinstance(t, tf.SparseTensor) else t
        made[name] = np.array(values.numpy(), kind).tolist()
    return made


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


def test_one_customer(tmp_path, cli):
    path = str(tmp_path / "customer_1.tfrecord")
    example = make_example(data)

    # Write TFrecord file; tf.python_io.TFRecordWriter is tf.io.TFRecordWriter now.
    with tf.io.TFRecordWriter(path) as writer:
        writer.write(example.SerializeToString())

    # Read data: a data set instead of a reader, a queue and a session.
    (serialized_example,) = tf.data.TFRecordDataset([path])
    # Extract features from serialized data
    read_data = tf.io.parse_single_example(
        serialized=serialized_example, features=read_features
    )

    # Our file and our data set by the notebook's reader, and its file by ours.
    (record,) = read_records(path)
    assert tf.train.Example.FromString(record) == example
    ours = str(tmp_path / "ours.tfrecord")
    assert write_records(ours, [encode_example(data)]) == 1
    folder = record_examples([data], tmp_path / "out")
    for (record,) in (tf.data.TFRecordDataset([ours]), plain(folder)):
        assert tf.train.Example.FromString(record.numpy()) == example
        again = tf.io.parse_single_example(record, read_features)
        assert values_of(again) == values_of(read_data) == WANTED
        assert again["Movie"].indices.numpy().tolist() == [[0], [1]]
        assert again["Movie"].dense_shape.numpy().tolist() == [2]
    (replayed,) = replay(folder)
    assert list(replayed) == list(data)
    assert values_of(replayed) == WANTED
    assert replayed["Age"].dtype == tf.int64
    assert replayed["Movie"].shape == (2,)
    # `show --text` prints what `print(example)` prints in the notebook.
    title, text = cli("show", folder, "--text").out.split("\n", 1)
    assert title == "# example 0"
    keys = [line.split('"')[1] for line in text.splitlines() if "key:" in line]
    assert keys == sorted(data)
    assert text.startswith("features {\n  feature {\n" + " " * 4 + 'key: "Age"\n')
    assert text_format.Parse(text, tf.train.Example()) == example


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
    # One customer lacks it.
    lacking = {"Suggestion Purchased": tf.io.VarLenFeature(tf.float32)}
    assert description == {**read_features, **lacking}
    batch = tf.io.parse_example(list(plain(customers)), description)
    assert batch["Movie"].dense_shape.numpy().tolist() == [4, 3]
    assert batch["Age"].numpy().tolist() == [29, 31, 7, 55]


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
    train = tf.train

    def text(value):
        return train.Feature(bytes_list=train.BytesList(value=[value.encode("utf-8")]))

    number = train.Feature(int64_list=train.Int64List(value=[clip["clip"]]))
    context = {"clip": number, "speaker": text(clip["speaker"])}
    frames = [
        train.Feature(float_list=train.FloatList(value=frame))
        for frame in clip["frames"]
    ]
    lists = {
        "frames": train.FeatureList(feature=frames),
        "words": train.FeatureList(feature=map(text, clip["words"])),
    }
    return train.SequenceExample(
        context=train.Features(feature=context),
        feature_lists=train.FeatureLists(feature_list=lists),
    )


CONTEXT = {
    "clip": tf.io.FixedLenFeature((), tf.int64),
    "speaker": tf.io.FixedLenFeature((), tf.string),
}
STEPS = {
    "frames": tf.io.FixedLenSequenceFeature((4,), tf.float32),
    "words": tf.io.FixedLenSequenceFeature((), tf.string),
}


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
        assert record.numpy() == encode_example(clip, sequences=["frames", "words"])
        context, lists = tf.io.parse_single_sequence_example(record, CONTEXT, STEPS)
        for parsed in (context | lists, found):
            assert parsed["clip"].numpy() == clip["clip"]
            assert parsed["speaker"].numpy().decode() == clip["speaker"]
            np.testing.assert_array_equal(parsed["frames"], clip["frames"])
            assert [w.decode() for w in parsed["words"].numpy()] == clip["words"]
