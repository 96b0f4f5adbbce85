"""What an error must say: its fields and the facts in its text, never its wording."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

_ANY = object()


def names(text: str, fact: object) -> bool:
    """Whether a text names a fact: a file, a number, a value, an option.

    A fact is found as a whole: 10 is not in "100", nor ``hop`` in "hops". An option,
    ``--win-len``, may be spelled as in Python, ``win_len``.
    """
    fact = str(fact)
    option = fact.startswith("--")
    spellings = [fact, fact[2:].replace("-", "_")] if option else [fact]
    return any(_found_whole(text, spelling, option) for spelling in spellings)


def _found_whole(text: str, part: str, option: bool) -> bool:
    """Whether a part stands in a text with no more of a word or number around it."""
    near = r"[\w-]" if option else r"\w"
    before = r"[\w.]" if part[:1].isdigit() else near
    first = rf"(?<!{before})" if re.match(r"\w", part) else ""
    last = rf"(?!{near})" if re.search(r"\w$", part) else ""
    return re.search(first + re.escape(part) + last, text) is not None


def assert_names(text: str, *facts: object) -> None:
    """Asserts that a text names every one of the facts."""
    missing = [fact for fact in facts if not names(text, fact)]
    assert not missing, f"{missing} not in: {text}"


@contextmanager
def raises(
    expected: type[BaseException] | tuple[type[BaseException], ...],
    field: object = _ANY,
    value: object = _ANY,
    *,
    path: object = _ANY,
    naming: object | Iterable[object] = (),
) -> Iterator[pytest.ExceptionInfo[Any]]:
    """Expects an error, with these fields exactly, whose text names these facts.

    ``field`` and ``value`` are those of a RecipeError, ``path`` is that of a ClipError.
    """
    with pytest.raises(expected) as caught:
        yield caught
    error: Any = caught.value
    if field is not _ANY:
        assert error.args[0] == field, error
    if value is not _ANY:
        # As text, so that nan is nan, and 1 is neither True nor 1.0.
        assert repr(error.args[2]) == repr(value), error
    if path is not _ANY:
        assert error.path == path, error
    several = isinstance(naming, list | tuple)
    assert_names(str(error), *(naming if several else [naming]))
