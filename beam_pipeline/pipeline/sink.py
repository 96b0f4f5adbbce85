"""How shards are written; and ``WriteToTFRecord``, Beam's with a faster GZIP stream."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import apache_beam as beam
from apache_beam.coders import BytesCoder, Coder
from apache_beam.io import filesystem, tfrecordio
from apache_beam.io.filesystems import FileSystems
from apache_beam.metrics import Metrics
from apache_beam.typehints import with_input_types, with_output_types

from beam_pipeline.dataset import folders
from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.planning.shards import ClipSketch, Shard, ShardInfo
from beam_pipeline.process import OneThread
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import Claim
from beam_pipeline.storage.tfrecord import MemberWriter, frame_record
from beam_pipeline.text import parse_json
from beam_pipeline.write.shard import EncodedBlock, ShardDraft

CompressionTypes = filesystem.CompressionTypes

# The namespace of this package's counters.
COUNTERS = "audio_tfrecords"

# There is no receipt, or it was cut off, or somebody else has written it.
_NO_RECEIPT = (FileNotFoundError, ValueError, TypeError, KeyError, AttributeError)


class OneThreadStep(beam.DoFn):  # type: ignore[misc]
    """A step whose process computes with one thread; see :class:`.OneThread`."""

    def setup(self) -> None:
        OneThread.begin()

    def teardown(self) -> None:
        OneThread.end()


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
        return MemberWriter(file)

    def write_encoded_record(self, file_handle: Any, value: bytes) -> None:
        file_handle.write(frame_record(value))


class WriteToTFRecord(beam.io.WriteToTFRecord):  # type: ignore[misc]
    """Writes TFRecord files, with the parameters of ``beam.io.WriteToTFRecord``.

    It does the same as Beam's transform; GZIP is some ten times faster. GZIP files hold
    no time and no name. They consist of members of whole records, up to 1 MiB before
    GZIP, which can be inflated without those before them.

    Parameters
    ----------
    file_path_prefix, coder, file_name_suffix, num_shards, shard_name_template, \
compression_type, triggering_frequency
        As in ``beam.io.WriteToTFRecord``.
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


@with_input_types(EncodedBlock)
@with_output_types(ShardInfo)
@dataclass(eq=False)
class WriteShards(beam.DoFn):  # type: ignore[misc]
    """Calls :class:`ShardDraft`: EncodedBlock -> ShardInfo, at the end of each shard.

    A shard must come in one bundle, block after block, up to its last position; so the
    steps that make its blocks must be fused with this one. It becomes the file
    ``prefix + shard.name + suffix``. A draft has a name of its own, and a shard that is
    written twice has the same bytes. So a runner may compute a bundle again, also at
    the same time.

    Raises
    ------
    IncompleteRun
        If a bundle ends within a shard, or holds its blocks in another order.
    """

    prefix: str
    suffix: str
    compression: str
    work_folder: str
    claim: Claim

    def setup(self) -> None:
        self._draft: ShardDraft | None = None

    def start_bundle(self) -> None:
        self._abandon()

    def process(self, block: EncodedBlock) -> Iterator[ShardInfo]:
        shard = block.slot.shard
        if self._draft is None:
            name = shard.name.replace("/", ".")
            path = folders.new_draft(
                f"{name}-", self.suffix, self.work_folder, self.claim
            )
            example_format = block.slot.example_format
            self._draft = ShardDraft(shard, example_format, path, self.compression)
        with folders.storing_error(self.work_folder, self.claim):
            self._draft.write(block)
        if self._draft.is_complete:
            info = self._draft.close(shard.name + self.suffix)
            draft, self._draft = self._draft, None
            self.claim.move(draft.path, self.prefix + info.file)
            Metrics.counter(COUNTERS, "shards").inc()
            Metrics.counter(COUNTERS, "bytes").inc(info.bytes)
            write_receipt(info, self.work_folder, self.claim)
            yield info._replace(seen=None)

    def finish_bundle(self) -> None:
        if self._draft is not None:
            with folders.storing_error(self.work_folder, self.claim):
                self._draft.check_complete()

    def teardown(self) -> None:
        self._abandon()

    def _abandon(self) -> None:
        """Deletes the open file; there is one only if a stage failed."""
        if self._draft is not None:
            self._draft.abandon()
            self._draft = None


def write_receipt(info: ShardInfo, work_folder: str, claim: Claim) -> None:
    """Writes the receipt of a shard that has its name; only it has the observations."""
    content = json.dumps({**info._asdict(), "shard": info.shard._asdict()}).encode()
    path = folders.receipt_path(info.shard.name, work_folder, info.is_whole())
    claim.write(path, content)


def read_receipt(
    shard: Shard, work_folder: str, is_whole: bool = True
) -> ShardInfo | None:
    """Returns what the receipt of this very shard says; None if there is none."""
    path = folders.receipt_path(shard.name, work_folder, is_whole)
    try:
        values = parse_json(files.read_bytes(path))
        sketches = tuple(ClipSketch(*each) for each in values.pop("sketches"))
        info = ShardInfo(Shard(**values.pop("shard")), sketches=sketches, **values)
    except _NO_RECEIPT:
        return None
    return info if info.shard == shard else None


def find_finished(shard: Shard, prefix: str, work_folder: str) -> ShardInfo | None:
    """Returns this very shard, without observations; None if no run has finished it.

    One that lost windows is tried again. The file must still have the bytes that were
    written, by their SHA-256.
    """
    info = read_receipt(shard, work_folder)
    if info is None:
        return None
    target = prefix + info.file
    if files.size(target) < 0 or files.hash_of(target) != (info.bytes, info.sha256):
        return None
    return info._replace(seen=None)


def read_recorded_shards(output: str) -> dict[str, ShardEntry]:
    """Returns the shards of a data set that is repaired, by name."""
    path = folders.recorded_metadata(output)
    metadata = Metadata.parse(files.read_bytes(path), path)
    return {entry.file.partition(".")[0]: entry for entry in metadata.shards()}


def find_recorded(
    shard: Shard, output: str, recorded: Mapping[str, ShardEntry]
) -> ShardInfo | None:
    """Returns a shard of a data set that is repaired; None if it must be made again."""
    entry = recorded.get(shard.name)
    try:
        found = entry and files.hash_of(output + entry.file)
    except FileNotFoundError:
        found = None
    if entry is None or found != (entry.bytes, entry.sha256):
        return None
    missing = shard.examples - entry.examples
    return ShardInfo(
        shard, entry.file, entry.examples, entry.bytes, entry.sha256, missing
    )
