"""The modules that recipes name, as ``package.module:name``."""

from __future__ import annotations

import importlib
import sys
from types import ModuleType

_folders: list[str] = []


def search_last(folder: str) -> None:
    """Lets :func:`import_own` find modules in a folder, after all other places.

    The command line names the current folder here, and only for commands with a recipe
    that the user wrote. Nothing else is ever imported from there: the current folder
    may be a data set from the Internet that holds a ``numpy.py``.
    """
    _folders.append(folder)


def import_own(name: str) -> ModuleType:
    """Imports a module that a recipe names.

    Raises
    ------
    Exception
        Whatever the module's code raises; ImportError if there is no such module.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Of the name itself, and not of what an installed module imports.
        is_missing = f"{name}.".startswith(f"{error.name}.")
        if not is_missing or not _folders:
            raise
    while _folders:
        sys.path.append(_folders.pop())  # it stays, because the module may import more
    importlib.invalidate_caches()
    return importlib.import_module(name)
