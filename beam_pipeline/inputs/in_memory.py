"""Inputs given in Python: tables in memory, and a mapping from files to classes."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

from beam_pipeline.errors import InputError
from beam_pipeline.inputs.listing import list_input, survey
from beam_pipeline.inputs.sources import TABLE, Input, normal_path, resolve_inputs
from beam_pipeline.inputs.tables import is_rows, write_rows
from beam_pipeline.recipe.recipe import Audio, Recipe
from beam_pipeline.storage.files import PathLike, temporary_folder

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
        else:
            is_one = is_rows(input) or isinstance(input, str | os.PathLike)
            several = [input] if is_one or not isinstance(input, Iterable) else input
            texts = [locate(entry) for entry in several]
        inputs = resolve_inputs(texts)
        if classes is not None:
            left = dict(classes)
            tables = [_labelled(entry, left, recipe) for entry in inputs]
            for name in left:
                raise InputError(
                    f"`label_from` has a class for {name}, but the input has no such "
                    "file, or it has another name there with a class. Give paths "
                    f"relative to {inputs[0].root}, or absolute paths."
                )
            inputs = [
                replace(entry, kind=TABLE, location=write_rows(rows, folder))
                for entry, rows in zip(inputs, tables, strict=True)
            ]
        for k, entry in enumerate(inputs):
            if entry.location.startswith(folder):
                # Paths in the rows of a table are relative to the program's folder.
                root = os.getcwd() if entry.root == folder else entry.root
                inputs[k] = replace(entry, root=root, in_memory=True)
        yield survey(inputs, recipe)


def _labelled(
    entry: Input, classes: dict[str, str], audio: Audio
) -> list[dict[str, str]]:
    """Returns a row with path and class for each file of an input.

    Parameters
    ----------
    classes : dict
        From files to classes. Paths are relative to the input's root or absolute, in
        any spelling. Those of the input's files are taken out.

    Raises
    ------
    InputError
        If the input is a table or has no file.
    """
    if entry.kind == TABLE:
        raise InputError(
            f"`label_from` is a mapping, but {entry.location} is a table, whose "
            "classes are in a column. Give `label_from` the name of that column."
        )
    names = {normal_path(entry.root, os.fspath(name)): name for name in classes}
    rows = []
    for path, is_clip in list_input(entry, audio):
        if is_clip:
            name = names.get(normal_path(entry.root, path))
            label = "" if name is None else classes.pop(name)
            rows.append({"path": path, "class": label})
    if not rows:
        raise InputError(f"{entry.location} holds no audio file.")
    return rows
