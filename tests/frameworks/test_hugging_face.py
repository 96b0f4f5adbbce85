"""Hugging Face: a Dataset with typed features, and a stream with a state."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline import record_examples
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.spec import BYTES_LIST, RAW, FeatureSpec
from beam_pipeline.read.records import open_records
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


def global_stream(records, **options):
    return records.to_datasets(
        streaming=True, shuffle="global", **{"seed": 2, **options}
    )


def state_of(stream, steps=3):
    iterator = iter(stream)
    for _ in range(steps):
        next(iterator)
    return stream.state_dict()


@pytest.mark.parametrize("is_batched", [False, True])
@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r: global_stream(r, seed=3), "seed is 2 in the state, but 3 here"),
        (lambda r: r.to_datasets(streaming=True, seed=2), "shuffle is 'global'"),
        (lambda r: global_stream(r[:40]), "examples is 50 in the state, but 40 here"),
        (lambda r: global_stream(r[[1, *range(1, COUNT)]]), "fingerprint is"),
    ],
)
def test_a_state_of_another_order_is_refused(records, change, words, is_batched):
    streams = [global_stream(records), change(records)]
    if is_batched:
        streams = [stream.batch(4) for stream in streams]
    state = state_of(streams[0])
    if is_batched:  # what a method made looks at the state when it reads
        streams[1].load_state_dict(state)
        iterator = iter(streams[1])
        with pytest.raises(InputError, match=words):
            next(iterator)
    else:
        with pytest.raises(InputError, match=words):
            streams[1].load_state_dict(state)
    streams[0].load_state_dict(state)
    assert list(streams[0])


def test_a_state_of_another_split_or_none_is_refused(records):
    stream = global_stream(records)
    state = state_of(stream)
    state["examples_iterable"]["records"]["split"] = "test"
    with pytest.raises(InputError, match="split is 'test' in the state"):
        stream.load_state_dict(state)
    other = datasets.Dataset.from_dict({"a": [1, 2]}).to_iterable_dataset()
    with pytest.raises(InputError, match=r"lacks split.*seed"):
        stream.load_state_dict(other.state_dict())


def test_an_epoch_of_a_global_stream_is_that_of_batches(records):
    stream = global_stream(records)
    for epoch in (2, 0, 1, 1):
        stream.set_epoch(epoch)
        (batch,) = records.batches(COUNT, shuffle="global", seed=2, epoch=epoch)
        assert numbers_of(stream) == batch["number"].tolist()
    later = global_stream(records, epoch=1)
    assert numbers_of(later) == numbers_of(stream)
    later.set_epoch(1)
    stream.set_epoch(2)
    assert numbers_of(later) == numbers_of(stream)
    batched = global_stream(records).batch(4)
    batched.set_epoch(2)
    numbers = [number for batch in batched for number in batch["number"]]
    assert numbers == numbers_of(stream)


def test_an_epoch_of_a_stream_on_disk_permutes_pieces(records):
    stream = records.to_datasets(streaming=True)
    found = []
    for epoch in range(4):
        stream.set_epoch(epoch)
        found.append(numbers_of(stream))
    assert found[0] == numbers_on_disk(records)
    assert any(numbers != found[0] for numbers in found)
    assert all(sorted(numbers) == list(range(COUNT)) for numbers in found)


@pytest.mark.parametrize("epoch", ["a", -1])
def test_a_wrong_epoch_of_a_stream(records, epoch):
    with pytest.raises(OptionError, match=r"^epoch: "):
        records.to_datasets(streaming=True).set_epoch(epoch)
    with pytest.raises(OptionError, match=r"^epoch: "):
        records.to_datasets(streaming=True, epoch=epoch)


def test_a_state_of_an_epoch_continues_it_in_a_new_stream(records):
    stream = global_stream(records)
    stream.set_epoch(2)
    wanted = numbers_of(stream)
    state = state_of(stream, 20)
    restored = global_stream(records)
    restored.load_state_dict(state)
    assert restored.epoch == 2
    assert numbers_of(restored) == wanted[20:]


def test_the_states_of_workers_restore(records):
    need("torchdata")
    from torchdata.stateful_dataloader import StatefulDataLoader

    def make():
        return StatefulDataLoader(global_stream(records), num_workers=2)

    loader = make()
    loader.dataset.set_epoch(1)
    batches = iter(loader)
    got = [int(next(batches)["number"]) for _ in range(9)]
    state = loader.state_dict()
    got += [int(batch["number"]) for batch in batches]
    assert sorted(got) == list(range(COUNT))
    loader = make()
    loader.dataset.set_epoch(1)
    loader.load_state_dict(state)
    assert [int(batch["number"]) for batch in loader] == got[9:]


@pytest.fixture(scope="module")
def odd(tmp_path_factory):
    """Bytes that are no text from example 5 on, and a large integer in example 7."""
    out = str(tmp_path_factory.mktemp("odd") / "records")
    examples = [
        {
            "number": np.int64(k),
            "raw": b"\xff" + bytes([k]) if k >= 5 else f"ä{k}",
            "pair": np.array([b"\xff", b"a"] if k >= 5 else [b"b", b"a"], object),
            "large": np.uint64(2**63 + 7 if k == 7 else k),
        }
        for k in range(20)
    ]
    record_examples(examples, out, num_shards=1)
    return out


@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", ["raw", "pair"])
def test_bytes_are_never_turned_into_other_texts(odd, cache, name, streaming):
    records = open_records(odd, features=["number", name])
    first = min(k for k, e in enumerate(records) if e["number"] >= 5)
    options = {} if streaming else {"cache_dir": cache}
    with pytest.raises(InputError, match=f"feature {name} of example {first} .*binary"):
        list(records.to_datasets(streaming=streaming, **options))
    dataset = records.to_datasets(streaming=streaming, binary=[name], **options)
    for got, example in zip(dataset, records, strict=True):
        wanted = np.atleast_1d(example[name])
        as_bytes = [v if isinstance(v, bytes) else v.encode() for v in wanted]
        assert list(np.atleast_1d(np.array(got[name], object))) == as_bytes
    assert "binary" in repr(dataset.features[name])


def test_binary_names_texts(records, cache):
    with pytest.raises(OptionError, match="binary: must name features of texts"):
        records.to_datasets(cache_dir=cache, binary="x")
    with pytest.raises(InputError, match="no feature 'tex'"):
        records.to_datasets(streaming=True, binary=["tex"])
    plain = records.to_datasets(cache_dir=cache)
    binary = records.to_datasets(cache_dir=cache, binary="text")
    assert plain[0]["text"].encode() == binary[0]["text"]


def test_large_integers(odd, cache):
    records = open_records(odd, features=["number", "large"])
    numbers = {int(e["number"]): int(e["large"]) for e in records}
    stream = records.to_datasets(streaming=True)
    assert {e["number"]: e["large"] for e in stream} == numbers
    with pytest.raises(InputError, match=f"feature large .* is {2**63 + 7}"):
        records.to_datasets(cache_dir=cache)
    (few,) = np.flatnonzero([e["large"] == 3 for e in records])
    assert records[[few]].to_datasets(cache_dir=cache)[0]["large"] == 3


def test_there_must_be_examples_to_copy(records, cache):
    with pytest.raises(InputError, match="no examples to copy"):
        records[:0].to_datasets(cache_dir=cache)
    assert list(records[:0].to_datasets(streaming=True)) == []


def test_what_a_stream_does_not_take_is_named(records):
    with pytest.raises(OptionError, match="shuffle: must be 'global' or False"):
        records.to_datasets(streaming=True, shuffle="shards")
    with pytest.raises(OptionError, match="cache_dir: is for a copy"):
        records.to_datasets(streaming=True, cache_dir="x")


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
