"""``record_examples``: writes an iterable of dicts, without TensorFlow."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from beam_pipeline.dataset.metadata import Elements
from beam_pipeline.elements.inference import Inference
from beam_pipeline.elements.writing import (
    Block,
    check_num_elems,
    counted,
    with_encodings,
    write_elements,
)
from beam_pipeline.errors import InputError
from beam_pipeline.write.parts import ShardSizes

# These many examples decide the features.
FIRST = 256
_TOGETHER = 16

Examples = Iterable[Mapping[str, Any]] | Mapping[str, Sequence[Any]]


def record_examples(
    examples: Examples,
    output_dir: str | os.PathLike[str],
    elements_per_file: int | None = None,
    num_elems: int | None = None,
    *,
    dtypes: Mapping[str, str] | None = None,
    shard_bytes: int | None = None,
    num_shards: int | None = None,
    multiple_of: int = 1,
    encodings: Mapping[str, str] | None = None,
    sequences: Sequence[str] = (),
    overwrite: bool = False,
    progress: bool | None = None,
) -> str:
    """Writes dicts of values as sharded GZIP TFRecords of ``tf.train.Example``.

    ::

        record_examples(
            [{"age": 29, "movies": ["Fight Club"], "ratings": [9.7]}], "records/"
        )

    Values are numbers, texts, bytes, lists of them, numpy arrays, and dicts of these.
    :mod:`beam_pipeline.elements.inference` lists the features that they become. Lists
    may differ in length between examples; a value that is None or not there is missing.
    Memory holds the first 256 examples, then a few at a time.

    Parameters
    ----------
    examples : iterable of mapping, or a mapping of columns, or a data frame
        Each mapping is one example. Of columns, each row is one.
    dtypes : mapping, optional
        Feature to dtype, for example ``{"price": "float64"}``. Default: from the first
        256 examples.
    output_dir, elements_per_file, num_elems, shard_bytes, num_shards, multiple_of, \
encodings, sequences, overwrite, progress
        As in :func:`record_dataset`.

    Returns
    -------
    str
        The absolute path of the folder.

    Raises
    ------
    InputError
        If a value cannot be stored, or does not fit the values of the examples before.
        The error names the example and the feature; no data set is left then.
    OptionError, OutputError
        If an argument or the folder cannot be used; before anything is written.
    """
    sizes = ShardSizes(elements_per_file, shard_bytes, num_shards, multiple_of)
    total = len(examples) if isinstance(examples, Sequence) else None
    total = check_num_elems(num_elems, total)
    rows = itertools.islice(_rows(examples), num_elems)
    first = list(itertools.islice(rows, FIRST))
    for number, row in enumerate(first):
        _check_mapping(row, number)
    found = Inference(first, dtypes or {})
    specs = with_encodings(found.specs, encodings or {}, sequences)
    found.specs = specs
    options = {
        "elements_per_file": elements_per_file,
        "num_elems": num_elems,
        "dtypes": dict(dtypes or {}),
        "shard_bytes": shard_bytes,
        "num_shards": num_shards,
        "multiple_of": multiple_of,
        "encodings": dict(encodings or {}),
        "sequences": list(sequences),
    }
    return write_elements(
        counted(_blocks(itertools.chain(first, rows), found), num_elems),
        specs,
        output_dir,
        Elements("record_examples", options, found.structure),
        sizes,
        total=total,
        overwrite=overwrite,
        progress=progress,
    )


def _rows(examples: Examples) -> Iterator[Mapping[str, Any]]:
    to_dicts = getattr(examples, "to_dict", None)
    if to_dicts is not None and hasattr(examples, "columns"):  # a data frame
        yield from to_dicts("records")
        return
    if not isinstance(examples, Mapping):
        yield from examples
        return
    lengths = {name: len(column) for name, column in examples.items()}
    if len(set(lengths.values())) > 1:
        raise InputError(
            "Columns must have the same length; got "
            + ", ".join(f"{name}: {n}" for name, n in lengths.items())
        )
    for values in zip(*examples.values(), strict=True):
        yield dict(zip(examples, values, strict=True))


def _blocks(rows: Iterator[Mapping[str, Any]], found: Inference) -> Iterator[Block]:
    number = 0
    while some := list(itertools.islice(rows, _TOGETHER)):
        made = []
        for row in some:
            _check_mapping(row, number)
            made.append(found.values(row, number))
            number += 1
        columns = {name: [values[name] for values in made] for name in made[0]}
        yield Block(len(made), columns)


def _check_mapping(row: Any, number: int) -> None:
    if not isinstance(row, Mapping):
        raise InputError(
            f"Example {number} is a {type(row).__name__}, but must be a dict of values."
        )
