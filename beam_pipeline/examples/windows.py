"""Windows: counts how many a clip has, finds their starts, and cuts them out.

A clip has no windows if its length is not one that the recipe takes (``min_seconds``,
``max_seconds``). It is left out then, which is no fault of the clip: see
:func:`too_short_or_long`.

Windows may also be placed by what happens in a clip, instead of on a grid::

    events          |---owl---|        |tit|      |--owl--|
    at events         [ window ]    [ window ]   [ window ]     around the middle
    at onsets       [ window ]         [ window ] [ window ]    from the start

    passages        |-------------|      ||        |  |         of a placement
    at passages     [ window ]        [ window ][ window ]      each like a clip

Events are known before any audio is. Passages are known when the clip has been decoded
once, before the plan. So the plan counts these windows exactly, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from beam_pipeline.arrays import FloatArray, Integers
from beam_pipeline.errors import RecipeError
from beam_pipeline.permutation import hash64
from beam_pipeline.recipe.recipe import AT_ONSETS, Windows
from beam_pipeline.transforms.base import seconds_to_frames

if TYPE_CHECKING:
    from beam_pipeline.inputs.event_files import Event

# Why a clip is left out.
TOO_SHORT, TOO_LONG = "too_short", "too_long"


@dataclass(frozen=True, slots=True)
class WindowPlan:
    """Windows of ``length`` frames that start every ``hop`` frames.

    Clips with fewer than ``least`` or more than ``most`` frames are left out;
    ``short_clips`` is what becomes of those with fewer than ``length``, by default the
    same as of a tail.
    """

    length: int
    hop: int
    tail: str = "drop"
    max_windows: int | None = None
    random_starts: bool = False
    least: int = 0
    most: int | None = None
    short_clips: str | None = None

    @classmethod
    def of(cls, windows: Windows, sample_rate_hz: int, frames: int) -> WindowPlan:
        """Returns the windows of a recipe in a clip.

        Parameters
        ----------
        sample_rate_hz, frames : int
            The clip's output rate, and its length. The length decides only if a window
            is a whole clip.

        Raises
        ------
        RecipeError
            If ``win_seconds`` or ``hop_seconds`` is less than a frame at this rate.
        """
        least, most = (
            None if seconds is None else seconds_to_frames(seconds, sample_rate_hz)
            for seconds in (windows.min_seconds, windows.max_seconds)
        )
        if windows.windows_are_clips:
            return cls(frames, frames, least=least or 0, most=most)
        asked = windows.win_len
        length = int(asked) if asked else _some_frames(windows, "win", sample_rate_hz)
        hop = windows.hop or length
        if windows.hop_seconds is not None:
            hop = _some_frames(windows, "hop", sample_rate_hz)
        return cls(
            length,
            hop,
            windows.tail,
            windows.max_windows,
            windows.random_starts,
            least or 0,
            most,
            windows.short_clips or (None if windows.tail == "pad" else "skip"),
        )


class WindowPlans:
    """The windows of a recipe in its clips; clips of one rate share a plan."""

    def __init__(self, windows: Windows):
        self._windows = windows
        self._at: dict[int, WindowPlan] = {}

    def of(self, sample_rate_hz: int, frames: int) -> WindowPlan:
        """Returns :meth:`WindowPlan.of` a clip of this rate and length."""
        if self._windows.windows_are_clips:
            return WindowPlan.of(self._windows, sample_rate_hz, frames)
        if sample_rate_hz not in self._at:
            plan = WindowPlan.of(self._windows, sample_rate_hz, frames)
            self._at[sample_rate_hz] = plan
        return self._at[sample_rate_hz]


def _some_frames(windows: Windows, name: str, sample_rate_hz: int) -> int:
    """Returns ``win_seconds`` or ``hop_seconds`` in frames, at least one."""
    seconds = getattr(windows, f"{name}_seconds")
    frames = seconds_to_frames(seconds, sample_rate_hz)
    if frames < 1:
        raise RecipeError(
            f"{name}_seconds",
            f"is {seconds * sample_rate_hz:.3g} frames at {sample_rate_hz} Hz, which "
            f"rounds to 0; give at least one frame, {1 / sample_rate_hz:.3g} s",
            seconds,
        )
    return frames


def too_short_or_long(frames: int, plan: WindowPlan) -> str | None:
    """Returns why a clip of ``frames`` frames is left out; None if it is not.

    If a clip is both too long and too short, it counts as too long.
    """
    if plan.most is not None and frames > plan.most:
        return TOO_LONG
    skipped = plan.length if plan.short_clips == "skip" else 0
    return TOO_SHORT if frames < max(plan.least, skipped) else None


def count_windows(frames: int, plan: WindowPlan) -> int:
    """Returns the number of windows in a clip of ``frames`` frames.

    With length 4 and hop 4:

    ======= ==== ==== ======= ===========================================
    frames  drop pad  overlap why
    ======= ==== ==== ======= ===========================================
    0       0    0    0       the clip is empty
    3       0    1    0       overlap needs one whole window
    4       1    1    1
    5       1    2    2       the last: 1 frame and 3 zeros, or frames 1-4
    8       2    2    2
    ======= ==== ==== ======= ===========================================

    No window starts at or after the clip's end. With hop > length, the frames between
    two windows belong to no window. ``short_clips`` decides about clips that are
    shorter than a window, and a clip that is left out has none.
    """
    becomes = plan.short_clips or plan.tail
    if frames < 1 or (frames < plan.length and becomes != "pad"):
        return 0
    if too_short_or_long(frames, plan) is not None:
        return 0
    beyond = max(0, frames - plan.length)
    count = 1 + beyond // plan.hop
    if plan.tail != "drop":
        count = min(1 + -(-beyond // plan.hop), -(-frames // plan.hop))
    return count if plan.max_windows is None else min(count, plan.max_windows)


def window_starts(
    frames: int, plan: WindowPlan, first: int, count: int, key: int = 0
) -> Integers:
    """Returns the starts of windows ``first .. first + count - 1`` of a clip.

    ::

        start(k) = k * hop                                the grid
        start(k) = min(k * hop, frames - length)          tail = overlap
        start(k) = lo(k) + hash(key, k) mod (hi(k) - lo(k))    random_starts, where
            lo(k), hi(k) bound the k-th of ``count_windows`` equal parts of the
            ``frames - length + 1`` possible starts

    The start of a window depends on the clip and on ``k`` alone. So a shard that begins
    in the middle of a clip needs no other windows to find its own. Starts ascend, the
    random ones too.

    Parameters
    ----------
    frames : int
        The clip's length.
    first, count : int
        The number of the first window, and the number of windows.
    key : int
        A 64-bit hash of the seed and the clip; only ``random_starts`` uses it.

    Returns
    -------
    numpy.ndarray, shape (count,), int64
    """
    k = np.arange(first, first + count, dtype=np.int64)
    last_whole = max(0, frames - plan.length)
    if plan.random_starts:
        windows = count_windows(frames, plan)
        # For a long clip with a small hop, the products need more than 64 bits.
        exact = k.astype(object) if windows * (last_whole + 1) >> 63 else k
        low = (exact * (last_whole + 1) // windows).astype(np.int64)
        high = ((exact + 1) * (last_whole + 1) // windows).astype(np.int64)
        # With tail = pad, a short clip can have more windows than possible starts.
        width = np.maximum(1, high - low)
        low += (hash64(key, k) % width.astype(np.uint64)).astype(np.int64)
        return low
    starts = k * plan.hop
    if plan.tail == "overlap":
        np.minimum(starts, last_whole, out=starts)
    return starts


def covered_frames(frames: int, plan: WindowPlan, count: int) -> int:
    """Returns how many frames of a clip its first windows on the grid cover.

    A frame in several windows counts once, and padding does not count. For random
    starts, and for some of the windows, see :func:`frames_in`.

    Parameters
    ----------
    frames : int
        The clip's length.
    count : int
        The number of windows, at most those of :func:`count_windows`.
    """
    if count < 1:
        return 0
    start = (count - 1) * plan.hop
    if plan.tail == "overlap":
        start = min(start, max(0, frames - plan.length))
    end = min(frames, start + plan.length)
    if plan.hop <= plan.length:
        return end
    before = (count - 1) * plan.length
    if count > 1:
        start = max(start, (count - 2) * plan.hop + plan.length)
    return before + max(0, end - start)


def frames_in(starts: Integers, lengths: Integers | int) -> int:
    """Returns how many frames are in at least one of the windows of a clip.

    Parameters
    ----------
    starts : numpy.ndarray, shape (n,), int64
        Ascending.
    lengths : numpy.ndarray, shape (n,), int64, or int
        The frames of each window before the padding.
    """
    if not len(starts):
        return 0
    ends = np.maximum.accumulate(starts + lengths)
    begins = np.maximum(starts[1:], ends[:-1])
    return int((ends[1:] - begins).sum() + ends[0] - starts[0])


def window_blocks(starts: Integers, length: int, frames: int) -> Iterator[Integers]:
    """Yields the starts in blocks.

    The windows of a block, and the stretch that covers them, have at most ``frames``
    frames, or one window.
    """
    budget = max(length, frames)
    done = 0
    while done < len(starts):
        beyond = int(starts[done]) + budget - length
        near = int(np.searchsorted(starts, beyond, "right"))
        until = min(done + budget // length, near)
        yield starts[done:until]
        done = until


def slice_windows(frames: FloatArray, starts: Integers, length: int) -> FloatArray:
    """Cuts windows out of a stretch of a clip, with zeros after its end.

    Parameters
    ----------
    frames : numpy.ndarray, shape (..., m), float32
        The clip's frames from the first start on; time is the last axis.
    starts : numpy.ndarray, shape (n,), int64
        The starts in the clip, ascending.
    length : int
        The number of frames in a window.

    Returns
    -------
    numpy.ndarray, shape (n, ..., length), float32
        A view if the starts are evenly spaced, otherwise a copy. Read-only, because
        windows may share frames.
    """
    at = starts - starts[0]
    missing = int(at[-1]) + length - frames.shape[-1]
    if missing > 0:
        padding = [(0, 0)] * (frames.ndim - 1) + [(0, missing)]
        frames = np.pad(frames, padding)
    every = sliding_window_view(np.ascontiguousarray(frames), length, axis=-1)
    steps = np.diff(at)
    step = int(steps[0]) if steps.size else 1
    if step > 0 and (steps == step).all():
        return np.moveaxis(every[..., : int(at[-1]) + 1 : step, :], -2, 0)
    windows = np.ascontiguousarray(np.moveaxis(every[..., at, :], -2, 0))
    windows.flags.writeable = False
    return windows


# Why a clip is left out.
NO_EVENT = "no_event"


class PlacedWindows(NamedTuple):
    """Some windows of a clip: the number of the first one, and all of their starts."""

    first: int
    starts: tuple[int, ...]

    def of(self, first: int, count: int) -> Integers:
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


def cover_passages(passages: Integers, frames: int, plan: WindowPlan) -> PlacedWindows:
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
