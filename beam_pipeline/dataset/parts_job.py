"""A job whose number of examples shows only when it has written them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from beam_pipeline.dataset.element_set import ElementOutput, finish_elements
from beam_pipeline.dataset.metadata import Elements
from beam_pipeline.dataset.output_folder import EXAMPLES_CSV, METADATA
from beam_pipeline.examples.spec import FeatureSpec
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

    @property
    def output(self) -> str:
        """The output folder."""
        return self.target.output

    @property
    def parts(self) -> str:
        """The folder of parts."""
        return self.target.parts


def finish_parts(job: PartsJob, infos: Iterable[ShardInfo], result: BlockResult) -> str:
    """Writes the tables of sources, then the metadata; returns their path.

    A runner may call it twice.
    """
    shards: dict[str, list[ShardInfo]] = {split: [] for split in job.splits}
    for info in sorted(infos, key=lambda info: info.shard.number):
        shards[info.shard.split].append(info)
    statistics = {}
    for split in job.splits:
        statistics[split] = _statistics(job, result.statistics.get(split))
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
    finish_elements(job.target, shards, statistics, specs, elements, job.classes)
    return files.join(job.output, METADATA)


def _statistics(job: PartsJob, state: Mapping[str, Any] | None) -> DataStatistics:
    """Returns the statistics of a split; of one without examples, if it has none."""
    if state is None:
        state = DataStatistics.of(job.encoder.specs, has_windows=False).state()
    if job.measured is not None:
        features = {n: s for n, s in state["features"].items() if n in job.measured}
        state = {**state, "features": features}
    return DataStatistics.from_state(state)


def _write_table(job: PartsJob, split: str, tables: Sequence[str]) -> None:
    """Joins the lines of all blocks, which are sorted by their place."""
    if not tables:
        return
    draft = files.draft_path(job.parts, f"{split}-{EXAMPLES_CSV}")
    files.concatenate(tables, draft)
    folder = "" if split == DEFAULT_SPLIT else f"{split}/"
    files.move(draft, files.join(job.output, f"{folder}{EXAMPLES_CSV}"))
