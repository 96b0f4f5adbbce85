"""Errors and warnings on the command line, with options spelled as flags."""

from __future__ import annotations

import contextlib
import re
import sys
import warnings
from collections.abc import Iterator
from typing import Any

from beam_pipeline.cli.convert_flags import CONVERT_OPTIONS
from beam_pipeline.cli.given_flags import REPEATED
from beam_pipeline.cli.terminal import say
from beam_pipeline.errors import DataSetWarning
from beam_pipeline.text import hidden

PROGRAM = "audio-tfrecords"

# Options of a command that are no keywords of `record`.
_OWN_OPTIONS = {
    "plan": {"sample"},
    "show": {"split", "clip", "where", "text", "plot", "save_wav", "play"},
    "verify": {"deep", "sample", "repair"},
    "audit": {"write_manifest", "drop_doubles"},
    "report": {"clips", "bytes", "seed", "examples"},
}


def complain(message: str, command: str = "record") -> None:
    """Prints an error or a warning to standard error, after the program's name."""
    say(f"{PROGRAM}: {hidden(as_flags(message, command))}", file=sys.stderr)


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


def as_flags(message: str, command: str = "record") -> str:
    """Returns a message with the names of a command's options spelled as flags.

    Messages have names of options in backticks, or at their beginning:
    ``win_len: needs `sample_rate``` becomes ``--win-len: needs --sample-rate``, and
    ```tail` = pad`` becomes ``--tail pad``.
    """
    from beam_pipeline.recipe.keywords import RecordKeywords

    known = {*RecordKeywords.__annotations__, "input", "output", "recipe"}
    if command == "convert":
        known = set(CONVERT_OPTIONS)
    known |= _OWN_OPTIONS.get(command, set())

    def flag(name: str) -> str:
        repeated = {} if command == "convert" else REPEATED
        return repeated.get(name, "--" + name.replace("_", "-"))

    def replaced(found: re.Match[str]) -> str:
        if found[1] not in known:
            return found[0]
        return flag(found[1]) + (" " if found[2] else "")

    start, colon, rest = message.partition(": ")
    words = start.split(" ")
    if colon and all(word in {*known, "and", "or"} for word in words):
        start = " ".join(flag(word) if word in known else word for word in words)
    return re.sub(r"`(\w+)`( = )?", replaced, start + colon + rest)
