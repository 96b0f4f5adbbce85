"""``convert``: rewrites a folder of TFRecords as a data set in our layout."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from inspect import signature
from typing import Any

from beam_pipeline.conversion.corrections import (
    Corrections,
    correct_clips,
    label_entries,
)
from beam_pipeline.conversion.records import (
    InputFile,
    InputFolder,
    RecordEncoder,
    find_files,
    infer_features,
    make_blocks,
    settle_specs,
    shards_of,
    with_dtypes,
)
from beam_pipeline.dataset.element_set import ElementSet, keep_specs, store_blocks
from beam_pipeline.dataset.folders import (
    EXAMPLES_CSV,
    MANIFEST,
    METADATA,
    SCHEMA,
    WINDOWS,
    has_run,
)
from beam_pipeline.dataset.job import element_output
from beam_pipeline.dataset.metadata import Elements, Metadata, parse_schema
from beam_pipeline.dataset.side_by_side import (
    DataSets,
    Folders,
    has_tables,
    open_data_sets,
)
from beam_pipeline.errors import InputError, OptionError, OutputError, check_feature
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.structure import Node, Structure, leaves, needed_features
from beam_pipeline.parameters import Names, check_known, comma_text
from beam_pipeline.run.elements import check_run, run_elements
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import WORK_FOLDER
from beam_pipeline.storage.files import PathLike
from beam_pipeline.storage.pages import write_parquet
from beam_pipeline.text import parse_json
from beam_pipeline.write.member_files import ShardSizes

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
        ``elements_per_file``, ``shard_bytes``, ``num_shards``, ``multiple_of``,
        ``member_bytes`` and ``compression`` of :func:`record_dataset`.

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
    check_known(sizes, [*signature(convert).parameters, *ShardSizes.__annotations__])
    of_shards = ShardSizes(**sizes)
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
        blocks = store_blocks(make_blocks(folder.files), target)
        beside: Mapping[str, str] = {}
        if hashed is None and folder.data_sets is not None:
            beside = _beside(folder.data_sets, tables, target.drafts)
        job = ElementSet(
            target,
            encoder.specs,
            of_shards,
            folder.splits if hashed is None else tuple(hashed),
            elements,
            len(blocks),
            metadata.classes,
            keep_specs if folder.is_described else settle_specs,
            None if folder.data_sets is None else _measured(metadata),
            beside,
            folder.examples,
        )
        run_elements(job, encoder, blocks, run, progress, "convert")
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
    if is_described := files.exists(path):
        specs, source = parse_schema(files.read_bytes(path), path), path
        advice = "another `schema`"
    else:
        specs, source = infer_features(records)[0], "the first examples"
        advice = "a `schema` that fits all records"
    return InputFolder(
        tuple(records),
        Metadata(None, with_dtypes(specs, dtypes), (), {}),
        f"The features follow from {source}. Give {advice}, or the `features` that "
        "stay.",
        tuple(dict.fromkeys(file.split for file in records)),
        sum(files.join(folder, name) != path for name in ignored),
        is_described=is_described,
    )
