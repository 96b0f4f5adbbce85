"""Functions and classes of the script or notebook that runs: named, found, shipped.

::

    peak   --name_of-->   __main__:peak@3f2a...     in the recipe: data
           --ByValue-->   the code, pickled         to other processes of the run alone

A name is found only in a process to which the object itself was given: by the person,
or by the process that started this one. No name is ever looked up in a script, so a
recipe from a stranger cannot choose one of its functions; and no code is read from a
data set.
"""

from __future__ import annotations

import operator
import os
import pickle
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from io import BytesIO
from types import FunctionType
from typing import Any, NamedTuple

from beam_pipeline.transforms.code_hash import MAIN, UnknownCode, code_sha256

_NAME = re.compile(rf"\b{MAIN}:[\w.]+@[0-9a-f]{{64}}")


def by_value(value: Any) -> bytes:
    """Pickles a value, with the classes and functions of the caller's script in it."""
    from apache_beam.internal.cloudpickle import cloudpickle

    return bytes(cloudpickle.dumps(value))


class _Given(NamedTuple):
    """A function or class, and the process in which it may change; None: in none."""

    code: Any
    process: int | None


_given: dict[str, _Given] = {}


def name_of(code: Any) -> str:
    """Names a function or a class of the script, so that this process finds it again.

    Returns
    -------
    str
        ``__main__:name@SHA-256``, see :func:`.code_sha256`.

    Raises
    ------
    UnknownCode
        If it has no such hash, or if its name is that of something else by now.
    """
    qualified = code.__qualname__
    if not isinstance(code, FunctionType | type):
        raise UnknownCode(
            f"{qualified} is of type {type(code).__name__}, but it must be a function "
            "or a class"
        )
    try:
        found = operator.attrgetter(qualified)(sys.modules[MAIN])
    except AttributeError:
        found = None
    if found is not code:
        raise UnknownCode(
            f"another object now has the name {qualified}; if a cell was run again, "
            "pass the new one"
        )
    name = f"{MAIN}:{qualified}@{code_sha256(code)}"
    _given[name] = _Given(code, os.getpid())
    return name


def find(name: str) -> Any:
    """Returns the function or class of a name.

    Raises
    ------
    LookupError
        If it was not given to this process, or has changed since. Says what to do.
    UnknownCode
        If it has changed so that it has no hash.
    """
    qualified, _, sha256 = name.removeprefix(f"{MAIN}:").partition("@")
    if not sha256:
        raise LookupError(
            f"{name} is a name in a script or a notebook, and text cannot say which "
            f"code that is; in Python, pass {qualified} itself"
        )
    code, process = _given.get(name, (None, None))
    if code is not None and (process != os.getpid() or code_sha256(code) == sha256):
        return code
    if any(known.startswith(f"{MAIN}:{qualified}@") for known in list(_given)):
        raise LookupError(
            f"the code of {qualified}, or a value that it uses, has changed since it "
            "was recorded or given; pass what was recorded"
        )
    raise LookupError(
        f"{qualified} was defined in a script or a notebook, and the recipe has its "
        f"name and its SHA-256, not its code; in Python, pass {qualified} again, to "
        f"record() as before, to verify() as functions=[{qualified}]; or "
        "move it into a module and record again"
    )


def code_in(texts: Iterable[str]) -> dict[str, Any]:
    """Returns the functions and classes that texts name, as far as they were given."""
    names = (name for text in texts for name in _NAME.findall(text))
    return {name: _given[name].code for name in names if name in _given}


@dataclass(frozen=True)
class ByValue:
    """Pickled in the place of a value, brings the code of the script that it needs.

    Unpickling returns the value itself. A process that was given some code already
    keeps its own: unpickled again, a class would take the place of the person's.
    """

    value: Any

    def __reduce__(self) -> tuple[Any, ...]:
        file = BytesIO()
        _Pickler(file, pickle.HIGHEST_PROTOCOL).dump(self.value)
        return pickle.loads, (file.getvalue(),)


class _Pickler(pickle.Pickler):
    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, FunctionType | type) and value.__module__ == MAIN:
            for name, given in list(_given.items())[::-1]:
                if given.code is value:
                    return _receive, (name, by_value(value))
        return NotImplemented


def _receive(name: str, pickled: bytes) -> Any:
    if name not in _given:
        _given[name] = _Given(pickle.loads(pickled), None)
    return _given[name].code
