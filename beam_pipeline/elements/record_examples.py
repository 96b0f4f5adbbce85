"""``record_examples`` and ``encode_example``: dicts of values, without TensorFlow.

The dtypes, shapes and encodings of features follow from the values.

======================================  =================================
value                                   feature
======================================  =================================
int, bool, or a list of them            int64, bool: an ``int64_list``
float, or a list of them                float32: a ``float_list``
str or bytes, or a list of them         string: a ``bytes_list``
numpy array or scalar                   its dtype and shape
dict                                    a feature for each key, ``outer/inner``
None, or no such key                    missing in this example
======================================  =================================

A list may differ in length between examples, an array in the size of its first axis.
The first examples decide the features, their types and encodings. What all of them
have, such as lengths, shows when they are written.
"""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np

from beam_pipeline.arrays import numpy_dtype
from beam_pipeline.dataset import element_set
from beam_pipeline.dataset.job import element_output
from beam_pipeline.dataset.metadata import Elements
from beam_pipeline.dataset.progress import progress_bar
from beam_pipeline.elements.values import (
    Array,
    PythonValues,
    as_array,
    cast,
    checked_dtype,
    common_dtype,
)
from beam_pipeline.encodings import INT64_LIST
from beam_pipeline.errors import InputError, OptionError, check_feature
from beam_pipeline.examples.serialisation import ExampleEncoder
from beam_pipeline.examples.spec import (
    FeatureSpec,
    Leaf,
    Node,
    Shape,
    Structure,
    add_feature,
    encoding_for,
    encoding_problem,
    feature_name,
    merge_shapes,
    needs_shape,
)
from beam_pipeline.inputs.splits import DEFAULT_SPLIT
from beam_pipeline.parameters import Declared, WholeNumber, parameter
from beam_pipeline.storage import files
from beam_pipeline.storage.files import temporary_folder

# Some elements: their number, and their features as the encoder takes them.
Block = tuple[int, Mapping[str, Any]]


class Request(Declared, kw_only=False):
    """What functions that record elements are asked for; see :func:`.record_dataset`.

    Attributes
    ----------
    sizes : ShardSizes
    progress : bool or None
        Whether to show a progress bar; None: only in a terminal or a notebook.
    """

    output: str | os.PathLike[str]
    sizes: element_set.ShardSizes
    num_elems: int | None = parameter(None, WholeNumber(0))
    encodings: Mapping[str, str] | None = None
    sequences: Sequence[str] = ()
    overwrite: bool = False
    progress: bool | None = None

    def to_json(self) -> dict[str, Any]:
        """Returns what decides the data set, for the metadata."""
        return {
            "num_elems": self.num_elems,
            **self.sizes.to_json(),
            "encodings": dict(self.encodings or {}),
            "sequences": list(self.sequences),
        }


def write_elements(
    request: Request,
    elements: Elements,
    specs: Mapping[str, FeatureSpec],
    draw: Callable[[Mapping[str, FeatureSpec]], Iterator[Block]],
    total: int | None,
    settle: element_set.Settle = element_set.observed_specs,
) -> str:
    """Writes blocks of elements as a data set with one split; returns its folder.

    Parameters
    ----------
    elements : Elements
        What the metadata say of them; their options are added to.
    draw : callable
        Draws the blocks, from the specs with the encodings that are asked for.
    total : int or None
        The number of elements that there are; None if it is not known.
    settle : callable
        See :class:`.ElementSet`.
    """
    specs = with_encodings(specs, request.encodings or {}, request.sequences)
    options = {**elements.options, **request.to_json()}
    elements = replace(elements, options=options)
    if total is not None and request.num_elems is not None:
        total = min(total, request.num_elems)
    encoder = ExampleEncoder(specs.values())
    with (
        element_output(
            request.output, elements.recorded_by, request.overwrite
        ) as target,
        # Files are not uploaded before they are shards.
        local_drafts(target.drafts) as drafts,
        progress_bar(total, request.progress) as bar,
    ):
        job = element_set.ElementSet(
            target, tuple(specs.values()), request.sizes, (DEFAULT_SPLIT,), elements,
            settle=settle,
        )  # fmt: skip
        encoded = (
            element_set.Encoded(DEFAULT_SPLIT, encoder.encode(size, columns), columns)
            for size, columns in draw(specs)
        )

        def report(some: element_set.Encoded, finished: int) -> None:
            bar.set_postfix({"file": finished + 1}, refresh=False)
            bar.update(len(some.records))

        result = element_set.write_encoded(job, encoded, report, drafts=drafts)
        if request.num_elems is not None and result.examples < request.num_elems:
            warnings.warn(
                f"num_elems is {request.num_elems}, but there were only "
                f"{result.examples} elements. They are written. To repeat a "
                "tf.data.Dataset, give dataset.repeat().",
                stacklevel=3,
            )
        element_set.join_elements(job, [result])
        return files.given_path("output", request.output)


@contextmanager
def local_drafts(folder: str) -> Iterator[str]:
    """Returns a folder on this machine for files that are moved later.

    It is ``folder`` itself if that is local, so that moving copies no bytes.
    """
    if files.is_local(folder):
        yield folder
        return
    with temporary_folder() as drafts:
        yield drafts


def with_encodings(
    specs: Mapping[str, FeatureSpec],
    encodings: Mapping[str, str],
    sequences: Sequence[str],
) -> dict[str, FeatureSpec]:
    """Returns the specs with the encodings that the user wants.

    Raises
    ------
    OptionError
        If no feature has this name, or its values cannot have this encoding.
    """
    made = dict(specs)
    for name, encoding in encodings.items():
        check_feature("encodings", name, specs)
        problem = encoding_problem(specs[name], encoding)
        if problem is not None:
            raise OptionError(f"encodings: {name}", problem, encoding)
        made[name] = replace(specs[name], encoding=encoding)
    for name in sequences:
        check_feature("sequences", name, specs)
        spec = made[name]
        if not spec.shape or None in spec.shape[1:]:
            raise OptionError(
                "sequences",
                "needs arrays with at least one axis, the steps; the sizes of the "
                "other axes must be the same in all examples",
                f"{spec.name} of shape {spec.shape}",
            )
        made.pop(spec.shape_in or "", None)
        shape = (None, *spec.shape[1:])
        made[name] = replace(spec, sequence=True, shape=shape, shape_in=None)
    return made


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
    encodings: Mapping[str, str] | None = None,
    sequences: Sequence[str] = (),
    overwrite: bool = False,
    progress: bool | None = None,
    **sizes: Any,
) -> str:
    """Writes dicts of values as sharded GZIP TFRecords of ``tf.train.Example``.

    ::

        record_examples(
            [{"age": 29, "movies": ["Fight Club"], "ratings": [9.7]}], "records/"
        )

    Values are numbers, texts, bytes, lists of them, numpy arrays, and dicts of these.
    :mod:`beam_pipeline.elements.record_examples` lists the features that they become.
    Lists may differ in length between examples; a value that is None or not there is
    missing. Memory holds the first 256 examples, then a few at a time.

    Parameters
    ----------
    examples : iterable of mapping, or a mapping of columns
        Each mapping is one example. Of columns, each row is one.
    dtypes : mapping, optional
        Feature to dtype, for example ``{"price": "float64"}``. Default: from the first
        256 examples.
    output_dir, elements_per_file, num_elems, encodings, sequences, overwrite, \
progress, **sizes
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
    request = Request(
        output_dir,
        element_set.ShardSizes(elements_per_file=elements_per_file, **sizes),
        num_elems,
        encodings,
        sequences,
        overwrite,
        progress,
    )
    count, given = _rows(examples)
    rows = _flattened(given)
    wanted = FIRST if num_elems is None else min(FIRST, max(num_elems, 1))
    first = list(itertools.islice(rows, wanted))
    found = Inference(first, dtypes or {})
    if not found.specs:
        raise InputError(
            "The examples have no features, or there are no examples. Give `dtypes`, "
            "which names the features of an empty data set."
        )

    def draw(specs: Mapping[str, FeatureSpec]) -> Iterator[Block]:
        found.specs = dict(specs)
        every = itertools.islice(itertools.chain(first, rows), num_elems)
        return _blocks(every, found)

    return write_elements(
        request,
        Elements("record_examples", {"dtypes": found.dtypes}, found.structure),
        found.specs,
        draw,
        count,
    )


def _rows(examples: Examples) -> tuple[int | None, Iterator[Mapping[str, Any]]]:
    """Returns the number of examples, if it is known, and the examples."""
    if isinstance(examples, Mapping):
        return _column_rows(examples)
    return len(examples) if isinstance(examples, Sequence) else None, iter(examples)


def _column_rows(
    columns: Mapping[str, Sequence[Any]],
) -> tuple[int, Iterator[Mapping[str, Any]]]:
    lengths = {}
    for name, column in columns.items():
        if not hasattr(column, "__len__") or isinstance(column, str | bytes | Mapping):
            raise InputError(
                f"Column {name!r} is a {type(column).__name__}, but must be a list or "
                "an array with a value for each example. For one example, give a list "
                "of one dict."
            )
        lengths[name] = len(column)
    if len(set(lengths.values())) > 1:
        raise InputError(
            "Columns must have the same length; got "
            + ", ".join(f"{name}: {n}" for name, n in lengths.items())
        )
    rows = zip(*columns.values(), strict=True)
    return max(lengths.values(), default=0), (
        dict(zip(columns, row, strict=True)) for row in rows
    )


def _blocks(rows: Iterator[FlatExample], found: Inference) -> Iterator[Block]:
    number = 0
    while some := list(itertools.islice(rows, _TOGETHER)):
        made = [found.values(row, number + k) for k, row in enumerate(some)]
        number += len(made)
        columns = {name: [values[name] for values in made] for name in made[0]}
        yield len(made), columns


def _flattened(rows: Iterable[Any]) -> Iterator[FlatExample]:
    """Yields the rows flat; raises InputError for one that is no dict."""
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise InputError(
                f"Example {number} is a {type(row).__name__}, but must be a dict of "
                "values."
            )
        yield dict(_flat(row, ()))


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
        tensor, or a mapping of these. :mod:`beam_pipeline.elements.record_examples`
        lists the features that they become. None is left out.
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
    present = {k: value for k, value in _flat(values, ()) if value is not None}
    found = Inference([present], dtypes or {})
    found.specs = with_encodings(found.specs, encodings or {}, sequences)
    columns = {name: [value] for name, value in found.values(present, 0).items()}
    (record,) = ExampleEncoder(found.specs.values()).encode(1, columns)
    return record


Path = tuple[str, ...]
# The values of an example by the keys on the way to them.
FlatExample = dict[Path, Any]


class Inference:
    """The features of examples, by the first of them.

    Parameters
    ----------
    first : sequence of dict
        The first examples, flat: they decide the features and their encodings.
    dtypes : mapping
        Feature to dtype; these features may be missing in the first examples.

    Attributes
    ----------
    specs : dict
        The specs by name.
    dtypes : dict
        The given ones by name.
    """

    def __init__(self, first: Sequence[FlatExample], dtypes: Mapping[str, Any]):
        self.dtypes = {n: checked_dtype(f"dtypes: {n}", dtypes[n]) for n in dtypes}
        self._names: dict[Path, str] = {}
        self.specs: dict[str, FeatureSpec] = {}
        paths = list(dict.fromkeys(path for example in first for path in example))
        known = {"/".join(path) for path in paths}
        paths += [tuple(name.split("/")) for name in self.dtypes if name not in known]
        parents = {path[:k] for path in paths for k in range(1, len(path))}
        for path in paths:
            values = {
                number: example[path]
                for number, example in enumerate(first)
                if example.get(path) is not None
            }
            if path in parents:
                if values:
                    raise InputError(
                        f"{'/'.join(path)!r} is a value in one example, and a dict in "
                        "another. Give the value another name."
                    )
                continue  # None instead of a dict: all of it is missing
            name = self._names[path] = feature_name(path, self.specs)
            if not values and name not in self.dtypes:
                raise InputError(
                    f"Feature {name} is None in the first {len(first)} examples, so "
                    f"its type is unknown. Give `dtypes`, for example "
                    f"dtypes={{{name!r}: 'float32'}}."
                )
            self._add(name, values, len(values) < len(first))

    def _add(self, name: str, values: Mapping[int, Any], optional: bool) -> None:
        """Adds a feature with some values, by the numbers of their examples."""
        arrays = {
            number: _of_example(number, as_array, name, value)
            for number, value in values.items()
        }
        dtype = self.dtypes.get(name) or common_dtype(name, list(arrays.values()))
        shapes: list[Shape | None] = [array.shape for array in arrays.values()]
        shape = reduce(merge_shapes, dict.fromkeys(shapes)) if shapes else ()
        is_list = all(isinstance(array, PythonValues) for array in arrays.values())
        is_whole = numpy_dtype(dtype).kind in "bi"
        add_feature(
            self.specs,
            name,
            dtype,
            shape,
            INT64_LIST if is_list and is_whole else encoding_for(dtype, shape),
            optional=optional or not values,
            has_shape=needs_shape(shape) or None in (shape or ())[1:],
        )

    def values(self, example: FlatExample, number: int) -> dict[str, Any]:
        """Returns the features of an example; None for those that it lacks.

        Raises
        ------
        InputError
            If the example has another feature, or one of another type or shape.
        """
        for path, value in example.items():
            if path not in self._names and value is not None:
                name = "/".join(path)
                raise InputError(
                    f"Example {number} has the feature {name!r}, which the first "
                    "examples do not have. Give `dtypes`, for example "
                    f"dtypes={{{name!r}: 'float32'}}."
                )
        made: dict[str, Any] = {}
        for path, name in self._names.items():
            array, spec = None, self.specs[name]
            if example.get(path) is not None:
                array = _of_example(number, as_array, name, example[path])
                array = _of_example(number, cast, name, array, spec.dtype)
                if array.shape != spec.shape:
                    _check_shape(spec, array.shape, number)
            made[name] = array
            if spec.shape_in is not None:
                made[spec.shape_in] = None if array is None else np.array(array.shape)
        return made

    @property
    def structure(self) -> Structure:
        """The structure of an element: dicts within dicts."""
        return _structure(
            [(path, Leaf("tensor", name)) for path, name in self._names.items()]
        )


def _check_shape(spec: FeatureSpec, shape: tuple[int, ...], number: int) -> None:
    """Raises InputError if the encoding of a feature cannot have this shape, too."""
    merged = merge_shapes(spec.shape, shape)
    only_first = merged is not None and None not in merged[1:] and 0 not in shape[1:]
    has_shape = spec.codec.holds_shape or spec.shape_in is not None
    if not (only_first or (has_shape and not spec.sequence)):
        before = str(spec.shape).replace("None", "any")
        raise InputError(
            f"Example {number}: feature {spec.name} has the shape {shape}, but the "
            f"first examples have {before}. Only the size of the first axis may change "
            "later; let the first examples show the other changes, or record such "
            "arrays in a data set of their own."
        )


def _of_example(number: int, function: Callable[..., Array], *args: Any) -> Array:
    """Calls a function; its error names the example."""
    try:
        return function(*args)
    except InputError as error:
        raise InputError(f"Example {number}: {error}") from error


def _structure(pairs: Sequence[tuple[Path, Leaf]]) -> Node:
    below: dict[str, list[tuple[Path, Leaf]]] = {}
    for path, leaf in pairs:
        below.setdefault(path[0], []).append((path[1:], leaf))
    children = [
        group[0][1] if group[0][0] == () else _structure(group)
        for group in below.values()
    ]
    return Node("dict", tuple(below), tuple(children))


def _flat(example: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if not isinstance(example, Mapping):
        yield path, example
        return
    for key, value in example.items():
        # Readers in C end a name at a zero.
        if (
            not isinstance(key, str)
            or "\0" in key
            or key != key.encode(errors="replace").decode()
        ):
            where = f" in {'/'.join(path)!r}" if path else ""
            raise InputError(
                "The names of features must be texts, which UTF-8 can encode and which "
                f"hold no zero; got {key!r}{where}."
            )
        yield from _flat(value, (*path, key))
