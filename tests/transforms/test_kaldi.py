"""Kaldi's filter bank, against kaldi-native-fbank and the defining sums."""

import kaldi_native_fbank as knf
import numpy as np
import pytest

from beam_pipeline.transforms.mel import KaldiFbank
from tests.transform_checks import noise


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
    out = made(windows, 16000)
    np.testing.assert_array_equal(out[..., 1:], KaldiFbank()(windows, 16000))
    starts = range(0, 8000 - 400 + 1, 160)
    frames = [windows[:, s : s + 400].astype(np.float64) * 32768 for s in starts]
    energy = np.stack([400 * np.var(frame, axis=-1) for frame in frames], axis=-1)
    np.testing.assert_allclose(out[..., 0], np.log(energy), rtol=1e-6)
