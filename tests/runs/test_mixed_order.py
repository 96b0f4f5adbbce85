"""``--order mixed``: the same examples, and neighbours from different clips."""

import itertools

import numpy as np
import pytest

from beam_pipeline import Metadata, open_records, record, verify
from beam_pipeline.read.window_table import summarise_windows
from tests.data_sets import contents
from tests.pipelines import exact
from tests.sounds import RATE, write_samples, write_sound

SHARES = {"train": 0.7, "eval": 0.3}
OPTIONS = {
    "win_len": 400, "hop": 300, "splits": SHARES, "elements_per_file": 50,
    "member_bytes": 4000, "keep": "energy(above_db=-30)", "augment": "noise",
    "copies": 1, "mark_padding": True, "tail": "pad", "order": "mixed",
}  # fmt: skip
CLIPS = 9


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    """Clips of 1 to 1.8 s, of which a stretch is too quiet to be kept."""
    folder = tmp_path_factory.mktemp("mixed") / "sounds"
    for k in range(CLIPS):
        path = folder / "ab"[k % 2] / f"{k}.wav"
        sound = write_sound(path, RATE + 800 * k, seed=k)
        sound[3000:4500] = 0
        write_samples(path, sound, RATE)
    return folder


@pytest.fixture(scope="module")
def mixed(sounds):
    record(sounds, sounds.parent / "mixed", workers=2, **OPTIONS)
    return sounds.parent / "mixed"


@pytest.fixture(scope="module")
def shuffled(sounds):
    record(sounds, sounds.parent / "shuffled", **{**OPTIONS, "order": "shuffled"})
    return sounds.parent / "shuffled"


def examples(folder, split):
    return (exact(dict(example)) for example in open_records(folder, split))


def test_an_engine_gives_the_same_bytes(sounds, mixed, tmp_path):
    record(sounds, tmp_path / "out", beam_args=["--runner=FnApiRunner"], **OPTIONS)
    assert contents(mixed) == contents(tmp_path / "out")


def test_the_examples_are_those_of_shuffled_clips(mixed, shuffled):
    one, other = (Metadata.load(folder) for folder in (mixed, shuffled))
    assert one.recipe.examples_are_mixed
    for split, entry in one.splits.items():
        wanted = list(examples(shuffled, split))
        found = list(examples(mixed, split))
        assert found != wanted
        assert sorted(map(repr, found)) == sorted(map(repr, wanted))
        theirs = other.splits[split]
        assert entry.examples_per_class == theirs.examples_per_class
        assert (entry.clips, entry.left_out) == (theirs.clips, theirs.left_out)
        assert entry.seconds == theirs.seconds
    summaries = (
        summarise_windows(str(mixed), one),
        summarise_windows(str(shuffled), other),
    )
    assert summaries[0] == summaries[1]


def test_neighbours_come_from_different_clips(mixed, shuffled):
    def share_of_equal_neighbours(folder):
        names = [example["filepath"] for example in open_records(folder, "train")]
        return np.mean([a == b for a, b in itertools.pairwise(names)]), len({*names})

    share, clips = share_of_equal_neighbours(mixed)
    assert share < 2.5 / clips  # by chance, 1 / clips of them
    assert share_of_equal_neighbours(shuffled)[0] > 0.9


@pytest.mark.parametrize(
    "changes",
    [
        {"num_elems": 41},
        {"sample_rate": 6000, "keep": "", "win_len": 300, "hop": 300},
        {"windows_at": "peaks(above_db=-40,min_gap_s=0.1)", "hop": None, "tail": "drop",
         "mark_padding": False},
        {"stream": "high_pass(cutoff_hz=50)", "num_shards": 3,
         "elements_per_file": None},
        {"win_len": "clip", "hop": None, "tail": "drop", "mark_padding": False,
         "copies": 0, "augment": ""},
    ],
)  # fmt: skip
def test_windows_of_every_kind(sounds, tmp_path, changes):
    options = {**OPTIONS, **changes}
    record(sounds, tmp_path / "out", **options)
    assert verify(tmp_path / "out", deep=True, input=sounds, sample=60) == []
    record(sounds, tmp_path / "other", **{**options, "order": "shuffled"})
    for split in SHARES:
        if not changes.keys() & {"sample_rate"}:  # its last bits depend on segments
            found = sorted(map(repr, examples(tmp_path / "out", split)))
            assert found == sorted(map(repr, examples(tmp_path / "other", split)))
