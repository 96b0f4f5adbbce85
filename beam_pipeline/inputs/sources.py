"""Sources: what each ``input`` is, and where its files are.

An input is a folder, a glob, one file, a text file of paths, or a manifest. Each input
has a root, the folder that names of files are relative to, so that the same data give
the same examples after a move.

A file may have the names ``x.wav``, ``./x.wav`` and its absolute path, and links may
lead to it. For splits, these are one file with one key: its path relative to the root
of the input, so that the key stays the same if the data move. The key of a file outside
of all roots is the first name that the inputs give it.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import permutations

from beam_pipeline.errors import InputError
from beam_pipeline.inputs.table_files import Column, Table, is_manifest
from beam_pipeline.storage import files

LIST_SUFFIX = ".txt"

_WILDCARD = re.compile(r"[*?\[]")

FOLDER, GLOB, FILE, LIST, TABLE = "folder", "glob", "file", "list", "table"


@dataclass(frozen=True, slots=True)
class Input:
    """One of the inputs.

    Attributes
    ----------
    kind, location, root : str
        What it is, its path, and the folder that its names are relative to.
    split : str
        The split of all its clips, if it was given as ``train=FOLDER``; else empty.
    table : Table or None
        The format of a manifest.
    columns : tuple of (str, ColumnType)
        Name and type of each column that examples hold, and of the targets.
    in_memory : bool
        Whether its rows were given in memory; ``location`` is a temporary file then.
    """

    kind: str
    location: str
    root: str
    split: str = ""
    table: Table | None = None
    columns: tuple[Column, ...] = ()
    in_memory: bool = False


def resolve_input(text: str) -> Input:
    """Finds out what one ``input`` is.

    An existing path is used as it is, even if it contains ``*``, ``?`` or ``[``. Only
    other paths may be globs; in object stores, any path with these characters is one.

    Raises
    ------
    InputError
        If the text is empty, or no file or folder has this path.
    """
    if not text:
        raise InputError("`input` is empty. Give a folder, a glob or a file.")
    path = files.absolute(text)
    suffix = os.path.splitext(path)[1].lower()
    is_glob = _WILDCARD.search(path) is not None
    may_exist = files.is_local(path) or not is_glob
    if may_exist and files.is_folder(path):
        return Input(FOLDER, path, path)
    if may_exist and files.exists(path):
        folder = path.rpartition("/")[0] or "/"
        if is_manifest(path):
            return Input(TABLE, path, folder)
        return Input(LIST if suffix == LIST_SUFFIX else FILE, path, folder)
    if is_glob:
        return Input(GLOB, path, _glob_root(path))
    raise InputError(f"{text}: there is no such file or folder. Check `input`.")


def resolve_inputs(texts: Sequence[str]) -> list[Input]:
    """Finds out what each input is; no two may have files in common.

    Raises
    ------
    InputError
        If there is no input, one does not exist, two overlap, or only some have splits.
    """
    if not texts:
        raise InputError("There is nothing to read. Give at least one `input`.")
    inputs = [_resolve_named(text) for text in texts]
    without = [entry.location for entry in inputs if not entry.split]
    if without and len(without) < len(inputs):
        raise InputError(
            f"`input` {without[0]} has no split, but other inputs have one. Give all "
            "inputs as SPLIT=INPUT, or give all inputs without SPLIT."
        )
    given = zip(inputs, texts, strict=True)
    for (outer, around), (inner, text) in permutations(given, 2):
        is_other = inner.kind in (LIST, TABLE) and inner.kind != outer.kind
        if not is_other and _is_inside(inner, outer):
            raise InputError(
                f"`input` {text} is inside `input` {around}, so its files would be "
                "recorded twice. Give only one of the two."
            )
    return inputs


def _resolve_named(text: str) -> Input:
    """Resolves an input that may have the form ``SPLIT=INPUT``."""
    split, equals, rest = text.partition("=")
    if not equals or not split.isidentifier() or files.exists(files.absolute(text)):
        return resolve_input(text)
    return replace(resolve_input(rest), split=split)


def _is_inside(inner: Input, outer: Input) -> bool:
    """Whether the paths alone show that all files of one input are in the other."""
    if outer.kind != FOLDER:
        return inner.location == outer.location
    below = inner.root if inner.kind == GLOB else inner.location
    return files.is_inside(below, outer.location)


def locate(inputs: Sequence[Input], source: int, filepath: str) -> str:
    """Returns the path of a row's file."""
    return files.join(inputs[source].root, filepath)


def _glob_root(pattern: str) -> str:
    """Returns the folder above the first wildcard."""
    return _WILDCARD.split(pattern)[0].rpartition("/")[0] or "/"


# Which file a name means, however it is written

# A listing names the files of a folder one after the other, or nearly so.
FOLDERS_HELD = 1 << 16


class FileIdentities:
    """Finds the file that a name below a root means.

    Parameters
    ----------
    roots : sequence of str
        The folders that names are relative to.
    """

    def __init__(self, roots: Sequence[str]):
        real = {os.path.realpath(root) for root in roots if files.is_local(root)}
        # The innermost first.
        self._roots = sorted(real, key=len, reverse=True)
        # A row needs its file's path, then its key, and the test for a link may be a
        # request over the network.
        self._found = functools.lru_cache(maxsize=1)(self._find)
        self._folder = functools.lru_cache(FOLDERS_HELD)(self._find_folder)
        self._outside: dict[str, str] = {}

    def key(self, root: str, name: str) -> str:
        """Returns the key of the file that a name below a root means.

        Examples
        --------
        >>> identities = FileIdentities(["/sounds"])
        >>> [identities.key("/sounds", name) for name in ("./a.wav", "/sounds/a.wav")]
        ['a.wav', 'a.wav']
        """
        return self._found(root, name)[1]

    def path(self, root: str, name: str) -> str:
        """Returns the real path of the file that a name below a root means."""
        return self._found(root, name)[0]

    def _find(self, root: str, name: str) -> tuple[str, str]:
        """Returns a file's path and its key."""
        if not files.is_local(root) or not files.is_local(name):
            path = files.join(root, name)
            return path, path.removeprefix(root.rstrip("/") + "/")
        folder, base = _parted(name)
        path, key = self._folder(root, folder)
        path, key = f"{path}/{base}", f"{key}{base}"
        if not os.path.islink(path):
            return path, self._outside.get(path, key)
        real = os.path.realpath(path)
        if real not in self._outside:
            folder, _, base = real.rpartition("/")
            if folder in self._outside:
                self._outside[real] = f"{self._outside[folder]}/{base}"
        return real, self._key_of(real, key)

    def _find_folder(self, root: str, folder: str) -> tuple[str, str]:
        """Returns a folder's path, and what comes before a name in a file's key."""
        path = os.path.join(root, folder)
        with suppress(ValueError):  # a name with a NUL in it names no folder
            path = os.path.realpath(path)
        spelt = os.path.normpath(folder) if folder else ""
        key = self._key_of(path, "" if spelt == "." else spelt)
        return path.rstrip("/"), f"{key}/" if key not in ("", "/") else key

    def _key_of(self, path: str, spelt: str) -> str:
        """Returns the key of a real path; ``spelt`` if this is its first name."""
        for root in self._roots:
            if path == root:
                return ""
            if path.startswith(root.rstrip("/") + "/"):
                return path[len(root.rstrip("/")) + 1 :]
        return self._outside.setdefault(path, spelt)


def _parted(name: str) -> tuple[str, str]:
    """Returns a name's folder and the rest; ``.`` and ``..`` are part of the folder."""
    folder, slash, base = name.rpartition("/")
    if base in ("", ".", ".."):
        name = os.path.normpath(name)
        folder, slash, base = name.rpartition("/")
    return folder or slash, base


def normal_path(root: str, name: str) -> str:
    """Returns a file's path in its normal spelling: ``x.wav`` for ``./x.wav``."""
    path = files.join(root, name)
    # Most paths are normal already, and normpath costs more than this whole check.
    may_differ = "/." in path or "//" in path or path.endswith("/")
    return os.path.normpath(path) if may_differ and files.is_local(path) else path
