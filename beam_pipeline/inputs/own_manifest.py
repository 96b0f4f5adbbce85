"""The columns of a data set's ``manifest.parquet``, also where that is an input."""

from __future__ import annotations

from collections.abc import Sequence

from beam_pipeline.audio.clip_reader import output_frames
from beam_pipeline.audio.fingerprint import CONTENT_BYTES, SKETCH_BYTES

MANIFEST_FIELDS = {
    "path": "string",
    "input": "int32",
    "file": "int64",
    "index": "int64",
    "class": "string",
    "split": "string",
    "group": "string",
    "start": "int64",
    "frames": "int64",
    "sample_rate_hz": "int32",
    "channels": "int32",
    "channel": "int32",
    "native_frames": "int64",
    "native_sample_rate_hz": "int32",
    "format": "string",
    "subtype": "string",
    "first_index": "int64",
    "windows": "int64",
}
# Present if the recipe asks for fingerprints; of so many bytes.
FINGERPRINT_FIELDS = {"content": CONTENT_BYTES, "sketch": SKETCH_BYTES}
# Present if the recipe asks for it: the SHA-256 of the file, in hexadecimal.
FILE_SHA256 = "file_sha256"


def is_own_manifest(names: Sequence[str]) -> bool:
    """Whether a table with these columns is a data set's manifest."""
    return set(MANIFEST_FIELDS) <= set(names)


def part_in_seconds(
    start: int, frames: int, rate_hz: int, native_frames: int, native_rate_hz: int
) -> tuple[float, float | None]:
    """Returns where a recorded clip starts in its file, and its length, in seconds.

    The length is None if the clip is its whole file.

    Examples
    --------
    >>> part_in_seconds(0, 8000, 8000, 16000, 16000)
    (0.0, None)
    >>> part_in_seconds(2000, 4000, 8000, 16000, 16000)
    (0.25, 0.5)
    """
    if start == 0 and frames == output_frames(native_frames, native_rate_hz, rate_hz):
        return 0.0, None
    return start / rate_hz, frames / rate_hz
