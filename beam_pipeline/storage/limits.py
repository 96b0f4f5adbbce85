"""How much memory a file may request: a crafted one must not request it all."""

from __future__ import annotations

import os

# A record, or a member, may take so many bytes, or so many times the bytes of its file.
MOST_BYTES = 256 << 20
MOST_TIMES = 16

# No protobuf message is longer.
LONGEST_RECORD = 1 << 31

# For those who trust a data set whose records are larger.
VARIABLE = "AUDIO_TFRECORDS_MOST_BYTES"


def most_bytes(on_disk: int) -> int:
    """Returns how many bytes of memory what is stored in a file may take at once.

    256 MiB, or 16 times the bytes on disk if that is more. Silence is compressed a
    thousandfold, so the variable ``AUDIO_TFRECORDS_MOST_BYTES`` raises the first limit.

    Parameters
    ----------
    on_disk : int
        The bytes of the file, or of the part of it that was read.
    """
    least = MOST_BYTES
    given = os.environ.get(VARIABLE, "")
    if given.isascii() and given.isdigit() and len(given) < 20:
        least = max(least, int(given))
    return max(least, MOST_TIMES * on_disk)


def too_long(length: int, on_disk: int) -> str | None:
    """Says why something of this length is not read; None if it may be read."""
    most = most_bytes(on_disk)
    if length <= most:
        return None
    return (
        f"it takes {length} bytes of memory, but at most {most} are allowed for "
        f"{on_disk} bytes on disk; if you trust the data set, set {VARIABLE}"
    )
