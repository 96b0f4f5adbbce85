import csv
import pickle
from dataclasses import dataclass, field

import numpy as np
import pytest
from toy_example import ToyExample

from beam_pipeline.errors import ExampleError
from beam_pipeline.tfrecorder import Example, array_feature, feature, tfrecordable
from tests.data_sets import decode_examples

Field = Example.Field


class Toy(ToyExample):
    def __init__(self, name="a", label=3, data=None):
        super().__init__(name, label)
        self._data = data


class Longer(Toy):
    @tfrecordable(dtype="float64")
    def area(self):
        return 2.5


class Longest(Longer):
    @tfrecordable(dtype=Field.TYPE_STRING, optional=True)
    def a_note(self):
        return None

    # Of another type, at its place.
    @Toy.data.getter
    def data(self):
        return np.ones(2, np.float32)


@dataclass
class Clip(Example):
    name: str
    data: np.ndarray | None = array_feature("float32", default=None)
    label: int = feature("int32", default=0)
    tags: list = field(default_factory=list)
    mel: np.ndarray | None = array_feature("float64", (None, 2), default=None)
    note: str | None = feature("string", optional=True, default=None)


@dataclass(slots=True)
class Slotted(Example):
    label: int = feature("int32")
    data: np.ndarray | None = array_feature("float32", default=None)


@dataclass
class More(Clip):
    weight: float = feature("float32", default=1.0)


DATA = "data: array of float32"
DECLARED = [
    (Toy, ["label: int32", DATA]),
    (Longer, ["label: int32", DATA, "area: float64"]),
    (Longest, ["label: int32", DATA, "area: float64", "a_note: string"]),
    (Clip, CLIP := [DATA, "label: int32", "mel: array of float64 of shape (None, 2)",
                    "note: string"]),
    (More, [*CLIP, "weight: float32"]),
    (Slotted, ["label: int32", DATA]),
]  # fmt: skip


@pytest.mark.parametrize(("cls", "declared"), DECLARED)
def test_the_order_is_that_of_the_declarations(cls, declared):
    found = cls.get_tfrecordable_ordered_dict()
    assert [f"{name}: {field}" for name, field in found.items()] == declared
    assert list(found) == cls.get_tfrecordable_attribute_names()
    assert [n for n, t in found.items() if t.optional] == [
        name for name in ("a_note", "note") if name in found
    ]
    specs = [spec.name for spec in cls.feature_specs()]
    assert [name for name in specs if "/" not in name] == list(found)
    # A shape follows its array.
    assert specs[specs.index("data") + 1] == "data/shape"


def test_it_is_a_property():
    toy = Toy(label=4)
    assert toy.label == 4
    toy.label = 5
    assert toy._label == 5
    with pytest.raises(AttributeError):
        Longer().area = 3.0


def test_dataclasses_compare_without_arrays_and_keep_other_metadata():
    assert Clip("a", np.zeros(2)) == Clip("a", np.ones(3)) != Clip("b")

    @dataclass
    class Own(Example):
        label: int = feature("int32", metadata={"mine": 1}, default=2)

    assert Own.__dataclass_fields__["label"].metadata["mine"] == 1
    assert Own().label == 2


def test_a_record_holds_what_is_declared():
    data, mel = np.arange(6, dtype="f4").reshape(2, 3), np.float64([[0.1, 0.2]])
    record = Clip("a", data, -7, mel=mel).serialize_to_string()
    specs = {spec.name: spec for spec in Clip.feature_specs()}
    (found,) = decode_examples([record], specs)
    assert list(found) == ["data", "data/shape", "label", "mel", "mel/shape"]
    np.testing.assert_array_equal(found["data"], data, strict=True)
    np.testing.assert_array_equal(found["mel"], mel, strict=True)
    assert found["label"] == -7


def test_the_size_is_that_of_the_record():
    toy = Toy(data=np.zeros(1000, np.float32))
    assert toy.get_byte_size() == len(toy.serialize_to_string()) > 4000


def test_errors_name_class_and_attribute():
    example = Toy(data=np.full(3, 0.1))
    with pytest.raises(TypeError, match=r"^Toy: Feature data is float32, which") as err:
        example.serialize_to_string()
    assert isinstance(err.value, ExampleError)
    copied = pickle.loads(pickle.dumps(err.value))
    assert (type(copied), str(copied)) == (type(err.value), str(err.value))


def test_releasing_sets_what_can_be_set():
    example = Longer("a", 3, np.zeros(2))
    example.release()
    assert (example.label, example.data, example.area) == (None, None, 2.5)
    assert example.name == "a"


def test_csv_files_are_appended_to_and_read(tmp_path):
    path = tmp_path / "list.csv"
    Example.to_csv_file(path, [Toy('x,"y"', 1), Toy("é\nz", 2)])
    Example.to_csv_file(path, [Toy("last", 3)])
    with open(path, newline="", encoding="utf-8") as file:
        rows = [['x,"y"', "1"], ["é\nz", "2"], ["last", "3"]]
        assert list(csv.reader(file)) == rows
    found = Toy.from_csv_file(str(path), unused=1)
    assert [(type(e), e.name, e.label) for e in found] == [
        (ToyExample, 'x,"y"', 1), (ToyExample, "é\nz", 2), (ToyExample, "last", 3),
    ]  # fmt: skip


def test_a_csv_file_may_have_a_mark_and_empty_lines(tmp_path):
    (tmp_path / "list.csv").write_bytes(b"\xef\xbb\xbfa,1\r\n\r\nb,2")
    found = Toy.from_csv_file(tmp_path / "list.csv")
    assert [e.name for e in found] == ["a", "b"]
