"""A manifest without leaks and doubles, from what an audit has found.

::

    clips --same file, group, audio; overlapping, similar--> components: a group each
    clips with the same samples and class --drop_doubles--> the first of them

A data set does not know where its inputs are. The caller names them, as for ``record``.
Without them, the manifest is for ``convert``, which decodes nothing.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from beam_pipeline.dataset.side_by_side import Folders
from beam_pipeline.errors import OptionError
from beam_pipeline.inputs.rows import (
    FILE_SHA256,
    MANIFEST_FIELDS,
    SKETCH_FIELDS,
    part_in_seconds,
)
from beam_pipeline.inputs.splits import GROUP_SEPARATOR
from beam_pipeline.permutation import Integers
from beam_pipeline.read.audit import (
    AUDIO,
    alike,
    read_clips,
    shared_numbers,
)
from beam_pipeline.read.similarity import components_of
from beam_pipeline.read.table import input_roots
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files

_PART = ("start", "frames", "sample_rate_hz", "native_frames", "native_sample_rate_hz")


class Written(NamedTuple):
    """What :func:`write_clean_manifest` has written; ``str`` says it in words.

    Attributes
    ----------
    clips, groups : int
    dropped : int
        Doubles that were left out.
    mixed : int
        Clips with the same samples as others of another class. All of them are written,
        in one group, because only a person knows which class is right.
    """

    clips: int
    groups: int
    dropped: int
    mixed: int

    def __str__(self) -> str:
        text = (
            f"{self.clips:,} clips in {self.groups:,} groups, "
            f"{self.dropped:,} doubles left out"
        )
        if self.mixed:
            text += (
                f"; {self.mixed:,} clips have the same samples as a clip of another "
                "class: correct their classes, or delete them"
            )
        return text


def write_clean_manifest(
    records: Folders,
    manifest: str | os.PathLike[str],
    input: str | os.PathLike[str] | Sequence[str | os.PathLike[str]] | None = None,
    *,
    group_by: str | None = None,
    drop_doubles: bool = False,
) -> Written:
    """Writes a manifest of a data set's clips, with a group for all that is alike.

    Recorded with ``group_by="group"``, no two splits have a file, a group or audio in
    common. The columns are ``path``, ``group``, ``class`` if the data set has classes,
    ``start_s``, ``duration_s`` and ``channel`` if clips are parts of files, and the
    extra columns of the data set.

    Parameters
    ----------
    records : path or sequence of paths
        A finished data set, or several that belong together.
    manifest : path
        A new file: ``.csv`` or ``.parquet``. Paths of files below its folder are
        relative to it, all others are absolute.
    input : path or sequence of paths, optional
        What the data set was recorded from, as for ``record``. Default: the manifest is
        for ``labels`` and ``drop`` of :func:`.convert`. Its paths are those of the data
        set, and doubles are not left out, but marked in a column ``drop``.
    group_by : str, optional
        See :func:`.audit.audit`.
    drop_doubles : bool
        Keeps only the first clip, in the order of the inputs, of those with the same
        samples in all windows and the same class.

    Raises
    ------
    InputError
        If there is no such data set, or the inputs are not those of it.
    OptionError
        If the manifest exists or has another suffix, or a column is missing.
    """
    text = os.fspath(manifest)
    target = files.absolute(text)
    if not text.lower().endswith((".csv", ".parquet")):
        raise OptionError("write_manifest", "must end in .csv or .parquet", text)
    if files.exists(target):
        raise OptionError("write_manifest", "must be a new file, but exists", text)
    data, table = read_clips(records, group_by, whole=True)
    numbers, _ = shared_numbers(table, has_groups=group_by is not None)
    samples = numbers[AUDIO]
    keep, sets = np.ones(len(table), np.bool_), alike(samples, table)
    several = np.array(sets["mixed"], np.bool_)
    mixed = int(sets["clips"].to_numpy()[several].sum())
    if drop_doubles:
        clear = sets["number"].to_numpy()[~several]
        order = np.argsort(table["index"].to_numpy())
        _, firsts = np.unique(samples[order], return_index=True)
        keep = ~np.isin(samples, clear)
        keep[order[firsts]] = True
    components = components_of(list(numbers.values()))
    recipe = data.metadata.recorded_with
    assert recipe is not None
    roots = None if input is None else input_roots(input, table)
    made = _clean_table(table, components, target, roots, recipe)
    for_convert = made.append_column("drop", [~keep])
    _write(for_convert if roots is None else made.filter(keep), target)
    kept = int(keep.sum())
    return Written(kept, len(np.unique(components[keep])), len(keep) - kept, mixed)


def _clean_table(
    table: Any,
    components: Integers,
    target: str,
    roots: Sequence[str] | None,
    recipe: Recipe,
) -> Any:
    import pyarrow as pa

    paths, inputs = (table[name].to_pylist() for name in ("path", "input"))
    if roots is not None:
        below = target.rpartition("/")[0].rstrip("/") + "/"
        paths = [
            files.join(roots[number], path).removeprefix(below)
            for number, path in zip(inputs, paths, strict=True)
        ]
    made: dict[str, Any] = {"path": pa.array(paths, pa.string())}
    if roots is None and any(inputs):
        made["input"] = table["input"]
    made["group"] = _group_names(table, components)
    if table["class"].null_count < len(table):
        made["class"] = table["class"]
    parts = [
        part_in_seconds(*row)
        for row in zip(*(table[name].to_pylist() for name in _PART), strict=True)
    ]
    if any(part != (0.0, None) for part in parts):
        starts, lengths = zip(*parts, strict=True)
        made["start_s"] = pa.array(starts, pa.float64())
        made["duration_s"] = pa.array(lengths, pa.float64())
    # A channel that the recipe takes of all clips, it takes again.
    of_recipe = isinstance(recipe.channels, int)
    if not of_recipe and table["channel"].null_count < len(table):
        made["channel"] = table["channel"]
    ours = {*MANIFEST_FIELDS, *SKETCH_FIELDS, *made}
    if recipe.hash_files:
        ours.add(FILE_SHA256)
    made.update((n, table[n]) for n in table.column_names if n not in ours)
    return pa.table(made)


def _group_names(table: Any, components: Integers) -> Any:
    """Returns the name of each clip's component.

    It is that of the recorded group, if all of its clips are in one; then their split
    stays. Otherwise it is the first path.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    columns = {"component": components, "path": table["path"], "group": table["group"]}
    found = pa.table(columns).group_by("component", use_threads=False)
    every = pc.CountOptions(mode="all")
    found = found.aggregate(
        [("path", "min"), ("group", "min"), ("group", "count_distinct", every)]
    )
    groups = pc.replace_substring(found["group_min"], GROUP_SEPARATOR, ", ")
    alone = pc.equal(found["group_count_distinct"], 1)
    names = pc.coalesce(pc.if_else(alone, groups, None), found["path_min"])
    return names.take(pc.index_in(pa.array(components), found["component"]))


def _write(table: Any, target: str) -> None:
    """Writes a manifest, which appears when it is whole.

    Raises
    ------
    OptionError
        If it is CSV, which cannot hold the values of a column as they are.
    """
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    is_csv = target.lower().endswith(".csv")
    for name, kind in zip(table.schema.names, table.schema.types, strict=True):
        if is_csv and (pa.types.is_list(kind) or pa.types.is_binary(kind)):
            raise OptionError(
                "write_manifest",
                f"must end in .parquet, because the column {name} is of type {kind}, "
                "which CSV cannot hold",
                target,
            )
    with files.replacing(target) as file:
        (pa.csv.write_csv if is_csv else pa.parquet.write_table)(table, file)
