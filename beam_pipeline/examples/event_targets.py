"""What examples hold of events: classes, multi-hot labels, masks of frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.examples.spec import (
    BYTES_LIST,
    DESCRIPTIONS,
    INT64_LIST,
    RAW,
    FeatureSpec,
)
from beam_pipeline.inputs.event_files import Event, EventTable
from beam_pipeline.recipe.clip_sections import EVENT_MASK, Events


def check_any_event(
    labels: Iterable[str],
    clip: str,
    alike: Mapping[str, str],
    events: Events,
    classes: Sequence[str] | None,
) -> None:
    """Raises InputError if there is no class at all, which only events could give.

    Parameters
    ----------
    labels : iterable of str
        The classes of the events of all clips that can be recorded.
    clip : str
        What one of these is called.
    alike : mapping
        As in :class:`plan.Listing`.
    """
    if events.source is None or classes is not None or any(labels):
        return
    table = EventTable.of(events)
    why = ""
    if alike:
        name, other = min(alike.items())
        why = f" Several clips are called {name}, {other} for one: write paths there."
    elif table is not None and table.by_name:
        why = (
            f" It names {min(table.by_name)}, but a clip is called {clip}: names there "
            "are paths relative to the input, or base names."
        )
    raise InputError(
        f"There is not one event in {events.source} for the clips that can be recorded."
        f"{why} Check --events, or name a class with --no-event."
    )


def named_no_event(events: Events) -> tuple[str, ...]:
    """The class of windows without an event, if the recipe names one."""
    if events.source is None or events.no_event in ("keep", "drop"):
        return ()
    return (events.no_event,)


def near(
    events: Iterable[Event], starts_s: npt.NDArray[np.float64], length_s: float
) -> tuple[Event, ...]:
    """The events that may touch some of the windows; none of the others does."""
    if not starts_s.size:
        return ()
    first, last = starts_s.min(), starts_s.max() + length_s
    return tuple(e for e in events if e.start_s <= last and first <= e.end_s)


def overlaps(
    events: Sequence[Event], starts_s: npt.NDArray[np.float64], length_s: float
) -> npt.NDArray[np.float64]:
    """Seconds of each event in each window, shape (windows, events)."""
    first = np.array([event.start_s for event in events], np.float64)
    last = np.array([event.end_s for event in events], np.float64)
    low = np.maximum(first, starts_s[:, np.newaxis])
    high = np.minimum(last, (starts_s + length_s)[:, np.newaxis])
    shared: npt.NDArray[np.float64] = np.maximum(high - low, 0)
    return shared


def counts_in(
    events: Sequence[Event],
    starts_s: npt.NDArray[np.float64],
    length_s: float,
    share: float,
) -> npt.NDArray[np.bool_]:
    """Which events count in which windows, shape (windows, events).

    An event counts where it shares some time with the window, and at least ``share`` of
    its own length or of the window's, whichever is shorter. One without a length counts
    where its time lies in the window.
    """
    shared = overlaps(events, starts_s, length_s)
    lengths = np.array([event.end_s - event.start_s for event in events], np.float64)
    begin = np.array([event.start_s for event in events], np.float64)
    inside = (starts_s[:, np.newaxis] <= begin) & (
        begin < (starts_s + length_s)[:, np.newaxis]
    )
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
    """Which classes have an event in which windows, shape (windows, classes)."""
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
    """The class with the most time in each window, -1 where no event counts.

    Time that several events of a class share counts once. Of equal ones it is the first
    in the list of classes.
    """
    seconds = np.full((len(starts_s), len(classes)), -1.0)
    # Up to where the events of each class before have been counted.
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
    """1 where the centre of a frame lies in an event of a class.

    Parameters
    ----------
    starts_s : numpy.ndarray, shape (windows,)
    centres_s : numpy.ndarray, shape (frames,)
        Of the frames of a feature, from the start of their window.

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
    """What examples hold of the events in their windows.

    Attributes
    ----------
    classes : tuple of str
        The classes of events, in their order.
    share : float
        As in :func:`events.counts_in`.
    no_event : str or None
        The class of windows without an event.
    drops : bool
        Whether such windows are left out.
    targets : tuple of str
        Of ``recipe.EVENT_TARGETS``.
    masked : mapping
        Feature name to its axis of time.
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
        """The rule of a recipe, for features of these specs.

        Raises
        ------
        RecipeError
            If a mask is asked of a feature that has no axis of time.
        """
        targets = asked.targets
        masked = {}
        for target in targets:
            name = target.removeprefix(EVENT_MASK)
            if name == target:
                continue
            axes = specs[name].axes
            if not axes or axes[0].get("name") != "time":
                raise RecipeError(
                    "event_targets", "has no frames in time to be masked", target
                )
            masked[name] = axes[0]
        return cls(
            tuple(classes),
            asked.overlap,
            next(iter(named_no_event(asked)), None),
            asked.no_event == "drop",
            tuple(t for t in targets if not t.startswith(EVENT_MASK)),
            masked,
        )

    def specs(self) -> list[FeatureSpec]:
        """The specs of what :meth:`columns` gives."""
        count = len(self.classes)
        axis = {"name": "class", "size": count, "labels": list(self.classes)}
        specs = []
        if "class" in self.targets:
            text = "the class with the most time in the window; none: empty, -1"
            specs += [
                FeatureSpec("class", "string", (), BYTES_LIST, text),
                FeatureSpec("target", "int64", (), INT64_LIST, DESCRIPTIONS["target"]),
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
        """Which classes have an event in which windows, shape (windows, classes)."""
        return multi_hot(events, self._numbers(), starts_s, length_s, self.share)

    def kept(
        self,
        events: Sequence[Event],
        starts_s: npt.NDArray[np.float64],
        length_s: float,
    ) -> npt.NDArray[np.bool_]:
        """Which windows are not left out for want of an event."""
        if not self.drops:
            return np.ones(len(starts_s), np.bool_)
        return np.asarray(self.found(events, starts_s, length_s).any(axis=1))

    def columns(
        self,
        events: Sequence[Event],
        starts_s: npt.NDArray[np.float64],
        length_s: float,
    ) -> dict[str, npt.NDArray[Any]]:
        """What examples hold, for windows that start there and last so long."""
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
            # Of a constant-Q transform the places are middles, and have no length.
            centres = time["start"] + time["step"] * frames + time.get("length", 0) / 2
            columns[f"{name}_mask"] = frame_mask(events, numbers, starts_s, centres)
        return columns

    def counts(
        self,
        events: Sequence[Event],
        starts_s: npt.NDArray[np.float64],
        length_s: float,
    ) -> dict[str, int]:
        """How many of the windows count for each class.

        Where examples have one class and no more, it is that one.
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
