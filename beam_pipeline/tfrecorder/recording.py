"""From rows to records: what happens to each example, and the checks before.

::

    row --from_csv_row--> example --load--> line of examples.csv --split--> chunks
                                                          chunk --serialise--> record

One source example is in memory at a time. Functions below :func:`record_rows` run in
workers and keep no state.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from beam_pipeline.errors import (
    ExampleError,
    InputError,
    OptionError,
    UnstorableAttribute,
)
from beam_pipeline.tfrecorder.example import (
    Example,
    IgnoreExampleException,
    csv_line,
    serialise,
)
from beam_pipeline.tfrecorder.recorded_files import EXAMPLES_CSV
from beam_pipeline.tfrecorder.sequential import write_splits

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
                line = csv_line(_call(source, "to_csv_row", example.to_csv_row, {}))
            chunks = _chunks(source, example, kwargs)
        except IgnoreExampleException as reason:
            yield SourceExample(source, None, ignored=str(reason) or "no reason given")
            continue
        if not any(chunk is example for chunk in chunks):
            _call(source, "release", example.release, {})
        del example
        yield SourceExample(source, line, chunks)


def records_of(
    source_example: SourceExample, example_class: type[Example]
) -> Iterator[bytes]:
    """Yields the record of each chunk, and releases the chunk's data after it.

    Raises
    ------
    UnstorableAttribute
        If a value is not of its declared type; it names the source and the attribute.
    ExampleError
        If a property or ``release`` raises.
    """
    source = source_example.source
    for chunk in source_example.chunks:
        try:
            record = serialise(chunk, example_class)
        except UnstorableAttribute as error:
            raise UnstorableAttribute(_name(source), str(error)) from error
        except Exception as error:
            raise _failed(source, "an attribute", error) from error
        yield record
        _call(source, "release", chunk.release, {})


def _instance(
    source: Source, example_class: type[Example], kwargs: Mapping[str, Any]
) -> Example:
    if isinstance(source, Example):
        return copy.copy(source)
    row = list(source)
    made = _call(source, "from_csv_row", example_class.from_csv_row, kwargs, row)
    if not isinstance(made, Example):
        raise ExampleError(
            _name(source),
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
            _name(source),
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
        raise _failed(source, f"{name}()", error) from error


def _failed(source: Source, what: str, error: Exception) -> ExampleError:
    problem = f"{what} raised {type(error).__name__}: {error}"
    return ExampleError(_name(source), problem)


def _name(source: Source) -> str:
    """Returns a name for a source, for messages."""
    if not isinstance(source, Example):
        return f"row {list(source)!r}"
    name = type(source).__name__
    try:
        return f"{name} {list(source.to_csv_row())!r}"
    except Exception:  # any, because it only names the example in another error
        return name


def record_rows(
    save_directory_path: str,
    example_class: type[Example],
    splits: Mapping[str, Sequence[Source]],
    *,
    kwargs: Mapping[str, Any],
    max_bytes: float,
    log_in_csv_file: bool = True,
    overwrite: bool = False,
    workers: int | None = None,
    beam_args: Sequence[str] = (),
    progress: Callable[[int, int], Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> dict[str, int]:
    """Records the sources of each split, and returns the number of its examples.

    Parameters
    ----------
    save_directory_path : str
        The output folder.
    splits : mapping
        Name of the split to its sources, rows or instances.
    kwargs : mapping
        The keywords of ``from_csv_row``, ``load`` and ``split``.
    max_bytes : float
        The largest size of a file.
    log_in_csv_file : bool
        Whether each split gets an ``examples.csv``: one row for each source example
        that was not left out.
    overwrite : bool
        Whether to replace a data set in the output folder.
    progress : callable, optional
        Called with the number of finished sources, and of all.
    options : mapping, optional
        The arguments of the caller, as JSON values, for the metadata.

    Raises
    ------
    OptionError, InputError, OutputError
        If an argument, a source or the output cannot be used; before anything is
        written.
    ExampleError
        If a method of the class raises, or a value cannot be stored.
    """
    check_class(example_class, splits, log_in_csv_file)
    if isinstance(max_bytes, bool) or not 0 < max_bytes < math.inf:
        raise OptionError(
            "examples_tfrecord_file_max_size_in_bytes", "must be above 0", max_bytes
        )

    def run(
        sources: Iterable[Source],
    ) -> Iterator[tuple[SourceExample, Iterator[bytes]]]:
        for example in examples_of(
            sources, example_class, kwargs, log_in_csv_file=log_in_csv_file
        ):
            yield example, records_of(example, example_class)

    counts, ignored = write_splits(
        save_directory_path,
        splits,
        run,
        specs=example_class.feature_specs(),
        max_bytes=int(max_bytes),
        examples_csv=EXAMPLES_CSV if log_in_csv_file else None,
        overwrite=overwrite,
        progress=progress,
        options=options or {},
    )
    for name, reasons in ignored.items():
        _LOGGER.warning(
            "%s: %d of %d examples were left out by IgnoreExampleException; the first: "
            "%s",
            name, reasons[0], len(splits[name]), reasons[1],
        )  # fmt: skip
    return counts


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
