"""Places: which file a name means, whatever way it is written.

A file may be called ``x.wav``, ``./x.wav`` or by its absolute path, and be reached by
links. For splits all that is one file, with one key: its name relative to the folder
that names are relative to, so that the key is the same wherever the data lie. A file
outside of all such folders has the first name that it was called by.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Sequence
from contextlib import suppress

from beam_pipeline.storage import files


class FileIdentities:
    """Finds the files that names below some roots mean."""

    def __init__(self, roots: Sequence[str]):
        real = {os.path.realpath(root) for root in roots if files.is_local(root)}
        # The innermost first.
        self._roots = sorted(real, key=len, reverse=True)
        self._folders: dict[tuple[str, str], tuple[str, str]] = {}
        # A row's place and key are asked for one after the other, and to see whether a
        # file is a link is a request on a network.
        self._found = functools.lru_cache(maxsize=1)(self._find)
        self._outside: dict[str, str] = {}

    def key(self, root: str, name: str) -> str:
        """What stands for the file that a name below a root means.

        Examples
        --------
        >>> places = Places(["/sounds"])
        >>> [places.key("/sounds", name) for name in ("./a.wav", "/sounds/a.wav")]
        ['a.wav', 'a.wav']
        """
        return self._found(root, name)[1]

    def place(self, root: str, name: str) -> str:
        """Where that file is."""
        return self._found(root, name)[0]

    def _find(self, root: str, name: str) -> tuple[str, str]:
        """Where a file is, and its key."""
        if not files.is_local(root) or not files.is_local(name):
            path = files.join(root, name)
            return path, path.removeprefix(root.rstrip("/") + "/")
        folder, base = _parted(name)
        place, key = self._folder(root, folder)
        path, key = f"{place}/{base}", f"{key}{base}"
        if not os.path.islink(path):
            return path, self._outside.get(path, key)
        real = os.path.realpath(path)
        if real not in self._outside:
            folder, _, base = real.rpartition("/")
            if folder in self._outside:
                self._outside[real] = f"{self._outside[folder]}/{base}"
        return real, self._key_of(real, key)

    def _folder(self, root: str, folder: str) -> tuple[str, str]:
        """Where a folder is, and what stands for it before a name in it."""
        found = self._folders.get((root, folder))
        if found is None:
            place = os.path.join(root, folder)
            with suppress(ValueError):  # no folder's name: there is a NUL in it
                place = os.path.realpath(place)
            spelt = os.path.normpath(folder) if folder else ""
            key = self._key_of(place, "" if spelt == "." else spelt)
            found = place.rstrip("/"), f"{key}/" if key not in ("", "/") else key
            self._folders[root, folder] = found
        return found

    def _key_of(self, place: str, spelt: str) -> str:
        for root in self._roots:
            if place == root:
                return ""
            if place.startswith(root.rstrip("/") + "/"):
                return place[len(root.rstrip("/")) + 1 :]
        return self._outside.setdefault(place, spelt)


def _parted(name: str) -> tuple[str, str]:
    """The folder and the rest of a name; ``..`` and the like belong to the folder."""
    folder, slash, base = name.rpartition("/")
    if base in ("", ".", ".."):
        name = os.path.normpath(name)
        folder, slash, base = name.rpartition("/")
    return folder or slash, base
