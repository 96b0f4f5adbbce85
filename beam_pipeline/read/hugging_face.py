"""Records as datasets of Hugging Face."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import datasets
import numpy as np

from beam_pipeline.errors import AudioTFRecordsError, InputError
from beam_pipeline.examples.spec import FeatureSpec, numpy_dtype
from beam_pipeline.read.choices import check_binary
from beam_pipeline.read.orders import make_order

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
# Arrow takes a single integer for an int64, whatever the type of its column.
_MOST_SCALAR = np.iinfo(np.int64).max


class Making(NamedTuple):
    """How examples are made of records.

    Attributes
    ----------
    shuffle, seed, epoch
        The order.
    binary : tuple of str
        Features whose texts are bytes.
    is_copy : bool
        Whether Arrow files are written.
    """

    shuffle: Any = False
    seed: int = 0
    epoch: int = 0
    binary: tuple[str, ...] = ()
    is_copy: bool = False


def make_dataset(
    records: Any, binary: Sequence[str], options: Mapping[str, Any]
) -> datasets.Dataset:
    """Returns a ``datasets.Dataset``, whose Arrow files are in its cache."""
    if not len(records):
        raise InputError(
            f"There are no examples to copy: {records!r}. Arrow files need one or more."
        )
    names = check_binary(binary, records.features)
    try:
        return datasets.Dataset.from_generator(
            read_pieces,
            features=features_of(records.features, records.classes, names),
            gen_kwargs={
                "records": records,
                "pieces": pieces_of(len(records)),
                "making": Making(binary=names, is_copy=True),
            },
            split=named_split(records.split),
            fingerprint=fingerprint_of(records, names),
            **options,
        )
    except datasets.exceptions.DatasetGenerationError as error:
        if isinstance(error.__cause__, AudioTFRecordsError):
            raise error.__cause__ from None
        raise


def pieces_of(count: int) -> list[tuple[int, int]]:
    """Returns the first position of each piece and the one after its last."""
    size = max(-(-count // MOST_PIECES), LEAST_EXAMPLES)
    return [(k, min(k + size, count)) for k in range(0, count, size)]


def read_pieces(
    records: Any, pieces: Sequence[tuple[int, int]], making: Making
) -> Iterator[dict[str, Any]]:
    """Yields the examples at the positions of some pieces, as Arrow takes them."""
    numbers = make_order(len(records), making.shuffle, making.seed, making.epoch, 1)
    names = list(records.features)
    for first, stop in pieces:
        for start in range(first, stop, READ_TOGETHER):
            positions = np.arange(start, min(start + READ_TOGETHER, stop))
            indices = numbers.at(positions)
            examples = records._getitems(indices)
            for index, example in zip(indices, examples, strict=True):
                made = {}
                for name in names:
                    try:
                        made[name] = storable(
                            example.get(name), name in making.binary, making.is_copy
                        )
                    except ValueError as error:
                        raise InputError(
                            f"The feature {name} of example {index} {error}."
                        ) from None
                yield made


def storable(value: Any, is_binary: bool = False, is_copy: bool = False) -> Any:
    """Returns a value of a dtype that Arrow has.

    Raises
    ------
    ValueError
        If Arrow cannot hold it.
    """
    if isinstance(value, str | bytes):
        return _text(value, is_binary)
    if not isinstance(value, np.ndarray | np.generic):
        return value
    if value.dtype == object:
        texts: Any = value.ravel()
        made = np.empty(len(texts), object)
        made[:] = [_text(text, is_binary) for text in texts]
        return made.reshape(value.shape)
    if value.dtype.kind == "c":
        return np.stack([value.real, value.imag], axis=-1)
    if value.dtype.kind == "V":
        return value.astype(np.float32)
    is_scalar = value.ndim == 0 and value.dtype.kind == "u"
    if is_copy and is_scalar and int(value) > _MOST_SCALAR:
        raise ValueError(
            f"is {value}, but a Dataset holds single integers up to 2**63 - 1 only. "
            "Use to_datasets(streaming=True), or choose other features with "
            "open_records(features=...)"
        )
    return value


def _text(text: str | bytes, is_binary: bool) -> str | bytes:
    if is_binary:
        return text.encode() if isinstance(text, str) else text
    if isinstance(text, bytes):
        raise ValueError(
            "is no text in UTF-8. Name the feature in to_datasets(binary=[...]), which "
            "stores bytes"
        )
    return text


def features_of(
    specs: Mapping[str, FeatureSpec],
    classes: Sequence[str] = (),
    binary: Sequence[str] = (),
) -> datasets.Features:
    """Returns the features of Hugging Face for those of a data set.

    A complex number becomes two real ones, on an axis at the end; ``bfloat16`` and its
    kin become ``float32``; and ``target`` a ``ClassLabel``. Features that ``binary``
    names hold bytes.

    Raises
    ------
    InputError
        If examples have arrays with different numbers of axes.
    """
    return datasets.Features(
        {
            name: _feature_of(spec, classes, name in binary)
            for name, spec in specs.items()
        }
    )


def _feature_of(spec: FeatureSpec, classes: Sequence[str], is_binary: bool) -> Any:
    if spec.shape is None:
        raise InputError(
            f"The feature {spec.name} has no type in Arrow, because its number of axes "
            "differs between examples. Choose others with open_records(features=...)."
        )
    if spec.name == "target" and spec.shape == () and classes:
        return datasets.ClassLabel(names=list(classes))
    dtype, shape = spec.dtype, spec.shape
    is_text = spec.is_text
    if is_binary:
        dtype = "binary"
    elif dtype in _COMPLEX:
        dtype, shape = _COMPLEX[dtype], (*shape, 2)
    elif not is_text and numpy_dtype(dtype).kind == "V":
        dtype = "float32"
    is_fixed = spec.is_fixed and None not in shape
    if is_fixed and len(shape) in _ARRAYS and not is_text:
        return _ARRAYS[len(shape)](shape=shape, dtype=dtype)
    feature: Any = datasets.Value(dtype)
    for size in reversed(shape):
        length = size if is_fixed and size is not None else -1
        feature = datasets.List(feature, length=length)
    return feature


def named_split(split: str) -> datasets.NamedSplit:
    """Returns a split's name for Hugging Face, which allows no ``+`` between several.

    >>> str(named_split("fold0+fold2"))
    'fold0_fold2'
    """
    return datasets.NamedSplit(split.replace("+", "_"))


def fingerprint_of(records: Any, binary: Sequence[str] = ()) -> str:
    """Returns a text that names the examples, the features and their types."""
    words: list[Any] = [records.fingerprint, *records.features]
    if binary:
        words.append(sorted(binary))
    return hashlib.sha256(json.dumps(words).encode()).hexdigest()[:32]
