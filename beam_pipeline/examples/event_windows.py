"""Windows that are placed by the events of a clip, instead of on a grid.

::

    events          |---owl---|        |tit|      |--owl--|
    at events         [ window ]    [ window ]   [ window ]     around the middle
    at onsets       [ window ]         [ window ] [ window ]    from the start

Events are known before any audio is, so the plan counts these windows exactly, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.inputs.event_files import Event
from beam_pipeline.recipe.window_section import AT_ONSETS
from beam_pipeline.seconds import seconds_to_frames

# Why a clip is left out.
NO_EVENT = "no_event"


class PlacedWindows(NamedTuple):
    """Some windows of a clip: the number of the first one, and all of their starts."""

    first: int
    starts: tuple[int, ...]

    def of(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Returns the starts of windows ``first .. first + count - 1`` of the clip."""
        begin = first - self.first
        return np.array(self.starts[begin : begin + count], np.int64)

    def narrowed(self, first: int, count: int) -> PlacedWindows:
        """Returns these windows alone."""
        begin = first - self.first
        return PlacedWindows(first, self.starts[begin : begin + count])


def place_windows(
    events: Iterable[Event],
    at: str,
    length: int,
    part: tuple[int, int],
    total: int,
    sample_rate_hz: int,
) -> PlacedWindows:
    """Returns the windows of a clip, one for each of its events.

    ::

        anchor = (start + min(end, total)) / 2                  at events
        anchor = start                                          at onsets
        begin  = anchor - length // 2, or anchor                before it is moved
        start  = clip(begin, 0, frames of the part - length)    a window is in its clip

    An event belongs to the part of the file that its anchor is in. Windows that would
    begin at the same frame are one window.

    Parameters
    ----------
    events : iterable of Event
        In seconds from the start of the file.
    at : str
        ``events`` or ``onsets``.
    length : int
        The frames of a window.
    part : (int, int)
        The clip's first frame in its file, and the frame after its last one.
    total : int
        The frames of the file. All frames are at ``sample_rate_hz``.
    """
    first, stop = part
    before = 0 if at == AT_ONSETS else length // 2
    last = max(0, stop - first - length)
    starts = set()
    for event in events:
        anchor_s = event.start_s
        if at != AT_ONSETS:
            end_s = min(event.end_s, total / sample_rate_hz)
            anchor_s = (anchor_s + max(anchor_s, end_s)) / 2
        anchor = min(seconds_to_frames(anchor_s, sample_rate_hz), total - 1)
        if first <= anchor < stop:
            starts.add(min(max(0, anchor - before - first), last))
    return PlacedWindows(0, tuple(sorted(starts)))
