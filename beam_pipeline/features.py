"""Features: what an example holds, its bytes, and back.

One spec drives both directions here and in the reader, and stands in the metadata.

The encoder writes ``tf.train.Example`` itself. Most of an example is one array whose
protobuf form is a constant prefix and the array's own bytes, so that a window costs one
copy; entries come in key order, so that equal values are equal bytes in any process.
An ``Example { features { feature { key: "fs" value { int64_list {...} } } } }`` is::

    0A len Features                     0A len entry, for each feature, by key
           entry                        0A len key, 12 len Feature
           Feature                      0A BytesList | 12 FloatList | 1A Int64List, len
           FloatList, Int64List         0A len packed values
           BytesList                    0A len bytes, for each value
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError, TransformError
from beam_pipeline.expressions import parse_transform
from beam_pipeline.recipe import Recipe
from beam_pipeline.transforms import (
    Chain,
    Identity,
    Transform,
    apply_transform,
    needs_sample_rate,
)

FLOAT_LIST, INT64_LIST, BYTES_LIST, RAW = (
    "float_list",
    "int64_list",
    "bytes_list",
    "raw",
)
SHORT_LIST = 16

_DESCRIPTIONS = {
    "class": "the clip's class",
    "target": "index of the class in the sorted list of classes",
    "filepath": "the clip's file, relative to its input",
    "index": "the clip's place in the listing of the inputs",
    "win_start_idx": "first frame of the window in the clip, at the output rate",
    "fs": "output sample rate, Hz",
}


@dataclass(frozen=True, slots=True)
class FeatureSpec:
    """One feature: how it looks in memory and how it is stored.

    Attributes
    ----------
    dtype : str
        A numpy name, or ``string``.
    shape : tuple of int
        Of one example.
    encoding : str
        ``float_list``, ``int64_list``, ``bytes_list``, or ``raw``: little-endian
        C-order bytes in a ``bytes_list``.
    axes : list of dict
        For spectra: what the last axes mean.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    encoding: str
    description: str = ""
    axes: tuple[Mapping[str, Any], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """The spec as the metadata holds it, without its name."""
        return {
            "dtype": self.dtype,
            "shape": list(self.shape),
            "encoding": self.encoding,
            "description": self.description,
            **({"axes": list(self.axes)} if self.axes else {}),
        }

    @classmethod
    def from_json(cls, name: str, values: Mapping[str, Any]) -> FeatureSpec:
        """The spec that :meth:`to_json` wrote."""
        return cls(
            name,
            values["dtype"],
            tuple(values["shape"]),
            values["encoding"],
            values.get("description", ""),
            tuple(values.get("axes", ())),
        )


@dataclass(frozen=True)
class FeatureSet:
    """The transforms of a recipe and the specs of everything in an example."""

    transforms: Mapping[str, Transform]
    specs: Mapping[str, FeatureSpec] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        recipe: Recipe,
        *,
        sample_rate_hz: int | None,
        win_len: int,
        channels: int | None,
        classes: bool,
    ) -> FeatureSet:
        """Runs every transform once on silence and takes down what came out.

        Parameters
        ----------
        sample_rate_hz : int or None
            None where clips differ: then no transform may need it.
        channels : int or None
            None for mono windows.
        classes : bool
            Whether examples have a class.

        Raises
        ------
        RecipeError
            If a transform raises or returns something that cannot be stored.
        """
        transforms = resolve_transforms(recipe)
        shape = (win_len,) if channels is None else (channels, win_len)
        specs = [
            check_transform(
                name, recipe.features.get(name, ""), transform, shape, sample_rate_hz
            )
            for name, transform in transforms.items()
        ]
        for name in ("class", "filepath") if classes else ("filepath",):
            specs.append(
                FeatureSpec(name, "string", (), BYTES_LIST, _DESCRIPTIONS[name])
            )
        numbers = ("target", "index", "win_start_idx", "fs")
        for name in numbers if classes else numbers[1:]:
            specs.append(
                FeatureSpec(name, "int64", (), INT64_LIST, _DESCRIPTIONS[name])
            )
        return cls(transforms, {s.name: s for s in sorted(specs, key=lambda s: s.name)})

    def apply(
        self, windows: npt.NDArray[np.float32], sample_rate_hz: int, filepath: str
    ) -> dict[str, npt.NDArray[Any]]:
        """Every feature of a block of windows, each of shape ``(n, *spec.shape)``.

        Raises
        ------
        TransformError
            If a transform raises, or returns what its spec does not say.
        """
        return {
            name: self._apply(name, transform, windows, sample_rate_hz, filepath)
            for name, transform in self.transforms.items()
        }

    def _apply(
        self,
        name: str,
        transform: Transform,
        windows: npt.NDArray[np.float32],
        sample_rate_hz: int,
        filepath: str,
    ) -> npt.NDArray[Any]:
        spec = self.specs[name]
        try:
            values = np.asarray(apply_transform(transform, windows, sample_rate_hz))
        except Exception as error:  # a person's code: whatever it raises is told
            raise TransformError(
                filepath, f"feature {name}: {type(error).__name__}: {error}"
            ) from error
        expected = (len(windows), *spec.shape)
        is_text = spec.dtype == "string"
        same_type = values.dtype.kind in "SU" if is_text else values.dtype == spec.dtype
        if values.shape != expected or not same_type:
            raise TransformError(
                filepath,
                f"feature {name}: returned {values.dtype} {values.shape}, but on a "
                f"silent window it was {spec.dtype} {expected}",
            )
        return values

    def example_bytes(self) -> int:
        """Length of an example's bytes where the names in it are 64 bytes long."""
        columns: dict[str, Any] = {}
        for spec in self.specs.values():
            if spec.dtype == "string":
                columns[spec.name] = "x" * 64
            elif spec.name in _DESCRIPTIONS:
                columns[spec.name] = 1 << 20
            else:
                columns[spec.name] = np.zeros((1, *spec.shape), spec.dtype)
        return len(ExampleEncoder(self.specs.values()).encode(1, columns)[0])


def resolve_transforms(recipe: Recipe) -> dict[str, Transform]:
    """The recipe's transforms by name; the signal itself where it names none."""
    stored = Identity(dtype=recipe.dtype)
    if not recipe.features:
        return {"signal": stored}
    transforms = {
        name: parse_transform(text) for name, text in sorted(recipe.features.items())
    }
    if recipe.dtype == "float32":
        return transforms
    return {name: _stored_as(recipe.dtype, t) for name, t in transforms.items()}


def _stored_as(dtype: str, transform: Transform) -> Transform:
    """Lets the recipe's dtype decide what a feature that ends in identity() stores."""
    if isinstance(transform, Identity):
        return replace(transform, dtype=dtype)
    if isinstance(transform, Chain):
        return Chain((*transform.steps[:-1], _stored_as(dtype, transform.steps[-1])))
    return transform


def check_transform(
    name: str,
    description: str,
    transform: Transform,
    shape: tuple[int, ...],
    sample_rate_hz: int | None,
) -> FeatureSpec:
    """Runs a transform on two silent windows; what it returns is the feature's spec."""
    if sample_rate_hz is None and needs_sample_rate(transform):
        raise RecipeError(
            f"feature {name}",
            "needs one sample rate for all clips; give --sample-rate",
            description,
        )
    silence = np.zeros((2, *shape), np.float32)
    silence.flags.writeable = False  # as the windows of a clip are
    try:
        values = np.asarray(apply_transform(transform, silence, sample_rate_hz or 0))
    except RecipeError as error:
        _, problem, value = error.args
        raise RecipeError(f"feature {name}: {error.args[0]}", problem, value) from error
    except Exception as error:  # a person's code: whatever it raises is told
        raise RecipeError(
            f"feature {name}",
            f"fails on two silent windows of shape {silence.shape}: "
            f"{type(error).__name__}: {error}",
            description,
        ) from error
    if values.shape[:1] != (2,):
        raise RecipeError(
            f"feature {name}",
            f"must return one row for each window: (2, ...) for windows "
            f"{silence.shape}",
            values.shape,
        )
    if values.size == 0:
        raise RecipeError(f"feature {name}", "returns no values", values.shape)
    axes = getattr(transform, "axes", None)
    return FeatureSpec(
        name,
        _dtype_name(values, f"feature {name}"),
        values.shape[1:],
        _encoding_of(values),
        description or "the window's samples",
        tuple(axes(sample_rate_hz or 0, shape[-1])) if axes else (),
    )


def _dtype_name(values: npt.NDArray[Any], field: str = "feature") -> str:
    if values.dtype.kind in "SU" and values.ndim == 1:
        return "string"
    # Extended precision is another format on other machines.
    if values.dtype.kind not in "biufc" or values.dtype.char in "gG":
        raise RecipeError(
            field,
            "returns a type that cannot be stored; return numbers, or one text each",
            str(values.dtype),
        )
    return str(values.dtype.name)


def _encoding_of(values: npt.NDArray[Any]) -> str:
    if values.dtype.kind in "SU":
        return BYTES_LIST
    if values.dtype == np.float32:
        return FLOAT_LIST
    is_short = values.ndim == 1 or (values.ndim == 2 and values.shape[1] <= SHORT_LIST)
    # uint64 holds values that int64_list cannot.
    if is_short and values.dtype.kind in "biu" and values.dtype != np.uint64:
        return INT64_LIST
    return RAW


class ExampleEncoder:
    """Serialises ``tf.train.Example``s of one spec."""

    def __init__(self, specs: Iterable[FeatureSpec]):
        self._specs = sorted(specs, key=lambda spec: spec.name.encode())

    def encode(self, count: int, columns: Mapping[str, Any]) -> list[bytes]:
        """Serialises ``count`` examples.

        Parameters
        ----------
        columns : mapping
            For each feature either an array of shape ``(count, *spec.shape)``, or one
            ``int`` or ``str`` that all these examples share.

        Returns
        -------
        list of bytes
            Equal values give equal bytes: entries are in key order.
        """
        if count == 0:
            return []
        constant = bytearray()
        parts: list[bytes | list[bytes] | list[memoryview]] = []
        length = [0] * count
        total = 0
        for spec in self._specs:
            value = columns[spec.name]
            if isinstance(value, int | str):
                constant += _entry(spec, [value])
                continue
            if spec.encoding in (FLOAT_LIST, RAW):
                arrays = _rows(value, count)
                payload = arrays[0].nbytes
                constant += _array_prefix(spec, payload)
                parts += [bytes(constant), arrays]
                total += len(constant) + payload
                constant.clear()
                continue
            rows = np.asarray(value).reshape(count, -1).tolist()
            entries = [_entry(spec, row) for row in rows]
            parts += [bytes(constant), entries]
            total += len(constant)
            constant.clear()
            length = [n + len(entry) for n, entry in zip(length, entries, strict=True)]
        parts.append(bytes(constant))
        total += len(constant)
        return [
            b"".join(
                [
                    b"\x0a" + _varint(total + length[i]),
                    *(p if isinstance(p, bytes) else p[i] for p in parts),
                ]
            )
            for i in range(count)
        ]


def _rows(values: npt.NDArray[Any], count: int) -> list[memoryview]:
    """Each example's array as little-endian bytes, without a copy where possible."""
    little = values.astype(values.dtype.newbyteorder("<"), copy=False)
    if little.ndim == 2 and little.strides[1] == little.itemsize:
        # Overlapping windows are rows of a view; each one alone is contiguous.
        return [little[i].view(np.uint8).data for i in range(count)]
    flat = np.ascontiguousarray(little).reshape(count, -1).view(np.uint8)
    return [flat[i].data for i in range(count)]


_FIELD = {BYTES_LIST: b"\x0a", RAW: b"\x0a", FLOAT_LIST: b"\x12", INT64_LIST: b"\x1a"}


def _array_prefix(spec: FeatureSpec, payload: int) -> bytes:
    """All of an entry that stands before an array's own bytes."""
    values = b"\x0a" + _varint(payload)
    return _open_entry(spec.name, spec.encoding, len(values) + payload) + values


@lru_cache(maxsize=4096)
def _open_entry(name: str, encoding: str, list_length: int) -> bytes:
    """An entry up to and with the length of its list."""
    key = name.encode()
    feature = _FIELD[encoding] + _varint(list_length)
    value = b"\x12" + _varint(len(feature) + list_length) + feature
    body = b"\x0a" + _varint(len(key)) + key
    entry_length = len(body) + len(value) + list_length
    return b"\x0a" + _varint(entry_length) + body + value


def _entry(spec: FeatureSpec, values: Sequence[Any]) -> bytes:
    """A whole entry with a few values."""
    if spec.encoding == INT64_LIST:
        # Two's complement in 64 bits, as protobuf writes negative numbers.
        packed = b"".join([_varint(int(v) & 0xFFFFFFFFFFFFFFFF) for v in values])
        content = b"\x0a" + _varint(len(packed)) + packed
    else:
        texts = [v.encode() if isinstance(v, str) else v for v in values]
        content = b"".join([b"\x0a" + _varint(len(t)) + t for t in texts])
    return _open_entry(spec.name, spec.encoding, len(content)) + content


def _varint(value: int) -> bytes:
    """A protobuf variable-length integer."""
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def decode_examples(
    records: Sequence[bytes], specs: Mapping[str, FeatureSpec]
) -> list[dict[str, Any]]:
    """Examples as dicts of numpy arrays and texts, without TensorFlow.

    The inverse of :meth:`ExampleEncoder.encode`, by tfx-bsl's parser.

    Raises
    ------
    ValueError
        If a record is no ``tf.train.Example``, or lacks a feature, or holds it in
        another type or shape than its spec says.
    """
    from tfx_bsl.coders.example_coder import ExamplesToRecordBatchDecoder

    if not records:
        return []
    try:
        batch = ExamplesToRecordBatchDecoder().DecodeBatch(list(records))
    except RuntimeError as error:
        raise ValueError(f"records are not examples: {error}") from error
    columns = {name: batch.column(i) for i, name in enumerate(batch.schema.names)}
    for name, spec in specs.items():
        column = columns.get(name)
        if column is None or column.null_count:
            raise ValueError(f"records lack {name}")
        found = str(column.type.value_type)
        if not found.endswith(_ARROW_TYPES[spec.encoding]):
            raise ValueError(f"feature {name} is {found} and not {spec.encoding}")
    decoders = {name: _DECODERS[spec.encoding] for name, spec in specs.items()}
    return [
        {name: decoders[name](specs[name], columns[name], i) for name in specs}
        for i in range(len(records))
    ]


def _decode_numbers(spec: FeatureSpec, column: Any, i: int) -> Any:
    values = column[i].values.to_numpy(zero_copy_only=False)
    return values.astype(spec.dtype, copy=False).reshape(spec.shape)[()]


def _decode_text(spec: FeatureSpec, column: Any, i: int) -> str:
    (value,) = column[i].as_py()
    return str(value.decode(errors="backslashreplace"))


def _decode_raw(spec: FeatureSpec, column: Any, i: int) -> npt.NDArray[Any]:
    (value,) = column[i].as_py()
    little = np.dtype(spec.dtype).newbyteorder("<")
    return np.frombuffer(value, little).astype(spec.dtype).reshape(spec.shape)


# How the types of tfx-bsl's columns end: large_binary on some versions.
_ARROW_TYPES = {
    FLOAT_LIST: "float",
    INT64_LIST: "int64",
    BYTES_LIST: "binary",
    RAW: "binary",
}
_DECODERS: Mapping[str, Callable[[FeatureSpec, Any, int], Any]] = {
    FLOAT_LIST: _decode_numbers,
    INT64_LIST: _decode_numbers,
    BYTES_LIST: _decode_text,
    RAW: _decode_raw,
}
