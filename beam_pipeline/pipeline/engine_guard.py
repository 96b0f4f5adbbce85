"""The process beside a worker on an engine, which notes at which clip the worker ends.

::

    worker     marks in a file that both map; the text of a fatal signal ---+
    guard      looks at the marks                                           v
               a mark stays for too long: kills the worker          which signal?
               the worker has ended: its clip goes into the work folder

An engine starts a worker again, or the submitter sends the job again; the next worker
reads the note. Without a signal of the processor, nobody knows why a worker has ended:
an engine kills workers, too.

A guard starts in milliseconds: it imports the rest of the package only for a note.
"""

from __future__ import annotations

import ctypes
import faulthandler
import mmap
import os
import pickle
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from typing import TYPE_CHECKING, BinaryIO

from beam_pipeline.process import MarkClock, Marks, WorkerState

if TYPE_CHECKING:
    from beam_pipeline.dataset.job import Job

LOOK_S = 0.2

# How `faulthandler` names the signals.
_FATAL = {
    "Fatal Python error: Segmentation fault": "SIGSEGV",
    "Fatal Python error: Aborted": "SIGABRT",
    "Fatal Python error: Bus error": "SIGBUS",
    "Fatal Python error: Floating": "SIGFPE",
    "Fatal Python error: Illegal instruction": "SIGILL",
}

_STATE_BYTES = ctypes.sizeof(WorkerState)


class Guard:
    """Starts a guard beside this process, for all its threads, once."""

    _starting = threading.Lock()
    _process: subprocess.Popen[bytes] | None = None

    @classmethod
    def begin(cls, job: Job) -> None:
        """Has this process guarded, unless another one watches it already."""
        if job.limit_s is None:
            return
        with cls._starting:
            if not Marks.are_watched():
                cls._process = _start(job, job.limit_s)


def _start(job: Job, limit_s: float) -> subprocess.Popen[bytes]:
    from beam_pipeline.planning.clips import only_one_thread

    with tempfile.TemporaryFile() as file:
        file.write(bytes(_STATE_BYTES))
        file.write(pickle.dumps((job.inputs, job.work_folder, job.claim)))
        file.flush()
        state = _state_in(file)
        state.one_thread = only_one_thread(job.work_folder)
        arguments = os.getpid(), file.fileno(), limit_s
        guard = subprocess.Popen(
            [sys.executable, "-m", __name__, *map(str, arguments)],
            stdin=subprocess.PIPE,
            pass_fds=[file.fileno()],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            start_new_session=True,  # what ends the worker must not end it
        )
    assert guard.stdin is not None
    faulthandler.enable(guard.stdin, all_threads=False)
    Marks.keep_in(state)
    return guard


def _state_in(file: BinaryIO) -> WorkerState:
    return WorkerState.from_buffer(mmap.mmap(file.fileno(), _STATE_BYTES))


def main(worker: int, file: BinaryIO, limit_s: float) -> None:
    """Watches a worker until it has ended."""
    state, clock = _state_in(file), MarkClock(limit_s)
    told, stalled = b"", None
    while os.getppid() == worker:
        if select.select([0], [], [], LOOK_S)[0]:
            text = os.read(0, 1 << 16)
            told += text
            if not text:  # it ends, and its files are closed first
                time.sleep(LOOK_S)
                if os.getppid() == worker:
                    return  # it needs no guard any more
        mark = state.mark()
        if clock.is_overdue(mark) and os.getppid() == worker:
            stalled = mark
            os.kill(worker, signal.SIGKILL)
    while select.select([0], [], [], 0)[0] and (text := os.read(0, 1 << 16)):
        told += text
    os.write(2, told)
    names = [name for text, name in _FATAL.items() if text.encode() in told]
    mark = state.mark()
    if mark is None or not (names or mark == stalled):
        return
    from beam_pipeline.planning.clips import Exits

    file.seek(_STATE_BYTES)
    inputs, work_folder, claim = pickle.loads(file.read())
    exits = Exits(inputs, work_folder, claim, limit_s)
    if state.several:
        exits.want_one_thread()
    else:
        exits.note(mark, names[0] if names else None)


if __name__ == "__main__":
    with open(int(sys.argv[2]), "r+b") as _file:
        main(int(sys.argv[1]), _file, float(sys.argv[3]))
