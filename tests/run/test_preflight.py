"""What an engine of Beam would not tell, or not before it is too late."""

import json
import logging
import socket
from functools import partial
from importlib.util import find_spec

import pytest
from apache_beam.runners.portability.local_job_service import LocalJobServicer

from beam_pipeline import Metadata
from beam_pipeline.errors import EngineError
from beam_pipeline.run import engine
from beam_pipeline.run.engine import check_addresses, check_credentials, check_engine
from tests.raising import assert_names, raises
from tests.sounds import write_corpus

needs_dataflow = pytest.mark.skipif(
    not find_spec("google.auth"), reason="'.[gcp]' brings Dataflow's client"
)


@pytest.fixture
def job_endpoint(tmp_path):
    """The address of a job server."""
    server = LocalJobServicer(str(tmp_path / "staging"))
    port = server.start_grpc_server()
    yield f"localhost:{port}"
    server.stop()


@pytest.fixture
def record_on(tmp_path, cli):
    """Records a few sounds with a runner."""
    write_corpus(tmp_path / "in", clips=1)
    words = ["record", "--input", tmp_path / "in", "--output", tmp_path / "out"]
    return partial(cli, *words, "--win-len", 500, "--")


def test_a_job_goes_through_a_job_server(tmp_path, job_endpoint, record_on):
    args = ["--runner=PortableRunner", f"--job_endpoint={job_endpoint}"]
    record_on(*args, "--environment_type=LOOPBACK")
    assert Metadata.load(str(tmp_path / "out")).clips == 3


@pytest.mark.parametrize(
    ("beam_args", "facts"),
    [
        (["--runner=DirectRunner", "--no_such=1"], ["--no_such"]),
        (["--runner=DirectRunner", "--no_such", "1"], ["--no_such"]),
        (["--runner=DirectRunner", "--job_nam=x"], ["--job_name"]),
        (["--runner", "DirectRunner", "stray"], ["stray"]),
        (["--runner=DirectRunner", "--job_port=abc"], ["abc"]),
        (["--runner=DirectRunner", "--flink_version=1"], []),
        (["--runner=FlinkRuner"], ["FlinkRunner"]),
        (["--runner=BundleBasedDirectRunner"], ["DirectRunner", "--runner"]),
        (["--runner=no.such.Runner"], ["no"]),
        (["--runner=tests.sounds.NoRunner"], []),
        (["--runner=PortableRunner"], ["--job_endpoint", "HOST", "PORT"]),
        (["--runner=DirectRunner", "--environment_type=PROCESS"], ["process_command"]),
        pytest.param(
            ["--runner=DataflowRunner"],
            ["project", "region", "temp_location"],
            marks=needs_dataflow,
        ),
    ],
)
def test_options_that_cannot_be_are_refused(tmp_path, record_on, beam_args, facts):
    (line,) = record_on(*beam_args, status=2).err.splitlines()
    assert_names(line, *facts)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("runner", "name", "prefix"),
    [
        ("DataflowRunner", "dataflow_endpoint", "http://"),
        ("PortableRunner", "job_endpoint", ""),
        ("FlinkRunner", "flink_master", ""),
        ("FlinkRunner", "flink_master", "http://"),
        ("SparkRunner", "spark_master_url", "spark://"),
        ("SparkRunner", "spark_rest_url", "http://"),
    ],
)
def test_an_engine_that_is_not_there_is_told_at_once(runner, name, prefix):
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"{prefix}127.0.0.1:{server.getsockname()[1]}"
        check_addresses(runner, {name: url})
    with raises(EngineError, naming=[f"--{name}={url}", "launch/README.md"]):
        check_addresses(runner, {name: url})


@pytest.mark.parametrize(
    "master",
    ["[local]", "[auto]", "local", "local[4]", "auto", "yarn", "host", None,
     "k8s://https://host:1", "spark://a:1,b:1"],
)  # fmt: skip
def test_what_names_no_address_is_left_to_the_runner(master):
    check_addresses("FlinkRunner", {"flink_master": master})
    check_addresses("SparkRunner", {"spark_master_url": master})


def test_what_nobody_can_judge_is_left_to_the_job_server(caplog):
    with caplog.at_level(logging.WARNING, "beam_pipeline"):
        check_engine(["--runner=SparkRunner", "--parallism", "4"])
    assert_names("".join(caplog.messages), "--parallelism")


@needs_dataflow
def test_credentials_are_tried_before_a_job_is_sent(tmp_path, monkeypatch):
    rsa = pytest.importorskip("cryptography.hazmat.primitives.asymmetric.rsa")
    serialization = pytest.importorskip("cryptography.hazmat.primitives.serialization")
    key = rsa.generate_private_key(65537, 2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    account = {"type": "service_account", "client_email": "a@b"}
    account |= {"private_key": key.decode()}
    path = tmp_path / "key.json"
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(path))
    monkeypatch.setattr(engine, "TOKEN_S", 0.5)
    remedy = "GOOGLE_APPLICATION_CREDENTIALS"
    with socket.create_server(("127.0.0.1", 0)) as silent:
        uri = f"http://127.0.0.1:{silent.getsockname()[1]}"
        path.write_text(json.dumps(account | {"token_uri": uri}))
        with raises(EngineError, naming=["0.5 s", remedy]):
            check_credentials([])
    path.write_text("{}")
    with raises(EngineError, naming=[str(path), remedy]):
        check_credentials([])
