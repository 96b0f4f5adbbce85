"""A job whose number of examples shows only when it has written them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from beam_pipeline.dataset.element_set import ElementOutput, finish_elements
from beam_pipeline.dataset.metadata import Elements
from beam_pipeline.dataset.output_folder import EXAMPLES_CSV, METADATA
from beam_pipeline.dataset.work_folder import RECEIPTS
from beam_pipeline.errors import IncompleteRun
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.storage import files
from beam_pipeline.write.part_blocks import (
    BlockEncoder,
    BlockRef,
    BlockResult,
    observed_specs,
)
from beam_pipeline.write.parts import ShardSizes
from beam_pipeline.write.statistics import DataStatistics


@dataclass(frozen=True)
class PartsJob:
    """What workers need to know of a job.

    Attributes
    ----------
    target : ElementOutput
        The output folder, and where unfinished files go.
    encoder : BlockEncoder
        Makes the examples of a block.
    blocks : tuple of BlockRef
    sources : int
        The number of sources in all blocks.
    sizes : ShardSizes
    splits : tuple of str
        The names of all splits; some may stay empty.
    elements : Elements
        What the metadata say of the job.
    classes : tuple of str
    """

    target: ElementOutput
    encoder: BlockEncoder
    blocks: tuple[BlockRef, ...]
    sources: int
    sizes: ShardSizes
    splits: tuple[str, ...]
    elements: Elements
    classes: tuple[str, ...] = ()

    @property
    def output(self) -> str:
        """The output folder."""
        return self.target.output

    @property
    def work(self) -> str:
        """The work folder."""
        return self.target.work

    @property
    def parts(self) -> str:
        """The folder of parts."""
        return self.target.parts


def write_receipt(job: PartsJob, ref: BlockRef, result: BlockResult) -> None:
    """Notes in the work folder how many sources of a block are finished."""
    name = f"{ref.order}-{result.sources}"
    files.write_bytes(files.join(job.work, RECEIPTS, name), b"")


def finished_sources(work: str) -> int:
    """Returns the number of sources in all finished blocks; see ``write_receipt``."""
    receipts = files.join(work, RECEIPTS)
    if not files.is_folder(receipts):
        return 0
    names = files.list_files(receipts)
    return sum(int(name.partition("-")[2]) for name in names if "." not in name)


def finish_parts(job: PartsJob, infos: Iterable[ShardInfo], result: BlockResult) -> str:
    """Writes the tables of sources, then the metadata; returns their path.

    A runner may call it twice.

    Raises
    ------
    IncompleteRun
        If sources or examples are missing. There are no metadata then.
    """
    shards: dict[str, list[ShardInfo]] = {split: [] for split in job.splits}
    for info in sorted(infos, key=lambda info: info.shard.number):
        shards[info.shard.split].append(info)
    _check_complete(job, [i for split in shards.values() for i in split], result)
    statistics = {}
    for split in job.splits:
        state = result.statistics.get(split)
        statistics[split] = (
            DataStatistics.of(job.encoder.specs, has_windows=False)
            if state is None
            else DataStatistics.from_state(state)
        )
        _write_table(job, split, [t[2] for t in result.tables if t[0] == split])
    elements = job.elements
    if result.skipped:
        skipped: dict[str, dict[str, Any]] = {}
        for split, _, count, reason in result.skipped:
            of_split = skipped.setdefault(split, {"sources": 0, "first": reason})
            of_split["sources"] += count
        elements = replace(elements, options={**elements.options, "skipped": skipped})
    specs = observed_specs(job.encoder.specs, result)
    finish_elements(job.target, shards, statistics, specs, elements, job.classes)
    return files.join(job.output, METADATA)


def _check_complete(
    job: PartsJob, infos: Iterable[ShardInfo], result: BlockResult
) -> None:
    stored = sum(info.examples for info in infos)
    for what, found, expected in (
        ("source examples", result.sources, job.sources),
        ("examples in shards", stored, result.examples),
    ):
        if found != expected:
            raise IncompleteRun(
                f"The runner lost data between two steps: there are {found} {what} "
                f"instead of {expected}. No data set was written. Give the same call "
                "again, on another runner if this one loses data often."
            )


def _write_table(job: PartsJob, split: str, tables: Sequence[str]) -> None:
    """Joins the lines of all blocks, which are sorted by their place."""
    if not tables:
        return
    draft = files.draft_path(job.parts, uuid.uuid4().hex)
    files.concatenate(tables, draft)
    folder = "" if split == DEFAULT_SPLIT else f"{split}/"
    files.move(draft, files.join(job.output, f"{folder}{EXAMPLES_CSV}"))
