"""Commands and their flags: each flag is declared once, with the type of its values."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection
from typing import Any

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Flag, ValueType
from beam_pipeline.recipe.fields import Option

PROGRAM = "audio-tfrecords"


class _HelpFormatter(argparse.HelpFormatter):
    """Keeps the line breaks of examples, and wraps all other text."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return text
        return super()._fill_text(text, width, indent)


class Command:
    """One command: its parser, and the flag of each of its options.

    Attributes
    ----------
    parser : argparse.ArgumentParser
    name : str
    flags : dict
        The name of each option, as Python has it, to its flag.

    Parameters
    ----------
    commands
        What ``add_subparsers`` of argparse has returned.
    run : callable
        Runs the command, with the arguments and the options of Beam.
    shown : collection of str, optional
        The options that ``--help`` shows, and not only ``--help-all``. Default: all.
    everything : bool
        Whether this help shows all of them.
    """

    def __init__(
        self,
        commands: Any,
        name: str,
        run: Callable[..., int],
        summary: str,
        description: str,
        *examples: str,
        usage: str | None = None,
        shown: Collection[str] | None = None,
        everything: bool = True,
    ):
        lines = [f"  {PROGRAM} {name} {example}".rstrip() for example in examples]
        self.parser: argparse.ArgumentParser = commands.add_parser(
            name,
            usage=usage and f"{PROGRAM} {name} {usage}",
            help=summary,
            description=description,
            epilog="\n".join(["examples:" if len(lines) > 1 else "example:", *lines]),
            formatter_class=_HelpFormatter,
            allow_abbrev=False,
        )
        self.name = name
        self.flags: dict[str, str] = {}
        self._shown = None if everything else shown
        self._group: Any = self.parser
        self.parser.set_defaults(run=run, flags=self.flags)
        more = argparse.SUPPRESS if shown is None else "show every option, and exit"
        self.parser.add_argument("--help-all", action="help", help=more)
        self.option("debug", Flag(), "show the traceback of an error")

    def group(self, title: str, description: str = "") -> None:
        """Puts the options that follow under a title of ``--help``."""
        described = description if self._shown is None else ""
        self._group = self.parser.add_argument_group(title, described or None)

    def argument(
        self,
        name: str,
        help: str,
        metavar: str = "DIR",
        *,
        several: bool = False,
        required: bool = True,
    ) -> None:
        """Adds an argument that has no flag."""
        takes: dict[str, Any] = {"nargs": "+" if required else "*"} if several else {}
        self._group.add_argument(name, metavar=metavar, help=help, **takes)

    def option(
        self,
        name: str,
        values: ValueType,
        help: str,
        metavar: str = "",
        default: Any = None,
        *,
        flag: str | None = None,
        repeated: bool = False,
        required: bool = False,
    ) -> None:
        """Adds an option.

        Parameters
        ----------
        name : str
            Its name in Python, from which the flag follows.
        default : object
            Its value if it is not given. ``argparse.SUPPRESS``: it is left out.
        flag : str, optional
            Another flag.
        repeated : bool
            Whether it may be given several times; its value is a list.
        """
        self.flags[name] = flag or "--" + name.replace("_", "-")
        choices = getattr(values, "choices", None)
        takes: dict[str, Any] = {
            "type": _parser_of(name, values),
            "choices": choices,
            "metavar": "|".join(choices) if choices else metavar,
        }
        if isinstance(values, Flag):
            takes = {"action": "store_true"}
            default = default or False
        elif repeated:
            takes = {"action": "append", "metavar": metavar}
        is_shown = self._shown is None or name in self._shown
        self._group.add_argument(
            self.flags[name],
            dest=name,
            default=default,
            required=required,
            help=help.replace("%", "%%") if is_shown else argparse.SUPPRESS,
            **takes,
        )

    def declared(self, option: Option) -> None:
        """Adds an option of a recipe or a run, which declares its own default."""
        if option.is_carried:
            return
        repeats = option.default in ({}, ())
        is_flag = isinstance(option.values, Flag)
        shown = option.default not in (None, "") and not (repeats or is_flag)
        self.option(
            option.name,
            option.values,
            f"{option.help} Default: {option.default}." if shown else option.help,
            option.metavar,
            argparse.SUPPRESS,
            flag=option.flag,
            repeated=repeats,
        )


def _parser_of(name: str, values: ValueType) -> Callable[[str], Any]:
    """Returns the type of a flag for argparse: it parses and checks the text."""

    def parse(text: str) -> Any:
        try:
            given = values.parse(text)
            values.value(name, values.json(name, given))
        except RecipeError as error:
            _, problem, value = error.args
            raise argparse.ArgumentTypeError(f"{problem}; got {value!r}") from error
        return given

    return parse
