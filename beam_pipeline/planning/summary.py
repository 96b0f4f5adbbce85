"""What is counted over the clips of a corpus, and over those of its plan.

::

    clips -> CorpusCount          -> Corpus -> the format of examples
    clips in their order -> PlanSummary                 examples by split and class
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from beam_pipeline.audio.decoder import finds_frames
from beam_pipeline.examples.event_targets import check_any_event, named_no_event
from beam_pipeline.examples.features import Corpus, ExampleFormat
from beam_pipeline.examples.windows import WindowPlans
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.inputs.table_files import Column
from beam_pipeline.planning.clips import Clip, copies_in, header_of, why_left_out
from beam_pipeline.planning.shards import (
    PlacedClips,
    ShardLayout,
    count_audio,
    count_events,
)
from beam_pipeline.recipe.recipe import Audio, Recipe


class CorpusCount:
    """Counts clips, and names one of each kind: the first in the order of names."""

    def __init__(self, recipe: Recipe):
        self._recipe = recipe
        self._rates = Counter[int]()
        self._channels = Counter[int]()
        self._named: dict[tuple[str, int | str], str] = {}
        self._frames = self._walk = 0

    def add(self, clips: Iterable[Clip]) -> None:
        """Counts clips.

        Clips that are left out do not count: a class that only they have is no class.
        """
        recipe = self._recipe
        counted = [clip for clip in clips if clip.examples]
        for clip in counted:
            name = clip.filepath
            self._rates[clip.sample_rate_hz] += 1
            self._channels[clip.channels] += 1
            self._frames += clip.frames
            self._name(("Hz", clip.sample_rate_hz), name)
            self._name(("channels", clip.channels), name)
            for label in _labels_of(clip, recipe):
                self._name(("class", label), name)
        if recipe.examples_are_mixed:
            self._walk = max(self._walk, longest_walk(counted, recipe))

    def _name(self, kind: tuple[str, int | str], name: str) -> None:
        self._named[kind] = min(name, self._named.get(kind, name))

    def corpus(self) -> Corpus:
        """Returns the counts; they do not depend on the order of clips."""
        return Corpus(
            tuple(sorted(str(n) for unit, n in self._named if unit == "class")),
            Counter(dict(sorted(self._rates.items()))),
            Counter(dict(sorted(self._channels.items()))),
            dict(sorted(self._named.items(), key=str)),
            self._frames,
            self._walk,
        )


def _labels_of(clip: Clip, recipe: Recipe) -> Iterable[str]:
    separator = recipe.label_separator
    if recipe.events is not None:
        return (*(event.label for event in clip.events), *named_no_event(recipe))
    if clip.label is None:
        return ()
    return (clip.label,) if separator is None else clip.label.split(separator)


def format_of(
    corpus: Corpus,
    recipe: Recipe,
    listing: ListingSummary,
    columns: Sequence[Column] = (),
) -> ExampleFormat | None:
    """Returns the format of a corpus' examples; None if every clip was rejected."""
    if not corpus.rates_hz:
        return None
    clip = min(corpus.named.values())
    check_any_event(corpus.labels, clip, listing.alike, recipe)
    return ExampleFormat.of(corpus, recipe, columns)


def longest_walk(clips: Iterable[Clip], recipe: Recipe) -> int:
    """Returns the most windows of a clip that is decoded from its start.

    To read in the middle of such a clip, the decoder walks there: there is no other
    way to have the same samples. 0 if all clips are in files that can be sought.
    """
    copies = recipe.copies
    return max(
        (
            clip.examples // (1 + copies_in(copies, clip.split))
            for clip in clips
            if walks(clip, recipe)
        ),
        default=0,
    )


def walks(clip: Clip, audio: Audio) -> bool:
    """Whether reading in the middle of a clip takes what is before, too."""
    return (
        bool(audio.stream)
        or audio.loads(clip.filepath)
        or not finds_frames(header_of(clip))
    )


# Clips without a window that are named.
CLIPS_NAMED = 5


class TallyKey(NamedTuple):
    """What examples are counted by. With the rate, seconds add up exactly."""

    split: str
    label: str
    rate_hz: int


@dataclass(slots=True, repr=False)
class PlanSummary:
    """A plan in a few numbers; its size does not grow with the corpus.

    Attributes
    ----------
    example_format : ExampleFormat or None
        None if no clip was accepted.
    layouts : mapping
        The shards of each split.
    moves : mapping or None
        The groups that are not in the split of their hash, as the recipe holds them.
    clips, examples : Counter
        By the class of the clip.
    event_clips, event_examples : Counter
        By the classes of the events in windows.
    dropped : Counter
        How many examples are left out because they have no event. The counts of the
        other fields include them.
    frames : Counter
        The frames of all examples by the class of the clip, if each is a whole clip;
        otherwise empty, because all examples have the same number of frames.
    audio : Counter
        The frames of clips that are in the windows of examples that are not left out,
        by split and sample rate. Where windows overlap, a frame counts once; padding
        and copies do not count.
    left_out : Counter
        How many clips are left out, by
        :func:`beam_pipeline.planning.clips.why_left_out`.
    first_left_out : list of str
        The files of the first of them, at most ``CLIPS_NAMED``.
    """

    listing: ListingSummary
    example_format: ExampleFormat | None
    layouts: Mapping[str, ShardLayout]
    moves: Mapping[int, str] | None = None
    clips: Counter[TallyKey] = field(default_factory=Counter)
    examples: Counter[TallyKey] = field(default_factory=Counter)
    event_clips: Counter[TallyKey] = field(default_factory=Counter)
    event_examples: Counter[TallyKey] = field(default_factory=Counter)
    dropped: Counter[TallyKey] = field(default_factory=Counter)
    frames: Counter[TallyKey] = field(default_factory=Counter)
    audio: Counter[tuple[str, int]] = field(default_factory=Counter)
    left_out: Counter[str] = field(default_factory=Counter)
    first_left_out: list[str] = field(default_factory=list)

    def __repr__(self) -> str:
        return f"<PlanSummary: {self.described()}>"

    def described(self) -> str:
        """Returns the clips and the examples of each split, on one line."""
        splits = ", ".join(f"{n} {s.total:,}" for n, s in self.layouts.items())
        return f"examples of {self.listing.clips:,} clips: {splits or 'none'}"

    def add(self, placed: PlacedClips, plans: WindowPlans, recipe: Recipe) -> None:
        """Counts the clips of a bucket; ``plans`` are those of the recipe."""
        layout = self.layouts.get(placed.split)
        total = 0 if layout is None else layout.total
        index = placed.first_example
        for clip in placed.clips:
            if not clip.examples:
                plan = plans.of(clip.sample_rate_hz, clip.frames)
                self.left_out[why_left_out(clip.frames, plan, recipe)] += 1
                if len(self.first_left_out) < CLIPS_NAMED:
                    self.first_left_out.append(clip.filepath)
                continue
            count = min(clip.examples, max(0, total - index))
            index += clip.examples
            key = TallyKey(clip.split, clip.label or "", clip.sample_rate_hz)
            self.clips[key] += count > 0
            self.examples[key] += count
            if recipe.windows_are_clips:
                self.frames[key] += count * clip.frames
            if count:
                self._add_windows(clip, count, key, plans, recipe)

    def _add_windows(
        self,
        clip: Clip,
        count: int,
        key: TallyKey,
        plans: WindowPlans,
        recipe: Recipe,
    ) -> None:
        """Counts the audio and the events of a clip's first examples."""
        if recipe.events is None or self.example_format is None:
            plan = plans.of(key.rate_hz, clip.frames)
            audio = count_audio(clip, count, plan, recipe)
        else:
            by_label, dropped, audio = count_events(
                clip, count, self.example_format, recipe
            )
            self.dropped[key] += dropped
            for label, n in by_label.items():
                self.event_clips[key._replace(label=label)] += n > 0
                self.event_examples[key._replace(label=label)] += n
        self.audio[key.split, key.rate_hz] += audio

    def by_class(self) -> tuple[Counter[TallyKey], Counter[TallyKey]]:
        """Returns the clips and the examples of each class: of events, if there are."""
        some = self.example_format
        if some is not None and some.features.events is not None:
            return self.event_clips, self.event_examples
        return self.clips, self.examples

    def seconds(self, split: str) -> float:
        """Returns the length of a split's examples together, in seconds."""
        return seconds_of(self.in_frames(self.examples), split)

    def in_frames(self, examples: Mapping[TallyKey, int]) -> Mapping[TallyKey, int]:
        """Returns the frames of examples that this plan counts."""
        if self.example_format is None or self.example_format.win_len is None:
            return self.frames
        return {key: n * self.example_format.win_len for key, n in examples.items()}

    def audio_seconds(self, split: str) -> float:
        """Returns the seconds of audio that a split's examples cover; see ``audio``."""
        frames = {TallyKey(name, "", hz): n for (name, hz), n in self.audio.items()}
        return seconds_of(frames, split)

    def kept(self, split: str) -> tuple[int, float]:
        """Returns a split's examples and their seconds, without the dropped ones."""
        total, seconds = self.layouts[split].total, self.seconds(split)
        lost = sum(n for key, n in self.dropped.items() if key.split == split)
        # Of whole clips, which have no events, none is dropped.
        if lost:
            seconds -= seconds_of(self.in_frames(self.dropped), split)
        return total - lost, seconds


def left_out_words(left_out: Mapping[str, int]) -> str:
    """Returns why clips are left out, in words: ``"3 too short, 1 without sound"``."""
    return ", ".join(
        f"{n:,} {why.replace('no_', 'without ').replace('_', ' ')}"
        for why, n in sorted(left_out.items(), reverse=True)
    )


def seconds_of(frames: Mapping[TallyKey, int], split: str) -> float:
    """Returns the length of the counted frames of a split together, in seconds."""
    by_rate: Counter[int] = Counter()
    for key, n in frames.items():
        if key.split == split:
            by_rate[key.rate_hz] += n
    return sum(n / rate for rate, n in sorted(by_rate.items()))


def split_by_class(
    example_format: ExampleFormat, counts: Mapping[TallyKey, int]
) -> dict[str, dict[TallyKey, int]]:
    """Returns the counts of each class; a clip with several classes counts for each."""
    classes = example_format.classes
    found: dict[str, dict[TallyKey, int]] = {name: {} for name in classes}
    separator = example_format.features.separator
    for key, n in counts.items():
        labels = [key.label] if separator is None else key.label.split(separator)
        for label in labels if classes else ():
            found[label][key] = n
    return found
