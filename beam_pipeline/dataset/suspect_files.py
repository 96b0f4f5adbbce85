"""The suspects of a run, in its work folder: a file for each.

They outlive the process that found them and the run, so that the same command rejects
these clips at once, on any machine.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from typing import Protocol

from beam_pipeline.dataset.work_folder import SUSPECTS
from beam_pipeline.inputs.sources import Input, locate
from beam_pipeline.plan.suspects import Suspect, Suspects
from beam_pipeline.storage import files


class Excluding(Protocol):
    """Limits, which a suspect of an earlier run may or may not pass."""

    def exclude(self, suspect: Suspect) -> bool: ...


def write_suspect(suspect: Suspect, work_folder: str) -> None:
    """Adds a suspect to those of a run."""
    content = json.dumps(suspect._asdict(), indent=2).encode()
    files.write_bytes(_path_of(suspect, work_folder), content)


def read_suspects(work_folder: str) -> Suspects:
    """Returns the suspects of a run."""
    return Suspects(_stored(work_folder))


def changed_ns_of(suspect_path: str) -> int:
    """Returns when a file was last changed; 0 if it is gone or its time unknown."""
    try:
        return files.changed_ns(suspect_path)
    except FileNotFoundError:
        return 0


def drop_cleared(
    work_folder: str,
    inputs: Sequence[Input],
    limits: Excluding,
) -> None:
    """Deletes the suspects of an earlier run that deserve another try.

    These are clips whose file has changed since, and those that passed a limit which
    is higher now.
    """
    for suspect in list(_stored(work_folder)):
        path = locate(inputs, suspect.source, suspect.filepath)
        if changed_ns_of(path) != suspect.changed_ns or not limits.exclude(suspect):
            files.delete([_path_of(suspect, work_folder)])


def _stored(work_folder: str) -> Iterator[Suspect]:
    folder = files.join(work_folder, SUSPECTS)
    if not files.is_folder(folder):
        return
    for name in files.list_files(folder):
        yield Suspect(**json.loads(files.read_bytes(files.join(folder, name))))


def _path_of(suspect: Suspect, work_folder: str) -> str:
    digest = hashlib.blake2b(repr(suspect.fault).encode(), digest_size=16)
    return files.join(work_folder, SUSPECTS, f"{digest.hexdigest()}.json")
