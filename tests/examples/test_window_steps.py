"""Left-out windows and augmented copies: as functions, and in whole runs."""

import sys
from dataclasses import dataclass

import numpy as np
import pytest

from beam_pipeline import plan, record
from beam_pipeline.errors import (
    InputError,
    RecipeError,
    TooManyRejected,
    TransformError,
)
from beam_pipeline.examples.features import FeatureSet
from beam_pipeline.examples.window_steps import (
    Origins,
    WindowSteps,
    clip_bits,
    copy_numbers,
    run_on_windows,
)
from beam_pipeline.planning.clips import copies_in
from beam_pipeline.read.replay import replay
from beam_pipeline.recipe.recipe import Recipe
from tests.data_sets import examples_in, rejects_in
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_samples
from tests.transform_checks import noise


@dataclass(frozen=True)
class Broken:
    """Works on silence alone."""

    def keep(self, windows, sample_rate_hz):
        if windows.any():
            raise ValueError("no")
        return np.ones(len(windows), bool)


@dataclass(frozen=True)
class Never:
    def keep(self, windows, sample_rate_hz):
        return np.zeros(len(windows), bool)


@dataclass(frozen=True)
class Number:
    """Writes each window's random key into it."""

    def augment(self, windows, keys, sample_rate_hz):
        out = windows.copy()
        out[..., 0] = (keys >> np.uint64(40)).astype(np.float32) / 2**24
        return out


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Six clips; every second window of 100 frames is silent."""
    rng, folder = np.random.default_rng(0), tmp_path_factory.mktemp("augmentation")
    for i in range(6):
        sound = 0.1 * rng.standard_normal(100 * (i + 3))
        for window in range(i % 2, i + 3, 2):
            sound[100 * window : 100 * window + 100] = 0
        write_samples(folder / "in" / "ab"[i % 2] / f"{i}.wav", sound)
    return folder / "in"


@pytest.mark.parametrize(
    ("split", "copies"), [("train", 2), ("records", 2), ("eval", 0), ("test", 0)]
)
def test_copies_are_for_training(split, copies):
    recipe = Recipe(win_len=1, copies=2, augment="noise()")
    assert copies_in(recipe.copies, split) == copies


def test_silent_windows_are_left_out_and_counted(corpus, tmp_path):
    metadata = record(
        str(corpus), str(tmp_path / "out"), win_len=100, keep="energy(above_db=-60)",
        order="listed", elements_per_file=4,
    )  # fmt: skip
    everything = record(str(corpus), str(tmp_path / "all"), win_len=100, order="listed")
    (entry,) = metadata.splits.values()
    (whole,) = everything.splits.values()
    loud = [e for e in examples_in(tmp_path / "all") if e["signal"].any()]
    found = examples_in(tmp_path / "out")
    assert entry.examples == len(found) == len(loud) == 15
    assert entry.left_out == whole.examples - 15 == 18
    for a, b in zip(found, loud, strict=True):
        assert a["win_start_idx"] == b["win_start_idx"]
        np.testing.assert_array_equal(a["signal"], b["signal"])
    assert sum(entry.examples_per_class.values()) == 15
    assert sum(entry.seconds_per_class.values()) == pytest.approx(1500 / RATE)
    assert entry.seconds == pytest.approx(1500 / RATE)
    assert entry.statistics["windows"]["silent_windows"] == 0
    assert whole.statistics["windows"]["silent_windows"] == 18


def test_a_shard_may_be_empty(tmp_path):
    sound = np.zeros(800)
    sound[:100] = 0.5
    write_samples(tmp_path / "in" / "a" / "x.wav", sound)
    options = {"win_len": 100, "keep": "peak()", "elements_per_file": 2}
    metadata = record(str(tmp_path / "in"), str(tmp_path / "out"), **options)
    (entry,) = metadata.splits.values()
    assert [shard.examples for shard in entry.shards] == [1, 0, 0, 0]
    assert len(examples_in(tmp_path / "out")) == 1
    assert len(list(replay(str(tmp_path / "out"), shuffle=True, batch_size=3))) == 1


@pytest.mark.parametrize(("options", "facts"), [
    ({}, [33, "--keep"]), ({"num_elems": 2}, [2, "--keep", "--overwrite"]),
])  # fmt: skip
def test_a_selection_that_leaves_no_window_is_an_error(
    corpus, tmp_path, options, facts
):
    with raises(InputError, naming=facts):
        record(corpus, tmp_path / "out", win_len=100, keep=Never(), **options)
    assert not (tmp_path / "out" / "metadata.json").exists()


def test_copies_follow_their_window(corpus, tmp_path):
    """And more copies do not change the first ones."""
    options = {"win_len": 100, "augment": "random_gain(low_db=-12,high_db=-1)",
               "order": "listed"}  # fmt: skip
    for copies in (2, 3):
        metadata = record(corpus, tmp_path / str(copies), copies=copies, **options)
    (entry,) = metadata.splits.values()
    found = examples_in(tmp_path / "3")
    assert entry.examples == len(found) == 4 * 33
    assert [example["copy"] for example in found] == [0, 1, 2, 3] * 33
    ratios = set()
    for original, *copies in (found[i : i + 4] for i in range(0, len(found), 4)):
        for copy in copies:
            assert copy["win_start_idx"] == original["win_start_idx"]
            if original["signal"].any():
                ratio = copy["signal"] / original["signal"]
                assert np.ptp(ratio) < 1e-5
                assert 10 ** (-12 / 20) < ratio[0] < 10 ** (-1 / 20)
                ratios.add(round(float(ratio[0]), 5))
    assert len(ratios) == 3 * 15
    assert metadata.features["copy"].dtype == "int64"
    fewer = [e["signal"].tobytes() for e in examples_in(tmp_path / "2")]
    assert fewer == [e["signal"].tobytes() for e in found if e["copy"] < 3]


def test_the_seed_and_the_step_change_what_is_random():
    windows = np.ones((2, 3), np.float32)
    numbers = np.arange(2)
    keys = set()
    for seed in (0, 1):
        for augmentations in ((Number(),), (Number(), Number())):
            made = WindowSteps((), augmentations, seed)
            bits = clip_bits(seed, "a.wav", 0)
            of = Origins("a.wav", RATE, numbers, numbers, numbers, bits)
            out = made.augmented(windows, of)
            keys.update(out[:, 0].tolist())
    assert len(keys) == 8
    assert not out.flags.writeable


def test_clips_that_fail_are_rejects(corpus, tmp_path):
    with raises(TooManyRejected, naming=6):
        record(corpus, tmp_path / "out", win_len=100, keep=Broken())
    rejects = rejects_in(tmp_path / "out")
    assert {reject["stage"] for reject in rejects} == {"select_and_augment"}
    facts = ["keep", "Broken", "frame 100", "ValueError: no"]
    assert_names(rejects[0]["reason"], *facts)


@pytest.mark.parametrize(("options", "field", "value"), [
    ({"copies": 1}, "copies and augment", (1, "")),
    ({"augment": "noise()"}, "copies and augment", (0, "noise()")),
    ({"copies": -1, "augment": "noise()"}, "copies", -1),
    ({"copies": True, "augment": "noise()"}, "copies", True),
    ({"keep": "log_mel()"}, "keep", "log_mel()"), ({"keep": 5}, "keep", 5),
    ({"copies": 1, "augment": "energy()"}, "augment", "energy()"),
    ({"stream": "log_mel()"}, "stream", "log_mel()"),
    ({"features": {"copy": "identity()"}}, "features", "copy"),
])  # fmt: skip
def test_invalid_options_are_refused(corpus, options, field, value):
    with raises(RecipeError, field, value):
        plan(str(corpus), win_len=100, **options)


@pytest.mark.parametrize(("make", "options", "names"), [
    (str, {"splits": "training=1,test=1"}, ["training", "test"]),
    (str, {"splits": "Train=1"}, ["Train"]),
    (lambda corpus: {"b": str(corpus)}, {}, ["b"]),
    (lambda corpus: [{"path": str(corpus / "a" / "0.wav"), "part": "a"}],
     {"split_column": "part"}, ["a"])])  # fmt: skip
def test_copies_need_a_split_that_has_them(corpus, make, options, names):
    with raises(RecipeError, "copies", 1, naming=["train", *names]):
        plan(make(corpus), win_len=100, copies=1, augment="noise()", **options)


def exits_on_large_keys(windows, keys):
    if keys.max() >= 2:
        sys.exit(f"{len(windows)} windows")


def fails_together(windows, keys):
    if len(windows) > 1:
        raise ValueError(f"{len(keys)} windows")


@pytest.mark.parametrize(("run", "facts"), [
    # The cause is that of the first call, with all windows.
    (exits_on_large_keys, ["window at frame 120", "SystemExit: 4 windows"]),
    (fails_together, ["100", "130", "together", "ValueError: 4 windows"]),
])  # fmt: skip
def test_a_step_that_fails_on_sound(run, facts):
    with raises(TransformError, path="a.wav", naming=["feature x", *facts]):
        arrays = np.ones((4, 3), np.float32), np.arange(4)
        run_on_windows(run, arrays, "feature x", np.arange(100, 140, 10), "a.wav")


STARTS = np.arange(0, 40, 10)


@dataclass(frozen=True)
class Stamp:
    """Writes the key of a copy into its first value."""

    how: str = "right"

    def __call__(self, windows):
        return windows[:, :3]

    def on_copies(self, features, keys, sample_rate_hz):
        assert sample_rate_hz == RATE
        out = features.copy()
        out[:, 0] = (keys >> np.uint64(40)).astype(np.float32)
        return {"right": out, "type": out.astype("f8"), "shape": out[:, :2]}[self.how]


def features_of(**expressions):
    named = {n: text.replace("Stamp", f"{__name__}.Stamp")
             for n, text in expressions.items()}  # fmt: skip
    recipe = Recipe(win_len=10, features=named, copies=2)
    return FeatureSet.of(recipe, (10,), RATE)


def origins_of(copies, windows=(7, 7, 7, 8), path="a.wav", seed=0):
    copies = np.array(copies)
    numbers = copy_numbers(np.array(windows), copies)
    bits = clip_bits(seed, path, 0)
    return Origins("a.wav", RATE, STARTS, copies, numbers, bits)


def apply(features, of):
    return features.apply(noise(4, 10), of)[0]


def test_only_copies_change_and_each_has_a_key_of_its_own():
    features = features_of(x="Stamp()", y="Stamp()")
    plain = noise(4, 10)[:, :3]
    found = apply(features, origins_of([0, 1, 2, 1]))
    keys = set()
    for name in "xy":
        np.testing.assert_array_equal(found[name][0], plain[0])
        np.testing.assert_array_equal(found[name][:, 1:], plain[:, 1:])
        keys.update(found[name][1:, 0].tolist())
    for other in (
        origins_of([0, 1, 2, 1], path="b.wav"),
        origins_of([0, 1, 2, 1], seed=1),
    ):
        keys.update(apply(features, other)["x"][1:, 0].tolist())
    assert len(keys) == 4 * 3
    assert not keys & {*plain[:, 0].tolist()}


@pytest.mark.parametrize("how", ["type", "shape"])
def test_copies_of_another_type_or_shape_are_refused(how):
    features = features_of(x=f"Stamp(how={how!r})")
    with raises(
        TransformError, path="a.wav", naming=["feature x", "frame 10", "Stamp"]
    ):
        apply(features, origins_of([0, 1, 2, 1]))
