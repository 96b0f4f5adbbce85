"""Keywords of ``record`` as a recipe and the options of a run."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.values import allowed_rejects, comma_text
from beam_pipeline.storage.files import PathLike
from beam_pipeline.transforms.expressions import (
    STEP_FIELDS,
    format_steps,
    format_transform,
    naming_feature,
    parse_transform,
)

_SECRET = re.compile("secret|password|token|access_key", re.IGNORECASE)

# Fields of the recipe that Python may give as lists.
COMMA_LISTS = (
    "classes", "event_targets", "target_columns", "column_names", "columns", "group_by",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """How to run, which decides no byte of the data set.

    Attributes
    ----------
    max_rejected : int or str
        How many clips may be rejected, or what percentage: ``5`` or ``"1%"``.
    overwrite : bool
        Replace the data set that is in the output folder.
    workers : int, optional
        Processes on this machine. Default: one a core, if the job is large enough.
    work_dir : path, optional
        Where unfinished shards lie. Default: ``_work`` in the output folder.
    beam_args : sequence of str
        Options of Beam; with a ``--runner`` among them the job goes there.
    """

    max_rejected: int | str = 0
    overwrite: bool = False
    workers: int | None = None
    work_dir: PathLike | None = None
    beam_args: Sequence[str] = ()

    def __post_init__(self) -> None:
        allowed_rejects(str(self.max_rejected), 0)
        if not isinstance(self.overwrite, bool):
            raise RecipeError("overwrite", "must be True or False", self.overwrite)
        if self.workers is not None:
            if isinstance(self.workers, bool) or not isinstance(self.workers, int):
                raise RecipeError("workers", "must be a whole number", self.workers)
            if self.workers < 1:
                raise RecipeError("workers", "must be at least 1", self.workers)
        if self.beam_args and not self.has_runner():
            raise RecipeError(
                "options of Beam", "name no --runner to give them to", self.beam_args
            )
        for text in self.beam_args:
            name = text.partition("=")[0]
            if _SECRET.search(name):
                # Without its value: errors are logged.
                raise RecipeError(
                    "options of Beam",
                    "would write a secret into the job and its logs; set it in the "
                    "environment of the workers, as AWS_SECRET_ACCESS_KEY and the like",
                    name,
                )

    def has_runner(self) -> bool:
        """Whether the job goes to a runner of Beam, instead of this machine."""
        return self.has("--runner")

    def is_template(self) -> bool:
        """Whether the job is only described, to be started by a service later."""
        return self.has("--template_location")

    def has(self, name: str) -> bool:
        """Whether an option of Beam is given."""
        return any(text.partition("=")[0] == name for text in self.beam_args)


def split_options(
    recipe: Recipe | None, options: Mapping[str, Any]
) -> tuple[Recipe, RunOptions]:
    """Keywords -> the recipe, in its canonical form, and the run's options.

    Raises
    ------
    RecipeError
        If a keyword or its value is wrong.
    """
    recipe_names = {f.name for f in fields(Recipe)}
    run_names = {f.name for f in fields(RunOptions)}
    for name in options:
        if name not in recipe_names | run_names:
            raise RecipeError(
                "record",
                f"has no option like this, only "
                f"{', '.join(sorted(recipe_names | run_names))}",
                name,
            )
    changes = {n: v for n, v in options.items() if n in recipe_names}
    if "features" in changes:
        changes["features"] = features_as_text(changes["features"])
    for name in COMMA_LISTS:
        if isinstance(changes.get(name), list | tuple):
            changes[name] = comma_text(changes[name])
    if isinstance(changes.get("splits"), Mapping):
        changes["splits"] = ",".join(f"{n}={s}" for n, s in changes["splits"].items())
    for name, kind in STEP_FIELDS.items():
        steps = changes.get(name)
        if steps and not isinstance(steps, str):
            steps = getattr(steps, "steps", steps)  # of a chain
            several = steps if isinstance(steps, list | tuple) else [steps]
            changes[name] = format_steps(several, kind)
    made = Recipe(**changes) if recipe is None else replace(recipe, **changes)
    canonical: dict[str, Any] = {
        name: format_steps(getattr(made, name), kind)
        for name, kind in STEP_FIELDS.items()
        if getattr(made, name)
    }
    canonical["features"] = canonical_features(made)
    run = RunOptions(**{n: v for n, v in options.items() if n in run_names})
    return replace(made, **canonical), run


def features_as_text(features: Mapping[str, Any]) -> dict[str, str]:
    """Transforms as expressions; expressions as they are."""
    if not isinstance(features, Mapping):
        raise RecipeError("features", "must map names to transforms", features)
    texts = {}
    for name, transform in features.items():
        with naming_feature(name):
            is_text = isinstance(transform, str)
            texts[name] = transform if is_text else format_transform(transform)
    return texts


def canonical_features(recipe: Recipe) -> dict[str, str]:
    """The recipe's features as canonical expressions, sorted by name.

    They say what is stored: a last ``identity()`` gets the recipe's dtype here.
    """
    canonical = {}
    for name, text in sorted(recipe.features.items()):
        with naming_feature(name):
            canonical[name] = format_transform(parse_transform(text, recipe.dtype))
    return canonical
