"""Writes the shards of splits one after the other, in this process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_pipeline.dataset.metadata import (
    Elements,
    Metadata,
    ShardEntry,
    SplitEntry,
    to_text,
    writer_versions,
)
from beam_pipeline.dataset.output_folder import METADATA, is_shard_file
from beam_pipeline.errors import OptionError, OutputError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.plan.shards import shard_name
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import SUFFIX, GzipWriter, frame_record

_WORK = "_work"

# Yields (source example, its records) for each source.
Run = Callable[[Iterable[Any]], Iterator[tuple[Any, Iterator[bytes]]]]


def write_splits(
    folder: str,
    splits: Mapping[str, Sequence[Any]],
    run: Run,
    *,
    specs: Sequence[FeatureSpec],
    max_bytes: int,
    examples_csv: str | None,
    overwrite: bool,
    progress: Callable[[int, int], Any] | None,
    options: Mapping[str, Any],
) -> tuple[dict[str, int], dict[str, tuple[int, str]]]:
    """Writes each split; returns its number of examples, and the ignored ones."""
    for name in splits:
        if not name.isidentifier():
            raise OptionError("split", "must be letters, digits and _", name)
    _clear(folder, examples_csv, overwrite)
    total = sum(map(len, splits.values()))
    done = 0
    entries: dict[str, SplitEntry] = {}
    ignored: dict[str, tuple[int, str]] = {}
    for name, sources in splits.items():
        split = _Split(folder, name, max_bytes, examples_csv)
        for example, records in run(sources):
            if example.ignored is not None:
                first = ignored.get(name, (0, example.ignored))
                ignored[name] = (first[0] + 1, first[1])
            split.add(example.csv_line, records)
            done += 1
            if progress is not None:
                progress(done, total)
        entries[name] = split.finish()
    metadata = Metadata(
        None,
        {spec.name: spec for spec in specs},
        (),
        entries,
        writer=writer_versions(),
        elements=Elements("tfrecorder", options),
    )
    files.write_bytes(files.join(folder, METADATA), to_text(metadata.to_json()))
    return {name: entry.examples for name, entry in entries.items()}, ignored


class _Split:
    """The files of one split. Their number is known at the end, so they are renamed."""

    def __init__(self, folder: str, name: str, max_bytes: int, csv: str | None):
        self._folder, self._name, self._max_bytes, self._csv = (
            folder, name, max_bytes, csv,
        )  # fmt: skip
        # Each with its path and number of examples; the last one is open.
        self._drafts: list[tuple[GzipWriter, str, int]] = []
        self._bytes = 0
        self._lines: list[str] = []

    def add(self, line: str | None, records: Iterator[bytes]) -> None:
        for record in records:
            framed = frame_record(record)
            if not self._drafts or self._bytes + len(framed) > self._max_bytes:
                self._next()
            writer, path, examples = self._drafts[-1]
            writer.write(framed)
            self._bytes += len(framed)
            self._drafts[-1] = writer, path, examples + 1
        if line is not None:
            self._lines.append(line)

    def _next(self) -> None:
        if self._drafts:
            self._drafts[-1][0].close()
        work = files.join(self._folder, _WORK)
        path = files.draft_path(work, f"{self._name}-{len(self._drafts)}")
        self._bytes = 0
        self._drafts.append((GzipWriter(open(path, "wb")), path, 0))  # noqa: SIM115

    def finish(self) -> SplitEntry:
        if not self._drafts:
            self._next()
        self._drafts[-1][0].close()
        shards = []
        for k, (writer, path, examples) in enumerate(self._drafts):
            name = shard_name(self._name, k, len(self._drafts)) + SUFFIX
            entry = ShardEntry(name, examples, writer.bytes_written, writer.sha256())
            shards.append(entry)
            files.move(path, files.join(self._folder, name))
        if self._csv is not None:
            folder = [] if self._name == DEFAULT_SPLIT else [self._name]
            path = files.join(self._folder, *folder, self._csv)
            files.write_bytes(path, "".join(self._lines).encode())
        files.delete_below(files.join(self._folder, _WORK))
        return SplitEntry(sum(n for *_, n in self._drafts), shards=tuple(shards))


def _clear(folder: str, examples_csv: str | None, overwrite: bool) -> None:
    ours = [
        name
        for name in (files.list_files(folder) if files.is_folder(folder) else ())
        if name == METADATA
        or is_shard_file(name)
        or os.path.basename(name) == examples_csv
    ]
    if ours and not overwrite:
        raise OutputError(
            f"{folder} holds {ours[0]} of an earlier run. Give another folder, or "
            "overwrite=True to replace the data set."
        )
    files.delete(files.join(folder, name) for name in ours)
