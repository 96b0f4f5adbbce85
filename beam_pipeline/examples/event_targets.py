"""Targets from events: classes, multi-hot labels, masks of spectrum frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    INT64_LIST,
    RAW,
    FeatureSpec,
    described,
)
from beam_pipeline.inputs.event_files import Event, EventTable
from beam_pipeline.recipe.sections import EVENT_MASK, Events


def check_any_event(
    labels: Iterable[str],
    clip: str,
    alike: Mapping[str, str],
    events: Events,
    classes: Sequence[str] | None,
) -> None:
    """Raises InputError if classes come from events and there is no event.

    Parameters
    ----------
    labels : iterable of str
        The classes of the events of all clips that can be recorded.
    clip : str
        The name of one of these clips.
    alike : mapping
        As in :class:`beam_pipeline.inputs.listing.ListingSummary`.
    """
    if events.events is None or classes is not None or any(labels):
        return
    table = EventTable.of(events)
    why = ""
    if alike:
        name, other = min(alike.items())
        why = (
            f" Several clips have the name {name}, for example {other}. Write paths "
            "instead of names in that file."
        )
    elif table is not None and table.by_name:
        why = (
            f" That file has the name {min(table.by_name)}, and a clip has the name "
            f"{clip}. Each name in the file must be a path relative to the input, or a "
            "file name without a folder."
        )
    raise InputError(
        f"No event in {events.events} belongs to a clip that can be recorded."
        f"{why} Check `events`, or set `no_event` to a class."
    )


def named_no_event(events: Events) -> tuple[str, ...]:
    """Returns the class of windows without an event, if the recipe names one."""
    if events.events is None or events.no_event in ("keep", "drop"):
        return ()
    return (events.no_event,)


def near(
    events: Iterable[Event], starts_s: npt.NDArray[np.float64], length_s: float
) -> tuple[Event, ...]:
    """Returns the events that may overlap a window; no other event does."""
    if not starts_s.size:
        return ()
    first, last = starts_s.min(), starts_s.max() + length_s
    return tuple(e for e in events if e.start_s <= last and first <= e.end_s)


def counts_in(
    events: Sequence[Event],
    starts_s: npt.NDArray[np.float64],
    length_s: float,
    share: float,
) -> npt.NDArray[np.bool_]:
    """Returns which events count in which windows, shape (windows, events).

    An event counts in a window if they overlap, by at least ``share`` of the length of
    the shorter one. An event of length zero counts if its time is in the window.
    """
    begin = np.array([event.start_s for event in events], np.float64)
    end = np.array([event.end_s for event in events], np.float64)
    lengths = end - begin
    start = starts_s[:, np.newaxis]
    stop = (starts_s + length_s)[:, np.newaxis]
    shared = np.maximum(np.minimum(end, stop) - np.maximum(begin, start), 0)
    inside = (start <= begin) & (begin < stop)
    enough = shared >= share * np.minimum(lengths, length_s)
    counted: npt.NDArray[np.bool_] = np.where(
        lengths == 0, inside, (shared > 0) & enough
    )
    return counted


def multi_hot(
    events: Sequence[Event],
    classes: Mapping[str, int],
    starts_s: npt.NDArray[np.float64],
    length_s: float,
    share: float = 0.0,
) -> npt.NDArray[np.bool_]:
    """Returns which classes have an event in which windows.

    Returns
    -------
    numpy.ndarray, shape (windows, classes), bool
    """
    hot = np.zeros((len(starts_s), len(classes)), np.bool_)
    counted = counts_in(events, starts_s, length_s, share)
    for at, event in enumerate(events):
        hot[counted[:, at], classes[event.label]] = True
    return hot


def main_class(
    events: Sequence[Event],
    classes: Mapping[str, int],
    starts_s: npt.NDArray[np.float64],
    length_s: float,
    share: float = 0.0,
) -> npt.NDArray[np.int64]:
    """Returns the number of the class with the most time in each window.

    Overlapping events of a class count once. If classes have equal time, the first in
    the list of classes is taken.

    Returns
    -------
    numpy.ndarray, shape (windows,), int64
        -1 if no event counts.
    """
    seconds = np.full((len(starts_s), len(classes)), -1.0)
    # The time up to which the events of each class are already counted.
    reached = np.repeat(starts_s[:, np.newaxis], len(classes), axis=1)
    ends_s = starts_s + length_s
    ordered = sorted(events)
    counted = counts_in(ordered, starts_s, length_s, share)
    for at, event in enumerate(ordered):
        windows, k = np.flatnonzero(counted[:, at]), classes[event.label]
        low = np.maximum(event.start_s, reached[windows, k])
        high = np.maximum(low, np.minimum(event.end_s, ends_s[windows]))
        seconds[windows, k] = np.maximum(seconds[windows, k], 0) + (high - low)
        reached[windows, k] = high
    best: npt.NDArray[np.int64] = seconds.argmax(axis=1)
    best[seconds.max(axis=1, initial=-1) < 0] = -1
    return best


def frame_mask(
    events: Sequence[Event],
    classes: Mapping[str, int],
    starts_s: npt.NDArray[np.float64],
    centres_s: npt.NDArray[np.float64],
) -> npt.NDArray[np.uint8]:
    """Returns a mask: 1 if the centre of a spectrum frame is in an event of a class.

    Parameters
    ----------
    starts_s : numpy.ndarray, shape (windows,)
        The starts of the windows, in seconds.
    centres_s : numpy.ndarray, shape (frames,)
        The centres of the spectrum frames, in seconds from the start of their window.

    Returns
    -------
    numpy.ndarray, shape (windows, frames, classes), uint8
    """
    times = starts_s[:, np.newaxis] + centres_s
    mask = np.zeros((*times.shape, len(classes)), np.uint8)
    for event in events:
        inside = (event.start_s <= times) & (times < event.end_s)
        mask[inside, classes[event.label]] = 1
    return mask


@dataclass(frozen=True)
class EventRule:
    """How the events in a window become the targets of its example.

    Attributes
    ----------
    classes : tuple of str
        The classes of events, in their order.
    share : float
        As in :func:`counts_in`.
    no_event : str or None
        The class of windows without an event.
    drops : bool
        Whether windows without an event are left out.
    targets : tuple of str
        As in ``recipe.sections.EVENT_TARGETS``.
    masked : mapping
        For each feature with a mask, its axis of time.
    """

    classes: tuple[str, ...]
    share: float
    no_event: str | None
    drops: bool
    targets: tuple[str, ...]
    masked: Mapping[str, Mapping[str, Any]]

    @classmethod
    def of(
        cls, asked: Events, classes: Sequence[str], specs: Mapping[str, FeatureSpec]
    ) -> EventRule:
        """Returns the rule of a recipe, for features with these specs.

        Raises
        ------
        RecipeError
            If a mask names a feature without an axis of time.
        """
        targets = asked.event_targets
        masked = {}
        for target in targets:
            name = target.removeprefix(EVENT_MASK)
            if name == target:
                continue
            axes = specs[name].axes
            if not axes or axes[0].get("name") != "time":
                raise RecipeError(
                    "event_targets",
                    f"a mask needs a time axis, but feature {name} has none",
                    target,
                )
            masked[name] = axes[0]
        return cls(
            tuple(classes),
            asked.event_overlap,
            next(iter(named_no_event(asked)), None),
            asked.no_event == "drop",
            tuple(t for t in targets if not t.startswith(EVENT_MASK)),
            masked,
        )

    def specs(self) -> list[FeatureSpec]:
        """Returns the specs of the features that :meth:`columns` returns."""
        count = len(self.classes)
        axis = {"name": "class", "size": count, "labels": list(self.classes)}
        specs = []
        if "class" in self.targets:
            text = "the class with the most time in the window; none: empty, -1"
            specs += [
                FeatureSpec("class", "string", (), BYTES_LIST, text),
                described("target"),
            ]
        if "multi_hot" in self.targets:
            text = "1 for each class with an event in the window, in the list's order"
            specs.append(FeatureSpec("labels", "int64", (count,), INT64_LIST, text))
        for name, time in self.masked.items():
            text = (
                f"1 where the middle of a frame of {name} lies in an event of a class"
            )
            shape = (time["size"], count)
            axes = ({**time}, axis)
            specs.append(FeatureSpec(f"{name}_mask", "uint8", shape, RAW, text, axes))
        return specs

    def found(
        self,
        events: Sequence[Event],
        starts_s: npt.NDArray[np.float64],
        length_s: float,
    ) -> npt.NDArray[np.bool_]:
        """Returns which classes have an event in which windows.

        Returns
        -------
        numpy.ndarray, shape (windows, classes), bool
        """
        return multi_hot(events, self._numbers(), starts_s, length_s, self.share)

    def selected(
        self,
        events: Sequence[Event],
        starts_s: npt.NDArray[np.float64],
        length_s: float,
    ) -> npt.NDArray[np.bool_]:
        """Returns which windows are not left out, shape (windows,)."""
        if not self.drops:
            return np.ones(len(starts_s), np.bool_)
        return np.asarray(self.found(events, starts_s, length_s).any(axis=1))

    def columns(
        self,
        events: Sequence[Event],
        starts_s: npt.NDArray[np.float64],
        length_s: float,
    ) -> dict[str, npt.NDArray[Any]]:
        """Returns the targets of windows, each of shape ``(windows, ...)``.

        Parameters
        ----------
        starts_s : numpy.ndarray, shape (windows,)
            The starts of the windows, in seconds.
        length_s : float
            The length of a window, in seconds.
        """
        numbers = self._numbers()
        columns: dict[str, npt.NDArray[Any]] = {}
        nothing = -1 if self.no_event is None else numbers[self.no_event]
        if "class" in self.targets:
            best = main_class(events, numbers, starts_s, length_s, self.share)
            best[best < 0] = nothing
            columns["target"] = best
            columns["class"] = np.array([*self.classes, ""])[best]
        if "multi_hot" in self.targets:
            hot = self.found(events, starts_s, length_s)
            if nothing >= 0:
                hot[~hot.any(axis=1), nothing] = True
            columns["labels"] = hot.astype(np.int64)
        for name, time in self.masked.items():
            frames = np.arange(time["size"])
            # A constant-Q transform gives the centres of its frames, and no length.
            centres = time["start"] + time["step"] * frames + time.get("length", 0) / 2
            columns[f"{name}_mask"] = frame_mask(events, numbers, starts_s, centres)
        return columns

    def counts(
        self,
        events: Sequence[Event],
        starts_s: npt.NDArray[np.float64],
        length_s: float,
    ) -> dict[str, int]:
        """Returns how many of the windows count for each class.

        If the class is the only target, a window counts for that class alone.
        """
        if self.targets == ("class",):
            numbers = self.columns(events, starts_s, length_s)["target"]
            return {
                label: int((numbers == k).sum()) for k, label in enumerate(self.classes)
            }
        hot = self.found(events, starts_s, length_s)
        counts = dict(zip(self.classes, hot.sum(axis=0).tolist(), strict=True))
        if self.no_event is not None:
            counts[self.no_event] += int((~hot.any(axis=1)).sum())
        return counts

    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.classes)}
