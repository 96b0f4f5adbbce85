"""The tables of a data set as arrays: its clips, and which windows they gave."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.folders import MANIFEST, METADATA, WINDOWS
from beam_pipeline.dataset.metadata import Metadata, open_metadata
from beam_pipeline.dataset.tables import clips_of
from beam_pipeline.examples.windows import WindowPlan, count_windows
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.permutation import Integers
from beam_pipeline.planning.clips import Clip, copies_in
from beam_pipeline.read.table import belonging_together, read_tables
from beam_pipeline.recipe.recipe import AT_GRID, Recipe

# Frames beyond this are in no file; below it, no product of them leaves 64 bits.
_MOST = 1 << 48

_INTEGERS_OF_CLIPS = (
    "input", "file", "index", "start", "frames", "sample_rate_hz", "channels",
    "native_frames", "native_sample_rate_hz", "first_index", "windows",
)  # fmt: skip
# A field of a clip -> its column in the manifest.
CLIP_COLUMNS = {
    "row": "index", "source": "input", "filepath": "path", "label": "class",
    "native_rate_hz": "native_sample_rate_hz", "examples": "windows",
    **{name: name for name in (
        "split", "native_frames", "channels", "format", "subtype", "sample_rate_hz",
        "frames", "start", "file",
    )},
}  # fmt: skip
_TEXTS_OF_CLIPS = ("path", "split", "format", "subtype")


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
        See :func:`beam_pipeline.dataset.tables.write_windows`.
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
    tables = read_tables(folder, metadata, bytes_sha256(open_metadata(folder)))
    assert tables is not None  # there is a recipe
    windows, manifest = tables
    with belonging_together(folder):
        columns = {name: _values(manifest, name) for name in manifest.column_names}
        for name in _INTEGERS_OF_CLIPS:
            columns[name] = _integers(manifest, name, MANIFEST)
        for name in _TEXTS_OF_CLIPS:
            if not all(isinstance(text, str) for text in columns.get(name, [None])):
                raise ValueError(f"{MANIFEST} has no column {name} of texts")
        if (columns["sample_rate_hz"] == 0).any():
            raise ValueError(f"{MANIFEST} has a clip with sample_rate_hz 0")
        start, frames, copy = (
            _integers(windows, name, WINDOWS) for name in ("start", "frames", "copy")
        )
        clip = clips_of(windows, manifest)
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
    column = _values(table, name) if name in table.column_names else None
    if column is None or column.dtype.kind not in "iu":
        raise ValueError(f"{file} has no column {name} of whole numbers")
    if len(column) and not 0 <= int(column.min()) <= int(column.max()) <= _MOST:
        raise ValueError(f"{file} has a column {name} that no data set has")
    return np.asarray(column, np.int64)
