"""What may be wrong with a plan or a data set, as far as the metadata show.

::

    plan       --warn_of_plan---> warnings
    metadata   --warn_of_data---> warnings of what few people want
               --metadata_problems--> all of it, for a report
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.dataset.folders import MANIFEST
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.tables import read_table
from beam_pipeline.errors import DataSetWarning
from beam_pipeline.planning.summary import PlanSummary, split_by_class
from beam_pipeline.recipe.recipe import LABEL_SOURCES, Recipe

WRONG, LOOK = "wrong", "look"

# Splits whose scores tell how good a model is.
EVALUATION = ("test", "eval", "valid", "validation", "val", "dev")

_NAMED = 5  # classes, or sample rates


class Problem(NamedTuple):
    """Something to look at.

    Attributes
    ----------
    level : str
        ``wrong`` or ``look``.
    title, text : str
        What was found; and how much of it, or what to do.
    files : sequence of str
    samples : sequence
        Examples of a report that let one hear it.
    """

    level: str
    title: str
    text: str
    files: Sequence[str] = ()
    samples: Sequence[Any] = ()


def warn_of_plan(summary: PlanSummary, recipe: Recipe) -> None:
    """Warns of splits without clips or classes, few examples, and several rates."""
    example_format = summary.example_format
    if example_format is None:
        return
    clips, counts = (
        {
            split: {
                label: sum(n for key, n in some.items() if key.split == split)
                for label, some in split_by_class(example_format, counted).items()
            }
            for split in summary.layouts
        }
        for counted in summary.by_class()
    )
    examples = {split: summary.kept(split)[0] for split in summary.layouts}
    rates = {key.rate_hz for key in summary.clips}
    found = _of_counts(examples, counts, example_format.classes, rates, recipe)
    _warn(chain(found, single_recordings(clips)))


def warn_of_splits(counts: Mapping[str, Mapping[str, int]]) -> None:
    """Warns of splits without clips, and of classes that a split lacks.

    ``counts`` has the examples of each class, or of ``""``, by split.
    """
    filled = {split: some for split, some in counts.items() if any(some.values())}
    labels = sorted({label for some in filled.values() for label in some} - {""})
    _warn(
        chain(
            _empty(split for split in counts if split not in filled),
            _lacking(
                {s: {n: some.get(n, 0) for n in labels} for s, some in filled.items()}
            ),
        )
    )


def warn_of_data(folder: str, metadata: Metadata) -> None:
    """Warns of what :func:`warn_of_plan` does, and of what only the audio shows.

    This is: empty splits, NaN, and values that transforms clipped.

    ``metadata`` is that of the data set in ``folder``, which ``record`` made.
    """
    recipe = metadata.recipe
    assert recipe is not None
    rates: list[int] = []
    if recipe.sample_rate is None:
        rates = _recorded(folder, "sample_rate_hz")[0].unique().to_pylist()
    per_class: dict[str, dict[str, int]] = defaultdict(dict)
    if not metadata.splits.keys().isdisjoint(EVALUATION):
        clips = _recorded(folder, "split", "class")
        counted = clips.group_by(["split", "class"]).aggregate([([], "count_all")])
        for row in counted.to_pylist():
            per_class[row["split"]][row["class"] or ""] = row["count_all"]
    found = (_of_recipe(metadata, recipe, rates), single_recordings(per_class))
    _warn(chain(*found, _of_values(metadata)))


def _recorded(folder: str, *columns: str) -> Any:
    """Returns columns of the manifest, for clips with windows; others take time."""
    clips = read_table(folder, MANIFEST, ["windows", *columns])
    return clips.filter(np.greater(clips["windows"].to_numpy(), 0)).select(columns)


def metadata_problems(metadata: Metadata, rates: Iterable[int]) -> Iterator[Problem]:
    """Yields all that the metadata of a data set show.

    Parameters
    ----------
    rates : iterable of int
        The sample rates of the examples, in hertz.
    """
    recipe = metadata.recipe
    yield from _of_values(metadata)
    yield from _constant_bins(metadata)
    if recipe is not None:
        yield from _of_recipe(metadata, recipe, rates)
        yield from _other_shares(metadata, recipe)


def _of_recipe(
    metadata: Metadata, recipe: Recipe, rates: Iterable[int]
) -> Iterator[Problem]:
    """Yields how examples differ from what the recipe asks for."""
    for name, split in metadata.splits.items():
        if split.examples == 0:
            option = "`keep`" if recipe.keep else "`no_event`"
            reason = f"{option} left out {split.left_out:,} windows"
            yield Problem(
                LOOK,
                f"split {name} has no example at all",
                reason if split.left_out else "Its clips were rejected",
            )
    examples = {name: split.examples for name, split in metadata.splits.items()}
    counts = {
        name: split.examples_per_class
        for name, split in metadata.splits.items()
        if split.examples
    }
    yield from _of_counts(examples, counts, metadata.classes, rates, recipe)


def _of_counts(
    examples: Mapping[str, int],
    counts: Mapping[str, Mapping[str, int]],
    classes: Sequence[str],
    rates: Iterable[int],
    recipe: Recipe,
) -> Iterator[Problem]:
    """Yields what the examples of each split, and of each class in it, show."""
    yield from _empty(n for n in recipe.hashed_shares() or () if n not in examples)
    yield from _lacking(counts)
    yield from _number_classes(classes, recipe)
    yield from _few(examples, recipe)
    yield from _mixed_rates(rates, recipe)


def _of_values(metadata: Metadata) -> Iterator[Problem]:
    """Yields values that are not finite, and values that transforms clipped."""
    for split, feature, values in _statistics(metadata):
        if share := values["nonfinite_share"]:
            yield Problem(
                WRONG,
                f"{100 * share:.3g} % of the values of {feature} in {split} are NaN or "
                "infinite",
                "",
            )
        if clipped := values.get("clipped"):
            dtype = metadata.features[feature].dtype
            yield Problem(
                LOOK,
                f"{clipped:,} of the {values['count']:,} values of {feature} in "
                f"{split} were beyond the range of {dtype}, and were clipped",
                "Store float32, check the range of the last step, or turn the clips "
                "down with clip_gain() in `stream`",
            )


def _statistics(metadata: Metadata) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    for split, entry in metadata.splits.items():
        for feature, values in entry.statistics.get("features", {}).items():
            yield split, feature, values


def _warn(problems: Iterable[Problem]) -> None:
    for problem in problems:
        message = ". ".join(filter(None, (problem.title, problem.text)))
        warnings.warn(message, DataSetWarning, stacklevel=4)  # of `record`


def _named(values: Sequence[object]) -> str:
    """Returns the first of some values, and how many more there are."""
    more = len(values) - _NAMED
    text = ", ".join(map(str, values[:_NAMED]))
    return f"{text} and {more} more" if more > 0 else text


def _empty(splits: Iterable[str]) -> Iterator[Problem]:
    for split in splits:
        yield Problem(
            LOOK,
            f"split {split} has no clip at all",
            "There are few files or groups; `stratify` gives each split some, if there "
            "are enough",
        )


def _lacking(counts: Mapping[str, Mapping[str, int]]) -> Iterator[Problem]:
    for split, per_class in counts.items():
        lacks = [label for label, n in per_class.items() if n == 0]
        if lacks:
            yield Problem(LOOK, f"split {split} has no example of {_named(lacks)}", "")


def single_recordings(clips: Mapping[str, Mapping[str, int]]) -> Iterator[Problem]:
    """Yields the classes of which a split for evaluation has one recording.

    ``clips`` has how many clips of each class a split has.
    """
    for split, per_class in clips.items():
        single = sorted(label for label, n in per_class.items() if label and n == 1)
        if single and split in EVALUATION:
            yield Problem(
                LOOK,
                f"split {split} has a single recording of {_named(single)}",
                "A score on it says little of other recordings",
            )


def _number_classes(classes: Sequence[str], recipe: Recipe) -> Iterator[Problem]:
    """Yields classes of a column that are numbers, and not all whole."""
    if recipe.events is not None or recipe.label_from in LABEL_SOURCES:
        return
    try:
        values = list(map(float, classes))
    except ValueError:
        return
    if not all(value.is_integer() for value in values):
        yield Problem(
            LOOK,
            f"the classes are {len(values):,} numbers ({_named(classes)})",
            f"For numbers as targets, give `target_columns` {recipe.label_from} and "
            "`label_from` none",
        )


def _few(examples: Mapping[str, int], recipe: Recipe) -> Iterator[Problem]:
    asked = recipe.num_elems
    for split, n in examples.items():
        if asked is not None and 0 < n < asked:
            text = f"`num_elems` asks for {asked:,}"
            yield Problem(LOOK, f"split {split} has {n:,} examples", text)


def _mixed_rates(rates: Iterable[int], recipe: Recipe) -> Iterator[Problem]:
    several = [f"{rate:,}" for rate in sorted(rates)]
    if recipe.sample_rate is None and len(several) > 1:
        yield Problem(
            LOOK,
            f"clips have {len(several)} sample rates ({_named(several)} Hz), so "
            "windows of as many frames differ in seconds",
            "Give `sample_rate`",
        )


def _constant_bins(metadata: Metadata) -> Iterator[Problem]:
    """Yields the features with bins whose deviation is that of rounding."""
    constant: dict[str, set[int]] = defaultdict(set)
    for split, feature, values in _statistics(metadata):
        bins = values.get("bins", {})
        mean, std = (np.array(bins.get(k, []), np.float64) for k in ("mean", "std"))
        same = np.flatnonzero(std <= 1e-7 * np.maximum(np.abs(mean), 1e-30))
        if len(same) and metadata.splits[split].examples > 1:
            constant[feature].update(same.tolist())
    for feature, numbers in constant.items():
        yield Problem(
            WRONG,
            f"{feature}: {len(numbers):,} constant bins",
            f"The same value in all examples of a split: bin {_named(sorted(numbers))}."
            " A model learns nothing from it. Check the band's limits, the filters, "
            "and whether the files had a lower sample rate.",
        )


def _other_shares(metadata: Metadata, recipe: Recipe) -> Iterator[Problem]:
    shares = recipe.hashed_shares() or {}
    total = sum(split.seconds for split in metadata.splits.values())
    for name, share in shares.items():
        entry = metadata.splits.get(name)
        held = entry.seconds / total if entry and total else 0.0
        asked = share / sum(shares.values())
        if abs(held - asked) > max(0.05, 0.25 * asked):
            yield Problem(
                LOOK,
                f"Split {name} has {held:.0%} of the audio; {asked:.0%} was asked for",
                "Whole groups go into one split. `--stratify` comes nearer, as far as "
                "the groups allow.",
            )
