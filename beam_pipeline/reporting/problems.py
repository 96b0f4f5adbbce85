"""What may be wrong with a plan or a data set, in the order in which to look at it.

A check is a function that yields problems. Each of these makes those whose facts it
has::

    plan, record       --warn_of_plan, warn_of_data--> warnings, of what few people want
    convert            --warn_of_splits--------------> warnings of empty splits, classes
    metadata, tables,
    measured examples  --report_problems-------------> all of it, for a page
"""

from __future__ import annotations

import warnings
from collections import Counter, defaultdict
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, product
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.audio.sketch import SKETCH_SECONDS
from beam_pipeline.dataset.folders import MANIFEST
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.tables import read_table
from beam_pipeline.errors import DataSetWarning
from beam_pipeline.planning.shards import PlanSummary, split_by_class
from beam_pipeline.read.audit import KINDS, Audit
from beam_pipeline.recipe.recipe import LABEL_SOURCES, Recipe
from beam_pipeline.text import counted

WRONG, LOOK = "wrong", "look"

# Splits whose scores tell how good a model is.
EVALUATION = ("test", "eval", "valid", "validation", "val", "dev")

_NAMED = 5  # classes, or sample rates
FILES_SHOWN = 100
_HEARD, _LEAKS_HEARD = 6, 12

# A class is suspicious if so many of its examples reach full scale.
_CLIPPED_SHARE, _CLIPPED_EXAMPLES = 0.001, 0.2


@dataclass(eq=False)
class Sample:
    """One example.

    Attributes
    ----------
    row : mapping
        The example's row in the table of windows.
    values : mapping
        The features of the example.
    why : list of str
        What it shows.
    label : str
        Its class, or classes.
    peak, clipped : float
        Of its sound: the largest magnitude; the share of samples at full scale. NaN
        without a sound.
    """

    row: Mapping[str, Any]
    values: Mapping[str, Any]
    why: list[str]
    label: str
    peak: float = float("nan")
    clipped: float = float("nan")

    @property
    def split(self) -> str:
        return str(self.row["split"])

    @property
    def number(self) -> int:
        """The position in the split."""
        return int(self.row["record"])

    @property
    def path(self) -> str:
        """Its file; empty without one."""
        return str(self.row.get("path", ""))


class Problem(NamedTuple):
    """Something to look at.

    Attributes
    ----------
    level : str
        ``wrong`` or ``look``.
    title, text : str
        What was found; and how much of it, or what to do.
    files : sequence of str
    samples : sequence of Sample
        Those that let one hear it.
    """

    level: str
    title: str
    text: str
    files: Sequence[str] = ()
    samples: Sequence[Sample] = ()


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
    _warn(chain(found, _single_recordings(clips)))


def warn_of_splits(counts: Mapping[str, Mapping[str, int]]) -> None:
    """Warns of splits without clips, and of classes that a split lacks.

    ``counts`` has the examples of each class, or of ``""``, by split.
    """
    filled = {split: some for split, some in counts.items() if any(some.values())}
    labels = sorted({label for some in filled.values() for label in some} - {""})
    of_labels = {s: {n: some.get(n, 0) for n in labels} for s, some in filled.items()}
    _warn(chain(_empty(counts, filled), _lacking(of_labels)))


def warn_of_data(folder: str, metadata: Metadata, recipe: Recipe) -> None:
    """Warns of what :func:`warn_of_plan` does, and of what only the audio shows.

    This is: empty splits, NaN, and values that transforms clipped.

    ``metadata`` is that of the data set in ``folder``, which ``record`` made; the
    recipe is the one that ``record`` was given, which may leave the splits open.
    """
    rates: list[int] = []
    if metadata.recipe is not None and metadata.recipe.sample_rate is None:
        rates = _recorded(folder, "sample_rate_hz")[0].unique().to_pylist()
    clips: Mapping[str, Mapping[str, int]] = {}
    if not metadata.splits.keys().isdisjoint(EVALUATION):
        clips = _per_class(_recorded(folder, "split", "class"))
    found = _of_recipe(metadata, rates, recipe), _single_recordings(clips)
    _warn(chain(*found, _of_values(metadata)))


def _recorded(folder: str, *columns: str) -> Any:
    """Returns columns of the manifest, for clips with windows; others take time."""
    clips = read_table(folder, MANIFEST, ["windows", *columns])
    return clips.filter(np.greater(clips["windows"].to_numpy(), 0)).select(columns)


def _warn(problems: Iterable[Problem]) -> None:
    for problem in problems:
        message = ". ".join(filter(None, (problem.title, problem.text)))
        warnings.warn(message, DataSetWarning, stacklevel=4)  # of `record`


def report_problems(
    metadata: Metadata,
    audited: Audit | None,
    table: Any,
    samples: Sequence[Sample],
    rejects: Sequence[Mapping[str, Any]],
) -> list[Problem]:
    """Returns what may be wrong, what is certainly wrong first.

    Parameters
    ----------
    audited : Audit or None
        None if the data set was not recorded from audio files.
    table : pyarrow.Table
        The windows that are in the data set.
    samples : sequence of Sample
        Examples that were measured.
    rejects : sequence of mapping
        For each kind of error, how many ``files`` it has.
    """
    rates, recordings = list[int](), dict[str, Counter[str]]()
    if audited:
        rates = table["sample_rate_hz"].unique().to_pylist()
        of_files = table.group_by(["split", "class", "input", "path"])
        recordings = _per_class(of_files.aggregate([]))
    found = [
        *_rejects(metadata, rejects),
        *(_leaks(audited, samples) if audited else ()),
        *_silent(table),
        *_clipped(samples),
        *_of_values(metadata),
        *_constant_bins(metadata),
        *_of_recipe(metadata, rates, metadata.recipe),
        *_other_shares(metadata),
        *_single_recordings(recordings),
    ]
    return sorted(found, key=lambda problem: problem.level != WRONG)


def name_unchecked(
    metadata: Metadata, audited: Audit | None, table: Any, samples: Sequence[Sample]
) -> list[str]:
    """Returns what was not looked for, with the reason."""
    reasons: dict[str, str] = {}
    if audited is None:
        reasons["leaks"] = f"the data set has no {MANIFEST}"
    else:
        partly = {**audited.not_compared, **audited.incomplete}
        reasons |= {KINDS[kind]: reason for kind, reason in partly.items()}
        reasons[f"what clips share only after {SKETCH_SECONDS:g} s"] = "not compared"
    has_levels = False
    if "level_db" in table.column_names:
        has_levels = table["level_db"].null_count < len(table)
    if not has_levels:
        reasons["silent audio"] = "the levels of windows are not known"
    if not any(np.isfinite(sample.clipped) for sample in samples):
        reasons["clipped audio"] = (
            "the examples hold no samples; `report --input` takes those of the files"
        )
    splits = metadata.splits.values()
    if not any(split.statistics.get("features") for split in splits):
        reasons["constant and non-finite features"] = "there are no statistics"
    if metadata.recipe is None:
        reasons["rejects, classes that a split lacks"] = "no run of `record` wrote them"
    return [f"{what}: {reason}" for what, reason in reasons.items()]


def paths_to_hear(audited: Audit) -> list[str]:
    """Returns the files of the first leaks, which a page lets one hear."""
    found: dict[str, None] = {}
    for kind in KINDS:
        for finding in islice(audited.of_kind(kind), _LEAKS_HEARD):
            if finding["across"]:
                found.update((clip["path"], None) for clip in finding["clips"][:2])
    return list(found)[:_LEAKS_HEARD]


# Checks of tables, and of examples.


def _heard(level: str, title: str, text: str, samples: Sequence[Sample]) -> Problem:
    """Returns a problem of some samples, of which the first of each file is heard."""
    first = {sample.path or str(id(sample)): sample for sample in reversed(samples)}
    paths = sorted({sample.path for sample in samples} - {""})
    return Problem(level, title, text, paths, [*first.values()][: -_HEARD - 1 : -1])


def _rejects(
    metadata: Metadata, rejects: Sequence[Mapping[str, Any]]
) -> Iterator[Problem]:
    if metadata.rejected:
        files = [file for kind in rejects for file in kind["files"]]
        share = metadata.rejected / max(metadata.clips, 1)
        yield Problem(
            LOOK,
            f"{counted(metadata.rejected, 'clip')} rejected",
            f"{share:.1%} of {metadata.clips:,}. The section Rejects lists them by "
            "their reasons.",
            [f"{each['path']}: {each['reason']}" for each in files][:FILES_SHOWN],
        )


def _leaks(audited: Audit, samples: Sequence[Sample]) -> Iterator[Problem]:
    """Yields what the audit found, across splits and within them."""
    for kind, across in product(KINDS, (True, False)):
        total = audited.count(kind, across=across)
        if not total:
            continue
        of_kind = (f for f in audited.of_kind(kind) if f["across"] == across)
        rows: list[str] = []
        paths: set[str] = set()
        for finding in islice(of_kind, FILES_SHOWN):
            clips = finding["clips"][:6]
            rows.append("  =  ".join(f"{c['split']}: {c['path']}" for c in clips))
            paths.update(clip["path"] for clip in clips)
        text = f"{counted(total, 'finding')} of the audit."
        if across:
            text += " The test then asks what the model has seen in training."
        where = "across splits" if across else "within one split"
        title = f"{KINDS[kind].capitalize()} {where}"
        heard = [sample for sample in samples if sample.path in paths]
        problem = _heard(WRONG if across else LOOK, title, text, heard)
        yield problem._replace(files=rows)


def _silent(table: Any) -> Iterator[Problem]:
    """Files of which every window is silent."""
    import pyarrow.compute as pc

    if "level_db" not in table.column_names:
        return
    files = table.group_by("path").aggregate([("level_db", "max")])
    silent = files.filter(pc.field("level_db_max") == -np.inf)["path"].to_pylist()
    if silent:
        yield Problem(
            WRONG,
            f"{counted(len(silent), 'file')} without any sound",
            "Every window of these files is digital silence.",
            sorted(silent)[:FILES_SHOWN],
        )


def _clipped(samples: Sequence[Sample]) -> Iterator[Problem]:
    """Classes whose examples often reach full scale."""
    by_class: dict[str, list[Sample]] = defaultdict(list)
    for sample in samples:
        if np.isfinite(sample.clipped):
            by_class[sample.label].append(sample)
    for label, some in sorted(by_class.items()):
        hot = [each for each in some if each.clipped > _CLIPPED_SHARE]
        if len(hot) < max(2, _CLIPPED_EXAMPLES * len(some)):
            continue
        share = float(np.mean([each.clipped for each in hot]))
        yield _heard(
            WRONG,
            f"Class {label} is clipped" if label else "The audio is clipped",
            f"Of {counted(len(some), 'example')} that were measured, {len(hot)} reach "
            f"full scale, on average in {share:.1%} of their samples.",
            sorted(hot, key=lambda each: -each.clipped),
        )


def _per_class(table: Any) -> dict[str, Counter[str]]:
    """Returns how many rows of a table each class has, by split."""
    found: dict[str, Counter[str]] = defaultdict(Counter)
    counts = table.group_by(["split", "class"]).aggregate([([], "count_all")])
    for row in counts.to_pylist():
        found[row["split"]][row["class"] or ""] = row["count_all"]
    return found


# Checks of counts, and of statistics.


def _of_recipe(
    metadata: Metadata, rates: Iterable[int], recipe: Recipe | None
) -> Iterator[Problem]:
    """Yields how examples differ from what the recipe asks for, if there is one."""
    splits = metadata.splits
    if recipe is None:
        return
    filled = {name: split for name, split in splits.items() if split.examples}
    for name in [name for name in splits if name not in filled]:
        option = "`keep`" if recipe.keep else "`no_event`"
        left_out = splits[name].left_out
        reason = f"{option} left out {left_out:,} windows"
        yield Problem(
            LOOK,
            f"split {name} has no example at all",
            reason if left_out else "Its clips were rejected",
        )
    examples = {name: split.examples for name, split in splits.items()}
    counts = {name: split.examples_per_class for name, split in filled.items()}
    yield from _of_counts(examples, counts, metadata.classes, rates, recipe)


def _of_counts(
    examples: Mapping[str, int],
    counts: Mapping[str, Mapping[str, int]],
    classes: Sequence[str],
    rates: Iterable[int],
    recipe: Recipe,
) -> Iterator[Problem]:
    """Yields what the examples of each split, and of each class in it, show."""
    may_move = not (recipe.stratify or recipe.splits_are_decided())
    yield from _empty(recipe.hashed_shares() or (), examples, may_move)
    yield from _lacking(counts)
    yield from _number_classes(classes, recipe)
    asked = recipe.num_elems
    for split, n in examples.items():
        if asked is not None and 0 < n < asked:
            text = f"`num_elems` asks for {asked:,}"
            yield Problem(LOOK, f"split {split} has {n:,} examples", text)
    several = [f"{rate:,}" for rate in sorted(rates)]
    if recipe.sample_rate is None and len(several) > 1:
        yield Problem(
            LOOK,
            f"clips have {len(several)} sample rates ({_named(several)} Hz), so "
            "windows of as many frames differ in seconds",
            "Give `sample_rate`",
        )


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


def _named(values: Sequence[object]) -> str:
    """Returns the first of some values, and how many more there are."""
    more = len(values) - _NAMED
    text = ", ".join(map(str, values[:_NAMED]))
    return f"{text} and {more} more" if more > 0 else text


def _empty(
    splits: Iterable[str], filled: Container[str], may_move: bool = True
) -> Iterator[Problem]:
    """Yields those of some splits that have no clip.

    ``may_move``: whether `stratify` could still move groups to them.
    """
    advice = (
        "There are few files or groups; `stratify` gives each split some, if there are "
        "enough"
    )
    for split in splits:
        if split not in filled:
            title = f"split {split} has no clip at all"
            yield Problem(LOOK, title, advice * may_move)


def _lacking(counts: Mapping[str, Mapping[str, int]]) -> Iterator[Problem]:
    for split, per_class in counts.items():
        lacks = [label for label, n in per_class.items() if n == 0]
        if lacks:
            yield Problem(LOOK, f"split {split} has no example of {_named(lacks)}", "")


def _single_recordings(clips: Mapping[str, Mapping[str, int]]) -> Iterator[Problem]:
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


def _other_shares(metadata: Metadata) -> Iterator[Problem]:
    recipe = metadata.recipe
    shares = {} if recipe is None else recipe.hashed_shares() or {}
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
