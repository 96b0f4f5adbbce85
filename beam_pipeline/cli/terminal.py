"""Prints text in which names of a stranger's data set cannot command the terminal."""

from __future__ import annotations

import re
from typing import TextIO

# Control characters but tab and newline; what separates lines, or reverses the
# direction of text; the halves of characters that stand for bytes of file names.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    r"\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Returns a text with ``\u001b`` for an escape character, and the like.

    In JSON, this is the same text.
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str, file: TextIO | None = None) -> None:
    """Prints a line, or several, to standard output unless ``file`` is given."""
    print(printable(text), file=file)
