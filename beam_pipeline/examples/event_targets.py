"""Targets from events: classes, multi-hot labels, masks of spectrum frames."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.arrays import Array, Booleans, DoubleArray, Integers
from beam_pipeline.encodings import INT64_LIST, RAW
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.examples.spec import FeatureSpec, described
from beam_pipeline.inputs.event_files import Event, EventTable
from beam_pipeline.recipe.recipe import EVENT_MASK, Events, Recipe


def check_any_event(
    labels: Iterable[str], clip: str, rejects: Iterable[tuple[str, str]], recipe: Recipe
) -> None:
    """Raises InputError if classes come from events and there is no event.

    Parameters
    ----------
    labels : iterable of str
        The classes of the events of all clips that can be recorded.
    clip : str
        The name of one of these clips.
    rejects : iterable of (str, str)
        The name of each clip whose events may be why it was rejected, and its reason.
    """
    if recipe.events is None or recipe.classes is not None or any(labels):
        return
    table = EventTable.of(recipe)
    rejected = min(rejects, default=None)
    why = ""
    if rejected is not None:
        name, reason = rejected
        why = f" Clips were rejected, for example {name}: {reason.rstrip('.')}."
    elif table is not None and table.by_name:
        why = (
            f" That file has the name {min(table.by_name)}, and a clip has the name "
            f"{clip}. Each name in the file must be a path relative to the input, or a "
            "file name without a folder."
        )
    raise InputError(
        f"No event in {recipe.events} belongs to a clip that can be recorded."
        f"{why} Check `events` and `event_column`, or set `no_event` to a class."
    )


def named_no_event(events: Events) -> tuple[str, ...]:
    """Returns the class of windows without an event, if the recipe names one."""
    if events.events is None or events.no_event in ("keep", "drop"):
        return ()
    return (events.no_event,)


class TimedWindows(NamedTuple):
    """Windows of a file, and the events that may be in them.

    Attributes
    ----------
    events : tuple of Event
    starts_s : numpy.ndarray, shape (windows,), float64
        The starts of the windows, in seconds from the start of the file.
    length_s : float
        The length of a window, in seconds.
    """

    events: tuple[Event, ...]
    starts_s: DoubleArray
    length_s: float

    def near(self) -> TimedWindows:
        """Returns the windows with the events that may overlap one; no other does."""
        if not self.starts_s.size:
            return self._replace(events=())
        first, last = self.starts_s.min(), self.starts_s.max() + self.length_s
        some = (e for e in self.events if e.start_s <= last and first <= e.end_s)
        return self._replace(events=tuple(some))

    def counted(self, share: float) -> Booleans:
        """Returns which events count in which windows, shape (windows, events).

        An event counts in a window if they overlap, by at least ``share`` of the length
        of the shorter one. An event of length zero counts if its time is in the window.
        """
        begin = np.array([event.start_s for event in self.events], np.float64)
        end = np.array([event.end_s for event in self.events], np.float64)
        lengths = end - begin
        start = self.starts_s[:, np.newaxis]
        stop = (self.starts_s + self.length_s)[:, np.newaxis]
        shared = np.maximum(np.minimum(end, stop) - np.maximum(begin, start), 0)
        inside = (start <= begin) & (begin < stop)
        enough = shared >= share * np.minimum(lengths, self.length_s)
        counted = np.where(lengths == 0, inside, (shared > 0) & enough)
        return np.asarray(counted, np.bool_)


@dataclass(frozen=True)
class EventRule:
    """How the events in a window become the targets of its example.

    Attributes
    ----------
    classes : tuple of str
        The classes of events, in their order.
    share : float
        As in :meth:`TimedWindows.counted`.
    no_event : str or None
        The class of windows without an event.
    drops : bool
        Whether windows without an event are left out.
    targets : tuple of str
        As in ``recipe.recipe.EVENT_TARGETS``.
    masked : mapping
        For each feature with a mask, its axis of time.
    """

    classes: tuple[str, ...]
    share: float = 0.0
    no_event: str | None = None
    drops: bool = False
    targets: tuple[str, ...] = ()
    masked: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

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
        masked = {}
        for target in asked.event_targets:
            name = target.removeprefix(EVENT_MASK)
            if name == target:
                continue
            axes = specs[name].axes
            if not axes or axes[0].get("name") != "time":
                problem = f"a mask needs a time axis, but feature {name} has none"
                raise RecipeError("event_targets", problem, target)
            masked[name] = axes[0]
        return cls(
            tuple(classes),
            asked.event_overlap,
            next(iter(named_no_event(asked)), None),
            asked.no_event == "drop",
            tuple(t for t in asked.event_targets if not t.startswith(EVENT_MASK)),
            masked,
        )

    def specs(self) -> list[FeatureSpec]:
        """Returns the specs of the features that :meth:`columns` returns."""
        count = len(self.classes)
        axis = {"name": "class", "size": count, "labels": list(self.classes)}
        specs = []
        if "class" in self.targets:
            text = "the class with the most time in the window; none: empty, -1"
            specs.append(replace(described("class"), description=text))
            specs.append(described("target"))
        if "multi_hot" in self.targets:
            text = "1 for each class with an event in the window, in the list's order"
            specs.append(FeatureSpec("labels", "int64", (count,), INT64_LIST, text))
        for name, time in self.masked.items():
            text = (
                f"1 where the middle of a frame of {name} lies in an event of a class"
            )
            shape, axes = (time["size"], count), ({**time}, axis)
            specs.append(FeatureSpec(f"{name}_mask", "uint8", shape, RAW, text, axes))
        return specs

    def found(self, windows: TimedWindows) -> Booleans:
        """Returns which classes have an event in which windows.

        Returns
        -------
        numpy.ndarray, shape (windows, classes), bool
        """
        hot = np.zeros((len(windows.starts_s), len(self.classes)), np.bool_)
        numbers, counted = self._numbers(), windows.counted(self.share)
        for at, event in enumerate(windows.events):
            hot[counted[:, at], numbers[event.label]] = True
        return hot

    def selected(self, windows: TimedWindows) -> Booleans:
        """Returns which windows are not left out, shape (windows,)."""
        if not self.drops:
            return np.ones(len(windows.starts_s), np.bool_)
        return np.asarray(self.found(windows).any(axis=1))

    def labels(self, windows: TimedWindows) -> Booleans:
        """Returns the classes of windows; those without an event have ``no_event``.

        Returns
        -------
        numpy.ndarray, shape (windows, classes), bool
        """
        hot = self.found(windows)
        if self.no_event is not None:
            hot[~hot.any(axis=1), self.classes.index(self.no_event)] = True
        return hot

    def main_class(self, windows: TimedWindows) -> Integers:
        """Returns the number of the class with the most time in each window.

        Overlapping events of a class count once. If classes have equal time, the first
        in the list of classes is taken.

        Returns
        -------
        numpy.ndarray, shape (windows,), int64
            The number of ``no_event`` if no event counts; -1 without such a class.
        """
        starts_s, numbers = windows.starts_s, self._numbers()
        seconds = np.full((len(starts_s), len(numbers)), -1.0)
        # The time up to which the events of each class are already counted.
        reached = np.repeat(starts_s[:, np.newaxis], len(numbers), axis=1)
        ends_s = starts_s + windows.length_s
        windows = windows._replace(events=tuple(sorted(windows.events)))
        counted = windows.counted(self.share)
        for at, event in enumerate(windows.events):
            rows, k = np.flatnonzero(counted[:, at]), numbers[event.label]
            low = np.maximum(event.start_s, reached[rows, k])
            high = np.maximum(low, np.minimum(event.end_s, ends_s[rows]))
            seconds[rows, k] = np.maximum(seconds[rows, k], 0) + (high - low)
            reached[rows, k] = high
        best: Integers = seconds.argmax(axis=1)
        nothing = -1 if self.no_event is None else numbers[self.no_event]
        best[seconds.max(axis=1, initial=-1) < 0] = nothing
        return best

    def frame_mask(
        self, windows: TimedWindows, centres_s: DoubleArray
    ) -> npt.NDArray[np.uint8]:
        """Returns a mask: 1 if the centre of a spectrum frame is in a class' event.

        Parameters
        ----------
        centres_s : numpy.ndarray, shape (frames,)
            The centres of the spectrum frames, in seconds from the start of a window.

        Returns
        -------
        numpy.ndarray, shape (windows, frames, classes), uint8
        """
        times, numbers = windows.starts_s[:, np.newaxis] + centres_s, self._numbers()
        mask = np.zeros((*times.shape, len(numbers)), np.uint8)
        for event in windows.events:
            inside = (event.start_s <= times) & (times < event.end_s)
            mask[inside, numbers[event.label]] = 1
        return mask

    def columns(self, windows: TimedWindows) -> dict[str, Array]:
        """Returns the targets of windows, each of shape ``(windows, ...)``."""
        columns: dict[str, Array] = {}
        if "class" in self.targets:
            columns["target"] = best = self.main_class(windows)
            columns["class"] = np.array([*self.classes, ""])[best]
        if "multi_hot" in self.targets:
            columns["labels"] = self.labels(windows).astype(np.int64)
        for name, time in self.masked.items():
            frames = np.arange(time["size"])
            # A constant-Q transform gives the centres of its frames, and no length.
            centres = time["start"] + time["step"] * frames + time.get("length", 0) / 2
            columns[f"{name}_mask"] = self.frame_mask(windows, centres)
        return columns

    def counts(self, windows: TimedWindows) -> dict[str, int]:
        """Returns how many of the windows count for each class.

        If the class is the only target, a window counts for that class alone.
        """
        if self.targets == ("class",):
            best = self.main_class(windows)
            numbers = np.bincount(best[best >= 0], minlength=len(self.classes))
        else:
            numbers = self.labels(windows).sum(axis=0)
        return dict(zip(self.classes, numbers.tolist(), strict=True))

    def _numbers(self) -> dict[str, int]:
        return {label: number for number, label in enumerate(self.classes)}
