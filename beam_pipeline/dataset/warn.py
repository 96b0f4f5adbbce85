"""Warnings about a plan or a data set: nothing is wrong, but few people want it."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import numpy as np

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.output_folder import MANIFEST
from beam_pipeline.dataset.windows import read_table
from beam_pipeline.errors import DataSetWarning
from beam_pipeline.plan.summary import PlanSummary, split_by_class
from beam_pipeline.recipe.recipe import Recipe

CLASSES_NAMED = 5
RATES_NAMED = 5
# Columns that hold the class in most manifests.
CLASS_COLUMNS = ("label", "labels", "category", "species")

# The type of a clipped feature -> what to do.
_UNCLIPPED = {
    "int16": "Store float32, or turn the clips down, with clip_gain() in `stream`",
    "uint8": "Check `low` and `high` of as_image()",
}


def warn_of_plan(summary: PlanSummary, recipe: Recipe) -> None:
    """Warns of splits without clips or classes, few examples, and several rates."""
    example_format = summary.example_format
    if example_format is None:
        return
    tally = [(key, n) for key, (_, n) in summary.by_class().items()]
    by_class = split_by_class(example_format, tally)
    counts = {
        split: {
            label: sum(n for key, n in some if key[0] == split)
            for label, some in by_class.items()
        }
        for split in summary.layouts
    }
    examples = {split: summary.kept(split)[0] for split in summary.layouts}
    _warn(
        chain(
            _empty(summary.empty),
            _lacking(counts),
            _few(examples, recipe),
            _mixed_rates({rate for _, _, rate in summary.tally}, recipe),
            _unused_labels(
                example_format.classes, example_format.features.specs, recipe
            ),
        )
    )


def warn_of_data(folder: str, metadata: Metadata) -> None:
    """Warns of what :func:`warn_of_plan` does, and of what only the audio shows.

    This is: empty splits, NaN, and values that transforms clipped.

    ``metadata`` is that of the data set in ``folder``, which ``record`` made.
    """
    recipe, splits = metadata.recipe, metadata.splits
    assert recipe is not None
    shares = recipe.splits.hashed_shares() or ()
    filled = {name: split for name, split in splits.items() if split.examples}
    rates: set[int] = set()
    if not recipe.audio.sample_rate:
        columns = ["sample_rate_hz", "windows"]
        clips = read_table(folder, MANIFEST, columns)
        clips = clips.filter(np.greater(clips["windows"].to_numpy(), 0))
        rates.update(clips["sample_rate_hz"].unique().to_pylist())
    _warn(
        chain(
            _empty(name for name in shares if name not in splits),
            _emptied(metadata),
            _lacking({name: s.examples_per_class for name, s in filled.items()}),
            _few({name: s.examples for name, s in filled.items()}, recipe),
            _mixed_rates(rates, recipe),
            _unused_labels(metadata.classes, metadata.features, recipe),
            _nonfinite(metadata),
            _clipped(metadata),
        )
    )


def _warn(messages: Iterable[str]) -> None:
    for message in messages:
        warnings.warn(message, DataSetWarning, stacklevel=4)  # of `record`


def _empty(splits: Iterable[str]) -> Iterator[str]:
    for split in splits:
        yield (
            f"split {split} has no clip at all: there are fewer files or groups than "
            "splits"
        )


def _emptied(metadata: Metadata) -> Iterator[str]:
    assert metadata.recipe is not None
    option = "`keep`" if metadata.recipe.windows.keep else "`no_event`"
    for name, split in metadata.splits.items():
        if split.examples == 0:
            reason = "its clips were rejected"
            if split.left_out:
                reason = f"{option} left out {split.left_out:,} windows"
            yield f"split {name} has no example at all: {reason}"


def _lacking(counts: Mapping[str, Mapping[str, int]]) -> Iterator[str]:
    for split, per_class in counts.items():
        lacks = [label for label, n in per_class.items() if n == 0]
        if lacks:
            more = len(lacks) - CLASSES_NAMED
            named = ", ".join(lacks[:CLASSES_NAMED])
            yield f"split {split} has no example of {named}" + (
                f" and {more} more" if more > 0 else ""
            )


def _few(examples: Mapping[str, int], recipe: Recipe) -> Iterator[str]:
    asked = recipe.shards.num_elems
    for split, n in examples.items():
        if asked is not None and n < asked:
            yield (
                f"split {split} has {n:,} examples, but `num_elems` asks for {asked:,}"
            )


def _unused_labels(
    classes: Sequence[str], features: Iterable[str], recipe: Recipe
) -> Iterator[str]:
    columns = [name for name in features if name.lower() in CLASS_COLUMNS]
    if recipe.labels.label_from == "folder" and len(classes) == 1 and columns:
        yield (
            f"all clips have the class {classes[0]}, the name of their folder. The "
            f"manifest has a column {columns[0]}: give `label_from` = {columns[0]}, if "
            "the classes are there"
        )


def _mixed_rates(rates: Iterable[int], recipe: Recipe) -> Iterator[str]:
    several = sorted(rates)
    if recipe.audio.sample_rate is None and len(several) > 1:
        named = ", ".join(f"{rate:,}" for rate in several[:RATES_NAMED])
        more = len(several) - RATES_NAMED
        yield (
            f"clips have {len(several)} sample rates ({named}"
            + (f" and {more} more" if more > 0 else "")
            + " Hz), so windows of one length last differently long. Give `sample_rate`"
        )


def _nonfinite(metadata: Metadata) -> Iterator[str]:
    for name, split in metadata.splits.items():
        for feature, values in split.statistics.get("features", {}).items():
            share = values["nonfinite_share"]
            if share:
                yield (
                    f"{100 * share:.3g} % of the values of {feature} in {name} are NaN "
                    "or infinite"
                )


def _clipped(metadata: Metadata) -> Iterator[str]:
    for name, split in metadata.splits.items():
        for feature, values in split.statistics.get("features", {}).items():
            if clipped := values.get("clipped"):
                dtype = metadata.features[feature].dtype
                yield (
                    f"{clipped:,} of the {values['count']:,} values of {feature} in "
                    f"{name} were beyond the range of {dtype}, and were clipped. "
                    + _UNCLIPPED.get(dtype, "Check the range of its last step")
                )
