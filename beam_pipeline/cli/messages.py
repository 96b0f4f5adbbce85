"""What the command line prints, so that no text commands the terminal."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import TextIO

from beam_pipeline.cli.parser import PROGRAM
from beam_pipeline.errors import DataSetWarning, spelled
from beam_pipeline.text import hidden

# Control characters but tab and newline; what separates lines, or reverses the
# direction of text; the halves of characters that stand for bytes of file names.
_UNSAFE = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069"
    r"\ud800-\udfff]"
)


def printable(text: str) -> str:
    r"""Returns a text with ``\u001b`` for an escape character, and the like.

    So names of a stranger's data set cannot command the terminal. In JSON, this is the
    same text.
    """
    return _UNSAFE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def say(text: str, file: TextIO | None = None) -> None:
    """Prints a line, or several, to standard output unless ``file`` is given."""
    print(printable(text), file=file)


def complain(message: str) -> None:
    """Prints an error or a warning to standard error, after the program's name."""
    say(f"{PROGRAM}: {hidden(message)}", file=sys.stderr)


@contextlib.contextmanager
def warnings_at_the_end(flags: Mapping[str, str]) -> Iterator[None]:
    """Prints the warnings of a block after it, with options spelled as these flags."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataSetWarning)
        try:
            yield
        finally:
            for warning in caught:
                complain(spelled(f"warning: {warning.message}", flags))
