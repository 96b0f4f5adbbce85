"""Records as datasets of Hugging Face."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import datasets
import numpy as np

from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec, numpy_dtype
from beam_pipeline.read.orders import check_shuffle, make_order

# The pieces of a stream, which workers share; a restart reads its piece again.
MOST_PIECES = 1024
LEAST_EXAMPLES = 16
READ_TOGETHER = 64

_ARRAYS = {
    2: datasets.Array2D,
    3: datasets.Array3D,
    4: datasets.Array4D,
    5: datasets.Array5D,
}
_COMPLEX = {"complex64": "float32", "complex128": "float64"}


def make_dataset(records: Any, options: Mapping[str, Any]) -> datasets.Dataset:
    """Returns a ``datasets.Dataset``, whose Arrow files are in its cache."""
    return datasets.Dataset.from_generator(
        read_pieces,
        **_generator_of(records, (False, 0, 0)),
        fingerprint=fingerprint_of(records),
        **options,
    )


def make_stream(
    records: Any, shuffle: Any, seed: int, epoch: int
) -> datasets.IterableDataset:
    """Returns a ``datasets.IterableDataset``, which reads what is asked for."""
    return datasets.IterableDataset.from_generator(
        read_pieces,
        **_generator_of(records, (check_shuffle(shuffle), seed, epoch)),
    )


def _generator_of(records: Any, order: tuple[Any, int, int]) -> dict[str, Any]:
    """Returns the arguments for a dataset that :func:`read_pieces` gives."""
    return {
        "features": features_of(records.features, records.classes),
        "gen_kwargs": {
            "records": records,
            "pieces": pieces_of(len(records)),
            "order": order,
        },
        "split": datasets.NamedSplit(records.split),
    }


def pieces_of(count: int) -> list[tuple[int, int]]:
    """Returns the first position of each piece and the one after its last."""
    size = max(-(-count // MOST_PIECES), LEAST_EXAMPLES)
    return [(k, min(k + size, count)) for k in range(0, count, size)]


def read_pieces(
    records: Any, pieces: Sequence[tuple[int, int]], order: tuple[Any, int, int]
) -> Iterator[dict[str, Any]]:
    """Yields the examples at the positions of some pieces, as Arrow takes them."""
    shuffle, seed, epoch = order
    numbers = make_order(len(records), shuffle, seed, epoch, 1)
    names = list(records.features)
    for first, stop in pieces:
        for start in range(first, stop, READ_TOGETHER):
            positions = np.arange(start, min(start + READ_TOGETHER, stop))
            for example in records.__getitems__(numbers.at(positions)):
                yield {name: storable(example.get(name)) for name in names}


def storable(value: Any) -> Any:
    """Returns a value of a dtype that Arrow has."""
    if not isinstance(value, np.ndarray | np.generic):
        return value
    if value.dtype.kind == "c":
        return np.stack([value.real, value.imag], axis=-1)
    if value.dtype.kind == "V":
        return value.astype(np.float32)
    return value


def features_of(
    specs: Mapping[str, FeatureSpec], classes: Sequence[str] = ()
) -> datasets.Features:
    """Returns the features of Hugging Face for those of a data set.

    A complex number becomes two real ones, on an axis at the end; ``bfloat16`` and its
    kin become ``float32``; and ``target`` a ``ClassLabel``.

    Raises
    ------
    InputError
        If examples have arrays with different numbers of axes.
    """
    return datasets.Features(
        {name: _feature_of(spec, classes) for name, spec in specs.items()}
    )


def _feature_of(spec: FeatureSpec, classes: Sequence[str]) -> Any:
    if spec.shape is None:
        raise InputError(
            f"The feature {spec.name} has no type in Arrow, because its number of axes "
            "differs between examples. Choose others with open_records(features=...)."
        )
    if spec.name == "target" and spec.shape == () and classes:
        return datasets.ClassLabel(names=list(classes))
    dtype, shape = spec.dtype, spec.shape
    if dtype in _COMPLEX:
        dtype, shape = _COMPLEX[dtype], (*shape, 2)
    elif dtype != "string" and numpy_dtype(dtype).kind == "V":
        dtype = "float32"
    is_fixed = spec.is_fixed and None not in shape
    if is_fixed and len(shape) in _ARRAYS and dtype != "string":
        return _ARRAYS[len(shape)](shape=shape, dtype=dtype)
    feature: Any = datasets.Value(dtype)
    for size in reversed(shape):
        length = size if is_fixed and size is not None else -1
        feature = datasets.List(feature, length=length)
    return feature


def fingerprint_of(records: Any) -> str:
    """Returns a text that names the examples and the features."""
    words = [records.fingerprint, *records.features]
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]
