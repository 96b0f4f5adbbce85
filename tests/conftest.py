"""What several test files share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

# The same examples in every run, and as much time for each as a busy machine needs.
settings.register_profile("tests", derandomize=True, deadline=None)
settings.load_profile("tests")


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real recordings."""
    folder = os.environ.get("AUDIO_CORPORA")
    if not folder:
        pytest.skip("set AUDIO_CORPORA to a folder of real recordings")
    return Path(folder)
