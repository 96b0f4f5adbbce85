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


def write_alone(
    work: ShardWork,
    inputs: Sequence[Input],
    recipe: Recipe,
    path: str,
    suspects: Suspects = NO_SUSPECTS,
) -> StretchFile:
    """Writes a shard to a local file, whose suffix says whether it is compressed.

    Positions whose examples cannot be made are empty.
    """
    features = work.example_format.features
    encoder = ExampleEncoder(features.specs.values())
    targets = {label: i for i, label in enumerate(work.example_format.classes)}
    observed = Observations.of(features.specs[name] for name in features.transforms)
    stretch = Stretch(work.task.shard, 0, path)
    try:
        for frames in decode_audio(work, inputs, recipe, suspects):
            block, records = _encoded(frames, encoder, targets)
            left_out, offsets = 0, None
            if isinstance(block, FeatureBlock):
                left_out = block.slot.examples - len(records)
                offsets = np.flatnonzero(block.rows.kept).tolist()
                observed.add(block)
            slot = block.slot
            stretch.write(
                PlacedRecords(
                    slot.shard,
                    slot.position,
                    slot.examples,
                    records,
                    left_out,
                    None,
                    offsets,
                    block.rows,
                )
            )
    except BaseException:
        stretch.abandon()
        raise
    finally:
        Marks.unmark()
    return stretch.close()


def _encoded(
    frames: FrameBlock | Lost, encoder: ExampleEncoder, targets: dict[str, int]
) -> tuple[FeatureBlock | Lost, list[bytes]]:
    """Returns the features of a block and its records, or why there are none."""
    if isinstance(frames, Lost):
        return frames, []
    windows = select_and_augment(cut_windows(frames))
    block = windows if isinstance(windows, Lost) else apply_transforms(windows)
    if isinstance(block, Lost):
        return block, []
    records = encode_examples(block, encoder, targets)
    return (records, []) if isinstance(records, Lost) else (block, records)
