"""Sources: which files are meant, what they are called, and what is known of them.

An input is a folder, a glob, one file, a text file of paths, or a manifest. Each has a
root, the place that names are relative to, so that the same data give the same examples
wherever they lie.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from beam_pipeline import files
from beam_pipeline.beam_files import glob_regex
from beam_pipeline.errors import InputError, RecipeError
from beam_pipeline.events import EventTable
from beam_pipeline.manifests import (
    Table,
    column_types,
    is_manifest,
    open_table,
    read_rows,
)
from beam_pipeline.places import Places
from beam_pipeline.recipe import GROUP_SEPARATOR, Recipe, comma_list
from beam_pipeline.rows import (
    FLOAT32,
    STRING,
    Layout,
    RowReader,
    SourceRow,
    named_groups,
)

# What libsndfile may decode, and what people keep beside it and would miss in silence:
# those become rejects with a reason.
_AUDIO_NAMES = """
    wav wave bwf rf64 w64 flac ogg oga opus mp3 mp2 mpga aif aiff aifc au snd caf sph
    nist voc paf svx ircam wve sds m4a m4b mp4 aac ac3 alac amr ape awb dsf dff dts mka
    mpc ra shn spx tak tta webm weba wma wv 3gp
"""
AUDIO_SUFFIXES = frozenset(f".{name}" for name in _AUDIO_NAMES.split())
LIST_SUFFIX = ".txt"

_WILDCARD = re.compile(r"[*?\[]")

FOLDER, GLOB, FILE, LIST, TABLE = "folder", "glob", "file", "list", "table"


@dataclass(frozen=True, slots=True)
class Input:
    """One ``--input``.

    Attributes
    ----------
    kind, location, root : str
        What it is, where it is, and what its names are relative to.
    split : str
        The split of all its clips, if it was given as one's: ``train=FOLDER``.
    table : Table or None
        How a manifest is read.
    columns : tuple of (str, str)
        Name and type of each column that goes into examples, and of the targets.
    in_memory : bool
        Its rows were given in memory and have been written down.
    """

    kind: str
    location: str
    root: str
    split: str = ""
    table: Table | None = None
    columns: tuple[tuple[str, str], ...] = ()
    in_memory: bool = False


def resolve_input(text: str) -> Input:
    """What a person meant by one ``--input``.

    A path that exists is taken literally, whatever characters are in it; only then is
    it a glob.

    Raises
    ------
    InputError
        If nothing is there, or it is a manifest.
    """
    if not text:
        raise InputError("--input is empty. Give a folder, a glob or a file.")
    path = files.absolute(text)
    suffix = os.path.splitext(path)[1].lower()
    is_glob = _WILDCARD.search(path) is not None
    if not files.is_local(path) and is_glob:
        return Input(GLOB, path, _glob_root(path))
    if files.is_folder(path):
        return Input(FOLDER, path, path)
    if files.exists(path):
        folder = path.rpartition("/")[0] or "/"
        if is_manifest(path):
            return Input(TABLE, path, folder)
        return Input(LIST if suffix == LIST_SUFFIX else FILE, path, folder)
    if is_glob:
        return Input(GLOB, path, _literal_root(path))
    raise InputError(f"{text}: there is no such file or folder. Check --input.")


def resolve_inputs(texts: Sequence[str]) -> list[Input]:
    """Every input; no folder may lie inside another input, or files count twice.

    Raises
    ------
    InputError
        If there is no input, one cannot be resolved, or two overlap.
    """
    if not texts:
        raise InputError("There is nothing to read: give at least one --input.")
    inputs = [_resolve_named(text) for text in texts]
    without = [entry.location for entry in inputs if not entry.split]
    if without and len(without) < len(inputs):
        raise InputError(
            f"--input {without[0]} has no split, but others have. Give every one as "
            "SPLIT=INPUT, or none."
        )
    for i, outer in enumerate(inputs):
        for j, inner in enumerate(inputs):
            by_hand = inner.kind in (LIST, TABLE)
            if i == j or (by_hand and inner.kind != outer.kind):
                continue
            if not _is_inside(inner, outer):
                continue
            raise InputError(
                f"--input {texts[j]} lies inside --input {texts[i]}: its files would "
                "be taken twice. Give only one of the two."
            )
    return inputs


def _resolve_named(text: str) -> Input:
    """An input, perhaps as ``SPLIT=INPUT``."""
    split, equals, rest = text.partition("=")
    if not equals or not split.isidentifier() or files.exists(files.absolute(text)):
        return resolve_input(text)
    return replace(resolve_input(rest), split=split)


def _is_inside(inner: Input, outer: Input) -> bool:
    """Whether all files of one input are surely files of the other, too."""
    if outer.kind != FOLDER:
        return inner.location == outer.location
    below = inner.root if inner.kind == GLOB else inner.location
    folder = outer.location
    if files.is_local(below) and files.is_local(folder):
        below, folder = os.path.realpath(below), os.path.realpath(folder)
    return (below.rstrip("/") + "/").startswith(folder.rstrip("/") + "/")


def locate(inputs: Sequence[Input], source: int, filepath: str) -> str:
    """Where a row's file is."""
    return files.join(inputs[source].root, filepath)


def list_sources(
    inputs: Sequence[Input], recipe: Recipe, before: Before | None = None
) -> Iterator[SourceRow | None]:
    """Every clip of every input, in order; None for each file that is ignored.

    From folders: the files with an audio suffix, in any case; other and hidden files
    are ignored. From globs, single files, lists and manifests: everything.

    A folder's file that is also reached by a link is listed twice, as people mean it
    who link a file into several classes; both are in the same split.

    Of files that the table of events calls alike, only those after the first can have
    that as their problem; ``before`` tells of it at the end.
    """
    events = EventTable.of(recipe)
    before = before or Before(inputs, recipe, events)
    row = 0
    for source, entry in enumerate(inputs):
        reader = row_reader(source, entry, recipe, before.places)
        for found in _rows(entry, reader, row):
            if found is not None:
                found = before.check(found)
                row += 1
            yield found
    for name in events.by_name if events is not None else ():
        if name not in before.named:
            problem = f"has events in {recipe.events}, but is not among the inputs"
            yield SourceRow(row, 0, name, None, problem)
            row += 1


class Before:
    """What rows before have said, so that none says it twice, or otherwise.

    Folders that do not overlap name a file once; what was put together by hand may not,
    and a row of a manifest may be another part of the same file. Of these, and where
    each input has its split, hashes are remembered.
    """

    def __init__(
        self, inputs: Sequence[Input], recipe: Recipe, events: EventTable | None
    ):
        self.places = Places([entry.root for entry in inputs])
        self.named: dict[str, str] = {}  # in the table of events -> whose they are
        self.alike: dict[str, str] = {}  # of these -> another file that is called so
        self._inputs = inputs
        self._events = events
        self._by_hand = any(entry.kind != FOLDER for entry in inputs)
        self._has_splits = any(entry.split for entry in inputs)
        self._has_groups = recipe.group_by is not None
        self._parts: dict[int, int] = {}
        self._files: dict[int, int] = {}
        self._groups: dict[int, int] = {}
        self._splits: dict[str, str] = {}  # of a group
        self._file_splits: dict[int, str] = {}

    def check(self, row: SourceRow) -> SourceRow:
        """The row with its file's number, or with its problem."""
        watched = self._by_hand or self._has_splits or self._has_groups
        if not watched and self._events is None:
            return row
        place = self.places.place(self._inputs[row.source].root, row.filepath)
        problem = row.problem
        if self._by_hand and problem is None:
            # Two links to a file are two names for it, which is no mistake.
            path = _written(self._inputs[row.source].root, row.filepath)
            part = (path, row.offset_s, row.duration_s, row.channel)
            first = self._parts.setdefault(hash(part), row.row)
            if first != row.row:
                problem = f"is listed twice: it is clip {first} from 0, too"
        if watched and row.problem is None:
            file = self._files.setdefault(hash(place), row.row)
            if file != row.row:
                row = row._replace(file=file)
        if self._has_splits and problem is None:
            split = self._file_splits.setdefault(hash(place), row.split)
            if split != row.split:
                problem = (
                    f"is in the split {row.split}, but the same file is in {split} "
                    "before: a file is in one split"
                )
        if self._has_groups and problem is None:
            problem = self._grouped_otherwise(row)
        if self._events is not None:
            alike = self._named_alike(row, place, self._events)
            problem = problem or alike
        return row if problem == row.problem else row._replace(problem=problem)

    def _grouped_otherwise(self, row: SourceRow) -> str | None:
        """Whether its file is in another group, or its group in another split."""
        group = row.group.replace(GROUP_SEPARATOR, ", ")
        if self._groups.setdefault(row.file, hash(row.group)) != hash(row.group):
            return (
                f"is of the group {group}, but clip {row.file} from 0, a part of the "
                "same file, is of another: a file is in one group"
            )
        split = self._splits.setdefault(row.group, row.split) if row.split else ""
        if split != row.split:
            return (
                f"is in the split {row.split}, but its group {group} is in {split} "
                "before: a group is in one split"
            )
        return None

    def _named_alike(
        self, row: SourceRow, place: str, events: EventTable
    ) -> str | None:
        """Whether the events' table calls another file the same."""
        name = events.name_of(row.filepath)
        if name is None or self.named.setdefault(name, place) == place:
            return None
        self.alike.setdefault(name, place)
        return events.unclear(name, self.named[name])


def row_reader(source: int, entry: Input, recipe: Recipe, places: Places) -> RowReader:
    """What turns an input's names or rows into clips.

    Raises
    ------
    RecipeError
        If the recipe names a column that the input has not.
    """
    layout = layout_of(entry, recipe)
    return RowReader(
        source, entry.root, layout, dict(entry.columns), recipe, places, entry.split
    )


def layout_of(entry: Input, recipe: Recipe) -> Layout:
    """Which of an input's columns is what."""
    if entry.table is not None:
        return Layout.of(entry.table.names, recipe, entry.location, is_table=True)
    groups = named_groups(recipe)
    return Layout.of(groups, recipe, entry.location, is_table=False)


def _rows(entry: Input, reader: RowReader, first: int) -> Iterator[SourceRow | None]:
    if entry.table is not None:
        for row, (number, values) in enumerate(read_rows(entry.table), first):
            yield reader.of_values(row, number, values)
        return
    row = first
    for filepath, taken in _list_input(entry):
        yield reader.of_name(row, filepath) if taken else None
        row += taken


def survey(inputs: Sequence[Input], recipe: Recipe) -> list[Input]:
    """The inputs, with the columns that their clips bring, and the types of these.

    Manifests are read through once, a batch of rows at a time.

    Raises
    ------
    InputError
        If a manifest cannot be read, or two inputs bring different columns.
    RecipeError
        If the recipe names a column that is not there.
    """
    ways = ("splits", "folds", "split_column")
    named = any(entry.split for entry in inputs)
    for way in (n for n in ways if getattr(recipe, n) is not None):
        if named:
            raise RecipeError(
                way, "decides splits, and so does --input SPLIT=INPUT; give one",
                getattr(recipe, way),
            )  # fmt: skip
    decided = named or any(getattr(recipe, way) is not None for way in ways)
    if recipe.group_by is not None and not decided:
        raise RecipeError(
            "group_by",
            "needs --splits, --folds, --split-column or an input for each split",
            recipe.group_by,
        )
    surveyed = []
    for entry in inputs:
        if entry.kind == TABLE:
            names = recipe.column_names
            table = open_table(
                entry.location,
                recipe.delimiter,
                None if names is None else comma_list(names),
            )
            entry = replace(entry, table=table)
        layout = layout_of(entry, recipe)
        types = dict.fromkeys(layout.extra, STRING)
        if entry.table is not None and layout.extra:
            types = column_types(entry.table, layout.extra)
        columns = [*types.items(), *((name, FLOAT32) for name in layout.targets)]
        surveyed.append(replace(entry, columns=tuple(columns)))
    for entry in surveyed[1:]:
        if entry.columns != surveyed[0].columns:
            first, other = (
                ", ".join(f"{name} ({dtype})" for name, dtype in each.columns) or "none"
                for each in (surveyed[0], entry)
            )
            raise InputError(
                f"{surveyed[0].location} brings the columns {first}, but "
                f"{entry.location} brings {other}; examples need the same. Choose some "
                "with --columns, or none."
            )
    return surveyed


def labelled_rows(
    inputs: Sequence[Input], classes: Mapping[str, str]
) -> list[list[dict[str, str]]]:
    """A row with path and class for each file of each input.

    Parameters
    ----------
    classes : mapping
        From names, written as people like, below the input's root or absolute.

    Raises
    ------
    InputError
        If an input is a table or has no file, or a name is none of their files'.
    """
    missing = dict(classes)
    tables = []
    for entry in inputs:
        if entry.kind == TABLE:
            raise InputError(
                f"{entry.location} is a table, whose classes are in a column: name it "
                "with label_from instead of a mapping."
            )
        by_place: dict[str, str] = {}
        for name in classes:
            place = _written(entry.root, os.fspath(name))
            if by_place.setdefault(place, name) != name:
                raise InputError(
                    f"label_from has {by_place[place]} and {name}, which are one file."
                )
        rows = []
        for name, taken in _list_input(entry):
            if not taken:
                continue
            given = by_place.get(_written(entry.root, name))
            rows.append({"path": name, "class": ""})
            if given is not None:
                rows[-1]["class"] = missing.pop(given, classes[given])
        if not rows:
            raise InputError(f"There is no audio file in {entry.location}.")
        tables.append(rows)
    for name in missing:
        raise InputError(
            f"label_from has a class for {name}, which is not among the files; names "
            f"are relative to {inputs[0].root}, or absolute."
        )
    return tables


def _written(root: str, name: str) -> str:
    """Where a name's file is, in one spelling: ``./x.wav`` is ``x.wav``."""
    path = files.join(root, name)
    # Most are spelt so, and to make sure of it costs more than all else here.
    may_differ = "/." in path or "//" in path or path.endswith("/")
    return os.path.normpath(path) if may_differ and files.is_local(path) else path


def _list_input(entry: Input) -> Iterator[tuple[str, bool]]:
    if entry.kind == FOLDER:
        for name in files.list_files(entry.location):
            yield name, is_audio_name(name)
    elif entry.kind == GLOB:
        for name in _match(entry):
            yield name, True
    elif entry.kind == LIST:
        text = files.read_bytes(entry.location).decode("utf-8-sig", "surrogateescape")
        for line in text.split("\n"):
            if line.strip() and not line.lstrip().startswith("#"):
                path = line.strip(" \t\r")
                yield os.path.normpath(path) if files.is_local(path) else path, True
    else:
        yield entry.location.rpartition("/")[2], True


def _match(entry: Input) -> Iterator[str]:
    """The files that a glob matches, relative to its root, in order."""
    below = len(entry.root.rstrip("/")) + 1
    # Not left to Beam: it would take the root for a part of the pattern.
    matches = glob_regex(entry.location[below:]).fullmatch
    return (name for name in files.list_files(entry.root) if matches(name))


def is_audio_name(name: str) -> bool:
    """Whether a file below a folder is meant: an audio suffix, and nothing hidden."""
    if name.startswith(".") or "/." in name:
        return False
    return os.path.splitext(name)[1].lower() in AUDIO_SUFFIXES


def _glob_root(pattern: str) -> str:
    """The folder above the first wildcard."""
    return _WILDCARD.split(pattern)[0].rpartition("/")[0] or "/"


def _literal_root(pattern: str) -> str:
    """The longest part of a local pattern that is a folder, or holds no wildcard."""
    root = pattern.rpartition("/")[0]
    while _WILDCARD.search(root) and not os.path.isdir(root):
        root = root.rpartition("/")[0]
    return root or "/"
