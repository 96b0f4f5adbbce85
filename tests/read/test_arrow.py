"""Records as tables of Arrow: every value, and none of them copied."""

import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest

from beam_pipeline import open_records, record, record_examples
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.arrow import arrow_schema, record_batches
from tests.raising import raises
from tests.sounds import write_corpus


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("arrow")
    write_corpus(folder / "in", clips=2)
    features = {
        "signal": "identity()",
        "mel": "log_mel(n_fft=256,hop=128,n_mels=4)",
        "spectrum": "fft()",
        "half": "log_mel(n_fft=256,hop=128,n_mels=4)",
    }
    record(
        folder / "in", folder / "out", win_len=600, features=features,
        encodings={"half": "bfloat16"},
    )  # fmt: skip
    return folder / "out"


def as_numpy(column, tensors):
    """All values of a column of numbers."""
    if isinstance(column.type, pa.FixedShapeTensorType):
        assert tensors
        chunks = [chunk.to_numpy_ndarray() for chunk in column.chunks]
        return np.concatenate(chunks)
    return np.array(column.to_pylist())


@pytest.mark.parametrize("tensors", [True, False])
@pytest.mark.parametrize("batch_size", [1, 7, 24, 999])
def test_a_table_has_every_value(corpus, tensors, batch_size):
    records = open_records(corpus)
    table = records.to_arrow(batch_size, tensors=tensors)
    whole = records.read(slice(None))
    assert table.num_rows == len(records) == 24
    assert table.column_names == list(records.features)
    for name, values in whole.items():
        found = table[name]
        if values.dtype == object:
            assert found.to_pylist() == values.tolist()
            continue
        wanted = values
        if values.dtype.kind == "c":
            wanted = np.stack([values.real, values.imag], axis=-1)
        np.testing.assert_array_equal(as_numpy(found, tensors), wanted)
        assert pa.types.is_fixed_size_list(found.type) == (
            not tensors and wanted.ndim > 1
        )
    described = table.schema.field("mel").metadata[b"description"].decode()
    assert described == records.features["mel"].description


def test_values_are_not_copied(corpus):
    records = open_records(corpus)
    batch = records.read(range(9))
    for tensors in (True, False):
        schema = arrow_schema(records.features, tensors)
        (made,) = record_batches(iter([batch]), schema, records.features)
        for name in ("signal", "mel", "spectrum", "target"):
            column = made.column(made.schema.get_field_index(name))
            storage = column.storage if tensors and name != "target" else column
            while pa.types.is_fixed_size_list(storage.type):
                storage = storage.flatten()
            assert storage.buffers()[-1].address == batch[name].ctypes.data


def test_a_view_and_no_example(corpus):
    records = open_records(corpus)
    some = records.where("class == 'owl'")[::-1]
    table = some.to_arrow(3)
    assert table["win_start_idx"].to_pylist() == [e["win_start_idx"] for e in some]
    assert set(table["class"].to_pylist()) == {"owl"}
    none = records[:0].to_arrow()
    assert none.num_rows == 0
    assert none.schema == table.schema


def test_what_differs_between_examples(tmp_path):
    elements = [
        {
            "words": ["a", "bc"],
            "grid": np.arange(6, dtype=np.int32).reshape(3, 2),
            "raw": b"x\x00",
            "empty": np.zeros(0, np.float32),
            "flag": True,
            "short": np.array([0.5, 3], ml_dtypes.bfloat16),
            "z": np.complex64(1 + 2j),
        },
        {"words": ["ö"], "grid": np.zeros((0, 2), np.int32), "raw": b"\xff\x00",
         "empty": np.ones(2, np.float32), "flag": False, "some": np.float32(0.5),
         "short": np.array([-1, 2], ml_dtypes.bfloat16), "z": np.complex64(3),
         "list": np.arange(3, dtype=np.int16), "text": "t\x00"},
    ]  # fmt: skip
    record_examples(elements, tmp_path / "out")
    records = open_records(tmp_path / "out")
    table = records.to_arrow(binary=["raw"])
    for number, element in enumerate(elements):
        for name in table.column_names:
            value = element.get(name)
            if name == "z":
                value = [value.real, value.imag]
            elif isinstance(value, np.ndarray | np.generic):
                value = value.tolist()
            found = table[name][number].as_py()
            assert found == value, name
    assert table.schema.field("short").type.value_type == pa.float32()
    assert table.schema.field("some").type == pa.float32()
    assert table.schema.field("text").type == pa.string()
    with raises(InputError, naming=["raw", "binary"]):
        records.to_arrow()
    with raises(OptionError, "binary", "grid"):
        records.to_arrow(binary=["grid"])
    with raises(InputError, naming=["rav", "raw"]):
        records.to_arrow(binary="rav")
