"""What the parsers of all commands have in common."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from beam_pipeline.cli.messages import PROGRAM


class HelpFormatter(argparse.HelpFormatter):
    """Keeps the line breaks of examples, and wraps all other text."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return text
        return super()._fill_text(text, width, indent)


def add_command(
    commands: Any,
    name: str,
    run: Callable[..., int],
    summary: str,
    description: str,
    *examples: str,
    usage: str | None = None,
) -> argparse.ArgumentParser:
    """Adds a command; returns its parser."""
    lines = [f"  {PROGRAM} {name} {example}".rstrip() for example in examples]
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        usage=usage,
        help=summary,
        description=description,
        epilog="\n".join(["examples:" if len(lines) > 1 else "example:", *lines]),
        formatter_class=HelpFormatter,
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--debug", action="store_true", help="show the traceback of an error"
    )
    return parser


def add_folder(parser: argparse.ArgumentParser) -> None:
    """Adds the argument of commands that read a data set."""
    parser.add_argument("records", metavar="DIR", help="folder of a data set")


def add_folders(parser: argparse.ArgumentParser) -> None:
    """Adds the argument of commands that read several data sets as one."""
    parser.add_argument(
        "records",
        nargs="+",
        metavar="DIR",
        help="folder of a data set; several that belong together are read as one",
    )
