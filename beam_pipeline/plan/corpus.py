"""Summaries of the clips of a corpus, made part by part."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from beam_pipeline.errors import ShortClip
from beam_pipeline.examples.event_targets import check_any_event, named_no_event
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.inputs.column_types import Column
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.plan.clips import Clip, Reject
from beam_pipeline.plan.mixing import longest_walk
from beam_pipeline.recipe.clip_sections import Events, Labels
from beam_pipeline.recipe.recipe import Recipe


def describe_clips(clips: Sequence[Clip], recipe: Recipe) -> Corpus:
    """Returns the labels, sample rates and numbers of channels of some clips.

    Clips that are left out do not count: a class that only they have is no class.
    """
    clips = [clip for clip in clips if clip.examples]
    labels: dict[str, str] = {}
    for clip in clips:
        for label in _labels_of(clip, recipe.labels, recipe.events):
            labels[label] = min(labels.get(label, clip.filepath), clip.filepath)
    rates = Counter(clip.sample_rate_hz for clip in clips)
    channels = Counter(clip.channels for clip in clips)
    named: dict[tuple[str, int | str], str] = {
        ("Hz", n): min(c.filepath for c in clips if c.sample_rate_hz == n)
        for n in rates
    }
    named.update({("class", label): first for label, first in labels.items()})
    for n in channels:
        named["channels", n] = min(c.filepath for c in clips if c.channels == n)
    frames = sum(clip.frames for clip in clips)
    walk = longest_walk(clips, recipe) if recipe.shards.are_mixed else 0
    return Corpus(
        tuple(sorted(labels)), rates, channels, named, frames=frames, longest_walk=walk
    )


def describe_rejects(rejects: Iterable[Reject]) -> Corpus:
    """Returns the sample rates of the rejects that are shorter than a window.

    They are rejected because of the window, so who chooses one rate for all clips
    wants to know theirs, too.
    """
    short: dict[int, tuple[int, str]] = {}
    for reject in rejects:
        if reject.error == ShortClip.__name__:
            _count_short(short, reject.sample_rate_hz, 1, reject.filepath)
    return Corpus(short_hz=short)


def describe_reject(reject: Reject) -> Corpus:
    """Calls :func:`describe_rejects` for one."""
    return describe_rejects([reject])


def _count_short(
    short: dict[int, tuple[int, str]], rate_hz: int, more: int, name: str
) -> None:
    count, first = short.get(rate_hz, (0, name))
    short[rate_hz] = count + more, min(first, name)


def _labels_of(clip: Clip, naming: Labels, events: Events) -> Iterable[str]:
    if events.source is not None:
        return (*(event.label for event in clip.events), *named_no_event(events))
    if clip.label is None:
        return ()
    several = naming.separator is not None
    return clip.label.split(naming.separator) if several else (clip.label,)


def merge_corpora(corpora: Iterable[Corpus]) -> Corpus:
    """Returns the summary of several parts of a corpus."""
    labels: set[str] = set()
    rates: Counter[int] = Counter()
    channels: Counter[int] = Counter()
    named: dict[tuple[str, int | str], str] = {}
    short: dict[int, tuple[int, str]] = {}
    frames = walk = 0
    for corpus in corpora:
        walk = max(walk, corpus.longest_walk)
        frames += corpus.frames
        labels.update(corpus.labels)
        rates.update(corpus.rates_hz)
        channels.update(corpus.channels)
        for key, name in corpus.named.items():
            named[key] = min(name, named.get(key, name))
        for rate, (count, name) in corpus.short_hz.items():
            _count_short(short, rate, count, name)
    return Corpus(tuple(sorted(labels)), rates, channels, named, short, frames, walk)


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
    check_any_event(
        corpus.labels, clip, listing.alike, recipe.events, recipe.labels.classes
    )
    return ExampleFormat.of(corpus, recipe, columns)
