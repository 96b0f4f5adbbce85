"""Summary of a plan: examples, clips and seconds by split and class."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from beam_pipeline.examples.format import ExampleFormat
from beam_pipeline.examples.windows import WindowPlans
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.plan.clips import Clip, why_left_out
from beam_pipeline.plan.segments import PlacedClips, count_audio, count_events
from beam_pipeline.plan.shards import ShardLayout
from beam_pipeline.recipe.recipe import Recipe

# Split, class and sample rate. With the rate, seconds add up exactly.
TallyKey = tuple[str, str, int]
Tally = Mapping[TallyKey, tuple[int, int]]  # clips, examples
AudioKey = tuple[str, int]  # split and sample rate


@dataclass(frozen=True, slots=True, repr=False)
class PlanSummary:
    """A plan in a few numbers; its size does not grow with the corpus.

    Attributes
    ----------
    example_format : ExampleFormat or None
        None if no clip was accepted.
    layouts : mapping
        The shards of each split.
    tally : mapping
        (clips, examples) by the class of the clip.
    by_event : mapping
        (clips, examples) by the classes of the events in windows.
    moves : mapping or None
        The groups that are not in the split of their hash, as the recipe holds them.
    empty : tuple of str
        The splits that have a share and no clip.
    dropped : mapping
        How many examples are left out because they have no event. The counts of the
        other fields include them.
    audio : mapping
        The frames of clips that are in the windows of examples that are not left out,
        by split and sample rate. Where windows overlap, a frame counts once; padding
        and copies do not count.
    left_out : mapping
        How many clips are left out, by
        :func:`beam_pipeline.plan.clips.reasons_to_leave_out`.
    frames : mapping
        The frames of all examples by the class of the clip, if each is a whole clip;
        otherwise empty, because all examples have the same number of frames.
    """

    listing: ListingSummary
    example_format: ExampleFormat | None
    layouts: Mapping[str, ShardLayout]
    tally: Tally
    by_event: Tally = field(default_factory=dict)
    moves: Mapping[int, str] | None = None
    empty: tuple[str, ...] = ()
    dropped: Mapping[TallyKey, int] = field(default_factory=dict)
    audio: Mapping[AudioKey, int] = field(default_factory=dict)
    left_out: Mapping[str, int] = field(default_factory=dict)
    frames: Mapping[TallyKey, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        splits = ", ".join(f"{n} {s.total:,}" for n, s in self.layouts.items())
        clips = self.listing.clips
        return f"<PlanSummary: examples of {clips:,} clips: {splits or 'none'}>"

    def by_class(self) -> Tally:
        """Returns ``by_event`` if the recipe has events, otherwise ``tally``."""
        has_events = (
            self.example_format is not None
            and self.example_format.features.events is not None
        )
        return self.by_event if has_events else self.tally

    def seconds(self, split: str) -> float:
        """Returns the length of a split's examples together, in seconds."""
        return seconds_of(self.lengths(self.tally), split)

    def lengths(self, tally: Tally) -> list[tuple[TallyKey, int]]:
        """Returns the frames of the examples that a tally of this plan counts."""
        if self.example_format is None:
            return []
        if self.example_format.win_len is None:
            return list(self.frames.items())
        win_len = self.example_format.win_len
        return [(key, n * win_len) for key, (_, n) in tally.items()]

    def audio_seconds(self, split: str) -> float:
        """Returns the seconds of audio that a split's examples cover; see ``audio``."""
        return sum(n / rate for (name, rate), n in self.audio.items() if name == split)

    def kept(self, split: str) -> tuple[int, float]:
        """Returns a split's examples and their seconds, without the dropped ones."""
        lost = {key: (0, n) for key, n in self.dropped.items() if key[0] == split}
        total, seconds = self.layouts[split].total, self.seconds(split)
        # Of whole clips, which have no events, none is dropped.
        if not lost:
            return total, seconds
        lost_s = seconds_of(self.lengths(lost), split)
        return total - sum(n for _, n in lost.values()), seconds - lost_s


def left_out_words(left_out: Mapping[str, int]) -> str:
    """Returns why clips are left out, in words: ``"3 too short, 0 without sound"``."""
    return ", ".join(
        f"{n:,} {why.replace('no_', 'without ').replace('_', ' ')}"
        for why, n in left_out.items()
    )


def seconds_of(frames: Iterable[tuple[TallyKey, int]], split: str) -> float:
    """Returns the length of the counted frames of a split together, in seconds."""
    by_rate: Counter[int] = Counter()
    for key, n in frames:
        if key[0] == split:
            by_rate[key[2]] += n
    return sum(n / rate for rate, n in sorted(by_rate.items()))


def split_by_class(
    example_format: ExampleFormat, counts: Iterable[tuple[TallyKey, int]]
) -> dict[str, list[tuple[TallyKey, int]]]:
    """Returns the counts of each class; a clip with several classes counts for each."""
    found: dict[str, list[tuple[TallyKey, int]]] = {
        name: [] for name in example_format.classes
    }
    separator = example_format.features.separator
    for key, n in counts:
        labels = [key[1]] if separator is None else key[1].split(separator)
        for label in labels if example_format.classes else ():
            found[label].append((key, n))
    return found


class PlanTally:
    """Counts the clips and examples of a plan by split, class and sample rate.

    Clips are added bucket by bucket.
    """

    def __init__(
        self,
        layouts: Mapping[str, ShardLayout],
        example_format: ExampleFormat | None,
        recipe: Recipe,
    ):
        self._layouts, self._format, self._recipe = layouts, example_format, recipe
        self._plans = WindowPlans(recipe)
        self._clips, self._examples = Counter[TallyKey](), Counter[TallyKey]()
        self._event_clips = Counter[TallyKey]()
        self._event_examples = Counter[TallyKey]()
        self._dropped = Counter[TallyKey]()
        self._audio = Counter[AudioKey]()
        self._left_out = Counter[str]()
        self._frames = Counter[TallyKey]()

    def add(self, placed: PlacedClips) -> None:
        """Counts the clips of a bucket."""
        total = self._layouts[placed.split].total
        index = placed.first_window
        for clip in placed.clips:
            if not clip.examples:
                plan = self._plans.of(clip.sample_rate_hz, clip.frames)
                self._left_out[why_left_out(clip.frames, plan, self._recipe)] += 1
                continue
            count = min(clip.examples, max(0, total - index))
            index += clip.examples
            key = (clip.split, clip.label or "", clip.sample_rate_hz)
            self._clips[key] += count > 0
            self._examples[key] += count
            if self._recipe.windows_are_clips:
                self._frames[key] += count * clip.frames
            if count:
                self._count_windows(clip, count, key)

    def _count_windows(self, clip: Clip, count: int, key: TallyKey) -> None:
        """Counts the audio and the events of a clip's first examples."""
        rate = clip.sample_rate_hz
        if self._recipe.events is None or self._format is None:
            plan = self._plans.of(rate, clip.frames)
            audio = count_audio(clip, count, plan, self._recipe)
        else:
            by_label, dropped, audio = count_events(
                clip, count, self._format, self._recipe
            )
            self._dropped[key] += dropped
            for label, n in by_label.items():
                self._event_clips[clip.split, label, rate] += n > 0
                self._event_examples[clip.split, label, rate] += n
        self._audio[clip.split, rate] += audio

    def summary(
        self, listing: ListingSummary, moves: Mapping[int, str] | None
    ) -> PlanSummary:
        """Returns the summary of the plan."""
        shares = self._recipe.hashed_shares() or ()
        layouts = {name: some for name, some in self._layouts.items() if some.total}
        return PlanSummary(
            listing,
            self._format,
            layouts,
            _tally(self._clips, self._examples),
            _tally(self._event_clips, self._event_examples),
            moves,
            tuple(name for name in shares if name not in layouts),
            dict(sorted(self._dropped.items())),
            dict(sorted(self._audio.items())),
            dict(sorted(self._left_out.items(), reverse=True)),
            dict(sorted(self._frames.items())),
        )


def _tally(clips: Counter[TallyKey], examples: Counter[TallyKey]) -> Tally:
    return {key: (clips[key], n) for key, n in sorted(examples.items())}
