"""pages.py: collections on disk, against lists and dicts in memory."""

import os

from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import OutputError
from beam_pipeline.storage import pages
from beam_pipeline.storage.pages import FirstValues, SortedValues
from tests.raising import raises

# Lone surrogates, too: they are in names that are not UTF-8.
TEXTS = st.text(st.characters(codec=None), max_size=3)
KEYS = st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 2), TEXTS, TEXTS)


def first_of(value):
    return value[0]


def number_of(value):
    return value[:1]


# SortedValues


@settings(max_examples=50, deadline=None)
@given(st.lists(KEYS, max_size=20), st.integers(0, 20), st.integers(1, 3))
def test_values_are_in_the_order_of_their_keys(keys, at, width):
    pairs = [(key[:width], number) for number, key in enumerate(keys)]
    values = SortedValues(first_of, pairs[:at])
    assert list(values) == sorted(pairs[:at], key=first_of)
    values.extend(iter(pairs[at:]))
    ordered = sorted(pairs, key=first_of)  # stable, as SortedValues
    assert list(values) == list(values) == ordered
    assert [values[k] for k in range(len(values))] == ordered


def test_values_beyond_the_memory_of_a_collection(monkeypatch):
    """They are in a file without a name, which ends with the process."""
    monkeypatch.setattr(pages, "CACHE_KIB", 64)
    values = SortedValues(number_of, ((n, "x" * 1000) for n in range(500, 0, -1)))
    opened = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
    unnamed = [path for path in opened if os.path.lexists(path)
               and os.readlink(path).endswith(" (deleted)")]  # fmt: skip
    assert max(os.stat(path).st_size for path in unnamed) > 400_000
    assert [n for n, _ in values] == list(range(1, 501))


def test_a_full_disk_is_told():
    values = SortedValues(number_of)
    values._database.execute("PRAGMA max_page_count = 10")
    with raises(OutputError, naming=["TMPDIR", "disk is full"]):
        values.extend((n, os.urandom(1000)) for n in range(100))


# FirstValues


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.integers(-(2**63), 2**63 - 1) | st.integers(0, 3), TEXTS)))
def test_the_first_value_of_each_key(pairs):
    found, wanted = FirstValues(), {}
    assert not vars(found)  # a database is opened for the first value
    for number, (key, text) in enumerate(pairs):
        value = (number, text.encode(errors="replace").decode())
        assert found.setdefault(key, value) == wanted.setdefault(key, value)
