"""Sources: which files are meant, what they are called, and their classes.

An input is a folder, a glob, one file, or a text file of paths. Each has a root, the
place that names are relative to, so that the same data give the same examples wherever
they lie.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from beam_pipeline import files
from beam_pipeline.beam_files import glob_regex
from beam_pipeline.errors import InputError

# What libsndfile may decode, and what people keep beside it and would miss in silence:
# those become rejects with a reason.
_AUDIO_NAMES = """
    wav wave bwf rf64 w64 flac ogg oga opus mp3 mp2 mpga aif aiff aifc au snd caf sph
    nist voc paf svx ircam wve sds m4a m4b mp4 aac ac3 alac amr ape awb dsf dff dts mka
    mpc ra shn spx tak tta webm weba wma wv 3gp
"""
AUDIO_SUFFIXES = frozenset(f".{name}" for name in _AUDIO_NAMES.split())
MANIFEST_SUFFIXES = frozenset([".csv", ".tsv", ".json", ".jsonl", ".parquet"])
LIST_SUFFIX = ".txt"

_WILDCARD = re.compile(r"[*?\[]")

FOLDER, GLOB, FILE, LIST = "folder", "glob", "file", "list"


@dataclass(frozen=True, slots=True)
class Input:
    """One ``--input``: its kind, where it is, and what its names are relative to."""

    kind: str
    location: str
    root: str


class SourceRow(NamedTuple):
    """One clip as it was listed.

    Attributes
    ----------
    row : int
        Its place in the listing over all inputs, from 0.
    source : int
        Which input it came from.
    filepath : str
        Its name in the examples: ``/``-separated, relative to the input's root.
    label : str or None
        Its class.
    problem : str or None
        Why it cannot be taken, if the name alone shows that.
    """

    row: int
    source: int
    filepath: str
    label: str | None
    problem: str | None = None


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
        if suffix in MANIFEST_SUFFIXES:
            raise InputError(
                f"{text}: {suffix} manifests are not read yet. Give a folder, a glob, "
                "audio files, or a .txt file with one path on each line."
            )
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
    inputs = [resolve_input(text) for text in texts]
    for i, outer in enumerate(inputs):
        for j, inner in enumerate(inputs):
            if i == j or inner.kind == LIST != outer.kind:
                continue
            if not _is_inside(inner, outer):
                continue
            raise InputError(
                f"--input {texts[j]} lies inside --input {texts[i]}: its files would "
                "be taken twice. Give only one of the two."
            )
    return inputs


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
    inputs: Sequence[Input], label_from: str
) -> Iterator[SourceRow | None]:
    """Every clip of every input, in order; None for each file that is ignored.

    From folders: the files with an audio suffix, in any case; other and hidden files
    are ignored. From globs, single files and lists: everything.
    """
    label = Labeler(label_from)
    # Folders that do not overlap name a file once; what was put together by hand may
    # not, and is small enough to be remembered.
    by_hand = any(entry.kind != FOLDER for entry in inputs)
    first: dict[str, int] = {}
    row = 0
    for source, entry in enumerate(inputs):
        for filepath, taken in _list_input(entry):
            if not taken:
                yield None
                continue
            found = label.row(row, source, filepath, entry.root)
            if by_hand:
                before = first.setdefault(locate(inputs, source, filepath), row)
                if before != row:
                    problem = f"was listed before, as clip {before} from 0"
                    found = found._replace(problem=problem)
            yield found
            row += 1


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


class Labeler:
    """Reads a clip's class off its name. ``label_from`` as in the recipe."""

    def __init__(self, label_from: str):
        self._from = label_from
        known = label_from in ("folder", "name", "none")
        self._pattern = None if known else re.compile(label_from)

    def row(self, row: int, source: int, filepath: str, root: str) -> SourceRow:
        """The listed row, with its class or with what is wrong with its name."""
        try:
            filepath.encode()
        except UnicodeEncodeError:
            shown = filepath.encode(errors="surrogateescape").decode(
                errors="backslashreplace"
            )
            problem = "its name is not valid UTF-8; rename it"
            return SourceRow(row, source, shown, None, problem)
        try:
            return SourceRow(row, source, filepath, self.label(filepath, root))
        except ValueError as error:
            return SourceRow(row, source, filepath, None, str(error))

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


def _glob_root(pattern: str) -> str:
    """The folder above the first wildcard."""
    return _WILDCARD.split(pattern)[0].rpartition("/")[0] or "/"


def _literal_root(pattern: str) -> str:
    """The longest part of a local pattern that is a folder, or holds no wildcard."""
    root = pattern.rpartition("/")[0]
    while _WILDCARD.search(root) and not os.path.isdir(root):
        root = root.rpartition("/")[0]
    return root or "/"
