"""Whole runs of many features: what is replayed is what the libraries compute."""

import os
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline import record
from beam_pipeline.read.replay import replay
from tests.sounds import write_corpus

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
