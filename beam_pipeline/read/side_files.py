"""The files beside the shards, compared with the metadata and with each other."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.metadata_checks import short
from beam_pipeline.dataset.output_folder import (
    MANIFEST,
    METADATA,
    REJECTED,
    SCHEMA,
    WINDOWS,
)
from beam_pipeline.dataset.planned_windows import PlannedWindows
from beam_pipeline.dataset.rejects import HEADER_STAGES, LostAudio, read_rejects
from beam_pipeline.dataset.schema import schema_problem
from beam_pipeline.errors import InputError
from beam_pipeline.storage import files
from beam_pipeline.storage.json_text import parse_json
from beam_pipeline.write.window_rows import REJECTED as LOST

# The recorded statistics are sums in another order; see statistic_problems.
TOLERANCE = 1e-6

_KEYS = {"path", "stage", "error", "reason", "seconds"}


def schema_problems(root: str, metadata: Metadata) -> Iterator[str]:
    """Yields a line if ``schema.pbtxt`` does not describe the features."""
    try:
        text = files.read_bytes(files.join(root, SCHEMA))
    except FileNotFoundError:
        yield f"{SCHEMA}: is missing"
        return
    problem = schema_problem(text, metadata.features, metadata.classes)
    if problem is not None:
        yield f"{SCHEMA}: {problem}"


def axis_problems(metadata: Metadata) -> Iterator[str]:
    """Yields a line for each axis of a feature that does not have its size."""
    for name, spec in metadata.features.items():
        shape = (spec.shape or ())[-len(spec.axes) :] if spec.axes else ()
        for axis, size in zip(spec.axes, shape, strict=False):
            values = axis.get("values")
            sizes = axis.get("size"), size if values is None else len(values)
            if size is not None and sizes != (size, size):
                yield (
                    f"{METADATA}: feature {name}: the axis {axis.get('name')} has the "
                    f"size {axis.get('size')}"
                    + ("" if values is None else f" and {len(values)} values")
                    + f"; its shape has {size}"
                )


def reject_problems(
    root: str, metadata: Metadata, planned: PlannedWindows
) -> Iterator[str]:
    """Yields a line for each difference between the rejects and their counts.

    A clip that was rejected by its header is not in the manifest. One that failed later
    is there, with windows that are missing.
    """
    try:
        text = files.read_bytes(files.join(root, REJECTED))
    except FileNotFoundError:
        yield f"{REJECTED}: is missing"
        return
    by_header = late = 0
    for number, line in enumerate(text.splitlines(), 1):
        try:
            values = parse_json(line)
        except ValueError:
            values = None
        if not _is_reject(values):
            yield f"{REJECTED}: line {number} is not a reject"
            continue
        by_header += values["stage"] in HEADER_STAGES
        late += values["stage"] not in HEADER_STAGES
    clips = len(planned.manifest["path"])
    if by_header != metadata.clips - clips:
        yield (
            f"{REJECTED}: has {by_header} clips that were rejected by their headers; "
            f"{METADATA} has {metadata.clips} clips, and {MANIFEST} has {clips} of them"
        )
    failed = len(np.unique(planned.clip[planned.left_out == LOST]))
    if (failed > 0) != (late > 0) or late < failed:
        yield (
            f"{REJECTED}: has {late} failures of recording; {WINDOWS} has {failed} "
            "clips with rejected windows"
        )
    if metadata.rejected != metadata.clips - clips + failed:
        yield (
            f"{METADATA}: rejected is {metadata.rejected}; {MANIFEST} and {WINDOWS} "
            f"show {metadata.clips - clips + failed}"
        )


def _is_reject(values: Any) -> bool:
    if not isinstance(values, dict) or values.keys() != _KEYS:
        return False
    seconds = values["seconds"]
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    return seconds is None or (is_number and seconds >= 0)


def lost_audio(folder: str, metadata: Metadata) -> LostAudio:
    """Returns how much audio a data set's rejects have.

    Raises
    ------
    InputError
        If the list of rejects is missing or damaged.
    """
    if metadata.recipe is None or not metadata.rejected:
        return LostAudio(0.0, 0)
    path = files.join(folder, REJECTED)
    try:
        rejects = read_rejects(folder)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}. Restore it.") from error
    for number, values in enumerate(rejects, 1):
        if not _is_reject(values):
            raise InputError(f"{path}: line {number} is not a reject. Restore it.")
    return LostAudio.of(values["seconds"] for values in rejects)


def statistic_problems(
    recorded: Mapping[str, Any], found: Mapping[str, Any], where: str
) -> Iterator[str]:
    """Yields a line for each statistic of a feature that differs.

    Counts, the least and the largest value and quantiles are equal. Means, standard
    deviations and the like differ by up to ``TOLERANCE`` of the larger of the value and
    the standard deviation: rounding depends on which values were added together. What
    was clipped does not show in the examples, but there is no more of it than values.
    """
    spread = recorded.get("std")
    recorded = dict(recorded)
    clipped = recorded.pop("clipped", 0)
    if clipped > found["count"]:
        yield f"{where}: clipped is {clipped}, of {found['count']} values"
    yield from _value_problems(recorded, found, where, spread)


def _value_problems(
    recorded: Any, found: Any, where: str, spread: Any
) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key in sorted({*recorded, *found}):
            inner = recorded.get(key), found.get(key)
            yield from _value_problems(*inner, f"{where}: {key}", spread)
    elif isinstance(recorded, list) and isinstance(found, list):
        if len(recorded) != len(found):
            yield f"{where}: has {len(recorded)} values; the examples give {len(found)}"
            return
        for k, inner in enumerate(zip(recorded, found, strict=True)):
            yield from _value_problems(*inner, f"{where}[{k}]", spread)
    elif not _is_close(recorded, found, spread):
        yield f"{where} is {short(recorded)}; the examples give {short(found)}"


def _is_close(recorded: Any, found: Any, spread: Any) -> bool:
    numbers = [recorded, found, spread]
    if not all(isinstance(n, int | float) for n in numbers[:2]):
        return bool(recorded == found)
    if not isinstance(spread, int | float):
        spread = 0.0
    scale = max(abs(recorded), abs(found), abs(spread))
    return bool(recorded == found or abs(recorded - found) <= TOLERANCE * scale)
