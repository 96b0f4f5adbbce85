"""From headers to blocks: what a probe counts, a block holds, and a step takes."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.typehints.decorators import TypeCheckError

from beam_pipeline.examples.features import Corpus, ExampleFormat
from beam_pipeline.inputs.listing import Listing
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.pipeline.graph import EncodeExamples, step
from beam_pipeline.planning.poison_clips import PoisonClips
from beam_pipeline.planning.prober import Prober
from beam_pipeline.planning.shards import Segment, Shard, ShardWork, make_task
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.write.blocks import (
    FrameBlock,
    WindowBlock,
    cut_windows,
    decode_audio,
)
from tests.raising import raises
from tests.sounds import RATE, write_sound

LENGTH, HOP = 90_000, 60_000
FIRST = 2  # windows of the first clip that an earlier shard has


def test_blocks_hold_the_frames_of_their_windows(tmp_path):
    """A long clip, of several blocks, from its third window on; and a short one."""
    sounds = {
        "a/long.wav": write_sound(tmp_path / "a" / "long.wav", 700_000, seed=1),
        "b/short.wav": write_sound(tmp_path / "b" / "short.wav", LENGTH + HOP, seed=2),
    }
    recipe = Recipe(win_len=LENGTH, hop=HOP)
    inputs = tuple(resolve_inputs([str(tmp_path)]))
    prober = Prober(inputs, recipe)
    one, two = map(prober.probe, Listing(inputs, recipe).rows())
    left = one.examples - FIRST
    segments = [Segment(one, FIRST, left, 0), Segment(two, 0, two.examples, left)]
    shard = Shard("records-0", "records", 0, left + two.examples)
    example_format = ExampleFormat.of(Corpus(("a", "b"), {RATE: 2}, {1: 2}), recipe)
    work = ShardWork(*make_task(shard, segments, ""), example_format)

    found = []
    for block in decode_audio(work, inputs, recipe, PoisonClips()):
        name = block.slot.clip.filepath
        first, stop = int(block.starts[0]), int(block.starts[-1]) + LENGTH
        assert block.frames.nbytes <= 1 << 20
        np.testing.assert_array_equal(block.frames, sounds[name][first:stop])
        for i, start in enumerate(block.starts.tolist()):
            found.append((block.slot.position + i, name, block.slot.first + i, start))
    places = [
        (name, k, k * HOP)
        for name, first in [("a/long.wav", FIRST), ("b/short.wav", 0)]
        for k in range(first, (len(sounds[name]) - LENGTH) // HOP + 1)
    ]
    assert found == [(at, *place) for at, place in enumerate(places)]
    assert len(found) == work.shard.examples == 9 + 2


@pytest.mark.parametrize(
    ("taking", "given"),
    [
        (step(cut_windows, FrameBlock, WindowBlock), WindowBlock),
        (beam.ParDo(EncodeExamples()), WindowBlock),
    ],
)
def test_a_step_takes_the_blocks_of_the_step_before(taking, given):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    blocks = pipeline | beam.Create([]).with_output_types(given)
    with raises(TypeCheckError, naming=given.__name__):
        blocks | taking
