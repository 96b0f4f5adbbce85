"""The steps that write shards: each in Beam's in-memory runner, against a loop."""

import os

import apache_beam as beam
import numpy as np
import pytest
import soundfile
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from apache_beam.typehints.decorators import TypeCheckError

from beam_pipeline.examples.decoding import decode_examples
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.inputs.listing import list_sources
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.pipeline.sink import WriteToTFRecord, find_finished
from beam_pipeline.pipeline.stages import (
    FINISHED,
    REJECTS,
    ApplyTransforms,
    CutWindows,
    DecodeAudio,
    EncodeExamples,
    SelectAndAugment,
    SkipFinished,
)
from beam_pipeline.plan.clips import Clip
from beam_pipeline.plan.prober import Prober
from beam_pipeline.plan.segments import Segment, ShardTask, ShardWork
from beam_pipeline.plan.shards import Shard
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.tfrecord import SUFFIX
from beam_pipeline.write.blocks import FrameBlock, WindowBlock
from tests.raising import raises
from tests.shards import blocks_of
from tests.sounds import RATE, write_sound

pytestmark = pytest.mark.runs


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


def clip(row, windows=1):
    sizes = (windows * 100, RATE, 1, "WAV", "PCM_16", RATE, windows * 100, windows)
    return Clip(row, 0, f"a/{row}.wav", "a", "records", *sizes)


# SkipFinished


def test_finished_shards_step_aside(tmp_path):
    prefix, folder = f"{tmp_path}/out/", f"{tmp_path}/work"
    work = [
        ShardWork(
            ShardTask.of(
                Shard(f"records-{k}", "records", k, 2),
                [Segment(clip(k), 0, 2, 0)],
                "",
            ),
            None,
        )
        for k in range(3)
    ]

    def write(source):
        blocks = source | beam.FlatMap(blocks_of)
        infos = blocks | WriteToTFRecord(
            prefix, file_name_suffix=SUFFIX, work_folder=folder
        )
        return [(infos | beam.Map(lambda info: info.shard), shards)]

    shards = [some.task.shard for some in work[:2]]
    run(shards, write)
    changed = ShardWork(ShardTask.of(*work[1].task, "another recipe"), None)

    def build(source):
        skipped = source | beam.ParDo(SkipFinished([prefix], folder)).with_outputs(
            FINISHED, main="work"
        )
        info = find_finished(work[0].task.shard, prefix, folder)
        return [(skipped.work, [changed, work[2]]), (skipped[FINISHED], [info])]

    run([work[0], changed, work[2]], build)


# From tasks to records

FRAMES = 700_000
LENGTH, HOP = 90_000, 60_000


def work_of(clips, example_format, first=0):
    """One shard with every window of the clips, from one window of the first on."""
    segments, at = [], 0
    for c in clips:
        segments.append(Segment(c, first, c.examples - first, at))
        at += c.examples - first
        first = 0
    task = ShardTask.of(Shard("records-0", "records", 0, at), segments, "")
    return ShardWork(task, example_format)


def probed(folder, recipe):
    inputs = tuple(resolve_inputs([str(folder)]))
    rows = list_sources(inputs, recipe)
    return inputs, list(map(Prober(inputs, recipe).probe, rows))


def encode(source, inputs, recipe):
    """The steps from tasks to records."""
    return (
        source
        | beam.ParDo(DecodeAudio(inputs, recipe, "no-folder"))
        | beam.ParDo(CutWindows())
        | beam.ParDo(SelectAndAugment())
        | beam.ParDo(ApplyTransforms())
        | beam.ParDo(EncodeExamples()).with_outputs(REJECTS, main="records")
    )


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
        blocks = source | beam.ParDo(DecodeAudio(inputs, recipe, "no-folder"))
        return [(blocks | beam.FlatMap(spell_out), wanted)]

    run([work], build)
    assert len(wanted) == work.task.shard.examples == 9 + 2


def test_examples_are_the_windows_of_the_files(tmp_path):
    sounds, recipe, inputs, clips, example_format = write_two(tmp_path)
    wanted = [
        (name, label, target, row, start, RATE, sounds[name][start : start + LENGTH])
        for row, (name, label, target) in enumerate(
            [("a/long.wav", "a", 0), ("b/short.wav", "b", 1)]
        )
        for start in starts_of(sounds[name])
    ]

    def compare(block):
        examples = decode_examples(block.records, example_format.features.specs)
        for example, window in zip(
            examples, wanted[block.positions.start : block.positions.stop], strict=True
        ):
            names = ("filepath", "class", "target", "index", "win_start_idx", "fs")
            assert tuple(example[name] for name in names) == window[:-1]
            np.testing.assert_array_equal(example["signal"], window[-1])
        return block.positions

    def build(source):
        encoded = encode(source, inputs, recipe)
        return [
            (encoded.records | beam.FlatMap(compare), list(range(len(wanted)))),
            (encoded[REJECTS], []),
        ]

    counters = run([work_of(clips, example_format)], build)
    assert counters["windows"] == len(wanted) == 13
    assert counters["audio_microseconds"] == 1_000_000 * 13 * LENGTH // RATE


def test_what_cannot_be_decoded_keeps_its_places(tmp_path):
    _, recipe, inputs, clips, example_format = write_two(tmp_path)
    (tmp_path / "a" / "long.wav").write_bytes(b"gone since the probe")
    work = work_of(clips, example_format)
    lost = clips[0].examples

    def build(source):
        encoded = encode(source, inputs, recipe)
        places = encoded.records | beam.Map(
            lambda b: (b.positions, len(b.records), b.end and b.end[:2])
        )
        rejects = encoded[REJECTS] | beam.Map(
            lambda r: (r.row, r.filepath, r.stage, r.shard, r.examples, r.label)
        )
        blocks = [
            (range(lost), 0, None),
            (range(lost, lost + 2), 2, (lost + 2, (range(lost),))),
        ]
        reject = (0, "a/long.wav", "decode", work.task.shard.name, lost, "a")
        return [(places, 2 * blocks), (rejects, 2 * [reject])]

    run([work, work], build)  # each end is of one shard


def test_what_cannot_be_transformed_keeps_its_places(tmp_path):
    features = {"x": "tests.sounds:fail_on_sound"}
    _, recipe, inputs, clips, example_format = write_two(tmp_path, features=features)
    silent = np.zeros(LENGTH + HOP, np.int16)
    soundfile.write(tmp_path / "b" / "short.wav", silent, RATE)
    os.utime(tmp_path / "b" / "short.wav", ns=(0, clips[1].modified_ns))
    work = work_of(clips, example_format)

    def build(source):
        encoded = encode(source, inputs, recipe)
        whole = encoded.records | beam.FlatMap(
            lambda b: [(position, bool(b.records)) for position in b.positions]
        )
        lost = (
            encoded[REJECTS]
            | beam.Map(lambda r: ((r.filepath, r.stage, r.error), r.examples))
            | beam.CombinePerKey(sum)
        )
        return [
            (whole, [(at, at >= 11) for at in range(13)]),
            (lost, [(("a/long.wav", "transform", "TransformError"), 11)]),
        ]

    run([work], build)


@pytest.mark.parametrize(
    ("step", "given"),
    [
        (CutWindows, WindowBlock),
        (SelectAndAugment, FrameBlock),
        (ApplyTransforms, FrameBlock),
        (EncodeExamples, WindowBlock),
    ],
)
def test_a_step_takes_the_blocks_of_the_step_before(step, given):
    pipeline = beam.Pipeline(runner=FnApiRunner())
    blocks = pipeline | beam.Create([]).with_output_types(given)
    with raises(TypeCheckError, naming=given.__name__):
        blocks | beam.ParDo(step())
