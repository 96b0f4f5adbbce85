"""Sections of a recipe about clips: labels, events, columns and splits.

A section is a frozen value that checks itself, and a function takes the one that it
needs. What depends on two sections is checked by
:class:`beam_pipeline.recipe.recipe.Recipe`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.fields import (
    EXTRA_NAMES,
    NAMES,
    SECONDS,
    SHARES,
    option,
    options_of,
)
from beam_pipeline.recipe.values import (
    check_flag,
    check_one_of,
    check_text,
    check_whole,
    is_real,
)

LABEL_SOURCES = ("folder", "name", "none")
EVENT_TARGETS = ("class", "multi_hot")
EVENT_MASK = "mask:"


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Where a clip's class comes from."""

    label_from: str = option(
        "folder",
        "where a clip's class comes from: folder (the name of its parent folder), name "
        "(the text after the last underscore of its name), none, a manifest's column, "
        "or a regular expression over the path with a group named class; other named "
        "groups become columns",
        "SOURCE",
    )
    separator: str | None = option(
        None,
        "a clip has several classes, separated by this text: examples hold labels, "
        "with a 1 for each class, instead of class and target",
        "TEXT",
        name="label_separator",
    )
    classes: tuple[str, ...] | None = option(
        None,
        "the classes in their order, a,b,c; a clip of any other class is rejected; "
        "default: the classes that are found, sorted",
        "NAMES",
        kind=NAMES,
    )

    def __post_init__(self) -> None:
        check_text("label_from", self.label_from, may_be_empty=True)
        if self.label_from not in LABEL_SOURCES:
            _check_expression(self.label_from)
        if self.separator is not None:
            check_text("label_separator", self.separator)
        classes = self.classes or ()
        if "" in classes or len(set(classes)) < len(classes):
            raise RecipeError(
                "classes", "must be names, each of them once, like owl,tit", classes
            )


def _check_expression(label_from: str) -> None:
    """Refuses what is neither a regular expression with a class nor a column."""
    try:
        groups = re.compile(label_from).groupindex
    except re.error as error:
        if "(" not in label_from:
            return  # a column may have any name
        raise RecipeError(
            "label_from", f"is not a regular expression ({error})", label_from
        ) from error
    if "class" not in groups and ("(" in label_from or not label_from):
        raise RecipeError(
            "label_from",
            f"must be one of {', '.join(LABEL_SOURCES)}, a column, or a regular "
            "expression with a group like (?P<class>[a-z]+)",
            label_from,
        )


@dataclass(frozen=True, kw_only=True)
class Events:
    """Labels with times, and what examples hold of them; none without a source."""

    source: str | None = option(
        None,
        "labels with times, for each window: one table for all clips (CSV, Raven, "
        "JSON), or the path of each clip's own table, {folder}/{stem}.txt",
        "FILE",
        name="events",
    )
    column: str | None = option(
        None,
        "the events' column with the class; default: label, class, species ...",
        "COLUMN",
        name="event_column",
    )
    targets: tuple[str, ...] = option(
        "multi_hot",
        "what examples hold of events: class (and target), multi_hot (as labels), "
        "mask:FEATURE (as FEATURE_mask, for each of its frames); a,b for several",
        "TARGETS",
        name="event_targets",
        kind=NAMES,
        value=("multi_hot",),
    )
    overlap: float = option(
        0.0,
        "an event counts in a window if at least this share of the shorter of the two "
        "overlaps",
        "SHARE",
        name="event_overlap",
        parse=float,
        kind=SECONDS,
    )
    no_event: str = option(
        "keep",
        "windows without an event: keep them, drop them, or the class to give them",
        "keep|drop|CLASS",
    )

    def __post_init__(self) -> None:
        if not is_real(self.overlap):
            raise RecipeError("event_overlap", "must be a number", self.overlap)
        if not 0 <= self.overlap <= 1:
            raise RecipeError("event_overlap", "must be from 0 to 1", self.overlap)
        check_text("no_event", self.no_event, may_be_empty=True)
        if self.column is not None:
            check_text("event_column", self.column)
        if self.source is None:
            self._check_unused()
            return
        check_text("events", self.source)
        try:
            self.source.format(folder="", stem="", name="")
        except (LookupError, ValueError) as error:
            raise RecipeError(
                "events",
                "may contain {folder}, {stem} and {name} of the clip, and no other "
                "braces",
                self.source,
            ) from error
        if not self.no_event.strip():
            raise RecipeError("no_event", "must be keep, drop or a class", "")

    def _check_unused(self) -> None:
        names = {each.field: each.name for each in options_of(type(self))}
        for each in fields(self):
            if getattr(self, each.name) != each.default:
                raise RecipeError(
                    names[each.name], "needs `events`", getattr(self, each.name)
                )


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What the columns of manifests are."""

    targets: tuple[str, ...] = option(
        None,
        "columns a,b with numbers to predict; examples hold them as target",
        "COLUMNS",
        name="target_columns",
        kind=NAMES,
        value=(),
    )
    path: str | None = option(
        None,
        "manifest column with the path; default: path, filepath, file ...",
        "COLUMN",
        name="path_column",
    )
    names: tuple[str, ...] | None = option(
        None,
        "the columns of manifests without a header: path,class,speaker",
        "COLUMNS",
        name="column_names",
        kind=NAMES,
    )
    delimiter: str | None = option(
        None,
        "the character between the columns of CSV files; default: found in the first "
        "line",
        "CHAR",
    )
    extra: tuple[str, ...] | None = option(
        None,
        "columns that go into examples: a,b or none; default: all others",
        "COLUMNS",
        name="columns",
        kind=EXTRA_NAMES,
    )

    def __post_init__(self) -> None:
        if self.path is not None:
            check_text("path_column", self.path)
        if self.delimiter is not None:
            check_text("delimiter", self.delimiter)
            if len(self.delimiter) != 1:
                raise RecipeError("delimiter", "must be one character", self.delimiter)


@dataclass(frozen=True, kw_only=True)
class Splits:
    """How clips are divided into train, eval, test or folds."""

    column: str | None = option(
        None, "column that names each clip's split", "COLUMN", name="split_column"
    )
    shares: Mapping[str, float] | None = option(
        None,
        "or: shares of splits, train=.8,eval=.1,test=.1; a hash assigns whole files",
        "SHARES",
        name="splits",
        kind=SHARES,
    )
    folds: int | None = option(
        None, "or: this many equal splits, fold0, fold1 ...", "N", parse=int
    )
    group_by: tuple[str, ...] = option(
        None,
        "columns a,b: clips with equal values are never in two splits",
        "COLUMNS",
        kind=NAMES,
        value=(),
    )
    stratify: bool = option(
        False, "choose the hash so that each class has its share in each split"
    )
    salt: int | None = option(
        None,
        "the salt of an earlier run, so that no clip changes its split",
        "N",
        name="split_salt",
        parse=int,
    )

    def __post_init__(self) -> None:
        if self.column is not None:
            check_text("split_column", self.column)
        if self.folds is not None:
            check_whole("folds", self.folds, least=2)
        check_flag("stratify", self.stratify)
        if self.salt is not None:
            check_whole("split_salt", self.salt, least=None)
        check_one_of(self._ways())
        if self.hashed_shares() is None:
            if self.stratify:
                raise RecipeError("stratify", "needs `splits` or `folds`", True)
            if self.salt is not None:
                raise RecipeError("split_salt", "needs `splits` or `folds`", self.salt)

    def _ways(self) -> dict[str, Any]:
        return {
            "split_column": self.column,
            "splits": self.shares,
            "folds": self.folds,
        }

    def decided_by(self) -> str | None:
        """The option that decides the splits; None where inputs do, or nothing."""
        return next((n for n, v in self._ways().items() if v is not None), None)

    def hashed_shares(self) -> dict[str, float] | None:
        """The share of each split or fold; None where no hash decides the splits."""
        if self.folds is not None:
            return {f"fold{k}": 1 / self.folds for k in range(self.folds)}
        return None if self.shares is None else dict(self.shares)
