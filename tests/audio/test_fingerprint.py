"""Tests fingerprints of equal audio, nearly equal audio and different audio."""

import hashlib
import io
import itertools

import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.audio import fingerprint
from beam_pipeline.audio.fingerprint import (
    NEAR_BITS,
    SKETCH_BYTES,
    BandEnergies,
    fingerprint_audio,
)

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
    return fingerprint_audio([np.atleast_2d(samples)], rate, 1).sketch


def distance(first, second):
    assert len(first) == len(second) == SKETCH_BYTES
    bits = [np.unpackbits(np.frombuffer(s, np.uint8)) for s in (first, second)]
    return int((bits[0] != bits[1]).sum())


def encoded(samples, kind, subtype):
    file = io.BytesIO()
    soundfile.write(file, samples, RATE, format=kind, subtype=subtype)
    file.seek(0)
    return soundfile.read(file, dtype="float32")[0]


# Content


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_content_is_a_hash_of_the_samples(channels):
    rng = np.random.default_rng(0)
    frames = rng.uniform(-1, 1, (channels, 1000)).astype(np.float32)
    found = fingerprint_audio([frames], RATE, channels).content
    text = bytes([channels, 0, 0, 0]) + frames.T.astype("<f4").tobytes()
    assert found == hashlib.blake2b(text, digest_size=16).digest()


@given(st.lists(st.integers(0, 700), max_size=6), st.integers(1, 2))
def test_cuts_between_chunks_do_not_matter(cuts, channels):
    rng = np.random.default_rng(1)
    frames = rng.uniform(-1, 1, (channels, 700)).astype(np.float32)
    bounds = [0, *sorted(cuts), 700]
    chunks = [frames[:, a:b] for a, b in itertools.pairwise(bounds)]
    whole = fingerprint_audio([frames], 8000, channels)
    found = fingerprint_audio(chunks, 8000, channels)
    assert found.content == whole.content
    assert distance(found.sketch, whole.sketch) <= 1


# Sketches


CHANGES = {
    "gain": lambda x: x * np.float32(0.1),
    "silence around it": lambda x: np.pad(x, (3000, 9000)),
    "noise": lambda x: x + _noise_below(x, 30).astype(np.float32),
    "vorbis": lambda x: encoded(x, "OGG", "VORBIS"),
    "opus": lambda x: encoded(x, "OGG", "OPUS"),
    "mp3": lambda x: encoded(x, "MP3", "MPEG_LAYER_III"),
    "8 bit": lambda x: np.round(x * 128) / np.float32(128),
}


def _noise_below(samples, db):
    level = np.sqrt(np.mean(samples**2)) * 10 ** (-db / 20)
    return np.random.default_rng(0).normal(0, level, len(samples))


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("seed", range(4))
def test_a_changed_copy_is_near(change, seed):
    original = melody(seed)
    changed = CHANGES[change](original)
    assert distance(sketch(original), sketch(changed)) <= NEAR_BITS


@pytest.mark.parametrize("rate", [8000, 11025, 44100, 48000])
def test_another_rate_is_near(rate):
    import soxr

    original = melody(7)
    resampled = soxr.resample(original, RATE, rate)
    assert distance(sketch(original), sketch(resampled, rate)) <= NEAR_BITS


def test_other_sounds_are_far():
    sketches = [sketch(melody(seed)) for seed in range(60)]
    bits = np.stack([np.unpackbits(np.frombuffer(s, np.uint8)) for s in sketches])
    differ = (bits[:, None] != bits).sum(axis=-1)
    assert differ[np.triu_indices(60, 1)].min() > 2 * NEAR_BITS


@pytest.mark.parametrize("samples", [
    np.zeros(0), np.zeros(1), np.zeros(RATE), np.full(RATE, 1e-6), np.ones(1),
    np.random.default_rng(0).integers(-1, 2, RATE) / 32768,
    np.sin(2 * np.pi * 440 * np.arange(RATE) / RATE),
    np.array([0.5, np.nan, 0.5]), np.array([0.5, np.inf, 0.5])])  # fmt: skip
def test_silence_and_steady_sounds_have_no_sketch(samples):
    with np.errstate(all="raise", invalid="ignore"):
        found = fingerprint_audio([samples.astype(np.float32)[None]], RATE, 1)
    assert found.sketch == b""
    assert len(found.content) == 16


@pytest.mark.parametrize("rate", [1, 100, 1000, 384_000])
def test_unusual_rates_give_a_sketch_or_none(rate):
    samples = np.random.default_rng(0).uniform(-1, 1, 20_000).astype(np.float32)
    assert len(sketch(samples, rate)) in (0, SKETCH_BYTES)


@pytest.mark.parametrize("hops", [1, 4095, 4096, 4097, 8192, 8193, 20_000])
def test_energies_of_long_clips_add_up(hops, monkeypatch):
    samples = np.random.default_rng(0).uniform(-1, 1, hops * 8).astype(np.float32)
    found = BandEnergies(1000)
    for first in range(0, len(samples), 5000):
        found.add(samples[first : first + 5000])
    cells = found.cells()
    assert len(cells) <= 4096
    monkeypatch.setattr(fingerprint, "_CELLS", 1 << 15)
    whole = BandEnergies(1000)
    whole.add(samples)
    every = whole.cells()
    assert len(every) == hops + 3
    times = 1
    while len(every) > 4096 * times:
        times *= 2
    wanted = np.add.reduceat(every, np.arange(0, len(every), times), axis=0)
    np.testing.assert_allclose(cells, wanted, rtol=1e-9)


def test_a_long_clip_is_near_its_copy():
    original = melody(3, 90, 8000)
    assert distance(sketch(original, 8000), sketch(original * 0.5, 8000)) == 0
    changed = original + _noise_below(original, 30).astype(np.float32)
    assert distance(sketch(original, 8000), sketch(changed, 8000)) <= NEAR_BITS


def test_takes_of_one_word_are_far(corpora):
    """Tests fifty takes of one word by each of two speakers."""
    found = []
    for speaker in ("george", "nicolas"):
        for take in range(50):
            path = corpora / "fsdd" / f"2_{speaker}_{take}.wav"
            found.append(sketch(*soundfile.read(path, dtype="float32")))
    bits = np.stack([np.unpackbits(np.frombuffer(s, np.uint8)) for s in found])
    differ = (bits[:, None] != bits).sum(axis=-1)
    assert differ[np.triu_indices(100, 1)].min() > NEAR_BITS
