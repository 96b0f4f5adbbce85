"""Options: those of a recipe, which decide every byte of a data set, and of a run.

They are in sections by subject. :func:`option` declares a field of a section once, and
the section's docstring explains it. The flag, the keyword, the name in YAML and in
``metadata.json``, the checks and the text of ``--help`` and of the site follow from it.
The forms of a value are those of :mod:`beam_pipeline.parameters`.

A section checks its own values. :class:`Recipe` is the sections that decide bytes
together, and checks what depends on two of them. A function takes the section that it
needs, and gets the recipe. :class:`RunOptions` say how the job runs, and are in no
recipe.
"""

from __future__ import annotations

import base64
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cache
from itertools import pairwise
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from beam_pipeline.audio.formats import DECODERS
from beam_pipeline.errors import OptionError, RecipeError, did_you_mean, listed
from beam_pipeline.parameters import (
    Bytes,
    Choice,
    Declared,
    Flag,
    Names,
    Number,
    Text,
    ValueType,
    WholeNumber,
    attribute_texts,
    parameter,
    unknown_option,
)
from beam_pipeline.text import json_sha256

if TYPE_CHECKING:
    from beam_pipeline.storage.files import PathLike

_KEY_BYTES = 6
_SHARES_ROUNDED = 0.0101  # .33 three times
_GROUPS = re.compile("([A-Za-z0-9_-]{8})+")


@dataclass(frozen=True, kw_only=True)
class Option:
    """One option of a recipe, a run or a command.

    Attributes
    ----------
    name : str
        The keyword, the name in YAML and JSON, and the attribute that holds the value.
    default : object
        The default, as JSON.
    metavar : str
        What stands for a value in ``--help``.
    values : ValueType
        What values it has.
    help : str
        What the option does.
    is_carried : bool
        Whether only the recipe of a data set has it: neither flags nor keywords do.
    repeats : bool
        Whether the flag may be given several times.
    required : bool
        Whether the flag must be given.
    short : str
        Another flag than that of the name.
    """

    name: str
    default: Any
    metavar: str
    values: ValueType
    help: str
    is_carried: bool = False
    repeats: bool = False
    required: bool = False
    short: str = ""

    @property
    def choices(self) -> tuple[str, ...]:
        """All allowed values; empty if they cannot be listed."""
        choices: tuple[str, ...] = getattr(self.values, "choices", ())
        return choices

    @property
    def singular(self) -> str:
        """The name of one of its values, from which the flag follows: ``feature``."""
        return self.name[:-1] if isinstance(self.values, ByFeature) else self.name

    @property
    def flag(self) -> str:
        return self.short or "--" + self.singular.replace("_", "-")


def option(default: Any, values: ValueType, metavar: str = "", **more: Any) -> Any:
    """Declares a field as an option; the docstring of its class explains it.

    Parameters
    ----------
    default : object
        What the field holds if no value is given. None allows None.
    values, metavar, **more
        See :class:`Option`.
    """
    return parameter(default, values, metavar=metavar, **more)


@cache
def options_of(section: type) -> tuple[Option, ...]:
    """Returns the options that a section declares, in the order of its fields."""
    texts = attribute_texts(section)
    options = []
    for each in fields(section):
        declared = dict(each.metadata)
        if "values" not in declared:
            continue
        default = each.default
        if each.default_factory is not MISSING:
            default = each.default_factory()
        if default is not None:
            default = declared["values"].json(default)
        options.append(
            Option(
                name=each.name,
                default=default,
                help=texts.get(each.name, ""),
                **declared,
            )
        )
    return tuple(options)


def find_option(options: Mapping[str, Option], name: str) -> Option | None:
    """Returns the option with a name, which may be that of a flag: ``num-shards``."""
    name = name.replace("-", "_")
    found = options.get(name)
    return found or next((o for o in options.values() if o.singular == name), None)


def changed_options(section: Any, declared: type) -> list[Option]:
    """Returns the options of a section that have other values than the defaults."""
    return [o for o in options_of(declared) if json_of(section, o) != o.default]


def json_of(section: Any, option: Option) -> Any:
    """Returns the JSON of an option's value in a section; None stays None."""
    held = getattr(section, option.name)
    return None if held is None else option.values.json(held)


def check_one_of(given: Mapping[str, Any], needed: str | None = None) -> None:
    """Refuses more than one of these options; with ``needed``, none of them, too.

    ``needed`` is what one of them has to give.
    """
    present = {name: value for name, value in given.items() if value is not None}
    if len(present) > 1:
        raise RecipeError(" and ".join(present), "give only one of them", present)
    if needed is not None and not present:
        raise RecipeError(" or ".join(given), f"give one of them: {needed}", None)


@dataclass(frozen=True)
class Shares(ValueType):
    """Names with shares: ``train=.8,test=.2``, or a mapping; a field holds a dict.

    Shares of which one is 1 or more are relative: ``train=8,test=2`` means the same.
    Fractions must add up to 1, within 1 %, so that .33 three times are valid.
    """

    def value(self, name: str, given: Any) -> dict[str, float]:
        text = self.json(given) if isinstance(given, Mapping) else given
        shares: dict[str, float] = {}
        for part in str(text).split(","):
            split, equals, number = part.strip().partition("=")
            try:
                share = float(number)
            except ValueError:
                share = math.nan
            if not (equals and split.isidentifier() and 0 < share < math.inf):
                raise RecipeError(
                    name, "must look like train=.8,eval=.1,test=.1", part or text
                )
            if split in shares:
                raise RecipeError(name, f"names the split {split} twice", text)
            shares[split] = share
        total = math.fsum(shares.values())
        if max(shares.values()) < 1 and abs(total - 1) > _SHARES_ROUNDED:
            raise RecipeError(
                name,
                f"has shares that add up to {total:.4g}, but they must add up to 1; or "
                "give ratios of whole numbers, like train=8,test=2",
                text,
            )
        return shares

    def json(self, held: Any) -> Any:
        parts = (f"{name}={share}".removesuffix(".0") for name, share in held.items())
        return ",".join(parts)


def relative_shares(shares: Mapping[str, float]) -> dict[str, float]:
    """Returns shares that add up to 1."""
    total = math.fsum(shares.values())
    return {name: share / total for name, share in shares.items()}


@dataclass(frozen=True)
class MovedGroups(ValueType):
    """Groups that are in another split than that of their hash; a field holds a dict.

    A group is known by the first 48 bits of its key, which are eight characters of
    Base64. So the recipe holds no names, and eight characters for each moved group::

        eval=9k3XnQ2bAAEgf0zu,test=-Zq01x_v
    """

    def value(self, name: str, given: Any) -> dict[int, str]:
        if isinstance(given, Mapping):
            return dict(given)
        moves: dict[int, str] = {}
        text = Text(may_be_empty=True).value(name, given)
        for part in text.split(",") if text else ():
            split, equals, encoded = part.partition("=")
            if not (split and equals and _GROUPS.fullmatch(encoded)):
                raise RecipeError(
                    name,
                    "must be SPLIT=GROUPS, as in the recipe of a data set's "
                    "metadata.json, with eight characters of Base64 for each group",
                    part,
                )
            content = base64.urlsafe_b64decode(encoded)
            for start in range(0, len(content), _KEY_BYTES):
                key = int.from_bytes(content[start : start + _KEY_BYTES], "big")
                if moves.setdefault(key, split) != split:
                    raise RecipeError(name, "names a group in two splits", text)
        return moves

    def json(self, held: Any) -> Any:
        parts = []
        for split in sorted(set(held.values())):
            keys = sorted(key for key, name in held.items() if name == split)
            content = b"".join(key.to_bytes(_KEY_BYTES, "big") for key in keys)
            parts.append(f"{split}={base64.urlsafe_b64encode(content).decode()}")
        return ",".join(parts)


def moved_key(key: int) -> int:
    """Returns the 48 bits of a group's key by which a recipe knows it."""
    return key >> 16


@dataclass(frozen=True)
class Steps(ValueType):
    """Steps: an expression, or Python objects; a field holds the expression."""

    example: str
    may_be_empty: bool = True

    def value(self, name: str, given: Any) -> str:
        if isinstance(given, str) or given is None:
            return Text(self.may_be_empty).value(name, given)
        from beam_pipeline.transforms.steps import STEP_FIELDS, format_steps

        steps = getattr(given, "steps", given)  # a chain has them
        several = list(steps) if isinstance(steps, list | tuple) else [steps]
        if any(isinstance(step, str | bool | int | float | dict) for step in several):
            problem = f"must be text, like {self.example}, with | between several steps"
            raise RecipeError(name, problem, given)
        return format_steps(several, STEP_FIELDS[name])


@dataclass(frozen=True)
class ByFeature(ValueType):
    """A text for each feature, by its name.

    Attributes
    ----------
    noun : str
        What the mapping holds, with an example, for errors.
    texts : ValueType
        The type of the texts.
    text_of : callable, optional
        Makes a text of an object, from the name of the feature and the object.
    """

    noun: str
    texts: ValueType
    text_of: Callable[[str, Any], Any] | None = None

    def value(self, name: str, given: Any) -> dict[str, str]:
        if not isinstance(given, Mapping):
            raise RecipeError(name, f"must map names to {self.noun}", given)
        held = {}
        for feature, value in given.items():
            text = value if self.text_of is None else self.text_of(feature, value)
            held[feature] = self.texts.value(f"{name}: {feature}", text)
        return held

    def json(self, held: Any) -> Any:
        return dict(held)


LABEL_SOURCES = ("folder", "name", "none")
EVENT_TARGETS = ("class", "multi_hot")
EVENT_MASK = "mask:"
# Options that decide the splits; a recipe gives only one of them.
SPLIT_OPTIONS = ("split_column", "splits", "folds")
# Of each of these, a recipe has one at most: one that is given replaces the others.
ALTERNATIVES = (
    ("win_len", "win_seconds"),
    ("hop", "hop_seconds"),
    SPLIT_OPTIONS,
    ("elements_per_file", "shard_bytes", "num_shards"),
)

# The win_len for which a window is a whole clip.
WHOLE_CLIP = "clip"
TAILS = ("drop", "pad", "overlap")
AT_GRID, AT_EVENTS, AT_ONSETS = "grid", "events", "onsets"
SHORT_CLIPS = ("reject", "skip", "pad")
# The placement that needs no hop; opening a data set must not import others by name.
_PEAKS = "peaks"
_OF_CLIPS = ("max_windows", "random_starts")
_OF_THE_GRID = ("hop", "hop_seconds", "tail", *_OF_CLIPS)

# Bat detectors sample at half a million Hz, ADCs for ultrasound at ten million.
MAX_RATE_HZ = 100_000_000
DTYPES = ("float32", "int16")
ORDERS = (SHUFFLED, LISTED, MIXED) = ("shuffled", "listed", "mixed")
GZIP, NO_COMPRESSION = "gzip", "none"
COMPRESSIONS = (GZIP, *(f"{GZIP}:{level}" for level in range(1, 10)), NO_COMPRESSION)

# The only feature of a recipe that names none.
DEFAULT_FEATURE = "signal"
# What every example holds besides its features. A feature cannot take these names.
CLIP_FEATURES = (
    "class", "target", "labels", "filepath", "index", "win_start_idx", "fs", "copy",
)  # fmt: skip
# The entry of an example that `mark_padding` adds.
VALID_FRAMES = "valid_frames"
RESERVED_NAMES = (*CLIP_FEATURES, "num_classes")
IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def transform_of(feature: str) -> str:
    """Returns the name of the transform that makes a feature: pitch of pitch/f0."""
    return feature.partition("/")[0]


_SECONDS = Number(is_positive=True, unit="seconds")


def _expression(feature: str, given: Any) -> Any:
    """Returns the expression of a transform; other values as they are."""
    if isinstance(given, str) or not callable(given):
        return given
    from beam_pipeline.transforms.steps import format_transform, naming_feature

    with naming_feature(feature):
        return format_transform(given)


_TRANSFORMS = ByFeature(
    "transforms, like {mel: log_mel()}", Text(may_be_empty=True), _expression
)


class Labels(Declared):
    """The class of each clip.

    Attributes
    ----------
    label_from
        Where a clip's class comes from: folder (the name of its parent folder), name
        (the text after the last underscore of its file name), none, a manifest's
        column, or a regular expression that is searched in the path relative to the
        input, and has a group named class; other named groups become columns.
    label_separator
        The text between the classes of a clip that has several; examples then hold
        labels, with a 1 for each of the clip's classes, instead of class and target.
    classes
        The classes in order, a,b,c; a clip of any other class is rejected. Default: the
        classes found, sorted.
    """

    label_from: str = option("folder", Text(), "SOURCE")
    label_separator: str | None = option(None, Text(), "TEXT")
    classes: tuple[str, ...] | None = option(None, Names(are_different=True), "NAMES")


class Events(Declared):
    """Labels with times: the classes of each window.

    Attributes
    ----------
    events
        Labels with times, so that each window gets its own labels: one table for all
        clips (CSV, JSON, Raven), or the path of each clip's table, {folder}/{stem}.txt.
    event_column
        Column of the events with their class. Default: the first of label, class,
        event_label ...
    event_targets
        How examples hold the events, a,b for several: class (as class and target),
        multi_hot (as labels), mask:FEATURE (as FEATURE_mask, with the classes at each
        frame of that feature).
    event_overlap
        Least overlap of an event and a window that gives the window the event's class,
        as a share of the shorter of the two.
    no_event
        Windows without an event: keep them, drop them, or give them this class.
    """

    events: str | None = option(None, Text(), "FILE")
    event_column: str | None = option(None, Text(), "COLUMN")
    event_targets: tuple[str, ...] = option(("multi_hot",), Names(), "TARGETS")
    event_overlap: float = option(0.0, Number(0, 1), "SHARE")
    no_event: str = option("keep", Text(), "keep|drop|CLASS")

    def check(self) -> None:
        """Checks the path of the events; without one, no other option is given."""
        if self.events is None:
            for each in changed_options(self, Events):
                raise RecipeError(each.name, "needs `events`", json_of(self, each))
            return
        try:
            self.events.format(folder="", stem="", name="")
        except (LookupError, ValueError) as error:
            raise RecipeError(
                "events",
                "may contain only {folder}, {stem} and {name} in braces; they stand "
                "for parts of the clip's path",
                self.events,
            ) from error


class Columns(Declared):
    """Columns of CSV, TSV, JSONL, Parquet and Avro files.

    Attributes
    ----------
    target_columns
        Columns a,b with numbers to predict; examples hold them as target.
    path_column
        Manifest column with the path. Default: the first of path, filepath ...
    column_names
        Names of the columns of a CSV manifest that has no header: path,class,speaker.
    delimiter
        The character between the columns of a CSV manifest. Default: detected in the
        first line.
    columns
        Columns that examples hold, a,b or none. Default: all columns that have no other
        use.
    """

    target_columns: tuple[str, ...] | None = option(None, Names(), "COLUMNS")
    path_column: str | None = option(None, Text(), "COLUMN")
    column_names: tuple[str, ...] | None = option(None, Names(), "COLUMNS")
    delimiter: str | None = option(None, Text(is_character=True), "CHAR")
    columns: tuple[str, ...] | None = option(None, Names(none="none"), "COLUMNS")


class Splits(Declared):
    """How clips are divided into train, eval, test or folds.

    At most one of `splits`, `folds` and `split_column`. Without them there is one
    split, records.

    Attributes
    ----------
    split_column
        Column with the name of each clip's split.
    splits
        Or: share of each split, train=.8,eval=.1,test=.1; a hash assigns whole files,
        or the groups of `group_by`.
    folds
        Or: number of splits of even size, fold0, fold1 ...
    group_by
        Columns a,b: clips with equal values in them are always in the same split.
    stratify
        Move some groups from the split of their hash to others, so that each split, and
        each class in it, has its share.
    split_moves
        The groups that were moved so. The recipe of a data set carries them, so that no
        clip changes its split when the recipe is used again.
    """

    split_column: str | None = option(None, Text(), "COLUMN")
    splits: Mapping[str, float] | None = option(None, Shares(), "SHARES")
    folds: int | None = option(None, WholeNumber(2), "N")
    group_by: tuple[str, ...] | None = option(None, Names(), "COLUMNS")
    stratify: bool = option(False, Flag())
    split_moves: Mapping[int, str] | None = option(None, MovedGroups(), is_carried=True)

    def check(self) -> None:
        """Checks that groups are moved between splits that a hash decides."""
        if self.hashed_shares() is None and self.stratify:
            raise RecipeError("stratify", "needs `splits` or `folds`")
        names = tuple(self.hashed_shares() or ())
        for split in (self.split_moves or {}).values():
            if split not in names:
                raise RecipeError(
                    "split_moves",
                    f"puts groups into the split {split}, but the splits are "
                    f"{', '.join(names) or 'not those of a hash'}; leave it out, or "
                    "give the `splits` or `folds` of the earlier run",
                    split,
                )

    def splits_are_decided(self) -> bool:
        """Whether each clip's split follows from its group alone."""
        return self.split_moves is not None or self.hashed_shares() is None

    def hashed_shares(self) -> dict[str, float] | None:
        """The share of each split or fold, whose sum is 1; None without a hash."""
        if self.folds is not None:
            return {f"fold{k}": 1 / self.folds for k in range(self.folds)}
        return None if self.splits is None else relative_shares(self.splits)


class Audio(Declared):
    """How files become the frames of which windows are cut.

    Attributes
    ----------
    hash_files
        Store the SHA-256 of each clip's file in the manifest; reads all files once
        more.
    sample_rate
        Resample all audio to this rate. Default: each file keeps its own.
    channels
        mix (the mean of all channels), keep (all channels), or the number of one
        channel, from 0.
    dtype
        Stored type of the signal, and of each feature that ends in identity() and names
        no dtype there.
    stream
        Steps that process each whole clip before windows are cut:
        high_pass(cutoff_hz=50)|clip_gain(kind='peak',level_db=-1).
    allow_truncated
        Record files that hold fewer frames than their header declares, up to the last
        frame. Default: reject them.
    allow_nonfinite
        Record clips with samples that are NaN or infinite. Default: reject them.
    whole_clips
        Decode each clip of a compressed file before anything is planned, so that a clip
        that breaks in the middle leaves none of its windows in the data set. Default:
        the windows before the damage stay.
    decoder
        Which libraries decode, the preferred one first; the next one decodes what it
        does not open.
    loader
        Your own function, which reads files that no decoder reads: from a path to
        (samples, sample_rate_hz).
    loader_suffixes
        The ends of the names of the files that the loader reads, such as .npy,.h5.
        Default: it reads all files.
    """

    hash_files: bool = option(False, Flag())
    sample_rate: int | None = option(None, WholeNumber(most=MAX_RATE_HZ), "HZ")
    channels: str | int = option(
        "mix", WholeNumber(0, words=("mix", "keep")), "mix|keep|N"
    )
    dtype: str = option("float32", Choice(DTYPES))
    stream: str = option("", Steps("high_pass(cutoff_hz=50)"), "EXPR")
    allow_truncated: bool = option(False, Flag())
    allow_nonfinite: bool = option(False, Flag())
    whole_clips: bool = option(False, Flag())
    decoder: tuple[str, ...] = option(
        DECODERS, Names(known=DECODERS, are_different=True), "NAMES"
    )
    loader: str = option("", Steps("my_files.load"), "MODULE.NAME")
    loader_suffixes: tuple[str, ...] | None = option(
        None, Names(are_different=True), "NAMES"
    )

    def audio_with(self, **changes: Any) -> Audio:
        """Returns this section alone, with some options changed."""
        held = {each.name: getattr(self, each.name) for each in fields(Audio)}
        return Audio(**{**held, **changes})

    def loads(self, filepath: str) -> bool:
        """Whether the loader reads a file."""
        ends = tuple(each.lower() for each in self.loader_suffixes or ("",))
        return bool(self.loader) and filepath.lower().endswith(ends)

    def check(self) -> None:
        """Checks that suffixes have a loader."""
        suffixes = ",".join(self.loader_suffixes or ())
        if suffixes and not self.loader:
            raise RecipeError("loader_suffixes", "needs `loader`", suffixes)


class Windows(Declared):
    """Which windows are cut out of a clip; lengths in frames at the output rate.

    One of `win_len` and `win_seconds` is required.

    Attributes
    ----------
    win_len
        Frames in a window; or clip, for one example of each clip, with all its frames.
    win_seconds
        Or: seconds in a window.
    hop
        Frames from one window's start to the next. Default: the window's length.
    hop_seconds
        Or: seconds from one window's start to the next.
    tail
        What becomes of frames after the last whole window: drop them, pad them with
        zeros to one more window, or overlap: one more window that ends with the clip.
    max_windows
        Largest number of windows in a clip. Default: no limit.
    random_starts
        Divide each clip into equal parts, one for each window, and draw the window's
        start at random (seeded) from its part.
    keep
        Record only the windows that pass this selection: energy(above_db=-50); the
        others are counted.
    mark_padding
        With tail pad: store valid_frames in each example, the number of frames before
        the padding, and leave padding out of the statistics.
    min_seconds
        Leave out clips that are shorter, and count them. Default: no limit.
    max_seconds
        Leave out clips that are longer, and count them. Default: no limit.
    short_clips
        What becomes of clips that are shorter than a window: skip them (leave them out,
        and count them), reject them, or pad them with zeros to one window. Default:
        skip, with tail pad: pad.
    windows_at
        Where windows are: on a grid, every hop; one around the middle of each of the
        clip's events; one from the onset of each event; one around each of the loudest
        moments: peaks(above_db=-40,min_gap_s=0.5); or over each passage between
        silences: sounds(above_db=-40,min_gap_s=0.2). The last two decode each clip once
        more before anything is planned.
    """

    win_len: int | str | None = option(
        None, WholeNumber(words=(WHOLE_CLIP,)), "FRAMES|clip"
    )
    win_seconds: float | None = option(None, _SECONDS, "SECONDS")
    hop: int | None = option(None, WholeNumber(), "FRAMES")
    hop_seconds: float | None = option(None, _SECONDS, "SECONDS")
    tail: str = option("drop", Choice(TAILS))
    max_windows: int | None = option(None, WholeNumber(), "N")
    random_starts: bool = option(False, Flag())
    keep: str = option("", Steps("energy(above_db=-50)"), "EXPR")
    mark_padding: bool = option(False, Flag())
    min_seconds: float | None = option(None, _SECONDS, "SECONDS")
    max_seconds: float | None = option(None, _SECONDS, "SECONDS")
    short_clips: str | None = option(None, Choice(SHORT_CLIPS))
    windows_at: str = option(
        AT_GRID,
        Steps("peaks(above_db=-40)", may_be_empty=False),
        "grid|events|onsets|EXPR",
    )

    def check(self) -> None:
        """Checks limits against each other, and what decides where windows are."""
        if (self.min_seconds or 0.0) > (self.max_seconds or math.inf):
            problem = f"must be at least `min_seconds` ({self.min_seconds:g})"
            raise RecipeError("max_seconds", problem, self.max_seconds)
        unused: Sequence[str] = ()
        why = f"`windows_at` is {self.windows_at}"
        if self.windows_are_clips:
            unused = (*_OF_THE_GRID, "mark_padding", "short_clips", "windows_at")
            why = "`win_len` is clip"
        elif self.windows_at != AT_GRID:
            step = self.windows_at.partition("(")[0].strip()
            unused = _OF_CLIPS if self.placement and step != _PEAKS else _OF_THE_GRID
        for each in changed_options(self, Windows):
            if each.name in unused:
                value = getattr(self, each.name)
                raise RecipeError(each.name, f"cannot be given, because {why}", value)

    @property
    def windows_are_clips(self) -> bool:
        """Whether there is one window for each clip, of the clip's length."""
        return self.win_len == WHOLE_CLIP

    @property
    def windows_are_at_events(self) -> bool:
        """Whether there is one window for each event."""
        return self.windows_at in (AT_EVENTS, AT_ONSETS)

    @property
    def placement(self) -> str | None:
        """The expression that places windows by the samples of a clip, if there is one.

        See :mod:`beam_pipeline.transforms.clip_steps`.
        """
        is_placed = self.windows_at != AT_GRID and not self.windows_are_at_events
        return self.windows_at if is_placed else None


class Augmentation(Declared):
    """Augmented copies of windows, for training.

    Attributes
    ----------
    copies
        Number of augmented copies of each window, as more examples; only in the split
        train, or in a data set without splits.
    augment
        Steps that alter the copies at random (seeded): random_gain(low_db=-6)|noise().
    """

    copies: int = option(0, WholeNumber(0), "N")
    augment: str = option("", Steps("random_gain()|noise()"), "EXPR")

    def check(self) -> None:
        """Checks that steps that alter copies have copies to alter."""
        # Copies without such steps may be altered by a step of a feature.
        if self.augment and not self.copies:
            raise RecipeError(
                "copies and augment",
                "must be given together: the number of copies, and the steps that "
                "alter them",
                (self.copies, self.augment),
            )


class _Encodings(Choice):
    """The names of encodings, which are not known before: they load numpy."""

    def __init__(self) -> None:
        pass

    @property
    def choices(self) -> tuple[str, ...]:
        from beam_pipeline.encodings import ENCODINGS

        return ENCODINGS


class Features(Declared):
    """What examples hold of their windows.

    Attributes
    ----------
    features
        A feature of each window: log_mel='log_mel(n_mels=64)'; a chain:
        x='peak_gain()|log_mel()'; your own: x='package.module.name', which may return a
        dict of arrays, and then gives the features x/KEY; may be repeated. Default:
        signal='identity()'.
    encodings
        How examples hold a feature: log_mel=png, for a feature that ends in as_image();
        may be repeated. Default: by the type and the shape of the feature.
    """

    features: Mapping[str, str] = option({}, _TRANSFORMS, "NAME=EXPR", repeats=True)
    encodings: Mapping[str, str] = option(
        {},
        ByFeature("encodings, like {mel: tensor}", _Encodings()),
        "NAME=ENCODING",
        repeats=True,
    )

    def check(self) -> None:
        """Checks the names of features, and those that encodings are for."""
        for name in self.features:
            if name in RESERVED_NAMES:
                problem = f"must not use a reserved name ({', '.join(RESERVED_NAMES)})"
                raise RecipeError("features", problem, name)
            if not IDENTIFIER.fullmatch(name):
                problem = "names must be identifiers, like log_mel"
                raise RecipeError("features", problem, name)
        known = list(self.features) or [DEFAULT_FEATURE]
        for name in self.encodings:
            if name in RESERVED_NAMES:
                problem = "must be of `features`; the encoding of this one is fixed"
                raise RecipeError("encodings", problem, name)
            if transform_of(name) not in known:
                need = f"must name features of the recipe: {listed(known, name)}"
                raise RecipeError("encodings", need, name)


class Shards(Declared):
    """How examples are divided into shards, and in which order.

    At most one of `elements_per_file`, `shard_bytes` and `num_shards`.

    Attributes
    ----------
    elements_per_file
        Examples in a shard.
    shard_bytes
        Or: bytes in a shard before GZIP. Default: 128MiB.
    num_shards
        Or: number of shards, in each split.
    member_bytes
        Bytes before GZIP that can be read on their own, at least one example; more
        compress better, fewer are read faster at random. Default: 16KiB.
    compression
        Of the shards: gzip, which is fast; gzip:1 to gzip:9, by zlib at that level; or
        none, which is read several times as fast.
    num_elems
        Number of examples, in each split. Default: all.
    order
        shuffled: clips by the seed, a clip's examples together; mixed: by the seed,
        neighbours from different clips; listed: clips as the inputs list them.
    seed
        Seed of everything that is random.
    """

    elements_per_file: int | None = option(None, WholeNumber(), "N")
    shard_bytes: int | None = option(None, Bytes(), "BYTES")
    num_shards: int | None = option(None, WholeNumber(), "N")
    member_bytes: int | None = option(None, Bytes(), "BYTES")
    compression: str = option(GZIP, Choice(COMPRESSIONS), "gzip|gzip:LEVEL|none")
    num_elems: int | None = option(None, WholeNumber(), "N")
    order: str = option(SHUFFLED, Choice(ORDERS))
    seed: int = option(0, WholeNumber(least=None), "N")

    @property
    def examples_are_mixed(self) -> bool:
        """Whether neighbours in a shard come from different clips."""
        return self.order == MIXED


@cache
def recipe_options() -> Mapping[str, Option]:
    """Maps names to all options of a recipe, in the order of the JSON."""
    declared = (option for section in SECTIONS for option in options_of(section))
    return MappingProxyType({option.name: option for option in declared})


class Recipe(
    Shards,
    Features,
    Augmentation,
    Windows,
    Audio,
    Splits,
    Columns,
    Events,
    Labels,
    init=False,
    eq=False,
):
    """How audio becomes examples: a frozen value, checked when it is created.

    The same inputs with the same recipe and the same library versions give the same
    bytes. Options of the runner, of this machine and of the output are not part of it.

    ::

        recipe = Recipe(win_seconds=1.0, splits={"train": 0.8, "test": 0.2})
        recipe.win_seconds, recipe.splits["train"]    # 1.0, 0.8

    Parameters
    ----------
    **options
        The flags of ``audio-tfrecords record``, with underscores; each is an attribute
        of a section. Numbers are numbers. Names, shares and steps are text as on the
        command line, or Python values: a list of names, a mapping of shares,
        transforms.

    Raises
    ------
    OptionError
        If no option has that name.
    RecipeError
        If a value is out of its range, or two values contradict each other.
    """

    if TYPE_CHECKING:  # it is no option
        _code: Mapping[str, Any]  # only of a recipe from another process

    def __new__(cls, **options: Any) -> Recipe:
        return object.__new__(cls)  # an unknown name is that of no option

    def __init__(self, **options: Any):
        known = recipe_options()
        vars(self).update({name: each.default for name, each in known.items()})
        for each, value in named_options(options, known):
            vars(self)[each.name] = value
        self.__post_init__()

    def check(self) -> None:
        """Checks each section, and what depends on two of them."""
        for section in SECTIONS:
            section.check(self)
        json = self.to_json()
        for ways in ALTERNATIVES:
            needed = "the length of a window" if "win_len" in ways else None
            check_one_of({name: json[name] for name in ways}, needed)
        self._check_events(json)
        if self.mark_padding and VALID_FRAMES in self.features:
            raise RecipeError(
                "features",
                "must not have this name, because `mark_padding` stores an entry of it",
                VALID_FRAMES,
            )
        if self.windows_are_at_events and self.events is None:
            raise RecipeError("windows_at", "needs `events`", self.windows_at)

    def _check_events(self, json: Mapping[str, Any]) -> None:
        """Checks what events leave no room for, and the features of their masks."""
        if self.events is None:
            return
        if self.windows_are_clips:
            problem = "must be a number of frames, because `events` is given"
            raise RecipeError("win_len", problem, "clip")
        for name in ("label_separator", "target_columns"):
            if json[name]:
                raise RecipeError(name, "cannot be given with `events`", json[name])
        known = ("keep", "drop", *(self.classes or ()))
        if self.no_event not in known:
            close = did_you_mean(self.no_event.lower(), known, cutoff=0.7)
            if close:
                problem = f"did you mean {close}? Other classes must be in `classes`"
                raise RecipeError("no_event", problem, self.no_event)
            if self.classes:
                problem = f"must contain {self.no_event}, which is `no_event`; add it"
                raise RecipeError("classes", problem, json["classes"])
        for target in self.event_targets:
            feature = target.removeprefix(EVENT_MASK)
            is_known = transform_of(feature) in self.features
            if target not in EVENT_TARGETS and not is_known:
                raise RecipeError(
                    "event_targets",
                    f"must be {', '.join(EVENT_TARGETS)}, or {EVENT_MASK}FEATURE with "
                    f"the name of a feature; features: "
                    f"{', '.join(self.features) or 'none'}",
                    target,
                )

    def to_json(self) -> dict[str, Any]:
        """Returns the options as ``metadata.json`` holds them, in a fixed order."""
        return {name: json_of(self, each) for name, each in recipe_options().items()}

    def replace(self, **changes: Any) -> Recipe:
        """Returns a new recipe with some options changed."""
        changed = named_options(changes, recipe_options())
        return Recipe(**{**self.to_json(), **{o.name: value for o, value in changed}})

    def rejecting_short_clips(self) -> Recipe:
        """Returns a recipe by which clips shorter than a window are errors.

        This one says nothing of them, or it is returned as it is.
        """
        if self.short_clips or self.tail == "pad" or self.windows_are_clips:
            return self
        return self.replace(short_clips="reject")

    def sha256(self) -> str:
        """Returns the SHA-256 of the recipe's JSON, in hexadecimal."""
        return json_sha256(self.to_json())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Recipe) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash(self.sha256())

    def __getstate__(self) -> dict[str, Any]:
        """The state; with it goes the code of a script or a notebook that it names."""
        from beam_pipeline.transforms.own_code import code_in

        texts = [*self.features.values(), *vars(self).values()]
        code = code_in(text for text in texts if isinstance(text, str))
        return {**vars(self), "_code": code}


# In the order of the JSON.
SECTIONS: tuple[Any, ...] = Recipe.__bases__[::-1]


def named_options(
    values: Mapping[str, Any], known: Mapping[str, Option]
) -> list[tuple[Option, Any]]:
    """Returns the options with these names, which may be those of flags, and values.

    Raises
    ------
    OptionError
        If a name is no option's, or two are the same option's.
    """
    found: list[tuple[Option, Any]] = []
    written: dict[str, str] = {}
    for name, value in values.items():
        option = find_option(known, name)
        if option is None:
            raise unknown_option(name, known)
        earlier = written.setdefault(option.name, name)
        if earlier != name:
            problem = "are the same option; give only one of them"
            raise OptionError(f"{earlier} and {name}", problem, value)
        found.append((option, value))
    return found


_SECRET = re.compile("secret|password|token|access_key", re.IGNORECASE)
# In JSON, such as that of --environment_config.
_SECRET_KEY = re.compile(f'"[^"]*({_SECRET.pattern})[^"]*"\\s*:', re.IGNORECASE)


class RunOptions(Declared):
    """How the job runs.

    These options are not in the recipe. Options of Beam follow a lone --.

    Attributes
    ----------
    max_rejected
        Largest number or percentage of clips that may be rejected: 5 or 1%.
    allow_unreadable
        Reject clips that the disk or the network fails to read, for example because of
        a dead sector, instead of failing until they can be read.
    overwrite
        Replace the data set in the output folder.
    skip_recorded
        Leave out clips that the data set in this folder holds, and try again those that
        it rejected; may be repeated.
    workers
        Processes on this machine. Default: one for each core, if the job is large.
    work_dir
        Folder for unfinished shards. Default: _work in the output folder.
    time_limit
        Reject a clip if a step takes longer for one block of it. Default: 600 seconds.
    beam_args : sequence of str
        Options of Beam. They must contain ``--runner``, which runs the job.

    Raises
    ------
    OptionError
        If a value is out of its range, or ``beam_args`` has no runner or has a secret.
    """

    max_rejected: int | str = option(0, ValueType(), "N|P%")
    allow_unreadable: bool = option(False, Flag())
    overwrite: bool = option(False, Flag())
    skip_recorded: PathLike | Sequence[PathLike] = option(
        (), ValueType(), "DIR", repeats=True
    )
    workers: int | None = option(None, WholeNumber(), "N")
    work_dir: PathLike | None = option(None, ValueType(), "DIR")
    time_limit: float | None = option(
        None, Number(is_positive=True, unit="seconds"), "SECONDS"
    )
    beam_args: Sequence[str] = ()

    def check(self) -> None:
        """Checks the limit on rejects, and options that depend on Beam's."""
        allowed_rejects(str(self.max_rejected), 0)
        if self.beam_args and not self.has_runner():
            raise OptionError(
                "options of Beam", "must include `--runner`", self.beam_args
            )
        for text in self.beam_args:
            name = text.partition("=")[0]
            is_name = name.startswith("-") and _SECRET.search(name)
            if is_name or _SECRET_KEY.search(text):
                # The value stays out of the error, which is logged.
                raise OptionError(
                    "options of Beam",
                    "must not contain a secret, because the job and its logs would "
                    "show it; set the secret in the environment of the workers, for "
                    "example as AWS_SECRET_ACCESS_KEY",
                    name,
                )

    def has_runner(self) -> bool:
        """Whether a runner of Beam runs the job, instead of this machine."""
        return beam_option(self.beam_args, "--runner") is not None

    def is_template(self) -> bool:
        """Whether the job is only described; a service starts it later."""
        return beam_option(self.beam_args, "--template_location") is not None


def beam_option(beam_args: Sequence[str], name: str) -> str | None:
    """Returns the value of an option of Beam: ``--name=value`` or ``--name value``."""
    for word, following in pairwise([*beam_args, ""]):
        key, equals, value = word.partition("=")
        if key == name:
            return value if equals else following
    return None


def allowed_rejects(max_rejected: str, clips: int) -> int:
    """Returns how many of the clips may be rejected: ``5``, or ``2.5%`` of them.

    Raises
    ------
    OptionError
        If the text is neither a number nor a percentage.
    """
    text = max_rejected.strip()
    share, most = (text[:-1], 100.0) if text.endswith("%") else ("", math.inf)
    try:
        value = float(share) if share else int(text)
    except ValueError:
        value = -1
    if not 0 <= value <= most:
        problem = "must be a number of clips from 0 on, or a percentage from 0% to 100%"
        raise OptionError("max_rejected", problem, max_rejected)
    # Rounding may leave a share of whole clips a little below their number.
    return int(value / 100 * clips + 1e-9) if isinstance(value, float) else value
