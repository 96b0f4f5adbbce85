"""From rows to records, without files."""

import gc
import pickle
import weakref

import numpy as np
import pytest

from beam_pipeline.errors import ExampleError
from beam_pipeline.tfrecorder import Example, IgnoreExampleException
from beam_pipeline.tfrecorder.factory import RowEncoder
from tests.data_sets import decode_examples
from tests.tfrecorder.declared import declared


class Data(np.ndarray):
    """An array that can be watched."""


class Word(Example):
    """Each letter of a word is a chunk. What goes wrong depends on the word."""

    letter = declared("letter", "string")
    data = declared("data", Example.Field.TYPE_ARRAY_FLOAT32)

    def __init__(self, text, letter="", data=None):
        self.text, self._letter, self._data = text, letter, data

    def load(self, size=2, fail_in=None, **kwargs):
        self.fail("load", fail_in)
        self._data = np.ones(size, np.float32).view(Data)

    def to_csv_row(self):
        self.fail("to_csv_row", getattr(self, "fail_in", None))
        return [self.text, len(self.text)]

    @classmethod
    def from_csv_row(cls, row, fail_in=None, **kwargs):
        word = cls(row[0])
        word.fail("from_csv_row", fail_in)
        word.fail_in = fail_in
        return word

    def split(self, fail_in=None, returns=list, **kwargs):
        self.fail("split", fail_in)
        chunks = (Word(self.text, letter, self.data * 1) for letter in self.text)
        return returns(chunks)

    def fail(self, method, fail_in):
        if fail_in == method and self.text == "bad":
            raise ValueError("it is bad")
        if fail_in == method and self.text == "ignored":
            raise IgnoreExampleException("too quiet")


class Whole(Word):
    def split(self, **kwargs):
        return None


def run(sources, cls=Word, **kwargs):
    specs = {spec.name: spec for spec in cls.feature_specs()}
    found = []
    for encoded in RowEncoder(cls, kwargs, True).encode(("train", sources)):
        if encoded.sources:
            line = next(iter(encoded.lines), None)
            found.append((line, [], next(iter(encoded.skipped), None)))
        letters = [e["letter"] for e in decode_examples(encoded.records, specs)]
        found[-1][1].extend(letters)
    return found


def test_rows_become_chunks_and_lines():
    keywords = {"source": 1, "what": 2, "method": 3}  # any are the user's
    assert run([["ab"]], Whole, **keywords) == [("ab,2\n", [""], None)]
    assert RowEncoder(Word, {"fail_in": "to_csv_row"}, False).load(["bad"])[0] is None
    assert run([["ab"], ["c,d"], [""]]) == [
        ("ab,2\n", ["a", "b"], None),
        ('"c,d",3\n', ["c", ",", "d"], None),
        # Nothing to store of it; it is in the list.
        (",0\n", [], None),
    ]


@pytest.mark.parametrize("method", ["from_csv_row", "load", "split"])
def test_ignored_examples_leave_no_row(method):
    assert run([["a"], ["ignored"], ["b"]], fail_in=method) == [
        ("a,1\n", ["a"], None),
        (None, [], "too quiet"),
        ("b,1\n", ["b"], None),
    ]


@pytest.mark.parametrize("method", ["from_csv_row", "load", "to_csv_row", "split"])
def test_errors_name_the_row_and_the_method(method):
    with pytest.raises(ExampleError) as caught:
        run([["a"], ["bad", "0"]], fail_in=method)
    message = f"row ['bad', '0']: {method}() raised ValueError: it is bad"
    assert str(caught.value) == message
    assert isinstance(caught.value.__cause__, ValueError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == message
    with pytest.raises(ExampleError, match=r"Word \['bad', 3\]: load\(\) raised"):
        run([Word("bad")], fail_in="load")


class Odd(Word):
    letter = property(lambda self: {}["x"])


def test_errors_of_attributes_name_the_row():
    for chunk, error, problem in (
        (Word("a", data=np.full(2, 0.1)), TypeError, "Word: Feature data is float32"),
        (Odd("a", data=np.zeros(1, "f4")), ExampleError, "raised KeyError: 'x'"),
    ):
        with pytest.raises(error, match=rf"row \['a'\]: .*{problem}"):
            run([["a"]], returns=lambda chunks, chunk=chunk: [chunk])


@pytest.mark.parametrize("returned", [3, ["a"], "a"])
def test_methods_must_return_examples(returned):
    with pytest.raises(ExampleError, match=r"row \['a'\]: .* raised .*(int|str)"):
        run([["a"]], returns=lambda chunks: returned)
    forgot = type("Forgot", (Word,), {"from_csv_row": lambda row, **_: returned})
    with pytest.raises(ExampleError, match=r"load\(\) raised .* no attribute 'load'"):
        RowEncoder(forgot, {}, True).load(["a"])


def test_one_source_is_in_memory_at_a_time():
    alive = []

    class Watched(Word):
        def load(self, **kwargs):
            gc.collect()
            assert [ref for ref in alive if ref() is not None] == []
            super().load(**kwargs)
            alive.append(weakref.ref(self.data))

        def split(self, **kwargs):
            chunks = super().split(**kwargs)
            alive.extend(weakref.ref(chunk.data) for chunk in chunks)
            return chunks

    sources = [["ab"], Watched("cd"), ["e"], ["abcdefgh"]]
    for encoded in RowEncoder(Watched, {}, True).encode(("train", sources)):
        # What the class has loaded is gone once there are records.
        assert all(ref() is None for ref in alive)
        del encoded
    assert len(alive) == 4 + 13
