"""From a folder, or a data frame, to a data set in one call."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd
import tensorflow as tf

from beam_pipeline.errors import OptionError, unknown_option
from beam_pipeline.storage.files import PathLike
from beam_pipeline.tf_dataset.analytic import dataset_signal_apply_hilbert
from beam_pipeline.tf_dataset.batches import (
    dataset_batch,
    dataset_prefetch,
    dataset_shuffle,
)
from beam_pipeline.tf_dataset.levels import dataset_signal_normalize
from beam_pipeline.tf_dataset.metadata import construct_metadata
from beam_pipeline.tf_dataset.prepare import dataset_prepare_signal_for_ml
from beam_pipeline.tf_dataset.signals import signal_dataset
from beam_pipeline.tf_dataset.windows import dataset_signal_slice_windows

FEATURES = (None, "lite", "full")


def dataset_from_dir(
    data_dir: PathLike,
    labels: Mapping[str, str] | Sequence[str] | None = None,
    targets: Sequence[Any] | None = None,
    ext: str = ".wav",
    infinite: bool = False,
    *,
    metadata: pd.DataFrame | PathLike | None = None,
    **options: Any,
) -> tf.data.Dataset:
    """Reads the files of a folder, each as a whole signal, or as batches of windows.

    Parameters
    ----------
    data_dir, labels, targets, ext, metadata
        See :func:`construct_metadata`.
    infinite : bool
        Whether to repeat the files without end.
    **options
        Those of :func:`signal_dataset`; ``signal_dtype`` is ``int32`` here, and
        ``target_dtype`` ``int64``. With one that only :func:`training_dataset` has,
        such as ``win_len`` or ``batch_size``, the result is that of
        ``training_dataset``, with its defaults.

    Returns
    -------
    tf.data.Dataset
        Whole signals as :func:`signal_dataset` returns them: ``signal`` int32, and
        ``index``, ``num_classes`` and ``target`` int64. Files come in the order of
        their paths. Nothing is written.

    Raises
    ------
    OptionError
        A ValueError: see :func:`construct_metadata` and :func:`signal_dataset`.
    """
    known = _options_of(signal_dataset) | _options_of(training_dataset) | _SLICING
    for name in options.keys() - known:
        raise unknown_option(name, known)
    df = construct_metadata(data_dir, labels, targets=targets, metadata=metadata,
                            ext=ext)  # fmt: skip
    if options.keys() - _options_of(signal_dataset):
        return training_dataset(df, infinite=infinite, **options)
    options = {"signal_dtype": "int32", "target_dtype": "int64", **options}
    return signal_dataset(df, infinite=infinite, **options)


def training_dataset(
    df: pd.DataFrame,
    win_len: int = 1024,
    batch_size: int = 16,
    shuffle_buffer_size: int | None = None,
    prefetch_buffer_size: int = 1,
    infinite: bool = False,
    *,
    hilbert: bool = True,
    norm_type: str | None = "mean",
    features: str | None = None,
    seed: int = 0,
    **options: Any,
) -> tf.data.Dataset:
    """Reads the files of a data frame as batches of windows, ready for training.

    ::

        signal_dataset -> dataset_signal_slice_windows -> dataset_signal_apply_hilbert
          -> dataset_signal_normalize [-> dataset_prepare_signal_for_ml]
          [-> dataset_shuffle] -> dataset_batch -> dataset_prefetch

    Parameters
    ----------
    df : pandas.DataFrame
        See :func:`signal_dataset`.
    win_len : int
        Frames in a window.
    batch_size : int
        Windows in a batch; a rest is left out.
    shuffle_buffer_size : int, optional
        The number of windows to shuffle among. Default: no shuffling.
    prefetch_buffer_size : int
        The number of batches to prepare in advance.
    infinite : bool
        Whether to repeat the files without end.
    hilbert : bool
        Whether windows become analytic signals, complex64.
    norm_type : str, optional
        The kind of :func:`dataset_signal_normalize`; None: none.
    features : str, optional
        ``lite`` or ``full``: :func:`dataset_prepare_signal_for_ml` replaces the windows
        by its columns. Default: the windows themselves.
    seed : int
        Seed of both random orders.
    **options
        Those of :func:`signal_dataset`, ``target_dtype`` being ``int64`` here, and
        ``pad``, ``deterministic``, ``block_length`` and ``max_windows_per_signal`` of
        :func:`dataset_signal_slice_windows`.

    Returns
    -------
    tf.data.Dataset
        Dicts; ``signal`` has the shape (batch_size, win_len), or (batch_size, win_len,
        columns) with ``features``: 12 columns for ``full``.

    Raises
    ------
    OptionError
        A ValueError: if an option is unknown or has a wrong value.

    Examples
    --------
    >>> training_dataset(df, win_len=8192, batch_size=8)  # doctest: +SKIP
    """
    if features not in FEATURES:
        raise OptionError("features", "must be None, lite or full", features)
    known = _options_of(signal_dataset) | _SLICING
    for name in options.keys() - known:
        raise unknown_option(name, known | _options_of(training_dataset))
    slicing = {name: options.pop(name) for name in _SLICING & options.keys()}
    data_key = options.get("data_key", "signal")
    parallel = options.get("num_parallel_calls", 4)
    options.setdefault("target_dtype", "int64")
    ds = signal_dataset(df, infinite=infinite, **options)
    ds = dataset_signal_slice_windows(
        ds, win_len, data_key=data_key, seed=seed, num_parallel_calls=parallel,
        **slicing,
    )  # fmt: skip
    if hilbert and not ds.element_spec[data_key].dtype.is_complex:
        ds = dataset_signal_apply_hilbert(ds, parallel, data_key)
    if norm_type is not None:
        ds = dataset_signal_normalize(ds, norm_type, parallel, data_key)
    if features is not None:
        lite = features == "lite"
        ds = dataset_prepare_signal_for_ml(ds, False, lite, parallel, data_key)
    if shuffle_buffer_size:
        ds = dataset_shuffle(ds, shuffle_buffer_size, seed=seed)
    return dataset_prefetch(dataset_batch(ds, batch_size), prefetch_buffer_size)


_SLICING = frozenset({"pad", "deterministic", "block_length", "max_windows_per_signal"})


def _options_of(function: Any) -> frozenset[str]:
    """Returns the keywords of a function, without those that callers here set."""
    names = inspect.signature(function).parameters.keys()
    return frozenset(names - {"df", "infinite", "options"})
