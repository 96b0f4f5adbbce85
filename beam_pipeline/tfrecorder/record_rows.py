"""Records the rows of each split: on this machine, or on a runner of Beam."""

from __future__ import annotations

import logging
import math
import pickle
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

from beam_pipeline.dataset.element_set import ElementSet, element_output
from beam_pipeline.dataset.metadata import Elements, Metadata
from beam_pipeline.dataset.output_folder import LOG
from beam_pipeline.dataset.work_folder import Totals
from beam_pipeline.elements.writing import progress_bar
from beam_pipeline.errors import OptionError
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.run.elements import run_elements
from beam_pipeline.run.preflight import check_engine
from beam_pipeline.run.watching import Watch
from beam_pipeline.run.worker_processes import can_fork
from beam_pipeline.storage import files
from beam_pipeline.tfrecorder.encoder import RowEncoder
from beam_pipeline.tfrecorder.example import Example
from beam_pipeline.tfrecorder.recording import Source, check_class
from beam_pipeline.transforms.own_code import by_value
from beam_pipeline.write.element_blocks import ElementOutput, store_blocks
from beam_pipeline.write.member_files import ShardSizes

_LOGGER = logging.getLogger("beam_pipeline.tfrecorder")

_ADDRESS = re.compile(" at 0x[0-9a-f]+")

Progress = Callable[[int, int], Any] | bool | None

# The rows that one worker turns into parts at a time. The bytes of shards depend on it.
ROWS_PER_BLOCK = 64


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
    progress: Progress = None,
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
    progress : callable or bool, optional
        Called with the number of finished sources, and of all. True: shows a progress
        bar. Default: only in a terminal or a notebook.
    options : mapping, optional
        The arguments of the caller, as JSON values, for the metadata.

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
    check_class(example_class, splits, log_in_csv_file)
    for name in splits:
        if not name.isidentifier():
            raise OptionError("split", "must be letters, digits and _", name)
    if isinstance(max_bytes, bool) or not 0 < max_bytes < math.inf:
        raise OptionError(
            "examples_tfrecord_file_max_size_in_bytes", "must be above 0", max_bytes
        )
    _check_run(RunOptions(overwrite=overwrite, workers=workers, beam_args=beam_args))
    if not (progress is None or isinstance(progress, bool) or callable(progress)):
        raise OptionError("progress", "must be True, False or callable", progress)
    sizes = ShardSizes(shard_bytes=max(int(max_bytes), 1))
    with element_output(save_directory_path, "tfrecorder", overwrite) as target:
        classes = {example_class, *_classes_of(splits)}
        by_name = all(_can_pickle(cls, beam_args) for cls in classes)
        dump = pickle.dumps if by_name else by_value
        encoder = RowEncoder(example_class, dict(kwargs), log_in_csv_file)
        blocks = store_blocks(_blocks(splits), target, dump)
        job = ElementSet(
            target,
            tuple(encoder.specs),
            sizes,
            tuple(splits),
            Elements("tfrecorder", dict(options or {})),
            len(blocks),
            sources=sum(map(len, splits.values())),
        )
        with ExitStack() as stack:
            watch = None if progress is False else partial(_watch, progress, stack)
            run_elements(job, encoder, blocks, workers, beam_args, watch)
        metadata = Metadata.load(target.output)
        _log(target, metadata, example_class, splits, kwargs)
    return {name: metadata.splits[name].examples for name in splits}


def _check_run(run: RunOptions) -> None:
    if run.is_template():
        raise OptionError(
            "--template_location", "makes a template and does not run the job"
        )
    if run.has_runner():
        check_engine(run.beam_args)


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


def _watch(progress: Progress, stack: ExitStack, totals: Totals) -> Watch:
    """Starts to show the progress; ``stack`` ends it."""
    if callable(progress):
        return lambda done, _: progress(done, totals.examples)
    bar = stack.enter_context(progress_bar(totals.examples, progress, " examples"))
    return lambda done, _: bar.update(done - bar.n)


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
