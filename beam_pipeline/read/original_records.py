"""A folder that ``record_dataset`` of the library tf_dataset wrote, as ``tf.data``.

::

    TF_RECORD_FEATURES_SPEC.json    an entry for each stored feature
    batched                         the batch size, if the data set had batches
    x8a2k1.tfrecord, ...            uncompressed; the names are random

Each record is a ``tf.train.Example``. Each feature is one ``bytes`` value: a serialised
TensorProto, which :mod:`beam_pipeline.storage.wire` decodes. A complex feature
``k`` is stored as two, ``k_real`` and ``k_imag``.

:func:`.replay` reads it. Unlike the library's own reader, it reads files in sorted
order, shuffles, rejoins every complex feature, keeps the dtype of each, reads all
digits of the batch size, and keeps the last batch if it is smaller.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from beam_pipeline.codecs import TENSOR
from beam_pipeline.errors import InputError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.storage import files
from beam_pipeline.storage.wire import DTYPES
from beam_pipeline.text import parse_json, typed

SPEC_FILE = "TF_RECORD_FEATURES_SPEC.json"
BATCHED_FILE = "batched"
SUFFIX = ".tfrecord"

_PARTS = {"complex64": "float32", "complex128": "float64"}
REAL, IMAG = "_real", "_imag"


class OriginalSpecs(NamedTuple):
    """What tf_dataset's folder holds.

    Attributes
    ----------
    features : dict
        Name to :class:`.FeatureSpec`, for each feature of the elements, in the order of
        the file.
    stored : dict
        The same of the features in the records: each is a serialised tensor. A complex
        feature ``k`` is not among them if ``k_real`` and ``k_imag`` store it.
    """

    features: dict[str, FeatureSpec]
    stored: dict[str, FeatureSpec]


def find_original(folder: str) -> bool:
    """Whether a folder holds the description of a data set of tf_dataset."""
    return files.exists(files.join(files.absolute(folder), SPEC_FILE))


def original_files(folder: str) -> list[str]:
    """Returns the paths of the records, sorted by name as text.

    tf_dataset read them in the order in which the file system lists them. That order
    differs between machines, and the random names hold no other.

    Raises
    ------
    InputError
        If there are none.
    """
    folder = files.absolute(folder)
    names = [n for n in files.list_files(folder) if n.endswith(SUFFIX) and "/" not in n]
    if not names:
        raise InputError(
            f"{folder} has the file {SPEC_FILE}, but no file with the suffix {SUFFIX}. "
            "Give the folder that holds both."
        )
    return [files.join(folder, name) for name in names]


def original_batch_size(folder: str) -> int | None:
    """Returns the size of the batches that were recorded; None for single elements.

    tf_dataset read only the first digit of the size.

    Raises
    ------
    InputError
        If the file ``batched`` holds anything but a whole number from 1 on.
    """
    path = files.join(files.absolute(folder), BATCHED_FILE)
    if not files.exists(path):
        return None
    text = files.read_bytes(path).decode(errors="backslashreplace").strip()
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise InputError(
            f"{path} must hold the batch size, a whole number from 1 on; got "
            f"{text[:40]!r}. Write the size into it, or delete the file to read single "
            "elements."
        )
    return int(text)


@dataclass(frozen=True)
class _Entry:
    """What the file says: the dtypes in memory and in the records, and the shape."""

    previous_dtype: str
    dtype: str
    shape: tuple[int | None, ...]


def original_specs(folder: str) -> OriginalSpecs:
    """Returns the features of a folder's elements, and those of its records.

    The dtype in memory counts: tf_dataset lists int32 as int64, but stores the tensor
    as it was.

    Raises
    ------
    InputError
        If ``TF_RECORD_FEATURES_SPEC.json`` is missing or damaged.
    """
    path = files.join(files.absolute(folder), SPEC_FILE)
    specs = OriginalSpecs({}, {})
    try:
        values = parse_json(files.read_bytes(path))
        if not isinstance(values, dict) or not values:
            raise ValueError("it must be an object with an entry for each feature")
        for name in values:
            entry: _Entry = typed(_Entry, values[name], f"entry {name!r}")
            dtype = entry.previous_dtype.removeprefix("tf.")
            if dtype not in DTYPES:
                raise ValueError(f"entry {name!r}: {dtype!r} is no dtype")
            base, stored_dtype = name, dtype
            if dtype in _PARTS and entry.dtype != entry.previous_dtype:
                base, stored_dtype = name.removesuffix(REAL), _PARTS[dtype]
                base = base.removesuffix(IMAG)
                parts = base + REAL, base + IMAG
                if values.get(parts[0]) != values.get(parts[1]) or name not in parts:
                    raise ValueError(
                        f"entry {name!r}: a complex feature has two equal entries, "
                        f"{parts[0]!r} and {parts[1]!r}"
                    )
            spec = FeatureSpec(base, dtype, entry.shape, TENSOR)
            stored = FeatureSpec(name, stored_dtype, entry.shape, TENSOR)
            is_other = base in specs.stored if base != name else name in specs.features
            if is_other or specs.features.setdefault(base, spec) != spec:
                raise ValueError(f"two entries describe the feature {base!r}")
            specs.stored[name] = stored
    except (FileNotFoundError, ValueError) as error:
        raise InputError(
            f"{path} is not the description of a data set of tf_dataset: {error}. "
            "Restore the file."
        ) from error
    return specs
