"""The tables of a data set as arrays: its clips, the windows they gave, and sums."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.arrays import STRING
from beam_pipeline.dataset.folders import MANIFEST, METADATA, WINDOWS
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.side_by_side import open_data_sets
from beam_pipeline.dataset.tables import (
    belonging_together,
    read_table,
)
from beam_pipeline.examples.windows import WindowPlan, count_windows
from beam_pipeline.inputs.columns import MANIFEST_FIELDS, NULLABLE_FIELDS
from beam_pipeline.permutation import Integers
from beam_pipeline.planning.clips import Clip, copies_in
from beam_pipeline.planning.summary import CLIPS_NAMED
from beam_pipeline.read.window_table import join_tables
from beam_pipeline.recipe.recipe import AT_GRID, Recipe

# Frames beyond this are in no file; below it, no product of them leaves 64 bits.
_MOST = 1 << 48

# A field of a clip -> its column in the manifest.
CLIP_COLUMNS = {
    field: column
    for column, (_, field) in MANIFEST_FIELDS.items()
    if field not in ("", "group", "channel")
} | {"examples": "windows"}


@dataclass(frozen=True)
class RecordedWindows:
    """The windows of a data set, in the order of its table.

    Attributes
    ----------
    folder : str
        Of the data set, absolute.
    metadata : Metadata
        With a recipe.
    manifest : mapping
        Its columns as numpy arrays; texts are objects.
    clip : numpy.ndarray, shape (windows,)
        The row of the manifest of each window.
    start, frames, copy : numpy.ndarray, shape (windows,)
        See :func:`beam_pipeline.write.window_rows.table_columns`.
    kept : numpy.ndarray of bool, shape (windows,)
        Whether the window is in the data set.
    """

    folder: str
    metadata: Metadata
    manifest: Mapping[str, Any]
    clip: Integers
    start: Integers
    frames: Integers
    copy: Integers
    kept: npt.NDArray[np.bool_]

    @cached_property
    def _clip_by_clip(self) -> tuple[Integers, Integers]:
        """The windows in the order of the clips, and where those of each end."""
        ordered: Integers = np.arange(len(self.clip))
        if (self.clip[1:] < self.clip[:-1]).any():  # examples are mixed
            ordered = np.lexsort((self.copy, self.start, self.clip))
        return ordered, np.cumsum(self.manifest["windows"])

    def of_clip(self, row: int) -> Integers:
        """Returns the rows of the windows of a clip, in their order."""
        ordered, ends = self._clip_by_clip
        return ordered[ends[row] - self.manifest["windows"][row] : ends[row]]

    def of_split(self, split: str) -> Integers:
        """Returns the rows of the windows of a split that are in the data set."""
        if not len(self.clip):
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.kept & (self.manifest["split"] == split)[self.clip])

    def have_windows(self, recipe: Recipe) -> npt.NDArray[np.bool_]:
        """Returns which clips the recipe gives windows, also beyond ``num_elems``."""
        found: npt.NDArray[np.bool_] = self.manifest["windows"] > 0
        if recipe.num_elems is not None:
            for row in np.flatnonzero(~found).tolist():
                found[row] = self.clip_at(row, recipe).examples > 0
        return found

    def clip_at(self, row: int, recipe: Recipe) -> Clip:
        """Returns the clip of a row, as far as the tables have it.

        It has all examples that the recipe gives it, also those beyond ``num_elems``.
        """
        values = {
            name: np.asarray(self.manifest[column][row]).item()
            for name, column in CLIP_COLUMNS.items()
        }
        clip = Clip(**values)
        if recipe.num_elems is None or recipe.windows_at != AT_GRID:
            return clip
        plan = WindowPlan.of(recipe, clip.sample_rate_hz, clip.frames)
        each = 1 + copies_in(recipe.copies, clip.split)
        return clip._replace(examples=count_windows(clip.frames, plan) * each)


def read_recorded(folder: str, metadata: Metadata) -> RecordedWindows:
    """Returns the windows of a data set of audio files, from its tables.

    Raises
    ------
    InputError
        If they are missing, are damaged or do not belong together.
    """
    tables = join_tables(open_data_sets(folder))
    assert tables is not None  # there is a recipe
    windows, manifest, clip, _ = tables
    with belonging_together(folder):
        columns = {name: _values(manifest, name) for name in manifest.column_names}
        for name, (dtype, _) in MANIFEST_FIELDS.items():
            if name in NULLABLE_FIELDS:
                continue
            if dtype != STRING:
                columns[name] = _integers(manifest, name, MANIFEST)
            elif not all(isinstance(text, str) for text in columns[name]):
                raise ValueError(f"{MANIFEST} has no column {name} of texts")
        if (columns["sample_rate_hz"] == 0).any():
            raise ValueError(f"{MANIFEST} has a clip with sample_rate_hz 0")
        start, frames, copy = (
            _integers(windows, name, WINDOWS) for name in ("start", "frames", "copy")
        )
        kept = windows["left_out"].is_null().to_numpy()
        recorded = RecordedWindows(
            folder, metadata, columns, clip, start, frames, copy, kept
        )
        for split, entry in metadata.splits.items():
            rows = len(recorded.of_split(split))
            if rows != entry.examples:
                raise ValueError(
                    f"{METADATA}: split {split}: examples is {entry.examples}; "
                    f"{WINDOWS} and {MANIFEST} have {rows}"
                )
        return recorded


def _values(table: Any, name: str) -> Any:
    return table[name].combine_chunks().to_numpy(zero_copy_only=False)


def _integers(table: Any, name: str, file: str) -> Integers:
    """Returns a column of whole numbers, none of which is missing or negative."""
    column = _values(table, name)
    if column.dtype.kind not in "iu":
        raise ValueError(f"{file} has no column {name} of whole numbers")
    if len(column) and not 0 <= int(column.min()) <= int(column.max()) <= _MOST:
        raise ValueError(f"{file} has a column {name} that no data set has")
    return np.asarray(column, np.int64)


QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)


@dataclass(frozen=True)
class WindowSummary:
    """What the planned windows of a split are.

    Attributes
    ----------
    windows : int
        All of them, with their copies.
    left_out : mapping
        Reason to how many are not in the data set, as in ``windows.parquet``.
    clips_without : int
        The clips of which no window is in the data set.
    levels : mapping
        Quantile to the level of that rank, in dB, of all windows that were read, also
        of those that were left out; copies do not count. Empty without windows.
    """

    windows: int
    left_out: Mapping[str, int]
    clips_without: int
    levels: Mapping[float, float]


def summarise_windows(folder: str, metadata: Metadata) -> dict[str, WindowSummary]:
    """Returns a summary of the windows of each split.

    Returns
    -------
    dict
        Empty if the data set has no table of windows.

    Raises
    ------
    InputError
        If a table cannot be read, or does not fit the other.
    """
    tables = join_tables(open_data_sets(folder))
    if tables is None:
        return {}
    windows, manifest, clips, _ = tables
    split_of = manifest["split"].to_numpy(zero_copy_only=False)
    found = {}
    for name in metadata.splits:
        of_split = np.flatnonzero((split_of == name)[clips])
        rows, of_clip = windows.take(of_split), clips[of_split]
        left_out = Counter(rows["left_out"].drop_null().to_pylist())
        held = np.unique(of_clip[rows["left_out"].is_null().to_numpy()])
        levels = rows.filter(np.equal(rows["copy"], 0))["level_db"].drop_null()
        found[name] = WindowSummary(
            len(rows),
            left_out,
            len(np.unique(of_clip)) - len(held),
            _quantiles(np.sort(levels.to_numpy())),
        )
    return found


def clips_left_out(folder: str) -> list[str]:
    """Returns the files of the first clips for which no window was planned."""
    clips = read_table(folder, MANIFEST, ["path", "windows"])
    paths = clips.filter(np.equal(clips["windows"].to_numpy(), 0))["path"]
    return sorted(paths[:CLIPS_NAMED].to_pylist())


def _quantiles(levels: npt.NDArray[Any]) -> dict[float, float]:
    """Returns the levels of some ranks, from levels in their order."""
    ranks = {q: max(1, int(np.ceil(q * len(levels)))) for q in QUANTILES}
    return {q: float(levels[rank - 1]) for q, rank in ranks.items() if len(levels)}
