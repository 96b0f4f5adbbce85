"""Labels: how a clip's name gives its class."""

from __future__ import annotations

import os
import re
import unicodedata

from beam_pipeline.recipe.sections import LABEL_SOURCES


class Labeler:
    """Reads a clip's class from its name, as the recipe's ``label_from`` says."""

    def __init__(self, label_from: str):
        self._from = label_from
        known = label_from in LABEL_SOURCES
        self._pattern = None if known else re.compile(label_from)

    def groups(self) -> tuple[str, ...]:
        """Returns the named groups of the expression that are columns."""
        names = () if self._pattern is None else tuple(self._pattern.groupindex)
        return tuple(name for name in names if name != "class")

    def values(self, filepath: str) -> dict[str, str]:
        """Returns what these groups match in a name; empty text without a match."""
        if self._pattern is None:
            return {}
        match = self._pattern.search(filepath)
        found = {} if match is None else match.groupdict()
        return {name: found.get(name) or "" for name in self.groups()}

    def label(self, filepath: str, root: str) -> str | None:
        """Returns the class of a clip, from its name below a root.

        ================== ========================= ===========
        label_from         filepath                  class
        ================== ========================= ===========
        folder             ``sea/tug/01.wav``        ``tug``
        folder             ``01.wav`` in ``/x/tug``  ``tug``
        name               ``12_24346_tug.wav``      ``tug``
        ``(?P<class>\\d)_``  ``7_theo_3.wav``          ``7``
        none               anything                  None
        ================== ========================= ===========

        Raises
        ------
        ValueError
            If the name has no class.
        """
        folder, _, name = filepath.rpartition("/")
        stem = os.path.splitext(name)[0]
        if self._from == "none":
            return None
        if self._from == "folder":
            return (folder or root.rstrip("/")).rpartition("/")[2]
        if self._pattern is None:
            label = stem.rpartition("_")[2] if "_" in stem else ""
            if not label:
                raise ValueError(
                    "has no class: its name has no text after an underscore; give "
                    "`label_from` folder, none or a regular expression"
                )
            return label
        match = self._pattern.search(filepath)
        if match is None or not match["class"]:
            raise ValueError(
                f"has no class: its path relative to the input does not match "
                f"{self._pattern.pattern}"
            )
        return match["class"]


def named_groups(label_from: str) -> tuple[str, ...]:
    """Returns the columns that the expression in ``label_from`` reads from names."""
    try:
        return Labeler(label_from).groups()
    except re.error:  # a column's name
        return ()


def reads_names(label_from: str) -> bool:
    """Whether classes come from names of files; otherwise, from a column."""
    if label_from in LABEL_SOURCES:
        return True
    try:
        return "class" in re.compile(label_from).groupindex
    except re.error:
        return False


def composed(text: str) -> str:
    """Returns text in Unicode's form NFC: file systems spell accents in two ways."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def label_parts(label: str, separator: str) -> list[str]:
    """Returns the classes in a label, sorted, each once.

    Raises
    ------
    ValueError
        If one of them is empty.
    """
    parts = sorted({part.strip() for part in label.split(separator)})
    if "" in parts:
        raise ValueError(f"has an empty class in {label!r}")
    return parts
