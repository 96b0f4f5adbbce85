"""Whole runs of many features: what is replayed is what the libraries compute."""

import os
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline import open_audio, open_records, record
from beam_pipeline.errors import RecipeError, TooManyRejected
from beam_pipeline.read.replay import replay
from beam_pipeline.read.verify import verify
from beam_pipeline.transforms import per_window
from tests.sounds import level_and_sign, write_corpus

pytestmark = pytest.mark.runs

RATE = 8000
EXAMPLES = 300
FEATURES = {
    "signal": "identity()",
    "stft": "stft(n_fft=512,hop=128,kind='magnitude')",
    "log_mel": "log_mel(n_fft=512,hop=128,n_mels=40)",
    "mfcc": "mfcc(n_fft=512,hop=128,n_mels=40,n_mfcc=13)",
    "fbank": "kaldi_fbank(n_mels=24)",
}


def corpora():
    root = os.environ.get("AUDIO_CORPORA")
    found = [Path(root, "fsdd")] if root else []
    return [path for path in found if path.is_dir()]


@pytest.fixture(scope="module", params=["synthetic", "fsdd"])
def examples(request, tmp_path_factory):
    """The first examples of a data set with all these features."""
    folder = tmp_path_factory.mktemp(request.param)
    source = {path.name: path for path in corpora()}.get(request.param)
    if request.param == "synthetic":
        source = folder / "in"
        write_corpus(source, frames=20_000)
    elif source is None:
        pytest.skip("AUDIO_CORPORA does not name it")
    metadata = record(
        str(source), str(folder / "out"), label_from="none", sample_rate=RATE,
        win_seconds=0.5, tail="pad", features=FEATURES, max_rejected="50%",
        num_elems=EXAMPLES,
    )  # fmt: skip
    dataset = replay(str(folder / "out"))
    for name, spec in metadata.features.items():
        assert tuple(dataset.element_spec[name].shape) == tuple(spec.shape)
    return list(dataset.as_numpy_iterator())


def pairs(examples, name, reference):
    """(ours, theirs) for each window that is not silent."""
    for example in examples:
        if np.abs(example["signal"]).max() > 1e-3:
            yield example[name], reference(example["signal"])


def agree(examples, name, reference, tolerance):
    """Within a share of the largest value in the window."""
    checked = 0
    for ours, theirs in pairs(examples, name, reference):
        assert ours.shape == theirs.shape
        scale = np.abs(theirs).max()
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=tolerance * scale)
        checked += 1
    assert checked > 20


def frames_as_ours(array):
    return np.ascontiguousarray(np.moveaxis(array, -1, -2))


def test_stft(examples):
    librosa = pytest.importorskip("librosa")

    def reference(y):
        spectrum = librosa.stft(
            y.astype(np.float64), n_fft=512, hop_length=128, center=False
        )
        return frames_as_ours(np.abs(spectrum))

    agree(examples, "stft", reference, 1e-6)


def mel_of(librosa, y):
    return librosa.feature.melspectrogram(
        y=y.astype(np.float64), sr=RATE, n_fft=512, hop_length=128, n_mels=40,
        center=False,
    )  # fmt: skip


def test_log_mel(examples):
    librosa = pytest.importorskip("librosa")

    def reference(y):
        return frames_as_ours(np.log(np.maximum(mel_of(librosa, y), 1e-10)))

    agree(examples, "log_mel", reference, 1e-4)


def test_mfcc(examples):
    librosa = pytest.importorskip("librosa")

    def reference(y):
        level = librosa.power_to_db(mel_of(librosa, y), top_db=None)
        return frames_as_ours(librosa.feature.mfcc(S=level, n_mfcc=13))

    agree(examples, "mfcc", reference, 1e-4)


def test_kaldi_fbank(examples):
    knf = pytest.importorskip("kaldi_native_fbank")
    options = knf.FbankOptions()
    options.frame_opts.samp_freq = RATE
    options.frame_opts.dither = 0
    options.mel_opts.num_bins = 24

    for ours, window in pairs(examples, "fbank", lambda y: y):
        bank = knf.OnlineFbank(options)
        bank.accept_waveform(RATE, (window * 32768).tolist())
        bank.input_finished()
        frames = [bank.get_frame(i) for i in range(bank.num_frames_ready)]
        # As energies: what is 60 dB below the rest of a frame is rounding in both.
        exact = np.exp(np.stack(frames))
        limit = 1e-5 * exact.max(axis=1, keepdims=True) + 1e-3
        assert (np.abs(np.exp(ours) - exact) <= limit).all()


# A function that gives several features.

TWO = {"both": "tests.sounds.level_and_sign", "signal": "identity()"}


@pytest.mark.parametrize("win_len", [1000, "clip"])
def test_every_reader_has_each_feature_of_a_function_that_gives_several(
    win_len, tmp_path
):
    write_corpus(tmp_path / "in", ("cat",), clips=2)
    folder = str(tmp_path / "out")
    metadata = record(
        str(tmp_path / "in"), folder, win_len=win_len, features=TWO, num_shards=2,
        encodings={"both/level": "float16"},
    )  # fmt: skip
    assert metadata.features["both/level"].shape == (None if win_len == "clip" else 10,)
    statistics = metadata.splits["records"].statistics["features"]
    assert statistics["both/level"].keys() >= {"mean", "std"}
    assert verify(folder, deep=True, input=str(tmp_path / "in")) == []
    records = open_records(folder)
    replayed = {
        int(e["index"]) * 10_000 + int(e["win_start_idx"]): e
        for e in replay(folder).as_numpy_iterator()
    }
    opened = open_audio(str(tmp_path / "in"), like=folder, features=["both/level"])
    levels = {e["both/level"].tobytes() for e in opened}
    for example in records:
        made = level_and_sign(example["signal"][None])
        level = made["level"][0].astype(np.float16).astype(np.float32)
        np.testing.assert_array_equal(example["both/level"], level)
        assert example["both/sign"] == made["sign"][0]
        key = int(example["index"]) * 10_000 + int(example["win_start_idx"])
        np.testing.assert_array_equal(replayed[key]["both/level"], level)
        assert replayed[key]["both/sign"].decode() == made["sign"][0]
    assert len(levels) == len(records) == len(replayed)
    batch = next(iter(records.batches(2, normalize=["both/level"])))
    assert len(batch["both/level"]) == 2


@pytest.mark.parametrize(
    ("returned", "options", "facts"),
    [
        ({}, {}, "identifiers"),
        ({"a b": 0}, {}, "a b"),
        ({1: 0}, {}, "1"),
        ({"level": 0}, {"encodings": {"both/lvel": "raw"}}, "both/level"),
        ({"level": 0}, {"encodings": {"both": "raw"}}, "both/level"),
    ],
)
def test_features_that_a_function_does_not_give_are_refused(
    returned, options, facts, tmp_path
):
    def give(windows):
        return {key: np.zeros(len(windows), np.float32) for key in returned}

    write_corpus(tmp_path / "in", ("cat",), clips=1)
    with pytest.raises(RecipeError, match=facts):
        record(
            str(tmp_path / "in"), str(tmp_path / "out"), win_len=1000,
            features={"both": give}, **options,
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


def test_only_the_last_step_gives_several_features(tmp_path):
    write_corpus(tmp_path / "in", ("cat",), clips=1)
    features = {"both": "tests.sounds.level_and_sign|normalize()"}
    with pytest.raises(RecipeError, match="must end with this step"):
        record(
            str(tmp_path / "in"), str(tmp_path / "out"), win_len=9, features=features
        )


def other_keys(windows):
    """Gives another feature for what is not silent."""
    return {"loud" if windows.any() else "quiet": windows.max(-1)}


def test_a_function_that_gives_other_features_for_sound_is_an_error(tmp_path):
    write_corpus(tmp_path / "in", ("cat",), clips=1)
    with pytest.raises(TooManyRejected, match=r"both/loud.*both/quiet"):
        record(
            str(tmp_path / "in"), str(tmp_path / "out"), win_len=1000,
            features={"both": other_keys}, max_rejected=0,
        )  # fmt: skip


def test_a_function_of_one_window_may_give_several():
    made = per_window(lambda window: {"top": window.max(), "ends": window[[0, -1]]})(
        np.arange(6, dtype=np.float32).reshape(2, 3)
    )
    assert made["top"].tolist() == [2, 5]
    assert made["ends"].tolist() == [[0, 2], [3, 5]]
