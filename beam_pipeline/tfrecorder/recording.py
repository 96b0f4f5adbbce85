"""From rows to records: what happens to each example, and the checks before.

::

    row --from_csv_row--> example --load--> line of examples.csv --split--> chunks
                                                          chunks --encode--> records

One source example is in memory at a time. These functions run in workers and keep no
state.
"""

from __future__ import annotations

import copy
import inspect
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_pipeline.errors import ExampleError, InputError, OptionError, did_you_mean
from beam_pipeline.tfrecorder.example import (
    Example,
    IgnoreExampleException,
    csv_line,
)
from beam_pipeline.tfrecorder.recorded_files import EXAMPLES_CSV

_LOGGER = logging.getLogger("beam_pipeline.tfrecorder")

# A row of a CSV file, or an instance.
Source = Sequence[str] | Example


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
    if isinstance(row, str | bytes) or not isinstance(row, Iterable):
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
        raise ExampleError(
            source_name(source),
            f"from_csv_row() must return an instance of {example_class.__name__}, and "
            f"returned {type(made).__name__}",
        )
    return made


def _chunks(
    source: Source, example: Example, kwargs: Mapping[str, Any]
) -> Sequence[Example]:
    found: Any = _call(source, "split", example.split, kwargs)
    if found is None:
        return [example]
    chunks = found
    if not isinstance(found, list | tuple):
        is_iterable = isinstance(found, Iterable)
        chunks = _call(source, "split", list, {}, found) if is_iterable else [None]
    if not all(isinstance(chunk, Example) for chunk in chunks):
        raise ExampleError(
            source_name(source),
            f"split() must return a list of Examples, and returned {found!r}",
        )
    return list(chunks)


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
    are_rows = any(not isinstance(source, Example) for source in sources)
    makes = example_class.from_csv_row
    if are_rows and getattr(makes, "__func__", makes) is Example.from_csv_row.__func__:  # type: ignore[attr-defined]
        raise InputError(
            f"{name} does not define from_csv_row(row, **kwargs), which returns the "
            "example of a row. Define it, or give instances."
        )
    others = {
        type(source).__name__
        for source in sources
        if isinstance(source, Example) and not isinstance(source, example_class)
    }
    if others:
        raise InputError(
            f"All examples must be of one class, but there are {name} and "
            f"{', '.join(sorted(others))}."
        )


def check_keywords(
    example_class: Any, keywords: Mapping[str, Any], names: Collection[str]
) -> None:
    """Raises OptionError for keywords that would go to the wrong place.

    A misspelt keyword of the factory would go to the class. A parameter of the class
    with the name of a keyword of the factory would never get a value.
    """
    methods = [
        getattr(example_class, name, None) for name in ("from_csv_row", "load", "split")
    ]
    taken: set[str] = set()
    for method in filter(callable, methods):
        taken |= set(inspect.signature(method).parameters)
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
