"""What a folder of TFRecords is: its files, features and structure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from beam_pipeline.conversion.inference import infer_features, with_dtypes
from beam_pipeline.conversion.input_files import (
    InputFile,
    find_files,
    shards_of,
)
from beam_pipeline.conversion.originals import natural_specs
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import (
    EXAMPLES_CSV,
    MANIFEST,
    METADATA,
    SCHEMA,
    WINDOWS,
)
from beam_pipeline.dataset.schema import parse_schema
from beam_pipeline.dataset.side_by_side import (
    DataSets,
    has_tables,
    open_data_sets,
    recipe_json,
)
from beam_pipeline.dataset.work_folder import WORK_FOLDER, has_run
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.structure import Structure
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.read.original_records import (
    SPEC_FILE,
    OriginalSpec,
    find_original,
    original_batch_size,
    original_files,
    original_specs,
)
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.text import parse_json


@dataclass(frozen=True)
class InputFolder:
    """A folder of TFRecords, as far as it is known before all records are read.

    Attributes
    ----------
    files : tuple of InputFile
        In the order of their splits.
    specs : mapping
        The features, by name.
    described_by : str
        What describes them, for messages; empty if the first examples do.
    splits : tuple of str
    ignored : tuple of str
        Names of files that hold no records.
    structure, batch_size, drop_remainder
        See :class:`beam_pipeline.dataset.metadata.Elements`.
    classes : tuple of str
    original : mapping or None
        The features as tf_dataset stores them, if it wrote the folder.
    measured : frozenset of str or None
        The features that have statistics; None: all numeric ones.
    beside : mapping
        Name of a file beside the shards to its path.
    several : DataSets or None
        The data sets, if they are several; their tables are joined.
    history : mapping
        How the folder was recorded, as JSON values.
    """

    files: tuple[InputFile, ...]
    specs: Mapping[str, FeatureSpec]
    described_by: str = ""
    splits: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    structure: Structure | None = None
    batch_size: int | None = None
    drop_remainder: bool = False
    classes: tuple[str, ...] = ()
    original: Mapping[str, OriginalSpec] | None = None
    measured: frozenset[str] | None = None
    beside: Mapping[str, str] = field(default_factory=dict)
    several: DataSets | None = None
    history: Mapping[str, Any] = field(default_factory=dict)

    @property
    def examples(self) -> int | None:
        """The number of examples in all files; None if it is not known."""
        counts = [file.examples for file in self.files if file.examples is not None]
        return sum(counts) if len(counts) == len(self.files) else None


def describe_folder(
    folder: str, schema: str | None, dtypes: Mapping[str, str]
) -> InputFolder:
    """Returns what a folder of TFRecords is.

    Parameters
    ----------
    schema : str or None
        The path of a schema of TensorFlow Metadata.
    dtypes : mapping
        Feature to dtype, see :func:`.with_dtypes`.

    Raises
    ------
    InputError
        If the folder holds no records that can be read, or an unfinished data set.
    OptionError
        If ``schema`` or ``dtypes`` do not fit the folder.
    """
    if not files.is_folder(folder):
        raise InputError(f"There is no folder {folder}.")
    describing = None
    if _is_ours(folder):
        describing = METADATA
    elif find_original(folder):
        describing = SPEC_FILE
    if describing is not None:
        for option, value in (("schema", schema), ("dtypes", dtypes)):
            if value:
                raise OptionError(
                    option, f"does not apply, because {describing} describes the folder"
                )
        return _our_folder(folder) if describing == METADATA else _original(folder)
    if has_run(files.join(folder, WORK_FOLDER)):
        raise InputError(
            f"{folder} holds an unfinished data set. Give the command that records it "
            "again."
        )
    found = find_files(folder)
    if not found.records:
        example = f", for example {found.ignored[0]}" if found.ignored else ""
        raise InputError(
            f"{folder} has no TFRecord files; {len(found.ignored)} other files"
            f"{example}. Names of TFRecords contain .tfrecord, end in .tfr or .tfrec, "
            "or look like train-00000-of-00005."
        )
    path = schema or files.join(folder, SCHEMA)
    if schema is not None and not files.exists(path):
        raise OptionError("schema", "there is no such file", schema)
    if files.exists(path):
        specs = with_dtypes(parse_schema(files.read_bytes(path), path), dtypes)
        described_by = path
    else:
        specs, described_by = infer_features(found.records, dtypes), ""
    splits = dict.fromkeys(file.split for file in found.records)
    ignored = [n for n in found.ignored if files.join(folder, n) != described_by]
    return InputFolder(
        found.records, specs, described_by, tuple(splits), tuple(ignored)
    )


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


def describe_several(folders: Sequence[str]) -> InputFolder:
    """Returns what several data sets are together.

    Raises
    ------
    InputError
        If they do not belong together, or a shard is missing.
    """
    data = open_data_sets(folders)
    found: dict[str, list[InputFile]] = {split: [] for split in data.metadata.splits}
    for place, (folder, metadata) in enumerate(
        zip(data.folders, data.each, strict=True)
    ):
        for file in shards_of(folder, metadata):
            found[file.split].append(file._replace(name=f"{place}/{file.name}"))
    whole = all(map(has_tables, data.folders))
    return replace(
        _our_folder(folders[0]),
        files=tuple(file for files_of in found.values() for file in files_of),
        splits=tuple(found),
        beside={},
        several=data if whole else None,
    )


def with_classes(folder: InputFolder, classes: Sequence[str]) -> InputFolder:
    """Returns a folder with more classes, so that targets stay as they are.

    Raises
    ------
    OptionError
        If the list does not begin with the classes of the folder, or if examples have a
        number for each class.
    """
    names = tuple(classes)
    if names[: len(folder.classes)] != folder.classes or len({*names}) < len(names):
        raise OptionError(
            "classes",
            "must begin with those of the data set, in their order: "
            f"{', '.join(folder.classes) or 'none'}",
            list(names),
        )
    recipe = folder.history.get("recipe")
    if recipe is None or not folder.classes:
        raise OptionError(
            "classes", "needs a data set of `record` with classes", list(names)
        )
    for option in ("label_separator", "events"):
        if recipe.get(option):
            raise OptionError(
                "classes",
                f"cannot be changed: with `{option}`, each example has a number for "
                "each class; record the data set again",
                list(names),
            )
    changed = Recipe(**recipe).replace(classes=list(names)).to_json()
    return replace(folder, classes=names, history={**folder.history, "recipe": changed})


def _our_folder(folder: str) -> InputFolder:
    metadata = Metadata.load(folder)
    elements = metadata.elements
    names = [
        MANIFEST,
        WINDOWS,
        *(f"{split}/{EXAMPLES_CSV}" for split in metadata.splits),
    ]
    paths = {name: files.join(folder, name) for name in names}
    entries = metadata.splits.values()
    history: dict[str, Any] = {}
    if recipe_json(metadata):
        history["recipe"] = dict(recipe_json(metadata))
    if metadata.recipe is None and elements is not None:
        history["converted_from"] = {
            "recorded_by": elements.recorded_by,
            "options": dict(elements.options),
        }
    return InputFolder(
        tuple(shards_of(folder, metadata)),
        metadata.features,
        METADATA,
        tuple(metadata.splits),
        (),
        None if elements is None else elements.structure,
        None if elements is None else elements.batch_size,
        elements is not None and elements.drop_remainder,
        metadata.classes,
        measured=frozenset(
            name for entry in entries for name in entry.statistics.get("features", ())
        ),
        beside={name: path for name, path in paths.items() if files.exists(path)},
        history=history,
    )


def _original(folder: str) -> InputFolder:
    original = original_specs(folder)
    paths = original_files(folder)
    found = [
        InputFile(path, path.rpartition("/")[2], DEFAULT_SPLIT, files.size(path))
        for path in paths
    ]
    return InputFolder(
        tuple(found),
        natural_specs(original.values()),
        SPEC_FILE,
        (DEFAULT_SPLIT,),
        batch_size=original_batch_size(folder),
        original=original,
    )
