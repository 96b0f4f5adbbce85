"""The commands and their flags."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from beam_pipeline import __version__
from beam_pipeline.cli.add_command import add_command
from beam_pipeline.cli.commands import (
    run_convert,
    run_plan,
    run_record,
    run_transforms,
)
from beam_pipeline.cli.convert_flags import add_convert_flags
from beam_pipeline.cli.data_set_commands import (
    add_audit,
    add_index,
    add_report,
    add_show,
    add_status,
    add_verify,
    add_windows,
)
from beam_pipeline.cli.job_flags import add_forecast_flags, add_job_flags, flag_type
from beam_pipeline.cli.messages import PROGRAM


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one paragraph, without the list of all flags."""

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith(("?", ".")) else "."
        self.exit(2, f"{self.prog}: {message}{end} See {self.prog} --help.\n")


def make_parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands."""
    parser = Parser(
        prog=PROGRAM,
        description="Records audio files as sharded GZIP TFRecords for training.",
        epilog=f"`{PROGRAM} COMMAND --help` explains a command. `plan` with the flags "
        "of `record` is a good start: it writes nothing.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(
        title="commands", dest="command", required=True, metavar="COMMAND"
    )

    for add in (
        _add_record,
        _add_plan,
        _add_convert,
        add_show,
        add_windows,
        add_verify,
        add_index,
        add_audit,
        add_report,
        _add_transforms,
        add_status,
    ):
        add(commands)
    return parser


def _add_record(commands: Any) -> None:
    parser = add_command(
        commands,
        "record",
        run_record,
        "record audio as a data set",
        "Records audio as a data set: cuts clips into windows, computes features, and "
        "writes one example for each window. A run that was interrupted continues when "
        "you give the same command again.",
        "--input sounds/ --output records/ --win-seconds 1",
        "--input sounds/ --output records/ --sample-rate 16000 --win-seconds 1 \\\n"
        "    --splits train=.8,eval=.1,test=.1 --feature 'mel=log_mel(n_mels=64)'",
        "--input clips.csv --output records/ --win-len 16000 \\\n"
        "    --label-from species -- --runner=FlinkRunner --flink_master=host:8081",
        usage=f"{PROGRAM} record --input PATH --output DIR [OPTION ...] [-- ...]",
    )
    add_job_flags(
        parser,
        required=True,
        help="folder of the data set: new, empty, or with an unfinished run, which "
        "is continued",
    )
    parser.add_argument(
        "--report",
        default=None,
        metavar="FILE",
        help="at the end, write a page that shows the data set, as `report` does",
    )


def _add_plan(commands: Any) -> None:
    parser = add_command(
        commands,
        "plan",
        run_plan,
        "show what record would do, from headers alone",
        "Shows what record would do: splits, examples, classes, features, shards and "
        "rejects. Reads headers only and writes nothing. Takes every option of record. "
        "With --sample, it also says how many bytes and how much time that takes.",
        "--input sounds/ --win-seconds 1",
        "--input sounds/ --win-seconds 1 --splits train=.8,test=.2 --stratify",
        "--input sounds/ --win-seconds 1 --sample 20",
        usage=f"{PROGRAM} plan --input PATH [OPTION ...]",
    )
    add_forecast_flags(parser)
    add_job_flags(parser, default=None, help=argparse.SUPPRESS)


def _add_convert(commands: Any) -> None:
    parser = add_command(
        commands,
        "convert",
        run_convert,
        "rewrite TFRecords: other shards, splits or features",
        "Rewrites a folder of TFRecords as a data set: a data set of record, or any "
        "records of tf.train.Example or tf.train.SequenceExample, compressed with GZIP "
        "or not at all. DIR stays as it is.",
        "records/ smaller/ --features log_mel,target --num-shards 8",
        "old/ records/ --dtypes data=float32 --splits train=.8,eval=.2",
        usage=f"{PROGRAM} convert DIR [DIR ...] OUT [OPTION ...] [-- ...]",
    )
    add_convert_flags(parser, flag_type)


def _add_transforms(commands: Any) -> None:
    parser = add_command(
        commands,
        "transforms",
        run_transforms,
        "list transforms: parameters, result and cost",
        "Lists the steps for --feature, --stream, --keep, --augment and --windows-at, "
        "with their parameters, and what they give and cost for one window.",
        "",
        "log_mel",
        "'low_pass(cutoff_hz=1000)|mfcc' --win-len 16000",
    )
    parser.add_argument(
        "steps",
        nargs="*",
        metavar="STEP",
        help="a name, which also prints its documentation, or an expression; default: "
        "all names",
    )
    parser.add_argument(
        "--win-len",
        type=flag_type(int),
        default=16000,
        metavar="FRAMES",
        help="frames in the window; default: 16000",
    )
    parser.add_argument(
        "--sample-rate",
        type=flag_type(int),
        default=16000,
        metavar="HZ",
        help="sample rate of the window; default: 16000",
    )
