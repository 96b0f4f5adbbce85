"""The columns of a table of windows that say where each comes from."""

from __future__ import annotations

from typing import Any

import numpy as np

from beam_pipeline.inputs.own_manifest import FILE_SHA256

NATIVE_START, NATIVE_FRAMES, NATIVE_RATE = (
    "native_start", "native_frames", "native_sample_rate_hz",
)  # fmt: skip


def source_columns(
    start: Any, frames: Any, rate_hz: Any, of_clip: Any, has_hashes: bool
) -> dict[str, Any]:
    """Returns the columns of a table of windows that say where each comes from.

    Parameters
    ----------
    start, frames, rate_hz : numpy.ndarray of int64, shape (windows,)
        The window's stretch in its file at the output rate, and this rate.
    of_clip : callable
        From a column of the manifest to its value for each window.
    """
    import pyarrow as pa

    native_hz = of_clip(NATIVE_RATE)
    hz = native_hz.to_numpy().astype(np.int64)
    most = of_clip(NATIVE_FRAMES).to_numpy()
    first = start * hz // rate_hz
    stop = np.minimum(-(-(start + frames) * hz // rate_hz), most)
    columns = {
        NATIVE_START: pa.array(first),
        NATIVE_FRAMES: pa.array(stop - first),
        NATIVE_RATE: native_hz,
        "channels": of_clip("channels"),
        FILE_SHA256: pa.nulls(len(first), pa.string()),
    }
    if has_hashes:
        columns[FILE_SHA256] = of_clip(FILE_SHA256)
    return columns
