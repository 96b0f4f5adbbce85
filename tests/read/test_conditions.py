"""Conditions on the columns of a table, on a table of a few rows."""

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
        # Arithmetic is that of Python.
        ("frames / 48000 >= 0.5", [0, 3]),
        ("frames * 48000 == 2304000000", [0]),
        ("frames * frames > 2147483647", [0]),
        ("-(-record) + 1 == 2", [1]),
        ("frames * 1.0 * frames * frames * frames > 5e18", [0]),
        # Results that are no numbers are missing, and so are null and NaN.
        ("1 / 0 > 0", []),
        ("zero / 0 > 1", []),
        ("frames / 0 != 1", []),
        ("not frames / 0 > 1", []),
        ("1 / 0 not in [1]", []),
        ("zero / 0 is None", [0, 1, 2, 3]),
        ("level_db is None", [2, 3]),
        ("level_db != 7", [0, 1]),
        ("level_db not in [7]", [0, 1]),
        ("not level_db > 0", [0, 1]),
        ("list is None", [3]),
        # All forms of numbers, texts, lists and spaces.
        (f"big == {MOST}", [0]),
        ("e == 5e0 or e == 0x6 or e == 7_0 / 1_0 or e == .8E+1", [0, 1, 2, 3]),
        ("e > 1e-3 and e == 7.", [2]),
        ("e+1 == 6", [0]),
        ("record in [1.5]", []),
        ("record == 1.5", []),
        ("record in [1.0, 2, 1e400]", [1, 2]),
        ("class in []", []),
        ("class not in []", [0, 1, 3]),
        ("class in ('owl', 'a')", [0, 3]),
        ("'ow' in class", [0]),
        ("'ow' not in class", [1, 3]),
        ("(record == 1) in [True]", [1]),
        ("path == 'column_0'", []),
        ("\r\n record == 1\n and\n e > 1\n", [1]),
        ("0 < record < 2", [1]),
        ("True", [0, 1, 2, 3]),
        # An expression of Arrow is taken as it is.
        (pc.field("my col") > 2, [2, 3]),
    ],
)
def test_rows(condition, expected):
    assert rows(condition) == expected


@pytest.mark.parametrize(
    ("condition", "facts"),
    [
        ("clas == 'owl'", ["clas", "level_db", "mean class?"]),
        ("record > 99999999999999999999999", ["99999999999999999999999", "too large"]),
        *((text, ["write =="])
          for text in ("class = 'owl'", "(record == 1", "record == 1 and", "\0", "  ",
                       "(" * 300 + "1" + ")" * 300, "1 +" * 2000 + "1 > 0")),
        ("'\\ud800' == class", ["utf-8"]),
        (3, ["must be text", "3"]),
        ("class", ["string", "true or false"]),
        (pc.field("e"), ["int64", "true or false"]),
        # Values of different kinds.
        ("record and True", ["int64, bool"]),
        ("level_db > 'loud'", ["double, string", "quotes"]),
        ("class in ('a', 1)", ["quotes"]),
        ("(record == 1) == 1", ["bool, int8"]),
        ("list == 1", ["list"]),
        ("-class == 'b'", ["string"]),
        ("'1' in record", ["int64"]),
        # What is no condition; nothing of it is run.
        *((text, [text, "It may hold"])
          for text in ("record % 2", "1 in path", "class in path", "record in [record]",
                       "class in [None]", "record is 1", "record ** 2 == 1",
                       "path.upper() == 'A'", "[1][0] == 1", "class == None",
                       "(class == 'a') & (e == 1)", "... == 1", "(lambda: 1)()")),
        # Whole numbers do not wrap, nor lose digits.
        ("big * 1.0 > 0", ["not in range"]),
        *((text, [text, "overflow", "1.0"])
          for text in ("frames*frames*frames*frames*frames > 0", "big + 1 > 0",
                       "big - 2 > 0", "-big > 0")),
    ],
)  # fmt: skip
def test_wrong_conditions(condition, facts):
    with raises(OptionError, naming=["where", *facts]) as caught:
        rows(condition)
    text = str(caught.value)
    assert "class__" not in text
    assert len(text) < 1100
