"""Columns that say which part of its file a clip is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import NamedTuple

from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.inputs.column_types import ColumnType
from beam_pipeline.inputs.column_values import optional_number
from beam_pipeline.inputs.own_manifest import is_own_manifest, part_in_seconds
from beam_pipeline.inputs.tables import Row

# NeMo's manifests name the path so, and then mean seconds by `offset` and `duration`.
_NEMO_PATH = "audio_filepath"

# What people call the start and the end of a part, in units that only they know.
_LIKE_STARTS = {"start", "begin", "onset", "offset", "from", "start_time", "begin_time",
                "time_start", "t_start", "tmin", "xmin"}  # fmt: skip
_LIKE_ENDS = {"end", "stop", "offset", "duration", "length", "to", "end_time",
              "stop_time", "time_end", "t_end", "tmax", "xmax"}  # fmt: skip


_OF_PART = (
    "start", "frames", "sample_rate_hz", "native_frames", "native_sample_rate_hz",
)  # fmt: skip


class Part(NamedTuple):
    """A part of a file: see :class:`beam_pipeline.inputs.rows.SourceRow`."""

    offset_s: float = 0.0
    duration_s: float | None = None
    channel: int | None = None


WHOLE_FILE = Part()


@dataclass(frozen=True)
class PartColumns:
    """The columns of a table that say which part of its file each clip is.

    Each is None if the table has no such column. A part has a duration or an end. With
    ``in_frames``, the table is the manifest of a data set, in frames of its rate.
    """

    start: str | None = None
    duration: str | None = None
    end: str | None = None
    channel: str | None = None
    in_frames: bool = False

    @classmethod
    def of(cls, names: Sequence[str], path: str | None, where: str) -> PartColumns:
        """Returns those among the columns of a table whose path column is ``path``.

        Raises
        ------
        RecipeError
            If two columns say the same.
        """
        if is_own_manifest(names):
            return cls("start", "frames", channel="channel", in_frames=True)
        nemo = path == _NEMO_PATH

        def one(*usual: str) -> str | None:
            found = [name for name in usual if name in names]
            if len(found) > 1:
                raise RecipeError(
                    "columns",
                    f"{where} has the columns {' and '.join(found)}, but only one of "
                    "them can say which part of its file a clip is; rename or remove "
                    "the other",
                )
            return found[0] if found else None

        start = one("offset_s", "start_s", *["offset"] * nemo)
        length = one("duration_s", "end_s", *["duration"] * nemo)
        ends = length == "end_s"
        return cls(
            start,
            None if ends else length,
            length if ends else None,
            one("channel"),
        )

    def names(self) -> set[str]:
        """Returns the names of the columns."""
        return {name for name in astuple(self) if isinstance(name, str)}

    def read(self, values: Row) -> Part:
        """Returns the part of a row.

        Raises
        ------
        ValueError
            If there is no such part.
        """
        if self.in_frames:
            numbers = [_whole(values, name) for name in _OF_PART]
            channel = _number(values, self.channel)
            return Part(
                *part_in_seconds(*numbers), None if channel is None else int(channel)
            )
        start_s = _number(values, self.start)
        duration_s = _number(values, self.duration)
        end_s = _number(values, self.end)
        channel = _number(values, self.channel)
        if start_s is not None and start_s < 0:
            raise ValueError(f"has {self.start} {start_s:g}, which is negative")
        if duration_s is not None and duration_s <= 0:
            raise ValueError(
                f"has {self.duration} {duration_s:g}, which is not positive"
            )
        if end_s is not None:
            if end_s <= (start_s or 0.0):
                raise ValueError(
                    f"has {self.end} {end_s:g}, but it starts at {start_s or 0:g}"
                )
            duration_s = end_s - (start_s or 0.0)
        if channel is not None and (channel < 0 or channel != int(channel)):
            raise ValueError(
                f"has channel {channel:g}, which is not a whole number, 0 or more"
            )
        return Part(
            start_s or 0.0, duration_s, None if channel is None else int(channel)
        )


def _number(values: Row, name: str | None) -> float | None:
    return None if name is None else optional_number(values, name)


def _whole(values: Row, name: str) -> int:
    number = optional_number(values, name)
    if number is None or number < (name != "start") or number != int(number):
        raise ValueError(
            f"has {values.get(name)!r} in {name}, but needs a whole number"
        )
    return int(number)


def check_no_parts(
    extra: Sequence[str], types: Mapping[str, ColumnType], where: str
) -> None:
    """Refuses columns of data that probably say which part of its file a clip is.

    Without this, each row would be recorded as its whole file.

    Raises
    ------
    InputError
        If one has the name of a start and another that of an end or a duration, and
        both have numbers.
    """
    numbers = [name for name in extra if types[name].is_one_number]
    starts = [name for name in numbers if name.lower() in _LIKE_STARTS]
    ends = [name for name in numbers if name.lower() in _LIKE_ENDS]
    for start in starts:
        for end in ends:
            if start != end:
                kind = "duration_s" if end in ("duration", "length") else "end_s"
                raise InputError(
                    f"{where} has the columns {start} and {end}. If they say which "
                    "part of its file each clip is, in seconds, name them start_s and "
                    f"{kind}. If they are data for the examples, list them in "
                    "`columns`, with all others that examples need. Without either, "
                    "each row would be its whole file."
                )
