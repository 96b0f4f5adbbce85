"""The sections of a recipe: frozen values that check themselves.

A function takes the section that it needs. What depends on two sections is checked by
:class:`beam_pipeline.recipe.recipe.Recipe`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields

from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.fields import (
    EXTRA_NAMES,
    FEATURES,
    NAMES,
    SECONDS,
    SHARES,
    STEPS,
    option,
    options_of,
)
from beam_pipeline.recipe.values import (
    RESERVED_NAMES,
    check_choice,
    check_flag,
    check_one_of,
    check_seconds,
    check_text,
    check_whole,
    is_real,
    is_whole,
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


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Where a clip's class comes from."""

    label_from: str = option(
        "folder",
        "where a clip's class comes from: folder (the name of its parent folder), name "
        "(the text after the last underscore of its name), none, a manifest's column, "
        "or a regular expression over the path with a group named class; other named "
        "groups become columns",
        "SOURCE",
    )
    separator: str | None = option(
        None,
        "a clip has several classes, separated by this text: examples hold labels, "
        "with a 1 for each class, instead of class and target",
        "TEXT",
        name="label_separator",
    )
    classes: tuple[str, ...] | None = option(
        None,
        "the classes in their order, a,b,c; a clip of any other class is rejected; "
        "default: the classes that are found, sorted",
        "NAMES",
        kind=NAMES,
    )

    def __post_init__(self) -> None:
        check_text("label_from", self.label_from, may_be_empty=True)
        if self.label_from not in LABEL_SOURCES:
            _check_expression(self.label_from)
        if self.separator is not None:
            check_text("label_separator", self.separator)
        classes = self.classes or ()
        if "" in classes or len(set(classes)) < len(classes):
            raise RecipeError(
                "classes", "must be names, each of them once, like owl,tit", classes
            )


def _check_expression(label_from: str) -> None:
    """Refuses what is neither a regular expression with a class nor a column."""
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


@dataclass(frozen=True, kw_only=True)
class Events:
    """Labels with times, and what examples hold of them; none without a source."""

    source: str | None = option(
        None,
        "labels with times, for each window: one table for all clips (CSV, Raven, "
        "JSON), or the path of each clip's own table, {folder}/{stem}.txt",
        "FILE",
        name="events",
    )
    column: str | None = option(
        None,
        "the events' column with the class; default: label, class, species ...",
        "COLUMN",
        name="event_column",
    )
    targets: tuple[str, ...] = option(
        "multi_hot",
        "what examples hold of events: class (and target), multi_hot (as labels), "
        "mask:FEATURE (as FEATURE_mask, for each of its frames); a,b for several",
        "TARGETS",
        name="event_targets",
        kind=NAMES,
        value=("multi_hot",),
    )
    overlap: float = option(
        0.0,
        "an event counts in a window if at least this share of the shorter of the two "
        "overlaps",
        "SHARE",
        name="event_overlap",
        parse=float,
        kind=SECONDS,
    )
    no_event: str = option(
        "keep",
        "windows without an event: keep them, drop them, or the class to give them",
        "keep|drop|CLASS",
    )

    def __post_init__(self) -> None:
        if not is_real(self.overlap):
            raise RecipeError("event_overlap", "must be a number", self.overlap)
        if not 0 <= self.overlap <= 1:
            raise RecipeError("event_overlap", "must be from 0 to 1", self.overlap)
        check_text("no_event", self.no_event, may_be_empty=True)
        if self.column is not None:
            check_text("event_column", self.column)
        if self.source is None:
            self._check_unused()
            return
        check_text("events", self.source)
        try:
            self.source.format(folder="", stem="", name="")
        except (LookupError, ValueError) as error:
            raise RecipeError(
                "events",
                "may contain {folder}, {stem} and {name} of the clip, and no other "
                "braces",
                self.source,
            ) from error
        if not self.no_event.strip():
            raise RecipeError("no_event", "must be keep, drop or a class", "")

    def _check_unused(self) -> None:
        names = {each.field: each.name for each in options_of(type(self))}
        for each in fields(self):
            if getattr(self, each.name) != each.default:
                raise RecipeError(
                    names[each.name], "needs `events`", getattr(self, each.name)
                )


@dataclass(frozen=True, kw_only=True)
class Columns:
    """What the columns of manifests are."""

    targets: tuple[str, ...] = option(
        None,
        "columns a,b with numbers to predict; examples hold them as target",
        "COLUMNS",
        name="target_columns",
        kind=NAMES,
        value=(),
    )
    path: str | None = option(
        None,
        "manifest column with the path; default: path, filepath, file ...",
        "COLUMN",
        name="path_column",
    )
    names: tuple[str, ...] | None = option(
        None,
        "the columns of manifests without a header: path,class,speaker",
        "COLUMNS",
        name="column_names",
        kind=NAMES,
    )
    delimiter: str | None = option(
        None,
        "the character between the columns of CSV files; default: found in the first "
        "line",
        "CHAR",
    )
    extra: tuple[str, ...] | None = option(
        None,
        "columns that go into examples: a,b or none; default: all others",
        "COLUMNS",
        name="columns",
        kind=EXTRA_NAMES,
    )

    def __post_init__(self) -> None:
        if self.path is not None:
            check_text("path_column", self.path)
        if self.delimiter is not None:
            check_text("delimiter", self.delimiter)
            if len(self.delimiter) != 1:
                raise RecipeError("delimiter", "must be one character", self.delimiter)


@dataclass(frozen=True, kw_only=True)
class Splits:
    """How clips are divided into train, eval, test or folds."""

    column: str | None = option(
        None, "column that names each clip's split", "COLUMN", name="split_column"
    )
    shares: Mapping[str, float] | None = option(
        None,
        "or: shares of splits, train=.8,eval=.1,test=.1; a hash assigns whole files",
        "SHARES",
        name="splits",
        kind=SHARES,
    )
    folds: int | None = option(
        None, "or: this many equal splits, fold0, fold1 ...", "N", parse=int
    )
    group_by: tuple[str, ...] = option(
        None,
        "columns a,b: clips with equal values are never in two splits",
        "COLUMNS",
        kind=NAMES,
        value=(),
    )
    stratify: bool = option(
        False, "choose the hash so that each class has its share in each split"
    )
    salt: int | None = option(
        None,
        "the salt of an earlier run, so that no clip changes its split",
        "N",
        name="split_salt",
        parse=int,
    )

    def __post_init__(self) -> None:
        if self.column is not None:
            check_text("split_column", self.column)
        if self.folds is not None:
            check_whole("folds", self.folds, least=2)
        check_flag("stratify", self.stratify)
        if self.salt is not None:
            check_whole("split_salt", self.salt, least=None)
        check_one_of(
            {
                "split_column": self.column,
                "splits": self.shares,
                "folds": self.folds,
            }
        )
        if self.hashed_shares() is None:
            if self.stratify:
                raise RecipeError("stratify", "needs `splits` or `folds`", True)
            if self.salt is not None:
                raise RecipeError("split_salt", "needs `splits` or `folds`", self.salt)

    def hashed_shares(self) -> dict[str, float] | None:
        """The share of each split or fold; None where no hash decides the splits."""
        if self.folds is not None:
            return {f"fold{k}": 1 / self.folds for k in range(self.folds)}
        return None if self.shares is None else dict(self.shares)


@dataclass(frozen=True, kw_only=True)
class Audio:
    """What is taken of files, before windows are cut."""

    fingerprint: bool = option(
        False,
        "hash and sketch each clip's audio, so that audit finds duplicates; decodes "
        "everything once more",
    )
    sample_rate: int | None = option(
        None,
        "resample everything to this rate; default: each file keeps its own",
        "HZ",
        parse=int,
    )
    channels: str | int = option(
        "mix",
        "mix (mean of all), keep (all), or the number of one, from 0",
        "mix|keep|N",
        parse=parse_channels,
    )
    dtype: str = option(
        "float32",
        "stored type of the signal, and of features that end in identity() without a "
        "dtype of their own",
        choices=DTYPES,
    )
    stream: str = option(
        "",
        "steps for each clip's samples before windows are cut: "
        "high_pass(cutoff_hz=50)|clip_gain(kind='peak',level_db=-1)",
        "EXPR",
        kind=STEPS,
    )
    allow_truncated: bool = option(
        False,
        "record files that hold less than their header declares, as far as they go",
    )
    allow_nonfinite: bool = option(False, "record samples that are NaN or infinite")

    def __post_init__(self) -> None:
        check_flag("fingerprint", self.fingerprint)
        if self.sample_rate is not None:
            check_whole("sample_rate", self.sample_rate)
            if self.sample_rate > MAX_RATE_HZ:
                raise RecipeError(
                    "sample_rate", f"must be at most {MAX_RATE_HZ} Hz", self.sample_rate
                )
        is_number = is_whole(self.channels) and int(self.channels) >= 0
        if self.channels not in ("mix", "keep") and not is_number:
            raise RecipeError(
                "channels", "must be mix, keep or a number from 0", self.channels
            )
        check_choice("dtype", self.dtype, DTYPES)
        check_text("stream", self.stream, may_be_empty=True)
        check_flag("allow_truncated", self.allow_truncated)
        check_flag("allow_nonfinite", self.allow_nonfinite)


@dataclass(frozen=True, kw_only=True)
class Windows:
    """Which windows are cut out of a clip. Lengths are in frames at the output rate."""

    win_len: int | None = option(None, "frames in a window", "FRAMES", parse=int)
    win_seconds: float | None = option(
        None, "or: seconds in a window", "SECONDS", parse=float, kind=SECONDS
    )
    hop: int | None = option(
        None,
        "frames from one window's start to the next; default: the window's length",
        "FRAMES",
        parse=int,
    )
    hop_seconds: float | None = option(
        None, "or: the same in seconds", "SECONDS", parse=float, kind=SECONDS
    )
    tail: str = option(
        "drop",
        "the frames after the last whole window: drop them, pad them with zeros, or "
        "overlap: move the last window back so that it ends with the clip",
        choices=TAILS,
    )
    max_windows: int | None = option(None, "most windows of a clip", "N", parse=int)
    random_starts: bool = option(
        False,
        "draw each window's start at random (seeded) from its equal part of the clip",
    )
    keep: str = option(
        "",
        "record only the windows that pass, energy(above_db=-50); the others are "
        "counted",
        "EXPR",
        kind=STEPS,
    )

    def __post_init__(self) -> None:
        for name in ("win_len", "hop", "max_windows"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        for name in ("win_seconds", "hop_seconds"):
            if getattr(self, name) is not None:
                check_seconds(name, getattr(self, name))
        check_choice("tail", self.tail, TAILS)
        check_flag("random_starts", self.random_starts)
        check_text("keep", self.keep, may_be_empty=True)
        check_one_of(
            {"win_len": self.win_len, "win_seconds": self.win_seconds},
            needed="how long is a window?",
        )
        check_one_of({"hop": self.hop, "hop_seconds": self.hop_seconds})


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Altered copies of windows, for training."""

    copies: int = option(
        0,
        "this many more examples of each window, augmented; none of eval or test",
        "N",
        parse=int,
    )
    augment: str = option(
        "",
        "how copies are altered, seeded: random_gain(low_db=-6)|noise()",
        "EXPR",
        kind=STEPS,
    )

    def __post_init__(self) -> None:
        if not is_whole(self.copies) or self.copies < 0:
            raise RecipeError(
                "copies", "must be a whole number, 0 or more", self.copies
            )
        check_text("augment", self.augment, may_be_empty=True)
        if bool(self.copies) != bool(self.augment):
            raise RecipeError(
                "copies and augment",
                "go together: how many copies, and how they are altered",
                (self.copies, self.augment),
            )


@dataclass(frozen=True, kw_only=True)
class Features:
    """What examples hold, made of windows: an expression for each name."""

    expressions: Mapping[str, str] = option(
        {},
        "a feature: log_mel='log_mel(n_mels=64)'; a chain: x='peak_gain()|log_mel()'; "
        "your own: x='package.module:name'; may be repeated; default: "
        "signal='identity()'",
        "NAME=EXPR",
        name="features",
        kind=FEATURES,
    )

    def __post_init__(self) -> None:
        for name, expression in self.expressions.items():
            if name in RESERVED_NAMES:
                raise RecipeError(
                    "features",
                    f"must not have one of the names {', '.join(RESERVED_NAMES)}",
                    name,
                )
            is_text = isinstance(name, str)
            if not is_text or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise RecipeError("features", "names must be identifiers", name)
            if not isinstance(expression, str):
                raise RecipeError("features", "a transform must be text", expression)
        object.__setattr__(self, "expressions", dict(self.expressions))


@dataclass(frozen=True, kw_only=True)
class Shards:
    """How examples are cut into files, and in which order they are written."""

    elements_per_file: int | None = option(None, "examples in a shard", "N", parse=int)
    shard_bytes: int | None = option(
        None,
        "or: bytes in a shard before GZIP; default: 128MiB",
        "BYTES",
        parse=parse_bytes,
    )
    num_shards: int | None = option(None, "or: shards (in each split)", "N", parse=int)
    num_elems: int | None = option(
        None, "examples in all (in each split); default: every one", "N", parse=int
    )
    order: str = option(
        "shuffled",
        "order of the clips: shuffled by the seed, or as listed",
        choices=ORDERS,
    )
    seed: int = option(0, "seed of everything random", "N", parse=int)

    def __post_init__(self) -> None:
        ways = ("elements_per_file", "shard_bytes", "num_shards")
        for name in (*ways, "num_elems"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        check_one_of({name: getattr(self, name) for name in ways})
        check_choice("order", self.order, ORDERS)
        check_whole("seed", self.seed, least=None)
