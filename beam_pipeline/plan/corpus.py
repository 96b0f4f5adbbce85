"""What the format of examples depends on, counted over all clips of a corpus."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from beam_pipeline.audio.decoder import finds_frames
from beam_pipeline.errors import ShortClip
from beam_pipeline.examples.event_targets import check_any_event, named_no_event
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.inputs.column_types import Column
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.plan.clip_audio import header_of
from beam_pipeline.plan.clips import Clip, Reject, copies_in
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
        Of rejects, those count that are shorter than a window: who chooses one rate for
        all clips wants to know theirs, too.
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
