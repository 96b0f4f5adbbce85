"""The commands, and what each of them takes."""

from __future__ import annotations

import argparse
from typing import Any, NoReturn

from beam_pipeline import __version__
from beam_pipeline.cli import commands as run
from beam_pipeline.cli.flags import PROGRAM, Command
from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import (
    Bytes,
    Flag,
    Names,
    Text,
    ValueType,
    WholeNumber,
    comma_list,
)
from beam_pipeline.recipe.fields import Shares, options_of, parse_shares
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.recipe.sections import (
    Audio,
    Augmentation,
    Columns,
    Events,
    Features,
    Labels,
    Shards,
    Splits,
    Windows,
)
from beam_pipeline.reporting import DEFAULT_BYTES, DEFAULT_CLIPS

# What --help of record and plan shows; --help-all shows every option.
FIRST_DAY = (
    "input", "output", "recipe", "label_from", "classes", "splits", "group_by",
    "stratify", "sample_rate", "channels", "win_len", "win_seconds", "hop_seconds",
    "tail", "features", "copies", "augment", "max_rejected", "overwrite", "workers",
)  # fmt: skip

_OF_RUN = (
    "How the job runs. These options do not change the data. Options of Beam follow a "
    "lone --."
)
# The groups of --help, with the sections of the recipe in each.
_GROUPS = {
    "manifests": ((Columns,), "Columns of CSV, TSV, JSONL, Parquet and Avro files."),
    "labels": ((Labels,), "The class of each clip."),
    "events": ((Events,), "Labels with times: the classes of each window."),
    "splits": (
        (Splits,),
        "At most one of --splits, --folds and --split-column. Without them there is "
        "one split, records.",
    ),
    "audio": ((Audio,), ""),
    "windows": (
        (Windows, Augmentation),
        "One of --win-len and --win-seconds is required.",
    ),
    "features": ((Features,), "What examples hold of their windows."),
    "shards": (
        (Shards,),
        "At most one of --elements-per-file, --shard-bytes and --num-shards.",
    ),
}
_FOLDER = "folder of a data set"
_FOLDERS = f"{_FOLDER}; several that belong together are read as one"
_ORIGINAL = "what the data set was recorded from, as for record"


class Parser(argparse.ArgumentParser):
    """A parser whose errors are one paragraph, without the list of all flags."""

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith(("?", ".")) else "."
        self.exit(2, f"{self.prog}: {message}{end} See {self.prog} --help.\n")


def make_parser(
    everything: bool = True,
) -> tuple[argparse.ArgumentParser, dict[str, Command]]:
    """Returns the parser of all commands, and the commands by name.

    Parameters
    ----------
    everything : bool
        Whether ``--help`` shows every option, and not only those of ``FIRST_DAY``.
    """
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
    made = [
        _record(commands, everything),
        _plan(commands, everything),
        _convert(commands),
        _show(commands),
        _windows(commands),
        _verify(commands),
        _index(commands),
        _audit(commands),
        _report(commands),
        _transforms(commands),
        _status(commands),
    ]
    return parser, {command.name: command for command in made}


def _record(commands: Any, everything: bool) -> Command:
    command = Command(
        commands,
        "record",
        run.run_record,
        "record audio as a data set",
        "Records audio as a data set: cuts clips into windows, computes features, and "
        "writes one example for each window. A run that was interrupted continues when "
        "you give the same command again.",
        "--input sounds/ --output records/ --win-seconds 1",
        "--input sounds/ --output records/ --sample-rate 16000 --win-seconds 1 \\\n"
        "    --splits train=.8,eval=.1,test=.1 --feature 'mel=log_mel(n_mels=64)'",
        "--input clips.csv --output records/ --win-len 16000 \\\n"
        "    --label-from species -- --runner=FlinkRunner --flink_master=host:8081",
        usage="--input PATH --output DIR [OPTION ...] [-- ...]",
        shown=FIRST_DAY,
        everything=everything,
    )
    _add_job(
        command,
        "folder of the data set: new, empty, or with an unfinished run, which is "
        "continued",
        needs_output=True,
    )
    command.option(
        "report",
        Text(),
        "at the end, write a page that shows the data set, as `report` does",
        "FILE",
    )
    return command


def _plan(commands: Any, everything: bool) -> Command:
    command = Command(
        commands,
        "plan",
        run.run_plan,
        "show what record would do, from headers alone",
        "Shows what record would do: splits, examples, classes, features, shards and "
        "rejects. Reads headers only and writes nothing. Takes every option of record. "
        "With --sample, it also says how many bytes and how much time that takes.",
        "--input sounds/ --win-seconds 1",
        "--input sounds/ --win-seconds 1 --splits train=.8,test=.2 --stratify",
        "--input sounds/ --win-seconds 1 --sample 20",
        usage="--input PATH [OPTION ...]",
        shown=(*FIRST_DAY, "sample"),
        everything=everything,
    )
    command.group("forecast", "Bytes after GZIP and time, from a random sample.")
    command.option(
        "sample",
        WholeNumber(),
        "make N random examples, with the windows of their clips that a worker holds "
        "at once, as a run would; this decodes audio. Default: none",
        "N",
    )
    _add_job(command, argparse.SUPPRESS)
    return command


def _add_job(command: Command, output: str, *, needs_output: bool = False) -> None:
    """Adds every option of ``record``: those of the recipe, and those of the run."""
    command.group("inputs and output")
    command.option(
        "input",
        Text(),
        "a folder, a glob, an audio file, a manifest (CSV, TSV, JSONL, Parquet, Avro) "
        "or a .txt file of paths, local, in gs:// or s3://, or on another file system "
        "of Beam; SPLIT=PATH puts it into a split; may be repeated",
        "PATH",
        repeated=True,
        required=True,
    )
    command.option(
        "recipe",
        Text(),
        "read options from a YAML file or a data set, which also decides classes and "
        "splits; flags override them",
        "PATH",
    )
    command.option("output", Text(), output, "DIR", required=needs_output)
    for title, (sections, description) in _GROUPS.items():
        command.group(title, description)
        for section in sections:
            for option in options_of(section):
                command.declared(option)
    command.group("run", _OF_RUN)
    for option in options_of(RunOptions):
        command.declared(option)


def _convert(commands: Any) -> Command:
    command = Command(
        commands,
        "convert",
        run.run_convert,
        "rewrite TFRecords: other shards, splits or features",
        "Rewrites a folder of TFRecords as a data set: a data set of record, or any "
        "records of tf.train.Example or tf.train.SequenceExample, compressed with GZIP "
        "or not at all. DIR stays as it is.",
        "records/ smaller/ --features log_mel,target --num-shards 8",
        "old/ records/ --dtypes data=float32 --splits train=.8,eval=.2",
        usage="DIR [DIR ...] OUT [OPTION ...] [-- ...]",
    )
    command.argument(
        "input_dir",
        "folder of TFRecords; several data sets that belong together become one",
        several=True,
    )
    command.argument(
        "output_dir", "folder of the new data set: new or empty, and outside DIR", "OUT"
    )

    def add(name: str, values: ValueType, help: str, metavar: str = "") -> None:
        command.option(name, values, help, metavar, argparse.SUPPRESS)

    command.group("features")
    add("features", NameList(), "features a,b that stay; default: all", "NAMES")
    add(
        "schema",
        Text(),
        "schema of TensorFlow Metadata, as text; default: schema.pbtxt in DIR, or else "
        "the first examples show the features",
        "FILE",
    )
    add(
        "dtypes",
        Dtypes(),
        "dtypes of features; bytes with a numeric dtype become an array: data=float32",
        "NAME=DTYPE,...",
    )
    add(
        "classes",
        NameList(),
        "a longer list of classes, which begins with those of DIR",
        "NAMES",
    )
    command.group("splits", "Default: the splits of DIR.")
    add(
        "splits",
        ShareMap(),
        "share of each new split, train=.8,eval=.2; a hash assigns examples",
        "SHARES",
    )
    add(
        "group_by",
        Text(),
        "examples with the same value go to one split; default: filepath, if examples "
        "have it, otherwise each example goes by its place",
        "FEATURE",
    )
    of_shards = {option.name: option for option in options_of(Shards)}
    command.declared(of_shards["seed"])
    command.group("shards", _GROUPS["shards"][1])
    for name in ("elements_per_file", "shard_bytes", "num_shards"):
        command.declared(of_shards[name])
    add(
        "multiple_of",
        WholeNumber(),
        "number of shards becomes a multiple of this; default: 1",
        "N",
    )
    for name in ("member_bytes", "compression"):
        command.declared(of_shards[name])
    command.group("run", _OF_RUN)
    for option in options_of(RunOptions):
        if option.name in ("overwrite", "workers"):
            command.declared(option)
    return command


def _show(commands: Any) -> Command:
    command = Command(
        commands,
        "show",
        run.run_show,
        "print, draw or save examples",
        "Prints a few examples that are spread evenly over a split, draws them, or "
        "saves their sounds.",
        "records/ -n 3",
        "records/ --split test --plot examples.png",
        "records/ -n 1 --text",
        "records/ -n 5 --save-wav heard/",
        "records/ --clip owl/night.wav --where 'start_s >= 60 and level_db > -40'",
    )
    command.argument("records", _FOLDER)
    command.option("n", WholeNumber(), "how many; default: 3", "N", 3, flag="-n")
    command.option(
        "split",
        Text(),
        "which split, or several (fold0+fold2), all others (!fold1), or a part "
        "(train[:10%]); default: train, or else the largest",
        "SPLIT",
    )
    command.option(
        "clip",
        Text(),
        "only windows of this file, by its path relative to its input",
        "PATH",
    )
    command.option(
        "where",
        Text(),
        "only windows that meet a condition on the columns of the table of windows, "
        "such as \"class == 'owl' and start_s > 60\"",
        "CONDITION",
    )
    command.option(
        "text", Flag(), "print whole records as protobuf text; needs TensorFlow"
    )
    command.option(
        "plot",
        Text(),
        "draw them into this picture: .png, .pdf, .svg ...; needs matplotlib",
        "FILE",
    )
    command.option(
        "save_wav",
        Text(),
        "write their samples into this folder, as WAV files with names of split, "
        "number, clip and second",
        "FOLDER",
    )
    command.option(
        "input",
        Text(),
        "with --save-wav, if examples have no samples: what they were recorded from, "
        "as for record; runs the recipe",
        "PATH",
        repeated=True,
    )
    return command


def _windows(commands: Any) -> Command:
    command = Command(
        commands,
        "windows",
        run.run_windows,
        "list all windows: kept or left out, level, place",
        "Sums up the windows of a data set: how many are kept, left out and why, the "
        "hours of audio, and the levels, with which a threshold for --keep is chosen. "
        "--csv lists each window: path, seconds, level, split, shard and position.",
        "records/",
        "records/ --csv > windows.csv",
        "records/ --csv --where \"left_out == 'keep' and level_db > -45\"",
    )
    command.argument("records", _FOLDER)
    command.option("csv", Flag(), "print a line for each window")
    command.option("split", Text(), "with --csv: only this split", "NAME")
    command.option(
        "where",
        Text(),
        "with --csv: only windows that meet a condition on the columns",
        "CONDITION",
    )
    command.option(
        "sources",
        Flag(),
        "with --csv: also each window's first frame, frames, sample rate and channels "
        "in its file, and the SHA-256 of the file if it was recorded",
    )
    return command


def _verify(commands: Any) -> Command:
    command = Command(
        commands,
        "verify",
        run.run_verify,
        "compare a data set with its metadata; repair it",
        "Compares every size, SHA-256, checksum and count with metadata.json. --deep "
        "also parses every example, and compares it with the tables. Ends with status "
        "4 if something differs.",
        "records/",
        "records/ --deep --input sounds/ --sample 500",
        "records/ --repair",
    )
    command.argument("records", _FOLDERS, several=True)
    command.option(
        "deep",
        Flag(),
        "parse every example, and compare it with the tables of clips and windows",
    )
    command.option(
        "input",
        Text(),
        f"with --deep: {_ORIGINAL}; runs its recipe, with the transforms of your own "
        "that it names",
        "PATH",
        repeated=True,
    )
    command.option(
        "sample",
        WholeNumber(),
        "with --deep and --input: decode so many windows again and compare them byte "
        "for byte; default: 100",
        "N",
        100,
    )
    command.option(
        "seed", WholeNumber(None), "chooses these windows; default: 0", "N", 0
    )
    command.option(
        "repair",
        Flag(),
        "delete damaged shards, and let the same record command make them again",
    )
    return command


def _index(commands: Any) -> Command:
    command = Command(
        commands,
        "index",
        run.run_index,
        "make the index that open_records needs",
        "Reads every shard of a data set, and writes members.index, with which "
        "open_records reads any example at once. Data sets of this version have it "
        "already.",
        "records/",
    )
    command.argument("records", _FOLDER)
    return command


def _audit(commands: Any) -> Command:
    command = Command(
        commands,
        "audit",
        run.run_audit,
        "find leaks between splits, and duplicates",
        "Finds clips that have a file, a group or audio in common: leaks between "
        "splits, and duplicates. Ends with status 4 if there is a leak.",
        "records/",
        "records/ --group-by speaker --json",
        "records/ --input sounds/ --write-manifest sounds/clean.csv --drop-doubles",
    )
    command.argument("records", _FOLDERS, several=True)
    command.option(
        "group_by",
        Text(),
        "columns a,b of the data set's manifest that make a group; default: as "
        "recorded",
        "COLUMNS",
    )
    command.option("json", Flag(), "print each finding as a line of JSON")
    command.option(
        "write_manifest",
        Text(),
        "write a manifest, .csv or .parquet, with one group for all clips that are "
        "alike; record it with --group-by group. Needs --input",
        "FILE",
    )
    command.option(
        "input", Text(), f"with --write-manifest: {_ORIGINAL}", "PATH", repeated=True
    )
    command.option(
        "drop_doubles",
        Flag(),
        "with --write-manifest: keep only the first of clips with the same samples "
        "and class",
    )
    return command


def _report(commands: Any) -> Command:
    command = Command(
        commands,
        "report",
        run.run_report,
        "write a page that shows a data set, and lets you hear it",
        "Writes one HTML file, which needs no network and no server: what the data set "
        "is, what may be wrong with it, and examples of each class to listen to.",
        "records/",
        "records/ --output report.html --clips 200 --bytes 20MB",
        "2026-11/ 2026-12/",
    )
    command.argument("records", _FOLDERS, several=True)
    command.option(
        "output",
        Text(),
        "the HTML file; default: the name of the data set, records-report.html",
        "FILE",
    )
    command.option(
        "clips",
        WholeNumber(0),
        "how many examples can be heard; five times as many are measured; default: "
        f"{DEFAULT_CLIPS}",
        "N",
        DEFAULT_CLIPS,
    )
    command.option(
        "bytes",
        Bytes(0),
        "about how large the file may become; default: 5MB",
        "BYTES",
        DEFAULT_BYTES,
    )
    command.option(
        "seed", WholeNumber(None), "chooses the examples; default: 0", "N", 0
    )
    command.option(
        "examples",
        Text(),
        "examples that come first, whatever the seed; repeatable",
        "SPLIT:N,N",
        [],
        repeated=True,
    )
    command.option(
        "input",
        Text(),
        f"{_ORIGINAL}, to decode windows again; needed only if the examples have no "
        "samples",
        "PATH",
        repeated=True,
    )
    return command


def _transforms(commands: Any) -> Command:
    command = Command(
        commands,
        "transforms",
        run.run_transforms,
        "list transforms: parameters, result and cost",
        "Lists the steps for --feature, --stream, --keep, --augment and --windows-at, "
        "with their parameters, and what they give and cost for one window.",
        "",
        "log_mel",
        "'low_pass(cutoff_hz=1000)|mfcc' --win-len 16000",
    )
    command.argument(
        "steps",
        "a name, which also prints its documentation, or an expression; default: all "
        "names",
        "STEP",
        several=True,
        required=False,
    )
    command.option(
        "win_len",
        WholeNumber(),
        "frames in the window; default: 16000",
        "FRAMES",
        16000,
    )
    command.option(
        "sample_rate",
        WholeNumber(),
        "sample rate of the window; default: 16000",
        "HZ",
        16000,
    )
    return command


def _status(commands: Any) -> Command:
    command = Command(
        commands,
        "status",
        run.run_status,
        "show the progress of a run, from any machine",
        "Shows the progress of a run, or its error, from any machine that can read the "
        "run's folder.",
        "records/",
        "--watch gs://bucket/records",
    )
    command.argument("run_folder", "output folder or work folder of the run")
    command.option("watch", Flag(), "show a progress bar until the run ends")
    return command


class NameList(Names):
    """Names, as the list that ``convert`` takes."""

    def parse(self, text: str) -> Any:
        return comma_list(text)


class ShareMap(Shares):
    """Shares, as the mapping that ``convert`` takes."""

    def parse(self, text: str) -> Any:
        return parse_shares(text)


class Dtypes(ValueType):
    """Dtypes of features: ``data=float32,label=int32``."""

    def parse(self, text: str) -> Any:
        pairs = [part.rpartition("=") for part in comma_list(text)]
        if not all(name and equals and dtype for name, equals, dtype in pairs):
            return text
        return {name: dtype for name, _, dtype in pairs}

    def value(self, name: str, json: Any) -> Any:
        if not isinstance(json, dict):
            raise RecipeError(name, "must look like data=float32,label=int32", json)
        return json
