"""Features that XLA computes, on the device that JAX finds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from beam_pipeline import Metadata, record, replay, verify
from beam_pipeline.cli.main import main
from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import apply_transform
from beam_pipeline.transforms.catalogue import BUILT_IN
from beam_pipeline.transforms.expressions import parse_transform
from tests.frameworks.conftest import need
from tests.raising import raises
from tests.sounds import write_corpus

need("jax")

from beam_pipeline.transforms.xla import _TRACED, OnXla, all_on_xla  # noqa: E402

RATE = 16000
FEATURES = {"mel": "peak_gain()|log_mel()|as_image()", "mfcc": "mfcc()|delta(width=3)"}

EXPRESSIONS = [
    "gain(gain_db=3)",
    "peak_gain(level_db=-1)",
    "rms_gain()",
    "pre_emphasis()",
    "fft()",
    "fft(kind='power',n_fft=5000)",
    "stft()",
    "stft(kind='magnitude',win_length=512,window='blackman')",
    "stft(kind='db',center=True,pad_mode='reflect')",
    "mel(n_mels=40,mel_scale='htk',norm='none')",
    "log_mel()",
    "log_mel(log='db',center=True,pad_mode='edge',f_min=100,f_max=7000)",
    "mfcc(lifter=22)",
    "log_mel()|delta()",
    "log_mel()|delta(width=5,order=2)",
    "pre_emphasis()|peak_gain()|log_mel()",
]


def windows(shape: tuple[int, ...]) -> Any:
    made = np.random.default_rng(0).normal(0, 0.1, shape).astype(np.float32)
    made[-1] = 0
    return made


@pytest.mark.parametrize(
    ("expression", "shape"),
    [
        *((expression, (5, 4000)) for expression in EXPRESSIONS),
        ("peak_gain(level_db=-1)", (2, 2, 4000)),
        ("log_mel()|delta()", (2, 2, 4000)),
    ],
)
def test_equal_to_numpy_up_to_rounding(expression: str, shape: tuple[int, ...]) -> None:
    given, plain = windows(shape), parse_transform(expression)
    on_device = all_on_xla({"x": plain})["x"]
    assert isinstance(on_device, OnXla)
    wanted = apply_transform(plain, given, RATE)
    got = apply_transform(on_device, given, RATE)
    assert (got.dtype, got.shape) == (wanted.dtype, wanted.shape)
    assert np.abs(got - wanted).max() <= 2e-6 * np.abs(wanted).max()
    axes = getattr(plain, "axes", None)
    if axes is not None:
        assert on_device.axes(RATE, 4000) == axes(RATE, 4000)


def test_every_step_that_it_runs_is_compared() -> None:
    names = {name for name, kind in BUILT_IN.items() if kind in _TRACED}
    steps = [step.partition("(")[0] for e in EXPRESSIONS for step in e.split("|")]
    assert names == {*steps}


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5, 8, 9])
def test_a_window_has_the_same_bytes_in_any_block(count: int) -> None:
    given = windows((9, 4000))
    run = all_on_xla({"x": parse_transform("log_mel()|delta()")})["x"]
    whole = apply_transform(run, given, RATE)
    some = apply_transform(run, given[:count], RATE)
    assert some.tobytes() == whole[:count].tobytes()


def test_nan_stays() -> None:
    given = windows((2, 4000))
    given[0, 100] = np.nan
    for expression in ("peak_gain()", "rms_gain()", "log_mel()"):
        run = all_on_xla({"x": parse_transform(expression)})["x"]
        made = apply_transform(run, given, RATE)
        assert np.isnan(made[0]).any()
        assert np.isfinite(made[1]).all()


def test_errors_are_those_of_the_steps() -> None:
    run = all_on_xla({"x": parse_transform("log_mel()|delta(width=99)")})["x"]
    with raises(RecipeError, naming=["width", "59 frames"]):
        apply_transform(run, windows((1, 16000)), RATE)


def test_without_a_step_that_it_runs() -> None:
    with raises(RecipeError, naming=["backend", "log_mel", "leave it out"]):
        all_on_xla({"signal": parse_transform("identity()")})


def test_from_file_to_reader(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in")
    sounds = str(tmp_path / "in")
    plain = record(sounds, tmp_path / "numpy", win_len=2000, features=FEATURES)
    for workers in (1, 2):
        made = record(
            sounds, tmp_path / f"jax{workers}", win_len=2000, features=FEATURES,
            backend="jax", workers=workers,
        )  # fmt: skip
    assert {"jax", "jax_device"} <= made.writer.keys()
    assert made.features == plain.features
    first = Metadata.load(tmp_path / "jax1")
    assert list(first.shards()) == list(made.shards())
    pairs = zip(
        replay(tmp_path / "numpy").as_numpy_iterator(),
        replay(tmp_path / "jax2").as_numpy_iterator(),
        strict=True,
    )
    for wanted, got in pairs:
        assert np.abs(got["mel"].astype(int) - wanted["mel"]).max() <= 1
        assert np.allclose(got["mfcc"], wanted["mfcc"], atol=1e-3)
    assert verify(tmp_path / "jax1", deep=True, input=sounds) == []
    words = ["record", "--input", str(sounds), "--output", str(tmp_path / "jax1")]
    words += ["--win-len", "2000", "--backend", "jax"]
    words += [w for n, e in FEATURES.items() for w in ("--feature", f"{n}={e}")]
    assert main(words) == 0  # nothing to do: it is complete
