"""One shard from its plan to its file, in this process and without Beam.

The steps are those of the job; see :func:`beam_pipeline.pipeline.graph.write_shards`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from beam_pipeline.examples.encoding import ExampleEncoder
from beam_pipeline.inputs.sources import Input
from beam_pipeline.marks import Marks
from beam_pipeline.plan.segments import ShardWork
from beam_pipeline.plan.suspects import NO_SUSPECTS, Suspects
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.write.blocks import (
    FeatureBlock,
    FrameBlock,
    Lost,
    apply_transforms,
    cut_windows,
    decode_audio,
    encode_examples,
    select_and_augment,
)
from beam_pipeline.write.observations import Observations
from beam_pipeline.write.stretches import PlacedRecords, Stretch, StretchFile


class ShardWriter:
    """Writes blocks of a shard to a local file; their positions follow each other.

    Parameters
    ----------
    work : ShardWork
        Work on the shard. If it does not begin with the first position, the file is a
        part of the shard.
    path : str
        Its suffix says whether the file is compressed.
    """

    def __init__(self, work: ShardWork, path: str):
        features = work.example_format.features
        names = work.example_format.classes
        self._encoder = ExampleEncoder(features.specs.values())
        self._targets = {label: i for i, label in enumerate(names)}
        self._observed = Observations.of(
            features.specs[name] for name in features.transforms
        )
        position = work.task.segments[0].position
        self._stretch = Stretch(work.task.shard, position, path)

    def write(self, frames: FrameBlock | Lost) -> None:
        """Writes the examples of a block; those that cannot be made are missing."""
        block, records = self._encoded(frames)
        left_out, offsets = 0, None
        if isinstance(block, FeatureBlock):
            left_out = block.slot.examples - len(records)
            offsets = np.flatnonzero(block.rows.kept).tolist()
            self._observed.add(block)
        slot, rows = block.slot, block.rows
        self._stretch.write(
            PlacedRecords(
                slot.shard,
                slot.position,
                slot.examples,
                records,
                left_out,
                None,
                offsets,
                rows,
                slot.clip.row,
            )
        )

    def _encoded(
        self, frames: FrameBlock | Lost
    ) -> tuple[FeatureBlock | Lost, list[bytes]]:
        """Returns the features of a block and its records, or why there are none."""
        if isinstance(frames, Lost):
            return frames, []
        windows = select_and_augment(cut_windows(frames))
        block = windows if isinstance(windows, Lost) else apply_transforms(windows)
        if isinstance(block, Lost):
            return block, []
        records = encode_examples(block, self._encoder, self._targets)
        return (records, []) if isinstance(records, Lost) else (block, records)

    def close(self) -> StretchFile:
        """Ends the file."""
        return self._stretch.close()


def write_alone(
    work: ShardWork,
    inputs: Sequence[Input],
    recipe: Recipe,
    path: str,
    suspects: Suspects = NO_SUSPECTS,
) -> StretchFile:
    """Writes a shard, or a part of it, with a :class:`ShardWriter` of its own."""
    writer = ShardWriter(work, path)
    for frames in decode_audio(work, inputs, recipe, suspects):
        writer.write(frames)
    Marks.unmark()
    return writer.close()
