"""Sections of a recipe about examples: audio, copies, features, shards.

A section is a frozen value that checks itself. A function takes only the section that
it needs. :class:`beam_pipeline.recipe.recipe.Recipe` checks what depends on two
sections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from beam_pipeline.audio.formats import DECODERS
from beam_pipeline.errors import RecipeError, did_you_mean
from beam_pipeline.parameters import (
    Bytes,
    Choice,
    Declared,
    Flag,
    Names,
    Text,
    WholeNumber,
    check_choice,
    check_text,
)
from beam_pipeline.recipe.fields import ByFeature, Steps, check_one_of, option
from beam_pipeline.recipe.values import COMPRESSIONS, ENCODINGS, GZIP, RESERVED_NAMES

# Bat detectors sample at half a million Hz, ADCs for ultrasound at ten million.
MAX_RATE_HZ = 100_000_000
ORDERS = (SHUFFLED, LISTED, MIXED) = ("shuffled", "listed", "mixed")
DTYPES = ("float32", "int16")


def _expression(feature: str, given: Any) -> Any:
    """Returns the expression of a transform; other values as they are."""
    if isinstance(given, str) or not callable(given):
        return given
    from beam_pipeline.transforms.steps import format_transform, naming_feature

    with naming_feature(feature):
        return format_transform(given)


TRANSFORMS = ByFeature(
    "transforms, like {mel: log_mel()}",
    Text(may_be_empty=True),
    _expression,
)
# The only feature of a recipe that names none.
DEFAULT_FEATURE = "signal"


@dataclass(frozen=True, kw_only=True)
class Audio(Declared):
    """How files become the frames of which windows are cut."""

    fingerprint: bool = option(
        False,
        Flag(),
        "store a hash and a sketch of each clip's audio, so that audit finds "
        "duplicates; decodes all audio once more",
    )
    hash_files: bool = option(
        False,
        Flag(),
        "store the SHA-256 of each clip's file in the manifest; reads all files once "
        "more",
    )
    sample_rate: int | None = option(
        None,
        WholeNumber(most=MAX_RATE_HZ),
        "resample all audio to this rate; default: each file keeps its own",
        "HZ",
    )
    channels: str | int = option(
        "mix",
        WholeNumber(0, words=("mix", "keep")),
        "mix (the mean of all channels), keep (all channels), or the number of one "
        "channel, from 0",
        "mix|keep|N",
    )
    dtype: str = option(
        "float32",
        Choice(DTYPES),
        "stored type of the signal, and of each feature that ends in identity() and "
        "names no dtype there",
    )
    stream: str = option(
        "",
        Steps("high_pass(cutoff_hz=50)"),
        "steps that process each whole clip before windows are cut: "
        "high_pass(cutoff_hz=50)|clip_gain(kind='peak',level_db=-1)",
        "EXPR",
    )
    allow_truncated: bool = option(
        False,
        Flag(),
        "record files that hold fewer frames than their header declares, up to the "
        "last frame; default: reject them",
    )
    allow_nonfinite: bool = option(
        False,
        Flag(),
        "record clips with samples that are NaN or infinite; default: reject them",
    )
    whole_clips: bool = option(
        False,
        Flag(),
        "decode each clip of a compressed file before anything is planned, so that a "
        "clip that breaks in the middle leaves none of its windows in the data set; "
        "default: the windows before the damage stay",
    )
    decoders: tuple[str, ...] = option(
        ",".join(DECODERS),
        Names(),
        "which libraries decode, the preferred one first; the next one decodes what it "
        "does not open",
        "NAMES",
        name="decoder",
        held=DECODERS,
    )

    loader: str = option(
        "",
        Steps("my_files:load"),
        "your own function, which reads files that no decoder reads: from a path to "
        "(samples, sample_rate_hz)",
        "MODULE:NAME",
    )
    loader_suffixes: tuple[str, ...] = option(
        None,
        Names(),
        "the ends of the names of the files that the loader reads, such as .npy,.h5; "
        "default: it reads all files",
        "NAMES",
        held=(),
    )

    def is_loaded(self, filepath: str) -> bool:
        """Whether the loader reads a file."""
        ends = self.loader_suffixes or ("",)
        return bool(self.loader) and filepath.lower().endswith(ends)

    def check(self) -> None:
        """Checks the decoders, and the suffixes, which become lower case."""
        if self.loader_suffixes and not self.loader:
            raise RecipeError(
                "loader_suffixes", "needs `loader`", ",".join(self.loader_suffixes)
            )
        for suffix in self.loader_suffixes:
            check_text("loader_suffixes", suffix)
        suffixes = tuple(suffix.lower() for suffix in self.loader_suffixes)
        object.__setattr__(self, "loader_suffixes", suffixes)
        for name in self.decoders:
            check_choice("decoder", name, DECODERS)
        if not self.decoders or len(set(self.decoders)) < len(self.decoders):
            raise RecipeError(
                "decoder",
                f"must name each of {', '.join(DECODERS)} at most once",
                ",".join(self.decoders),
            )


@dataclass(frozen=True, kw_only=True)
class Augmentation(Declared):
    """Augmented copies of windows, for training."""

    copies: int = option(
        0,
        WholeNumber(0),
        "number of augmented copies of each window, as more examples; only in the "
        "split train, or in a data set without splits",
        "N",
    )
    augment: str = option(
        "",
        Steps("random_gain()|noise()"),
        "steps that alter the copies at random (seeded): "
        "random_gain(low_db=-6)|noise()",
        "EXPR",
    )

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


@dataclass(frozen=True, kw_only=True)
class Features(Declared):
    """Features of the examples: names, expressions that compute them, encodings."""

    expressions: Mapping[str, str] = option(
        {},
        TRANSFORMS,
        "a feature of each window: log_mel='log_mel(n_mels=64)'; a chain: "
        "x='peak_gain()|log_mel()'; your own: x='package.module:name'; may be "
        "repeated; default: signal='identity()'",
        "NAME=EXPR",
        name="features",
    )
    encodings: Mapping[str, str] = option(
        {},
        ByFeature("encodings, like {mel: tensor}", Choice(ENCODINGS)),
        f"how examples hold a feature: {', '.join(ENCODINGS)}; log_mel=png, for a "
        "feature that ends in as_image(); may be repeated; default: by the type and "
        "the shape of the feature",
        "NAME=ENCODING",
    )

    def check(self) -> None:
        """Checks the names of features, and those that encodings are for."""
        for name in self.expressions:
            if name in RESERVED_NAMES:
                raise RecipeError(
                    "features",
                    f"must not use a reserved name ({', '.join(RESERVED_NAMES)})",
                    name,
                )
            if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise RecipeError(
                    "features", "names must be identifiers, like log_mel", name
                )
        for name in self.encodings:
            self._check_encoded(name)

    def _check_encoded(self, name: str) -> None:
        """Refuses the name of no feature."""
        known = list(self.expressions) or [DEFAULT_FEATURE]
        if name in RESERVED_NAMES:
            raise RecipeError(
                "encodings",
                "must name features of `features`; the encoding of this one is fixed",
                name,
            )
        if name not in known:
            close = did_you_mean(name, known)
            hint = f"; did you mean {close}?" if close else ""
            raise RecipeError(
                "encodings",
                "names a feature that the recipe does not have; its features are "
                f"{', '.join(known)}{hint}",
                name,
            )


@dataclass(frozen=True, kw_only=True)
class Shards(Declared):
    """How examples are divided into shards, and in which order."""

    elements_per_file: int | None = option(
        None, WholeNumber(), "examples in a shard", "N"
    )
    shard_bytes: int | None = option(
        None,
        Bytes(),
        "or: bytes in a shard before GZIP; default: 128MiB",
        "BYTES",
    )
    num_shards: int | None = option(
        None, WholeNumber(), "or: number of shards, in each split", "N"
    )
    member_bytes: int | None = option(
        None,
        Bytes(),
        "bytes before GZIP that can be read on their own, at least one example; more "
        "compress better, fewer are read faster at random; default: 16KiB",
        "BYTES",
    )
    compression: str = option(
        GZIP,
        Choice(COMPRESSIONS),
        "of the shards: gzip, or none, which is read several times as fast",
    )
    num_elems: int | None = option(
        None, WholeNumber(), "number of examples, in each split; default: all", "N"
    )
    order: str = option(
        SHUFFLED,
        Choice(ORDERS),
        "shuffled: clips by the seed, a clip's examples together; mixed: by the seed, "
        "neighbours from different clips; listed: clips as the inputs list them",
    )
    seed: int = option(
        0, WholeNumber(least=None), "seed of everything that is random", "N"
    )

    def check(self) -> None:
        """Checks that one option at most decides the size of shards."""
        ways = ("elements_per_file", "shard_bytes", "num_shards")
        check_one_of({name: getattr(self, name) for name in ways})

    @property
    def are_mixed(self) -> bool:
        """Whether neighbours in a shard come from different clips."""
        return self.order == MIXED
