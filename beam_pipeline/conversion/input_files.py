"""The TFRecord files of a folder, their splits, and their records."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from beam_pipeline.dataset.folders import METADATA
from beam_pipeline.dataset.metadata import Metadata, check_files
from beam_pipeline.dataset.side_by_side import DataSets
from beam_pipeline.errors import InputError
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.permutation import Integers
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import read_any_records

# Small files share a block, up to this number of bytes.
_BLOCK_BYTES = 4 << 20
# Records are converted together up to these numbers.
_RECORDS_TOGETHER = 256
_BYTES_TOGETHER = 4 << 20

_GZIP = re.compile(r"\.(gz|gzip)$")
_SUFFIX = re.compile(r"\.(tfrecords?|tfrec|tfr)$")
_NUMBERED = re.compile(r"(?P<name>.+)-[0-9]{5,}-of-[0-9]{5,}")
# Files beside records, with the name of the records before their own suffix.
_BESIDE = re.compile(r"\.(idx|index|json|pbtxt|txt|csv|md5|sha256|crc|tmp|lock)$")


class RecordChanges(NamedTuple):
    """What becomes of the records of a file.

    Attributes
    ----------
    splits : numpy.ndarray of int64, shape (records,)
        The number of each record's new split; -1: the record is left out.
    labels : numpy.ndarray of int64, shape (records,)
        The number of each record's new label; -1: the label stays.
    """

    splits: Integers
    labels: Integers


class InputFile(NamedTuple):
    """A file of records.

    Attributes
    ----------
    path, name : str
        ``name`` is relative to the input folder.
    split : str
    size : int
        Its length in bytes.
    examples, sha256 : int or None, str
        What its metadata say; None and empty if there are none.
    changes : RecordChanges or None
        None: all records stay as they are.
    """

    path: str
    name: str
    split: str
    size: int
    examples: int | None = None
    sha256: str = ""
    changes: RecordChanges | None = None

    @property
    def taken(self) -> int:
        """The number of records that are not left out, if it is known; 0 otherwise."""
        if self.changes is None:
            return self.examples or 0
        return int(np.count_nonzero(self.changes.splits >= 0))


@dataclass(frozen=True)
class InputFolder:
    """Folders of TFRecords, as far as they are known before all records are read.

    Attributes
    ----------
    files : tuple of InputFile
        In the order of their splits.
    metadata : Metadata
        Those of the data sets; of other files, only the features.
    advice : str
        What to do if a record does not fit the features.
    splits : tuple of str
    ignored : int
        The number of files that hold no records.
    data_sets : DataSets or None
        The data sets, if this package wrote them.
    labels : tuple of str
        The new labels that the changes of files number.
    is_described : bool
        Whether something says what the features are; otherwise, the first examples do.
    """

    files: tuple[InputFile, ...]
    metadata: Metadata
    advice: str
    splits: tuple[str, ...]
    ignored: int = 0
    data_sets: DataSets | None = None
    labels: tuple[str, ...] = ()
    is_described: bool = True

    @property
    def examples(self) -> int | None:
        """The number of examples that are taken; None if it is not known."""
        if self.data_sets is None:
            return None
        return sum(file.taken for file in self.files)


def find_files(folder: str) -> tuple[list[InputFile], list[str]]:
    """Returns the TFRecord files below a folder, and the names of its other files.

    Files are in the order of their names, with numbers in the order of their values.
    Names with a part that begins with a dot or an underscore are ignored.

    Raises
    ------
    InputError
        If two splits would have the same name.
    """
    records: list[str] = []
    ignored: list[str] = []
    for name in files.list_files(folder):
        hidden = any(part[0] in "._" for part in name.split("/"))
        (ignored if hidden or not is_record_file(name) else records).append(name)
    records.sort(key=_natural)
    found = [
        InputFile(path, name, split, files.size(path))
        for name, split in zip(records, split_names(records), strict=True)
        for path in [files.join(folder, name)]
    ]
    found.sort(key=lambda file: file.split)
    return found, ignored


def is_record_file(name: str) -> bool:
    """Whether a file has the name of a TFRecord file.

    >>> is_record_file("train/0.tfr"), is_record_file("a.tfrecord.idx")
    (True, False)
    """
    base = _GZIP.sub("", name.rpartition("/")[2])
    if _NUMBERED.fullmatch(base) or _SUFFIX.search(base):
        return True
    return ".tfrecord" in base and not _BESIDE.search(base)


def _natural(name: str) -> list[str | int]:
    """Sorts ``2.tfr`` before ``10.tfr``."""
    parts = re.split(r"([0-9]+)", name)
    return [int(p) if i % 2 else p for i, p in enumerate(parts)]


def split_names(names: Sequence[str]) -> list[str]:
    """Returns the split of each file: its folder, or SPLIT of SPLIT-00000-of-00005.

    The uppermost folder counts. If its files have several names before their numbers,
    each of them is a split. Characters that are not of a name become ``_``.

    >>> split_names(["train/0.tfr", "test-00000-of-00001", "a.tfrecord"])
    ['train', 'test', 'records']
    """
    pairs = [_folder_and_name(name) for name in names]
    found: dict[str, set[str]] = {}
    for folder, name in pairs:
        found.setdefault(folder, set()).add(name)
    raw_of: dict[str, str] = {}
    splits = []
    for folder, name in pairs:
        raw = name or folder or DEFAULT_SPLIT
        if folder and (len(found[folder]) == 1 or len(found) > 1):
            several = len(found[folder]) > 1
            raw = f"{folder}_{name}" if name and several else folder
        split = re.sub(r"\W", "_", raw)
        split = split if split.isidentifier() else f"split_{split}"
        if raw_of.setdefault(split, raw) != raw:
            raise InputError(
                f"The files of {raw_of[split]!r} and {raw!r} would both become the "
                f"split {split}. Rename one of them, or convert them one after the "
                "other."
            )
        splits.append(split)
    return splits


def _folder_and_name(path: str) -> tuple[str, str]:
    """Returns the uppermost folder of a file, and its name before ``-00000-of-``."""
    folder, _, _ = path.partition("/") if "/" in path else ("", "", "")
    base = _GZIP.sub("", path.rpartition("/")[2])
    found = _NUMBERED.fullmatch(_SUFFIX.sub("", base))
    return folder, _SUFFIX.sub("", found["name"]) if found else ""


def shards_of(folder: str, metadata: Metadata) -> list[InputFile]:
    """Returns the shards of a data set, in the order of its metadata.

    Raises
    ------
    InputError
        If a shard is missing or has another size.
    """
    check_files(folder, list(metadata.shards()))
    return [
        InputFile(
            files.join(folder, shard.file), shard.file, split, shard.bytes,
            shard.examples, shard.sha256,
        )
        for split, entry in metadata.splits.items()
        for shard in entry.shards
    ]  # fmt: skip


def make_blocks(sources: Iterable[InputFile]) -> Iterator[tuple[InputFile, ...]]:
    """Yields the files in their order: large ones alone, small ones together."""
    block: list[InputFile] = []
    filled = 0
    for source in sources:
        if block and filled + source.size > _BLOCK_BYTES:
            yield tuple(block)
            block, filled = [], 0
        block.append(source)
        filled += source.size
    if block:
        yield tuple(block)


def read_source(source: InputFile) -> Iterator[bytes]:
    """Yields the records of a file.

    Raises
    ------
    InputError
        If the file cannot be read, a record is damaged, or the file differs from its
        metadata. The message names the file and the record.
    """
    sha256 = hashlib.sha256()
    number = 0
    try:
        with files.open_read(source.path) as file:
            for record in read_any_records(file, sha256):
                yield record
                number += 1
    except (ValueError, OSError) as error:
        text = str(error)
        where = "" if text.startswith("record ") else f"record {number}: "
        raise InputError(
            f"{source.path}, {where}{text}. Restore the file, or move it out of the "
            "folder."
        ) from error
    if source.examples is None:
        return
    if number != source.examples or sha256.hexdigest() != source.sha256:
        raise InputError(
            f"{source.path} has {number} records and the SHA-256 {sha256.hexdigest()}, "
            f"but {METADATA} says {source.examples} and {source.sha256}. The shard was "
            "changed or replaced. Restore it, or record the data set again."
        )


def read_together(source: InputFile) -> Iterator[tuple[int, list[bytes]]]:
    """Yields some records at a time, and the number of the first of them."""
    first, records, filled = 0, list[bytes](), 0
    for record in read_source(source):
        records.append(record)
        filled += len(record)
        if len(records) == _RECORDS_TOGETHER or filled >= _BYTES_TOGETHER:
            yield first, records
            first, records, filled = first + len(records), [], 0
    if records:
        yield first, records
