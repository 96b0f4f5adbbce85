"""Every error that this package raises on purpose, and whose fault an error is.

::

    AudioTFRecordsError
    ├── OptionError          a keyword or a flag, or its value, is wrong
    │   ├── RecipeError      an option of the recipe, or a transform's parameter
    │   └── UnknownOption    no option has this name
    ├── InputError           inputs that cannot be listed or used together
    ├── OutputError          an output folder that must not be touched
    ├── ClipError            one clip cannot become examples; becomes a reject
    │   ├── UnreadableAudio  no decoder opens it, or decoding fails in the middle
    │   ├── Unreadable       the machine failed when it was read; it may be good
    │   ├── EmptyAudio       it opens and holds no frames
    │   ├── TruncatedAudio   its header declares more frames than it holds
    │   ├── NonFiniteAudio   it holds NaN or infinite samples
    │   ├── ShortClip        it is shorter than one window
    │   ├── UnusableEntry    its name, its row or its events cannot be used
    │   ├── TransformError   a transform failed on its windows
    │   ├── ClipCrash        work on it ended the process that did it
    │   └── ClipTimeout      work on it took longer than the time limit
    ├── ExampleError         a method of an Example failed
    │   └── UnstorableAttribute  an attribute's value is not of its declared type
    ├── TooManyRejected      more rejects than the run allows
    ├── IncompleteRun        the written shards differ from the plan
    ├── StoreError           an object store does not answer, or refuses a request
    │   └── DiskError        a disk or a mount fails to read a file
    ├── EngineError          an engine of Beam is not reachable or not installed
    ├── WorkerDied           a worker process ended before its work did
    ├── DamagedRecord        a shard does not hold the example that it should
    └── VerificationError    a data set differs from its metadata

``DataSetWarning`` is a warning, and is outside the tree.

Errors keep their fields in ``args`` and format them when they are printed, because
pickle rebuilds an exception from its ``args`` when it crosses from one process to
another. PyTorch rebuilds it from its message instead; it then has the message only.
"""

from __future__ import annotations

import difflib
import errno
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from typing import TypeVar

from beam_pipeline.text import hidden, shown

# So many words are compared with one that is not known.
_COMPARED = 10_000


class AudioTFRecordsError(Exception):
    """Root of the tree; ``exit_status`` is what the command line returns for it."""

    exit_status = 1

    def __str__(self) -> str:
        return self.told({})

    def told(self, flags: Mapping[str, str]) -> str:
        """Returns the message, with the names of options spelled as these flags."""
        if len(self.args) == 1 and isinstance(self.args[0], str):
            # A message, also of an error that had other fields.
            return hidden(spelled(self.args[0], flags))
        return hidden(self._message(flags))

    def _message(self, flags: Mapping[str, str]) -> str:
        """Returns the message of an error that has fields."""
        return spelled(super().__str__(), flags)

    def _render_traceback_(self) -> list[str]:
        """Returns what IPython shows in place of the traceback: the message."""
        return [f"{type(self).__name__}: {self}"]


class DataSetWarning(UserWarning):
    """A plan or a data set is as asked for, but probably not as meant."""


class OptionError(AudioTFRecordsError, ValueError):
    """``OptionError(option, problem[, value])``: a keyword or flag, or its value.

    Problems name other options in backticks, ```win_len```; the command line shows
    them as flags.
    """

    exit_status = 2

    def _message(self, flags: Mapping[str, str]) -> str:
        option, problem, *value = self.args
        # Such as "encodings: signal", a part of an option.
        named, colon, part = str(option).partition(": ")
        words = named.split(" ")
        if all(word in flags or word in ("and", "or") for word in words):
            named = " ".join(flags.get(word, word) for word in words)
        got = f"; got {shown(value[0], 1000)}" if value else ""
        return f"{named}{colon}{part}: {spelled(problem, flags)}{got}"


class UnknownOption(OptionError):
    """``UnknownOption(option, hint)``: no option has this name."""

    def _message(self, flags: Mapping[str, str]) -> str:
        option, hint = self.args
        return f"no option {option}; {hint}"


class RecipeError(OptionError):
    """``RecipeError(option, problem, value)``: an option that decides the data."""


class InputError(AudioTFRecordsError):
    """``InputError(message)``."""

    exit_status = 2


class OutputError(AudioTFRecordsError):
    """``OutputError(message)``."""

    exit_status = 2


class ClipError(AudioTFRecordsError):
    """``ClipError(path, reason)``: one clip cannot become examples, and why.

    ``seconds`` is how much audio it has; None if its header could not be read.
    """

    seconds: float | None = None

    @property
    def path(self) -> str:
        return str(self.args[0])

    @property
    def reason(self) -> str:
        return str(self.args[-1])

    def _message(self, flags: Mapping[str, str]) -> str:
        return f"{self.path}: {self.reason}"


class UnreadableAudio(ClipError):
    """No decoder opens the file, or decoding fails in the middle."""


class Unreadable(ClipError):
    """The machine, its network or a store failed at the clip, which may be good."""


class EmptyAudio(ClipError):
    """The file opens and holds no frames."""


class TruncatedAudio(ClipError):
    """The header declares more frames than the file holds."""


class NonFiniteAudio(ClipError):
    """The file holds NaN or infinite samples."""


class ShortClip(ClipError):
    """The clip is shorter than one window."""


class UnusableEntry(ClipError):
    """The clip's name, its row in a manifest or its events cannot be used."""


class TransformError(ClipError):
    """A transform failed on this clip's windows."""


class ClipCrash(ClipError):
    """Decoding the clip, or a step on its windows, ended the process."""


class ClipTimeout(ClipError):
    """Decoding the clip, or a step on its windows, took longer than the limit."""


class ExampleError(AudioTFRecordsError):
    """``ExampleError(example, problem)``: which example, and what happened."""

    def _message(self, flags: Mapping[str, str]) -> str:
        example, problem = self.args
        return f"{example}: {problem}"


class UnstorableAttribute(ExampleError, TypeError):
    """``UnstorableAttribute(example, problem)``: the problem names the attribute."""


class TooManyRejected(AudioTFRecordsError):
    """``TooManyRejected(message)``."""

    exit_status = 3


class IncompleteRun(AudioTFRecordsError):
    """``IncompleteRun(message)``: the message names the shards that differ."""


class StoreError(AudioTFRecordsError):
    """``StoreError(path, reason[, advice])``: the store failed, not the file."""

    def _message(self, flags: Mapping[str, str]) -> str:
        path, reason, *advice = self.args
        again = "Check the address and the network. Then give the command again."
        hint = advice[0] if advice else again
        return f"{path}: {reason}. {hint}"


class DiskError(StoreError):
    """``DiskError(path, reason, advice)``: the machine failed to read a local file."""


class EngineError(AudioTFRecordsError):
    """``EngineError(message)``: the job was not started."""


class WorkerDied(AudioTFRecordsError):
    """``WorkerDied(message[, traceback])``."""

    def _message(self, flags: Mapping[str, str]) -> str:
        return str(self.args[0])


class DamagedRecord(AudioTFRecordsError, ValueError):
    """``DamagedRecord(path, offset, example, problem)``.

    The offset is where the example's member, or the example, begins in the file; the
    number of the example counts from the beginning of its split.
    """

    def _message(self, flags: Mapping[str, str]) -> str:
        path, offset, example, problem = self.args
        return (
            f"{path}: example {example}, at byte {offset}, cannot be read: {problem}. "
            "To check every shard, run `audio-tfrecords verify` on the folder."
        )


class VerificationError(AudioTFRecordsError):
    """``VerificationError(problems)``: one line per difference."""

    exit_status = 4

    def _message(self, flags: Mapping[str, str]) -> str:
        (problems,) = self.args
        return "\n".join(problems)


# What a system says of a path, or of the file there: another try would find the same.
# All other numbers of errors are the fault of the machine.
_FAULTS_OF_FILES = {
    errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EISDIR,
    errno.ENAMETOOLONG, errno.ELOOP, errno.EINVAL, errno.ENXIO, errno.ESPIPE,
    errno.EOVERFLOW, errno.EILSEQ,
}  # fmt: skip


def is_of_machine(error: BaseException) -> bool:
    """Whether the machine, its network or a store failed, and not a file.

    So fail a disk (EIO), a mount (ESTALE), limits of open files (EMFILE) and of memory,
    a full disk, a connection, and every request that a store does not answer. The same
    file may be read at the next try. Errors of the system that are not known to be of
    a path or a file count as such: a good file must not be rejected.
    """
    if isinstance(error, OSError) and error.errno is not None:
        return error.errno not in _FAULTS_OF_FILES
    kinds = Unreadable, StoreError, MemoryError, ConnectionError, TimeoutError
    return isinstance(error, kinds)


_T = TypeVar("_T")


def check_answered(result: _T | None) -> _T:
    """Returns what a read of a file gave; raises BlockingIOError for None (EAGAIN).

    The read would have to wait: the machine failed, and the file does not end there.
    """
    if result is None:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
    return result


def read_error(path: str, failed: str, error: BaseException) -> ClipError:
    """Returns the error of a file that cannot be read: the machine's, or its own.

    Parameters
    ----------
    failed : str
        What happened, at the beginning of the reason.
    """
    kind = Unreadable if is_of_machine(error) else UnreadableAudio
    return kind(path, f"{failed}: {getattr(error, 'strerror', None) or error}")


def spelled(text: str, flags: Mapping[str, str]) -> str:
    """Returns a text with the names of options spelled as the flags of a command.

    Texts have the names in backticks: ``needs `sample_rate``` becomes ``needs
    --sample-rate``, and ```tail` = pad`` becomes ``--tail pad``.
    """
    parts = text.split("`")
    for at in range(1, len(parts) - 1, 2):
        flag = flags.get(parts[at])
        if flag is None:
            parts[at] = f"`{parts[at]}`"
        else:
            parts[at] = flag
            if parts[at + 1].startswith(" = "):
                parts[at + 1] = parts[at + 1].removeprefix(" =")
    return "".join(parts) if len(parts) % 2 else "`".join(parts)


@contextmanager
def needing(package: str, what: str) -> Iterator[None]:
    """Makes an InputError, with the remedy, of a package that is not installed."""
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != package:
            raise
        raise InputError(
            f"{what} needs {package}, which is not installed: pip install {package}"
        ) from error


def did_you_mean(word: str, known: Iterable[str], cutoff: float = 0.6) -> str | None:
    """Returns the known word that is closest to this one; None if none is close.

    Of many words, such as the paths of a data set, it compares the first 10,000.
    """
    close = difflib.get_close_matches(word, list(islice(known, _COMPARED)), 1, cutoff)
    return close[0] if close else None


def listed(known: Iterable[str], word: str) -> str:
    """Returns the known words for an error, and which one a wrong word may mean."""
    names = list(known)
    close = did_you_mean(word, names)
    return ", ".join(names) + (f" (did you mean {close}?)" if close else "")


def check_feature(option: str, name: str, known: Iterable[str]) -> None:
    """Raises OptionError if an option names a feature that examples do not have."""
    names = list(known)
    if name not in names:
        need = f"must name features that examples have: {listed(names, name)}"
        raise OptionError(option, need, name)
