"""The command ``report``: a page that shows a data set."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from beam_pipeline.cli.commands import no_beam_args, search_here
from beam_pipeline.cli.terminal import say


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
        input=args.input,
    )
    say(f"{path}: {os.path.getsize(path) / 1e6:.1f} MB. Open it in a browser.")
    return 0
