"""Whether a finished data set is what a job would record, so that nothing is to do.

A data set holds neither the location of its inputs nor the times of their changes.
These must be equal:

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
from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np

from beam_pipeline.dataset.job_start import option_differences
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import METADATA, stale_shards
from beam_pipeline.dataset.side_by_side import as_recorded
from beam_pipeline.dataset.writer_versions import sources_of_code, version_differences
from beam_pipeline.errors import InputError
from beam_pipeline.inputs.event_files import events_file
from beam_pipeline.inputs.listing import Listing
from beam_pipeline.inputs.rows import SourceRow
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.read.decode_again import sample_problems
from beam_pipeline.read.recorded_windows import read_recorded
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.values import allowed_rejects
from beam_pipeline.storage import files

# How a data set differs; the text continues "... holds a data set, and".
OTHER_RECIPE = "it has another recipe"
OTHER_INPUTS = "it has other inputs, or its inputs have changed"
NEWER_FILE = "{} was written after it was recorded"
DAMAGED_FILE = "its file {} is missing or damaged"
OTHER_EXAMPLES = "these inputs do not give its examples"

EXAMPLES_AGAIN = 8


def difference_to_recorded(
    output: str,
    inputs: Sequence[Input],
    recipe: Recipe,
    max_rejected: str,
    listing: Listing,
) -> str | None:
    """Returns how the data set in a folder differs from the one a job would record.

    None if they do not differ; ``listing`` is that of the job. Nothing is written. The
    text continues the sentence "the folder holds a data set, and ...".
    """
    try:
        metadata = Metadata.load(output)
        if metadata.recipe is None:
            return "it was not recorded from audio files"
        recipe = as_recorded(recipe, metadata)
        differences = chain(
            _recipe_differences(recipe, metadata, max_rejected),
            _file_differences(output, metadata),
            _input_differences(output, inputs, recipe, metadata, listing),
        )
        return next(differences, None)
    except InputError as error:
        return str(error).rstrip(".")


def _recipe_differences(
    recipe: Recipe, metadata: Metadata, max_rejected: str
) -> Iterator[str]:
    assert metadata.recipe is not None
    others = option_differences(metadata.recipe.to_json(), recipe.to_json())
    if others:
        yield f"{OTHER_RECIPE}: {'; '.join(others)}"
    for name, before, now in version_differences(metadata.writer, recipe):
        yield f"it was recorded with {name} {before}, but {now} is in use here"
    if metadata.rejected > allowed_rejects(max_rejected, metadata.clips):
        yield (
            f"{metadata.rejected} of its {metadata.clips} clips were rejected, and "
            f"`max_rejected` is {max_rejected}"
        )


def _file_differences(output: str, metadata: Metadata) -> Iterator[str]:
    sizes = {name: entry.bytes for name, entry in metadata.files.items()}
    sizes.update((entry.file, entry.bytes) for entry in metadata.shards())
    for name, size in sizes.items():
        if files.size(files.join(output, name)) != size:
            yield DAMAGED_FILE.format(name)
    for name in stale_shards(output, sizes):
        yield f"{name} in its folder is not one of its shards"


def _input_differences(
    output: str,
    inputs: Sequence[Input],
    recipe: Recipe,
    metadata: Metadata,
    listing: Listing,
) -> Iterator[str]:
    recorded_ns = files.modified_ns(files.join(output, METADATA))
    moved: set[int] = set()
    newer: list[str] = []
    for row in chain.from_iterable(listing.blocks()):
        for path in _files_of(row, inputs, recipe) if row.recorded is None else ():
            if _was_written(path, recorded_ns):
                newer = newer or [path]
            elif _was_moved(path, recorded_ns):
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
    code = sources_of_code(recipe).values()
    newer += [path for path in code if _was_written(path, recorded_ns)]
    for path in newer:
        yield NEWER_FILE.format(path)
    # Makes a few examples again; of the clips that were moved, if there are any.
    recorded = read_recorded(output, metadata)
    among = np.isin(recorded.manifest["index"], list(moved))[recorded.clip]
    some = among if among.any() else None
    for problem in sample_problems(
        output, metadata, recorded, inputs, EXAMPLES_AGAIN, among=some
    ):
        yield f"{OTHER_EXAMPLES} ({problem})"


def _files_of(row: SourceRow, inputs: Sequence[Input], recipe: Recipe) -> Iterator[str]:
    """Yields the files that a clip was made from."""
    if row.source < len(inputs):
        yield locate(inputs, row.source, row.filepath)
        if recipe.events.source is not None:
            root = inputs[row.source].root
            yield events_file(row.filepath, root, recipe.events)


def _was_written(path: str, recorded_ns: int) -> bool:
    """Whether a file was written after the data set, and not in the future."""
    try:
        return recorded_ns < files.modified_ns(path) <= time.time_ns()
    except FileNotFoundError:
        return False


def _was_moved(path: str, recorded_ns: int) -> bool:
    """Whether a file is gone, or came to its path after the data set was recorded."""
    try:
        return files.changed_ns(path) > recorded_ns
    except FileNotFoundError:
        return True
