"""What each step of :mod:`.graph` returns: collections, with the type of an element."""

from __future__ import annotations

from typing import NamedTuple

import apache_beam as beam


class Found(NamedTuple):
    """The clips."""

    once: beam.PCollection  # the inputs, as one element
    listing: beam.PCollection  # one ListingSummary
    clips: beam.PCollection  # [Clip], each with its split
    moves: beam.PCollection  # one mapping or None: groups in other splits
    rejects: beam.PCollection  # Reject


class Placed(NamedTuple):
    """The position of every clip."""

    clips: beam.PCollection  # PlacedClips
    layouts: beam.PCollection  # one {split: ShardLayout}
    example_format: beam.PCollection  # one ExampleFormat, or None without clips


class Planned(NamedTuple):
    """The plan."""

    work: beam.PCollection  # ShardWork
    rejects: beam.PCollection  # Reject
    manifest: beam.PCollection  # ManifestPart
    summary: beam.PCollection  # one PlanSummary


class Written(NamedTuple):
    """The shards."""

    finished: beam.PCollection  # ShardInfo, of shards that an earlier run wrote
    shards: beam.PCollection  # ShardInfo
    rejects: beam.PCollection  # Reject
