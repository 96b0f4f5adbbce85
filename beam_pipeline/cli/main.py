"""The command line: ``audio-tfrecords record | plan | show | verify | ...``.

Each command imports what it needs when it runs, so ``--help`` prints at once.
"""

from __future__ import annotations

import argparse
import gc
import re
import sys
from collections.abc import Iterable, Sequence

from beam_pipeline.cli.flags import PROGRAM
from beam_pipeline.cli.messages import complain
from beam_pipeline.cli.parser import make_parser
from beam_pipeline.errors import AudioTFRecordsError, did_you_mean


def command() -> int:
    """Runs the command of a process; returns the exit status, see :func:`main`."""
    gc.set_threshold(10_000)  # modules make objects by the thousand, and keep them
    status = main()
    gc.freeze()  # the end of the interpreter would look at each object again
    return status


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command and returns the exit status.

    ======  ====================================================
    status  meaning
    ======  ====================================================
    0       done
    1       anything else
    2       wrong usage, recipe, inputs or output
    3       more rejects than ``--max-rejected``
    4       a data set does not verify, or a clip is in two splits
    ======  ====================================================
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    ours, beam_args = _split_at_dashes(arguments)
    args = parse_flags(ours)
    try:
        return int(args.run(args, beam_args))
    except AudioTFRecordsError as error:
        if args.debug:
            raise
        complain(str(error), args.flags)
        return error.exit_status
    except KeyboardInterrupt:
        what = (
            "Finished shards are kept: give the same command again to continue."
            if args.command != "convert"
            else "Nothing is kept."
        )
        if beam_args:
            what = (
                f"The job may still run on its engine: `{PROGRAM} status` shows its "
                "progress. Stop it there before you give the same command again."
            )
        complain(f"Interrupted. {what}")
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads the output any more
        return 1
    except Exception as error:  # an unexpected error is one paragraph, too
        if args.debug:
            raise
        import traceback

        last = traceback.extract_tb(error.__traceback__)[-1]
        complain(
            f"{type(error).__name__}: {error} (in {last.name}, {last.filename}:"
            f"{last.lineno}). --debug shows the traceback."
        )
        return 1


def _split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def parse_flags(arguments: list[str]) -> argparse.Namespace:
    """Parses the arguments before ``--``; ends the process if they are wrong."""
    parser, commands = make_parser(everything="--help-all" in arguments)
    name = arguments[0] if arguments else ""
    if name in commands:
        # A misspelt flag explains why a required one is missing, so it comes first.
        command = commands[name]
        known = {*command.flags.values(), "--help", "--help-all"}
        for word in arguments[1:]:
            flag = word.partition("=")[0]
            if re.fullmatch(r"--[a-z][a-z-]*", flag) and flag not in known:
                command.parser.error(_explain_unknown(word, known))
    elif close := did_you_mean(name, commands):
        parser.error(f"no command {name}; did you mean {close}?")
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        command = commands[args.command]
        command.parser.error(_explain_unknown(unknown[0], command.flags.values()))
    return args


def _explain_unknown(argument: str, known: Iterable[str]) -> str:
    word = argument.split("=")[0]
    if not word.startswith("-"):
        return f"unexpected argument {word}"
    close = did_you_mean(word, known, cutoff=0.75)
    if close:
        return f"no option {word}; did you mean {close}?"
    if word.startswith("--"):
        return f"no option {word}; options of Beam follow a lone --"
    return f"no option {word}"


if __name__ == "__main__":
    sys.exit(main())
