"""``verify``: compares a data set with its metadata, and takes out what is damaged.

::

    verify             sizes, SHA-256, the checksums of each record, counts
    verify --deep      and each example, with its row of the tables; with --input, some
                       are made again from the sources
    verify --repair    damaged shards are deleted; metadata.json -> work folder
    record             keeps the shards with the recorded checksums, makes the others
                       all of them as recorded: metadata.json -> output

Between the last two, the data set is not complete, and nothing of it can be opened.

To compare with the sources, the same examples are made again, by the functions that
wrote the data set::

    row of windows.parquet -> its clip, as the inputs list and probe it
                           -> the blocks that wrote the example -> window, example

This runs the recipe: its transforms, and the modules of a person's own that it names. A
run that finds its data set finished compares a few examples, see
:mod:`beam_pipeline.dataset.job`.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import accumulate
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from beam_pipeline import errors
from beam_pipeline.arrays import STRING, Integers
from beam_pipeline.dataset.folders import (
    INDEX,
    MANIFEST,
    METADATA,
    WINDOWS,
    recorded_metadata,
)
from beam_pipeline.dataset.metadata import OWN_SHA256, Metadata, ShardEntry
from beam_pipeline.dataset.side_by_side import Folders, open_data_sets
from beam_pipeline.dataset.tables import belonging_together
from beam_pipeline.encodings import INT64_LIST
from beam_pipeline.examples.features import Corpus, ExampleFormat
from beam_pipeline.examples.serialisation import ExampleMaker, RecordParser
from beam_pipeline.examples.spec import component_names
from beam_pipeline.examples.windows import WindowPlan, count_windows
from beam_pipeline.inputs.columns import (
    FILE_SHA256,
    MANIFEST_FIELDS,
    NULLABLE_FIELDS,
    SourceRow,
)
from beam_pipeline.inputs.listing import Listing
from beam_pipeline.inputs.sources import Input
from beam_pipeline.parameters import check_whole
from beam_pipeline.planning import shards
from beam_pipeline.planning.clips import Clip, Reject, copies_in
from beam_pipeline.planning.prober import Prober
from beam_pipeline.process import OneThread, usable_cores
from beam_pipeline.read.records import open_records
from beam_pipeline.read.window_table import join_tables
from beam_pipeline.recipe.recipe import AT_GRID, VALID_FRAMES, Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import WORK_FOLDER, claimed
from beam_pipeline.storage.pages import Batch
from beam_pipeline.storage.tfrecord import is_compressed, placed_records
from beam_pipeline.text import json_sha256, parse_json
from beam_pipeline.transforms.base import seconds_to_frames
from beam_pipeline.write.shard import (
    BlockEncoder,
    apply_transforms,
    cut_windows,
    decode_audio,
    select_and_augment,
)

if TYPE_CHECKING:
    from beam_pipeline.inputs.listing import GivenInput

_T = TypeVar("_T")

# Of the examples of a shard; of others, only the number is said.
MOST_LINES = 20
_NUMBERED = re.compile(r"-of-\d{5}.*\.tfrecord(\.gz)?$")
_REMEDIES = {INDEX: ". `audio-tfrecords convert` makes a data set with a new index."}


def verify(
    folder: Folders,
    *,
    deep: bool = False,
    input: GivenInput | None = None,
    sample: int | None = None,
    functions: Iterable[Any] = (),
) -> list[str]:
    """Compares a data set with its metadata; returns a line for each difference.

    ::

        for line in verify("records/", deep=True, input="sounds/"):
            print(line)

    Parameters
    ----------
    folder : path or sequence of paths
        The data set; or several, of which it also says whether they belong together.
    deep : bool
        Whether to parse every example, and to compare it with the tables; see
        :func:`find_problems`.
    input : as in :func:`beam_pipeline.record`, optional
        What the data set was recorded from, to decode some windows again. This imports
        the modules of transforms that the recipe names.
    sample : int, optional
        With an input: how many windows; more than there are means all. Default: 100.
    functions : iterable, optional
        Functions and classes of this script or notebook that the recipe names.

    Raises
    ------
    InputError
        If there is no data set, or an input cannot be used.
    OptionError
        If ``sample`` is negative, an option lacks one that it needs, or a
        function has no hash.
    VerificationError
        If the metadata are damaged.
    """
    if input is not None and not deep:
        raise errors.OptionError("input", "needs `deep`")
    if sample is not None and input is None:
        raise errors.OptionError("sample", "needs `deep` and `input`", sample)
    count = check_whole("sample", 100 if sample is None else sample, 0)
    folders = files.path_texts("data set", folder)
    if len(folders) > 1:
        open_data_sets(folders)
        found = partial(verify, deep=deep, input=input, sample=sample)
        return [
            f"{each}: {line}"
            for each in folders
            for line in found(each, functions=functions)
        ]
    (name,) = folders
    metadata = load_metadata(name)
    if input is None:
        return list(find_problems(name, metadata, deep))
    if metadata.recipe is None:
        raise errors.InputError(
            f"{name} was not recorded from audio files, so its examples cannot be "
            "made again. Leave `input` out."
        )
    from beam_pipeline.inputs.listing import resolved
    from beam_pipeline.transforms.steps import register_functions

    register_functions(functions)
    with resolved(input, metadata.recipe) as inputs:
        return list(find_problems(name, metadata, deep, inputs, count))


def repair(folder: str | os.PathLike[str]) -> list[str]:
    """Deletes the damaged shards of a data set; :func:`.record` makes them again.

    ::

        if repair("records/"):
            record("sounds/", "records/", **options)  # as before

    That call keeps the whole shards, makes the others, and puts the metadata back, with
    their statistics, if every shard has its recorded SHA-256. Otherwise it ends with an
    error that names the shards that differ.

    Returns
    -------
    list of str
        The damaged and missing shards; empty if there are none. Then nothing changes.

    Raises
    ------
    InputError
        If there is no data set, if it was not recorded from audio files, or if another
        file than a shard is damaged. Nothing is deleted.
    VerificationError
        If the metadata are damaged.
    """
    root = files.given_path("folder", folder)
    metadata = load_metadata(root)
    if metadata.recipe is None:
        raise errors.InputError(
            f"{root} was not recorded from audio files, so its shards cannot be made "
            "again one by one. Record it again."
        )
    listed = {*metadata.files, METADATA} - {INDEX}
    for file, problem in problems_beside_shards(root, metadata):
        if file in listed:
            raise errors.InputError(
                f"{root}: {file}: {problem}. Only shards can be made again, not this "
                "file. Restore it, or give the command of `record` again with "
                "`overwrite`."
            )
    with claimed(root) as claim:
        metadata = load_metadata(root)  # another run may have replaced it
        damaged = [
            shard.file
            for shard in metadata.shards()
            if any(True for _ in shard_problems(root, shard))
        ]
        if damaged:
            path = files.join(root, METADATA)
            claim.write(recorded_metadata(root), files.read_bytes(path))
            for name in (METADATA, *damaged):
                claim.discard(files.join(root, name))
    return damaged


def load_metadata(folder: str) -> Metadata:
    """Reads the metadata of a data set that is to be verified.

    Raises
    ------
    InputError
        If there is no data set.
    VerificationError
        If its metadata are damaged.
    """
    try:
        return Metadata.load(folder)
    except errors.InputError as error:
        if not files.exists(files.join(files.absolute(folder), METADATA)):
            raise
        raise errors.VerificationError([str(error)]) from error


def find_problems(
    folder: str,
    metadata: Metadata,
    deep: bool = False,
    inputs: Sequence[Input] = (),
    sample: int = 0,
) -> Iterator[str]:
    """Reads every file to its end and yields one line for each difference.

    Compares the size and the SHA-256 of each file, the checksums of every record, and
    the number of records in each shard and split. Finds shards that are not in the
    metadata.

    With ``deep``, each example is parsed, too, and its features are those of the
    metadata; clip, window and class are those of its row in the tables. An example is
    named by its file, the byte where its member begins, and its number. Reading a shard
    ends at the first one whose checksum is wrong. ::

        shard --read once--> SHA-256, records --parse--> example
                                                         |  features by their specs
        manifest.parquet, windows.parquet  <--compare--> v  clip and window

    A thread reads a shard. Memory holds an example for each thread, and some 30 bytes
    for each window.

    Parameters
    ----------
    inputs : sequence of Input, optional
        Those that the data set was recorded from, in their order.
    sample : int
        How many windows are decoded again from the inputs, and compared byte for byte,
        if the tables can be read. Only this runs the recipe.
    """
    root = files.absolute(folder)
    for file, problem in problems_beside_shards(root, metadata):
        yield f"{file}: {problem}"
    if not deep:
        for shard in metadata.shards():
            for problem in shard_problems(root, shard):
                yield f"{shard.file}: {problem}"
        return
    recorded: RecordedWindows | None = None
    if metadata.recipe is not None:
        try:
            recorded = read_recorded(root, metadata)
        except errors.InputError as error:
            yield str(error)
    with ThreadPoolExecutor(usable_cores()) as pool:
        for split, entry in metadata.splits.items():
            expected = {} if recorded is None else _expected(recorded, split)
            check = partial(_check_shard, root, metadata, split, expected)
            firsts = accumulate((shard.examples for shard in entry.shards), initial=0)
            for lines in pool.map(check, firsts, entry.shards):
                yield from lines
    if inputs and recorded is not None:
        yield from sample_problems(recorded, inputs, sample)


def problems_beside_shards(root: str, metadata: Metadata) -> Iterator[tuple[str, str]]:
    """Yields each difference that shows without reading shards, and its file before."""
    values = parse_json(files.read_bytes(files.join(root, METADATA)))
    if values.pop(OWN_SHA256, None) != json_sha256(values):
        yield METADATA, f"was changed: `{OWN_SHA256}` does not match its content"
    for name, split in metadata.splits.items():
        total = sum(shard.examples for shard in split.shards)
        if total != split.examples:
            yield (
                METADATA,
                f"split {name}: its shards have {total} examples together, "
                f"but the split has {split.examples}",
            )
    for name, entry in metadata.files.items():
        found, problem = _tried(files.hash_of, files.join(root, name))
        if found is not None and found != (entry.bytes, entry.sha256):
            problem = _other_content(found[0], entry.bytes)
        if problem is not None:
            yield name, f"{problem}{_REMEDIES.get(name, '')}"
    known = {shard.file for shard in metadata.shards()}
    for file in files.list_files(root):
        is_unfinished = file.startswith(f"{WORK_FOLDER}/")
        if file not in known and not is_unfinished and _NUMBERED.search(file):
            yield file, f"a shard that is not in {METADATA}"


def shard_problems(
    root: str, shard: ShardEntry, use: Callable[[int, bytes], None] | None = None
) -> Iterator[str]:
    """Reads a shard to its end and yields one line for each difference.

    Parameters
    ----------
    use : callable, optional
        Called with where the member of each record begins, and with the record.
    """
    path = files.join(root, shard.file)
    found, problem = _tried(partial(_scan, use=use), path)
    size = files.size(path)
    if found is None:
        if 0 <= size != shard.bytes:
            yield f"has {size} bytes; expected {shard.bytes}"
        yield str(problem)
        return
    sha256, examples = found
    if sha256 != shard.sha256:
        yield _other_content(size, shard.bytes)
    if examples != shard.examples:
        yield f"has {examples} records; expected {shard.examples}"


def _scan(path: str, use: Callable[[int, bytes], None] | None) -> tuple[str, int]:
    """Reads a shard to its end; returns its SHA-256 and the number of its records."""
    sha256, records = hashlib.sha256(), 0
    with files.open_read(path) as file:
        for record in placed_records(file, sha256, compressed=is_compressed(path)):
            records += 1
            if use is not None:
                use(*record)
    return sha256.hexdigest(), records


def _tried(read: Callable[[str], _T], path: str) -> tuple[_T, None] | tuple[None, str]:
    """Returns what is read of a file, or why it cannot be read."""
    try:
        return read(path), None
    except FileNotFoundError:
        return None, "is missing"
    except (OSError, ValueError, errors.InputError) as error:
        return None, str(error)


def _other_content(size: int, expected: int) -> str:
    return (
        f"its SHA-256 differs ({size} bytes; expected {expected}): it was changed or "
        "replaced"
    )


# A feature -> some values, and for each example of a split which of them is meant.
Expected = Mapping[str, tuple[Any, Integers]]


def _expected(recorded: RecordedWindows, split: str) -> Expected:
    """Returns what the examples of a split hold, by the tables of the data set."""
    manifest, recipe = recorded.manifest, recorded.recipe
    specs = recorded.metadata.features
    rows = recorded.of_split(split)
    clips = recorded.clip[rows]
    of_clip = {"filepath": "path", "index": "index", "fs": "sample_rate_hz"}
    if recipe.events is None:
        of_clip["class"] = "class"
    for name, spec in specs.items():
        column = next((c for c in (name + "_", name) if c in manifest), None)
        if spec.description == f"column {name}" and column is not None:
            of_clip.setdefault(name, column)
    found = {
        name: (_stored_as(manifest[column], specs[name].dtype), clips)
        for name, column in of_clip.items()
        if name in specs
    }
    of_window = {"win_start_idx": recorded.start, "copy": recorded.copy}
    if recipe.mark_padding:
        of_window[VALID_FRAMES] = recorded.frames
    return found | {n: (v, rows) for n, v in of_window.items() if n in specs}


def _stored_as(column: Any, dtype: str) -> Any:
    """Returns a column with the digits that an example holds; a table keeps all."""
    if dtype != "float32":
        return column
    if column.dtype != object:
        return column.astype(np.float32)
    return [np.asarray(value, np.float32) for value in column]


def _check_shard(
    root: str,
    metadata: Metadata,
    split: str,
    expected: Expected,
    first: int,
    shard: ShardEntry,
) -> list[str]:
    """Reads a shard once; returns lines of its problems, and of its examples'.

    ``first`` is the number of its first example in the split.
    """
    specs = metadata.features
    parser = RecordParser(specs, specs, only_these=True)
    maker = ExampleMaker(parser, component_names(specs, None))
    target, number_of = specs.get("target"), dict[str, int]()
    if target is not None and (target.encoding, target.shape) == (INT64_LIST, ()):
        number_of = {name: k for k, name in enumerate(metadata.classes)}
    checked, found, shown = 0, 0, list[str]()

    def check(start: int, record: bytes) -> None:
        """Checks an example whose member begins at a byte of the file."""
        nonlocal checked, found
        number = first + checked
        checked += 1
        try:
            example = maker.make(parser.stored(record, 0, len(record)), dict)
            problems = [*_of_class(example, number_of)]
            problems += _of_tables(example, number, expected)
        except ValueError as error:
            problems = [str(error)]
        found += len(problems)
        for problem in problems[: MOST_LINES - len(shown)]:
            shown.append(f"example {number} of {split}, at byte {start}: {problem}")

    lines = list(shard_problems(root, shard, check))
    if checked < shard.examples:
        unread = f"examples {first + checked} to {first + shard.examples - 1}"
        lines.append(f"{unread} of {split} could not be read")
    lines += shown
    if found > len(shown):
        lines.append(f"{found - len(shown)} more problems")
    return [f"{shard.file}: {line}" for line in lines]


def _of_class(
    example: Mapping[str, Any], number_of: Mapping[str, int]
) -> Iterator[str]:
    """Yields how a target differs from the number of its class."""
    if number_of and "class" in example:
        label, target = example["class"], example.get("target")
        meant = number_of.get(label)
        if target != meant:
            yield f"target is {target}, but its class {label!r} has the number {meant}"


def _of_tables(
    example: Mapping[str, Any], number: int, expected: Expected
) -> Iterator[str]:
    """Yields how an example differs from its row of the tables."""
    for name, (values, places) in expected.items():
        if number < len(places):
            found, meant = example.get(name), values[places[number]]
            if not _are_same(found, meant):
                yield f"{name} is {found!r}; {MANIFEST} and {WINDOWS} have {meant!r}"


def _are_same(found: Any, meant: Any) -> bool:
    """Whether two values are equal; NaN equals NaN."""
    if not (isinstance(found, np.ndarray) or isinstance(meant, np.ndarray)):
        return bool(found == meant or (found != found and meant != meant))
    found, meant = np.asarray(found), np.asarray(meant)
    is_float = found.dtype.kind == "f" and meant.dtype.kind == "f"
    return np.array_equal(found, meant, equal_nan=is_float)


# Frames beyond this are in no file; below it, no product of them leaves 64 bits.
_MOST = 1 << 48

# A field of a clip -> its column in the manifest.
CLIP_COLUMNS = {
    field: column
    for column, (_, field) in MANIFEST_FIELDS.items()
    if field not in ("", "group", "channel")
} | {"examples": "windows"}


@dataclass(frozen=True)
class RecordedWindows:
    """The windows of a data set, in the order of its table.

    Attributes
    ----------
    folder : str
        Of the data set, absolute.
    metadata : Metadata
    recipe : Recipe
        Of the metadata.
    manifest : mapping
        Its columns as numpy arrays; texts are objects.
    clip : numpy.ndarray, shape (windows,)
        The row of the manifest of each window.
    start, frames, copy : numpy.ndarray, shape (windows,)
        See :func:`beam_pipeline.write.window_rows.table_columns`.
    kept : numpy.ndarray of bool, shape (windows,)
        Whether the window is in the data set.
    """

    folder: str
    metadata: Metadata
    recipe: Recipe
    manifest: Mapping[str, Any]
    clip: Integers
    start: Integers
    frames: Integers
    copy: Integers
    kept: npt.NDArray[np.bool_]

    @cached_property
    def _clip_by_clip(self) -> tuple[Integers, Integers]:
        """The windows in the order of the clips, and where those of each end."""
        ordered: Integers = np.arange(len(self.clip))
        if (self.clip[1:] < self.clip[:-1]).any():  # examples are mixed
            ordered = np.lexsort((self.copy, self.start, self.clip))
        return ordered, np.cumsum(self.manifest["windows"])

    def of_clip(self, row: int) -> Integers:
        """Returns the rows of the windows of a clip, in their order."""
        ordered, ends = self._clip_by_clip
        return ordered[ends[row] - self.manifest["windows"][row] : ends[row]]

    def of_split(self, split: str) -> Integers:
        """Returns the rows of the windows of a split that are in the data set."""
        if not len(self.clip):
            return np.zeros(0, np.int64)
        return np.flatnonzero(self.kept & (self.manifest["split"] == split)[self.clip])

    def clip_at(self, row: int) -> Clip:
        """Returns the clip of a row, as far as the tables have it.

        It has all examples that the recipe gives it, also those beyond ``num_elems``.
        """
        recipe = self.recipe
        values = {
            name: np.asarray(self.manifest[column][row]).item()
            for name, column in CLIP_COLUMNS.items()
        }
        clip = Clip(**values)
        if recipe.num_elems is None or recipe.windows_at != AT_GRID:
            return clip
        plan = WindowPlan.of(recipe, clip.sample_rate_hz, clip.frames)
        each = 1 + copies_in(recipe.copies, clip.split)
        return clip._replace(examples=count_windows(clip.frames, plan) * each)


def read_recorded(folder: str, metadata: Metadata) -> RecordedWindows:
    """Returns the windows of a data set of audio files, from its tables.

    Raises
    ------
    InputError
        If they are missing, are damaged or do not belong together.
    """
    tables = join_tables(open_data_sets(folder))
    assert tables is not None
    assert metadata.recipe is not None
    windows, manifest, clip, _ = tables
    with belonging_together(folder):
        columns = {name: _values(manifest, name) for name in manifest.column_names}
        for name, (dtype, _) in MANIFEST_FIELDS.items():
            if name in NULLABLE_FIELDS:
                continue
            if dtype != STRING:
                columns[name] = _integers(manifest, name, MANIFEST)
            elif not all(isinstance(text, str) for text in columns[name]):
                raise ValueError(f"{MANIFEST} has no column {name} of texts")
        if (columns["sample_rate_hz"] == 0).any():
            raise ValueError(f"{MANIFEST} has a clip with sample_rate_hz 0")
        start, frames, copy = (
            _integers(windows, name, WINDOWS) for name in ("start", "frames", "copy")
        )
        kept = windows["left_out"].is_null().to_numpy()
        recorded = RecordedWindows(
            folder, metadata, metadata.recipe, columns, clip, start, frames, copy, kept
        )
        for split, entry in metadata.splits.items():
            rows = len(recorded.of_split(split))
            if rows != entry.examples:
                raise ValueError(
                    f"{METADATA}: split {split}: examples is {entry.examples}; "
                    f"{WINDOWS} and {MANIFEST} have {rows}"
                )
        return recorded


def _values(table: Any, name: str) -> Any:
    return table[name].combine_chunks().to_numpy(zero_copy_only=False)


def _integers(table: Any, name: str, file: str) -> Integers:
    """Returns a column of whole numbers, none of which is missing or negative."""
    column = _values(table, name)
    if column.dtype.kind not in "iu":
        raise ValueError(f"{file} has no column {name} of whole numbers")
    if len(column) and not 0 <= int(column.min()) <= int(column.max()) <= _MOST:
        raise ValueError(f"{file} has a column {name} that no data set has")
    return np.asarray(column, np.int64)


# What a clip must have in the inputs as in the manifest.
_COMPARED = (
    "frames", "sample_rate_hz", "start", "native_frames", "channels", "format",
    "subtype", "label", "native_rate_hz",
)  # fmt: skip


class DecodeAgain:
    """Makes windows and examples of a data set again, from its sources.

    Parameters
    ----------
    recorded : RecordedWindows
        The tables of the data set.
    inputs : sequence of Input
        Those that it was recorded from, in their order.
    clips : iterable of int
        The rows of the manifest of all clips whose windows may be asked for. The inputs
        are listed once.

    Raises
    ------
    InputError
        If the inputs have none of these clips.
    """

    def __init__(
        self, recorded: RecordedWindows, inputs: Sequence[Input], clips: Iterable[int]
    ):
        self._recipe = recipe = recorded.recipe
        self.recorded, self._inputs = recorded, inputs
        self._compared = {name: CLIP_COLUMNS[name] for name in _COMPARED}
        if recipe.hash_files:
            self._compared["sha256"] = FILE_SHA256
        self._prober = Prober(inputs, recipe)
        have_windows = recorded.manifest["windows"] > 0
        if recipe.num_elems is not None:  # it cuts off what other clips have
            for place in np.flatnonzero(~have_windows).tolist():
                have_windows[place] = recorded.clip_at(place).examples > 0
        rates, channels = (
            Counter(map(int, recorded.manifest[name][have_windows].tolist()))
            for name in ("sample_rate_hz", "channels")
        )
        corpus = Corpus(recorded.metadata.classes, rates, channels)
        self._format = ExampleFormat.of(corpus, recipe, inputs[0].columns)
        self._last: tuple[int, Clip] | None = None
        wanted = set(map(self._file_of, clips))
        self._listed: dict[tuple[int, str], list[SourceRow]] = {}
        for found in Listing(inputs, recipe).rows():
            if (found.source, found.filepath) in wanted:
                of_file = self._listed.setdefault((found.source, found.filepath), [])
                of_file.append(found)
        if wanted and not self._listed:
            raise errors.InputError(
                f"{', '.join(entry.location for entry in inputs)} holds none of the "
                f"files of the windows, such as {min(wanted)[1]}. Give as `input` what "
                "the data set was recorded from, in the same order."
            )

    def _file_of(self, clip: int) -> tuple[int, str]:
        """Returns the input and the path of a row of the manifest."""
        manifest = self.recorded.manifest
        return int(manifest["input"][clip]), manifest["path"][clip]

    def example(self, row: int) -> bytes:
        """Returns the example of a planned window, serialised.

        Raises
        ------
        ValueError
            If it cannot be made, the recipe leaves it out, or the inputs have another
            clip than the manifest.
        Unreadable
            If the machine failed.
        """
        with OneThread.held():
            work = self._work(self._clip(row), row)
            for frames in decode_audio(
                work, self._inputs, self._recipe, with_sketches=False
            ):
                last = frames
            featured = apply_transforms(select_and_augment(cut_windows(last)))
            block = BlockEncoder().encode(featured)
        if (reject := block.reject) is not None:
            if reject.error == errors.Unreadable.__name__:
                raise errors.Unreadable(reject.filepath, reject.reason)
            raise ValueError(f"cannot be made again: {reject.reason}")
        if not block.rows.kept[-1]:
            raise ValueError("the recipe leaves it out now")
        return block.records[-1]

    def _clip(self, row: int) -> Clip:
        """Returns the clip of a window, which must be that of the manifest."""
        recorded, manifest = self.recorded, self.recorded.manifest
        place = int(recorded.clip[row])
        if self._last is not None and self._last[0] == place:
            return self._last[1]  # to probe it may mean to decode it
        probed = self._prober.probe(self._find(place))
        if isinstance(probed, Reject):
            raise ValueError(f"cannot be read again: {probed.reason}")
        for name, column in self._compared.items():
            old, new = manifest[column][place], getattr(probed, name)
            if old != new:
                raise ValueError(
                    f"{column} is {new} in the inputs, {old} in {MANIFEST}"
                )
        if probed.placed is not None:
            starts = np.unique(recorded.start[recorded.of_clip(place)]).tolist()
            if starts != list(probed.placed.starts[: len(starts)]):
                what = "sounds" if self._recipe.placement else "events"
                raise ValueError(f"the {what} in the inputs give other windows")
        clip = probed._replace(
            row=int(manifest["index"][place]),
            split=manifest["split"][place],
            examples=int(manifest["windows"][place]),
        )
        self._last = place, clip
        return clip

    def _find(self, clip: int) -> SourceRow:
        """Returns what the inputs list for a row of the manifest.

        Its number may be another one there: if other data sets hold some of the files,
        the data set has counted only what is new.
        """
        manifest = self.recorded.manifest
        rate, frames = (int(manifest[n][clip]) for n in ("sample_rate_hz", "frames"))
        parts = [
            found
            for found in self._listed.get(self._file_of(clip), ())
            if found.channel in (None, manifest["channel"][clip])
            and seconds_to_frames(found.offset_s, rate) == manifest["start"][clip]
        ]
        if not parts:
            raise ValueError("the inputs do not have it")
        lengths = [seconds_to_frames(found.duration_s or 0.0, rate) for found in parts]
        return parts[lengths.index(frames) if frames in lengths else 0]

    def _work(self, clip: Clip, row: int) -> shards.ShardWork:
        """Returns the work for some windows, the last of them the one of a row."""
        place = int(self.recorded.clip[row])
        number = int(np.flatnonzero(self.recorded.of_clip(place) == row)[0])
        first = number
        if clip.native_rate_hz != clip.sample_rate_hz:
            # Resampling began with the segment's first window, and the last bits
            # depend on where it begins.
            before = int(self.recorded.manifest["first_index"][place])
            begin = self._layouts[clip.split].begin_of_segment(before + number)
            first = max(0, begin - before)
        count = number - first + 1
        segment = shards.narrow_events(
            shards.Segment(clip, first, count, 0), self._recipe
        )
        shard = shards.Shard("", clip.split, 0, count)
        return shards.ShardWork(shard, Batch([segment]), self._format)

    @cached_property
    def _layouts(self) -> dict[str, shards.ShardLayout]:
        """How the examples of each split lie in its shards."""
        recorded, recipe = self.recorded, self._recipe
        example_format = self._format
        if recipe.examples_are_mixed:
            places = range(len(recorded.manifest["path"]))
            walk = shards.longest_walk(map(recorded.clip_at, places), recipe)
            example_format = replace(example_format, longest_walk=walk)
        splits, windows = (recorded.manifest[name] for name in ("split", "windows"))
        totals = {n: int(windows[splits == n].sum()) for n in np.unique(splits)}
        return shards.lay_out(totals, example_format, recipe)


def sample_problems(
    recorded: RecordedWindows,
    inputs: Sequence[Input],
    count: int,
    clips: Iterable[int] | None = None,
) -> Iterator[str]:
    """Yields a line for each of some examples that the sources give no longer.

    Parameters
    ----------
    inputs : sequence of Input
        Those that the data set was recorded from, in their order.
    count : int
        How many examples, drawn at random; the same ones each time.
    clips : iterable of int, optional
        The numbers in the listing of clips whose examples are drawn, if they have any.
        Default: all clips.

    Raises
    ------
    RecipeError
        If a transform of the recipe cannot be had here.
    """
    wanted = np.flatnonzero(recorded.kept)
    if clips is not None:
        among = np.isin(recorded.manifest["index"], list(clips))[recorded.clip]
        wanted = wanted[among[wanted]] if among.any() else wanted
    rows = np.sort(np.random.default_rng(0).permutation(wanted)[:count]).tolist()
    if not rows:
        return
    again = DecodeAgain(recorded, inputs, recorded.clip[rows].tolist())
    manifest = recorded.manifest
    try:
        splits = dict.fromkeys(manifest["split"][recorded.clip[row]] for row in rows)
        records = {split: open_records(recorded.folder, split) for split in splits}
    except errors.InputError as error:
        yield str(error)
        return
    unread = set[str]()
    for row in rows:
        path, split = (manifest[n][recorded.clip[row]] for n in ("path", "split"))
        number = int(np.searchsorted(recorded.of_split(split), row))
        where = (
            f"{path}: the window at frame {recorded.start[row]} (example {number} of "
            f"{split})"
        )
        try:
            (stored,) = records[split].serialised([number])
        except (errors.DamagedRecord, errors.InputError) as error:
            if error.args[0] not in unread:  # a shard is named once
                unread.add(error.args[0])
                yield str(error)
            continue
        try:
            if again.example(row) != stored:
                yield f"{where}: decoded again, it has other bytes"
        except (ValueError, errors.InputError) as error:
            yield f"{where}: {error}"
