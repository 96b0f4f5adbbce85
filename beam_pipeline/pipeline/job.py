"""The description of a job: what a pipeline is built from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from beam_pipeline.dataset.addition import Addition, read_recorded
from beam_pipeline.dataset.work_folder import ADDED
from beam_pipeline.inputs.listing import Listing
from beam_pipeline.inputs.sources import Input
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files


@dataclass(frozen=True)
class Job:
    """What to record, how, and where; ``output`` ends in a separator.

    ``addition`` is given if the files are added to a finished data set. With
    ``as_recorded``, the recipe is that of a data set, so its splits are decided. With
    ``replaces``, a data set in the output stays until the new one is ready.
    """

    inputs: tuple[Input, ...]
    output: str
    work_folder: str
    recipe: Recipe
    max_rejected: str = "0"
    addition: Addition | None = None
    as_recorded: bool = False
    replaces: bool = False

    def splits_are_decided(self) -> bool:
        """Whether each clip's split follows from its group, and no group is moved."""
        added = self.addition is not None
        return added or self.as_recorded or self.recipe.splits.are_decided()

    def shards_folder(self) -> str:
        """Where finished shards are while others are written; ends in a separator.

        A data set that is there already is not disturbed: shards get their names in the
        output at the end. A store cannot rename, so there they have them at once.
        """
        where = (self.output, self.work_folder)
        waits = self.addition is not None or self.replaces
        if not (waits and all(map(files.is_local, where))):
            return self.output
        return files.join(self.work_folder, ADDED, "")

    def listing(self) -> Listing:
        """Returns the listing of the inputs."""
        if self.addition is None:
            return Listing(self.inputs, self.recipe)
        recorded = read_recorded(self.output, self.addition, self.recipe, self.inputs)
        return Listing(
            self.inputs,
            self.recipe,
            recorded,
            self.addition.first_row,
            self.addition.skip_known,
        )

    def first_index(self) -> Mapping[str, int]:
        """Returns the position of the first example that each split gets, if not 0."""
        return {} if self.addition is None else self.addition.first_index

    def generation(self) -> int:
        """Returns the number of the generation that is recorded."""
        return 0 if self.addition is None else self.addition.generation
