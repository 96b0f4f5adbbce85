"""The commands that read a data set, and their flags."""

from __future__ import annotations

from typing import Any

from beam_pipeline.cli.add_command import add_command, add_folder, add_folders
from beam_pipeline.cli.commands import (
    run_audit,
    run_index,
    run_report,
    run_status,
    run_verify,
    run_windows,
)
from beam_pipeline.cli.job_flags import flag_type
from beam_pipeline.cli.show_command import run_show
from beam_pipeline.parameters import parse_bytes
from beam_pipeline.reporting import DEFAULT_BYTES, DEFAULT_CLIPS

_whole_number = flag_type(int)
_bytes = flag_type(parse_bytes)


def add_show(commands: Any) -> None:
    parser = add_command(
        commands,
        "show",
        run_show,
        "print, draw or play examples",
        "Prints a few examples that are spread evenly over a split, draws or plays "
        "them.",
        "records/ -n 3",
        "records/ --split test --plot examples.png",
        "records/ -n 1 --text",
        "records/ -n 5 --save-wav heard/",
        "records/ --clip owl/night.wav --where 'start_s >= 60 and level_db > -40'",
    )
    add_folder(parser)
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
    parser.add_argument(
        "--save-wav",
        default=None,
        metavar="FOLDER",
        help="write their samples into this folder, as WAV files with names of split, "
        "number, clip and second",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=None,
        metavar="PATH",
        help="with --save-wav, if examples have no samples: what they were "
        "recorded from, as for record; runs the recipe",
    )


def add_windows(commands: Any) -> None:
    parser = add_command(
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
    add_folder(parser)
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
    parser.add_argument(
        "--sources",
        action="store_true",
        help="with --csv: also each window's first frame, frames, sample rate and "
        "channels in its file, and the SHA-256 of the file if it was recorded",
    )


def add_verify(commands: Any) -> None:
    parser = add_command(
        commands,
        "verify",
        run_verify,
        "compare a data set with its metadata; repair it",
        "Compares every size, SHA-256, checksum and count with metadata.json. --deep "
        "also parses every example, and compares it with the tables. Ends with status "
        "4 if something differs.",
        "records/",
        "records/ --deep --input sounds/ --sample 500",
        "records/ --repair",
    )
    add_folders(parser)
    parser.add_argument(
        "--deep",
        action="store_true",
        help="parse every example, and compare it with the tables of clips and windows",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=None,
        metavar="PATH",
        help="with --deep: what the data set was recorded from, as for record; runs "
        "its recipe, with the transforms of your own that it names",
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
        help="delete damaged shards, and let the same record command make them again",
    )


def add_index(commands: Any) -> None:
    parser = add_command(
        commands,
        "index",
        run_index,
        "make the index that open_records needs",
        "Reads every shard of a data set, and writes members.index, with which "
        "open_records reads any example at once. Data sets of this version have it "
        "already.",
        "records/",
    )
    add_folder(parser)


def add_audit(commands: Any) -> None:
    parser = add_command(
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
    add_folders(parser)
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


def add_report(commands: Any) -> None:
    parser = add_command(
        commands,
        "report",
        run_report,
        "write a page that shows a data set, and lets you hear it",
        "Writes one HTML file, which needs no network and no server: what the data set "
        "is, what may be wrong with it, and examples of each class to listen to.",
        "records/",
        "records/ --output report.html --clips 200 --bytes 20MB",
        "2026-11/ 2026-12/",
    )
    add_folders(parser)
    parser.add_argument(
        "--output",
        default=None,
        metavar="FILE",
        help="the HTML file; default: the name of the data set, records-report.html",
    )
    parser.add_argument(
        "--clips",
        type=_whole_number,
        default=DEFAULT_CLIPS,
        metavar="N",
        help="how many examples can be heard; five times as many are measured; "
        f"default: {DEFAULT_CLIPS}",
    )
    parser.add_argument(
        "--bytes",
        type=_bytes,
        default=DEFAULT_BYTES,
        metavar="BYTES",
        help="about how large the file may become; default: 5MB",
    )
    parser.add_argument(
        "--seed",
        type=_whole_number,
        default=0,
        metavar="N",
        help="chooses the examples; default: 0",
    )
    parser.add_argument(
        "--examples",
        action="append",
        default=[],
        metavar="SPLIT:N,N",
        help="examples that come first, whatever the seed; repeatable",
    )
    parser.add_argument(
        "--input",
        action="append",
        default=None,
        metavar="PATH",
        help="what the data set was recorded from, to decode windows again; needed "
        "only if the examples have no samples",
    )


def add_status(commands: Any) -> None:
    parser = add_command(
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
