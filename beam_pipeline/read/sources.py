"""Where examples come from: the file, and the stretch of it, in its own frames."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from beam_pipeline.errors import InputError
from beam_pipeline.inputs.own_manifest import FILE_SHA256
from beam_pipeline.read.choices import check_number
from beam_pipeline.read.source_columns import (
    NATIVE_FRAMES,
    NATIVE_RATE,
    NATIVE_START,
)
from beam_pipeline.storage import files

if TYPE_CHECKING:
    from beam_pipeline.read.input_roots import Given
    from beam_pipeline.read.split_source import SplitSource


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


class SourceMethods:
    """What :class:`.Records` tells of the origin of its examples."""

    _source: SplitSource
    numbers: Any

    def source(self, index: int, input: Given | None = None) -> Source:
        """Returns where an example comes from, without reading any shard.

        Parameters
        ----------
        input : path or sequence of paths, optional
            What the data set was recorded from, as for ``record``; then ``file`` is the
            path of the file. A data set does not store it.

        Raises
        ------
        IndexError
            If there is no such example.
        InputError
            If the data set was not recorded from audio files, or the inputs are not
            those of it.
        """
        check_number("index", index, None)
        number = int(self.numbers[index])
        return make_source(self._source, number, input)


def make_source(source: SplitSource, number: int, input: Given | None) -> Source:
    """Returns where the example with a number in its split comes from."""
    from beam_pipeline.read.input_roots import input_roots

    table = source.sources()
    if "path" not in table.column_names:
        raise InputError(
            f"{source.folder} was not recorded from audio files, so its examples come "
            "from no file."
        )
    (row,) = table.slice(number, 1).to_pylist()
    path = None
    if input is not None:
        roots = input_roots(input, table)
        path = files.join(roots[row["input"]], row["path"])
    return Source(
        row["path"],
        row["input"],
        path,
        row["start_s"],
        row["end_s"],
        row[NATIVE_START],
        row[NATIVE_FRAMES],
        row[NATIVE_RATE],
        row["channels"],
        row["channel"],
        row["copy"],
        row[FILE_SHA256],
    )
