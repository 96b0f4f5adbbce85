"""A folder as a data frame, its files as whole signals, and batches in one call."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import soundfile
import tensorflow as tf

from beam_pipeline import tf_dataset as tfd
from beam_pipeline.errors import ClipError
from beam_pipeline.tf_dataset import construct_metadata, grab, signal_dataset
from tests.raising import raises
from tests.sounds import RATE, write_sound

# A folder as a data frame

NAMES = [
    "1561965276.252_1561965582.106_24346_passenger.wav",
    "1561971147.625_1561971202.077_24346_cargo.wav",
    "1561971697.731_1561971718.283_24346_tug.wav",
    "1561971800.000_1561971900.000_24346_cargo.wav",
]


def make_files(folder, *names):
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    return [str(folder / name) for name in names]


@pytest.fixture
def data(tmp_path):
    make_files(tmp_path / "data", *reversed(NAMES))
    return tmp_path / "data"


def test_the_columns_of_the_document(data):
    df = construct_metadata(data)
    assert list(df.columns) == ["filepath", "class", "num_classes", "target"]
    assert df["filepath"].tolist() == [str(data / name) for name in NAMES]
    assert df["class"].tolist() == ["passenger", "cargo", "tug", "cargo"]
    assert df["num_classes"].tolist() == [3] * 4
    assert df["target"].tolist() == [0, 1, 2, 1]
    assert df["target"].dtype == df["num_classes"].dtype == np.int64


def test_folders_are_listed_and_the_order_is_that_of_paths(tmp_path):
    wanted = make_files(tmp_path, "a/b/3_x.wav", "a/c_y.wav", "b_x.wav")
    make_files(tmp_path, "notes.txt", "a/other_z.mp3")
    assert construct_metadata(tmp_path)["filepath"].tolist() == wanted
    only = construct_metadata(tmp_path, ext=".mp3")
    assert only["class"].tolist() == ["z"]


def test_a_sequence_of_labels_is_by_position(data):
    labels = np.asarray(["d", "c", "d", "a"])
    df = construct_metadata(data, labels, label_colname="kind")
    assert df["kind"].tolist() == ["d", "c", "d", "a"]
    assert df["target"].tolist() == [0, 1, 0, 2]
    assert "class" not in df


@pytest.mark.parametrize("spelled", ["absolute", "in_folder", "from_here"])
def test_a_mapping_of_labels_is_joined_by_path(spelled, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_files(tmp_path / "data", "one/1.wav", "two/2.wav", "3.wav")
    names = {
        "absolute": [
            f"{tmp_path}/data/{n}" for n in ("3.wav", "one/1.wav", "two/2.wav")
        ],
        "in_folder": ["3.wav", "./one/1.wav", "two//2.wav"],
        "from_here": ["data/3.wav", "./data/one/1.wav", "data/two/2.wav"],
    }[spelled]
    labels = dict(zip(names, ("c", "a", "b"), strict=True))
    turned = dict(reversed(labels.items()))
    df = construct_metadata("./data", labels=turned)
    assert df["class"].tolist() == ["c", "a", "b"]
    assert df["target"].tolist() == [0, 1, 2]


def test_targets_are_taken_as_they_are(data, tmp_path):
    make_files(tmp_path / "other", "1.wav", "2.wav")
    plain = construct_metadata(tmp_path / "other", targets=[3, 4])
    assert list(plain.columns) == ["filepath", "target"]  # names need no class
    without = construct_metadata(data, create_targets=False)
    assert list(without.columns) == ["filepath", "class", "num_classes"]
    df = construct_metadata(data, targets=[0.5, 0.1, 0.9, 0.33], create_targets=False)
    assert df["target"].tolist() == [0.5, 0.1, 0.9, 0.33]
    assert df["num_classes"].tolist() == [3] * 4
    vectors = construct_metadata(data, targets=np.eye(4))["target"]
    np.testing.assert_array_equal(np.stack(vectors.tolist()), np.eye(4))


# Whole signals


@pytest.fixture
def folder(tmp_path):
    for number, label in enumerate(("tug", "cargo", "tug")):
        path = tmp_path / f"{number}_{label}.wav"
        write_sound(path, 100 + 10 * number, seed=number)
    return tmp_path


@pytest.fixture
def df(folder):
    return construct_metadata(folder)


def frame(*paths, **columns):
    return pd.DataFrame({"filepath": [str(path) for path in paths], **columns})


def test_elements(df, folder, monkeypatch):
    monkeypatch.chdir(folder)
    ds = signal_dataset(df)
    assert ds.cardinality() == 3
    types = {name: spec.dtype.name for name, spec in ds.element_spec.items()}
    assert types == {
        "class": "string", "filepath": "string", "fs": "int32", "index": "int64",
        "num_classes": "int64", "signal": "float32", "target": "int32",
    }  # fmt: skip
    for number, element in enumerate(ds.as_numpy_iterator()):
        path = df["filepath"][number]
        assert element["filepath"].decode() == path
        wanted, rate = soundfile.read(path, dtype="float32")
        np.testing.assert_array_equal(element["signal"], wanted)
        assert element["fs"] == rate == RATE
        assert element["index"] == number
        assert element["target"] == [0, 1, 0][number]
        assert element["class"] == [b"tug", b"cargo", b"tug"][number]
        assert element["num_classes"] == 2
    assert sorted(path.suffix for path in folder.iterdir()) == [".wav"] * 3
    plain = signal_dataset(df, use_soundfile=False)
    wanted = soundfile.read(df["filepath"][0], dtype="int32")[0]
    np.testing.assert_array_equal(grab(plain)["signal"], wanted, strict=True)


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int32"])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_are_those_of_libsndfile(dtype, channels, tmp_path):
    subtypes = ["PCM_U8", "PCM_16", "PCM_24", "PCM_32", "ULAW"]
    paths = [tmp_path / f"{subtype}.wav" for subtype in subtypes]
    for path in paths:
        write_sound(path, 257, channels=channels, subtype=path.stem)
    ds = signal_dataset(frame(*paths), signal_dtype=dtype)
    assert ds.element_spec["signal"].dtype.name == dtype
    assert ds.element_spec["signal"].shape.as_list() == [None, 2][:channels]
    for path, element in zip(paths, ds.as_numpy_iterator(), strict=True):
        wanted = soundfile.read(path, dtype=dtype)[0]
        np.testing.assert_array_equal(element["signal"], wanted)


@pytest.mark.parametrize(("dtype", "one"), [("int16", 2**15), ("int32", 2**31)])
@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
def test_floats_become_integers_of_full_scale(dtype, one, subtype, tmp_path):
    path = tmp_path / "x.wav"
    samples = np.array([0, 0.5, -0.25, 1, -1, 1.5, -2, 1.5 / one, -0.5 / one])
    soundfile.write(path, samples, RATE, subtype=subtype)
    found = grab(signal_dataset(frame(path), signal_dtype=dtype))["signal"]
    wanted = [0, one // 2, -one // 4, one - 1, -one, one - 1, -one, 2, 0]
    assert found.dtype == dtype
    assert found.tolist() == wanted


def test_two_channels_as_complex(tmp_path):
    samples = write_sound(tmp_path / "iq.wav", 50, channels=2)
    df = frame(tmp_path / "iq.wav")
    for dtype, wanted in (("float32", "complex64"), ("float64", "complex128")):
        found = grab(signal_dataset(df, as_complex=True, signal_dtype=dtype))["signal"]
        assert found.dtype == wanted
        np.testing.assert_array_equal(found, samples[:, 0] + 1j * samples[:, 1])
    write_sound(tmp_path / "mono.wav", 50)
    both = frame(tmp_path / "iq.wav", tmp_path / "mono.wav")
    for options, why in (({"as_complex": True}, "as_complex"), ({}, "iq.wav has 2")):
        with raises(tf.errors.OpError, naming=["mono.wav: has 1 channels", why]):
            list(signal_dataset(both, **options))


def test_damaged_files_raise_and_are_named(df, folder):
    third = folder / "2_tug.wav"
    third.write_bytes(third.read_bytes()[:-50])
    seen = []
    with raises(tf.errors.OpError, naming=["ends early", str(third)]):
        seen.extend(signal_dataset(df).as_numpy_iterator())

    (folder / "0_tug.wav").write_text("no audio")
    with raises(ClipError, path=str(folder / "0_tug.wav")):
        signal_dataset(df)


def test_infinite(df):
    assert "filepath" not in signal_dataset(df, keep_filepath=False).element_spec
    ds = signal_dataset(df, infinite=True)
    assert ds.cardinality() == tf.data.INFINITE_CARDINALITY
    indices = [x["index"] for x in ds.take(7).as_numpy_iterator()]
    assert indices == [0, 1, 2, 0, 1, 2, 0]


def test_a_frame_of_paths_and_classes_gets_targets(df):
    ds = signal_dataset(df[["filepath", "class"]])
    assert [x["target"] for x in ds.as_numpy_iterator()] == [1, 0, 1]
    assert grab(ds)["num_classes"] == 2


def test_one_hot_targets(df):
    ds = signal_dataset(df, onehot_categoricals=True)
    assert ds.element_spec["target"] == tf.TensorSpec((2,), tf.int64)
    found = [x["target"].tolist() for x in ds.as_numpy_iterator()]
    assert found == [[1, 0], [0, 1], [1, 0]]


@pytest.mark.parametrize(("targets", "dtype", "wanted"), [
    ([1, 2, 3], "int32", "int32"),
    ([1, 2, 3], "int64", "int64"),
    ([1, 2, 3], "float32", "float32"),
    ([0.5, 0.1, 0.9], "int32", "float32"),
    ([0.5, 0.1, 0.9], "float64", "float64"),
    (np.eye(3)[:, :2], "int32", "float32"),
])  # fmt: skip
def test_types_of_targets(targets, dtype, wanted, df):
    ds = signal_dataset(df, targets=targets, target_dtype=dtype)
    found = np.stack([x["target"] for x in ds.as_numpy_iterator()])
    assert found.dtype == wanted
    np.testing.assert_array_equal(found, np.asarray(targets).astype(wanted))


def test_columns_of_all_types(df):
    more = df.assign(
        depth=[0.5, np.nan, 2.0],
        good=[True, False, True],
        small=np.array([1, 2, 3], np.int16),
        place=pd.Categorical(["é", "b", "é"]),
        day=pd.to_datetime(["2026-05-01", "2026-05-02", "2026-05-03"]),
        pair=[[1, 2], [3, 4], [5, 6]],
        maybe=pd.array([1, 2, 3], dtype="Int64"),
    )
    elements = list(signal_dataset(more).as_numpy_iterator())
    assert np.isnan(elements[1]["depth"])
    assert elements[2]["depth"] == np.float64(2.0)
    assert [x["good"] for x in elements] == [True, False, True]
    assert elements[0]["small"].dtype == np.int16
    assert elements[0]["place"].decode() == "é"
    assert elements[0]["day"].startswith(b"2026-05-01")
    assert elements[1]["pair"].tolist() == [3, 4]
    assert elements[1]["maybe"] == 2


def test_arrays_from_archives(tmp_path):
    grams = np.arange(6.0).reshape(2, 3)
    np.savez(tmp_path / "0.npz", grams, fs=4000)
    np.savez(tmp_path / "1.npz", signal=grams + 1, other=[0], fs=4000)
    df = frame(tmp_path / "0.npz", tmp_path / "1.npz")
    first, second = signal_dataset(df, load_grams=True).as_numpy_iterator()
    np.testing.assert_array_equal(first["signal"], grams)
    np.testing.assert_array_equal(second["signal"], grams + 1)
    assert first["signal"].dtype == np.float64
    assert first["fs"] == 4000


def load_text(row):
    """A loader in plain Python, and one in TensorFlow."""
    text = tf.io.read_file(row["filepath"])
    size = Path(row["filepath"]).stat().st_size
    return {**row, "text": text, "twice": np.ones((size, 2)), "kind": "é"}


def test_a_loader_of_ones_own(tmp_path):
    for number in range(3):
        (tmp_path / f"{number}.txt").write_text("x" * number)
    df = frame(*(tmp_path / f"{n}.txt" for n in range(3)), target=[5, 6, 7])
    ds = signal_dataset(df, process_db_entry=load_text, keep_filepath=False)
    assert ds.element_spec["twice"] == tf.TensorSpec((None, None), tf.float64)
    elements = list(ds.as_numpy_iterator())
    assert [x["text"] for x in elements] == [b"", b"x", b"xx"]
    assert [len(x["twice"]) for x in elements] == [0, 1, 2]
    assert [x["target"] for x in elements] == [5, 6, 7]
    assert elements[0]["kind"].decode() == "é"
    assert "filepath" not in elements[0]


# All in one call, as the documents write it

CLIPS = ("1_24346_passenger", "2_24346_passenger", "3_24346_cargo", "4_24346_tug")


@pytest.fixture
def here(tmp_path, monkeypatch):
    for number, name in enumerate(CLIPS):
        write_sound(tmp_path / f"data/{name}.wav", 2500 + 500 * number, seed=number)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_first_document(here):
    ds = tfd.dataset_from_dir("./data", infinite=True)
    ds = tfd.dataset_signal_slice_windows(ds, win_len=1024)
    printed = {
        "class": "string", "filepath": "string", "index": "int64",
        "num_classes": "int64", "signal": "int32", "target": "int64",
        "win_start_idx": "int32",
    }  # fmt: skip
    spec = ds.element_spec
    assert {name: spec[name].dtype.name for name in printed} == printed
    assert set(spec) - set(printed) == {"fs", "sig_len", "win_len"}
    assert list(spec) == sorted(spec)
    assert spec["signal"].shape == (1024,)
    for x in ds.take(1):
        assert x["class"] == b"passenger"
        assert x["filepath"].numpy().decode() == f"{here}/data/{CLIPS[0]}.wav"
        wanted = soundfile.read(f"data/{CLIPS[0]}.wav", dtype="int32")[0]
        np.testing.assert_array_equal(x["signal"], wanted[:1024])
    targets = [x["target"] for x in ds.take(12).as_numpy_iterator()]
    assert targets == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0]
    assert sorted(path.name for path in here.iterdir()) == ["data"]


def test_training_is_the_chain_of_functions(here):
    df = construct_metadata("data")
    ds = signal_dataset(df, target_dtype="int64")
    ds = tfd.dataset_signal_slice_windows(ds, win_len=512)
    ds = tfd.dataset_signal_apply_hilbert(ds)
    ds = tfd.dataset_signal_normalize(ds)
    ds = tfd.dataset_prefetch(tfd.dataset_batch(ds, batch_size=8), 1)
    ours = tfd.training_dataset(df, win_len=512, batch_size=8)
    assert ours.element_spec == ds.element_spec
    assert ours.element_spec["signal"] == tf.TensorSpec((8, 512), tf.complex64)
    for a, b in zip(ours.as_numpy_iterator(), ds.as_numpy_iterator(), strict=True):
        np.testing.assert_array_equal(a["signal"], b["signal"])
        np.testing.assert_array_equal(a["win_start_idx"], b["win_start_idx"])
    # Keywords of training make the same of a folder.
    same = tfd.dataset_from_dir("data", win_len=512, batch_size=8)
    assert same.element_spec == ds.element_spec


def test_training_options(here):
    df = construct_metadata("data")
    lite = tfd.training_dataset(df, 512, 4, hilbert=False, features="lite")
    assert lite.element_spec["signal"].shape == (4, 512, 2)
    plain = tfd.training_dataset(df, 512, 4, hilbert=False, norm_type=None, pad=True)
    assert plain.element_spec["signal"].dtype == tf.float32
    options = {"shuffle_buffer_size": 50, "deterministic": False, "seed": 5}
    mixed = tfd.training_dataset(df, 512, 1, **options)
    first, second = (
        [x["win_start_idx"].tolist() for x in mixed.as_numpy_iterator()]
        for _ in range(2)
    )
    assert first != second
    again = tfd.training_dataset(df, 512, 1, **options)
    assert [x["win_start_idx"].tolist() for x in again.as_numpy_iterator()] == first
    endless = tfd.training_dataset(df, infinite=True, max_windows_per_signal=1)
    assert len(list(endless.take(9))) == 9


def test_every_name_is_exported():
    assert tfd.__all__ == sorted(set(tfd.__all__))
    for name in tfd.__all__:
        assert getattr(tfd, name).__name__ == name
        assert getattr(tfd, name).__doc__
