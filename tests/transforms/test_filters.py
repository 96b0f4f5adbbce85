"""Butterworth filters, against their formula and scipy."""

import numpy as np
import pytest
import scipy.signal
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms import signals
from beam_pipeline.transforms.signals import BandPass, HighPass, LowPass
from tests.raising import raises
from tests.transform_checks import noise

RATE = 16000


def scipys(step, rate=RATE):
    edges = [getattr(step, name) for name in step.EDGES]
    return scipy.signal.butter(
        step.order, edges if len(edges) == 2 else edges[0], step.KIND, fs=rate,
        output="sos",
    )  # fmt: skip


@st.composite
def steps(draw):
    order = draw(st.integers(1, 8))
    low, high = sorted(draw(st.tuples(st.floats(30, 3900), st.floats(4000, 7900))))
    return draw(
        st.sampled_from(
            [LowPass(cutoff_hz=low, order=order), HighPass(cutoff_hz=high, order=order),
             BandPass(low_hz=low, high_hz=high, order=order)]
        )
    )  # fmt: skip


FEW = [
    LowPass(cutoff_hz=900),
    HighPass(cutoff_hz=50, order=3),
    BandPass(low_hz=100, high_hz=300, order=2),
]


# Windows


@given(step=steps(), frames=st.integers(1, 400), piece=st.sampled_from([1, 64, 2**17]))
@settings(deadline=None, max_examples=150)
def test_windows_are_scipys_sosfiltfilt_in_any_piece(step, frames, piece):
    windows = noise(3, 2, frames, seed=frames)
    x = windows.astype(np.float64)
    sections = scipys(step)
    poles = step.order * len(step.EDGES)
    expected = scipy.signal.sosfiltfilt(
        sections, x, padlen=min(3 * (poles + 1), frames - 1)
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signals, "PIECE_SAMPLES", piece)
        out = step(windows, RATE)
    assert out.dtype == np.float32
    scale = max(abs(x).max(), abs(expected).max())
    np.testing.assert_allclose(out, expected, atol=2e-7 * scale)


# Streams


@given(step=steps(), frames=st.integers(1, 3000), piece=st.sampled_from([64, 2**17]))
@settings(deadline=None, max_examples=50)
def test_streams_are_scipys_sosfilt(step, frames, piece):
    clip = noise(2, frames)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signals, "PIECE_SAMPLES", piece)
        out = step.on_stream(clip, RATE)
    expected = scipy.signal.sosfilt(scipys(step), clip.astype(np.float64))
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, expected, atol=1e-7 * abs(clip).max(), rtol=1e-7)


@pytest.mark.parametrize("step", [
    *FEW, HighPass(cutoff_hz=20), HighPass(cutoff_hz=5, order=1),
    LowPass(cutoff_hz=50, order=12), LowPass(cutoff_hz=7990),
    BandPass(low_hz=1000, high_hz=1010), BandPass(low_hz=300, high_hz=3000, order=5),
])  # fmt: skip
def test_a_stretch_with_its_context_is_the_uninterrupted_filter(step):
    context = step.context(RATE)
    start = context + 5000
    clip = noise(2, start + 3000) + np.float32(0.3)  # an offset is the worst case
    whole = scipy.signal.sosfilt(scipys(step), clip.astype(np.float64))
    part = step.on_stream(clip[:, start - context :], RATE)[:, context:]
    np.testing.assert_allclose(part, whole[:, start:], atol=1e-8, rtol=1e-7)


@pytest.mark.parametrize("step", FEW)
def test_the_context_is_the_least_that_will_do(step):
    context = step.context(RATE)
    impulse = np.zeros(4 * context)
    impulse[0] = 1
    response = abs(scipy.signal.sosfilt(scipys(step), impulse))
    assert response[context:].sum() <= 1e-9 < response[context - 1 :].sum()


# Errors


@pytest.mark.parametrize(
    ("make", "field", "value", "facts"),
    [
        (lambda: LowPass(cutoff_hz=0.1).on_stream(noise(1, 9), RATE),
         "cutoff_hz", 0.1, ()),
        (lambda: BandPass(low_hz=1000, high_hz=1000.2, order=16).context(RATE),
         "low_hz", 1000.0, "4194304"),
    ],
)  # fmt: skip
def test_errors_say_what_to_do(make, field, value, facts):
    with raises(RecipeError, field, value, naming=facts):
        make()


def test_the_longest_context_is_the_limit(monkeypatch):
    step = LowPass(cutoff_hz=1000)
    frames = step.context(RATE)
    signals.butterworth_context.cache_clear()
    monkeypatch.setattr(signals, "MAX_CONTEXT", frames - 1)
    with raises(RecipeError, "cutoff_hz", 1000.0, naming=145):
        step.context(RATE)
    monkeypatch.setattr(signals, "MAX_CONTEXT", frames)
    assert step.context(RATE) == frames
