"""One shard: its blocks are encoded, and written to a file, without Beam.

::

    blocks in order     0   1   2   3   4   5
    ShardDraft          file of members, or of records if the shard is mixed
    mixed_order         4   0   5   2   1   3
    the mixed shard     |  4 0  |  5 2  |  1 3  |

A shard is one task: one worker makes all its blocks, in the order of its positions, and
observes them. Only with the last block is the file a shard. Examples of a mixed shard
change places when it is complete.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import IncompleteRun
from beam_pipeline.examples.features import ExampleFormat
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.sources import Input
from beam_pipeline.permutation import Integers, Permutation
from beam_pipeline.planning.poison_clips import NO_POISON_CLIPS, PoisonClips
from beam_pipeline.planning.shards import ClipSketch, Shard, ShardInfo, ShardWork
from beam_pipeline.planning.summary import TallyKey
from beam_pipeline.process import Marks
from beam_pipeline.recipe.recipe import GZIP, VALID_FRAMES, Recipe
from beam_pipeline.storage import files, tfrecord
from beam_pipeline.storage.tfrecord import Members
from beam_pipeline.write import blocks
from beam_pipeline.write.blocks import EncodedBlock, FeatureBlock
from beam_pipeline.write.statistics import DataStatistics, count_levels, describe_levels
from beam_pipeline.write.window_rows import WindowRows, join_rows

# Times in seconds are rounded: less than this part of a frame later is the same frame.
_ROUNDED = 1e-6


def encode_shard(
    work: ShardWork,
    inputs: Sequence[Input],
    recipe: Recipe,
    poison_clips: PoisonClips = NO_POISON_CLIPS,
    with_sketches: bool = True,
) -> Iterator[EncodedBlock]:
    """Makes the blocks of a shard by the steps of a job.

    See :func:`beam_pipeline.pipeline.graph.write_shards`.
    """
    encoder = blocks.BlockEncoder()
    for frames in blocks.decode_audio(
        work, inputs, recipe, poison_clips, with_sketches
    ):
        windows = blocks.select_and_augment(blocks.cut_windows(frames))
        yield encoder.encode(blocks.apply_transforms(windows))
    Marks.unmark()


def mixed_order(shard: Shard) -> Integers:
    """Returns for each position of a mixed shard which planned one it takes."""
    assert shard.mix_seed is not None
    order = Permutation(
        shard.examples, shard.mix_seed, name=f"examples of {shard.name}"
    )
    return order.at(np.arange(shard.examples))


class ShardDraft:
    """The local file of a shard, until it is complete.

    Member ``m`` of a shard holds the positions ``m * per_member`` and following. Those
    without a record leave no gap. If the shard is mixed, its records go to a file of
    their own first, as they come.

    Parameters
    ----------
    shard : Shard
    example_format : ExampleFormat
        That of its examples, which are observed.
    path : str
    compression : str
        That of the recipe.
    """

    def __init__(
        self,
        shard: Shard,
        example_format: ExampleFormat,
        path: str,
        compression: str = GZIP,
    ):
        self.shard = shard
        self.path = path
        self._writer = tfrecord.MemberWriter.create(path, compression)
        self._planned = None
        if shard.mix_seed is not None:
            self._planned = _PlannedRecords(f"{path}.planned", shard.examples)
        self._position = self._examples = self._left_out = 0
        self._rows: list[WindowRows] = []
        self._sketches: dict[int, ClipSketch] = {}
        self._number = 0  # of the member that is not complete
        self._observed = Observations.of(example_format)

    @property
    def is_complete(self) -> bool:
        """Whether the last block of the shard has come."""
        return self._position == self.shard.examples

    def write(self, block: EncodedBlock) -> None:
        """Writes the records of the next positions.

        Raises
        ------
        IncompleteRun
            If other positions are next.
        """
        slot = block.slot
        if slot.shard != self.shard or slot.position != self._position:
            raise self._broken(
                f"gave position {slot.position} of shard {slot.shard.name} after the "
                f"first {self._position} positions of shard {self.shard.name}"
            )
        self._position = block.positions.stop
        if block.features is not None:
            self._observed.add(block.features)
        if block.reject is None:
            self._left_out += slot.examples - len(block.records)
        self._examples += len(block.records)
        self._rows.append(block.rows)
        if slot.sketch is not None:
            known = self._sketches.get(slot.clip.row)
            self._sketches[slot.clip.row] = slot.sketch.with_more(known)
        if self._planned is not None:
            self._planned.write(block)
        else:
            with files.writing(self.path):
                for position, record in zip(_kept(block), block.records, strict=True):
                    self._put(position, tfrecord.frame_parts(record))

    def check_complete(self) -> None:
        """Raises IncompleteRun if blocks are missing, when no more can come."""
        if not self.is_complete:
            raise self._broken(
                f"ended a bundle after {self._position} of {self.shard.examples} "
                f"positions of shard {self.shard.name}"
            )

    def _broken(self, what: str) -> IncompleteRun:
        return IncompleteRun(
            f"The runner {what}. All blocks of a shard must come in order and in one "
            "bundle, so the runner must fuse the steps from DecodeAudio to "
            "WriteToTFRecord. FnApiRunner, PrismRunner, FlinkRunner, SparkRunner and "
            "DataflowRunner do."
        )

    def _put(self, position: int, parts: Sequence[bytes]) -> None:
        """Writes a framed record, in parts, to the member of its position."""
        number = position // self.shard.per_member
        if number != self._number:
            self._writer.end_member()
            self._number = number
        self._writer.add(parts)

    def close(self, file: str) -> ShardInfo:
        """Ends the file of a complete shard.

        Parameters
        ----------
        file : str
            The name that the shard will have.
        """
        self.check_complete()
        rows, clips = join_rows(self._rows), ""
        if self._planned is not None:
            order = mixed_order(self.shard)
            with files.writing(self.path):
                for position, record in self._planned.read(order.tolist()):
                    self._put(position, [record])
            rows = WindowRows(*(column[order] for column in rows))
            clips = tfrecord.pack_columns([self._planned.clips()[order]])
        with files.writing(self.path):
            self._writer.close()
        return ShardInfo(
            self.shard,
            file,
            self._examples,
            self._writer.bytes_written,
            self._writer.sha256(),
            left_out=self._left_out,
            seen=self._observed.state(),
            members=Members.of(self._writer.members).pack(),
            windows=rows.pack(),
            clips=clips,
            sketches=tuple(self._sketches.values()),
        )

    def abandon(self) -> None:
        """Closes and deletes the file."""
        with suppress(OSError, ValueError):  # the disk is full; the file is closed
            self._writer.close()
        with suppress(FileNotFoundError):
            os.remove(self.path)
        if self._planned is not None:
            self._planned.abandon()


class _PlannedRecords:
    """A file with the framed records of a mixed shard, in the order of the plan."""

    def __init__(self, path: str, examples: int):
        self._path = path
        with files.writing(path):
            self._file = open(path, "wb")  # noqa: SIM115
        self._sizes = np.zeros(examples, np.int64)
        self._clips: list[Integers] = []

    def write(self, block: EncodedBlock) -> None:
        """Writes the records of a block."""
        self._clips.append(np.full(block.slot.examples, block.slot.clip.row))
        with files.writing(self._path):
            for position, record in zip(_kept(block), block.records, strict=True):
                self._sizes[position] = self._file.write(tfrecord.frame_record(record))

    def clips(self) -> Integers:
        """Returns the row of the clip of each position."""
        return np.concatenate(self._clips)

    def read(self, order: Sequence[int]) -> Iterator[tuple[int, bytes]]:
        """Yields the records in another order, and deletes the file.

        Each comes with its position in the mixed shard.
        """
        with files.writing(self._path):
            self._file.close()
        starts, sizes = np.cumsum(self._sizes) - self._sizes, self._sizes.tolist()
        with open(self._path, "rb") as file:
            for position, planned in enumerate(order):
                if sizes[planned]:
                    file.seek(starts[planned])
                    yield position, file.read(sizes[planned])
        os.remove(self._path)

    def abandon(self) -> None:
        """Closes and deletes the file."""
        with suppress(OSError):
            self._file.close()
        with suppress(FileNotFoundError):
            os.remove(self._path)


def _kept(block: EncodedBlock) -> list[int]:
    """Returns the positions of a block's records."""
    return (block.slot.position + np.flatnonzero(block.rows.kept)).tolist()


@dataclass
class Observations:
    """What the metadata say of examples: counts of left-out ones, statistics of others.

    Each shard has its own; their state is JSON values in the receipt of the shard. At
    the end of a run they merge in the order of shards, so the metadata do not depend on
    who wrote which shard, and when.

    Attributes
    ----------
    statistics : DataStatistics
    examples : Counter
        Examples by the class of the clip.
    classes : Counter
        Examples by class of event and sample rate; empty if the recipe has no events.
    frames : Counter
        Frames of the examples by the class of the clip; empty unless each example is a
        whole clip.
    levels : Counter
        See :func:`beam_pipeline.write.statistics.count_levels`.
    """

    statistics: DataStatistics
    examples: Counter[TallyKey] = field(default_factory=Counter)
    classes: Counter[tuple[str, int]] = field(default_factory=Counter)
    frames: Counter[TallyKey] = field(default_factory=Counter)
    levels: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, example_format: ExampleFormat) -> Observations:
        """Returns empty observations of the features of a format."""
        features = example_format.features
        specs = [features.specs[name] for name in features.made]
        return cls(DataStatistics.of(specs))

    def add(self, block: FeatureBlock) -> None:
        """Adds the examples of a block."""
        clip = block.slot.clip
        key = TallyKey(clip.split, clip.label or "", clip.sample_rate_hz)
        self.examples[key] += len(block.starts)
        if block.slot.example_format.win_len is None:
            self.frames[key] += int(block.valid_frames.sum())
        if len(block.starts):
            self._add_values(block)
        rule = block.slot.example_format.features.events
        if rule is not None:
            for label, n in rule.counts(blocks.timed(block)).items():
                self.classes[label, clip.sample_rate_hz] += n

    def _add_values(self, block: FeatureBlock) -> None:
        example_format = block.slot.example_format
        win_len, valid = example_format.win_len, block.valid_frames
        features, rate = example_format.features, block.slot.clip.sample_rate_hz
        self.statistics.add_clipped(block.clipped)
        if (
            win_len is None
            or VALID_FRAMES not in features.specs
            or valid.min() >= win_len
        ):
            self._add_whole(block.values, block.windows)
            return
        for k, frames in enumerate(valid.tolist()):
            values = {
                name: without_padding(
                    some[k : k + 1], features.specs.get(name), frames, win_len, rate
                )
                for name, some in block.values.items()
            }
            self._add_whole(values, block.windows[k : k + 1, ..., :frames])

    def _add_whole(
        self, values: Mapping[str, Any], windows: npt.NDArray[np.float32]
    ) -> None:
        self.statistics.add(values)
        self.levels.update(count_levels(windows))

    def merge(self, other: Observations) -> None:
        """Adds the observations of other examples."""
        self.statistics.merge(other.statistics)
        for name, _ in _COUNTERS:
            getattr(self, name).update(getattr(other, name))

    def state(self) -> dict[str, Any]:
        """Returns the observations as JSON values."""
        counters = {name: sorted(getattr(self, name).items()) for name, _ in _COUNTERS}
        return {"statistics": self.statistics.state(), **counters}

    @classmethod
    def from_state(cls, state: Mapping[str, Any]) -> Observations:
        """Returns the observations that :meth:`state` described."""
        counters = {
            name: Counter({key_of(key): n for key, n in state[name]})
            for name, key_of in _COUNTERS
        }
        return cls(DataStatistics.from_state(state["statistics"]), **counters)

    def to_json(self) -> dict[str, Any]:
        """Returns the statistics of features and of windows for the metadata."""
        return {"windows": describe_levels(self.levels), **self.statistics.to_json()}


# The counters, and the types of their keys.
_COUNTERS: Sequence[tuple[str, Callable[[Any], Any]]] = (
    ("examples", TallyKey._make),
    ("classes", tuple),
    ("frames", TallyKey._make),
    ("levels", str),
)


def without_padding(
    value: Any, spec: FeatureSpec | None, frames: int, win_len: int, rate_hz: int
) -> Any:
    """Returns a feature of one window without padding.

    ::

        window     [ samples of the clip | zeros      ]   valid frames, then zeros
        signal     [ kept                | left out   ]
        log_mel    [ kept                  | left out ]   a spectrum frame with any
                                                          sample of the clip is kept

    Parameters
    ----------
    value : numpy.ndarray, shape (1, ...), or list
        An array whose axes have a time, or whose last axis has a value for each frame,
        ends where the padding begins. Any other value stays.
    spec : FeatureSpec or None
        None: the feature has no padding.
    frames : int
        The frames of the window before the padding.
    win_len : int
        The frames of a window.
    """
    if spec is None or frames >= win_len:
        return value
    if not isinstance(value, np.ndarray) or value.ndim < 2:
        return value
    for k, axis in enumerate(spec.axes):
        if axis.get("name") == "time" and "step" in axis:
            at = value.ndim - len(spec.axes) + k
            starts = (axis["start"] + axis["step"] * np.arange(axis["size"])) * rate_hz
            count = int(np.count_nonzero(starts < frames - _ROUNDED))
            return value[(slice(None),) * at + (slice(count),)]
    if not spec.axes and value.shape[-1] == win_len:
        return value[..., :frames]
    return value
