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

import errno
import functools
import io
import os
import re
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from datetime import timedelta
from itertools import chain
from typing import Any, BinaryIO, NamedTuple

from beam_pipeline.errors import InputError, StoreError
from beam_pipeline.process import Marks

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

# The process that started the client, whose threads do not survive a fork.
_started_in: list[int] = []
_SPAWN = (
    "Start processes with 'spawn' or 'forkserver' instead of 'fork'; a DataLoader of "
    "PyTorch with multiprocessing_context='spawn'."
)

_METADATA_SERVER = "169.254.169.254"
_METADATA_SECONDS = 1.0


class _Service(NamedTuple):
    """What is particular to the stores of a scheme.

    Attributes
    ----------
    owner : str
        Of the buckets, unless one of the variables ``endpoints`` names another server.
    endpoints : tuple
    variables : tuple
        How the names of variables begin with which the client finds credentials by
        itself.
    file : str
        Where the command line of the owner keeps credentials.
    role : tuple
        What the metadata server of a machine with credentials answers: method, path,
        and a header with its value.
    """

    owner: str
    endpoints: tuple[str, ...]
    variables: tuple[str, ...]
    file: str
    role: tuple[str, str, str, str]


_SERVICES = {
    "s3": _Service(
        "Amazon",
        ("AWS_ENDPOINT_URL",),
        (
            "AWS_ACCESS_KEY_ID", "AWS_CONTAINER_CREDENTIALS", "AWS_SKIP_SIGNATURE",
            "AWS_WEB_IDENTITY",
        ),
        "~/.aws/credentials",
        ("PUT", "/latest/api/token", "X-aws-ec2-metadata-token-ttl-seconds", "60"),
    ),
    "gs": _Service(
        "Google",
        ("GOOGLE_BASE_URL", "STORAGE_EMULATOR_HOST"),
        (
            "GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_BEARER_TOKEN",
            "GOOGLE_SERVICE_ACCOUNT", "GOOGLE_SKIP_SIGNATURE",
        ),
        "~/.config/gcloud/application_default_credentials.json",
        (
            "GET", "/computeMetadata/v1/instance/service-accounts/default/email",
            "Metadata-Flavor", "Google",
        ),
    ),
}  # fmt: skip
_LISTING_REFUSED = re.compile(r"list request.* status code: 40[13]")
_MESSAGE = re.compile(r'message: "([^"]+)"')


def is_in_store(path: str) -> bool:
    """Whether a path has the scheme of a store that this module serves."""
    return path.partition("://")[0] in _SERVICES


def _parts(path: str) -> tuple[str, str, str]:
    """Returns the scheme, the bucket and the key of an object."""
    scheme, _, rest = path.partition("://")
    bucket, _, key = rest.partition("/")
    return scheme, bucket, key


def _split(path: str) -> tuple[Any, str]:
    """Returns the client of a path's bucket, and the object's key."""
    if _started_in and _started_in[0] != os.getpid():
        raise StoreError(path, "the store's client was used before a fork", _SPAWN)
    scheme, bucket, key = _parts(path)
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
    if scheme == "gs":
        emulator = os.environ.get("STORAGE_EMULATOR_HOST")
        if emulator and not os.environ.get("GOOGLE_BASE_URL"):
            address = emulator if "://" in emulator else f"http://{emulator}"
            options["base_url"] = address
        return GCSStore(bucket, **options, **_access(scheme))
    if not os.environ.get("AWS_REGION") and not os.environ.get("AWS_DEFAULT_REGION"):
        options["region"] = "us-east-1"
    return S3Store(bucket, **{**options, **_access(scheme)})


def _access(scheme: str) -> dict[str, Any]:
    """Returns the credentials that the client does not find by itself.

    Requests are unsigned if there are none.
    """
    service, environment = _SERVICES[scheme], os.environ
    if any(
        name.startswith(service.variables) and environment[name] for name in environment
    ):
        return {}
    if scheme == "gs" and environment.get("STORAGE_EMULATOR_HOST"):
        return {"bearer_token": "emulator"}
    path = service.file
    if scheme == "s3":
        path = environment.get("AWS_SHARED_CREDENTIALS_FILE") or path
    has_file = os.path.isfile(os.path.expanduser(path))
    if scheme == "s3" and (has_file or environment.get("AWS_PROFILE")):
        return _boto3_access()
    if has_file or _machine_has_role(*service.role):
        return {}
    return {"skip_signature": True}


def _boto3_access() -> dict[str, Any]:
    """Reads the AWS configuration and credentials files with boto3."""
    try:
        import boto3
    except ImportError as error:
        raise InputError(
            "The credentials are in AWS's files. boto3 is needed to read them, but it "
            "is not installed. Run pip install boto3, or set AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY."
        ) from error
    from obstore.auth.boto3 import Boto3CredentialProvider

    session = boto3.Session()
    access: dict[str, Any] = {"credential_provider": Boto3CredentialProvider(session)}
    return {**access, "region": session.region_name} if session.region_name else access


@functools.cache
def _machine_has_role(method: str, path: str, header: str, value: str) -> bool:
    """Whether the metadata server of a cloud machine offers credentials.

    Sends one request per process and role, with a timeout of one second.
    """
    import http.client  # here: local files do without it

    host = os.environ.get("GCE_METADATA_HOST", _METADATA_SERVER)
    connection = http.client.HTTPConnection(host, timeout=_METADATA_SECONDS)
    try:
        connection.request(method, path, headers={header: value})
        return connection.getresponse().status == 200
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


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
        raise _explain(path, error, unsigned) from error


def _explain(path: str, error: Exception, unsigned: bool) -> Exception:
    """Returns the error to raise instead of the client's.

    ``unsigned``: the client has found no credentials.
    """
    from obstore import exceptions

    text = str(error)
    first = text.partition("\n")[0]
    scheme, bucket, _ = _parts(path)
    service = _SERVICES[scheme]
    if "<Code>NoSuchBucket</Code>" in text:
        return InputError(
            f"{path}: there is no bucket {bucket!r}. Check its name. If the store is "
            f"not {service.owner}'s, set {' or '.join(service.endpoints)} to its "
            "address."
        )
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(errno.ENOENT, "there is no such object", path)
    refusals = exceptions.PermissionDeniedError, exceptions.UnauthenticatedError
    if isinstance(error, refusals) or _LISTING_REFUSED.search(first):
        found = "none were found" if unsigned else "those found are not sufficient"
        return StoreError(
            path,
            f"the store refuses access to the bucket {bucket!r}, or to this part of it",
            f"Credentials are looked for in {', '.join(service.variables)}, "
            f"{service.file} and the role of the machine: {found}. They must allow "
            "listing, reading and, for an output, writing (without the right to "
            "list, the store also refuses access to missing objects).",
        )
    message = _MESSAGE.search(text)
    return StoreError(path, first + (f" ({message[1]})" if message else ""))


# Threads that wait for answers.
_pool = ThreadPoolExecutor(REQUESTS_AT_ONCE, "store")


class Answer(NamedTuple):
    """Bytes of an object, its whole size, what identifies its content, and its time."""

    content: bytes
    size: int
    e_tag: str
    modified_ns: int


def _begin(path: str, start: int, stop: int) -> Future[Answer]:
    """Sends a request for a range of bytes without waiting for its answer."""
    _split(path)  # after a fork, the pool has no threads
    return _pool.submit(_get, path, start, stop)


def _awaited(request: Future[Answer]) -> Answer:
    """Returns the answer to a request. To wait for it is no work on a clip."""
    with Marks.waiting():
        return request.result()


def _get(path: str, start: int, stop: int) -> Answer:
    import obstore

    store, key = _split(path)
    with _explained(path):
        try:
            answer = obstore.get(store, key, options={"range": (start, stop)})
            content, meta = bytes(answer.bytes()), answer.meta
        except obstore.exceptions.BaseError:
            # Stores refuse to return a range of an empty object.
            content, meta = b"", obstore.head(store, key)
            if meta["size"] > 0:
                raise
    e_tag = meta["e_tag"] or str(meta["last_modified"])
    return Answer(content, meta["size"], e_tag, _time_ns(meta))


def _time_ns(meta: Any) -> int:
    return int(meta["last_modified"].timestamp() * 1e9)


def read_ranges(path: str, ranges: Sequence[tuple[int, int]]) -> Iterator[Answer]:
    """Yields the bytes of an object in some ranges (start, stop).

    Up to 32 requests are sent at once. Failed requests are repeated with growing
    pauses, for up to three minutes.

    Raises
    ------
    FileNotFoundError
        If there is no such object.
    InputError, StoreError
        If the store cannot be used; also in a process that was forked after the client
        had started.
    """
    under_way: deque[Future[Answer]] = deque()
    try:
        for start, stop in ranges:
            under_way.append(_begin(path, start, stop))
            if len(under_way) >= REQUESTS_AT_ONCE:
                yield under_way.popleft().result()
        while under_way:
            yield under_way.popleft().result()
    finally:
        for future in under_way:
            future.cancel()


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
        self._share = share
        self._first = _begin(path, 0, first_bytes)
        self._position = 0
        self._block = b""
        self._block_start = 0
        self._step = FIRST_BYTES
        self._ahead: tuple[int, Future[Answer]] | None = None

    @functools.cached_property
    def _head(self) -> Answer:
        return _awaited(self._first)

    @property
    def modified_ns(self) -> int:
        """When the object was last modified, in nanoseconds since 1970."""
        return self._head.modified_ns

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = (0, self._position, self._head.size)[whence]
        self._position = max(0, base + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Returns so many bytes, or those up to the end, as files of a disk do."""
        if size < 0:
            return self.readall()
        parts = []
        while size > 0 and (part := super().read(size)):
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def readinto(self, buffer: Any) -> int:
        wanted = min(len(buffer), self._head.size - self._position)
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
        head = self._head.content
        if position < len(head):
            return 0, head
        end = self._block_start + len(self._block)
        if self._block_start <= position < end:
            return self._block_start, self._block
        sequential = position in (len(head), end)
        self._step = min(2 * self._step, MOST_BYTES) if sequential else FIRST_BYTES
        if self._ahead is not None and self._ahead[0] == position:
            request = self._ahead[1]
        else:
            least = position + max(wanted, FIRST_BYTES)
            most = min(position + self._step, self._expected_end())
            stop = min(max(least, most), self._head.size)
            request = _begin(self._path, position, stop)
        self._block_start, self._block = position, _awaited(request).content
        self._ahead = None
        end = position + len(self._block)
        if sequential and end < self._expected_end():
            later = min(end + min(2 * self._step, MOST_BYTES), self._expected_end())
            self._ahead = end, _begin(self._path, end, later)
        return self._block_start, self._block

    def _expected_end(self) -> int:
        size = self._head.size
        return min(size, int(self._share * size) + FIRST_BYTES)


def write(path: str, content: bytes | BinaryIO) -> None:
    """Writes a whole object; a large one in several parts in parallel."""
    import obstore

    store, key = _split(path)
    with _explained(path):
        obstore.put(store, key, content)


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
    """Uploads a local file."""
    with open(local_path, "rb") as file:
        write(path, file)


def _meta(path: str) -> Any:
    import obstore

    store, key = _split(path)
    with _explained(path):
        return obstore.head(store, key)


def size(path: str) -> int:
    """Returns an object's length in bytes, or -1 if it does not exist."""
    _, key = _split(path)
    if not key or key.endswith("/"):
        return -1
    try:
        return int(_meta(path)["size"])
    except FileNotFoundError:
        return -1


def modified_ns(path: str) -> int:
    """Returns when an object was last modified, in nanoseconds since 1970."""
    return _time_ns(_meta(path))


def list_files(folder: str) -> Iterator[str]:
    """Yields the names of all objects below a folder, relative to it, sorted.

    Raises
    ------
    StoreError
        The store does not list in sorted order, as S3's directory buckets do not.
    """
    import obstore

    store, key = _split(folder.rstrip("/") + "/")
    previous = ""
    with _explained(folder):
        entries = obstore.list(store, prefix=key or None)
        for entry in chain.from_iterable(entries):
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


def delete(paths: Sequence[str]) -> None:
    """Deletes objects of one bucket; ignores objects that do not exist."""
    import obstore

    store, _ = _split(paths[0])
    with suppress(FileNotFoundError), _explained(paths[0]):
        obstore.delete(store, [_parts(path)[2] for path in paths])
