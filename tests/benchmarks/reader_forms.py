"""The same examples in the form of each reader that is measured, by its own writer.

    python -m tests.benchmarks.reader_forms [--data DIR] [--feature signal]

makes those that are not there yet and prints one line of JSON: their folder, the
examples, and the form -> its bytes, or why it could not be made.

========================  ============================================================
form                      what is written
========================  ============================================================
``members``               ours: GZIP members of one example, and an index of members
``whole``                 ours: one GZIP member a shard, as before there were members
``plain``                 ours: ``compression="none"``
``examples``              dicts of arrays, numbers and texts in a file of pickles:
                          what the writers below are given
``arrayrecord-zstd``      ``tf.train.Example`` in ArrayRecord, ``group_size:1``
``arrayrecord-plain``     the same, ``uncompressed``
``arrayrecord-pickle``    dicts of arrays, pickled, in ArrayRecord, ``group_size:1``
``datasets``              Arrow, ``Dataset.from_generator(...).save_to_disk(...)``
``webdataset``            tar files of ``.npy`` and ``.json``
``mds``                   MosaicML streaming, ``ndarray`` columns, no compression
========================  ============================================================

All have the examples in the same order, and four shards unless their writer decides.
Each is made in a process of its own: some of the libraries do not go together.
"""

import argparse
import json
import os
import pickle
import shutil
from pathlib import Path

from tests.benchmarks.corpus import make_corpus
from tests.benchmarks.measuring import DATA, Row, Watch, measure, run_case

FILES, SECONDS = 60, 60
WIN_LEN = 16000
COUNT = FILES * SECONDS
SHARDS = 4
EXAMPLES = "examples.pickle"
TRANSFORMS = {
    "signal": "identity()",
    "log_mel": "log_mel(n_fft=1024,hop=256,n_mels=64)",
}
TEXTS = "class", "filepath"
INTEGERS = "fs", "index", "target", "win_start_idx"
PEERS = (
    "array_record", "datasets", "grain", "streaming", "torch", "torchvision",
    "transformers", "webdataset",
)  # fmt: skip


# Ours.


def write_members(folder, source, feature):
    """Record the corpus; give its shards members of one example if they have none."""
    from beam_pipeline import record

    record(source, folder, **keywords(feature))
    if not Path(folder, "members.index").exists():
        rewrite(folder, one_member=False)


def write_whole(folder, source, feature):
    """Record the corpus, and make each shard one member."""
    from beam_pipeline import record

    record(source, folder, **keywords(feature))
    Path(folder, "members.index").unlink(missing_ok=True)
    rewrite(folder, one_member=True)


def write_plain(folder, source, feature):
    """Record the corpus without GZIP."""
    from beam_pipeline import record
    from beam_pipeline.errors import UnknownOption

    try:
        record(source, folder, compression="none", **keywords(feature))
    except UnknownOption as error:
        raise ImportError(str(error), name="beam_pipeline") from error


def keywords(feature):
    """Return the keywords of `record`."""
    features = {feature: TRANSFORMS[feature]}
    return {"win_len": WIN_LEN, "num_shards": SHARDS, "features": features}


def rewrite(folder, *, one_member):
    """Write the shards of a data set anew: one GZIP member, or one for each example."""
    import hashlib

    from beam_pipeline.storage.tfrecord import (
        compress_member,
        frame_record,
        read_any_records,
    )
    from tests.read.members import index_data_set

    metadata = Path(folder, "metadata.json")
    described = json.loads(metadata.read_text())
    for split in described["splits"].values():
        for shard in split["shards"]:
            path = Path(folder, shard["file"])
            with path.open("rb") as file:
                records = [frame_record(record) for record in read_any_records(file)]
            groups = [b"".join(records)] if one_member else records
            content = b"".join(map(compress_member, groups))
            path.write_bytes(content)
            shard["bytes"] = len(content)
            shard["sha256"] = hashlib.sha256(content).hexdigest()
    metadata.write_text(json.dumps(described))
    if not one_member:
        index_data_set(folder)


# The others. Each gets the examples of `members`, as they are or as dicts.


def shards_of(folder):
    """Return the paths of a data set's shards, in order."""
    return sorted(Path(folder).glob("*.tfrecord*"))


def records_of(shard):
    """Yield the serialised examples of a shard."""
    from beam_pipeline.storage.tfrecord import read_any_records

    with open(shard, "rb") as file:
        yield from read_any_records(file)


def write_examples(folder, source, feature):
    """Write the examples as Python objects."""
    with open(f"{folder}/{EXAMPLES}", "wb") as file:
        for shard in shards_of(source):
            for record in records_of(shard):
                pickle.dump(example_of(record, feature), file)


def read_examples(source):
    """Yield what `write_examples` wrote beside the folder of a data set."""
    with Path(source).with_name("examples").joinpath(EXAMPLES).open("rb") as file:
        for _ in range(COUNT):
            yield pickle.load(file)


def example_of(record, feature):
    """Return a serialised example as a dict of an array, numbers and texts."""
    import numpy as np
    import tensorflow as tf

    read = tf.train.Example.FromString(record).features.feature
    shape = [59, 64] if feature == "log_mel" else [WIN_LEN]
    values = np.array(read[feature].float_list.value, np.float32).reshape(shape)
    return {
        feature: values,
        **{name: read[name].int64_list.value[0] for name in INTEGERS},
        **{name: read[name].bytes_list.value[0].decode() for name in TEXTS},
    }


def write_array_record(folder, source, feature, options="", pickled=False):
    """Write serialised examples, or pickled dicts, one in each group."""
    from array_record.python.array_record_module import ArrayRecordWriter

    examples = read_examples(source)
    for number, shard in enumerate(shards_of(source)):
        path = f"{folder}/records-{number:05d}-of-{SHARDS:05d}.array_record"
        writer = ArrayRecordWriter(path, f"group_size:1{options}")
        for record in records_of(shard):
            writer.write(pickle.dumps(next(examples)) if pickled else record)
        writer.close()


def write_datasets(folder, source, feature):
    """Write Arrow files with a list of floats, or an array of two axes."""
    import datasets

    array = datasets.List(datasets.Value("float32"))
    if feature == "log_mel":
        array = datasets.Array2D((59, 64), "float32")
    features = {
        feature: array,
        **{name: datasets.Value("int64") for name in INTEGERS},
        **{name: datasets.Value("string") for name in TEXTS},
    }

    datasets.disable_progress_bars()
    made = datasets.Dataset.from_generator(
        read_examples,
        datasets.Features(features),
        cache_dir=f"{folder}/cache",
        gen_kwargs={"source": source},
    )
    made.save_to_disk(f"{folder}/arrow", num_shards=SHARDS)
    shutil.rmtree(f"{folder}/cache")


def write_webdataset(folder, source, feature):
    """Write tar files with a .npy and a .json for each example."""
    import webdataset

    for number, example in enumerate(read_examples(source)):
        if number % (COUNT // SHARDS) == 0:
            name = f"{folder}/records-{number // (COUNT // SHARDS):06d}.tar"
            writer = webdataset.TarWriter(name)
        values = example.pop(feature)
        writer.write({"__key__": f"{number:08d}", "npy": values, "json": example})
        if (number + 1) % (COUNT // SHARDS) == 0:
            writer.close()


def write_mds(folder, source, feature):
    """Write MDS files of at most 64 MiB, which is the default."""
    from streaming import MDSWriter

    shape = "59,64" if feature == "log_mel" else str(WIN_LEN)
    columns = {
        feature: f"ndarray:float32:{shape}",
        **dict.fromkeys(INTEGERS, "int64"),
        **dict.fromkeys(TEXTS, "str"),
    }
    with MDSWriter(out=folder, columns=columns) as writer:
        for example in read_examples(source):
            writer.write(example)


WRITERS = {
    "members": write_members,
    "whole": write_whole,
    "plain": write_plain,
    "examples": write_examples,
    "arrayrecord-zstd": write_array_record,
    "arrayrecord-plain": lambda *words: write_array_record(*words, ",uncompressed"),
    "arrayrecord-pickle": lambda *words: write_array_record(*words, pickled=True),
    "datasets": write_datasets,
    "webdataset": write_webdataset,
    "mds": write_mds,
}
OURS = "members", "whole", "plain"


def make_forms(data, feature):
    """Return the corpus, the folder of all forms, and form -> its bytes, or why not."""
    corpus = str(make_corpus(data, files=FILES, seconds=SECONDS))
    root = Path(data, f"readers-{FILES}x{SECONDS}-s-{feature}")
    found = {}
    for form in WRITERS:
        folder = root / form
        if not folder.exists():
            source = corpus if form in OURS else str(root / "members")
            unfinished = root / f"{form}.part"
            shutil.rmtree(unfinished, ignore_errors=True)
            unfinished.mkdir(parents=True)
            arguments = {"source": source, "feature": feature}
            row = Row(form, form, arguments)
            result = measure("tests.benchmarks.reader_forms", row, str(unfinished))
            if "error" in result:
                found[form] = result["error"]
                shutil.rmtree(unfinished)
                continue
            unfinished.replace(folder)
        found[form] = sum(p.stat().st_size for p in folder.rglob("*") if p.is_file())
    os.sync()  # pages that are not written yet cannot be dropped from the cache
    return corpus, str(root), found


def main(argv=None):
    """Make all forms and print what there is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", default=DATA, help="where the forms are kept")
    parser.add_argument("--feature", default="signal", choices=TRANSFORMS)
    parser.add_argument("--case", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    if options.case:
        cases = {form: timed(write) for form, write in WRITERS.items()}
        run_case(cases, options.case, ("beam_pipeline", *PEERS))
        return
    corpus, folder, forms = make_forms(options.data, options.feature)
    print("\n" + json.dumps({"corpus": corpus, "folder": folder, "forms": forms}))


def timed(write):
    """Return a case that runs a writer."""

    def case(output, *, source, feature):
        with Watch() as watch:
            write(output, source, feature)
        return watch.result()

    return case


if __name__ == "__main__":
    main()
