"""Conditions on the columns of a table, on tables of a few rows."""

import math

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from beam_pipeline.errors import OptionError
from beam_pipeline.read.conditions import rows_where
from tests.raising import raises

MOST = 2**63 - 1
TABLE = pa.table(
    {
        "record": pa.array([0, 1, 2, None], pa.int64()),
        "class": pa.array(["owl", "34", None, "a"]).dictionary_encode(),
        "path": ["x/night", "a", "34", "owl"],
        "level_db": pa.array([-1.5, -math.inf, math.nan, None], pa.float32()),
        "big": [MOST, -MOST - 1, 0, 1],
        "frames": pa.array([48000, 23999, 0, 24000], pa.int32()),
        "zero": [0.0, -0.0, 1.0, 2.0],
        "my col": [1, 2, 3, 4],
        "e": [5, 6, 7, 8],
        "list": [[1], [2], [], None],
    }
)


def rows(condition):
    met = rows_where(TABLE, condition)
    assert met.dtype == bool
    assert met.shape == (len(TABLE),)
    return np.flatnonzero(met).tolist()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("frames / 48000 >= 0.5", [0, 3]),
        ("frames * 48000 == 2304000000", [0]),
        ("frames * frames > 2147483647", [0]),
        ("-(-record) + +1 == 2", [1]),
        ("big * 1.0 > 9e18", [0]),
        ("big - 9e18 > 2e17", [0]),
    ],
)
def test_arithmetic_is_that_of_python(condition, expected):
    assert rows(condition) == expected


@pytest.mark.parametrize(
    "condition",
    ["1 / 0 > 0", "zero / 0 > 1", "frames / 0 > 1", "level_db / 0 < 0",
     "1 / 0 == 1 / 0", "1 / 0 in [1]", "1 / 0 not in [1]",
     "level_db * 0 != 0 and record == 1"],
)  # fmt: skip
def test_results_that_are_no_numbers_are_missing(condition):
    assert rows(condition) == []
    assert rows(f"not ({condition})") == [] or "* 0" in condition
    assert rows("1 / 0 is None") == rows("zero / 0 is None") == [0, 1, 2, 3]


def test_nan_is_missing():
    assert rows("level_db is None") == [2, 3]
    assert rows("level_db is not None") == [0, 1]
    assert rows("level_db != 7") == rows("level_db == level_db") == [0, 1]
    assert rows("level_db not in [7]") == rows("not level_db > 0") == [0, 1]
    assert rows("level_db - level_db is None") == [1, 2, 3]  # inf - inf


@pytest.mark.parametrize(
    ("condition", "part"),
    [
        ("frames > 0 and frames*frames*frames*frames*frames > 0",
         "frames*frames*frames"),
        ("big + 1 > 0", "big + 1"),
        ("big - 2 > 0", "big - 2"),
        ("-big > 0", "-big"),
    ],
)  # fmt: skip
def test_whole_numbers_do_not_wrap(condition, part):
    with raises(OptionError, naming=["condition", part, "overflow", "1.0"]):
        rows(condition)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (f"big == {MOST}", [0]),
        ("e == 5e0 or e == 0x6 or e == 7_0 / 1_0 or e == .8E+1", [0, 1, 2, 3]),
        ("e > 1e-3 and e == 7.", [2]),
        ("e+1 == 6", [0]),
        ("e < 1_000 and 6 < e", [2, 3]),
        ("record in [1.5]", []),
        ("record == 1.5", []),
        ("record in [1.0, 2, 1e400]", [1, 2]),
        ("zero in [0]", [0, 1]),
        ("zero in [-0.0, 2]", [0, 1, 3]),
        ("class in []", []),
        ("class not in []", [0, 1, 3]),
        ("class in ('owl', 'a')", [0, 3]),
        ("'ow' in class", [0]),
        ("'ow' not in class", [1, 3]),
        ("(record == 1) in [True]", [1]),
        ("path == 'column_0'", []),
        ("\r\n record == 1\n and\n e > 1\n", [1]),
        ("0 < record < 2", [1]),
        ("list is None", [3]),
        ("True", [0, 1, 2, 3]),
    ],
)
def test_rows(condition, expected):
    assert rows(condition) == expected


@pytest.mark.parametrize(
    ("condition", "facts"),
    [
        ("clas == 'owl'", ["clas", "level_db", "mean class?"]),
        ("record == 1 and my == 1", ["my", "my col"]),
        ("record > 99999999999999999999999", ["99999999999999999999999", "64-bit"]),
        ("record in [record]", ["record", "no constant"]),
        ("class == owl", ["owl", "quotes"]),
        ("class == true", ["mean True?"]),
        ("class = 'owl'", ["cannot be read", "write =="]),
        ("(record == 1", ["cannot be read", "(record == 1"]),
        ("record == 1 and", ["cannot be read"]),
        ("'\\ud800' == class", ["Unicode"]),
        ("\0", ["cannot be read"]),
        ("", ["empty"]),
        ("  ", ["empty"]),
        (3, ["text"]),
        ("class", ["class (", "texts", "true or false"]),
        ("record % 2", ["record % 2", "It may hold"]),
        ("not record", ["record (", "true or false"]),
        ("record and True", ["record (", "true or false"]),
        ("level_db > 'loud'", ["level_db (", "numbers", "'loud'", "quotes"]),
        ("record == '3'", ["record (", "numbers", "'3' (texts)"]),
        ("class == 3", ["class (", "texts", "3 (numbers)", "quotes"]),
        ("1.5 <= class", ["class (", "texts", "1.5 (numbers)"]),
        ("class in ('a', 1)", ["class (", "texts", "1 (numbers)"]),
        ("class < record", ["class (", "record ("]),
        ("(record == 1) == 1", ["record == 1", "true or false"]),
        ("list in []", ["list (other data)", "It may hold"]),
        ("list == 1", ["list ("]),
        ("class + 'a' == 'b'", ["class (", "texts", "numbers"]),
        ("-class == 'b'", ["class (", "numbers"]),
        ("class in '34'", ["'34' (texts)", "list after `in`", "class in ["]),
        ("class in path", ["class (", "path (", "text in quotes"]),
        ("1 in path", ["1 (numbers)", "path (", "'night' in path"]),
        ("1 in record", ["record (", "list after `in`"]),
        ("class in ['a'] + ['b']", ["['a']", "`in` with a list"]),
        ("class in [None]", ["class is None"]),
        ("class == None", ["class is None"]),
        ("class != None", ["class is not None"]),
        ("None", ["None"]),
        ("None + 1 == 2", ["None"]),
        ("record is 1", ["record is 1", "=="]),
        ("path.upper() == 'A'", ["upper"]),
        ("[1][0] == 1", ["[1][0]"]),
        ("record ** 2 == 1", ["record ** 2"]),
        ("(class == 'a') & (e == 1)", ["(class == 'a') & (e == 1)", "and"]),
        ("record in (*path,)", ["*path"]),
        ("... == 1", ["..."]),
        ("(lambda: 1)()", ["lambda"]),
        ("not " * 2000 + "True", ["nested"]),
        ("1 +" * 2000 + "1 > 0", ["nested"]),
        ("(" * 300 + "1" + ")" * 300, ["nested"]),
    ],
)
def test_wrong_conditions(condition, facts):
    with raises(OptionError, naming=["condition", *facts]) as caught:
        rows(condition)
    text = str(caught.value)
    assert "column_" not in text
    assert "kernel" not in text
    assert len(text) < 1000


def test_an_expression_of_arrow_is_taken_as_it_is():
    assert np.flatnonzero(rows_where(TABLE, pc.field("my col") > 2)).tolist() == [2, 3]
