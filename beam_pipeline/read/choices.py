"""What of a data set is read: which splits and features, and by what they are scaled.

::

    "train"                     a split
    "fold0+fold2"               several, one after the other; also ["fold0", "fold2"]
    "!fold1"                    all others, in the order of the metadata

Every reader gives the examples in this order: split after split as chosen, and in a
split the order on disk, shard after shard.

``normalize`` subtracts a mean and divides by a deviation. The metadata have those of
each split. Those of several splits follow from their counts, means and M2, as if they
had been recorded as one.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeGuard

import numpy as np

from beam_pipeline.arrays import numpy_dtype
from beam_pipeline.dataset.folders import METADATA
from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.dataset.side_by_side import open_data_sets
from beam_pipeline.encodings import BYTES_LIST
from beam_pipeline.errors import DataSetWarning, InputError, OptionError, listed
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.parameters import check_whole
from beam_pipeline.storage import files
from beam_pipeline.storage.files import PathLike
from beam_pipeline.write.statistics import mean_and_deviation

# Memory for what is read ahead, and for what is shuffled.
READ_AHEAD_BYTES = 256 << 20
SHUFFLE_BYTES = 128 << 20
# Stand for texts, and for sizes that differ between examples.
_TEXT_BYTES = 64
_GUESSED_SIZE = 256
# How many times the bytes in a shard an example takes, about, after GZIP.
_INFLATED = 2


def memory_bytes(metadata: Metadata, specs: Iterable[FeatureSpec]) -> int:
    """Returns about how many bytes these features of an example take in memory.

    If sizes differ between examples, the shards tell more about them than the specs.
    """
    size, is_known = 0, True
    for spec in specs:
        count = math.prod(n or _GUESSED_SIZE for n in spec.shape or (None,))
        size += (
            _TEXT_BYTES
            if spec.encoding == BYTES_LIST
            else count * numpy_dtype(spec.dtype).itemsize
        )
        is_known = is_known and spec.has_fixed_shape
    if is_known:
        return size
    splits = metadata.splits.values()
    stored = sum(shard.bytes for split in splits for shard in split.shards)
    examples = sum(split.examples for split in splits)
    return max(size, _INFLATED * stored // max(examples, 1))


def check_share(name: str, shard: Any) -> tuple[int, int]:
    """Returns ``(index, count)`` of a share; refuses anything else."""
    try:
        index, count = (check_whole(name, number, 0) for number in shard)
        if index < count:
            return index, count
    except (TypeError, ValueError):
        pass
    raise OptionError(name, "must be (index, count) with 0 <= index < count", shard)


def choose_features(metadata: Metadata, features: Sequence[str] | None) -> list[str]:
    """Returns the features with these names; without names, all components.

    Features that only belong to others, like the shape of an array, are no components.
    """
    names = metadata.components
    chosen = names if features is None else names_in("features", features)
    for name in chosen:
        check_name("feature", name, names)
    return chosen


def names_in(option: str, given: Any) -> list[str]:
    """Returns the names that an option has: one as text, or several."""
    is_text = isinstance(given, str) or not isinstance(given, Iterable)
    names = [given] if is_text else list(given)
    if not names or not all(isinstance(name, str) for name in names):
        raise OptionError(option, "must name at least one, as text", given)
    return names


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises InputError if a name is not known; suggests the closest."""
    names = list(known)
    if name not in names:
        raise InputError(f"There is no {kind} {name!r}, only {listed(names, name)}.")


# A split, or several; see above.
Split = str | Sequence[str]

_BETWEEN = "+"
_WITHOUT = "!"


def shards_of(metadata: Metadata, splits: Iterable[str]) -> list[ShardEntry]:
    """Returns all shards of some splits, in order."""
    return [shard for name in splits for shard in metadata.splits[name].shards]


def choose_splits(
    metadata: Metadata, split: Split | None, option: str = "split"
) -> tuple[str, ...]:
    """Returns the splits that ``split`` names; without it, the only one.

    Raises
    ------
    InputError
        If there is no such split, or if the data set has several and none is named.
    OptionError
        If the text has another form, or a split is named twice.
    """
    known = metadata.splits
    if split is None and len(known) != 1:
        raise InputError(
            f"The data set has the splits {', '.join(known)}. Choose one with `split`, "
            f"or several: {_BETWEEN.join(list(known)[:2])}."
        )
    names = list[str]()
    for each in names_in(option, [*known] if split is None else split):
        names += [each] if each in known else each.split(_BETWEEN)
    left_out = [name.removeprefix(_WITHOUT) for name in names if name[:1] == _WITHOUT]
    if left_out and len(left_out) < len(names):
        raise OptionError(
            option, "must name what is read, or with ! what is not, but not both", split
        )
    for name in left_out or names:
        check_name(option, name, known)
    if left_out:
        names = [name for name in known if name not in left_out]
        if not names:
            raise OptionError(option, "leaves no split to read", split)
    if len(set(names)) < len(names):
        raise OptionError(option, "names a split twice", split)
    return tuple(names)


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
    is_own : bool
        Whether the data set is the one that is read.
    """

    metadata: Metadata
    splits: tuple[str, ...]
    is_own: bool = True

    @classmethod
    def of_other(cls, metadata: Metadata) -> Statistics:
        """Returns those of another data set: of ``train``, or of its only split."""
        chosen = choose_statistics(metadata, tuple(metadata.splits))
        return chosen._replace(is_own=False)


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
        return Statistics.of_other(open_data_sets(os.fspath(given)).metadata)
    return Statistics(metadata, choose_splits(metadata, given, "statistics"))


def _is_folder(given: Split, metadata: Metadata) -> TypeGuard[str]:
    """Whether a data set is named, and not splits of the one that is read."""
    if not isinstance(given, str) or given in metadata.splits:
        return False
    return "/" in given or files.exists(files.join(given, METADATA))


def _warn_of_own_statistics(metadata: Metadata, splits: Sequence[str]) -> None:
    """Warns where new sounds for a model may be normalised by their own statistics."""
    clips = sum(metadata.splits[name].clips for name in splits)
    if metadata.recipe is None or (clips > 1 and splits != (DEFAULT_SPLIT,)):
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
    if not normalize:
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
        chosen = names_in("normalize", normalize)
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
        dtype = specs[feature].dtype
        scales[feature] = Scale(mean.astype(dtype), factor.astype(dtype))
    return scales


def normalise(values: dict[str, Any], scales: Mapping[str, Scale]) -> dict[str, Any]:
    """Returns features with ``(x - mean) * factor`` for those with scales.

    They are arrays or tensors, or lists of arrays, with None where there is none.
    """
    for name, (mean, factor) in scales.items():
        of_all = values[name]
        values[name] = (
            [None if one is None else (one - mean) * factor for one in of_all]
            if isinstance(of_all, list)
            else (of_all - mean) * factor
        )
    return values
