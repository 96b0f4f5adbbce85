"""Keywords of ``record`` become a canonical recipe and the options of a run."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.fields import options_of
from beam_pipeline.recipe.keywords import RecordKeywords
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.recipe.recipe import Recipe, named_options, recipe_options
from beam_pipeline.recipe.sections import EVENT_MASK, SPLIT_OPTIONS, Events
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

# Of these options, a recipe has one at most: one that is given replaces the others.
_ALTERNATIVES = (
    ("win_len", "win_seconds"),
    ("hop", "hop_seconds"),
    SPLIT_OPTIONS,
    ("elements_per_file", "shard_bytes", "num_shards"),
)
# Options that decide the split of a group before any is moved.
_OF_HASH = (*SPLIT_OPTIONS, "group_by", "seed")

_OF_RUN = tuple(RunOptions.__dataclass_fields__)

_Function = TypeVar("_Function", bound=Callable[..., Any])


def list_keywords(function: _Function) -> _Function:
    """Adds the keywords of ``record`` to the signature that ``help()`` shows."""
    defaults = {name: option.default for name, option in _record_options().items()}
    defaults["beam_args"] = ()
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
        if name in defaults
    )
    changed = signature.replace(parameters=[*named, *listed])
    function.__signature__ = changed  # type: ignore[attr-defined]
    return function


def _record_options() -> dict[str, Any]:
    """Maps names to the options that ``record`` takes."""
    of_run = {option.name: option for option in options_of(RunOptions)}
    return {
        name: option
        for name, option in {**recipe_options(), **of_run}.items()
        if not option.is_carried
    }


def split_options(
    recipe: Recipe | Mapping[str, Any] | None, options: Mapping[str, Any]
) -> tuple[Recipe, RunOptions]:
    """Splits keywords into the recipe, in its canonical form, and the run's options.

    Parameters
    ----------
    recipe : Recipe or mapping, optional
        What the options change, also as the options of a file. Its window, its splits
        and its shards give way to options that decide them in another way:
        ``win_len`` replaces ``win_seconds``.

    Raises
    ------
    OptionError
        If a keyword or its value is wrong.
    """
    if isinstance(recipe, Recipe):
        recipe = recipe.to_json()
    known, base = _record_options(), recipe or {}
    options = dict(options)
    beam_args = options.pop("beam_args", ())
    given: Any = {option.name: v for option, v in named_options(options, known)}
    of_run = {n: given.pop(n) for n in [*given] if n in _OF_RUN}
    run = RunOptions(**of_run, beam_args=beam_args)
    if any(
        _json(n, given.get(n, base.get(n))) != _json(n, base.get(n)) for n in _OF_HASH
    ):
        given["split_moves"] = None  # they are those of another hash
    for ways in _ALTERNATIVES:
        if any(given.get(name) is not None for name in ways):
            given = {**dict.fromkeys(ways), **given}
    if given.get("label_from") == "none":
        given.setdefault("classes", None)  # there are none
    return canonical_recipe(Recipe(**{**base, **given})), run


def _json(name: str, value: Any) -> Any:
    """Returns the JSON of an option's value; None is the default."""
    option = recipe_options()[name]
    return option.default if value is None else option.values.json(name, value)


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
            _check_masks(recipe, steps)
        canonical[kind.field] = format_steps(with_hashes(steps, kind), kind)
    canonical["features"] = {}
    for name, text in sorted(json["features"].items()):
        with naming_feature(name):
            transform = parse_transform(text, recipe.dtype)
            canonical["features"][name] = format_transform(transform)
    canonical["encodings"] = dict(sorted(recipe.encodings.items()))
    return recipe.replace(**canonical)


def _check_masks(events: Events, steps: Sequence[Any]) -> None:
    masks = [target for target in events.event_targets if target.startswith(EVENT_MASK)]
    moving = [step for step in steps if getattr(step, "moves_time", False)]
    if masks and moving:
        raise RecipeError(
            "event_targets",
            f"has a mask for each frame, but {moving[0]} moves the audio to other "
            "frames; leave this step out of `augment`",
            masks[0],
        )
