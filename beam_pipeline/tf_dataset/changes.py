"""What changes the signals of a data set, each in one map.

Scaling, analytic signals, other sample rates, columns of numbers for a model; and
:func:`as_tf` for transforms of the catalogue and your own.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import tensorflow as tf

from beam_pipeline.errors import InputError, OptionError, check_feature
from beam_pipeline.examples.features import check_transform
from beam_pipeline.examples.spec import Shape
from beam_pipeline.examples.window_steps import run_on_windows
from beam_pipeline.parameters import check_choice, check_whole
from beam_pipeline.tf_dataset.structure import (
    Array,
    as_samples,
    as_stored,
    in_graph,
    in_python,
    map_key,
    map_signals,
    signal_spec,
)
from beam_pipeline.transforms import base
from beam_pipeline.transforms.signals import Analytic, Resample
from beam_pipeline.transforms.steps import given_transform

QUANTILES = 1000
SAFE_PEAK = 0.05
LEAST_AMPLITUDE = 1e-3
DOMAINS = ("time", "frequency")


def dataset_signal_normalize(
    dataset: tf.data.Dataset,
    norm_type: str = "mean",
    num_parallel_calls: int | None = 1,
    data_key: str = "signal",
) -> tf.data.Dataset:
    """Brings the samples of each signal, or window, to a common range.

    ::

        mean              y = x - mean(x)
        mean_channelwise  the same for each channel by itself
        minmax            y = (x - min(x)) / (max(x) - min(x))
        standard          y = (x - mean(x)) / sqrt(mean(|x - mean(x)|**2))
        median            y = x - median(x), for each channel by itself
        quantile          y = the share of the channel's samples below x; see Notes
        log               y = ln|x|; where x is 0 or not finite, the median of all
                          other y of the channel
        gain              y = x / max|x|, for each channel by itself

    Where nothing else is said, the channels of a signal share their mean or range. A
    constant signal gives 0; silence gives 0 for every kind. In a batch, each item is
    normalised by itself. Integers count as full scale: int32 is divided by ``2**31``
    first.

    Parameters
    ----------
    dataset : tf.data.Dataset
        Dicts with a signal of shape (n,) or (n, channels).
    norm_type : str
        One of the eight kinds.
    num_parallel_calls : int, optional
        The number of elements to treat at once.
    data_key : str
        The key of the signal.

    Returns
    -------
    tf.data.Dataset
        The signals in their shape, as float32, or as complex64 if they are complex.
        Sums are taken in double precision.

    Raises
    ------
    OptionError
        A ValueError: for an unknown kind; for complex signals with a kind other than
        ``mean``, ``mean_channelwise``, ``standard`` and ``gain``.

    Notes
    -----
    ``quantile`` takes ``m = min(1000, n)`` quantiles of the channel at ``k / (m - 1)``,
    with linear interpolation between sorted samples. ``y`` interpolates between the
    quantiles around ``x``; where several are equal to ``x``, it is the mean of the
    first and the last. The smallest sample gives 0, the largest 1. scikit-learn's
    ``quantile_transform`` agrees (largest difference found: 1e-6 with 5000 samples),
    but draws a random part of more than 100 000 samples.
    """
    check_choice("norm_type", norm_type, tuple(_KINDS))
    is_complex = signal_spec(dataset, data_key).dtype.is_complex
    if is_complex and norm_type not in _COMPLEX:
        raise OptionError(
            "norm_type",
            f"must be one of {', '.join(_COMPLEX)} for complex signals; for others, "
            "take the magnitude of the signals first",
            norm_type,
        )
    return map_signals(dataset, _KINDS[norm_type], data_key, num_parallel_calls)


def dataset_signal_safe_rescale(
    dataset: tf.data.Dataset,
    num_parallel_calls: int | None = None,
    data_key: str = "signal",
) -> tf.data.Dataset:
    """Divides each signal by its largest sample, unless that is below 0.05.

    ``y = x / max(x)`` if ``max(x) >= 0.05``, else ``y = x``. The largest sample is that
    of all channels, and of the real and the imaginary parts. Negative samples do not
    count, so y may be below -1; ``dataset_signal_normalize(ds, "gain")`` divides by the
    largest magnitude.

    Parameters and types are those of :func:`dataset_signal_normalize`.
    """
    return map_signals(dataset, _safe, data_key, num_parallel_calls)


def _safe(x: Array) -> Array:
    largest = max(x.real.max(), x.imag.max() if np.iscomplexobj(x) else -math.inf)
    return x if largest < SAFE_PEAK else x / largest


def safe_rescale(x: Any, axis: int | tuple[int, ...] | None = None) -> Any:
    """Returns ``x / max(x)``, or x where the largest value is below 0.05.

    Parameters
    ----------
    x : tensor of floats or complex numbers
    axis : int or tuple of int, optional
        The axes along which to take the largest value. Default: the whole tensor.
    """
    is_complex = x.dtype.is_complex
    parts = tf.maximum(tf.math.real(x), tf.math.imag(x)) if is_complex else x
    largest = tf.reduce_max(parts, axis=axis, keepdims=axis is not None)
    divisor = tf.where(largest < SAFE_PEAK, tf.ones_like(largest), largest)
    return x / tf.cast(divisor, x.dtype)


def _centre(x: Array, axis: int | None = None) -> Array:
    # Relative to the first sample, so that the mean of a constant is exact.
    x = x - (x.ravel()[0] if axis is None else x[0])
    mean: Array = x.mean(axis)
    return x - mean


def _ratio(x: Array, size: Any) -> Array:
    """Returns ``x / size``, and 0 where the size is 0."""
    out: Array = np.divide(x, size, out=np.zeros_like(x), where=size != 0)
    return out


def _standard(x: Array) -> Array:
    x = _centre(x)
    return _ratio(x, np.sqrt(np.mean(np.square(np.abs(x)))))


def _log(x: Array) -> Array:
    """Returns the logarithms of one channel."""
    with np.errstate(divide="ignore"):
        logs = np.log(np.abs(x))
    usable = np.isfinite(logs)
    return np.where(usable, logs, np.median(logs[usable]) if usable.any() else 0.0)


def _quantile(x: Array) -> Array:
    """Returns the shares of the samples of one channel that are below each."""
    count = min(QUANTILES, len(x))
    # Divided last, so that quantiles that are samples are them exactly.
    places = np.arange(count) * (len(x) - 1) / max(count - 1, 1)
    quantiles = np.interp(places, np.arange(len(x)), np.sort(x))
    shares = np.linspace(0, 1, count)
    # Of equal quantiles, one takes the last and the other the first.
    last = np.interp(x, quantiles, shares)
    first = 1 - np.interp(-x, -quantiles[::-1], 1 - shares[::-1])
    y = np.where(x == x.max(), 1.0, (first + last) / 2)
    return np.where(x == x.min(), 0.0, y)


_KINDS: dict[str, Callable[[Array], Array]] = {
    "mean": _centre,
    "mean_channelwise": partial(_centre, axis=0),
    "minmax": lambda x: _ratio(x - x.min(), np.ptp(x)),
    "standard": _standard,
    "median": lambda x: x - np.median(x, axis=0),
    "quantile": partial(np.apply_along_axis, _quantile, 0),
    "log": partial(np.apply_along_axis, _log, 0),
    "gain": lambda x: _ratio(x, np.abs(x).max(axis=0)),
}
_COMPLEX = ("mean", "mean_channelwise", "standard", "gain")


def dataset_signal_apply_hilbert(
    dataset: tf.data.Dataset,
    num_parallel_calls: int | None = None,
    data_key: str = "signal",
) -> tf.data.Dataset:
    """Makes each signal analytic: itself, and its Hilbert transform as imaginary part.

    The equation is that of :class:`.Analytic`. Channels are treated one by
    one, items of a batch, too.

    Parameters
    ----------
    dataset : tf.data.Dataset
        Dicts with a real signal of shape (n,) or (n, channels). Integers count as full
        scale.
    num_parallel_calls : int, optional
        The number of elements to treat at once.
    data_key : str
        The key of the signal.

    Returns
    -------
    tf.data.Dataset
        The signals as complex64 in their shape. ``scipy.signal.hilbert`` agrees
        (largest difference found: 5e-7 of the largest magnitude).

    Raises
    ------
    OptionError
        A ValueError: if signals are complex already.
    """
    if signal_spec(dataset, data_key).dtype.is_complex:
        raise OptionError(
            "dataset", "must have real signals; these are complex", data_key
        )
    function = partial(_channels, Analytic())
    return map_signals(dataset, function, data_key, num_parallel_calls, tf.complex64)


def dataset_signal_apply_analytic(
    dataset: tf.data.Dataset,
    num_parallel_calls: int | None = 4,
    data_key: str = "signal",
) -> tf.data.Dataset:
    """Makes each signal analytic, as :func:`dataset_signal_apply_hilbert` does."""
    return dataset_signal_apply_hilbert(dataset, num_parallel_calls, data_key)


def dataset_signal_downsample(
    dataset: tf.data.Dataset,
    du: int = 640,
    su: int = 50,
    data_key: str = "signal",
    num_parallel_calls: int | None = 1,
) -> tf.data.Dataset:
    """Changes the sample rate of each signal to ``su / du`` of what it is.

    The filter and the equation are those of :class:`.Resample`; the ratio
    may also be above 1. A signal of n frames gets ``ceil(n * su / du)``. ``fs``, where
    elements have it, becomes ``int(fs * su / du)``.

    Parameters
    ----------
    dataset : tf.data.Dataset
        Dicts with a signal of shape (n,) or (n, channels), real or complex. Integers
        count as full scale.
    du, su : int
        The old rate and the new rate, or numbers in their ratio.
    data_key : str
        The key of the signal.
    num_parallel_calls : int, optional
        The number of elements to treat at once.

    Returns
    -------
    tf.data.Dataset
        The signals as float32 or complex64.

    Raises
    ------
    RecipeError
        A ValueError: if ``du`` or ``su`` is below 1, or the filter is too large.
    """
    resample = partial(Resample(rate_hz=su), sample_rate_hz=du)
    resample(np.zeros((1, 1), np.float32))  # it refuses too large a filter
    function = partial(_channels, resample)
    dataset = map_signals(
        dataset, function, data_key, num_parallel_calls,
        frames_after=lambda frames: -(-frames * su // du),
    )  # fmt: skip
    if "fs" not in dataset.element_spec:
        return dataset
    return map_key(
        dataset, "fs", lambda fs: tf.cast(tf.cast(fs, tf.int64) * su // du, fs.dtype)
    )


def _channels(transform: Callable[[Any], Array], x: Array) -> Array:
    """Applies a transform of windows to the channels of a signal."""
    if np.iscomplexobj(x):
        real, imaginary = (_channels(transform, part) for part in (x.real, x.imag))
        return real + 1j * imaginary
    windows = np.atleast_2d(x.T).astype(np.float32)
    return transform(windows).reshape(*x.shape[1:], -1).T


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
    signal_spec(dataset, data_key, most=1)
    new_key = f"{data_key}_features" if keep_signal else data_key
    prepare = prepare_signal_for_ml_lite if use_lite else prepare_signal_for_ml
    return map_key(dataset, data_key, prepare, num_parallel_calls, new_key)


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
    """
    wanted = [domain] if isinstance(domain, str) else list(domain)
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
        spectrum = tf.signal.rfft(x, [2 * tf.shape(x)[-1] - 1])
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


# A transform is tried with these, where the length is known only when a signal arrives.
TRIAL_FRAMES = 65536


def as_tf(
    transform: base.Transform | str,
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
        Hz; needed by transforms that depend on it or change it. If elements have
        ``fs``, it must be the same.
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
        missing or has another type or shape, the rate is needed, or the transform fails
        on silence.

    Notes
    -----
    The type and the shape of the result come from a trial on silence. The shape is
    static for signals of known length; ``dataset_set_shapes`` makes it so elsewhere.

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

    transform: base.Transform
    text: str
    key: str
    into: str
    sample_rate: int | None
    batched: bool

    def run(self, element: Any) -> Any:
        """Returns the features of a signal, or a dict with them."""
        if not isinstance(element, Mapping):
            return self._features({self.key: tf.convert_to_tensor(element)})
        check_feature("key", self.key, sorted(element))
        found = {**element, self.into: self._features(element)}
        steps = base.steps_of(self.transform)
        changes_rate = any(hasattr(step, "rate_after") for step in steps)
        if self.into == self.key and "fs" in element and changes_rate:
            rate = base.rate_after(self.transform, self.sample_rate or 0)
            found["fs"] = tf.zeros_like(element["fs"]) + rate
        return found

    def _features(self, element: Mapping[str, Any]) -> Any:
        """Returns the features of a signal, or of a batch.

        ``element`` may have ``fs``, and ``filepath`` and ``win_start_idx`` for errors.
        """
        signal = element[self.key]
        dtype, shape = self._signature(signal)
        names = [n for n in ("fs", "filepath", "win_start_idx") if n in element]
        lead = signal.shape[:1].as_list() if self.batched else []
        tensors = [as_samples(signal, tf.float32), *(element[name] for name in names)]
        call = partial(self._call, names)
        return in_python(call, tensors, [dtype], [[*lead, *shape]])[0]

    def _signature(self, signal: Any) -> tuple[tf.DType, Shape]:
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
        window = (*channels, frames or TRIAL_FRAMES)
        found = check_transform(
            self.into, self.text, self.transform, window, self.sample_rate
        )
        if len(found) > 1:
            raise OptionError(
                "transform", "must return one array, not a dict", self.text
            )
        axes = found[0].shape or ()
        is_sure = frames is not None
        return tf.as_dtype(found[0].dtype), axes if is_sure else (None,) * len(axes)

    def _call(self, names: list[str], signal: Array, *others: Any) -> list[Array]:
        given = dict(zip(names, others, strict=True))
        windows = signal if self.batched else signal[np.newaxis]
        windows = windows.view()
        windows.flags.writeable = False
        paths = np.ravel(np.asarray(given.get("filepath", b"a signal"), object))
        path = next(iter(paths), b"a signal").decode()
        rate = self.sample_rate or 0
        rates = {*np.ravel(given.get("fs", rate)).tolist()}
        if rate and rates != {rate}:
            listed = ", ".join(map(str, sorted(rates)))
            raise InputError(
                f"{path} has the sample rate {listed} Hz, but {self.text} needs {rate}."
                " Leave out other files, or resample them first."
            )
        starts = np.broadcast_to(given.get("win_start_idx", 0), len(windows))
        values = run_on_windows(
            lambda some: np.asarray(base.apply_transform(self.transform, some, rate)),
            (windows,), f"transform {self.text}", starts, path,
        )  # fmt: skip
        values = as_stored(values)
        return [values if self.batched else values[0]]
