"""Steps that XLA compiles, for a GPU or a TPU if there is one, else for the CPU.

::

    peak_gain()|log_mel()|as_image()
    [--------- OnXla --------]  AsImage        neighbours that XLA runs are one function

The formulas are those of the numpy classes, in float32, so results differ by rounding;
numpy's bytes never come from here. A step that is not listed stays in numpy.
"""

from __future__ import annotations

import functools
import math
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import groupby
from types import ModuleType
from typing import Any, cast

import numpy as np

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.base import (
    Array,
    FloatArray,
    Transform,
    as_float32,
    chain_of,
    steps_of,
)
from beam_pipeline.transforms.catalogue import BUILT_IN
from beam_pipeline.transforms.cepstral import Delta, Mfcc, dct_matrix, slope_weights
from beam_pipeline.transforms.fourier import (
    Fft,
    Stft,
    centred_frames,
    first_frame,
    taper_of,
)
from beam_pipeline.transforms.levels import Gain, PeakGain, RmsGain
from beam_pipeline.transforms.mel import hann_window, mel_filter_bank
from beam_pipeline.transforms.signals import PreEmphasis
from beam_pipeline.transforms.spectral import LogMel, Mel

# A function of (windows, sample_rate_hz) that JAX can trace.
Traced = Callable[[Any, int], Any]


def all_on_xla(transforms: Mapping[str, Transform]) -> dict[str, Transform]:
    """Returns the transforms of features, with those steps compiled that XLA runs.

    Raises
    ------
    RecipeError
        If it runs none of them, or JAX is not installed.
    """
    load_jax()
    made = {name: _on_xla(transform) for name, transform in transforms.items()}
    steps = [step for each in made.values() for step in steps_of(each)]
    if not any(isinstance(step, OnXla) for step in steps):
        names = ", ".join(name for name, kind in BUILT_IN.items() if kind in _TRACED)
        raise RecipeError(
            "backend",
            f"runs only {names}, and no feature has one of them; leave it out",
            "jax",
        )
    return made


def _on_xla(transform: Transform) -> Transform:
    grouped: list[Transform] = []
    for runs, group in groupby(steps_of(transform), lambda step: type(step) in _TRACED):
        some = tuple(group)
        grouped += [OnXla(some)] if runs else some
    return chain_of(grouped)


def load_jax() -> ModuleType:
    """Imports JAX: workers share the memory of a device, and results repeat.

    Raises
    ------
    RecipeError
        If it is not installed.
    """
    # A process would take three quarters of the device's memory.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    flags = os.environ.get("XLA_FLAGS", "")
    if "xla_gpu_deterministic_ops" not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} --xla_gpu_deterministic_ops=true".strip()
    try:
        import jax
    except ImportError as error:
        raise RecipeError(
            "backend",
            f"needs JAX, which cannot be imported ({error}). Install it: pip install "
            "'audio-tfrecords[jax]', or JAX for your device",
            "jax",
        ) from error
    return cast(ModuleType, jax)


def jax_versions() -> dict[str, str]:
    """Returns the version of JAX, and the kind of device that it uses."""
    jax = load_jax()
    return {"jax": jax.__version__, "jax_device": jax.devices()[0].device_kind}


@dataclass(frozen=True)
class OnXla:
    """Steps that XLA compiles into one function of a batch of windows.

    Batches are padded with silence to a power of two, so that few are compiled.
    """

    steps: tuple[Any, ...]

    def __call__(self, windows: FloatArray, sample_rate_hz: int) -> Array:
        windows = as_float32(windows)
        batch = 1 << max(len(windows) - 1, 0).bit_length()
        padded = np.zeros((batch, *windows.shape[1:]), np.float32)
        padded[: len(windows)] = windows
        made = np.asarray(_compiled(self.steps, sample_rate_hz)(padded))
        return np.ascontiguousarray(made[: len(windows)])

    def axes(self, sample_rate_hz: int, frames: int) -> list[dict[str, Any]]:
        """The axes that the last of the steps with axes describes."""
        found: list[dict[str, Any]] = []
        for step in self.steps:
            axes = getattr(step, "axes", None)
            found = found if axes is None else list(axes(sample_rate_hz, frames))
        return found


@functools.lru_cache(maxsize=64)
def _compiled(steps: tuple[Any, ...], sample_rate_hz: int) -> Callable[[Any], Any]:
    def run(windows: Any) -> Any:
        for step in steps:
            windows = _TRACED[type(step)](step)(windows, sample_rate_hz)
        return windows

    compiled: Callable[[Any], Any] = load_jax().jit(run)
    return compiled


# The formulas. JAX is imported by the time that one is traced.


def _frames(x: Any, step: Any, center: bool, pad_mode: str) -> Any:
    """Time frames (..., count, n_fft) of signals (..., frames)."""
    from jax import numpy as jnp

    count = centred_frames(x.shape[-1], step.n_fft, step.hop, center, pad_mode)
    if center:
        around = -first_frame(step.n_fft, center)
        widths = [(0, 0)] * (x.ndim - 1) + [(around, around)]
        x = jnp.pad(x, widths, mode=pad_mode)
    starts = np.arange(count)[:, np.newaxis] * step.hop
    return x[..., starts + np.arange(step.n_fft)]


def _power(spectrum: Any) -> Any:
    return spectrum.real**2 + spectrum.imag**2


def _log(power: Any, scale: float, floor: float) -> Any:
    """``scale ln(power)``; the floor comes after it, as in numpy."""
    from jax import numpy as jnp

    return jnp.maximum(scale * jnp.log(power), np.float32(scale * math.log(floor)))


def _kind(spectrum: Any, step: Any) -> Any:
    from jax import numpy as jnp

    if step.kind == "complex":
        return spectrum
    if step.kind == "magnitude":
        return jnp.abs(spectrum)
    power = _power(spectrum)
    return power if step.kind == "power" else _log(power, 10 / math.log(10), step.floor)


def _gain(step: Gain) -> Traced:
    return lambda x, rate: x * np.float32(10 ** (step.gain_db / 20))


def _window_gain(step: PeakGain | RmsGain) -> Traced:
    def trace(x: Any, rate: int) -> Any:
        from jax import numpy as jnp

        axes = tuple(range(1, x.ndim))
        if isinstance(step, PeakGain):
            size = jnp.max(jnp.abs(x), axis=axes, keepdims=True)
        else:
            size = jnp.sqrt(jnp.mean(x**2, axis=axes, keepdims=True))
        size = jnp.where(jnp.isfinite(size), size, jnp.nan)
        return (
            x / jnp.where(size == 0, 1, size) * np.float32(10 ** (step.level_db / 20))
        )

    return trace


def _pre_emphasis(step: PreEmphasis) -> Traced:
    def trace(x: Any, rate: int) -> Any:
        from jax import numpy as jnp

        before = jnp.concatenate([x[..., :1], x[..., :-1]], axis=-1)
        return x - np.float32(step.coefficient) * before

    return trace


def _fft(step: Fft) -> Traced:
    def trace(x: Any, rate: int) -> Any:
        from jax import numpy as jnp

        return _kind(jnp.fft.rfft(x, step.length_for(x.shape[-1])), step)

    return trace


def _stft(step: Stft) -> Traced:
    def trace(x: Any, rate: int) -> Any:
        from jax import numpy as jnp

        taper = taper_of(step.window, step.win_length or step.n_fft, step.n_fft)
        framed = _frames(x, step, step.center, step.pad_mode)
        return _kind(jnp.fft.rfft(framed * taper), step)

    return trace


def _mel(step: Mel | LogMel) -> Traced:
    def trace(x: Any, rate: int) -> Any:
        import jax
        from jax import numpy as jnp

        bank = mel_filter_bank(
            rate, step.n_fft, step.n_mels, step.f_min,
            rate / 2 if step.f_max is None else step.f_max, step.mel_scale, step.norm,
        )  # fmt: skip
        framed = _frames(x, step, step.center, step.pad_mode)
        power = _power(jnp.fft.rfft(framed * hann_window(step.n_fft)))
        # Devices multiply in less than float32 unless they are told.
        mel = jnp.matmul(power, bank.T, precision=jax.lax.Precision.HIGHEST)
        if isinstance(step, Mel):
            return mel
        scale = 10 / math.log(10) if step.log == "db" else 1.0
        return _log(mel, scale, step.floor)

    return trace


def _mfcc(step: Mfcc) -> Traced:
    def trace(x: Any, rate: int) -> Any:
        import jax
        from jax import numpy as jnp

        levels = _mel(step.log_mel())(x, rate)
        matrix = dct_matrix(step.n_mfcc, step.n_mels, step.lifter)
        return jnp.matmul(levels, matrix, precision=jax.lax.Precision.HIGHEST)

    return trace


def _delta(step: Delta) -> Traced:
    def trace(x: Any, rate: int) -> Any:
        from jax import numpy as jnp

        step.check_shape(x.shape)
        weights = slope_weights(step.width, step.order)
        half = len(weights) - 1
        count = x.shape[-2] - 2 * half
        odd = step.order % 2 == 1

        def shifted(by: int) -> Any:
            return x[..., half + by : half + by + count, :]

        middle = shifted(0)
        total = jnp.zeros_like(middle)
        for k, weight in enumerate(weights[1:], 1):
            after, before = shifted(k), shifted(-k)
            pair = after - before if odd else (after - middle) - (middle - before)
            total = total + np.float32(weight) * pair
        widths = [(0, 0)] * (x.ndim - 2) + [(half, half), (0, 0)]
        return jnp.pad(total, widths, mode="edge")

    return trace


_TRACED: dict[type[Any], Callable[[Any], Traced]] = {
    Gain: _gain,
    PeakGain: _window_gain,
    RmsGain: _window_gain,
    PreEmphasis: _pre_emphasis,
    Fft: _fft,
    Stft: _stft,
    Mel: _mel,
    LogMel: _mel,
    Mfcc: _mfcc,
    Delta: _delta,
}
