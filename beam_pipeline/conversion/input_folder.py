"""What a folder of TFRecords is: its files, its features, and how it was recorded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from beam_pipeline.conversion.inference import infer_features, with_dtypes
from beam_pipeline.conversion.input_files import InputFile, find_files, shards_of
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import METADATA, SCHEMA
from beam_pipeline.dataset.schema import parse_schema
from beam_pipeline.dataset.side_by_side import DataSets, open_data_sets
from beam_pipeline.dataset.work_folder import has_run
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.original_records import find_original
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.storage.claim import WORK_FOLDER
from beam_pipeline.text import parse_json


@dataclass(frozen=True)
class InputFolder:
    """Folders of TFRecords, as far as they are known before all records are read.

    Attributes
    ----------
    files : tuple of InputFile
        In the order of their splits.
    metadata : Metadata
        Those of the data sets; of other files, only the features.
    described_by : str
        What describes the features, for messages; empty if the first examples do.
    splits : tuple of str
    ignored : int
        The number of files that hold no records.
    data_sets : DataSets or None
        The data sets, if this package wrote them.
    labels : tuple of str
        The new labels that the changes of files number.
    """

    files: tuple[InputFile, ...]
    metadata: Metadata
    described_by: str
    splits: tuple[str, ...]
    ignored: int = 0
    data_sets: DataSets | None = None
    labels: tuple[str, ...] = ()

    @property
    def examples(self) -> int | None:
        """The number of examples that are taken; None if it is not known."""
        if self.data_sets is None:
            return None
        return sum(file.taken for file in self.files)


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
            raise InputError(f"There is no folder {folder}.")
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
    return InputFolder(listed, data.metadata, METADATA, tuple(found), data_sets=data)


def _other_files(
    folder: str, schema: str | None, dtypes: Mapping[str, str]
) -> InputFolder:
    if has_run(files.join(folder, WORK_FOLDER)):
        raise InputError(
            f"{folder} holds an unfinished data set. Give the command that records it "
            "again."
        )
    if find_original(folder):
        raise InputError(
            f"{folder} was written by tf_dataset. Convert it by "
            "`record_dataset(replay_dataset(folder), output)`."
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
        specs = with_dtypes(parse_schema(files.read_bytes(path), path), dtypes)
    else:
        specs, path = infer_features(records, dtypes), ""
    return InputFolder(
        tuple(records),
        Metadata(None, specs, (), {}),
        path,
        tuple(dict.fromkeys(file.split for file in records)),
        sum(files.join(folder, name) != path for name in ignored),
    )


def with_recipe(
    metadata: Metadata, recipe: Recipe, classes: tuple[str, ...]
) -> Metadata:
    """Returns metadata of a data set of audio files with another recipe and classes."""
    elements = metadata.elements
    if elements is None:
        return replace(metadata, recipe=recipe, classes=classes)
    options = {**elements.options, "recipe": recipe.to_json()}
    elements = replace(elements, options=options)
    return replace(metadata, classes=classes, elements=elements)
