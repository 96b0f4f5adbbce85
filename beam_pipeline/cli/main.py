"""The command line: ``audio-tfrecords record | plan | show | verify | ...``.

Only what a command needs is imported, and that inside it: help comes at once.
"""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from collections.abc import Sequence

from beam_pipeline.cli.commands import PROGRAM, complain
from beam_pipeline.cli.parser import make_parser
from beam_pipeline.errors import AudioTFRecordsError, did_you_mean


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns the exit status.

    0 done; 2 usage or recipe; 3 more rejects than allowed; 4 a data set does not
    verify, or its splits leak; 1 anything else.
    """
    arguments = list(sys.argv[1:] if argv is None else argv)
    # A transform of one's own may lie in the current folder, as with ``python -m``.
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    ours, beam_args = _split_at_dashes(arguments)
    args = parse_flags(ours)
    try:
        return int(args.run(args, beam_args))
    except AudioTFRecordsError as error:
        if args.debug:
            raise
        complain(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        complain(
            "Interrupted. Shards that were finished are kept: give the same command "
            "again to continue."
            if not beam_args
            else "Interrupted; on an engine of its own the job goes on. See how far by "
            f"{PROGRAM} status, and end it there before you give the command again."
        )
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # the reader of our output has gone; nothing to tell it
        return 1
    except Exception as error:  # the last line of defence: one paragraph, not a trace
        if args.debug:
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        complain(
            f"{type(error).__name__}: {error} (in {last.name}, {last.filename}:"
            f"{last.lineno}). Give --debug to see more."
        )
        return 1


def _split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def parse_flags(arguments: list[str]) -> argparse.Namespace:
    """Our own arguments, those left of ``--``; ends the process if they are wrong."""
    parser = make_parser()
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        known = [
            flag
            for action in parser._subparsers._group_actions  # type: ignore[union-attr]
            for flag in action.choices[args.command]._option_string_actions  # type: ignore[index]
        ]
        word = unknown[0].split("=")[0]
        close = did_you_mean(word, known, cutoff=0.75)
        hint = f"; did you mean {close}?" if close else ""
        if word.startswith("--") and not close:
            hint = "; options of Beam stand after a lone --"
        parser.error(f"{args.command} does not know {word}{hint}")
    return args


if __name__ == "__main__":
    sys.exit(main())
