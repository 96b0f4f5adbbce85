"""A folder of files as a data frame, and as a data set in one call."""

from __future__ import annotations

import inspect
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from beam_pipeline.errors import OptionError
from beam_pipeline.inputs.columns import Labeler
from beam_pipeline.inputs.sources import normal_path
from beam_pipeline.storage import files
from beam_pipeline.storage.files import PathLike
from beam_pipeline.tf_dataset.changes import (
    dataset_prepare_signal_for_ml,
    dataset_signal_apply_hilbert,
    dataset_signal_normalize,
)
from beam_pipeline.tf_dataset.signals import signal_dataset
from beam_pipeline.tf_dataset.structure import (
    dataset_batch,
    dataset_prefetch,
    dataset_shuffle,
    dataset_signal_slice_windows,
)

FEATURES = (None, "lite", "full")


def dataset_from_dir(
    data_dir: PathLike,
    labels: Mapping[str, str] | Sequence[str] | None = None,
    targets: Sequence[Any] | None = None,
    ext: str = ".wav",
    infinite: bool = False,
    **options: Any,
) -> tf.data.Dataset:
    """Reads the files of a folder, each as a whole signal, or as batches of windows.

    Parameters
    ----------
    data_dir, labels, targets, ext
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
    df = construct_metadata(data_dir, labels, targets=targets, ext=ext)
    if options.keys() - inspect.signature(signal_dataset).parameters.keys():
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
        A ValueError: if an option has a wrong value.

    Examples
    --------
    >>> training_dataset(df, win_len=8192, batch_size=8)  # doctest: +SKIP
    """
    if features not in FEATURES:
        raise OptionError("features", "must be None, lite or full", features)
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


def construct_metadata(
    data_dir: PathLike,
    labels: Mapping[str, str] | Sequence[str] | None = None,
    label_colname: str = "class",
    targets: Sequence[Any] | None = None,
    ext: str = ".wav",
    create_targets: bool = True,
) -> pd.DataFrame:
    """Lists the files of a folder with their classes.

    Parameters
    ----------
    data_dir : path
        The folder, on any file system of Beam. Folders in it are listed, too.
    labels : mapping, sequence or None
        The class of each file. A sequence has one for each file, in the order of the
        listing. A mapping has paths as keys: absolute, relative to ``data_dir`` or to
        the current folder, or a file's name if only one file has it; it must have all
        files and no others. None: the text after the last underscore of each name,
        before the extension.
    label_colname : str
        The name of the column with the classes.
    targets : sequence, optional
        What to predict, one for each file in the order of the listing: numbers, or
        arrays of the same shape. Then no targets are made from the classes, and names
        need not have any: if one has none, there are no columns of classes.
    ext : str
        How names end, in any case.
    create_targets : bool
        Whether to number the classes, in the order of their first file, when there are
        no ``targets``. False: no column ``target``.

    Returns
    -------
    pandas.DataFrame
        A row for each file, sorted by its path in the folder. Columns: ``filepath``
        (absolute), the classes, ``num_classes`` (their number, the same in all rows)
        and ``target``.

    Raises
    ------
    OptionError
        A ValueError: if there is no file, a file has no class, or labels or targets do
        not fit the files.

    Examples
    --------
    >>> construct_metadata("data", ext=".mp3")  # doctest: +SKIP
                    filepath      class  num_classes  target
    0  /data/1_passenger.mp3  passenger            2       0
    1        /data/2_tug.mp3        tug            2       1
    """
    folder = files.given_path("data_dir", data_dir)
    paths = _list_paths(folder, ext)
    frame = pd.DataFrame({"filepath": paths})
    classes = None
    try:
        classes = _classes(labels, folder, paths)
    except OptionError:
        if labels is not None or targets is None:
            raise
    if classes is not None:
        numbers = {name: number for number, name in enumerate(dict.fromkeys(classes))}
        frame[label_colname] = classes
        frame["num_classes"] = len(numbers)
        if targets is None and create_targets:
            frame["target"] = np.array([numbers[name] for name in classes], np.int64)
    if targets is not None:
        _check_length("targets", targets, paths)
        frame["target"] = list(np.asarray(targets))
    return frame


def _list_paths(folder: str, ext: str) -> list[str]:
    if not files.is_folder(folder):
        raise OptionError("data_dir", "must be a folder", folder)
    ending = ext.lower()
    names = [n for n in files.list_files(folder) if n.lower().endswith(ending)]
    if not names:
        raise OptionError(
            "data_dir", f"has no file that ends in {ext}; check `ext`", folder
        )
    return [files.join(folder, name) for name in names]


def _classes(labels: Any, folder: str, paths: list[str]) -> list[str]:
    """Returns the class of each file."""
    if labels is None:
        return [_class_in_name(path, folder) for path in paths]
    if isinstance(labels, Mapping):
        rows, names = _rows_of(labels, folder, paths), list(labels)
        others = [names[row] for row in sorted({*range(len(names))} - {*rows})]
        if others:
            raise OptionError("labels", f"must have only files of {folder}", others[0])
        return [str(labels[names[row]]) for row in rows]
    _check_length("labels", labels, paths)
    return [str(label) for label in labels]


def _class_in_name(path: str, folder: str) -> str:
    try:
        return str(Labeler("name").label(path, folder))
    except ValueError:
        raise OptionError(
            "labels",
            "must be given, because this file's name has no text after an underscore",
            path,
        ) from None


def _check_length(option: str, values: Sequence[Any], paths: Sequence[str]) -> None:
    if len(values) != len(paths):
        raise OptionError(
            option,
            f"must have one value for each of the {len(paths)} files, in the order of "
            f"their paths ({paths[0]} is the first)",
            f"{len(values)} values",
        )


def _rows_of(names: Iterable[Any], folder: str, paths: Sequence[str]) -> list[int]:
    """Returns for each file the place of the name that stands for it.

    Raises
    ------
    OptionError
        If a file has no name, or a name occurs twice.
    """
    row_of: dict[str, int] = {}
    for row, given in enumerate(names):
        name = os.fspath(given)
        for spelling in {normal_path(folder, name), files.absolute(name), name}:
            if row_of.setdefault(spelling, row) != row:
                raise OptionError("labels", "names a file twice", name)
    rows = []
    bases = Counter(map(os.path.basename, paths))
    for path in paths:
        base = os.path.basename(path)
        # A name alone stands for a file if only one has it.
        found = row_of.get(path, row_of.get(base) if bases[base] == 1 else None)
        if found is None:
            raise OptionError(
                "labels",
                f"has nothing for this file; give its path, relative to {folder} or "
                "absolute",
                path,
            )
        rows.append(found)
    return rows
