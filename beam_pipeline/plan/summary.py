"""The plan in a few numbers: examples, clips and seconds by split and class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.plan.order import PlacedClips
from beam_pipeline.plan.segments import count_events
from beam_pipeline.plan.shards import ShardLayout
from beam_pipeline.recipe.recipe import Recipe

# What examples are counted by: split, class, and sample rate, so that seconds add up
# exactly.
TallyKey = tuple[str, str, int]
Tally = Mapping[TallyKey, tuple[int, int]]  # clips, windows


@dataclass(frozen=True, slots=True)
class PlanSummary:
    """The plan in a few numbers, whatever the size of the corpus.

    ``tally`` holds (clips, windows), ``by_event`` those by the classes of events in
    windows; ``example_format`` is None where no clip was accepted; ``salt`` is what splits were
    decided with; ``empty`` are splits that have a share, and no clip; ``dropped`` are
    windows that will be left out for want of an event, which the others count as well.
    """

    listing: ListingSummary
    example_format: ExampleFormat | None
    layouts: Mapping[str, ShardLayout]
    tally: Tally
    by_event: Tally = field(default_factory=dict)
    salt: int | None = None
    empty: tuple[str, ...] = ()
    dropped: Mapping[TallyKey, int] = field(default_factory=dict)

    def by_class(self) -> Tally:
        """What counts for classes: those of clips, or of events."""
        has_events = (
            self.example_format is not None
            and self.example_format.features.events is not None
        )
        return self.by_event if has_events else self.tally

    def seconds(self, split: str) -> float:
        """Seconds of audio in a split's windows."""
        return seconds_of(
            self.example_format, [(k, n) for k, (_, n) in self.tally.items()], split
        )

    def kept(self, split: str) -> tuple[int, float]:
        """A split's examples, and their seconds, without what is dropped."""
        lost = sum(n for key, n in self.dropped.items() if key[0] == split)
        lost_s = seconds_of(self.example_format, self.dropped.items(), split)
        return self.layouts[split].total - lost, self.seconds(split) - lost_s


def seconds_of(
    example_format: ExampleFormat | None,
    windows: Iterable[tuple[TallyKey, int]],
    split: str,
) -> float:
    """Seconds of audio in a split's windows, of those that are counted."""
    if example_format is None:
        return 0.0
    by_rate: Counter[int] = Counter()
    for key, n in windows:
        if key[0] == split:
            by_rate[key[2]] += n
    return sum(n * example_format.win_len / r for r, n in sorted(by_rate.items()))


def split_by_class(
    example_format: ExampleFormat, windows: Iterable[tuple[TallyKey, int]]
) -> dict[str, list[tuple[TallyKey, int]]]:
    """What counts for each class; a clip with several classes counts for each."""
    found: dict[str, list[tuple[TallyKey, int]]] = {
        name: [] for name in example_format.classes
    }
    separator = example_format.features.separator
    for key, n in windows:
        labels = [key[1]] if separator is None else key[1].split(separator)
        for label in labels if example_format.classes else ():
            found[label].append((key, n))
    return found


def tally_bucket(
    placed: PlacedClips,
    layouts: Mapping[str, ShardLayout],
    example_format: ExampleFormat | None,
    recipe: Recipe,
) -> tuple[Tally, Tally, Mapping[TallyKey, int]]:
    """Counts (clips, windows) of a bucket by split, class and sample rate.

    Twice: by the classes of clips, and by those of events in their windows. Then the
    windows that are left out for want of an event.
    """
    total = layouts[placed.split].total
    clips, windows = Counter[TallyKey](), Counter[TallyKey]()
    with_event, held = Counter[TallyKey](), Counter[TallyKey]()
    dropped = Counter[TallyKey]()
    index = placed.first_window
    for clip in placed.clips:
        kept = min(clip.examples, max(0, total - index))
        key = (clip.split, clip.label or "", clip.sample_rate_hz)
        clips[key] += kept > 0
        windows[key] += kept
        index += clip.examples
        if recipe.events.source is not None and example_format is not None and kept:
            by_label, without = count_events(clip, kept, example_format, recipe)
            dropped[key] += without
            for label, n in by_label.items():
                key = (clip.split, label, clip.sample_rate_hz)
                with_event[key] += n > 0
                held[key] += n
    return (
        {key: (clips[key], windows[key]) for key in windows},
        {key: (with_event[key], held[key]) for key in held},
        dropped,
    )


def summarise(
    _: Any,
    listing: ListingSummary,
    example_format: ExampleFormat | None,
    layouts: Mapping[str, ShardLayout],
    tallies: Iterable[tuple[Tally, Tally, Mapping[TallyKey, int]]],
    salt: int | None,
    shares: Mapping[str, float] | None,
) -> PlanSummary:
    """The plan in a few numbers."""
    several = list(tallies)
    tally = _added(some for some, _, _ in several)
    by_event = _added(some for _, some, _ in several)
    dropped = Counter[TallyKey]()
    for _, _, some in several:
        dropped.update(some)
    empty = tuple(name for name in shares or () if name not in layouts)
    return PlanSummary(
        listing, example_format, dict(layouts), tally, by_event, salt, empty, dropped
    )


def _added(tallies: Iterable[Tally]) -> dict[TallyKey, tuple[int, int]]:
    clips, windows = Counter[TallyKey](), Counter[TallyKey]()
    for tally in tallies:
        for key, (some_clips, some_windows) in tally.items():
            clips[key] += some_clips
            windows[key] += some_windows
    return {key: (clips[key], windows[key]) for key in sorted(windows)}
