"""Kaldi's filter bank, against kaldi-native-fbank and the defining sums."""

import kaldi_native_fbank as knf
import numpy as np
import pytest

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.mel import KaldiFbank
from tests.raising import raises
from tests.transform_checks import check_channels, check_contract, noise


def theirs(windows, rate, **options):
    """The features of each window by kaldi-native-fbank."""
    made = knf.FbankOptions()
    made.frame_opts.samp_freq = rate
    made.frame_opts.dither = 0
    made.mel_opts.num_bins = options.pop("n_mels", 80)
    for name, value in options.items():
        where, _, field = name.partition("__")
        setattr(getattr(made, where), field, value) if field else setattr(
            made, name, value
        )
    found = []
    for window in windows:
        bank = knf.OnlineFbank(made)
        bank.accept_waveform(rate, (window * 32768).tolist())
        bank.input_finished()
        frames = [bank.get_frame(i) for i in range(bank.num_frames_ready)]
        found.append(np.stack(frames))
    return np.stack(found)


def assert_near(ours, exact):
    assert ours.shape == exact.shape
    limit = 1e-5 * np.abs(exact).max()
    np.testing.assert_allclose(ours, exact, rtol=0, atol=limit)


@pytest.mark.parametrize("rate", [8000, 16000, 22050, 44100])
@pytest.mark.parametrize("snip_edges", [True, False])
@pytest.mark.parametrize("frames", [12345, 2 * 4410])
def test_rates_and_edges(rate, snip_edges, frames):
    windows = noise(2, frames)
    ours = KaldiFbank(n_mels=23, snip_edges=snip_edges)(windows, rate)
    exact = theirs(windows, rate, n_mels=23, frame_opts__snip_edges=snip_edges)
    assert_near(ours, exact)


@pytest.mark.parametrize(
    ("ours", "options"),
    [
        ({"window": "hamming"}, {"frame_opts__window_type": "hamming"}),
        ({"window": "hanning"}, {"frame_opts__window_type": "hanning"}),
        ({"window": "rectangular"}, {"frame_opts__window_type": "rectangular"}),
        ({"pre_emphasis": 0.0}, {"frame_opts__preemph_coeff": 0.0}),
        ({"remove_dc": False}, {"frame_opts__remove_dc_offset": False}),
        ({"f_min": 60.0, "f_max": 7600.0},
         {"mel_opts__low_freq": 60.0, "mel_opts__high_freq": 7600.0}),
        ({"frame_length_s": 0.032, "frame_shift_s": 0.0125},
         {"frame_opts__frame_length_ms": 32.0, "frame_opts__frame_shift_ms": 12.5}),
        ({"log": False}, {"use_log_fbank": False}),
        ({"use_power": False}, {"use_power": False}),
        ({"use_energy": True}, {"use_energy": True}),
        ({"use_energy": True, "log": False, "remove_dc": False},
         {"use_energy": True, "use_log_fbank": False,
          "frame_opts__remove_dc_offset": False}),
    ],
)  # fmt: skip
def test_options(ours, options):
    windows = noise(3, 8000, seed=3) + np.float32(0.05)
    assert_near(KaldiFbank(**ours)(windows, 16000), theirs(windows, 16000, **options))


def test_energy_stands_before_the_bands():
    windows = noise(3, 8000)
    made = KaldiFbank(use_energy=True)
    out = check_contract(made)
    assert out.shape == (5, 23, 81)
    check_channels(made)
    out = made(windows, 16000)
    np.testing.assert_array_equal(out[..., 1:], KaldiFbank()(windows, 16000))
    starts = range(0, 8000 - 400 + 1, 160)
    frames = [windows[:, s : s + 400].astype(np.float64) * 32768 for s in starts]
    energy = np.stack([400 * np.var(frame, axis=-1) for frame in frames], axis=-1)
    np.testing.assert_allclose(out[..., 0], np.log(energy), rtol=1e-6)
    assert made.axes(16000, 8000)[1]["values"][0] == 0
    assert len(made.axes(16000, 8000)[1]["values"]) == 81


def test_a_frame_begins_where_the_axis_says():
    made = KaldiFbank(snip_edges=False)
    time = made.axes(16000, 4000)[0]
    assert time == {"name": "time", "unit": "s", "size": 25, "start": -0.0075,
                    "step": 0.01, "length": 0.025}  # fmt: skip
    click = np.zeros((1, 4000), np.float32)
    click[0, 2000] = 1
    heard = np.flatnonzero(made(click, 16000)[0].max(axis=-1) > 0)
    starts = time["start"] + time["step"] * np.arange(25)
    spans = (starts < 0.125) & (starts + time["length"] > 0.125)
    assert heard.tolist() == np.flatnonzero(spans).tolist()


def test_silence_is_kaldi_s_least_energy():
    out = KaldiFbank(use_energy=True)(np.zeros((1, 4000), np.float32), 16000)
    assert np.ptp(out) == 0
    assert out[0, 0, 0] == pytest.approx(np.log(2.0**-23), rel=1e-6)


@pytest.mark.parametrize("frames", [400, 401, 559, 560])
def test_one_frame_and_two(frames):
    out = KaldiFbank()(noise(1, frames), 16000)
    assert out.shape == (1, 1 + (frames == 560), 80)


@pytest.mark.parametrize(
    ("values", "field", "value", "facts"),
    [
        ({"n_mels": 0}, "n_mels", 0, ()),
        ({"n_mels": 5000}, "n_mels", 5000, "4096"),
        ({"frame_length_s": 0.0}, "frame_length_s", 0.0, ()),
        ({"frame_shift_s": -1.0}, "frame_shift_s", -1.0, ()),
        ({"frame_length_s": 1e300}, "frame_length_s", 1e300, ()),
        ({"frame_shift_s": 1e36}, "frame_shift_s", 1e36, ()),
        ({"f_max": 20.0}, "f_max", 20.0, "f_min"),
        ({"scale": 0.0}, "scale", 0.0, ()),
        ({"f_min": -1.0}, "f_min", -1.0, ()),
        ({"pre_emphasis": 1.1}, "pre_emphasis", 1.1, ()),
        ({"window": "hann"}, "window", "hann", ()),
    ],
)
def test_values(values, field, value, facts):
    with raises(RecipeError, field, value, naming=facts):
        KaldiFbank(**values)


@pytest.mark.parametrize(
    ("values", "frames", "rate", "field", "value", "facts"),
    [
        ({}, 399, 16000, "frame_length_s", 0.025, ["400", "399"]),
        ({}, 4000, 50, "frame_length_s and frame_shift_s", (0.025, 0.01), "50"),
        (
            {"f_max": 4001.0},
            4000,
            8000,
            "f_max",
            4001.0,
            ["f_min", "20", "4000"],
        ),
        ({"n_mels": 300}, 4000, 16000, "n_mels", 300, ()),
        ({"n_mels": 4096, "frame_length_s": 1.0}, 16000, 16000, "n_mels", 4096, ()),
        (
            {"frame_shift_s": 1.0, "snip_edges": False},
            4000,
            16000,
            "frame_shift_s",
            1.0,
            ["16000", "4000"],
        ),
    ],
)
def test_values_that_do_not_suit_the_window(values, frames, rate, field, value, facts):
    with raises(RecipeError, field, value, naming=facts):
        KaldiFbank(**values)(noise(1, frames), rate)
