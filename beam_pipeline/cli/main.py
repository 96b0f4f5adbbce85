"""The command line: ``audio-tfrecords record | plan | show | verify | ...``.

Each command imports what it needs when it runs, so ``--help`` prints at once.
"""

from __future__ import annotations

import gc
import io
import sys
import traceback
from collections.abc import Sequence

from beam_pipeline.cli.commands import COMMANDS, Record
from beam_pipeline.cli.parser import (
    PROGRAM,
    Command,
    complain,
    parse_command,
    warnings_at_the_end,
)
from beam_pipeline.errors import AudioTFRecordsError


def command() -> int:
    """Runs the command of a process; returns the exit status, see :func:`main`."""
    gc.set_threshold(10_000)  # modules make objects by the thousand, and keep them
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # it may lack characters of names
            stream.reconfigure(errors="backslashreplace")
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
    command: Command | None = None
    try:
        command = parse_command(COMMANDS, sys.argv[1:] if argv is None else argv)
        with warnings_at_the_end(command.flags()):
            return command.run()
    except AudioTFRecordsError as error:
        if command is not None and command.debug:
            raise
        complain(error.told({} if command is None else command.flags()))
        return error.exit_status
    except KeyboardInterrupt:
        what = ""
        if isinstance(command, Record):
            what = " Finished shards are kept: give the same command again to continue."
        if command is not None and command.beam_args:
            what = (
                f" The job may still run on its engine: `{PROGRAM} status` shows its "
                "progress. Stop it there before you give the same command again."
            )
        complain(f"Interrupted.{what}")
        return 1
    except BrokenPipeError:
        sys.stderr.close()  # nobody reads the output any more
        return 1
    except Exception as error:  # an unexpected error is one paragraph, too
        if command is not None and command.debug:
            raise
        last = traceback.extract_tb(error.__traceback__)[-1]
        complain(
            f"{type(error).__name__}: {error} (in {last.name}, {last.filename}:"
            f"{last.lineno}). --debug shows the traceback."
        )
        return 1


if __name__ == "__main__":
    sys.exit(main())
