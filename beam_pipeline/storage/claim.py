"""Who may write into an output: one run at a time, which holds the claim on it.

::

    OUT/_work/claims/3           the claim: a token, and who holds it
    OUT/_work/claims/3-TOKEN/    its files on their way to their places (not in a store)

Claims are numbered, and the highest one counts. A run creates the next number
exclusively: of several runs at once one succeeds, also on machines that share a disk,
and in ``gs://`` and ``s3://``. Other file systems of Beam cannot promise that. What a
run may do depends on the owners of the claims before::

    has given up; or its process or its machine has ended: the run takes the output
        over. It creates the next number, then deletes the claims before and their
        folders
    lives: the run waits PATIENCE_S, then names the owner in an error
    not known, as on another machine or in a store: the run watches the claim for
        WATCH_S. An owner that lives changes it meanwhile. No clocks are compared

An owner that only slept must not go on: its claim is *handed over*, because another
number is higher. So its workers compare number and token before each file gets its
name, and that name comes by a rename out of the folder of the claim. Who takes the
output over deletes that folder first; a rename that is late then fails. A store cannot
rename: a request that was under way may still write one file.

The claim is deleted when nothing is left to continue. In a store it stays as an object
that says it was given up: a delete there cannot depend on who holds it by then.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from typing import ClassVar

from beam_pipeline.errors import AudioTFRecordsError, IncompleteRun, OutputError
from beam_pipeline.storage import files
from beam_pipeline.text import parse_json

WORK_FOLDER = "_work"
# In the work folder of the output, wherever that of the run is.
CLAIMS = "claims"
# In the work folder of the run; see :mod:`beam_pipeline.planning.clips`.
POISON_CLIPS = "poison_clips"

BEAT_S = 5.0
WATCH_S = 30.0
# A run that ends holds its claim a little longer; so do the workers of one that died.
PATIENCE_S = 2.0
# The file of a claim has always this length, so that it is rewritten in place.
_BYTES = 600


@dataclass(frozen=True, slots=True)
class Claim:
    """The claim on an output, as workers need it."""

    output: str = ""
    number: int = 0
    token: str = ""

    @property
    def path(self) -> str:
        """The file that says who holds the claim."""
        return _path_of(self.output, self.number)

    @property
    def folder(self) -> str:
        """The folder out of which files get their names; only on this machine."""
        return f"{self.path}-{self.token}"

    def is_held(self) -> bool:
        """Whether no other run has taken the output over."""
        if not self.token:
            return True
        if max(_numbers(self.output), default=0) != self.number:
            return False
        owner = Owner.parse(_content(self.path))
        return owner is not None and owner.token == self.token

    def check(self) -> None:
        """Raises IncompleteRun if another run has taken the output over."""
        if not self.is_held():
            last = max(_numbers(self.output), default=0)
            now = Owner.parse(_content(_path_of(self.output, last)))
            raise IncompleteRun(
                f"This run no longer holds its claim {self.path}: somebody deleted it, "
                f"or this run did not answer, and another one "
                f"{f'({now}) ' if now else ''}took the output over. Wait until no "
                "other run writes there. Then give the same command again."
            )

    def stage(self, folder: str) -> str:
        """Returns a folder for files that will be moved into another one.

        That is the other one itself, where nothing can be renamed.
        """
        return self.folder if self._renames(folder) else folder

    def move(self, draft: str, target: str) -> None:
        """Gives a finished local file its name, unless the claim is lost."""
        with self._fenced():
            if self._renames(target):
                draft = self._into_folder(draft)
            files.move(draft, target)

    def write(self, path: str, content: bytes) -> None:
        """Writes a whole file, unless the claim is lost."""
        with self._fenced():
            if not self._renames(path):
                files.write_bytes(path, content)
                return
            draft = self._new_path()
            with files.writing(path), open(draft, "wb") as file:
                file.write(content)
            files.move(draft, path)

    def discard(self, path: str, *, is_folder: bool = False) -> None:
        """Deletes a file, or a folder and all in it, unless the claim is lost.

        One that is gone is no error.
        """
        with self._fenced():
            if self._renames(path) and os.path.lexists(path):
                path = self._into_folder(path)
            if is_folder:
                files.delete_below(path)
            else:
                files.delete([path])

    def delete(self) -> None:
        """Deletes the claim and its folder, but for those in a store."""
        if not files.is_local(self.output):
            return
        files.delete_below(self.folder)
        owner = Owner.parse(_content(self.path))
        if owner is not None and owner.token == self.token:
            files.delete([self.path])
        claims = os.path.dirname(self.path)
        delete_empty([claims, os.path.dirname(claims)])

    def end(self) -> None:
        """Deletes the claim if its owner has left the job to an engine."""
        owner = Owner.parse(_content(self.path)) if self.token else None
        if owner is not None and owner.is_gone and self.is_held():
            self.delete()

    def _renames(self, path: str) -> bool:
        """Whether a file gets its name by a rename out of the claim's folder."""
        return bool(self.token) and files.is_local(self.output) and files.is_local(path)

    def _new_path(self) -> str:
        return os.path.join(self.folder, uuid.uuid4().hex)

    def _into_folder(self, path: str) -> str:
        inside = self._new_path()
        try:
            os.rename(path, inside)
        except OSError as error:
            if error.errno != errno.EXDEV:
                raise
            with files.writing(inside):  # a work folder on another disk
                shutil.move(path, inside)
        return inside

    @contextmanager
    def _fenced(self) -> Iterator[None]:
        self.check()
        try:
            yield
        except (FileNotFoundError, OutputError):
            self.check()  # another run has come since, and deleted the folder
            raise


# The claim of a job whose output nobody has claimed, such as a part of a pipeline.
UNCLAIMED = Claim()


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a claim, as its file says.

    Attributes
    ----------
    boot : str
        Another one whenever the machine starts. Empty: not known.
    since : str
        When the claim began; for people.
    beats : int
        Grows while the owner lives.
    is_gone : bool
        Whether the claim was given up. Workers of an engine may still have its token.
    """

    token: str
    host: str
    boot: str
    process: int
    since: str
    beats: int = 0
    is_gone: bool = False

    @classmethod
    def here(cls) -> Owner:
        """This process, with a new token."""
        since = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime())
        host, token = socket.gethostname(), uuid.uuid4().hex
        return cls(token, host, _boot(), os.getpid(), since)

    @classmethod
    def parse(cls, content: bytes | None) -> Owner | None:
        """Returns what the file of a claim says; None if it is gone, or not whole."""
        try:
            return cls(**parse_json(content or b""))
        except (ValueError, TypeError):
            return None

    def to_bytes(self) -> bytes:
        """Returns the file of a claim."""
        return json.dumps(asdict(self)).ljust(_BYTES).encode()

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}, since {self.since}"


def _is_free(path: str, content: bytes) -> bool:
    """Whether an output may be taken over from the owner of a claim."""
    has_ended = _has_ended(path, content)
    return _is_silent(path, content) if has_ended is None else has_ended


def _has_ended(path: str, content: bytes) -> bool | None:
    """Whether the owner of a claim has ended; None if that does not show at once."""
    owner, locked, boot = Owner.parse(content), _is_locked(path), _boot()
    if locked:
        return False
    if owner is None:  # it is being written
        return None
    is_here = owner.boot == boot != ""
    was_here = owner.host == socket.gethostname() and "" != owner.boot != boot
    return owner.is_gone or was_here or (is_here and locked is False) or None


def _is_silent(path: str, content: bytes) -> bool:
    """Whether a claim stays as it is while it is watched, or is given up."""
    deadline = time.monotonic() + WATCH_S
    while time.monotonic() < deadline:
        time.sleep(WATCH_S / 50)
        now = _content(path)
        if now != content:
            owner = Owner.parse(now)
            return now is None or (owner is not None and owner.is_gone)
    return True


def _is_locked(path: str) -> bool | None:
    """Whether a process holds the lock of a claim; None: this does not show."""
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:  # there are no locks here
        return None
    return False


@contextmanager
def claimed(
    output: str, goes_on: Callable[[], bool] = lambda: False
) -> Iterator[Claim]:
    """Claims an output while the block runs.

    Folders that did not exist before are deleted if they are empty at the end.

    Parameters
    ----------
    goes_on : callable
        Asked at the end: whether workers of an engine may still write. Then the claim
        stays until the next run takes it over.

    Raises
    ------
    OutputError
        If a run that lives holds the claim, or the output cannot be written.
    """
    work = files.join(output, WORK_FOLDER)
    if os.path.islink(work):
        raise OutputError(
            f"{work} is a symbolic link, but a run empties its work folder. Delete the "
            "link, or give the folder that it leads to as `work_dir`."
        )
    missing = missing_folders(output)
    try:
        held = _take(output)
        try:
            yield held.claim
        finally:
            held.end(goes_on)
    finally:
        delete_empty(missing)


def has_claims(output: str) -> bool:
    """Whether a run holds the claim on an output, or has left it."""
    return bool(_numbers(output))


def missing_folders(folder: str) -> list[str]:
    """Returns the local folders that have to be made for a folder, innermost first."""
    missing = []
    while files.is_local(folder) and not os.path.isdir(folder):
        missing.append(folder)
        folder = os.path.dirname(folder)
    return missing


def delete_empty(folders: list[str]) -> None:
    """Deletes those of some local folders that hold nothing."""
    for folder in folders:
        with suppress(OSError):  # it holds files, or is gone
            os.rmdir(folder)


def _take(output: str) -> _Held:
    """Takes an output over from the claims before, if all of them are free."""
    deadline = time.monotonic() + PATIENCE_S
    while True:
        before = _claims_on(output)
        living = [
            content
            for number, content in before.items()
            if not _is_free(_path_of(output, number), content)
        ]
        # Another run may be faster, or may be deleting the folder.
        held = None if living else _create(output, max(before, default=0) + 1)
        if held is None:
            if time.monotonic() > deadline:
                owner = Owner.parse(living[-1]) if living else None
                raise OutputError(
                    f"{output} cannot be claimed: another run writes there"
                    f"{f' ({owner})' if owner else ''}, or its work folder cannot be "
                    "made. Wait until that run ends, or give another folder."
                )
            time.sleep(0.05)
            continue
        now = _claims_on(output)
        now.pop(held.claim.number, None)
        if now.items() <= before.items() and held.claim.is_held():
            _delete_others(held.claim)
            return held
        # The claims before are deleted by now, and their numbers begin again.
        held.end()


def _create(output: str, number: int) -> _Held | None:
    """Creates the claim with a number; None if another run was faster."""
    owner = Owner.here()
    claim = Claim(output, number, owner.token)
    if not files.is_local(output):
        is_made = files.create(claim.path, owner.to_bytes())
        # The client repeats a request whose answer was lost.
        is_made = is_made or Owner.parse(_content(claim.path)) == owner
        return _Held(claim, owner, None) if is_made else None
    lock = None
    with files.writing(claim.path):
        try:
            os.makedirs(claim.folder, exist_ok=True)
            lock = os.open(claim.path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o666)
            with suppress(OSError):  # without locks
                fcntl.flock(lock, fcntl.LOCK_EX)
            os.write(lock, owner.to_bytes())
        except OSError as error:
            if lock is not None:
                os.close(lock)
                os.remove(claim.path)
            delete_empty([claim.folder])
            # The other run made it first, or is deleting the folder.
            if isinstance(error, FileExistsError | FileNotFoundError):
                return None
            raise
    return _Held(claim, owner, lock)


def _delete_others(claim: Claim) -> None:
    """Deletes what runs before have left."""
    folder, own = os.path.split(claim.path)
    for name in _names(claim.output):
        is_folder = "-" in name
        if name in (own, os.path.basename(claim.folder)):
            continue
        if is_folder or int(name) < claim.number:
            claim.discard(files.join(folder, name), is_folder=is_folder)


class _Held:
    """A claim that this process holds, its lock and its heartbeat."""

    all: ClassVar[list[_Held]] = []

    def __init__(self, claim: Claim, owner: Owner, lock: int | None):
        self.claim = claim
        self._owner = owner
        self._lock = lock
        self.all.append(self)
        self.beat()

    def beat(self) -> None:
        """Starts the heartbeat."""
        self._resting = threading.Event()
        self._heart = threading.Thread(target=self._beat, name="claim", daemon=True)
        self._heart.start()

    def rest(self) -> None:
        """Stops the heartbeat."""
        self._resting.set()
        self._heart.join()

    def _beat(self) -> None:
        while not self._resting.wait(BEAT_S):
            with suppress(OSError, AudioTFRecordsError):  # it may look dead then
                self._write(replace(self._owner, beats=self._owner.beats + 1))
                if self._lock is not None:
                    os.fsync(self._lock)  # so that other machines see it

    def _write(self, owner: Owner) -> None:
        self._owner = owner
        if self._lock is not None:
            os.pwrite(self._lock, owner.to_bytes(), 0)
        elif self.claim.is_held():
            files.write_bytes(self.claim.path, owner.to_bytes())

    def end(self, goes_on: Callable[[], bool] = lambda: False) -> None:
        """Gives the claim up; its file stays if workers of an engine may go on."""
        self.rest()
        with suppress(OSError, AudioTFRecordsError):  # else the owner is found dead
            self._write(replace(self._owner, is_gone=True))
            if not goes_on():
                self.claim.delete()
        self.all.remove(self)
        if self._lock is not None:
            os.close(self._lock)


def beating() -> int:
    """Returns the number of heartbeats in this process, each of which is a thread."""
    return len(_Held.all)


@contextmanager
def without_heartbeats() -> Iterator[None]:
    """Lets the heartbeats of this process rest while the block forks it."""
    resting = list(_Held.all)
    for held in resting:
        held.rest()
    try:
        yield
    finally:
        for held in resting:
            held.beat()


def _path_of(output: str, number: int) -> str:
    return files.join(output, WORK_FOLDER, CLAIMS, str(number))


def _names(output: str) -> list[str]:
    """The names of the claims, and on this machine of their folders."""
    folder = files.join(output, WORK_FOLDER, CLAIMS)
    if not files.is_local(folder):
        return list(files.list_files(folder))
    with suppress(FileNotFoundError), files.writing(folder):
        return os.listdir(folder)
    return []


def _numbers(output: str) -> list[int]:
    return sorted(int(name) for name in _names(output) if name.isdecimal())


def _claims_on(output: str) -> dict[int, bytes]:
    """Returns the files of all claims by their numbers, in that order."""
    found = {number: _content(_path_of(output, number)) for number in _numbers(output)}
    return {number: text for number, text in found.items() if text is not None}


def _content(path: str) -> bytes | None:
    try:
        return files.read_bytes(path)
    except FileNotFoundError:
        return None


def _boot() -> str:
    """What the start of this machine is called; empty if it is not Linux."""
    with suppress(OSError), open("/proc/sys/kernel/random/boot_id") as file:
        return file.read().strip()
    return ""
