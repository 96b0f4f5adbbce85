"""Dataflow without an account: Beam's own runner, against a service on loopback.

The service runs the very pipeline that was staged for it, so that a job ends as it
would there: with a data set, with an error, or with neither.
"""

import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from beam_pipeline import Metadata, record, write_template
from beam_pipeline.cli.main import main
from beam_pipeline.dataset.job import Job as Recording
from beam_pipeline.errors import IncompleteRun, OptionError, TooManyRejected
from beam_pipeline.inputs.sources import FOLDER, Input
from beam_pipeline.pipeline import graph
from beam_pipeline.pipeline.graph import build_pipeline
from beam_pipeline.planning.clips import Exits
from beam_pipeline.process import Mark
from beam_pipeline.recipe.recipe import Recipe, RunOptions
from tests.data_sets import contents, rejects_in
from tests.fake_dataflow import (
    CANCELLED,
    FAILED,
    Ending,
    Job,
    fake_dataflow,
    run_apart,
    run_here,
)
from tests.launch.test_launch import PLACES, run_script, shown
from tests.raising import assert_names, raises
from tests.sounds import write_corpus
from tests.systems.bad_clips import LOUD, write_clips

pytest.importorskip(
    "google.cloud.dataflow", reason="pip install -e '.[gcp]' brings Dataflow's client"
)

REPOSITORY = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch):
    """Beam looks every five seconds whether a job has ended; these end at once."""
    from apache_beam.runners.dataflow import dataflow_runner

    short = SimpleNamespace(
        time=time.time, sleep=lambda seconds: time.sleep(min(seconds, 0.02))
    )
    monkeypatch.setattr(dataflow_runner, "time", short)


def beam_args(service, folder, *more):
    """Options that send a job to the service, staged in a local folder."""
    for name in ("tmp", "staging"):
        (folder / name).mkdir(exist_ok=True)
    return [
        "--runner=DataflowRunner",
        f"--dataflow_endpoint={service.endpoint}",
        "--no_auth",
        "--project=my-project",
        "--region=europe-west4",
        "--job_name=sounds",
        f"--temp_location={folder}/tmp",
        f"--staging_location={folder}/staging",
        *more,
    ]


def send(tmp_path, service, *more, output="out", **kinds):
    """Records the folder ``in`` by a job that the service runs."""
    args = beam_args(service, tmp_path, *more)
    places = str(tmp_path / "in"), str(tmp_path / output)
    return record(*places, **{"win_len": 500, **kinds}, beam_args=args)


@pytest.fixture
def sounds(tmp_path):
    """A folder with one clip, in ``in``."""
    write_corpus(tmp_path / "in", classes=("cat",), clips=1)
    return tmp_path / "in"


def test_a_job_ends_as_it_would_on_this_machine(tmp_path):
    write_corpus(tmp_path / "in")
    options = {"win_len": 500, "elements_per_file": 7}
    here = record(str(tmp_path / "in"), str(tmp_path / "here"), **options)
    counted = {}
    with fake_dataflow(run_here) as service:
        there = send(
            tmp_path, service, output="there", counted=counted.update, **options
        )
    assert there == here
    assert contents(tmp_path / "there") == contents(tmp_path / "here")
    split = there.splits["records"]
    found = counted["windows"], counted["clips"], counted["shards"]
    assert found == (split.examples, split.clips, len(split.shards)) == (60, 12, 9)
    (job,) = service.jobs
    # Whoever looks at the job there finds them under this name.
    spaces = {c.namespace for c in job.ending.counters if c.name in counted}
    assert spaces == {"audio_tfrecords"}
    assert service.requests[0] == (
        "POST /v1b3/projects/my-project/locations/europe-west4/jobs"
    )
    assert service.requests[-1].endswith(f"/jobs/{job.id}/metrics")


def run_main(tmp_path, service, *more, flags="--win-len 500"):
    """The command line, on the corpus in ``in``."""
    return main(
        [
            *("record", "--input", f"{tmp_path}/in", "--output", f"{tmp_path}/out"),
            *flags.split(),
            "--",
            *beam_args(service, tmp_path, *more),
        ]
    )


@pytest.mark.usefixtures("sounds")
@pytest.mark.parametrize(
    ("ending", "facts"),
    [
        (Ending(FAILED, ["Workflow failed. Causes: no quota"]), "no quota"),
        (Ending(FAILED, ["Traceback:\n  line 1\nMemoryError: here"]), "MemoryError"),
        (Ending(CANCELLED), "CANCELLED"),
        (Ending("JOB_STATE_DRAINED"), "DRAINED"),
        (Ending(), "metadata.json"),
        (None, "this project may create no jobs"),
    ],
)
def test_a_job_that_ends_badly_is_an_error_of_ours(tmp_path, capsys, ending, facts):
    refuse = {"refuse": 403} if ending is None else {}
    with fake_dataflow(lambda job: ending, **refuse) as service:
        with raises(IncompleteRun, naming=facts) as raised:
            send(tmp_path, service)
        assert run_main(tmp_path, service) == 1
    assert (service.jobs == []) == (ending is None)
    # One paragraph: of a worker's traceback, what it ends with.
    err = capsys.readouterr().err
    assert_names(err, facts)
    for told in (str(raised.value), err):
        assert "line 1" not in told
        assert "dataflow_runner.py" not in told
    assert "\n" not in str(raised.value)


def test_an_error_of_a_worker_arrives_as_itself(tmp_path, capsys):
    write_corpus(tmp_path / "in", classes=("cat",), clips=2)
    (tmp_path / "in" / "cat" / "bad.wav").write_text("no sound")
    with fake_dataflow(run_here) as service:
        with raises(TooManyRejected, naming="cat/bad.wav"):
            send(tmp_path, service)
        assert run_main(tmp_path, service) == 3
        assert_names(capsys.readouterr().err, "--max-rejected", "1")
        flags = "--win-len 500 --max-rejected 1"
        assert run_main(tmp_path, service, flags=flags) == 0
    assert [job.state for job in service.jobs] == [FAILED, FAILED, "JOB_STATE_DONE"]


@pytest.mark.parametrize(
    ("step", "options", "tries", "error", "facts"),
    [
        ("crash_on_loud", {}, 1, "ClipCrash", ["SIGSEGV"]),
        ("dawdle_on_loud", {"time_limit": 1.5}, 3, "ClipTimeout", ["1.5 s"]),
    ],
)
def test_clips_that_harm_a_worker_elsewhere_are_rejected_from_all_shards(
    tmp_path, step, options, tries, error, facts
):
    def run_several_times(job):
        for _ in range(tries):
            ending = run_apart(job)
            if ending.state != FAILED:
                break
        return ending

    write_clips(tmp_path / "in", [0.0] * 4)
    options |= {"win_len": 2000, "elements_per_file": 3, "max_rejected": 1}
    options["features"] = {"x": f"tests.sounds.{step}"}
    with fake_dataflow(run_several_times) as service:
        metadata = send(tmp_path, service, **options)
    # The last job finds shards with the clip that were finished before.
    states = [job.state for job in service.jobs]
    assert states == [FAILED] * (2 if tries == 1 else 1) + ["JOB_STATE_DONE"]
    lines = rejects_in(tmp_path / "out")
    for line in lines:
        assert (line["path"], line["stage"]) == (LOUD, "transform")
        assert line["error"] == error
        assert_names(line["reason"], "feature x", "twice", *facts)
    assert (len(lines), metadata.splits["records"].examples) == (3, 24)


def test_a_template_knows_the_clips_that_ended_workers(tmp_path, monkeypatch):
    jobs = []
    monkeypatch.setattr(graph, "build_pipeline", lambda _, job: jobs.append(job))
    write_corpus(tmp_path / "in", classes=("cat",), clips=2)
    template = f"--template_location={tmp_path / 'template.json'}"
    beam_args = ["--runner=DirectRunner", template]
    for _ in range(2):
        write_template(
            tmp_path / "in", tmp_path / "out", win_len=500, beam_args=beam_args
        )
        job = jobs[-1]
        exits = Exits(job.inputs, job.work_folder, job.claim, job.limit_s)
        for _ in range(2):
            exits.note(Mark(0, 0, "cat/cat_0.wav", "decode", "", 1), "SIGSEGV")
    assert [job.known_poison for job in jobs] == [0, 1]


@pytest.mark.usefixtures("sounds")
def test_a_template_describes_the_job_and_starts_nothing(tmp_path, capsys):
    template = tmp_path / "template.json"
    with fake_dataflow() as service:
        status = run_main(
            tmp_path,
            service,
            f"--template_location={template}",
            "--machine_type=n2-standard-4",
        )
        with raises(OptionError, "--template_location"):
            more = "--template_location", str(template)
            send(tmp_path, service, *more, output="other")
    with raises(OptionError, "beam_args", naming="--template_location"):
        runner = ["--runner=DirectRunner"]
        write_template(tmp_path, tmp_path / "other", win_len=500, beam_args=runner)
    assert status == 0
    assert str(template) in capsys.readouterr().out
    assert service.requests == []
    assert not (tmp_path / "other").exists()
    posted = json.loads(template.read_text())
    job = Job("described", "my-project", "europe-west4", posted)
    assert job.pool["machineType"] == "n2-standard-4"
    # A service that starts it later needs nothing but what was staged.
    ending = run_here(job)
    assert ending.errors == ()
    assert Metadata.load(str(tmp_path / "out")).clips == 1


@pytest.mark.usefixtures("sounds")
def test_credentials_do_not_go_into_the_job(tmp_path, monkeypatch):
    secrets = ["of-the-environment", "of-the-file"]
    key_file = tmp_path / "key.json"
    key_file.write_text(json.dumps({"private_key": secrets[1]}))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", secrets[0])
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key_file))
    with fake_dataflow(run_here) as service:
        send(tmp_path, service, "--save_main_session")
        with raises(OptionError, "options of Beam", "--s3_secret_access_key") as raised:
            secret = f"--s3_secret_access_key={secrets[0]}"
            send(tmp_path, service, secret, output="other")
        with raises(OptionError, "options of Beam", "--environment_config") as of_json:
            variables = json.dumps({"env": {"AWS_SECRET_ACCESS_KEY": secrets[0]}})
            secret = f"--environment_config={variables}"
            send(tmp_path, service, secret, output="other")
        named = "--job_name", "tokenizer"  # is no secret
        assert RunOptions(beam_args=["--runner=x", *named]).beam_args[1:] == [*named]
    assert secrets[0] not in str(raised.value) + str(of_json.value)
    (job,) = service.jobs
    found = [json.dumps(job.posted).encode()]
    for folder in ("staging", "tmp", "out"):
        found += [p.read_bytes() for p in (tmp_path / folder).rglob("*") if p.is_file()]
    assert len(found) > 5
    for secret in (*secrets, "key.json"):
        assert not [part for part in found if secret.encode() in part]


def test_the_script_records_on_dataflow_and_takes_the_package_along(tmp_path):
    """From a copy of the repository; the job runs as it was staged."""
    source = tmp_path / "source"
    source.mkdir()
    # The package is built where its setup.py is, which leaves traces.
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(REPOSITORY / name, source)
    for name in ("beam_pipeline", "launch"):
        shutil.copytree(REPOSITORY / name, source / name)
    write_corpus(tmp_path / "in")
    environment = {**os.environ, "PYTHON": sys.executable, "PYTHONPATH": str(source)}
    environment.pop("IMAGE", None)
    with fake_dataflow(run_apart) as service:
        places = beam_args(service, tmp_path)
        done = subprocess.run(
            [
                *("bash", str(source / "launch" / "dataflow" / "submit.sh")),
                *("--project", "my-project", "--region=europe-west4"),
                *("--bucket", "gs://my-bucket", "--max-workers=9"),
                *("--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")),
                *("--win-len", "500", "--"),
                *(text for text in places if "=my-" not in text),
            ],
            capture_output=True, text=True, timeout=150, cwd=tmp_path, env=environment,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "complete" in done.stdout
    assert_names(done.stderr, "60")
    assert Metadata.load(str(tmp_path / "out")).splits["records"].examples == 60
    assert not (tmp_path / "out" / "_work").exists()
    (job,) = service.jobs
    assert job.pool["machineType"] == "n2-standard-4"
    assert job.pool["autoscalingSettings"]["maxNumWorkers"] == 9
    assert job.options["save_main_session"] is False
    names = {package["name"] for package in job.pool["packages"]}
    # No list of what is installed here, and no main session.
    assert names == {"workflow.tar.gz"}
    with tarfile.open(tmp_path / "staging" / "workflow.tar.gz") as tar:
        held = {name.partition("/")[2] for name in tar.getnames()}
    modules = {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "beam_pipeline").rglob("*.py")
    }
    assert len(modules) > 100
    assert modules | {"beam_pipeline/dataset/metadata.schema.json", "setup.py"} <= held
    assert not {name for name in held if name.startswith(("launch", "tests"))}


def test_the_real_service_would_take_the_script_s_options():
    """Beam checks more where the endpoint is the real one; a dry run ends before it."""
    import apache_beam as beam
    from apache_beam.options.pipeline_options import PipelineOptions

    def describe(*options):
        dry = "--runner=DataflowRunner", "--dry_run=True", "--no_auth"
        pipeline = beam.Pipeline(options=PipelineOptions([*dry, *options]))
        place = Input(FOLDER, "gs://my-bucket/in", "gs://my-bucket/in")
        output = "gs://my-bucket/out/"
        recording = Recording((place,), output, f"{output}_work", Recipe(win_len=500))
        build_pipeline(pipeline, recording)
        return pipeline.run().job

    image = "--image=registry/image:7"
    (command,) = shown(run_script("dataflow/submit.sh", "--dry-run", image, **PLACES))
    options = command[command.index("--") + 1 :]
    job = describe(*options)
    (environment,) = job.proto_pipeline.components.environments.values()
    assert b"registry/image:7" in environment.payload
    assert not environment.dependencies
    assert job.proto.name.startswith("audio-tfrecords-")
    for missing in ("--project", "--region"):
        kept = [text for text in options if not text.startswith(missing)]
        with raises(ValueError, naming=missing.strip("-")):
            describe(*kept)
