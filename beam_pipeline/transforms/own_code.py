"""A person's own code: modules that recipes name, and what a script itself defines.

::

    peak   --name_of-->   __main__:peak@3f2a...     in the recipe: data
           --ByValue-->   the code, pickled         to other processes of the run alone

A name of a script is found only in a process to which the object itself was given: by
the person, or by the process that started this one. No name is ever looked up in a
script, so a recipe from a stranger cannot choose one of its functions; and no code is
read from a data set. The SHA-256 is that of ::

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
import dataclasses
import dis
import functools
import hashlib
import importlib
import inspect
import json
import linecache
import operator
import os
import pickle
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import PurePath
from types import CodeType, FunctionType, ModuleType
from typing import Any, NamedTuple

import numpy as np

MAIN = "__main__"

_FUTURE = functools.reduce(
    operator.or_,
    (getattr(__future__, name).compiler_flag for name in __future__.all_feature_names),
)

# The last one is of Python 3.12.
_LOADS = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")

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
    described = _Described(code.__qualname__)
    try:
        described.value(code, code.__qualname__)
    except RecursionError as error:
        raise UnknownCode(f"{code.__qualname__} uses a value that holds itself") from (
            error
        )
    text = json.dumps(described.definitions, ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class _Described:
    """Definitions, as JSON, in the order in which they were found."""

    def __init__(self, name: str):
        self.definitions: list[Any] = []
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
            pairs = [
                [self.value(k, where), self.value(v, where)] for k, v in value.items()
            ]
            return [cls.__name__, pairs]
        if cls in (set, frozenset):
            known = len(self.definitions)
            items = [json.dumps(self.value(each, where)) for each in value]
            if len(self.definitions) > known:  # numbered in the order of the set
                raise UnknownCode(
                    f"{self._name} uses {where}, a set of functions or classes, whose "
                    "order differs between runs; use a list"
                )
            return [cls.__name__, sorted(items)]
        if isinstance(value, ModuleType):
            return ["module", value.__name__]
        name = _name_in_module(value)
        if name is not None:
            return ["name", name]
        if isinstance(value, FunctionType | type):
            return self._definition(value)
        return self._object(value, where)

    def _object(self, value: Any, where: str) -> Any:
        if isinstance(value, np.ndarray | np.generic) and not value.dtype.hasobject:
            array = np.ascontiguousarray(value)
            digest = hashlib.sha256(array.tobytes()).hexdigest()
            return ["array", array.dtype.str, list(np.shape(value)), digest]
        if isinstance(value, np.dtype | PurePath):
            return [type(value).__name__, str(value)]
        if isinstance(value, np.ufunc):
            return ["ufunc", value.__name__]
        if isinstance(value, re.Pattern):
            return ["pattern", self.value(value.pattern, where), int(value.flags)]
        if isinstance(value, functools.partial):
            parts = value.func, value.args, value.keywords
            return ["partial", [self.value(part, where) for part in parts]]
        if dataclasses.is_dataclass(value):
            fields = {
                field.name: self.value(getattr(value, field.name), where)
                for field in dataclasses.fields(value)
            }
            return ["instance", self.value(type(value), where), fields]
        raise UnknownCode(
            f"{self._name} uses {where}, of type {type(value).__name__}, of which no "
            "hash can tell whether it has changed; use numbers, text, arrays or "
            "functions, or create it within the function"
        )

    def _definition(self, code: FunctionType | type) -> Any:
        """Returns the number of a definition, which is described once."""
        if id(code) in self._numbers:
            return ["definition", self._numbers[id(code)]]
        number = self._numbers[id(code)] = len(self.definitions)
        self.definitions.append(None)
        if isinstance(code, type):
            self.definitions[number] = self._class(code)
        else:
            self.definitions[number] = self._function(code)
        return ["definition", number]

    def _function(self, function: FunctionType) -> Any:
        name, code = function.__qualname__, function.__code__
        described: dict[str, Any] = {"name": name}
        if function.__globals__.get("__name__") == MAIN:
            described["source"] = _source_of(code, name)
            described["globals"] = {
                used: self.value(function.__globals__[used], f"the global {used}")
                for used in sorted(set(_used_globals(code, name)))
                if used in function.__globals__
            }
        else:  # what a decorator of a module has made
            module = function.__globals__.get("__name__")
            described["source"] = f"{module}:{code.co_qualname}"
        closure = zip(code.co_freevars, function.__closure__ or (), strict=True)
        described["closure"] = {
            free: self._cell(cell, f"the variable {free}") for free, cell in closure
        }
        for what in ("__defaults__", "__kwdefaults__"):
            described[what] = self.value(
                getattr(function, what), f"a default of {name}"
            )
        described["attributes"] = {
            key: self.value(value, f"the attribute {key} of {name}")
            for key, value in sorted(vars(function).items())
            if key != "__wrapped__"  # the closure has it
        }
        return described

    def _cell(self, cell: Any, where: str) -> Any:
        try:
            value = cell.cell_contents
        except ValueError:
            return ["empty"]
        return self.value(value, where)

    def _class(self, cls: type) -> Any:
        bases = [
            self.value(base, f"the class {base.__name__}") for base in cls.__bases__
        ]
        members = {
            name: [self.value(part, f"{cls.__name__}.{name}") for part in parts]
            for name, member in sorted(vars(cls).items())
            if (parts := list(_parts_of(name, member)))
        }
        fields = [
            [field.name, field.init, self._default(field)]
            for field in getattr(cls, "__dataclass_fields__", {}).values()
        ]
        return {
            "name": cls.__qualname__,
            "bases": bases,
            "members": members,
            "fields": fields,
        }

    def _default(self, field: dataclasses.Field[Any]) -> Any:
        given = [
            default
            for default in (field.default, field.default_factory)
            if default is not dataclasses.MISSING
        ]
        return self.value(given, f"the default of {field.name}")


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


def _name_in_module(value: Any) -> str | None:
    """Returns ``module:name``, if that finds the value again in an imported module."""
    module = getattr(value, "__module__", None)
    name = getattr(value, "__qualname__", None)
    if not (isinstance(module, str) and isinstance(name, str)) or module == MAIN:
        return None
    try:
        found = operator.attrgetter(name)(sys.modules[module])
    except (KeyError, AttributeError):
        return None
    return f"{module}:{name}" if found is value else None


def _source_of(code: CodeType, name: str) -> str:
    lines = linecache.getlines(code.co_filename)
    if not lines:
        raise UnknownCode(
            f"the source text of {name} is not known, so no later run could tell "
            "whether it has changed; define it in a script, a notebook cell or a module"
        )
    # A script may be edited while it runs.
    if code not in _codes_in("".join(lines), code.co_flags & _FUTURE):
        raise UnknownCode(
            f"{code.co_filename} is no longer the text that {name} was made from; "
            "start the script again, or run the cell again"
        )
    return textwrap.dedent("".join(inspect.getblock(lines[code.co_firstlineno - 1 :])))


@functools.lru_cache(4)
def _codes_in(text: str, flags: int) -> frozenset[CodeType]:
    """The code of all functions in a text, compiled as the caller's."""
    flags |= ast.PyCF_ALLOW_TOP_LEVEL_AWAIT  # as in notebooks
    found, left = set[CodeType](), list[CodeType]()
    with contextlib.suppress(SyntaxError, ValueError):
        left.append(compile(text, "", "exec", flags, dont_inherit=True))
    while left:
        code = left.pop()
        found.add(code)
        left += (each for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(found)


def _used_globals(code: CodeType, name: str) -> Iterator[str]:
    """Yields the names of globals that code loads, also in the functions within it."""
    for instruction in dis.get_instructions(code):
        if instruction.opname in _LOADS:
            yield str(instruction.argval)
        elif instruction.opname in ("STORE_GLOBAL", "DELETE_GLOBAL"):
            raise UnknownCode(
                f"{name} assigns the global {instruction.argval}, so what it returns "
                "may depend on earlier calls, and shards on the number of workers"
            )
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _used_globals(constant, name)


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
