"""Windows that are placed by what happens in a clip, instead of on a grid.

::

    events          |---owl---|        |tit|      |--owl--|
    at events         [ window ]    [ window ]   [ window ]     around the middle
    at onsets       [ window ]         [ window ] [ window ]    from the start

    passages        |-------------|      ||        |  |         of a placement
    at passages     [ window ]        [ window ][ window ]      each like a clip

Events are known before any audio is. Passages are known when the clip has been decoded
once, before the plan. So the plan counts these windows exactly, too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.examples.windows import WindowPlan, count_windows, window_starts
from beam_pipeline.inputs.event_files import Event
from beam_pipeline.recipe.window_section import AT_ONSETS
from beam_pipeline.transforms.base import seconds_to_frames

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


def cover_passages(
    passages: npt.NDArray[np.int64], frames: int, plan: WindowPlan
) -> PlacedWindows:
    """Returns the windows of a clip that has passages.

    The windows of a passage are those of a clip of its length, with the plan's hop and
    tail. A passage that is shorter than a window has one, around its middle::

        start = (begin + end) // 2 - length // 2

    A window is never padded where the clip goes on: with ``tail="pad"``, the last one
    of a passage holds what follows. Windows that would begin before the clip, or end
    after it, are moved into it. Those that would begin at the same frame are one.

    Parameters
    ----------
    passages : numpy.ndarray, shape (n, 2), int64
        The first frame of each passage in the clip, and the frame after its last one.
    frames : int
        The clip's length.
    plan : WindowPlan
        The windows of the recipe in the clip.
    """
    inside = replace(plan, least=0, most=None, short_clips="reject")
    last = max(0, frames - plan.length)
    starts: set[int] = set()
    for begin, end in passages.tolist():
        if end - begin < plan.length:
            found = np.array([(begin + end) // 2 - plan.length // 2])
        else:
            count = count_windows(end - begin, inside)
            found = begin + window_starts(end - begin, inside, 0, count)
        starts.update(np.clip(found, 0, last).tolist())
    return PlacedWindows(0, tuple(sorted(starts)))
