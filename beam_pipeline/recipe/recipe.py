"""The recipe: everything that decides the bytes of a data set, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import FrozenInstanceError
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from beam_pipeline.errors import RecipeError, unknown_option
from beam_pipeline.hashing import json_sha256
from beam_pipeline.recipe.clip_sections import (
    EVENT_MASK,
    EVENT_TARGETS,
    SPLIT_OPTIONS,
    Columns,
    Events,
    Labels,
    Splits,
)
from beam_pipeline.recipe.example_sections import Audio, Augmentation, Features, Shards
from beam_pipeline.recipe.fields import (
    Option,
    check_one_of,
    options_of,
    with_values,
)
from beam_pipeline.recipe.values import VALID_FRAMES
from beam_pipeline.recipe.window_section import Windows

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from beam_pipeline.recipe.keywords import RecipeKeywords

SECTIONS: Mapping[str, type] = {
    "labels": Labels,
    "events": Events,
    "columns": Columns,
    "splits": Splits,
    "audio": Audio,
    "windows": Windows,
    "augmentation": Augmentation,
    "features": Features,
    "shards": Shards,
}
# Options of the audio that come last in the JSON, whose order is fixed.
_LAST = (
    "allow_truncated", "allow_nonfinite", "whole_clips", "decoder", "loader",
    "loader_suffixes", "hash_files",
)  # fmt: skip


@cache
def recipe_options() -> Mapping[str, tuple[str, Option]]:
    """Maps each option's name to its section's name and the option.

    The order is that of the JSON.
    """
    declared = {
        option.name: (section, option)
        for section, cls in SECTIONS.items()
        for option in options_of(cls)
    }
    last = {name: declared.pop(name) for name in _LAST}
    return MappingProxyType({**declared, **last})


class Recipe:
    """How audio becomes examples: a frozen value, checked when it is created.

    The same inputs with the same recipe and the same library versions give the same
    bytes. Options of the runner, of this machine and of the output are not part of it.

    ::

        recipe = Recipe(win_seconds=1.0, splits={"train": 0.8, "test": 0.2})
        recipe.windows.win_seconds, recipe.splits.shares["train"]    # 1.0, 0.8

    Parameters
    ----------
    **options
        The flags of ``audio-tfrecords record``, with underscores. Numbers are numbers.
        Names, shares and steps are text as on the command line, or Python values: a
        list of names, a mapping of shares, transforms.

    Attributes
    ----------
    labels, events, columns, splits, audio, windows, augmentation, features, shards
        The sections; see :mod:`.clip_sections`, :mod:`.example_sections` and
        :mod:`.window_section`.

    Raises
    ------
    OptionError
        If no option has that name.
    RecipeError
        If a value is out of its range, or two values contradict each other.
    """

    labels: Labels
    events: Events
    columns: Columns
    splits: Splits
    audio: Audio
    windows: Windows
    augmentation: Augmentation
    features: Features
    shards: Shards
    _json: Mapping[str, Any]
    _code: Mapping[str, Any]  # only of a recipe from another process

    def __init__(self, **options: Unpack[RecipeKeywords]):
        declared = recipe_options()
        given = check_names(options)
        values = {name: option.default for name, (_, option) in declared.items()}
        for name, value in given.items():
            _, option = declared[name]
            values[name] = option.values.json(name, value)
        for name, section in SECTIONS.items():
            object.__setattr__(self, name, with_values(section, values))
        values["features"] = dict(self.features.expressions)
        values["encodings"] = dict(self.features.encodings)
        object.__setattr__(self, "_json", values)
        _check_splits(self)
        _check_events(self)
        _check_padding(self)
        _check_windows_at(self)

    def to_json(self) -> dict[str, Any]:
        """Returns the options as ``metadata.json`` holds them, in a fixed order."""
        return copy.deepcopy(dict(self._json))

    def replace(self, **changes: Unpack[RecipeKeywords]) -> Recipe:
        """Returns a new recipe with some options changed."""
        return Recipe(**{**self._json, **changes})

    def sha256(self) -> str:
        """Returns the SHA-256 of the recipe's JSON, in hexadecimal."""
        return json_sha256(self.to_json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self._json == other._json

    def __hash__(self) -> int:
        return hash(self.sha256())

    def __getstate__(self) -> dict[str, Any]:
        """The state; with it goes the code of a script or a notebook that it names."""
        from beam_pipeline.transforms.own_code import ByValue, code_in

        texts = [*self.features.expressions.values(), *self._json.values()]
        code = code_in(text for text in texts if isinstance(text, str))
        return {**vars(self), "_code": ByValue(code)}

    def __repr__(self) -> str:
        changed = (
            f"{name}={self._json[name]!r}"
            for name, (_, option) in recipe_options().items()
            if self._json[name] != option.default
        )
        return f"Recipe({', '.join(changed)})"

    def __setattr__(self, name: str, value: Any) -> None:
        raise FrozenInstanceError(f"a recipe is frozen; use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise FrozenInstanceError(f"a recipe is frozen; {name} cannot be deleted")


def check_names(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the same values, if each has the name of an option.

    Raises
    ------
    OptionError
        With the first name that is no option's.
    """
    known = recipe_options()
    for name in values:
        if name not in known:
            raise unknown_option(name, known)
    return dict(values)


def _check_splits(recipe: Recipe) -> None:
    json = recipe.to_json()  # with the shares as given
    check_one_of({name: json[name] for name in SPLIT_OPTIONS})
    copies = recipe.augmentation.copies
    if recipe.splits.folds is not None and copies:
        raise RecipeError(
            "copies", "need a split named train, but `folds` does not make it", copies
        )


def _check_padding(recipe: Recipe) -> None:
    if recipe.windows.mark_padding and VALID_FRAMES in recipe.features.expressions:
        raise RecipeError(
            "features",
            "must not have this name, because `mark_padding` stores an entry of it",
            VALID_FRAMES,
        )


def _check_windows_at(recipe: Recipe) -> None:
    if recipe.windows.are_at_events and recipe.events.source is None:
        raise RecipeError("windows_at", "needs `events`", recipe.windows.at)


def _check_events(recipe: Recipe) -> None:
    events, labels = recipe.events, recipe.labels
    if events.source is None:
        return
    if recipe.windows.are_clips:
        raise RecipeError(
            "win_len", "must be a number of frames, because `events` is given", "clip"
        )
    json = recipe.to_json()
    for name in ("label_separator", "target_columns"):
        if json[name]:
            raise RecipeError(name, "cannot be given with `events`", json[name])
    if labels.classes and events.no_event not in ("keep", "drop", *labels.classes):
        raise RecipeError(
            "classes",
            f"must contain {events.no_event}, because `no_event` gives this class; add "
            "it",
            json["classes"],
        )
    expressions = recipe.features.expressions
    for target in events.targets:
        feature = target.removeprefix(EVENT_MASK)
        if target not in EVENT_TARGETS and feature not in expressions:
            raise RecipeError(
                "event_targets",
                f"must be {', '.join(EVENT_TARGETS)}, or {EVENT_MASK}FEATURE with the "
                f"name of a feature; features: {', '.join(expressions) or 'none'}",
                target,
            )
