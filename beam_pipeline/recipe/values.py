"""Names and words that recipes and examples share, and the limit on rejects."""

from __future__ import annotations

import math

from beam_pipeline.errors import OptionError

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
