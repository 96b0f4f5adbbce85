"""From a folder to batches, as the documents write it."""

import numpy as np
import pytest
import soundfile
import tensorflow as tf

from beam_pipeline import tf_dataset
from beam_pipeline import tf_dataset as tfd
from tests.sounds import write_sound

NAMES = ("1_24346_passenger", "2_24346_passenger", "3_24346_cargo", "4_24346_tug")


@pytest.fixture
def here(tmp_path, monkeypatch):
    for number, name in enumerate(NAMES):
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
        assert x["filepath"].numpy().decode() == f"{here}/data/{NAMES[0]}.wav"
        wanted = soundfile.read(f"data/{NAMES[0]}.wav", dtype="int32")[0]
        np.testing.assert_array_equal(x["signal"], wanted[:1024])
    targets = [x["target"] for x in ds.take(12).as_numpy_iterator()]
    assert targets == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 0, 0]
    assert sorted(path.name for path in here.iterdir()) == ["data"]


def test_labels_and_targets(here):
    ds = tfd.dataset_from_dir("data", labels=["a", "b", "a", "b"])
    assert [x["class"] for x in ds.as_numpy_iterator()] == [b"a", b"b", b"a", b"b"]
    ds = tfd.dataset_from_dir("data", targets=[0.5, 0.1, 0.9, 0.33])
    ds = tfd.dataset_compact(ds, "signal", "target")
    found = [y for _, y in ds.as_numpy_iterator()]
    np.testing.assert_array_equal(found, np.float32([0.5, 0.1, 0.9, 0.33]))
    (only,) = tfd.dataset_from_dir("data", ext="tug.wav").as_numpy_iterator()
    assert only["class"] == b"tug"


def test_training_is_the_chain_of_functions(here):
    df = tfd.construct_metadata("data")
    ds = tfd.signal_dataset(df, target_dtype="int64")
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
    df = tfd.construct_metadata("data")
    ds = tfd.dataset_from_dir("data", batch_size=2, features="full")
    ds = tfd.dataset_compact(ds, "signal", "target")
    assert [spec.shape for spec in ds.element_spec] == [(2, 1024, 12), (2,)]
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
    assert tf_dataset.__all__ == sorted(set(tf_dataset.__all__))
    for name in tf_dataset.__all__:
        assert getattr(tf_dataset, name).__name__ == name
        assert getattr(tf_dataset, name).__doc__
