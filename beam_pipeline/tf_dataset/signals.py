"""A folder as a data frame, its files as whole signals, and both in one call."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf

from beam_pipeline.audio.clip_reader import open_decoder, probe_audio
from beam_pipeline.audio.decoder import SAMPLE_BYTES, opened
from beam_pipeline.errors import InputError, OptionError, UnreadableAudio
from beam_pipeline.inputs.columns import label_of
from beam_pipeline.inputs.sources import normal_path
from beam_pipeline.parameters import check_choice
from beam_pipeline.storage import files
from beam_pipeline.storage.files import PathLike
from beam_pipeline.tf_dataset import changes, structure

DTYPES = ("float32", "float64", "int16", "int32")

# Samples of all other subtypes are floats, or become floats when they are decoded.
_INTEGERS = SAMPLE_BYTES.keys() - {"FLOAT", "DOUBLE"}

Columns = dict[str, structure.Array]
Row = dict[str, Any]


def signal_dataset(
    df: pd.DataFrame,
    onehot_categoricals: bool = False,
    infinite: bool = False,
    use_soundfile: bool = True,
    keep_filepath: bool = True,
    parallel_files: int | None = None,
    overwrite_db: bool = True,
    targets: Any = None,
    as_complex: bool = False,
    signal_dtype: str = "float32",
    target_dtype: str = "int32",
    num_parallel_calls: int = 4,
    process_db_entry: Callable[[Row], Mapping[str, Any]] | None = None,
    data_key: str = "signal",
    load_grams: bool = False,
    verbose: bool = False,
) -> tf.data.Dataset:
    """Reads the files of a data frame, each as a whole signal.

    Parameters
    ----------
    df : pandas.DataFrame
        A row for each file, as :func:`.construct_metadata` returns it. Column
        ``filepath`` is needed, except with ``process_db_entry``. A column ``class``
        without ``target`` makes one: the index of the class in their sorted list.
        Numbers and
        booleans keep their type; text, categories and paths become text, and other
        values, such as dates, their text. Lists and arrays of one shape are stacked.
        NaN in a column of numbers stays; no other value may be missing.
    onehot_categoricals : bool
        Whether ``target`` becomes an int64 vector of ``num_classes`` values.
    infinite : bool
        Whether to repeat the files without end.
    use_soundfile : bool
        False: samples as int32, whatever ``signal_dtype`` is. Any file that can be
        decoded will do.
    keep_filepath : bool
        Whether elements keep ``filepath``.
    parallel_files : int, optional
        The number of files to decode at once. Default: ``num_parallel_calls``.
    overwrite_db, verbose : bool
        Have no effect: nothing is written, and nothing printed.
    targets : array, optional
        One value or array for each row; replaces the column ``target``.
    as_complex : bool
        Whether ``signal`` is channel 0 + i * channel 1. Files must have two channels.
    signal_dtype : str
        ``float32`` or ``float64``: samples in [-1, 1]. ``int16`` or ``int32``: full
        scale, 1.0 is ``2**15`` or ``2**31``.
    target_dtype : str
        The type of whole targets. Targets with fractions become float32, unless this
        is a type of floats.
    num_parallel_calls : int
        The number of files to decode at once. The order stays that of the rows.
    process_db_entry : callable, optional
        Your own loader, from a dict to a dict. It gets a row as numbers and text (of
        type ``str``), runs in Python, and may call TensorFlow. It is called once
        before the data set starts, to find types and numbers of axes.
    data_key : str
        The key of the signal.
    load_grams : bool
        Whether files are ``.npz`` archives: ``signal`` is the array with the name
        ``data_key``, or else the only array. Its type stays. ``fs`` is the array
        ``fs`` where there is one.

    Returns
    -------
    tf.data.Dataset
        Dicts with every column, in the order of the frame:

        ============== ======================= ===================================
        key            type and shape          meaning
        ============== ======================= ===================================
        ``signal``     ``signal_dtype`` (n,)   samples; (n, channels) if several
        ``fs``         int32                   sample rate, Hz
        ``index``      int64                   the number of the row
        ``target``     ``target_dtype``        what to predict
        others         as in the frame         text is string, whole numbers int64
        ============== ======================= ===================================

    Raises
    ------
    OptionError
        A ValueError: if an argument or a column cannot be used.
    ClipError
        If the first file cannot be read. If a later one cannot, iterating raises
        ``tf.errors.OpError``, whose message names the file.

    Notes
    -----
    Files of one data set have the same number of channels. Decoding runs in Python, so
    the data set cannot be sent to other processes; record it first.
    """
    columns = _columns(df, targets, target_dtype, data_key)
    depth = _depth(columns) if onehot_categoricals else 0
    if process_db_entry is not None:
        load = _python_loader(process_db_entry, columns)
    elif "filepath" not in columns:
        raise OptionError("df", "must have a column filepath", ", ".join(columns))
    elif load_grams:
        load = _python_loader(_gram_loader(data_key), columns)
    else:
        dtype = signal_dtype if use_soundfile else "int32"
        check_choice("signal_dtype", dtype, DTYPES)
        load = _audio_loader(columns, dtype, as_complex, data_key)
    dataset = tf.data.Dataset.from_tensor_slices(columns)
    if infinite:
        dataset = dataset.repeat()

    @structure.in_graph
    def run(row: Row) -> Row:
        element = load(row)
        if depth:
            element["target"] = tf.one_hot(element["target"], depth, dtype=tf.int64)
        if not keep_filepath:
            element.pop("filepath", None)
        return dict(sorted(element.items()))

    return dataset.map(run, num_parallel_calls=parallel_files or num_parallel_calls)


def _columns(
    df: pd.DataFrame, targets: Any, target_dtype: str, data_key: str
) -> Columns:
    """Returns the columns of all rows, with their numbers and targets."""
    for name in ("index", "fs", data_key):
        if name in df:
            raise OptionError(
                "df", "must not have a column of this name; rename it", name
            )
    columns = {str(name): _column(str(name), df[name]) for name in df.columns}
    _add_targets(columns, targets, target_dtype)
    columns["index"] = np.arange(len(df), dtype=np.int64)
    return columns


def _column(name: str, column: pd.Series) -> structure.Array:
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biufc":
        return np.asarray(column)
    missing = np.flatnonzero(column.isna())
    if len(missing):
        raise OptionError(
            "df",
            f"has no value in column {name} of row {missing[0]}; fill it, or leave the "
            "row out with df.dropna()",
        )
    values = column.tolist()
    made = np.array(values)
    if made.dtype.kind in "biuf" or made.ndim > 1:
        return structure.as_stored(made)
    # numpy's own types of text lose zeros at the end.
    texts = [v if isinstance(v, bytes) else str(v).encode() for v in values]
    return np.array(texts, object)


def _add_targets(columns: Columns, targets: Any, dtype: str) -> None:
    """Adds ``target``, and ``num_classes`` where there are classes.

    ``targets``, or a column ``target``, comes first. Otherwise, the target is the index
    of the class in the sorted list of classes. Whole targets become ``dtype``; numbers
    with fractions float32 at least.
    """
    classes = columns.get("class")
    if classes is not None:
        numbers, names = pd.factorize(classes, sort=True)
        columns.setdefault("num_classes", np.full(len(classes), len(names), np.int64))
        columns.setdefault("target", numbers)
    if targets is not None:
        columns["target"] = np.asarray(targets)
    if "target" not in columns:
        return
    targets = columns["target"]
    wanted = np.dtype(dtype)
    if targets.dtype.kind == "f" and wanted.kind in "iu":
        wanted = np.dtype(np.float32)
    columns["target"] = targets.astype(wanted)


def _depth(columns: Columns) -> int:
    """Returns the number of classes, to which targets must fit."""
    targets = columns["target"]
    depth = int(columns.get("num_classes", targets + 1).max())
    others = targets[(targets < 0) | (targets >= depth)]
    if len(others):
        raise OptionError(
            "onehot_categoricals",
            f"needs targets from 0 to {depth - 1}, because num_classes is {depth}",
            int(others[0]),
        )
    return depth


def _audio_loader(
    columns: Columns, dtype: str, as_complex: bool, data_key: str
) -> Callable[[Row], Row]:
    first = columns["filepath"][0].decode()
    path = files.absolute(first)
    with files.closing(files.begin_read(path)) as source:
        wanted = 2 if as_complex else probe_audio(source, name=path).channels
    returned, shape = tf.as_dtype(dtype), [None, wanted][: min(wanted, 2)]
    if as_complex:
        returned = tf.complex128 if dtype == "float64" else tf.complex64
        shape = [None]

    def read(filepath: bytes) -> tuple[structure.Array, np.int32]:
        path = files.absolute(filepath.decode())
        samples, rate = _read(path, dtype)
        found = samples.shape[1]
        if found != wanted:
            why = "`as_complex` needs two" if as_complex else f"{first} has {wanted}"
            raise UnreadableAudio(path, f"has {found} channels, but {why}")
        if as_complex:
            return samples[:, 0] + 1j * samples[:, 1], np.int32(rate)
        return samples[:, 0] if found == 1 else samples, np.int32(rate)

    def load(row: Row) -> Row:
        signal, rate = structure.in_python(
            read, [row["filepath"]], [returned, tf.int32], [shape, ()]
        )
        return {**row, data_key: signal, "fs": rate}

    return load


def _read(path: str, dtype: str) -> tuple[structure.Array, int]:
    """Decodes a whole audio file.

    Parameters
    ----------
    path : str
        A local file, or one on any file system of Beam.
    dtype : str
        ``float32`` or ``float64``: samples in [-1, 1]. ``int16`` or ``int32``: full
        scale, so that 1.0 is ``2**15`` or ``2**31``. Integers in the file become
        integers as libsndfile makes them: 16-bit samples are the upper half of an
        int32. Floats become ``clip(round(x * 2**31))``.

    Returns
    -------
    samples : numpy.ndarray, shape (frames, channels)
    sample_rate_hz : int

    Raises
    ------
    ClipError
        If the file cannot be read or decoded, ends early, is empty, or holds NaN or
        infinity. Names the file.
    """
    with files.closing(files.begin_read(path)) as source:
        info = probe_audio(source, name=path)
        scaled = np.dtype(dtype).kind == "i" and info.subtype not in _INTEGERS
        shape = info.frames, info.channels
        samples = np.empty(shape, "float64" if scaled else dtype)
        with opened(source, path) as file, open_decoder(file, path, info) as decoder:
            decoder.fill(samples[:, 0] if info.channels == 1 else samples)
    if scaled:
        limits = np.iinfo(dtype)
        samples = np.rint(samples * -float(limits.min))
        samples = np.clip(samples, limits.min, limits.max).astype(dtype)
    return samples, info.sample_rate_hz


def _gram_loader(data_key: str) -> Callable[[Row], Row]:
    """Returns a loader of one array, and of ``fs``, from an archive of NumPy."""

    def load(row: Row) -> Row:
        path = files.absolute(row["filepath"])
        with files.open_read(path) as file, np.load(file) as archive:
            names = [name for name in archive.files if name != "fs"]
            if data_key not in names and len(names) != 1:
                raise InputError(
                    f"{path} has the arrays {', '.join(names)}. Give `data_key` the "
                    "name of one of them."
                )
            name = data_key if data_key in names else names[0]
            found = {**row, data_key: archive[name]}
            if "fs" in archive.files:
                found["fs"] = np.int32(archive["fs"])
        return found

    return load


def _python_loader(
    function: Callable[[Row], Mapping[str, Any]], columns: Columns
) -> Callable[[Row], Row]:
    """Returns a loader that calls a function of Python for each row."""
    names = list(columns)

    def call(*values: Any) -> dict[str, structure.Array]:
        row = {name: _plain(value) for name, value in zip(names, values, strict=True)}
        made = function(row)
        return {str(name): structure.as_stored(value) for name, value in made.items()}

    first = call(*(column[0] for column in columns.values()))
    types = [tf.as_dtype(value.dtype) for value in first.values()]

    def read(*values: Any) -> list[structure.Array]:
        found = call(*values)
        return [found[name] for name in first]

    def load(row: Row) -> Row:
        shapes = [[None] * value.ndim for value in first.values()]
        tensors = structure.in_python(
            read, [row[name] for name in names], types, shapes
        )
        return dict(zip(first, tensors, strict=True))

    return load


def _plain(value: Any) -> Any:
    """Returns a value of a row as a loader gets it: text as ``str``."""
    return value.decode() if isinstance(value, bytes) else value


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
    ds = structure.dataset_signal_slice_windows(
        ds, win_len, data_key=data_key, seed=seed, num_parallel_calls=parallel,
        **slicing,
    )  # fmt: skip
    if hilbert and not ds.element_spec[data_key].dtype.is_complex:
        ds = changes.dataset_signal_apply_hilbert(ds, parallel, data_key)
    if norm_type is not None:
        ds = changes.dataset_signal_normalize(ds, norm_type, parallel, data_key)
    if features is not None:
        lite = features == "lite"
        ds = changes.dataset_prepare_signal_for_ml(ds, False, lite, parallel, data_key)
    if shuffle_buffer_size:
        ds = structure.dataset_shuffle(ds, shuffle_buffer_size, seed=seed)
    return structure.dataset_prefetch(
        structure.dataset_batch(ds, batch_size), prefetch_buffer_size
    )


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
        listing. A mapping has paths of all files as keys: absolute, or relative to
        ``data_dir`` or to the current folder. None: the text after the last underscore
        of each name, before the extension.
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
    """Returns the class of each file.

    Raises
    ------
    OptionError
        If labels and files do not fit each other.
    """
    if labels is None:
        return [_class_in_name(path, folder) for path in paths]
    if not isinstance(labels, Mapping):
        _check_length("labels", labels, paths)
        return [str(label) for label in labels]
    label_at: dict[str, str] = {}
    for key, label in labels.items():
        name = os.fspath(key)
        for path in (files.absolute(name), normal_path(folder, name)):
            label_at[path] = str(label)
    for path in paths:
        if path not in label_at:
            raise OptionError(
                "labels",
                f"has nothing for this file; give its path, relative to {folder} or "
                "absolute",
                path,
            )
    return [label_at[path] for path in paths]


def _class_in_name(path: str, folder: str) -> str:
    try:
        return str(label_of("name", path, folder))
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
