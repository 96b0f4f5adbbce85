"""Values of every type: open_records gives those of replay; the caller owns them."""

import itertools

import numpy as np
import pytest
from numpy.lib.array_utils import byte_bounds

from beam_pipeline import record_dataset, record_examples
from beam_pipeline.dataset.metadata import load_index
from beam_pipeline.read.records import open_records
from beam_pipeline.read.replay import replay

tf = pytest.importorskip("tensorflow")

COUNT = 18
DTYPES = (
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64",
    "float16", "float32", "float64", "complex64", "complex128", "bfloat16",
)  # fmt: skip
ENCODINGS = {
    "png": "png", "jpeg": "jpeg", "png16": "png", "tensor": "tensor",
    "tensor_of_any_shape": "tensor", "tensor_of_texts": "tensor", "raw": "raw",
    "small_raw": "raw",
}  # fmt: skip


def array(rng, dtype, shape):
    """Values of all bit patterns, so negative, huge and NaN ones, too."""
    dtype = np.dtype(tf.as_dtype(dtype).as_numpy_dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)[()]
    size = int(np.prod(shape)) * dtype.itemsize
    return np.frombuffer(rng.bytes(size), dtype).reshape(shape)[()]


def texts(k):
    return np.array(["", "ü", "a longer text"][:k], object)


def example(number):
    """Some values are in several examples, because what repeats could be kept."""
    k, rng = number % 3, np.random.default_rng(number)
    return {
        **{dtype: array(rng, dtype, (5, 7)) for dtype in DTYPES},
        **{f"one {dtype}": array(rng, dtype, ()) for dtype in DTYPES},
        "small_float": np.arange(3, dtype=np.float32) + k,
        "integers": np.arange(5) + k,
        "many_integers": np.arange(200) + k,
        "short": rng.integers(-9, 9, 4),
        "wide": rng.integers(-(2**62), 2**62, 60) >> rng.integers(0, 62, 60),
        "list": rng.integers(0, 300, rng.integers(0, 5)),
        "rows": rng.normal(size=(rng.integers(0, 4), 3)).astype(np.float32),
        "any": rng.normal(size=rng.integers(0, 4, 2)),
        "mask": rng.integers(0, 2, (12, 9), np.uint8),
        "raw": np.arange(100, dtype=np.int16) + k,
        "small_raw": np.arange(4, dtype=np.int16) + k,
        "tensor": rng.normal(size=(2, 3)).astype(np.float32),
        "tensor_of_any_shape": np.arange(k, dtype=np.int32),
        "tensor_of_texts": np.array([f"c{k}", "d"], object),
        "png": rng.integers(0, 256, (8, 6, 3), np.uint8),
        "png16": np.full((3, 4), 300 + k, np.uint16),
        "jpeg": np.full((8, 8, 3), 50 * k, np.uint8),
        "text": ("", "ü\n", "b" * 200)[k],
        "words": np.array([f"a{k}", "b"], object),
        "texts": texts(number % 4),
        "number": np.int64(number),
        **({"label": np.int64(number), "level": np.float32(number)} if k else {}),
        **({"name": f"name {number}"} if number % 2 else {}),
        **({"optional": np.ones(20, np.float32)} if k else {}),
    }


def sequence(number):
    k, rng = number % 3, np.random.default_rng(number)
    return {
        "frames": rng.normal(size=(number % 4, 3)).astype(np.float32),
        "words": texts(k),
        "numbers": rng.integers(0, 999, (k, 2)),
        "images": np.full((k + 1, 3, 4), k, np.uint8),
        "context": np.arange(4) + k,
        "text": f"t{k}",
        "number": np.int64(number),
    }


@pytest.fixture(scope="module", params=["one", "several", "plain", "sequences"])
def folder(request, tmp_path_factory):
    """A data set of each form: examples alone in a member, or with others; no GZIP."""
    out, form = tmp_path_factory.mktemp("owned") / "out", request.param
    options = {
        "one": {"member_bytes": 1}, "several": {"member_bytes": 25_000},
        "plain": {"member_bytes": 1, "compression": "none"},
        "sequences": {"sequences": ["frames", "words", "numbers", "images"]},
    }  # fmt: skip
    make = sequence if form == "sequences" else example
    encodings = {"images": "png"} if form == "sequences" else ENCODINGS
    examples = list(map(make, range(COUNT)))
    folder = record_examples(examples, out, 11, encodings=encodings, **options[form])
    members = [len(shard.firsts) - 1 for shard in load_index(folder).values()]
    assert (sum(members) == COUNT) == (form in ("one", "plain"))
    return folder


def of_tf(value):
    """A value of replay as open_records gives it."""
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, np.ndarray) and value.dtype == object:
        decoded = np.empty(value.shape, object)
        decoded.ravel()[:] = [text.decode() for text in value.ravel()]
        return decoded
    return value


def check_same(found, wanted):
    assert np.shape(found) == np.shape(wanted)
    if isinstance(wanted, str) or wanted.dtype == object:
        assert np.array_equal(found, wanted)
        return
    assert found.dtype == wanted.dtype
    assert found.tobytes() == wanted.tobytes()
    assert found.dtype.isnative


def test_every_reader_gives_every_example(folder):
    """One by one, in batches and by iterating; None where an example lacks a value."""
    records, dataset = open_records(folder), replay(folder)
    make = sequence if "frames" in records.features else example
    specs = dataset.element_spec.items()
    fixed = [name for name, spec in specs if spec.shape.is_fully_defined()]
    (replayed,) = replay(folder, features=fixed, batch_size=99).as_numpy_iterator()
    assert make is sequence or {*fixed} > {*DTYPES}
    elements, iterated = list(dataset.as_numpy_iterator()), list(records)
    assert len(records) == len(elements) == len(iterated) == COUNT
    places = np.random.default_rng(0).permutation(COUNT)
    batches = [records.read(places[:10]), records.read(places[10:])]
    if make is example:
        assert isinstance(batches[0]["rows"], list)
        assert batches[0]["mask"].shape == (10, 12, 9)
        assert batches[0]["name"].dtype == object
    given = [row for batch in batches for row in zip(*batch.values(), strict=True)]
    for place, number in enumerate(places.tolist()):
        wanted, single, element = make(number), records[number], elements[number]
        row = dict(zip(batches[0], given[place], strict=True))
        assert list(single) == list(iterated[number])
        assert single.keys() == wanted.keys()
        assert {name for name, value in row.items() if value is None} == (
            row.keys() - wanted.keys()
        )
        for name in wanted:
            of_replay = of_tf(element[name])
            if name in ("label", "level", "name"):
                (of_replay,) = of_replay
            # A JPEG is near what it was made of.
            value = single[name] if name == "jpeg" else wanted[name]
            for found in (single[name], row[name], iterated[number][name], of_replay):
                check_same(found, value)
            if name in fixed:
                check_same(of_tf(replayed[name][number]), value)


def arrays_in(values):
    """The arrays in an example, or in a batch: also those in lists."""
    for value in values.values():
        if isinstance(value, np.ndarray):
            yield value
        elif isinstance(value, list):
            yield from (item for item in value if isinstance(item, np.ndarray))


WAYS = {
    "single": lambda records: [records[k] for k in range(COUNT)],
    "again": lambda records: [records[0], records[0], records[np.int64(-COUNT)]],
    "iteration": list,
    "slice": lambda records: list(records[2:9]),
    "choice": lambda records: list(records[[3, 3, 0]]),
    "several": lambda records: records.__getitems__([1, 1, 4]),
    "read": lambda records: [records.read([1, 1, 4, 7]), records.read(range(COUNT))],
    "batches": lambda records: list(records.batches(5)),
    "global": lambda records: list(records.batches(5, shuffle="global")),
    "doubled": lambda records: list(records[[2, 2, 5]].batches(3, shuffle="global")),
}


@pytest.mark.parametrize("way", WAYS)
def test_arrays_belong_to_who_read_them(folder, way):
    """They share no memory, and changing them changes no later read."""
    records, untouched = open_records(folder), open_records(folder)
    expected = [untouched[k] for k in range(COUNT)]
    for _ in range(2):
        arrays = [array for values in WAYS[way](records) for array in arrays_in(values)]
        assert len(arrays) > 3
        bounds = sorted(byte_bounds(array) for array in arrays if array.size)
        assert all(one[1] <= other[0] for one, other in itertools.pairwise(bounds))
        for array in arrays:
            assert array.flags.writeable
            array[...] = None if array.dtype == object else 99
        for found, wanted in zip(records, expected, strict=True):
            assert list(found) == list(wanted)
            for name, value in wanted.items():
                check_same(found[name], value)


def test_a_structure_is_flat(tmp_path):
    """Ragged and sparse tensors are given as the features that store them."""

    def element(k):
        return {
            "pair": (tf.fill([2], k), tf.strings.as_string(k)),
            "sparse": tf.sparse.from_dense(tf.one_hot(k % 3, 4)),
            "ragged": tf.RaggedTensor.from_row_lengths(tf.range(k % 4), [k % 4, 0]),
        }

    dataset = tf.data.Dataset.range(COUNT).map(element)
    folder = record_dataset(dataset, tmp_path / "out")
    for k, example in enumerate(open_records(folder)):
        wanted = {
            "pair/0": [k, k], "pair/1": str(k), "sparse": [1],
            "sparse/indices": [[k % 3]], "sparse/dense_shape": [4],
            "ragged": [*range(k % 4)], "ragged/row_splits_0": [0, k % 4, k % 4],
        }  # fmt: skip
        assert example.keys() == wanted.keys()
        for name, value in wanted.items():
            np.testing.assert_array_equal(example[name], value)
    assert list(open_records(folder, features=["pair/0"])[0]) == ["pair/0"]
