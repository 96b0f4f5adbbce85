"""Our own data sets, converted: shards, features, splits, and what stays."""

import filecmp
import json
import os
import shutil
from pathlib import Path

import jsonschema
import numpy as np
import pytest
import tensorflow as tf

import beam_pipeline
from beam_pipeline import Metadata, convert, record, record_dataset, replay
from beam_pipeline.errors import InputError, OptionError, OutputError
from beam_pipeline.read.verify import find_problems
from beam_pipeline.storage.tfrecord import read_any_records
from tests.elements.structures import expect_equal
from tests.raising import raises
from tests.sounds import write_corpus

pytestmark = pytest.mark.runs

ELEMENTS_SCHEMA = json.loads(
    (Path(beam_pipeline.__file__).parent / "dataset/elements.schema.json").read_text()
)


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


def same_folders(left, right):
    """Whether two folders hold the same files with the same bytes."""
    names = [sorted(files_below(folder)) for folder in (left, right)]
    return names[0] == names[1] and all(
        filecmp.cmp(f"{left}/{name}", f"{right}/{name}", shallow=False)
        for name in names[0]
    )


def files_below(folder):
    return [
        os.path.relpath(os.path.join(root, name), folder)
        for root, _, names in os.walk(folder)
        for name in names
    ]


def records_in(folder, split):
    found = []
    for shard in Metadata.load(str(folder)).splits[split].shards:
        with open(f"{folder}/{shard.file}", "rb") as file:
            found += read_any_records(file)
    return found


def expect_same_elements(left, right, **options):
    assert left.element_spec == right.element_spec
    for one, other in zip(left, right, strict=True):
        expect_equal(one, other)


@pytest.mark.parametrize(
    "sizes",
    [{"elements_per_file": 4}, {"num_shards": 3}, {"shard_bytes": 5000}, {}],
    ids=str,
)
def test_other_shards_hold_the_same_records(recorded, tmp_path, sizes):
    before = Metadata.load(recorded)
    out = str(tmp_path / "out")
    metadata = convert(recorded, out, **sizes)
    assert metadata == Metadata.load(out)
    jsonschema.validate(json.loads(metadata.to_text()), ELEMENTS_SCHEMA)
    assert list(find_problems(out, metadata)) == []
    assert metadata.features == dict(sorted(before.features.items()))
    assert metadata.classes == before.classes
    assert list(metadata.splits) == list(before.splits)
    for split, entry in metadata.splits.items():
        assert records_in(out, split) == records_in(recorded, split)
        expect_same_elements(replay(out, split=split), replay(recorded, split=split))
        counts = [shard.examples for shard in entry.shards]
        assert sum(counts) == before.splits[split].examples
        if "elements_per_file" in sizes:
            assert set(counts[:-1]) == {4}
        if "num_shards" in sizes:
            assert len(counts) == 3
        if "shard_bytes" in sizes:
            assert len(counts) > 3
    assert filecmp.cmp(f"{out}/manifest.parquet", f"{recorded}/manifest.parquet")
    assert metadata.recipe is None
    assert metadata.elements.recorded_by == "convert"
    assert metadata.elements.options["recipe"] == before.recipe.to_json()


def test_statistics_are_those_of_the_features_that_had_them(recorded, tmp_path):
    before = Metadata.load(recorded)
    metadata = convert(recorded, tmp_path / "out")
    for split, entry in metadata.splits.items():
        wanted = before.splits[split].statistics["features"]
        found = entry.statistics["features"]
        assert set(found) == set(wanted) == {"signal", "power"}
        for name, values in wanted.items():
            for key in ("count", "min", "max"):
                assert found[name][key] == values[key]
            for key in ("mean", "std"):
                assert found[name][key] == pytest.approx(values[key], rel=1e-6)
                bins = values.get("bins", {}).get(key, [])
                made = found[name].get("bins", {}).get(key, [])
                assert made == pytest.approx(bins, rel=1e-6)


def test_workers_and_runners_write_the_same_bytes(recorded, tmp_path):
    options = {"elements_per_file": 3, "splits": {"a": 0.5, "b": 0.5}}
    # Blocks of one file each, so that there is work for two.
    shards = convert(recorded, tmp_path / "in", elements_per_file=2)
    assert sum(len(entry.shards) for entry in shards.splits.values()) > 4
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("beam_pipeline.conversion.input_files._BLOCK_BYTES", 1)
        for name, more in (
            ("one", {"workers": 1}),
            ("two", {"workers": 2}),
            ("beam", {"beam_args": ["--runner=FnApiRunner"]}),
        ):
            convert(tmp_path / "in", tmp_path / name, **options, **more)
    assert same_folders(tmp_path / "one", tmp_path / "two")
    assert same_folders(tmp_path / "one", tmp_path / "beam")


def test_some_features_stay(recorded, tmp_path):
    out = str(tmp_path / "out")
    metadata = convert(recorded, out, features=["target", "power"])
    assert list(metadata.features) == ["power", "target"]
    for split in metadata.splits:
        one = replay(out, split=split, features=["power", "target"])
        other = replay(recorded, split=split, features=["power", "target"])
        expect_same_elements(one, other)
        for record_ in records_in(out, split):
            example = tf.train.Example.FromString(record_)
            assert set(example.features.feature) == {"power", "target"}
    scaled = replay(out, split="train", normalize=["power"], batch_size=100)
    wanted = replay(recorded, split="train", normalize=["power"], batch_size=100)
    for one, other in zip(scaled, wanted, strict=True):
        np.testing.assert_allclose(one["power"], other["power"], rtol=1e-4, atol=1e-5)


def test_windows_of_a_file_stay_in_one_split(recorded, tmp_path):
    out = str(tmp_path / "out")
    metadata = convert(recorded, out, splits={"train": 0.5, "eval": 0.3, "test": 0.2})
    assert list(metadata.splits) == ["train", "eval", "test"]
    paths = {
        split: {x["filepath"] for x in replay(out, split=split).as_numpy_iterator()}
        for split in metadata.splits
    }
    assert sum(map(len, paths.values())) == len(set().union(*paths.values())) == 9
    before = [r for split in ("train", "eval") for r in records_in(recorded, split)]
    after = [r for split in metadata.splits for r in records_in(out, split)]
    assert sorted(before) == sorted(after)
    assert list(find_problems(out, metadata)) == []
    # Without the feature in the output, its groups are the same.
    less = convert(recorded, f"{out}2", features=["fs"], splits=metadata_shares(out))
    assert counts_of(less) == counts_of(metadata)
    other = convert(recorded, f"{out}3", splits=metadata_shares(out), seed=1)
    assert counts_of(other) != counts_of(metadata)


def metadata_shares(folder):
    return Metadata.load(folder).elements.options["splits"]


def counts_of(metadata):
    return {name: entry.examples for name, entry in metadata.splits.items()}


def elements_of(count):
    for i in range(count):
        yield {"a": {"x": [i, -i], "y": b"t" * i}, "b": (i / 2, i)}


NESTED = {
    "a": {"x": tf.TensorSpec([2], tf.int64), "y": tf.TensorSpec([], tf.string)},
    "b": (tf.TensorSpec([], tf.float32), tf.TensorSpec([], tf.int32)),
}


@pytest.fixture
def nested(tmp_path):
    dataset = tf.data.Dataset.from_generator(
        lambda: elements_of(7), output_signature=NESTED
    )
    return record_dataset(dataset, tmp_path / "nested")


def test_structure_stays(nested, tmp_path):
    metadata = convert(nested, tmp_path / "out", elements_per_file=2)
    expect_same_elements(replay(str(tmp_path / "out")), replay(nested))
    made_by = metadata.elements.options["converted_from"]["recorded_by"]
    assert made_by == "record_dataset"
    found = metadata.splits["records"].statistics
    assert found == Metadata.load(nested).splits["records"].statistics


def test_some_features_of_nested_elements_become_flat_dicts(nested, tmp_path):
    convert(nested, tmp_path / "flat", features=["a/x", "b/0"])
    flat = replay(nested).map(lambda x: {"a/x": x["a"]["x"], "b/0": x["b"][0]})
    expect_same_elements(replay(str(tmp_path / "flat")), flat)


def test_ragged_parts_keep_what_belongs_to_them(tmp_path):
    rows = tf.ragged.constant([[[1, 2], []], [[3]], []], dtype=tf.int32)
    dataset = tf.data.Dataset.from_tensor_slices({"r": rows, "n": [1, 2, 3]})
    record_dataset(dataset, tmp_path / "in")
    convert(tmp_path / "in", tmp_path / "out", features=["r"], num_shards=2)
    wanted = replay(str(tmp_path / "in")).map(lambda x: {"r": x["r"]})
    expect_same_elements(replay(str(tmp_path / "out")), wanted)


def test_sequences_pass_through(tmp_path):
    def steps():
        for n in (0, 1, 3):
            yield {"s": np.full((n, 2), n, np.float32), "c": n, "t": [b"x"] * n}

    dataset = tf.data.Dataset.from_generator(
        steps,
        output_signature={
            "s": tf.TensorSpec([None, 2]),
            "c": tf.TensorSpec([], tf.int64),
            "t": tf.TensorSpec([None], tf.string),
        },
    )
    source = record_dataset(dataset, tmp_path / "in", sequences=["s", "t"])
    convert(source, tmp_path / "all", num_shards=2)
    expect_same_elements(replay(str(tmp_path / "all")), replay(source))
    convert(source, tmp_path / "some", features=["s"])
    wanted = replay(source).map(lambda x: {"s": x["s"]})
    expect_same_elements(replay(str(tmp_path / "some")), wanted)


# Errors


@pytest.mark.parametrize("where", ["", "/sub", "/train", "/.."])
def test_input_and_output_must_be_separate(recorded, where):
    before = sorted(files_below(recorded))
    with raises(OutputError):
        convert(recorded, recorded + where, overwrite=True)
    assert sorted(files_below(recorded)) == before


@pytest.mark.parametrize(
    ("options", "option", "facts"),
    [
        ({"features": ["sginal"]}, "features", ["sginal", "signal"]),
        ({"features": []}, "features", []),
        ({"group_by": "fs"}, "group_by", ["fs"]),
        ({"splits": "a=1", "group_by": "fss"}, "group_by", ["fss", "path"]),
        ({"splits": {"a": -1}}, "splits", []),
        ({"seed": 1.5}, "seed", [1.5]),
        ({"schema": "x"}, "schema", ["metadata.json"]),
        ({"dtypes": {"fs": "int32"}}, "dtypes", ["metadata.json"]),
        ({"num_shards": 0}, "num_shards", [0]),
        ({"workers": 0}, "workers", [0]),
        ({"beam_args": ["--x=1"]}, "options of Beam", []),
    ],
)
def test_wrong_options_write_nothing(recorded, tmp_path, options, option, facts):
    with raises(OptionError, option, naming=facts):
        convert(recorded, tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


def copy_of(recorded, tmp_path):
    shutil.copytree(recorded, tmp_path / "copy")
    metadata = Metadata.load(recorded)
    shard = metadata.splits["train"].shards[0]
    return tmp_path / "copy", tmp_path / "copy" / shard.file


def test_a_changed_shard_is_an_error_and_nothing_is_published(recorded, tmp_path):
    folder, shard = copy_of(recorded, tmp_path)
    data = bytearray(shard.read_bytes())
    data[4] ^= 1  # the time in the header of GZIP: the records are the same
    shard.write_bytes(data)
    with raises(InputError, naming=[shard, "metadata.json"]):
        convert(folder, tmp_path / "out")
    assert files_below(tmp_path / "out") == []
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with raises(InputError, naming=[shard]) as caught:
        convert(folder, tmp_path / "out", workers=2)
    assert "record" in str(caught.value)
    shard.write_bytes(data[:-1])
    with raises(InputError, naming=[shard, len(data), len(data) - 1]):
        convert(folder, tmp_path / "out")
    shard.unlink()
    with raises(InputError, naming=[shard]):
        convert(folder, tmp_path / "out")
    assert files_below(tmp_path / "out") == []


def test_records_that_do_not_fit_their_metadata_are_an_error(recorded, tmp_path):
    folder, _ = copy_of(recorded, tmp_path)
    path = folder / "metadata.json"
    values = json.loads(path.read_bytes())
    values["features"]["signal"]["shape"] = [501]
    path.write_text(json.dumps(values))
    with raises(InputError, naming=["record 0", "signal", 500, 501]):
        convert(folder, tmp_path / "out")
    del values["features"]["signal"]
    path.write_text(json.dumps(values))
    with raises(InputError, naming=["record 0", "signal"]):
        convert(folder, tmp_path / "out")


def test_an_unfinished_input_is_an_error(recorded, tmp_path):
    folder, _ = copy_of(recorded, tmp_path)
    (folder / "metadata.json").unlink()
    (folder / "_work").mkdir()
    (folder / "_work" / "job.json").write_text("{}")
    with raises(InputError, naming="unfinished"):
        convert(folder, tmp_path / "out")


def test_an_empty_data_set_stays_empty(tmp_path):
    empty = tf.data.Dataset.from_tensor_slices({"x": np.zeros((0, 2), np.float32)})
    record_dataset(empty, tmp_path / "in")
    convert(tmp_path / "in", tmp_path / "out", features=["x"])
    expect_same_elements(replay(str(tmp_path / "out")), replay(str(tmp_path / "in")))
    splits = convert(tmp_path / "in", tmp_path / "two", splits="a=1,b=1").splits
    assert {name: entry.examples for name, entry in splits.items()} == {"a": 0, "b": 0}
