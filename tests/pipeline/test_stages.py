"""stages.py: each step in Beam's in-memory runner, against a loop in one process."""

import apache_beam as beam
import pytest
from apache_beam.metrics import MetricsFilter
from apache_beam.runners.portability.fn_api_runner import FnApiRunner
from apache_beam.testing.util import assert_that, equal_to

from beam_pipeline.inputs.listing import (
    ROWS_PER_BLOCK,
    ListingSummary,
    list_sources,
)
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.pipeline.job import Job
from beam_pipeline.pipeline.stages import (
    LISTING,
    ListSources,
    ProbeClips,
)
from beam_pipeline.plan.clips import Clip, Reject
from beam_pipeline.plan.prober import Prober
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.pages import Batch, Pages
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


# ListSources, ProbeClips


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

    inputs = tuple(resolve_inputs([str(tmp_path)]))
    job = Job(inputs, "", str(tmp_path / "work"), recipe)

    def build(keyed):
        pages = keyed | beam.ParDo(ProbeClips(job))
        read = pages | beam.FlatMap(lambda page: Pages(job.plan_folder(), [page]))
        short = read | beam.FlatMap(lambda both: [reject[:4] for reject in both[1]])
        return [(read | beam.FlatMap(lambda both: both[0]), clips), (short, rejects)]

    counters = run([(0, [rows[:3], rows[3:]])], build)
    assert counters["clips"] == 2
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
