"""Whether a finished data set is what a run would record, so that nothing is to do.

A data set holds neither the location of its inputs nor the times of their
changes. These must be equal:

- the recipe and the versions of the libraries;
- the listing of the inputs: names, classes, parts, groups, columns, and the splits that
  the inputs name;
- the names and the sizes of the files in the folder;
- some examples, which are made again from the inputs: first those of files that were
  moved, copied or given other permissions since the data set was recorded.

There must be no more rejects than the job allows. And no input, file of events or
module of a user-defined transform may have been written since. A time in the future
says nothing.

So a difference stays unnoticed if other audio has a name, a time and a class of before,
and is not among these examples. ``verify --deep --input`` compares more of them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from itertools import chain

from beam_pipeline.dataset.job import (
    Job,
    differences,
    sources_of_code,
    version_differences,
)
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import METADATA, stale_shards
from beam_pipeline.dataset.side_by_side import as_recorded
from beam_pipeline.errors import InputError
from beam_pipeline.inputs.event_files import events_file
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import locate
from beam_pipeline.recipe.options import allowed_rejects
from beam_pipeline.storage import files

# How a data set differs; the text continues "... holds a data set, and".
OTHER_RECIPE = "it has another recipe"
OTHER_INPUTS = "it has other inputs, or its inputs have changed"
NEWER_FILE = "{} was written after it was recorded"
DAMAGED_FILE = "its file {} is missing or damaged"
OTHER_EXAMPLES = "these inputs do not give its examples"

# Makes a few examples again, of some clips; yields a line for each that differs.
MakeAgain = Callable[[Metadata, set[int]], Iterator[str]]


def difference_to_recorded(job: Job, make_again: MakeAgain) -> str | None:
    """Returns how the data set in a job's output differs from what it would record.

    None if they do not differ. Nothing is written. The text continues the sentence "the
    folder holds a data set, and ...".
    """
    try:
        metadata = Metadata.load(job.output_folder)
        if metadata.recipe is None:
            return "it was not recorded from audio files"
        found = chain(
            _differences_beside_inputs(job, metadata),
            _differences_of_inputs(job, metadata, make_again),
        )
        return next(found, None)
    except InputError as error:
        return str(error).rstrip(".")


def _differences_beside_inputs(job: Job, metadata: Metadata) -> Iterator[str]:
    """Yields how the recipe, libraries, rejects and files differ."""
    assert metadata.recipe is not None
    recipe = as_recorded(job.recipe, metadata)
    others = differences(
        {"recipe": metadata.recipe.to_json()}, {"recipe": recipe.to_json()}
    )
    if others:
        yield f"{OTHER_RECIPE}: {'; '.join(others)}"
    for name, before, now in version_differences(metadata.writer, recipe):
        yield f"it was recorded with {name} {before}, but {now} is in use here"
    if metadata.rejected > allowed_rejects(job.max_rejected, metadata.clips):
        yield (
            f"{metadata.rejected} of its {metadata.clips} clips were rejected, and "
            f"`max_rejected` is {job.max_rejected}"
        )
    sizes = {name: entry.bytes for name, entry in metadata.files.items()}
    sizes.update((entry.file, entry.bytes) for entry in metadata.shards())
    for name, size in sizes.items():
        if files.size(files.join(job.output_folder, name)) != size:
            yield DAMAGED_FILE.format(name)
    for name in stale_shards(job.output_folder, sizes):
        yield f"{name} in its folder is not one of its shards"


def _differences_of_inputs(
    job: Job, metadata: Metadata, make_again: MakeAgain
) -> Iterator[str]:
    """Yields how the listing, the times of files and some examples differ."""
    recorded_ns = files.modified_ns(files.join(job.output_folder, METADATA))
    listing = job.listing()
    newer = [
        path
        for path in sources_of_code(job.recipe).values()
        if _change_since(path, recorded_ns) == _WRITTEN
    ]
    moved: set[int] = set()
    for row in chain.from_iterable(listing.blocks()):
        for path in _files_of(row, job):
            change = _change_since(path, recorded_ns)
            if change == _WRITTEN:
                newer.append(path)
            elif change == _MOVED:
                moved.add(row.row)
    summary = listing.summary()
    for what, old, new in (
        ("clips", metadata.clips, summary.clips),
        ("files that are no audio", metadata.ignored, summary.ignored),
    ):
        if old != new:
            yield f"{OTHER_INPUTS} ({old} {what} were listed; here are {new})"
    if metadata.listing_sha256 != summary.sha256:
        yield f"{OTHER_INPUTS} (their names, classes or columns differ)"
    for path in newer:
        yield NEWER_FILE.format(path)
    for problem in make_again(metadata, moved):
        yield f"{OTHER_EXAMPLES} ({problem})"


def _files_of(row: SourceRow, job: Job) -> Iterator[str]:
    """Yields the files that a clip is made from, if it is to be recorded."""
    if row.recorded is None and row.source < len(job.inputs):
        yield locate(job.inputs, row.source, row.filepath)
        if job.recipe.events is not None:
            yield events_file(row.filepath, job.inputs[row.source].root, job.recipe)


_WRITTEN, _MOVED = "written", "moved"


def _change_since(path: str, recorded_ns: int) -> str:
    """Returns what happened to a file after the data set was recorded.

    "written", unless its time is in the future; "moved" if it is gone or newly there.
    """
    try:
        if recorded_ns < files.modified_ns(path) <= time.time_ns():
            return _WRITTEN
        return _MOVED if files.changed_ns(path) > recorded_ns else ""
    except FileNotFoundError:
        return _MOVED
