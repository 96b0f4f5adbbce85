"""Estimates what a job costs on Dataflow, from its plan and its speed on this machine.

::

    python launch/dataflow/cost.py --input sounds/ --win-seconds 1

takes the flags of ``audio-tfrecords plan``, and those below. It records some of the
clips into a temporary folder, for about twenty seconds.

The prices are assumptions of November 2026, and were not checked: US dollars,
us-central1, batch jobs. Look up yours and give them before you rely on the total. The
seconds and requests for each clip, and the share of time that workers are busy, are
assumptions, too. The total does not include reading from another region, storing the
data set, or discounts.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, fields
from itertools import islice
from typing import Any, NamedTuple

from beam_pipeline import plan, record
from beam_pipeline.cli.main import COMMANDS
from beam_pipeline.cli.parser import parse_command
from beam_pipeline.dataset.side_by_side import given_recipe
from beam_pipeline.errors import AudioTFRecordsError, InputError
from beam_pipeline.inputs.listing import Listing, survey
from beam_pipeline.inputs.sources import locate, resolve_inputs
from beam_pipeline.recipe.canonical import split_options
from beam_pipeline.recipe.recipe import Recipe, recipe_options
from beam_pipeline.run.engine import quiet_beam

# Options about manifests and splits, which a sample of files does not have.
OF_TABLES = (
    "label_separator", "classes", "events", "event_column", "event_targets",
    "event_overlap", "no_event", "target_columns", "path_column", "column_names",
    "delimiter", "columns", "split_column", "splits", "folds", "group_by", "stratify",
    "split_moves",
)  # fmt: skip
SAMPLE_CLIPS = 50
SAMPLE_SECONDS = 20.0


@dataclass(frozen=True, kw_only=True)
class Assumptions:
    """The numbers that neither the plan nor the measurement gives."""

    vcpu_hour: float = 0.056  # dollars
    memory_gb_hour: float = 0.003557
    disk_gb_hour: float = 0.000054
    shuffle_gb: float = 0.011
    thousand_reads: float = 0.0004
    vcpus: float = 4.0  # of a worker
    memory_gb: float = 16.0
    disk_gb: float = 50.0
    slower: float = 1.0  # time on a worker's core / time on this one
    busy: float = 0.8  # else: starting, stopping, waiting for the last shard
    clip_seconds: float = 0.1  # of a core, to open a clip in a store two times
    clip_reads: float = 3.0
    clip_bytes: float = 200.0  # of its row, written to the shuffle and read


HELP = {
    "vcpu_hour": "dollars for a core and an hour",
    "memory_gb_hour": "dollars for a gigabyte of memory and an hour",
    "disk_gb_hour": "dollars for a gigabyte of disk and an hour",
    "shuffle_gb": "dollars for a gigabyte through Dataflow's shuffle",
    "thousand_reads": "dollars for a thousand reads of the store",
    "vcpus": "cores of a worker",
    "memory_gb": "gigabytes of memory of a worker",
    "disk_gb": "gigabytes of disk of a worker",
    "slower": "time on a worker's core, divided by the time on a core of this machine",
    "busy": "share of the time that workers are busy",
    "clip_seconds": "seconds of a core for opening a clip in a store",
    "clip_reads": "requests to the store for a clip",
    "clip_bytes": "bytes of a clip that are shuffled",
}


class Work(NamedTuple):
    """The work of a job: hours of examples, and clips."""

    hours: float
    clips: int


class Sample(NamedTuple):
    """A measurement: recorded examples, their seconds of audio, and the time."""

    windows: int
    audio: float
    core_s: float
    clock_s: float


class Cost(NamedTuple):
    """Hours of cores, and dollars."""

    core_hours: float
    vcpu: float
    memory: float
    disk: float
    shuffle: float
    reads: float

    @property
    def total(self) -> float:
        """The sum of all dollars."""
        return sum(self[1:])

    def times(self, factor: float) -> Cost:
        """Returns the cost of ``factor`` times the work."""
        return Cost(*(value * factor for value in self))


def estimate(work: Work, speed: float, assumed: Assumptions) -> Cost:
    """Returns the cost of a job.

    ::

        core_hours = (hours / speed * slower + clips * clip_seconds / 3600) / busy

    Parameters
    ----------
    speed : float
        Hours of audio that one core of this machine records in an hour.
    """
    computing = work.hours / speed * assumed.slower
    opening = work.clips * assumed.clip_seconds / 3600
    core_hours = (computing + opening) / assumed.busy
    worker_hours = core_hours / assumed.vcpus
    return Cost(
        core_hours,
        core_hours * assumed.vcpu_hour,
        worker_hours * assumed.memory_gb * assumed.memory_gb_hour,
        worker_hours * assumed.disk_gb * assumed.disk_gb_hour,
        work.clips * assumed.clip_bytes / 1e9 * assumed.shuffle_gb,
        work.clips * assumed.clip_reads / 1000 * assumed.thousand_reads,
    )


def describe(work: Work, speed: float, cost: Cost) -> str:
    """Returns a table of the cost of this job, and of a thousand hours like it."""
    columns = [("this job", work.hours, work.clips, cost)]
    if work.hours > 0:
        factor = 1000 / work.hours
        columns.append(
            ("1000 hours", 1000.0, round(work.clips * factor), cost.times(factor))
        )
    lines = [
        ("", *(name for name, *_ in columns)),
        ("hours of audio", *(f"{hours:,.2f}" for _, hours, _, _ in columns)),
        ("clips", *(f"{clips:,}" for _, _, clips, _ in columns)),
        ("core-hours", *(_number(found.core_hours) for *_, found in columns)),
        *(
            (f"{name}, $", *(_number(getattr(found, name)) for *_, found in columns))
            for name in ("vcpu", "memory", "disk", "shuffle", "reads", "total")
        ),
    ]
    return "\n".join(
        [
            f"{speed:,.0f} hours of audio for each hour of one core of this machine",
            *("".join([f"{line[0]:<16}", *(f" {v:>13}" for v in line[1:])])
              for line in lines),
        ]
    )  # fmt: skip


def _number(value: float) -> str:
    return f"{value:,.2f}" if value >= 1 else f"{value:.4f}"


def core_seconds() -> float:
    """Returns the seconds of cores that this process and its children have used."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def measure(inputs: Sequence[str], recipe: Recipe, budget_s: float) -> float:
    """Returns how many seconds of audio a core records in a second.

    Records more and more windows of the first clips. The time for one window is
    subtracted, because most of it is spent once in a job.

    Raises
    ------
    InputError
        If there is nothing to record.
    """
    resolved = survey(resolve_inputs(list(inputs)), recipe)
    sample = [
        locate(resolved, row.source, row.filepath)
        for row in islice(Listing(resolved, recipe).rows(), SAMPLE_CLIPS)
    ]
    if not sample:
        raise InputError(f"There is no audio file in {', '.join(inputs)}.")
    most = recipe.num_elems or sys.maxsize
    of_tables = {name: recipe_options()[name].default for name in OF_TABLES}
    recipe = recipe.replace(**of_tables, label_from="none")  # type: ignore[arg-type]

    def record_some(windows: int) -> Sample:
        with tempfile.TemporaryDirectory(prefix="audio-tfrecords-cost-") as folder:
            before, started = core_seconds(), time.monotonic()
            metadata = record(
                sample, f"{folder}/records", recipe=recipe, num_elems=windows,
                max_rejected="100%", workers=1,
            )  # fmt: skip
            splits = metadata.splits.values()
            return Sample(
                sum(split.examples for split in splits),
                sum(split.seconds for split in splits),
                core_seconds() - before,
                time.monotonic() - started,
            )

    record_some(1)  # spends the time of imports and first calls
    first = last = record_some(1)
    started = time.monotonic()
    windows = 1
    while last.windows >= windows and windows < most:
        if 8 * last.clock_s > budget_s - (time.monotonic() - started):
            break
        windows = min(4 * windows, most)
        last = record_some(windows)
    if last.audio > first.audio and last.core_s > first.core_s:
        return (last.audio - first.audio) / (last.core_s - first.core_s)
    return last.audio / last.core_s


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the table; returns the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    for assumption in fields(Assumptions):
        parser.add_argument(
            "--" + assumption.name.replace("_", "-"),
            type=float,
            default=assumption.default,
            metavar="X",
            help=f"{HELP[assumption.name]}; default: {assumption.default:g}",
        )
    ours, rest = parser.parse_known_args(argv)
    try:
        args: Any = parse_command(COMMANDS, ["plan", *rest])
        with quiet_beam():
            summary, _ = plan(args.input, recipe=args.recipe, **args.options)
            recipe, _ = split_options(given_recipe(args.recipe), args.options)
            speed = measure(args.input, recipe, SAMPLE_SECONDS)
    except AudioTFRecordsError as error:
        print(f"cost.py: {error}", file=sys.stderr)
        return error.exit_status
    work = Work(
        sum(summary.seconds(split) for split in summary.layouts) / 3600,
        summary.clips.total(),
    )
    print(describe(work, speed, estimate(work, speed, Assumptions(**vars(ours)))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
