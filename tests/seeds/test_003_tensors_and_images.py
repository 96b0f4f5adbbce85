"""The notebook on TFRecords, tensors and images, and beside each block our way.

The blocks are those of the notebook; only imports, paths and names of variables in a
test differ. Further changes are said where they are.
"""

# ruff: noqa: N806, E501, RET504

import functools
import operator
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import tensorflow as tf
from tensorflow.data import Dataset, TFRecordDataset
from tensorflow.io import FixedLenFeature, VarLenFeature
from tensorflow.train import BytesList, Example, Feature, Features, Int64List

from beam_pipeline import (
    Metadata,
    encode_example,
    read_records,
    record_examples,
    replay,
    write_records,
)
from tests.data_sets import plain, shards_of

matplotlib.use("agg")

AUTO = tf.data.AUTOTUNE
IMAGE_SIZE = [32, 48]


def make_image(seed, size=(32, 48)):
    """A picture with smooth areas and a little noise, like a photograph."""
    rng = np.random.default_rng(seed)
    rows, columns = np.mgrid[: size[0], : size[1]]
    waves = [
        np.sin(rows / a) + np.cos(columns / b) for a, b in rng.uniform(5, 20, (3, 2))
    ]
    noise = rng.normal(0, 2, (*size, 3))
    return np.clip(128 + 40 * np.stack(waves, -1) + noise, 0, 255).astype(np.uint8)


@pytest.fixture(scope="module")
def image_raw():
    return make_image(0, (427, 640))  # of the size of the notebook's


# Serialization


def test_a_file_of_two_records(tmp_path):
    PATH = str(tmp_path / "data.tfrecord")

    with tf.io.TFRecordWriter(path=PATH) as f:
        f.write(b"123")  # write one record
        f.write(b"xyz314")  # write another record

    ours = tmp_path / "ours.tfrecord"
    assert write_records(ours, [b"123", b"xyz314"]) == 2
    assert ours.read_bytes() == Path(PATH).read_bytes()
    assert list(read_records(PATH)) == [b"123", b"xyz314"]


def test_a_tensor_as_bytes(tmp_path):
    x = tf.constant([[1, 2], [3, 4]], dtype=tf.uint8)
    x_bytes = tf.io.serialize_tensor(x)

    folder = record_examples([{"x": x}], tmp_path / "out", encodings={"x": "tensor"})
    (stored,) = replay(folder, encoded=["x"])
    assert stored["x"].numpy() == x_bytes.numpy()
    (back,) = replay(folder)
    assert back["x"].dtype == tf.uint8  # nobody has to keep track of it
    (record,) = plain(folder)
    parsed = tf.io.parse_single_example(record, {"x": FixedLenFeature([], tf.string)})
    again = tf.io.parse_tensor(parsed["x"], out_type=tf.uint8)
    assert back["x"].numpy().tolist() == again.numpy().tolist() == [[1, 2], [3, 4]]


# Serializing images


def test_raw_png_and_jpeg(tmp_path, image_raw, cli):
    """Each by the decoder of its encoder; JPEG is the smallest, raw the largest."""
    sizes = {}
    for encoding in ("raw", "png", "jpeg", "tensor"):
        folder = record_examples(
            [{"image": image_raw}], tmp_path / encoding, encodings={"image": encoding}
        )
        (record,) = plain(folder).as_numpy_iterator()
        sizes[encoding] = len(record)
        (decoded,) = (x["image"].numpy() for x in replay(folder))
        (stored,) = (x["image"] for x in replay(folder, encoded=["image"]))
        plainly = {
            "raw": lambda data: tf.reshape(
                tf.io.decode_raw(data, tf.uint8), image_raw.shape
            ),
            "png": tf.io.decode_png,
            "jpeg": functools.partial(tf.io.decode_jpeg, dct_method="INTEGER_ACCURATE"),
            "tensor": lambda data: tf.io.parse_tensor(data, tf.uint8),
        }[encoding](stored)
        np.testing.assert_array_equal(decoded, plainly)
        error = np.abs(decoded.astype(int) - image_raw).mean()
        assert 0 < error < 4 if encoding == "jpeg" else error == 0
        if encoding == "jpeg":
            assert stored.numpy()[:3] == tf.io.encode_jpeg(image_raw).numpy()[:3]
            crop = tf.io.decode_and_crop_jpeg(stored, [40, 80, 60, 100])
            whole = tf.io.decode_jpeg(stored)
            # At its sides, a crop lacks the colours of the pixels beside it.
            np.testing.assert_array_equal(crop[:, 1:-1], whole[40:100, 81:179])
            said = cli("show", folder, "--plot", tmp_path / "show.png").out
            assert f"drawn: {tmp_path}/show.png" in said
    assert sizes["jpeg"] < sizes["png"] < sizes["raw"] <= sizes["tensor"]
    assert sizes["raw"] > image_raw.nbytes


# tf.Example


def make_example(image, label, class_name):
    image_feature = Feature(
        bytes_list=BytesList(value=[tf.io.serialize_tensor(image).numpy()])
    )
    label_feature = Feature(int64_list=Int64List(value=[label]))
    class_name_feature = Feature(bytes_list=BytesList(value=[class_name.encode()]))
    features = Features(feature={
        'image': image_feature,
        'label': label_feature,
        'class_name': class_name_feature,
    })  # fmt: skip
    return Example(features=features).SerializeToString()


def encode(image, label, class_name):
    """What the notebook's ``make_example`` is here."""
    return encode_example(
        {"image": image, "label": label, "class_name": class_name},
        encodings={"image": "tensor"},
    )


def test_make_example_and_parse(tmp_path):
    row = {"image": np.array([[1, 2], [3, 4]]), "label": 1, "class_name": "Class B"}
    example = make_example(**row)

    feature_description = {
        'image': FixedLenFeature((), tf.string),
        'label': FixedLenFeature((), tf.int64),
        'class_name': FixedLenFeature((), tf.string),
    }  # fmt: skip

    theirs, ours = Example.FromString(example), Example.FromString(encode(**row))
    assert ours == theirs
    assert ours.features.feature["label"].int64_list.value == [1]
    # The description comes with the data set.
    folder = record_examples([row], tmp_path / "out", encodings={"image": "tensor"})
    assert Metadata.load(folder).feature_description() == feature_description
    (record,) = plain(folder)
    assert record.numpy() == encode(**row)
    parsed = tf.io.parse_single_example(record, feature_description)
    assert parsed == tf.io.parse_single_example(example, feature_description)
    image = tf.io.parse_tensor(parsed["image"], tf.int64)
    assert image.numpy().tolist() == row["image"].tolist()
    lists = tf.io.parse_single_example(record, {"label": VarLenFeature(tf.int64)})
    assert lists["label"].values.numpy().tolist() == [1]


def test_make_example_within_a_data_set(tmp_path):
    ds = Dataset.from_tensor_slices(
        (np.arange(12, dtype=np.uint8).reshape(3, 2, 2), [0, 1, 0])
    )
    written = []
    for function in (make_example, encode):
        # The notebook's function takes three arguments, and its `map` gives two.
        two = functools.partial(function, class_name="Class A")
        ds_bytes = ds.map(
            lambda x, y, two=two: tf.py_function(func=two, inp=[x, y], Tout=tf.string)
        )
        path = str(tmp_path / function.__name__)
        write_records(path, ds_bytes.as_numpy_iterator())
        read = TFRecordDataset(path).as_numpy_iterator()
        written.append(list(map(Example.FromString, read)))
    assert written[0] == written[1]
    labels = [each.features.feature["label"].int64_list.value for each in written[0]]
    assert labels == [[0], [1], [0]]


# The helper script


# fmt: off
def decode_image(image_data):
    image = tf.image.decode_jpeg(image_data, channels=3)
    image = tf.cast(image, tf.float32) / 255.0  # convert image to floats in [0, 1] range
    image = tf.reshape(image, [*IMAGE_SIZE, 3]) # explicit size needed for TPU
    return image

def read_labeled_tfrecord(example):
    LABELED_TFREC_FORMAT = {
        "image": tf.io.FixedLenFeature([], tf.string), # tf.string means bytestring
        "class": tf.io.FixedLenFeature([], tf.int64),  # shape [] means single element
    }
    example = tf.io.parse_single_example(example, LABELED_TFREC_FORMAT)
    image = decode_image(example['image'])
    label = tf.cast(example['class'], tf.int32)
    return image, label # returns a dataset of (image, label) pairs
# fmt: on


# The notebook calls this function and does not print it.
def read_unlabeled_tfrecord(example):
    UNLABELED_TFREC_FORMAT = {
        "image": tf.io.FixedLenFeature([], tf.string),
        "id": tf.io.FixedLenFeature([], tf.string),
    }
    example = tf.io.parse_single_example(example, UNLABELED_TFREC_FORMAT)
    return decode_image(example["image"]), example["id"]


# Of these lines, only `compression_type` is ours: the files of a data set are GZIP.
# fmt: off
def load_dataset(filenames, labeled=True, ordered=False, compression_type=None):
    ignore_order = tf.data.Options()
    if not ordered:
        ignore_order.experimental_deterministic = False # disable order, increase speed

    dataset = tf.data.TFRecordDataset(filenames, compression_type, num_parallel_reads=AUTO) # automatically interleaves reads from multiple files
    dataset = dataset.with_options(ignore_order) # uses data as soon as it streams in, rather than in its original order
    dataset = dataset.map(read_labeled_tfrecord if labeled else read_unlabeled_tfrecord, num_parallel_calls=AUTO)
    # returns a dataset of (image, label) pairs if labeled=True or (image, id) pairs if labeled=False
    return dataset
# fmt: on


COUNT = 64
JPEG = {"image": "jpeg"}


def rows(labeled):
    for k in range(COUNT):
        row = {"image": make_image(k % 8)}
        # What labels are, they stay: int32 here, the int64_list of an example on disk.
        row |= {"class": np.int32(k)} if labeled else {"id": f"flower{k:02}"}
        yield row


@pytest.fixture(scope="module")
def labeled(tmp_path_factory):
    """A data set in eight files, for eight accelerators."""
    folder = tmp_path_factory.mktemp("labeled") / "out"
    return record_examples(rows(True), folder, num_shards=8, encodings=JPEG)


@pytest.fixture(scope="module")
def unlabeled(tmp_path_factory):
    folder = tmp_path_factory.mktemp("unlabeled") / "out"
    return record_examples(rows(False), folder, num_shards=8, encodings=JPEG)


def pairs(dataset):
    """(bytes of the picture, its label) for each example."""
    return [(x.numpy().tobytes(), y.numpy()) for x, y in dataset]


@pytest.mark.parametrize("ordered", [True, False])
def test_labeled_and_unlabeled(labeled, unlabeled, ordered):
    """The helper script reads our files, and replay gives what it gives."""
    for folder, is_labeled, name in (
        (labeled, True, "class"),
        (unlabeled, False, "id"),
    ):
        theirs = load_dataset(shards_of(folder), is_labeled, ordered, "GZIP")
        ours = replay(
            folder, as_supervised=("image", name), encoded=["image"],
            deterministic=ordered,
        ).map(lambda data, label: (decode_image(data), label))  # fmt: skip
        assert ours.element_spec == tuple(theirs.element_spec)
        found = pairs(ours)
        labels = [label for _, label in found]
        wanted = [row[name] for row in rows(is_labeled)]
        wanted = wanted if is_labeled else [text.encode() for text in wanted]
        assert (labels if ordered else sorted(labels)) == wanted
        # With several files, theirs reads by turns, which changes the order.
        by_label = operator.itemgetter(1)
        assert sorted(found, key=by_label) == sorted(pairs(theirs), key=by_label)


def test_shards_for_accelerators(labeled):
    """Eight files of the same number of examples, and static shapes in batches."""
    (entry,) = Metadata.load(labeled).splits.values()
    assert [shard.examples for shard in entry.shards] == [8] * 8
    options = {"batch_size": 3, "drop_remainder": True}
    pair = ("image", "class")
    batches = replay(labeled, as_supervised=pair, **options)
    images, labels = batches.element_spec
    assert images == tf.TensorSpec((3, *IMAGE_SIZE, 3), tf.uint8)
    assert labels == tf.TensorSpec((3,), tf.int32)  # they keep their type
    spec = Metadata.load(labeled).feature_description()["class"]
    assert spec == FixedLenFeature((), tf.int64)
    assert len(list(batches)) == COUNT // 3
    # One file for each of eight, by tf.data and by replay.
    files = Dataset.from_tensor_slices(shards_of(labeled))
    for i in (0, 3, 7):
        mine = files.shard(8, i).flat_map(lambda path: TFRecordDataset(path, "GZIP"))
        labels = [int(y) for _, y in replay(labeled, as_supervised=pair, shard=(i, 8))]
        assert labels == list(range(8 * i, 8 * i + 8))
        assert len(list(mine)) == 8
