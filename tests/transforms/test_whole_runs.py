"""Steps that know more than a window, in data sets: clips, copies, folders of sounds.

One data set is recorded plainly; another one in small blocks and many shards, by two
processes, with windows left out and more copies. What both have has to be the same.
"""

import numpy as np
import pytest
import soundfile

from beam_pipeline import Metadata, Recipe, open_records, plan, record
from beam_pipeline.dataset.job import Case
from beam_pipeline.errors import OutputError, RecipeError
from beam_pipeline.read.verify import verify
from beam_pipeline.recipe.canonical import canonical_recipe, hash_sounds
from beam_pipeline.transforms import Delta, Reverb
from beam_pipeline.transforms.clip_steps import CHUNK_FRAMES
from tests.claims import start
from tests.raising import raises
from tests.transform_checks import noise

RATE = 8000
MEL = "log_mel(n_fft=128,hop=64,n_mels=5)"
FEATURES = {
    "signal": "identity()",
    "plain": MEL,
    "clip": f"{MEL}|cmvn(over='clip')",
    "slopes": f"{MEL}|cmvn(over='clip',norm_vars=False)|delta(width=3)",
    "masked": f"{MEL}|spec_augment(max_bins=3)",
    "other": f"{MEL}|spec_augment(max_bins=3)",
}


def write(folder, sounds):
    folder.mkdir()
    for name, sound in sounds.items():
        soundfile.write(folder / f"{name}.wav", sound, RATE, subtype="FLOAT")
    return str(folder)


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    return tmp_path_factory.mktemp("steps")


@pytest.fixture(scope="module")
def corpus(places):
    lengths = {"a": CHUNK_FRAMES + 900, "b": 900, "c": 3100}
    clips = {n: noise(k) * (n > "a" or 0.5) for n, k in lengths.items()}
    return write(places / "in", clips)


@pytest.fixture(scope="module")
def rooms(places):
    return write(places / "rooms", {"x": noise(300, seed=1), "y": noise(2000, seed=2)})


@pytest.fixture(scope="module")
def recorded(places, corpus, rooms):
    """The examples of both data sets, by clip, place and copy."""
    options = {
        "win_len": 400, "hop": 310, "label_from": "none", "order": "listed",
        "stream": "clip_gain()|dither(amplitude=4)|high_pass(cutoff_hz=100)|"
        "clip_gain(level_db=-3)",
        "features": FEATURES, "copies": 1,
        "augment": f"reverb(folder={rooms!r})|background(folder={rooms!r})",
    }  # fmt: skip
    record(corpus, str(places / "a"), **options)
    more = {"elements_per_file": 131, "workers": 2, "copies": 2}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("beam_pipeline.write.shard.BLOCK_BYTES", 40_000)
        patch.setattr("beam_pipeline.planning.prober._BLOCK_FRAMES", 1000)
        record(corpus, str(places / "b"), **options | more, keep="peak(above_db=-6)")
    return [
        {(e["filepath"], int(e["win_start_idx"]), int(e["copy"])): e
         for e in open_records(places / name)}
        for name in "ab"
    ]  # fmt: skip


def test_shards_blocks_and_workers_do_not_change_an_example(recorded):
    every, some = recorded
    shared = every.keys() & some.keys()
    assert 100 < len(shared) < len(every)
    assert len(some) * 2 == len(shared) * 3
    for key in shared:
        for name in FEATURES:
            np.testing.assert_array_equal(some[key][name], every[key][name])


def test_overlapping_windows_have_the_same_samples(recorded):
    frames: dict[str, dict[int, float]] = {}
    for (path, first, copy), example in recorded[0].items():
        if not copy:
            held = frames.setdefault(path, {})
            for frame, value in enumerate(example["signal"].tolist(), first):
                assert held.setdefault(frame, value) == value
    levels = [max(map(abs, held.values())) for held in frames.values()]
    assert levels == pytest.approx([10 ** (-3 / 20)] * 3, rel=1e-2)


def test_each_clip_has_mean_0_and_deviation_1(recorded):
    clips: dict[str, list[dict]] = {}
    for (path, _, copy), example in recorded[0].items():
        if not copy:
            clips.setdefault(path, []).append(example)
    assert sorted(map(len, clips.values())) == [2, 9, 214]
    for examples in clips.values():
        plain = np.stack([e["plain"] for e in examples]).astype(np.float64)
        mean, std = plain.mean(axis=(0, 1)), plain.std(axis=(0, 1))
        for example, window in zip(examples, plain, strict=True):
            expected = (window - mean) / std
            np.testing.assert_allclose(example["clip"], expected, atol=2e-5)
            slopes = Delta(width=3)((window - mean)[np.newaxis].astype(np.float32))
            np.testing.assert_allclose(example["slopes"], slopes[0], atol=2e-5)


def test_only_copies_are_masked(recorded):
    masks, differ = set(), 0
    for (_, _, copy), example in recorded[0].items():
        masked = example["masked"] != example["plain"]
        assert masked.any() <= bool(copy)
        if copy:
            masks.add(masked.tobytes())
            differ += not np.array_equal(example["masked"], example["other"])
    assert len(masks) > 40
    assert differ > 40  # each feature has masks of its own


@pytest.mark.usefixtures("recorded")
def test_a_recipe_repeats_a_data_set_while_the_folder_is_the_same(places, rooms):
    source, folder = str(places / "in"), str(places / "a")
    assert verify(folder, deep=True, input=source, sample=20) == []
    first = Metadata.load(folder)
    assert first.recipe.augment.count(hash_sounds(rooms)) == 2
    again = {"recipe": first.recipe, "overwrite": True}
    (places / "rooms" / "x.wav").rename(places / "rooms" / "z.wav")
    with raises(RecipeError, "augment: reverb: sha256", naming=rooms):
        record(source, folder, **again)
    (places / "rooms" / "z.wav").rename(places / "rooms" / "x.wav")
    assert record(source, folder, **again) == first


def test_an_unfinished_run_does_not_continue_with_other_sounds(tmp_path):
    rooms = write(tmp_path / "rooms", {"b": noise(200)})
    asked = Recipe(win_len=400, copies=1, augment=Reverb(folder=rooms))
    for case in (Case.BEGIN, Case.CONTINUE):
        assert start(str(tmp_path / "out"), canonical_recipe(asked)) is case
    soundfile.write(tmp_path / "rooms" / "b.wav", noise(200, seed=9), RATE)
    with raises(OutputError, naming="`augment` was"):
        start(str(tmp_path / "out"), canonical_recipe(asked))


def test_masks_need_copies_and_copies_need_a_change(corpus):
    options = {"win_len": 600, "features": {"masked": FEATURES["masked"]}}
    with raises(RecipeError, "feature masked", 0, naming="copies"):
        plan(corpus, **options)
    with raises(RecipeError, "copies and augment", (1, ""), naming="spec_augment"):
        plan(corpus, win_len=600, copies=1)
    summary, _ = plan(corpus, copies=1, **options)
    assert summary.layouts["records"].total == 2 * (110 + 1 + 5)


@pytest.mark.parametrize(("feature", "naming"), [
    (f"{FEATURES['clip']}|cmvn(over='clip')", "2"),
    ("cmvn(over='clip')", "log_mel|cmvn"),
])  # fmt: skip
def test_measures_that_cannot_be(corpus, feature, naming):
    with raises(RecipeError, naming=naming):
        plan(corpus, win_len=2000, features={"x": feature})
