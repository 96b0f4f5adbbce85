"""Inputs given in Python: tables in memory, and a mapping from files to classes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from beam_pipeline.errors import InputError
from beam_pipeline.inputs.file_identity import normal_path
from beam_pipeline.inputs.listing import list_input, survey
from beam_pipeline.inputs.sources import TABLE, Input, resolve_inputs
from beam_pipeline.inputs.tables import is_rows, write_rows
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.sections import Audio
from beam_pipeline.storage.files import PathLike
from beam_pipeline.storage.private_folder import temporary_folder

# A path, a table in memory, several of them, or one for each split.
Source = PathLike | Sequence[Any] | Mapping[str, Any] | Any


class Labelled(NamedTuple):
    """An input with a mapping from its files to their classes."""

    source: Source
    classes: Mapping[str, str]


def with_labels(
    input: Source, options: Mapping[str, Any]
) -> tuple[Source | Labelled, dict[str, Any]]:
    """Moves a mapping in ``label_from`` to the input, where it becomes a column."""
    classes = options.get("label_from")
    if not isinstance(classes, Mapping):
        return input, dict(options)
    return Labelled(input, classes), {**options, "label_from": "class"}


@contextmanager
def resolved(input: Source | Labelled, recipe: Recipe) -> Iterator[list[Input]]:
    """Yields the inputs of ``record``; files hold tables in memory during the block."""
    classes = None
    if isinstance(input, Labelled):
        input, classes = input
    with temporary_folder() as folder:

        def locate(entry: Any) -> str:
            if is_rows(entry):
                return write_rows(entry, folder)
            if isinstance(entry, str | os.PathLike):
                return os.fspath(entry)
            raise InputError(
                f"The input {entry!r:.80} is neither a path nor a table. Give a table "
                "as a list of dicts or a data frame."
            )

        if isinstance(input, Mapping):
            texts = [f"{split}={locate(entry)}" for split, entry in input.items()]
        elif is_rows(input) or isinstance(input, str | os.PathLike):
            texts = [locate(input)]
        elif isinstance(input, Iterable):
            texts = [locate(entry) for entry in input]
        else:
            texts = [locate(input)]  # which refuses it
        inputs = []
        for entry in resolve_inputs(texts):
            if entry.root == folder:
                # Paths in its rows are relative to the program's folder.
                entry = replace(entry, root=os.getcwd(), in_memory=True)
            inputs.append(entry)
        if classes is not None:
            inputs = [
                Input(TABLE, write_rows(rows, folder), entry.root, entry.split,
                      in_memory=True)
                for entry, rows in zip(
                    inputs, labelled_rows(inputs, classes, recipe), strict=True
                )
            ]  # fmt: skip
        yield survey(inputs, recipe)


def labelled_rows(
    inputs: Sequence[Input], classes: Mapping[str, str], audio: Audio
) -> list[list[dict[str, str]]]:
    """Returns a row with path and class for each file of each input.

    Parameters
    ----------
    classes : mapping
        From files to classes. Paths are relative to the input's root or absolute, in
        any spelling.

    Raises
    ------
    InputError
        If an input is a table or has no file, or a path is not one of the files.
    """
    missing = dict(classes)
    tables = []
    for entry in inputs:
        if entry.kind == TABLE:
            raise InputError(
                f"`label_from` is a mapping, but {entry.location} is a table, whose "
                "classes are in a column. Give `label_from` the name of that column."
            )
        by_path: dict[str, str] = {}
        for name in classes:
            path = normal_path(entry.root, os.fspath(name))
            if by_path.setdefault(path, name) != name:
                raise InputError(
                    f"`label_from` has both {by_path[path]} and {name}, but these are "
                    "the same file. Remove one of them."
                )
        rows = []
        for name, taken in list_input(entry, audio):
            if not taken:
                continue
            given = by_path.get(normal_path(entry.root, name))
            rows.append({"path": name, "class": ""})
            if given is not None:
                rows[-1]["class"] = missing.pop(given, classes[given])
        if not rows:
            raise InputError(f"{entry.location} holds no audio file.")
        tables.append(rows)
    for name in missing:
        raise InputError(
            f"`label_from` has a class for {name}, but there is no such file in the "
            f"input. Give paths relative to {inputs[0].root}, or absolute paths."
        )
    return tables
