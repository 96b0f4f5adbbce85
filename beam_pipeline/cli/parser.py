"""The parser of the command line, made of what commands declare; what it prints.

A command is a class of :mod:`.main`. Its fields are its flags, with the types that
check them; its docstring is its help.
"""

from __future__ import annotations

import argparse
import contextlib
import inspect
import re
import sys
import textwrap
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, fields
from typing import Any, ClassVar, NoReturn, TextIO

from beam_pipeline.errors import (
    DataSetWarning,
    OptionError,
    RecipeError,
    did_you_mean,
    spelled,
)
from beam_pipeline.parameters import Declared, Flag, attribute_texts
from beam_pipeline.recipe.recipe import ByFeature, Option, option, options_of
from beam_pipeline.text import hidden

PROGRAM = "audio-tfrecords"


def argument(
    metavar: str = "DIR", *, several: bool = False, required: bool = True
) -> Any:
    """Declares an argument that has no flag; several are a list."""
    takes: dict[str, Any] = {"nargs": "+" if required else "*"} if several else {}
    return field(default=(), metadata={"argument": {**takes, "metavar": metavar}})


class Command(Declared):
    """A command: its fields are its flags, and its docstring is its help.

    Attributes
    ----------
    debug
        Show the traceback of an error.
    options : mapping
        The options of ``groups`` that were given, by their names.
    beam_args : sequence of str
        Options of Beam, which follow a lone ``--``.
    """

    usage: ClassVar[str | None] = None
    # Titles, with their descriptions and options.
    groups: ClassVar[Sequence[tuple[str, str, Sequence[Option]]]] = ()
    # What --help shows, if --help-all shows more.
    first_day: ClassVar[Sequence[str]] = ()
    takes_beam_args: ClassVar[bool] = False

    debug: bool = option(False, Flag())
    options: Mapping[str, Any]
    beam_args: Sequence[str] = ()

    def run(self) -> int:
        """Does what is asked for; returns the exit status."""
        raise NotImplementedError

    def given(self, *names: str) -> dict[str, Any]:
        """Maps names of fields to their values, as keywords of a function."""
        return {name: getattr(self, name) for name in names}

    @classmethod
    def name(cls) -> str:
        return cls.__name__.lower()

    @classmethod
    def sections(cls) -> list[tuple[str, str, Sequence[Option]]]:
        """Returns its own options, then those it shares, as ``groups`` has them."""
        declared: type = cls
        return [("options", "", options_of(declared)), *cls.groups]

    @classmethod
    def known(cls) -> dict[str, Option]:
        """Maps the names of all options to them."""
        return {o.name: o for _, _, options in cls.sections() for o in options}

    @classmethod
    def flags(cls) -> dict[str, str]:
        """Maps the name of each option, as Python has it, to its flag."""
        return {name: each.flag for name, each in cls.known().items()}

    @classmethod
    def explained(cls, option: Option) -> str:
        """Returns what an option does, with its choices and its default."""
        text = option.help
        texts = getattr(option.values, "texts", None)  # of features
        if choices := getattr(texts, "choices", ()):
            text += f" One of: {', '.join(choices)}."
        is_flag = isinstance(option.values, Flag)
        if option.default not in (None, "") and not (is_flag or option.repeats):
            text += f" Default: {option.default}."
        return spelled(text, cls.flags())


class _Parser(argparse.ArgumentParser):
    """A parser whose errors are one paragraph, without the list of all flags."""

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith(("?", ".")) else "."
        self.exit(2, f"{self.prog}: {message}{end} See {self.prog} --help.\n")


def make_parser(
    commands: Sequence[type[Command]], everything: bool = True
) -> tuple[argparse.ArgumentParser, dict[str, argparse.ArgumentParser]]:
    """Returns the parser of all commands, and those of the commands by name.

    Parameters
    ----------
    everything : bool
        Whether ``--help`` shows every option, and not only those of a first day.
    """
    parser = _Parser(
        prog=PROGRAM,
        description="Records audio files as sharded GZIP TFRecords for training.",
        epilog=f"`{PROGRAM} COMMAND --help` explains a command. `plan` with the flags "
        "of `record` is a good start: it writes nothing.",
        allow_abbrev=False,
    )
    from beam_pipeline import __version__

    parser.add_argument("--version", action="version", version=__version__)
    below = parser.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )
    made = {each.name(): _add(below, each, everything) for each in commands}
    return parser, made


def _add(
    below: Any, command: type[Command], everything: bool
) -> argparse.ArgumentParser:
    """Adds the parser of a command."""
    flags, texts = command.flags(), attribute_texts(command)
    about, _, rest = inspect.cleandoc(command.__doc__ or "").partition("\n\nAttributes")
    summary, _, description = about.partition("\n\n")
    parser: argparse.ArgumentParser = below.add_parser(
        command.name(),
        usage=command.usage and f"{PROGRAM} {command.name()} {command.usage}",
        help=summary[:1].lower() + summary[1:].rstrip("."),
        description="\n\n".join(
            textwrap.fill(" ".join(part.split()), 78)
            for part in spelled(description, flags).split("\n\n")
        ),
        epilog="examples:\n"
        + textwrap.indent(textwrap.dedent(rest.partition("::\n\n")[2]), "  "),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    first_day = () if everything else command.first_day
    more = "show every option, and exit" if command.first_day else argparse.SUPPRESS
    parser.add_argument("--help-all", action="help", help=more)
    for each in fields(command):
        if takes := each.metadata.get("argument"):
            parser.add_argument(each.name, help=texts[each.name], **takes)
    for title, about, options in command.sections():
        shown = {one.name for one in options if one.help}
        shown &= set(first_day or shown)
        group: Any = parser
        if title != "options" and shown:
            about = "" if first_day else spelled(about, flags)
            group = parser.add_argument_group(title, about)
        for one in options:
            help = argparse.SUPPRESS
            if one.name in shown:
                help = command.explained(one).replace("%", "%%")
            group.add_argument(
                one.flag,
                dest=one.name,
                default=argparse.SUPPRESS,
                help=help,
                **_taken(one),
            )
    parser.set_defaults(command_class=command)
    return parser


def _taken(option: Option) -> dict[str, Any]:
    """Returns how argparse reads an option: it parses and checks the text."""
    if isinstance(option.values, Flag):
        return {"action": "store_true"}
    if option.repeats:
        return {"action": "append", "metavar": option.metavar}

    def parse(text: str) -> Any:
        try:
            given = option.values.parse(text)
            option.values.value(option.name, given)
        except RecipeError as error:
            _, problem, value = error.args
            raise argparse.ArgumentTypeError(f"{problem}; got {value!r}") from error
        return given

    return {"type": parse, "metavar": "|".join(option.choices) or option.metavar}


def parse_command(
    commands: Sequence[type[Command]], arguments: Sequence[str]
) -> Command:
    """Parses arguments; ends the process if they are wrong.

    Raises
    ------
    OptionError
        If the arguments are well-formed, but contradict each other.
    """
    arguments = list(arguments)
    at = arguments.index("--") if "--" in arguments else len(arguments)
    ours, beam_args = arguments[:at], arguments[at + 1 :]
    parser, parsers = make_parser(commands, everything="--help-all" in ours)
    args, unknown = parser.parse_known_args(ours)
    values = vars(args)
    command: type[Command] = values.pop("command_class")
    name = command.name()
    known = command.known()
    if unknown:  # which may explain why a required one is missing
        parsers[name].error(_explain_unknown(unknown[0], command.flags()))
    missing = [o.flag for o in known.values() if o.required and o.name not in values]
    if missing:
        parsers[name].error(f"{' and '.join(missing)} must be given")
    if beam_args and not command.takes_beam_args:
        raise OptionError(name, "takes no options of Beam", " ".join(beam_args))
    own = {each.name for each in fields(command)}
    held = {name: value for name, value in values.items() if name in own}
    options = {name: values[name] for name in known if name in values.keys() - own}
    for name, given in options.items():
        if isinstance(known[name].values, ByFeature):
            options[name] = by_feature(known[name], given)
    made: Command = command(options=options, beam_args=beam_args, **held)
    return made


def _explain_unknown(argument: str, flags: Mapping[str, str]) -> str:
    word = argument.split("=")[0]
    if not word.startswith("-"):
        return f"unexpected argument {word}; give each value its flag, quote wildcards"
    close = did_you_mean(word, flags.values(), cutoff=0.75)
    hint = f"did you mean {close}?" if close else "options of Beam follow a lone --"
    return f"no option {word}; {hint}"


def by_feature(option: Option, texts: Sequence[str]) -> dict[str, str]:
    """Returns the texts after each ``NAME=``, by the names."""
    named: dict[str, str] = {}
    for text in texts:
        name, equals, rest = text.partition("=")
        if not equals or not name.isidentifier():
            raise RecipeError(option.flag, f"must look like {option.metavar}", text)
        if name in named:
            raise RecipeError(option.flag, "is given twice for the same feature", name)
        named[name] = rest
    return named


# What is printed

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
