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
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from itertools import chain
from typing import Any, TypeVar

from beam_pipeline.dataset.element_set import (
    ElementSet,
    Encoded,
    store_blocks,
)
from beam_pipeline.dataset.folders import LOG
from beam_pipeline.dataset.job import ElementOutput, element_output
from beam_pipeline.dataset.metadata import Elements, Metadata
from beam_pipeline.errors import (
    ExampleError,
    InputError,
    OptionError,
    UnstorableAttribute,
    did_you_mean,
)
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.parameters import Declared, Flag, Number, WholeNumber, parameter
from beam_pipeline.planning.shards import DEFAULT_SHARD_BYTES
from beam_pipeline.run.elements import check_run, run_elements
from beam_pipeline.run.workers import can_fork
from beam_pipeline.storage import files
from beam_pipeline.tfrecorder.example import (
    ClassEncoder,
    Example,
    IgnoreExampleException,
    csv_line,
    encoder_of,
)
from beam_pipeline.transforms.own_code import by_value
from beam_pipeline.write.member_files import ShardSizes

_LOGGER = logging.getLogger("beam_pipeline.tfrecorder")

_ADDRESS = re.compile(" at 0x[0-9a-f]+")

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
    check_class(example_class, splits)
    for name in splits:
        if not name.isidentifier():
            raise OptionError("split", "must be letters, digits and _", name)
    sizes = ShardSizes(shard_bytes=max(int(max_bytes), 1))
    folder = files.given_path("save_directory_path", save_directory_path)
    classes = {example_class, *map(type, chain(*splits.values()))}
    is_script = any(cls.__module__ == "__main__" for cls in classes)
    # Other interpreters do not have the caller's script.
    by_name = not is_script or (can_fork() and not settings.beam_args)
    with element_output(folder, "tfrecorder", settings.overwrite) as target:
        encoder = RowEncoder(example_class, kwargs, settings.examples_log_in_csv_file)
        blocks = store_blocks(_blocks(splits), target, partial(_dump, by_name))
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


def _dump(by_name: bool, block: Any) -> bytes:
    """Pickles a block; with its classes, if workers do not find them by name."""
    if by_name:
        with suppress(pickle.PicklingError, AttributeError):
            return pickle.dumps(block)
    return by_value(block)


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
    """Makes the examples of a block of rows; see :class:`.SourceEncoder`."""

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
        encoder = encoder_of(self.example_class)
        for source in rows:
            # Its data are gone before the next one is loaded.
            yield from self._encode(split, source, encoder)

    def _encode(
        self, split: str, source: Source, encoder: ClassEncoder
    ) -> Iterator[Encoded]:
        try:
            line, chunks = self.load(source)
        except IgnoreExampleException as reason:
            skipped = (str(reason) or "no reason given",)
            yield Encoded(split, (), {}, sources=1, skipped=skipped)
            return
        made = _called(source, "an attribute", encoder.encode, chunks)
        yield Encoded(split, *made, () if line is None else (line,), 1)

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
        kwargs, cls = self.kwargs, self.example_class
        if isinstance(source, Example):
            example = copy.copy(source)
        else:
            row = list(source)
            example = _called(source, "from_csv_row()", cls.from_csv_row, row, **kwargs)
        _check_examples(source, "from_csv_row", [example])
        _called(source, "load()", example.load, **kwargs)
        line = None
        if self.log_in_csv_file:
            line = _called(
                source, "to_csv_row()", lambda: csv_line(example.to_csv_row())
            )

        def split() -> list[Example]:
            found = example.split(**kwargs)
            return [example] if found is None else list(found)

        chunks = _called(source, "split()", split)
        _check_examples(source, "split", chunks)
        return line, chunks


def _called(
    source: Source, what: str, method: Callable[..., T], /, *args: Any, **kwargs: Any
) -> T:
    """Calls a method of the user's class; its error becomes one that names the source.

    An IgnoreExampleException stays.
    """
    try:
        return method(*args, **kwargs)
    except IgnoreExampleException:
        raise
    except UnstorableAttribute as error:
        raise UnstorableAttribute(source_name(source), str(error)) from error
    except Exception as error:
        problem = f"{what} raised {type(error).__name__}: {error}"
        raise ExampleError(source_name(source), problem) from error


def _check_examples(source: Source, method: str, returned: Sequence[Any]) -> None:
    for value in returned:
        if not isinstance(value, Example):
            problem = f"{method}() must return Examples, and returned {value!r}"
            raise ExampleError(source_name(source), problem)


def source_name(source: Source) -> str:
    """Returns a name for a source, for messages."""
    if not isinstance(source, Example):
        return f"row {list(source)!r}"
    name = type(source).__name__
    try:
        return f"{name} {list(source.to_csv_row())!r}"
    except Exception:  # any, because it only names the example in another error
        return name


def check_class(example_class: Any, splits: Mapping[str, Sequence[Source]]) -> None:
    """Checks that a class declares what is stored, and that there is something.

    Raises
    ------
    OptionError
        If it declares nothing.
    InputError
        If there are no sources.
    """
    example_class.feature_specs()
    if not any(splits.values()):
        raise InputError("There are no examples to record.")


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
