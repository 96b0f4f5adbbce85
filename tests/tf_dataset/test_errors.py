"""What cannot be used is refused at once: the option, and the facts in its error."""

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from beam_pipeline import tf_dataset as tfd
from beam_pipeline.errors import ClipError, InputError, OptionError
from tests.raising import raises
from tests.sounds import write_sound


def signals(dtype="f4", shape=(9,)):
    element = {"signal": np.zeros(shape, dtype), "index": 0, "fs": np.int32(16000)}
    return tf.data.Dataset.from_tensors(element)


SIGNALS, BATCH, NONE = signals(), signals().batch(1), signals().take(0)
COMPLEX, STEREO = signals("c8"), signals(shape=(9, 2))
ONLY_REAL = ("minmax", "median", "quantile", "log")


def as_tf(ds, transform="log_mel()", **options):
    return ds.map(tfd.as_tf(transform, sample_rate=16000, **options))


REFUSED = [
    (tfd.grab, [NONE], {}, "dataset", []),
    (tfd.dataset_set_shapes, [NONE], {}, "dataset", []),
    (tfd.dataset_compact, [SIGNALS, "signl"], {}, "data_key", ["signl", "signal"]),
    (tfd.dataset_batch, [SIGNALS, 0], {}, "batch_size", [0]),
    # Windows
    (tfd.dataset_signal_slice_windows, [BATCH], {}, "dataset", ["batched"]),
    *(
        (tfd.dataset_signal_slice_windows, [SIGNALS], {name: value}, option, [])
        for name, value, option in [
            ("win_len", 0, "win_len"), ("data_key", "sginal", "data_key"),
            ("data_key", "index", "dataset"),
        ]
    ),
    # Changes
    (tfd.dataset_signal_normalize, [SIGNALS, "min_max"], {}, "norm_type", ["minmax"]),
    *(
        (tfd.dataset_signal_normalize, [COMPLEX, kind], {}, "norm_type", ["complex"])
        for kind in ONLY_REAL
    ),
    (tfd.dataset_signal_normalize, [signals("u1")], {}, "dataset", ["uint8"]),
    (tfd.dataset_signal_apply_hilbert, [COMPLEX], {}, "dataset", ["complex"]),
    (tfd.dataset_prepare_signal_for_ml, [STEREO], {}, "dataset", []),
    # Transforms
    (tfd.as_tf, ["rms()"], {"sample_rate": 0}, "sample_rate", [0]),
    (tfd.as_tf("log_mel()"), [np.zeros(4800, "f4")], {}, "feature signal",
     ["sample_rate"]),
    (as_tf, [SIGNALS], {"key": "signl"}, "key", ["signl"]),
    (as_tf, [SIGNALS], {"key": "fs"}, "key", ["fs"]),
    (as_tf, [COMPLEX], {}, "key", ["complex64"]),
    (as_tf, [SIGNALS], {}, "feature signal", ["log_mel"]),
]  # fmt: skip


@pytest.mark.parametrize(("function", "args", "options", "option", "facts"), REFUSED)
def test_what_is_refused(function, args, options, option, facts):
    with raises(OptionError, naming=facts) as caught:
        function(*args, **options)
    assert caught.value.args[0].startswith(option)


@pytest.fixture
def df(tmp_path):
    for number in range(3):
        write_sound(tmp_path / f"{number}_tug.wav", 100)
    return tfd.construct_metadata(tmp_path)


SAME = lambda df: df  # noqa: E731
FRAMES = [
    (lambda df: df.assign(place=["a", None, "b"]), {}, "df", ["place", "row 1"]),
    (lambda df: df.assign(signal=1), {}, "df", ["signal"]),
    (lambda df: df.drop(columns="filepath"), {}, "df", ["filepath"]),
    (SAME, {"signal_dtype": "int8"}, "signal_dtype", []),
    *(
        (SAME, {"onehot_categoricals": True, "targets": t}, "onehot_categoricals", [])
        for t in ([0, 1, 2], [0, -1, 1])
    ),
]


@pytest.mark.parametrize(("change", "options", "option", "facts"), FRAMES)
def test_frames_that_cannot_be_used(df, change, options, option, facts):
    assert issubclass(OptionError, ValueError)
    with raises(OptionError, option, naming=facts):
        tfd.signal_dataset(change(df), **options)


FOLDERS = [
    ("labels", {"1.wav": "a"}, ["2.wav"]),
    ("labels", {"1.wav": "a", "2.wav": "b"}, ["x/2.wav"]),
    ("labels", ["a"], ["2", "1 values"]),
    ("labels", list("abc"), ["2", "3 values"]),
    ("labels", None, ["1.wav"]),
    ("targets", [1, 2, 3], ["3 values"]),
    ("ext", ".flac", [".flac"]),
]


@pytest.mark.parametrize(("option", "value", "facts"), FOLDERS)
def test_folders_that_cannot_be_used(option, value, facts, tmp_path):
    for name in ("1.wav", "x/2.wav"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    labels = {} if option == "labels" else {"labels": list("ab")}
    with raises(OptionError, "data_dir" if option == "ext" else option, naming=facts):
        tfd.construct_metadata(tmp_path, **{**labels, option: value})
    with raises(OptionError, "data_dir", naming="gone"):
        tfd.construct_metadata(tmp_path / "gone")


def test_files_that_cannot_be_read(df):
    gone = df.assign(filepath="/gone.wav")
    with raises(ClipError, path="/gone.wav"):
        tfd.signal_dataset(gone)
    with raises(OptionError, "features", "some"):
        tfd.training_dataset(df, features="some")


def test_archives_of_several_arrays(tmp_path):
    np.savez(tmp_path / "1.npz", signal=[1], other=[0])
    df = pd.DataFrame({"filepath": [str(tmp_path / "1.npz")]})
    with raises(InputError, naming=["1.npz", "signal", "other", "data_key"]):
        tfd.signal_dataset(df, load_grams=True, data_key="gram")
