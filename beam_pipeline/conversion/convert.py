"""``convert``: rewrites a folder of TFRecords as a data set in our layout."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from beam_pipeline.arrays import Integers
from beam_pipeline.conversion.corrections import (
    Corrections,
    correct_clips,
    label_entries,
)
from beam_pipeline.conversion.records import (
    InputFile,
    InputFolder,
    describe_input,
    first_failing,
    make_blocks,
    read_together,
)
from beam_pipeline.dataset import element_set
from beam_pipeline.dataset.folders import EXAMPLES_CSV, MANIFEST, WINDOWS
from beam_pipeline.dataset.job import element_output
from beam_pipeline.dataset.metadata import Elements, Metadata
from beam_pipeline.dataset.side_by_side import DataSets, Folders, has_tables
from beam_pipeline.errors import InputError, OptionError, OutputError, check_feature
from beam_pipeline.examples.serialisation import decode_columns
from beam_pipeline.examples.spec import (
    FeatureSpec,
    Node,
    Structure,
    leaves,
    needed_features,
)
from beam_pipeline.inputs.splits import Splitter, group_key
from beam_pipeline.parameters import Names, comma_text
from beam_pipeline.run.elements import check_run, run_elements
from beam_pipeline.storage import files
from beam_pipeline.storage.files import PathLike
from beam_pipeline.storage.pages import write_parquet
from beam_pipeline.storage.protobuf import keep_features, replace_features

_FILEPATH = "filepath"


def convert(
    input_dir: Folders,
    output_dir: PathLike,
    *,
    features: Sequence[str] | None = None,
    splits: str | Mapping[str, float] | None = None,
    stratify: bool = False,
    group_by: str | None = None,
    seed: int | None = None,
    labels: Any = None,
    drop: Any = None,
    schema: PathLike | None = None,
    dtypes: Mapping[str, str] | None = None,
    classes: Sequence[str] | None = None,
    overwrite: bool = False,
    workers: int | None = None,
    beam_args: Sequence[str] = (),
    progress: bool | None = None,
    **sizes: Any,
) -> Metadata:
    """Rewrites a folder of TFRecords as a data set, which :func:`replay` reads.

    ::

        convert("records/", "smaller/", features=["log_mel", "target"], num_shards=8)

    The folder may be a data set of this package, or any TFRecords of
    ``tf.train.Example`` or ``tf.train.SequenceExample``, GZIP or not. If nothing
    describes their features, the first 256 examples of each split do. Records keep
    their order, and their bytes if all features stay. The output does not depend on the
    number of workers or on the runner. The input is never changed.

    Parameters
    ----------
    input_dir : path or sequence of paths
        Several data sets of this package that belong together become one.
    output_dir : path
        A folder that is new or empty, or holds an unfinished data set of elements.
    features : sequence of str, optional
        The features that stay. Default: all.
    splits : str or mapping, optional
        The share of each new split, ``{"train": 0.8, "eval": 0.2}``. Default: the
        splits of the input. For a data set of audio files, they are the splits that
        ``record`` would choose. Copies stay only in splits that have copies.
    stratify : bool
        With ``splits``: see ``record``; for data sets of audio files.
    group_by : str, optional
        With ``splits``: what stays in one split. For a data set of audio files, columns
        ``"a,b"`` of its manifest; default: the groups as recorded, or else each file.
        Otherwise a feature; default: each example goes by its place.
    seed : int, optional
        With ``splits``: another seed gives other splits. Default: that of the recipe;
        0 without one.
    labels : path, data frame or list of dicts, optional
        New labels of clips of a data set of audio files. A row has a clip's path as the
        manifest has it, and its ``label`` or ``class``, or a ``group``. If it has
        ``start_s`` and ``end_s``, or ``duration_s``, or ``channel``, it names this part
        of the file; otherwise all clips of it. A label that is no class yet is added to
        the classes in sorted order.
    drop : path, data frame, list of dicts or of paths, optional
        Clips that are left out: a text with a path on each line, or a table as for
        ``labels``. If the table has a column ``drop``, only where it is true.
    schema : path, optional
        A schema of TensorFlow Metadata, as text, that describes the features. Default:
        ``schema.pbtxt`` in the input, if it exists.
    dtypes : mapping, optional
        Feature to dtype. Bytes with a numeric dtype become an array of rank 1.
    classes : sequence of str, optional
        The list of classes of the new data set of audio files, in its order; the
        targets of examples change with it. It may have more classes than clips have, so
        that new data sets can be read beside this one.
    overwrite : bool
        Replaces a data set in ``output_dir``.
    workers : int, optional
        Processes on this machine. Default: one for each core, if they start fast.
    beam_args : sequence of str
        Options of Beam; with ``--runner``, Beam runs the job there.
    progress : bool, optional
        Whether to show a progress bar. Default: in a terminal or a notebook.
    **sizes
        ``elements_per_file``, ``shard_bytes``, ``num_shards``, ``member_bytes``
        and ``compression`` of :func:`record_dataset`.

    Returns
    -------
    Metadata
        The metadata of the new data set.

    Raises
    ------
    InputError
        If a record is damaged or does not fit the others; the message names the file
        and the record. No data set is left then.
    OptionError, OutputError
        If an argument or a folder cannot be used; before anything is written.
    EngineError
        If the runner's engine cannot be reached; before anything is written.
    """
    of_shards = element_set.ShardSizes(**sizes)
    corrections: dict[str, Any] = {
        "labels": labels, "drop": drop, "splits": splits, "group_by": group_by,
        "stratify": stratify, "seed": seed, "classes": classes,
    }  # fmt: skip
    asked = Corrections(**corrections)
    sources = [*map(files.absolute, files.path_texts("input_dir", input_dir))]
    output = files.given_path("output_dir", output_dir)
    for source in sources:
        _check_apart(source, output)
    run = check_run(beam_args, workers, overwrite)
    schema = None if schema is None else files.path_text("schema", schema)
    folder = describe_input(sources, schema, dtypes or {})
    folder, tables, counts = _correct(folder, asked)
    metadata = folder.metadata
    specs, structure = _choose(metadata, features)
    # Of clips, the tables say the splits; of other examples, a hash of a feature.
    hashed = None if WINDOWS in tables else asked.splits
    group_name = comma_text(asked.group_by) if asked.group_by else None
    group = None if hashed is None else _choose_group(metadata, group_name)
    options = {
        "features": None if features is None else list(specs),
        "splits": asked.splits,
        "stratify": stratify,
        "group_by": group_name if group is None else group.name,
        "seed": seed,
        **counts,
        "schema": None if schema is None else os.path.basename(schema),
        "dtypes": dict(dtypes or {}),
        **of_shards.to_json(),
        "ignored_files": folder.ignored,
        **_history(metadata),
    }
    elements = Elements("convert", options, structure)
    encoder = RecordEncoder(
        tuple(specs.values()), features is None, folder.advice, hashed, group,
        seed or 0, folder.splits, label_entries(folder, specs),
    )  # fmt: skip
    with element_output(output, "convert", overwrite) as target:
        blocks = element_set.store_blocks(make_blocks(folder.files), target)
        beside: Mapping[str, str] = {}
        if hashed is None and folder.data_sets is not None:
            beside = _beside(folder.data_sets, tables, target.drafts)
        job = element_set.ElementSet(
            target,
            encoder.specs,
            of_shards,
            folder.splits if hashed is None else tuple(hashed),
            elements,
            len(blocks),
            metadata.classes,
            folder.settle,
            None if folder.data_sets is None else _measured(metadata),
            beside,
            folder.examples,
            encoder.encode,
        )
        run_elements(job, blocks, run, progress, "convert")
    return Metadata.load(output)


def _check_apart(source: str, output: str) -> None:
    """Refuses an output that is the input, or is in it, or has it inside."""
    if files.is_inside(source, output) or files.is_inside(output, source):
        raise OutputError(
            f"The output {output} and the input {source} must be separate, but one is "
            "inside the other or they are the same. Give another output."
        )


def _choose(
    metadata: Metadata, features: Sequence[str] | None
) -> tuple[Mapping[str, FeatureSpec], Structure | None]:
    """Returns the features that stay, and the structure of an element of them.

    If some are left out, elements become flat dicts.
    """
    structure = metadata.structure
    if features is None:
        return metadata.features, structure
    chosen = Names().value("features", features)
    for name in chosen:
        check_feature("features", name, metadata.components)
    specs = needed_features(chosen, metadata.features, structure)
    if structure is not None:
        stay = [leaf for leaf in leaves(structure) if leaf.feature in chosen]
        structure = Node("dict", tuple(leaf.feature for leaf in stay), tuple(stay))
    return specs, structure


def _choose_group(metadata: Metadata, group_by: str | None) -> FeatureSpec | None:
    names = metadata.components
    if group_by is not None:
        check_feature("group_by", group_by, names)
    name = _FILEPATH if group_by is None else group_by
    return metadata.features[name] if name in names else None


def _history(metadata: Metadata) -> dict[str, Any]:
    """Returns how the input was recorded, as JSON values."""
    made: dict[str, Any] = {}
    if metadata.recorded_with is not None:
        made["recipe"] = metadata.recorded_with.to_json()
    if metadata.recipe is None and metadata.elements is not None:
        made["converted_from"] = {
            "recorded_by": metadata.elements.recorded_by,
            "options": dict(metadata.elements.options),
        }
    return made


def _measured(metadata: Metadata) -> frozenset[str]:
    """Returns the features that have statistics."""
    entries = metadata.splits.values()
    return frozenset(
        name for entry in entries for name in entry.statistics.get("features", ())
    )


def _correct(
    folder: InputFolder, asked: Corrections
) -> tuple[InputFolder, dict[str, Any], dict[str, int]]:
    """Returns what :func:`correct_clips` does; of several data sets, always tables."""
    folders = () if folder.data_sets is None else folder.data_sets.folders
    options = ("labels", "drop", "classes")
    given = [name for name in options if getattr(asked, name) is not None]
    if folders and folder.metadata.recorded_with and all(map(has_tables, folders)):
        if given or asked.splits is not None or len(folders) > 1:
            return correct_clips(folder, asked)
    elif given or asked.stratify:
        problem = f"needs a data set of audio files, with its {MANIFEST}"
        raise OptionError(given[0] if given else "stratify", problem)
    return folder, {}, {}


def _beside(
    data: DataSets, tables: Mapping[str, Any], drafts: str
) -> Mapping[str, str]:
    """Returns the paths of the files beside the shards, by their names."""
    for name, table in tables.items():
        write_parquet(files.join(drafts, name), table.schema, [table])
    if tables or len(data.folders) > 1:
        return {name: files.join(drafts, name) for name in tables}
    lists = [f"{split}/{EXAMPLES_CSV}" for split in data.metadata.splits]
    paths = {n: files.join(data.folders[0], n) for n in (MANIFEST, WINDOWS, *lists)}
    return {name: path for name, path in paths.items() if files.exists(path)}


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

    def encode(self, sources: Sequence[InputFile]) -> Iterator[element_set.Encoded]:
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
                take_over = partial(self._taken_over, source, numbers)
                try:
                    kept, columns, splits = take_over(records)
                except ValueError:
                    bad, error = first_failing(take_over, records)
                    raise InputError(
                        f"{source.path}, record {numbers[bad]}: {error}. {self.advice}"
                    ) from error
                for split in dict.fromkeys(splits):
                    chosen = [i for i, name in enumerate(splits) if name == split]
                    some = {n: _some(column, chosen) for n, column in columns.items()}
                    examples = [kept[i] for i in chosen]
                    yield element_set.Encoded(
                        split, examples, some, sources=len(chosen)
                    )

    def _taken_over(
        self, source: InputFile, numbers: Integers, records: Sequence[bytes]
    ) -> tuple[Sequence[bytes], Mapping[str, Any], list[str]]:
        """Returns the records to store, the values of their features, and their splits.

        ``numbers`` begins with those of the records in their file. ValueError: if a
        record does not fit.
        """
        numbers = numbers[: len(records)]
        splits = [source.split] * len(records)
        if source.changes is not None:
            splits = [self.splits[k] for k in source.changes.splits[numbers].tolist()]
            labels = source.changes.labels[numbers].tolist()
            records = [
                record if label < 0 else replace_features(record, self.labels[label])
                for label, record in zip(labels, records, strict=True)
            ]
        elif self.shares is not None:
            splitter = Splitter(self.shares)
            groups = self._groups(source, numbers, records)
            splits = [splitter.split_of(group_key(self.seed, text)) for text in groups]
        specs = {spec.name: spec for spec in self.specs}
        if not self.takes_all:
            names = {name.encode() for name in specs}
            records = [keep_features(record, names) for record in records]
        return records, decode_columns(records, specs) if records else {}, splits

    def _groups(
        self, source: InputFile, numbers: Integers, records: Sequence[bytes]
    ) -> list[str]:
        """Returns the text of each record that decides its split."""
        if self.group is None:
            return [f"{source.name}:{number}" for number in numbers.tolist()]
        name = self.group.name
        own = [keep_features(record, {name.encode()}) for record in records]
        values = decode_columns(own, {name: self.group})[name]
        if any(value is None for value in values):
            raise ValueError(
                f"the record lacks feature {name}, which decides its split"
            )
        return [_text(value) for value in values]


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
