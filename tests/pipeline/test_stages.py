"""stages.py: each step in Beam's in-memory runner, against a loop in one process."""

from collections import Counter
from itertools import groupby

import apache_beam as beam
import numpy as np
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.pvalue import AsDict, AsSingleton
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.examples.encoding import example_bytes
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.inputs.listing import (
    ROWS_PER_BLOCK,
    ListingSummary,
    list_sources,
)
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import Input, resolve_inputs
from beam_pipeline.pipeline import placing, stages
from beam_pipeline.pipeline.job import Job
from beam_pipeline.pipeline.placing import IndexClips
from beam_pipeline.pipeline.stages import (
    LISTING,
    REJECTS,
    ListSources,
    ProbeAudio,
)
from beam_pipeline.plan import corpus, order
from beam_pipeline.plan import segments as plan_segments
from beam_pipeline.plan import shards as plan_shards
from beam_pipeline.plan import summary as plan_summary
from beam_pipeline.plan.batch import Batch
from beam_pipeline.plan.clips import Clip, Reject
from beam_pipeline.plan.order import (
    ROWS_PER_LISTED_BUCKET,
    PlacedClips,
    bucket_of,
    order_key,
)
from beam_pipeline.plan.prober import Prober
from beam_pipeline.plan.segments import cut_segments
from beam_pipeline.plan.shards import ShardLayout
from beam_pipeline.recipe.recipe import Recipe
from tests.sounds import RATE, write_sound


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


def clip(row, windows=1, filepath=None, source=0, split="records", label="a"):
    name = f"a/{row}.wav" if filepath is None else filepath
    sizes = (windows * 100, RATE, 1, "WAV", "PCM_16", RATE, windows * 100, windows)
    return Clip(row, source, name, label, split, *sizes)


# ListSources, ProbeAudio


@pytest.mark.runs
@pytest.mark.parametrize(
    "count", [0, 1, ROWS_PER_BLOCK - 1, ROWS_PER_BLOCK, ROWS_PER_BLOCK + 1]
)
def test_listing_in_blocks(tmp_path, count):
    (tmp_path / "notes.md").touch()
    for i in range(count):
        (tmp_path / f"{i}.wav").touch()
    inputs = tuple(resolve_inputs([str(tmp_path)]))
    rows = [row for row in list_sources(inputs, Recipe(win_len=1)) if row is not None]
    assert len(rows) == count
    blocks = [
        (number, Batch(rows[at : at + ROWS_PER_BLOCK]))
        for number, at in enumerate(range(0, count, ROWS_PER_BLOCK))
    ]

    def build(source):
        listed = source | beam.ParDo(
            ListSources(a_job(inputs, Recipe(win_len=1)))
        ).with_outputs(LISTING, main="rows")
        return [(listed.rows, blocks), (listed[LISTING], [ListingSummary(count, 1)])]

    counters = run([inputs], build)
    assert (counters["clips_listed"], counters["files_ignored"]) == (count, 1)


@pytest.mark.runs
def test_probing_gives_clips_and_rejects(tmp_path):
    write_sound(tmp_path / "good.wav", 1050, channels=2)
    write_sound(tmp_path / "short.wav", 99)
    write_sound(tmp_path / "fits.wav", 100)
    whole = (tmp_path / "good.wav").read_bytes()
    (tmp_path / "truncated.wav").write_bytes(whole[:-400])
    (tmp_path / "text.wav").write_text("no sound at all")
    (tmp_path / "empty.wav").touch()
    (tmp_path / "link.wav").symlink_to(tmp_path / "nowhere.wav")
    (tmp_path / "folder.wav").mkdir()
    names = ["good", "short", "fits", "truncated", "text", "empty", "link", "folder"]
    rows = [SourceRow(i, 0, f"{name}.wav", "a") for i, name in enumerate(names)]
    rows.append(SourceRow(8, 0, "good.wav", None, "has no class"))
    recipe = Recipe(win_len=100)
    example_format = ("WAV", "PCM_16", RATE)
    good, fits = ((tmp_path / f"{n}.wav").stat().st_mtime_ns for n in ("good", "fits"))
    clips = [
        Clip(
            0,
            0,
            "good.wav",
            "a",
            "records",
            1050,
            RATE,
            2,
            *example_format,
            1050,
            10,
            good,
        ),
        Clip(
            2,
            0,
            "fits.wav",
            "a",
            "records",
            100,
            RATE,
            1,
            *example_format,
            100,
            1,
            fits,
        ),
    ]
    rejects = [
        (1, "short.wav", "probe", "ShortClip"),
        (3, "truncated.wav", "probe", "TruncatedAudio"),
        (4, "text.wav", "probe", "UnreadableAudio"),
        (5, "empty.wav", "probe", "UnreadableAudio"),
        (6, "link.wav", "probe", "UnreadableAudio"),
        (7, "folder.wav", "probe", "UnreadableAudio"),
        (8, "good.wav", "sources", "UnusableEntry"),
    ]

    def build(keyed):
        inputs = tuple(resolve_inputs([str(tmp_path)]))
        probe_audio = beam.ParDo(
            ProbeAudio(a_job(inputs, recipe)), ListingSummary(9, 0)
        )
        probed = keyed | probe_audio.with_outputs(REJECTS, main="clips")
        short = probed[REJECTS] | beam.Map(lambda reject: tuple(reject[:4]))
        return [(probed.clips | beam.FlatMap(list), clips), (short, rejects)]

    counters = run([(0, [rows[:3], rows[3:]])], build)
    assert counters["rejected_UnreadableAudio"] == 4
    assert counters["rejected_ShortClip"] == 1


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


def test_probing_checks_the_channel(tmp_path):
    write_sound(tmp_path / "x.wav", 1050, channels=2)
    inputs = resolve_inputs([str(tmp_path)])
    row = SourceRow(0, 0, "x.wav", "a")
    for number in (0, 1):
        assert isinstance(
            Prober(inputs, Recipe(win_len=9, channels=number)).probe(row), Clip
        )
    found = Prober(inputs, Recipe(win_len=9, channels=2)).probe(row)
    assert isinstance(found, Reject)


# IndexClips


def some_clips(count, splits=("records",), step=1, seed=0):
    rng = np.random.default_rng(seed)
    return [
        clip(
            step * row, int(rng.integers(1, 9)), split=splits[rng.integers(len(splits))]
        )
        for row in range(count)
    ]


def index_oracle(clips, recipe):
    """Clips in order, in buckets, with the windows before each; one split a time."""
    placed = []
    for split in sorted({c.split for c in clips}):
        ordered = sorted(
            (c for c in clips if c.split == split),
            key=lambda c: (order_key(c, recipe.shards), c.row),
        )
        before = 0
        for bucket, group in groupby(
            ordered, key=lambda c: bucket_of(c, recipe.shards)
        ):
            some = tuple(group)
            placed.append(PlacedClips(split, bucket, before, some))
            before += sum(c.examples for c in some)
    return placed


def index(clips, recipe):
    """What IndexClips must give for clips that come in blocks of seven."""
    placed = index_oracle(clips, recipe)
    counts = [((p.split, p.bucket), sum(c.examples for c in p.clips)) for p in placed]

    def build(blocks):
        found, counted = blocks | IndexClips(recipe.shards)
        return [(found, placed), (counted, counts)]

    blocks = [Batch(clips[at : at + 7]) for at in range(0, len(clips), 7)]
    run([*blocks, Batch(())], build)


@pytest.mark.runs
@pytest.mark.parametrize("count", [0, 1, 2, 700])
def test_shuffled_clips_are_indexed_as_by_one_process(count):
    index(some_clips(count, ("eval", "train")), Recipe(win_len=100, seed=5))


@pytest.mark.runs
@pytest.mark.parametrize("held", [1, 7, 8, 100])
def test_buckets_are_whole_however_few_clips_wait(monkeypatch, held):
    monkeypatch.setattr(order, "CLIPS_HELD", held)
    index(some_clips(50, ("eval", "train")), Recipe(win_len=100, seed=5))


@pytest.mark.runs
def test_clips_of_a_bucket_cross_the_shuffle_together(monkeypatch):
    clips = some_clips(60)
    recipe = Recipe(win_len=100, order="listed")  # all in one bucket
    monkeypatch.setattr(order, "CLIPS_HELD", 21)

    def build(blocks):
        keyed = blocks | beam.ParDo(placing.KeyByBucket(recipe.shards))
        wanted = [
            (("records", 0), Batch(clips[at : at + 21])) for at in range(0, 60, 21)
        ]
        return [(keyed, wanted)]

    run([Batch(clips[at : at + 7]) for at in range(0, 60, 7)], build)


@pytest.mark.runs
def test_listed_clips_are_indexed_as_by_one_process():
    clips = some_clips(60, step=ROWS_PER_LISTED_BUCKET // 8)
    index(clips[::-1], Recipe(win_len=100, order="listed"))


# From placed clips to tasks


@pytest.mark.runs
@pytest.mark.parametrize("per_file", [1, 7, 100])
def test_tasks_hold_every_window_once_in_order(per_file):
    recipe = Recipe(win_len=100, seed=1, elements_per_file=per_file, num_elems=90)
    clips = some_clips(60, ("eval", "train"))
    counts = Counter()
    for c in clips:
        counts[c.split] += c.examples
    layouts = {s: ShardLayout.of(s, n, 1000, recipe) for s, n in counts.items()}
    wanted = []
    for split in layouts:
        windows = [
            (c.row, k)
            for placed in index_oracle(clips, recipe)
            if placed.split == split
            for c in placed.clips
            for k in range(c.examples)
        ][:90]
        names = [f"{split}-{k:05d}" for k in range(-(-len(windows) // per_file))]
        wanted += [
            (name, windows[k * per_file : (k + 1) * per_file])
            for k, name in enumerate(names)
        ]

    def spell_out(work):
        assert work.example_format == "its format"
        task, at, windows = work.task, 0, []
        for segment in task.segments:
            assert segment.position == at
            at += segment.examples
            windows += [
                (segment.clip.row, segment.first + i) for i in range(segment.examples)
            ]
        assert at == task.shard.examples
        return task.shard.name.split("/")[1][:-9], windows

    def build(blocks):
        placed, _ = blocks | IndexClips(recipe.shards)
        tasks = (
            placed
            | beam.FlatMap(plan_segments.cut_shards, layouts, recipe)
            | beam.GroupByKey()
            | beam.Map(plan_segments.make_task, "its format", "salt")
        )
        return [(tasks | beam.Map(spell_out), wanted)]

    run([Batch(clips)], build)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(1, 9), st.sampled_from("ab"), st.sampled_from([8, 16])),
        max_size=9,
    ),
    st.integers(0, 20),
    st.integers(1, 60),
)
def test_tallies_count_what_segments_hold(sizes, first, total):
    clips = tuple(
        clip(row, windows, label=label)._replace(sample_rate_hz=rate)
        for row, (windows, label, rate) in enumerate(sizes)
    )
    placed = PlacedClips("records", 0, first, clips)
    layout = ShardLayout("records", total, -(-total // 4), 4)
    windows, rows = Counter(), {}
    for _, segment in cut_segments(placed, layout):
        key = ("records", segment.clip.label, segment.clip.sample_rate_hz)
        windows[key] += segment.examples
        rows.setdefault(key, set()).add(segment.clip.row)
    recipe = Recipe(win_len=1)
    found, by_event, dropped, *_ = plan_summary.tally_bucket(
        placed, {"records": layout}, None, recipe
    )
    assert by_event == dropped == {}
    assert {key: pair for key, pair in found.items() if pair != (0, 0)} == {
        key: (len(rows[key]), n) for key, n in windows.items()
    }


def test_the_corpus_is_what_all_buckets_hold():
    recipe = Recipe(win_len=100)
    clips = [clip(0, label="b"), clip(1, label="a"), clip(2, label="b")]
    corpora = [corpus.describe_clips(some, recipe) for some in (clips[:2], clips[2:])]
    job = a_job([Input("folder", "", "")], recipe)
    example_format = stages.resolve_job_format(None, corpora, job, ListingSummary(3, 0))
    assert example_format.classes == ("a", "b")
    assert example_format.rates_hz == {RATE: 3}
    assert stages.resolve_job_format(None, [], job, ListingSummary(0, 0)) is None


@pytest.mark.parametrize("splits", [(), ("records",), ("eval", "train")])
def test_layouts_add_up_the_buckets_of_each_split(splits):
    recipe = Recipe(win_len=100, elements_per_file=4)
    example_format = (
        ExampleFormat.of(Corpus((), {RATE: 1}, {1: 1}), recipe) if splits else None
    )
    counts = {(split, bucket): 5 for split in splits for bucket in range(3)}
    found = plan_shards.lay_out(None, counts, example_format, recipe)
    per_member = example_format and found[splits[0]].per_member
    assert found == {
        split: ShardLayout(split, 15, 4, 4, per_member) for split in splits
    }


def test_tallies_of_all_buckets_add_up():
    key, other = ("records", "a", RATE), ("records", "b", RATE)
    audio = ("records", RATE)
    layouts = {"records": ShardLayout("records", 9, 1, 9)}
    left_out = {"short": ShardLayout("short", 0, 0, 9)}
    tallies = [
        plan_summary.BucketTally({key: (1, 2)}, {}, {key: 1}, {audio: 5}, {}, {key: 7}),
        plan_summary.BucketTally({}, {}, {}, {}, {"too_long": 2}, {}),
        plan_summary.BucketTally(
            {key: (2, 3), other: (1, 4)},
            {},
            {key: 1, other: 3},
            {audio: RATE},
            {"too_long": 1, "too_short": 1},
            {key: 1, other: 2},
        ),
    ]
    summary = plan_summary.summarise(
        None,
        ListingSummary(4, 0),
        None,
        {**layouts, **left_out},
        tallies,
        None,
        {"records": 0.5, "test": 0.5},
    )
    assert summary.empty == ("test",)
    assert summary.tally == {key: (3, 5), other: (1, 4)}
    assert summary.dropped == {key: 2, other: 3}
    assert summary.frames == {key: 8, other: 2}
    assert summary.audio_seconds("records") == (RATE + 5) / RATE
    assert summary.audio_seconds("test") == 0
    assert summary.left_out == {"too_long": 3, "too_short": 1}
    assert summary.layouts == layouts


@pytest.mark.runs
def test_side_inputs_reach_the_steps_as_in_the_pipeline(tmp_path):
    """Format and counts as singletons and dicts, not as constants."""
    recipe = Recipe(win_len=100)
    clips = [clip(0, 3), clip(1, 4)]

    def build(blocks):
        _, counts = blocks | IndexClips(recipe.shards)
        once = blocks.pipeline | "Once" >> beam.Create([None], reshuffle=False)
        corpora = blocks | beam.Map(corpus.describe_clips, recipe)
        example_format = once | beam.Map(
            stages.resolve_job_format, beam.pvalue.AsIter(corpora),
            a_job([Input("folder", "", "")], recipe), ListingSummary(2, 0),
        )  # fmt: skip
        layouts = once | "LayOut" >> beam.Map(
            plan_shards.lay_out,
            AsDict(counts),
            AsSingleton(example_format),
            recipe,
        )
        size = ExampleFormat.of(Corpus(("a",), {RATE: 2}, {1: 2}), recipe)
        wanted = ShardLayout.of("records", 7, example_bytes(size.features), recipe)
        return [(layouts, [{"records": wanted}])]

    run([Batch(clips)], build)
