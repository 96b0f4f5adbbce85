"""Several data sets that readers take for one."""

import json
import pickle
import shutil

import numpy as np
import pytest

from beam_pipeline import Metadata, mix, open_records, record, replay
from beam_pipeline.dataset.side_by_side import open_data_sets
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.audit import audit
from beam_pipeline.read.verify import verify
from beam_pipeline.read.window_table import window_table
from tests.raising import assert_names, raises
from tests.sounds import damage, write_sound

OPTIONS = {
    "win_len": 500, "splits": "train=.5,test=.5", "num_shards": 2, "workers": 1,
}  # fmt: skip


@pytest.mark.parametrize("given", [None, 1, "", b"records", [], [2], ["records", None]])
def test_what_is_no_folder(given):
    wrong = given[-1] if given and isinstance(given, list) else given
    for read in (open_data_sets, verify):
        with raises(OptionError, "data set", wrong, naming="path"):
            read(given)
    with raises(OptionError, "folder", given, naming="path"):
        Metadata.load(given)


def write(folder, names, first):
    for k, name in enumerate(names):
        path = folder / ("owl", "tit")[k % 2] / f"{name}.wav"
        write_sound(path, 1600 + 10 * k, seed=first + k)


@pytest.fixture(scope="module", params=["listed", "mixed"])
def root(request, tmp_path_factory):
    """Data sets ``a`` and ``b`` of the same ``sounds``, and ``alone`` of the latter."""
    root = tmp_path_factory.mktemp("sets")
    write(root / "sounds", "abcdef", 0)
    record(root / "sounds", root / "a", order=request.param, **OPTIONS)
    write(root / "sounds", "ghijklm", 10)
    record(root / "sounds", root / "b", recipe=root / "a", skip_recorded=root / "a")
    return root


def keys(examples):
    return [
        (str(e["filepath"]), int(e["win_start_idx"]), e["signal"].tobytes())
        for e in examples
    ]


@pytest.mark.parametrize("split", ["train", "test", "train+test"])
def test_examples_of_the_first_come_first(root, split):
    sets = [root / "a", root / "b"]
    records = open_records(sets, split)
    found = keys(records)
    if split in ("train", "test"):
        assert found == [k for each in sets for k in keys(open_records(each, split))]
    assert len(found) == len(set(found)) > 4
    texts = [
        (example["filepath"].decode(), example["win_start_idx"], example["signal"])
        for example in replay(sets, split=split).as_numpy_iterator()
    ]
    assert [(path, int(start), s.tobytes()) for path, start, s in texts] == found
    again = pickle.loads(pickle.dumps(records))
    assert keys([again[i] for i in (0, -1)]) == [found[0], found[-1]]
    assert keys(records[::-1][:2]) == found[:-3:-1]
    mixed = mix({tuple(sets): 1.0, root / "a": 1.0}, split=split, ends="leave")
    count = sum(len(batch["index"]) for batch in mixed.batches(4))
    assert count == len(found) + len(open_records(root / "a", split))


def test_a_state_is_bound_to_the_list(root):
    """By the fingerprint, which it holds."""

    def fingerprint(*names):
        return open_records([root / name for name in names], "train").fingerprint

    assert fingerprint("a", "b") == fingerprint("a", "b")
    assert len({fingerprint(*names) for names in ("ab", "ba", "a", "b")}) == 4


def test_the_table_is_that_of_both(root):
    sets = [root / "a", root / "b"]
    table = window_table(sets)
    assert len(table) == sum(len(window_table(each)) for each in sets)
    for split in ("train", "test"):
        records = open_records(sets, split)
        rows = records.table().to_pylist()
        assert [row["path"] for row in rows] == [e["filepath"] for e in records]
        assert [row["record"] for row in rows] == [*range(len(records))]
        for i in (0, len(records) - 1):
            source = records.source(i, root / "sounds")
            assert source.path == records[i]["filepath"]
        some = records.where("class == 'owl'")
        assert {e["class"] for e in some} == {"owl"}


def test_statistics_are_those_of_the_first_with_the_split(root):
    sets = [root / "a", root / "b"]
    of_a = Metadata.load(root / "a").splits["train"].statistics["features"]["signal"]
    (first, *_) = open_records(sets, "test").batches(4, normalize=True)
    plain = open_records(sets, "test").read([0, 1, 2, 3])["signal"]
    wanted = (plain - of_a["mean"]) / of_a["std"]
    np.testing.assert_allclose(first["signal"], wanted, rtol=1e-4, atol=1e-5)
    ds = replay(sets, split="test", batch_size=4, normalize=True)
    (batch, *_) = ds.as_numpy_iterator()
    np.testing.assert_allclose(batch["signal"], wanted, rtol=1e-4, atol=1e-5)


def test_what_does_not_belong_together_is_named(root, tmp_path):
    def other(**options):
        out = tmp_path / str(len(list(tmp_path.iterdir())))
        record(root / "sounds", out, **{**OPTIONS, **options})
        return [root / "a", out]

    with raises(InputError, naming=["signal", "500", "400"]):
        open_records(other(win_len=400), "train")
    with raises(InputError, naming=["owl", "classes"]):
        replay(other(classes="tit,owl"), split="train")
    with raises(InputError, naming=["seed", "0", "5"]):
        verify(other(seed=5))
    with raises(InputError, naming="splits"):
        window_table(other(splits="train=.7,test=.3"))
    with raises(InputError, naming=["twice", "a"]):
        audit([root / "a", root / "a"])
    with raises(InputError, naming="nowhere"):
        open_data_sets([root / "a", tmp_path / "nowhere"])


def test_an_audit_finds_what_both_have(root, tmp_path):
    assert audit([root / "a", root / "b"]).leaks == 0
    shutil.copytree(root / "sounds", tmp_path / "sounds")
    path = next((tmp_path / "sounds").rglob("a.wav"))
    copies = []
    for k in range(8):  # of which one is in the other split
        copies.append(path.with_name(f"copy{k}.wav"))
        shutil.copy(path, copies[-1])
    made = record(
        tmp_path / "sounds", tmp_path / "c", recipe=root / "a",
        skip_recorded=[root / "a", root / "b"],
    )  # fmt: skip
    assert made.clips == 8
    found = audit([root / "a", root / "b", tmp_path / "c"])
    assert found.clips == 13 + 8
    assert found.count("audio") == 1
    assert found.leaks == 1
    # The same file of the same input, in another split.
    record(tmp_path / "sounds", tmp_path / "d", recipe=root / "a")
    assert audit([root / "a", tmp_path / "d"]).count("parts") == 6


def test_a_data_set_that_changed_is_noticed(root, tmp_path, cli):
    a, b = root / "a", tmp_path / "b"
    shutil.copytree(root / "b", b)
    assert_names(cli("verify", a, b).out, a, b, "shards")
    cli("audit", a, b, "--json")
    records = open_records([a, b], "train")
    pickled = pickle.dumps(records)
    metadata = json.loads((b / "metadata.json").read_text())
    (b / "metadata.json").write_text(json.dumps(metadata))
    with raises(InputError, naming=[b, "metadata.json"]):
        pickle.loads(pickled)
    for read in (lambda: records.read(range(len(records))), records.table):
        with raises(InputError, naming="metadata.json"):
            read()
    (shard, *_) = b.rglob("*.gz")
    damage(shard)
    assert_names(cli("verify", a, b, status=4).err, b, shard.name)


def test_several_become_one(root, tmp_path, cli):
    a, b, one = str(root / "a"), str(root / "b"), str(tmp_path / "one")
    cli("convert", a, b, one, "--num-shards", "3")
    for split in ("train", "test"):
        both, alone = open_records([a, b], split), open_records(one, split)
        assert keys(alone) == keys(both)
        ours, theirs = alone.table(), both.table()
        for name in ("path", "start_s", "end_s", "class", "record", "input"):
            assert ours[name].to_pylist() == theirs[name].to_pylist()
        assert alone.where("class == 'tit'").numbers.tolist() == (
            both.where("class == 'tit'").numbers.tolist()
        )
    assert verify(one, deep=True) == []
    # It takes the place of both: for its classes, its splits and its clips.
    write(tmp_path / "sounds", "zyx", 30)
    shutil.copytree(root / "sounds", tmp_path / "sounds", dirs_exist_ok=True)
    made = record(
        tmp_path / "sounds", tmp_path / "new", recipe=one, skip_recorded=one,
    )  # fmt: skip
    assert made.clips == 3
    open_records([one, tmp_path / "new"], [*made.splits])


def test_a_longer_list_of_classes(root, tmp_path, cli):
    shutil.copytree(root / "sounds", tmp_path / "sounds")
    write_sound(tmp_path / "sounds/bat/z.wav", 1000)
    made = record(
        tmp_path / "sounds", tmp_path / "new", recipe=root / "a",
        skip_recorded=[root / "a", root / "b"], classes="owl,tit,bat",
    )  # fmt: skip
    assert made.classes == ("owl", "tit", "bat")
    (split,) = made.splits
    with raises(InputError, naming=["bat", "convert --classes"]):
        open_records([root / "a", tmp_path / "new"], split)
    old = str(tmp_path / "old")
    sets = [str(root / "a"), str(root / "b")]
    cli("convert", *sets, old, "--classes", "owl,tit,bat")
    records = open_records([old, tmp_path / "new"], split)
    assert records.classes == ("owl", "tit", "bat")
    assert {(e["class"], int(e["target"])) for e in records} <= {
        ("owl", 0), ("tit", 1), ("bat", 2)
    }  # fmt: skip
    cli("convert", old, tmp_path / "y", "--classes", "bat,tit,owl")
    other = open_records(tmp_path / "y", split)
    assert {(e["class"], int(e["target"])) for e in other} <= {("owl", 2), ("tit", 1)}
    for wrong in ("bat,owl", "owl", "owl,tit,tit"):
        cli("convert", sets[0], tmp_path / "x", "--classes", wrong, status=2)
