"""The ways to read that `readers` measures: ours, `tf.data` by hand, and the others.

Each is a function of (folder of one form, name of the float feature). It returns a
function without arguments, called once an epoch, that gives the examples, or batches of
them, as dicts. What is imported is not measured, and neither are the start of workers
and the first epoch unless the cache is cold.

The `DataLoader` has two workers that stay (`persistent_workers`); in the rows "one by
one", one thread reads examples of a random permutation.
"""

import importlib
import pickle
from pathlib import Path

import numpy as np

BATCH = 64
COUNT = 3600
WORKERS = 2


def permutation():
    """Return all positions in a random order that is always the same."""
    return np.random.default_rng(0).permutation(COUNT).tolist()


def one_by_one(source):
    """Return an epoch of `source[i]` in random order."""
    order = permutation()
    return lambda: (source[i] for i in order)


# Ours.


def ours_replay(folder, feature, **keywords):
    """`replay` in the order of the disk."""
    importlib.import_module("tensorflow")
    from beam_pipeline import replay

    dataset = replay(folder, batch_size=BATCH, **keywords)
    return lambda: map(of_tensorflow, dataset)


def ours_batches(folder, feature, **keywords):
    """`open_records(...).batches(64)`."""
    from beam_pipeline import open_records

    records = open_records(folder)
    epochs = iter(range(1000))
    return lambda: records.batches(BATCH, epoch=next(epochs), **keywords)


def ours_one_by_one(folder, feature):
    """`records[i]`."""
    from beam_pipeline import open_records

    return one_by_one(open_records(folder))


def ours_in_grain(folder, feature):
    """`grain.MapDataset.source(records)[i]`."""
    import grain

    from beam_pipeline import open_records

    return one_by_one(grain.MapDataset.source(open_records(folder)))


def ours_loader(folder, feature, shuffle):
    """`DataLoader(records)`."""
    from beam_pipeline import open_records

    return torch_loader(open_records(folder), batch_size=BATCH, shuffle=shuffle)


def torch_loader(source, **keywords):
    """Return epochs of a PyTorch `DataLoader` with two workers that stay."""
    from torch.utils.data import DataLoader

    loader = DataLoader(
        source, num_workers=WORKERS, persistent_workers=True, **keywords
    )
    return lambda: loader


# `tf.data` by hand.


def hand_tf_data(folder, feature, variant):
    """One of the variants in `baselines`, in any order."""
    from tests.benchmarks import baselines

    files = sorted(map(str, Path(folder).glob("*.tfrecord.gz")))
    dataset = baselines.read_batches(files, BATCH, variant)
    return lambda: map(of_tensorflow, dataset)


def of_tensorflow(batch):
    """Return a batch of `tf.data` as arrays, without copying them."""
    return {
        name: np.asarray(memoryview(tensor))
        for name, tensor in batch.items()
        if tensor.dtype.name != "string"
    }


# ArrayRecord and Grain.


def array_record(folder, feature, parse):
    """`grain.MapDataset.source(ArrayRecordDataSource(paths)).map(parse)[i]`.

    `parse` names a function below.
    """
    import grain

    files = sorted(map(str, Path(folder).glob("*.array_record")))
    source = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(files))
    return one_by_one(source.map(PARSERS[parse](feature)))


def parse_none(feature):
    """The bytes as they are, with the example's numbers unknown."""
    return lambda record: {feature: np.frombuffer(record, np.uint8)}


def parse_pickle(feature):
    """A dict of arrays that was pickled."""
    return pickle.loads


def parse_example(feature):
    """`tf.train.Example` by protobuf, as guides show it."""
    import tensorflow as tf

    def parse(record):
        read = tf.train.Example.FromString(record).features.feature
        return {name: values_of(one) for name, one in read.items()}

    return parse


def values_of(feature):
    """Return the values of one `tf.train.Feature`."""
    kind = feature.WhichOneof("kind")
    values = getattr(feature, kind).value
    if kind == "float_list":
        return np.array(values, np.float32)
    return values[0]


PARSERS = {"none": parse_none, "pickle": parse_pickle, "example": parse_example}


# Hugging Face datasets.


def hugging_face(folder, feature, how):
    """`load_from_disk(...).with_format("numpy")`: one by one, or batches."""
    import datasets

    datasets.disable_progress_bars()
    data = datasets.load_from_disk(f"{folder}/arrow").with_format("numpy")
    if how == "one":
        return one_by_one(data)
    if how == "shuffled":
        order = np.array(permutation())
        starts = range(0, COUNT, BATCH)
        return lambda: (data[order[i : i + BATCH]] for i in starts)
    return lambda: data.iter(BATCH)


def hugging_face_loader(folder, feature, shuffle):
    """`DataLoader(data.with_format("torch"))`."""
    import datasets

    datasets.disable_progress_bars()
    data = datasets.load_from_disk(f"{folder}/arrow").with_format("torch")
    return torch_loader(data, batch_size=BATCH, shuffle=shuffle)


# webdataset and MosaicML streaming.


def web_dataset(folder, feature, shuffle):
    """`WebDataset(...).decode().batched(64)` in a `DataLoader`."""
    import webdataset

    files = sorted(map(str, Path(folder).glob("*.tar")))
    data = webdataset.WebDataset(files, shardshuffle=len(files) if shuffle else False)
    if shuffle:
        data = data.shuffle(1000)
    data = data.decode().map(lambda one: {feature: one["npy"], **one["json"]})
    data = data.batched(BATCH, collation_fn=collate)
    return torch_loader(data, batch_size=None)


def collate(examples):
    """Return a batch as `DataLoader` makes it by itself."""
    from torch.utils.data import default_collate

    return default_collate(examples)


def mosaic_streaming(folder, feature, shuffle):
    """`StreamingDataset(local=...)` in a `DataLoader`."""
    from streaming import StreamingDataset

    data = StreamingDataset(local=folder, shuffle=shuffle, batch_size=BATCH)
    return torch_loader(data, batch_size=BATCH)


WAYS = {
    way.__name__: way
    for way in (
        ours_replay,
        ours_batches,
        ours_one_by_one,
        ours_in_grain,
        ours_loader,
        hand_tf_data,
        array_record,
        hugging_face,
        hugging_face_loader,
        web_dataset,
        mosaic_streaming,
    )
}
