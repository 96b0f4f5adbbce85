"""File identities: which file a name means, however it is written.

A file may have the names ``x.wav``, ``./x.wav`` and its absolute path, and links may
lead to it. For splits, these are one file with one key: its path relative to the root
of the input, so that the key stays the same if the data move. The key of a file outside
of all roots is the first name that the inputs give it.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from contextlib import suppress

from beam_pipeline.storage import files

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
