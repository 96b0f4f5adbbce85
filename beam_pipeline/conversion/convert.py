"""``convert``: rewrites a folder of TFRecords as a data set in our layout."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence

from beam_pipeline.conversion.encoder import RecordEncoder
from beam_pipeline.conversion.inference import keep_specs, settle_specs
from beam_pipeline.conversion.input_files import make_blocks
from beam_pipeline.conversion.input_folder import (
    InputFolder,
    describe_folder,
    describe_several,
    with_classes,
)
from beam_pipeline.dataset.element_set import ElementSet, element_output
from beam_pipeline.dataset.metadata import Elements, Metadata
from beam_pipeline.dataset.output_folder import METADATA
from beam_pipeline.dataset.side_by_side import Folders, join_tables
from beam_pipeline.errors import InputError, OptionError, OutputError, check_feature
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.examples.structure import (
    Leaf,
    Node,
    Structure,
    component_names,
    leaves,
    needed_features,
)
from beam_pipeline.parameters import check_whole
from beam_pipeline.read.original_records import SPEC_FILE
from beam_pipeline.recipe.fields import Shares, relative_shares
from beam_pipeline.run.elements import check_run, run_elements
from beam_pipeline.storage import files
from beam_pipeline.storage.files import PathLike
from beam_pipeline.write.element_blocks import store_blocks
from beam_pipeline.write.member_files import ShardSizes

_FILEPATH = "filepath"


def convert(
    input_dir: Folders,
    output_dir: PathLike,
    *,
    features: Sequence[str] | None = None,
    splits: str | Mapping[str, float] | None = None,
    group_by: str | None = None,
    seed: int = 0,
    schema: PathLike | None = None,
    dtypes: Mapping[str, str] | None = None,
    classes: Sequence[str] | None = None,
    elements_per_file: int | None = None,
    shard_bytes: int | None = None,
    num_shards: int | None = None,
    multiple_of: int = 1,
    member_bytes: int | None = None,
    compression: str = "gzip",
    overwrite: bool = False,
    workers: int | None = None,
    beam_args: Sequence[str] = (),
    progress: bool | None = None,
) -> Metadata:
    """Rewrites a folder of TFRecords as a data set, which :func:`replay` reads.

    ::

        convert("records/", "smaller/", features=["log_mel", "target"], num_shards=8)

    The folder may be a data set of this package, a folder that ``record_dataset`` of
    tf_dataset wrote, or any TFRecords of ``tf.train.Example`` or
    ``tf.train.SequenceExample``, compressed with GZIP or not at all. If nothing
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
        splits of the input.
    group_by : str, optional
        With ``splits``: a feature; examples with the same value go to one split.
        Default: ``filepath`` if examples have it, so that no two splits have windows of
        one file; otherwise each example goes by its place.
    seed : int
        With ``splits``: another seed gives other splits.
    schema : path, optional
        A schema of TensorFlow Metadata, as text, that describes the features. Default:
        ``schema.pbtxt`` in the input, if it exists.
    dtypes : mapping, optional
        Feature to dtype. Bytes with a numeric dtype become an array of rank 1.
    classes : sequence of str, optional
        A longer list of classes, which begins with those of the data set; so targets
        stay. New data sets with all of them can then be read beside this one.
    elements_per_file, shard_bytes, num_shards, multiple_of, member_bytes, compression
        As in :func:`record_dataset`.
    overwrite : bool
        Replaces a data set in ``output_dir``.
    workers : int, optional
        Processes on this machine. Default: one for each core, if they start fast.
    beam_args : sequence of str
        Options of Beam; with ``--runner``, Beam runs the job there.
    progress : bool, optional
        Whether to show a progress bar. Default: in a terminal or a notebook.

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
    sizes = ShardSizes(
        elements_per_file,
        shard_bytes,
        num_shards,
        multiple_of,
        member_bytes,
        compression,
    )
    shares = None
    if splits is not None:
        shares = relative_shares(Shares().value("splits", splits))
    check_whole("seed", seed, least=None)
    if shares is None and group_by is not None:
        raise OptionError("group_by", "needs `splits`", group_by)
    several = isinstance(input_dir, list | tuple) and len(input_dir) > 0
    given = input_dir if several else [input_dir]
    sources = [_folder_path("input", each) for each in given]  # type: ignore[union-attr, arg-type]
    output = _folder_path("output", output_dir)
    for source in sources:
        _check_apart(source, output)
    run = check_run(beam_args, workers, overwrite)
    schema = None if schema is None else os.fspath(schema)
    if len(sources) == 1:
        folder = describe_folder(sources[0], schema, dtypes or {})
    else:
        folder = describe_several(sources)
        for option, value in (("schema", schema), ("dtypes", dtypes)):
            if value:
                raise OptionError(option, "does not apply to several data sets", value)
    if classes is not None:
        folder = with_classes(folder, classes)
    specs, structure = _choose(folder, features)
    group = None if shares is None else _choose_group(folder, group_by)
    elements = Elements(
        "convert",
        {
            "features": None if features is None else list(specs),
            "splits": shares,
            "group_by": None if group is None else group.name,
            "seed": seed,
            "schema": None if schema is None else os.path.basename(schema),
            "dtypes": dict(dtypes or {}),
            **sizes.to_json(),
            "ignored_files": len(folder.ignored),
            **folder.history,
        },
        structure,
        folder.batch_size,
        folder.drop_remainder,
    )
    decoded = {*specs, *(() if group is None else (group.name,))}
    encoder = RecordEncoder(
        tuple(specs.values()),
        features is None,
        _advice(folder),
        None
        if folder.original is None
        else tuple(spec for spec in folder.original.values() if spec.name in decoded),
        shares,
        group,
        seed,
    )
    with element_output(output, "convert", overwrite) as target:
        copied = dict(folder.beside) if shares is None else {}
        if folder.several is not None and shares is None:
            copied = join_tables(folder.several, target.drafts)
        blocks = store_blocks(make_blocks(folder.files), target)
        job = ElementSet(
            target,
            encoder.specs,
            sizes,
            folder.splits if shares is None else tuple(shares),
            elements,
            len(blocks),
            folder.classes,
            keep_specs if folder.described_by else settle_specs,
            folder.measured,
            copied,
            folder.examples,
        )
        run_elements(job, encoder, blocks, run, progress, "convert")
    return Metadata.load(output)


def _folder_path(name: str, folder: PathLike) -> str:
    if not (isinstance(folder, str | os.PathLike) and os.fspath(folder)):
        raise InputError(f"The {name} must be a folder; got {folder!r}.")
    return files.absolute(os.fspath(folder))


def _check_apart(source: str, output: str) -> None:
    """Refuses an output that is the input, or is in it, or has it inside."""
    both = [
        os.path.realpath(path) if files.is_local(path) else path
        for path in (source, output)
    ]
    a, b = (path.rstrip("/") + "/" for path in both)
    if a.startswith(b) or b.startswith(a):
        raise OutputError(
            f"The output {output} and the input {source} must be separate, but one is "
            "inside the other or they are the same. Give another output."
        )


def _choose(
    folder: InputFolder, features: Sequence[str] | None
) -> tuple[Mapping[str, FeatureSpec], Structure | None]:
    """Returns the features that stay, and the structure of an element of them."""
    if features is None:
        return folder.specs, folder.structure
    names = component_names(folder.specs, folder.structure)
    chosen = [features] if isinstance(features, str) else list(features)
    if not chosen:
        raise OptionError("features", "must name at least one", features)
    for name in chosen:
        check_feature("features", name, names)
    specs = needed_features(chosen, folder.specs, folder.structure)
    if folder.structure is None:
        return specs, None
    return specs, prune(folder.structure, set(chosen))


def prune(structure: Structure, chosen: Collection[str]) -> Structure | None:
    """Returns a structure with only the chosen features.

    Only dicts can lose some of their parts. None, which stands for a dict of all
    features, if another kind would.
    """
    if all(leaf.feature in chosen for leaf in leaves(structure) if leaf.feature):
        return structure
    if isinstance(structure, Leaf) or structure.kind != "dict":
        return None
    pairs = []
    for key, child in zip(structure.keys, structure.children, strict=True):
        if any(leaf.feature in chosen for leaf in leaves(child)):
            below = prune(child, chosen)
            if below is None:
                return None
            pairs.append((key, below))
    return Node(
        "dict", tuple(key for key, _ in pairs), tuple(child for _, child in pairs)
    )


def _choose_group(folder: InputFolder, group_by: str | None) -> FeatureSpec | None:
    names = component_names(folder.specs, folder.structure)
    if group_by is not None:
        check_feature("group_by", group_by, names)
    name = _FILEPATH if group_by is None else group_by
    return folder.specs[name] if name in names else None


def _advice(folder: InputFolder) -> str:
    if folder.described_by in (METADATA, SPEC_FILE):
        return f"It does not fit {folder.described_by}. Restore the file."
    if folder.described_by:
        return (
            f"The features follow from {folder.described_by}. Give another `schema`, "
            "or the `features` that stay."
        )
    return (
        "The features follow from the first examples. Give a `schema` that fits all "
        "records, or the `features` that stay."
    )
