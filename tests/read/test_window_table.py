"""records.table(), where() and of_clip() against the examples themselves."""

import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_pipeline import (
    Metadata,
    convert,
    open_records,
    record,
    record_examples,
    window_table,
)
from beam_pipeline.dataset import tables as written
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.window_summary import summarise_windows
from tests.raising import raises
from tests.sounds import RATE, write_corpus

WIN_LEN = 500


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two splits with copies; windows are padded, quiet ones are left out."""
    base = tmp_path_factory.mktemp("table")
    sounds = write_corpus(base / "in", clips=5)
    lines = [f"{name},{i},{i / 4},{name[:3]}" for i, name in enumerate(sounds)]
    (base / "in" / "list.csv").write_text(
        "\n".join(["path,number,snr,class", *lines]) + "\n"
    )
    record(
        str(base / "in" / "list.csv"), str(base / "out"), win_len=WIN_LEN, hop=400,
        tail="pad", keep="energy(above_db=-10.85)", splits="train=.6,test=.4",
        copies=1, augment="random_gain(low_db=-3)", elements_per_file=7,
        label_from="class", columns="number,snr",
    )  # fmt: skip
    return str(base / "out")


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_table_says_what_the_examples_are(folder, split):
    records = open_records(folder, split)
    entry = Metadata.load(folder).splits[split]
    table = records.table().to_pandas()
    assert len(table) == entry.examples + entry.left_out
    assert (table["left_out"] == "keep").sum() == entry.left_out > 0
    assert set(table["split"]) == {split}
    held = table[table["left_out"].isna()]
    assert held["record"].tolist() == list(range(len(records)))
    places = [(s.file, i) for s in entry.shards for i in range(s.examples)]
    assert list(zip(held["shard"], held["position"], strict=True)) == places
    for (_, row), example in zip(held.iterrows(), records, strict=True):
        assert row["path"] == example["filepath"]
        assert row["class"] == example["class"]
        assert row["clip"] == example["index"]
        assert row["copy"] == example.get("copy", 0)
        assert row["sample_rate_hz"] == example["fs"] == RATE
        assert row["start_s"] == example["win_start_idx"] / RATE
        assert row["end_s"] == row["start_s"] + row["valid_frames"] / RATE
        assert row["number"] == example["number"]
        assert row["snr"] == example["snr"]
        signal = example["signal"]
        assert not signal[row["valid_frames"] :].any()
        if row["copy"] == 0:
            level = 10 * np.log10((signal.astype(np.float64) ** 2).mean())
            assert row["level_db"] == pytest.approx(level, abs=0.006)
    out = table[~table["left_out"].isna()]
    assert (out["level_db"] <= -10.8).all()
    assert out[["record", "shard", "position"]].isna().all(axis=None)


def test_the_table_of_all_splits_is_that_of_each(folder):
    parts = [window_table(folder, name) for name in Metadata.load(folder).splits]
    assert window_table(folder).equals(pa.concat_tables(parts).unify_dictionaries())
    with raises(InputError, naming=["tset", "train", "test"]):
        window_table(folder, "tset")
    with raises(InputError, naming=f"{folder}/train"):
        window_table(f"{folder}/train")


def test_conditions_choose_what_pandas_chooses(folder):
    records = open_records(folder, "train")
    table = records.table().to_pandas()
    held = table[table["left_out"].isna()].reset_index()
    for condition, met in [
        ("class == 'owl' and snr > 2", (held["class"] == "owl") & (held["snr"] > 2)),
        ("class in ['owl', 'cat']", held["class"].isin(["owl", "cat"])),
        ("'dog_1' in path or copy != 0",
         held["path"].str.contains("dog_1") | (held["copy"] != 0)),
        ("not (end_s - start_s < 500 / 8000)",
         ~(held["end_s"] - held["start_s"] < 500 / 8000)),
        ("1 <= number <= 3", held["number"].between(1, 3)),
        ("group is None", held["group"].isna()),
        ("group == 'x'", held["number"] < 0),
        ("not group == 'x'", held["number"] < 0),  # null is neither
    ]:  # fmt: skip
        chosen = records.where(condition)
        assert chosen.numbers.tolist() == np.flatnonzero(met).tolist(), condition
        assert chosen.table()["record"].to_pylist() == chosen.numbers.tolist()


def test_views_narrow_down(folder):
    records = open_records(folder, "train")[::-1]
    owls = records.where("class == 'owl'").where("copy == 0")
    assert {e["class"] for e in owls} == {"owl"}
    assert owls.numbers.tolist() == sorted(owls.numbers, reverse=True)
    path = owls[0]["filepath"]
    clip = owls.of_clip(path)
    assert {e["filepath"] for e in clip} == {path}
    assert len(clip) == len(owls.where(f"path == {path!r}")) > 1
    assert len(owls.where("copy == 1")) == 0
    assert owls.where("copy == 1").table().num_rows == 0


def test_an_unknown_clip(folder):
    records = open_records(folder, "test")
    with raises(InputError, naming=["cat_77.wav", ".wav"]):
        records.of_clip("cat_77.wav")
    for path in (3, None):
        with raises(OptionError, naming=["path", "text", repr(path)]):
            records.of_clip(path)


def test_empty_cells_of_a_manifest_are_missing(tmp_path):
    names = list(write_corpus(tmp_path / "in", clips=1))
    cells = ["1.5,loud,7", ",,8", "-2,,9"]
    lines = [f"{n},{c}" for n, c in zip(names, cells, strict=True)]
    (tmp_path / "in" / "list.csv").write_text(
        "\n".join(["path,snr,note,number", *lines]) + "\n"
    )
    folder = str(tmp_path / "out")
    record(str(tmp_path / "in" / "list.csv"), folder, win_len=WIN_LEN)
    records = open_records(folder)
    table = records.table()
    paths = np.array(table["path"].to_pylist())
    for condition, wanted in [
        ("snr is None", [1]), ("snr != 1.5", [2]), ("not snr > 0", [2]),
        ("note is None", [1, 2]), ("note != 'loud'", []), ("note == ''", []),
        ("number > 7", [1, 2]),
    ]:  # fmt: skip
        met = np.isin(paths, [names[k] for k in wanted])
        chosen = records.where(condition).numbers.tolist()
        assert chosen == np.flatnonzero(met).tolist(), condition
    assert table["snr"].null_count == table["path"].to_pylist().count(names[1])
    assert [e["note"] for e in records.of_clip(names[1])[:1]] == [""]


@pytest.mark.parametrize("name", ["windows.parquet", "manifest.parquet"])
@pytest.mark.parametrize("content", ["garbage", "middle", "other", None])
def test_a_damaged_file_is_named(folder, tmp_path, name, content):
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / name
    whole = path.read_bytes()
    if content == "middle":
        path.write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])
    elif content == "other":
        pq.write_table(pa.table({"frames": [1]}), path)
    elif content is None:
        path.unlink()
    else:
        path.write_text(content)
    records = open_records(str(tmp_path / "copy"), "train")
    with raises(InputError, naming=[name, "the data set again"]):
        records.where("copy == 0")


@pytest.mark.parametrize("moment", ["before", "while", "unfinished"])
def test_a_data_set_that_was_recorded_again_is_not_mixed(tmp_path, monkeypatch, moment):
    """Without the comparison, the new table chose among the old examples."""
    write_corpus(tmp_path / "in", clips=2)
    for out, hop in (("a", 500), ("b", 250)):
        record(str(tmp_path / "in"), str(tmp_path / out), win_len=500, hop=hop)
    old, new = tmp_path / "a", tmp_path / "b"
    records = open_records(str(old))

    def record_again(*_args, **_options):
        shutil.rmtree(old)
        shutil.copytree(new, old)
        if moment == "unfinished":
            (old / "metadata.json").unlink()
        return opened(*_args, **_options)

    opened = written.read_parquet
    if moment == "before":
        shutil.rmtree(old)
        shutil.copytree(new, old)
    else:
        monkeypatch.setattr(written, "read_parquet", record_again)
    with raises(InputError, naming=["metadata.json", "open it again"]) as caught:
        records.where("start_s == 0")
    assert "estore" not in str(caught.value)
    monkeypatch.undo()
    for use in (records.table, lambda: records.of_clip("cat/cat_0.wav")):
        with raises(InputError, naming=["metadata.json", "open it again"]):
            use()


def test_windows_that_could_not_be_made(tmp_path):
    write_corpus(tmp_path / "in", clips=2)
    record(str(tmp_path / "in"), str(tmp_path / "all"), win_len=WIN_LEN)
    failing = {"signal": "identity()", "x": "tests.read.test_window_table.fail"}
    record(str(tmp_path / "in"), str(tmp_path / "some"), win_len=WIN_LEN,
           features=failing, max_rejected="100%")  # fmt: skip
    expected = open_records(str(tmp_path / "all")).table().to_pandas()
    table = open_records(str(tmp_path / "some")).table().to_pandas()
    assert len(table) == len(expected)
    assert table["start_s"].tolist() == expected["start_s"].tolist()
    assert table["level_db"].tolist() == expected["level_db"].tolist()
    lost = table["left_out"] == "rejected"
    assert 0 < lost.sum() < len(table)
    assert lost.sum() == len(table) - len(open_records(str(tmp_path / "some")))


def fail(windows):
    """A transform that cannot take a loud first sample; silence is no problem."""
    if (windows[:, 0] > 0.4).any():
        raise ValueError("too loud")
    return windows[:, 0]


def test_a_converted_data_set_keeps_its_table(folder, tmp_path):
    convert(folder, tmp_path / "new", num_shards=1, features=["signal"], workers=1)
    old, new = (open_records(f, "train").table() for f in (folder, tmp_path / "new"))
    assert new.drop_columns(["shard", "position"]).equals(
        old.drop_columns(["shard", "position"])
    )
    assert new["position"].equals(new["record"])


def test_other_data_have_places_only(tmp_path):
    folder = record_examples(
        [{"x": i} for i in range(3)], tmp_path, elements_per_file=2
    )
    table = open_records(folder).table()
    assert table.column_names == ["record", "split", "shard", "position"]
    assert summarise_windows(folder, Metadata.load(folder)) == {}
    assert table["position"].to_pylist() == [0, 1, 0]
    assert open_records(folder).where("position == 1").numbers.tolist() == [1]
    with raises(InputError, naming=["audio files"]):
        open_records(folder).of_clip("x")


def test_files_of_another_data_set_are_refused(tmp_path):
    write_corpus(tmp_path / "in", clips=1)
    for out, win_len in (("a", 500), ("b", 300)):
        record(tmp_path / "in", tmp_path / out, win_len=win_len)
    (tmp_path / "b" / "manifest.parquet").replace(tmp_path / "a" / "manifest.parquet")
    with raises(InputError, naming=["windows.parquet"]):
        open_records(tmp_path / "a").table()
    (tmp_path / "a" / "windows.parquet").unlink()
    with raises(InputError, naming=["windows.parquet", "deleted"]):
        open_records(tmp_path / "a").table()
