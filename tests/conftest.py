"""What several test files share."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def corpora() -> Path:
    """The folder of real recordings."""
    folder = os.environ.get("AUDIO_CORPORA")
    if not folder:
        pytest.skip("set AUDIO_CORPORA to a folder of real recordings")
    return Path(folder)
