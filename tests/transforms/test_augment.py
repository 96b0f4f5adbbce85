"""Augmentations, and folders of sounds: against whole numbers and slow float64 sums."""

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.canonical import hash_sounds, load_sounds
from beam_pipeline.transforms import Background, Reverb, SpecAugment, augment
from beam_pipeline.transforms.augment import (
    Noise,
    RandomGain,
    RandomPolarity,
    Speed,
    TimeShift,
    draw,
)
from beam_pipeline.transforms.steps import AUGMENTATION, format_steps, parse_steps
from tests.raising import raises
from tests.transform_checks import Slower, noise

RATE = 16000


def random_keys(n, seed=0):
    return np.random.default_rng(seed).integers(0, 2**64, n, dtype=np.uint64)


def splitmix(key, k):
    """The k-th output of SplitMix64, in Python's whole numbers."""
    mask = 2**64 - 1
    z = (key + (k + 1) * 0x9E3779B97F4A7C15) & mask
    z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ z >> 27) * 0x94D049BB133111EB) & mask
    return z ^ z >> 31


def rms(x):
    return np.sqrt(np.mean(np.square(x, dtype=np.float64)))


# Draws


def test_uniforms_are_splitmix():
    keys = random_keys(50)
    expected = [(splitmix(0, key) >> 11) / 2**53 for key in keys.tolist()]
    np.testing.assert_array_equal(draw(keys), expected)
    ends = draw(np.array([0, 2**63, 2**64 - 1], np.uint64))
    assert ((ends >= 0) & (ends < 1)).all()


# Gain, polarity and shift


@given(low=st.floats(-100, 100), width=st.floats(0, 50))
def test_gains_are_uniform_in_db(low, width):
    high = min(low + width, 100.0)
    windows, keys = np.full((50, 2), 0.5, np.float32), random_keys(50)
    out = RandomGain(low_db=low, high_db=high).augment(windows, keys, RATE)
    gains_db = 20 * np.log10(out[:, 0] / 0.5, dtype=np.float64)
    expected = low + (high - low) * draw(keys)
    np.testing.assert_allclose(gains_db, expected, rtol=0, atol=1e-6)


def test_half_of_the_windows_are_inverted():
    windows, keys = np.tile(noise(1, 5), (10_000, 1)), random_keys(10_000)
    out = RandomPolarity().augment(windows, keys, RATE)
    signs = (out / windows).round(5)
    assert set(signs.ravel().tolist()) == {-1.0, 1.0}
    assert (signs == signs[:, :1]).all()
    assert abs((signs[:, 0] < 0).mean() - 0.5) < 0.025


@pytest.mark.parametrize("wrap", [False, True])
@pytest.mark.parametrize("most", [0, 1, 6])
def test_shifts(wrap, most):
    window = np.arange(1, 8, dtype=np.float32)
    windows, keys = np.tile(window, (400, 1)), random_keys(400)
    out = TimeShift(max_s=most / 8, wrap=wrap).augment(windows, keys, 8)
    padded = np.concatenate([np.zeros(7, "f4"), window, np.zeros(7, "f4")])
    shifts = range(-most, most + 1)
    possible = {
        (np.roll(window, s) if wrap else padded[7 - s : 14 - s]).tobytes()
        for s in shifts
    }
    assert {shifted.tobytes() for shifted in out} == possible


# Noise


def test_white_noise_is_a_sum_of_the_parts_of_a_word():
    expected = []
    for k in range(7, 40):
        word = splitmix(99, k)
        expected.append(sum(word >> 16 * i & 0xFFFF for i in range(4)) - 131070)
    assert augment.white_noise(99, 7, 40).tolist() == expected


def test_pink_noise_is_a_sum_of_held_octaves():
    keys = [splitmix(5, k) for k in range(13)]
    offset = keys[12] % 2048
    rows = [augment.white_noise(key, 0, 8000) for key in keys[:12]]
    expected = [
        sum(int(rows[k][t + offset >> k]) for k in range(12)) for t in range(3, 3000)
    ]
    assert augment._pink(5, 3, 3000).tolist() == expected


@pytest.mark.parametrize("color", ["white", "pink"])
@pytest.mark.parametrize("shape", [(4000,), (3, 4000), (1, 1)])
def test_the_ratio_is_that_of_the_levels(color, shape):
    windows, keys = noise(30, *shape), random_keys(30)
    step = Noise(low_snr_db=-20, high_snr_db=20, color=color)
    added = step.augment(windows, keys, RATE).astype(np.float64) - windows
    expected = -20 + 40 * draw(keys)
    snr_db = [
        20 * np.log10(rms(w) / rms(n)) for w, n in zip(windows, added, strict=True)
    ]
    np.testing.assert_allclose(snr_db, expected, atol=1e-4)


def test_each_channel_and_each_window_has_noise_of_its_own():
    windows = np.ones((4, 2, 20_000), np.float32)
    added = (Noise().augment(windows, random_keys(4), RATE) - 1).reshape(8, -1)
    correlation = np.corrcoef(added)
    assert np.abs(correlation - np.eye(8)).max() < 0.04
    # And the same key the same noise.
    again = Noise().augment(windows, np.full(4, 7, np.uint64), RATE)
    np.testing.assert_array_equal(again[0], again[3])


# Speed


def slow_speed(x, step):
    """The defining sum, for one sample after the other, in float64."""
    frames = len(x)
    start = max(0, frames - -(-frames * step // 100)) // 2
    out = np.zeros(frames)
    for t in range(frames):
        if start * 100 + t * step > (frames - 1) * 100:
            break
        position = start * 100 + t * step
        n = np.arange(position // 100 - 400, position // 100 + 400)
        away = n * 100 - position
        width = 48 * max(100, step)
        taper = np.i0(6.4 * np.sqrt(np.maximum(0, 1 - (away / width) ** 2)))
        sinc = np.sinc(away / max(100, step) * 0.956)
        h = np.where(abs(away) < width, sinc * taper, 0)
        inside = (n >= 0) & (n < frames)
        out[t] = np.sum(h[inside] / h.sum() * x[n[inside]])
    return out


def play(x, step, rate=RATE):
    speed = Speed(low=step / 100, high=step / 100)
    return speed.augment(x.astype(np.float32)[np.newaxis], random_keys(1), rate)[0]


@pytest.mark.parametrize("step", [50, 73, 90, 99, 101, 107, 150, 200])
@pytest.mark.parametrize("frames", [1, 2, 99, 100, 101, 777])
def test_speed_is_the_windowed_sinc(step, frames):
    x = noise(frames, seed=frames)
    np.testing.assert_allclose(play(x, step), slow_speed(x, step), rtol=0, atol=2e-7)


def test_every_hundredth_is_as_likely(monkeypatch):
    steps = []

    def record(signal, step, out):
        steps.append(step)

    monkeypatch.setattr(augment, "_resample", record)
    Speed(low=0.95, high=1.05).augment(noise(2200, 1), random_keys(2200), RATE)
    values, counts = np.unique(steps, return_counts=True)
    assert values.tolist() == [s for s in range(95, 106) if s != 100]
    assert abs(counts - 200).max() < 75


def test_a_shift_is_shorter_than_the_window():
    with raises(RecipeError, "max_s", 1.0, naming="16000"):
        TimeShift(max_s=1).augment(noise(1, 16000), random_keys(1), RATE)


def test_own_augmentations():
    name = "tests.transform_checks.Slower"
    assert parse_steps(f"{name}()|{name}", AUGMENTATION) == (Slower(), Slower())
    assert format_steps((Slower(), Noise()), AUGMENTATION).startswith(f"{name}()|noise")


# Masks


def spectra(*shape, seed=0):
    return np.random.default_rng(seed).normal(-9, 2, shape).astype(np.float32)


def uniform(key, number):
    """A draw in Python's whole numbers."""
    word = splitmix(number, key) if number else key
    return (splitmix(0, word) >> 11) / 2**53


def slow_masks(spectrum, key, step):
    """Masks one mask after the other, of one channel."""
    frames, bins = spectrum.shape
    out = spectrum.copy()
    fill = {
        "mean": spectrum.mean(dtype=np.float64),
        "least": spectrum.min(),
        "zero": 0,
    }[step.fill]
    for k in range(step.time_masks):
        most = min(step.max_frames, int(step.max_share * frames))
        width = int(uniform(key, 4 * k) * (most + 1))
        first = int(uniform(key, 4 * k + 1) * (frames - width + 1))
        out[first : first + width] = fill
    for k in range(step.freq_masks):
        width = int(uniform(key, 4 * k + 2) * (min(step.max_bins, bins) + 1))
        first = int(uniform(key, 4 * k + 3) * (bins - width + 1))
        out[:, first : first + width] = fill
    return out


@given(
    frames=st.integers(1, 12),
    bins=st.integers(1, 12),
    masks=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    most=st.tuples(st.integers(0, 14), st.integers(0, 14)),
    share=st.sampled_from([0.0, 0.3, 1.0]),
    fill=st.sampled_from(["mean", "least", "zero"]),
    channels=st.sampled_from([None, 2]),
)
@settings(max_examples=100)
def test_masks_are_those_that_are_drawn(
    frames, bins, masks, most, share, fill, channels
):
    step = SpecAugment(
        freq_masks=masks[0], time_masks=masks[1], max_bins=most[0], max_frames=most[1],
        max_share=share, fill=fill,
    )  # fmt: skip
    x = spectra(4, *([] if channels is None else [channels]), frames, bins)
    x.flags.writeable = False
    keys = random_keys(4)
    found = step.on_copies(x, keys, RATE)
    assert (found.dtype, found.shape) == (np.float32, x.shape)
    for window, made, key in zip(x, found, keys.tolist(), strict=True):
        pairs = zip(
            window.reshape(-1, frames, bins),
            made.reshape(-1, frames, bins),
            strict=True,
        )
        for channel, masked in pairs:
            expected = slow_masks(channel, key, step)
            np.testing.assert_allclose(masked, expected, rtol=1e-6, atol=0)
    np.testing.assert_array_equal(step.on_copies(x[1:2], keys[1:2], RATE), found[1:2])
    assert step.on_copies(x[:0], keys[:0], RATE).shape == (0, *x.shape[1:])


def fading(frames, seed=0, delay=0):
    """An impulse response: silence, a direct sound, and a tail."""
    tail = noise(frames, seed=seed) * np.exp(-np.arange(frames) / 50, dtype=np.float32)
    tail[0] = 1
    return np.concatenate([np.zeros(delay, np.float32), tail])


ROOMS = [fading(300, 1, 20), fading(5000, 2)]
NOISES = [noise(9000, seed=3), noise(700, seed=4)]


@pytest.mark.parametrize("wet", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("frames", [1, 50, 299, 300, 301, 2000])
def test_a_room_is_a_convolution_from_the_direct_sound_on(wet, frames):
    windows, keys = noise(8, frames), random_keys(8)
    step = Reverb(folder="x", wet=wet).with_sounds(ROOMS)
    out = step.augment(windows, keys, RATE)
    chosen = np.floor(draw(keys, 0) * 2).astype(int).tolist()
    assert set(chosen) == {0, 1}
    for x, y, number in zip(windows, out, chosen, strict=True):
        response = ROOMS[number].astype(np.float64)[0 if number else 20 :]
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
        sound = NOISES[number]
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
    np.testing.assert_array_equal(first, fading(200, 5))
    assert second.shape == (200,)
    (_, native) = load_sounds(str(rooms), "", 2 * RATE)
    mean = (fading(400, 6) + fading(400, 7)) / 2
    np.testing.assert_allclose(native, mean, atol=1e-7)


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
