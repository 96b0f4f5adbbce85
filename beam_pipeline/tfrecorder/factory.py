"""Records lists of examples, and reads them back as ``tf.data``.

::

    row --from_csv_row--> example --load--> line of examples.csv --split--> chunks
                                                          chunks --encode--> records

One source example is in memory at a time. :class:`RowEncoder` does this in workers, and
keeps no state; :func:`record` runs it on this machine, or on a runner of Beam.

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

import copy
import inspect
import logging
import math
import os
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import reduce
from itertools import chain
from typing import TYPE_CHECKING, Any, TypeVar

from beam_pipeline.dataset.element_set import (
    ElementSet,
    Encoded,
    ShardSizes,
    store_blocks,
)
from beam_pipeline.dataset.folders import LOG, METADATA
from beam_pipeline.dataset.job import element_output
from beam_pipeline.dataset.metadata import Elements, Metadata, data_sets_of
from beam_pipeline.dataset.side_by_side import check_features
from beam_pipeline.errors import (
    ExampleError,
    InputError,
    OptionError,
    UnstorableAttribute,
    did_you_mean,
)
from beam_pipeline.examples.spec import FeatureSpec, merge_shapes
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.parameters import Declared, Flag, Number, WholeNumber, parameter
from beam_pipeline.planning.shards import DEFAULT_SHARD_BYTES
from beam_pipeline.process import usable_cores
from beam_pipeline.run.elements import check_run, run_elements
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import SUFFIX
from beam_pipeline.tfrecorder.example import (
    ClassEncoder,
    Example,
    IgnoreExampleException,
    csv_line,
    declared_fields,
    read_csv_rows,
)
from beam_pipeline.transforms.own_code import by_value

if TYPE_CHECKING:
    import tensorflow as tf

_LOGGER = logging.getLogger("beam_pipeline.tfrecorder")

T = TypeVar("T")
# A row of a CSV file, or an instance.
Source = Sequence[str] | Example

Progress = Callable[[int, int], Any] | bool | None

# They get the keywords that the factory does not know.
_METHODS = ("from_csv_row", "load", "split")
# The rows that one worker turns into parts at a time. The bytes of shards depend on it.
ROWS_PER_BLOCK = 64


class Settings(Declared):
    """The keywords of every function that records; see :mod:`.factory`."""

    examples_tfrecord_file_max_size_in_bytes: float = parameter(
        DEFAULT_SHARD_BYTES, Number(is_positive=True, unit="bytes")
    )
    examples_log_in_csv_file: bool = parameter(True, Flag())
    overwrite: bool = parameter(False, Flag())
    workers: int | None = parameter(None, WholeNumber())
    beam_args: Sequence[str] = ()
    progress: Progress = None


def record(
    save_directory_path: files.PathLike,
    example_class: type[Example] | None,
    splits: Mapping[str, files.PathLike | Iterable[Source]],
    keywords: Mapping[str, Any],
    **how: Any,
) -> dict[str, int]:
    """Records the sources of each split, and returns the number of its examples.

    Parameters
    ----------
    save_directory_path : path
        The output folder.
    example_class : type or None
        None: that of the first instance.
    splits : mapping
        Name of the split to its sources: the path of a CSV file, or instances.
    keywords : mapping
        Those of :class:`Settings`, and those of ``from_csv_row``, ``load`` and
        ``split``.
    **how
        How the sources were split, for the metadata.

    Raises
    ------
    OptionError, InputError, OutputError, EngineError
        If an argument, a source, the output or the runner cannot be used; before
        anything is written.
    ExampleError
        If a method of the class raises, or a value cannot be stored.
    WorkerDied, IncompleteRun
        If a worker or a runner fails. No data set is written then.
    """
    names = {field.name for field in fields(Settings)}
    settings = Settings(**{k: v for k, v in keywords.items() if k in names})
    run = check_run(settings.beam_args, settings.workers)
    if not isinstance(splits, Mapping):
        raise OptionError("splits", "must be a dict, with a list for each name", splits)
    for name in splits:
        if not name.isidentifier():
            raise OptionError("split", "must be letters, digits and _", name)
    sources = {name: _sources(given) for name, given in splits.items()}
    first = next(chain(*sources.values()), None)
    if first is None:
        raise InputError("There are no examples to record.")
    if example_class is None and isinstance(first, Example):
        example_class = type(first)
    declared_fields(example_class)  # which refuses what declares nothing
    assert example_class is not None
    _check_keywords(example_class, keywords, names)
    kwargs = {k: v for k, v in keywords.items() if k not in names}
    max_bytes = settings.examples_tfrecord_file_max_size_in_bytes
    options = {
        "example_class": example_class.__qualname__,
        **how,
        "examples_tfrecord_file_max_size_in_bytes": max_bytes,
        "kwargs": {k: v for k, v in sorted(kwargs.items()) if _is_plain(v)},
    }
    sizes = ShardSizes(shard_bytes=max(int(max_bytes), 1))
    folder = files.given_path("save_directory_path", save_directory_path)
    with element_output(folder, "tfrecorder", settings.overwrite) as target:
        encoder = RowEncoder(example_class, kwargs, settings.examples_log_in_csv_file)
        # Other interpreters do not have the classes of the caller's script.
        blocks = store_blocks(_blocks(sources), target, by_value)
        job = ElementSet(
            target,
            example_class.feature_specs(),
            sizes,
            tuple(sources),
            Elements("tfrecorder", options),
            len(blocks),
            sources=sum(map(len, sources.values())),
            encode=encoder.encode,
        )
        run_elements(job, blocks, run, settings.progress, "record")
        metadata = Metadata.load(target.output)
        _log(target.output, metadata, sources)
    return {name: metadata.splits[name].examples for name in sources}


def _sources(given: Any) -> list[Source]:
    """Returns the sources of a split: the rows of a CSV file, or instances.

    Raises
    ------
    OptionError, InputError
        If they are neither, or the file cannot be read or holds no rows.
    """
    if isinstance(given, Iterable) and not isinstance(given, str | bytes):
        return list(given)
    path = files.given_path("examples", given, "the path of a CSV file, or a list")
    rows = read_csv_rows(path)
    if not rows:
        raise InputError(f"{path} holds no rows.")
    return list(rows)


def _is_plain(value: Any) -> bool:
    """Whether the metadata keep a keyword: they hold no absolute paths."""
    if isinstance(value, str):
        return not os.path.isabs(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int)


def _blocks(splits: Mapping[str, Sequence[Source]]) -> Iterator[Any]:
    for name, sources in splits.items():
        for start in range(0, len(sources), ROWS_PER_BLOCK):
            yield name, list(sources[start : start + ROWS_PER_BLOCK])


def _log(
    output: str, metadata: Metadata, sources: Mapping[str, Sequence[Source]]
) -> None:
    """Writes what was recorded into ``log.txt``, and warns of ignored examples."""
    assert metadata.elements is not None
    options = metadata.elements.options
    lines = [f"class {options['example_class']}"]
    lines += [f"{name} = {value!r}" for name, value in options["kwargs"].items()]
    for name, of_split in sources.items():
        split = metadata.splits[name]
        skipped = options.get("skipped", {}).get(name, {"sources": 0})
        line = f"{name}: {len(of_split)} sources, {skipped['sources']} ignored"
        if skipped["sources"]:
            line += f" by IgnoreExampleException, the first: {skipped['first']}"
            _LOGGER.warning(line)
        lines.append(f"{line}; {split.examples} examples in {len(split.shards)} files")
    text = "".join(f"{line}\n" for line in lines)
    files.write_bytes(files.join(output, LOG), text.encode())


@dataclass(frozen=True)
class RowEncoder:
    """Makes the examples of a block of rows."""

    example_class: type[Example]
    kwargs: Mapping[str, Any]
    log_in_csv_file: bool

    def encode(self, sources: tuple[str, Sequence[Source]]) -> Iterator[Encoded]:
        """Yields the records of each row, as soon as they are made."""
        split, rows = sources
        encoder = ClassEncoder(self.example_class)
        for source in rows:
            # Its data are gone before the next one is loaded.
            yield self._encoded(split, source, encoder)

    def _encoded(self, split: str, source: Source, encoder: ClassEncoder) -> Encoded:
        try:
            line, chunks = self.load(source)
        except IgnoreExampleException as reason:
            skipped = (str(reason) or "no reason given",)
            return Encoded(split, (), {}, sources=1, skipped=skipped)
        with _naming(source, "an attribute"):
            records, columns = encoder.encode(chunks)
        return Encoded(split, records, columns, () if line is None else (line,), 1)

    def load(self, source: Source) -> tuple[str | None, Sequence[Example]]:
        """Returns the line of a source in ``examples.csv``, and its loaded chunks.

        Instances are copied before they load, so that the caller's stay light. The line
        is None if there is no such file.

        Raises
        ------
        ExampleError
            If a method raises anything but IgnoreExampleException. It names the source
            and the method.
        """
        kwargs, line = self.kwargs, None
        if isinstance(source, Example):
            example = copy.copy(source)
        else:
            with _naming(source, "from_csv_row()"):
                example = self.example_class.from_csv_row(list(source), **kwargs)
        with _naming(source, "load()"):
            example.load(**kwargs)
        if self.log_in_csv_file:
            with _naming(source, "to_csv_row()"):
                line = csv_line(example.to_csv_row())
        with _naming(source, "split()"):
            found = example.split(**kwargs)
            chunks = [example] if found is None else list(found)
        return line, chunks


@contextmanager
def _naming(source: Source, what: str) -> Iterator[None]:
    """Runs code of the user's class; its error becomes one that names the source.

    An IgnoreExampleException stays.
    """
    try:
        yield
    except IgnoreExampleException:
        raise
    except UnstorableAttribute as error:
        raise UnstorableAttribute(source_name(source), str(error)) from error
    except Exception as error:
        problem = f"{what} raised {type(error).__name__}: {error}"
        raise ExampleError(source_name(source), problem) from error


def source_name(source: Source) -> str:
    """Returns a name for a source, for messages."""
    if not isinstance(source, Example):
        return f"row {list(source)!r}"
    name = type(source).__name__
    try:
        return f"{name} {list(source.to_csv_row())!r}"
    except Exception:  # any, because it only names the example in another error
        return name


def _check_keywords(
    example_class: Any, keywords: Mapping[str, Any], names: Iterable[str]
) -> None:
    """Raises OptionError for keywords that would go to the wrong place.

    A misspelt keyword of the factory would go to the class. A parameter of the class
    with the name of a keyword of the factory would never get a value.
    """
    methods = [getattr(example_class, name, None) for name in _METHODS]
    taken = {n for m in methods if callable(m) for n in inspect.signature(m).parameters}
    ours = {*names, "seed", "examples_train_eval_test_ratio", "examples_shuffle"}
    for name in sorted(taken & ours):
        raise OptionError(
            "example_class",
            f"has a method with the parameter {name}, which is a keyword of the "
            "factory; give the parameter another name",
            getattr(example_class, "__name__", example_class),
        )
    for name in keywords:
        close = None if name in {*names, *taken} else did_you_mean(name, ours, 0.85)
        if close:
            raise OptionError(
                name, f"no method of the class takes it; did you mean {close}?"
            )


TRAIN, EVAL, TEST = "train", "eval", "test"


Ratio = float | Sequence[float]

# Far more than the rounding of float sums and products, far less than an example.
_TOLERANCE = 1e-9
_SUM_TOLERANCE = 1e-6
_READ_AHEAD = 64

_SHARD = re.compile(r"(?P<name>[^/]+)-\d{5,}-of-(?P<shards>\d{5,})" + re.escape(SUFFIX))


def generate_and_save_train_eval_test_tfrecords_files(
    save_directory_path: files.PathLike,
    example_class: type[Example] | None,
    examples_list_filepath: files.PathLike | Iterable[Example],
    examples_train_eval_test_ratio: Ratio = 0.8,
    examples_shuffle: bool = True,
    *,
    seed: int = 0,
    **kwargs: Any,
) -> dict[str, int]:
    """Records the examples of a CSV file in the folders train, eval and perhaps test.

    Each row is an example: ``example_class.from_csv_row(row, **kwargs)``. Workers make
    it, load it, split it into chunks and store them, one example at a time.

    Parameters
    ----------
    save_directory_path : path
        The output folder. It gets a folder for each split, and ``metadata.json``.
    example_class : type
        A subclass of Example. None: that of the first instance.
    examples_list_filepath : path
        A CSV file without a header; or instances.
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
    order = _sources(examples_list_filepath)
    if examples_shuffle:
        order = shuffled(order, seed)
    named = zip(
        (TRAIN, EVAL, TEST),
        split_examples_list(order, examples_train_eval_test_ratio),
        strict=True,
    )
    return record(
        save_directory_path,
        example_class,
        {name: split for name, split in named if split is not None},
        kwargs,
        examples_train_eval_test_ratio=examples_train_eval_test_ratio,
        examples_shuffle=examples_shuffle,
        seed=seed,
    )


def generate_and_save_train_eval_test_tfrecords_files_for_examples(
    save_directory_path: files.PathLike,
    examples: Sequence[Example],
    *args: Any,
    **kwargs: Any,
) -> dict[str, int]:
    """Records instances in the folders train, eval and perhaps test.

    Neither the list nor the instances are changed. The other parameters, the result and
    the errors are those of :func:`generate_and_save_train_eval_test_tfrecords_files`.
    """
    return generate_and_save_train_eval_test_tfrecords_files(
        save_directory_path, None, examples, *args, **kwargs
    )


def generate_and_save_tfrecords_files_for_examples_file(
    save_directory_path: files.PathLike,
    example_class: type[Example],
    examples_list_filepath: files.PathLike,
    **kwargs: Any,
) -> dict[str, int]:
    """Records the examples of a CSV file in one folder, in the order of the rows.

    The other parameters, the result and the errors are those of
    :func:`generate_and_save_train_eval_test_tfrecords_files`; the only split is named
    ``records``.
    """
    splits = {DEFAULT_SPLIT: examples_list_filepath}
    return record(save_directory_path, example_class, splits, kwargs)


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
    return record(save_directory_path, example_class, paths, kwargs)


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
    return record(save_directory_path, example_class, examples_filepaths_dict, kwargs)


def generate_and_save_tfrecords_files_for_examples_dict(
    save_directory_path: files.PathLike,
    examples_dict: Mapping[str, Sequence[Example]],
    **kwargs: Any,
) -> dict[str, int]:
    """Records the instances of each list in the folder of its name, such as folds.

    The other parameters, the result and the errors are those of
    :func:`generate_and_save_train_eval_test_tfrecords_files`.
    """
    return record(save_directory_path, None, examples_dict, kwargs)


def generate_dataset(
    tfrecords_filepaths: files.PathLike | Sequence[files.PathLike],
    example_class: type[Example] | None = None,
    dataset_num_shuffled_tfrecord_files: int | None = None,
    dataset_fetching_num_threads: int | None = None,
    *,
    seed: int = 0,
) -> tf.data.Dataset:
    """Reads recorded files as tuples of tensors, in the order of declaration.

    Parameters
    ----------
    tfrecords_filepaths : path, or sequence of them
        See :func:`get_tfrecord_filepaths`.
    example_class : type, optional
        The class that recorded the files; needed only for files that were moved away
        from their ``metadata.json``.
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
        If a file is missing, another class recorded it, or nothing says what it holds.
    """
    from beam_pipeline.read.replay import PARSING_THREADS, make_tuple_parser, read_files

    shuffled_files = dataset_num_shuffled_tfrecord_files
    texts = files.path_texts("tfrecords_filepaths", tfrecords_filepaths)
    paths = [*map(files.absolute, texts)]
    declared = None if example_class is None else example_class.feature_specs()
    parse = make_tuple_parser(_choose_specs(paths, declared))
    examples = read_files(
        paths,
        shuffle=bool(shuffled_files),
        seed=seed,
        least=shuffled_files or 1,
        mixed=shuffled_files,
    )
    return examples.map(
        parse,
        num_parallel_calls=dataset_fetching_num_threads
        or min(usable_cores(), PARSING_THREADS),
        deterministic=True,
    ).prefetch(_READ_AHEAD)


def _choose_specs(
    paths: Sequence[str], declared: Sequence[FeatureSpec] | None
) -> Sequence[FeatureSpec]:
    """Returns the specs in the metadata of the files; else those that a class declares.

    Raises
    ------
    InputError
        If there are neither, or if the files hold other features than the class
        declares, or than other files: their bytes alone would read as garbage.
    """
    found = data_sets_of(paths)
    if not (declared or found):
        raise InputError(
            f"No {METADATA} says what the files hold. Give `example_class`; "
            "`replay_files` reads records of other programs."
        )
    each = [metadata.features for metadata in found.values()]
    wanted = {spec.name: spec for spec in declared or each[0].values()}
    first = "the class" if declared else next(iter(found))
    remedy = "Read other data sets alone, with the class that recorded them."
    for folder, specs in zip(found, each, strict=True):
        check_features(first, wanted, folder, specs, ["dtype"], remedy)
    # Each data set knows the shapes of its own examples.
    shapes = {n: [specs[n].shape for specs in each or [wanted]] for n in wanted}
    stored = each[0] if each else wanted
    return [replace(stored[n], shape=reduce(merge_shapes, shapes[n])) for n in wanted]


def shuffled(examples: Sequence[T], seed: int) -> list[T]:
    """Returns the examples in an order that depends on their number and the seed."""
    order = list(examples)
    random.Random(seed).shuffle(order)
    return order


def split_examples_list(
    examples: Sequence[T], examples_train_eval_test_ratio: Ratio
) -> tuple[list[T], list[T], list[T] | None]:
    """Splits examples by ratios, in their order.

    ::

        ratio       train        eval         test
        a, [a]      int(n * a)   the rest     None
        [a, b]      int(n * a)   the rest     None
        [a, b, c]   int(n * a)   int(n * b)   the rest; None if that is empty

    Products that are whole numbers but for rounding count as whole: 0.29 of 100
    examples are 29, although ``int(100 * 0.29)`` is 28.

    >>> split_examples_list(["p", "q", "r", "s"], [0.5, 0.25, 0.25])
    (['p', 'q'], ['r'], ['s'])

    Parameters
    ----------
    examples_train_eval_test_ratio : float, or sequence of up to three
        Each from 0 to 1. Several must have the sum 1, but for rounding.

    Raises
    ------
    OptionError
        If the ratio is of another kind, or its sum is not 1.
    """
    ratios = _checked_ratios(examples_train_eval_test_ratio)
    everything = list(examples)
    total = len(everything)
    train = _share(total, ratios[0])
    if len(ratios) < 3:
        return everything[:train], everything[train:], None
    end = min(train + _share(total, ratios[1]), total)
    return everything[:train], everything[train:end], everything[end:] or None


def _checked_ratios(ratio: Any) -> list[float]:
    """Returns one to three ratios; see :func:`split_examples_list`."""
    problem = "must be a number from 0 to 1, or up to three: train, eval and test"
    try:
        ratios = [
            float(r) for r in (ratio if isinstance(ratio, list | tuple) else [ratio])
        ]
    except (TypeError, ValueError):
        ratios = []
    total = math.fsum(ratios)
    if len(ratios) > 1 and abs(total - 1) > _SUM_TOLERANCE:
        problem = f"must have the sum 1, and has {total:g}"
    elif 1 <= len(ratios) <= 3 and all(0 <= value <= 1 for value in ratios):
        return ratios
    raise OptionError("examples_train_eval_test_ratio", problem, ratio)


def _share(total: int, ratio: float) -> int:
    return math.floor(total * ratio + _TOLERANCE * max(1, total))


def get_tfrecord_filepaths(dirpath: files.PathLike) -> list[str]:
    """Returns the files of records in a folder, ``NAME-00000-of-00002.tfrecord.gz``.

    Raises
    ------
    OptionError
        If there is no such folder. It is a ValueError.
    InputError
        If one of the files is missing, or files of several runs are there.
    """
    folder = files.given_path("dirpath", dirpath)
    if not files.is_folder(folder):
        raise OptionError("dirpath", "must be a folder that exists", folder)
    found = [
        match for name in files.list_files(folder) if (match := _SHARD.fullmatch(name))
    ]
    if not found:
        return []
    name, shards = found[0].groups()
    wanted = {f"{name}-{k:05d}-of-{shards}{SUFFIX}" for k in range(int(shards))}
    names = sorted(match[0] for match in found)
    if others := sorted(wanted.symmetric_difference(names)):
        raise InputError(
            f"{folder} must hold all shards of one run, and no others; "
            f"{others[0]} is {'missing' if others[0] in wanted else 'of another run'}."
        )
    return [files.join(folder, name) for name in names]
