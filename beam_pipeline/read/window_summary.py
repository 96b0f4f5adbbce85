"""What the windows of each split are: kept, left out, how loud, how much audio.

The table of windows is read one group of rows at a time, so a summary of a billion
windows needs the memory of the clips alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.folders import MANIFEST, WINDOWS
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.tables import (
    clip_by_clip,
    clips_of,
    read_table,
    with_clips,
)
from beam_pipeline.errors import InputError
from beam_pipeline.permutation import Integers
from beam_pipeline.planning.summary import CLIPS_NAMED
from beam_pipeline.read.table import belonging_together
from beam_pipeline.storage import files
from beam_pipeline.storage.pages import read_row_groups
from beam_pipeline.write.statistics import LEFT_OUT

QUANTILES = (0.01, 0.05, 0.25, 0.5, 0.75, 0.95, 0.99)

# Levels in hundredths of a decibel: silence, then all that float32 can hold.
_LEAST, _MOST = -100_000, 100_000


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
    audio_s : float
        Seconds of audio in the examples. Where windows overlap, a second counts once;
        padding and copies do not count.
    levels : mapping
        Quantile to the level of that rank, in dB, of all windows that were read, also
        of those that were left out; copies do not count. Empty without windows.
    """

    windows: int
    left_out: Mapping[str, int]
    clips_without: int
    audio_s: float
    levels: Mapping[float, float]


def summarise_windows(folder: str, metadata: Metadata) -> dict[str, WindowSummary]:
    """Returns a summary of the windows of each split.

    Returns
    -------
    dict
        Empty if the data set has no table of windows: it was not recorded from audio
        files.

    Raises
    ------
    InputError
        If a table cannot be read, or does not fit the other.
    """
    if metadata.recipe is None or not files.exists(files.join(folder, WINDOWS)):
        return {}
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = ["split", "windows", "sample_rate_hz", "index"]
    clips = read_table(folder, MANIFEST, columns)
    planned = clips["windows"].to_numpy()
    ends, total = np.cumsum(planned), int(planned.sum())
    names, reasons = [*metadata.splits], LEFT_OUT[1:]
    split_of = pc.index_in(clips["split"].cast(pa.string()), pa.array(names))
    split_of = split_of.fill_null(len(names)).to_numpy()
    rates, rate_of = np.unique(clips["sample_rate_hz"], return_inverse=True)
    # Counts by split: by reason, of which the last is none; by rate; by level.
    many = len(names) + 1  # the last is that of clips in no split of the metadata
    left_out = np.zeros((many, len(reasons) + 1), np.int64)
    frames = np.zeros((many, len(rates)), np.int64)
    levels = np.zeros((many, _MOST - _LEAST + 1), np.int64)
    held = np.zeros(len(clips), np.bool_)
    first, last = 0, (-1, 0)
    for rows in _read_windows(folder, metadata, clips):
        clip = np.searchsorted(ends, np.arange(first, first + len(rows)), "right")
        first += len(rows)
        if first > total:
            break
        reason = pc.index_in(rows["left_out"].cast(pa.string()), pa.array(reasons))
        reason = reason.fill_null(len(reasons)).to_numpy(zero_copy_only=False)
        kept = reason == len(reasons)
        new, last = _new_frames(rows, clip, kept, last)
        held[clip[kept]] = True
        split = split_of[clip]
        np.add.at(left_out, (split, reason), 1)
        np.add.at(frames, (split, rate_of[clip]), new)
        level = rows["level_db"].to_numpy(zero_copy_only=False).astype(np.float64)
        once = (rows["copy"].to_numpy() == 0) & ~np.isnan(level)
        steps = np.rint(np.clip(100 * level[once], _LEAST, _MOST)).astype(np.int64)
        np.add.at(levels, (split[once], steps - _LEAST), 1)
    with belonging_together(folder):
        if first != total:
            raise ValueError(
                f"{WINDOWS} has {first} rows or more, but the clips in {MANIFEST} have "
                f"{total} windows"
            )
    without = np.bincount(split_of[~held & (planned > 0)], minlength=many)
    return {
        name: WindowSummary(
            int(left_out[k].sum()),
            {r: int(n) for r, n in zip(reasons, left_out[k], strict=False) if n},
            int(without[k]),
            float((frames[k] / rates).sum()),
            _quantiles(levels[k]),
        )
        for k, name in enumerate(names)
    }


def clips_left_out(folder: str) -> list[str]:
    """Returns the files of the first clips for which no window was planned."""
    clips = read_table(folder, MANIFEST, ["path", "windows"])
    paths = clips.filter(np.equal(clips["windows"].to_numpy(), 0))["path"]
    return sorted(paths[:CLIPS_NAMED].to_pylist())


def _read_windows(folder: str, metadata: Metadata, clips: Any) -> Iterator[Any]:
    """Yields the windows of the data set, clip by clip, some rows at a time.

    Those of mixed examples are sorted first, all of them at once.
    """
    columns = ["start", "frames", "copy", "level_db", "left_out"]
    if metadata.recipe is not None and metadata.recipe.examples_are_mixed:
        columns = with_clips(columns, metadata.recipe)
        windows = read_table(folder, WINDOWS, columns)
        with belonging_together(folder):
            rows = clip_by_clip(windows, clips_of(windows, clips))
        yield windows.take(rows).combine_chunks()
        return
    path = files.join(folder, WINDOWS)
    try:
        for rows in read_row_groups(path, columns):
            yield rows.select(columns).combine_chunks()
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} cannot be read: {error}. Restore it, or record the data set again."
        ) from error


def _new_frames(
    rows: Any, clip: Integers, kept: npt.NDArray[np.bool_], last: tuple[int, int]
) -> tuple[Integers, tuple[int, int]]:
    """Returns how many frames each window has that no kept window before it has.

    ``last`` is the clip of the last kept window of the rows before, and its end. The
    starts and the ends of a clip's windows ascend.
    """
    new = np.zeros(len(rows), np.int64)
    if not kept.any():
        return new, last
    starts = rows["start"].to_numpy()[kept]
    ends = starts + rows["frames"].to_numpy()[kept]
    clips = clip[kept]
    before = np.concatenate([[last[1]], ends[:-1]])
    same = np.concatenate([[last[0]], clips[:-1]]) == clips
    begins = np.where(same, np.maximum(starts, before), starts)
    new[kept] = np.maximum(ends - begins, 0)
    return new, (int(clips[-1]), int(ends[-1]))


def _quantiles(levels: Integers) -> dict[float, float]:
    """Returns the levels of some ranks; the least level stands for silence."""
    total = int(levels.sum())
    if not total:
        return {}
    up_to = np.cumsum(levels)
    found = {}
    for q in QUANTILES:
        step = int(np.searchsorted(up_to, max(1, int(np.ceil(q * total)))))
        found[q] = (step + _LEAST) / 100 if step else -np.inf
    return found
