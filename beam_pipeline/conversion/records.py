"""The TFRecord files of a folder, their splits, and their records as examples.

If nothing describes the features, the records do:

======================================  =================================
values of a feature                     feature
======================================  =================================
always one                              a single value
always n                                a list of fixed length
otherwise                               a list of any length
absent in some examples                 optional
``float_list``                          float32
``int64_list``                          int64
``bytes_list``                          string
======================================  =================================

The first examples decide which features there are, and their types. All examples
decide the lengths, and what is optional: until the end, each feature is an optional
list of any length.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.codecs import BYTES_LIST, INT64_LIST, LISTS, RAW
from beam_pipeline.dataset.element_set import Encoded, Seen
from beam_pipeline.dataset.folders import METADATA
from beam_pipeline.dataset.metadata import Metadata, check_files
from beam_pipeline.dataset.side_by_side import DataSets
from beam_pipeline.elements.values import STORED_DTYPES, checked_dtype
from beam_pipeline.errors import InputError, OptionError, check_feature
from beam_pipeline.examples.record_parser import decode_columns, loose_specs
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.splits import DEFAULT_SPLIT, Splitter, group_key
from beam_pipeline.permutation import Integers
from beam_pipeline.storage import files
from beam_pipeline.storage.tfrecord import read_any_records
from beam_pipeline.storage.wire import (
    keep_features,
    replace_features,
)

# These many examples of each split decide the features, or as many as have these bytes.
FIRST = 256
_FIRST_BYTES = 64 << 20

_INTEGERS = STORED_DTYPES[:8]  # all but uint64


def infer_features(
    sources: Iterable[InputFile],
) -> tuple[dict[str, FeatureSpec], list[bytes]]:
    """Returns the features of the first examples of each split, and these examples.

    Raises
    ------
    InputError
        If there are no examples, one cannot be read, or they do not fit each other.
    """
    found = list(_first_records(sources))
    records = [record for _, record in found]
    if not records:
        raise InputError(
            "The files hold no records, so they show no features. Give a `schema`."
        )
    try:
        return loose_specs(records), records
    except ValueError:
        bad, error = first_failing(loose_specs, records)
        raise InputError(
            f"{found[bad][0]}: {error}. If the records before it are right, convert "
            "the file by itself."
        ) from error


def _first_records(sources: Iterable[InputFile]) -> Iterator[tuple[str, bytes]]:
    """Yields the first records of each split, with the file and number of each."""
    counts: dict[str, int] = {}
    sizes: dict[str, int] = {}
    for source in sources:
        split = source.split
        for number, record in enumerate(read_source(source)):
            if counts.get(split, 0) >= FIRST or sizes.get(split, 0) >= _FIRST_BYTES:
                break
            yield f"{source.path}, record {number}", record
            counts[split] = counts.get(split, 0) + 1
            sizes[split] = sizes.get(split, 0) + len(record)


def first_failing(
    function: Callable[[Any], Any], records: Sequence[bytes]
) -> tuple[int, ValueError]:
    """Returns the place of the first record that fails with those before, and how."""
    for place in range(len(records)):
        try:
            function(records[: place + 1])
        except ValueError as error:
            return place, error
    raise AssertionError("together they failed")


def with_dtypes(
    specs: Mapping[str, FeatureSpec], dtypes: Mapping[str, str]
) -> dict[str, FeatureSpec]:
    """Returns the specs with other dtypes.

    Bytes become an array of rank 1 with any dtype of numpy, little-endian; integers
    become other integers or booleans.

    Raises
    ------
    OptionError
        If no feature has this name, or its values cannot have this dtype.
    """
    made = dict(specs)
    for name, dtype in dtypes.items():
        check_feature("dtypes", name, specs)
        spec, dtype = specs[name], checked_dtype(f"dtypes: {name}", dtype)
        if dtype == spec.dtype:
            continue
        if spec.encoding == BYTES_LIST and dtype != "string":
            made[name] = replace(spec, dtype=dtype, shape=(None,), encoding=RAW)
        elif spec.encoding == INT64_LIST and dtype in _INTEGERS:
            made[name] = replace(spec, dtype=dtype)
        else:
            raise OptionError(
                f"dtypes: {name}",
                f"values of a {spec.encoding} cannot have this dtype",
                dtype,
            )
    return made


def settle_specs(specs: Iterable[FeatureSpec], seen: Seen) -> list[FeatureSpec]:
    """Returns the specs with the lengths that all examples have."""
    settled = []
    for spec in specs:
        shape = seen.shapes.get(spec.name)
        if spec.sequence or shape is None or 0 in shape:
            shape = spec.shape or (None,)
        elif shape == (1,) and spec.encoding in LISTS:
            shape = ()
        optional = spec.name in seen.missing
        settled.append(replace(spec, shape=shape, optional=optional))
    return settled


@dataclass(frozen=True)
class RecordEncoder:
    """Takes the records of files over, as they are if all features stay.

    Attributes
    ----------
    specs : tuple of FeatureSpec
        The features that stay.
    takes_all : bool
        Whether all features stay.
    advice : str
        What to do if a record does not fit the specs.
    shares : mapping or None
        The share of each split; None: records stay in the splits of their files.
    group : FeatureSpec or None
        Examples with the same value of this feature go to one split; None: each
        example by itself.
    seed : int
    splits : tuple of str
        The names of the splits that the changes of files number.
    labels : tuple of mapping
        For each label that these number, the features of it: name to entry, see
        :func:`.replace_features`.
    """

    specs: tuple[FeatureSpec, ...]
    takes_all: bool
    advice: str
    shares: Mapping[str, float] | None = None
    group: FeatureSpec | None = None
    seed: int = 0
    splits: tuple[str, ...] = ()
    labels: tuple[Mapping[bytes, bytes], ...] = ()

    def encode(self, sources: Sequence[InputFile]) -> Iterator[Encoded]:
        """Yields the examples of some files, in their order.

        Raises
        ------
        InputError
            If a record is damaged or does not fit; the message names file and record.
        """
        for source in sources:
            for first, records in read_together(source):
                numbers = np.arange(first, first + len(records))
                if source.changes is not None:
                    numbers = numbers[source.changes.splits[numbers] >= 0]
                    records = [records[number - first] for number in numbers.tolist()]
                decode = partial(self._decoded, source.changes, numbers)
                try:
                    kept, columns = decode(records)
                except ValueError:
                    bad, error = first_failing(decode, records)
                    raise InputError(
                        f"{source.path}, record {numbers[bad]}: {error}. {self.advice}"
                    ) from error
                splits = self._splits_of(source, numbers, columns)
                for split in dict.fromkeys(splits):
                    chosen = [i for i, name in enumerate(splits) if name == split]
                    some = {n: _some(column, chosen) for n, column in columns.items()}
                    examples = [kept[i] for i in chosen]
                    yield Encoded(split, examples, some, sources=len(chosen))

    def _splits_of(
        self, source: InputFile, numbers: Integers, columns: Mapping[str, Any]
    ) -> list[str]:
        """Returns the split of each record."""
        if source.changes is not None:
            return [self.splits[k] for k in source.changes.splits[numbers].tolist()]
        if self.shares is None:
            return [source.split] * len(numbers)
        if self.group is None:
            groups = [f"{source.name}:{number}" for number in numbers.tolist()]
        else:
            groups = [_text(value) for value in columns[self.group.name]]
        splitter = Splitter(self.shares)
        return [splitter.split_of(group_key(self.seed, text)) for text in groups]

    def _decoded(
        self,
        changes: RecordChanges | None,
        numbers: Integers,
        records: Sequence[bytes],
    ) -> tuple[Sequence[bytes], dict[str, Any]]:
        """Returns the records with the features that stay, and their values.

        The values of the group are among them. ``numbers`` has those of the records in
        their file. ValueError: if a record does not fit.
        """
        if not records:
            return [], {}
        if changes is not None:
            labels = changes.labels[numbers[: len(records)]].tolist()
            records = [
                record if label < 0 else replace_features(record, self.labels[label])
                for label, record in zip(labels, records, strict=True)
            ]
        specs = {spec.name: spec for spec in self.specs}
        names = {name.encode() for name in specs}
        if self.group is not None:
            specs[self.group.name] = self.group
        if not self.takes_all:
            records = [
                keep_features(record, {name.encode() for name in specs})
                for record in records
            ]
        columns = decode_columns(records, specs)
        if self.group is not None:
            if any(value is None for value in columns[self.group.name]):
                raise ValueError(
                    f"the record lacks feature {self.group.name}, which decides its "
                    "split"
                )
            if len(specs) > len(names):
                records = [keep_features(record, names) for record in records]
        return records, columns


def _some(column: Any, chosen: Sequence[int]) -> Any:
    if isinstance(column, np.ndarray):
        return column[list(chosen)]
    return [column[i] for i in chosen]


def _text(value: Any) -> str:
    """Returns the text of a group, which decides the split."""
    value = np.asarray(value, object if isinstance(value, bytes | str) else None)
    texts = [
        v.decode(errors="backslashreplace") if isinstance(v, bytes) else str(v)
        for v in value.ravel().tolist()
    ]
    return "\x1f".join(texts)


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
