"""The description of a job: what a pipeline is built from."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

from beam_pipeline.dataset.output_folder import new_folder
from beam_pipeline.dataset.skip_recorded import read_skipped
from beam_pipeline.dataset.work_folder import PLANS
from beam_pipeline.inputs.listing import Listing
from beam_pipeline.inputs.sources import Input
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import UNCLAIMED, Claim


@dataclass(frozen=True)
class Job:
    """What to record, how, and where; ``output`` ends in a separator.

    With ``replaces``, a data set in the output stays until the new one is ready. Clips
    that the data sets in the folders ``skip_recorded`` hold are left out. Without
    ``allow_unreadable``, the run fails if the machine fails at a clip. With
    ``repairs``, shards of a data set are made again, see
    :mod:`beam_pipeline.read.verify`. Files get their names while ``claim`` is held.
    ``run`` is another name in each run: a plan is for one run, because inputs may have
    changed since the run before.
    """

    inputs: tuple[Input, ...]
    output: str
    work_folder: str
    recipe: Recipe
    max_rejected: str = "0"
    replaces: bool = False
    repairs: bool = False
    skip_recorded: tuple[str, ...] = ()
    allow_unreadable: bool = False
    claim: Claim = UNCLAIMED
    run: str = field(default_factory=lambda: uuid.uuid4().hex)

    def shards_folder(self) -> str:
        """Where the files of the data set are written; ends in a separator.

        A data set that is replaced is not disturbed, see
        :mod:`beam_pipeline.dataset.output_folder`.
        """
        if not (self.replaces and files.is_local(self.output)):
            return self.output
        return files.join(new_folder(self.output), "")

    def plan_folder(self) -> str:
        """Where all workers of an engine find the plan and its pages."""
        return files.join(self.work_folder, PLANS, self.run)

    def listing(self) -> Listing:
        """Returns the listing of the inputs."""
        recorded = None
        if self.skip_recorded:
            recorded = read_skipped(self.skip_recorded, self.recipe)
        return Listing(self.inputs, self.recipe, recorded)
