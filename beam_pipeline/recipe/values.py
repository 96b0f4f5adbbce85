"""Single values of a recipe or a run: parsed from text, and checked.

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
RESERVED_NAMES = (*CLIP_FEATURES, "num_classes")


def allowed_rejects(max_rejected: str, clips: int) -> int:
    """``5`` or ``2.5%`` of the clips as a number of clips.

    Raises
    ------
    OptionError
        If it is neither.
    """
    text = max_rejected.strip()
    try:
        value = float(text[:-1]) if text.endswith("%") else int(text)
    except ValueError as error:
        raise OptionError(
            "max_rejected", "must be a number of clips or a percentage", max_rejected
        ) from error
    if not 0 <= value <= (100 if text.endswith("%") else math.inf):
        raise OptionError("max_rejected", "must be from 0 to 100%", max_rejected)
    # A share that is a whole number of clips may come out a little below it.
    return int(value / 100 * clips + 1e-9) if isinstance(value, float) else value


def parse_channels(text: str) -> str | int:
    """``mix``, ``keep``, or the number of one channel."""
    return int(text) if text.isdecimal() else text


def parse_bytes(text: str) -> int:
    """A number of bytes: ``134217728``, ``128MiB``, ``1GB``."""
    match = re.fullmatch(r"(\d+)\s*(|[kmgt]i?b|b)", text.strip(), re.IGNORECASE)
    if match is None:
        raise RecipeError("shard_bytes", "must look like 128MiB or 134217728", text)
    unit = match[2].lower()
    power = " kmgt".index(unit[0]) if unit and unit != "b" else 0
    return int(match[1]) * int((1024 if "i" in unit else 1000) ** power)


def parse_shares(text: str) -> dict[str, float]:
    """``train=.8,eval=.1,test=.1`` as shares that add up to 1, in their order.

    Shares may be given in any unit: ``train=8,eval=1,test=1`` is the same. Ratios like
    .7, .2 and .1, which do not add up to 1 in binary, are what they look like.

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
            raise RecipeError("splits", "names a split twice", name)
        shares[name] = share
    total = math.fsum(shares.values())
    return {name: share / total for name, share in shares.items()}


def comma_list(text: str | None) -> list[str]:
    """The parts of ``a, b,c``; none of None.

    Parts that contain a comma are in quotes, as in CSV: ``a,"b, or c"``.
    """
    if not text:
        return [] if text is None else [""]
    (parts,) = csv.reader([text], skipinitialspace=True)
    return [part.strip() for part in parts]


def comma_text(parts: Iterable[object]) -> str:
    """The text of which :func:`comma_list` makes these parts."""
    line = io.StringIO()
    csv.writer(line, lineterminator="").writerow([str(part) for part in parts])
    return line.getvalue()


def shares_text(shares: Mapping[str, object]) -> str:
    """The text of which :func:`parse_shares` makes these shares."""
    return ",".join(f"{name}={share}" for name, share in shares.items())


def is_whole(value: Any) -> bool:
    """Whether a value is an integer; a boolean is none here."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_real(value: Any) -> bool:
    """Whether a value is a number; a boolean is none here."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_whole(name: str, value: Any, least: int | None = 1) -> None:
    """Refuses anything but an integer that is not below ``least``."""
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
    """Refuses anything but text."""
    if not isinstance(value, str) or not (value or may_be_empty):
        raise RecipeError(name, "must be text", value)


def check_choice(name: str, value: Any, choices: Sequence[str]) -> None:
    """Refuses what is not one of the choices."""
    if value not in choices:
        raise RecipeError(name, f"must be one of {', '.join(choices)}", value)


def check_one_of(given: Mapping[str, Any], needed: str | None = None) -> None:
    """Refuses several options of which one is enough; ``needed``: and none at all."""
    present = {name: value for name, value in given.items() if value is not None}
    if len(present) > 1:
        raise RecipeError(" and ".join(present), "give only one of them", present)
    if needed is not None and not present:
        raise RecipeError(" or ".join(given), f"give one: {needed}", None)
