"""Whether the seconds of each class in the metadata are those of its windows."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, METADATA, WINDOWS
from beam_pipeline.dataset.planned_windows import PlannedWindows, seconds_of


def class_seconds_problems(
    planned: PlannedWindows, metadata: Metadata
) -> Iterator[str]:
    """Yields a line for each class of a split that has other seconds.

    With events, the tables do not have the classes of the windows.
    """
    recipe = metadata.recipe
    assert recipe is not None
    if recipe.events.source is not None:
        return
    separator = recipe.labels.separator
    of_clips = [
        {label} if separator is None else {*(label or "").split(separator)}
        for label in planned.manifest["class"]
    ]
    for split, entry in metadata.splits.items():
        rows = planned.of_split(split)
        recorded = entry.seconds_per_class
        for label in sorted({*metadata.classes, *recorded}):
            has_label = np.array([label in labels for labels in of_clips], np.bool_)
            some = rows[has_label[planned.clip[rows]]]
            found = seconds_of(planned, some, recipe.windows)
            if not np.isclose(recorded.get(label, np.nan), found, rtol=1e-9, atol=0):
                yield (
                    f"{METADATA}: split {split}: class {label!r} has "
                    f"{recorded.get(label)} seconds; {WINDOWS} and {MANIFEST} have "
                    f"{found}"
                )
