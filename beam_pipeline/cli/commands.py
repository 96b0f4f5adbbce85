"""The commands: each calls what Python users call, and prints the result.

Commands import what they need when they run, so that ``--help`` loads none of it.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from beam_pipeline.cli.flags import PROGRAM
from beam_pipeline.cli.given_flags import given_options
from beam_pipeline.cli.messages import as_flags, collected_warnings, complain, say
from beam_pipeline.dataset.progress import watch_bar, watch_lines
from beam_pipeline.errors import OptionError, TooManyRejected

if TYPE_CHECKING:
    from beam_pipeline.dataset.metadata import Metadata
    from beam_pipeline.inputs.sources import Input


def run_record(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.api import record, write_template
    from beam_pipeline.run.engine import quiet_beam

    search_here()
    template = _beam_option(beam_args, "--template_location")
    if template is not None:
        with contextlib.nullcontext() if args.debug else quiet_beam():
            write_template(
                args.input,
                args.output,
                recipe=args.recipe,
                beam_args=beam_args,
                **given_options(args),
            )
        say(f"{template}: describes the job; nothing is recorded until it is started")
        return 0
    started = time.monotonic()
    already: list[Any] = []
    with collected_warnings() as warned, contextlib.ExitStack() as stack:
        if not args.debug:
            stack.enter_context(quiet_beam())
        bar = functools.partial(watch_bar, stack)
        metadata = record(
            args.input,
            args.output,
            recipe=args.recipe,
            beam_args=beam_args,
            watch=bar if sys.stderr.isatty() else watch_lines,
            counted=_print_counters,
            found=already.append,
            **given_options(args),
        )
    seconds = time.monotonic() - started
    for warning in warned if not metadata.splits else ():
        complain(f"warning: {warning}", args.flags)
    if not metadata.splits:
        say(f"{args.output}: nothing new to record, {seconds:.1f} s")
        return 0
    from beam_pipeline.cli.reports import describe_metadata
    from beam_pipeline.dataset.rejects import lost_audio
    from beam_pipeline.read.audit import describe_overlaps
    from beam_pipeline.read.window_summary import summarise_windows

    lost = lost_audio(args.output, metadata)
    say(describe_metadata(metadata, summarise_windows(args.output, metadata), lost))
    if overlaps := describe_overlaps(args.output):
        say(f"{overlaps} (`{PROGRAM} audit` lists them)")
    for warning in warned:
        complain(f"warning: {warning}", args.flags)
    if already:
        say(f"{args.output}: complete before, with the same recipe and inputs")
    else:
        say(f"{args.output}: complete, {seconds:.1f} s")
    if args.report is not None:
        from beam_pipeline.reporting.page import report

        page = report(args.output, args.report, input=args.input)
        say(f"{page}: shows the data set")
    return 0


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


def run_plan(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.api import plan
    from beam_pipeline.cli.reports import describe_forecast, describe_plan
    from beam_pipeline.dataset.rejects import check_any_accepted, check_rejects
    from beam_pipeline.dataset.side_by_side import given_recipe
    from beam_pipeline.recipe.canonical import split_options
    from beam_pipeline.run.engine import quiet_beam

    search_here()
    options = given_options(args)
    recipe, _ = split_options(given_recipe(args.recipe), options)
    quiet = contextlib.nullcontext() if args.debug else quiet_beam()
    with collected_warnings() as warned, quiet:
        planned = plan(
            args.input, recipe=args.recipe, sample=args.sample or 0, **options
        )
    summary, rejects = planned
    check_any_accepted(summary, rejects)
    say(as_flags(describe_plan(summary, rejects, recipe), args.flags))
    if planned.forecast is not None:
        say("\n" + describe_forecast(planned.forecast))
    for warning in warned:
        complain(f"warning: {warning}", args.flags)
    allowed = str(options.get("max_rejected", 0))
    try:
        check_rejects(summary.listing, rejects, allowed)
    except TooManyRejected as error:
        complain(
            f"`{PROGRAM} record` would end with an error: these are more rejects than "
            f"--max-rejected {allowed} allows."
        )
        return error.exit_status
    return 0


def run_convert(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.cli.reports import describe_metadata
    from beam_pipeline.conversion.convert import convert
    from beam_pipeline.run.engine import quiet_beam

    started = time.monotonic()
    with contextlib.nullcontext() if args.debug else quiet_beam():
        metadata = convert(
            args.input_dir,
            args.output_dir,
            beam_args=beam_args,
            **{n: v for n, v in vars(args).items() if n in args.flags and n != "debug"},
        )
    say(describe_metadata(metadata))
    assert metadata.elements is not None
    if ignored := metadata.elements.options["ignored_files"]:
        folders = " ".join(args.input_dir)
        say(f"{folders}: {ignored:,} files are not TFRecords and were ignored")
    say(f"{args.output_dir}: complete, {time.monotonic() - started:.1f} s")
    return 0


def run_show(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
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

    no_beam_args("show", beam_args)
    heard = args.save_wav is not None
    if args.input is not None and not heard:
        raise OptionError("input", "needs `save_wav`")
    picture = None if args.plot is None else picture_path(args.plot)
    if heard:
        from beam_pipeline.read.show import wav_folder

        wav_folder(args.save_wav)
    metadata = Metadata.load(args.records)
    split = shown_split(metadata, args.split)
    place = f" of {split}" if len(metadata.splits) > 1 else ""
    shown = args.records, metadata, args.n, split
    chosen = {"clip": args.clip, "where": args.where}
    if args.text:
        for position, record in some_records(*shown, **chosen):
            say(f"# example {position}{place}\n{example_text(record, metadata)}")
        if picture is None and not heard:
            return 0
    examples = dict(some_examples(*shown, **chosen))
    for position, example in examples.items() if not args.text else ():
        say(f"example {position}{place}\n{describe_example(example)}")
    if metadata.rejected and not args.text:
        say(f"{metadata.rejected:,} rejected{lost_audio(args.records, metadata)}")
    if picture is not None:
        left_out = plot_examples(list(examples.values()), metadata, picture)
        say(f"drawn: {picture}")
        if left_out:
            say(f"not drawn: {', '.join(left_out)}")
    if heard:
        _save_sounds(args, metadata, split, examples)
    return 0


def _save_sounds(
    args: argparse.Namespace,
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
        if args.input is not None and metadata.recipe is not None:
            search_here()
            inputs = stack.enter_context(resolved(args.input, metadata.recipe))
        of_split = {(split, number): each for number, each in examples.items()}
        sounds = Sounds(open_data_sets(args.records), of_split, inputs)
        for number in examples:
            sound = sounds.of(split, number)
            say(f"saved: {save_wav(sound, args.save_wav)}")


def run_windows(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.cli.reports import describe_windows, table_as_csv
    from beam_pipeline.dataset.metadata import Metadata
    from beam_pipeline.read.conditions import rows_where
    from beam_pipeline.read.table import window_table
    from beam_pipeline.read.window_summary import summarise_windows

    no_beam_args("windows", beam_args)
    if not args.csv and (args.split or args.where or args.sources):
        raise OptionError("--split, --where and --sources", "need --csv")
    if not args.csv:
        metadata = Metadata.load(args.records)
        say(describe_windows(metadata, summarise_windows(args.records, metadata)))
        return 0
    table = window_table(args.records, args.split, args.sources)
    if args.where is not None:
        table = table.filter(rows_where(table, args.where))
    for lines in table_as_csv(table):
        say(lines)
    return 0


def run_verify(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.cli.reports import counted
    from beam_pipeline.dataset.side_by_side import open_data_sets
    from beam_pipeline.errors import VerificationError
    from beam_pipeline.read.verify import verify

    no_beam_args("verify", beam_args)
    if args.repair:
        return _repair(args)
    if args.input is not None:
        search_here()
    problems = verify(
        _one_or_several(args.records),
        deep=args.deep,
        input=args.input,
        sample=args.sample,
        seed=args.seed,
    )
    if problems:
        raise VerificationError(problems)
    metadata = open_data_sets(args.records).metadata
    shards = counted(sum(len(s.shards) for s in metadata.splits.values()), "shard")
    examples = counted(sum(s.examples for s in metadata.splits.values()), "example")
    deep = ", example by example" if args.deep else ""
    say(f"{' '.join(args.records)}: {examples} in {shards} match the metadata{deep}")
    return 0


def _one_or_several(records: Sequence[str]) -> str | Sequence[str]:
    return records[0] if len(records) == 1 else records


def _only(records: Sequence[str], option: str) -> str:
    """Returns the only folder; an option does not work for several."""
    if len(records) > 1:
        raise OptionError(option, "works for one data set at a time", list(records))
    return records[0]


def _repair(args: argparse.Namespace) -> int:
    """Deletes damaged shards, and says what makes them again."""
    from beam_pipeline.read.verify import repair

    if args.deep or args.input is not None:
        raise OptionError("repair", "takes no `deep` and no `input`")
    folder = _only(args.records, "repair")
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


def run_index(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.dataset.member_index import index_data_set
    from beam_pipeline.dataset.metadata import Metadata

    no_beam_args("index", beam_args)
    members = index_data_set(args.records)
    splits = Metadata.load(args.records).splits.values()
    examples = sum(split.examples for split in splits)
    say(f"{args.records}: indexed {examples:,} examples in {members:,} members")
    return 0


def run_audit(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.errors import VerificationError
    from beam_pipeline.read.audit import audit

    no_beam_args("audit", beam_args)
    found = audit(_one_or_several(args.records), args.group_by)
    if args.json:
        say(str(found), file=sys.stderr)
        for finding in found:
            say(json.dumps(finding, ensure_ascii=False))
    else:
        say(found.describe())
    if args.write_manifest is not None:
        _write_clean_manifest(args)
    elif args.input is not None or args.drop_doubles:
        name = "input" if args.input is not None else "drop_doubles"
        raise OptionError(name, "needs `write_manifest`")
    return VerificationError.exit_status if found.leaks else 0


def _write_clean_manifest(args: argparse.Namespace) -> None:
    from beam_pipeline.read.clean_manifest import write_clean_manifest

    if args.input is None:
        raise OptionError(
            "write_manifest", "needs `input`: what the data set was recorded from"
        )
    written = write_clean_manifest(
        _only(args.records, "write_manifest"),
        args.write_manifest,
        args.input,
        group_by=args.group_by,
        drop_doubles=args.drop_doubles,
    )
    say(f"{args.write_manifest}: {written}", file=sys.stderr)


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


def run_report(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.reporting.page import report

    no_beam_args("report", beam_args)
    if args.input is not None:
        search_here()
    path = report(
        args.records,
        args.output,
        clips=args.clips,
        bytes=args.bytes,
        seed=args.seed,
        examples=parse_examples(args.examples),
        input=args.input,
    )
    say(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB. Open it in a browser.")
    return 0


def run_transforms(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.transforms.describe import describe_steps, list_all, list_some

    no_beam_args("transforms", beam_args)
    search_here()
    window = args.sample_rate, args.win_len
    entries = list_some(args.steps, *window) if args.steps else list_all(*window)
    say(describe_steps(list(entries)))
    return 0


def run_status(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.cli.reports import describe_progress
    from beam_pipeline.run.watching import follow

    no_beam_args("status", beam_args)
    with contextlib.ExitStack() as stack:
        update: Callable[[int, float], None] | None = None
        for progress in follow(args.run_folder):
            if not args.watch:
                say(describe_progress(progress))
                return 0
            if progress.totals.examples and update is None:
                bar = functools.partial(watch_bar, stack)
                update = (bar if sys.stderr.isatty() else watch_lines)(progress.totals)
            if update is not None:
                update(progress.examples, progress.seconds)
    say(f"{args.run_folder}: complete")
    return 0


def search_here() -> None:
    """Lets a recipe of the user name modules in the current folder."""
    from beam_pipeline.transforms.own_code import search_last

    search_last(os.getcwd())


def no_beam_args(command: str, beam_args: Sequence[str]) -> None:
    if beam_args:
        raise OptionError(command, "takes no options of Beam", " ".join(beam_args))
