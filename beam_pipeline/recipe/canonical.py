"""Keywords of ``record`` become a canonical recipe and the options of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any, TypeVar

from beam_pipeline.errors import OptionError, RecipeError, unknown_option
from beam_pipeline.recipe.clip_sections import EVENT_MASK, Events
from beam_pipeline.recipe.keywords import RecordKeywords
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.recipe.recipe import Recipe, recipe_options
from beam_pipeline.recipe.sound_folder import with_hashes
from beam_pipeline.transforms.steps import (
    AUGMENTATION,
    format_steps,
    format_transform,
    given_steps,
    naming_feature,
    parse_steps,
    parse_transform,
)

# Options that decide the split of a group before any is moved.
OF_HASH = ("split_column", "splits", "folds", "group_by", "seed")

_Function = TypeVar("_Function", bound=Callable[..., Any])


def list_keywords(function: _Function) -> _Function:
    """Adds the keywords of ``record`` to the signature that ``help()`` shows."""
    defaults = {name: option.default for name, (_, option) in recipe_options().items()}
    defaults.update((field.name, field.default) for field in fields(RunOptions))
    signature = inspect.signature(function)
    *named, _ = signature.parameters.values()
    listed = (
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults[name],
            annotation=getattr(kind, "__forward_arg__", kind),
        )
        for name, kind in RecordKeywords.__annotations__.items()
    )
    changed = signature.replace(parameters=[*named, *listed])
    function.__signature__ = changed  # type: ignore[attr-defined]
    return function


def split_options(
    recipe: Recipe | None, options: Mapping[str, Any]
) -> tuple[Recipe, RunOptions]:
    """Splits keywords into the recipe, in its canonical form, and the run's options.

    Raises
    ------
    OptionError
        If a keyword or its value is wrong.
    """
    recipe_names = list(recipe_options())
    run_names = [f.name for f in fields(RunOptions)]
    for name in options:
        if name not in recipe_names and name not in run_names:
            raise unknown_option(name, [*recipe_names, *run_names])
    if not (recipe is None or isinstance(recipe, Recipe)):
        raise OptionError(
            "recipe",
            "must be a Recipe, metadata like Metadata.load(folder), or a path",
            recipe,
        )
    changes: Any = {n: v for n, v in options.items() if n in recipe_names}
    run = RunOptions(**{n: v for n, v in options.items() if n in run_names})
    if recipe is not None and _changes_hash(recipe, changes):
        changes.setdefault("split_moves", None)  # they are those of another hash
    made = Recipe(**changes) if recipe is None else recipe.replace(**changes)
    return canonical_recipe(made), run


def _changes_hash(recipe: Recipe, changes: Mapping[str, Any]) -> bool:
    """Whether options decide other splits of groups than a recipe, before any move."""
    declared, json = recipe_options(), recipe.to_json()
    return any(
        declared[name][1].values.json(name, changes[name]) != json[name]
        for name in OF_HASH
        if name in changes
    )


def canonical_recipe(recipe: Recipe) -> Recipe:
    """Returns the recipe with expressions in canonical form and features sorted.

    A final ``identity()`` without a dtype gets the recipe's, so that the expression
    alone says what is stored. A step that takes sounds from a folder gets their hash.

    Raises
    ------
    RecipeError
        If an expression cannot be read, a folder cannot be used, or an augmentation
        moves the sound away from a mask of its events.
    """
    json = recipe.to_json()
    canonical: Any = {}
    for text, kind in given_steps(json):
        steps = parse_steps(text, kind)
        if kind is AUGMENTATION:
            _check_masks(recipe.events, steps)
        canonical[kind.field] = format_steps(with_hashes(steps, kind), kind)
    canonical["features"] = {}
    for name, text in sorted(json["features"].items()):
        with naming_feature(name):
            transform = parse_transform(text, recipe.audio.dtype)
            canonical["features"][name] = format_transform(transform)
    canonical["encodings"] = dict(sorted(recipe.features.encodings.items()))
    return recipe.replace(**canonical)


def _check_masks(events: Events, steps: Sequence[Any]) -> None:
    masks = [target for target in events.targets if target.startswith(EVENT_MASK)]
    moving = [step for step in steps if getattr(step, "moves_time", False)]
    if masks and moving:
        raise RecipeError(
            "event_targets",
            f"has a mask for each frame, but {moving[0]} moves the audio to other "
            "frames; leave this step out of `augment`",
            masks[0],
        )
