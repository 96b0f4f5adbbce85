"""What the entry of one feature holds, by its spec; see :mod:`.record_parser`."""

from __future__ import annotations

import math
import reprlib
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import AudioTFRecordsError
from beam_pipeline.examples.compact import unpack_int8
from beam_pipeline.examples.flac_signal import decode_flac
from beam_pipeline.examples.protobuf import FieldValue, read_fields, read_varint
from beam_pipeline.examples.spec import (
    ARRAYS,
    BYTES,
    BYTES_LIST,
    FLAC,
    FLOAT_LIST,
    IMAGES,
    INT8,
    INT64_LIST,
    TENSOR,
    FeatureSpec,
    numpy_dtype,
)

NO_ENTRY: Any = object()

# Arrays of at most so many bytes are cut out of a record; larger ones are views of it.
SMALL_BYTES = 64

_LISTS = {1: BYTES_LIST, 2: FLOAT_LIST, 3: INT64_LIST}


class EntryParser:
    """Reads one feature of an example.

    The stored form of a value, which :meth:`single` turns into the value, is:

    - ``float_list``, ``raw`` and half precision: a flat array that is a view of the
      record; bytes if the array has a fixed shape and at most 64 bytes (``is_small``);
    - ``int8``: a flat array;
    - ``int64_list``: an int if the shape is (), otherwise a flat array;
    - ``bytes_list``: a text if the shape is (), otherwise a flat object array;
    - ``tensor``, ``png``, ``jpeg``, ``flac`` (``is_decoded``) and the steps of a
      sequence: the value itself, which the caller gets, so that it must not be kept.

    Attributes
    ----------
    count : int
        The number of values, if the shape is fixed.
    dtype, little : numpy.dtype
        In memory, and as stored: in little-endian order.
    is_row : bool
        Whether the values go into the rows of a batch as they are.
    """

    def __init__(self, spec: FeatureSpec):
        self.spec = spec
        self.dtype = numpy_dtype(spec.dtype)
        self.little = numpy_dtype(spec.stored_dtype)
        # bfloat16 and its kin have no order of bytes to choose.
        if self.little.kind not in "VO":
            self.little = self.little.newbyteorder("<")
        self.count = math.prod(spec.sizes) if spec.has_fixed_shape else -1
        self.is_decoded = spec.encoding in (TENSOR, FLAC, *IMAGES)
        is_array = spec.encoding in (FLOAT_LIST, *ARRAYS) and not spec.sequence
        nbytes = self.count * self.little.itemsize
        self.is_small = is_array and spec.has_fixed_shape and nbytes <= SMALL_BYTES
        self.is_row = (
            (is_array or (spec.encoding == INT8 and not spec.sequence))
            and spec.has_fixed_shape
            and not spec.optional
            and not self.is_small
        )

    def parse(self, entry: bytes) -> Any:
        """Returns the stored value of an entry; NO_ENTRY if there is no value."""
        feature = None
        for field, value in read_fields(entry):
            if field == 2:
                feature = value
        return NO_ENTRY if feature is None else self.value(_message(feature), NO_ENTRY)

    def value(self, feature: memoryview, missing: Any = None) -> Any:
        """Returns the stored value in a ``Feature``; ``missing`` if there is none.

        Raises
        ------
        ValueError
            If the feature has another type or number of values than its spec says.
        """
        kind, contents = 0, list[memoryview]()
        for field, content in read_fields(feature):
            if field in _LISTS:
                contents = [*(contents if field == kind else ()), _message(content)]
                kind = field
        if not kind:
            return missing
        wanted = self.spec.encoding
        if _LISTS[kind] != (wanted if wanted in _LISTS.values() else BYTES_LIST):
            raise ValueError(
                f"feature {self.spec.name} is stored as {_LISTS[kind]}, but its spec "
                f"says {wanted}"
            )
        values = [v for c in contents for field, v in read_fields(c) if field == 1]
        if self.spec.optional and self.count > 0 and not self._any(values):
            return missing
        try:
            return self._stored(values)
        except (ValueError, TypeError, AudioTFRecordsError) as error:
            raise ValueError(f"feature {self.spec.name}: {error}") from error

    def _any(self, values: Sequence[FieldValue]) -> bool:
        is_list = self.spec.encoding in (FLOAT_LIST, INT64_LIST)
        return any(not is_list or isinstance(v, int) or len(v) for v in values)

    def _stored(self, values: Sequence[FieldValue]) -> Any:
        spec = self.spec
        if spec.encoding == INT64_LIST:
            numbers = self._integers(values)
            return int(numbers[0]) if spec.shape == () else numbers
        if spec.encoding == FLOAT_LIST:
            return self._array(b"".join([_message(v) for v in values]))
        texts = [bytes(_message(value)) for value in values]
        if spec.encoding == BYTES_LIST:
            self._check_count(len(texts))
            found = _objects(texts) if spec.dtype == BYTES else _texts(texts)
            return found[0] if spec.shape == () else found
        if len(texts) != 1:
            if spec.optional and not texts:
                return None
            raise ValueError(
                f"it has {len(texts)} values instead of the bytes of one array"
            )
        if spec.encoding in ARRAYS:
            return self._array(texts[0])
        if spec.encoding == INT8:
            found = unpack_int8(texts[0])
            self._check_count(len(found))
            return found
        return self._decoded(texts[0])

    def _integers(self, values: Sequence[FieldValue]) -> npt.NDArray[Any]:
        parts = [
            np.array([v], np.uint64) if isinstance(v, int) else unpack_varints(v)
            for v in values
        ]
        wide = np.concatenate([np.zeros(0, np.uint64), *parts]).view(np.int64)
        self._check_count(len(wide))
        with np.errstate(invalid="ignore"):
            numbers = wide.astype(self.dtype)
        if np.any(numbers != wide):
            (first,) = wide[numbers != wide][:1]
            raise ValueError(f"{self.spec.dtype} cannot hold the value {first}")
        return numbers

    def _array(self, content: bytes) -> Any:
        if len(content) % self.little.itemsize:
            raise ValueError(
                f"{len(content)} bytes are no whole values of {self.little.name}"
            )
        self._check_count(len(content) // self.little.itemsize)
        return content if self.is_small else np.frombuffer(content, self.little)

    def _check_count(self, count: int) -> None:
        if self.count >= 0 and count != self.count and not self.spec.sequence:
            raise ValueError(
                f"it has {count} values, but its shape is {self.spec.shape}"
            )

    def _decoded(self, text: bytes) -> Any:
        spec = self.spec
        if spec.encoding in IMAGES:
            from beam_pipeline.examples.images import decode_image

            sizes = spec.shape if not spec.sequence else (spec.shape or ())[1:]
            return decode_image(text, spec.encoding, spec.dtype, sizes or ())
        if spec.encoding == FLAC:
            return decode_flac(text, spec.dtype, spec.shape or ())
        from beam_pipeline.examples.tensor_proto import decode_tensor

        assert spec.encoding == TENSOR
        found = decode_tensor(text, spec.dtype)
        if spec.dtype == "string":
            found = _texts(found.ravel().tolist()).reshape(found.shape)
        sizes = spec.shape[1:] if spec.shape and spec.sequence else spec.shape
        if sizes is not None and (
            len(sizes) != found.ndim
            or any(a not in (None, b) for a, b in zip(sizes, found.shape, strict=True))
        ):
            raise ValueError(f"it has the shape {found.shape} instead of {spec.shape}")
        return found

    def steps(self, features: Sequence[memoryview]) -> Any:
        """Returns the array of a sequence, from the ``Feature`` of each step."""
        spec = self.spec
        sizes = [-1 if n is None else n for n in (spec.shape or (None,))[1:]]
        found = [self.value(feature) for feature in features]
        if any(value is None for value in found):
            raise ValueError(f"feature {spec.name}: a step has no values")
        if not found:
            return np.zeros((0, *(max(n, 0) for n in sizes)), self.dtype)
        return np.stack([np.reshape(v, sizes) for v in found]).astype(self.dtype)

    def without_values(self) -> Any:
        """Returns the stored form of a feature that is not in the record.

        Raises
        ------
        ValueError
            Unless the feature may have no values: other writers leave it out then.
        """
        spec = self.spec
        may_be_empty = spec.shape is None or None in spec.shape or 0 in spec.shape
        if not may_be_empty or self.is_decoded:
            raise ValueError(f"the record lacks feature {spec.name}")
        if spec.sequence:
            return self.steps(())
        return b"" if self.is_small else np.zeros(0, self.little)

    def make_single(self) -> Callable[[Any], Any]:
        """Returns :meth:`single` for a feature without ``shape_in``; faster."""
        spec, dtype = self.spec, self.dtype
        if spec.encoding == BYTES_LIST and spec.shape == () and not spec.sequence:
            return _unchanged
        if spec.encoding == INT64_LIST and spec.shape == () and not spec.sequence:
            return dtype.type
        if self.is_row or (
            spec.encoding in (FLOAT_LIST, *ARRAYS)
            and spec.optional
            and not self.is_small
        ):
            sizes = spec.sizes
            if spec.has_fixed_shape and not spec.sequence:
                return lambda stored: stored.astype(dtype).reshape(sizes)
        return self.single

    def single(self, stored: Any, shape: Any = None) -> Any:
        """Returns the value of one example, from its stored form.

        Arrays are copies that may be changed; numbers are numpy scalars.

        Parameters
        ----------
        shape : numpy.ndarray, optional
            The stored form of the feature ``shape_in``.
        """
        spec = self.spec
        if spec.sequence or self.is_decoded:
            return stored[()] if isinstance(stored, np.ndarray) else stored
        if spec.encoding == BYTES_LIST:
            if spec.shape == ():
                return stored
            return spec.restore_shape(stored.copy(), shape)
        if self.is_small:
            stored = np.frombuffer(stored, self.little)
        if spec.shape == ():
            return (
                self.dtype.type(stored)
                if spec.encoding == INT64_LIST
                else (stored.astype(self.dtype)[0])
            )
        values = stored.astype(self.dtype)
        if shape is None and spec.has_fixed_shape:
            return values.reshape(spec.sizes)
        try:
            return spec.restore_shape(values, shape)
        except ValueError as error:
            raise ValueError(f"feature {spec.name}: {error}") from error


def _unchanged(stored: Any) -> Any:
    return stored


def example_features(record: bytes) -> Iterator[tuple[bytes, memoryview]]:
    """Yields (key, ``Feature``) of an example, or of the context of a sequence."""
    for field, features in read_fields(record):
        if field == 1:
            yield from _map_entries(_message(features))


def feature_lists(record: bytes) -> Iterator[tuple[bytes, list[memoryview]]]:
    """Yields (key, the ``Feature`` of each step) of a ``SequenceExample``."""
    for field, lists in read_fields(record):
        if field == 2:
            for key, steps in _map_entries(_message(lists)):
                yield key, [_message(v) for f, v in read_fields(steps) if f == 1]


def check_names(record: bytes, known: Collection[bytes], sequences: bool) -> None:
    """Raises ValueError if a record has an unknown feature, or a feature twice."""
    names = [key for key, _ in example_features(record)]
    if sequences:
        names += [key for key, _ in feature_lists(record)]
    for name, count in Counter(names).items():
        shown = reprlib.repr(name.decode(errors="backslashreplace"))
        if name not in known:
            raise ValueError(f"feature {shown} is not in the metadata")
        if count > 1:
            raise ValueError(f"feature {shown} is there {count} times")


def _map_entries(message: memoryview) -> Iterator[tuple[bytes, memoryview]]:
    for field, entry in read_fields(message):
        if field == 1:
            parts = dict(read_fields(_message(entry)))
            key, value = parts.get(1, b""), parts.get(2, b"")
            yield bytes(_message(key)), memoryview(_message(value))


def _message(value: Any) -> Any:
    if isinstance(value, int):
        raise ValueError("not a tf.train.Example: a number instead of a message")
    return value


def _objects(values: Sequence[bytes]) -> Any:
    found = np.empty(len(values), object)
    found[:] = values
    return found


def _texts(values: Sequence[bytes]) -> Any:
    """Returns texts as an object array; what is not UTF-8 stays bytes."""
    found = np.empty(len(values), object)
    for k, value in enumerate(values):
        try:
            found[k] = value.decode()
        except UnicodeDecodeError:
            found[k] = value
    return found


def unpack_varints(packed: Any) -> npt.NDArray[np.uint64]:
    """Returns the integers in packed protobuf, the inverse of ``pack_varints``.

    Raises
    ------
    ValueError
        If the last one has no end, or one has more than 10 bytes.
    """
    if len(packed) < 16:
        numbers, at, view = [], 0, memoryview(packed)
        while at < len(view):
            number, at = read_varint(view, at)
            numbers.append(number)
        return np.array(numbers, np.uint64)
    data = np.frombuffer(packed, np.uint8)
    ends = np.flatnonzero(data < 0x80)
    if data[-1] >= 0x80:
        raise ValueError("a packed integer has no end")
    starts = np.concatenate([[0], ends[:-1] + 1])
    lengths = ends - starts + 1
    if lengths.max() > 10:
        raise ValueError("a packed integer has more than 10 bytes")
    values = np.zeros(len(ends), np.uint64)
    for k in range(int(lengths.max())):
        long = lengths > k
        low = (data[starts[long] + k] & np.uint8(0x7F)).astype(np.uint64)
        values[long] |= low << np.uint64(7 * k)
    return values
