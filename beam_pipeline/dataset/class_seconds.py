"""Whether the seconds of each class in the metadata are those of its windows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import METADATA, WINDOWS
from beam_pipeline.dataset.planned_windows import PlannedWindows

_PAIR = np.dtype([("clip", np.int64), ("class", np.int64)])


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
    classes, separator = metadata.classes, recipe.labels.separator
    pairs = _classes_of_clips(planned.manifest["class"], classes, separator)
    for split, entry in metadata.splits.items():
        of_clips = planned.seconds_of_clips(split, recipe.windows)
        weights = of_clips[pairs["clip"]]
        found = np.bincount(pairs["class"], weights, len(classes)).tolist()
        expected = dict(zip(classes, found, strict=True))
        recorded = entry.seconds_per_class
        for name in dict.fromkeys([*classes, *recorded]):
            seconds, made = recorded.get(name, np.nan), expected.get(name, np.nan)
            if not np.isclose(seconds, made, rtol=1e-9, atol=0):
                yield (
                    f"{METADATA}: split {split}: class {name!r} has "
                    f"{recorded.get(name)} seconds; its windows in {WINDOWS} have "
                    f"{expected.get(name)}"
                )


def _classes_of_clips(
    labels: Sequence[str | None], classes: Sequence[str], separator: str | None
) -> npt.NDArray[Any]:
    """Returns the pairs of the row of a clip and the number of a class that it has."""
    numbers = {name: number for number, name in enumerate(classes)}

    def pairs() -> Iterator[tuple[int, int]]:
        for row, label in enumerate(labels):
            names = [label] if separator is None else (label or "").split(separator)
            for name in dict.fromkeys(names):
                if name in numbers:
                    yield row, numbers[name]

    return np.fromiter(pairs(), _PAIR)
