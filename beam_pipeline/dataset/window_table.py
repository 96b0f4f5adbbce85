"""``windows.parquet``: one row for each planned window of a data set.

The rows have the order of the examples. Windows that were left out have a row, too,
with the reason. Where a clip's examples are together, the first ``windows`` rows belong
to the manifest's first clip, and so on. Where examples are mixed, each row names its
clip.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

import numpy as np

from beam_pipeline.dataset.clip_windows import CLIP
from beam_pipeline.plan.shards import ShardInfo
from beam_pipeline.storage.gzip_members import unpack_columns
from beam_pipeline.storage.parquet import create_parquet
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
        clip       int64    if examples are mixed: ``index`` of the clip in the manifest
    """
    infos = iter(infos)
    first = next(infos, None)
    schema = _schema(are_mixed=first is not None and bool(first.clips))
    with create_parquet(
        path,
        schema,
        use_dictionary=["left_out"],
        column_encoding={
            "start": "DELTA_BINARY_PACKED",
            "frames": "DELTA_BINARY_PACKED",
            "copy": "DELTA_BINARY_PACKED",
            "level_db": "BYTE_STREAM_SPLIT",
            **({CLIP: "DELTA_BINARY_PACKED"} if CLIP in schema.names else {}),
        },
    ) as writer:
        waiting: list[ShardInfo] = []
        count = 0
        for info in () if first is None else chain([first], infos):
            waiting.append(info)
            count += info.shard.examples
            if count >= _ROW_GROUP:
                writer.write_table(_table(waiting, schema))
                waiting, count = [], 0
        if waiting:
            writer.write_table(_table(waiting, schema))


def _schema(are_mixed: bool) -> Any:
    import pyarrow as pa

    return pa.schema(
        {
            "start": pa.int64(),
            "frames": pa.int32(),
            "copy": pa.int16(),
            "level_db": pa.float32(),
            "left_out": pa.dictionary(pa.int8(), pa.string()),
            **({CLIP: pa.int64()} if are_mixed else {}),
        }
    )


def _table(infos: Sequence[ShardInfo], schema: Any) -> Any:
    import pyarrow as pa

    rows = join_rows(WindowRows.unpack(info.windows) for info in infos)

    level_db = levels_db(rows.levels)
    reasons = pa.DictionaryArray.from_arrays(
        pa.array(rows.left_out - 1, pa.int8(), mask=np.equal(rows.left_out, 0)),
        pa.array(LEFT_OUT[1:], pa.string()),
    )
    clips = []
    if CLIP in schema.names:
        found = [unpack_columns(info.clips, 1)[0] for info in infos]
        clips = [pa.array(np.concatenate(found), pa.int64())]
    return pa.Table.from_arrays(
        [
            pa.array(rows.starts, pa.int64()),
            pa.array(rows.frames, pa.int32()),
            pa.array(rows.copies, pa.int16()),
            pa.array(level_db, pa.float32(), mask=np.isnan(level_db)),
            reasons,
            *clips,
        ],
        schema=schema,
    )
