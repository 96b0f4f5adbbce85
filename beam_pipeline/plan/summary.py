"""What is counted over the clips of a corpus, and over those of its plan.

::

    clips, rejects -> CorpusCount -> Corpus -> the format of examples
    clips in their order -> PlanTally -> PlanSummary    examples by split and class
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from beam_pipeline.audio.decoder import finds_frames
from beam_pipeline.errors import ShortClip
from beam_pipeline.examples.event_targets import check_any_event, named_no_event
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.examples.windows import WindowPlans
from beam_pipeline.inputs.column_values import Column
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.plan.clip_audio import header_of
from beam_pipeline.plan.clips import Clip, Reject, copies_in, why_left_out
from beam_pipeline.plan.segments import PlacedClips, count_audio, count_events
from beam_pipeline.plan.shards import ShardLayout
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.sections import Audio


class CorpusCount:
    """Counts clips, and names one of each kind: the first in the order of names."""

    def __init__(self, recipe: Recipe):
        self._recipe = recipe
        self._rates = Counter[int]()
        self._channels = Counter[int]()
        self._named: dict[tuple[str, int | str], str] = {}
        self._short: dict[int, tuple[int, str]] = {}
        self._frames = self._walk = 0

    def add(self, clips: Iterable[Clip], rejects: Iterable[Reject]) -> None:
        """Counts clips and rejects.

        Clips that are left out do not count: a class that only they have is no class.
        Rejects that are shorter than a window count, too: whoever chooses one rate for
        all clips needs to know their rates.
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
        for reject in rejects:
            if reject.error == ShortClip.__name__:
                rate, name = reject.sample_rate_hz, reject.filepath
                count, first = self._short.get(rate, (0, name))
                self._short[rate] = count + 1, min(first, name)

    def _name(self, kind: tuple[str, int | str], name: str) -> None:
        self._named[kind] = min(name, self._named.get(kind, name))

    def corpus(self) -> Corpus:
        """Returns the counts; they do not depend on the order of clips."""
        return Corpus(
            tuple(sorted(str(n) for unit, n in self._named if unit == "class")),
            Counter(dict(sorted(self._rates.items()))),
            Counter(dict(sorted(self._channels.items()))),
            dict(sorted(self._named.items(), key=str)),
            dict(sorted(self._short.items())),
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
    check_any_event(corpus.labels, clip, listing.alike, recipe, recipe.classes)
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
