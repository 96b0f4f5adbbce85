"""The planned windows of a data set, and whether its tables agree with its recipe.

::

    recipe, a clip's frames and rate --arithmetic--> its windows: starts, copies
    manifest.parquet, windows.parquet            --> the same, as recorded
    examples in the shards                       --> the same, one by one

The arithmetic is the writer's own, so a table that was damaged, or that belongs to
another data set, differs from it. No source is read.
"""

from __future__ import annotations

import reprlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.clip_windows import clip_by_clip, clips_of, seconds_of_clips
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, METADATA, WINDOWS
from beam_pipeline.dataset.problem_lines import differ, name_some
from beam_pipeline.examples.event_windows import NO_EVENT, PlacedWindows
from beam_pipeline.examples.windows import WindowPlan, WindowPlans, count_windows
from beam_pipeline.inputs.splits import Splitter, group_key
from beam_pipeline.plan.clips import (
    NO_SOUND,
    Clip,
    examples_of,
    reasons_to_leave_out,
    why_left_out,
)
from beam_pipeline.plan.segments import Segment, locate_examples, order_key
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.window_section import AT_GRID, Windows
from beam_pipeline.write.window_rows import (
    BY_KEEP,
    BY_NO_EVENT,
    KEPT,
    LEFT_OUT,
    REJECTED,
)

Integers = npt.NDArray[np.int64]

# Frames beyond this are in no file; below it, no product of them leaves 64 bits.
_MOST = 1 << 48

_TEXTS: Mapping[str, Any] = {
    "path": str, "split": str, "class": (str, NoneType), "group": (str, NoneType),
    "format": str, "subtype": str,
}  # fmt: skip


@dataclass(frozen=True)
class PlannedWindows:
    """The windows of a data set, in the order of its tables.

    Attributes
    ----------
    manifest : mapping
        Its columns as numpy arrays; texts are objects.
    clip : numpy.ndarray, shape (windows,)
        The row of the manifest of each window.
    start, frames, copy : numpy.ndarray, shape (windows,)
        See :func:`beam_pipeline.dataset.window_table.write_windows`.
    left_out : numpy.ndarray, shape (windows,)
        Indices of ``LEFT_OUT``.
    clip_by_clip : numpy.ndarray, shape (windows,)
        The windows in the order of the clips: those of a clip are together, from its
        first one on.
    """

    manifest: Mapping[str, Any]
    clip: Integers
    start: Integers
    frames: Integers
    copy: Integers
    left_out: Integers
    clip_by_clip: Integers

    @classmethod
    def of(cls, windows: Any, manifest: Any) -> PlannedWindows:
        """Returns the windows in the tables of a data set, of Arrow.

        Raises
        ------
        ValueError
            If a table has no value where it must have one, or one of a wrong type.
        """
        columns = {name: _column(manifest, name) for name in manifest.column_names}
        counts = _integers(columns, "windows", MANIFEST)
        if (counts < 0).any():
            raise ValueError(f"{MANIFEST} has a clip with {counts.min()} windows")
        for name in ("input", "file", "index", "start", "frames", "sample_rate_hz",
                     "channels", "native_frames", "native_sample_rate_hz",
                     "first_index"):  # fmt: skip
            columns[name] = _integers(columns, name, MANIFEST)
        if len(manifest) and columns["sample_rate_hz"].min() < 1:
            raise ValueError(f"{MANIFEST} has a sample_rate_hz below 1")
        for name in ("start", "frames"):
            if ((columns[name] < 0) | (columns[name] > _MOST)).any():
                raise ValueError(f"{MANIFEST} has a column {name} that no file has")
        for name, kinds in _TEXTS.items():
            if not all(isinstance(text, kinds) for text in columns.get(name, [0])):
                raise ValueError(f"{MANIFEST} has a column {name} that is not of texts")
        names = ("start", "frames", "copy")
        of_windows = {name: _column(windows, name) for name in names}
        start, frames, copy = (_integers(of_windows, n, WINDOWS) for n in names)
        clip = clips_of(windows, manifest)
        reasons = windows["left_out"].cast("string").combine_chunks()
        left_out, ordered = _reason_numbers(reasons), clip_by_clip(windows, clip)
        return cls(columns, clip, start, frames, copy, left_out, ordered)

    @cached_property
    def first_windows(self) -> Integers:
        """Where each clip begins in ``clip_by_clip``, shape (clips,)."""
        counts = self.manifest["windows"]
        first: Integers = np.cumsum(counts) - counts
        return first

    @cached_property
    def places(self) -> Integers:
        """Where each window is in ``clip_by_clip``, shape (windows,)."""
        return np.argsort(self.clip_by_clip)

    def of_split(self, split: str) -> Integers:
        """Returns the rows of the windows of a split that are in the data set."""
        return np.flatnonzero((self.left_out == KEPT) & self.is_in(split))

    def seconds_of_clips(self, split: str, windows: Windows) -> npt.NDArray[np.float64]:
        """Returns the seconds of a split's examples, by clip; shape (clips,)."""
        rows, rates = self.of_split(split), self.manifest["sample_rate_hz"]
        return seconds_of_clips(self.clip[rows], self.frames[rows], rates, windows)

    def is_in(self, split: str) -> npt.NDArray[np.bool_]:
        """Returns which windows are planned for a split."""
        clips = np.asarray(self.manifest["split"] == split, np.bool_)
        return clips[self.clip] if len(clips) else np.zeros(0, np.bool_)

    def clip_at(self, row: int, at: str = AT_GRID) -> Clip:
        """Returns the clip of a row, as far as the tables have it.

        ``at`` is the recipe's ``windows_at``. If windows are not on the grid, only the
        table of windows says where they are.
        """
        values = {name: column[row] for name, column in self.manifest.items()}
        placed = None
        if at != AT_GRID:
            begin, count = self.first_windows[row], values["windows"]
            starts = np.unique(self.start[self.clip_by_clip[begin : begin + count]])
            placed = PlacedWindows(0, tuple(starts.tolist()))
        return Clip(
            int(values["index"]),
            int(values["input"]),
            values["path"],
            values["class"],
            values["split"],
            int(values["native_frames"]),
            int(values["native_sample_rate_hz"]),
            int(values["channels"]),
            values["format"],
            values["subtype"],
            int(values["sample_rate_hz"]),
            int(values["frames"]),
            int(values["windows"]),
            start=int(values["start"]),
            group=values["group"] or "",
            file=int(values["file"]),
            placed=placed,
        )

    def clips_left_out(self, recipe: Recipe) -> dict[str, npt.NDArray[np.bool_]]:
        """Returns which clips a recipe leaves out, by reason.

        With ``num_elems``, a clip without a window counts as one without an event, or
        without a sound.

        Raises
        ------
        RecipeError
            If a window has no length at the sample rate of a clip.
        """
        frames, rates = self.manifest["frames"], self.manifest["sample_rate_hz"]
        reasons = reasons_to_leave_out(recipe.windows)
        found = {why: np.zeros(len(frames), np.bool_) for why in reasons}
        plans = WindowPlans(recipe.windows)
        for row in np.flatnonzero(self.manifest["windows"] == 0) if reasons else ():
            why = why_left_out(
                int(frames[row]),
                plans.of(int(rates[row]), int(frames[row])),
                recipe.windows,
            )
            if why in found:
                found[why][row] = True
        return found

    def recorded_clips(self, recipe: Recipe) -> npt.NDArray[np.bool_]:
        """Returns which clips a recipe does not leave out."""
        recorded = np.ones(len(self.manifest["frames"]), np.bool_)
        for some in self.clips_left_out(recipe).values():
            recorded &= ~some
        return recorded


def _column(table: Any, name: str) -> Any:
    column = table[name].combine_chunks()
    return column.to_numpy(zero_copy_only=False)


def _reason_numbers(reasons: Any) -> Integers:
    texts = reasons.to_numpy(zero_copy_only=False)
    numbers = np.where(reasons.is_null().to_numpy(zero_copy_only=False), KEPT, -1)
    for number, reason in enumerate(LEFT_OUT[1:], 1):
        numbers[texts == reason] = number
    if (numbers < 0).any():
        unknown = texts[numbers < 0][0]
        raise ValueError(f"{WINDOWS} has left_out {reprlib.repr(unknown)}")
    return numbers


def _integers(columns: Mapping[str, Any], name: str, file: str) -> Integers:
    if name not in columns:
        raise ValueError(f"{file} has no column {name}")
    column = columns[name]
    if column.dtype.kind not in "iu":
        raise ValueError(f"{file} has a column {name} that is not of whole numbers")
    return np.asarray(column, np.int64)


def plan_problems(planned: PlannedWindows, metadata: Metadata) -> Iterator[str]:
    """Yields a line for each difference between the tables and the recipe."""
    recipe = metadata.recipe
    assert recipe is not None
    at = recipe.windows.at
    clips = [planned.clip_at(row, at) for row in range(len(planned.manifest["path"]))]
    yield from _clip_problems(clips, planned, metadata)
    yield from _window_problems(clips, planned, recipe)
    yield from _count_problems(planned, metadata)


def _clip_problems(
    clips: list[Clip], planned: PlannedWindows, metadata: Metadata
) -> Iterator[str]:
    """Compares the counts, the positions and the order of the clips."""
    recipe = metadata.recipe
    assert recipe is not None

    def line(row: int, problem: str) -> str:
        return f"{MANIFEST}: row {row}, {clips[row].filepath!r}: {problem}"

    counts = np.array([planned_examples(clip, recipe) for clip in clips], np.int64)
    splits = planned.manifest["split"]
    first = np.zeros(len(clips), np.int64)
    for split in set(splits.tolist()):
        rows = np.flatnonzero(splits == split)
        first[rows] = np.cumsum(counts[rows]) - counts[rows]
    recorded = planned.manifest["first_index"]
    if recipe.windows.at != AT_GRID and recipe.shards.num_elems is not None:
        # Beyond the last window, the tables do not say how many there would be.
        first, recorded = (
            np.minimum(some, recipe.shards.num_elems) for some in (first, recorded)
        )
    yield from name_some(
        recorded != first,
        lambda row: line(
            row, f"first_index is {recorded[row]}; the recipe gives {first[row]}"
        ),
        f"{MANIFEST}: rows",
    )
    most = recipe.shards.num_elems
    here = counts if most is None else np.clip(most - first, 0, counts)
    windows = planned.manifest["windows"]
    yield from name_some(
        windows != here,
        lambda row: line(
            row, f"windows is {windows[row]}; the recipe gives {here[row]}"
        ),
        f"{MANIFEST}: rows",
    )
    keys = [(clip.split, order_key(clip, recipe.shards), clip.row) for clip in clips]
    misplaced = np.array([a >= b for a, b in pairwise(keys)], np.bool_)
    yield from name_some(
        misplaced,
        lambda row: line(row + 1, "is not in the order of the recipe"),
        f"{MANIFEST}: rows",
    )
    splitter, seed = Splitter.of(recipe.splits), recipe.shards.seed
    if splitter is None or not recipe.splits.group_by:
        return  # without groups, the identity of the file decides
    meant = [splitter.split_of(group_key(seed, clip.group)) for clip in clips]
    yield from name_some(
        differ(splits, np.array(meant, object)),
        lambda row: line(
            row, f"is in split {splits[row]}; its group belongs to {meant[row]}"
        ),
        f"{MANIFEST}: rows",
    )


def planned_examples(clip: Clip, recipe: Recipe) -> int:
    """Returns how many examples a clip has, if `num_elems` leaves none out."""
    copies = recipe.augmentation.copies
    if clip.placed is not None:
        return examples_of(len(clip.placed.starts), clip.split, copies)
    plan = WindowPlan.of(recipe.windows, clip.sample_rate_hz, clip.frames)
    windows = count_windows(clip.frames, plan)
    return examples_of(windows, clip.split, copies)


def _window_problems(
    clips: list[Clip], planned: PlannedWindows, recipe: Recipe
) -> Iterator[str]:
    """Compares start, frames and copy of every window: none is missing or twice."""
    wrong = np.zeros(len(planned.clip), np.bool_)
    end = 0
    for clip in clips:
        begin, end = end, end + clip.examples
        known = min(clip.examples, planned_examples(clip, recipe))
        wrong[planned.clip_by_clip[begin + known : end]] = True
        if not known:
            continue
        starts, copies = locate_examples(Segment(clip, 0, known, 0), recipe)
        length = WindowPlan.of(recipe.windows, clip.sample_rate_hz, clip.frames).length
        some = planned.clip_by_clip[begin : begin + known]
        wrong[some] = (
            (planned.start[some] != starts)
            | (planned.copy[some] != copies)
            | (planned.frames[some] != np.minimum(length, clip.frames - starts))
            | ((starts < 0) | (starts > max(0, clip.frames - length)))
            & (clip.placed is not None)
        )

    def line(row: int) -> str:
        clip = clips[int(planned.clip[row])]
        return (
            f"{WINDOWS}: row {row}, {clip.filepath!r}: is the window at frame "
            f"{planned.start[row]}, copy {planned.copy[row]}, with "
            f"{planned.frames[row]} frames; the recipe gives another one"
        )

    yield from name_some(wrong, line, f"{WINDOWS}: rows")


def _count_problems(planned: PlannedWindows, metadata: Metadata) -> Iterator[str]:
    """Compares the counts of each split."""
    assert metadata.recipe is not None
    recipe, counted = metadata.recipe, metadata.left_out or {}
    for why, clips in planned.clips_left_out(recipe).items():
        n = int(clips.sum())
        is_most = why in (NO_EVENT, NO_SOUND) and recipe.shards.num_elems is not None
        if counted.get(why) != n and not (is_most and counted.get(why, n + 1) <= n):
            yield (
                f"{METADATA}: inputs: left_out: {why} is {counted.get(why)}; "
                f"{MANIFEST} has {n}"
            )
    late = np.zeros(len(planned.manifest["path"]), np.bool_)
    late[planned.clip[planned.left_out == REJECTED]] = True
    some = planned.manifest["windows"] > 0
    recorded = planned.manifest["split"][planned.recorded_clips(recipe)]
    for split in sorted({*recorded.tolist()} - {*metadata.splits}):
        yield f"{MANIFEST}: has clips of split {split!r}, which is not in {METADATA}"
    for split, entry in metadata.splits.items():
        in_split = planned.is_in(split)
        rows = planned.of_split(split)
        selected = np.isin(planned.left_out[in_split], [BY_KEEP, BY_NO_EVENT])
        clips = (planned.manifest["split"] == split) & some & ~late
        seconds = planned.seconds_of_clips(split, recipe.windows).sum()
        for name, recorded, found in (
            ("examples", entry.examples, len(rows)),
            ("left_out", entry.left_out, int(selected.sum())),
            ("clips", entry.clips, int(clips.sum())),
            ("seconds", entry.seconds, seconds),
        ):
            if not np.isclose(recorded, found, rtol=1e-9, atol=0):
                yield (
                    f"{METADATA}: split {split}: {name} is {recorded}; {WINDOWS} and "
                    f"{MANIFEST} have {found}"
                )
