"""Every array that is given out belongs to the caller, whatever its encoding."""

import itertools

import numpy as np
import pytest

from beam_pipeline import open_records, record_examples

COUNT = 12
ENCODINGS = {
    "png": "png", "jpeg": "jpeg", "png16": "png", "tensor": "tensor",
    "tensor_of_any_shape": "tensor", "tensor_of_texts": "tensor", "raw": "raw",
    "small_raw": "raw",
}  # fmt: skip


def example(number):
    """Few different examples, because what repeats could be kept."""
    k = number % 3
    return {
        "float": np.arange(40, dtype=np.float32) + k,
        "small_float": np.arange(3, dtype=np.float32) + k,
        "integers": np.arange(5) + k,
        "many_integers": np.arange(200) + k,
        "words": np.array([f"a{k}", "b"], object),
        "raw": np.arange(100, dtype=np.int16) + k,
        "small_raw": np.arange(4, dtype=np.int16) + k,
        "complex": np.arange(30).astype(np.complex64) + k,
        "tensor": np.arange(6, dtype=np.float32).reshape(2, 3) + k,
        "tensor_of_any_shape": np.arange(k + 2, dtype=np.int32),
        "tensor_of_texts": np.array([f"c{k}", "d"], object),
        "png": np.full((3, 4), k, np.uint8),
        "png16": np.full((3, 4), 300 + k, np.uint16),
        "jpeg": np.full((8, 8, 3), 50 * k, np.uint8),
        "ragged": np.arange(2 * k, dtype=np.float32).reshape(k, 2),
        "ragged_texts": np.array(["e", "f", "g"][:k], object),
        "two_axes_differ": np.zeros((k, k + 1), np.int16) + 7,
        "number": number,
        "text": f"t{k}",
        **({"optional": np.ones(20, np.float32)} if k else {}),
    }


def sequence(number):
    k = number % 3
    return {
        "frames": np.arange(3 * k, dtype=np.float32).reshape(k, 3),
        "words": np.array(["a", "b", "c"][:k], object),
        "images": np.full((k + 1, 3, 4), k, np.uint8),
        "context": np.arange(4) + k,
        "text": f"t{k}",
    }


@pytest.fixture(scope="module", params=["one", "several", "plain", "sequences"])
def folder(request, tmp_path_factory):
    out, form = tmp_path_factory.mktemp("owned") / "out", request.param
    options = {
        "one": {"member_bytes": 1}, "several": {"member_bytes": 1 << 20},
        "plain": {"member_bytes": 1, "compression": "none"},
        "sequences": {"sequences": ["frames", "words", "images"]},
    }  # fmt: skip
    make = sequence if form == "sequences" else example
    encodings = {"images": "png"} if form == "sequences" else ENCODINGS
    examples = list(map(make, range(COUNT)))
    return record_examples(examples, out, encodings=encodings, **options[form])


def flat(values):
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
        arrays = [array for values in WAYS[way](records) for array in flat(values)]
        assert len(arrays) > 3
        for one, other in itertools.combinations(arrays, 2):
            assert not np.may_share_memory(one, other)
        for array in arrays:
            assert array.flags.writeable
            array[...] = None if array.dtype == object else 99
        for found, wanted in zip(records, expected, strict=True):
            assert list(found) == list(wanted)
            for name, value in wanted.items():
                assert np.array_equal(found[name], value), name
