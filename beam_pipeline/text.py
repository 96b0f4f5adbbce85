"""Text for people and from strangers: times, tables, secrets, JSON; stable hashes."""

from __future__ import annotations

import functools
import json
import re
import reprlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from html import escape
from types import UnionType
from typing import Any, get_args, get_origin, get_type_hints

# A notebook shows so many rows of a table.
MOST_ROWS = 50

# Words in the names of options and parameters whose values are secret.
_NAMES = r"signature|credential|secret|token|password|passwd|access_?key|sas|sig"
_USER = re.compile(r"(\b[a-z][a-z0-9+.-]*://)[^/\s@'\"]+@", re.IGNORECASE)
_SIGNED = re.compile(rf"([?&;][\w.-]*(?:{_NAMES})[\w.-]*=)[^&\s'\"]+", re.IGNORECASE)
_OPTION = re.compile(rf"(--[\w-]*(?:{_NAMES})[\w-]*[= ])[^\s'\"]+", re.IGNORECASE)

HIDDEN = "***"

_PLAIN = (int, float, bool, str)

# Beyond it, a count in a file is damaged or crafted.
_MOST = 1 << 62


def time_unit(times_s: Iterable[float]) -> tuple[str, int]:
    """Returns the unit in which some times are printed together, and its seconds.

    It is that of the longest. Two decimals of it are enough for a data set of some
    seconds as for one of some days.
    """
    longest = max(times_s, default=0.0)
    for name, unit_s in (("hours", 3600), ("minutes", 60)):
        if longest >= unit_s:
            return name, unit_s
    return "seconds", 1


def time_text(seconds: float, of_s: float = 0.0) -> str:
    """Returns a time such as ``1.50 minutes``; ``of_s`` is a total beside it."""
    name, unit_s = time_unit([seconds, of_s])
    return f"{seconds / unit_s:.2f} {name}"


def counted(count: int, noun: str) -> str:
    """Returns ``1 shard``, ``2,000 shards``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def hidden(text: str) -> str:
    """Returns a text with ``***`` in place of credentials.

    ::

        s3://KEY:SECRET@bucket/x.wav              a user and a password
        s3://bucket/x.wav?X-Amz-Signature=...     a signed address
        --s3_secret_access_key=...                an option of Beam

    >>> hidden("s3://me:mine@bucket/x?X-Amz-Signature=0a1b&v=1")
    's3://***@bucket/x?X-Amz-Signature=***&v=1'
    """
    if "://" in text:
        text = _USER.sub(rf"\1{HIDDEN}@", text)
    text = _SIGNED.sub(rf"\1{HIDDEN}", text)
    return _OPTION.sub(rf"\1{HIDDEN}", text)


def holds_credentials(path: str) -> bool:
    """Whether an address has a user and a password, or is signed."""
    return "://" in path and bool(_USER.search(path) or _SIGNED.search(path))


def html_table(header: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Returns a table; integers get commas, and all texts are escaped."""
    shown = [[_cell(value) for value in row] for row in rows[:MOST_ROWS]]
    if len(rows) > MOST_ROWS:
        more = f"<td>... and {len(rows) - MOST_ROWS:,} more</td>"
        shown.append([more] + ["<td></td>"] * (len(header) - 1))
    names = "".join(f"<th>{escape(name)}</th>" for name in header)
    lines = "".join(f"<tr>{''.join(cells)}</tr>" for cells in shown)
    return f"<table><thead><tr>{names}</tr></thead><tbody>{lines}</tbody></table>"


def html_line(text: str) -> str:
    """Returns a paragraph."""
    return f"<p>{escape(text)}</p>"


def _cell(value: object) -> str:
    text = f"{value:,}" if isinstance(value, int) else str(value)
    return f"<td>{escape(text)}</td>"


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Returns the value of a JSON text; takes the options of ``json.loads``.

    Raises
    ------
    ValueError
        If it is not JSON, is nested too deep, or has a number of thousands of digits.
    """
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def typed(kind: Any, value: Any, where: str) -> Any:
    """Returns a value of JSON as a type of Python, of which it must be.

    Parameters
    ----------
    kind : type
        ``int``, from 0 on; ``float``, which may be whole, from 0 on; ``bool``, ``str``
        or ``Any``; ``Mapping[str, ...]``, ``tuple[..., ...]``, ``... | None``; or a
        dataclass, whose fields have such types. Fields that it does not have may be
        anything: later versions have them.
    value : object
        Of :func:`parse_json`.
    where : str
        What the value is of, for errors: ``splits.train.shards[3].bytes``.

    Raises
    ------
    ValueError
        If the value, or a part of it, has another type or is missing; it names the part
        and what was found there.
    """
    if kind in _PLAIN:
        is_whole = kind is float and type(value) is int
        _check_type(where, value, int if is_whole else kind)
        if kind is not str and not 0 <= value < _MOST:
            raise ValueError(f"{where} must be at least 0; got {shown(value)}")
        return value
    if kind is Any:
        return value
    if isinstance(kind, type) and is_dataclass(kind):
        _check_type(where, value, dict)
        made, within = {}, f"{where}." if where else ""
        for name, (type_, is_needed) in _fields_of(kind).items():
            if name in value:
                made[name] = typed(type_, value[name], within + name)
            elif is_needed:
                raise ValueError(f"{within}{name} is missing")
        return kind(**made)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is UnionType:
        return None if value is None else typed(arguments[0], value, where)
    if origin is Mapping:
        _check_type(where, value, dict)
        return {
            name: typed(arguments[1], one, f"{where}.{shortened(name)}")
            for name, one in value.items()
        }
    _check_type(where, value, list)  # a tuple
    return tuple(
        typed(arguments[0], one, f"{where}[{k}]") for k, one in enumerate(value)
    )


def _check_type(where: str, value: Any, kind: type) -> None:
    if type(value) is not kind:
        raise ValueError(f"{where} must be {kind.__name__}; got {shown(value)}")


@functools.cache
def _fields_of(kind: Any) -> dict[str, tuple[Any, bool]]:
    """Returns the type of each field of a dataclass, and whether it has no default."""
    hints = get_type_hints(kind)
    return {
        field.name: (
            hints[field.name],
            field.default is MISSING and field.default_factory is MISSING,
        )
        for field in fields(kind)
    }


def shown(value: object, most: int = 80) -> str:
    """Returns the ``repr`` of a value, shortened if it is long.

    A value of a recipe may hold itself many times over: its ``repr`` is made only if it
    has few parts.
    """
    left, parts = [value], 0
    while left and parts <= most:
        some = left.pop()
        parts += 1
        if isinstance(some, dict):
            left += [*some, *some.values()][:most]
        elif isinstance(some, list | tuple | set | frozenset):
            left += list(some)[:most]
    return shortened(repr(value) if parts <= most else reprlib.repr(value), most)


def shortened(text: str, most: int = 80) -> str:
    """Returns a text, without its end if it is long."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


# Stable hashes, which are equal in every process and on every machine


def clip_key(seed: int, filepath: str, source: int = 0) -> int:
    """Returns a 64-bit hash of a clip's path and source under a seed."""
    return text_key(str(seed), f"{source}\0{filepath}")


def text_key(salt: str, text: str) -> int:
    """Returns a 64-bit hash of a text under a salt."""
    hasher = _salted(salt).copy()
    hasher.update(text.encode())
    return int.from_bytes(hasher.digest(), "big")


@functools.cache
def _salted(salt: str) -> Any:
    import hashlib

    # Copying a hasher costs half as much as making one.
    return hashlib.blake2b(digest_size=8, key=salt.encode()[:64])


def json_sha256(values: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of JSON values with sorted keys, in hexadecimal."""
    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return bytes_sha256(canonical.encode())


def bytes_sha256(content: bytes) -> str:
    """Returns the SHA-256 of some bytes, in hexadecimal."""
    import hashlib  # here: ``--help`` does without it

    return hashlib.sha256(content).hexdigest()
