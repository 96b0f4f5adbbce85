"""What of a data set is read: splits, several of them, or parts; and which features.

Also what ``normalize`` subtracts and divides by, and how much readers hold in memory.

::

    "train"                     a split
    "fold0+fold2"               several, one after the other; also ["fold0", "fold2"]
    "!fold1"                    all others, in the order of the metadata
    "train[:10%]"               a part, as in Python's slices, by percent or number

Every reader gives the examples in this order: split after split as chosen, and in a
split the order on disk, shard after shard.
"""

from __future__ import annotations

import math
import os
import re
import warnings
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.folders import METADATA
from beam_pipeline.dataset.metadata import Metadata, ShardEntry
from beam_pipeline.dataset.side_by_side import open_data_sets
from beam_pipeline.errors import DataSetWarning, InputError, OptionError, did_you_mean
from beam_pipeline.examples.spec import BYTES_LIST, FeatureSpec, numpy_dtype
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
    chosen = names if features is None else features
    chosen = [chosen] if isinstance(chosen, str) else list(chosen)
    for name in chosen:
        check_name("feature", name, names)
    if not chosen:
        raise OptionError("features", "must name at least one", features)
    return chosen


def check_name(kind: str, name: str, known: Iterable[str]) -> None:
    """Raises InputError if a name is not known; suggests the closest."""
    names = list(known)
    if not isinstance(name, str):
        raise OptionError(kind, f"must be the name of a {kind}", name)
    if name not in names:
        close = did_you_mean(name, names)
        hint = f" Did you mean {close!r}?" if close else ""
        raise InputError(f"There is no {kind} {name!r}, only {', '.join(names)}.{hint}")


# A split, or several, and parts of them; see above.
Split = str | Sequence[str]

_BETWEEN = "+"
_WITHOUT = "!"
_PART = re.compile(r"([^\[\]]+)\[([^\[\]:]*):([^\[\]:]*)\]")
_BOUND = re.compile(r"(-?)(?:(\d+)|(\d+(?:\.\d+)?)%)")


class Stretch(NamedTuple):
    """The examples ``start .. stop - 1`` of a split."""

    split: str
    start: int
    stop: int


class ShardRange(NamedTuple):
    """Consecutive examples of one shard."""

    shard: ShardEntry
    skip: int
    take: int


class SplitChoice(NamedTuple):
    """The chosen examples.

    Attributes
    ----------
    splits : tuple of str
        The splits that they are of, each once.
    stretches : tuple of Stretch
        The examples, in order; no example is in two of them.
    """

    splits: tuple[str, ...]
    stretches: tuple[Stretch, ...]

    def is_whole(self, metadata: Metadata) -> bool:
        """Whether these are all examples of the splits."""
        return all(
            (start, stop) == (0, _count(name, metadata))
            for name, start, stop in self.stretches
        )

    @property
    def text(self) -> str:
        """The splits, in the form that :func:`choose_splits` takes."""
        return _BETWEEN.join(self.splits)

    def shards(self, metadata: Metadata) -> list[ShardEntry]:
        """Returns all shards of the splits, in order."""
        return [s for name in self.splits for s in metadata.splits[name].shards]

    def numbers(self, metadata: Metadata) -> range | npt.NDArray[np.int64]:
        """Returns the numbers of the examples among all of the splits."""
        firsts, total = {}, 0
        for name in self.splits:
            firsts[name] = total
            total += _count(name, metadata)
        spans = [
            range(firsts[name] + start, firsts[name] + stop)
            for name, start, stop in self.stretches
        ]
        if all(a.stop == b.start for a, b in pairwise(spans)):
            return range(spans[0].start, spans[-1].stop)
        return np.concatenate([np.arange(s.start, s.stop) for s in spans])

    def pieces(self, metadata: Metadata) -> list[ShardRange]:
        """Returns the pieces of shards that hold the examples, in order."""
        found = []
        for name, start, stop in self.stretches:
            shards = metadata.splits[name].shards
            whole = [ShardRange(shard, 0, shard.examples) for shard in shards]
            found += _pieces_between(whole, start, stop)
        return found


def _pieces_between(
    pieces: Iterable[ShardRange], start: int, stop: int
) -> list[ShardRange]:
    """Returns the pieces of the examples ``start .. stop - 1`` of some pieces."""
    cut, first = [], 0
    for shard, begin, examples in pieces:
        skip = max(start - first, 0)
        take = min(stop - first, examples) - skip
        if take > 0:
            cut.append(ShardRange(shard, begin + skip, take))
        first += examples
    return cut


def cut_pieces(
    pieces: Sequence[ShardRange], index: int, count: int
) -> list[ShardRange]:
    """Returns the pieces that the trainer ``index`` of ``count`` reads.

    >>> a, b = ShardEntry("a", 4, 0, ""), ShardEntry("b", 2, 0, "")
    >>> cut = cut_pieces([ShardRange(a, 0, 4), ShardRange(b, 0, 2)], 1, 2)
    >>> [(p.shard.file, p.skip, p.take) for p in cut]
    [('a', 3, 1), ('b', 0, 2)]
    """
    total = sum(piece.take for piece in pieces)
    start, stop = index * total // count, (index + 1) * total // count
    return _pieces_between(pieces, start, stop)


def choose_splits(
    metadata: Metadata, split: Split | None, option: str = "split"
) -> SplitChoice:
    """Returns the examples that ``split`` names; without it, those of the only split.

    Raises
    ------
    InputError
        If there is no such split, or if the data set has several and none is named.
    OptionError
        If the text has another form, or examples are named twice.
    """
    known = metadata.splits
    if split is None and len(known) != 1:
        raise InputError(
            f"The data set has the splits {', '.join(known)}. Choose one with `split`, "
            f"or several: {_BETWEEN.join(list(known)[:2])}."
        )
    names = list(known) if split is None else _entries(split, known, option)
    without = [name for name in names if name.startswith(_WITHOUT)]
    if without and len(without) < len(names):
        raise OptionError(
            option, "must name what is read, or with ! what is not, but not both", split
        )
    if without:
        left_out = [name[len(_WITHOUT) :] for name in without]
        for name in left_out:
            check_name(option, name, known)
        names = [name for name in known if name not in left_out]
        if not names:
            raise OptionError(option, "leaves no split to read", split)
    stretches = tuple(_stretch(name, metadata, option) for name in names)
    for one, other in combinations(stretches, 2):
        first, last = max(one.start, other.start), min(one.stop, other.stop)
        if one.split == other.split and (one == other or first < last):
            raise OptionError(option, f"names examples of {one.split} twice", split)
    return SplitChoice(tuple(dict.fromkeys(s.split for s in stretches)), stretches)


def _entries(split: Any, known: Iterable[str], option: str) -> list[str]:
    several = split if isinstance(split, list | tuple) else [split]
    entries: list[str] = []
    for each in several:
        if not isinstance(each, str):
            raise OptionError(option, "must be the name of a split, or a list", split)
        entries += [each] if each in known else each.split(_BETWEEN)
    if not entries:
        raise OptionError(option, "must name at least one", split)
    return entries


def _stretch(text: str, metadata: Metadata, option: str) -> Stretch:
    """Returns the examples that a split, or a part of one, has."""
    match = _PART.fullmatch(text)
    name = text if text in metadata.splits or match is None else match[1]
    check_name(option, name, metadata.splits)
    total = _count(name, metadata)
    if match is None or name == text:
        return Stretch(name, 0, total)
    start = _bound(match[2], total, 0, text, option)
    stop = _bound(match[3], total, total, text, option)
    return Stretch(name, start, max(start, stop))


def _count(split: str, metadata: Metadata) -> int:
    return sum(shard.examples for shard in metadata.splits[split].shards)


def _bound(text: str, total: int, default: int, whole: str, option: str) -> int:
    """Returns the number of an example: 100, -100, 10%, -10%, or the default.

    ``p%`` is ``floor(total * p / 100)``, so ``[:p%]`` and ``[p%:]`` have every example
    once. Numbers beyond the split are its end, as in Python's slices.
    """
    if not text:
        return default
    match = _BOUND.fullmatch(text)
    percent = Fraction(match[3]) if match and match[3] else Fraction(0)
    if match is None or percent > 100:
        raise OptionError(
            option,
            "must be like train[:10%], train[10%:90%], train[:100] or train[-100:]",
            whole,
        )
    number = int(match[2]) if match[2] else int(total * percent / 100)
    number = min(number, total)
    return total - number if match[1] else number


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
        See :func:`choose_splits`; also if a part of a split is given.
    """
    if given is None:
        if "train" in metadata.splits:
            return Statistics(metadata, ("train",))
        are_alike = all(map(_WITHOUT_ROLE.fullmatch, metadata.splits))
        return Statistics(metadata, tuple(splits) if are_alike else ())
    if isinstance(given, os.PathLike) or _is_folder(given, metadata):
        data = open_data_sets(os.fspath(given))
        return Statistics.of_other(data.metadata, given)
    choice = choose_splits(metadata, given, "statistics")
    if not choice.is_whole(metadata):
        raise OptionError(
            "statistics", f"are those of whole splits, like {choice.text}", given
        )
    return Statistics(metadata, choice.splits, given)


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
    OptionError
        If ``normalize`` is neither a bool nor names.
    """
    if not isinstance(normalize, bool | Sequence):
        need = "must be True, False or names of features"
        raise OptionError("normalize", need, normalize)
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
