"""Our own data sets, converted: shards, features, splits, and what stays."""

import filecmp
import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import Metadata, convert, record, record_dataset, replay
from beam_pipeline.errors import InputError, OutputError
from tests.data_sets import check_metadata, contents, problems_in, records_in
from tests.elements.structures import expect_equal
from tests.raising import raises
from tests.sounds import write_corpus


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("convert")
    write_corpus(folder / "sounds", clips=3)
    record(
        folder / "sounds", folder / "records",
        win_len=500, label_from="folder", splits="train=.6,eval=.4",
        features={"signal": "identity()", "power": "mel(n_fft=64,hop=64,n_mels=8)"},
    )  # fmt: skip
    return str(folder / "records")


def expect_same_elements(left, right, **options):
    assert left.element_spec == right.element_spec
    for one, other in zip(left, right, strict=True):
        expect_equal(one, other)


@pytest.mark.parametrize(
    ("sizes", "shards"),
    [
        ({"elements_per_file": 4}, None), ({"num_shards": 3}, 3),
        ({"shard_bytes": 5000}, None), ({}, 1),
    ],
    ids=str,
)  # fmt: skip
def test_other_shards_hold_the_same_records(recorded, tmp_path, sizes, shards):
    """Also their statistics, the tables and what is known of the recipe."""
    before = Metadata.load(recorded)
    out = tmp_path / "out"
    metadata = convert(recorded, out, **sizes)
    assert metadata == Metadata.load(out)
    check_metadata(out)
    assert problems_in(out) == []
    assert records_in(out) == records_in(Path(recorded))
    assert metadata.features == dict(sorted(before.features.items()))
    assert metadata.classes == before.classes
    for split, entry in metadata.splits.items():
        counts = [shard.examples for shard in entry.shards]
        assert sum(counts) == before.splits[split].examples
        assert len(counts) == shards if shards else len(counts) > 3
        if "elements_per_file" in sizes:
            assert set(counts[:-1]) == {4}
        wanted = before.splits[split].statistics["features"]
        found = entry.statistics["features"]
        assert set(found) == set(wanted) == {"signal", "power"}
        for name, values in wanted.items():
            assert found[name].keys() == values.keys()
            for key in ("count", "min", "max", "mean", "std"):
                assert found[name][key] == pytest.approx(values[key], rel=1e-6)
                if "bins" in values:
                    ours, theirs = found[name]["bins"][key], values["bins"][key]
                    assert ours == pytest.approx(theirs, rel=1e-6)
    assert filecmp.cmp(out / "manifest.parquet", f"{recorded}/manifest.parquet")
    assert metadata.recipe is None
    assert metadata.elements.recorded_by == "convert"
    assert metadata.elements.options["recipe"] == before.recipe.to_json()


def test_workers_and_runners_write_the_same_bytes(recorded, tmp_path):
    options = {"elements_per_file": 3, "splits": {"a": 0.5, "b": 0.5}}
    # Blocks of one file each, so that there is work for two.
    shards = convert(recorded, tmp_path / "in", elements_per_file=2)
    assert sum(len(entry.shards) for entry in shards.splits.values()) > 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("beam_pipeline.conversion.records._BLOCK_BYTES", 1)
        for name, more in (
            ("one", {"workers": 1}),
            ("two", {"workers": 2}),
            ("beam", {"beam_args": ["--runner=FnApiRunner"]}),
        ):
            convert(tmp_path / "in", tmp_path / name, **options, **more)
    one = contents(tmp_path / "one")
    assert one == contents(tmp_path / "two") == contents(tmp_path / "beam")


def test_some_features_stay(recorded, tmp_path):
    out, names = str(tmp_path / "out"), ["power", "target"]
    metadata = convert(recorded, out, features=["target", "power"])
    assert list(metadata.features) == names
    for split, records in records_in(Path(out)).items():
        one = replay(out, split=split, features=names)
        expect_same_elements(one, replay(recorded, split=split, features=names))
        for record_ in records:
            example = tf.train.Example.FromString(record_)
            assert set(example.features.feature) == {*names}
    scaled = replay(out, split="train", normalize=["power"], batch_size=100)
    wanted = replay(recorded, split="train", normalize=["power"], batch_size=100)
    for one, other in zip(scaled, wanted, strict=True):
        np.testing.assert_allclose(one["power"], other["power"], rtol=1e-4, atol=1e-5)


def test_windows_of_a_file_stay_in_one_split(recorded, tmp_path):
    out, shares = tmp_path / "out", {"train": 0.5, "eval": 0.3, "test": 0.2}
    metadata = convert(recorded, out, splits=shares)
    assert list(metadata.splits) == list(shares)
    paths = {
        split: {x["filepath"] for x in replay(out, split=split).as_numpy_iterator()}
        for split in shares
    }
    assert sum(map(len, paths.values())) == len(set().union(*paths.values())) == 9
    before, after = records_in(Path(recorded)).values(), records_in(out).values()
    assert sorted(itertools.chain(*before)) == sorted(itertools.chain(*after))
    assert problems_in(out) == []
    # Without the feature in the output, its groups are the same.
    less = convert(recorded, tmp_path / "less", features=["fs"], splits=shares)
    assert counts_of(less) == counts_of(metadata)
    other = convert(recorded, tmp_path / "other", splits=shares, seed=1)
    assert counts_of(other) != counts_of(metadata)


def counts_of(metadata):
    return {name: entry.examples for name, entry in metadata.splits.items()}


def steps():
    for n in (0, 1, 3):
        yield {"s": np.full((n, 2), n, np.float32), "c": n, "t": [b"x"] * n}


STEPS = {"s": tf.TensorSpec([None, 2]), "c": tf.TensorSpec([], tf.int64),
         "t": tf.TensorSpec([None], tf.string)}  # fmt: skip
NUMBERS = np.arange(7)
NESTED = (
    {"a": {"x": np.stack([NUMBERS, -NUMBERS], 1), "y": [b"t" * n for n in NUMBERS]},
     "b": (np.float32(NUMBERS / 2), np.int32(NUMBERS))}
)  # fmt: skip
RAGGED = tf.ragged.constant([[[1, 2], []], [[3]], []], dtype=tf.int32)
from_slices = tf.data.Dataset.from_tensor_slices
# A data set, its sequences, some of its features, and elements of them.
STRUCTURES = {
    "nested": (from_slices(NESTED), [], ["a/x", "b/0"],
               lambda x: {"a/x": x["a"]["x"], "b/0": x["b"][0]}),
    "ragged": (from_slices({"r": RAGGED, "n": [1, 2, 3]}), [], ["r"],
               lambda x: {"r": x["r"]}),
    "sequences": (tf.data.Dataset.from_generator(steps, output_signature=STEPS),
                  ["s", "t"], ["s"], lambda x: {"s": x["s"]}),
    "empty": (from_slices({"x": np.zeros((0, 2), "f4")}), [], ["x"], lambda x: x),
}  # fmt: skip


@pytest.mark.parametrize("name", STRUCTURES)
def test_structures_stay_or_become_flat_dicts(tmp_path, name):
    dataset, sequences, features, flat = STRUCTURES[name]
    source = record_dataset(dataset, tmp_path / "in", sequences=sequences)
    metadata = convert(source, tmp_path / "all", num_shards=2)
    expect_same_elements(replay(str(tmp_path / "all")), replay(source))
    options = metadata.elements.options
    assert options["converted_from"]["recorded_by"] == "record_dataset"
    found = metadata.splits["records"].statistics
    assert found == Metadata.load(source).splits["records"].statistics
    convert(source, tmp_path / "some", features=features)
    wanted = replay(source).map(flat)
    expect_same_elements(replay(str(tmp_path / "some")), wanted)
    if name == "empty":
        splits = convert(source, tmp_path / "two", splits="a=1,b=1").splits
        assert {n: entry.examples for n, entry in splits.items()} == {"a": 0, "b": 0}


# Errors


@pytest.mark.parametrize("where", ["", "/sub", "/train", "/.."])
def test_input_and_output_must_be_separate(recorded, where):
    before = contents(Path(recorded))
    with raises(OutputError):
        convert(recorded, recorded + where, overwrite=True)
    assert contents(Path(recorded)) == before


def test_a_changed_shard_is_an_error_and_nothing_is_published(recorded, tmp_path):
    folder = shutil.copytree(recorded, tmp_path / "copy")
    shard = folder / Metadata.load(recorded).splits["train"].shards[0].file
    data = bytearray(shard.read_bytes())
    data[4] ^= 1  # the time in the header of GZIP: the records are the same
    damaged = bytearray(data)
    damaged[len(data) // 2] ^= 1
    for content, facts in (
        (data, ["metadata.json"]),
        (damaged, ["record"]),
        (data[:-1], [len(data), len(data) - 1]),
        (None, []),
    ):
        shard.unlink() if content is None else shard.write_bytes(content)
        with raises(InputError, naming=[shard]) as caught:
            convert(folder, tmp_path / "out")
        assert all(str(fact) in str(caught.value) for fact in facts)
        assert contents(tmp_path / "out") == {}
    (folder / "metadata.json").unlink()
    (folder / "_work").mkdir()
    (folder / "_work" / "job.json").write_text("{}")
    with raises(InputError, naming="unfinished"):
        convert(folder, tmp_path / "out")
