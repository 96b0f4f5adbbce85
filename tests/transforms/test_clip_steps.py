"""Streams, placements, selections: wherever a clip is cut, and against plain loops."""

import math
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_pipeline import plan
from beam_pipeline.errors import RecipeError
from beam_pipeline.planning.clips import stream_steps
from beam_pipeline.text import clip_key
from beam_pipeline.transforms import Dither
from beam_pipeline.transforms.clip_steps import (
    CHUNK_FRAMES,
    AcEnergy,
    Active,
    Energy,
    Peak,
    Peaks,
    Sounds,
    SteppedReader,
    in_clip,
)
from beam_pipeline.transforms.signals import mean_square, variance
from beam_pipeline.transforms.steps import PLACEMENT, parse_stream
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


def test_the_noise_is_that_of_the_definition():
    steps = in_clip([Dither(amplitude=3, seed=7)], "b/c.wav", 1, 40)
    found = stepped(np.zeros((2, 6), np.float32), *steps).read(0, 6)
    for channel in range(2):
        key = splitmix(clip_key(7, "b/c.wav", 1), channel)
        for frame in range(6):
            word = splitmix(key, 40 + frame)
            total = sum(word >> 16 * i & 0xFFFF for i in range(4)) - 131070
            expected = 3 / 32768 * total / (4 * (65536**2 - 1) / 12) ** 0.5
            assert found[channel, frame] == pytest.approx(expected, rel=1e-6)


SLOW_RATE = 1000


@given(
    level_db=st.floats(-150, 150), shape=st.sampled_from([(512,), (8, 512), (1, 1000)])
)
def test_energy_compares_the_rms(level_db, shape):
    windows = np.full((1, *shape), 10 ** (level_db / 20), np.float32)
    windows[..., ::2] *= -1
    exact_db = 20 * math.log10(abs(float(windows.flat[0])))
    for cls in (Energy, AcEnergy, Peak, Active):
        assert cls(above_db=exact_db - 1e-9).keep(windows, SLOW_RATE).all()
        assert not cls(above_db=exact_db + 1e-9).keep(windows, SLOW_RATE).any()


def test_peak_is_that_of_any_channel_and_sign():
    windows = np.zeros((3, 2, 10), np.float32)
    windows[0, 1, 9] = -0.5
    windows[1, 0, 0] = 0.5
    windows[2] = 0.49
    assert Peak(above_db=-6.03).keep(windows, SLOW_RATE).tolist() == [True, True, False]


def powers_of(clip, frame):
    """The mean square of each frame, with a loop."""
    channels = np.atleast_2d(clip).astype(np.float64)
    cuts = range(0, channels.shape[1], frame)
    return [float(np.mean(np.square(channels[:, k : k + frame]))) for k in cuts]


@given(
    data=st.data(),
    channels=st.integers(1, 3),
    frames=st.integers(1, 300),
    share=st.floats(0.01, 1),
)
def test_active_counts_frames(data, channels, frames, share):
    frame = data.draw(st.integers(1, frames))
    levels = data.draw(
        st.lists(st.sampled_from([0.0, 0.01, 0.2, 1.0]), min_size=8, max_size=8)
    )
    window = noise(channels, frames) * np.repeat(levels, 40)[:frames]
    window = window.astype(np.float32)
    kept = Active(above_db=-30, share=share, frame=frame).keep(window[None], SLOW_RATE)
    powers = powers_of(window[:, : frames // frame * frame], frame)
    active = sum(power >= 10 ** (-30 / 10) for power in powers)
    assert kept.tolist() == [active / len(powers) >= share]


@pytest.mark.parametrize("frames", [1, 2, 2**16, 200_001])
@pytest.mark.parametrize("offset", [0.0, -0.9])
def test_means_of_squares(frames, offset):
    window = noise(2, frames)
    window[0] += np.float32(offset)
    wide = window.astype(np.float64)
    assert mean_square(window) == pytest.approx(np.mean(wide**2), rel=1e-13)
    expected = wide.var(axis=1).mean()
    assert variance(window) == pytest.approx(expected, rel=1e-9, abs=1e-30)


def test_an_offset_does_not_count():
    """With an offset of 0.03 in each channel, of another sign."""
    windows = noise(1, 2, 4000) / np.float32(1000) + np.float32([[0.03], [-0.03]])
    assert Energy(above_db=-40).keep(windows, SLOW_RATE).all()
    assert not AcEnergy(above_db=-40).keep(windows, SLOW_RATE).any()
    assert not AcEnergy(above_db=-200).keep(np.ones_like(windows), SLOW_RATE).any()


def test_a_frame_is_no_longer_than_the_window():
    with raises(RecipeError, "frame", 512, naming="511"):
        Active(frame=512).keep(noise(1, 511), SLOW_RATE)


LEVELS = st.sampled_from([0.0, 0.001, 0.02, 0.3, 0.5])


def peaks_by_hand(powers, least, gap, frame):
    maxima = []
    for k, power in enumerate(powers):
        left = next((p for p in powers[k::-1] if p != power), -1)
        right = next((p for p in powers[k:] if p != power), -1)
        if power >= least and left < power > right:
            maxima.append(k)
    runs: list[list[int]] = []  # equal neighbours are one frame
    for k in maxima:
        if runs and runs[-1][-1] == k - 1:
            runs[-1].append(k)
        else:
            runs.append([k])
    middles = [(run[0] + run[-1]) // 2 for run in runs]
    stays: list[int] = []
    for k in sorted(middles, key=lambda k: (-powers[k], k)):
        if all(abs(k - other) * frame >= gap for other in stays):
            stays.append(k)
    return sorted(stays)


@given(
    levels=st.lists(LEVELS, min_size=1, max_size=40),
    tail=st.integers(0, 9),
    gap=st.integers(0, 120),
)
@example(levels=[0.5], tail=0, gap=0)
@example(levels=[0.0, 0.5, 0.5, 0.5, 0.5, 0.0], tail=3, gap=0)
def test_peaks_by_hand(levels, tail, gap):
    """Frames of ten samples, and a shorter one at the end."""
    clip = np.repeat(np.array(levels, np.float32), 10)
    clip = clip[: len(clip) - tail]
    found = Peaks(above_db=-40, min_gap_s=gap / SLOW_RATE).passages([clip], SLOW_RATE)
    assert (found[:, 0] == found[:, 1]).all()
    by_hand = peaks_by_hand(powers_of(clip, 10), 1e-4, gap, 10)
    assert found[:, 0].tolist() == [min(10 * k + 5, len(clip) - 1) for k in by_hand]


@given(
    levels=st.lists(LEVELS, min_size=1, max_size=40),
    tail=st.integers(0, 9),
    gap=st.integers(0, 60),
    least=st.integers(0, 60),
)
@example(levels=[0.0, 0.5, 0.0, 0.5], tail=0, gap=10, least=10)
def test_sounds_by_hand(levels, tail, gap, least):
    clip = np.repeat(np.array(levels, np.float32), 10)
    clip = clip[: len(clip) - tail]
    step = Sounds(
        above_db=-40, min_gap_s=gap / SLOW_RATE, min_sound_s=least / SLOW_RATE
    )
    passages: list[list[int]] = []
    for k, power in enumerate(powers_of(clip, 10)):
        begin, end = 10 * k, min(10 * k + 10, len(clip))
        if power < 1e-4:
            continue
        touches = bool(passages) and passages[-1][1] == begin
        if touches or (passages and begin - passages[-1][1] < gap):
            passages[-1][1] = end
        else:
            passages.append([begin, end])
    wanted = [[begin, end] for begin, end in passages if end - begin >= least]
    assert step.passages([clip], SLOW_RATE).tolist() == wanted


@pytest.mark.parametrize("shape", [(1003,), (2, 1003)])
@given(cuts=st.lists(st.integers(0, 1003), max_size=8))
def test_blocks_do_not_matter(shape, cuts):
    clip = noise(*shape)
    parts = np.split(clip, sorted(cuts), axis=-1)
    middle_db = 10 * math.log10(float(np.median(powers_of(clip, 10))))
    for cls in PLACEMENT.table.values():
        step = cls(above_db=middle_db, min_gap_s=0.02)
        whole = step.passages([clip], SLOW_RATE)
        assert len(whole) > 5
        assert step.passages(parts, SLOW_RATE).tolist() == whole.tolist()


@pytest.mark.parametrize("cls", PLACEMENT.table.values())
def test_silence_and_nan_are_no_sound(cls):
    step = cls(above_db=-200)
    for value in (0.0, np.nan):
        clip = np.full(300, value, np.float32)
        for blocks in ([clip], [clip, clip[:1]], [clip[:0]], []):
            assert step.passages(blocks, SLOW_RATE).shape == (0, 2)
