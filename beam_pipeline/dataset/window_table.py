"""``windows.parquet``: one row for each planned window of a data set.

The rows have the order of the examples, and of the clips in the manifest: the first
``windows`` rows belong to the manifest's first clip, and so on. Windows that were left
out have a row, too, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.storage import files
from beam_pipeline.write.window_rows import (
    LEFT_OUT,
    WindowRows,
    join_rows,
    levels_db,
)

_ROW_GROUP = 1 << 17


def write_windows(path: str, infos: Iterable[ShardInfo]) -> None:
    """Writes the table of the windows of some shards, in their order.

    ::

        start      int64    the window's first frame in its clip, at the output rate
        frames     int32    the window's frames in the clip; zeros follow them
        copy       int16    0: the window as it is; k: its k-th augmented copy
        level_db   float    10 * log10(mean(x ** 2)), see window_levels; null: not known
        left_out   string   null: the window is in the data set; keep: a step of `keep`
                            left it out; no_event: no event overlaps it; rejected: its
                            clip could not be read or transformed there
    """
    import pyarrow.parquet as pq

    schema = _schema()
    draft = files.draft_of(path)
    with pq.ParquetWriter(
        draft,
        schema,
        compression="zstd",
        use_dictionary=["left_out"],
        column_encoding={
            "start": "DELTA_BINARY_PACKED",
            "frames": "DELTA_BINARY_PACKED",
            "copy": "DELTA_BINARY_PACKED",
            "level_db": "BYTE_STREAM_SPLIT",
        },
    ) as writer:
        waiting: list[WindowRows] = []
        for info in infos:
            waiting.append(WindowRows.unpack(info.windows))
            if sum(len(rows.starts) for rows in waiting) >= _ROW_GROUP:
                writer.write_table(_table(join_rows(waiting), schema))
                waiting = []
        if waiting:
            writer.write_table(_table(join_rows(waiting), schema))
    files.move(draft, path)


def _schema() -> Any:
    import pyarrow as pa

    return pa.schema(
        {
            "start": pa.int64(),
            "frames": pa.int32(),
            "copy": pa.int16(),
            "level_db": pa.float32(),
            "left_out": pa.dictionary(pa.int8(), pa.string()),
        }
    )


def _table(rows: WindowRows, schema: Any) -> Any:
    import pyarrow as pa

    level_db = levels_db(rows.levels)
    reasons = pa.DictionaryArray.from_arrays(
        pa.array(rows.left_out - 1, pa.int8(), mask=np.equal(rows.left_out, 0)),
        pa.array(LEFT_OUT[1:], pa.string()),
    )
    return pa.Table.from_arrays(
        [
            pa.array(rows.starts, pa.int64()),
            pa.array(rows.frames, pa.int32()),
            pa.array(rows.copies, pa.int16()),
            pa.array(level_db, pa.float32(), mask=np.isnan(level_db)),
            reasons,
        ],
        schema=schema,
    )
