"""Normalised means and variances, against Kaldi's loop in float64."""

import warnings

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import record
from beam_pipeline.api import plan
from beam_pipeline.errors import RecipeError
from beam_pipeline.read.replay import replay
from beam_pipeline.read.verify import verify
from beam_pipeline.transforms.cepstral import Cmvn, Delta
from tests.raising import raises

ALL = [
    Cmvn(),
    Cmvn(norm_vars=False),
    Cmvn(window=5, min_window=3),
    Cmvn(window=6, center=True),
    Cmvn(over="clip"),
]


def spectra(*shape, seed=0):
    """Spectra whose level is far from 0, as decibels are."""
    rng = np.random.default_rng(seed)
    return (rng.normal(-40, 9, shape)).astype(np.float32)


def kaldi_sliding(x, window, min_window, center, norm_vars):
    """Kaldi's loop over frames, of one spectrum (t, bins), in float64."""
    x = x.astype(np.float64)
    out = np.empty_like(x)
    count = len(x)
    for t in range(count):
        if center:
            start = t - window // 2
            stop = start + window
        else:
            start, stop = t - window, t + 1
        if start < 0:
            stop -= start
            start = 0
        if not center and stop > t:
            stop = max(t + 1, min_window)
        if stop > count:
            start = max(0, start - (stop - count))
            stop = count
        part = x[start:stop]
        out[t] = x[t] - part.mean(axis=0)
        if norm_vars:
            out[t] /= np.sqrt(np.maximum(part.var(axis=0), 1e-10))
    return out


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 7, 4), (2, 3, 9, 5), (0, 4, 2)])
@pytest.mark.parametrize("norm_vars", [True, False])
def test_a_window_has_mean_0_and_deviation_1(shape, norm_vars):
    x = spectra(*shape)
    found = Cmvn(norm_vars=norm_vars)(x)
    assert (found.shape, found.dtype) == (shape, np.float32)
    if x.size:
        double = x.astype(np.float64)
        expected = double - double.mean(axis=-2, keepdims=True)
        if norm_vars:
            std = np.sqrt(np.maximum(double.var(axis=-2, keepdims=True), 1e-10))
            expected /= std
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)


@given(
    count=st.integers(1, 14),
    window=st.integers(1, 16),
    min_window=st.integers(1, 16),
    center=st.booleans(),
    norm_vars=st.booleans(),
    seed=st.integers(0, 99),
)
@settings(deadline=None, max_examples=150)
def test_a_sliding_window_is_kaldi_s(
    count, window, min_window, center, norm_vars, seed
):
    step = Cmvn(
        norm_vars=norm_vars, window=window, min_window=min_window, center=center
    )
    x = spectra(2, count, 3, seed=seed)
    found = step(x)
    for spectrum, made in zip(x, found, strict=True):
        expected = kaldi_sliding(spectrum, window, min_window, center, norm_vars)
        np.testing.assert_allclose(made, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("level", [0, -23.0258, 1e-30, 1e30])
@pytest.mark.parametrize("step", ALL[:4], ids=repr)
def test_what_is_constant_gives_0(level, step):
    assert not step(np.full((2, 50, 3), level, np.float32)).any()


def test_the_floor_is_the_least_variance():
    x = np.array([[[0.0], [2.0]]], np.float32)
    np.testing.assert_allclose(Cmvn(floor=4.0)(x)[0, :, 0], [-0.5, 0.5])
    np.testing.assert_allclose(Cmvn(floor=0.25)(x)[0, :, 0], [-1, 1])


def test_nan_spreads_over_its_bin_alone():
    x = spectra(1, 6, 2)
    x[0, 3, 1] = np.nan
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for step in ALL[:2]:
            found = step(x)[0]
            assert np.isfinite(found[:, 0]).all()
            assert np.isnan(found[:, 1]).all()


# Clips


@pytest.mark.parametrize("shape", [(5, 7, 3), (5, 2, 7, 3)])
def test_a_clip_is_measured_over_all_its_windows(shape):
    x = spectra(*shape)
    step = Cmvn(over="clip")
    measured = step.measure([x])
    assert step.measure([x[:2], x[2:3], x[3:]]) == measured
    found = step.of_measured(measured)(x)
    double = x.astype(np.float64)
    axes = (0, double.ndim - 2)
    expected = (double - double.mean(axis=axes, keepdims=True)) / double.std(
        axis=axes, keepdims=True
    )
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    np.testing.assert_array_equal(step.of_measured(measured)(x[2:3]), found[2:3])


def test_a_clip_of_silence_gives_0():
    x = np.full((4, 5, 2), -23.0258, np.float32)
    step = Cmvn(over="clip")
    assert not step.of_measured(step.measure([x]))(x).any()


def test_only_the_mean_of_a_clip():
    x = spectra(3, 4, 2)
    step = Cmvn(over="clip", norm_vars=False)
    found = step.of_measured(step.measure([x]))(x)
    mean = x.mean(axis=(0, 1), dtype=np.float64)
    np.testing.assert_allclose(found, x - mean, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    ("make", "field", "value", "facts"),
    [
        (lambda: Cmvn(window=5, over="clip"), "window", 5, "clip"),
        (
            lambda: Cmvn()(np.zeros((2, 5), np.float32)),
            "feature",
            (2, 5),
            "log_mel|cmvn",
        ),
    ],
)
def test_errors(make, field, value, facts):
    with raises(RecipeError, field, value, naming=facts):
        make()


# Whole runs


@pytest.fixture
def corpus(tmp_path):
    """Clips of different levels, so that each clip has a mean of its own."""
    rng = np.random.default_rng(0)
    for i, frames in enumerate((5000, 900, 3100)):
        path = tmp_path / "in" / f"{i}.wav"
        path.parent.mkdir(exist_ok=True)
        soundfile.write(path, 0.1 * (i + 1) ** 2 * rng.normal(size=frames), 8000)
    return tmp_path / "in"


OPTIONS = {"win_len": 400, "hop": 170, "label_from": "none", "order": "listed",
           "features": {"plain": "log_mel(n_fft=128,hop=64,n_mels=5)",
                        "clip": "log_mel(n_fft=128,hop=64,n_mels=5)|cmvn(over='clip')",
                        "slopes": "log_mel(n_fft=128,hop=64,n_mels=5)|"
                                  "cmvn(over='clip',norm_vars=False)|delta(width=3)"},
           }  # fmt: skip


def examples_of(folder):
    return list(replay(str(folder)).as_numpy_iterator())


@pytest.mark.runs
def test_each_clip_of_a_data_set_has_mean_0_and_deviation_1(corpus, tmp_path):
    record(str(corpus), str(tmp_path / "out"), **OPTIONS)
    clips = {}
    for example in examples_of(tmp_path / "out"):
        clips.setdefault(example["filepath"], []).append(example)
    assert sorted(map(len, clips.values())) == [3, 16, 28]
    for examples in clips.values():
        plain = np.stack([e["plain"] for e in examples]).astype(np.float64)
        mean, std = plain.mean(axis=(0, 1)), plain.std(axis=(0, 1))
        for example, window in zip(examples, plain, strict=True):
            expected = (window - mean) / std
            np.testing.assert_allclose(example["clip"], expected, atol=1e-5)
            slopes = Delta(width=3)((window - mean)[np.newaxis].astype(np.float32))
            np.testing.assert_allclose(example["slopes"], slopes[0], atol=1e-5)


@pytest.mark.runs
def test_shards_blocks_copies_and_choice_do_not_change_a_clip(
    corpus, tmp_path, monkeypatch
):
    record(str(corpus), str(tmp_path / "a"), **OPTIONS)
    monkeypatch.setattr("beam_pipeline.write.blocks.BLOCK_BYTES", 4000)
    monkeypatch.setattr("beam_pipeline.plan.clip_audio._BLOCK_FRAMES", 1000)
    options = {**OPTIONS, "elements_per_file": 7, "copies": 2, "workers": 2,
               "augment": "random_gain()", "keep": "energy(above_db=-18)"}  # fmt: skip
    record(str(corpus), str(tmp_path / "b"), **options)
    every, some = (
        {(e["filepath"], e["win_start_idx"]): e for e in examples_of(tmp_path / name)
         if not e.get("copy")}
        for name in "ab"
    )  # fmt: skip
    assert 10 < len(some) < len(every)
    for key, example in some.items():
        for name in OPTIONS["features"]:
            np.testing.assert_array_equal(example[name], every[key][name])


@pytest.mark.runs
def test_a_clip_is_measured_again_when_it_is_decoded_again(corpus, tmp_path):
    record(str(corpus), str(tmp_path / "out"), **OPTIONS)
    folder = str(tmp_path / "out")
    assert verify(folder, deep=True, input=str(corpus), sample=20) == []


def test_two_measures_in_a_chain_are_refused(corpus):
    twice = "log_mel()|cmvn(over='clip')|cmvn(over='clip')"
    with raises(RecipeError, "feature x", 2):
        plan(str(corpus), win_len=2000, features={"x": twice})


def test_a_measure_of_samples_is_refused(corpus):
    with raises(RecipeError, naming="log_mel|cmvn"):
        plan(str(corpus), win_len=2000, features={"x": "cmvn(over='clip')"})
