"""Objects in ``gs://`` and ``s3://``, with one client and connection pool per bucket.

Beam's own file systems read at least 16 MiB for the first byte, make a new client for
every operation on S3, and wait twenty seconds for missing credentials. Here, a read
fetches the bytes that it needs and a little ahead, failed requests are repeated with
growing pauses, and uploads are atomic.

Credentials come from the environment, as for Amazon's and Google's own tools:
``AWS_*`` variables, the files of the AWS command line (with boto3 installed), web
identities, the role of the machine; ``GOOGLE_APPLICATION_CREDENTIALS``, gcloud's
default credentials, the service account of the machine. Without credentials, requests
are unsigned, which public buckets allow. ``AWS_ENDPOINT_URL``, ``GOOGLE_BASE_URL`` and
``STORAGE_EMULATOR_HOST`` select another server.
"""

from __future__ import annotations

import functools
import io
import os
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

from beam_pipeline.errors import InputError, StoreError
from beam_pipeline.marks import Marks
from beam_pipeline.storage.credentials import gcs_access, s3_access
from beam_pipeline.storage.store_errors import explain

SCHEMES = ("gs", "s3")

# The first request also returns the size. Nearly all file headers fit into it.
FIRST_BYTES = 64 << 10
# Each request in a sequential read is twice as long as the one before, up to this.
MOST_BYTES = 4 << 20
REQUESTS_AT_ONCE = 32

_RETRIES: dict[str, Any] = {
    "max_retries": 10,
    # Each pause is drawn from 0.2 s up to `base` times the one before, so that they
    # last some half a minute together.
    "backoff": {
        "init_backoff": timedelta(milliseconds=200),
        "max_backoff": timedelta(seconds=10),
        "base": 3,
    },
    "retry_timeout": timedelta(minutes=3),
}

_CUT_ANSWER = "list response body"
_NO_KEY = "audio-tfrecords/no-such-folder"

# The process that started the client, whose threads do not survive a fork.
_started_in: list[int] = []
_SPAWN = "Start processes with 'spawn' or 'forkserver' instead of 'fork'."


def is_in_store(path: str) -> bool:
    """Whether a path has the scheme of a store that this module serves."""
    return path.partition("://")[0] in SCHEMES


def was_forked() -> bool:
    """Whether the client is that of a parent: only :mod:`.store_ranges` can read."""
    return bool(_started_in) and _started_in[0] != os.getpid()


def _split(path: str) -> tuple[Any, str]:
    """Returns the client of a path's bucket, and the object's key."""
    if was_forked():
        raise StoreError(path, "the store's client was used before a fork", _SPAWN)
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    if not bucket:
        raise InputError(f"{path} names no bucket: write {scheme}://BUCKET/FOLDER.")
    return _client(scheme, bucket), key


@functools.lru_cache(maxsize=64)
def _client(scheme: str, bucket: str) -> Any:
    from obstore.store import GCSStore, S3Store

    _started_in[:] = [os.getpid()]
    options: dict[str, Any] = {
        "retry_config": _RETRIES,
        "client_options": {
            # For test servers; the stores' own addresses are HTTPS.
            "allow_http": True,
            "connect_timeout": timedelta(seconds=10),
            "timeout": timedelta(seconds=120),
        },
    }
    if scheme == "s3":
        return S3Store(bucket, **options, **s3_access())
    return GCSStore(bucket, **options, **gcs_access())


@contextmanager
def _explained(path: str) -> Iterator[None]:
    """Turns the client's errors into OSError, InputError or StoreError.

    A missing object is a FileNotFoundError, so that a run can go on without that file.
    Other failures (no answer, status 500, no access, no bucket) are not the file's
    fault: they end the run.
    """
    from obstore import exceptions

    try:
        yield
    except (exceptions.BaseError, FileNotFoundError) as error:
        unsigned = bool(_split(path)[0].config.get("skip_signature"))
        raise explain(path, error, unsigned) from error


@functools.lru_cache(maxsize=64)
def _require_bucket(scheme: str, bucket: str) -> None:
    """Raises InputError if a bucket does not exist, which HEAD does not report."""
    import obstore

    try:
        with _explained(f"{scheme}://{bucket}"):
            next(iter(obstore.list(_client(scheme, bucket), prefix=_NO_KEY)), None)
    except StoreError:
        return  # reading may be allowed where listing is not


@functools.lru_cache(maxsize=1)
def pool_of(process: int) -> ThreadPoolExecutor:
    """Returns this process's pool of threads that wait for answers."""
    return ThreadPoolExecutor(REQUESTS_AT_ONCE, f"store-{process}")


class StoreReader(io.RawIOBase):
    """An object as a seekable file that fetches ranges of bytes.

    Keeps the first range, because decoders return to the header, and the current range.
    Fetches the next range ahead when the reads are sequential.

    Parameters
    ----------
    path : str
        ``gs://bucket/key`` or ``s3://bucket/key``.
    first_bytes : int
        Number of bytes that the first request fetches.
    share : float
        Share of the object that will be read, from its start, between 0 and 1. Bytes
        beyond it are not fetched ahead, but can be read.
    """

    def __init__(self, path: str, first_bytes: int = FIRST_BYTES, share: float = 1.0):
        super().__init__()
        self._path = path
        self._store, self._key = _split(path)
        self._first_bytes = first_bytes
        self._share = share
        self._opening: Future[tuple[bytes, int, int]] | None = None
        self._lock = threading.Lock()
        self._head: bytes | None = None
        self._size = 0
        self._modified_ns = 0
        self._position = 0
        self._block = b""
        self._block_start = 0
        self._step = FIRST_BYTES
        self._ahead: tuple[int, Future[bytes]] | None = None

    def begin(self) -> None:
        """Sends the first request without waiting for its answer."""
        if self._opening is None:
            self._opening = pool_of(os.getpid()).submit(self._open)

    @property
    def modified_ns(self) -> int:
        """When the object was last modified, in nanoseconds since 1970."""
        self._ensure_open()
        return self._modified_ns

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._ensure_open()
        base = (0, self._position, self._size)[whence]
        self._position = max(0, base + offset)
        return self._position

    def readinto(self, buffer: Any) -> int:
        self._ensure_open()
        wanted = min(len(buffer), self._size - self._position)
        if wanted <= 0:
            return 0
        start, block = self._block_with(self._position, wanted)
        first = self._position - start
        count = min(wanted, len(block) - first)
        buffer[:count] = block[first : first + count]
        self._position += count
        return count

    def _block_with(self, position: int, wanted: int) -> tuple[int, bytes]:
        """Returns a range that holds the byte at ``position``, and where it starts."""
        assert self._head is not None
        if position < len(self._head):
            return 0, self._head
        end = self._block_start + len(self._block)
        if self._block_start <= position < end:
            return self._block_start, self._block
        sequential = position in (len(self._head), end)
        self._step = min(2 * self._step, MOST_BYTES) if sequential else FIRST_BYTES
        with Marks.waiting():
            if self._ahead is not None and self._ahead[0] == position:
                self._block = self._ahead[1].result()
            else:
                least = position + max(wanted, FIRST_BYTES)
                most = min(position + self._step, self._expected_end())
                self._block = self._fetch(position, min(max(least, most), self._size))
        self._block_start = position
        self._ahead = None
        end = position + len(self._block)
        if sequential and end < self._expected_end():
            later = min(end + min(2 * self._step, MOST_BYTES), self._expected_end())
            self._ahead = end, pool_of(os.getpid()).submit(self._fetch, end, later)
        return self._block_start, self._block

    def _expected_end(self) -> int:
        return min(self._size, int(self._share * self._size) + FIRST_BYTES)

    def _ensure_open(self) -> None:
        with self._lock:
            if self._head is not None:
                return
            begin = self._open if self._opening is None else self._opening.result
            with Marks.waiting():
                self._head, self._size, self._modified_ns = begin()

    def _open(self) -> tuple[bytes, int, int]:
        import obstore

        with _explained(self._path):
            try:
                answer = obstore.get(
                    self._store, self._key, options={"range": (0, self._first_bytes)}
                )
                head = bytes(answer.bytes())
                meta = answer.meta
            except obstore.exceptions.BaseError:
                # Stores refuse to return a range of an empty object.
                meta = obstore.head(self._store, self._key)
                if meta["size"] > 0:
                    raise
                head = b""
        return head, meta["size"], int(meta["last_modified"].timestamp() * 1e9)

    def _fetch(self, start: int, stop: int) -> bytes:
        import obstore

        with _explained(self._path):
            return bytes(
                obstore.get_range(self._store, self._key, start=start, end=stop)
            )


def write(path: str, content: bytes) -> None:
    """Writes a whole object."""
    _put(path, content)


def create(path: str, content: bytes) -> bool:
    """Writes a whole object unless it exists; returns whether this call wrote it."""
    import obstore
    from obstore.exceptions import AlreadyExistsError

    store, key = _split(path)
    with _explained(path):
        try:
            obstore.put(store, key, content, mode="create")
        except AlreadyExistsError:
            return False
    return True


def upload(local_path: str, path: str) -> None:
    """Uploads a local file; a large one in several parts in parallel."""
    with open(local_path, "rb") as file:
        _put(path, file)


def _put(path: str, content: Any) -> None:
    import obstore

    store, key = _split(path)
    with _explained(path):
        obstore.put(store, key, content)


def size(path: str) -> int:
    """Returns an object's length in bytes, or -1 if it does not exist."""
    import obstore

    store, key = _split(path)
    if not key or key.endswith("/"):
        return -1
    try:
        with _explained(path):
            return int(obstore.head(store, key)["size"])
    except FileNotFoundError:
        scheme, _, rest = path.partition("://")
        _require_bucket(scheme, rest.partition("/")[0])
        return -1


def modified_ns(path: str) -> int:
    """Returns when an object was last modified, in nanoseconds since 1970."""
    import obstore

    store, key = _split(path)
    with _explained(path):
        return int(obstore.head(store, key)["last_modified"].timestamp() * 1e9)


def list_files(folder: str) -> Iterator[str]:
    """Yields the names of all objects below a folder, relative to it, sorted.

    Raises
    ------
    StoreError
        The store does not list in sorted order, as S3's directory buckets do not.
    """
    store, key = _split(folder.rstrip("/") + "/")
    previous = ""
    with _explained(folder):
        for entry in _entries(store, key):
            name = entry["path"][len(key) :]
            if name < previous:
                if entry["size"] == 0 and f"{name}/" >= previous:
                    continue  # a folder marker, without its final "/"
                raise StoreError(
                    folder,
                    f"the store lists {name!r} after {previous!r}, but a folder "
                    "can be read only from a store that lists in sorted order",
                    "Give a .txt list of paths instead of the folder.",
                )
            previous = name
            yield name


def _entries(store: Any, key: str) -> Iterator[Any]:
    """Yields what a store lists; the client does not ask again after a cut answer."""
    import obstore
    from obstore.exceptions import GenericError

    last: str | None = None
    for left in reversed(range(_RETRIES["max_retries"] + 1)):
        try:
            for chunk in obstore.list(store, prefix=key or None, offset=last):
                for entry in chunk:
                    last = entry["path"]
                    yield entry
            return
        except GenericError as error:
            if not left or _CUT_ANSWER not in str(error):
                raise


def delete(paths: Sequence[str]) -> None:
    """Deletes objects; ignores objects that do not exist."""
    import obstore

    by_store: dict[int, tuple[Any, list[str]]] = {}
    for path in paths:
        store, key = _split(path)
        by_store.setdefault(id(store), (store, []))[1].append(key)
    for store, keys in by_store.values():
        try:
            with _explained(paths[0]):
                obstore.delete(store, keys)
        except FileNotFoundError:
            continue
