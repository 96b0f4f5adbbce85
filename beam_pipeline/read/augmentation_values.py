"""What was drawn for an augmented copy: computed again, from the recipe alone."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.examples.feature_steps import changes_copies
from beam_pipeline.examples.features import resolve_transforms
from beam_pipeline.examples.random_keys import CopyKeys, copy_numbers
from beam_pipeline.examples.sound_folders import load_step
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.values import check_whole
from beam_pipeline.transforms.base import steps_of
from beam_pipeline.transforms.expressions import (
    AUGMENTATION,
    TRANSFORM,
    Kind,
    parse_augment,
)


def augmentation_values(
    metadata: Metadata | str | os.PathLike[str],
    filepath: str,
    window: int,
    copy: int,
    *,
    frames: int,
    sample_rate: int,
    source: int = 0,
) -> dict[str, dict[str, Any]]:
    """Returns the random values that made an augmented copy.

    ::

        values = augmentation_values(
            "records/", "a/1.wav", window=3, copy=1, frames=16000, sample_rate=16000
        )
        values["random_gain"]["gain_db"]

    They follow from the recipe; the data set is not read. This imports the modules of
    steps that the recipe names, and lists the files of folders of sounds.

    Parameters
    ----------
    metadata : Metadata or path
        Those of the data set, or its folder.
    filepath : str
        The example's ``filepath``.
    window : int
        The number of the window in its clip, from 0 on, in the order of the starts.
        Windows that were left out count.
    copy : int
        The example's ``copy``, at least 1.
    frames, sample_rate : int
        Of the window; in Hz.
    source : int
        The number of the clip's input, from 0 on, if there were several.

    Returns
    -------
    dict of dict
        For each step of ``augment``, by its name, and for each step of a feature that
        changes copies, as ``FEATURE: NAME``, the values by their names: numbers, texts
        or lists. A second step of one name has ``#2`` after it, and so on. A step that
        cannot say what it draws has no values.

    Raises
    ------
    InputError
        If the data set was not recorded from audio files.
    OptionError
        If a number is out of its range.
    RecipeError
        If a step of the recipe cannot be had here, or a folder of sounds has changed.
    """
    if not isinstance(metadata, Metadata):
        metadata = Metadata.load(os.fspath(metadata))
    recipe = metadata.recipe
    if recipe is None:
        raise InputError(
            "The data set was not recorded from audio files, so it has no copies."
        )
    check_whole("window", window, least=0)
    if not 1 <= copy <= recipe.augmentation.copies:
        raise OptionError(
            "copy",
            f"must be from 1 to {recipe.augmentation.copies}, the copies of the recipe",
            copy,
        )
    keys = CopyKeys.of(recipe.shards.seed, filepath, source)
    number = copy_numbers(np.array([window]), np.array([copy]))
    values: dict[str, dict[str, Any]] = {}
    for name, drawn in _drawn(recipe, metadata, keys, number, frames, sample_rate):
        same = sum(known.partition(" #")[0] == name for known in values)
        place = f"{name} #{same + 1}" if same else name
        values[place] = {key: array[0].tolist() for key, array in drawn.items()}
    return values


def _drawn(
    recipe: Recipe,
    metadata: Metadata,
    keys: CopyKeys,
    number: Any,
    frames: int,
    sample_rate: int,
) -> Iterator[tuple[str, Any]]:
    """Yields the name of each step that changes the copy, and what it draws."""
    augment = recipe.augmentation.augment
    for at, augmentation in enumerate(parse_augment(augment) if augment else ()):
        loaded = load_step(augmentation, sample_rate)
        own = keys.of_augmentation(at, number)
        yield (
            _name_of(augmentation, AUGMENTATION),
            loaded.drawn(own, frames, sample_rate) if hasattr(loaded, "drawn") else {},
        )
    transforms = resolve_transforms(recipe.features, recipe.audio.dtype)
    for feature, transform in transforms.items():
        shape = metadata.features[feature].shape or ()
        steps: Iterable[Any] = filter(changes_copies, steps_of(transform))
        for at, step in enumerate(steps):
            own = keys.of_feature(feature, at, number)
            known = hasattr(step, "drawn") and len(shape) > 1 and None not in shape
            yield (
                f"{feature}: {_name_of(step, TRANSFORM)}",
                step.drawn(own, *shape[-2:]) if known else {},
            )


def _name_of(step: Any, kind: Kind) -> str:
    names = {cls: name for name, cls in kind.table.items()}
    return names.get(type(step), type(step).__name__)
