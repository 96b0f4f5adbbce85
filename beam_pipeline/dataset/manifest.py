"""``manifest.parquet``: one row for each clip of a data set."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from beam_pipeline.inputs.column_values import (
    BYTES,
    FLOAT32,
    FLOAT64,
    STRING,
    Column,
    ColumnType,
)
from beam_pipeline.inputs.columns import (
    FILE_SHA256,
    FINGERPRINT_FIELDS,
    MANIFEST_FIELDS,
)
from beam_pipeline.plan.segments import PlacedClips
from beam_pipeline.plan.shards import ShardLayout
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.recipe.sections import Audio
from beam_pipeline.storage.parquet import in_groups, read_parquet, write_parquet

# In the schema of the file: who reads it with other tools sees only names.
_DESCRIPTIONS = {
    "first_index": "planned: the number of its first window in the split, among all "
    "planned windows. Where windows were left out, examples have other numbers; "
    "windows.parquet says which windows are in the data set",
    "windows": "planned: its rows in windows.parquet, with those that were left out",
}
_RESERVED_FIELDS = {*MANIFEST_FIELDS, *FINGERPRINT_FIELDS}
_ROW_GROUP = 1 << 16


class ManifestPart(NamedTuple):
    """The rows of one bucket of clips.

    Attributes
    ----------
    clips, windows : int
        Number of rows, and the sum of their planned windows.
    rows : tuple of tuple
        In the order of :func:`manifest_fields`.
    """

    clips: int
    windows: int
    rows: tuple[tuple[Any, ...], ...]


def manifest_fields(
    audio: Audio, columns: Sequence[Column] = ()
) -> dict[str, ColumnType | int]:
    """Returns name and type of each column; a number is the length of binary values.

    ``columns`` are those that the clips bring, by name and type. A name that is taken
    gets an underscore at its end. float32 columns are float64 here, so that no digit of
    the input is lost.
    """
    fields: dict[str, ColumnType | int] = {
        name: ColumnType(dtype) for name, dtype in MANIFEST_FIELDS.items()
    }
    if audio.fingerprint:
        fields.update(FINGERPRINT_FIELDS)
    if audio.hash_files:
        fields[FILE_SHA256] = ColumnType(STRING)
    reserved = {*_RESERVED_FIELDS, *fields}
    names = {name for name, _ in columns}
    for name, kind in columns:
        free = name
        while free in reserved or (free != name and free in names):
            free += "_"
        is_short = kind.dtype == FLOAT32
        fields[free] = kind._replace(dtype=FLOAT64) if is_short else kind
    return fields


def make_manifest_part(
    placed: PlacedClips,
    layouts: Mapping[str, ShardLayout],
    recipe: Recipe,
) -> ManifestPart:
    """Returns the rows of one bucket. Some columns:

    file : the index of the first clip that was listed of the same file
    start, frames : the part of the file that the clip is, at the output rate
    channel : the channel that is taken; null if all are
    group : the values of the ``group_by`` columns, separated by U+001F
    first_index : the number of the clip's first window among the planned windows of
        its split
    windows : its number of planned windows, copies included; less than the clip has if
        ``num_elems`` cuts them off

    Both are those of the plan: the audio decides later which windows are left out.
    """
    total = layouts[placed.split].total
    has_groups = bool(recipe.group_by)
    rows, index, planned = [], placed.first_window, 0
    for clip in placed.clips:
        channel = recipe.channels if clip.channel is None else clip.channel
        prints = clip.content or None, clip.sketch or None
        hashes = (clip.sha256 or None,) if recipe.hash_files else ()
        windows = max(0, min(clip.examples, total - index))
        rows.append(
            (
                clip.filepath,
                clip.source,
                clip.file,
                clip.row,
                clip.label,
                clip.split,
                clip.group if has_groups else None,
                clip.start,
                clip.frames,
                clip.sample_rate_hz,
                clip.channels,
                channel if isinstance(channel, int) else None,
                clip.native_frames,
                clip.native_rate_hz,
                clip.format,
                clip.subtype,
                index,
                windows,
                *(prints if recipe.fingerprint else ()),
                *hashes,
                *clip.columns,
            )
        )
        index += clip.examples
        planned += windows
    return ManifestPart(len(rows), planned, tuple(rows))


def write_manifest(
    path: str,
    parts: Iterable[ManifestPart],
    fields: Mapping[str, ColumnType | int],
) -> None:
    """Writes ``manifest.parquet``: one row for each clip, in the order of the examples.

    Parameters
    ----------
    parts : iterable
        In the order of the examples.
    fields : mapping
        See :func:`manifest_fields`.
    """
    import pyarrow as pa

    schema = pa.schema(
        [
            pa.field(name, arrow_type(kind), metadata=_described(name))
            for name, kind in fields.items()
        ]
    )
    groups = in_groups(parts, attrgetter("clips"), _ROW_GROUP)
    write_parquet(path, schema, (_table(group, schema) for group in groups))


def arrow_type(kind: ColumnType | int) -> Any:
    """Returns the type of a column, see :func:`manifest_fields`."""
    import pyarrow as pa

    if isinstance(kind, int):
        return pa.binary(kind)
    single = pa.binary() if kind.dtype == BYTES else getattr(pa, kind.dtype)()
    return pa.list_(single) if kind.shape else single


def _described(name: str) -> dict[str, str] | None:
    text = _DESCRIPTIONS.get(name)
    return None if text is None else {"description": text}


def _table(parts: Sequence[ManifestPart], schema: Any) -> Any:
    import pyarrow as pa

    columns = zip(*(row for part in parts for row in part.rows), strict=True)
    return pa.Table.from_arrays(
        [pa.array(values, t) for values, t in zip(columns, schema.types, strict=True)],
        schema=schema,
    )


def recorded_formats(path: str) -> set[str]:
    """Returns the formats of the clips in a manifest; empty for those a table lists."""
    return set(read_parquet(path, ["format"]).column(0).unique().to_pylist())
