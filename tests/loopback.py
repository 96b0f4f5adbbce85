"""An object store on loopback, and a proxy before it that counts, delays and fails."""

import contextlib
import http.client
import http.server
import os
import socket
import subprocess
import sys
import threading
import time
import urllib.parse
from dataclasses import dataclass, field
from pathlib import Path

from beam_pipeline.storage import files, object_store

# Both stores speak the same protocol (Google calls it its XML API), so that one server
# does for both. It takes the credential's scope for the name of the service.
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "GOOGLE_BEARER_TOKEN": "Credential=test/20260101/us-east-1/s3/aws4_request",
}


@contextlib.contextmanager
def refusing_port():
    """A port that refuses connections, and that nobody else gets meanwhile."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


# The server chooses its port itself: a port that is chosen here may be taken by then.
# It ends with its input, so that it does not outlive the tests.
_SERVER = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def store_server():
    """A server of moto's in a process of its own; yields its port."""
    # Proxy settings and keys of whoever runs the tests are not for this server.
    with subprocess.Popen(
        [sys.executable, "-c", _SERVER],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def put(port, path, **headers):
    """One unsigned request, as whoever owns the server may send it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("PUT", path, headers=headers)
    assert connection.getresponse().status == 200
    connection.close()


class Server(http.server.ThreadingHTTPServer):
    """Answers each request in a thread."""

    daemon_threads = True
    request_queue_size = 128

    def handle_error(self, request, client_address):
        pass  # clients that go away are what the tests are about


@contextlib.contextmanager
def serving(handler):
    """A server on loopback until the block is left; yields its port."""
    with Server(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_port
        finally:
            server.shutdown()


@dataclass
class Proxy:
    """What went through, and what shall go wrong."""

    port: int = 0
    requests: list[tuple[str, str]] = field(default_factory=list)
    bytes_sent: int = 0
    delay_s: float = 0.0
    refuse: int = 0  # so many requests are answered by 503
    deny: str = ""  # paths that begin so are answered by 403
    cut: int = 0  # so many answers end in the middle
    at_once: int = 0  # the most requests that were under way together

    def count(self, method):
        return sum(1 for request in self.requests if request[0] == method)

    def reset(self):
        self.requests.clear()
        self.bytes_sent = self.at_once = 0


@contextlib.contextmanager
def proxy_to(port):
    """A proxy on loopback before the server at ``port``."""
    state = Proxy()
    lock = threading.Lock()
    creating = threading.Lock()
    running = 0

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def forward(self):
            nonlocal running
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = urllib.parse.unquote(self.path)
            with lock:
                running += 1
                state.at_once = max(state.at_once, running)
                state.requests.append((self.command, path))
                refuse, state.refuse = state.refuse > 0, max(0, state.refuse - 1)
            try:
                time.sleep(state.delay_s)
                denied = state.deny and path.startswith(state.deny)
                if refuse or denied:
                    self.refuse(403 if denied else 503)
                    return
                new = self.headers.get("If-None-Match") == "*"
                if new or self.headers.get("x-goog-if-generation-match") == "0":
                    with creating:
                        self.create(body)
                else:
                    self.answer(body)
            finally:
                with lock:
                    running -= 1

        def create(self, body):
            """Writes an object unless it exists, as both stores promise."""
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            connection.request("HEAD", self.path)
            found = connection.getresponse()
            found.read()
            connection.close()
            if found.status == 404:
                self.answer(body)
                return
            self.refuse(412)

        def refuse(self, status):
            self.send_response(status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def answer(self, body):
            upstream = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            try:
                headers = {k: v for k, v in self.headers.items() if k != "Connection"}
                upstream.request(self.command, self.path, body, headers)
                answer = upstream.getresponse()
                content = answer.read()
            finally:
                upstream.close()
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "server",
                                        "date", "content-length"):  # fmt: skip
                    self.send_header(name, value)
            length = answer.getheader("Content-Length") or str(len(content))
            self.send_header("Content-Length", length)
            self.end_headers()
            with lock:
                cut = state.cut > 0 and len(content) > 1000
                state.cut -= cut
                sent = content[: len(content) // 2] if cut else content
                state.bytes_sent += len(sent)
            self.wfile.write(sent)
            if cut:
                self.close_connection = True
                self.wfile.flush()
                self.connection.shutdown(socket.SHUT_RDWR)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = forward  # noqa: N815

        def log_message(self, *_):
            pass

    with serving(Handler) as state.port:
        yield state


def upload_folder(local, remote):
    """Writes the files of a local folder below a folder of a store."""
    for name in files.list_files(str(local)):
        files.write_bytes(files.join(remote, name), Path(local, name).read_bytes())


def contents_in(folder):
    """The files of a data set in a store, without the claim that was given up."""
    names = list(files.list_files(folder))
    names = [name for name in names if not name.startswith("_work/claims/")]
    return {name: files.read_bytes(f"{folder}/{name}") for name in names}


def point_at(port, monkeypatch):
    """Sends both schemes to a port of this machine, whatever the environment says."""
    for name in list(os.environ):
        if name.startswith(("AWS_", "GOOGLE_", "STORAGE_EMULATOR")):
            monkeypatch.delenv(name)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    for name in ("AWS_ENDPOINT_URL", "GOOGLE_BASE_URL"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    object_store._client.cache_clear()
