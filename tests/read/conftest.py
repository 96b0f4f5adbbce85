"""A data set that the tests of readers share, with something of everything."""

import shutil
from pathlib import Path

import pytest

from beam_pipeline import Metadata, record
from tests.sounds import write_corpus, write_sound

WIN_LEN = 500


@pytest.fixture(scope="session")
def sounds(tmp_path_factory):
    """A corpus, and a clip that is shorter than a window."""
    folder = tmp_path_factory.mktemp("sounds")
    write_corpus(folder)
    write_sound(folder / "cat" / "short.wav", 100)
    return folder


@pytest.fixture(scope="session")
def whole(sounds, tmp_path_factory):
    """A data set with splits, copies, windows left out, a cut and a reject."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    record(
        str(sounds), str(folder), win_len=WIN_LEN, elements_per_file=12, num_elems=40,
        splits="train=.5,test=.5", copies=1, augment="random_gain()",
        keep="energy(above_db=-10.9)", max_rejected=1, member_bytes=8000,
        short_clips="reject",
        features={"signal": "identity()", "mel": "log_mel(n_fft=256,n_mels=8)"},
    )  # fmt: skip
    metadata = Metadata.load(folder)
    assert all(split.left_out for split in metadata.splits.values())
    assert metadata.rejected == 1
    return folder


@pytest.fixture
def folder(whole, tmp_path):
    """A copy of the data set, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "out"))
