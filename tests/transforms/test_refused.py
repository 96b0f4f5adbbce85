"""Parameters that no step takes: of a wrong type, out of range, or against others."""

import dataclasses
import re

import numpy as np
import pytest

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Choice, Number, WholeNumber
from beam_pipeline.transforms.base import apply_transform, steps_of
from beam_pipeline.transforms.steps import (
    AUGMENTATION,
    PLACEMENT,
    SELECTION,
    STREAM,
    TRANSFORM,
    parse_transform,
)
from tests.raising import raises

KINDS = (TRANSFORM, AUGMENTATION, SELECTION, PLACEMENT, STREAM)
STEPS = {name: cls for kind in KINDS for name, cls in kind.table.items()}
# Values that no parameter of a type takes, by the type of its default.
WRONG = {
    bool: (1, "yes", None),
    int: (2.5, True, "8", None, float("nan")),
    float: (float("nan"), float("inf"), -float("inf"), "8", True, None),
    str: (7, None),
}
NEEDED = {"cutoff_hz": 100.0, "folder": "x", "gain_db": 1.0, "high_hz": 900.0,
          "low_hz": 100.0, "rate_hz": 8000}  # fmt: skip


def wrong_values(field, example):
    """Yields values that a parameter refuses, each with facts that the error names."""
    for value in WRONG.get(type(example), ("nonsense", True)):
        yield value, ()
    values = field.metadata["values"]
    if isinstance(values, Choice):
        yield "other", values.choices
    elif isinstance(values, WholeNumber):
        if values.least is not None:
            yield values.least - 1, [values.least]
        if values.most is not None:
            yield values.most + 1, [values.most]
    elif isinstance(values, Number):
        if values.least is not None:
            yield values.least - abs(values.least) / 99 - 1e-6, [f"{values.least:g}"]
        if values.most is not None:
            yield values.most * (1 + 1e-6), [f"{values.most:g}"]
        if values.below is not None:
            yield values.below, [f"{values.below:g}"]
        if values.is_positive:
            yield 0, ["positive"]


def every_wrong_value():
    for name, cls in STEPS.items():
        parameters = dataclasses.fields(cls)
        needed = {f.name: NEEDED[f.name] for f in parameters
                  if f.default is dataclasses.MISSING}  # fmt: skip
        for field in parameters:
            example = needed.get(field.name, field.default)
            for value, facts in wrong_values(field, example):
                given = {**needed, field.name: value}
                yield pytest.param(
                    cls, given, field.name, facts, id=f"{name}-{field.name}-{value}"
                )


@pytest.mark.parametrize(("cls", "given", "field", "facts"), list(every_wrong_value()))
def test_a_value_out_of_range(cls, given, field, facts):
    with raises(RecipeError, field, given[field], naming=facts):
        cls(**given)


# A step, the parameter that the error names, its value there, and facts.
AGAINST_OTHERS = """
ar_spectrum(n_fft=16)                 n_fft 16 order 16
as_image(high=-23)                    high -23.0 low -23
background(folder='x',low_snr_db=30)  high_snr_db 20.0 low_snr_db 30
band_pass(low_hz=9,high_hz=9)         high_hz 9.0 low_hz
chroma(bins_per_octave=10)            bins_per_octave 10 12
chroma(bins_per_octave=6000)          n_bins 42000 4096
cmvn(window=5,over='clip')            window 5 clip
delta(width=3,order=3)                order 3 width 3
delta(width=4)                        width 4 odd
kaldi_fbank(f_min=9,f_max=9)          f_max 9.0 f_min 9
linear_prediction(frame=16,hop=1)     order 16 17
linear_prediction(frame=400)          hop None frame
mfcc(n_mels=10)                       n_mfcc 20 n_mels 10
noise(low_snr_db=50)                  high_snr_db 40.0 low_snr_db 50
random_gain(low_db=7)                 high_db 6.0 low_db 7
speed(low=0.905)                      low 0.905 0.01
speed(low=1.2)                        high 1.1 low 1.2
stft(win_length=1025)                 win_length 1025 n_fft 1024
"""


@pytest.mark.parametrize("row", AGAINST_OTHERS.strip().splitlines())
def test_values_that_do_not_fit_each_other(row):
    step, found = re.split(r"  +", re.sub(r"\) ", ")  ", row), maxsplit=1)
    field, value, *facts = found.split()
    name, arguments = step.rstrip(")").split("(")
    given = eval(f"dict({arguments})")
    with raises(RecipeError, field, eval(value), naming=facts):
        STEPS[name](**given)


# A transform, the frames of windows and their rate, then the same.
DOES_NOT_SUIT = """
log_mel()                                  1023 16000  n_fft 1024 1023
log_mel(f_max=8001)                        2000 16000  f_max 8001.0 8000 16000
log_mel(f_min=8000)                        2000 16000  f_min 8000.0
log_mel(n_fft=64,n_mels=40)                2000 16000  n_mels 40 n_fft 64 16000 250.0
fft(n_fft=99)                              100 16000   n_fft 99 100
kaldi_fbank()                              399 16000   frame_length_s 0.025 400 399
kaldi_fbank(f_max=4001)                    4000 8000   f_max 4001.0 4000
kaldi_fbank(n_mels=300)                    4000 16000  n_mels 300
onset_strength()                           499 16000   n_fft 1024 499
rms(frame=512)                             499 16000   frame 512 499
spectral_contrast()                        2000 8000   bands 6 6400
spectral_contrast(n_fft=512,f_min=31)      2000 16000  n_fft 512
linear_prediction()                        16 16000    order 16 17
linear_prediction(frame=400,hop=160)       399 16000   frame 400 399
yin()                                      4000 2000   f_max 2093.0 1000
cqt()                                      4000 8000   f_min 32.703 84 3951.04
cqt(bins_per_octave=1,n_bins=4096)         4000 16000  f_min 32.703 4096
log_mel()|delta()                          2600 16000  width 9 7
resample(rate_hz=1000000000)               9 16000     rate_hz 1000000000 62500/1
resample(rate_hz=7999)                     9 8000      rate_hz 7999 7999/8000
downsample(ratio=3)                        9 16000     ratio 3 16000
downsample(ratio=16000)                    9 16000     rate_hz 1 1/16000
low_pass(cutoff_hz=8000)                   9 16000     cutoff_hz 8000.0 7999.84
band_pass(low_hz=50,high_hz=9000)          9 16000     high_hz 9000.0
band_pass(low_hz=50,high_hz=50.1)          9 16000     high_hz 50.1 0.16 low_hz 16000
lufs()                                     6399 16000  feature 6399 0.4
lufs()                                     4000 3999   sample_rate_hz 3999 4000
loudness(weighting='k')                    1024 3999   sample_rate_hz 3999 4000
"""


@pytest.mark.parametrize("row", DOES_NOT_SUIT.strip().splitlines())
def test_windows_that_do_not_suit(row):
    call, frames, rate, field, value, *facts = row.split()
    transform = parse_transform(call)
    for windows in (0, 2) if call.startswith(("log_mel(", "stft")) else (2,):
        with raises(RecipeError, field, eval(value), naming=facts):
            shape = (windows, int(frames))
            apply_transform(transform, np.zeros(shape, np.float32), int(rate))
    of_axes = ("n_fft", "frame", "order", "bands", "frame_length_s")
    if field in of_axes or call.startswith(("cqt", "chroma")):
        with raises(RecipeError, field, eval(value), naming=facts):
            steps_of(transform)[-1].axes(int(rate), int(frames))


@pytest.mark.parametrize("name", STEPS)
def test_a_name_that_no_parameter_has(name):
    cls = STEPS[name]
    with raises(RecipeError, cls.__name__, 64, naming="no parameter nmels"):
        cls(nmels=64)
