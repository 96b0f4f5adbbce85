"""Where an example comes from: its file, and the stretch of it."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.errors import InputError
from beam_pipeline.inputs.columns import FILE_SHA256
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.read.window_table import check_clips
from beam_pipeline.storage import files

Given = str | os.PathLike[str] | Sequence[str | os.PathLike[str]]


def input_roots(input: Given, table: Any) -> list[str]:
    """Returns the root of each input of a data set.

    Parameters
    ----------
    table : pyarrow.Table
        With the columns ``path`` and ``input``.

    Raises
    ------
    InputError
        If there are fewer inputs than the data set has, or the first clip of one is not
        there.
    """
    roots = [entry.root for entry in resolve_inputs(files.path_texts("input", input))]
    numbers = table["input"].to_numpy()
    needed = int(numbers.max(initial=0)) + 1
    if needed > len(roots):
        raise InputError(
            f"The clips are from {needed} inputs, but `input` names {len(roots)}. "
            "Give the same as for `record`, in the same order."
        )
    for number, root in enumerate(roots[:needed]):
        rows = np.flatnonzero(numbers == number)
        if not len(rows):
            continue
        path = files.join(root, table["path"][int(rows[0])].as_py())
        if not files.exists(path):
            raise InputError(
                f"{path} does not exist, but a clip of the data set has this name. "
                "Give as `input` what the data set was recorded from."
            )
    return roots


class Source(NamedTuple):
    """Where an example comes from.

    ``soundfile.read(file, frames, first_frame, dtype="float32")`` reads its samples.
    They are those of the window if the recipe neither resamples nor changes them. If it
    resamples, these are all frames that the window touches.

    Attributes
    ----------
    path : str
        The file, relative to its input.
    input : int
        The number of the input in its run, from 0.
    file : str or None
        The path of the file; None if no ``input`` was named.
    start_s, end_s : float
        The stretch in the file, in seconds. Zeros after the clip's end do not count.
    first_frame, frames : int
        The stretch in frames of the file, from 0.
    sample_rate_hz, channels : int
        Those of the file.
    channel : int or None
        The channel that was taken, from 0; None: all, or their mean.
    copy : int
        0: the window as it is; k: its k-th augmented copy.
    sha256 : str or None
        The SHA-256 of the file, in hexadecimal, if the recipe has ``hash_files``.
    """

    path: str
    input: int
    file: str | None
    start_s: float
    end_s: float
    first_frame: int
    frames: int
    sample_rate_hz: int
    channels: int
    channel: int | None
    copy: int
    sha256: str | None


def make_source(folder: str, table: Any, number: int, input: Given | None) -> Source:
    """Returns where the example in a row of a data set's table comes from."""
    check_clips(table, folder)
    (row,) = table.slice(number, 1).to_pylist()
    path = None
    if input is not None:
        roots = input_roots(input, table)
        path = files.join(roots[row["input"]], row["path"])
    same = ("path", "input", "start_s", "end_s", "channels", "channel", "copy")
    return Source(
        **{name: row[name] for name in same},
        file=path,
        first_frame=row["native_start"],
        frames=row["native_frames"],
        sample_rate_hz=row["native_sample_rate_hz"],
        sha256=row[FILE_SHA256],
    )
