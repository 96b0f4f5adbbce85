"""Transforms of the catalogue, and your own, as functions for ``ds.map``."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from beam_pipeline.errors import InputError, OptionError, RecipeError
from beam_pipeline.examples.features import check_transform
from beam_pipeline.examples.trial import run_on_windows
from beam_pipeline.parameters import check_whole
from beam_pipeline.tf_dataset.structure import Array, as_stored, full_scale, in_graph
from beam_pipeline.transforms.base import (
    Transform,
    apply_transform,
    needs_sample_rate,
    rate_after,
    steps_of,
)
from beam_pipeline.transforms.steps import given_transform

# Where the rate, or the length, is known only when a signal arrives, a transform is
# tried at each of these. Axes of the same size at all of them do not depend on it.
TRIAL_RATES_HZ = (48000, 44100, 16000)
TRIAL_FRAMES = (65536, 44100)


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
        With it, all axes of the result are static.
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
    The type and the shape of the result come from a trial on silence. Without
    ``sample_rate``, or with signals of unknown length, the trial runs at several rates
    and lengths. Axes whose size they change are then not static;
    ``dataset_set_shapes`` makes them so.

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
            return self._features(tf.convert_to_tensor(element), {})[0]
        if self.key not in element:
            known = ", ".join(sorted(element))
            raise OptionError("key", f"is not one of {known}", self.key)
        values, rate = self._features(element[self.key], element)
        found = {**element, self.into: values}
        steps = steps_of(self.transform)
        changes_rate = any(hasattr(step, "rate_after") for step in steps)
        if self.into == self.key and "fs" in element and changes_rate:
            found["fs"] = tf.cast(rate, element["fs"].dtype)
        return found

    def _features(self, signal: Any, element: Mapping[str, Any]) -> tuple[Any, Any]:
        """Returns the features of a signal, or of a batch, and their sample rate.

        ``element`` may have ``fs``, and ``filepath`` and ``win_start_idx`` for errors.
        """
        dtype, shape = self._signature(signal, "fs" in element)
        names = [n for n in ("fs", "filepath", "win_start_idx") if n in element]
        values, rate = tf.numpy_function(
            partial(self._call, shape, names),
            [_as_float32(signal), *(element[name] for name in names)],
            [dtype, tf.int64],
        )
        lead = signal.shape[:1].as_list() if self.batched else []
        values.set_shape([*lead, *shape])
        like = element["fs"].shape if "fs" in element else ()
        rate = tf.broadcast_to(rate, tf.shape(element["fs"]) if like else [])
        rate.set_shape(like)
        return values, rate

    def _signature(self, signal: Any, has_rate: bool) -> tuple[tf.DType, list[Any]]:
        """Returns the type, and the shape for one window, of the features."""
        shape = signal.shape
        rank = None if shape.rank is None else shape.rank - self.batched
        if rank not in (1, 2):
            window = "(frames,) or (channels, frames)"
            raise OptionError(
                "key",
                f"must name signals of shape {window}"
                + (" after the axis of windows" if self.batched else "")
                + f"; {self.into} has the shape {shape}",
                self.into,
            )
        if signal.dtype.is_complex or signal.dtype in (tf.string, tf.bool):
            raise OptionError(
                "key", f"must name real signals, not {signal.dtype.name}", self.into
            )
        *channels, frames = shape.as_list()[self.batched :]
        if None in channels:
            raise OptionError(
                "key", "must name signals with a known number of channels", self.into
            )
        rates: Sequence[int | None] = [self.sample_rate]
        if self.sample_rate is None and has_rate and needs_sample_rate(self.transform):
            rates = TRIAL_RATES_HZ
        lengths = TRIAL_FRAMES if frames is None else [frames]
        return self._try(channels, lengths, rates)

    def _try(
        self,
        channels: list[int],
        lengths: Sequence[int],
        rates: Sequence[int | None],
    ) -> tuple[tf.DType, list[Any]]:
        trials = [(length, rate) for length in lengths for rate in rates]
        specs, failures = [], []
        for length, rate in trials:
            window = (*channels, length)
            try:
                made = check_transform(
                    self.into, self.text, self.transform, window, rate
                )
            except RecipeError as error:
                failures.append(error)
                continue
            if len(made) > 1:
                raise OptionError(
                    "transform", "must return one array, not a dict", self.text
                )
            specs += made
        if not specs:
            raise failures[0]
        if len({(spec.dtype, len(spec.sizes)) for spec in specs}) > 1:
            raise OptionError(
                "transform",
                "returns another type or number of axes at another sample rate or "
                "length; give `sample_rate`, and windows of a fixed length",
                self.text,
            )
        # One success of several does not show what the sizes depend on.
        is_sure = len(specs) > 1 or len(trials) == 1
        axes = [set(sizes) for sizes in zip(*(s.sizes for s in specs), strict=True)]
        shape = [axis.pop() if is_sure and len(axis) == 1 else None for axis in axes]
        return tf.as_dtype(specs[0].dtype), shape

    def _call(
        self, shape: list[Any], names: list[str], signal: Array, *others: Any
    ) -> tuple[Array, np.int64]:
        given = dict(zip(names, others, strict=True))
        windows = signal if self.batched else signal[np.newaxis]
        windows = windows.view()
        windows.flags.writeable = False
        path = _first(given.get("filepath", b"a signal")).decode()
        rate = self._rate_of(given.get("fs"), path)
        starts = np.broadcast_to(given.get("win_start_idx", 0), len(windows))
        values = run_on_windows(
            lambda some: np.asarray(apply_transform(self.transform, some, rate)),
            (windows,), f"transform {self.text}", starts, path,
        )  # fmt: skip
        wanted = [len(windows), *shape]
        fits = len(wanted) == values.ndim and all(
            size in (None, found)
            for size, found in zip(wanted, values.shape, strict=True)
        )
        if not fits:
            raise InputError(
                f"{path}: {self.text} returns the shape {values.shape[1:]}, but "
                f"{tuple(shape)} on silence. Give `sample_rate`, or correct your "
                "transform."
            )
        values = as_stored(values)
        after = np.int64(rate_after(self.transform, rate))
        return (values if self.batched else values[0]), after

    def _rate_of(self, found: Any, path: str) -> int:
        """Returns the rate of an element, which must be ``sample_rate`` if given."""
        if found is None:
            return self.sample_rate or 0
        rates = {int(rate) for rate in np.ravel(found)} or {self.sample_rate or 0}
        if len(rates) > 1 or self.sample_rate not in (None, *rates):
            listed = ", ".join(map(str, sorted(rates)))
            wanted = (
                "one rate for each batch"
                if self.sample_rate is None
                else self.sample_rate
            )
            raise InputError(
                f"{path} has the sample rate {listed} Hz, but {self.text} needs "
                f"{wanted}. Leave out other files, or resample them first."
            )
        return rates.pop()


def _first(value: Any) -> Any:
    flat = np.ravel(np.asarray(value, object))
    return flat[0] if len(flat) else b"a signal"


def _as_float32(signal: Any) -> Any:
    """Returns samples as recording has them: float32, whole numbers scaled."""
    if not signal.dtype.is_integer:
        return tf.cast(signal, tf.float32)
    return tf.cast(signal, tf.float32) * np.float32(1 / full_scale(signal.dtype))
