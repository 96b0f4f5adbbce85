"""Hugging Face: a Dataset with typed features, and a stream with a state."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import BYTES_LIST, RAW, FeatureSpec
from tests.frameworks.conftest import COUNT, need, numbers_on_disk

os.environ["HF_HUB_OFFLINE"] = "1"
# datasets imports what it finds, and JAX warns of each fork.
os.environ["USE_TF"] = os.environ["USE_JAX"] = "0"
datasets = need("datasets")
from beam_pipeline.read.hugging_face import features_of, pieces_of  # noqa: E402

ROOT = Path(__file__).parents[2]


@pytest.fixture
def cache(tmp_path):
    return str(tmp_path / "cache")


@pytest.fixture(autouse=True)
def quiet():
    datasets.disable_progress_bars()


def numbers_of(dataset):
    return [int(example["number"]) for example in dataset]


def assert_equals(dataset, records):
    """The data set's examples, as numpy arrays, are the records."""
    count = 0
    for got, wanted in zip(dataset.with_format("numpy"), records, strict=True):
        assert set(got) == set(records.features)
        for name in records.features:
            value = wanted.get(name)
            if value is None or isinstance(value, str):
                assert got[name] == value
                continue
            if value.dtype.kind == "c":
                value = np.stack([value.real, value.imag], axis=-1)
            np.testing.assert_array_equal(got[name], value)
        count += 1
    assert count == len(records)


def test_a_dataset(records, cache):
    dataset = records.to_datasets(cache_dir=cache)
    assert isinstance(dataset, datasets.Dataset)
    assert len(dataset) == COUNT
    assert str(dataset.split) == records.split
    assert_equals(dataset, records)
    # The format "numpy" widens; what is stored has the type of the feature.
    assert dataset.features["pcm"] == datasets.List(datasets.Value("int16"), length=8)
    assert numbers_of(dataset.select([4, 1])) == [
        numbers_on_disk(records)[k] for k in (4, 1)
    ]


@pytest.mark.parametrize("streaming", [False, True])
def test_lists_and_missing_values(everything, cache, streaming):
    options = {} if streaming else {"cache_dir": cache}
    dataset = everything.to_datasets(streaming=streaming, **options)
    for got in dataset:
        number = got["number"]
        assert got["list"] == list(range(number % 4))
        assert got["maybe"] == (number if number % 3 else None)


def test_classes_are_labels(sounds, cache):
    dataset = sounds.to_datasets(cache_dir=cache)
    label = dataset.features["target"]
    assert tuple(label.names) == sounds.classes
    example = dataset[5]
    assert label.int2str(example["target"]) == example["class"]
    assert dataset.features["log_mel"] == datasets.Array2D((6, 8), "float32")


def test_a_copy_is_made_once(records, folder, cache):
    """Also in another process; but a view, or other features, are another copy."""
    dataset = records.to_datasets(cache_dir=cache)
    files = [file["filename"] for file in dataset.cache_files]
    script = (
        "import sys; from beam_pipeline.read.records import open_records\n"
        "records = open_records(sys.argv[1], features=sys.argv[3].split(','))\n"
        "made = records.to_datasets(cache_dir=sys.argv[2])\n"
        "print(made._fingerprint, *[f['filename'] for f in made.cache_files])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script, folder, cache, ",".join(records.features)],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    assert done.stdout.split() == [dataset._fingerprint, *files]
    view = records[:9].to_datasets(cache_dir=cache)
    assert len(view) == 9
    assert view._fingerprint != dataset._fingerprint


def test_a_stream(records):
    stream = records.to_datasets(streaming=True)
    assert isinstance(stream, datasets.IterableDataset)
    assert stream.num_shards == 4
    assert_equals(stream, records)


def test_a_stream_in_a_global_order(records):
    stream = records.to_datasets(streaming=True, shuffle="global", seed=3)
    (batch,) = records.batches(COUNT, shuffle="global", seed=3)
    assert numbers_of(stream) == batch["number"].tolist()
    other = records.to_datasets(streaming=True, shuffle="global", seed=3, epoch=1)
    assert sorted(numbers_of(other)) == list(range(COUNT))
    assert numbers_of(other) != numbers_of(stream)


def test_workers_and_nodes_share_a_stream(records):
    need("torch")
    from datasets.distributed import split_dataset_by_node as split
    from torch.utils.data import DataLoader

    stream = records.to_datasets(streaming=True)
    parts = [split(stream, rank, 2).with_format("torch") for rank in range(2)]
    seen = [
        number
        for part in parts
        for batch in DataLoader(part, batch_size=4, num_workers=2)
        for number in batch["number"].tolist()
    ]
    assert sorted(seen) == list(range(COUNT))


@pytest.mark.parametrize("steps", [0, 1, 16, 17, 49, 50])
def test_a_state_continues_at_the_next_example(records, steps):
    def make():
        return records.to_datasets(streaming=True, shuffle="global", seed=2)

    wanted = numbers_of(make())
    stream = make()
    iterator = iter(stream)
    got = [int(next(iterator)["number"]) for _ in range(steps)]
    state = stream.state_dict()
    stream = make()
    stream.load_state_dict(state)
    assert got + numbers_of(stream) == wanted


def test_shuffle_is_for_streams(records):
    with pytest.raises(InputError, match="streaming=True"):
        records.to_datasets(shuffle="global")


@pytest.mark.parametrize("count", [0, 1, 16, 17, 16384, 16385, 10**7])
def test_pieces_cover_everything(count):
    pieces = pieces_of(count)
    assert len(pieces) <= 1024
    assert [first for first, _ in pieces] == [0, *[end for _, end in pieces]][:-1]
    assert ([0] + [end for _, end in pieces])[-1] == count


@pytest.mark.parametrize(
    ("dtype", "shape", "feature"),
    [
        ("float16", (), "Value('float16')"),
        ("bfloat16", (), "Value('float32')"),
        ("string", (3,), "List(Value('string'), length=3)"),
        ("string", (2, 2), "List(List(Value('string'), length=2), length=2)"),
        ("uint8", (4,), "List(Value('uint8'), length=4)"),
        ("int16", (2, 3), "Array2D(shape=(2, 3), dtype='int16')"),
        ("complex128", (2, 3), "Array3D(shape=(2, 3, 2), dtype='float64')"),
        ("complex64", (None,), "List(List(Value('float32')))"),
        ("float32", (None, 3), "List(List(Value('float32')))"),
    ],
)
def test_types(dtype, shape, feature):
    encoding = BYTES_LIST if dtype == "string" else RAW
    features = features_of({"x": FeatureSpec("x", dtype, shape, encoding)})
    assert repr(features["x"]) == feature


def test_arrays_without_a_rank_have_no_type():
    with pytest.raises(InputError, match="The feature x has no type in Arrow"):
        features_of({"x": FeatureSpec("x", "float32", None, RAW)})
