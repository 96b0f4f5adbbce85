"""stages.py: each step in Beam's in-memory runner, against a loop in one process."""

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.typehints.decorators import TypeCheckError

from beam_pipeline.dataset.job import Job
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.inputs.listing import ROWS_PER_BLOCK, Listing, ListingSummary
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.pipeline.stages import (
    LISTING,
    DecodeAudio,
    EncodeExamples,
    ListSources,
    step,
)
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.prober import Prober
from beam_pipeline.plan.shards import Segment, Shard, ShardWork, make_task
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.pages import Batch
from beam_pipeline.write.blocks import (
    FrameBlock,
    WindowBlock,
    cut_windows,
)
from tests.raising import raises
from tests.sounds import RATE, write_sound

pytestmark = pytest.mark.runs


def a_job(inputs, recipe):
    return Job(tuple(inputs), "", "", recipe)


def run(elements, build):
    """Gives the elements to ``build``, whose outputs must be exactly what it says.

    ``build`` returns pairs of a collection and the list of its elements.
    """
    pipeline = beam.Pipeline(runner=FnApiRunner())
    for i, (found, wanted) in enumerate(
        build(pipeline | beam.Create(elements, reshuffle=False))
    ):
        assert_that(found, equal_to(wanted), label=f"output {i}")
    result = pipeline.run()
    result.wait_until_finish()
    return {
        metric.key.metric.name: metric.committed
        for metric in result.metrics().query(MetricsFilter())["counters"]
    }


# ListSources, ProbeClips


@pytest.mark.parametrize(
    "count", [0, 1, ROWS_PER_BLOCK - 1, ROWS_PER_BLOCK, ROWS_PER_BLOCK + 1]
)
def test_listing_in_blocks(tmp_path, count):
    (tmp_path / "notes.md").touch()
    for i in range(count):
        (tmp_path / f"{i}.wav").touch()
    inputs = tuple(resolve_inputs([str(tmp_path)]))
    rows = list(Listing(inputs, Recipe(win_len=1)).rows())
    assert len(rows) == count
    blocks = [
        (number, Batch(rows[at : at + ROWS_PER_BLOCK]))
        for number, at in enumerate(range(0, count, ROWS_PER_BLOCK))
    ]

    def build(source):
        listed = source | beam.ParDo(
            ListSources(a_job(inputs, Recipe(win_len=1)))
        ).with_outputs(LISTING, main="rows")
        listing = listed[LISTING] | beam.Map(lambda found: found._replace(sha256=""))
        return [(listed.rows, blocks), (listing, [ListingSummary(count, 1)])]

    counters = run([inputs], build)
    assert (counters["clips_listed"], counters["files_ignored"]) == (count, 1)


@pytest.mark.parametrize(
    ("options", "frames", "windows"),
    [
        ({"win_len": 1050}, 1050, 1),
        ({"win_len": 1050, "sample_rate": 2 * RATE}, 2100, 2),
        ({"win_seconds": 0.0625, "sample_rate": 2 * RATE}, 2100, 2),
        ({"win_seconds": 0.0625, "sample_rate": RATE // 2}, 525, 2),
        ({"win_len": 2000, "tail": "pad"}, 1050, 1),
        ({"win_len": 100, "max_windows": 3}, 1050, 3),
    ],
)
def test_probing_counts_at_the_output_rate(tmp_path, options, frames, windows):
    write_sound(tmp_path / "x.wav", 1050)
    inputs = resolve_inputs([str(tmp_path)])
    row = SourceRow(0, 0, "x.wav", "a")
    found = Prober(inputs, Recipe(**options)).probe(row)
    assert isinstance(found, Clip)
    assert (found.frames, found.examples) == (frames, windows)


# From tasks to records

FRAMES = 700_000
LENGTH, HOP = 90_000, 60_000


def work_of(clips, example_format, first=0, name="records-0"):
    """One shard with every window of the clips, from one window of the first on."""
    segments, at = [], 0
    for c in clips:
        segments.append(Segment(c, first, c.examples - first, at))
        at += c.examples - first
        first = 0
    task = make_task(Shard(name, "records", 0, at), segments, "")
    return ShardWork(*task, example_format)


def probed(folder, recipe):
    inputs = tuple(resolve_inputs([str(folder)]))
    rows = Listing(inputs, recipe).rows()
    return inputs, list(map(Prober(inputs, recipe).probe, rows))


def write_two(tmp_path, **options):
    """A long clip, of several blocks, and a short one; two windows are cut off."""
    sounds = {
        "a/long.wav": write_sound(tmp_path / "a" / "long.wav", FRAMES, seed=1),
        "b/short.wav": write_sound(tmp_path / "b" / "short.wav", LENGTH + HOP, seed=2),
    }
    recipe = Recipe(win_len=LENGTH, hop=HOP, **options)
    inputs, clips = probed(tmp_path, recipe)
    example_format = ExampleFormat.of(Corpus(("a", "b"), {RATE: 2}, {1: 2}), recipe)
    return sounds, recipe, inputs, clips, example_format


def starts_of(samples, first=0):
    return list(range(first * HOP, len(samples) - LENGTH + 1, HOP))


def test_blocks_hold_the_frames_of_their_windows(tmp_path):
    sounds, recipe, inputs, clips, example_format = write_two(tmp_path)
    work = work_of(clips, example_format, first=2)

    def spell_out(block):
        samples = sounds[block.slot.clip.filepath]
        offset = int(block.starts[0])
        stop = offset + len(block.frames)
        assert block.frames.nbytes <= 1 << 20
        assert stop == block.starts[-1] + LENGTH
        np.testing.assert_array_equal(block.frames, samples[offset:stop])
        at = block.slot.position
        for i, start in enumerate(block.starts.tolist()):
            yield at + i, block.slot.clip.filepath, block.slot.first + i, start

    places = [
        (name, k, start)
        for name, first in [("a/long.wav", 2), ("b/short.wav", 0)]
        for k, start in enumerate(starts_of(sounds[name], first), first)
    ]
    wanted = [(at, *slot) for at, slot in enumerate(places)]

    def build(source):
        blocks = source | beam.ParDo(DecodeAudio(Job(inputs, "", "no-folder", recipe)))
        return [(blocks | beam.FlatMap(spell_out), wanted)]

    run([work], build)
    assert len(wanted) == work.shard.examples == 9 + 2


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
