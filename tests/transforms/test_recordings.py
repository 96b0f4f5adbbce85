"""Rooms and backgrounds from folders: against slow sums, and in whole runs."""

import numpy as np
import pytest
import soundfile

from beam_pipeline.errors import RecipeError
from beam_pipeline.examples.window_steps import load_sounds
from beam_pipeline.recipe.canonical import hash_sounds
from beam_pipeline.transforms import Background, Reverb
from beam_pipeline.transforms.augment import Sound, draw
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


@pytest.mark.parametrize("wet", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("frames", [1, 50, 299, 300, 301, 2000])
def test_a_room_is_a_convolution_from_the_direct_sound_on(wet, frames):
    windows, keys = noise(8, frames), random_keys(8)
    step = Reverb(folder="x", wet=wet).with_sounds(ROOMS)
    out = step.augment(windows, keys, RATE)
    chosen = np.floor(draw(keys, 0) * 2).astype(int).tolist()
    assert set(chosen) == {0, 1}
    for x, y, number in zip(windows, out, chosen, strict=True):
        response = ROOMS[number].samples.astype(np.float64)[0 if number else 20 :]
        room = np.convolve(x.astype(np.float64), response)[:frames]
        room *= rms(x) / rms(room)
        np.testing.assert_allclose(y, (1 - wet) * x + wet * room, rtol=0, atol=1e-6)
        if wet == 1:
            assert rms(y) == pytest.approx(rms(x), rel=1e-6)


@pytest.mark.parametrize("shape", [(600,), (2, 700), (701,), (9001,)])
def test_a_background_is_a_stretch_at_the_ratio(shape):
    windows, keys = noise(40, *shape), random_keys(40)
    step = Background(folder="x", low_snr_db=-10, high_snr_db=30).with_sounds(NOISES)
    added = step.augment(windows, keys, RATE).astype(np.float64) - windows
    chosen = np.floor(draw(keys, 0) * 2).astype(int)
    snr_dbs = -10 + 40 * draw(keys, 2)
    firsts = []
    drawn = zip(chosen.tolist(), draw(keys, 1), snr_dbs, strict=True)
    for x, n, (number, share, snr_db) in zip(windows, added, drawn, strict=True):
        sound = NOISES[number].samples
        # A shorter sound repeats; a longer one has the window within it.
        longer = len(sound) - shape[-1] + 1
        first = int(share * (longer if longer > 0 else len(sound)))
        at = np.arange(first, first + shape[-1])
        assert at[-1] < len(sound) or len(sound) < shape[-1]
        stretch = sound[at % len(sound)].astype(np.float64)
        stretch = np.broadcast_to(stretch, shape)
        gain = rms(x) / rms(stretch) * 10 ** (snr_db / -20)
        np.testing.assert_allclose(n, stretch * gain, rtol=0, atol=2e-6)
        firsts.append((number, first))
    assert len(set(firsts)) > 15
    assert {number for number, _ in firsts} == {0, 1}


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


def test_folders_that_cannot_be_used(rooms):
    def loading(sha256=""):
        load_sounds.cache_clear()
        return load_sounds(str(rooms), sha256, RATE)

    with raises(RecipeError, "sha256", "0" * 64, naming=str(rooms)):
        loading("0" * 64)
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
