"""What several test files share."""

import getpass
import os
import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import settings

from beam_pipeline.storage import object_store
from tests import loopback

# Two processes that write one cache of compiled code damage it; a worker of xdist would
# inherit that of the process that started it.
_WORKER = os.environ.get("PYTEST_XDIST_WORKER", "main")
_CACHE = Path(__file__).parents[1] / ".pytest_cache" / f"numba-{_WORKER}"
os.environ["NUMBA_CACHE_DIR"] = str(_CACHE)

# The folders of tests have a space in their paths.
_FOLDERS = Path(tempfile.gettempdir(), f"tests of {getpass.getuser()}")
_FOLDERS.mkdir(exist_ok=True)
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_FOLDERS))

# The same examples in every run, and as much time for each as a busy machine needs.
settings.register_profile("tests", derandomize=True, deadline=None)
settings.load_profile("tests")

# Whole systems, and packages that launch/frameworks/test.sh has.
_SLOW = ("systems", "frameworks")


def pytest_ignore_collect(collection_path, config):
    """Leaves out the folders of tests that need minutes, unless they are given."""
    name = collection_path.name
    slow = collection_path.parent == Path(__file__).parent and name in _SLOW
    return True if slow and not any(name in arg for arg in config.args) else None


@pytest.fixture
def cli(capsys):
    """Runs the command line, which must end with a status; returns what it printed."""
    from beam_pipeline.cli.main import main

    def run(*words, status=0):
        capsys.readouterr()
        try:
            found = main([str(word) for word in words])
        except SystemExit as ended:
            found = ended.code
        said = capsys.readouterr()
        assert found == status, said.err
        return said

    return run


@pytest.fixture(scope="session")
def corpora():
    """The folder of real recordings."""
    folder = os.environ.get("AUDIO_CORPORA")
    if not folder:
        pytest.skip("set AUDIO_CORPORA to a folder of real recordings")
    return Path(folder)


@pytest.fixture(scope="session")
def store_port():
    """The port of an object store on loopback."""
    pytest.importorskip("moto", reason="pip install -e '.[dev]' brings moto")
    with loopback.store_server() as port:
        yield port


@pytest.fixture
def proxy(store_port, monkeypatch):
    """What is between s3:// and gs:// and the store on loopback."""
    with loopback.proxy_to(store_port) as state:
        loopback.point_at(state.port, monkeypatch)
        yield state
        object_store._client.cache_clear()


@pytest.fixture
def bucket(store_port, proxy):
    """The name of an empty bucket."""
    # The client for Google escapes all but letters and digits, which moto takes as is.
    name = f"bucket{uuid.uuid4().hex[:12]}"
    loopback.put(store_port, f"/{name}")
    return name
