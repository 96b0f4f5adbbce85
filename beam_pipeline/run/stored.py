"""Elements that one phase of a run on this machine stores for the next one."""

from __future__ import annotations

import glob
import os
import pickle
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from beam_pipeline.dataset.work_folder import PHASES, delete_all_drafts
from beam_pipeline.errors import IncompleteRun
from beam_pipeline.pipeline.job import Job
from beam_pipeline.storage import files
from beam_pipeline.storage.private_folder import temporary_folder

_MARK = ".run"


@contextmanager
def phase_folder(job: Job) -> Iterator[str]:
    """A new folder on this machine, for elements that later phases read.

    Raises
    ------
    IncompleteRun
        When the block fails and the folder is no longer this run's, see
        :func:`check_ours`.
    """
    with ExitStack() as stack:
        if files.is_local(job.work_folder):
            phases = files.join(job.work_folder, PHASES)
            # An interrupted run may have left files here. Finished shards are
            # elsewhere. If that run is alive on another machine, it has to notice: its
            # mark goes first.
            files.delete(glob.glob(os.path.join(glob.escape(phases), f"*{_MARK}")))
            files.delete_below(phases)
            delete_all_drafts(job.work_folder)  # the disk may be full
        else:
            phases = stack.enter_context(temporary_folder())
        folder = files.join(phases, uuid.uuid4().hex)
        files.make_folder(folder)
        files.write_bytes(folder + _MARK, b"")
        try:
            yield folder
        except Exception:
            check_ours(folder)
            raise


def check_ours(folder: str) -> None:
    """Checks that nobody has deleted files of a phase's folder while the run used it.

    Raises
    ------
    IncompleteRun
        If what was read from it may be incomplete.
    """
    if not files.exists(folder + _MARK):
        work = os.path.dirname(os.path.dirname(folder))
        raise IncompleteRun(
            f"The work folder {work} was deleted while this run used it, or a run on "
            "another machine uses it, too. Wait until no other run writes there. Then "
            "give the same command again to continue."
        )


class ElementFile:
    """A new file of elements in a phase's folder, under a name."""

    def __init__(self, folder: str, name: str):
        folder = os.path.join(folder, name)
        os.makedirs(folder, exist_ok=True)
        self._path = os.path.join(folder, uuid.uuid4().hex)
        self._file = open(self._path, "wb")  # noqa: SIM115

    def extend(self, elements: Sequence[Any]) -> None:
        with files.writing(self._path):
            for element in elements:
                pickle.dump(element, self._file, pickle.HIGHEST_PROTOCOL)

    def close(self) -> None:
        with files.writing(self._path):
            self._file.close()


def stored(folder: str, name: str) -> Iterator[Any]:
    """The elements that earlier phases have stored under a name."""
    for path in sorted(glob.glob(os.path.join(glob.escape(folder), name, "*"))):
        with open(path, "rb") as file:
            while file.peek(1):
                yield pickle.load(file)
