"""The SHA-256 of the files of clips, as ``sha256sum`` prints it."""

from __future__ import annotations

import hashlib
from collections import OrderedDict

from beam_pipeline.errors import UnreadableAudio
from beam_pipeline.marks import Marks
from beam_pipeline.storage import files

_BLOCK_BYTES = 1 << 20
# Rows of one file are mostly close to each other.
_MOST_KNOWN = 1024


class FileHashes:
    """Hashes of files; those of the last files are known, so parts cost nothing."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int], str] = OrderedDict()

    def of(self, path: str, name: str) -> str:
        """Returns the SHA-256 of a file, in hexadecimal.

        Parameters
        ----------
        name : str
            Name of the file in errors.

        Raises
        ------
        UnreadableAudio
            The file cannot be read.
        """
        try:
            key = path, files.changed_ns(path)
            found = self._known.get(key)
            if found is None:
                found = self._known[key] = _sha256(path)
        except OSError as error:
            raise UnreadableAudio(name, f"cannot be hashed: {error}") from error
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        return found


def _sha256(path: str) -> str:
    digest = hashlib.sha256()
    with files.open_read(path) as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            Marks.progress()
    return digest.hexdigest()
