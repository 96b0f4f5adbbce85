"""The axes of features, and what silence gives: one line for each kind of step."""

import numpy as np
import pytest

from beam_pipeline.transforms.base import apply_transform
from beam_pipeline.transforms.steps import parse_transform

RATE = 16000
# The axes of windows of 4000 frames: name, unit, size, then start, step, and the length
# of a frame or the labels; or the values.
AXES = """
log_mel(n_mels=3): time s 12 0.0 0.016 0.064; mel_band Hz 3 (754.094, 1688.908, 3675.768)
log_mel(center=True,n_mels=1,mel_scale='htk'): time s 16 -0.032 0.016 0.064; mel_band Hz 1 (1767.793,)
stft(hop=160): time s 19 0.0 0.01 0.064; frequency Hz 513 0.0 15.625
stft(center=True,hop=160): time s 26 -0.032 0.01 0.064; frequency Hz 513 0.0 15.625
fft(): frequency Hz 2001 0.0 4.0
fft(n_fft=8192): frequency Hz 4097 0.0 1.953125
mfcc(n_mfcc=13,n_mels=40): time s 12 0.0 0.016 0.064; cepstral_coefficient 1 13 0.0 1.0
pcen(n_mels=2): time s 12 0.0 0.016 0.064; mel_band Hz 2 (1005.645, 2836.4)
kaldi_fbank(n_mels=1,use_energy=True): time s 23 0.0 0.01 0.025; mel_band Hz 2 (0.0, 1802.798)
kaldi_fbank(n_mels=1,snip_edges=False): time s 25 -0.0075 0.01 0.025; mel_band Hz 1 (1802.798,)
linear_prediction(): coefficient 1 16 1 1
linear_prediction(output='gain'):
linear_prediction(order=8,frame=400,hop=160): time s 23 0.0 0.01 0.025; coefficient 1 8 1 1
linear_prediction(output='gain',frame=400,hop=160): time s 23 0.0 0.01 0.025
ar_spectrum(n_fft=64): frequency Hz 33 0.0 250.0
ar_spectrum(frame=400,hop=160): time s 23 0.0 0.01 0.025; frequency Hz 257 0.0 31.25
rms(frame=512,hop=200): time s 18 0.0 0.0125 0.032
spectral_centroid(n_fft=512,hop=300): time s 12 0.0 0.01875 0.032
spectral_contrast(bands=3): time s 12 0.0 0.016 0.064; octave_band Hz 4 (0.0, 200.0, 400.0, 800.0)
onset_strength(): time s 12 0.0 0.016 0.064
loudness(): time s 12 0.0 0.016 0.064
yin(): time s 4 0.0 0.032 0.128; column  2 0 1 ['f0_hz', 'aperiodicity']
pyin(): time s 4 0.0 0.032 0.128; column  2 0 1 ['f0_hz', 'voiced_probability']
cqt(f_min=440.0,n_bins=3): time s 8 0.0 0.032; frequency Hz 3 (440.0, 466.164, 493.883)
chroma(hop=100): time s 41 0.0 0.00625; pitch_class semitone 12 0 1
log_mel(n_mels=2)|as_image(): time s 12 0.0 0.016 0.064; mel_band Hz 2 (1005.645, 2836.4)
resample(rate_hz=8000)|rms(): time s 4 0.0 0.032 0.128
"""  # noqa: E501


def as_text(axis):
    parts = [axis[key] for key in ("name", "unit", "size")]
    if "values" in axis:
        parts.append(tuple(round(value, 3) for value in axis["values"]))
    else:
        parts += [axis["start"], axis["step"]]
    return " ".join(
        map(str, parts + [axis[k] for k in ("length", "labels") if k in axis])
    )


@pytest.mark.parametrize("row", AXES.strip().splitlines())
def test_axes(row):
    call, _, expected = row.partition(":")
    found = parse_transform(call).axes(RATE, 4000)
    assert "; ".join(map(as_text, found)) == expected.strip()


# What silence gives; what is not here gives zeros.
SILENCE = {
    "ar_spectrum()": -160, "cqt(kind='db')": -100, "kaldi_fbank()": np.log(2.0**-23),
    "kaldi_fbank(use_energy=True)": np.log(2.0**-23), "log_mel()": np.log(1e-10),
    "log_mel(floor=1e-8)": np.log(1e-8), "log_mel(log='db')": -100,
    "loudness(floor_db=-70)": -70, "lufs()": -70, "spectral_flatness()": 1,
    "stft(kind='db',floor=1e-8)": -80,
}  # fmt: skip
ZEROS = """
analytic chroma cqt fft lufs_gain mel normalize onset_strength pcen pcen(bias=0)
peak_gain pre_emphasis pyin rms rms_gain spectral_bandwidth spectral_centroid
spectral_contrast spectral_rolloff stft linear_prediction normalize(kind='log')
linear_prediction(output='gain') log_mel()|cmvn() log_mel()|delta()
low_pass(cutoff_hz=9) resample(rate_hz=8000) zero_crossing_rate
kaldi_fbank(log=False) log_mel()|as_image()
"""


@pytest.mark.parametrize("call", [*SILENCE, *ZEROS.split()])
def test_silence(call):
    made = apply_transform(parse_transform(call), np.zeros((2, 8000), "f4"), RATE)
    expected = np.full_like(made, SILENCE.get(call, 0))
    np.testing.assert_allclose(made, expected, rtol=1e-7, atol=0)
