"""Sections of a recipe about examples: audio, windows, copies, features, shards.

A section is a frozen value that checks itself, and a function takes the one that it
needs. What depends on two sections is checked by
:class:`beam_pipeline.recipe.recipe.Recipe`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from beam_pipeline.errors import RecipeError
from beam_pipeline.recipe.fields import (
    FEATURES,
    SECONDS,
    STEPS,
    option,
)
from beam_pipeline.recipe.values import (
    RESERVED_NAMES,
    check_choice,
    check_flag,
    check_one_of,
    check_seconds,
    check_text,
    check_whole,
    is_whole,
    parse_bytes,
    parse_channels,
)

# A bat detector has half a million, an ADC for ultrasound some ten.
MAX_RATE_HZ = 100_000_000
TAILS = ("drop", "pad", "overlap")
ORDERS = ("shuffled", "listed")
DTYPES = ("float32", "int16")


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
