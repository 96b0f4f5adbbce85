"""Conditions on the columns of a table, on tables of a few rows."""

import math

import numpy as np
import pyarrow as pa
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
        "in": [1, 2, 3, 4],
        "and": [4, 3, 2, 1],
        "None": [1, 1, 2, 2],
        "my col": [1, 2, 3, 4],
        "a`b": [1, 2, 3, 4],
        "e": [5, 6, 7, 8],
        "list": [[1], [2], [], None],
    }
)


def rows(condition):
    return np.flatnonzero(rows_where(TABLE, condition)).tolist()


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("frames / 48000 >= 0.5", [0, 3]),
        ("frames / 48000 == frames // 48000", [0, 2]),
        ("frames * 48000 == 2304000000", [0]),
        ("frames * frames > 2147483647", [0]),
        ("frames % 48000 == 23999", [1]),
        ("-frames % 7 == 6", [0]),
        ("-7 // record == -7", [1]),
        ("zero // 0.1 == 9", [2]),
        ("-(-record) + +1 == 2", [1]),
        ("big * 1.0 > 9e18", [0]),
        ("big - 9e18 > 2e17", [0]),
    ],
)
def test_arithmetic_is_that_of_python(condition, expected):
    assert rows(condition) == expected


@pytest.mark.parametrize(
    "condition",
    ["1 / 0 > 0", "zero / 0 > 1", "frames / 0 > 1", "1 // 0 == 0", "record % 0 == 0",
     "level_db / 0 < 0", "zero // 0 == 0", "(1 / 0) // 2 == 0", "1 / 0 == 1 / 0",
     "1 / 0 in [1]", "1 / 0 not in [1]", "level_db * 0 != 0 and record == 1"],
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
         "frames*frames*frames*frames*frames"),
        ("big + 1 > 0", "big + 1"),
        ("big - 2 > 0", "big - 2"),
        ("-big > 0", "-big"),
        ("big // -1 > 0", "big // -1"),
        ("record + 99999999999999999999999 > 0", "record + 99999999999999999999999"),
    ],
)  # fmt: skip
def test_whole_numbers_do_not_wrap(condition, part):
    with raises(OptionError, naming=["condition", part, "beyond 64-bit", "1.0"]):
        rows(condition)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("record > 99999999999999999999999", []),
        ("record < 99999999999999999999999", [0, 1, 2]),
        ("record < 1" + "0" * 400, [0, 1, 2]),
        ("level_db < 1" + "0" * 400, [0, 1]),
        (f"big < {MOST + 1}", [0, 1, 2, 3]),
        (f"big == {MOST + 1}", []),
        (f"big == {MOST}", [0]),
        (f"big == -{MOST + 1}", [1]),
        (f"big in [{MOST + 1}, 1]", [3]),
        ("e == 5e0 or e == 0x6 or e == 7_0 / 1_0 or e == .8E+1", [0, 1, 2, 3]),
        ("e > 1e-3 and e == 7.", [2]),
        ("e+1 == 6", [0]),
        ("e < 1_000 and 6 < e", [2, 3]),
        ("record in [1.5]", []),
        ("record == 1.5", []),
        ("record in [1.0, 2, 1e400]", [1, 2]),
        ("zero in [0]", [0, 1]),
        ("zero in [-0.0, 2]", [0, 1, 3]),
        ("record in [record]", [0, 1, 2]),
        ("record in [`in` - 1, 0]", [0, 1, 2]),
        ("'34' in [path, class]", [1, 2]),
        ("1 in [record]", [1]),
        ("class in []", []),
        ("class not in []", [0, 1, 3]),
        ("class in ('owl', 'a')", [0, 3]),
        ("'ow' in class", [0]),
        ("'ow' not in class", [1, 3]),
        ("(record == 1) in [True]", [1]),
        ("`in` == 1 and `and` == 4 and `None` == 1", [0]),
        ("`my col` == 2 or `a``b` == 3", [1, 2]),
        ("`class` == 'owl' or path == '`in`'", [0]),
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
        ("clas == 'owl'", ["clas", "character 1", "level_db", "mean class?"]),
        ("record == 1 and my == 1", ["my", "character 17", "`my col`", "`in`"]),
        ("`mycol` == 1", ["mycol", "mean `my col`?"]),
        ("class == owl", ["owl", "character 10", "quotes"]),
        ("class == true", ["mean True?"]),
        ("class = 'owl'", ["cannot be read", "write =="]),
        ("record == 1 and `in` = 3", ["cannot be read", "`in` = 3"]),
        ("(record == 1", ["cannot be read", "(record == 1"]),
        ("record == 1 and", ["cannot be read"]),
        ("'\\ud800' == class", ["Unicode"]),
        ("\0", ["cannot be read"]),
        ("", ["empty"]),
        ("  ", ["empty"]),
        (3, ["text"]),
        ("class", ["column class", "texts", "true or false"]),
        ("record % 2", ["record % 2", "true or false"]),
        ("not record", ["column record", "`not`"]),
        ("record and True", ["column record", "`and`"]),
        ("level_db > 'loud'", ["column level_db", "numbers", "'loud'", "without"]),
        ("record == '3'", ["column record", "numbers", "Write 3 without quotes"]),
        ("class == 3", ["column class", "texts", "Write '3'"]),
        ("1.5 <= class", ["column class", "texts", "Write '1.5'"]),
        ("class in ('a', 1)", ["column class", "texts", "Write '1'"]),
        ("class < record", ["column class", "column record"]),
        ("(record == 1) == 1", ["record == 1", "true or false"]),
        ("list == 1", ["column list"]),
        ("class + 'a' == 'b'", ["column class", "texts", "numbers"]),
        ("-class == 'b'", ["column class", "numbers"]),
        ("class in '34'", ["'34'", "list after `in`", "class in ['34']"]),
        ("class in path", ["column class", "column path", "'night' in path"]),
        ("1 in path", ["column path", "after it a list", "'night' in path"]),
        ("1 in record", ["column record", "list after `in`"]),
        ("class in ['a'] + ['b']", ["['a']", "only after `in`"]),
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
