"""Signals as columns of numbers for a model: phases, amplitudes, spectra."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from beam_pipeline.errors import OptionError
from beam_pipeline.tf_dataset.levels import safe_rescale
from beam_pipeline.tf_dataset.structure import (
    as_samples,
    check_rank,
    in_graph,
    length_of,
)

LEAST_AMPLITUDE = 1e-3
DOMAINS = ("time", "frequency")


def dataset_prepare_signal_for_ml(
    dataset: tf.data.Dataset,
    keep_signal: bool = True,
    use_lite: bool = True,
    num_parallel_calls: int | None = 4,
    data_key: str = "signal",
) -> tf.data.Dataset:
    """Turns each signal of n frames into n rows of features.

    Parameters
    ----------
    dataset : tf.data.Dataset
        Dicts with a signal of shape (n,), real or complex; batched or not.
    keep_signal : bool
        True: the features are under ``<data_key>_features``. False: they replace the
        signal.
    use_lite : bool
        True: :func:`prepare_signal_for_ml_lite`, 2 columns, or 3 for complex signals.
        False: :func:`prepare_signal_for_ml`, 11 columns, or 12.
    num_parallel_calls : int, optional
        The number of elements to treat at once.
    data_key : str
        The key of the signal.

    Returns
    -------
    tf.data.Dataset
        Features of shape (n, columns), float32.

    Raises
    ------
    OptionError
        A ValueError: if signals have several channels.
    """
    check_rank(dataset, data_key, most=1)
    new_key = f"{data_key}_features" if keep_signal else data_key
    prepare = prepare_signal_for_ml_lite if use_lite else prepare_signal_for_ml

    @in_graph
    def run(element: dict[str, Any]) -> dict[str, Any]:
        return {**element, new_key: prepare(element[data_key])}

    return dataset.map(run, num_parallel_calls=num_parallel_calls)


def prepare_signal_for_ml_lite(
    x: Any,
    batched: bool = False,
    use_inst_vals: bool = False,
    use_norm_ctr: bool = True,
) -> Any:
    """Returns the samples, and their centred amplitude, as columns.

    ::

        x                        one column; real x
        Re(x), Im(x)             two columns; complex x
        |x|, |x|**2, angle(x)    three columns; with use_inst_vals
        a - mean(a)              a = |x| / max|x|; with use_norm_ctr

    Parameters
    ----------
    x : tensor, shape (..., n)
        Signals; maxima and means are those of one signal, the last axis. Integers count
        as full scale.
    batched : bool
        Has no effect: the last axis is time in any case.
    use_inst_vals, use_norm_ctr : bool
        Which columns to add.

    Returns
    -------
    tensor, shape (..., n, columns), float32

    Examples
    --------
    >>> prepare_signal_for_ml_lite(tf.constant([1.0, -2.0])).numpy()
    array([[ 1.  , -0.25],
           [-2.  ,  0.25]], dtype=float32)
    """
    x = as_samples(tf.convert_to_tensor(x))
    columns = _parts(x)
    if use_inst_vals:
        amplitude = tf.abs(x)
        columns += [amplitude, tf.square(amplitude), tf.math.angle(x)]
    if use_norm_ctr:
        columns.append(_centred_amplitude(x))
    return _stack(columns)


def prepare_signal_for_ml(
    x: Any, domain: Sequence[str] = DOMAINS, batched: bool = False
) -> Any:
    """Returns what is known of each sample in time, and of each bin of the spectrum.

    ::

        time       p = angle(x) / pi, but 0 where a < 0.001
                   a = |x|, divided by its maximum unless that is below 0.05
                   f = p[t + 1] - p[t], but 0 where |f| > 1, and 0 at the end
                   w = |x|**2, divided as a is
                   x - mean(x); for complex x: Re(x), Im(x)
                   c = |x| / max|x|, less its mean
        frequency  Re(X), Im(X), |X|, |X|**2, angle(X) of X = FFT(x); for real x, the
                   first n bins of an FFT of 2n - 1 points, x with zeros after it

    Parameters
    ----------
    x : tensor, shape (..., n)
        Signals; the last axis is time. Integers count as full scale.
    domain : sequence of str
        ``time``, ``frequency`` or both; time comes first.
    batched : bool
        Has no effect: the last axis is time in any case.

    Returns
    -------
    tensor, shape (..., n, columns), float32
        11 columns for real signals and 12 for complex ones: 6 or 7 of time, 5 of
        frequency. Row k has sample k and bin k.

    Raises
    ------
    OptionError
        A ValueError: for an unknown domain, or none.
    """
    wanted = [domain] if isinstance(domain, str) else list(domain)
    if not wanted or not set(wanted) <= set(DOMAINS):
        raise OptionError("domain", f"must be of {' and '.join(DOMAINS)}", domain)
    x = as_samples(tf.convert_to_tensor(x))
    columns = []
    if "time" in wanted:
        columns += _time_columns(x)
    if "frequency" in wanted:
        columns += _frequency_columns(x)
    return _stack(columns)


def _time_columns(x: Any) -> list[Any]:
    amplitude = safe_rescale(tf.abs(x), axis=-1)
    power = safe_rescale(tf.square(tf.abs(x)), axis=-1)
    phase = tf.math.angle(x) / math.pi
    phase = tf.where(amplitude < LEAST_AMPLITUDE, tf.zeros_like(phase), phase)
    change = phase[..., 1:] - phase[..., :-1]
    change = tf.where(tf.abs(change) > 1, tf.zeros_like(change), change)
    change = tf.concat([change, tf.zeros_like(phase[..., :1])], -1)
    centred = x - tf.reduce_mean(x, -1, keepdims=True)
    samples = _parts(x if x.dtype.is_complex else centred)
    return [phase, amplitude, change, power, *samples, _centred_amplitude(x)]


def _frequency_columns(x: Any) -> list[Any]:
    if x.dtype.is_complex:
        spectrum = tf.signal.fft(x)
    else:
        spectrum = tf.signal.rfft(x, [2 * length_of(x, -1) - 1])
    magnitude = tf.abs(spectrum)
    angle = tf.math.angle(spectrum)
    return [*_parts(spectrum), magnitude, tf.square(magnitude), angle]


def _parts(x: Any) -> list[Any]:
    return [tf.math.real(x), tf.math.imag(x)] if x.dtype.is_complex else [x]


def _centred_amplitude(x: Any) -> Any:
    amplitude = tf.abs(x)
    largest = tf.reduce_max(amplitude, -1, keepdims=True)
    amplitude = tf.math.divide_no_nan(amplitude, largest)
    return amplitude - tf.reduce_mean(amplitude, -1, keepdims=True)


def _stack(columns: Sequence[Any]) -> Any:
    return tf.stack([tf.cast(column, tf.float32) for column in columns], axis=-1)
