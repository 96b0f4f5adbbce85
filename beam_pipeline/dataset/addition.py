"""What an append needs to know of the data set that it extends.

The submitter reads it once, before anything is planned. The clips that the data set has
are read where the inputs are listed, because only the listing compares names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.clip_windows import clips_of, with_clips
from beam_pipeline.dataset.generations import (
    APPEND,
    RETRY,
    current_rows,
    last_generation,
    metadata_text,
    read_columns,
    read_rejects,
)
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST, METADATA, WINDOWS
from beam_pipeline.dataset.reused_recipe import as_recorded
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.examples.format import Corpus, ExampleFormat
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.inputs.column_types import Column
from beam_pipeline.inputs.listing import ListingSummary
from beam_pipeline.inputs.recorded_clips import RecordedClips
from beam_pipeline.inputs.sources import Input
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.plan.corpus import format_of, merge_corpora
from beam_pipeline.plan.group_measures import group_steps
from beam_pipeline.recipe.options import RunOptions
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files

# Options that say how inputs are read, and a retry's that say what is rejected. All
# others decide what examples are, which must be the same in a data set.
_OF_INPUTS = ("events", "path_column", "column_names", "delimiter")
_OF_RETRIES = ("allow_truncated", "allow_nonfinite")

_NUMBERS = (
    "native_frames", "native_sample_rate_hz", "channels", "sample_rate_hz", "start",
    "frames", "channel", "file",
)  # fmt: skip


@dataclass(frozen=True)
class Addition:
    """Files that are added to a data set, as its next generation.

    Attributes
    ----------
    generation : int
    before : Metadata
        The metadata of the data set.
    sha256 : str
        The SHA-256 of their text.
    first_row : int
        The number of the first clip that is added.
    first_index : mapping
        Split to the number of its planned windows.
    corpus : Corpus
        The clips of the data set.
    retry, skip_known, add_classes : bool
        What the run was asked for.
    options : mapping
        The options of the recipe that are not those of the data set, as JSON values.
    """

    generation: int
    before: Metadata
    sha256: str
    first_row: int
    first_index: Mapping[str, int]
    corpus: Corpus
    retry: bool = False
    skip_known: bool = False
    add_classes: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)

    def added_by(self) -> str:
        """Returns the name of what adds the files."""
        return RETRY if self.retry else APPEND

    def stamp(self) -> dict[str, Any]:
        """Returns what must be equal for a run to continue another one."""
        return {
            "added_by": self.added_by(),
            "known": self.skip_known,
            "new_classes": self.add_classes,
            "metadata": self.sha256,
        }


def recorded_recipe(
    folder: str, asked: Recipe, run: RunOptions
) -> tuple[Recipe, dict[str, Any]]:
    """Returns the recipe of an addition, and what differs from that of the data set.

    Raises
    ------
    RecipeError
        If an option decides examples, and is not that of the data set; or if the data
        set has an option that does not allow additions.
    """
    metadata = _recorded_from_audio(folder)
    base = metadata.recipe
    assert base is not None
    asked = as_recorded(asked, metadata)
    old, new = base.to_json(), asked.to_json()
    may_differ = (*_OF_INPUTS, *(_OF_RETRIES if run.retry else ()))
    changed = {n: new.get(n) for n in {*old, *new} if old.get(n) != new.get(n)}
    for name in sorted(changed):
        if name not in may_differ:
            raise RecipeError(
                name,
                f"must be that of the data set in {folder}, {old.get(name)!r}, because "
                "all of its examples have one recipe; leave it out",
                changed[name],
            )
    if base.shards.num_elems:
        raise RecipeError(
            "num_elems",
            "limits the examples of each split, so files cannot be added to this data "
            "set; record all of them again",
            base.shards.num_elems,
        )
    if run.new_classes == "add" and base.labels.classes is not None:
        raise RecipeError(
            "classes",
            "lists all classes of this data set, so `new_classes` cannot add others",
            old["classes"],
        )
    if run.new_classes == "add" and (base.labels.separator or base.events.source):
        raise RecipeError(
            "label_separator" if base.labels.separator else "events",
            "gives each example a number for each class, so `new_classes` cannot add "
            "others to this data set; record all files again",
            base.labels.separator or base.events.source,
        )
    return asked, {n: v for n, v in sorted(changed.items()) if n in _OF_RETRIES}


def recipe_of(folder: str) -> Recipe:
    """Returns the recipe of a data set to which files can be added.

    Raises
    ------
    InputError
        If there is no finished data set, or it was not recorded from audio files.
    """
    recipe = _recorded_from_audio(folder).recipe
    assert recipe is not None
    return recipe


def _recorded_from_audio(folder: str) -> Metadata:
    metadata = Metadata.load(folder)
    if metadata.recipe is None:
        by = (
            "another function"
            if metadata.elements is None
            else (f"`{metadata.elements.recorded_by}`")
        )
        raise InputError(
            f"{folder} holds a data set that {by} has recorded from elements. Audio "
            "files can be added only to data sets of `record`."
        )
    return metadata


def describe_addition(
    folder: str, run: RunOptions, inputs: Sequence[Input], options: Mapping[str, Any]
) -> Addition:
    """Reads what an addition needs to know of a data set.

    Raises
    ------
    InputError
        If files of the data set are missing, or if the inputs give splits and the data
        set has none, or the other way round.
    """
    text = metadata_text(folder)
    metadata = Metadata.parse(text, files.join(folder, METADATA))
    _check_splits(folder, metadata, inputs)
    clips = read_columns(
        folder,
        metadata,
        MANIFEST,
        (
            "path",
            "split",
            "sample_rate_hz",
            "channels",
            "frames",
            "first_index",
            "windows",
        ),
    )
    ends = clips["first_index"].to_numpy() + clips["windows"].to_numpy()
    splits = clips["split"].to_numpy(zero_copy_only=False)
    return Addition(
        last_generation(metadata) + 1,
        metadata,
        bytes_sha256(text),
        sum(each.clips for each in metadata.generations) or metadata.clips,
        {name: int(ends[splits == name].max(initial=0)) for name in metadata.splits},
        _corpus_of(clips, metadata),
        run.retry,
        run.known == "skip",
        run.new_classes == "add",
        options,
    )


def _check_splits(folder: str, metadata: Metadata, inputs: Sequence[Input]) -> None:
    """Raises InputError unless the inputs give splits as those of the data set did."""
    assert metadata.recipe is not None
    if metadata.recipe.splits.decided_by() is not None:
        return
    names = ", ".join(metadata.splits)
    has_splits = [*metadata.splits] != [DEFAULT_SPLIT]
    for entry in inputs:
        if has_splits and not entry.split:
            raise InputError(
                f"The inputs of {folder} gave its splits, {names}. Give the `input` "
                f"{entry.location} as SPLIT=INPUT, too."
            )
        if entry.split and not has_splits:
            raise InputError(
                f"{folder} has no splits, so the `input` {entry.location} cannot be "
                f"in the split {entry.split}."
            )


def _corpus_of(clips: Any, metadata: Metadata) -> Corpus:
    """Returns a summary of the clips of a data set, without those left out."""
    clips = clips.filter(np.greater(clips["windows"].to_numpy(), 0))
    paths = clips["path"]
    named: dict[tuple[str, int | str], str] = {}

    def count(unit: str, column: str) -> Counter[int]:
        values = clips[column].to_numpy()
        counts = Counter(values.tolist())
        for value in counts:
            rows = np.flatnonzero(values == value)
            named[unit, value] = min(paths.take(rows).to_pylist())
        return counts

    rates, channels = count("Hz", "sample_rate_hz"), count("channels", "channels")
    frames = int(clips["frames"].to_numpy().sum())
    return Corpus(metadata.classes, rates, channels, named, frames=frames)


def read_recorded(
    folder: str, addition: Addition, recipe: Recipe, inputs: Sequence[Input]
) -> RecordedClips:
    """Reads the clips that a data set has, for the listing of what is added to it."""
    metadata = addition.before
    clips = read_columns(
        folder, metadata, MANIFEST, ("path", "split", "group", *_NUMBERS)
    )
    valid = current_rows(len(clips), metadata)
    if addition.retry:
        lost = lost_rows(folder, metadata)
        valid = ~lost if valid is None else valid & ~lost
    if valid is not None:
        clips = clips.filter(valid)
    numbers = np.stack(
        [clips[name].fill_null(-1).to_numpy().astype(np.int64) for name in _NUMBERS], 1
    )
    names, splits = clips["path"].to_pylist(), clips["split"].to_pylist()
    groups: list[Any] = clips["group"].to_pylist() if recipe.splits.group_by else []
    channel = recipe.audio.channels
    return RecordedClips(
        names,
        numbers,
        frozenset(reject["path"] for reject in read_rejects(folder, metadata)),
        channel if isinstance(channel, int) else -1,
        addition.retry,
        dict(zip(groups, splits, strict=False)),
        dict(zip(numbers[:, -1].tolist(), groups, strict=False)),
        dict(zip(names, splits, strict=True)) if inputs[0].split else {},
        bool(group_steps(recipe)),
    )


def lost_rows(folder: str, metadata: Metadata) -> npt.NDArray[np.bool_]:
    """Returns which rows of the manifest have no window that could be recorded."""
    clips = read_columns(folder, metadata, MANIFEST, ["windows", "index"])
    columns = with_clips(["left_out"], metadata.recipe)
    windows = read_columns(folder, metadata, WINDOWS, columns)
    # Of a dictionary, `to_numpy` gives the last value in place of a null.
    reasons = windows["left_out"].cast("string").to_numpy(zero_copy_only=False)
    held = np.bincount(
        clips_of(windows, clips)[reasons != "rejected"], minlength=len(clips)
    )
    lost: npt.NDArray[np.bool_] = (clips["windows"].to_numpy() > 0) & (held == 0)
    return lost


def extended_format(
    corpus: Corpus,
    addition: Addition,
    recipe: Recipe,
    columns: Sequence[Column],
) -> ExampleFormat:
    """Returns the format of the examples of a data set and of added clips.

    Raises
    ------
    InputError
        If an added clip has a class that the data set does not have, unless classes
        are added; or if its examples would be others.
    RecipeError
        See :meth:`ExampleFormat.of`.
    """
    before = addition.before
    new = [label for label in corpus.labels if label not in before.classes]
    if new and not addition.add_classes:
        first = corpus.named["class", new[0]]
        more = f", nor {len(new) - 1} other new classes" if len(new) > 1 else ""
        raise InputError(
            f"{first} is of class {new[0]}, but the data set has no such class{more}. "
            "Give `new_classes` add to append new classes to its list, or correct the "
            "class."
        )
    both = merge_corpora([addition.corpus, corpus])
    labels = (*before.classes, *new)
    both = replace(both, labels=labels)
    _check_rates(recipe, addition.corpus, corpus)
    found = ExampleFormat.of(both, recipe, columns)
    for name in sorted({*found.features.specs, *before.features}):
        ours, theirs = map(
            _told, (found.features.specs.get(name), before.features.get(name))
        )
        if ours != theirs:
            raise InputError(
                f"The feature {name} would be {ours} in the added examples, but is "
                f"{theirs} in the data set. The sample rates of the inputs, the "
                "columns of a table, or a transform are others than before."
            )
    return found


def _check_rates(recipe: Recipe, before: Corpus, added: Corpus) -> None:
    """Raises InputError if windows in seconds would have another number of frames.

    A data set cannot get another sample rate, so the advice to give one would be wrong.
    """
    windows = recipe.windows
    by_seconds = windows.win_seconds is not None or windows.hop_seconds is not None
    other = sorted(set(added.rates_hz) - set(before.rates_hz))
    if recipe.audio.sample_rate is None and by_seconds and before.rates_hz and other:
        (rate,) = before.rates_hz
        raise InputError(
            f"{added.named['Hz', other[0]]} has {other[0]} Hz, but all clips of the "
            f"data set have {rate} Hz, and it was recorded without `sample_rate`. "
            f"Resample the added files to {rate} Hz, or record all of them anew with "
            "`sample_rate`."
        )


def resolve_format(
    corpus: Corpus,
    recipe: Recipe,
    listing: ListingSummary,
    columns: Sequence[Column],
    addition: Addition | None,
) -> ExampleFormat | None:
    """Calls :func:`format_of` or :func:`extended_format` for some clips.

    Returns None if every clip was rejected.
    """
    if addition is None or not corpus.rates_hz:
        return format_of(corpus, recipe, listing, columns)
    return extended_format(corpus, addition, recipe, columns)


def _told(spec: FeatureSpec | None) -> str:
    if spec is None:
        return "missing"
    axes = " with axes" if spec.axes else ""
    return f"{spec.dtype} {spec.shape} as {spec.encoding}{axes}"
