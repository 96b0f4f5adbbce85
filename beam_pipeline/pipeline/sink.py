"""``WriteToTFRecord``: as Beam's, with a faster GZIP stream, and for planned shards."""

from __future__ import annotations

import functools
import json
import os
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder, Coder
from apache_beam.io import filesystem, tfrecordio
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_pipeline.dataset.work_folder import PARTS, receipt_path
from beam_pipeline.errors import IncompleteRun
from beam_pipeline.plan.shards import Shard, ShardInfo
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import GzipWriter, frame_record
from beam_pipeline.write.observations import merge_observations

CompressionTypes = filesystem.CompressionTypes

# The namespace of this package's counters.
COUNTERS = "audio_tfrecords"


@dataclass(frozen=True, slots=True)
class PlacedRecords:
    """Records for the positions ``position .. position + span - 1`` of a shard.

    There are fewer records than positions if windows were lost, or ``left_out``.
    ``seen`` holds the observations of the shard's windows since the last ``seen``;
    most elements have none.
    """

    shard: Shard
    position: int
    span: int
    records: Sequence[bytes]
    left_out: int = 0
    seen: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class _Part:
    """A finished temporary file with the records of some positions of a shard."""

    shard: Shard
    position: int
    span: int
    examples: int
    left_out: int
    seen: Mapping[str, Any] | None
    path: str
    bytes: int
    sha256: str


class _Sink(tfrecordio._TFRecordSink):  # type: ignore[misc]
    """Beam's sink, with ISA-L instead of zlib for GZIP."""

    def open(self, temp_path: str) -> Any:
        detected = CompressionTypes.detect_compression_type(temp_path)
        if CompressionTypes.GZIP not in (
            self.compression_type,
            detected if self.compression_type == CompressionTypes.AUTO else None,
        ):
            return super().open(temp_path)
        file = FileSystems.create(
            temp_path, self.mime_type, CompressionTypes.UNCOMPRESSED
        )
        return GzipWriter(file)

    def write_encoded_record(self, file_handle: Any, value: bytes) -> None:
        file_handle.write(frame_record(value))


class WriteToTFRecord(beam.io.WriteToTFRecord):  # type: ignore[misc]
    """Writes TFRecord files, with the parameters of ``beam.io.WriteToTFRecord``.

    On a ``PCollection[bytes]`` it does the same as Beam's transform; GZIP is some ten
    times faster. GZIP files hold no time and no name.

    With ``work_folder`` the elements are :class:`PlacedRecords`. Each shard becomes the
    file ``prefix + shard.name + suffix``, with its records at their positions. If the
    records of a shard arrive in order, as they do when the runner fuses the stages
    before with this one, they go to one file, which is renamed when it is whole.
    Otherwise each stretch of positions becomes a GZIP member, and the members are
    concatenated. The output is one :class:`ShardInfo` for each shard.

    Parameters
    ----------
    file_path_prefix, coder, file_name_suffix, num_shards, shard_name_template, \
compression_type, triggering_frequency
        As in ``beam.io.WriteToTFRecord``.
    work_folder : str, optional
        A folder for unfinished files. If given, the elements are PlacedRecords.
    """

    def __init__(
        self,
        file_path_prefix: str,
        coder: Coder = BytesCoder(),  # noqa: B008  (as Beam's; it has no state)
        file_name_suffix: str = "",
        num_shards: int = 0,
        shard_name_template: str | None = None,
        compression_type: str = CompressionTypes.AUTO,
        triggering_frequency: int | None = None,
        *,
        work_folder: str | None = None,
    ):
        beam.PTransform.__init__(self)
        self._sink = _Sink(
            file_path_prefix,
            coder,
            file_name_suffix,
            num_shards,
            shard_name_template,
            compression_type,
            triggering_frequency,
        )
        self._work_folder = work_folder
        self._prefix = file_path_prefix
        self._suffix = file_name_suffix

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        if self._work_folder is None:
            return super().expand(pcoll)
        target = (self._prefix, self._suffix, self._work_folder)
        written = pcoll | "WriteShards" >> beam.ParDo(
            _WriteShards(self._sink, *target)
        ).with_outputs(PARTS, main="whole")
        joined = (
            written[PARTS]
            | "KeyByShard" >> beam.Map(_key_by_shard)
            | "GroupParts" >> beam.GroupByKey()
            | "JoinParts" >> beam.Map(join_parts, *target)
        )
        return (written.whole, joined) | "Shards" >> beam.Flatten()


def at_the_end(value: Any) -> WindowedValue:
    """Wraps an output of ``finish_bundle``, where Beam knows no window for it."""
    window = GlobalWindow()
    return WindowedValue(value, window.max_timestamp(), [window])


def _key_by_shard(part: _Part) -> tuple[str, _Part]:
    return part.shard.name, part


class _WriteShards(beam.DoFn):  # type: ignore[misc]
    """Writes stretches of positions; a whole shard gets its final name at once."""

    def __init__(self, sink: _Sink, prefix: str, suffix: str, work_folder: str):
        self._sink = sink
        self._prefix = prefix
        self._suffix = suffix
        self._work_folder = work_folder

    def setup(self) -> None:
        self._stretch: _Stretch | None = None

    def process(self, element: PlacedRecords) -> Iterator[Any]:
        if self._stretch is not None and not self._stretch.continued_by(element):
            yield self._finish(self._stretch)
        if self._stretch is None:
            name = element.shard.name.replace("/", ".")
            path = files.draft_path(
                files.join(self._work_folder, PARTS),
                f"{name}-{uuid.uuid4().hex}{self._suffix}",
            )
            self._stretch = _Stretch(self._sink, element.shard, element.position, path)
        self._stretch.write(element)
        if self._stretch.is_whole():
            yield self._finish(self._stretch)

    def finish_bundle(self) -> Iterator[Any]:
        if self._stretch is not None:
            part = self._share(self._close(self._stretch))
            yield beam.pvalue.TaggedOutput(PARTS, at_the_end(part))

    def teardown(self) -> None:
        """Deletes the open file; there is one only if a stage failed."""
        if self._stretch is not None:
            self._stretch.abandon()

    def _close(self, stretch: _Stretch) -> _Part:
        part = stretch.close()
        self._stretch = None
        return part

    def _finish(self, stretch: _Stretch) -> Any:
        part = self._close(stretch)
        if part.span < part.shard.examples:
            return beam.pvalue.TaggedOutput(PARTS, self._share(part))
        file = part.shard.name + self._suffix
        info = ShardInfo(
            part.shard,
            file,
            part.examples,
            part.bytes,
            part.sha256,
            part.left_out,
            part.seen,
        )
        return _commit(part.path, self._prefix, info, self._work_folder)

    def _share(self, part: _Part) -> _Part:
        """Moves a part to the work folder, where every worker can read it."""
        path = files.join(self._work_folder, PARTS, os.path.basename(part.path))
        if path != part.path:
            files.move(part.path, path)
        return replace(part, path=path)


class _Stretch:
    """An open temporary file for consecutive positions of one shard."""

    def __init__(self, sink: _Sink, shard: Shard, position: int, path: str):
        self._sink = sink
        self._shard = shard
        self._position = position
        self._path = path
        self._span = 0
        self._examples = 0
        self._left_out = 0
        self._seen: Mapping[str, Any] | None = None
        self._file = sink.open(path)

    def continued_by(self, element: PlacedRecords) -> bool:
        end = self._position + self._span
        return element.shard == self._shard and element.position == end

    def is_whole(self) -> bool:
        return self._span == self._shard.examples

    def write(self, element: PlacedRecords) -> None:
        end = element.position + element.span
        if end > self._shard.examples:
            raise IncompleteRun(
                f"Shard {self._shard.name} has {self._shard.examples} positions, but "
                f"got a record for position {end - 1}. The runner mixed two plans. "
                "Run the job again."
            )
        for record in element.records:
            self._sink.write_record(self._file, record)
        self._span += element.span
        self._examples += len(element.records)
        self._left_out += element.left_out
        self._seen = merge_observations(self._seen, element.seen)

    def abandon(self) -> None:
        """Closes and deletes the file."""
        with suppress(OSError, ValueError):  # the disk is full; the file is closed
            self._sink.close(self._file)
        with suppress(FileNotFoundError):
            os.remove(self._path)

    def close(self) -> _Part:
        self._sink.close(self._file)
        return _Part(
            self._shard,
            self._position,
            self._span,
            self._examples,
            self._left_out,
            self._seen,
            self._path,
            self._file.bytes_written,
            self._file.sha256(),
        )


def join_parts(
    keyed: tuple[str, Iterable[_Part]], prefix: str, suffix: str, work_folder: str
) -> ShardInfo:
    """Joins the parts of one shard, which must fill each position once.

    Raises
    ------
    IncompleteRun
        If positions are missing, or filled twice.
    """
    name, parts = keyed
    ordered = sorted(parts, key=lambda part: (part.position, part.span))
    shard = ordered[0].shard
    end = 0
    for part in ordered:
        if part.position != end:
            raise IncompleteRun(
                f"Shard {name} needs a record for position {end}, but got one for "
                f"position {part.position}. The runner lost or repeated records. Run "
                "the job again."
            )
        end += part.span
    if end != shard.examples:
        raise IncompleteRun(
            f"Shard {name} got {end} of {shard.examples} records. The runner lost "
            "records. Run the job again."
        )
    examples = sum(part.examples for part in ordered)
    # The parts are not deleted: a runner may run this again after it has finished.
    whole = files.draft_path(
        files.join(work_folder, PARTS), f"{uuid.uuid4().hex}{suffix}"
    )
    size, sha256 = files.concatenate([part.path for part in ordered], whole)
    seen = functools.reduce(merge_observations, (part.seen for part in ordered))
    left_out = sum(part.left_out for part in ordered)
    info = ShardInfo(shard, name + suffix, examples, size, sha256, left_out, seen)
    return _commit(whole, prefix, info, work_folder)


def _commit(path: str, prefix: str, info: ShardInfo, work_folder: str) -> ShardInfo:
    """Gives a shard its final name, then writes its receipt.

    A shard that lost windows gets no receipt: the next run tries again.
    """
    files.move(path, prefix + info.file)
    Metrics.counter(COUNTERS, "shards").inc()
    Metrics.counter(COUNTERS, "bytes").inc(info.bytes)
    if info.is_whole():
        content = json.dumps({**info._asdict(), "shard": info.shard._asdict()}).encode()
        files.write_bytes(receipt_path(info.shard.name, work_folder), content)
    return info


def find_finished(shard: Shard, prefix: str, work_folder: str) -> ShardInfo | None:
    """Returns the receipt of this very shard; None if no run has finished it."""
    path = receipt_path(shard.name, work_folder)
    try:
        values = json.loads(files.read_bytes(path))
        info = ShardInfo(Shard(**values.pop("shard")), **values)
    except (FileNotFoundError, ValueError):  # no receipt, or one that was cut off
        return None
    whole = info.shard == shard and files.size(prefix + info.file) == info.bytes
    return info if whole else None
