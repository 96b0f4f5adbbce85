"""The listing: every clip of every input, in order, and what is said of it."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.inputs.columns import FLOAT32, STRING, Layout
from beam_pipeline.inputs.duplicates import DuplicateCheck
from beam_pipeline.inputs.event_files import EventTable
from beam_pipeline.inputs.file_identity import FileIdentities
from beam_pipeline.inputs.labels import named_groups
from beam_pipeline.inputs.rows import RowReader, SourceRow
from beam_pipeline.inputs.sources import FOLDER, GLOB, LIST, TABLE, Input
from beam_pipeline.inputs.tables import column_types, open_table, read_rows
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.beam_filesystem import glob_regex

# What libsndfile may decode, and what people keep beside it and would miss in silence:
# those become rejects with a reason.
_AUDIO_NAMES = """
    wav wave bwf rf64 w64 flac ogg oga opus mp3 mp2 mpga aif aiff aifc au snd caf sph
    nist voc paf svx ircam wve sds m4a m4b mp4 aac ac3 alac amr ape awb dsf dff dts mka
    mpc ra shn spx tak tta webm weba wma wv 3gp
"""
AUDIO_SUFFIXES = frozenset(f".{name}" for name in _AUDIO_NAMES.split())


class ListingSummary(NamedTuple):
    """How many files the inputs have: clips, and others, which are ignored.

    ``alike`` are names in the table of events that several files are called by, each
    with one of these that is not the first.
    """

    clips: int
    ignored: int
    alike: Mapping[str, str] = {}


def list_sources(
    inputs: Sequence[Input], recipe: Recipe, before: DuplicateCheck | None = None
) -> Iterator[SourceRow | None]:
    """Every clip of every input, in order; None for each file that is ignored.

    From folders: the files with an audio suffix, in any case; other and hidden files
    are ignored. From globs, single files, lists and manifests: everything.

    A folder's file that is also reached by a link is listed twice, as people mean it
    who link a file into several classes; both are in the same split.

    Of files that the table of events calls alike, only those after the first can have
    that as their problem; ``before`` tells of it at the end.
    """
    events = EventTable.of(recipe.events)
    before = before or DuplicateCheck(inputs, bool(recipe.splits.group_by), events)
    row = 0
    for source, entry in enumerate(inputs):
        reader = row_reader(source, entry, recipe, before.places)
        for found in _rows(entry, reader, row):
            if found is not None:
                found = before.check(found)
                row += 1
            yield found
    for name in events.by_name if events is not None else ():
        if name not in before.named:
            problem = (
                f"has events in {recipe.events.source}, but is not among the inputs"
            )
            yield SourceRow(row, 0, name, None, problem)
            row += 1


def row_reader(
    source: int, entry: Input, recipe: Recipe, places: FileIdentities
) -> RowReader:
    """What turns an input's names or rows into clips.

    Raises
    ------
    RecipeError
        If the recipe names a column that the input has not.
    """
    layout = layout_of(entry, recipe)
    return RowReader(
        source, entry.root, layout, dict(entry.columns), recipe, places, entry.split
    )


def layout_of(entry: Input, recipe: Recipe) -> Layout:
    """Which of an input's columns is what."""
    if entry.table is not None:
        return Layout.of(entry.table.names, recipe, entry.location, is_table=True)
    groups = named_groups(recipe.labels.label_from)
    return Layout.of(groups, recipe, entry.location, is_table=False)


def _rows(entry: Input, reader: RowReader, first: int) -> Iterator[SourceRow | None]:
    if entry.table is not None:
        for row, (number, values) in enumerate(read_rows(entry.table), first):
            yield reader.of_values(row, number, values)
        return
    row = first
    for filepath, taken in list_input(entry):
        yield reader.of_name(row, filepath) if taken else None
        row += taken


def survey(inputs: Sequence[Input], recipe: Recipe) -> list[Input]:
    """The inputs, with the columns that their clips bring, and the types of these.

    Manifests are read through once, a batch of rows at a time.

    Raises
    ------
    InputError
        If a manifest cannot be read, or two inputs bring different columns.
    RecipeError
        If the recipe names a column that is not there.
    """
    way = recipe.splits.decided_by()
    named = any(entry.split for entry in inputs)
    if way is not None and named:
        raise RecipeError(
            way,
            "decides splits, and so does `input` as SPLIT=INPUT; give one of the two",
            recipe.to_json()[way],
        )
    if recipe.splits.group_by and way is None and not named:
        raise RecipeError(
            "group_by",
            "needs `splits`, `folds`, `split_column` or an input for each split",
            recipe.splits.group_by,
        )
    surveyed = []
    for entry in inputs:
        if entry.kind == TABLE:
            table = open_table(
                entry.location,
                recipe.columns.delimiter,
                recipe.columns.names,
            )
            entry = replace(entry, table=table)
        layout = layout_of(entry, recipe)
        types = dict.fromkeys(layout.extra, STRING)
        if entry.table is not None and layout.extra:
            types = column_types(entry.table, layout.extra)
        columns = [*types.items(), *((name, FLOAT32) for name in layout.targets)]
        surveyed.append(replace(entry, columns=tuple(columns)))
    for entry in surveyed[1:]:
        if entry.columns != surveyed[0].columns:
            first, other = (
                ", ".join(f"{name} ({dtype})" for name, dtype in each.columns) or "none"
                for each in (surveyed[0], entry)
            )
            raise InputError(
                f"{surveyed[0].location} brings the columns {first}, but "
                f"{entry.location} brings {other}; examples need the same. Choose some "
                "with --columns, or none."
            )
    return surveyed


def list_input(entry: Input) -> Iterator[tuple[str, bool]]:
    if entry.kind == FOLDER:
        for name in files.list_files(entry.location):
            yield name, is_audio_name(name)
    elif entry.kind == GLOB:
        for name in _match(entry):
            yield name, True
    elif entry.kind == LIST:
        text = files.read_bytes(entry.location).decode("utf-8-sig", "surrogateescape")
        for line in text.split("\n"):
            if line.strip() and not line.lstrip().startswith("#"):
                path = line.strip(" \t\r")
                yield os.path.normpath(path) if files.is_local(path) else path, True
    else:
        yield entry.location.rpartition("/")[2], True


def _match(entry: Input) -> Iterator[str]:
    """The files that a glob matches, relative to its root, in order."""
    below = len(entry.root.rstrip("/")) + 1
    # Not left to Beam: it would take the root for a part of the pattern.
    matches = glob_regex(entry.location[below:]).fullmatch
    return (name for name in files.list_files(entry.root) if matches(name))


def is_audio_name(name: str) -> bool:
    """Whether a file below a folder is meant: an audio suffix, and nothing hidden."""
    if name.startswith(".") or "/." in name:
        return False
    return os.path.splitext(name)[1].lower() in AUDIO_SUFFIXES
