"""Sections of a recipe about clips: labels, events, columns and splits.

A section is a frozen value that checks itself. A function takes only the section that
it needs. :class:`beam_pipeline.recipe.recipe.Recipe` checks what depends on two
sections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import (
    Declared,
    Flag,
    Names,
    Number,
    Text,
    WholeNumber,
    comma_text,
)
from beam_pipeline.recipe.fields import (
    Moves,
    Shares,
    changed_options,
    json_of,
    option,
)

LABEL_SOURCES = ("folder", "name", "none")
EVENT_TARGETS = ("class", "multi_hot")
EVENT_MASK = "mask:"
# Options that decide the splits; a recipe gives only one of them.
SPLIT_OPTIONS = ("split_column", "splits", "folds")


@dataclass(frozen=True, kw_only=True)
class Labels(Declared):
    """Where a clip's class comes from."""

    label_from: str = option(
        "folder",
        Text(may_be_empty=True),
        "where a clip's class comes from: folder (the name of its parent folder), name "
        "(the text after the last underscore of its file name), none, a manifest's "
        "column, or a regular expression that is searched in the path relative to the "
        "input, and has a group named class; other named groups become columns",
        "SOURCE",
    )
    separator: str | None = option(
        None,
        Text(),
        "the text between the classes of a clip that has several; examples then hold "
        "labels, with a 1 for each of the clip's classes, instead of class and target",
        "TEXT",
        name="label_separator",
    )
    classes: tuple[str, ...] | None = option(
        None,
        Names(),
        "the classes in order, a,b,c; a clip of any other class is rejected; default: "
        "the classes found, sorted",
        "NAMES",
    )

    def check(self) -> None:
        """Checks the expression of ``label_from``, and that classes differ."""
        if self.label_from not in LABEL_SOURCES:
            _check_expression(self.label_from)
        classes = self.classes or ()
        if "" in classes or len(set(classes)) < len(classes):
            raise RecipeError(
                "classes",
                "must be different names, like owl,tit",
                comma_text(classes),
            )


def _check_expression(label_from: str) -> None:
    """Refuses text that is neither a column nor an expression with a class."""
    try:
        groups = re.compile(label_from).groupindex
    except re.error as error:
        if "(" not in label_from:
            return  # a column's name; it need not be an expression
        raise RecipeError(
            "label_from", f"is not a regular expression ({error})", label_from
        ) from error
    if "class" not in groups and ("(" in label_from or not label_from):
        raise RecipeError(
            "label_from",
            f"must be {', '.join(LABEL_SOURCES)}, a column, or a regular expression "
            "with a group like (?P<class>[a-z]+)",
            label_from,
        )


@dataclass(frozen=True, kw_only=True)
class Events(Declared):
    """Labels with times, and how examples hold them; no events without a source."""

    source: str | None = option(
        None,
        Text(),
        "labels with times, so that each window gets its own labels: one table for all "
        "clips (CSV, JSON, Raven), or the path of each clip's table, "
        "{folder}/{stem}.txt",
        "FILE",
        name="events",
    )
    column: str | None = option(
        None,
        Text(),
        "column of the events with their class; default: the first of label, class, "
        "event_label ...",
        "COLUMN",
        name="event_column",
    )
    targets: tuple[str, ...] = option(
        "multi_hot",
        Names(may_be_empty=True),
        "how examples hold the events, a,b for several: class (as class and target), "
        "multi_hot (as labels), mask:FEATURE (as FEATURE_mask, with the classes at "
        "each frame of that feature)",
        "TARGETS",
        name="event_targets",
        held=("multi_hot",),
    )
    overlap: float = option(
        0.0,
        Number(0, 1),
        "least overlap of an event and a window that gives the window the event's "
        "class, as a share of the shorter of the two",
        "SHARE",
        name="event_overlap",
    )
    no_event: str = option(
        "keep",
        Text(may_be_empty=True),
        "windows without an event: keep them, drop them, or give them this class",
        "keep|drop|CLASS",
    )

    def check(self) -> None:
        """Checks the path of the events; without one, no other option is given."""
        if self.source is None:
            for each in changed_options(self):
                raise RecipeError(each.name, "needs `events`", json_of(self, each))
            return
        try:
            self.source.format(folder="", stem="", name="")
        except (LookupError, ValueError) as error:
            raise RecipeError(
                "events",
                "may contain only {folder}, {stem} and {name} in braces; they stand "
                "for parts of the clip's path",
                self.source,
            ) from error
        if not self.no_event.strip():
            raise RecipeError(
                "no_event", "must be keep, drop or a class", self.no_event
            )


@dataclass(frozen=True, kw_only=True)
class Columns(Declared):
    """Which columns of manifests hold what."""

    targets: tuple[str, ...] = option(
        None,
        Names(),
        "columns a,b with numbers to predict; examples hold them as target",
        "COLUMNS",
        name="target_columns",
        held=(),
    )
    path: str | None = option(
        None,
        Text(),
        "manifest column with the path; default: the first of path, filepath ...",
        "COLUMN",
        name="path_column",
    )
    names: tuple[str, ...] | None = option(
        None,
        Names(),
        "names of the columns of a CSV manifest that has no header: path,class,speaker",
        "COLUMNS",
        name="column_names",
    )
    delimiter: str | None = option(
        None,
        Text(),
        "the character between the columns of a CSV manifest; default: detected in the "
        "first line",
        "CHAR",
    )
    extra: tuple[str, ...] | None = option(
        None,
        Names(none="none"),
        "columns that examples hold, a,b or none; default: all columns that have no "
        "other use",
        "COLUMNS",
        name="columns",
    )

    def check(self) -> None:
        """Checks that the delimiter is one character."""
        if self.delimiter is not None and len(self.delimiter) != 1:
            raise RecipeError("delimiter", "must be one character", self.delimiter)


@dataclass(frozen=True, kw_only=True)
class Splits(Declared):
    """How clips are divided into train, eval, test or folds."""

    column: str | None = option(
        None,
        Text(),
        "column with the name of each clip's split",
        "COLUMN",
        name="split_column",
    )
    shares: Mapping[str, float] | None = option(
        None,
        Shares(),
        "or: share of each split, train=.8,eval=.1,test=.1; a hash assigns whole "
        "files, or the groups of --group-by",
        "SHARES",
        name="splits",
    )
    folds: int | None = option(
        None,
        WholeNumber(2),
        "or: number of splits of even size, fold0, fold1 ...",
        "N",
    )
    group_by: tuple[str, ...] = option(
        None,
        Names(),
        "columns a,b: clips with equal values in them are always in the same split",
        "COLUMNS",
        held=(),
    )
    stratify: bool = option(
        False,
        Flag(),
        "move some groups from the split of their hash to others, so that each split, "
        "and each class in it, has its share",
    )
    moves: Mapping[int, str] | None = option(
        None,
        Moves(),
        "the groups that an earlier run moved to another split, so that no clip of "
        "that run changes its split",
        "GROUPS",
        name="split_moves",
    )

    def check(self) -> None:
        """Checks that groups are moved between splits that a hash decides."""
        if self.hashed_shares() is None and self.stratify:
            raise RecipeError("stratify", "needs `splits` or `folds`", True)
        names = tuple(self.hashed_shares() or ())
        for split in (self.moves or {}).values():
            if split not in names:
                raise RecipeError(
                    "split_moves",
                    f"puts groups into the split {split}, but the splits are "
                    f"{', '.join(names) or 'not those of a hash'}; leave it out, or "
                    "give the `splits` or `folds` of the earlier run",
                    split,
                )

    def decided_by(self) -> str | None:
        """The option that decides the splits; None if inputs do, or there are none."""
        held = zip(SPLIT_OPTIONS, (self.column, self.shares, self.folds), strict=True)
        return next((name for name, value in held if value is not None), None)

    def are_decided(self) -> bool:
        """Whether each clip's split follows from its group alone."""
        return self.moves is not None or self.hashed_shares() is None

    def hashed_shares(self) -> dict[str, float] | None:
        """The share of each split or fold; None unless a hash decides the splits."""
        if self.folds is not None:
            return {f"fold{k}": 1 / self.folds for k in range(self.folds)}
        return None if self.shares is None else dict(self.shares)
