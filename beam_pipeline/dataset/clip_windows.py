"""Which window belongs to which clip of the manifest, and how long they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from beam_pipeline.dataset.output_folder import MANIFEST, WINDOWS
from beam_pipeline.errors import InputError
from beam_pipeline.permutation import Integers
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.parquet import read_parquet

CLIP = "clip"  # the column of mixed examples


def with_clips(columns: Sequence[str], recipe: Recipe | None) -> list[str]:
    """Returns columns of a table of windows, and the one that :func:`clips_of` needs.

    Parameters
    ----------
    columns : sequence of str
    recipe : Recipe or None
        That of the data set.
    """
    are_mixed = recipe is not None and recipe.shards.are_mixed
    return [*columns, *([CLIP] if are_mixed else [])]


def clips_of(windows: Any, manifest: Any) -> Integers:
    """Returns the row of the manifest of each window.

    Parameters
    ----------
    windows : pyarrow.Table
        With ``clip`` if the examples are mixed.
    manifest : pyarrow.Table
        With ``windows``, and with ``index`` if the examples are mixed.

    Raises
    ------
    ValueError
        If the tables do not belong together.
    """
    counts = manifest["windows"].to_numpy()
    if counts.sum() != len(windows):
        raise ValueError(
            f"{WINDOWS} has {len(windows)} rows, but the clips in {MANIFEST} have "
            f"{int(counts.sum())} windows"
        )
    if CLIP not in windows.column_names or not len(windows):
        return np.repeat(np.arange(len(manifest)), counts)
    numbers, found = manifest["index"].to_numpy(), windows[CLIP].to_numpy()
    order = np.argsort(numbers, kind="stable")
    at = np.searchsorted(numbers, found, sorter=order)
    clips: Integers = order[np.minimum(at, len(order) - 1)]
    if (numbers[clips] != found).any() or (
        np.bincount(clips, minlength=len(counts)) != counts
    ).any():
        raise ValueError(f"{WINDOWS} has windows of other clips than {MANIFEST}")
    return clips


def clip_by_clip(windows: Any, clips: Integers) -> Integers:
    """Returns the rows of windows in the order of the clips, and of their windows.

    Parameters
    ----------
    windows : pyarrow.Table
    clips : numpy.ndarray, shape (windows,), int64
        What :func:`clips_of` returns.
    """
    if CLIP not in windows.column_names:
        return np.arange(len(windows))
    columns = (windows[name].to_numpy() for name in ("copy", "start"))
    return np.lexsort((*columns, clips))


def read_columns(folder: str, name: str, columns: Sequence[str]) -> Any:
    """Returns some columns of the manifest, or of the table of windows.

    Raises
    ------
    InputError
        If the file cannot be read.
    """
    path = files.join(folder, name)
    try:
        return read_parquet(path, columns).select(list(columns))
    except (OSError, ValueError, KeyError) as error:
        raise InputError(
            f"{path} cannot be read: {error}. Restore it, or record the data set again."
        ) from error
