"""The command line: ``audio-tfrecords record | plan | show | verify | ...``.

Each command calls what Python users call, and prints the result. It imports what it
needs when it runs, so ``--help`` prints at once.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import inspect
import io
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import beam_pipeline
from beam_pipeline import errors
from beam_pipeline.cli.parser import (
    PROGRAM,
    Command,
    argument,
    complain,
    parse_command,
    say,
    warnings_at_the_end,
)
from beam_pipeline.parameters import (
    Bytes,
    Flag,
    Names,
    Number,
    Text,
    ValueType,
    WholeNumber,
    comma_list,
)
from beam_pipeline.recipe.recipe import (
    SECTIONS,
    RunOptions,
    Shards,
    Shares,
    beam_option,
    option,
    options_of,
)
from beam_pipeline.reporting import DEFAULT_BYTES, DEFAULT_CLIPS
from beam_pipeline.text import counted

# What --help of record and plan shows; --help-all shows every option.
FIRST_DAY = (
    "input", "output", "recipe", "label_from", "classes", "splits", "group_by",
    "stratify", "sample_rate", "channels", "win_len", "win_seconds", "hop_seconds",
    "tail", "features", "copies", "augment", "max_rejected", "overwrite", "workers",
)  # fmt: skip


def _group(section: type, only: Sequence[str] = ()) -> Any:
    """Returns the title of a section, the end of its docstring, and its options.

    ``only`` names some of the options.
    """
    about, _, _ = inspect.cleandoc(section.__doc__ or "").partition("\n\nAttributes")
    options = [each for each in options_of(section) if not each.is_carried]
    given = [each for each in options if not only or each.name in only]
    title = section.__name__.removesuffix("Options").lower()
    return title, " ".join(about.rpartition("\n\n")[2].split()), given


_OF_SHARDS = (
    "seed", "elements_per_file", "shard_bytes", "num_shards", "member_bytes",
    "compression",
)  # fmt: skip


class Dtypes(ValueType):
    """Dtypes of features: ``data=float32,label=int32``."""

    def parse(self, text: str) -> Any:
        pairs = (part.rpartition("=") for part in comma_list(text))
        return {name: dtype for name, _, dtype in pairs}


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

    groups = (*map(_group, SECTIONS), _group(RunOptions))
    first_day: ClassVar[Sequence[str]] = FIRST_DAY

    input: list[str] = option((), ValueType(), "PATH", repeats=True, required=True)
    recipe: str | None = option(None, Text(), "PATH")


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
        from beam_pipeline.dataset.progress import watch_bar, watch_lines
        from beam_pipeline.storage import files

        search_here()
        if self.report is not None:
            files.check_file("report", self.report, ".html")
        given: dict[str, Any] = {"recipe": self.recipe, **self.options}
        template = beam_option(self.beam_args, "--template_location")
        if template is not None:
            with _quiet(self.debug):
                write_template(
                    self.input, self.output, beam_args=self.beam_args, **given
                )
            what = "describes the job; nothing is recorded until it is started"
            say(f"{template}: {what}")
            return 0
        started = time.monotonic()
        already: list[Any] = []
        show = watch_bar if sys.stderr.isatty() else watch_lines
        with contextlib.ExitStack() as stack:
            stack.enter_context(_quiet(self.debug))
            metadata = record(
                self.input,
                self.output,
                beam_args=self.beam_args,
                watch=functools.partial(show, stack),
                counted=_print_counters,
                found=already.append,
                **given,
            )
        took = f"{time.monotonic() - started:.1f} s"
        if not metadata.splits:
            say(f"{self.output}: nothing new to record, {took}")
            return 0
        from beam_pipeline.cli.reports import describe_metadata

        say(errors.spelled(describe_metadata(metadata, self.output), self.flags()))
        before = "complete before, with the same recipe and inputs"
        say(f"{self.output}: {before if already else f'complete, {took}'}")
        if self.report is not None:
            page = beam_pipeline.report(self.output, self.report, input=self.input)
            say(f"{page}: shows the data set")
        return 0


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
        from beam_pipeline.dataset.side_by_side import given_recipe
        from beam_pipeline.dataset.tables import check_any_accepted, check_rejects
        from beam_pipeline.recipe.canonical import split_options

        search_here()
        recipe, _ = split_options(given_recipe(self.recipe), self.options)
        with _quiet(self.debug):
            planned = plan(
                self.input,
                recipe=self.recipe,
                sample=self.sample or 0,
                beam_args=self.beam_args,
                **self.options,
            )
        summary, rejects = planned
        check_any_accepted(summary, rejects)
        say(errors.spelled(describe_plan(summary, rejects, recipe), self.flags()))
        if planned.forecast is not None:
            say("\n" + describe_forecast(planned.forecast))
        allowed = str(self.options.get("max_rejected", 0))
        try:
            check_rejects(summary.listing, rejects, allowed)
        except errors.TooManyRejected as error:
            complain(
                f"`{PROGRAM} record` would end with an error: these are more rejects "
                f"than --max-rejected {allowed} allows."
            )
            return error.exit_status
        return 0


class Convert(Command):
    """Rewrite TFRecords: other shards, splits, labels or features.

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
        List of classes, in its order, with those of all clips. Default: those of DIR,
        and those of `labels`, sorted.
    labels
        Table with new labels of clips: columns path, label; start_s, end_s or channel,
        if clips are parts of files.
    drop
        Clips that are left out: a text with a path on each line; or a table with paths,
        of which those count whose column drop is true, if there is one.
    splits
        Share of each new split, train=.8,eval=.2, as record would choose them. Default:
        the splits of DIR.
    stratify
        With `splits`: each class gets its share in each split, as for record.
    group_by
        With `splits`: columns a,b of the manifest; clips with equal values are in one
        split. Default: as recorded. Of other TFRecords: a feature.

    Examples
    --------
    ::

        audio-tfrecords convert records/ smaller/ --features log_mel,target \\
          --num-shards 8
        audio-tfrecords convert old/ records/ --dtypes data=float32 \\
          --splits train=.8,eval=.2
        audio-tfrecords convert records/ better/ --labels fixed.csv --drop bad.txt \\
          --splits train=.8,eval=.2 --stratify --group-by speaker
    """

    usage = "DIR [DIR ...] OUT [OPTION ...] [-- ...]"
    groups = (_group(Shards, _OF_SHARDS), _group(RunOptions, ("overwrite", "workers")))
    takes_beam_args = True

    input_dir: list[str] = argument(several=True)
    output_dir: str = argument("OUT")
    features: tuple[str, ...] | None = option(None, Names(), "NAMES")
    schema: str | None = option(None, Text(), "FILE")
    dtypes: Mapping[str, str] | None = option(None, Dtypes(), "NAME=DTYPE,...")
    classes: tuple[str, ...] | None = option(None, Names(), "NAMES")
    labels: str | None = option(None, Text(), "FILE")
    drop: str | None = option(None, Text(), "FILE")
    splits: Mapping[str, float] | None = option(None, Shares(), "SHARES")
    stratify: bool = option(False, Flag())
    group_by: str | None = option(None, Text(), "COLUMNS")

    def run(self) -> int:
        from beam_pipeline.cli.reports import describe_metadata

        started = time.monotonic()
        given = self.given(
            "features", "schema", "dtypes", "classes", "labels", "drop", "splits",
            "stratify", "group_by", "beam_args",
        )  # fmt: skip
        with _quiet(self.debug):
            metadata = beam_pipeline.convert(
                self.input_dir, self.output_dir, **given, **self.options
            )
        say(describe_metadata(metadata))
        assert metadata.elements is not None
        options = metadata.elements.options
        if ignored := options["ignored_files"]:
            folders = " ".join(self.input_dir)
            say(f"{folders}: {ignored:,} files are not TFRecords and were ignored")
        if self.labels is not None or self.drop is not None:
            relabelled, dropped = options["relabelled_clips"], options["dropped_clips"]
            say(f"{counted(relabelled, 'clip')} relabelled, {dropped:,} left out")
        say(f"{self.output_dir}: complete, {time.monotonic() - started:.1f} s")
        return 0


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
        Which split, or several (fold0+fold2), or all others (!fold1). Default: all for
        a clip; or else train, or else the largest.
    clip
        Only windows of this file, by its path relative to its input.
    where
        Only windows that meet a condition on the columns of the table of windows, such
        as "class == 'owl' and start_s > 60".
    text
        Print whole records as protobuf text; needs TensorFlow.
    plot
        Draw them into this picture: .png, .svg, .pdf or .jpg; needs matplotlib.
    save_wav
        Write their samples into this folder, as WAV files with names of split, number,
        clip and second.

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

    def run(self) -> int:
        from beam_pipeline.read.example_view import PICTURES, example_text
        from beam_pipeline.read.show import show
        from beam_pipeline.storage import files

        if self.plot is not None:
            files.check_file("plot", self.plot, *PICTURES)
        shown = show(self.records, self.n, self.split, clip=self.clip, where=self.where)
        records = shown.records
        if self.text:
            stored = records.serialised(range(len(records)))
            for title, record in zip(shown.titles(), stored, strict=True):
                say(f"# {title}\n{example_text(record, records.metadata)}")
        else:
            say(repr(shown))
        if self.plot is not None:
            shown.plot(self.plot)
            say(f"drawn: {self.plot}")
        if self.save_wav is not None:
            for path in shown.save_wav(self.save_wav):
                say(f"saved: {path}")
        return 0


class Windows(Command):
    """List all windows: kept or left out, level, place.

    Sums up the windows of a data set: how many are kept, left out and why, and the
    levels, with which a threshold for --keep is chosen. `csv` lists each window: path,
    seconds, level, split, shard and position.

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

    def run(self) -> int:
        from beam_pipeline.cli.reports import describe_windows, table_as_csv
        from beam_pipeline.read.conditions import rows_where
        from beam_pipeline.read.window_table import summarise_windows

        if not self.csv and (self.split or self.where or self.sources):
            raise errors.OptionError("--split, --where and --sources", "need `csv`")
        if not self.csv:
            metadata = beam_pipeline.Metadata.load(self.records)
            say(describe_windows(metadata, summarise_windows(self.records, metadata)))
            return 0
        table = beam_pipeline.window_table(self.records, self.split, self.sources)
        if self.where is not None:
            table = table.filter(rows_where(table, self.where))
        for lines in table_as_csv(table):
            say(lines)
        return 0


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
        With `input`: decode so many windows again and compare them byte for byte.
        Default: 100.
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
    sample: int | None = option(None, WholeNumber(), "N")
    repair: bool = option(False, Flag())

    def run(self) -> int:
        from beam_pipeline.dataset.side_by_side import open_data_sets

        if self.repair:
            return self._repair()
        if self.input is not None:
            search_here()
        given = self.given("deep", "input", "sample")
        problems = beam_pipeline.verify(self.records, **given)
        if problems:
            raise errors.VerificationError(problems)
        splits = open_data_sets(self.records).metadata.splits.values()
        shards = counted(sum(len(split.shards) for split in splits), "shard")
        examples = counted(sum(split.examples for split in splits), "example")
        deep = ", example by example" if self.deep else ""
        say(
            f"{' '.join(self.records)}: {examples} in {shards} match the metadata{deep}"
        )
        return 0

    def _repair(self) -> int:
        """Deletes damaged shards, and says what makes them again."""
        for name in ("deep", "input", "sample"):
            if getattr(self, name) is not getattr(Verify, name):
                raise errors.OptionError("repair", f"takes no `{name}`")
        for folder in self.records:
            damaged = beam_pipeline.repair(folder)
            for name in damaged:
                say(f"deleted: {name}")
            say(
                f"{folder} is not complete now. Give the command of `{PROGRAM} record` "
                "again that recorded it: it keeps the whole shards and makes the "
                "others."
                if damaged
                else f"{folder}: nothing to repair"
            )
        return 0


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
        for convert --labels, or with `input` for record --group-by group.
    input
        With `write_manifest`: what the data set was recorded from, as for record.
    drop_doubles
        With `write_manifest`: keep only the first of clips with the same samples and
        class; without `input`, mark the others for convert --drop.

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
        for name in ("input", "drop_doubles"):
            if getattr(self, name) and self.write_manifest is None:
                raise errors.OptionError(name, "needs `write_manifest`")
        if self.write_manifest is not None:
            given = self.given("input", "group_by", "drop_doubles")
            written = beam_pipeline.write_clean_manifest(
                self.records, self.write_manifest, **given
            )
            say(f"{self.write_manifest}: {written}", file=sys.stderr)
        found = beam_pipeline.audit(self.records, self.group_by)
        if self.json:
            say(str(found), file=sys.stderr)
            for finding in found:
                say(json.dumps(finding, ensure_ascii=False))
        else:
            say(found.describe())
        return errors.VerificationError.exit_status if found.leaks else 0


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
        About how large the file may become.
    seed
        Chooses the examples.
    input
        What the data set was recorded from, as for record, to hear its files; needed
        only if the examples have no samples.

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
    bytes: int = option(DEFAULT_BYTES, Bytes(0), "BYTES")
    seed: int = option(0, WholeNumber(None), "N")
    input: list[str] | None = option(None, ValueType(), "PATH", repeats=True)

    def run(self) -> int:
        from beam_pipeline.cli.reports import bytes_text

        given = self.given("output", "clips", "bytes", "seed", "input")
        path = beam_pipeline.report(self.records, **given)
        say(f"{path}: {bytes_text(os.path.getsize(path))}. Open it in a browser.")
        return 0


class Predict(Command):
    """Score new recordings with a trained model.

    Scores recordings with a model that was trained on a data set: makes the same
    features of the same windows, gives them to the model, and joins windows of a class
    into detections. A recording that cannot be read is named, and the others are
    scored.

    Attributes
    ----------
    model
        A file of Keras (.keras) or PyTorch (.pt2, .pt), or a function of your own,
        module:function, which takes an array of features and returns an array of
        scores, windows by classes.
    like
        The data set that the model was trained on; its recipe makes the features.
    input
        Recordings, as for record; may be repeated.
    output
        The table of detections, .csv or .parquet: path, start_s, end_s, class, score.
    feature
        The feature that the model gets. Default: the only one.
    normalize
        Normalise the feature by the statistics of the training split, as
        replay(normalize=True) does.
    threshold
        A window is of a class if the score is this, or above it.
    max_gap_seconds
        Windows of a class become one detection if they overlap, touch, or have a gap of
        at most so many seconds.
    each_window
        Write a row for each window and class instead of detections.
    hop_seconds
        Seconds from the start of a window to the next one. Default: as in the data set.
    tail
        drop, or pad: the last windows, which reach beyond the end. Default: as in the
        data set.
    allow_truncated
        Score recordings that were cut off, as far as they are there.
    raven
        Also write Raven's selection tables into this folder, one for each recording.
        No table there is replaced.
    max_rejected
        Largest number or percentage of recordings that may be rejected: 5 or 1%.
    batch_size
        So many windows go to the model at once.

    Examples
    --------
    ::

        audio-tfrecords predict --model classifier.keras --like records/ \\
          --input night/ --output detections.csv
        audio-tfrecords predict --model my_model:score --like records/ \\
          --input night/ --output scores.parquet --each-window --threshold 0
    """

    usage = "--model MODEL --like DIR --input PATH --output FILE [OPTION ...]"

    model: str = option("", Text(), "MODEL", required=True)
    like: list[str] = option((), ValueType(), "DIR", repeats=True, required=True)
    input: list[str] = option((), ValueType(), "PATH", repeats=True, required=True)
    output: str = option("", Text(), "FILE", required=True)
    feature: str | None = option(None, Text(), "NAME")
    normalize: bool = option(False, Flag())
    threshold: float = option(0.5, Number(), "SCORE")
    max_gap_seconds: float = option(0.0, Number(0), "SECONDS")
    each_window: bool = option(False, Flag())
    hop_seconds: float | None = option(None, Number(is_positive=True), "SECONDS")
    tail: str | None = option(None, Text(), "drop|pad")
    allow_truncated: bool = option(False, Flag())
    raven: str | None = option(None, Text(), "DIR")
    max_rejected: str = option("0", ValueType(), "N|P%")
    batch_size: int = option(64, WholeNumber(), "N")

    def run(self) -> int:
        from beam_pipeline.read.predict import Scoring, write_tables
        from beam_pipeline.recipe.recipe import allowed_rejects

        search_here()
        given = self.given(
            "model", "input", "like", "feature", "normalize", "threshold",
            "max_gap_seconds", "each_window", "batch_size",
        )  # fmt: skip
        changed = self.given("hop_seconds", "tail", "allow_truncated")
        scoring = Scoring(**given, **{n: v for n, v in changed.items() if v})
        allowed_rejects(self.max_rejected, 0)
        if os.path.realpath(self.output) in map(os.path.realpath, self.input):
            raise errors.OptionError("output", "must be no input", self.output)
        found = write_tables(scoring, self.output, self.raven)
        clips, counts = scoring.recordings, sorted(found.items())
        words = "".join(f"\n  {label}: {count:,}" for label, count in counts)
        row = "window" if self.each_window else "detection"
        feature = errors.spelled(scoring.describe_feature(), self.flags())
        say(
            f"{self.output}: {counted(found.total(), row)} in "
            f"{counted(clips, 'recording')}; the model gets {feature}{words}"
        )
        scoring.check_rejects(self.max_rejected)
        return 0


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
        from beam_pipeline.transforms.steps import describe_steps

        search_here()
        say(describe_steps(self.steps, self.sample_rate, self.win_len))
        return 0


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
        from beam_pipeline.dataset.progress import follow, watch_bar, watch_lines

        show = watch_bar if sys.stderr.isatty() else watch_lines
        with contextlib.ExitStack() as stack:
            update: Callable[[int, float], None] | None = None
            for progress in follow(self.run_folder):
                if not self.watch:
                    say(describe_progress(progress))
                    return 0
                if progress.totals.examples and update is None:
                    update = show(stack, progress.totals)
                if update is not None:
                    update(progress.examples, progress.seconds)
        say(f"{self.run_folder}: complete")
        return 0


COMMANDS: tuple[type[Command], ...] = (
    Record, Plan, Convert, Show, Windows, Verify, Audit, Report, Predict,
    Transforms, Status,
)  # fmt: skip


def _quiet(debug: bool) -> contextlib.AbstractContextManager[None]:
    """Silences Beam's log, unless a person looks for an error."""
    from beam_pipeline.run.engine import quiet_beam

    return contextlib.nullcontext() if debug else quiet_beam()


def _print_counters(counts: Mapping[str, int]) -> None:
    words = ", ".join(f"{name} {count}" for name, count in counts.items())
    say(f"counters of the runner: {words}", file=sys.stderr)


def search_here() -> None:
    """Lets a recipe of the user name modules in the current folder."""
    from beam_pipeline.transforms.own_code import search_last

    with contextlib.suppress(FileNotFoundError):  # it was deleted
        search_last(os.getcwd())


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
    except errors.AudioTFRecordsError as error:
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
