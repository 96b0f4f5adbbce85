"""The DoFns and PTransforms: each wires plain functions to Beam, and adds counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce
from itertools import chain
from typing import Any

import apache_beam as beam
from apache_beam.metrics import Metrics
from apache_beam.pvalue import AsDict, AsSingleton, TaggedOutput
from threadpoolctl import threadpool_limits

from beam_pipeline import blocks, files
from beam_pipeline.blocks import (
    FeatureBlock,
    Format,
    FrameBlock,
    Lost,
    ShardWork,
    WindowBlock,
)
from beam_pipeline.clips import Prober, with_split
from beam_pipeline.events import EventTable, check_any_event, named_no_event
from beam_pipeline.examples import ExampleEncoder, example_bytes
from beam_pipeline.finish import PlanSummary
from beam_pipeline.metadata import manifest_part
from beam_pipeline.observations import Observations, merge_seen
from beam_pipeline.plan import (
    Batch,
    Clip,
    Corpus,
    Listing,
    PlacedClips,
    Reject,
    Segment,
    Shard,
    ShardInfo,
    ShardLayout,
    ShardTask,
    Tally,
    TallyKey,
    bucket_of,
    cut_segments,
    sort_bucket,
)
from beam_pipeline.progress import keeping_verdict, write_totals
from beam_pipeline.recipe import Recipe
from beam_pipeline.rows import SourceRow
from beam_pipeline.sink import COUNTERS, PlacedRecords, at_the_end, find_finished
from beam_pipeline.sources import Before, Input, list_sources
from beam_pipeline.splits import (
    Splitter,
    add_tallies,
    choose_salt,
    group_key,
    shares_of,
    tally_salts,
)
from beam_pipeline.treatment import check_copies

# Rows travel in blocks of this many, so that a step costs less than its work.
ROWS_PER_BLOCK = 256
REMOTE_PROBE_THREADS = 32
# So many wait for others of their buckets, some 30 MB.
CLIPS_HELD = 1 << 16

REJECTS = "rejects"
LISTING = "listing"
FINISHED = "finished"
OBSERVED = "observed"

BucketKey = tuple[str, int]


def _counter(name: str) -> Any:
    """One of the job's counters; the same names on every runner."""
    return Metrics.counter(COUNTERS, name)


class Progress:
    """What this process has written, for whoever watches it; see :mod:`record`.

    ``watched`` is shared memory that a watcher puts here before the work starts, or
    None: examples, and seconds of audio.
    """

    watched: Any = None

    @classmethod
    def add(cls, examples: int, seconds: float) -> None:
        if cls.watched is not None:
            cls.watched[0] += examples
            cls.watched[1] += seconds


@dataclass(eq=False)
class ListSources(beam.DoFn):  # type: ignore[misc]
    """[Input] -> blocks of [SourceRow], keyed to be spread; one Listing to the side."""

    recipe: Recipe

    def process(self, inputs: Sequence[Input]) -> Iterator[Any]:
        block: list[SourceRow] = []
        clips = ignored = 0
        before = Before(inputs, self.recipe, EventTable.of(self.recipe))
        for row in list_sources(inputs, self.recipe, before):
            if row is None:
                ignored += 1
                continue
            clips += 1
            block.append(row)
            if len(block) == ROWS_PER_BLOCK:
                yield block[0].row, Batch(block)
                block = []
        if block:
            yield block[0].row, Batch(block)
        _counter("clips_listed").inc(clips)
        _counter("files_ignored").inc(ignored)
        yield TaggedOutput(LISTING, Listing(clips, ignored, before.alike))


@dataclass(eq=False)
class ProbeAudio(beam.DoFn):  # type: ignore[misc]
    """[SourceRow] -> [Clip]; a Reject to the side for each that cannot be taken.

    What only the whole listing shows of a row comes with the listing.
    """

    inputs: tuple[Input, ...]
    recipe: Recipe

    def setup(self) -> None:
        self._prober = Prober(self.inputs, self.recipe)
        # Headers on an object store are all waiting; on a disk they are all computing.
        self._pool: ThreadPoolExecutor | None = None
        if not all(files.is_local(entry.location) for entry in self.inputs):
            self._pool = ThreadPoolExecutor(REMOTE_PROBE_THREADS)

    def teardown(self) -> None:
        if self._pool is not None:
            self._pool.shutdown()

    def process(
        self, keyed: tuple[int, Iterable[Sequence[SourceRow]]], listing: Listing
    ) -> Iterator[Any]:
        probe = partial(self._prober.probe, alike=listing.alike)
        clips = []
        over = map if self._pool is None else self._pool.map
        for rows in keyed[1]:
            for probed in over(probe, rows):
                if isinstance(probed, Reject):
                    yield _rejected(probed)
                else:
                    clips.append(probed)
        _counter("clips").inc(len(clips))
        yield Batch(clips)


def _rejected(reject: Reject) -> TaggedOutput:
    _counter(f"rejected_{reject.error}").inc()
    return TaggedOutput(REJECTS, reject)


@dataclass(eq=False)
class AssignSplits(beam.PTransform):  # type: ignore[misc]
    """[Clip] -> [Clip], all of them with a split.

    Returns the clips, and the salt that decided: the recipe's, or, where it stratifies,
    one that is chosen by what the splits would hold; no worker holds more than the sums
    of that. Elsewhere clips have their splits already.
    """

    recipe: Recipe

    def expand(self, clips: beam.PCollection) -> tuple[beam.PCollection, ...]:
        if not stratifies(self.recipe):
            given = beam.Create([self.recipe.split_salt], reshuffle=False)
            return clips, clips.pipeline | "GivenSalt" >> given
        salt = (
            clips
            | "TallySalts" >> beam.Map(tally_clips, self.recipe)
            | "AddTallies" >> beam.CombineGlobally(add_tallies)
            | "ChooseSalt" >> beam.Map(choose, self.recipe)
        )
        assigned = clips | "AssignSplits" >> beam.Map(
            assign_splits, AsSingleton(salt), self.recipe
        )
        return assigned, salt


def stratifies(recipe: Recipe) -> bool:
    """Whether splits are to be decided by the whole corpus."""
    return recipe.stratify and recipe.split_salt is None


def tally_clips(clips: Sequence[Clip], recipe: Recipe) -> Any:
    """What the splits would hold of a block of clips under each salt."""
    return tally_salts(
        shares_of(recipe) or {},
        [group_key(recipe.seed, clip.group) for clip in clips],
        [clip.label for clip in clips],
        [clip.windows for clip in clips],
    )


def choose(tally: Any, recipe: Recipe) -> int:
    """The salt for a corpus."""
    return choose_salt(shares_of(recipe) or {}, tally) if tally else 0


def assign_splits(clips: Sequence[Clip], salt: int, recipe: Recipe) -> Any:
    """A block of clips, each in the split of its group."""
    splitter = Splitter(shares_of(recipe) or {}, salt)
    return Batch(
        with_split(clip, splitter.split_of(group_key(recipe.seed, clip.group)), recipe)
        for clip in clips
    )


@dataclass(eq=False)
class IndexClips(beam.PTransform):  # type: ignore[misc]
    """[Clip] -> PlacedClips: a prefix sum over buckets that no worker holds whole.

    Returns the placed clips, and the windows of each bucket.
    """

    recipe: Recipe

    def expand(self, clips: beam.PCollection) -> tuple[beam.PCollection, ...]:
        keyed = clips | "KeyByBucket" >> beam.ParDo(KeyByBucket(self.recipe))
        # Before the shuffle: what comes out of it is then read only once.
        counts = (
            keyed
            | "CountWindows" >> beam.MapTuple(count_bucket)
            | "CountBuckets" >> beam.CombinePerKey(sum)
        )
        placed = (
            keyed
            | "GroupBuckets" >> beam.GroupByKey()
            | "PlaceBuckets" >> beam.Map(place_bucket, AsDict(counts), self.recipe)
        )
        return placed, counts


@dataclass(eq=False)
class KeyByBucket(beam.DoFn):  # type: ignore[misc]
    """[Clip] -> (bucket, [Clip]).

    A block has a clip or two for each bucket, and crossing a shuffle alone would cost
    them more than all else, so those of several blocks go together.
    """

    recipe: Recipe

    def start_bundle(self) -> None:
        self._buckets: dict[BucketKey, list[Clip]] = {}
        self._held = 0

    def process(self, clips: Sequence[Clip]) -> Iterator[tuple[BucketKey, Any]]:
        for clip in clips:
            key = clip.split, bucket_of(clip, self.recipe)
            self._buckets.setdefault(key, []).append(clip)
        self._held += len(clips)
        if self._held >= CLIPS_HELD:
            yield from self._flush()

    def finish_bundle(self) -> Iterator[Any]:
        return map(at_the_end, self._flush())

    def _flush(self) -> Iterator[tuple[BucketKey, Any]]:
        buckets, self._buckets, self._held = self._buckets, {}, 0
        return ((key, Batch(clips)) for key, clips in buckets.items())


def count_bucket(key: BucketKey, clips: Sequence[Clip]) -> tuple[BucketKey, int]:
    """How many windows some clips of a bucket have."""
    return key, sum(clip.windows for clip in clips)


def place_bucket(
    keyed: tuple[BucketKey, Iterable[Sequence[Clip]]],
    counts: Mapping[BucketKey, int],
    recipe: Recipe,
) -> Any:
    """A bucket's clips, in order, with the number of windows in the buckets before."""
    (split, bucket), several = keyed
    before = sum(n for (s, b), n in counts.items() if s == split and b < bucket)
    clips = sort_bucket(chain.from_iterable(several), recipe)
    return PlacedClips(split, bucket, before, tuple(clips))


def describe_clips(clips: Sequence[Clip], recipe: Recipe) -> Corpus:
    """The labels, sample rates and channels of some clips."""
    labels = {clip.label for clip in clips if clip.label is not None}
    if recipe.label_separator is not None:
        labels = {
            part for label in labels for part in label.split(recipe.label_separator)
        }
    if recipe.events is not None:
        labels = {event.label for clip in clips for event in clip.events}
        labels.update(named_no_event(recipe))
    rates = Counter(clip.sample_rate_hz for clip in clips)
    channels = Counter(clip.channels for clip in clips)
    named = {
        ("Hz", n): min(c.filepath for c in clips if c.sample_rate_hz == n)
        for n in rates
    }
    for n in channels:
        named["channels", n] = min(c.filepath for c in clips if c.channels == n)
    return Corpus(tuple(sorted(labels)), rates, channels, named)


def merge_corpora(corpora: Iterable[Corpus]) -> Corpus:
    """What several parts of a corpus are together."""
    labels: set[str] = set()
    rates: Counter[int] = Counter()
    channels: Counter[int] = Counter()
    named: dict[tuple[str, int], str] = {}
    for corpus in corpora:
        labels.update(corpus.labels)
        rates.update(corpus.rates_hz)
        channels.update(corpus.channels)
        for key, name in corpus.named.items():
            named[key] = min(name, named.get(key, name))
    return Corpus(tuple(sorted(labels)), rates, channels, named)


def resolve_format(
    _: Any,
    corpora: Iterable[Corpus],
    recipe: Recipe,
    work_folder: str,
    listing: Listing,
    columns: Sequence[tuple[str, str]] = (),
) -> Format | None:
    """The format of all clips together; None where not one was accepted."""
    corpus = merge_corpora(corpora)
    if not corpus.rates_hz:
        return None
    with keeping_verdict(work_folder):
        clip = min(corpus.named.values())
        check_any_event(corpus.labels, clip, listing.alike, recipe)
        return Format.of(corpus, recipe, columns)


def lay_out(
    _: Any, counts: Mapping[BucketKey, int], form: Format | None, recipe: Recipe
) -> dict[str, ShardLayout]:
    """How each split is cut into shards."""
    if form is None:
        return {}
    windows: Counter[str] = Counter()
    for (split, _bucket), count in counts.items():
        windows[split] += count
    check_copies(recipe, windows)
    size = example_bytes(form.features)
    return {
        split: ShardLayout.of(split, total, size, recipe)
        for split, total in sorted(windows.items())
    }


def cut_shards(
    placed: PlacedClips, layouts: Mapping[str, ShardLayout], recipe: Recipe
) -> Iterator[tuple[str, Any]]:
    """A bucket's clips -> by its name, each shard, with what it takes of them."""
    segments: dict[Shard, list[Segment]] = {}
    for shard, segment in cut_segments(placed, layouts[placed.split]):
        segments.setdefault(shard, []).append(blocks.narrow_events(segment, recipe))
    for shard, some in segments.items():
        yield shard.name, (shard, Batch(some))


def tally_bucket(
    placed: PlacedClips,
    layouts: Mapping[str, ShardLayout],
    form: Format | None,
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
        kept = min(clip.windows, max(0, total - index))
        key = (clip.split, clip.label or "", clip.sample_rate_hz)
        clips[key] += kept > 0
        windows[key] += kept
        index += clip.windows
        if recipe.events is not None and form is not None and kept:
            by_label, without = blocks.count_events(clip, kept, form, recipe)
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


def make_task(
    keyed: tuple[str, Iterable[tuple[Shard, Sequence[Segment]]]],
    form: Format,
    salt: str,
) -> Any:
    """All of a shard's segments -> the work to be done."""
    pieces = list(keyed[1])
    segments = chain.from_iterable(some for _, some in pieces)
    return ShardWork(ShardTask.of(pieces[0][0], segments, salt), form)


def make_manifest_part(
    placed: PlacedClips, layouts: Mapping[str, ShardLayout], recipe: Recipe
) -> tuple[str, int, bytes]:
    """A bucket's rows of the manifest."""
    part = manifest_part(placed, layouts[placed.split], recipe)
    return placed.split, placed.bucket, part


def summarise(
    _: Any,
    listing: Listing,
    form: Format | None,
    layouts: Mapping[str, ShardLayout],
    tallies: Iterable[tuple[Tally, Tally, Mapping[TallyKey, int]]],
    salt: int | None,
    recipe: Recipe,
) -> PlanSummary:
    """The plan in a few numbers."""
    several = list(tallies)
    tally = _added(some for some, _, _ in several)
    by_event = _added(some for _, some, _ in several)
    dropped = Counter[TallyKey]()
    for _, _, some in several:
        dropped.update(some)
    empty = tuple(name for name in shares_of(recipe) or () if name not in layouts)
    return PlanSummary(
        listing, form, dict(layouts), tally, by_event, salt, empty, dropped
    )


def _added(tallies: Iterable[Tally]) -> dict[TallyKey, tuple[int, int]]:
    clips, windows = Counter[TallyKey](), Counter[TallyKey]()
    for tally in tallies:
        for key, (some_clips, some_windows) in tally.items():
            clips[key] += some_clips
            windows[key] += some_windows
    return {key: (clips[key], windows[key]) for key in sorted(windows)}


def announce_plan(summary: PlanSummary, work_folder: str) -> PlanSummary:
    """Passes the plan on, once its totals stand in the work folder."""
    seconds = {split: summary.seconds(split) for split in summary.layouts}
    write_totals(summary.layouts, seconds, work_folder)
    return summary


@dataclass(eq=False)
class SkipFinished(beam.DoFn):  # type: ignore[misc]
    """Lets the shards pass that no earlier run has finished; the others to the side."""

    prefix: str
    work_folder: str

    def process(self, work: ShardWork) -> Iterator[Any]:
        info = find_finished(work.task.shard, self.prefix, self.work_folder)
        if info is None:
            yield work
        else:
            Progress.add(info.examples, 0.0)
            yield TaggedOutput(FINISHED, info)


@dataclass(eq=False)
class DecodeAudio(beam.DoFn):  # type: ignore[misc]
    """ShardWork -> FrameBlock | Lost, in order, one block in memory at a time."""

    inputs: tuple[Input, ...]
    recipe: Recipe

    def setup(self) -> None:
        blocks.keep_freed_memory()
        # Workers are as many as cores, and bytes must not depend on their number.
        self._one_thread = threadpool_limits(1)

    def teardown(self) -> None:
        self._one_thread.restore_original_limits()

    def process(self, work: ShardWork) -> Iterator[FrameBlock | Lost]:
        yield from blocks.decode_blocks(work, self.inputs, self.recipe)


class CutWindows(beam.DoFn):  # type: ignore[misc]
    """FrameBlock -> WindowBlock."""

    def process(self, block: FrameBlock | Lost) -> Iterator[WindowBlock | Lost]:
        yield block if isinstance(block, Lost) else blocks.cut_block(block)


class TreatWindows(beam.DoFn):  # type: ignore[misc]
    """WindowBlock -> WindowBlock, some left out, copies augmented."""

    def process(self, block: WindowBlock | Lost) -> Iterator[WindowBlock | Lost]:
        yield block if isinstance(block, Lost) else blocks.treat_block(block)


class ApplyTransforms(beam.DoFn):  # type: ignore[misc]
    """WindowBlock -> FeatureBlock."""

    def process(self, block: WindowBlock | Lost) -> Iterator[FeatureBlock | Lost]:
        yield block if isinstance(block, Lost) else blocks.transform_block(block)


class EncodeExamples(beam.DoFn):  # type: ignore[misc]
    """FeatureBlock -> PlacedRecords; a Reject to the side for what was lost.

    What is observed of a shard's windows goes with its last records, or, where a
    runner ends a bundle in the middle of it, with records of no span.
    """

    def start_bundle(self) -> None:
        self._form: Format | None = None
        self._observed: Observations | None = None
        self._end: tuple[Shard, int] | None = None  # where the block before ended

    def process(self, block: FeatureBlock | Lost) -> Iterator[Any]:
        place = block.place
        if self._end != (place.shard, place.position):
            yield from self._observations()
        if place.form is not self._form:
            self._form = place.form
            self._encoder = ExampleEncoder(place.form.features.specs.values())
            self._targets = {label: i for i, label in enumerate(place.form.classes)}
        if self._observed is None:
            features = place.form.features
            self._observed = Observations.of(
                features.specs[name] for name in features.transforms
            )
        records: Sequence[bytes] = ()
        left_out = 0
        if isinstance(block, Lost):
            yield _rejected(block.reject)
        else:
            records = blocks.encode_block(block, self._encoder, self._targets)
            left_out = place.windows - len(records)
            self._observed.add(block)
            self._count(block, left_out)
        self._end = place.shard, place.position + place.windows
        seen = None
        if self._end[1] == place.shard.examples:
            seen, self._observed = self._observed.state(), None
        yield PlacedRecords(
            place.shard, place.position, place.windows, records, left_out, seen
        )

    def finish_bundle(self) -> Iterator[Any]:
        return map(at_the_end, self._observations())

    def _observations(self) -> Iterator[PlacedRecords]:
        """What was observed of a shard that did not come to its end here."""
        if self._observed is not None and self._end is not None:
            shard, position = self._end
            yield PlacedRecords(shard, position, 0, (), 0, self._observed.state())
        self._observed = None

    def _count(self, block: FeatureBlock, left_out: int) -> None:
        place = block.place
        seconds = len(block.starts) * place.form.win_len / place.clip.sample_rate_hz
        _counter("windows").inc(len(block.starts))
        if left_out:
            _counter("windows_left_out").inc(left_out)
        _counter("audio_microseconds").inc(round(1e6 * seconds))
        Progress.add(place.windows, seconds)


def split_info(info: ShardInfo) -> Iterator[Any]:
    """A shard's facts; to the side, by split, what was observed of its windows."""
    yield info._replace(seen=None)
    if info.seen is not None:
        yield TaggedOutput(OBSERVED, (info.shard.split, info.seen))


class MergeObservations(beam.CombineFn):  # type: ignore[misc]
    """Merges what was observed, in any order with the same result."""

    def create_accumulator(self) -> Any:
        return None

    def add_input(self, merged: Any, seen: Any) -> Any:
        return merge_seen(merged, seen)

    def merge_accumulators(self, several: Iterable[Any]) -> Any:
        return reduce(merge_seen, several, None)

    def extract_output(self, merged: Any) -> Any:
        return merged
