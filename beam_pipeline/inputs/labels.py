"""A clip's class, read off its name."""

from __future__ import annotations

import os
import re
import unicodedata

from beam_pipeline.recipe.clip_sections import LABEL_SOURCES


class Labeler:
    """Reads a clip's class off its name. ``label_from`` as in the recipe."""

    def __init__(self, label_from: str):
        self._from = label_from
        known = label_from in LABEL_SOURCES
        self._pattern = None if known else re.compile(label_from)

    def groups(self) -> tuple[str, ...]:
        """The named groups of the expression that are columns."""
        names = () if self._pattern is None else tuple(self._pattern.groupindex)
        return tuple(name for name in names if name != "class")

    def values(self, filepath: str) -> dict[str, str]:
        """What those groups match in a name; empty where it does not."""
        if self._pattern is None:
            return {}
        match = self._pattern.search(filepath)
        found = {} if match is None else match.groupdict()
        return {name: found.get(name) or "" for name in self.groups()}

    def label(self, filepath: str, root: str) -> str | None:
        """The class of a name below a root.

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
            If the name has no such part.
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
                    "has no class: no text after an underscore in its name; "
                    "use --label-from folder, none or a regular expression"
                )
            return label
        match = self._pattern.search(filepath)
        if match is None or not match["class"]:
            raise ValueError(
                f"has no class: its path does not match {self._pattern.pattern}"
            )
        return match["class"]


def named_groups(label_from: str) -> tuple[str, ...]:
    """The columns that the recipe's expression makes of every name."""
    try:
        return Labeler(label_from).groups()
    except re.error:  # it is a column's name
        return ()


def reads_names(label_from: str) -> bool:
    if label_from in LABEL_SOURCES:
        return True
    try:
        return "class" in re.compile(label_from).groupindex
    except re.error:
        return False


def composed(text: str) -> str:
    """Text with its accents in one spelling, NFC: file systems have two."""
    return text if text.isascii() else unicodedata.normalize("NFC", text)


def label_parts(label: str, separator: str) -> list[str]:
    parts = sorted({part.strip() for part in label.split(separator)})
    if "" in parts:
        raise ValueError(f"has an empty class in {label!r}")
    return parts
