"""TFRecord files, whoever wrote them: their splits, their records and their features.

:func:`describe_input` says what a folder is, for :func:`.convert`; :func:`replay_files`
reads files as ``tf.data``.

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
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import Integers
from beam_pipeline.dataset.element_set import Seen, Settle, keep_specs
from beam_pipeline.dataset.folders import METADATA, SCHEMA, has_run
from beam_pipeline.dataset.metadata import (
    Metadata,
    check_files,
    data_sets_of,
    parse_schema,
)
from beam_pipeline.dataset.side_by_side import DataSets, open_data_sets
from beam_pipeline.elements.values import STORED_DTYPES, checked_dtype
from beam_pipeline.encodings import BYTES_LIST, INT64_LIST, LISTS, RAW
from beam_pipeline.errors import InputError, OptionError, check_feature
from beam_pipeline.examples.serialisation import decode_columns, loose_specs
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.parameters import check_whole
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import WORK_FOLDER
from beam_pipeline.storage.tfrecord import read_any_records
from beam_pipeline.text import parse_json

if TYPE_CHECKING:
    import tensorflow as tf

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
    settle : callable
        See :class:`.ElementSet`. If nothing says what the features are, examples do.
    """

    files: tuple[InputFile, ...]
    metadata: Metadata
    advice: str
    splits: tuple[str, ...]
    ignored: int = 0
    data_sets: DataSets | None = None
    labels: tuple[str, ...] = ()
    settle: Settle = keep_specs

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


def describe_input(
    folders: Sequence[str], schema: str | None, dtypes: Mapping[str, str]
) -> InputFolder:
    """Returns what a folder of TFRecords is, or several data sets together.

    Parameters
    ----------
    schema : str or None
        The path of a schema of TensorFlow Metadata.
    dtypes : mapping
        Feature to dtype, see :func:`.with_dtypes`.

    Raises
    ------
    InputError
        If a folder holds no records that can be read, or an unfinished data set; or if
        several data sets do not belong together.
    OptionError
        If ``schema`` or ``dtypes`` do not fit the folder.
    """
    for folder in folders:
        if not files.is_folder(folder):
            raise InputError(
                f"There is no folder {folder}. Give the folder of the TFRecords."
            )
    if len(folders) > 1 or _is_ours(folders[0]):
        for option, value in (("schema", schema), ("dtypes", dtypes)):
            if value:
                problem = f"does not apply, because {METADATA} describes the input"
                raise OptionError(option, problem, value)
        return _data_sets(folders)
    return _other_files(folders[0], schema, dtypes)


def _is_ours(folder: str) -> bool:
    """Whether a folder has our metadata; other programs use the same name."""
    path = files.join(folder, METADATA)
    if not files.exists(path):
        return False
    try:
        values = parse_json(files.read_bytes(path))
    except ValueError:
        return True  # damaged, which an error says later
    return isinstance(values, dict) and "format_version" in values


def _data_sets(folders: Sequence[str]) -> InputFolder:
    data = open_data_sets(folders)
    found: dict[str, list[InputFile]] = {split: [] for split in data.metadata.splits}
    for place, folder in enumerate(data.folders):
        for file in shards_of(folder, data.each[place]):
            name = file.name if len(folders) == 1 else f"{place}/{file.name}"
            found[file.split].append(file._replace(name=name))
    listed = tuple(file for of_split in found.values() for file in of_split)
    advice = f"It does not fit {METADATA}. Restore the file."
    return InputFolder(listed, data.metadata, advice, tuple(found), data_sets=data)


def _other_files(
    folder: str, schema: str | None, dtypes: Mapping[str, str]
) -> InputFolder:
    if has_run(files.join(folder, WORK_FOLDER)):
        raise InputError(
            f"{folder} holds an unfinished data set. Give the command that records it "
            "again."
        )
    records, ignored = find_files(folder)
    if not records:
        example = f", for example {ignored[0]}" if ignored else ""
        raise InputError(
            f"{folder} has no TFRecord files; {len(ignored)} other files{example}. "
            "Names of TFRecords contain .tfrecord, end in .tfr or .tfrec, or look like "
            "train-00000-of-00005."
        )
    path = schema or files.join(folder, SCHEMA)
    if schema is not None and not files.exists(path):
        raise OptionError("schema", "there is no such file", schema)
    if files.exists(path):
        specs, source = parse_schema(files.read_bytes(path), path), path
        advice, settle = "another `schema`", keep_specs
    else:
        specs, source = infer_features(records)[0], "the first examples"
        advice, settle = "a `schema` that fits all records", settle_specs
    return InputFolder(
        tuple(records),
        Metadata(None, with_dtypes(specs, dtypes), (), {}),
        f"The features follow from {source}. Give {advice}, or the `features` that "
        "stay.",
        tuple(dict.fromkeys(file.split for file in records)),
        sum(files.join(folder, name) != path for name in ignored),
        settle=settle,
    )


def replay_files(
    filenames: files.PathLike | Sequence[files.PathLike],
    *,
    features: Sequence[str] | None = None,
    as_supervised: Sequence[str] | None = None,
    schema: files.PathLike | None = None,
    dtypes: Mapping[str, str] | None = None,
    batch_size: int | None = None,
    drop_remainder: bool = False,
    shuffle: bool | int = False,
    seed: int = 0,
    deterministic: bool = True,
    encoded: Sequence[str] = (),
    missing: Mapping[str, Any] | None = None,
) -> tf.data.Dataset:
    """Reads files of ``tf.train.Example``, whoever wrote them.

    ::

        train = replay_files(paths, as_supervised=("image", "class"))
        test = replay_files(other_paths, as_supervised=("image", "id"))

    What the files hold is, in this order: what ``schema`` says; the ``metadata.json``
    in the files' folder or the one above; what the first 256 examples show. There, a
    feature that always has one value is a single value; one that always has n values is
    a list of n; any other is a list of any length. Bytes are texts.

    Parameters
    ----------
    filenames : path, or sequence of them
        Files compressed with GZIP or not; their content decides.
    schema : path, optional
        A schema of TensorFlow Metadata, ``schema.pbtxt``.
    dtypes : mapping, optional
        Feature to dtype: bytes become an array of it, integers other integers.
    deterministic : bool
        False: in the order in which examples are ready, which is faster.
    features, as_supervised, batch_size, drop_remainder, shuffle, seed, encoded, missing
        As in :func:`replay`.

    Returns
    -------
    tf.data.Dataset
        The number of elements is not known before they are read.

    Raises
    ------
    InputError
        If a file cannot be read or holds other records, or a feature is not there.
    OptionError
        If another argument has a wrong value.
    """
    from beam_pipeline.read import replay

    paths = [*map(files.absolute, files.path_texts("filenames", filenames))]
    if batch_size is not None:
        check_whole("batch_size", batch_size)
    metadata = _describe(paths, schema, dtypes or {})
    parsing = replay.choose_parsing(metadata, features, as_supervised, encoded, missing)
    records = replay.read_files(
        paths, shuffle=shuffle, seed=seed, deterministic=deterministic
    )
    elements = replay.parse_dataset(
        records, parsing, _exact(replay.make_parser(parsing, {}), parsing.specs),
        batch_size=batch_size, drop_remainder=drop_remainder,
        deterministic=deterministic,
    )  # fmt: skip
    return elements.prefetch(2)


def _describe(
    paths: Sequence[str], schema: files.PathLike | None, dtypes: Mapping[str, str]
) -> Metadata:
    """Returns metadata with the features of the files."""
    if schema is not None:
        path = files.given_path("schema", schema)
        specs = parse_schema(files.read_bytes(path), path)
        return Metadata(None, with_dtypes(specs, dtypes), (), {})
    for folder, metadata in data_sets_of(paths[:1]).items():
        shards = {files.join(folder, shard.file) for shard in metadata.shards()}
        if paths[0] in shards and not dtypes:
            return metadata
    sources = [InputFile(path, path, DEFAULT_SPLIT, 0) for path in paths]
    loose, records = infer_features(sources)
    seen = Seen()
    seen.add(loose.values(), decode_columns(records, loose))
    settled = {spec.name: spec for spec in settle_specs(loose.values(), seen)}
    return Metadata(None, with_dtypes(settled, dtypes), (), {})


def _exact(parse: Any, specs: Mapping[str, FeatureSpec]) -> Any:
    """Returns the parser with a check that narrow integers hold what is stored.

    TensorFlow's casts wrap around.
    """
    import tensorflow as tf

    narrow = {
        name: spec.dtype
        for name, spec in specs.items()
        if spec.encoding == INT64_LIST and spec.dtype != "int64"
    }
    if not narrow:
        return parse
    wide = {name: tf.io.VarLenFeature(tf.int64) for name in narrow}

    def parse_exactly(serialised: Any) -> Any:
        stored = tf.io.parse_example(tf.reshape(serialised, (-1,)), wide)
        checks = []
        for name, dtype in narrow.items():
            values = stored[name].values
            same = tf.cast(tf.cast(values, dtype), tf.int64) == values
            message = f"Feature {name}: {dtype} cannot hold a stored value"
            checks.append(tf.debugging.Assert(tf.reduce_all(same), [message, values]))
        with tf.control_dependencies(checks):
            return parse(tf.identity(serialised))

    return parse_exactly
