"""Rooms and backgrounds from folders: against slow sums, and in whole runs."""

import dataclasses

import numpy as np
import pytest
import soundfile

from beam_pipeline import Background, Recipe, Reverb, record
from beam_pipeline.dataset.job_start import Case
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import OutputError, RecipeError
from beam_pipeline.examples import sound_folders
from beam_pipeline.examples.sound_folders import load_sounds
from beam_pipeline.read.replay import replay
from beam_pipeline.recipe.canonical import canonical_recipe
from beam_pipeline.recipe.sound_folder import hash_sounds
from beam_pipeline.transforms.augment import Sound, draw
from beam_pipeline.transforms.steps import (
    AUGMENTATION,
    format_steps,
    parse_augment,
)
from tests.claims import start
from tests.raising import raises
from tests.transform_checks import noise
from tests.transforms.test_augment import random_keys, rms

RATE = 8000


def fading(frames, seed=0, delay=0):
    """An impulse response: silence, a direct sound, and a tail."""
    tail = noise(frames, seed=seed) * np.exp(-np.arange(frames) / 50, dtype=np.float32)
    tail[0] = 1
    return np.concatenate([np.zeros(delay, np.float32), tail])


ROOMS = [Sound("a.wav", fading(300, 1, 20)), Sound("b/c.wav", fading(5000, 2))]
NOISES = [Sound("a.wav", noise(9000, seed=3)), Sound("b.wav", noise(700, seed=4))]
ALL = [
    Reverb(folder="x").with_sounds(ROOMS),
    Reverb(folder="x", wet=0.3).with_sounds(ROOMS),
    Background(folder="x").with_sounds(NOISES),
]


@pytest.mark.parametrize("wet", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("frames", [1, 50, 299, 300, 301, 2000])
def test_a_room_is_a_convolution_from_the_direct_sound_on(wet, frames):
    windows, keys = noise(8, frames), random_keys(8)
    step = Reverb(folder="x", wet=wet).with_sounds(ROOMS)
    out = step.augment(windows, keys, RATE)
    files = step.drawn(keys, frames, RATE)["file"].tolist()
    assert set(files) == {"a.wav", "b/c.wav"}
    for x, y, file in zip(windows, out, files, strict=True):
        response = dict(ROOMS)[file].astype(np.float64)
        response = response[20:] if file == "a.wav" else response
        room = np.convolve(x.astype(np.float64), response)[:frames]
        room *= rms(x) / rms(room)
        np.testing.assert_allclose(y, (1 - wet) * x + wet * room, rtol=0, atol=1e-6)
        if wet == 1:
            assert rms(y) == pytest.approx(rms(x), rel=1e-6)


def test_the_channels_of_a_window_share_the_room_and_the_level():
    windows, keys = noise(3, 2, 1000) * np.float32([[[1], [0.1]]]), random_keys(3)
    step = ALL[0]
    out = step.augment(windows, keys, RATE)
    files = step.drawn(keys, 1000, RATE)["file"]
    for x, y, file in zip(windows, out, files, strict=True):
        response = dict(ROOMS)[str(file)].astype(np.float64)
        response = response[np.abs(response).argmax() :]
        rooms = np.stack([np.convolve(c, response)[:1000] for c in x.astype("f8")])
        np.testing.assert_allclose(y, rooms * (rms(x) / rms(rooms)), rtol=0, atol=1e-6)
        assert rms(y) == pytest.approx(rms(x), rel=1e-6)


def test_an_impulse_alone_changes_nothing():
    step = Reverb(folder="x").with_sounds([Sound("a", np.float32([0, -0.0, 0.5]))])
    windows = noise(4, 333)
    out = step.augment(windows, random_keys(4), RATE)
    np.testing.assert_allclose(out, windows, rtol=0, atol=1e-7)


@pytest.mark.parametrize("shape", [(600,), (2, 700), (701,), (9001,)])
def test_a_background_is_a_stretch_at_the_ratio(shape):
    windows, keys = noise(40, *shape), random_keys(40)
    step = Background(folder="x", low_snr_db=-10, high_snr_db=30).with_sounds(NOISES)
    added = step.augment(windows, keys, RATE).astype(np.float64) - windows
    drawn = step.drawn(keys, shape[-1], RATE)
    np.testing.assert_allclose(drawn["snr_db"], -10 + 40 * draw(keys, 2))
    firsts = []
    for x, n, file, first, snr_db in zip(windows, added, *drawn.values(), strict=True):
        sound = dict(NOISES)[str(file)]
        at = np.arange(first, first + shape[-1])
        assert at[-1] < len(sound) or len(sound) < shape[-1]
        stretch = sound[at % len(sound)].astype(np.float64)
        stretch = np.broadcast_to(stretch, shape)
        gain = rms(x) / rms(stretch) * 10 ** (snr_db / -20)
        np.testing.assert_allclose(n, stretch * gain, rtol=0, atol=2e-6)
        firsts.append((str(file), int(first)))
    assert len(set(firsts)) > 15
    assert {file for file, _ in firsts} == {"a.wav", "b.wav"}


def test_a_sound_as_long_as_the_window_has_one_stretch():
    step = Background(folder="x").with_sounds([Sound("a", noise(64))])
    assert not step.drawn(random_keys(50), 64, RATE)["first_frame"].any()
    assert set(step.drawn(random_keys(50), 63, RATE)["first_frame"]) == {0, 1}


def test_a_stretch_of_silence_adds_nothing():
    sound = np.zeros(500, np.float32)
    sound[0] = 1
    windows, keys = noise(30, 20), random_keys(30)
    step = Background(folder="x").with_sounds([Sound("a", sound)])
    out = step.augment(windows, keys, RATE)
    silent = step.drawn(keys, 20, RATE)["first_frame"] > 0
    np.testing.assert_array_equal(out[silent], windows[silent])


def test_text_stands_for_them():
    text = "reverb(folder='rooms',wet=0.5)|background(folder='it\\'s')"
    steps = parse_augment(text)
    assert steps == (Reverb(folder="rooms", wet=0.5), Background(folder="it's"))
    canonical = format_steps(steps, AUGMENTATION)
    assert canonical == (
        "reverb(folder='rooms',wet=0.5,sha256='')|"
        "background(folder=\"it's\",low_snr_db=0.0,high_snr_db=20.0,sha256='')"
    )
    assert parse_augment(canonical) == steps
    with pytest.raises(dataclasses.FrozenInstanceError):
        steps[0].wet = 1


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        (lambda: Background(folder="x", low_snr_db=30), "high_snr_db", 20.0),
        (
            lambda: Reverb(folder="x").augment(noise(1, 9), random_keys(1), RATE),
            "folder",
            "x",
        ),
    ],
)
def test_errors(make, field, value):
    with raises(RecipeError, field, value):
        make()


# Folders


@pytest.fixture
def rooms(tmp_path):
    folder = tmp_path / "rooms"
    (folder / "sub").mkdir(parents=True)
    (folder / "notes.txt").write_text("no audio")
    soundfile.write(folder / "b.wav", fading(200, 5), RATE, subtype="FLOAT")
    stereo = np.stack([fading(400, 6), fading(400, 7)], axis=1)
    soundfile.write(folder / "sub" / "a.wav", stereo, 2 * RATE, subtype="FLOAT")
    load_sounds.cache_clear()
    return folder


def test_sounds_are_mono_at_the_rate_in_the_order_of_names(rooms):
    first, second = load_sounds(str(rooms), hash_sounds(str(rooms)), RATE)
    assert (first.name, second.name) == ("b.wav", "sub/a.wav")
    np.testing.assert_array_equal(first.samples, fading(200, 5))
    assert second.samples.shape == (200,)
    (_, native) = load_sounds(str(rooms), "", 2 * RATE)
    mean = (fading(400, 6) + fading(400, 7)) / 2
    np.testing.assert_allclose(native.samples, mean, atol=1e-7)


def test_the_hash_is_of_names_and_contents_of_audio(rooms):
    before = hash_sounds(str(rooms))
    (rooms / "more.txt").write_text("no audio either")
    assert hash_sounds(str(rooms)) == before
    (rooms / "b.wav").rename(rooms / "c.wav")
    renamed = hash_sounds(str(rooms))
    assert renamed != before
    soundfile.write(rooms / "c.wav", fading(200, 8), RATE, subtype="FLOAT")
    assert hash_sounds(str(rooms)) not in (before, renamed)


def test_folders_that_cannot_be_used(rooms, monkeypatch):
    def loading(sha256=""):
        load_sounds.cache_clear()
        return load_sounds(str(rooms), sha256, RATE)

    with raises(RecipeError, "sha256", "0" * 64, naming=str(rooms)):
        loading("0" * 64)
    monkeypatch.setattr(sound_folders, "MOST_BYTES", 4 * 399)
    with raises(RecipeError, "folder", str(rooms), naming=["1596", "8000 Hz"]):
        loading()
    monkeypatch.undo()
    soundfile.write(rooms / "z.wav", np.zeros(100), RATE)
    with raises(RecipeError, "folder", str(rooms), naming=["z.wav", "silent"]):
        loading()
    (rooms / "z.wav").write_bytes(b"RIFF")
    with raises(RecipeError, "folder", str(rooms), naming="z.wav"):
        loading()
    for name in ("z.wav", "b.wav", "sub/a.wav"):
        (rooms / name).unlink()
    with raises(RecipeError, "folder", str(rooms), naming="no audio files"):
        loading()
    rooms.rename(rooms.parent / "moved")
    with raises(RecipeError, "folder", str(rooms), naming="no folder"):
        loading()


# Whole runs


@pytest.fixture
def corpus(tmp_path):
    for i in range(3):
        path = tmp_path / "in" / f"{i}.wav"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, noise(1600 + 400 * i, seed=i), RATE)
    return str(tmp_path / "in")


OPTIONS = {"win_len": 400, "hop": 200, "label_from": "none", "order": "listed",
           "copies": 2}  # fmt: skip


@pytest.mark.runs
def test_shards_blocks_and_workers_do_not_change_a_copy(
    corpus, rooms, tmp_path, monkeypatch
):
    augment = f"reverb(folder={str(rooms)!r})|background(folder={str(rooms)!r})"
    record(corpus, str(tmp_path / "a"), augment=augment, **OPTIONS)
    monkeypatch.setattr("beam_pipeline.write.blocks.BLOCK_BYTES", 4000)
    more = {"elements_per_file": 11, "workers": 2}
    record(corpus, str(tmp_path / "b"), augment=augment, **OPTIONS, **more)
    a, b = (list(replay(str(tmp_path / n)).as_numpy_iterator()) for n in "ab")
    assert len(a) == len(b) == 3 * (7 + 9 + 11)
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one["signal"], other["signal"])
    recipe = Metadata.load(str(tmp_path / "a")).recipe
    assert recipe.augment.count(hash_sounds(str(rooms))) == 2
    # The recipe repeats the data set, as long as the folder is the same.
    again = {"recipe": recipe, "overwrite": True}
    first = Metadata.load(str(tmp_path / "a"))
    assert record(corpus, str(tmp_path / "a"), **again) == first
    (rooms / "sub" / "a.wav").rename(rooms / "a.wav")
    with raises(RecipeError, "augment: reverb: sha256", naming=str(rooms)):
        record(corpus, str(tmp_path / "a"), **again)


def test_an_unfinished_run_does_not_continue_with_other_sounds(rooms, tmp_path):
    asked = Recipe(win_len=400, copies=1, augment=Reverb(folder=str(rooms)))
    for case in (Case.BEGIN, Case.CONTINUE):
        assert start(str(tmp_path / "out"), canonical_recipe(asked)) is case
    soundfile.write(rooms / "b.wav", fading(200, 9), RATE, subtype="FLOAT")
    with raises(OutputError, naming="`augment` was"):
        start(str(tmp_path / "out"), canonical_recipe(asked))
