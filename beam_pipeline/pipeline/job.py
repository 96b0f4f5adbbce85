"""The description of a job: what a pipeline is built from."""

from __future__ import annotations

from dataclasses import dataclass

from beam_pipeline.inputs.sources import Input
from beam_pipeline.recipe.recipe import Recipe


@dataclass(frozen=True)
class Job:
    """What to record, how, and where; ``output`` ends in a separator."""

    inputs: tuple[Input, ...]
    output: str
    work_folder: str
    recipe: Recipe
    max_rejected: str = "0"
