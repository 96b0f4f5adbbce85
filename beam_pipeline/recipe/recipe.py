"""The recipe: everything that decides the bytes of a data set, and nothing else."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from beam_pipeline.errors import OptionError, RecipeError, unknown_option
from beam_pipeline.hashing import json_sha256
from beam_pipeline.recipe.fields import (
    Option,
    changed_options,
    check_one_of,
    find_option,
    json_of,
    options_of,
)
from beam_pipeline.recipe.sections import (
    EVENT_MASK,
    EVENT_TARGETS,
    SPLIT_OPTIONS,
    VALID_FRAMES,
    Audio,
    Augmentation,
    Columns,
    Events,
    Features,
    Labels,
    Shards,
    Splits,
    Windows,
    transform_of,
)

# In the order of the JSON.
SECTIONS: tuple[Any, ...] = (
    Labels, Events, Columns, Splits, Audio, Windows, Augmentation, Features, Shards
)  # fmt: skip


@cache
def recipe_options() -> Mapping[str, Option]:
    """Maps names to all options of a recipe, in the order of the JSON."""
    declared = (option for section in SECTIONS for option in options_of(section))
    return MappingProxyType({option.name: option for option in declared})


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class Recipe(
    Shards, Features, Augmentation, Windows, Audio, Splits, Columns, Events, Labels
):
    """How audio becomes examples: a frozen value, checked when it is created.

    The same inputs with the same recipe and the same library versions give the same
    bytes. Options of the runner, of this machine and of the output are not part of it.

    ::

        recipe = Recipe(win_seconds=1.0, splits={"train": 0.8, "test": 0.2})
        recipe.win_seconds, recipe.splits["train"]    # 1.0, 0.8

    Parameters
    ----------
    **options
        The flags of ``audio-tfrecords record``, with underscores; each is an attribute,
        see :mod:`.sections`. Numbers are numbers. Names, shares and steps are text as
        on the command line, or Python values: a list of names, a mapping of shares,
        transforms.

    Raises
    ------
    OptionError
        If no option has that name.
    RecipeError
        If a value is out of its range, or two values contradict each other.
    """

    if TYPE_CHECKING:  # it is no option
        _code: Mapping[str, Any]  # only of a recipe from another process

    def __new__(cls, **options: Any) -> Recipe:
        return object.__new__(cls)  # an unknown name is that of no option

    def __init__(self, **options: Any):
        known = recipe_options()
        vars(self).update({name: option.default for name, option in known.items()})
        for option, value in named_options(options, known):
            vars(self)[option.name] = value
        self.__post_init__()

    def check(self) -> None:
        """Checks each section, and what depends on two of them."""
        for section in SECTIONS:
            section.check(self)
        json = self.to_json()
        check_one_of({name: json[name] for name in SPLIT_OPTIONS})
        if self.folds is not None and self.copies:
            raise RecipeError(
                "copies",
                "need a split named train, but `folds` does not make it",
                self.copies,
            )
        self._check_events(json)
        if self.mark_padding and VALID_FRAMES in self.features:
            raise RecipeError(
                "features",
                "must not have this name, because `mark_padding` stores an entry of it",
                VALID_FRAMES,
            )
        if self.windows_are_at_events and self.events is None:
            raise RecipeError("windows_at", "needs `events`", self.windows_at)

    def _check_events(self, json: Mapping[str, Any]) -> None:
        """Checks what events leave no room for, and the features of their masks."""
        if self.events is None:
            return
        if self.windows_are_clips:
            raise RecipeError(
                "win_len",
                "must be a number of frames, because `events` is given",
                "clip",
            )
        for name in ("label_separator", "target_columns"):
            if json[name]:
                raise RecipeError(name, "cannot be given with `events`", json[name])
        if self.classes and self.no_event not in ("keep", "drop", *self.classes):
            raise RecipeError(
                "classes",
                f"must contain {self.no_event}, because `no_event` gives this class; "
                "add it",
                json["classes"],
            )
        for target in self.event_targets:
            feature = target.removeprefix(EVENT_MASK)
            is_known = transform_of(feature) in self.features
            if target not in EVENT_TARGETS and not is_known:
                raise RecipeError(
                    "event_targets",
                    f"must be {', '.join(EVENT_TARGETS)}, or {EVENT_MASK}FEATURE with "
                    f"the name of a feature; features: "
                    f"{', '.join(self.features) or 'none'}",
                    target,
                )

    def to_json(self) -> dict[str, Any]:
        """Returns the options as ``metadata.json`` holds them, in a fixed order."""
        return {name: json_of(self, each) for name, each in recipe_options().items()}

    def replace(self, **changes: Any) -> Recipe:
        """Returns a new recipe with some options changed."""
        changed = named_options(changes, recipe_options())
        return Recipe(**{**self.to_json(), **{o.name: value for o, value in changed}})

    def rejecting_short_clips(self) -> Recipe:
        """Returns a recipe by which clips shorter than a window are errors.

        This one says nothing of them, or it is returned as it is.
        """
        if self.short_clips or self.tail == "pad" or self.windows_are_clips:
            return self
        return self.replace(short_clips="reject")

    def sha256(self) -> str:
        """Returns the SHA-256 of the recipe's JSON, in hexadecimal."""
        return json_sha256(self.to_json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.sha256())

    def __getstate__(self) -> dict[str, Any]:
        """The state; with it goes the code of a script or a notebook that it names."""
        from beam_pipeline.transforms.own_code import code_in

        texts = [*self.features.values(), *vars(self).values()]
        code = code_in(text for text in texts if isinstance(text, str))
        return {**vars(self), "_code": code}

    def __repr__(self) -> str:
        changed = (
            f"{option.name}={json_of(self, option)!r}"
            for section in SECTIONS
            for option in changed_options(self, section)
        )
        return f"Recipe({', '.join(changed)})"


def named_options(
    values: Mapping[str, Any], known: Mapping[str, Option]
) -> list[tuple[Option, Any]]:
    """Returns the options with these names, which may be singular, and the values.

    Raises
    ------
    OptionError
        If a name is no option's, or two are the same option's.
    """
    found: dict[str, tuple[Option, Any]] = {}
    for name, value in values.items():
        option = find_option(known, name)
        if option is None:
            raise unknown_option(name, known)
        if option.name in found:
            raise OptionError(
                f"{option.name} and {option.singular}",
                "are the same option; give only one of them",
                value,
            )
        found[option.name] = option, value
    return list(found.values())
