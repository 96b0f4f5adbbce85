"""Sketches are alike of changed copies, and of nothing else; hashes of windows."""

import io

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.audio.sketch import SKETCH_SECONDS, hash_windows, sketch_audio
from beam_pipeline.read.audit import similar_sketches
from tests.audio.files import encode

RATE = 16000


def melody(seed, seconds=2.0, rate=RATE):
    """Returns notes of random pitch, length and loudness, with harmonics; float32."""
    rng = np.random.default_rng(seed)
    parts, left = [], round(seconds * rate)
    while left > 0:
        n = min(left, int(rng.integers(rate // 20, rate // 4)))
        t = np.arange(n) / rate
        pitch, decay = rng.uniform(120, 900), rng.uniform(2, 15)
        tone = sum(
            np.sin(2 * np.pi * pitch * k * t) * rng.uniform(0, 1) for k in range(1, 6)
        )
        parts.append(rng.uniform(0.02, 0.2) * tone * np.exp(-decay * t))
        left -= n
    return np.concatenate(parts).astype(np.float32)


def sketch(samples, rate=RATE):
    return sketch_audio(samples[: int(SKETCH_SECONDS * rate)], rate)


def alike(first, second):
    return len(set(similar_sketches([first, second])[0].tolist())) == 1


def encoded(samples, kind, subtype):
    data = encode(samples, RATE, format=kind, subtype=subtype)
    return soundfile.read(io.BytesIO(data), dtype="float32")[0]


# Hashes of windows


@given(st.integers(1, 6), st.integers(1, 9), st.integers(0, 5), st.booleans())
def test_the_hash_is_a_sum_over_windows(count, length, cut, stereo):
    shape = (count, 2, length) if stereo else (count, length)
    windows = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    starts, cut = 100 * np.arange(count), min(cut, count)
    parts = (
        hash_windows(windows[s], starts[s]) for s in (slice(cut), slice(cut, None))
    )
    assert hash_windows(windows, starts) == sum(parts) % 2**64


def test_the_hash_knows_every_sample_and_start():
    windows = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)
    starts = np.array([0, 5, 2**40])
    found = {hash_windows(windows, starts), hash_windows(windows[::-1], starts)}
    for at in np.ndindex(windows.shape):
        changed = windows.copy()
        changed[at] = np.nextafter(changed[at], np.float32(9))
        found.add(hash_windows(changed, starts))
    for k in range(3):
        found.add(hash_windows(windows, starts + (np.arange(3) == k)))
    assert len(found) == 2 + windows.size + 3


# Sketches


CHANGES = {
    "gain": lambda x: x * np.float32(0.1),
    "silence before it": lambda x: np.pad(x, (3000, 0)),
    "noise": lambda x: x + _noise_below(x, 30).astype(np.float32),
    "vorbis": lambda x: encoded(x, "OGG", "VORBIS"),
    "opus": lambda x: encoded(x, "OGG", "OPUS"),
    "mp3": lambda x: encoded(x, "MP3", "MPEG_LAYER_III"),
    "8 bit": lambda x: np.round(x * 128) / np.float32(128),
    "cut by 0.1 s": lambda x: x[1600:],
    "cut by 0.5 s": lambda x: x[8000:],
    "cut by 1 s": lambda x: x[16000:],
    "mp3, cut by 0.25 s": lambda x: encoded(x, "MP3", "MPEG_LAYER_III")[4000:],
}


def _noise_below(samples, db):
    level = np.sqrt(np.mean(samples**2)) * 10 ** (-db / 20)
    return np.random.default_rng(0).normal(0, level, len(samples))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seed", range(4))
def test_a_changed_copy_is_alike(change, seed):
    original = melody(seed, 3)
    assert alike(sketch(original), sketch(CHANGES[change](original)))


@pytest.mark.parametrize("rate", [8000, 11025, 22050, 32000, 44100, 48000, 96000])
def test_another_rate_is_alike(rate):
    original = melody(7)
    resampled = soxr.resample(original, RATE, rate)
    assert alike(sketch(original), sketch(resampled, rate))


def test_channels_are_their_mean():
    left, right = melody(0), melody(1)
    both = np.stack([left, right])
    assert sketch_audio(both, RATE) == sketch_audio(both.mean(axis=0), RATE)


@pytest.mark.parametrize("samples", [
    np.zeros(0), np.zeros(1), np.zeros(RATE), np.full(RATE, 1e-6), np.ones(1),
    np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE),
    np.tile([0.5, np.nan, 0.5], 9999), np.tile([0.5, np.inf, 0.5], 9999)])  # fmt: skip
def test_silence_and_what_is_not_finite_have_no_sketch(samples):
    with np.errstate(all="raise"):
        assert sketch(samples.astype(np.float32)) == b""


@pytest.mark.parametrize("rate", [1, 20, 100, 1000, 384_000, 3_000_000])
def test_unusual_rates_give_a_sketch_or_none(rate):
    samples = np.random.default_rng(0).uniform(-1, 1, 20_000).astype(np.float32)
    assert len(sketch(samples, rate)) <= 2 * (SKETCH_SECONDS / 0.024 + 2)


def test_takes_of_one_word_are_not_alike(corpora):
    """Tests fifty takes of one word by each of two speakers."""
    found = []
    for speaker in ("george", "nicolas"):
        for take in range(50):
            path = corpora / "fsdd" / f"2_{speaker}_{take}.wav"
            found.append(sketch(*soundfile.read(path, dtype="float32")))
    assert len(set(similar_sketches(found)[0].tolist())) == 100
