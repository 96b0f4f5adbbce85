"""Transforms of the catalogue, and your own, as functions for ``ds.map``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from beam_pipeline.errors import InputError, OptionError, RecipeError, check_feature
from beam_pipeline.examples.features import check_transform
from beam_pipeline.examples.spec import FeatureSpec, Shape
from beam_pipeline.examples.window_steps import run_on_windows
from beam_pipeline.parameters import check_whole
from beam_pipeline.tf_dataset.structure import (
    Array,
    as_samples,
    as_stored,
    in_graph,
    in_python,
)
from beam_pipeline.transforms.base import (
    Transform,
    apply_transform,
    needs_sample_rate,
    rate_after,
    steps_of,
)
from beam_pipeline.transforms.steps import given_transform

# Where the rate, or the length, is known only when a signal arrives, a transform is
# tried with these; at the second rate if it fails at the first.
TRIAL_RATES_HZ = (16000, 48000)
TRIAL_FRAMES = 65536


def as_tf(
    transform: Transform | str,
    key: str = "signal",
    into: str | None = None,
    sample_rate: int | None = None,
    batched: bool = False,
) -> Callable[[Any], Any]:
    """Makes a function for ``ds.map`` from a transform.

    ::

        ds = ds.map(as_tf("log_mel(n_mels=64)|delta()", into="log_mel"))

    The values are those that ``record`` stores for the same window with the same
    transform, bit for bit.

    Parameters
    ----------
    transform : Transform or str
        A transform as ``record(features=...)`` takes it: an expression, an object of
        the catalogue such as ``LogMel(n_mels=64)``, or any callable from windows to
        features. Here a callable may also be a lambda or a local function.
    key : str
        The key of the signal, in elements that are dicts.
    into : str, optional
        The key of the result. Default: ``key``, so the result replaces the signal.
    sample_rate : int, optional
        Hz; needed where elements have no ``fs``. If both are there, they must agree.
        With it, the shape of the result is static.
    batched : bool
        Whether the first axis counts windows.

    Returns
    -------
    callable
        From a tensor to a tensor, or from a dict to a dict. The signal has the shape
        (frames,) or (channels, frames), after the axis of windows if ``batched``. It is
        float32, float64, or whole numbers, which count as full scale: int16 is divided
        by ``2**15``. A dict in which the result replaces the signal has the new ``fs``
        if the transform changes the rate.

    Raises
    ------
    OptionError
        A ValueError: if the expression cannot be read, or ``sample_rate`` is not a
        whole number of at least 1. When the function is mapped: if the signal is
        missing or has another type or shape, the rate is unknown and needed, or the
        transform fails on silence.

    Notes
    -----
    The type and the shape of the result come from a trial on silence. Where a transform
    needs the sample rate, the shape is static only with ``sample_rate``; and only with
    signals of known length. ``dataset_set_shapes`` makes it so elsewhere.

    A transform that fails on a signal raises ``tf.errors.OpError`` when the element is
    read. The message names the transform, and the file and the window if they are in
    the element. Transforms run in Python, so the data set cannot be sent to other
    processes.

    Examples
    --------
    >>> function = as_tf("rms(frame=4,hop=4)")
    >>> function(tf.constant([3.0, 3, 3, 3, 0, 0, 0, 0])).numpy()
    array([3., 0.], dtype=float32)
    """
    step, text = given_transform(transform)
    if sample_rate is not None:
        sample_rate = check_whole("sample_rate", sample_rate)
    return in_graph(_Mapped(step, text, key, into or key, sample_rate, batched).run)


@dataclass(frozen=True)
class _Mapped:
    """A transform of tensors; see :func:`as_tf`."""

    transform: Transform
    text: str
    key: str
    into: str
    sample_rate: int | None
    batched: bool

    def run(self, element: Any) -> Any:
        """Returns the features of a signal, or a dict with them."""
        if not isinstance(element, Mapping):
            return self._features({self.key: tf.convert_to_tensor(element)})[0]
        check_feature("key", self.key, sorted(element))
        values, rate = self._features(element)
        found = {**element, self.into: values}
        steps = steps_of(self.transform)
        changes_rate = any(hasattr(step, "rate_after") for step in steps)
        if self.into == self.key and "fs" in element and changes_rate:
            fs = element["fs"]
            found["fs"] = tf.zeros_like(fs) + tf.cast(rate, fs.dtype)
        return found

    def _features(self, element: Mapping[str, Any]) -> list[Any]:
        """Returns the features of a signal, or of a batch, and their sample rate.

        ``element`` may have ``fs``, and ``filepath`` and ``win_start_idx`` for errors.
        """
        signal = element[self.key]
        dtype, shape = self._signature(signal, "fs" in element)
        names = [n for n in ("fs", "filepath", "win_start_idx") if n in element]
        lead = signal.shape[:1].as_list() if self.batched else []
        return in_python(
            partial(self._call, names),
            [as_samples(signal, tf.float32), *(element[name] for name in names)],
            [dtype, tf.int64],
            [[*lead, *shape], ()],
        )

    def _signature(self, signal: Any, has_rate: bool) -> tuple[tf.DType, Shape]:
        """Returns the type, and the shape for one window, of the features."""
        shape, dtype = signal.shape, signal.dtype
        sizes = [None] if shape.rank is None else shape.as_list()[self.batched :]
        if (
            shape.rank is None
            or len(sizes) not in (1, 2)
            or None in sizes[:-1]
            or dtype.is_complex
            or dtype in (tf.string, tf.bool)
        ):
            after = ", after the axis of windows" if self.batched else ""
            raise OptionError(
                "key",
                "must name real signals of shape (frames,) or (channels, frames) with "
                f"a known number of channels{after}; {self.key} is {dtype.name} of "
                f"shape {shape}",
                self.key,
            )
        *channels, frames = sizes
        rates: Sequence[int | None] = [self.sample_rate]
        if self.sample_rate is None and has_rate and needs_sample_rate(self.transform):
            rates = TRIAL_RATES_HZ
        found = self._try((*channels, frames or TRIAL_FRAMES), rates)
        if len(found) > 1:
            raise OptionError(
                "transform", "must return one array, not a dict", self.text
            )
        spec, axes = found[0], found[0].shape or ()
        is_sure = frames is not None and len(rates) == 1
        return tf.as_dtype(spec.dtype), axes if is_sure else (None,) * len(axes)

    def _try(
        self, window: tuple[int, ...], rates: Sequence[int | None]
    ) -> list[FeatureSpec]:
        """Runs the transform on silence, at the first rate that it can take."""
        rate, *others = rates
        try:
            return check_transform(self.into, self.text, self.transform, window, rate)
        except RecipeError:
            if not others:
                raise
            return self._try(window, others)

    def _call(
        self, names: list[str], signal: Array, *others: Any
    ) -> tuple[Array, np.int64]:
        given = dict(zip(names, others, strict=True))
        windows = signal if self.batched else signal[np.newaxis]
        windows = windows.view()
        windows.flags.writeable = False
        paths = np.ravel(np.asarray(given.get("filepath", b"a signal"), object))
        path = next(iter(paths), b"a signal").decode()
        rate = self._rate_of(given.get("fs", []), path)
        starts = np.broadcast_to(given.get("win_start_idx", 0), len(windows))
        values = run_on_windows(
            lambda some: np.asarray(apply_transform(self.transform, some, rate)),
            (windows,), f"transform {self.text}", starts, path,
        )  # fmt: skip
        values = as_stored(values)
        after = np.int64(rate_after(self.transform, rate))
        return (values if self.batched else values[0]), after

    def _rate_of(self, found: Any, path: str) -> int:
        """Returns the rate of an element, which must be ``sample_rate`` if given."""
        rates = {int(rate) for rate in np.ravel(found)} or {self.sample_rate or 0}
        if len(rates) > 1 or self.sample_rate not in (None, *rates):
            listed = ", ".join(map(str, sorted(rates)))
            wanted = self.sample_rate or "one rate for each batch"
            raise InputError(
                f"{path} has the sample rate {listed} Hz, but {self.text} needs "
                f"{wanted}. Leave out other files, or resample them first."
            )
        return rates.pop()
