"""Columns of tables: their use under a recipe."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from beam_pipeline.errors import RecipeError
from beam_pipeline.inputs.column_types import FLOAT32, Column, ColumnType
from beam_pipeline.inputs.labels import reads_names
from beam_pipeline.inputs.own_manifest import (
    FILE_SHA256,
    FINGERPRINT_FIELDS,
    MANIFEST_FIELDS,
)
from beam_pipeline.inputs.part_columns import PartColumns
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.sections import LABEL_SOURCES, RESERVED_NAMES, VALID_FRAMES

# Names of the path's column if the recipe gives none, the first that exists.
PATH_NAMES = ("path", "filepath", "file", "filename", "file_name", "audio", "wav",
              "audio_filepath", "audio_path", "wav_path")  # fmt: skip
# Columns with what a probe would find.
KNOWN_COLUMNS = ("frames", "sample_rate_hz", "channels")


@dataclass(frozen=True)
class Layout:
    """The use of each column of a table under a recipe.

    ``names`` are the table's columns. An input without a table has columns, too: the
    named groups of the expression in ``label_from``.
    """

    names: tuple[str, ...]
    path: str | None
    label: str | None
    split: str | None
    group_by: tuple[str, ...]
    targets: tuple[str, ...]
    extra: tuple[str, ...]
    part: PartColumns

    @classmethod
    def of(
        cls, names: Sequence[str], recipe: Recipe, where: str, is_table: bool
    ) -> Layout:
        """Returns the layout of a table, or of the names of files.

        Raises
        ------
        RecipeError
            If the recipe names a column that does not exist or cannot have this use.
        """
        names = tuple(names)

        def check(option: str, wanted: Sequence[str]) -> tuple[str, ...]:
            for name in wanted:
                if name not in names:
                    has = f"the columns {', '.join(names)}" if names else "no columns"
                    raise RecipeError(
                        option, f"must name a column; {where} has {has}", name
                    )
            return tuple(wanted)

        path = None
        if is_table and recipe.path_column is not None:
            (path,) = check("path_column", [recipe.path_column])
        elif is_table:
            path = _usual_path(names, where)
        part = PartColumns.of(names, path, where) if is_table else PartColumns()
        label = _label_column(names, recipe, where)
        split = None
        if recipe.split_column is not None:
            (split,) = check("split_column", [recipe.split_column])
        group_by = check("group_by", recipe.group_by or ())
        targets = check("target_columns", recipe.target_columns or ())
        if recipe.columns is None:
            taken = {path, label, split, *targets, *part.names()}
            if part.in_frames:
                taken.update(MANIFEST_FIELDS, FINGERPRINT_FIELDS, [FILE_SHA256])
            elif is_table and set(KNOWN_COLUMNS[:2]) <= set(names):
                taken.update(KNOWN_COLUMNS)
            extra = tuple(name for name in names if name not in taken)
        else:
            extra = check("columns", recipe.columns)
        _check_extra(extra, recipe)
        return cls(names, path, label, split, group_by, targets, extra, part)

    def columns(self, types: Mapping[str, ColumnType]) -> tuple[Column, ...]:
        """The columns of the rows' values: the extra ones, then the targets.

        ``types`` are those of the extra ones.
        """
        extra = ((name, types[name]) for name in dict.fromkeys(self.extra))
        return *extra, *((name, ColumnType(FLOAT32)) for name in self.targets)


def _usual_path(names: Sequence[str], where: str) -> str:
    """Returns the first of ``PATH_NAMES`` that is a column."""
    for name in PATH_NAMES:
        if name in names:
            return name
    raise RecipeError(
        "path_column",
        f"must name the column that holds the paths; {where} has the columns "
        f"{', '.join(names)}, but none of the usual ones ({', '.join(PATH_NAMES)})",
        None,
    )


def _label_column(names: Sequence[str], recipe: Recipe, where: str) -> str | None:
    """Returns the column with the class; None if there is none."""
    if recipe.label_from in names:
        return recipe.label_from
    if not reads_names(recipe.label_from):
        has = f"the columns {', '.join(names)}" if names else "no columns"
        raise RecipeError(
            "label_from",
            f"must be {', '.join(LABEL_SOURCES)}, a column, or a regular expression "
            f"with a group like (?P<class>[a-z]+); {where} has {has}",
            recipe.label_from,
        )
    has_classes = recipe.label_from != "none" or recipe.events is not None
    if recipe.classes is not None and not has_classes:
        raise RecipeError(
            "classes",
            "need labels, but `label_from` is none; leave `classes` out, or give "
            "another `label_from`",
            recipe.to_json()["classes"],
        )
    return None


def _check_extra(extra: Sequence[str], recipe: Recipe) -> None:
    """Refuses columns with the name of something else in the examples."""
    features = {*(recipe.features or ["signal"])}
    if recipe.mark_padding:
        features.add(VALID_FRAMES)
    for name in extra:
        if name in RESERVED_NAMES or name in features:
            is_class = name == "class" and recipe.events is None
            use = "read classes from it with `label_from` class, " * is_class
            raise RecipeError(
                "columns",
                "examples already use this name for something else; "
                f"{use}rename the column, or give `columns` without it",
                name,
            )
