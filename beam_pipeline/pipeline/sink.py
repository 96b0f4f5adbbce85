"""``WriteToTFRecord``: as Beam's, with a faster GZIP stream, and for planned shards."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder, Coder
from apache_beam.io import filesystem, tfrecordio
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.transforms.window import GlobalWindow
from apache_beam.utils.windowed_value import WindowedValue

from beam_pipeline.dataset.work_folder import PARTS, new_draft, receipt_path
from beam_pipeline.plan.shards import Shard, ShardInfo
from beam_pipeline.recipe.values import check_whole
from beam_pipeline.storage import files
from beam_pipeline.storage.gzip_members import GzipWriter
from beam_pipeline.storage.json_text import parse_json
from beam_pipeline.storage.tfrecord import frame_record
from beam_pipeline.write.stretches import (
    PlacedRecords,
    Stretch,
    StretchFile,
    clips_text,
    join_stretches,
    members_text,
    rows_text,
)

CompressionTypes = filesystem.CompressionTypes

# The namespace of this package's counters.
COUNTERS = "audio_tfrecords"


# There is none, or it was cut off, or somebody else has written it.
_NO_RECEIPT = (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError)


class _Sink(tfrecordio._TFRecordSink):  # type: ignore[misc]
    """Beam's sink, with ISA-L instead of zlib for GZIP.

    ``member_bytes`` is the limit of a GZIP member; None: a file is one member.
    """

    member_bytes: int | None = None

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
        return GzipWriter(file, member_bytes=self.member_bytes)

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
    Otherwise each stretch of positions becomes a file, and these are joined, with the
    same bytes. The output is one :class:`ShardInfo` for each shard.

    Parameters
    ----------
    file_path_prefix, coder, file_name_suffix, num_shards, shard_name_template, \
compression_type, triggering_frequency
        As in ``beam.io.WriteToTFRecord``.
    work_folder : str, optional
        A folder for unfinished files. If given, the elements are PlacedRecords.
    member_bytes : int, optional
        Files consist of GZIP members of whole records, up to this many bytes before
        GZIP, or of one record. Each can be inflated without those before it. Default:
        one member. Shards of PlacedRecords have those of their plan.
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
        member_bytes: int | None = None,
    ):
        beam.PTransform.__init__(self)
        if member_bytes is not None:
            check_whole("member_bytes", member_bytes)
        self._sink = _Sink(
            file_path_prefix,
            coder,
            file_name_suffix,
            num_shards,
            shard_name_template,
            compression_type,
            triggering_frequency,
        )
        self._sink.member_bytes = member_bytes
        self._work_folder = work_folder
        self._prefix = file_path_prefix
        self._suffix = file_name_suffix

    def expand(self, pcoll: beam.PCollection) -> beam.PCollection:
        if self._work_folder is None:
            return super().expand(pcoll)
        target = (self._prefix, self._suffix, self._work_folder)
        write = beam.ParDo(_WriteShards(*target))
        written = pcoll | "WriteShards" >> write.with_outputs(PARTS, main="whole")
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


def _key_by_shard(part: StretchFile) -> tuple[str, StretchFile]:
    return part.shard.name, part


class _WriteShards(beam.DoFn):  # type: ignore[misc]
    """Writes stretches of positions; a whole shard gets its final name at once."""

    def __init__(self, prefix: str, suffix: str, work_folder: str):
        self._prefix = prefix
        self._suffix = suffix
        self._work_folder = work_folder

    def setup(self) -> None:
        self._stretch: Stretch | None = None

    def process(self, element: PlacedRecords) -> Iterator[Any]:
        if self._stretch is not None and not self._stretch.continued_by(element):
            yield self._finish(self._stretch)
        if self._stretch is None:
            name = element.shard.name.replace("/", ".")
            path = new_draft(f"{name}-", self._suffix, self._work_folder)
            self._stretch = Stretch(element.shard, element.position, path)
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

    def _close(self, stretch: Stretch) -> StretchFile:
        self._stretch = None
        return stretch.close()

    def _finish(self, stretch: Stretch) -> Any:
        written = self._close(stretch)
        if written.span < written.shard.examples:
            return beam.pvalue.TaggedOutput(PARTS, self._share(written))
        return _commit(written, self._prefix, self._suffix, self._work_folder)

    def _share(self, part: StretchFile) -> StretchFile:
        """Moves a part to the work folder, where every worker can read it."""
        path = files.join(self._work_folder, PARTS, os.path.basename(part.path))
        if path != part.path:
            files.move(part.path, path)
        return replace(part, path=path)


def join_parts(
    keyed: tuple[str, Iterable[StretchFile]],
    prefix: str,
    suffix: str,
    work_folder: str,
) -> ShardInfo:
    """Joins the stretches of one shard; see :func:`join_stretches`."""
    # The parts are not deleted: a runner may run this again after it has finished.
    draft = new_draft("", suffix, work_folder)
    return _commit(join_stretches(keyed[1], draft), prefix, suffix, work_folder)


def _commit(
    shard: StretchFile, prefix: str, suffix: str, work_folder: str
) -> ShardInfo:
    """Gives a shard its final name, then writes its receipt.

    A shard that lost windows gets no receipt: the next run tries again.
    """
    info = ShardInfo(
        shard.shard,
        shard.shard.name + suffix,
        shard.examples,
        shard.bytes,
        shard.sha256,
        shard.left_out,
        shard.seen,
        members_text(shard),
        rows_text(shard),
        shard.crc32c,
        clips_text(shard),
    )
    files.move(shard.path, prefix + info.file)
    Metrics.counter(COUNTERS, "shards").inc()
    Metrics.counter(COUNTERS, "bytes").inc(info.bytes)
    if info.is_whole():
        content = json.dumps({**info._asdict(), "shard": info.shard._asdict()}).encode()
        files.write_bytes(receipt_path(info.shard.name, work_folder), content)
    return info


def find_finished(shard: Shard, prefix: str, work_folder: str) -> ShardInfo | None:
    """Returns the receipt of this very shard; None if no run has finished it.

    The file must still have the bytes that were written, by their checksum.
    """
    path = receipt_path(shard.name, work_folder)
    try:
        values = parse_json(files.read_bytes(path))
        info = ShardInfo(Shard(**values.pop("shard")), **values)
    except _NO_RECEIPT:
        return None
    target = prefix + info.file
    if info.shard != shard or files.size(target) != info.bytes:
        return None
    return info if files.crc32c_of(target) == info.crc32c else None
