"""``encode_example``: one dict of values to one serialised ``tf.train.Example``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from beam_pipeline.elements.inference import Inference
from beam_pipeline.elements.writing import encoder_for, with_encodings
from beam_pipeline.errors import InputError


def encode_example(
    values: Mapping[str, Any],
    *,
    dtypes: Mapping[str, str] | None = None,
    encodings: Mapping[str, str] | None = None,
    sequences: Sequence[str] = (),
) -> bytes:
    """Serialises one dict of values, as :func:`record_examples` stores it.

    ::

        record = encode_example({"age": 29, "movies": ["Fight Club", "Alien"]})
        tf.train.Example.FromString(record)

    The values alone decide the types and the encodings. So examples whose arrays differ
    in size may get different encodings: give ``encodings``, which hold for all. Equal
    values give equal bytes. It does not need TensorFlow, but takes its eager tensors,
    for example in ``tf.py_function``.

    Parameters
    ----------
    values : mapping
        Name to value: a number, text, bytes, a list of them, a numpy array or an eager
        tensor, or a mapping of these. :mod:`beam_pipeline.elements.inference` lists the
        features that they become. None is left out.
    dtypes : mapping, optional
        Feature to dtype, for example ``{"price": "float64"}``.
    encodings : mapping, optional
        Feature to encoding: ``raw``, ``tensor`` (as of ``tf.io.serialize_tensor``),
        ``png``, ``jpeg`` or ``int64_list``.
    sequences : sequence of str
        Features whose first axis becomes the steps of a ``tf.train.SequenceExample``.

    Returns
    -------
    bytes
        A ``tf.train.Example``; with ``sequences``, a ``tf.train.SequenceExample``.

    Raises
    ------
    InputError
        If a value cannot be stored, or does not fit its dtype.
    OptionError
        If another argument names no feature, or does not fit the values.
    """
    if not isinstance(values, Mapping):
        raise InputError(
            f"An example must be a dict of values; got {type(values).__name__}."
        )
    present = _without_none(values)
    found = Inference([present], dtypes or {})
    found.specs = with_encodings(found.specs, encodings or {}, sequences)
    columns = {name: [value] for name, value in found.values(present, 0).items()}
    (record,) = encoder_for(found.specs.values()).encode(1, columns)
    return record


def _without_none(values: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _without_none(value) if isinstance(value, Mapping) else value
        for name, value in values.items()
        if value is not None
    }
