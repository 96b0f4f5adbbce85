"""Records lists of examples, and reads them back as ``tf.data``.

Every function that records takes these keywords. All other keywords go to the methods
``from_csv_row``, ``load`` and ``split`` of the class::

    examples_tfrecord_file_max_size_in_bytes   largest size of a file
    examples_log_in_csv_file                   whether splits get an examples.csv
    overwrite                                  replace a data set in the folder
    workers                                    number of processes on this machine
    beam_args                                  flags of Beam, with its runner
    progress                                   True, False, or called with (finished,
                                               all) examples; a bar in a terminal
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.plan.shards import DEFAULT_SHARD_BYTES
from beam_pipeline.storage import files
from beam_pipeline.tfrecorder.example import Example, read_csv_rows
from beam_pipeline.tfrecorder.record_rows import Progress, record_rows
from beam_pipeline.tfrecorder.recorded_files import (
    get_examples_list_filepaths,
    get_tfrecord_filepaths,
)
from beam_pipeline.tfrecorder.recording import Source, check_keywords
from beam_pipeline.tfrecorder.splitting import (
    Ratio,
    checked_ratios,
    shuffled,
    split_examples_list,
)

if TYPE_CHECKING:
    import tensorflow as tf

__all__ = [
    "generate_and_save_tfrecords_files_for_examples_dict",
    "generate_and_save_tfrecords_files_for_examples_file",
    "generate_and_save_tfrecords_files_for_examples_files_dict",
    "generate_and_save_tfrecords_files_for_train_eval_test_examples_files",
    "generate_and_save_train_eval_test_tfrecords_files",
    "generate_and_save_train_eval_test_tfrecords_files_for_examples",
    "generate_dataset",
    "get_examples_list_filepaths",
    "get_tfrecord_filepaths",
    "split_examples_list",
]

TRAIN, EVAL, TEST = "train", "eval", "test"


@dataclass(frozen=True, kw_only=True)
class _Settings:
    """The keywords of every function that records; see the module."""

    examples_tfrecord_file_max_size_in_bytes: float = DEFAULT_SHARD_BYTES
    examples_log_in_csv_file: bool = True
    overwrite: bool = False
    workers: int | None = None
    beam_args: Sequence[str] = ()
    progress: Progress = None


def generate_and_save_train_eval_test_tfrecords_files(
    save_directory_path: files.PathLike,
    example_class: type[Example] | None = None,
    examples_list_filepath: files.PathLike | None = None,
    examples_train_eval_test_ratio: Ratio = 0.8,
    examples_shuffle: bool = True,
    *,
    examples_tfrecord_file_max_size_in_bytes: float = DEFAULT_SHARD_BYTES,
    examples_log_in_csv_file: bool = True,
    seed: int = 0,
    overwrite: bool = False,
    workers: int | None = None,
    beam_args: Sequence[str] = (),
    progress: Progress = None,
    examples_class: type[Example] | None = None,
    examples_filepath: files.PathLike | None = None,
    **kwargs: Any,
) -> dict[str, int]:
    """Records the examples of a CSV file in the folders train, eval and perhaps test.

    Each row is an example: ``example_class.from_csv_row(row, **kwargs)``. Workers make
    it, load it, split it into chunks and store them, one example at a time.

    Parameters
    ----------
    save_directory_path : path
        The output folder. It gets a folder for each split, and ``metadata.json``.
    example_class, examples_class : type
        A subclass of Example; either spelling.
    examples_list_filepath, examples_filepath : path
        A CSV file without a header; either spelling.
    examples_train_eval_test_ratio : float, or sequence of up to three
        See :func:`split_examples_list`.
    examples_shuffle : bool
        Whether to shuffle the rows before they are split.
    examples_tfrecord_file_max_size_in_bytes : float
        The largest size of a file.
    examples_log_in_csv_file : bool
        Whether each split gets an ``examples.csv``, with the ``to_csv_row`` of each
        example that was not left out.
    seed : int
        Seed of the shuffled order.
    overwrite : bool
        Whether to replace a data set in the output folder.
    workers : int, optional
        Number of processes on this machine.
    beam_args : sequence of str
        Flags of Beam, with ``--runner``: it runs the job.
    progress : callable or bool, optional
        Called with the number of finished examples, and of all. True: shows a progress
        bar. Default: only in a terminal or a notebook.
    **kwargs
        The keywords of ``from_csv_row``, ``load`` and ``split``.

    Returns
    -------
    dict
        For each split, the number of examples in its files: after ``split``, and
        without those that an IgnoreExampleException left out.

    Raises
    ------
    OptionError, InputError, OutputError, EngineError
        If an argument, the file, the output or the runner cannot be used; before
        anything is written.
    ExampleError
        If a method of the class raises, or a value cannot be stored.
    WorkerDied, IncompleteRun
        If a worker or a runner fails. No data set is written then.
    """
    path = _either("examples_list_filepath", examples_list_filepath, examples_filepath)
    found = _either("example_class", example_class, examples_class)
    rows = _rows_of(path)
    return _record(
        save_directory_path,
        found,
        _split(rows, examples_train_eval_test_ratio, examples_shuffle, seed),
        dict(
            kwargs,
            examples_tfrecord_file_max_size_in_bytes=examples_tfrecord_file_max_size_in_bytes,
            examples_log_in_csv_file=examples_log_in_csv_file,
            overwrite=overwrite,
            workers=workers,
            beam_args=beam_args,
            progress=progress,
        ),
        examples_train_eval_test_ratio=examples_train_eval_test_ratio,
        examples_shuffle=examples_shuffle,
        seed=seed,
    )


def generate_and_save_train_eval_test_tfrecords_files_for_examples(
    save_directory_path: files.PathLike,
    examples: Sequence[Example],
    examples_train_eval_test_ratio: Ratio = 0.8,
    examples_shuffle: bool = True,
    *,
    seed: int = 0,
    **kwargs: Any,
) -> dict[str, int]:
    """Records instances in the folders train, eval and perhaps test.

    Neither the list nor the instances are changed. The other parameters, the result and
    the errors are those of :func:`generate_and_save_train_eval_test_tfrecords_files`.
    """
    examples = list(examples)  # it may be a generator
    return _record(
        save_directory_path,
        _class_of([examples]),
        _split(examples, examples_train_eval_test_ratio, examples_shuffle, seed),
        kwargs,
        examples_train_eval_test_ratio=examples_train_eval_test_ratio,
        examples_shuffle=examples_shuffle,
        seed=seed,
    )


def generate_and_save_tfrecords_files_for_examples_file(
    save_directory_path: files.PathLike,
    example_class: type[Example] | None = None,
    examples_list_filepath: files.PathLike | None = None,
    *,
    examples_class: type[Example] | None = None,
    examples_filepath: files.PathLike | None = None,
    **kwargs: Any,
) -> dict[str, int]:
    """Records the examples of a CSV file in one folder, in the order of the rows.

    The other parameters, the result and the errors are those of
    :func:`generate_and_save_train_eval_test_tfrecords_files`; the only split is named
    ``records``.
    """
    path = _either("examples_list_filepath", examples_list_filepath, examples_filepath)
    found = _either("example_class", example_class, examples_class)
    splits = {DEFAULT_SPLIT: _rows_of(path)}
    return _record(save_directory_path, found, splits, kwargs)


def generate_and_save_tfrecords_files_for_train_eval_test_examples_files(
    save_directory_path: files.PathLike,
    example_class: type[Example],
    train_examples_filepath: files.PathLike,
    eval_examples_filepath: files.PathLike,
    test_examples_filepath: files.PathLike | None = None,
    **kwargs: Any,
) -> dict[str, int]:
    """Records the examples of a CSV file for each split, in the order of the rows.

    The other parameters, the result and the errors are those of
    :func:`generate_and_save_train_eval_test_tfrecords_files`.
    """
    paths = {TRAIN: train_examples_filepath, EVAL: eval_examples_filepath}
    if test_examples_filepath:
        paths[TEST] = test_examples_filepath
    return generate_and_save_tfrecords_files_for_examples_files_dict(
        save_directory_path, example_class, paths, **kwargs
    )


def generate_and_save_tfrecords_files_for_examples_files_dict(
    save_directory_path: files.PathLike,
    example_class: type[Example],
    examples_filepaths_dict: Mapping[str, files.PathLike],
    **kwargs: Any,
) -> dict[str, int]:
    """Records the examples of each CSV file in the folder of its name, such as folds.

    The other parameters, the result and the errors are those of
    :func:`generate_and_save_train_eval_test_tfrecords_files`.
    """
    splits = {name: _rows_of(path) for name, path in examples_filepaths_dict.items()}
    return _record(save_directory_path, example_class, splits, kwargs)


def generate_and_save_tfrecords_files_for_examples_dict(
    save_directory_path: files.PathLike,
    examples_dict: Mapping[str, Sequence[Example]],
    **kwargs: Any,
) -> dict[str, int]:
    """Records the instances of each list in the folder of its name, such as folds.

    The other parameters, the result and the errors are those of
    :func:`generate_and_save_train_eval_test_tfrecords_files`.
    """
    examples_dict = {name: list(some) for name, some in examples_dict.items()}
    example_class = _class_of(examples_dict.values())
    return _record(save_directory_path, example_class, examples_dict, kwargs)


def generate_dataset(
    tfrecords_filepaths: files.PathLike | Sequence[files.PathLike],
    example_class: type[Example] | None = None,
    dataset_num_shuffled_tfrecord_files: int | None = None,
    dataset_fetching_num_threads: int | None = None,
    *,
    seed: int = 0,
) -> tf.data.Dataset:
    """Reads recorded files as tuples of tensors, in the order of declaration.

    Files may be GZIP or not; the first bytes tell. A feature that a record lacks reads
    as 0, 0.0, an empty text or an empty array. Arrays have their shapes; in files of
    other writers, which hold no shapes, they are flat.

    Parameters
    ----------
    tfrecords_filepaths : path, or sequence of them
        See :func:`get_tfrecord_filepaths`.
    example_class : type, optional
        The class that declares the features. Default: what ``metadata.json`` says, in
        the files' folder or the folder above.
    dataset_num_shuffled_tfrecord_files : int, optional
        Shuffles, in another order in every pass: the order of the files, and the
        records of up to this many files, in a buffer of up to 128 MiB.
    dataset_fetching_num_threads : int, optional
        Number of threads that parse records. Default: one for each core, up to 4. The
        order of the elements does not depend on it.
    seed : int
        Seed of the shuffled order, together with ``tf.random.set_seed``.

    Raises
    ------
    InputError
        If a file is missing, holds a feature of another type, or no metadata are found.
    OptionError
        If a number is below 1.
    """
    from beam_pipeline.tfrecorder import streaming

    if isinstance(tfrecords_filepaths, str | os.PathLike):
        tfrecords_filepaths = [tfrecords_filepaths]
    for name, value in (
        ("dataset_num_shuffled_tfrecord_files", dataset_num_shuffled_tfrecord_files),
        ("dataset_fetching_num_threads", dataset_fetching_num_threads),
    ):
        if value is not None and value < 1:
            raise OptionError(name, "must be at least 1", value)
    paths = [files.absolute(os.fspath(path)) for path in tfrecords_filepaths]
    return streaming.stream(
        paths,
        None if example_class is None else example_class.feature_specs(),
        shuffled_files=dataset_num_shuffled_tfrecord_files,
        threads=dataset_fetching_num_threads,
        seed=seed,
    )


def _record(
    save_directory_path: files.PathLike,
    example_class: type[Example],
    splits: Mapping[str, Sequence[Source]],
    keywords: Mapping[str, Any],
    **how: Any,
) -> dict[str, int]:
    names = {field.name for field in fields(_Settings)}
    check_keywords(example_class, keywords, names)
    settings = _Settings(**{k: v for k, v in keywords.items() if k in names})
    kwargs = {k: v for k, v in keywords.items() if k not in names}
    max_bytes = settings.examples_tfrecord_file_max_size_in_bytes
    return record_rows(
        files.absolute(os.fspath(save_directory_path)),
        example_class,
        splits,
        kwargs=kwargs,
        max_bytes=max_bytes,
        log_in_csv_file=settings.examples_log_in_csv_file,
        overwrite=settings.overwrite,
        workers=settings.workers,
        beam_args=settings.beam_args,
        progress=settings.progress,
        options={
            "example_class": getattr(example_class, "__qualname__", ""),
            **how,
            "examples_tfrecord_file_max_size_in_bytes": max_bytes,
            "kwargs": {k: v for k, v in sorted(kwargs.items()) if _is_plain(v)},
        },
    )


def _is_plain(value: Any) -> bool:
    """Whether the metadata keep a keyword: they hold no absolute paths."""
    if isinstance(value, str):
        return not os.path.isabs(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int)


def _split(
    sources: Sequence[Any], ratio: Ratio, shuffle: bool, seed: int
) -> dict[str, Sequence[Any]]:
    checked_ratios(ratio)
    order = shuffled(sources, seed) if shuffle else sources
    train, evaluation, test = split_examples_list(order, ratio)
    splits: dict[str, Sequence[Any]] = {TRAIN: train, EVAL: evaluation}
    return splits if test is None else {**splits, TEST: test}


def _rows_of(path: files.PathLike) -> list[list[str]]:
    rows = read_csv_rows(path)
    if not rows:
        raise InputError(f"{os.fspath(path)} holds no rows.")
    return rows


def _class_of(lists: Iterable[Sequence[Example]]) -> type[Example]:
    """Returns the class of the first instance."""
    first = next((example for examples in lists for example in examples), None)
    if first is None:
        raise InputError("There are no examples to record.")
    return type(first)


def _either(name: str, value: Any, other: Any) -> Any:
    """Returns an argument that has two spellings."""
    if (value is None) == (other is None):
        problem = "is missing" if value is None else "is given in both its spellings"
        raise OptionError(name, problem)
    return other if value is None else value
