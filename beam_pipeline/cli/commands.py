"""The commands: each calls what Python users call, and prints the result.

Commands import what they need when they run, so that ``--help`` loads none of it.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from beam_pipeline.cli.messages import collected_warnings, complain, say
from beam_pipeline.cli.parser import PROGRAM, Command, argument
from beam_pipeline.dataset.progress import watch_bar, watch_lines
from beam_pipeline.errors import OptionError, RecipeError, TooManyRejected, spelled
from beam_pipeline.parameters import (
    Bytes,
    Flag,
    Names,
    Text,
    ValueType,
    WholeNumber,
    comma_list,
)
from beam_pipeline.recipe.fields import Shares, option, options_of
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

if TYPE_CHECKING:
    from beam_pipeline.dataset.metadata import Metadata
    from beam_pipeline.inputs.sources import Input

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
_ONE_SIZE = "At most one of `elements_per_file`, `shard_bytes` and `num_shards`."


def _given(*sections: type) -> list[Any]:
    """Returns the options of sections that flags give."""
    found = (each for section in sections for each in options_of(section))
    return [each for each in found if not each.is_carried]


# What record and plan share: titles, descriptions and options.
_OF_JOB = (
    (
        "manifests",
        "Columns of CSV, TSV, JSONL, Parquet and Avro files.",
        _given(Columns),
    ),
    ("labels", "The class of each clip.", _given(Labels)),
    ("events", "Labels with times: the classes of each window.", _given(Events)),
    (
        "splits",
        "At most one of `splits`, `folds` and `split_column`. Without them there is "
        "one split, records.",
        _given(Splits),
    ),
    ("audio", "", _given(Audio)),
    (
        "windows",
        "One of `win_len` and `win_seconds` is required.",
        _given(Windows, Augmentation),
    ),
    ("features", "What examples hold of their windows.", _given(Features)),
    ("shards", _ONE_SIZE, _given(Shards)),
    ("run", _OF_RUN, _given(RunOptions)),
)
_OF_SHARDS = (
    "seed", "elements_per_file", "shard_bytes", "num_shards", "member_bytes",
    "compression",
)  # fmt: skip


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


@dataclass(frozen=True, kw_only=True)
class Job(Command):
    """What record and plan have in common.

    Attributes
    ----------
    input
        A folder, a glob, an audio file, a manifest (CSV, TSV, JSONL, Parquet, Avro) or
        a .txt file of paths, local, in gs:// or s3://, or on another file system of
        Beam; SPLIT=PATH puts it into a split; may be repeated.
    recipe
        Read options from a YAML file or a data set, which also decides classes and
        splits; flags override them.
    """

    groups = _OF_JOB
    first_day: ClassVar[Sequence[str]] = FIRST_DAY

    input: list[str] = option((), ValueType(), "PATH", repeats=True, required=True)
    recipe: str | None = option(None, Text(), "PATH")


@dataclass(frozen=True, kw_only=True)
class Record(Job):
    r"""Record audio as a data set.

    Records audio as a data set: cuts clips into windows, computes features, and writes
    one example for each window. A run that was interrupted continues when you give the
    same command again.

    Attributes
    ----------
    output
        Folder of the data set: new, empty, or with an unfinished run, which is
        continued.
    report
        At the end, write a page that shows the data set, as the command report does.

    Examples
    --------
    ::

        audio-tfrecords record --input sounds/ --output records/ --win-seconds 1
        audio-tfrecords record --input sounds/ --output records/ --sample-rate 16000 \
          --win-seconds 1 --splits train=.8,eval=.1,test=.1 \
          --feature 'mel=log_mel(n_mels=64)'
        audio-tfrecords record --input clips.csv --output records/ --win-len 16000 \
          --label-from species -- --runner=FlinkRunner --flink_master=host:8081
    """

    usage = "--input PATH --output DIR [OPTION ...] [-- ...]"
    takes_beam_args = True

    output: str = option("", Text(), "DIR", required=True)
    report: str | None = option(None, Text(), "FILE")

    def run(self) -> int:
        from beam_pipeline.api import record, write_template
        from beam_pipeline.run.engine import quiet_beam

        search_here()
        template = _beam_option(self.beam_args, "--template_location")
        if template is not None:
            with contextlib.nullcontext() if self.debug else quiet_beam():
                write_template(
                    self.input,
                    self.output,
                    recipe=self.recipe,
                    beam_args=self.beam_args,
                    **self.options,
                )
            what = "describes the job; nothing is recorded until it is started"
            say(f"{template}: {what}")
            return 0
        started = time.monotonic()
        already: list[Any] = []
        with collected_warnings() as warned, contextlib.ExitStack() as stack:
            if not self.debug:
                stack.enter_context(quiet_beam())
            bar = functools.partial(watch_bar, stack)
            metadata = record(
                self.input,
                self.output,
                recipe=self.recipe,
                beam_args=self.beam_args,
                watch=bar if sys.stderr.isatty() else watch_lines,
                counted=_print_counters,
                found=already.append,
                **self.options,
            )
        seconds = time.monotonic() - started
        for warning in warned if not metadata.splits else ():
            complain(spelled(f"warning: {warning}", self.flags()))
        if not metadata.splits:
            say(f"{self.output}: nothing new to record, {seconds:.1f} s")
            return 0
        from beam_pipeline.cli.reports import describe_metadata
        from beam_pipeline.dataset.rejects import lost_audio
        from beam_pipeline.read.audit import describe_overlaps
        from beam_pipeline.read.window_summary import summarise_windows

        lost = lost_audio(self.output, metadata)
        say(describe_metadata(metadata, summarise_windows(self.output, metadata), lost))
        if overlaps := describe_overlaps(self.output):
            say(f"{overlaps} (`{PROGRAM} audit` lists them)")
        for warning in warned:
            complain(spelled(f"warning: {warning}", self.flags()))
        if already:
            say(f"{self.output}: complete before, with the same recipe and inputs")
        else:
            say(f"{self.output}: complete, {seconds:.1f} s")
        if self.report is not None:
            from beam_pipeline.reporting.page import report

            page = report(self.output, self.report, input=self.input)
            say(f"{page}: shows the data set")
        return 0


@dataclass(frozen=True, kw_only=True)
class Plan(Job):
    """Show what record would do, from headers alone.

    Shows what record would do: splits, examples, classes, features, shards and rejects.
    Reads headers only and writes nothing. Takes every option of record. With `sample`,
    it also says how many bytes and how much time that takes.

    Attributes
    ----------
    sample
        Make N random examples, with the windows of their clips that a worker holds at
        once, as a run would, for a forecast of bytes after GZIP and of time; this
        decodes audio. Default: none.

    Examples
    --------
    ::

        audio-tfrecords plan --input sounds/ --win-seconds 1
        audio-tfrecords plan --input sounds/ --win-seconds 1 \\
          --splits train=.8,test=.2 --stratify
        audio-tfrecords plan --input sounds/ --win-seconds 1 --sample 20
    """

    usage = "--input PATH [OPTION ...]"
    first_day = (*FIRST_DAY, "sample")
    takes_beam_args = True

    output: str | None = option(None, Text(), "DIR")  # a command of record becomes one
    sample: int | None = option(None, WholeNumber(), "N")

    def run(self) -> int:
        from beam_pipeline.api import plan
        from beam_pipeline.cli.reports import describe_forecast, describe_plan
        from beam_pipeline.dataset.rejects import check_any_accepted, check_rejects
        from beam_pipeline.dataset.side_by_side import given_recipe
        from beam_pipeline.recipe.canonical import split_options
        from beam_pipeline.run.engine import quiet_beam

        search_here()
        recipe, _ = split_options(given_recipe(self.recipe), self.options)
        quiet = contextlib.nullcontext() if self.debug else quiet_beam()
        with collected_warnings() as warned, quiet:
            planned = plan(
                self.input, recipe=self.recipe, sample=self.sample or 0, **self.options
            )
        summary, rejects = planned
        check_any_accepted(summary, rejects)
        say(spelled(describe_plan(summary, rejects, recipe), self.flags()))
        if planned.forecast is not None:
            say("\n" + describe_forecast(planned.forecast))
        for warning in warned:
            complain(spelled(f"warning: {warning}", self.flags()))
        allowed = str(self.options.get("max_rejected", 0))
        try:
            check_rejects(summary.listing, rejects, allowed)
        except TooManyRejected as error:
            complain(
                f"`{PROGRAM} record` would end with an error: these are more rejects "
                f"than --max-rejected {allowed} allows."
            )
            return error.exit_status
        return 0


@dataclass(frozen=True, kw_only=True)
class Convert(Command):
    """Rewrite TFRecords: other shards, splits or features.

    Rewrites a folder of TFRecords as a data set: a data set of record, or any records
    of tf.train.Example or tf.train.SequenceExample, compressed with GZIP or not at all.
    DIR stays as it is.

    Attributes
    ----------
    input_dir
        Folder of TFRecords; several data sets that belong together become one.
    output_dir
        Folder of the new data set: new or empty, and outside DIR.
    features
        Features a,b that stay. Default: all.
    schema
        Schema of TensorFlow Metadata, as text. Default: schema.pbtxt in DIR, or else
        the first examples show the features.
    dtypes
        Dtypes of features; bytes with a numeric dtype become an array: data=float32.
    classes
        A longer list of classes, which begins with those of DIR.
    splits
        Share of each new split, train=.8,eval=.2; a hash assigns examples. Default: the
        splits of DIR.
    group_by
        Examples with the same value go to one split. Default: filepath, if examples
        have it, otherwise each example goes by its place.
    multiple_of
        Number of shards becomes a multiple of this. Default: 1.

    Examples
    --------
    ::

        audio-tfrecords convert records/ smaller/ --features log_mel,target \\
          --num-shards 8
        audio-tfrecords convert old/ records/ --dtypes data=float32 \\
          --splits train=.8,eval=.2
    """

    usage = "DIR [DIR ...] OUT [OPTION ...] [-- ...]"
    groups = (
        ("shards", _ONE_SIZE, [o for o in _given(Shards) if o.name in _OF_SHARDS]),
        (
            "run",
            _OF_RUN,
            [o for o in _given(RunOptions) if o.name in ("overwrite", "workers")],
        ),
    )
    takes_beam_args = True

    input_dir: list[str] = argument(several=True)
    output_dir: str = argument("OUT")
    features: tuple[str, ...] | None = option(None, Names(), "NAMES")
    schema: str | None = option(None, Text(), "FILE")
    dtypes: Mapping[str, str] | None = option(None, Dtypes(), "NAME=DTYPE,...")
    classes: tuple[str, ...] | None = option(None, Names(), "NAMES")
    splits: Mapping[str, float] | None = option(None, Shares(), "SHARES")
    group_by: str | None = option(None, Text(), "FEATURE")
    multiple_of: int | None = option(None, WholeNumber(), "N")

    def run(self) -> int:
        from beam_pipeline.cli.reports import describe_metadata
        from beam_pipeline.conversion.convert import convert
        from beam_pipeline.run.engine import quiet_beam

        started = time.monotonic()
        with contextlib.nullcontext() if self.debug else quiet_beam():
            metadata = convert(
                self.input_dir,
                self.output_dir,
                beam_args=self.beam_args,
                features=self.features,
                schema=self.schema,
                dtypes=self.dtypes,
                classes=self.classes,
                splits=self.splits,
                group_by=self.group_by,
                multiple_of=self.multiple_of or 1,
                **self.options,
            )
        say(describe_metadata(metadata))
        assert metadata.elements is not None
        if ignored := metadata.elements.options["ignored_files"]:
            folders = " ".join(self.input_dir)
            say(f"{folders}: {ignored:,} files are not TFRecords and were ignored")
        say(f"{self.output_dir}: complete, {time.monotonic() - started:.1f} s")
        return 0


@dataclass(frozen=True, kw_only=True)
class Show(Command):
    """Print, draw or save examples.

    Prints a few examples that are spread evenly over a split, draws them, or saves
    their sounds.

    Attributes
    ----------
    records
        Folder of a data set.
    n
        How many.
    split
        Which split, or several (fold0+fold2), all others (!fold1), or a part
        (train[:10%]). Default: train, or else the largest.
    clip
        Only windows of this file, by its path relative to its input.
    where
        Only windows that meet a condition on the columns of the table of windows, such
        as "class == 'owl' and start_s > 60".
    text
        Print whole records as protobuf text; needs TensorFlow.
    plot
        Draw them into this picture: .png, .pdf, .svg ...; needs matplotlib.
    save_wav
        Write their samples into this folder, as WAV files with names of split, number,
        clip and second.
    input
        With `save_wav`, if examples have no samples: what they were recorded from, as
        for record; runs the recipe.

    Examples
    --------
    ::

        audio-tfrecords show records/ -n 3
        audio-tfrecords show records/ --split test --plot examples.png
        audio-tfrecords show records/ -n 1 --text
        audio-tfrecords show records/ -n 5 --save-wav heard/
        audio-tfrecords show records/ --clip owl/night.wav \\
          --where 'start_s >= 60 and level_db > -40'
    """

    records: str = argument()
    n: int = option(3, WholeNumber(), "N", short="-n")
    split: str | None = option(None, Text(), "SPLIT")
    clip: str | None = option(None, Text(), "PATH")
    where: str | None = option(None, Text(), "CONDITION")
    text: bool = option(False, Flag())
    plot: str | None = option(None, Text(), "FILE")
    save_wav: str | None = option(None, Text(), "FOLDER")
    input: list[str] | None = option(None, ValueType(), "PATH", repeats=True)

    def run(self) -> int:
        from beam_pipeline.dataset.metadata import Metadata
        from beam_pipeline.dataset.rejects import lost_audio
        from beam_pipeline.read.drawing import picture_path, plot_examples
        from beam_pipeline.read.show import (
            describe_example,
            example_text,
            shown_split,
            some_examples,
            some_records,
        )

        if self.input is not None and self.save_wav is None:
            raise OptionError("input", "needs `save_wav`")
        picture = None if self.plot is None else picture_path(self.plot)
        if self.save_wav is not None:
            from beam_pipeline.read.show import wav_folder

            wav_folder(self.save_wav)
        metadata = Metadata.load(self.records)
        split = shown_split(metadata, self.split)
        place = f" of {split}" if len(metadata.splits) > 1 else ""
        shown: Any = self.records, metadata, self.n, split
        chosen: dict[str, Any] = {"clip": self.clip, "where": self.where}
        if self.text:
            for position, record in some_records(*shown, **chosen):
                say(f"# example {position}{place}\n{example_text(record, metadata)}")
            if picture is None and self.save_wav is None:
                return 0
        examples = dict(some_examples(*shown, **chosen))
        for position, example in examples.items() if not self.text else ():
            say(f"example {position}{place}\n{describe_example(example)}")
        if metadata.rejected and not self.text:
            say(f"{metadata.rejected:,} rejected{lost_audio(self.records, metadata)}")
        if picture is not None:
            left_out = plot_examples(list(examples.values()), metadata, picture)
            say(f"drawn: {picture}")
            if left_out:
                say(f"not drawn: {', '.join(left_out)}")
        if self.save_wav is not None:
            self._save_sounds(self.save_wav, metadata, split, examples)
        return 0

    def _save_sounds(
        self,
        folder: str,
        metadata: Metadata,
        split: str,
        examples: Mapping[int, Mapping[str, Any]],
    ) -> None:
        """Saves the sounds of examples."""
        from beam_pipeline.dataset.side_by_side import open_data_sets
        from beam_pipeline.inputs.in_memory import resolved
        from beam_pipeline.read.show import Sounds, save_wav

        with contextlib.ExitStack() as stack:
            inputs: Sequence[Input] = ()
            if self.input is not None and metadata.recipe is not None:
                search_here()
                inputs = stack.enter_context(resolved(self.input, metadata.recipe))
            of_split = {(split, number): each for number, each in examples.items()}
            sounds = Sounds(open_data_sets(self.records), of_split, inputs)
            for number in examples:
                sound = sounds.of(split, number)
                say(f"saved: {save_wav(sound, folder)}")


@dataclass(frozen=True, kw_only=True)
class ListWindows(Command):
    """List all windows: kept or left out, level, place.

    Sums up the windows of a data set: how many are kept, left out and why, the hours of
    audio, and the levels, with which a threshold for --keep is chosen. `csv` lists each
    window: path, seconds, level, split, shard and position.

    Attributes
    ----------
    records
        Folder of a data set.
    csv
        Print a line for each window.
    split
        With `csv`: only this split.
    where
        With `csv`: only windows that meet a condition on the columns.
    sources
        With `csv`: also each window's first frame, frames, sample rate and channels in
        its file, and the SHA-256 of the file if it was recorded.

    Examples
    --------
    ::

        audio-tfrecords windows records/
        audio-tfrecords windows records/ --csv > windows.csv
        audio-tfrecords windows records/ --csv \\
          --where "left_out == 'keep' and level_db > -45"
    """

    records: str = argument()
    csv: bool = option(False, Flag())
    split: str | None = option(None, Text(), "NAME")
    where: str | None = option(None, Text(), "CONDITION")
    sources: bool = option(False, Flag())

    @classmethod
    def name(cls) -> str:
        return "windows"

    def run(self) -> int:
        from beam_pipeline.cli.reports import describe_windows, table_as_csv
        from beam_pipeline.dataset.metadata import Metadata
        from beam_pipeline.read.conditions import rows_where
        from beam_pipeline.read.table import window_table
        from beam_pipeline.read.window_summary import summarise_windows

        if not self.csv and (self.split or self.where or self.sources):
            raise OptionError("--split, --where and --sources", "need `csv`")
        if not self.csv:
            metadata = Metadata.load(self.records)
            say(describe_windows(metadata, summarise_windows(self.records, metadata)))
            return 0
        table = window_table(self.records, self.split, self.sources)
        if self.where is not None:
            table = table.filter(rows_where(table, self.where))
        for lines in table_as_csv(table):
            say(lines)
        return 0


@dataclass(frozen=True, kw_only=True)
class Verify(Command):
    """Compare a data set with its metadata; repair it.

    Compares every size, SHA-256, checksum and count with metadata.json. `deep` also
    parses every example, and compares it with the tables. Ends with status 4 if
    something differs.

    Attributes
    ----------
    records
        Folder of a data set; several that belong together are read as one.
    deep
        Parse every example, and compare it with the tables of clips and windows.
    input
        With `deep`: what the data set was recorded from, as for record; runs its
        recipe, with the transforms of your own that it names.
    sample
        With `deep` and `input`: decode so many windows again and compare them byte for
        byte.
    seed
        Chooses these windows.
    repair
        Delete damaged shards, and let the same record command make them again.

    Examples
    --------
    ::

        audio-tfrecords verify records/
        audio-tfrecords verify records/ --deep --input sounds/ --sample 500
        audio-tfrecords verify records/ --repair
    """

    records: list[str] = argument(several=True)
    deep: bool = option(False, Flag())
    input: list[str] | None = option(None, ValueType(), "PATH", repeats=True)
    sample: int = option(100, WholeNumber(), "N")
    seed: int = option(0, WholeNumber(None), "N")
    repair: bool = option(False, Flag())

    def run(self) -> int:
        from beam_pipeline.cli.reports import counted
        from beam_pipeline.dataset.side_by_side import open_data_sets
        from beam_pipeline.errors import VerificationError
        from beam_pipeline.read.verify import verify

        if self.repair:
            return self._repair()
        if self.input is not None:
            search_here()
        problems = verify(
            _one_or_several(self.records),
            deep=self.deep,
            input=self.input,
            sample=self.sample,
            seed=self.seed,
        )
        if problems:
            raise VerificationError(problems)
        metadata = open_data_sets(self.records).metadata
        shards = counted(sum(len(s.shards) for s in metadata.splits.values()), "shard")
        examples = counted(sum(s.examples for s in metadata.splits.values()), "example")
        deep = ", example by example" if self.deep else ""
        say(
            f"{' '.join(self.records)}: {examples} in {shards} match the metadata{deep}"
        )
        return 0

    def _repair(self) -> int:
        """Deletes damaged shards, and says what makes them again."""
        from beam_pipeline.read.verify import repair

        if self.deep or self.input is not None:
            raise OptionError("repair", "takes no `deep` and no `input`")
        folder = _only(self.records, "repair")
        damaged = repair(folder)
        for name in damaged:
            say(f"deleted: {name}")
        if not damaged:
            say(f"{folder}: nothing to repair")
            return 0
        say(
            f"{folder} is not complete now. Give the command of `{PROGRAM} record` "
            "again that recorded it: it keeps the whole shards and makes the others."
        )
        return 0


def _one_or_several(records: Sequence[str]) -> str | Sequence[str]:
    return records[0] if len(records) == 1 else records


def _only(records: Sequence[str], option: str) -> str:
    """Returns the only folder; an option does not work for several."""
    if len(records) > 1:
        raise OptionError(option, "works for one data set at a time", list(records))
    return records[0]


@dataclass(frozen=True, kw_only=True)
class Index(Command):
    """Make the index that open_records needs.

    Reads every shard of a data set, and writes members.index, with which open_records
    reads any example at once. Data sets of this version have it already.

    Attributes
    ----------
    records
        Folder of a data set.

    Examples
    --------
    ::

        audio-tfrecords index records/
    """

    records: str = argument()

    def run(self) -> int:
        from beam_pipeline.dataset.member_index import index_data_set
        from beam_pipeline.dataset.metadata import Metadata

        members = index_data_set(self.records)
        splits = Metadata.load(self.records).splits.values()
        examples = sum(split.examples for split in splits)
        say(f"{self.records}: indexed {examples:,} examples in {members:,} members")
        return 0


@dataclass(frozen=True, kw_only=True)
class Audit(Command):
    """Find leaks between splits, and duplicates.

    Finds clips that have a file, a group or audio in common: leaks between splits, and
    duplicates. Ends with status 4 if there is a leak.

    Attributes
    ----------
    records
        Folder of a data set; several that belong together are read as one.
    group_by
        Columns a,b of the data set's manifest that make a group. Default: as recorded.
    json
        Print each finding as a line of JSON.
    write_manifest
        Write a manifest, .csv or .parquet, with one group for all clips that are alike;
        record it with --group-by group. Needs `input`.
    input
        With `write_manifest`: what the data set was recorded from, as for record.
    drop_doubles
        With `write_manifest`: keep only the first of clips with the same samples and
        class.

    Examples
    --------
    ::

        audio-tfrecords audit records/
        audio-tfrecords audit records/ --group-by speaker --json
        audio-tfrecords audit records/ --input sounds/ --drop-doubles \\
          --write-manifest sounds/clean.csv
    """

    records: list[str] = argument(several=True)
    group_by: str | None = option(None, Text(), "COLUMNS")
    json: bool = option(False, Flag())
    write_manifest: str | None = option(None, Text(), "FILE")
    input: list[str] | None = option(None, ValueType(), "PATH", repeats=True)
    drop_doubles: bool = option(False, Flag())

    def run(self) -> int:
        from beam_pipeline.errors import VerificationError
        from beam_pipeline.read.audit import audit

        found = audit(_one_or_several(self.records), self.group_by)
        if self.json:
            say(str(found), file=sys.stderr)
            for finding in found:
                say(json.dumps(finding, ensure_ascii=False))
        else:
            say(found.describe())
        if self.write_manifest is not None:
            self._write_clean_manifest(self.write_manifest)
        elif self.input is not None or self.drop_doubles:
            name = "input" if self.input is not None else "drop_doubles"
            raise OptionError(name, "needs `write_manifest`")
        return VerificationError.exit_status if found.leaks else 0

    def _write_clean_manifest(self, path: str) -> None:
        from beam_pipeline.read.clean_manifest import write_clean_manifest

        if self.input is None:
            raise OptionError(
                "write_manifest", "needs `input`: what the data set was recorded from"
            )
        written = write_clean_manifest(
            _only(self.records, "write_manifest"),
            path,
            self.input,
            group_by=self.group_by,
            drop_doubles=self.drop_doubles,
        )
        say(f"{path}: {written}", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class Report(Command):
    """Write a page that shows a data set, and lets you hear it.

    Writes one HTML file, which needs no network and no server: what the data set is,
    what may be wrong with it, and examples of each class to listen to.

    Attributes
    ----------
    records
        Folder of a data set; several that belong together are read as one.
    output
        The HTML file. Default: the name of the data set, records-report.html.
    clips
        How many examples can be heard; five times as many are measured.
    bytes
        About how large the file may become. Default: 5MB.
    seed
        Chooses the examples.
    examples
        Examples that come first, whatever the seed; repeatable.
    input
        What the data set was recorded from, as for record, to decode windows again;
        needed only if the examples have no samples.

    Examples
    --------
    ::

        audio-tfrecords report records/
        audio-tfrecords report records/ --output report.html --clips 200 --bytes 20MB
        audio-tfrecords report 2026-11/ 2026-12/
    """

    records: list[str] = argument(several=True)
    output: str | None = option(None, Text(), "FILE")
    clips: int = option(DEFAULT_CLIPS, WholeNumber(0), "N")
    bytes: int = option(None, Bytes(0), "BYTES")
    seed: int = option(0, WholeNumber(None), "N")
    examples: list[str] = option((), ValueType(), "SPLIT:N,N", repeats=True)
    input: list[str] | None = option(None, ValueType(), "PATH", repeats=True)

    def run(self) -> int:
        from beam_pipeline.reporting.page import report

        if self.input is not None:
            search_here()
        path = report(
            self.records,
            self.output,
            clips=self.clips,
            bytes=DEFAULT_BYTES if self.bytes is None else self.bytes,
            seed=self.seed,
            examples=parse_examples(self.examples),
            input=self.input,
        )
        say(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB. Open it in a browser.")
        return 0


def parse_examples(texts: Sequence[str]) -> dict[str, list[int]]:
    """Returns the numbers of examples in each split: ``test:12,80``.

    Raises
    ------
    OptionError
        If a text has another form.
    """
    found: dict[str, list[int]] = {}
    for text in texts:
        split, _, numbers = text.partition(":")
        try:
            found.setdefault(split, []).extend(map(int, numbers.split(",")))
        except ValueError as error:
            form = "must be a split and numbers, as test:12,80"
            raise OptionError("examples", form, text) from error
    return found


@dataclass(frozen=True, kw_only=True)
class Transforms(Command):
    """List transforms: parameters, result and cost.

    Lists the steps for --feature, --stream, --keep, --augment and --windows-at, with
    their parameters, and what they give and cost for one window.

    Attributes
    ----------
    steps
        A name, which also prints its documentation, or an expression. Default: all
        names.
    win_len
        Frames in the window.
    sample_rate
        Sample rate of the window.

    Examples
    --------
    ::

        audio-tfrecords transforms
        audio-tfrecords transforms log_mel
        audio-tfrecords transforms 'low_pass(cutoff_hz=1000)|mfcc' --win-len 16000
    """

    steps: list[str] = argument("STEP", several=True, required=False)
    win_len: int = option(16000, WholeNumber(), "FRAMES")
    sample_rate: int = option(16000, WholeNumber(), "HZ")

    def run(self) -> int:
        from beam_pipeline.transforms.describe import (
            describe_steps,
            list_all,
            list_some,
        )

        search_here()
        window = self.sample_rate, self.win_len
        entries = list_some(self.steps, *window) if self.steps else list_all(*window)
        say(describe_steps(list(entries)))
        return 0


@dataclass(frozen=True, kw_only=True)
class Status(Command):
    """Show the progress of a run, from any machine.

    Shows the progress of a run, or its error, from any machine that can read the run's
    folder.

    Attributes
    ----------
    run_folder
        Output folder or work folder of the run.
    watch
        Show a progress bar until the run ends.

    Examples
    --------
    ::

        audio-tfrecords status records/
        audio-tfrecords status --watch gs://bucket/records
    """

    run_folder: str = argument()
    watch: bool = option(False, Flag())

    def run(self) -> int:
        from beam_pipeline.cli.reports import describe_progress
        from beam_pipeline.run.watching import follow

        with contextlib.ExitStack() as stack:
            update: Callable[[int, float], None] | None = None
            for progress in follow(self.run_folder):
                if not self.watch:
                    say(describe_progress(progress))
                    return 0
                if progress.totals.examples and update is None:
                    bar = functools.partial(watch_bar, stack)
                    update = (bar if sys.stderr.isatty() else watch_lines)(
                        progress.totals
                    )
                if update is not None:
                    update(progress.examples, progress.seconds)
        say(f"{self.run_folder}: complete")
        return 0


COMMANDS: tuple[type[Command], ...] = (
    Record, Plan, Convert, Show, ListWindows, Verify, Index, Audit, Report, Transforms,
    Status,
)  # fmt: skip


def _beam_option(beam_args: Sequence[str], name: str) -> str | None:
    """The value of an option of Beam: ``--name=value`` or ``--name value``."""
    for word, following in itertools.pairwise([*beam_args, ""]):
        key, equals, value = word.partition("=")
        if key == name:
            return value if equals else following
    return None


def _print_counters(counts: Mapping[str, int]) -> None:
    words = ", ".join(f"{name} {count}" for name, count in counts.items())
    say(f"counters of the runner: {words}", file=sys.stderr)


def search_here() -> None:
    """Lets a recipe of the user name modules in the current folder."""
    from beam_pipeline.transforms.own_code import search_last

    search_last(os.getcwd())
