"""What ``normalize`` subtracts from features, and divides them by.

The metadata have the mean and the standard deviation of each split. Those of several
splits follow from their counts, means and M2, as if they had been recorded as one.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from beam_pipeline.dataset.folders import METADATA
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.side_by_side import open_data_sets
from beam_pipeline.errors import DataSetWarning, InputError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.read.choices import Split, check_name, choose_splits
from beam_pipeline.storage import files
from beam_pipeline.storage.files import PathLike
from beam_pipeline.write.statistics import mean_and_deviation

# Splits of which any may be for training.
_WITHOUT_ROLE = re.compile(rf"fold\d+|{DEFAULT_SPLIT}")
_FLOATS = ("float16", "float32", "float64")


class Scale(NamedTuple):
    """``(x - mean) * factor``: scalars, or arrays for the feature's last axis."""

    mean: np.ndarray
    factor: np.ndarray


class Statistics(NamedTuple):
    """Whose mean and deviation scale features.

    Attributes
    ----------
    metadata : Metadata
        Of the data set that was measured.
    splits : tuple of str
        Those whose statistics count; none if it is not clear which.
    given : str, path or list of str, optional
        What the user named.
    is_own : bool
        Whether the data set is the one that is read.
    """

    metadata: Metadata
    splits: tuple[str, ...]
    given: Split | PathLike | None = None
    is_own: bool = True

    @classmethod
    def of_other(cls, metadata: Metadata, given: Split | PathLike) -> Statistics:
        """Returns those of another data set: of ``train``, or of its only split."""
        chosen = choose_statistics(metadata, tuple(metadata.splits))
        return chosen._replace(given=given, is_own=False)


def choose_statistics(
    metadata: Metadata, splits: Sequence[str], given: Split | PathLike | None = None
) -> Statistics:
    """Returns the splits whose statistics scale the features of some splits.

    They are those that are ``given``, or those of the data set that is given; or
    ``train``; or the splits that are read, if they are folds, or the only one without a
    name. Otherwise there are none: a test split is not taken for ``train``.

    Raises
    ------
    InputError, OptionError
        See :func:`choose_splits`.
    """
    if given is None:
        if "train" in metadata.splits:
            return Statistics(metadata, ("train",))
        are_alike = all(map(_WITHOUT_ROLE.fullmatch, metadata.splits))
        return Statistics(metadata, tuple(splits) if are_alike else ())
    if isinstance(given, os.PathLike) or _is_folder(given, metadata):
        data = open_data_sets(os.fspath(given))
        return Statistics.of_other(data.metadata, given)
    return Statistics(metadata, choose_splits(metadata, given, "statistics"), given)


def _is_folder(given: Split, metadata: Metadata) -> TypeGuard[str]:
    """Whether a data set is named, and not splits of the one that is read."""
    if not isinstance(given, str) or given in metadata.splits:
        return False
    return "/" in given or files.exists(files.join(given, METADATA))


def _warn_of_own_statistics(metadata: Metadata, splits: Sequence[str]) -> None:
    """Warns where new sounds for a model may be normalised by their own statistics."""
    if metadata.recipe is None:
        return
    clips = sum(metadata.splits[name].clips for name in splits)
    if clips > 1 and splits != (DEFAULT_SPLIT,):
        return
    warnings.warn(
        f"normalize: the mean and the deviation are those of split "
        f"{' + '.join(splits)} of this data set itself, with {clips} clips. A model "
        "that was trained on another data set needs those of its training split: give "
        "that folder as `statistics`.",
        DataSetWarning,
        stacklevel=4,
    )


def choose_scales(
    specs: Mapping[str, FeatureSpec],
    normalize: bool | Sequence[str],
    statistics: Statistics,
) -> dict[str, Scale]:
    """Returns for each feature to normalise what to subtract, and the factor after.

    The metadata have the mean and the standard deviation of each split. Those of
    several splits follow from their counts, means and M2, as if they had been recorded
    as one.

    Raises
    ------
    InputError
        If a feature cannot be normalised, or the splits have no examples.
    """
    if normalize is False:
        return {}
    metadata, splits = statistics.metadata, statistics.splits
    if not splits:
        raise InputError(
            "normalize: the data set has no split named train. Its splits are "
            f"{', '.join(metadata.splits)}. Name in `statistics` the splits whose mean "
            "and deviation to use, or another data set."
        )
    entries = [metadata.splits[n] for n in splits if metadata.splits[n].examples]
    if not entries:
        raise InputError(
            f"normalize: split {' + '.join(splits)} has no examples, so it has no "
            "mean. Leave out `normalize`, or record a data set with examples in this "
            "split."
        )
    if statistics.is_own:
        _warn_of_own_statistics(metadata, splits)
    several = [entry.statistics.get("features", {}) for entry in entries]
    measured = {
        name
        for name in set(several[0]).intersection(*several)
        if name in specs and specs[name].dtype in _FLOATS
    }
    if not measured and not statistics.is_own:
        raise InputError(
            "normalize: the data set that `statistics` names has none of the features "
            f"{', '.join(specs)}."
        )
    if normalize is True:
        chosen = [name for name in specs if name in measured]
    else:
        chosen = [normalize] if isinstance(normalize, str) else list(normalize)
    scales = {}
    for feature in chosen:
        check_name("feature", feature, specs)
        if feature not in measured:
            raise InputError(
                f"normalize: feature {feature} has the dtype {specs[feature].dtype}; "
                "only floating-point features of transforms can be normalised."
            )
        mean, std = mean_and_deviation([of_split[feature] for of_split in several])
        shape = specs[feature].shape or ()
        if mean.shape and shape[-1:] != mean.shape:
            raise InputError(
                f"normalize: feature {feature} has the shape {shape}, "
                f"but the statistics are those of {mean.size} bins."
            )
        # A constant differs from its mean by no more than rounding.
        constant = std <= 1e-7 * np.abs(mean)
        factor = np.where(constant, 0.0, 1 / np.where(constant, 1.0, std))
        scales[feature] = Scale(mean, factor)
    return scales


def normalise(batch: dict[str, Any], scales: Mapping[str, Scale]) -> dict[str, Any]:
    """Returns the batch with ``(x - mean) * factor`` for features with scales."""
    for name, (mean, factor) in scales.items():
        values = batch[name]
        if isinstance(values, np.ndarray):
            batch[name] = _scaled(values, mean, factor)
        else:
            batch[name] = [
                None if value is None else _scaled(value, mean, factor)
                for value in values
            ]
    return batch


def _scaled(values: Any, mean: np.ndarray, factor: np.ndarray) -> Any:
    dtype = values.dtype
    return (values - mean.astype(dtype)) * factor.astype(dtype)
