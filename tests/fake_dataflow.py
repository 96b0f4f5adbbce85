"""The Dataflow service on loopback: takes jobs, and ends them as it is told."""

from __future__ import annotations

import contextlib
import http.server
import json
import os
import re
import subprocess
import sys
import tarfile
import tempfile
import threading
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

PENDING = "JOB_STATE_PENDING"
DONE = "JOB_STATE_DONE"
RUNNING = "JOB_STATE_RUNNING"
FAILED = "JOB_STATE_FAILED"
CANCELLED = "JOB_STATE_CANCELLED"
_WORKER_SECONDS = 120

_JOBS = re.compile(r"/v1b3/projects/([^/]+)/locations/([^/]+)/jobs(?:/([^/]+))?(/\w+)?")


class Counter(NamedTuple):
    """One counter of a job; ``step`` is the transform's key in the pipeline."""

    step: str
    namespace: str
    name: str
    value: int


@dataclass(frozen=True)
class Ending:
    """How a job ends: its state, what it complains about, what it has counted."""

    state: str = DONE
    errors: Sequence[str] = ()
    counters: Sequence[Counter] = ()


@dataclass
class Job:
    """A job as it was posted, and how far it is."""

    id: str
    project: str
    region: str
    posted: dict[str, Any]
    state: str = RUNNING
    ending: Ending = field(default_factory=Ending)

    @property
    def pool(self):
        """Its only worker pool."""
        (pool,) = self.posted["environment"]["workerPools"]
        return dict(pool)

    @property
    def options(self):
        """The options of Beam that its workers are given."""
        return dict(self.posted["environment"]["sdkPipelineOptions"]["options"])

    @property
    def staged(self):
        """The folder of its pipeline and its packages."""
        return str(self.options["pipelineUrl"]).rpartition("/")[0]


class FakeDataflow:
    """Jobs that were created, and every request.

    Parameters
    ----------
    run : callable
        Called with each :class:`Job`, in a thread; returns its ending.
    refuse : int, optional
        The HTTP status that creating a job is answered with.
    """

    def __init__(self, run, refuse=None):
        self.jobs: list[Job] = []
        self.requests: list[str] = []
        self.endpoint = ""
        self._run = run
        self._refuse = refuse
        self._threads: list[threading.Thread] = []

    def answer(self, method, path, body):
        """A request -> HTTP status and JSON."""
        self.requests.append(f"{method} {path}")
        project, region, name, part = _JOBS.fullmatch(path).groups()
        if name is None:
            if method != "POST":
                return 200, {"jobs": [_to_json(job) for job in self.jobs]}
            if self._refuse is not None:
                return _refusal(self._refuse, "this project may create no jobs")
            created = self._create(project, region, json.loads(body))
            # However soon it ends, the service answers before it has begun.
            return 200, {**_to_json(created), "currentState": PENDING}
        job = next(job for job in self.jobs if job.id == name)
        if part == "/messages":
            return 200, _messages(job)
        if part == "/metrics":
            return 200, _metrics(job)
        return 200, _to_json(job)

    def join(self):
        """Waits for what runs."""
        for thread in self._threads:
            thread.join(_WORKER_SECONDS)

    def _create(self, project, region, posted):
        job = Job(f"fake-{len(self.jobs)}", project, region, posted)
        self.jobs.append(job)
        thread = threading.Thread(target=self._end, args=(job,), daemon=True)
        self._threads.append(thread)
        thread.start()
        return job

    def _end(self, job):
        try:
            ending = self._run(job)
        except Exception:
            ending = Ending(FAILED, (traceback.format_exc(),))
        job.ending, job.state = ending, ending.state


def _refusal(status, message):
    return status, {"error": {"code": status, "message": message}}


def _to_json(job):
    # A summary, as the service answers unless it is asked for everything.
    return {
        "id": job.id,
        "name": job.posted.get("name"),
        "projectId": job.project,
        "location": job.region,
        "clientRequestId": job.posted.get("clientRequestId"),
        "currentState": job.state,
    }


def _messages(job):
    errors = job.ending.errors if job.state == FAILED else ()
    told = {"messageImportance": "JOB_MESSAGE_ERROR",
            "time": datetime.now(UTC).isoformat()}  # fmt: skip
    messages = [
        {"id": f"{job.id}-{number}", "messageText": text, **told}
        for number, text in enumerate(errors)
    ]
    return {"jobMessages": messages}


def _metrics(job):
    # Beam looks up every counter twice: as it is, and as it was committed.
    metrics = []
    for counter in job.ending.counters:
        for stage in ({}, {"tentative": "true"}):
            context = {"namespace": counter.namespace, "step": counter.step, **stage}
            name = {"origin": "user", "name": counter.name, "context": context}
            metrics.append({"name": name, "scalar": counter.value})
    return {"metrics": metrics}


@contextlib.contextmanager
def fake_dataflow(run=lambda job: Ending(), refuse=None):
    """Serves until the block is left; ``endpoint`` is what Beam is to be given."""
    from tests import loopback  # which a worker, who runs this file, does not have

    service = FakeDataflow(run, refuse)

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def handle_any(self):
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            path = self.path.partition("?")[0]
            status, content = service.answer(self.command, path, body)
            data = json.dumps(content).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = handle_any  # noqa: N815

        def log_message(self, *_):
            pass

    with loopback.serving(Handler) as port:
        # Beam speaks HTTP to this name alone.
        service.endpoint = f"http://localhost:{port}"
        try:
            yield service
        finally:
            service.join()


def run_staged(pipeline_proto):
    """Runs a pipeline that was staged for Dataflow on this machine, in this process."""
    from apache_beam.metrics import MetricsFilter
    from apache_beam.options.pipeline_options import PipelineOptions
    from apache_beam.portability import python_urns
    from apache_beam.portability.api import beam_runner_api_pb2
    from apache_beam.runners.portability.fn_api_runner import FnApiRunner

    pipeline = beam_runner_api_pb2.Pipeline.FromString(pipeline_proto)
    for environment in pipeline.components.environments.values():
        # An interpreter like this one, in place of a container.
        environment.urn = python_urns.EMBEDDED_PYTHON
        environment.payload = b""
        del environment.dependencies[:]
    try:
        result = FnApiRunner().run_via_runner_api(pipeline, PipelineOptions([]))
        result.wait_until_finish()
    except Exception:
        return Ending(FAILED, (traceback.format_exc(),))
    transforms = pipeline.components.transforms.items()
    keys = {transform.unique_name: key for key, transform in transforms}
    counters = []
    for found in result.metrics().query(MetricsFilter())["counters"]:
        if step := keys.get(found.key.step):
            metric = found.key.metric
            counter = Counter(step, metric.namespace, metric.name, found.committed)
            counters.append(counter)
    return Ending(counters=counters)


def run_here(job):
    """Runs a job as a worker with this very environment would."""
    return run_staged(read_staged(job, "pipeline.pb"))


def run_apart(job):
    """Runs a job in a process that has the package as it was staged, if it was."""
    with tempfile.TemporaryDirectory(prefix="fake-dataflow-") as name:
        folder = Path(name)
        (folder / "pipeline.pb").write_bytes(read_staged(job, "pipeline.pb"))
        packages = {package["name"] for package in job.pool.get("packages", [])}
        # Steps of tests come before other packages that have a module of this name.
        path = [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
        if "workflow.tar.gz" in packages:
            archive = folder / "workflow.tar.gz"
            archive.write_bytes(read_staged(job, archive.name))
            with tarfile.open(archive) as tar:
                # Early releases of Python 3.11 have no filters.
                if hasattr(tarfile, "data_filter"):
                    tar.extraction_filter = tarfile.data_filter
                tar.extractall(folder / "package")
            path = [str(found) for found in (folder / "package").iterdir()]
        done = subprocess.run(
            [sys.executable, __file__, str(folder / "pipeline.pb")],
            capture_output=True,
            text=True,
            check=False,
            timeout=_WORKER_SECONDS,
            cwd=folder,
            env={**os.environ, "PYTHONPATH": ":".join(path)},
        )
    if done.returncode != 0:
        return Ending(FAILED, (done.stderr,))
    values = json.loads(done.stdout.splitlines()[-1])
    counters = [Counter(*counter) for counter in values.pop("counters")]
    return Ending(**values, counters=counters)


def read_staged(job, name):
    """A file that was staged for a job's workers, wherever that was."""
    from apache_beam.io.filesystem import CompressionTypes
    from apache_beam.io.filesystems import FileSystems

    with FileSystems.open(
        f"{job.staged}/{name}", compression_type=CompressionTypes.UNCOMPRESSED
    ) as file:
        return bytes(file.read())


if __name__ == "__main__":
    print(json.dumps(asdict(run_staged(Path(sys.argv[1]).read_bytes()))))
