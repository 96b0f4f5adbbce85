"""Single values of a recipe or a run: how they are parsed from text, and checked.

Each check raises :class:`.RecipeError` with the option's name and the value found.
"""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from beam_pipeline.errors import OptionError, RecipeError

# What every example holds besides its features. A feature cannot take these names.
CLIP_FEATURES = (
    "class", "target", "labels", "filepath", "index", "win_start_idx", "fs", "copy",
)  # fmt: skip
# The entry of an example that `mark_padding` adds.
VALID_FRAMES = "valid_frames"
RESERVED_NAMES = (*CLIP_FEATURES, "num_classes")

# How shards are compressed.
COMPRESSIONS = GZIP, NO_COMPRESSION = ("gzip", "none")

# How an example can hold a feature; beam_pipeline.examples.spec explains them.
ENCODINGS = (
    "float_list", "int64_list", "bytes_list", "raw", "tensor", "png", "jpeg",
    "float16", "bfloat16", "int8", "flac",
)  # fmt: skip


def allowed_rejects(max_rejected: str, clips: int) -> int:
    """Returns how many of the clips may be rejected: ``5``, or ``2.5%`` of them.

    Raises
    ------
    OptionError
        If the text is neither a number nor a percentage.
    """
    text = max_rejected.strip()
    try:
        value = float(text[:-1]) if text.endswith("%") else int(text)
    except ValueError as error:
        raise OptionError(
            "max_rejected", "must be a number of clips or a percentage", max_rejected
        ) from error
    if not 0 <= value <= (100 if text.endswith("%") else math.inf):
        raise OptionError(
            "max_rejected",
            "must be a number of clips from 0 on, or from 0% to 100%",
            max_rejected,
        )
    # Rounding may leave a share of whole clips a little below their number.
    return int(value / 100 * clips + 1e-9) if isinstance(value, float) else value


def parse_channels(text: str) -> str | int:
    """Parses ``mix``, ``keep``, or the number of one channel."""
    return int(text) if text.isdecimal() else text


def parse_win_len(text: str) -> str | int:
    """Parses a number of frames, or ``clip``."""
    return int(text) if text.isdecimal() else text


def parse_bytes(text: str, option: str = "shard_bytes") -> int:
    """Parses a number of bytes: ``134217728``, ``128MiB``, ``1GB``."""
    match = re.fullmatch(r"(\d+)\s*(|[kmgt]i?b|b)", text.strip(), re.IGNORECASE)
    if match is None:
        raise RecipeError(option, "must look like 128MiB or 134217728", text)
    unit = match[2].lower()
    power = " kmgt".index(unit[0]) if unit and unit != "b" else 0
    return int(match[1]) * int((1024 if "i" in unit else 1000) ** power)


def parse_shares(text: str) -> dict[str, float]:
    """Parses ``train=.8,eval=.1,test=.1`` as shares that add up to 1, in their order.

    Shares are relative: ``train=8,eval=1,test=1`` means the same. So .7, .2 and .1,
    whose sum in binary is not 1, are valid, too.

    Raises
    ------
    RecipeError
        If the text has another form, a name occurs twice, or a share is not positive.
    """
    shares: dict[str, float] = {}
    for part in text.split(","):
        name, equals, value = part.strip().partition("=")
        try:
            share = float(value)
        except ValueError:
            share = math.nan
        if not (equals and name.isidentifier() and math.isfinite(share) and share > 0):
            raise RecipeError(
                "splits", "must look like train=.8,eval=.1,test=.1", part or text
            )
        if name in shares:
            raise RecipeError("splits", f"names the split {name} twice", text)
        shares[name] = share
    total = math.fsum(shares.values())
    return {name: share / total for name, share in shares.items()}


def comma_list(text: str | None) -> list[str]:
    """Returns the parts of ``a, b,c``; an empty list for None.

    A part that contains a comma is in quotes, as in CSV: ``a,"b, or c"``.
    """
    if not text:
        return [] if text is None else [""]
    (parts,) = csv.reader([text], skipinitialspace=True)
    return [part.strip() for part in parts]


def comma_text(parts: Iterable[object]) -> str:
    """Returns the text that :func:`comma_list` parses into these parts."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([str(part) for part in parts])
    return line.getvalue()


def shares_text(shares: Mapping[str, object]) -> str:
    """Returns the text that :func:`parse_shares` parses into these shares."""
    return ",".join(f"{name}={share}" for name, share in shares.items())


def is_whole(value: Any) -> bool:
    """Whether a value is an integer and not a boolean."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """Whether a value is an integer or a float, and not a boolean."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_whole(name: str, value: Any, least: int | None = 1) -> None:
    """Refuses anything but an integer, and integers below ``least``."""
    if not is_whole(value):
        raise RecipeError(name, "must be a whole number", value)
    if least is not None and value < least:
        raise RecipeError(name, f"must be at least {least}", value)


def check_seconds(name: str, value: Any) -> None:
    """Refuses anything but a positive, finite number."""
    if not (is_real(value) and math.isfinite(value) and value > 0):
        raise RecipeError(name, "must be a positive number of seconds", value)


def check_flag(name: str, value: Any) -> None:
    """Refuses anything but True and False."""
    if not isinstance(value, bool):
        raise RecipeError(name, "must be True or False", value)


def check_text(name: str, value: Any, may_be_empty: bool = False) -> None:
    """Refuses anything but text, and empty text unless it is allowed."""
    if not isinstance(value, str):
        raise RecipeError(name, "must be text", value)
    if not (value or may_be_empty):
        raise RecipeError(name, "must not be empty", value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuses anything but one of the choices."""
    if value not in choices:
        raise RecipeError(name, f"must be one of {', '.join(choices)}", value)


def check_one_of(given: Mapping[str, Any], needed: str | None = None) -> None:
    """Refuses more than one of these options; with ``needed``, none of them, too.

    ``needed`` is what one of them has to give.
    """
    present = {name: value for name, value in given.items() if value is not None}
    if len(present) > 1:
        raise RecipeError(" and ".join(present), "give only one of them", present)
    if needed is not None and not present:
        raise RecipeError(" or ".join(given), f"give one of them: {needed}", None)
