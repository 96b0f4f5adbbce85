"""A person's own code: modules that recipes name, and what travels by value.

::

    peak   --name_of-->   __main__.peak['3f2a...']   in the recipe: data
           --ByValue-->   the code, pickled          to other processes of the run

Functions and classes of a script or a notebook, lambdas, and what a function has
defined cannot be imported by another process. They are found only in a process to which
the object itself was given: by the person, or by the process that started this one. No
such name is ever looked up, so a recipe from a stranger cannot choose a function of a
script; and no code is read from a data set. The SHA-256 is that of ::

    source text + defaults + closure + the globals that it uses
                                          |
         functions and classes of the script: the same again
         numbers, text, arrays: their values
         what is in a module: its name alone

Equal code has the same hash in every process, run and version of Python, wherever it is
in the script. A change of a comment within it changes the hash.
"""

from __future__ import annotations
import __future__

import ast
import contextlib
import copyreg
import dataclasses
import functools
import hashlib
import importlib
import inspect
import json
import linecache
import operator
import pickle
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

MAIN = "__main__"

_FUTURE = functools.reduce(
    operator.or_,
    (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names),
)
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(...), range)
# Where functions come from that the decorator of a dataclass adds: its fields say all
# about them, and other versions of Python add others.
_GENERATED_FILE, _GENERATED_IN = "<string>", ("dataclasses", "reprlib")


class UnknownCode(Exception):
    """Code or a value that no hash can tell apart from another; says why."""


def code_sha256(code: FunctionType | type) -> str:
    """Returns the SHA-256 of a function or a class, in hexadecimal.

    Raises
    ------
    UnknownCode
        If its source is not known, if it uses a global, a default or a variable of a
        type whose values have no hash, or if it assigns globals.
    """
    name = code.__qualname__
    try:
        described = _Described(name).value(code, name)
    except RecursionError as error:
        raise UnknownCode(f"{name} uses a value that holds itself") from error
    text = json.dumps(described, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Described:
    """Describes values as JSON; a definition is a number where it is met again."""

    def __init__(self, name: str):
        self._name = name
        self._numbers: dict[int, int] = {}

    def value(self, value: Any, where: str) -> Any:
        """Returns a value as JSON; ``where`` names it in errors."""
        cls = type(value)
        if cls in _PLAIN:
            return [cls.__name__, repr(value)]
        if cls in (tuple, list):
            return [cls.__name__, [self.value(each, where) for each in value]]
        if cls is dict:
            return [cls.__name__, self.value(list(value.items()), where)]
        if cls in (set, frozenset):
            items = [json.dumps(self.value(each, where)) for each in value]
            return [cls.__name__, sorted(items)]
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        if _is_importable(value):
            return ["name", f"{value.__module__}.{value.__qualname__}"]
        if isinstance(value, FunctionType | type):
            if id(value) in self._numbers:
                return ["definition", self._numbers[id(value)]]
            self._numbers[id(value)] = len(self._numbers)
            return (self._class if isinstance(value, type) else self._function)(value)
        if cls is np.ndarray and not value.dtype.hasobject:
            digest = hashlib.sha256(value.tobytes()).hexdigest()
            return ["array", value.dtype.str, list(value.shape), digest]
        return self._object(value, where)

    def _object(self, value: Any, where: str) -> Any:
        """Describes an object by the parts from which pickle would make it again."""
        reduce = copyreg.dispatch_table.get(type(value))
        try:
            parts = reduce(value) if reduce else value.__reduce_ex__(4)
        except TypeError as error:  # a file, a lock, a generator
            raise UnknownCode(
                f"{self._name} uses {where}, of type {type(value).__name__}, of which "
                "no hash can tell whether it has changed; use numbers, text, arrays or "
                "functions, or create it within the function"
            ) from error
        if isinstance(parts, str):
            return [type(value).__name__, parts]
        made, arguments, state, *items = [*parts, None, None, None][:5]
        filled = [list(each) for each in items if each is not None]
        return ["object", self.value([made, arguments, state, filled], where)]

    def _function(self, function: Any) -> Any:
        name, code = function.__qualname__, function.__code__
        described: dict[str, Any] = {"name": name}
        module = function.__globals__.get("__name__")
        if module == MAIN:
            described["globals"] = {
                each: self.value(function.__globals__[each], f"the global {each}")
                for each in sorted(set(_names_in(code)))
                if each in function.__globals__
            }
        if module == MAIN or "<lambda>" in name:
            described["source"] = _source_of(code, name)
        else:  # a data set has the hash of the module's source
            described["source"] = f"{module}.{code.co_qualname}"
        cells = zip(code.co_freevars, function.__closure__ or (), strict=True)
        described["closure"] = {
            free: self._cell(cell, f"the variable {free}") for free, cell in cells
        }
        for what in ("__defaults__", "__kwdefaults__"):
            described[what] = self.value(
                getattr(function, what), f"a default of {name}"
            )
        return described

    def _cell(self, cell: Any, where: str) -> Any:
        try:
            contents = cell.cell_contents
        except ValueError:
            return ["empty"]
        return self.value(contents, where)

    def _class(self, cls: Any) -> Any:
        name = cls.__name__
        members = {
            key: [self.value(part, f"{name}.{key}") for part in parts]
            for key, member in sorted(vars(cls).items())
            if (parts := list(_parts_of(key, member)))
        }
        fields = [
            [each.name, each.init, self._default(each)]
            for each in getattr(cls, "__dataclass_fields__", {}).values()
        ]
        bases = [self.value(base, f"a base of {name}") for base in cls.__bases__]
        return {
            "name": cls.__qualname__,
            "bases": bases,
            "members": members,
            "fields": fields,
        }

    def _default(self, field: dataclasses.Field[Any]) -> Any:
        given = (field.default, field.default_factory)
        known = [each for each in given if each is not dataclasses.MISSING]
        return self.value(known, f"the default of {field.name}")


def _parts_of(name: str, member: Any) -> Iterator[Any]:
    """Yields the functions and the values of a member of a class."""
    if isinstance(member, staticmethod | classmethod):
        member = member.__func__
    if isinstance(member, property):
        yield from filter(None, (member.fget, member.fset, member.fdel))
    elif isinstance(member, functools.cached_property):
        yield member.func
    elif isinstance(member, FunctionType):
        generated = member.__code__.co_filename == _GENERATED_FILE
        if not (generated or member.__globals__.get("__name__") in _GENERATED_IN):
            yield member
    elif not (_is_of_python(name) or inspect.isdatadescriptor(member)):
        yield member  # no descriptor of a field in __slots__


def _is_of_python(name: str) -> bool:
    return (name.startswith("__") and name.endswith("__")) or name == "_abc_impl"


def _is_importable(value: Any) -> bool:
    """Whether its name finds a value again in an imported module, not in the script."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str)) or module == MAIN:
        return False
    try:
        return operator.attrgetter(name)(sys.modules[module]) is value
    except (KeyError, AttributeError):
        return False


def _source_of(code: CodeType, name: str) -> Any:
    """The text of a definition; of a lambda, also its place among those of the text."""
    lines = linecache.getlines(code.co_filename)
    if not lines:
        raise UnknownCode(
            f"the source text of {name} is not known, so no later run could tell "
            "whether it has changed; define it in a script, a notebook cell or a module"
        )
    codes = _codes_in("".join(lines), code.co_flags & _FUTURE)
    # A script may be edited while it runs.
    if code not in codes:
        raise UnknownCode(
            f"{code.co_filename} is no longer the text that {name} was made from; "
            "start the script again, or run the cell again"
        )
    first = code.co_firstlineno
    text = textwrap.dedent("".join(inspect.getblock(lines[first - 1 :])))
    same_line = [each for each in codes if each.co_firstlineno == first]
    return text if len(same_line) == 1 else [text, same_line.index(code)]


@functools.lru_cache(4)
def _codes_in(text: str, flags: int) -> list[CodeType]:
    """The code of all functions in a text, compiled as the caller's."""
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as in notebooks
    codes: list[CodeType] = []
    with contextlib.suppress(SyntaxError, ValueError):
        codes.append(compile(text, "", "exec", flags, dont_inherit=True))
    for code in codes:  # which grows
        codes += (each for each in code.co_consts if isinstance(each, CodeType))
    return codes


def _names_in(code: CodeType) -> Iterator[str]:
    """Yields the names that code uses, also in the functions within it."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names_in(constant)


# Names of code without a module of its own, in expressions.
_NAME = re.compile(r"[\w.]+\['[0-9a-f]{64}'\]")
# Code by its name: what the person gave to this process, and what its parent sent.
_given: dict[str, Any] = {}
_received: dict[str, Any] = {}


def name_of(code: Any) -> str:
    """Names a function or a class, so that this process finds it again.

    Returns
    -------
    str
        ``module.name`` if it can be imported; else ``module.name['SHA-256']``, see
        :func:`code_sha256`.

    Raises
    ------
    UnknownCode
        If it has no name or no such hash.
    """
    module = getattr(code, "__module__", None)
    qualified = getattr(code, "__qualname__", None)
    if not (module and qualified):
        raise UnknownCode("has no name")
    if _is_importable(code):
        return f"{module}.{qualified}"
    if not isinstance(code, FunctionType | type):
        raise UnknownCode(
            f"{qualified} is of type {type(code).__name__}, but it must be a function "
            "or a class"
        )
    if module != MAIN and "<" not in qualified:
        raise UnknownCode(f"another object now has the name {module}.{qualified}")
    shown = qualified.replace("<locals>.", "").replace("<lambda>", "lambda_")
    name = f"{module}.{shown}['{code_sha256(code)}']"
    _given[name] = code
    return name


def find(name: str) -> Any:
    """Returns the function or class of a name with a hash.

    Raises
    ------
    LookupError
        If it was not given to this process, or has changed since. Says what to do.
    UnknownCode
        If it has changed so that it has no hash.
    """
    shown, _, rest = name.partition("[")
    if name in _received:
        return _received[name]
    if name in _given and code_sha256(_given[name]) == rest[1:-2]:
        return _given[name]
    own = shown.rpartition(".")[2]
    raise LookupError(
        f"{shown} was defined in a script, a notebook or a function, and the recipe "
        "has its name and its SHA-256, not its code; in Python, pass it again, neither "
        "it nor a value that it uses changed: to record() as before, to verify() as "
        f"functions=[{own}]; or move it into a module and record again"
    )


def by_value(value: Any) -> bytes:
    """Pickles a value, with the classes and functions of the caller's script in it."""
    from apache_beam.internal.cloudpickle import cloudpickle

    return bytes(cloudpickle.dumps(value))


@dataclass(frozen=True)
class ByValue:
    """Pickled in the place of a value, brings the code that no process can import.

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
        if isinstance(value, FunctionType | type):
            for name, code in {**_received, **_given}.items():
                if code is value:
                    return _receive, (name, by_value(value))
        return NotImplemented


def _receive(name: str, pickled: bytes) -> Any:
    if name in _given:
        return _given[name]
    if name not in _received:
        _received[name] = pickle.loads(pickled)
    return _received[name]


def code_in(texts: Iterable[str]) -> ByValue:
    """Returns the code that expressions name, as far as it is here, to be pickled."""
    known = {**_received, **_given}
    names = (name for text in texts for name in _NAME.findall(text))
    return ByValue([known[name] for name in names if name in known])


_folders: list[str] = []


def search_last(folder: str) -> None:
    """Lets :func:`import_own` find modules in a folder, after all other places.

    The command line names the current folder here, and only for commands with a recipe
    that the user wrote. Nothing else is ever imported from there: the current folder
    may be a data set from the Internet that holds a ``numpy.py``.
    """
    _folders.append(folder)


def import_own(name: str) -> ModuleType:
    """Imports a module that a recipe names.

    Raises
    ------
    Exception
        Whatever the module's code raises; ImportError if there is no such module.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        # Of the name itself, and not of what an installed module imports.
        is_missing = f"{name}.".startswith(f"{error.name}.")
        if not is_missing or not _folders:
            raise
    while _folders:
        sys.path.append(_folders.pop())  # it stays, because the module may import more
    importlib.invalidate_caches()
    return importlib.import_module(name)
