"""The recipe: everything that decides the bytes of a data set, and nothing else."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from beam_pipeline.errors import RecipeError
from beam_pipeline.hashing import json_sha256
from beam_pipeline.recipe.values import (
    RESERVED_NAMES,
    comma_list,
    parse_bytes,
    parse_channels,
)

# A bat detector has half a million, an ADC for ultrasound some ten.
MAX_RATE_HZ = 100_000_000
TAILS = ("drop", "pad", "overlap")
ORDERS = ("shuffled", "listed")
DTYPES = ("float32", "int16")
LABEL_SOURCES = ("folder", "name", "none")
EVENT_TARGETS = ("class", "multi_hot")
EVENT_MASK = "mask:"
# Between the values that make a group.
GROUP_SEPARATOR = "\x1f"


def _option(
    default: Any, text: str, parse: Callable[[str], Any] = str, **more: Any
) -> Any:
    """A recipe field that is also a flag: its default, its help, its parser."""
    return field(default=default, metadata={"help": text, "parse": parse, **more})


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How audio becomes examples.

    The same inputs with the same recipe and the same library versions give the same
    bytes. Options of the runner, of this machine and of the output are not in it.
    Lengths are in frames at the output sample rate unless the name ends in
    ``_seconds``.

    Raises
    ------
    RecipeError
        If a value is out of its range, or two values contradict each other.
    """

    label_from: str = _option(
        "folder",
        "where a clip's class comes from: folder (its parent's name), name (the text "
        "after the last underscore of its name), none, a manifest's column, or a "
        "regular expression over the path with a group named class; its other named "
        "groups become columns",
    )
    label_separator: str | None = _option(
        None,
        "a clip has several classes, with this between them: examples hold labels, "
        "a 1 for each of them, instead of class and target",
    )
    classes: str | None = _option(
        None,
        "the classes in their order, a,b,c; another is an error; default: those that "
        "are found, sorted",
    )
    events: str | None = _option(
        None,
        "labels with times, for each window: a table of all files (CSV, Raven, JSON), "
        "or where each clip's own file is, {folder}/{stem}.txt",
    )
    event_column: str | None = _option(
        None, "the events' column with the class; default: label, class, species ..."
    )
    event_targets: str = _option(
        "multi_hot",
        "what examples hold of events: class (and target), multi_hot (as labels), "
        "mask:FEATURE (as FEATURE_mask, for each of its frames); a,b for several",
    )
    event_overlap: float = _option(
        0.0,
        "an event counts in a window from this share of the shorter of the two on",
        float,
    )
    no_event: str = _option(
        "keep", "windows without an event: keep, drop, or the class they get"
    )
    target_columns: str | None = _option(
        None, "numbers to be predicted: columns a,b of manifests, as target"
    )
    path_column: str | None = _option(
        None, "manifest column with the path; default: path, filepath, file ..."
    )
    column_names: str | None = _option(
        None, "the columns of manifests without a header: path,class,speaker"
    )
    delimiter: str | None = _option(
        None, "what separates columns of CSV; default: what the first line shows"
    )
    columns: str | None = _option(
        None, "columns that go into examples: a,b or none; default: all others"
    )
    split_column: str | None = _option(None, "column that names each clip's split")
    splits: str | None = _option(
        None, "or: shares of splits, train=.8,eval=.1,test=.1; whole files, by a hash"
    )
    folds: int | None = _option(None, "or: so many equal splits, fold0, fold1 ...", int)
    group_by: str | None = _option(
        None, "columns a,b: clips with equal values are never in two splits"
    )
    stratify: bool = _option(
        False, "choose the hash so that splits and classes have their shares"
    )
    split_salt: int | None = _option(
        None, "the choice of an earlier run, so that nothing moves", int
    )
    fingerprint: bool = _option(
        False,
        "hash and sketch each clip's audio, so that audit finds doubles; decodes "
        "everything once more",
    )
    sample_rate: int | None = _option(
        None, "resample everything to this rate, in Hz; default: as it is", int
    )
    channels: str | int = _option(
        "mix",
        "mix (mean of all), keep (all), or the number of one, from 0",
        parse_channels,
    )
    dtype: str = _option(
        "float32",
        "stored type of the signal, and of features that end in identity() without a "
        "dtype of their own",
        choices=DTYPES,
    )
    stream: str = _option(
        "",
        "steps for each clip's samples before windows are cut: "
        "high_pass(cutoff_hz=50)|clip_gain(kind='peak',level_db=-1)",
    )
    win_len: int | None = _option(None, "frames in a window", int)
    win_seconds: float | None = _option(None, "or: seconds in a window", float)
    hop: int | None = _option(
        None, "frames from one window to the next; default: a window", int
    )
    hop_seconds: float | None = _option(None, "or: the same in seconds", float)
    tail: str = _option(
        "drop",
        "the frames after the last whole window: drop them, pad them with zeros, or "
        "overlap: move the last window back to end with the clip",
        choices=TAILS,
    )
    max_windows: int | None = _option(None, "at most so many windows a clip", int)
    random_starts: bool = _option(
        False,
        "draw each window's start at random (seeded) from its equal part of the clip",
    )
    keep: str = _option(
        "",
        "only windows that pass, energy(above_db=-50); those left out are counted",
    )
    copies: int = _option(
        0, "so many more examples of each window, augmented; not of eval or test", int
    )
    augment: str = _option(
        "", "what is done to copies, by seed: random_gain(low_db=-6)|noise()"
    )
    features: Mapping[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "a feature: log_mel='log_mel(n_mels=64)'; a chain: "
            "x='peak_gain()|log_mel()'; your own: x='package.module:name'; may be "
            "repeated; default: signal='identity()'",
        },
    )
    elements_per_file: int | None = _option(None, "examples in a shard", int)
    shard_bytes: int | None = _option(
        None, "or: bytes in a shard before GZIP; default: 128MiB", parse_bytes
    )
    num_shards: int | None = _option(None, "or: shards (in each split)", int)
    num_elems: int | None = _option(
        None, "examples in all (in each split); default: every one", int
    )
    order: str = _option(
        "shuffled",
        "order of the clips: shuffled by the seed, or listed",
        choices=ORDERS,
    )
    seed: int = _option(0, "seed of everything random", int)
    allow_truncated: bool = _option(
        False, "take what is there of files that hold less than they declare"
    )
    allow_nonfinite: bool = _option(False, "take samples that are NaN or infinite")

    def __post_init__(self) -> None:
        _check_choices(self)
        _check_ranges(self)
        _check_exclusive(self)
        _check_label_from(self.label_from)
        _check_splits(self)
        _check_events(self)
        _check_features(self.features)
        # One value has one JSON: 1 second is 1.0, and the features are our own copy.
        object.__setattr__(self, "features", dict(self.features))
        for name in ("win_seconds", "hop_seconds", "event_overlap"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, float(getattr(self, name)))

    def to_json(self) -> dict[str, Any]:
        """The recipe as JSON values, every field, in field order."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Recipe:
        """The recipe of :meth:`to_json`; a field that does not exist is an error."""
        return cls(**cls.check_names(values))

    @classmethod
    def check_names(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """The same values, if each is a field's.

        Raises
        ------
        RecipeError
            Naming the first that is not.
        """
        known = [f.name for f in fields(cls)]
        for name in values:
            if name not in known:
                raise RecipeError(
                    "recipe", f"has no such field, only {', '.join(known)}", name
                )
        return dict(values)

    def sha256(self) -> str:
        """The :func:`json_sha256` of the recipe's JSON."""
        return json_sha256(self.to_json())


def _check_choices(recipe: Recipe) -> None:
    for name, choices in (("tail", TAILS), ("order", ORDERS), ("dtype", DTYPES)):
        if getattr(recipe, name) not in choices:
            raise RecipeError(
                name, f"must be one of {', '.join(choices)}", getattr(recipe, name)
            )
    channels = recipe.channels
    if channels not in ("mix", "keep") and not (
        isinstance(channels, int) and not isinstance(channels, bool) and channels >= 0
    ):
        raise RecipeError("channels", "must be mix, keep or a number from 0", channels)


def _check_ranges(recipe: Recipe) -> None:
    for name in (
        "folds", "sample_rate", "win_len", "hop", "max_windows", "elements_per_file",
        "shard_bytes", "num_shards", "num_elems",
    ):  # fmt: skip
        value = getattr(recipe, name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise RecipeError(name, "must be a whole number", value)
        if value < 1:
            raise RecipeError(name, "must be at least 1", value)
    if recipe.sample_rate is not None and recipe.sample_rate > MAX_RATE_HZ:
        raise RecipeError(
            "sample_rate", f"must be at most {MAX_RATE_HZ} Hz", recipe.sample_rate
        )
    for name in ("win_seconds", "hop_seconds"):
        value = getattr(recipe, name)
        if value is None:
            continue
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (is_number and math.isfinite(value) and value > 0):
            raise RecipeError(name, "must be a positive number of seconds", value)
    for name in (
        "stratify", "fingerprint", "random_starts", "allow_truncated",
        "allow_nonfinite",
    ):  # fmt: skip
        if not isinstance(getattr(recipe, name), bool):
            raise RecipeError(name, "must be True or False", getattr(recipe, name))
    for name in ("stream", "keep", "augment", "event_targets", "no_event"):
        if not isinstance(getattr(recipe, name), str):
            raise RecipeError(name, "must be text", getattr(recipe, name))
    for name in (
        "label_separator", "classes", "events", "event_column", "target_columns",
        "path_column", "column_names", "delimiter", "columns", "split_column",
        "splits", "group_by",
    ):  # fmt: skip
        value = getattr(recipe, name)
        if value is not None and not (isinstance(value, str) and value):
            raise RecipeError(name, "must be text", value)
    if recipe.delimiter is not None and len(recipe.delimiter) != 1:
        raise RecipeError("delimiter", "must be one character", recipe.delimiter)
    classes = comma_list(recipe.classes)
    if "" in classes or len(set(classes)) < len(classes):
        raise RecipeError(
            "classes", "must be names, each of them once, like owl,tit", recipe.classes
        )
    copies = recipe.copies
    if isinstance(copies, bool) or not isinstance(copies, int) or copies < 0:
        raise RecipeError("copies", "must be a whole number, 0 or more", copies)
    if isinstance(recipe.seed, bool) or not isinstance(recipe.seed, int):
        raise RecipeError("seed", "must be a whole number", recipe.seed)


def _check_exclusive(recipe: Recipe) -> None:
    for names, needed in (
        (("win_len", "win_seconds"), True),
        (("hop", "hop_seconds"), False),
        (("elements_per_file", "shard_bytes", "num_shards"), False),
    ):
        given = {n: getattr(recipe, n) for n in names if getattr(recipe, n) is not None}
        if len(given) > 1:
            raise RecipeError(" and ".join(given), "give only one of them", given)
        if needed and not given:
            raise RecipeError(
                " or ".join(names), "give one: how long is a window?", None
            )
    if bool(recipe.copies) != bool(recipe.augment):
        raise RecipeError(
            "copies and augment",
            "belong together: how many copies, and what is done to them",
            (recipe.copies, recipe.augment),
        )


def _check_label_from(label_from: str) -> None:
    if not isinstance(label_from, str):
        raise RecipeError("label_from", "must be text", label_from)
    if label_from in LABEL_SOURCES:
        return
    try:
        groups = re.compile(label_from).groupindex
    except re.error as error:
        if "(" not in label_from:
            return  # a column may have any name
        raise RecipeError(
            "label_from", f"is not a regular expression ({error})", label_from
        ) from error
    if "class" not in groups and ("(" in label_from or not label_from):
        raise RecipeError(
            "label_from",
            f"must be one of {', '.join(LABEL_SOURCES)}, a column, or a regular "
            "expression with a group like (?P<class>[a-z]+)",
            label_from,
        )


def _check_splits(recipe: Recipe) -> None:
    ways = ("split_column", "splits", "folds")
    given = {n: getattr(recipe, n) for n in ways if getattr(recipe, n) is not None}
    if len(given) > 1:
        raise RecipeError(" and ".join(given), "give only one of them", given)
    if recipe.folds is not None and recipe.folds < 2:
        raise RecipeError("folds", "must be at least 2", recipe.folds)
    hashed = recipe.splits is not None or recipe.folds is not None
    if not hashed and (recipe.stratify or recipe.split_salt is not None):
        field = "stratify" if recipe.stratify else "split_salt"
        raise RecipeError(field, "needs --splits or --folds", getattr(recipe, field))
    if recipe.folds is not None and recipe.copies:
        raise RecipeError(
            "copies", "are for a split called train, which folds are not", recipe.copies
        )


def _check_events(recipe: Recipe) -> None:
    share = recipe.event_overlap
    if isinstance(share, bool) or not isinstance(share, int | float):
        raise RecipeError("event_overlap", "must be a number", share)
    if not 0 <= share <= 1:
        raise RecipeError("event_overlap", "must lie between 0 and 1", share)
    if recipe.events is None:
        for field in fields(recipe):
            value = getattr(recipe, field.name)
            is_theirs = field.name.startswith("event_") or field.name == "no_event"
            if is_theirs and value != field.default:
                raise RecipeError(field.name, "needs --events", value)
        return
    for name in ("label_separator", "target_columns"):
        if getattr(recipe, name) is not None:
            raise RecipeError(
                name, "cannot be given with --events", getattr(recipe, name)
            )
    try:
        recipe.events.format(folder="", stem="", name="")
    except (LookupError, ValueError) as error:
        raise RecipeError(
            "events",
            "may have {folder}, {stem} and {name} of the clip in it, and no other "
            "braces",
            recipe.events,
        ) from error
    if not recipe.no_event.strip():
        raise RecipeError("no_event", "must be keep, drop or a class", recipe.no_event)
    classes = comma_list(recipe.classes)
    if classes and recipe.no_event not in ("keep", "drop", *classes):
        raise RecipeError(
            "classes",
            f"lacks {recipe.no_event}, the class that --no-event gives; add it",
            recipe.classes,
        )
    for target in comma_list(recipe.event_targets):
        feature = target.removeprefix(EVENT_MASK)
        if target not in EVENT_TARGETS and feature not in recipe.features:
            raise RecipeError(
                "event_targets",
                f"must be of {', '.join(EVENT_TARGETS)}, or {EVENT_MASK}FEATURE with "
                f"one of {', '.join(recipe.features) or 'no features'}",
                target,
            )
        if target != feature and re.search(r"\b(time_shift|speed)\b", recipe.augment):
            raise RecipeError(
                "event_targets",
                "is a mask of frames, which time_shift and speed would move away from; "
                "leave them out of augment",
                target,
            )


def _check_features(features: Mapping[str, str]) -> None:
    if not isinstance(features, Mapping):
        raise RecipeError("features", "must map names to transforms", features)
    for name, transform in features.items():
        if name in RESERVED_NAMES:
            raise RecipeError(
                "features", f"these names are taken: {', '.join(RESERVED_NAMES)}", name
            )
        is_name = isinstance(name, str)
        if not is_name or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            raise RecipeError("features", "a name must be an identifier", name)
        if not isinstance(transform, str):
            raise RecipeError("features", "a transform must be text", transform)
