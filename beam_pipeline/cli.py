"""The command line: ``audio-tfrecords record | plan | show | verify | ...``.

Only what a command needs is imported, and that inside it: help comes at once.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import functools
import itertools
import json
import os
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from beam_pipeline import __version__
from beam_pipeline.errors import (
    AudioTFRecordsError,
    RecipeError,
    TooManyRejected,
)
from beam_pipeline.recipe import Recipe

PROGRAM = "audio-tfrecords"
SECONDS_BETWEEN_LINES = 10.0
SECONDS_BETWEEN_LOOKS = 2.0


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
        _complain(str(error))
        return error.exit_status
    except KeyboardInterrupt:
        _complain(
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
        _complain(
            f"{type(error).__name__}: {error} (in {last.name}, {last.filename}:"
            f"{last.lineno}). Give --debug to see more."
        )
        return 1


def _complain(message: str) -> None:
    print(f"{PROGRAM}: {message}", file=sys.stderr)


def _split_at_dashes(arguments: list[str]) -> tuple[list[str], list[str]]:
    if "--" not in arguments:
        return arguments, []
    at = arguments.index("--")
    return arguments[:at], arguments[at + 1 :]


def parse_flags(arguments: list[str]) -> argparse.Namespace:
    """Our own arguments, those left of ``--``; ends the process if they are wrong."""
    parser = _make_parser()
    args, unknown = parser.parse_known_args(arguments)
    if unknown:
        known = [
            flag
            for action in parser._subparsers._group_actions  # type: ignore[union-attr]
            for flag in action.choices[args.command]._option_string_actions  # type: ignore[index]
        ]
        word = unknown[0].split("=")[0]
        close = difflib.get_close_matches(word, known, 1, cutoff=0.75)
        hint = f"; did you mean {close[0]}?" if close else ""
        if word.startswith("--") and not close:
            hint = "; options of Beam stand after a lone --"
        parser.error(f"{args.command} does not know {word}{hint}")
    return args


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Audio files to sharded GZIP TFRecords, for training.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    recording = _command(
        commands,
        "record",
        _record,
        "record audio as a data set",
        f"{PROGRAM} record --input sounds/ --output records/ --win-seconds 1 "
        "--feature 'log_mel=log_mel(n_mels=64)'",
    )
    _add_inputs(recording)
    recording.add_argument("--output", required=True, help="a new or empty folder")
    _add_recipe(recording)
    _add_run(recording)

    planning = _command(
        commands,
        "plan",
        _plan,
        "what record would do, from headers alone",
        f"{PROGRAM} plan --input sounds/ --win-seconds 1",
    )
    _add_inputs(planning)
    planning.add_argument("--output", default=None, help=argparse.SUPPRESS)
    _add_recipe(planning)
    _add_run(planning)

    showing = _command(
        commands, "show", _show, "look at examples", f"{PROGRAM} show records/ -n 3"
    )
    showing.add_argument("records", metavar="DIR", help="a data set")
    showing.add_argument(
        "-n", type=int, default=3, help="how many, spread over it; default: 3"
    )
    showing.add_argument(
        "--split", default=None, help="which split; default: the first"
    )
    showing.add_argument(
        "--plot", default=None, metavar="FILE.png", help="draw them into a picture"
    )

    verifying = _command(
        commands,
        "verify",
        _verify,
        "test every checksum and count",
        f"{PROGRAM} verify records/",
    )
    verifying.add_argument("records", metavar="DIR", help="a data set")

    auditing = _command(
        commands,
        "audit",
        _audit,
        "find leaks between splits, and doubles",
        f"{PROGRAM} audit records/ --group-by speaker",
    )
    auditing.add_argument("records", metavar="DIR", help="a data set")
    auditing.add_argument(
        "--group-by",
        default=None,
        metavar="COLUMNS",
        help="columns a,b of its manifest that make a group; default: as recorded",
    )
    auditing.add_argument(
        "--json", action="store_true", help="every finding as a line of JSON"
    )

    listing = _command(
        commands,
        "transforms",
        _transforms,
        "every transform: parameters, result and cost for a window",
        f"{PROGRAM} transforms 'low_pass(cutoff_hz=1000)|mfcc' --win-len 16000",
    )
    listing.add_argument(
        "steps",
        nargs="*",
        metavar="STEPS",
        help="only these: names, with their documentation, or expressions",
    )
    listing.add_argument(
        "--win-len",
        type=int,
        default=16000,
        help="frames in the window; default: 16000",
    )
    listing.add_argument(
        "--sample-rate", type=int, default=16000, help="its rate in Hz; default: 16000"
    )

    asking = _command(
        commands,
        "status",
        _status,
        "how far a run is, on whatever machines",
        f"{PROGRAM} status --watch gs://bucket/records",
    )
    asking.add_argument(
        "run_folder", metavar="DIR", help="the output or the work folder of a run"
    )
    asking.add_argument(
        "--watch", action="store_true", help="a progress bar, until the run ends"
    )
    return parser


def _command(
    commands: Any, name: str, run: Callable[..., int], text: str, example: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=text,
        description=f"{text[0].upper()}{text[1:]}.",
        epilog=f"example: {example}",
        allow_abbrev=False,
    )
    parser.set_defaults(run=run)
    parser.add_argument("--debug", action="store_true", help="show tracebacks")
    return parser


def _add_inputs(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--input",
        action="append",
        required=True,
        help="a folder, a glob, an audio file, or a .txt file of paths; on any file "
        "system of Beam; may be repeated",
    )
    parser.add_argument(
        "--recipe",
        metavar="FILE",
        help="take flags from a YAML file, or from a data set's metadata.json",
    )


def _add_recipe(parser: argparse.ArgumentParser) -> None:
    """One flag for each field of the recipe; a default stands there alone."""
    group = parser.add_argument_group("recipe (decides the data)")
    for field in fields(Recipe):
        flag = "--" + field.name.replace("_", "-")
        text = field.metadata["help"]
        if field.name == "features":
            group.add_argument(
                "--feature",
                dest="features",
                action="append",
                metavar="NAME=CALL",
                default=argparse.SUPPRESS,
                help=text.replace("%", "%%"),
            )
        elif field.default is False:
            group.add_argument(
                flag, action="store_true", default=argparse.SUPPRESS, help=text
            )
        else:
            if field.default is not None:
                text += f"; default: {field.default}"
            group.add_argument(
                flag,
                type=_flag_type(field.metadata["parse"]),
                choices=field.metadata.get("choices"),
                metavar=None if "choices" in field.metadata else "VALUE",
                default=argparse.SUPPRESS,
                help=text.replace("%", "%%"),
            )


def _flag_type(parse: Callable[[str], Any]) -> Callable[[str], Any]:
    """Lets argparse tell what is wrong with a value in our words."""

    def parse_flag(text: str) -> Any:
        try:
            return parse(text)
        except RecipeError as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    parse_flag.__name__ = {"int": "whole number", "float": "number"}.get(
        parse.__name__, parse.__name__
    )
    return parse_flag


def _add_run(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group(
        "run (decides no data; options of Beam stand after a lone --)"
    )
    group.add_argument(
        "--max-rejected",
        default=argparse.SUPPRESS,
        metavar="N|P%",
        help="how many clips may be rejected; default: 0",
    )
    group.add_argument(
        "--overwrite",
        action="store_true",
        default=argparse.SUPPRESS,
        help="replace the data set that is in the output folder",
    )
    group.add_argument(
        "--workers",
        type=int,
        default=argparse.SUPPRESS,
        metavar="N",
        help="processes on this machine; default: one a core, for a large job",
    )
    group.add_argument(
        "--work-dir",
        default=argparse.SUPPRESS,
        metavar="DIR",
        help="where unfinished shards lie; default: _work in the output folder",
    )


def recipe_options(args: argparse.Namespace) -> dict[str, Any]:
    """The given flags of the recipe and the run, as keywords of ``record``."""
    own = {"command", "run", "debug", "input", "output", "recipe"}
    options = {name: value for name, value in vars(args).items() if name not in own}
    if "features" in options:
        options["features"] = _parse_features(options["features"])
    if args.recipe is not None:
        from beam_pipeline.recipe_files import read_recipe

        options = {**read_recipe(args.recipe), **options}
    return options


def _parse_features(texts: Sequence[str]) -> dict[str, str]:
    features: dict[str, str] = {}
    for text in texts:
        name, equals, call = text.partition("=")
        if not equals or not name.isidentifier():
            raise RecipeError("--feature", "must look like NAME=CALL", text)
        if name in features:
            raise RecipeError("--feature", "names a feature twice", name)
        features[name] = call
    return features


def _record(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.recorder import quiet_beam, record, write_template

    template = _beam_option(beam_args, "--template_location")
    if template is not None:
        with contextlib.nullcontext() if args.debug else quiet_beam():
            write_template(
                args.input, args.output, beam_args=beam_args, **recipe_options(args)
            )
        print(f"{template}: describes the job, which a service has yet to start")
        return 0
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        if not args.debug:
            stack.enter_context(quiet_beam())
        bar = functools.partial(watch_terminal, stack)
        metadata = record(
            args.input,
            args.output,
            beam_args=beam_args,
            watch=bar if sys.stderr.isatty() else watch_lines,
            counted=_print_counters,
            **recipe_options(args),
        )
    seconds = time.monotonic() - started
    from beam_pipeline.auditor import describe_overlaps
    from beam_pipeline.show import describe_metadata, missing_in_data

    print(describe_metadata(metadata))
    if overlaps := describe_overlaps(args.output):
        print(f"{overlaps} (audit names them)")
    for warning in missing_in_data(metadata):
        _complain(f"warning: {warning}")
    print(f"{args.output}: complete, {seconds:.1f} s")
    return 0


def _beam_option(beam_args: Sequence[str], name: str) -> str | None:
    """The value of an option of Beam, written as one word or as two."""
    for word, following in itertools.pairwise([*beam_args, ""]):
        key, equals, value = word.partition("=")
        if key == name:
            return value if equals else following
    return None


def _print_counters(counts: Mapping[str, int]) -> None:
    words = ", ".join(f"{name} {count}" for name, count in counts.items())
    print(f"counted by the runner: {words}", file=sys.stderr)


def watch_terminal(
    stack: contextlib.ExitStack, totals: Any
) -> Callable[[int, float], None]:
    """A progress bar, closed by ``stack``: windows, hours of audio, rate, time left."""
    from tqdm import tqdm

    bar = tqdm(
        total=totals.examples,
        unit=" windows",
        dynamic_ncols=True,
        bar_format="{l_bar}{bar}| {n_fmt}/{total_fmt} windows, {rate_fmt}, "
        "{remaining} left{postfix}",
    )
    stack.callback(bar.close)

    def tell(examples: int, seconds: float) -> None:
        bar.set_postfix_str(f"{seconds / 3600:.2f} h of audio", refresh=False)
        bar.update(examples - bar.n)

    return tell


def watch_lines(totals: Any) -> Callable[[int, float], None]:
    """A plain line now and then."""
    started = last = time.monotonic()

    def tell(examples: int, seconds: float) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < SECONDS_BETWEEN_LINES:
            return
        last = now
        rate = examples / (now - started)
        left = f"{(totals.examples - examples) / rate:.0f} s left" if rate else ""
        print(
            f"{examples} of {totals.examples} windows "
            f"({100 * examples // max(1, totals.examples)}%), "
            f"{seconds / 3600:.2f} h of audio, {rate:.0f} windows/s, {left}",
            file=sys.stderr,
        )

    return tell


def _plan(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.finish import check_any_accepted, check_rejects
    from beam_pipeline.recorder import plan, quiet_beam, split_options
    from beam_pipeline.show import describe_plan, missing_in_plan

    options = recipe_options(args)
    with contextlib.nullcontext() if args.debug else quiet_beam():
        summary, rejects = plan(args.input, **options)
    check_any_accepted(summary, rejects)
    recipe, _ = split_options(None, options)
    print(describe_plan(summary, rejects, recipe))
    for warning in missing_in_plan(summary):
        _complain(f"warning: {warning}")
    allowed = str(options.get("max_rejected", 0))
    try:
        check_rejects(summary.listing, rejects, allowed)
    except TooManyRejected as error:
        _complain(f"record would end with an error: --max-rejected is {allowed}.")
        return error.exit_status
    return 0


def _show(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.metadata import Metadata
    from beam_pipeline.show import (
        describe_example,
        picture_path,
        plot_examples,
        some_examples,
    )

    _no_beam_args("show", beam_args)
    if args.n < 1:
        raise RecipeError("-n", "must be at least 1", args.n)
    picture = None if args.plot is None else picture_path(args.plot)
    metadata = Metadata.load(args.records)
    examples = dict(some_examples(args.records, metadata, args.n, args.split))
    for place, example in examples.items():
        print(f"example {place}\n{describe_example(example)}")
    if picture is not None:
        left_out = plot_examples(list(examples.values()), metadata, picture)
        print(f"drawn: {picture}")
        if left_out:
            print(f"not drawn: {', '.join(left_out)}")
    return 0


def _verify(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.errors import VerificationError
    from beam_pipeline.verify import find_problems, load_metadata

    _no_beam_args("verify", beam_args)
    metadata = load_metadata(args.records)
    problems = list(find_problems(args.records, metadata))
    if problems:
        raise VerificationError(problems)
    shards = sum(len(split.shards) for split in metadata.splits.values())
    examples = sum(split.examples for split in metadata.splits.values())
    print(
        f"{args.records}: {examples} examples in {shards} shards are as they should be"
    )
    return 0


def _audit(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.auditor import audit, describe_audit, summarise_audit
    from beam_pipeline.errors import VerificationError

    _no_beam_args("audit", beam_args)
    found = audit(args.records, args.group_by)
    if args.json:
        print(summarise_audit(found), file=sys.stderr)
        for finding in found:
            print(json.dumps(finding.to_json(), ensure_ascii=False))
    else:
        print(describe_audit(found))
    return VerificationError.exit_status if found.leaks else 0


def _transforms(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.listing import describe_steps, list_all, list_some

    _no_beam_args("transforms", beam_args)
    if args.win_len < 1 or args.sample_rate < 1:
        raise RecipeError(
            "--win-len and --sample-rate",
            "must be at least 1",
            (args.win_len, args.sample_rate),
        )
    window = args.sample_rate, args.win_len
    entries = list_some(args.steps, *window) if args.steps else list_all(*window)
    print(describe_steps(list(entries)))
    return 0


def _status(args: argparse.Namespace, beam_args: Sequence[str]) -> int:
    from beam_pipeline.progress import find_run, read_progress
    from beam_pipeline.show import describe_progress

    _no_beam_args("status", beam_args)
    with contextlib.ExitStack() as stack:
        tell: Callable[[int, float], None] | None = None
        while True:
            work = find_run(args.run_folder)
            if work is None:
                break
            seen = read_progress(work)
            if seen.error is not None:
                raise seen.error
            if not args.watch:
                print(describe_progress(seen))
                return 0
            if seen.totals.examples and tell is None:
                bar = functools.partial(watch_terminal, stack)
                tell = (bar if sys.stderr.isatty() else watch_lines)(seen.totals)
            if tell is not None:
                tell(seen.examples, seen.seconds)
            time.sleep(SECONDS_BETWEEN_LOOKS)
    print(f"{args.run_folder}: complete")
    return 0


def _no_beam_args(command: str, beam_args: Sequence[str]) -> None:
    if beam_args:
        raise RecipeError(command, "takes no options of Beam", " ".join(beam_args))


if __name__ == "__main__":
    sys.exit(main())
