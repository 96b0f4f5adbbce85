"""Sections of a recipe about examples: audio, copies, features, shards.

A section is a frozen value that checks itself. A function takes only the section that
it needs. :class:`beam_pipeline.recipe.recipe.Recipe` checks what depends on two
sections.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from beam_pipeline.audio.av_library import DECODERS
from beam_pipeline.errors import RecipeError, did_you_mean
from beam_pipeline.recipe.fields import (
    ENCODINGS_OF,
    FEATURES,
    NAMES,
    STEPS,
    option,
)
from beam_pipeline.recipe.values import (
    COMPRESSIONS,
    ENCODINGS,
    GZIP,
    RESERVED_NAMES,
    check_choice,
    check_flag,
    check_one_of,
    check_text,
    check_whole,
    is_whole,
    parse_bytes,
    parse_channels,
)

# Bat detectors sample at half a million Hz, ADCs for ultrasound at ten million.
MAX_RATE_HZ = 100_000_000
ORDERS = (SHUFFLED, LISTED, MIXED) = ("shuffled", "listed", "mixed")
DTYPES = ("float32", "int16")
BACKENDS = (NUMPY, JAX) = ("numpy", "jax")

# The only feature of a recipe that names none.
DEFAULT_FEATURE = "signal"


@dataclass(frozen=True, kw_only=True)
class Audio:
    """How files become the frames of which windows are cut."""

    fingerprint: bool = option(
        False,
        "store a hash and a sketch of each clip's audio, so that audit finds "
        "duplicates; decodes all audio once more",
    )
    hash_files: bool = option(
        False,
        "store the SHA-256 of each clip's file in the manifest; reads all files once "
        "more",
    )
    sample_rate: int | None = option(
        None,
        "resample all audio to this rate; default: each file keeps its own",
        "HZ",
        parse=int,
    )
    channels: str | int = option(
        "mix",
        "mix (the mean of all channels), keep (all channels), or the number of one "
        "channel, from 0",
        "mix|keep|N",
        parse=parse_channels,
    )
    dtype: str = option(
        "float32",
        "stored type of the signal, and of each feature that ends in identity() and "
        "names no dtype there",
        choices=DTYPES,
    )
    stream: str = option(
        "",
        "steps that process each whole clip before windows are cut: "
        "high_pass(cutoff_hz=50)|clip_gain(kind='peak',level_db=-1)",
        "EXPR",
        kind=STEPS,
    )
    allow_truncated: bool = option(
        False,
        "record files that hold fewer frames than their header declares, up to the "
        "last frame; default: reject them",
    )
    allow_nonfinite: bool = option(
        False,
        "record clips with samples that are NaN or infinite; default: reject them",
    )
    whole_clips: bool = option(
        False,
        "decode each clip of a compressed file before anything is planned, so that a "
        "clip that breaks in the middle leaves none of its windows in the data set; "
        "default: the windows before the damage stay",
    )
    decoders: tuple[str, ...] = option(
        ",".join(DECODERS),
        "which libraries decode, the preferred one first; the next one decodes what it "
        "does not open",
        "NAMES",
        name="decoder",
        kind=NAMES,
        value=DECODERS,
    )

    loader: str = option(
        "",
        "your own function, which reads files that no decoder reads: from a path to "
        "(samples, sample_rate_hz)",
        "MODULE:NAME",
        kind=STEPS,
    )
    loader_suffixes: tuple[str, ...] = option(
        None,
        "the ends of the names of the files that the loader reads, such as .npy,.h5; "
        "default: it reads all files",
        "NAMES",
        kind=NAMES,
        value=(),
    )

    def is_loaded(self, filepath: str) -> bool:
        """Whether the loader reads a file."""
        ends = self.loader_suffixes or ("",)
        return bool(self.loader) and filepath.lower().endswith(ends)

    def __post_init__(self) -> None:
        check_text("loader", self.loader, may_be_empty=True)
        if self.loader_suffixes and not self.loader:
            raise RecipeError(
                "loader_suffixes", "needs `loader`", ",".join(self.loader_suffixes)
            )
        for suffix in self.loader_suffixes:
            check_text("loader_suffixes", suffix)
        suffixes = tuple(suffix.lower() for suffix in self.loader_suffixes)
        object.__setattr__(self, "loader_suffixes", suffixes)
        check_flag("fingerprint", self.fingerprint)
        check_flag("hash_files", self.hash_files)
        check_flag("whole_clips", self.whole_clips)
        if self.sample_rate is not None:
            check_whole("sample_rate", self.sample_rate)
            if self.sample_rate > MAX_RATE_HZ:
                raise RecipeError(
                    "sample_rate", f"must be at most {MAX_RATE_HZ} Hz", self.sample_rate
                )
        is_number = is_whole(self.channels) and int(self.channels) >= 0
        if self.channels not in ("mix", "keep") and not is_number:
            raise RecipeError(
                "channels",
                "must be mix, keep or a whole number, 0 or more",
                self.channels,
            )
        check_choice("dtype", self.dtype, DTYPES)
        check_text("stream", self.stream, may_be_empty=True)
        check_flag("allow_truncated", self.allow_truncated)
        check_flag("allow_nonfinite", self.allow_nonfinite)
        for name in self.decoders:
            check_choice("decoder", name, DECODERS)
        if not self.decoders or len(set(self.decoders)) < len(self.decoders):
            raise RecipeError(
                "decoder",
                f"must name each of {', '.join(DECODERS)} at most once",
                ",".join(self.decoders),
            )


@dataclass(frozen=True, kw_only=True)
class Augmentation:
    """Augmented copies of windows, for training."""

    copies: int = option(
        0,
        "number of augmented copies of each window, as more examples; only in the "
        "split train, or in a data set without splits",
        "N",
        parse=int,
    )
    augment: str = option(
        "",
        "steps that alter the copies at random (seeded): "
        "random_gain(low_db=-6)|noise()",
        "EXPR",
        kind=STEPS,
    )

    def __post_init__(self) -> None:
        if not is_whole(self.copies) or self.copies < 0:
            raise RecipeError(
                "copies", "must be a whole number, 0 or more", self.copies
            )
        check_text("augment", self.augment, may_be_empty=True)
        # Copies without such steps may be altered by a step of a feature.
        if self.augment and not self.copies:
            raise RecipeError(
                "copies and augment",
                "must be given together: the number of copies, and the steps that "
                "alter them",
                (self.copies, self.augment),
            )


@dataclass(frozen=True, kw_only=True)
class Features:
    """Features of the examples: names, expressions that compute them, encodings."""

    expressions: Mapping[str, str] = option(
        {},
        "a feature of each window: log_mel='log_mel(n_mels=64)'; a chain: "
        "x='peak_gain()|log_mel()'; your own: x='package.module:name'; may be "
        "repeated; default: signal='identity()'",
        "NAME=EXPR",
        name="features",
        kind=FEATURES,
    )
    encodings: Mapping[str, str] = option(
        {},
        f"how examples hold a feature: {', '.join(ENCODINGS)}; log_mel=png, for a "
        "feature that ends in as_image(); may be repeated; default: by the type and "
        "the shape of the feature",
        "NAME=ENCODING",
        kind=ENCODINGS_OF,
    )
    backend: str = option(
        NUMPY,
        "what computes features: numpy, or jax, which runs the most common steps on a "
        "GPU or a TPU; its bytes depend on the device",
        choices=BACKENDS,
    )

    def __post_init__(self) -> None:
        for name, expression in self.expressions.items():
            if name in RESERVED_NAMES:
                raise RecipeError(
                    "features",
                    f"must not use a reserved name ({', '.join(RESERVED_NAMES)})",
                    name,
                )
            is_text = isinstance(name, str)
            if not is_text or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
                raise RecipeError(
                    "features", "names must be identifiers, like log_mel", name
                )
            if not isinstance(expression, str):
                raise RecipeError("features", "a transform must be text", expression)
        for name, encoding in self.encodings.items():
            self._check_encoding(name, encoding)
        check_choice("backend", self.backend, BACKENDS)
        object.__setattr__(self, "expressions", dict(self.expressions))
        object.__setattr__(self, "encodings", dict(self.encodings))

    def _check_encoding(self, name: str, encoding: str) -> None:
        """Refuses an encoding that does not exist, and names of no feature."""
        known = list(self.expressions) or [DEFAULT_FEATURE]
        if name in RESERVED_NAMES:
            raise RecipeError(
                "encodings",
                "must name features of `features`; the encoding of this one is fixed",
                name,
            )
        if name not in known:
            close = did_you_mean(str(name), known)
            hint = f"; did you mean {close}?" if close else ""
            raise RecipeError(
                "encodings",
                "names a feature that the recipe does not have; its features are "
                f"{', '.join(known)}{hint}",
                name,
            )
        check_choice(f"encodings: {name}", encoding, ENCODINGS)


@dataclass(frozen=True, kw_only=True)
class Shards:
    """How examples are divided into shards, and in which order."""

    elements_per_file: int | None = option(None, "examples in a shard", "N", parse=int)
    shard_bytes: int | None = option(
        None,
        "or: bytes in a shard before GZIP; default: 128MiB",
        "BYTES",
        parse=parse_bytes,
    )
    num_shards: int | None = option(
        None, "or: number of shards, in each split", "N", parse=int
    )
    member_bytes: int | None = option(
        None,
        "bytes before GZIP that can be read on their own, at least one example; more "
        "compress better, fewer are read faster at random; default: 16KiB",
        "BYTES",
        parse=parse_bytes,
    )
    compression: str = option(
        GZIP,
        "of the shards: gzip, or none, which is read several times as fast",
        choices=COMPRESSIONS,
    )
    num_elems: int | None = option(
        None, "number of examples, in each split; default: all", "N", parse=int
    )
    order: str = option(
        SHUFFLED,
        "shuffled: clips by the seed, a clip's examples together; mixed: by the seed, "
        "neighbours from different clips; listed: clips as the inputs list them",
        choices=ORDERS,
    )
    seed: int = option(0, "seed of everything that is random", "N", parse=int)

    def __post_init__(self) -> None:
        ways = ("elements_per_file", "shard_bytes", "num_shards")
        for name in (*ways, "member_bytes", "num_elems"):
            if getattr(self, name) is not None:
                check_whole(name, getattr(self, name))
        check_one_of({name: getattr(self, name) for name in ways})
        check_choice("compression", self.compression, COMPRESSIONS)
        check_choice("order", self.order, ORDERS)
        check_whole("seed", self.seed, least=None)

    @property
    def are_mixed(self) -> bool:
        """Whether neighbours in a shard come from different clips."""
        return self.order == MIXED
