"""Single values of a recipe or a run, from the text that people type."""

from __future__ import annotations

import csv
import io
import math
import re
from collections.abc import Iterable

from beam_pipeline.errors import RecipeError

# What every example holds besides its features. A feature cannot take these names.
CLIP_FEATURES = (
    "class", "target", "labels", "filepath", "index", "win_start_idx", "fs", "copy",
)  # fmt: skip
RESERVED_NAMES = (*CLIP_FEATURES, "num_classes")


def allowed_rejects(max_rejected: str, clips: int) -> int:
    """``5`` or ``2.5%`` of the clips as a number of clips.

    Raises
    ------
    RecipeError
        If it is neither.
    """
    text = max_rejected.strip()
    try:
        value = float(text[:-1]) if text.endswith("%") else int(text)
    except ValueError as error:
        raise RecipeError(
            "max_rejected", "must be a number of clips or a percentage", max_rejected
        ) from error
    if not 0 <= value <= (100 if text.endswith("%") else math.inf):
        raise RecipeError(
            "max_rejected", "must not be negative, nor above 100%", max_rejected
        )
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


def comma_list(text: str | None) -> list[str]:
    """The parts of ``a, b,c``; none of None.

    Those that hold a comma are in quotes, as in CSV: ``a,"b, or c"``.
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
