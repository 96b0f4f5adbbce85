"""The methods of Records that give what each framework for training reads.

None of the frameworks is imported before its method is called. Two of them need no
method, because Records are already what they take::

    torch.utils.data.DataLoader(records, batch_size=32, shuffle=True, num_workers=2)
    grain.MapDataset.source(records).shuffle(seed=0).batch(32)
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict, cast

from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.orders import Shuffle

if TYPE_CHECKING:
    import datasets
    import pyarrow
    from typing_extensions import Unpack

    from beam_pipeline.read.jax_batches import JaxBatches
    from beam_pipeline.read.keras_batches import KerasBatches
    from beam_pipeline.read.torch_batches import TorchBatches


class BatchOptions(TypedDict, total=False):
    """The options of :meth:`.Records.batches`, besides the batch size and the shard."""

    shuffle: Shuffle
    seed: int
    epoch: int
    drop_remainder: bool
    normalize: bool | Sequence[str]
    repeat: bool
    threads: int | None


class FrameworkMethods:
    """What Records have for frameworks."""

    def to_torch(
        self,
        batch_size: int,
        *,
        rank: tuple[int, int] | None = None,
        **options: Unpack[BatchOptions],
    ) -> TorchBatches:
        """Returns batches of tensors, as a ``torch.utils.data.IterableDataset``.

        ::

            dataset = records.to_torch(32, shuffle="global", drop_remainder=True)
            loader = StatefulDataLoader(dataset, batch_size=None, num_workers=2)

        The ranks and their workers read different examples, all of them together every
        example of an epoch; with ``drop_remainder``, each of them gives the same number
        of batches. Each pass over the loader is the next epoch.
        With ``StatefulDataLoader`` of torchdata, the loader's ``state_dict`` continues
        at the next example, also with workers. Its ``num_workers`` and the number of
        ranks must then stay the same.

        Texts are lists of str. Features whose shapes differ between examples, or that
        an example may lack, are lists of tensors.

        Parameters
        ----------
        batch_size : int
        rank : (int, int), optional
            ``(index, count)`` of this trainer. Default: that of ``torch.distributed``,
            if it is initialised; or the environment variables ``RANK`` and
            ``WORLD_SIZE``; or a single one.
        **options
            See :meth:`batches`. By default, workers share the cores.
        """
        module = _import("torch_batches", "torch", "torch")
        return cast(
            "TorchBatches", module.TorchBatches(self, batch_size, rank, options)
        )

    def to_jax(
        self,
        batch_size: int,
        *,
        sharding: Any = None,
        shard: tuple[int, int] | None = None,
        **options: Unpack[BatchOptions],
    ) -> JaxBatches:
        """Returns batches of arrays on JAX devices; the next one is sent ahead.

        ::

            mesh = jax.make_mesh((jax.device_count(),), ("data",))
            sharding = NamedSharding(mesh, PartitionSpec("data"))
            for batch in records.to_jax(32, sharding=sharding, drop_remainder=True):
                ...

        It has ``state_dict`` and ``load_state_dict``, as :meth:`batches`. Texts, and
        lists of arrays, stay as they are. JAX converts numbers of 64 bits to 32 bits,
        unless ``jax_enable_x64`` is set.

        Parameters
        ----------
        batch_size : int
            Of this process.
        sharding : jax.sharding.Sharding or jax.Device, optional
            For all features. Default: the default device.
        shard : (int, int), optional
            Default: ``(jax.process_index(), jax.process_count())``.
        **options
            See :meth:`batches`.
        """
        module = _import("jax_batches", "jax", "jax")
        made = module.JaxBatches(
            self, batch_size, sharding, {"shard": shard, **options}
        )
        return cast("JaxBatches", made)

    def to_keras(
        self,
        batch_size: int,
        x: str | Sequence[str],
        y: str | Sequence[str] | None = None,
        *,
        sample_weight: str | None = None,
        shuffle: Literal["global", False] = False,
        seed: int = 0,
        drop_remainder: bool = False,
        normalize: bool | Sequence[str] = False,
        workers: int = 1,
    ) -> KerasBatches:
        """Returns batches as a ``keras.utils.PyDataset``, for any backend of Keras 3.

        ::

            examples = records.to_keras(32, "log_mel", "target", shuffle="global")
            model.fit(examples, epochs=3, shuffle=False)

        Parameters
        ----------
        batch_size : int
        x, y, sample_weight : str or sequence of str
            One feature is an array, several are a dict of arrays.
        shuffle, seed, drop_remainder, normalize
            See :meth:`batches`. Each epoch has another order.
        workers : int
            Keras reads with so many threads.
        """
        module = _import("keras_batches", "keras", "tensorflow")
        names = (x, y, sample_weight)
        made = module.KerasBatches(
            self, batch_size, names, shuffle=shuffle, seed=seed,
            drop_remainder=drop_remainder, normalize=normalize, workers=workers,
        )  # fmt: skip
        return cast("KerasBatches", made)

    def to_arrow(
        self,
        batch_size: int = 256,
        *,
        tensors: bool = True,
        binary: Sequence[str] = (),
    ) -> pyarrow.Table:
        """Returns these examples as a table of Arrow, in memory.

        ::

            frame = records[:1000].to_arrow().to_pandas()

        See :meth:`arrow_batches`, which reads them one batch after the other.
        """
        return self.arrow_batches(batch_size, tensors=tensors, binary=binary).read_all()

    def arrow_batches(
        self,
        batch_size: int = 256,
        *,
        tensors: bool = True,
        binary: Sequence[str] = (),
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

        from beam_pipeline.read.arrow_batches import arrow_schema, record_batches

        records: Any = self
        schema = arrow_schema(records.features, tensors, binary)
        batches = iter(records.batches(batch_size))
        made = record_batches(batches, schema, records.features)
        return pa.RecordBatchReader.from_batches(schema, made)

    def to_datasets(
        self,
        *,
        streaming: bool = False,
        shuffle: Literal["global", False] = False,
        seed: int = 0,
        epoch: int = 0,
        binary: Sequence[str] = (),
        **options: Any,
    ) -> datasets.Dataset | datasets.IterableDataset:
        """Returns a data set of Hugging Face.

        Without ``streaming``, it is a ``datasets.Dataset``: an Arrow copy of the
        examples in the cache of ``datasets``, which is made once. With ``streaming``,
        it is a ``datasets.IterableDataset``, which makes no copy. It consists of up to
        1024 pieces, which workers and ranks share, and its ``state_dict`` continues at
        the next example. Every pass has the same order, unless its ``set_epoch`` is
        called.

        ``target`` becomes a ``ClassLabel``. Complex numbers become two real ones, on an
        axis at the end. What an example lacks is None. Texts that are not UTF-8 are an
        error, unless ``binary`` names their feature.

        Parameters
        ----------
        streaming : bool
        shuffle, seed, epoch
            The order of a stream, and its first epoch, from which ``set_epoch`` counts.
            The stream's own ``shuffle`` mixes the examples of a buffer, which a state
            does not hold.
        binary : sequence of str
            Features of texts to store as bytes.
        **options
            Of a copy: for ``datasets.Dataset.from_generator``, as ``cache_dir`` and
            ``num_proc``.

        Raises
        ------
        InputError, OptionError
            If an argument has a wrong value, or Arrow has no type for a feature.
        """
        if streaming:
            module = _import("hugging_face_stream", "datasets", "huggingface")
            for name in options:
                raise OptionError(name, "is for a copy, without `streaming`")
            return module.make_stream(self, shuffle, seed, epoch, binary)
        module = _import("hugging_face", "datasets", "huggingface")
        if shuffle:
            raise InputError(
                "to_datasets(shuffle=...) needs streaming=True. A Dataset is shuffled "
                "by its own method: records.to_datasets().shuffle(seed=0)."
            )
        return module.make_dataset(self, binary, options)


def _import(module: str, library: str, extra: str) -> Any:
    """Imports the module for a framework, or says how to install the framework."""
    try:
        return importlib.import_module(f"beam_pipeline.read.{module}")
    except ModuleNotFoundError as error:
        if error.name != library:
            raise
        install = f"'audio-tfrecords[{extra}]'" if extra != library else library
        raise InputError(
            f"{library} is not installed. Install it: pip install {install}"
        ) from error
