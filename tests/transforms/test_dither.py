"""Dither: the defining sum, and the same noise wherever a clip is cut."""

import numpy as np
import pytest
import soundfile

from beam_pipeline import Dither, record
from beam_pipeline.hashing import clip_key
from beam_pipeline.read.replay import replay
from beam_pipeline.transforms.steps import STREAM, format_steps, parse_stream
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


def test_its_amplitude_is_a_standard_deviation_in_steps_of_16_bits():
    noise = dithered(np.zeros(300_000, np.float32), amplitude=2.5) * 32768.0
    assert noise.std() == pytest.approx(2.5, rel=0.01)
    assert abs(noise.mean()) < 0.02
    assert abs(np.corrcoef(noise[1:], noise[:-1])[0, 1]) < 0.01


def test_a_part_of_a_file_has_the_noise_of_the_file():
    samples = np.random.default_rng(0).standard_normal(CHUNK_FRAMES + 500)
    samples = samples.astype(np.float32)
    whole = dithered(samples)
    np.testing.assert_array_equal(dithered(samples[123:], start=123), whole[123:])
    reader = stepped(samples, *in_clip([Dither()], "a.wav", 0, 0))
    at = CHUNK_FRAMES - 3
    np.testing.assert_array_equal(reader.read(at, at + 9), whole[at : at + 9])


def test_the_seed_the_path_the_input_and_the_channel_change_the_noise():
    silence = np.zeros((2, 20_000), np.float32)
    one, other = dithered(silence)
    noises = [
        one,
        other,
        dithered(silence, seed=1)[0],
        dithered(silence, path="b.wav")[0],
        dithered(silence, source=1)[0],
    ]
    assert np.abs(np.corrcoef(noises) - np.eye(5)).max() < 0.04


def test_no_amplitude_changes_nothing_and_nan_stays():
    samples = np.float32([0.5, np.nan, -1, np.inf])
    np.testing.assert_array_equal(dithered(samples, amplitude=0), samples)
    assert np.isnan(dithered(samples)).tolist() == [False, True, False, False]


def test_steps_after_it_begin_with_the_dithered_frames_before():
    samples = np.zeros(CHUNK_FRAMES + 100, np.float32)
    steps = in_clip(parse_stream("dither()|pre_emphasis()"), "a.wav", 0, 0)
    found = stepped(samples, *steps).read(0, len(samples))
    noise = dithered(samples)[np.newaxis]
    np.testing.assert_array_equal(found, steps[1].on_stream(noise, RATE)[0])


def test_text_stands_for_it():
    assert format_steps("dither(amplitude=2)", STREAM) == "dither(amplitude=2.0,seed=0)"
    assert parse_stream("dither(seed=-3)") == (Dither(seed=-3),)


@pytest.mark.runs
def test_shards_blocks_and_workers_do_not_change_the_noise(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    for name in "ab":
        sound = np.zeros(CHUNK_FRAMES + 900)
        soundfile.write(tmp_path / "in" / f"{name}.wav", sound, RATE)
    options = {"win_len": 700, "hop": 300, "label_from": "none", "order": "listed",
               "stream": "dither(amplitude=4)|clip_gain(kind='rms',level_db=-20)",
               "copies": 1, "augment": "random_gain(low_db=0,high_db=0)"}  # fmt: skip
    record(str(tmp_path / "in"), str(tmp_path / "a"), **options)
    monkeypatch.setattr("beam_pipeline.write.blocks.BLOCK_BYTES", 9000)
    more = {"elements_per_file": 57, "workers": 2}
    record(str(tmp_path / "in"), str(tmp_path / "b"), **options, **more)
    found = [list(replay(str(tmp_path / n)).as_numpy_iterator()) for n in "ab"]
    assert len(found[0]) == len(found[1]) > 400
    frames: dict[str, dict[int, float]] = {"a.wav": {}, "b.wav": {}}
    for one, other in zip(*found, strict=True):
        np.testing.assert_array_equal(one["signal"], other["signal"])
        # Overlapping windows, and copies, have the same noise where they overlap.
        start = int(one["win_start_idx"])
        held = frames[one["filepath"].decode()]
        for frame, value in enumerate(one["signal"].tolist(), start):
            assert held.setdefault(frame, value) == value
    levels = [np.std(list(held.values())) for held in frames.values()]
    assert levels == pytest.approx([0.1, 0.1], rel=0.02)
    assert frames["a.wav"][0] != frames["b.wav"][0]
