"""Steps on streams, and dither: the same wherever a clip is cut, and as if never."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import open_records, plan, record
from beam_pipeline.errors import RecipeError
from beam_pipeline.hashing import clip_key
from beam_pipeline.planning.clips import stream_steps
from beam_pipeline.transforms import Dither
from beam_pipeline.transforms.clip_steps import (
    CHUNK_FRAMES,
    SteppedReader,
    in_clip,
)
from beam_pipeline.transforms.steps import parse_stream
from tests.raising import assert_names, raises
from tests.sounds import write_samples
from tests.transform_checks import noise
from tests.transforms.test_augment import splitmix

RATE = 8000
HIGH_PASS = "high_pass(cutoff_hz=100)"


@dataclass(frozen=True)
class Echo:
    """``y[n] = x[n] + x[n - delay] / 2``; exact whatever is before its context."""

    delay: int = 5

    def context(self, sample_rate_hz):
        return self.delay

    def on_stream(self, frames, sample_rate_hz):
        out = frames.copy()
        out[:, self.delay :] += frames[:, : -self.delay or None] / 2
        return out


class Samples:
    """A clip in memory that can only be read forward."""

    def __init__(self, samples):
        self.samples = samples
        self.reads = []

    def read(self, start, stop):
        assert start >= (self.reads[-1][0] if self.reads else 0)
        assert stop <= self.samples.shape[-1]
        self.reads.append((start, stop))
        return self.samples[..., start:stop]


def stepped(samples, *steps):
    return SteppedReader(Samples(samples), steps, samples.shape[-1], RATE)


@given(st.lists(st.integers(0, 3 * CHUNK_FRAMES), min_size=2, max_size=12),
       st.sampled_from([(), (2,)]))  # fmt: skip
@settings(max_examples=60)
def test_ranges_are_pieces_of_the_whole(places, channels):
    samples = noise(*channels, 3 * CHUNK_FRAMES + 17)
    whole = np.atleast_2d(samples)
    for step in (Echo(), Echo(7)):
        whole = step.on_stream(whole, RATE)
    whole = whole.reshape(samples.shape)
    reader = stepped(samples, Echo(), Echo(7))
    starts = sorted(places)
    for start, stop in zip(starts, [*starts[2:], *starts[-2:]], strict=True):
        np.testing.assert_array_equal(
            reader.read(start, max(start, stop)), whole[..., start : max(start, stop)]
        )


def test_only_what_is_needed_is_read():
    reader = Samples(noise(20 * CHUNK_FRAMES))
    SteppedReader(reader, [Echo()], 20 * CHUNK_FRAMES, RATE).read(
        7 * CHUNK_FRAMES + 1, 7 * CHUNK_FRAMES + 2
    )
    assert reader.reads == [(7 * CHUNK_FRAMES - 5, 8 * CHUNK_FRAMES)]


@pytest.mark.parametrize(
    "text",
    [HIGH_PASS, "low_pass(cutoff_hz=500,order=6)", "pre_emphasis()", "gain(gain_db=6)",
     "band_pass(low_hz=50,high_hz=2000)", f"{HIGH_PASS}|pre_emphasis"],
)  # fmt: skip
def test_chunks_are_as_if_the_clip_had_never_been_cut(text):
    steps = parse_stream(text)
    samples = noise(3 * CHUNK_FRAMES)
    whole = samples[np.newaxis]
    for step in steps:
        whole = step.on_stream(whole, RATE)
    reader = stepped(samples, *steps)
    got = [
        reader.read(s, s + 50_000) for s in range(0, 3 * CHUNK_FRAMES - 50_000, 49_000)
    ]
    for i, part in enumerate(got):
        expected = whole[0, 49_000 * i : 49_000 * i + 50_000]
        np.testing.assert_allclose(part, expected, rtol=0, atol=2e-8)


# Whole runs


def test_a_gain_measures_what_the_steps_before_have_made(tmp_path):
    write_samples(tmp_path / "in/a.wav", noise(CHUNK_FRAMES + 9), subtype="FLOAT")
    text = "clip_gain()|gain(gain_db=20)|clip_gain(kind='rms',level_db=-10)"
    record(tmp_path / "in", tmp_path / "out", win_len=CHUNK_FRAMES + 9, stream=text)
    signal = open_records(tmp_path / "out")[0]["signal"].astype(np.float64)
    assert 10 * np.log10(np.mean(signal**2)) == pytest.approx(-10, abs=1e-4)


def test_nan_has_no_level(tmp_path):
    samples = noise(1000)
    samples[500] = np.nan
    write_samples(tmp_path / "in/a.wav", samples, subtype="FLOAT")
    options = {"win_len": 10, "allow_nonfinite": True, "stream": "clip_gain()"}
    _, (reject,) = plan(tmp_path / "in", **options)
    assert (reject.error, reject.filepath) == ("NonFiniteAudio", "a.wav")
    assert_names(reject.reason, "nan dB")


def test_a_step_that_does_not_work_at_the_rate_is_named():
    with raises(RecipeError, "stream: high_pass: cutoff_hz", 9000.0):
        stream_steps("pre_emphasis()|high_pass(cutoff_hz=9000)", 8000)


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
