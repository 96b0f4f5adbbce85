"""From rows to records: what happens to each example, and the checks before.

::

    row --from_csv_row--> example --load--> line of examples.csv --split--> chunks
                                                          chunks --encode--> records

One source example is in memory at a time. These functions run in workers and keep no
state. :func:`record` runs them on this machine, or on a runner of Beam.
"""

from __future__ import annotations

import copy
import inspect
import logging
import math
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, NamedTuple

from beam_pipeline.dataset.element_set import ElementSet, element_output
from beam_pipeline.dataset.metadata import Elements, Metadata
from beam_pipeline.dataset.output_folder import EXAMPLES_CSV, LOG
from beam_pipeline.errors import (
    ExampleError,
    InputError,
    OptionError,
    UnstorableAttribute,
    did_you_mean,
)
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.parameters import Declared, Flag, Number, WholeNumber, parameter
from beam_pipeline.plan.shards import DEFAULT_SHARD_BYTES
from beam_pipeline.run.elements import check_run, run_elements
from beam_pipeline.run.workers import can_fork
from beam_pipeline.storage import files
from beam_pipeline.tfrecorder.example import (
    Example,
    IgnoreExampleException,
    csv_line,
    encoder_of,
)
from beam_pipeline.transforms.own_code import by_value
from beam_pipeline.write.element_blocks import ElementOutput, Encoded, store_blocks
from beam_pipeline.write.member_files import ShardSizes

_LOGGER = logging.getLogger("beam_pipeline.tfrecorder")

_ADDRESS = re.compile(" at 0x[0-9a-f]+")

# A row of a CSV file, or an instance.
Source = Sequence[str] | Example

Progress = Callable[[int, int], Any] | bool | None

# They get the keywords that the factory does not know.
_METHODS = ("from_csv_row", "load", "split")
# The rows that one worker turns into parts at a time. The bytes of shards depend on it.
ROWS_PER_BLOCK = 64


@dataclass(frozen=True, kw_only=True)
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

    def check(self) -> None:
        """Checks what is called with the progress."""
        shown = self.progress
        if not (shown is None or isinstance(shown, bool) or callable(shown)):
            raise OptionError("progress", "must be True, False or callable", shown)


def record(
    save_directory_path: files.PathLike,
    example_class: type[Example],
    splits: Mapping[str, Sequence[Source]],
    keywords: Mapping[str, Any],
    **how: Any,
) -> dict[str, int]:
    """Records the sources of each split, and returns the number of its examples.

    Parameters
    ----------
    save_directory_path : path
        The output folder.
    splits : mapping
        Name of the split to its sources, rows or instances.
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
    _check_keywords(example_class, keywords, names)
    settings = Settings(**{k: v for k, v in keywords.items() if k in names})
    run = check_run(settings.beam_args, settings.workers)
    kwargs = {k: v for k, v in keywords.items() if k not in names}
    max_bytes = settings.examples_tfrecord_file_max_size_in_bytes
    options = {
        "example_class": getattr(example_class, "__qualname__", ""),
        **how,
        "examples_tfrecord_file_max_size_in_bytes": max_bytes,
        "kwargs": {k: v for k, v in sorted(kwargs.items()) if _is_plain(v)},
    }
    check_class(example_class, splits, settings.examples_log_in_csv_file)
    for name in splits:
        if not name.isidentifier():
            raise OptionError("split", "must be letters, digits and _", name)
    sizes = ShardSizes(shard_bytes=max(int(max_bytes), 1))
    folder = files.absolute(os.fspath(save_directory_path))
    with element_output(folder, "tfrecorder", settings.overwrite) as target:
        classes = {example_class, *_classes_of(splits)}
        by_name = all(_can_pickle(cls, settings.beam_args) for cls in classes)
        dump = pickle.dumps if by_name else by_value
        encoder = RowEncoder(example_class, kwargs, settings.examples_log_in_csv_file)
        blocks = store_blocks(_blocks(splits), target, dump)
        job = ElementSet(
            target,
            tuple(encoder.specs),
            sizes,
            tuple(splits),
            Elements("tfrecorder", options),
            len(blocks),
            sources=sum(map(len, splits.values())),
        )
        run_elements(job, encoder, blocks, run, settings.progress, "record")
        metadata = Metadata.load(target.output)
        _log(target, metadata, example_class, splits, kwargs)
    return {name: metadata.splits[name].examples for name in splits}


def _is_plain(value: Any) -> bool:
    """Whether the metadata keep a keyword: they hold no absolute paths."""
    if isinstance(value, str):
        return not os.path.isabs(value)
    if isinstance(value, float):
        return math.isfinite(value)
    return value is None or isinstance(value, bool | int)


def _classes_of(splits: Mapping[str, Iterable[Source]]) -> set[type]:
    sources = (source for split in splits.values() for source in split)
    return {type(source) for source in sources if isinstance(source, Example)}


def _can_pickle(cls: type, beam_args: Sequence[str]) -> bool:
    """Whether workers find the class by its name."""
    if getattr(sys.modules.get(cls.__module__), cls.__qualname__, None) is not cls:
        return False
    # Other interpreters do not have the caller's script.
    return cls.__module__ != "__main__" or (can_fork() and not beam_args)


def _blocks(splits: Mapping[str, Sequence[Source]]) -> Iterator[Any]:
    for name, sources in splits.items():
        for start in range(0, len(sources), ROWS_PER_BLOCK):
            yield name, list(sources[start : start + ROWS_PER_BLOCK])


def _log(
    target: ElementOutput,
    metadata: Metadata,
    example_class: type[Example],
    splits: Mapping[str, Sequence[Source]],
    kwargs: Mapping[str, Any],
) -> None:
    """Writes what was recorded into ``log.txt``, and warns of ignored examples."""
    assert metadata.elements is not None
    skipped = metadata.elements.options.get("skipped", {})
    ignored = {name: found["sources"] for name, found in skipped.items()}
    lines = [f"class {example_class.__module__}.{example_class.__qualname__}"]
    # The address of an object is another one in each run.
    shown = {name: _ADDRESS.sub("", repr(kwargs[name])) for name in sorted(kwargs)}
    lines += [f"{name} = {value}" for name, value in shown.items()]
    for name, sources in splits.items():
        split = metadata.splits[name]
        lines.append(
            f"{name}: {len(sources)} sources, {ignored.get(name, 0)} ignored, "
            f"{split.examples} examples in {len(split.shards)} files"
        )
    for name, found in skipped.items():
        lines.append(f"{name}: the first was ignored because {found['first']}")
        _LOGGER.warning(
            "%s: %d of %d examples were left out by IgnoreExampleException; the first: "
            "%s",
            name, found["sources"], len(splits[name]), found["first"],
        )  # fmt: skip
    text = "".join(f"{line}\n" for line in lines)
    files.write_bytes(files.join(target.output, LOG), text.encode())


@dataclass(frozen=True)
class RowEncoder:
    """Makes the examples of a block of rows; see :class:`.BlockEncoder`."""

    example_class: type[Example]
    kwargs: Mapping[str, Any]
    log_in_csv_file: bool

    @property
    def specs(self) -> Sequence[FeatureSpec]:
        """The features, in the order of declaration."""
        return self.example_class.feature_specs()

    def encode(self, sources: tuple[str, Sequence[Source]]) -> Iterator[Encoded]:
        """Yields the records of each row, as soon as they are made."""
        split, rows = sources
        for example in examples_of(
            rows, self.example_class, self.kwargs, log_in_csv_file=self.log_in_csv_file
        ):
            lines = () if example.csv_line is None else (example.csv_line,)
            if example.ignored is not None:
                yield Encoded(split, (), {}, lines, 1, (example.ignored,))
            else:
                yield Encoded(split, *self._records(example), lines, 1)
            released(example)
            del example  # before the next one is loaded

    def _records(self, example: SourceExample) -> tuple[list[bytes], dict[str, Any]]:
        try:
            return encoder_of(self.example_class).encode(example.chunks)
        except UnstorableAttribute as error:
            name = source_name(example.source)
            raise UnstorableAttribute(name, str(error)) from error
        except ExampleError:
            raise
        except Exception as error:
            raise failed(example.source, "an attribute", error) from error


class SourceExample(NamedTuple):
    """What became of one source.

    Attributes
    ----------
    source : row or Example
        For messages.
    csv_line : str or None
        The example's line of ``examples.csv``; None if there is no such file.
    chunks : sequence of Example
        The examples to store, with their data.
    ignored : str or None
        If the example was left out: the text of its IgnoreExampleException.
    """

    source: Source
    csv_line: str | None
    chunks: Sequence[Example] = ()
    ignored: str | None = None


def examples_of(
    sources: Iterable[Source],
    example_class: type[Example],
    kwargs: Mapping[str, Any],
    *,
    log_in_csv_file: bool = True,
) -> Iterator[SourceExample]:
    """Yields the loaded and split example of each source.

    Parameters
    ----------
    sources : iterable of rows or instances
        Instances are copied before they load, so that the caller's stay light.
    kwargs : mapping
        The keywords of ``from_csv_row``, ``load`` and ``split``.
    log_in_csv_file : bool
        Whether to call ``to_csv_row``.

    Raises
    ------
    ExampleError
        If a method raises anything but IgnoreExampleException. It names the source and
        the method.
    """
    for source in sources:
        try:
            example = _instance(source, example_class, kwargs)
            _call(source, "load", example.load, kwargs)
            line = None
            if log_in_csv_file:
                line = _call(source, "to_csv_row", _line_of, {}, example)
            chunks = _chunks(source, example, kwargs)
        except IgnoreExampleException as reason:
            yield SourceExample(source, None, ignored=str(reason) or "no reason given")
            continue
        if not any(chunk is example for chunk in chunks):
            _call(source, "release", example.release, {})
        made = [SourceExample(source, line, chunks)]
        del example, chunks  # nothing here refers to them while the next one is loaded
        yield made.pop()


def _line_of(example: Example) -> str:
    row = example.to_csv_row()
    if not _is_iterable(row):
        raise TypeError(f"it must return a list, and returned {row!r}")
    return csv_line(list(row))


def released(example: SourceExample) -> None:
    """Releases the chunks of an example.

    Only if their class overrides ``release``: otherwise, nothing but this example
    refers to them any more.
    """
    for chunk in example.chunks:
        if type(chunk).release is not Example.release:
            _call(example.source, "release", chunk.release, {})


def _instance(
    source: Source, example_class: type[Example], kwargs: Mapping[str, Any]
) -> Example:
    if isinstance(source, Example):
        return copy.copy(source)
    row = list(source)
    made = _call(source, "from_csv_row", example_class.from_csv_row, kwargs, row)
    if not isinstance(made, Example):
        wanted = f"an instance of {example_class.__name__}"
        raise _wrong_result(source, "from_csv_row", wanted, type(made).__name__)
    return made


def _chunks(
    source: Source, example: Example, kwargs: Mapping[str, Any]
) -> Sequence[Example]:
    found: Any = _call(source, "split", example.split, kwargs)
    if found is None:
        return [example]
    chunks = _call(source, "split", list, {}, found) if _is_iterable(found) else [None]
    if not all(isinstance(chunk, Example) for chunk in chunks):
        raise _wrong_result(source, "split", "a list of Examples", repr(found))
    return list(chunks)


def _is_iterable(value: Any) -> bool:
    return isinstance(value, Iterable) and not isinstance(value, str | bytes)


def _wrong_result(
    source: Source, method: str, wanted: str, returned: str
) -> ExampleError:
    problem = f"{method}() must return {wanted}, and returned {returned}"
    return ExampleError(source_name(source), problem)


def _call(
    source: Source,
    name: str,
    method: Callable[..., Any],
    kwargs: Mapping[str, Any],
    *args: Any,
) -> Any:
    """Calls a method of the user; an error names the source and the method."""
    try:
        return method(*args, **kwargs)
    except IgnoreExampleException:
        raise
    except Exception as error:
        raise failed(source, f"{name}()", error) from error


def failed(source: Source, what: str, error: Exception) -> ExampleError:
    problem = f"{what} raised {type(error).__name__}: {error}"
    return ExampleError(source_name(source), problem)


def source_name(source: Source) -> str:
    """Returns a name for a source, for messages."""
    if not isinstance(source, Example):
        return f"row {list(source)!r}"
    name = type(source).__name__
    try:
        return f"{name} {list(source.to_csv_row())!r}"
    except Exception:  # any, because it only names the example in another error
        return name


def check_class(
    example_class: Any,
    splits: Mapping[str, Sequence[Source]],
    log_in_csv_file: bool,
) -> None:
    """Checks that a class has the methods that its recording calls.

    Raises
    ------
    OptionError
        If it is not a subclass of Example, or declares nothing.
    InputError
        If there are no sources, or a method is missing.
    """
    if not (isinstance(example_class, type) and issubclass(example_class, Example)):
        raise OptionError(
            "example_class", "must be a subclass of Example", example_class
        )
    example_class.feature_specs()
    sources = [source for split in splits.values() for source in split]
    if not sources:
        raise InputError("There are no examples to record.")
    name = example_class.__name__
    if log_in_csv_file and example_class.to_csv_row is Example.to_csv_row:
        raise InputError(
            f"{name} does not define to_csv_row(), which returns an example's row of "
            f"{EXAMPLES_CSV}. Define it, or give examples_log_in_csv_file=False."
        )
    makes = getattr(example_class.from_csv_row, "__func__", None)
    for source in sources:
        if isinstance(source, Example) and not isinstance(source, example_class):
            raise InputError(
                f"All examples must be of one class, but there are {name} and "
                f"{type(source).__name__}."
            )
        if not isinstance(source, Example) and makes is Example.from_csv_row.__func__:  # type: ignore[attr-defined]
            raise InputError(
                f"{name} does not define from_csv_row(row, **kwargs), which returns "
                "the example of a row. Define it, or give instances."
            )


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
