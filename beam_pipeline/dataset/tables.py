"""The tables beside the shards: of clips, of windows, and of rejects.

``manifest.parquet`` has a row for each clip. ``windows.parquet`` has one for each
planned window, in the order of the examples; also for those that were left out, with
the reason. Where a clip's examples are together, the first ``windows`` rows belong to
the manifest's first clip, and so on. Where examples are mixed, each row names its clip.
``rejected.jsonl`` has a line for each reject, whose number a run limits.
"""

from __future__ import annotations

import heapq
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import reduce
from itertools import groupby, islice
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from beam_pipeline.arrays import BYTES, STRING, Integers
from beam_pipeline.dataset.folders import MANIFEST, REJECTED, WINDOWS
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import IncompleteRun, InputError, TooManyRejected, Unreadable
from beam_pipeline.inputs.columns import (
    CONTENT_BYTES,
    FILE_SHA256,
    MANIFEST_FIELDS,
    SKETCH_FIELDS,
)
from beam_pipeline.inputs.table_files import FLOAT32, FLOAT64, Column, ColumnType
from beam_pipeline.recipe.recipe import allowed_rejects
from beam_pipeline.storage import files, pages
from beam_pipeline.text import hidden, parse_json, time_text, typed
from beam_pipeline.write.window_rows import CLIP

if TYPE_CHECKING:
    from beam_pipeline.inputs.listing import ListingSummary
    from beam_pipeline.planning.clips import Reject
    from beam_pipeline.planning.shards import (
        ClipSketch,
        PlacedClips,
        PlanSummary,
        ShardLayout,
    )
    from beam_pipeline.recipe.recipe import Audio, Recipe

_ROW = list(MANIFEST_FIELDS).index("index")
_OF_CLIP = attrgetter(*(field for _, field in MANIFEST_FIELDS.values() if field))
_CLIPS_IN_GROUP = 1 << 16


class ManifestPart(NamedTuple):
    """The rows of one bucket of clips.

    Attributes
    ----------
    windows : int
        The sum of the planned windows of its rows.
    rows : tuple of tuple
        In the order of :func:`manifest_fields`, without ``SKETCH_FIELDS``.
    """

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
        name: ColumnType(dtype) for name, (dtype, _) in MANIFEST_FIELDS.items()
    }
    if audio.hash_files:
        fields[FILE_SHA256] = ColumnType(STRING)
    reserved = {*fields, *SKETCH_FIELDS}
    names = {name for name, _ in columns}
    for name, kind in columns:
        free = name
        while free in reserved or (free != name and free in names):
            free += "_"
        is_short = kind.dtype == FLOAT32
        fields[free] = kind._replace(dtype=FLOAT64) if is_short else kind
    return fields | SKETCH_FIELDS


def make_manifest_part(
    placed: PlacedClips, layouts: Mapping[str, ShardLayout], recipe: Recipe
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
    rows, index, planned = [], placed.first_example, 0
    for clip in placed.clips:
        channel = recipe.channels if clip.channel is None else clip.channel
        shown: dict[str, Any] = {
            "channel": channel if isinstance(channel, int) else None,
            "group": clip.group if recipe.group_by else None,
        }
        hashes = (clip.sha256 or None,) if recipe.hash_files else ()
        windows = max(0, min(clip.examples, total - index))
        of_clip = _OF_CLIP(clip._replace(**shown))
        rows.append((*of_clip, index, windows, *hashes, *clip.columns))
        index += clip.examples
        planned += windows
    return ManifestPart(planned, tuple(rows))


def write_manifest(
    path: str,
    parts: Iterable[ManifestPart],
    fields: Mapping[str, ColumnType | int],
    sketches: Iterable[ClipSketch] = (),
) -> None:
    """Writes ``manifest.parquet``: one row for each clip, in the order of the examples.

    Parameters
    ----------
    parts : iterable
        In the order of the examples.
    fields : mapping
        See :func:`manifest_fields`.
    sketches : iterable of ClipSketch
        In the same order; those of a clip follow each other.
    """
    import pyarrow as pa

    schema = pa.schema([(name, arrow_type(kind)) for name, kind in fields.items()])
    parts = _with_sketches(parts, sketches)
    groups = pages.in_groups(parts, lambda part: len(part.rows), _CLIPS_IN_GROUP)
    pages.write_parquet(
        path, schema, (_manifest_table(group, schema) for group in groups)
    )


def _with_sketches(
    parts: Iterable[ManifestPart], sketches: Iterable[ClipSketch]
) -> Iterator[ManifestPart]:
    """Yields the rows with ``SKETCH_FIELDS``; null for clips that have none."""
    clips = (
        reduce(lambda one, other: one.with_more(other), of_clip)
        for _, of_clip in groupby(sketches, key=attrgetter("row"))
    )
    next_clip = next(clips, None)
    for part in parts:
        rows = []
        for row in part.rows:
            content = sketch = None
            if next_clip is not None and next_clip.row == row[_ROW]:
                content = next_clip.content.to_bytes(CONTENT_BYTES, "big")
                sketch = bytes.fromhex(next_clip.sketch) or None
                next_clip = next(clips, None)
            rows.append((*row, content, sketch))
        yield part._replace(rows=tuple(rows))
    assert next_clip is None, f"{next_clip} is in another order than the manifest"


def arrow_type(kind: ColumnType | int) -> Any:
    """Returns the type of a column, see :func:`manifest_fields`."""
    import pyarrow as pa

    if isinstance(kind, int):
        return pa.binary(kind)
    single = pa.binary() if kind.dtype == BYTES else getattr(pa, kind.dtype)()
    return pa.list_(single) if kind.shape else single


def _manifest_table(parts: Sequence[ManifestPart], schema: Any) -> Any:
    import pyarrow as pa

    columns = zip(*(row for part in parts for row in part.rows), strict=True)
    return pa.Table.from_arrays(
        [pa.array(values, t) for values, t in zip(columns, schema.types, strict=True)],
        schema=schema,
    )


def recorded_formats(path: str) -> set[str]:
    """Returns the formats of the clips in a manifest; empty for those a table lists."""
    return set(pages.read_parquet(path, ["format"]).column(0).unique().to_pylist())


def with_clips(columns: Sequence[str], recipe: Recipe | None) -> list[str]:
    """Returns columns of a table of windows, and the one that :func:`clips_of` needs.

    Parameters
    ----------
    columns : sequence of str
    recipe : Recipe or None
        That of the data set.
    """
    are_mixed = recipe is not None and recipe.examples_are_mixed
    return [*columns, *([CLIP] if are_mixed else [])]


@contextmanager
def belonging_together(folder: str) -> Iterator[None]:
    """Makes an InputError of a ValueError: tables that do not fit each other."""
    try:
        yield
    except ValueError as error:
        raise InputError(
            f"{folder}: {error}. Restore both files, or record the data set again."
        ) from error


def clips_of(windows: Any, manifest: Any) -> Integers:
    """Returns the row of the manifest of each window.

    Parameters
    ----------
    windows : pyarrow.Table
        With ``clip`` if the examples are mixed.
    manifest : pyarrow.Table
        With ``windows``, and with ``index`` if the examples are mixed.

    Raises
    ------
    ValueError
        If the tables do not belong together.
    """
    counts = manifest["windows"].to_numpy()
    if counts.sum() != len(windows):
        raise ValueError(
            f"{WINDOWS} has {len(windows)} rows, but the clips in {MANIFEST} have "
            f"{int(counts.sum())} windows"
        )
    if CLIP not in windows.column_names or not len(windows):
        return np.repeat(np.arange(len(manifest)), counts)
    numbers, found = manifest["index"].to_numpy(), windows[CLIP].to_numpy()
    order = np.argsort(numbers, kind="stable")
    at = np.searchsorted(numbers, found, sorter=order)
    clips: Integers = order[np.minimum(at, len(order) - 1)]
    if (numbers[clips] != found).any():
        raise ValueError(f"{WINDOWS} has windows of other clips than {MANIFEST}")
    return clips


def with_columns(table: Any, columns: Mapping[str, Any]) -> Any:
    """Returns a table with other values in some of its columns, of the same types."""
    import pyarrow as pa

    for name, values in columns.items():
        field = table.schema.field(name)
        at = table.schema.get_field_index(name)
        table = table.set_column(at, field, pa.array(values, field.type))
    return table


def read_table(
    folder: str, name: str, columns: Sequence[str], whole: bool = False
) -> Any:
    """Returns the manifest or the table of windows of a data set.

    Parameters
    ----------
    name : str
        The file in the folder.
    columns : sequence of str
        The columns to read.
    whole : bool
        Whether to read the other columns, too.

    Raises
    ------
    InputError
        If the file cannot be read, or lacks one of the columns.
    """
    path = files.join(folder, name)
    remedy = "Restore it, or record the data set again."
    try:
        table = pages.read_parquet(path, None if whole else columns)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}. {remedy}") from error
    missing = [name for name in columns if name not in table.column_names]
    if missing:
        raise InputError(
            f"{path} is not of this data set: it has no column {missing[0]!r}. {remedy}"
        )
    return table if whole else table.select(list(columns))


NAMED_IN_ERRORS = 5


@dataclass(frozen=True)
class RejectLine:
    """A line of ``rejected.jsonl``."""

    path: str
    stage: str
    error: str
    reason: str
    seconds: float | None


def check_rejects(
    listing: ListingSummary,
    rejects: Collection[Reject],
    max_rejected: str,
    drafts: str = "",
) -> None:
    """Raises TooManyRejected if there are more rejected clips than allowed.

    ``drafts`` is the work folder if the output folder has a data set, which the run
    replaces or adds to: until the run is complete, the list of its rejects is there.
    """
    file = files.join(drafts, REJECTED) if drafts else REJECTED
    before = " Until then, the data set stays as it was before." if drafts else ""
    rejected = count_clips(rejects)
    if rejected > allowed_rejects(max_rejected, listing.clips):
        raise TooManyRejected(
            f"The run rejected {rejected} of {listing.clips} clips, but `max_rejected` "
            f"is {max_rejected}:\n{name_some(rejects, f' in {file}')}\n"
            "All other clips are written. "
            "To accept the data set without the rejected clips, give the same command "
            f"again with `max_rejected` {rejected}.{before}"
        )


def check_readable(
    listing: ListingSummary, rejects: Iterable[Reject], kept: str
) -> None:
    """Raises IncompleteRun if the machine failed at a clip, for this may pass.

    ``kept`` is a sentence that says what was done with all other clips.
    """
    failed = {r.row: r for r in rejects if r.error == Unreadable.__name__}
    if failed:
        raise IncompleteRun(
            f"The disk, the network or the memory failed at {len(failed)} of "
            f"{listing.clips} clips:\n{name_some(failed.values(), '')}\n{kept} To try "
            "the clips above again, give the same command again. If they stay "
            "unreadable, `allow_unreadable` rejects them."
        )


def check_any_accepted(summary: PlanSummary, rejects: Collection[Reject]) -> None:
    """Raises TooManyRejected if no clip is left, whatever ``max_rejected`` allows.

    Raises InputError if all of them are left out.
    """
    from beam_pipeline.planning.shards import left_out_words  # readers do without it

    if summary.listing.clips and not rejects and summary.example_format is None:
        raise InputError(
            f"All {summary.listing.clips} clips are left out: "
            f"{left_out_words(summary.left_out)}. Use a shorter "
            "window, or change `min_seconds`, `max_seconds`, `short_clips`, "
            "`windows_at`, or its `events`."
        )
    lost = sum(reject.examples for reject in rejects)
    planned = sum(layout.total for layout in summary.layouts.values())
    if summary.example_format is None or lost >= planned:
        left_out = left_out_words(summary.left_out)
        raise TooManyRejected(
            f"None of {summary.listing.clips} clips can be recorded:\n"
            f"{name_some(rejects, '')}" + (f"\n  {left_out}" if left_out else "")
        )


def name_some(rejects: Collection[Reject], file: str = f" in {REJECTED}") -> str:
    """The first rejects with their reasons, one line each, for an error.

    ``file`` says where all of them are.
    """
    first = heapq.nsmallest(NAMED_IN_ERRORS, rejects, key=lambda reject: reject.row)
    return first_lines(((r.filepath, r.reason) for r in first), len(rejects), file)


def first_lines(found: Iterable[tuple[str, str]], count: int, more: str = "") -> str:
    """Returns a line for each of the first files and what is wrong with them.

    ``count`` is the number of all of them; ``more`` ends the line of the others.
    """
    lines = [f"  {path}: {why}" for path, why in islice(found, NAMED_IN_ERRORS)]
    if count > NAMED_IN_ERRORS:
        lines.append(f"  ... and {count - NAMED_IN_ERRORS} more{more}")
    return "\n".join(lines)


def count_clips(rejects: Iterable[Reject]) -> int:
    """Returns the number of clips that some rejects are of."""
    return len(np.unique(np.fromiter((reject.row for reject in rejects), np.int64)))


def sort_rejects(rejects: Iterable[Reject]) -> pages.SortedValues[Reject]:
    """Returns rejects in the order of their rows."""
    return pages.SortedValues(lambda r: (r.row, r.shard or "", r.reason), rejects)


def reject_line(reject: Reject) -> bytes:
    """Returns the line of a reject in ``rejected.jsonl``."""
    line = RejectLine(
        reject.filepath,
        reject.stage,
        reject.error,
        hidden(reject.reason),
        reject.seconds,
    )
    return (json.dumps(asdict(line), ensure_ascii=False) + "\n").encode()


def lost_words(seconds: Iterable[float | None]) -> str:
    """Returns how much audio rejects have: `` (1.50 hours, 3 of unknown length)``.

    Empty if there is none.
    """
    found = list(seconds)
    unknown, known = found.count(None), math.fsum(filter(None, found))
    words = [time_text(known)] if known else []
    if unknown:
        words.append(f"{unknown:,} of unknown length")
    return f" ({', '.join(words)})" if words else ""


def write_rejects(path: str, rejects: Iterable[Reject]) -> None:
    """Writes ``rejected.jsonl``: one line for each reject, in the given order."""
    with files.replacing(path) as file:
        file.writelines(map(reject_line, rejects))


def read_rejects(folder: str, name: str = REJECTED) -> list[RejectLine]:
    """Returns the rejects of a data set, as the file lists them.

    Raises
    ------
    InputError
        If the list of rejects is missing or damaged.
    """
    path, rejects = files.join(folder, name), list[RejectLine]()
    try:
        for number, line in enumerate(files.read_bytes(path).splitlines(), 1):
            rejects.append(typed(RejectLine, parse_json(line), f"line {number}"))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {error}. Restore it.") from error
    return rejects


def lost_audio(folder: str, metadata: Metadata) -> str:
    """Returns :func:`lost_words` of a data set's rejects; see :func:`read_rejects`."""
    has_rejects = metadata.recipe is not None and metadata.rejected
    rejects = read_rejects(folder) if has_rejects else []
    return lost_words(reject.seconds for reject in rejects)
