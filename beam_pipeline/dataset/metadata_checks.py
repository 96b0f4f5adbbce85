"""What the JSON of metadata must be, before anything is made of it.

Metadata may come from a stranger: wrong types, paths out of the folder and shapes that
no example can have are refused here, once, and not where they are used.
"""

from __future__ import annotations

import math
import re
import reprlib
from collections.abc import Mapping
from typing import Any

from beam_pipeline.examples.spec import TEXTS, numpy_dtype
from beam_pipeline.recipe.values import ENCODINGS
from beam_pipeline.storage.tfrecord import LONGEST_RECORD

_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80

# Linux allows no longer paths.
LONGEST_PATH = 4096

_MOST = 1 << 62
_MOMENTS = ("mean", "m2", "std")
_FILE = {"bytes": int, "sha256": str}
_SHARD = {"file": str, "examples": int, **_FILE}


def check_metadata(values: Any) -> None:
    """Raises ValueError if the content of ``metadata.json`` cannot be that of metadata.

    Fields of later versions, which this one does not know, may be anything.
    """
    _check("the metadata", values, dict)
    for name, spec in _mapping(values, "features").items():
        _check_feature(f"feature {short(name)}", spec)
    for name in _get("classes", values, list):
        _check("a class", name, str)
    if _get("num_classes", values, int) != len(values["classes"]):
        raise ValueError(
            f"num_classes is {values['num_classes']}, but there are "
            f"{len(values['classes'])} classes"
        )
    for name, version in _mapping(values, "writer").items():
        _check(f"writer: {short(name)}", version, str)
    for name, file in _mapping(values, "files").items():
        _check_fields(f"file {short(name)}", file, _FILE)
        _check_path("a name of a file", name)
    for name, split in _mapping(values, "splits").items():
        if not re.fullmatch(r"\w+", name):  # it becomes a part of paths
            raise ValueError(f"{short(name)!r} cannot be the name of a split")
        _check_split(f"split {short(name)}", split, values["features"])
    if "inputs" in values:
        for name in ("clips", "rejected", "ignored_files"):
            _get(name, values["inputs"], int, "inputs: ")
        _get("listing_sha256", values["inputs"], str, "inputs: ")
        if "left_out" in values["inputs"]:
            for reason, count in _mapping(
                values["inputs"], "left_out", "inputs: "
            ).items():
                _check(f"inputs: left_out: {short(reason)}", count, int)


def short(value: Any, most: int = 80) -> str:
    """Returns a value as text of a limited length, for an error."""
    text = value if isinstance(value, str) else _SHORT.repr(value)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _check(what: str, value: Any, kind: type) -> None:
    if type(value) is not kind:
        raise ValueError(f"{what} must be {kind.__name__}; got {_SHORT.repr(value)}")
    if isinstance(value, int) and not 0 <= value < _MOST:
        raise ValueError(f"{what} must be at least 0; got {_SHORT.repr(value)}")


def _get(name: str, values: Any, kind: type, where: str = "") -> Any:
    _check(where.rstrip(": ") or "the metadata", values, dict)
    if name not in values:
        raise ValueError(f"{where}{name} is missing")
    _check(f"{where}{name}", values[name], kind)
    return values[name]


def _mapping(values: Mapping[str, Any], name: str, where: str = "") -> dict[str, Any]:
    found: dict[str, Any] = _get(name, values, dict, where)
    return found


def _check_fields(where: str, values: Any, kinds: Mapping[str, type]) -> None:
    for name, kind in kinds.items():
        _get(name, values, kind, f"{where}: ")


def _check_feature(where: str, spec: Any) -> None:
    dtype = _get("dtype", spec, str, f"{where}: ")
    if not _is_dtype(dtype):
        raise ValueError(f"{where}: dtype is {_SHORT.repr(dtype)}, which is unknown")
    encoding = _get("encoding", spec, str, f"{where}: ")
    if encoding not in ENCODINGS:
        raise ValueError(f"{where}: encoding is {_SHORT.repr(encoding)}")
    shape = spec["shape"]
    if shape is not None:
        _check(f"{where}: shape", shape, list)
        for size in shape:
            if size is not None:
                _check(f"{where}: a size", size, int)
        values = math.prod(size for size in shape if size is not None)
        if values > LONGEST_RECORD:
            raise ValueError(f"{where}: shape is {_SHORT.repr(shape)}, too large")
    for name, kind_of in (
        ("description", str), ("axes", list), ("shape_in", str), ("optional", bool),
        ("sequence", bool), ("rate_hz", int),
    ):  # fmt: skip
        if name in spec:
            _check(f"{where}: {name}", spec[name], kind_of)
    for axis in spec.get("axes", ()):
        _check(f"{where}: an axis", axis, dict)


def _is_dtype(name: str) -> bool:
    """Whether features can have a dtype: texts, numbers, bfloat16 and its kin."""
    if name in TEXTS:
        return True
    if not name.isidentifier():
        return False
    try:
        dtype = numpy_dtype(name)
    except (TypeError, ValueError, AttributeError):
        return False
    return dtype.kind in "biufc" or (dtype.kind == "V" and dtype.name == name)


def _check_split(where: str, split: Any, features: Mapping[str, Any]) -> None:
    _get("examples", split, int, f"{where}: ")
    for name in ("clips", "left_out"):
        if name in split:
            _get(name, split, int, f"{where}: ")
    if "seconds" in split:
        _check_number(f"{where}: seconds", split["seconds"])
    for name in ("examples_per_class", "seconds_per_class"):
        if name in split:
            for label, count in _mapping(split, name, f"{where}: ").items():
                _check_number(f"{where}: {name}: {short(label)}", count)
    statistics = _mapping(split, "statistics", f"{where}: ")
    if "features" in statistics:
        within = f"{where}: statistics: "
        for name, of_feature in _mapping(statistics, "features", within).items():
            shape = features[name]["shape"] if name in features else None
            _check_statistics(f"{within}{short(name)}", of_feature, shape)
    for number, shard in enumerate(_get("shards", split, list, f"{where}: ")):
        which = f"{where}: shard {number}"
        _check_fields(which, shard, _SHARD)
        _check_path(f"{which}: file", shard["file"])


def _check_statistics(where: str, found: Any, shape: list[int | None] | None) -> None:
    """Checks what readers use of the statistics of a feature of this shape."""
    count = _get("count", found, int, f"{where}: ")
    for name in _MOMENTS:
        _check_real(f"{where}: {name}", found.get(name), count)
    if "bins" not in found:
        return
    bins = _mapping(found, "bins", f"{where}: ")
    counts = _get("count", bins, list, f"{where}: bins: ")
    size = shape[-1] if shape and shape[-1] is not None else len(counts)
    for name in ("count", *_MOMENTS):
        values = _get(name, bins, list, f"{where}: bins: ")
        if len(values) != size:
            raise ValueError(
                f"{where}: {name} of bins has the shape ({len(values)},), but the last "
                f"axis of the feature, of the shape {_SHORT.repr(shape)}, has {size} "
                "bins"
            )
    for k, of_bin in enumerate(counts):
        _check(f"{where}: count of bin {k}", of_bin, int)
        for name in _MOMENTS:
            _check_real(f"{where}: {name} of bin {k}", bins[name][k], of_bin)


def _check_real(what: str, value: Any, count: int) -> None:
    """Checks a number that follows from some values; without any, it is null."""
    is_real = isinstance(value, int | float) and not isinstance(value, bool)
    if is_real and count and math.isfinite(value):
        return
    if count or value is not None:
        wanted = f"a number, of {count} values" if count else "null, without values"
        raise ValueError(f"{what} must be {wanted}; got {_SHORT.repr(value)}")


def _check_number(what: str, value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        raise ValueError(f"{what} must be a number; got {_SHORT.repr(value)}")


def _check_path(what: str, path: str) -> None:
    """Raises ValueError unless a path stays below the folder of the data set."""
    problem = None
    if path.startswith("/") or "\\" in path or "://" in path:
        problem = "is not relative to the data set"
    elif any(part in ("", ".", "..") for part in path.split("/")):
        problem = "leaves the data set"
    elif not path.isprintable() or len(path.encode(errors="replace")) > LONGEST_PATH:
        problem = "is no name of a file"
    if problem is not None:
        raise ValueError(f"{what} {problem}; got {_SHORT.repr(path)}")
