"""open_records gives the examples that replay gives."""

import numpy as np
import pytest

from beam_pipeline import record_dataset, record_examples
from beam_pipeline.dataset.member_index import load_index
from beam_pipeline.read.records import open_records
from beam_pipeline.read.replay import replay

tf = pytest.importorskip("tensorflow")

COUNT = 40
RNG = np.random.default_rng(0)
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128", "bfloat16",
)  # fmt: skip


def of_tf(value):
    """A value of replay as open_records gives it; None: the example lacks it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray) and value.dtype == object:
        texts = np.empty(value.shape, object)
        texts.ravel()[:] = [text.decode() for text in value.ravel()]
        return texts
    return value


def check_equal(records, dataset, optional=()):
    """Every example, one by one, in batches and by iterating."""
    elements = list(dataset.as_numpy_iterator())
    assert len(records) == len(elements) > 0
    numbers = RNG.permutation(len(elements))
    batches = [records.read(numbers[k : k + 33]) for k in range(0, len(numbers), 33)]
    places = np.argsort(numbers).tolist()
    for number, example in enumerate(records):
        wanted = {name: of_tf(v) for name, v in elements[number].items()}
        wanted.pop("num_classes", None)
        for name in optional:
            wanted[name] = wanted[name][0] if len(wanted[name]) else None
        place = places[number]
        batch = batches[place // 33]
        assert list(batch) == list(wanted)
        for name, value in wanted.items():
            if value is None:
                assert name not in example
                assert batch[name][place % 33] is None
                continue
            check_same(example[name], value)
            check_same(batch[name][place % 33], value)
        if number % 7 == 0:
            assert list(records[number]) == list(example)
            for name, value in example.items():
                check_same(records[number][name], value)


def check_same(found, wanted):
    assert np.shape(found) == np.shape(wanted)
    if isinstance(wanted, str) or wanted.dtype == object:
        assert np.array_equal(found, wanted)
        return
    assert found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()
    if isinstance(found, np.ndarray):
        assert found.flags.writeable
        assert found.dtype.isnative


def array(dtype, shape):
    values = RNG.integers(0, 2 if dtype == "bool" else 120, shape)
    made = tf.cast(values, dtype).numpy()
    return made * (1 - 0.5j) if made.dtype.kind == "c" else made


@pytest.mark.parametrize("member_bytes", [1, 12_000])
def test_typed_arrays_texts_masks_and_missing_labels(tmp_path, member_bytes):
    texts = np.array(["", "ü", "a longer text"], object)
    examples = [
        {
            **{d: array(d, (5, 7)) for d in DTYPES},
            **{f"one {d}": array(d, ()) for d in DTYPES},
            "mask": RNG.integers(0, 2, (12, 9), np.uint8),
            "short": RNG.integers(-9, 9, 4),
            "wide": RNG.integers(-(2**62), 2**62, 60) >> RNG.integers(0, 62, 60),
            "list": RNG.integers(0, 300, RNG.integers(0, 5)),
            "rows": RNG.normal(size=(RNG.integers(0, 4), 3)).astype(np.float32),
            "any": RNG.normal(size=RNG.integers(0, 4, 2)),
            "text": texts[k % 3],
            "texts": texts[: k % 4],
            "png": RNG.integers(0, 256, (8, 6, 3), np.uint8),
            "tensor": RNG.normal(size=(2, k % 3)).astype(np.float32),
            **({"label": k, "level": k / 7} if k % 3 else {}),
            **({"name": f"name {k}"} if k % 2 else {}),
        }
        for k in range(COUNT)
    ]
    folder = record_examples(
        examples, tmp_path / "out", 17, encodings={"png": "png", "tensor": "tensor"},
        member_bytes=member_bytes,
    )  # fmt: skip
    members = [len(shard.firsts) - 1 for shard in load_index(folder).values()]
    assert (sum(members) == COUNT) == (member_bytes == 1)
    records = open_records(folder)
    check_equal(records, replay(folder), ("label", "level", "name"))
    assert records[2]["any"].shape == examples[2]["any"].shape
    batch = records.read([3, 1, 3])
    assert isinstance(batch["rows"], list)
    assert batch["mask"].shape == (3, 12, 9)
    assert batch["label"] == [None, 1, None]
    assert records.read([1, 2])["name"].tolist() == ["name 1", None]


def test_sequences(tmp_path):
    examples = [
        {
            "frames": RNG.normal(size=(k % 4, 3)).astype(np.float32),
            "words": np.array(["a", "bc", "ü"][: k % 4], object),
            "numbers": RNG.integers(0, 999, (k % 3, 2)),
            "id": k,
        }
        for k in range(COUNT)
    ]
    sequences = ["frames", "words", "numbers"]
    folder = record_examples(examples, tmp_path / "out", sequences=sequences)
    check_equal(open_records(folder), replay(folder))


def test_a_structure_is_flat(tmp_path):
    """Ragged and sparse tensors are given as the features that store them."""

    def element(k):
        return {
            "pair": (tf.fill([2], k), tf.strings.as_string(k)),
            "sparse": tf.sparse.from_dense(tf.one_hot(k % 3, 4)),
        }

    dataset = tf.data.Dataset.range(COUNT).map(element)
    ragged = tf.data.Dataset.range(COUNT).map(
        lambda k: tf.RaggedTensor.from_row_lengths(tf.range(k % 4), [k % 4, 0])
    )
    folder = record_dataset(dataset, tmp_path / "out")
    records = open_records(folder)
    assert len(records) == COUNT
    assert list(records[7]) == [
        "pair/0", "pair/1", "sparse", "sparse/indices", "sparse/dense_shape",
    ]  # fmt: skip
    for k, (pair, sparse) in enumerate(
        (e["pair"], tf.sparse.to_dense(e["sparse"]).numpy()) for e in replay(folder)
    ):
        example = records[k]
        assert np.array_equal(example["pair/0"], pair[0].numpy())
        assert example["pair/1"] == pair[1].numpy().decode() == str(k)
        dense = np.zeros(example["sparse/dense_shape"], np.float32)
        dense[tuple(example["sparse/indices"].T)] = example["sparse"]
        assert np.array_equal(dense, sparse)
    assert list(open_records(folder, features=["pair/0"])[0]) == ["pair/0"]

    folder = record_dataset(ragged, tmp_path / "ragged")
    for example, value in zip(open_records(folder), replay(folder), strict=True):
        assert np.array_equal(example["element"], value.flat_values.numpy())
        assert np.array_equal(example["element/row_splits_0"], value.row_splits.numpy())
