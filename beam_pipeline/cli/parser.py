"""The commands and their flags."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any, NoReturn

from beam_pipeline import __version__
from beam_pipeline.cli.commands import (
    run_audit,
    run_convert,
    run_index,
    run_plan,
    run_record,
    run_show,
    run_status,
    run_transforms,
    run_verify,
    run_windows,
)
from beam_pipeline.cli.convert_flags import add_convert_flags
from beam_pipeline.cli.job_flags import add_job_flags, flag_type
from beam_pipeline.cli.messages import PROGRAM

_whole_number = flag_type(int)


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one paragraph, without the list of all flags."""

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith(("?", ".")) else "."
        self.exit(2, f"{self.prog}: {message}{end} See {self.prog} --help.\n")


class HelpFormatter(argparse.HelpFormatter):
    """Keeps the line breaks of examples, and wraps all other text."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text:
            return text
        return super()._fill_text(text, width, indent)


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
        _add_show,
        _add_windows,
        _add_verify,
        _add_index,
        _add_audit,
        _add_transforms,
        _add_status,
    ):
        add(commands)
    return parser


def _add_record(commands: Any) -> None:
    parser = _command(
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
        "--input more/ --output records/ --append",
        usage=f"{PROGRAM} record --input PATH --output DIR [OPTION ...] [-- ...]",
    )
    add_job_flags(
        parser,
        required=True,
        help="folder of the data set: new, empty, or with an unfinished run, which "
        "is continued; with --append or --retry, a finished data set",
    )


def _add_plan(commands: Any) -> None:
    parser = _command(
        commands,
        "plan",
        run_plan,
        "show what record would do, from headers alone",
        "Shows what record would do: splits, examples, classes, features, shards and "
        "rejects. Reads headers only and writes nothing. Takes every option of record.",
        "--input sounds/ --win-seconds 1",
        "--input sounds/ --win-seconds 1 --splits train=.8,test=.2 --stratify",
        usage=f"{PROGRAM} plan --input PATH [OPTION ...]",
    )
    add_job_flags(parser, default=None, help=argparse.SUPPRESS)


def _add_convert(commands: Any) -> None:
    parser = _command(
        commands,
        "convert",
        run_convert,
        "rewrite TFRecords: other shards, splits or features",
        "Rewrites a folder of TFRecords as a data set: a data set of record, or any "
        "records of tf.train.Example or tf.train.SequenceExample, compressed with GZIP "
        "or not at all. DIR stays as it is.",
        "records/ smaller/ --features log_mel,target --num-shards 8",
        "old/ records/ --dtypes data=float32 --splits train=.8,eval=.2",
        usage=f"{PROGRAM} convert DIR OUT [OPTION ...] [-- ...]",
    )
    add_convert_flags(parser, flag_type)


def _add_show(commands: Any) -> None:
    parser = _command(
        commands,
        "show",
        run_show,
        "print or draw examples",
        "Prints a few examples that are spread evenly over a split, and draws them.",
        "records/ -n 3",
        "records/ --split test --plot examples.png",
        "records/ -n 1 --text",
        "records/ --clip owl/night.wav --where 'start_s >= 60 and level_db > -40'",
    )
    _add_folder(parser)
    parser.add_argument(
        "-n", type=_whole_number, default=3, metavar="N", help="how many; default: 3"
    )
    parser.add_argument(
        "--split",
        default=None,
        metavar="SPLIT",
        help="which split, or several (fold0+fold2), all others (!fold1), or a part "
        "(train[:10%%]); default: train, or else the largest",
    )
    parser.add_argument(
        "--clip",
        default=None,
        metavar="PATH",
        help="only windows of this file, by its path relative to its input",
    )
    parser.add_argument(
        "--where",
        default=None,
        metavar="CONDITION",
        help="only windows that meet a condition on the columns of the table of "
        "windows, such as \"class == 'owl' and start_s > 60\"",
    )
    parser.add_argument(
        "--text",
        action="store_true",
        help="print whole records as protobuf text; needs TensorFlow",
    )
    parser.add_argument(
        "--plot",
        default=None,
        metavar="FILE",
        help="draw them into this picture: .png, .pdf, .svg ...; needs matplotlib",
    )


def _add_windows(commands: Any) -> None:
    parser = _command(
        commands,
        "windows",
        run_windows,
        "list all windows: kept or left out, level, place",
        "Sums up the windows of a data set: how many are kept, left out and why, the "
        "hours of audio, and the levels, with which a threshold for --keep is chosen. "
        "--csv lists each window: path, seconds, level, split, shard and position.",
        "records/",
        "records/ --csv > windows.csv",
        "records/ --csv --where \"left_out == 'keep' and level_db > -45\"",
    )
    _add_folder(parser)
    parser.add_argument(
        "--csv", action="store_true", help="print a line for each window"
    )
    parser.add_argument(
        "--split", default=None, metavar="NAME", help="with --csv: only this split"
    )
    parser.add_argument(
        "--where",
        default=None,
        metavar="CONDITION",
        help="with --csv: only windows that meet a condition on the columns",
    )


def _add_verify(commands: Any) -> None:
    parser = _command(
        commands,
        "verify",
        run_verify,
        "compare a data set with its metadata; repair it",
        "Compares every size, SHA-256, checksum and count with metadata.json. --deep "
        "also compares every example, window and clip, and the files beside the "
        "shards. Ends with status 4 if something differs.",
        "records/",
        "records/ --deep --input sounds/ --sample 500",
        "records/ --repair --input sounds/",
    )
    _add_folder(parser)
    parser.add_argument(
        "--deep",
        action="store_true",
        help="parse every example, and compare windows, clips, classes and statistics "
        "with the recipe and with each other",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=None,
        metavar="PATH",
        help="what the data set was recorded from, as for record; runs its recipe, "
        "with the transforms of your own that it names",
    )
    parser.add_argument(
        "--sample",
        type=_whole_number,
        default=100,
        metavar="N",
        help="with --deep and --input: decode so many windows again and compare them "
        "byte for byte; default: 100",
    )
    parser.add_argument(
        "--seed",
        type=_whole_number,
        default=0,
        metavar="N",
        help="chooses these windows; default: 0",
    )
    parser.add_argument(
        "--repair",
        action="store_true",
        help="make damaged and missing files again from --input; replaces a file only "
        "if all have the recorded bytes",
    )


def _add_index(commands: Any) -> None:
    parser = _command(
        commands,
        "index",
        run_index,
        "make the index that open_records needs",
        "Reads every shard of a data set, and writes members.index, with which "
        "open_records reads any example at once. Data sets of this version have it "
        "already.",
        "records/",
    )
    _add_folder(parser)


def _add_audit(commands: Any) -> None:
    parser = _command(
        commands,
        "audit",
        run_audit,
        "find leaks between splits, and duplicates",
        "Finds clips that have a file, a group or audio in common: leaks between "
        "splits, and duplicates. Ends with status 4 if there is a leak.",
        "records/",
        "records/ --group-by speaker --json",
        "records/ --input sounds/ --write-manifest sounds/clean.csv --drop-doubles",
    )
    _add_folder(parser)
    parser.add_argument(
        "--group-by",
        default=None,
        metavar="COLUMNS",
        help="columns a,b of the data set's manifest that make a group; default: as "
        "recorded",
    )
    parser.add_argument(
        "--json", action="store_true", help="print each finding as a line of JSON"
    )
    parser.add_argument(
        "--write-manifest",
        default=None,
        metavar="FILE",
        help="write a manifest, .csv or .parquet, with one group for all clips that "
        "are alike; record it with --group-by group. Needs --input",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=None,
        metavar="PATH",
        help="with --write-manifest: what the data set was recorded from, as for "
        "record",
    )
    parser.add_argument(
        "--drop-doubles",
        action="store_true",
        help="with --write-manifest: keep only the first of clips with the same "
        "samples and class",
    )


def _add_transforms(commands: Any) -> None:
    parser = _command(
        commands,
        "transforms",
        run_transforms,
        "list transforms: parameters, result and cost",
        "Lists the steps for --feature, --stream, --keep and --augment, with their "
        "parameters, and what they give and cost for one window.",
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
        type=_whole_number,
        default=16000,
        metavar="FRAMES",
        help="frames in the window; default: 16000",
    )
    parser.add_argument(
        "--sample-rate",
        type=_whole_number,
        default=16000,
        metavar="HZ",
        help="sample rate of the window; default: 16000",
    )


def _add_status(commands: Any) -> None:
    parser = _command(
        commands,
        "status",
        run_status,
        "show the progress of a run, from any machine",
        "Shows the progress of a run, or its error, from any machine that can read the "
        "run's folder.",
        "records/",
        "--watch gs://bucket/records",
    )
    parser.add_argument(
        "run_folder", metavar="DIR", help="output folder or work folder of the run"
    )
    parser.add_argument(
        "--watch", action="store_true", help="show a progress bar until the run ends"
    )


def _command(
    commands: Any,
    name: str,
    run: Callable[..., int],
    summary: str,
    description: str,
    *examples: str,
    usage: str | None = None,
) -> argparse.ArgumentParser:
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


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("records", metavar="DIR", help="folder of a data set")
