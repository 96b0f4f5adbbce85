"""Tempo without pitch, and pitch without tempo: against slow sums and closed forms."""

import numpy as np
import pytest
import soundfile

from beam_pipeline import open_records, record
from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.stretch import PitchShift, Stretch, stretch
from tests.raising import raises
from tests.transform_checks import noise
from tests.transforms.test_augment import random_keys, rms, slow_speed

RATE = 16000


def slow_stretch(x, tempo, length, frame):
    """The definition, one frame after the other, with the phase as complex numbers."""
    hop = frame // 4
    hann = np.sin(np.pi * np.arange(frame) / frame) ** 2

    def spectrum(k):
        at = np.arange(k * hop - frame // 2, k * hop + frame // 2)
        inside = (at >= 0) & (at < len(x))
        return np.fft.rfft(hann * np.where(inside, x[at % len(x)], 0))

    def turn(k):
        return np.exp(1j * (np.angle(spectrum(k + 1)) - np.angle(spectrum(k))))

    count = -(-length // hop) + 1
    places = [tempo * t for t in range(count)]
    units = {count // 2: np.exp(1j * np.angle(spectrum(int(places[count // 2]))))}
    for t in range(count // 2 + 1, count):
        units[t] = units[t - 1] * turn(int(places[t - 1]))
    for t in reversed(range(count // 2)):
        units[t] = units[t + 1] / turn(int(places[t]))
    total = np.zeros(frame + count * hop)
    weights = np.zeros_like(total)
    for t, place in enumerate(places):
        k = int(place)
        share = place - k
        level = (1 - share) * abs(spectrum(k)) + share * abs(spectrum(k + 1))
        piece = np.fft.irfft(level * units[t], frame)
        total[t * hop : t * hop + frame] += piece * hann
        weights[t * hop : t * hop + frame] += hann**2
    middle = slice(frame // 2, frame // 2 + length)
    return (total / np.maximum(weights, 1e-3))[middle]


def play(x, tempo, frame=1024):
    step = Stretch(low=tempo, high=tempo, frame=frame)
    return step.augment(x.astype(np.float32)[np.newaxis], random_keys(1), RATE)[0]


def shift(x, semitones, frame=1024):
    step = PitchShift(low=semitones, high=semitones, frame=frame)
    return step.augment(x.astype(np.float32)[np.newaxis], random_keys(1), RATE)[0]


def pitch_of(x):
    spectrum = np.abs(np.fft.rfft(x * np.hanning(len(x)), 1 << 18))
    return spectrum.argmax() * RATE / (1 << 18)


@pytest.mark.parametrize("tempo", [0.5, 0.77, 0.97, 1.03, 1.5, 2.0])
@pytest.mark.parametrize("frames", [40, 63, 64, 65, 500])
def test_stretch_is_the_phase_vocoder(tempo, frames):
    x = noise(frames, seed=frames).astype(np.float64)
    length = int(np.ceil(frames / tempo))
    found = stretch(x.astype(np.float32), tempo, length, 64)
    expected = slow_stretch(x, tempo, length, 64)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize("frames", [1, 2, 15, 16, 17])
@pytest.mark.parametrize("tempo", [0.5, 2.0])
def test_windows_shorter_than_a_frame(tempo, frames):
    x = noise(frames, seed=frames)
    for y in (play(x, tempo), shift(x, 12 * np.log2(tempo))):
        assert y.shape == (frames,)
        assert np.isfinite(y).all()


@pytest.mark.parametrize("tempo", [0.5, 0.8, 0.97, 1.1, 1.5, 2.0])
@pytest.mark.parametrize("hz", [440, 1234.5])
def test_a_tone_keeps_its_pitch_and_its_level(tempo, hz):
    x = 0.3 * np.sin(2 * np.pi * hz * np.arange(RATE) / RATE)
    y = play(x, tempo)
    count = min(RATE, -(-RATE * 100 // round(100 * tempo)))
    middle = y[1500 : count - 1500]
    assert pitch_of(middle) == pytest.approx(hz, rel=1e-4)
    assert rms(middle) == pytest.approx(rms(x), rel=1e-3)
    assert not y[count:].any()


@pytest.mark.parametrize("tempo", [0.5, 0.8, 1.25, 2.0])
def test_times_move_with_the_tempo(tempo):
    x = noise(RATE)
    x[: RATE // 2] = 0
    y = play(x, tempo)
    start = max(0, RATE / tempo - RATE) / 2
    began = RATE / 2 / tempo - start
    assert rms(y[: int(began) - 1100]) < 0.01 * rms(x)
    later = y[int(began) + 1100 : min(RATE, int(RATE / tempo)) - 1100]
    assert rms(later) > 0.5 * rms(x)


@pytest.mark.parametrize("semitones", [-12, -3, -0.5, 0.5, 4, 12])
def test_a_tone_is_shifted_by_the_rounded_ratio(semitones):
    hz = 700
    x = 0.3 * np.sin(2 * np.pi * hz * np.arange(RATE) / RATE)
    middle = shift(x, semitones)[1500:-1500]
    ratio = round(100 * 2 ** (semitones / 12)) / 100
    assert pitch_of(middle) == pytest.approx(hz * ratio, rel=2e-4)
    assert rms(middle) == pytest.approx(rms(x), rel=1e-3)


def test_a_shift_keeps_the_tempo():
    x = noise(RATE)
    x[: RATE // 2] = 0
    for semitones in (-7, 7):
        y = shift(x, semitones)
        assert rms(y[: RATE // 2 - 1700]) < 0.01 * rms(x)
        assert rms(y[RATE // 2 + 1700 :]) > 0.5 * rms(x)


def test_a_shift_is_a_stretch_and_a_speed():
    x = noise(1000)
    y = shift(x, 12, frame=64)
    expected = slow_speed(stretch(x, 0.5, 2000, 64), 200)
    np.testing.assert_allclose(y, expected[:1000], rtol=0, atol=1e-6)


def test_nothing_changes_at_1():
    x = noise(500)
    np.testing.assert_array_equal(play(x, 1.0), x)
    np.testing.assert_array_equal(shift(x, 0.04), x)


def test_what_is_drawn():
    keys = random_keys(2100)
    tempos = Stretch(low=0.9, high=1.1).drawn(keys, 1, RATE)["tempo"]
    values, counts = np.unique(tempos.round(2), return_counts=True)
    assert len(values) == 21
    assert abs(counts - 100).max() < 50
    drawn = PitchShift(low=-1, high=3).drawn(keys, 1, RATE)
    assert -1 <= drawn["semitones"].min() < -0.98 < 2.98 < drawn["semitones"].max() < 3
    cents = 1200 * np.log2(drawn["ratio"]) - 100 * drawn["semitones"]
    assert abs(cents).max() < 9.3


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        (lambda: Stretch(low=0.4), "low", 0.4),
        (lambda: Stretch(high=1.105), "high", 1.105),
        (lambda: Stretch(low=1.2), "high", 1.1),
        (lambda: Stretch(frame=1022), "frame", 1022),
        (lambda: Stretch(frame=8), "frame", 8),
        (lambda: PitchShift(low=-13), "low", -13.0),
        (lambda: PitchShift(low=3), "high", 2.0),
        (lambda: PitchShift(frame=True), "frame", True),
    ],
)
def test_errors(make, field, value):
    with raises(RecipeError, field, value):
        make()


@pytest.mark.runs
def test_shards_blocks_and_workers_do_not_change_a_copy(tmp_path, monkeypatch):
    (tmp_path / "in").mkdir()
    for i in range(3):
        sound = noise(4000 + 900 * i, seed=i)
        soundfile.write(tmp_path / "in" / f"{i}.wav", sound, RATE)
    options = {"win_len": 1600, "hop": 600, "label_from": "none", "order": "listed",
               "copies": 2, "augment": "stretch()|pitch_shift()|"
               "codec(kinds=('mulaw','mp3','vorbis'))"}  # fmt: skip
    record(str(tmp_path / "in"), str(tmp_path / "a"), **options)
    monkeypatch.setattr("beam_pipeline.write.blocks.BLOCK_BYTES", 13_000)
    more = {"elements_per_file": 7, "workers": 2}
    record(str(tmp_path / "in"), str(tmp_path / "b"), **options, **more)
    a, b = (open_records(str(tmp_path / name)) for name in "ab")
    assert len(a) == len(b) == 3 * (5 + 6 + 8)
    for one, other in zip(a, b, strict=True):
        np.testing.assert_array_equal(one["signal"], other["signal"])
    assert len({e["signal"].tobytes() for e in a}) == len(a)
