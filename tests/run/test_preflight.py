"""What an engine of Beam would not tell, or not before it is too late."""

import socket
from functools import partial
from importlib.util import find_spec

import pytest
from apache_beam.runners.portability.local_job_service import LocalJobServicer

from beam_pipeline import Metadata
from beam_pipeline.errors import EngineError
from beam_pipeline.run.engine import check_addresses
from tests.loopback import refusing_port
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


def test_a_job_server_that_is_not_there_is_told_at_once(tmp_path, record_on):
    with refusing_port() as port:
        endpoint = f"localhost:{port}"
        flags = ("--runner=PortableRunner", f"--job_endpoint={endpoint}")
        (line,) = record_on(*flags, status=1).err.splitlines()
    assert_names(line, f"--job_endpoint={endpoint}", "launch/README.md")
    assert not (tmp_path / "out").exists()


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
    with raises(EngineError, naming=f"--{name}={url}"):
        check_addresses(runner, {name: url})


@pytest.mark.parametrize(
    "master",
    ["[local]", "[auto]", "local", "local[4]", "auto", "yarn", "host", None,
     "k8s://https://host:1", "spark://a:1,b:1"],
)  # fmt: skip
def test_what_names_no_address_is_left_to_the_runner(master):
    check_addresses("FlinkRunner", {"flink_master": master})
    check_addresses("SparkRunner", {"spark_master_url": master})
