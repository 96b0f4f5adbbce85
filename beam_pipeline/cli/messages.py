"""What the command line prints: errors and warnings, with options spelled as flags."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from beam_pipeline.cli.flags import PROGRAM
from beam_pipeline.errors import DataSetWarning
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


def complain(message: str, flags: Mapping[str, str] | None = None) -> None:
    """Prints an error or a warning to standard error, after the program's name.

    ``flags`` are those of the command, see :func:`as_flags`.
    """
    text = hidden(as_flags(message, flags or {}))
    say(f"{PROGRAM}: {text}", file=sys.stderr)


@contextlib.contextmanager
def collected_warnings() -> Iterator[list[str]]:
    """Collects the warnings about a data set, to print them after its description."""
    collected: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("always", DataSetWarning)
        show = warnings.showwarning

        def collect(message: Any, category: type[Warning], *args: Any) -> None:
            if issubclass(category, DataSetWarning):
                collected.append(str(message))
            else:
                show(message, category, *args)

        warnings.showwarning = collect  # type: ignore[assignment]
        yield collected


def as_flags(message: str, flags: Mapping[str, str]) -> str:
    """Returns a message with the names of a command's options spelled as flags.

    Messages have names of options in backticks, or at their beginning:
    ``win_len: needs `sample_rate``` becomes ``--win-len: needs --sample-rate``, and
    ```tail` = pad`` becomes ``--tail pad``.
    """

    def replaced(found: re.Match[str]) -> str:
        flag = flags.get(found[1])
        return found[0] if flag is None else flag + (" " if found[2] else "")

    start, colon, rest = message.partition(": ")
    words = start.split(" ")
    if colon and all(word in {*flags, "and", "or"} for word in words):
        start = " ".join(flags.get(word, word) for word in words)
    return re.sub(r"`(\w+)`( = )?", replaced, start + colon + rest)
