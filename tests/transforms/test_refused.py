"""Parameters that no step takes: of a wrong type, out of range, or against others."""

import dataclasses
import re

import pytest

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import Choice, Number, WholeNumber
from beam_pipeline.transforms.base import Chain, Identity
from beam_pipeline.transforms.steps import (
    AUGMENTATIONS,
    BUILT_IN,
    PLACEMENTS,
    SELECTIONS,
    STREAM_STEPS,
)
from tests.raising import raises

STEPS = {**AUGMENTATIONS, **BUILT_IN, **PLACEMENTS, **SELECTIONS, **STREAM_STEPS}
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
as_image(low=9.5)                     high 9.0 low 9.5
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
linear_prediction(hop=400)            hop 400 frame
log_mel(f_min=9,f_max=9)              f_max 9.0 f_min 9
mfcc(f_min=9,f_max=8)                 f_max 8.0 f_min 9
mfcc(n_mels=10)                       n_mfcc 20 n_mels 10
noise(low_snr_db=50)                  high_snr_db 40.0 low_snr_db 50
pyin(f_max=65)                        f_max 65.0 f_min 65
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


def test_equal_bounds_where_values_are_drawn():
    for name, low, high in (
        ("random_gain", "low_db", "high_db"),
        ("noise", "low_snr_db", "high_snr_db"),
        ("speed", "low", "high"),
    ):
        assert STEPS[name](**{low: 1, high: 1})


@pytest.mark.parametrize("name", STEPS)
def test_a_name_that_no_parameter_has(name):
    cls = STEPS[name]
    with raises(RecipeError, cls.__name__, 64, naming="no parameter nmels"):
        cls(nmels=64)


def test_the_closest_name_is_told():
    with raises(RecipeError, naming="no parameter n_mel; did you mean n_mels?"):
        BUILT_IN["log_mel"](n_mel=64)


@pytest.mark.parametrize("steps", [(Identity(),), (Identity(), 3)])
def test_chains_that_cannot_be(steps):
    with raises(RecipeError, "steps"):
        Chain(steps)
