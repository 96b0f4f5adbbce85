"""Data sets side by side: a later one shares the recipe, and readers take several.

A data set that grows is several folders, each recorded by itself::

    2026-11/    record --input sounds/ --output 2026-11/
    2026-12/    record --input sounds/ --skip-recorded 2026-11/ --recipe 2026-11/ ...

The recipe of the first one decides classes and splits of the others, so that they
belong together. No file of a folder changes when another one is recorded.
"""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset import tables
from beam_pipeline.dataset.folders import INDEX, MANIFEST, METADATA, WINDOWS
from beam_pipeline.dataset.metadata import (
    Metadata,
    ShardIndex,
    SplitEntry,
    load_index,
    open_metadata,
)
from beam_pipeline.errors import (
    ClipError,
    DataSetWarning,
    InputError,
    OptionError,
    RecipeError,
)
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.columns import MANIFEST_FIELDS, SKETCH
from beam_pipeline.inputs.sources import locate
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from beam_pipeline.text import bytes_sha256, shown

if TYPE_CHECKING:
    from beam_pipeline.inputs.listing import RecordedClips
    from beam_pipeline.inputs.sources import Input

# What decides the split of a group, in a recipe that decides splits by a hash.
OF_SPLITS = ("splits", "folds", "group_by", "seed", "split_moves")
SPLITS_OF_HASH = ("splits", "folds")

_NUMBERS = (
    "native_frames", "native_sample_rate_hz", "channels", "sample_rate_hz", "start",
    "frames", "channel",
)  # fmt: skip
_OF_CLIPS = ("path", "input", "split", "group", "windows", "index", *_NUMBERS)

# Files that are looked for below the inputs of a run.
_LOOKED_FOR = 20

Folders = files.PathLike | Sequence[files.PathLike]


@dataclass(frozen=True)
class DataSets:
    """Data sets that a reader takes for one: in each split, one after the other.

    Attributes
    ----------
    folders : tuple of str
        Absolute.
    each : tuple of Metadata
    metadata : Metadata
        Those of all of them together. If there are several, the files of shards have
        absolute paths, and the statistics of a split are those of the first data set
        with examples in it.
    hashes : tuple of str
        The SHA-256 of the text of each ``metadata.json``.
    """

    folders: tuple[str, ...]
    each: tuple[Metadata, ...]
    metadata: Metadata
    hashes: tuple[str, ...]

    @property
    def name(self) -> str:
        """The folders, for messages and commands."""
        return " ".join(self.folders)

    def file(self, folder: str, name: str) -> str:
        """Returns a file of a data set, as the metadata of all name it."""
        return name if len(self.folders) == 1 else files.join(folder, name)

    def members(self) -> dict[str, ShardIndex]:
        """Returns the members of all shards.

        Raises
        ------
        InputError
            If a data set has no index of members, or it is damaged.
        """
        found: dict[str, ShardIndex] = {}
        for folder in self.folders:
            try:
                index = load_index(folder)
            except FileNotFoundError as error:
                raise InputError(
                    f"{folder} has no {INDEX}, so its examples cannot be read at "
                    f"random. `audio-tfrecords convert {folder} NEW_FOLDER` makes a "
                    "data set with an index, and `replay` reads it without."
                ) from error
            for name, shard in index.items():
                file = self.file(folder, name)
                found[file] = replace(shard, file=file)
        return found


def open_data_sets(given: Folders) -> DataSets:
    """Reads the metadata of a data set, or of several that belong together.

    Parameters
    ----------
    given : path or sequence of paths

    Raises
    ------
    InputError
        If a folder holds no data set, or if they do not belong together; it says in
        what they differ.
    """
    folders = tuple(map(files.absolute, files.path_texts("data set", given)))
    texts = [open_metadata(folder) for folder in folders]
    each = tuple(
        Metadata.parse(text, files.join(folder, METADATA))
        for folder, text in zip(folders, texts, strict=True)
    )
    hashes = tuple(map(bytes_sha256, texts))
    if len(folders) == 1:
        return DataSets(folders, each, each[0], hashes)
    for place, (folder, metadata) in enumerate(zip(folders, each, strict=True)):
        if folder in folders[:place]:
            raise InputError(f"{folder} is given twice.")
        _check_together(folders[0], each[0], folder, metadata)
    return DataSets(folders, each, _joined(folders, each), hashes)


def _check_together(
    first: str, metadata: Metadata, folder: str, other: Metadata
) -> None:
    """Raises InputError if two data sets cannot be read as one."""
    if files.is_local(first) != files.is_local(folder):
        raise InputError(f"{first} and {folder} must both be local, or both in stores.")
    remedy = f"Read one after the other, or record {folder} with `recipe` {first}."
    facts = [fact.name for fact in fields(FeatureSpec)]
    check_features(first, metadata.features, folder, other.features, facts, remedy)
    check_classes(first, metadata, folder, other)
    both = (metadata.recorded_with, other.recorded_with)
    recipes = [{} if recipe is None else recipe.to_json() for recipe in both]
    if all(recipes) and any(each.get(n) for each in recipes for n in SPLITS_OF_HASH):
        for name in OF_SPLITS:
            if recipes[0].get(name) != recipes[1].get(name):
                old, new = (shown(each.get(name), 200) for each in recipes)
                raise InputError(
                    f"{folder} cannot be read together with {first}: `{name}`, which "
                    f"decides splits, is {new} in {folder}, but {old} in {first}. "
                    f"{remedy}"
                )


def check_features(
    first: str,
    specs: Mapping[str, FeatureSpec],
    folder: str,
    others: Mapping[str, FeatureSpec],
    facts: Sequence[str],
    remedy: str,
) -> None:
    """Raises InputError if the features of two data sets differ in one of some facts.

    Parameters
    ----------
    first, folder : str
        The data sets.
    facts : sequence of str
        Names of fields of :class:`.FeatureSpec`.
    remedy : str
        What to do, for the message.
    """
    for name in sorted({*specs, *others}):
        here, there = specs.get(name), others.get(name)
        if here is None or there is None:
            lacks, has = (first, folder) if here is None else (folder, first)
            raise InputError(f"{lacks} lacks the feature {name} of {has}. {remedy}")
        for fact in facts:
            old, new = getattr(here, fact), getattr(there, fact)
            if old != new:
                raise InputError(
                    f"{folder} cannot be read together with {first}: the feature "
                    f"{name} has the {fact} {shown(new, 200)} in it, but "
                    f"{shown(old, 200)} in {first}. {remedy}"
                )


def check_classes(first: str, one: Any, folder: str, other: Any) -> None:
    """Raises InputError if ``classes`` of two data sets differ."""
    if one.classes != other.classes:
        raise InputError(
            f"{first} has the classes {', '.join(one.classes) or 'none'}, but {folder} "
            f"has {', '.join(other.classes) or 'none'}, so a target would mean "
            "different classes. `convert --classes` adds classes to a data set."
        )


def _joined(folders: Sequence[str], each: Sequence[Metadata]) -> Metadata:
    splits: dict[str, SplitEntry] = {}
    for folder, metadata in zip(folders, each, strict=True):
        for name, entry in metadata.splits.items():
            shards = tuple(
                replace(shard, file=files.join(folder, shard.file))
                for shard in entry.shards
            )
            here = replace(entry, shards=shards)
            splits[name] = _both(splits[name], here) if name in splits else here
    left_out = Counter[str]()
    for metadata in each:
        left_out.update(metadata.left_out or {})
    return replace(
        each[0],
        splits=splits,
        clips=sum(metadata.clips for metadata in each),
        rejected=sum(metadata.rejected for metadata in each),
        ignored_files=sum(metadata.ignored_files for metadata in each),
        left_out=dict(left_out) or each[0].left_out,
    )


def _both(one: SplitEntry, other: SplitEntry) -> SplitEntry:
    def added(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, Any]:
        return {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}

    return SplitEntry(
        examples=one.examples + other.examples,
        clips=one.clips + other.clips,
        seconds=one.seconds + other.seconds,
        left_out=one.left_out + other.left_out,
        examples_per_class=added(one.examples_per_class, other.examples_per_class),
        seconds_per_class=added(one.seconds_per_class, other.seconds_per_class),
        statistics=one.statistics if one.examples else other.statistics,
        shards=one.shards + other.shards,
    )


def concatenated(of_each: Sequence[Any]) -> Any:
    """Returns the rows of tables, one after the other; null for columns of others."""
    import pyarrow as pa

    return pa.concat_tables(of_each, promote_options="default").unify_dictionaries()


def count_on(manifest: Any, sizes: Sequence[int]) -> Any:
    """Returns manifests in which the numbers of clips and files go on.

    Parameters
    ----------
    manifest : pyarrow.Table
        The rows of all of them, one manifest after the other.
    sizes : sequence of int
        How many rows each has.
    """
    if len(sizes) == 1:
        return manifest
    of = np.repeat(np.arange(len(sizes)), sizes)
    most = np.full(len(sizes), -1)
    np.maximum.at(most, of, manifest["index"].to_numpy())
    first = (np.cumsum(most + 1) - (most + 1))[of]
    moved = {"index": first, "file": first}
    if "first_index" in manifest.column_names:
        names, split = np.unique(manifest["split"].to_pylist(), return_inverse=True)
        windows = np.zeros((len(sizes), len(names)), np.int64)
        np.add.at(windows, (of, split), manifest["windows"].to_numpy())
        moved["first_index"] = (np.cumsum(windows, axis=0) - windows)[of, split]
    return tables.with_columns(
        manifest, {name: manifest[name].to_numpy() + by for name, by in moved.items()}
    )


def _recipe_in(metadata: Metadata) -> Recipe:
    recipe = metadata.recorded_with
    if recipe is None:
        raise InputError(
            "`recipe`: this data set was not recorded from audio files, so it has no "
            "recipe."
        )
    return recipe


def given_recipe(
    recipe: Recipe | Metadata | files.PathLike | None,
) -> Recipe | dict[str, Any] | None:
    """Returns the recipe of a data set or a file; of a file, only what it names.

    That of a data set has its classes, so that targets mean the same.

    Raises
    ------
    InputError
        If there is no such file, or it holds no recipe.
    OptionError
        If it is something else.
    """
    if isinstance(recipe, str | os.PathLike):
        path = os.fspath(recipe)
        folder = files.absolute(path).removesuffix("/" + METADATA)
        if not files.exists(files.join(folder, METADATA)):
            from beam_pipeline.recipe.canonical import read_recipe

            return read_recipe(path)
        recipe = Metadata.load(folder)
    if isinstance(recipe, Metadata):
        recorded, classes = _recipe_in(recipe), list(recipe.classes)
        if recorded.classes is None and classes:
            recorded = recorded.replace(classes=classes)
        return recorded
    if not (recipe is None or isinstance(recipe, Recipe)):
        raise OptionError(
            "recipe",
            "must be a Recipe, metadata like Metadata.load(folder), or a path",
            recipe,
        )
    return recipe


def as_recorded(asked: Recipe, metadata: Metadata) -> Recipe:
    """Returns a recipe as the data set has it, where both lead to the same examples.

    A recipe that leaves the splits open may lead to the recorded ones. A recipe with
    the classes that the data set has found is the one that found them.
    """
    recorded = metadata.recipe
    assert recorded is not None
    if not asked.splits_are_decided():
        asked = asked.replace(split_moves=recorded.split_moves)
    if recorded.classes is None and asked.classes == metadata.classes:
        asked = asked.replace(classes=None)
    return asked


def missing_table(folder: str) -> str | None:
    """Returns which table a data set lacks, of clips or of windows; None if neither."""
    tables = MANIFEST, WINDOWS
    return next((n for n in tables if not files.exists(files.join(folder, n))), None)


def has_tables(folder: str) -> bool:
    """Whether a data set has the tables of clips and of windows."""
    return missing_table(folder) is None


def check_skipped(
    folders: Sequence[str], recipe: Recipe, inputs: Sequence[Input]
) -> None:
    """Checks data sets whose clips a run leaves out, before the run begins.

    Raises
    ------
    InputError
        If a folder holds no data set of audio files, or one of some files of a data set
        has another sound now.
    RecipeError
        If a group could get another split than it has in a data set.
    """
    for folder in folders:
        metadata = Metadata.load(folder)
        if missing := missing_table(folder):
            raise InputError(
                f"{folder} has no {missing}: it was not recorded from audio files, or "
                "its conversion mixed the splits anew."
            )
        before = _recipe_in(metadata)
        if before.hashed_shares() or recipe.hashed_shares():
            old, new = before.to_json(), recipe.to_json()
            for name in OF_SPLITS:
                if old[name] != new[name]:
                    raise RecipeError(
                        name,
                        f"must be that of {folder}, {old[name]!r}, so that no group is "
                        f"in two splits; give `recipe` {folder}",
                        new[name],
                    )
        _compare_with_inputs(folder, before, inputs)


def _compare_with_inputs(folder: str, recipe: Recipe, inputs: Sequence[Input]) -> None:
    """Looks for some files of a data set where the inputs would have them.

    Warns if there is none. Raises InputError if one has another sound: a recorder that
    gives the same names in each of its folders must not lose what is new.
    """
    clips = tables.read_table(folder, MANIFEST, (*MANIFEST_FIELDS, SKETCH))
    rows = np.unique(np.linspace(0, len(clips) - 1, _LOOKED_FOR).astype(int))
    some = clips.take(rows).to_pylist()
    found = [
        clip
        for clip in some
        if clip["input"] < len(inputs)
        and files.exists(locate(inputs, clip["input"], clip["path"]))
    ]
    if some and not found:
        warnings.warn(
            f"None of {len(some)} files of {folder} that were looked for is among the "
            f"inputs, for example {some[0]['path']}. Is the root of the `input` the "
            "same as when it was recorded? Clips are known by their paths below it.",
            DataSetWarning,
            stacklevel=4,  # of `record`
        )
    if recipe.stream:  # sketches are of what its steps make
        return
    for clip in found:
        if clip[SKETCH] and _sounds_different(clip, recipe, inputs):
            raise InputError(
                f"{clip['path']} has another sound than {folder} recorded under this "
                "name, so it would be left out as known. Clips are known by their "
                "paths below an input: give a new folder as a further `input`, or give "
                "the file another name."
            )


def _sounds_different(
    clip: Mapping[str, Any], recipe: Recipe, inputs: Sequence[Input]
) -> bool:
    """Whether the start of a file is not what the sketch in the manifest is of.

    A file that cannot be read is not needed. Raises InputError for another header.
    """
    from beam_pipeline.audio.sketch import SKETCH_SECONDS, is_alike, sketch_audio
    from beam_pipeline.inputs.columns import Header, SourceRow
    from beam_pipeline.planning.clips import Clip, opened_clip
    from beam_pipeline.planning.prober import Prober

    fields = ((field, name) for name, (_, field) in MANIFEST_FIELDS.items() if field)
    then = Clip(examples=0, **{field: clip[name] for field, name in fields})
    rate = then.sample_rate_hz
    try:
        with opened_clip(then, inputs, recipe) as reader:
            stop = then.start + min(int(SKETCH_SECONDS * rate), then.frames)
            sketch = sketch_audio(reader.read(then.start, stop), rate)
    except (ClipError, OSError):
        return False
    if is_alike(sketch, clip[SKETCH]):
        return False
    header = Header(then.native_frames, then.native_rate_hz, then.channels)
    row = SourceRow(*then[:4], recorded=header)
    Prober(inputs, recipe).check_unchanged(row)
    return True


def read_skipped(folders: Sequence[str], recipe: Recipe) -> RecordedClips:
    """Reads the clips of data sets that a run need not record.

    A clip that was rejected is not among them, so it is tried again.
    """
    from beam_pipeline.inputs import listing  # here: readers do without it

    keys, numbers, names = [], [], list[str]()
    splits: dict[str, str] = {}
    has_groups = bool(recipe.group_by)
    given = recipe.hashed_shares() is None
    for folder in folders:
        clips = tables.read_table(folder, MANIFEST, _OF_CLIPS)
        clips = clips.filter(~_rejected_rows(folder, clips))
        paths, sources = clips["path"].to_pylist(), clips["input"].to_pylist()
        plain = [listing.plain_name(path) for path in paths]
        keys += [
            listing.recorded_key(source, name)
            for source, name in zip(sources, plain, strict=True)
        ]
        numbers.append(
            np.stack(
                [clips[n].fill_null(-1).to_numpy().astype(np.int64) for n in _NUMBERS],
                axis=1,
            )
        )
        if given:
            groups = clips["group"].to_pylist() if has_groups else plain
            named = map(
                listing.recorded_group, sources, groups, [has_groups] * len(groups)
            )
            splits.update(zip(named, clips["split"].to_pylist(), strict=True))
        if recipe.events is not None:
            names += paths
    channel = recipe.channels
    return listing.RecordedClips(
        np.array(keys, np.uint64),
        np.concatenate(numbers),
        channel if isinstance(channel, int) else -1,
        splits,
        has_groups,
        names,
    )


def _rejected_rows(folder: str, clips: Any) -> npt.NDArray[np.bool_]:
    """Returns which rows of a manifest lost windows, and have no example."""
    recipe = Metadata.load(folder).recorded_with
    columns = tables.with_clips(["left_out"], recipe)
    windows = tables.read_table(folder, WINDOWS, columns)
    clip = tables.clips_of(windows, clips)
    reasons = (
        windows["left_out"].cast("string").fill_null("").to_numpy(zero_copy_only=False)
    )
    lost, held = (
        np.bincount(clip[chosen], minlength=len(clips)) > 0
        for chosen in (reasons == "rejected", reasons == "")
    )
    rejected: npt.NDArray[np.bool_] = lost & ~held
    return rejected
