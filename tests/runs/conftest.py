"""Places of the whole runs."""

import pytest

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
