"""Dither: the defining sum, and the same noise wherever a clip is cut."""

import numpy as np
import pytest

from beam_pipeline.hashing import clip_key
from beam_pipeline.transforms import Dither
from beam_pipeline.transforms.stream import CHUNK_FRAMES, in_clip
from tests.transforms.test_augment import splitmix
from tests.transforms.test_streams import stepped

RATE = 8000


def dithered(samples, *, amplitude=1.0, seed=0, path="a.wav", source=0, start=0):
    steps = in_clip([Dither(amplitude=amplitude, seed=seed)], path, source, start)
    return stepped(samples, *steps).read(0, samples.shape[-1])


def test_the_noise_is_that_of_the_definition():
    silence = np.zeros((2, 6), np.float32)
    found = dithered(silence, amplitude=3, seed=7, path="b/c.wav", source=1, start=40)
    for channel in range(2):
        key = splitmix(clip_key(7, "b/c.wav", 1), channel)
        for frame in range(6):
            word = splitmix(key, 40 + frame)
            total = sum(word >> 16 * i & 0xFFFF for i in range(4)) - 131070
            expected = 3 / 32768 * total / (4 * (65536**2 - 1) / 12) ** 0.5
            assert found[channel, frame] == pytest.approx(expected, rel=1e-6)


def test_a_part_of_a_file_has_the_noise_of_the_file():
    samples = np.random.default_rng(0).standard_normal(CHUNK_FRAMES + 500)
    samples = samples.astype(np.float32)
    whole = dithered(samples)
    np.testing.assert_array_equal(dithered(samples[123:], start=123), whole[123:])
    reader = stepped(samples, *in_clip([Dither()], "a.wav", 0, 0))
    at = CHUNK_FRAMES - 3
    np.testing.assert_array_equal(reader.read(at, at + 9), whole[at : at + 9])
