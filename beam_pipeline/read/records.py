"""Any example of a data set, at once, as numpy arrays; without TensorFlow or Beam.

Also a mix of several data sets, whose batches are drawn from them.

::

    number in the split -> shard, member     members          by arithmetic
    members -> bytes                         members          neighbours in one read
    bytes -> records                         members          inflate, test checksums
    records -> arrays                        examples.serialisation
"""

from __future__ import annotations

import hashlib
import operator
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from typing import TYPE_CHECKING, Any, Unpack, get_args, overload

import numpy as np
import numpy.typing as npt

from beam_pipeline.arrays import Integers
from beam_pipeline.dataset import side_by_side
from beam_pipeline.dataset.folders import METADATA
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError, OptionError, did_you_mean, needing
from beam_pipeline.examples import spec
from beam_pipeline.examples.serialisation import BatchMaker, ExampleMaker, RecordParser
from beam_pipeline.parameters import Number, check_choice, check_text, check_whole
from beam_pipeline.read import choices
from beam_pipeline.read.members import MemberReader, check_shards
from beam_pipeline.read.window_table import (
    Source,
    check_clips,
    examples_of,
    make_source,
    read_window_table,
)
from beam_pipeline.storage.files import PathLike
from beam_pipeline.text import html_line, html_table

if TYPE_CHECKING:
    import pyarrow

    from beam_pipeline.read.batches import Batches, BatchOptions, Ends, Mixed
    from beam_pipeline.read.torch import TorchBatches

# Iterating reads about so many bytes, and at most so many examples, at once.
AHEAD_BYTES = 2 << 20
AHEAD_EXAMPLES = 256


def open_records(
    folder: side_by_side.Folders,
    split: choices.Split | None = None,
    features: Sequence[str] | None = None,
    statistics: choices.Split | PathLike | None = None,
) -> Records:
    """Opens a data set for reading any of its examples, without TensorFlow.

    ::

        records = open_records("records/", split="train")
        example = records[123456]
        batch = records.read([5, 17, 3])

    Parameters
    ----------
    folder : path or sequence of paths
        The data set; local, or in ``gs://`` or ``s3://``. Several that belong together
        are read as one: in each split, one after the other.
    split : str or list of str, optional
        Required if the data set has several: as for :func:`.replay`.
    features : sequence of str, optional
        The features to read. Default: all.
    statistics : str, list of str or path, optional
        The splits, or the other data set, whose statistics ``normalize`` uses; see
        :func:`.replay`.

    Returns
    -------
    Records
        A sequence of examples in the order on disk, which is that of :func:`replay`.

    Raises
    ------
    InputError
        If there is no data set, no split or feature of this name, or no index of
        members; or if the index does not fit the data set.
    """
    return Records(folder, split, features, statistics)


class Example(dict[str, Any]):
    """The features of an example by name: arrays, scalars and texts.

    It is an ordinary dict, also after pickling and copying. As the last value of a cell
    of a notebook, it is shown with a player, the waveform and the spectra.
    """

    __slots__ = ("_metadata",)

    _metadata: Metadata

    @classmethod
    def of(cls, metadata: Metadata) -> Example:
        """Returns an empty example of a data set."""
        if hasattr(sys.modules.get("jax"), "tree_util"):  # it may be half imported
            _register_with_jax()
        made = cls()
        made._metadata = metadata
        return made

    def _repr_html_(self) -> str:
        from beam_pipeline.read.example_view import NO_METADATA, view_example

        return view_example(self, getattr(self, "_metadata", NO_METADATA))

    def __reduce__(self) -> tuple[Any, ...]:
        return Example, (dict(self),)


@cache
def _register_with_jax() -> None:
    """Makes an example a tree of arrays for JAX, and for Grain.

    They take any other subclass of dict for a single value.
    """
    tree = sys.modules["jax"].tree_util
    tree.register_pytree_with_keys(
        Example,
        lambda example: (
            [(tree.DictKey(name), example[name]) for name in sorted(example)],
            tuple(sorted(example)),
        ),
        lambda names, values: dict(zip(names, values, strict=True)),
    )


class Records(Sequence[Example]):
    """A sequence of examples, which it reads when they are asked for.

    ``records[i]`` is a dict of numpy arrays, numpy scalars and texts; features that an
    example lacks are left out. Arrays belong to the caller. ``records[2:9]``,
    ``records[[4, 1, 1]]`` and ``records[mask]`` are views, without reading. Both
    checksums of each record are tested.

    Records can be pickled, and used by several threads, and after a fork.

    Attributes
    ----------
    features : mapping
        Name to :class:`.FeatureSpec`, for each feature of an example.
    metadata : Metadata
    classes : tuple of str
        ``classes[target]`` is the class of an example.
    class_names : list of str
        The same, under the name that Keras has for it.
    num_classes : int
    split : str, with ``+`` between several
    folder : str
    statistics : Statistics
    """

    def __init__(
        self,
        folders: side_by_side.Folders,
        split: choices.Split | None,
        features: Sequence[str] | None,
        statistics: choices.Split | PathLike | None,
    ):
        self.data = data = side_by_side.open_data_sets(folders)
        self.folder, self.metadata = data.name, data.metadata
        self.classes = self.metadata.classes
        self.class_names = self.metadata.class_names
        self.num_classes = len(self.classes)
        self._splits = splits = choices.choose_splits(self.metadata, split)
        self.split = "+".join(splits)
        names = choices.choose_features(self.metadata, features)
        self.statistics = choices.choose_statistics(self.metadata, splits, statistics)
        chosen = None if features is None else tuple(names)
        self._arguments = data.folders, self.split, chosen, statistics
        shards = choices.shards_of(self.metadata, splits)
        self._reader = MemberReader(data.folders, check_shards(data, shards))
        known = self.metadata.features
        self.features: Mapping[str, spec.FeatureSpec]
        self.features, self._parser = parser_of(known, names, self.metadata.structure)
        self._maker = ExampleMaker(self._parser, self.features)
        self._new_example = partial(Example.of, self.metadata)
        # Tables, which all views share: of the windows, and of examples' sources.
        self._table = cache(partial(read_window_table, data, splits))
        self._sources = cache(partial(_read_sources, data, splits))
        self._numbers: range | Integers = range(len(self._reader))

    def _view(self, numbers: range | Integers) -> Records:
        """Returns the examples with some numbers in the split, without reading."""
        view = object.__new__(Records)
        view.__dict__ = {**self.__dict__, "_numbers": numbers}
        view.__dict__.pop("fingerprint", None)  # this one's
        return view

    @property
    def numbers(self) -> Integers:
        """The number of each example in its split; several splits count as one."""
        if isinstance(self._numbers, range):
            span = self._numbers
            return np.arange(span.start, span.stop, span.step, dtype=np.int64)
        return self._numbers

    @property
    def is_whole(self) -> bool:
        """Whether these are all examples of the splits, in the order on disk."""
        whole = range(len(self._reader))
        return isinstance(self._numbers, range) and self._numbers == whole

    def __len__(self) -> int:
        return len(self._numbers)

    def __repr__(self) -> str:
        # Grain's DataLoader compares it with that in a state.
        total = len(self._reader)
        count = f"{len(self)} of {total}" if len(self) != total else f"{total}"
        return (
            f"<Records: {count} examples of split {self.split} in {self.folder}: "
            f"{', '.join(self.features)}; fingerprint {self.fingerprint[:12]}>"
        )

    def _repr_html_(self) -> str:
        from beam_pipeline.dataset.metadata import view_features

        parts = [html_line(repr(self)[1:-1]), view_features(self.features)]
        splits = self.metadata.splits
        counts = {name: splits[name].examples_per_class for name in self._splits}
        if self.classes and self.is_whole and all(counts.values()):
            rows = [
                (name, *(of[name] for of in counts.values())) for name in self.classes
            ]
            parts.append(html_table(("class", *counts), rows))
        return "".join(parts)

    @overload
    def __getitem__(self, key: int) -> Example: ...

    @overload
    def __getitem__(
        self, key: slice | Sequence[int] | Sequence[bool] | npt.NDArray[Any]
    ) -> Records: ...

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return self._view(self._numbers[key])
        if isinstance(key, bool):  # not the number 0 or 1
            return self._view(self._chosen(key))
        try:
            number = self._numbers[operator.index(key)]
        except TypeError:
            return self._view(self._chosen(key))
        except IndexError:
            raise self._lacks(key) from None
        stored = self._reader.read_one(number, self._parser.stored)
        return self._maker.make(stored, self._new_example)

    def __getitems__(self, keys: Sequence[int]) -> list[dict[str, Any]]:
        """Returns several examples as plain dicts; neighbours are read together.

        PyTorch's DataLoader and Grain call it. A feature that only some of them have is
        None in the others: PyTorch leaves out what the first example of a batch lacks.
        """
        found = self._examples(self._chosen(keys), dict)
        names = dict.fromkeys(name for example in found for name in example)
        return [{name: example.get(name) for name in names} for example in found]

    _getitems = __getitems__

    def __iter__(self) -> Iterator[Example]:
        size = choices.memory_bytes(self.metadata, self.features.values())
        step = min(max(AHEAD_BYTES // max(size, 1), 1), AHEAD_EXAMPLES)
        for start in range(0, len(self), step):
            numbers = self[start : start + step].numbers
            yield from self._examples(numbers, self._new_example)

    def read(self, indices: Any) -> dict[str, Any]:
        """Returns some examples as a batch.

        Parameters
        ----------
        indices : sequence of int, slice or mask
            In any order; an example may be asked for several times.

        Returns
        -------
        dict
            For each feature, an array of shape ``(n, *shape)``. Texts are an object
            array. Features whose shapes differ between examples, or that an example
            may lack, are a list of arrays, with None where an example lacks it. Texts
            that an example may lack are an object array with None.

        Raises
        ------
        IndexError
            If there is no such example.
        DamagedRecord
            If an example is damaged; it names the file.
        InputError
            If a shard is missing or was rewritten.
        """
        is_slice = isinstance(indices, slice)
        numbers = self[indices].numbers if is_slice else self._chosen(indices)
        batch = BatchMaker(self._parser, self.features, len(numbers))
        for place, stored in self._reader.read(numbers, self._parser.stored):
            batch.put(place, stored)
        return batch.finish()

    def table(self) -> Any:
        """Returns a table of the windows, without reading any shard.

        See :func:`.read_window_table` for its columns; ``table().to_pandas()`` is a
        data frame. The table of a whole split has a row for each planned window, also
        for those that were left out. The table of a view has a row for each example.

        Returns
        -------
        pyarrow.Table

        Raises
        ------
        InputError
            If files beside the shards are missing or do not fit the data set.
        """
        table = self._table()
        return table if self.is_whole else examples_of(table).take(self.numbers)

    def where(self, condition: Any) -> Records:
        """Returns the examples that meet a condition on columns of the table.

        ::

            owls = records.where("class == 'owl' and snr_db > 10")

        The condition may use ``and``, ``or``, ``not``, ``in``, ``is None``,
        comparisons and arithmetic. An expression of Arrow does the same, for any
        column: ``pyarrow.compute.field("my column") > 3``. A comparison with a missing
        value is not met. NaN and the result of a division by zero are missing values.

        Raises
        ------
        OptionError
            See :func:`.conditions.rows_where`.
        """
        from beam_pipeline.read.conditions import rows_where  # it loads Arrow

        met = rows_where(examples_of(self.table()), condition)
        return self._view(self.numbers[met])

    def class_numbers(self) -> Integers:
        """Returns the number in ``classes`` of each example's class.

        It is from the table of windows; no shard is read.

        Raises
        ------
        InputError
            If there is no table, or an example has no class or several.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        table = examples_of(self.table())
        check_clips(table, self.folder)
        names = pa.array(self.classes, pa.string())
        found = pc.index_in(table["class"].cast(pa.string()), names)
        if found.null_count:
            label = table["class"].filter(found.is_null())[0].as_py()
            raise InputError(
                f"{self.folder}: balancing needs one class for each example, but there "
                f"is one with the label {label!r}, and the classes are "
                f"{', '.join(self.classes) or 'none'}."
            )
        return np.asarray(found.to_numpy(), np.int64)

    def class_weights(self) -> dict[int, float]:
        """Returns the weight of each class in a loss, so that all count the same.

        ::

            model.fit(data, class_weight=records.class_weights())

        The weight is ``n / (k * count)`` with ``count`` of these ``n`` examples in the
        class, and ``k`` classes that have examples, as "balanced" in scikit-learn. A
        class without examples has the weight 0.

        Raises
        ------
        InputError
            See :meth:`class_numbers`.
        """
        counts: Integers = np.bincount(self.class_numbers(), minlength=self.num_classes)
        of_each = len(self) / (np.count_nonzero(counts) or 1)
        return {k: float(of_each / n) if n else 0.0 for k, n in enumerate(counts)}

    def of_clip(self, path: str) -> Records:
        """Returns the examples of a file, by its path relative to the input.

        Raises
        ------
        OptionError
            If the path is not a text.
        InputError
            If the split has no window of this file.
        """
        check_text("path", path)
        import pyarrow.compute as pc

        check_clips(self._table(), self.folder)
        paths = self._table()["path"]
        if not pc.any(pc.equal(paths, path)).as_py():
            known = paths.unique().to_pylist()
            example = did_you_mean(path, known) or next(iter(known), None)
            raise InputError(
                f"The split has no window of {path!r}. Paths are relative to their "
                f"input, for example {example!r}."
            )
        return self.where(pc.field("path") == path)

    def source(self, index: int, input: side_by_side.Folders | None = None) -> Source:
        """Returns where an example comes from, without reading any shard.

        Parameters
        ----------
        input : path or sequence of paths, optional
            What the data set was recorded from, as for ``record``; then ``file`` is the
            path of the file. A data set does not store it.

        Raises
        ------
        IndexError
            If there is no such example.
        InputError
            If the data set was not recorded from audio files, or the inputs are not
            those of it.
        """
        (number,) = self._chosen([index]).tolist()
        return make_source(self.folder, self._sources(), number, input)

    def serialised(self, indices: Any) -> list[bytes]:
        """Returns some examples as they are stored, for other parsers."""
        numbers = self._chosen(indices)
        found = dict(self._reader.read(numbers, _as_it_is))
        return [found[place] for place in range(len(numbers))]

    def batches(self, batch_size: int, **options: Unpack[BatchOptions]) -> Batches:
        """Returns batches of these examples, which threads read ahead.

        Each iteration gives one epoch. The options are the keywords of
        :class:`.Batches`, ``shuffle`` and ``normalize`` for example.
        """
        from beam_pipeline.read.batches import Batches  # opening does without it

        return Batches(self, batch_size, **options)

    def to_torch(
        self, batch_size: int, **options: Unpack[BatchOptions]
    ) -> TorchBatches:
        """Returns batches of tensors, as a ``torch.utils.data.IterableDataset``.

        ::

            for batch in records.to_torch(32, shuffle="global", drop_remainder=True):
                ...

        The ranks of a distributed job read different examples, all of them together
        every example of an epoch; with ``drop_remainder``, each of them gives the same
        number of batches. Each pass is the next epoch.

        Texts are lists of str. Features whose shapes differ between examples, or that
        an example may lack, are lists of tensors.

        Parameters
        ----------
        batch_size : int
        **options
            See :meth:`batches`. By default, ``shard`` is the rank and the number of
            ranks of ``torch.distributed``, if it is initialised; or the environment
            variables ``RANK`` and ``WORLD_SIZE``.
        """
        with needing("torch", "to_torch"):
            from beam_pipeline.read.torch import TorchBatches, find_rank
        options = {"shard": find_rank(), **options}
        return TorchBatches(self.batches(batch_size, **options))

    def to_arrow(
        self, batch_size: int = 256, *, tensors: bool = True, binary: Sequence[str] = ()
    ) -> pyarrow.Table:
        """Returns these examples as a table of Arrow, in memory.

        ::

            frame = records[:1000].to_arrow().to_pandas()

        See :meth:`arrow_batches`, which reads them one batch after the other.
        """
        return self.arrow_batches(batch_size, tensors=tensors, binary=binary).read_all()

    def arrow_batches(
        self, batch_size: int = 256, *, tensors: bool = True, binary: Sequence[str] = ()
    ) -> pyarrow.RecordBatchReader:
        """Returns a reader of batches of Arrow, which threads read ahead.

        ::

            with records.where("class == 'owl'").arrow_batches() as batches:
                pyarrow.dataset.write_dataset(batches, "owls/", format="parquet")

        Arrays that have one shape are ``fixed_shape_tensor``; others, and those that an
        example may lack, are lists, with null where it does. Values of arrays of
        numbers are not copied from what was read. Complex numbers become two real ones,
        on an axis at the end, and ``bfloat16`` becomes float32.

        Parameters
        ----------
        batch_size : int
            The last batch may be smaller.
        tensors : bool
            False: fixed-size lists instead of tensors, for programs that do not know
            these.
        binary : sequence of str
            Features of texts to store as bytes.

        Raises
        ------
        InputError
            If Arrow has no type for a feature, because its number of axes differs
            between examples; when a batch is read, if a text is not UTF-8, and
            ``binary`` does not name its feature.
        OptionError
            If an argument has a wrong value.
        """
        import pyarrow as pa

        from beam_pipeline.read.arrow import arrow_schema, record_batches

        schema = arrow_schema(self.features, tensors, binary)
        made = record_batches(iter(self.batches(batch_size)), schema, self.features)
        return pa.RecordBatchReader.from_batches(schema, made)

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the shards, and of which examples of them these are."""
        hasher = hashlib.sha256()
        for shard in self._reader.shards:
            hasher.update(shard.sha256.encode())
        if not self.is_whole:
            hasher.update(self.numbers.astype("<i8").tobytes())
        return hasher.hexdigest()[:32]

    def _examples(self, numbers: Integers, new: Callable[[], Any]) -> list[Any]:
        made = list[Any]([None] * len(numbers))
        for place, stored in self._reader.read(numbers, self._parser.stored):
            made[place] = self._maker.make(stored, new)
        return made

    def _chosen(self, keys: Any) -> Integers:
        """Returns the numbers in the split of some of these examples.

        Parameters
        ----------
        keys : array-like
            Positions, of which negative ones count from the end; or a bool for each
            example.

        Raises
        ------
        IndexError
            If there is no such example, or a mask has another length.
        """
        chosen: Any = np.asarray(keys)
        length = len(self)
        if chosen.dtype == bool and chosen.shape == (length,):
            chosen = np.flatnonzero(chosen)
        if chosen.ndim != 1 or (chosen.size and chosen.dtype.kind not in "iu"):
            raise IndexError(
                "several examples are chosen by a slice, a list of numbers, or a mask "
                f"of {length} values, not by {keys!r}"
            )
        wrong = (chosen < -length) | (chosen >= length)
        if wrong.any():
            raise self._lacks(chosen[wrong][0])
        chosen = chosen.astype(np.int64)  # also an empty list
        chosen = np.where(chosen < 0, chosen + length, chosen)
        if isinstance(self._numbers, range):
            return np.asarray(self._numbers.start + chosen * self._numbers.step)
        return np.asarray(self._numbers[chosen])

    def _lacks(self, number: Any) -> IndexError:
        return IndexError(
            f"there is no example {number}, only {len(self)} examples of split "
            f"{self.split} in {self.folder}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._arguments, self.data.hashes, self._numbers)


def _read_sources(data: side_by_side.DataSets, splits: Sequence[str]) -> pyarrow.Table:
    """Returns the table of the examples, with their sources."""
    return examples_of(read_window_table(data, splits, sources=True))


def _as_it_is(data: bytes, start: int, stop: int) -> bytes:
    return data[start:stop]


def _reopened(
    arguments: tuple[Any, ...], hashes: tuple[str, ...], numbers: range | Integers
) -> Records:
    """Returns pickled Records; raises InputError if they are of another data set."""
    records = Records(*arguments)
    if records.data.hashes != hashes:
        raise InputError(
            f"{records.folder} is not the data set that was opened: {METADATA} has "
            "changed. Open it again."
        )
    return records._view(numbers)


def parser_of(
    known: Mapping[str, spec.FeatureSpec],
    names: Iterable[str],
    structure: spec.Structure | None = None,
) -> tuple[dict[str, spec.FeatureSpec], RecordParser]:
    """Returns the specs of some features, and a parser of them.

    The parser also parses the features that say what shape others have.
    """
    specs = spec.needed_features(names, known, structure)
    features = {name: specs[name] for name in spec.component_names(specs, None)}
    return features, RecordParser(known, specs)


Folder = PathLike | tuple[PathLike, ...]
Sources = (
    Mapping[Folder, float]
    | Mapping[Records, float]
    | Sequence[tuple[Folder | Records, float]]
)

# What of a feature must be the same in all sources.
_AGREEING = ("dtype", "shape", "optional", "sequence")


def mix(
    sources: Sources,
    *,
    seed: int = 0,
    ends: Ends = "repeat",
    split: choices.Split | None = None,
    features: Sequence[str] | None = None,
) -> Mixed:
    """Mixes data sets, by drawing the source of each example.

    ::

        mixed = mix({"speech/": 0.7, "noise/": 0.3}, seed=1)
        for batch in mixed.batches(32):
            ...

    Parameters
    ----------
    sources : mapping, or sequence of pairs
        Folders or :class:`.Records`, with their weights; a tuple of folders is one
        source. Only the ratios of the weights count. A weight is the probability of
        drawing a source, whatever its size.
    seed : int
        Seed of the draws, and of the order of each source.
    ends : "repeat", "stop" or "leave"
        What happens when a source has given all its examples. ``"repeat"``: it begins
        its next epoch, in another order; the mix never ends. ``"stop"``: the mix ends.
        ``"leave"``: the others go on and share its weight; the mix ends with the last.
    split : str or list of str, optional
        The split of each folder, or several, see :func:`.open_records`. Required if a
        folder has several.
    features : sequence of str, optional
        The features to read from each folder. Default: all, which must then agree.

    Raises
    ------
    InputError
        If a data set cannot be opened or has no examples; or if the sources have
        different features, dtypes, shapes or classes.
    OptionError
        If an argument has a wrong value.
    """
    from beam_pipeline.read.batches import Ends, Mixed  # opening does without it

    pairs = _pairs_of(sources)
    check_choice("ends", ends, get_args(Ends))
    seed = check_whole("seed", seed, None)
    are_open = all(isinstance(source, Records) for source, _ in pairs)
    for name, value in (("split", split), ("features", features)):
        if are_open and value is not None:
            raise OptionError(
                name, "is for folders; choose it with `open_records` for Records", value
            )
    opened = [
        source if isinstance(source, Records) else open_records(source, split, features)
        for source, _ in pairs
    ]
    for records in opened:
        if not len(records):
            raise InputError(f"{records.folder} has no examples to mix.")
        side_by_side.check_features(
            opened[0].folder, opened[0].features, records.folder, records.features,
            _AGREEING, "Choose features that agree with `features`.",
        )  # fmt: skip
        if "target" in records.features:
            side_by_side.check_classes(
                opened[0].folder, opened[0], records.folder, records
            )
    return Mixed(opened, [weight for _, weight in pairs], seed, ends)


def _pairs_of(sources: Any) -> list[tuple[Folder | Records, float]]:
    """Returns the sources and their weights."""
    given = sources.items() if isinstance(sources, Mapping) else sources
    is_several = isinstance(given, Iterable) and not isinstance(given, str | Records)
    pairs = list(given) if is_several else []
    if not pairs or any(not isinstance(p, tuple | list) or len(p) != 2 for p in pairs):
        need = "must be folders or Records with weights, like {'a/': 0.7, 'b/': 0.3}"
        raise OptionError("sources", need, sources)
    weights = Number(is_positive=True)
    return [(source, weights.value("weights", weight)) for source, weight in pairs]
