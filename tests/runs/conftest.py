"""Places of the whole runs."""

import pytest

from beam_pipeline import record
from beam_pipeline.run import local
from tests.sounds import write_corpus


@pytest.fixture
def corpus(tmp_path):
    """A folder of three classes with four clips each."""
    write_corpus(tmp_path / "in")
    return tmp_path / "in"


@pytest.fixture
def out(tmp_path):
    """Where the data set goes; nothing is there."""
    return tmp_path / "out"


@pytest.fixture
def run_cut_off(monkeypatch):
    """A run that ends after its last shard, without a word."""

    def cut(*args):
        raise KeyboardInterrupt

    def run(*places, **options):
        with monkeypatch.context() as patch:
            patch.setattr(local, "finish_job", cut)
            with pytest.raises(KeyboardInterrupt):
                record(*places, **options)

    return run
