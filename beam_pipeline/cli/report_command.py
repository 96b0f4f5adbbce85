"""The command ``report``: a page that shows a data set."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from beam_pipeline.cli.commands import no_beam_args, search_here
from beam_pipeline.cli.terminal import say
from beam_pipeline.errors import OptionError


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
