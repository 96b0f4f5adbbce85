"""A job whose number of examples shows only when it has written them."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from beam_pipeline.dataset.element_set import ElementOutput, finish_elements
from beam_pipeline.dataset.metadata import Elements
from beam_pipeline.dataset.output_folder import EXAMPLES_CSV, METADATA
from beam_pipeline.dataset.work_folder import RECEIPTS
from beam_pipeline.errors import IncompleteRun
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.storage import files
from beam_pipeline.write.part_blocks import (
    BlockEncoder,
    BlockRef,
    BlockResult,
    merge_statistics,
    observed_specs,
)
from beam_pipeline.write.parts import ShardSizes


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
    sizes : ShardSizes
    splits : tuple of str
        The names of all splits; some may stay empty.
    elements : Elements
        What the metadata say of the job.
    classes : tuple of str
    settle : callable
        Returns the specs that the metadata hold, from those of the encoder and the
        result of all blocks.
    measured : frozenset of str or None
        The features whose statistics the metadata hold; None: all numeric ones.
    copied : mapping
        Name in the output to the path of a file that is copied there.
    sources : int or None
        The number of sources in all blocks; None if they are counted as they are read.
    other_blocks : int
        The number of blocks that belong to the job, but are not in ``blocks``.
    """

    target: ElementOutput
    encoder: BlockEncoder
    blocks: tuple[BlockRef, ...]
    sizes: ShardSizes
    splits: tuple[str, ...]
    elements: Elements
    classes: tuple[str, ...] = ()
    settle: Callable[[Iterable[FeatureSpec], BlockResult], list[FeatureSpec]] = (
        observed_specs
    )
    measured: frozenset[str] | None = None
    copied: Mapping[str, str] = field(default_factory=dict)
    sources: int | None = None
    other_blocks: int = 0

    def without_blocks(self) -> PartsJob:
        """Returns the job as steps need it that get the blocks one by one."""
        return replace(self, blocks=(), other_blocks=len(self.blocks))

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
    measured = [
        spec
        for spec in job.encoder.specs
        if job.measured is None or spec.name in job.measured
    ]
    statistics = {}
    for split in job.splits:
        statistics[split] = merge_statistics(result, split, measured)
        _write_table(job, split, [t[2] for t in result.tables if t[0] == split])
    elements = job.elements
    if result.skipped:
        skipped: dict[str, dict[str, Any]] = {}
        for split, _, count, reason in result.skipped:
            of_split = skipped.setdefault(split, {"sources": 0, "first": reason})
            of_split["sources"] += count
        elements = replace(elements, options={**elements.options, "skipped": skipped})
    for name, path in job.copied.items():
        files.write_bytes(files.join(job.output, name), files.read_bytes(path))
    specs = job.settle(job.encoder.specs, result)
    finish_elements(
        job.target,
        shards,
        statistics,
        specs,
        elements,
        job.classes,
        job.sizes.suffix,
    )
    return files.join(job.output, METADATA)


def _check_complete(
    job: PartsJob, infos: Iterable[ShardInfo], result: BlockResult
) -> None:
    stored = sum(info.examples for info in infos)
    for what, found, expected in (
        ("blocks", result.blocks, len(job.blocks) + job.other_blocks),
        ("source examples", result.sources, job.sources),
        ("examples in shards", stored, result.examples),
    ):
        if expected is not None and found != expected:
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
