"""What ``launch`` holds for Dataflow, Docker and Kubernetes, as far as it can be read.

Neither docker nor gcloud nor kubectl is needed: images are compared with setup.py,
manifests with the schemas of Kubernetes and of Flink's operator, commands with the
flags that they give, and the job for Flink is sent to a REST server on loopback.
"""

import argparse
import gzip
import json
import os
import re
import shlex
import subprocess
from importlib.metadata import version
from pathlib import Path

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement

from beam_pipeline.cli.main import COMMANDS, Record
from beam_pipeline.cli.parser import parse_command
from beam_pipeline.parameters import Flag
from launch.dataflow import cost
from launch.dataflow.main import OF_BEAM, RECOMMENDED, REPEATED, to_command
from launch.licences import requirements_of
from tests.sounds import write_corpus

REPOSITORY = Path(__file__).parents[2]
LAUNCH = REPOSITORY / "launch"
DATAFLOW = LAUNCH / "dataflow"
KUBERNETES = LAUNCH / "kubernetes"
PLACES = {"PROJECT": "my-project", "REGION": "europe-west4", "BUCKET": "gs://my-bucket"}

# Flags of ``record`` that a Flex template does not offer.
MAKES_NO_SENSE = {
    "report": "a page on the launcher; `audio-tfrecords report` reads the bucket",
    "debug": "the launcher's log is where tracebacks go",
    "workers": "processes of the machine that submits, which records nothing",
}


# Dataflow's scripts.


def run_script(name, *arguments, **variables):
    """A script with these variables alone; it never gets to run anything."""
    return subprocess.run(
        ["bash", str(LAUNCH / name), *arguments],
        capture_output=True, text=True, check=False, timeout=120,
        env={"PATH": os.environ["PATH"], **variables},
    )  # fmt: skip


def shown(done):
    """The commands that a dry run shows."""
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.splitlines()]


def known_options(arguments):
    """Options of Beam by name; one that Beam does not know is an error."""
    from apache_beam.options.pipeline_options import PipelineOptions

    parser = argparse.ArgumentParser(allow_abbrev=False)
    for group in PipelineOptions.__subclasses__():
        group._add_argparse_args(parser)
    values, unknown = parser.parse_known_args(arguments)
    assert unknown == []
    return vars(values)


def test_the_engines_record_the_class_of_the_document():
    document = (REPOSITORY / "docs" / "coming-from-other-libraries.md").read_text()
    module = (LAUNCH / "engines" / "typed" / "toy_example.py").read_text()
    found = module.index("class ToyExample")
    assert f"{module[found:]}```" in document


def test_submit_gives_the_recommended_options_and_passes_on_the_rest():
    (command,) = shown(
        run_script(
            "dataflow/submit.sh",
            *("--input", "gs://my-bucket/a b", "--feature", "m=log_mel(n_mels=8)|x()"),
            *("--dry-run", "--machine-type=c3-standard-8", "--disk-gb", "30"),
            *("--output=gs://my-bucket/out", "--win-seconds=1"),
            *("--", "--labels=team=sounds", "--max_num_workers=2"),
            IMAGE="registry/image:7",
            JOB_NAME="sounds",
            PYTHON="python3.11",
            **PLACES,
        )
    )
    at = command.index("--")
    assert command[:4] == ["python3.11", "-m", "beam_pipeline", "record"]
    args = parse_command(COMMANDS, command[3:at])
    assert args.input == ["gs://my-bucket/a b"]
    assert args.options["features"] == {"m": "log_mel(n_mels=8)|x()"}
    wanted = {
        "runner": "DataflowRunner", "project": "my-project", "region": "europe-west4",
        "temp_location": "gs://my-bucket/tmp", "job_name": "sounds",
        "staging_location": "gs://my-bucket/staging", "disk_size_gb": 30,
        "machine_type": "c3-standard-8", "sdk_container_image": "registry/image:7",
        "setup_file": None, "save_main_session": False, "labels": ["team=sounds"],
        "max_num_workers": 2,  # what is given counts more
    }  # fmt: skip
    assert wanted.items() <= known_options(command[at + 1 :]).items()
    assert set(RECOMMENDED) <= set(command)


@pytest.mark.parametrize("missing", sorted(PLACES))
def test_submit_asks_for_what_is_missing(missing):
    places = {name: value for name, value in PLACES.items() if name != missing}
    done = run_script("dataflow/submit.sh", "--dry-run", **places)
    assert done.returncode == 2
    assert missing in done.stderr
    assert done.stdout == ""
    assert run_script("dataflow/submit.sh", "--region").returncode == 2


def test_flex_build_builds_pushes_and_writes_the_template():
    build, push, template = shown(
        run_script("dataflow/flex_build.sh", "--dry-run", IMAGE="my/image", **PLACES)
    )
    assert build[:2] == ["docker", "build"]
    assert build[build.index("--file") + 1] == str(LAUNCH / "docker" / "Dockerfile")
    assert build[-1] == str(REPOSITORY)
    assert push == ["docker", "push", "my/image"]
    assert template[:4] == ["gcloud", "dataflow", "flex-template", "build"]
    assert template[4] == "gs://my-bucket/templates/audio-tfrecords.json"
    assert template[template.index("--image") + 1] == "my/image"
    assert Path(template[template.index("--metadata-file") + 1]).is_file()
    done = run_script("dataflow/flex_build.sh", "--dry-run", **PLACES)
    assert (done.returncode, "IMAGE" in done.stderr) == (2, True)


def test_flex_run_gives_the_template_its_parameters():
    feature = "feature=m=log_mel(n_fft=1024,n_mels=8)|x();signal=identity()"
    (command,) = shown(
        run_script(
            "dataflow/flex_run.sh",
            *("--dry-run", "input=gs://my-bucket/a b", feature, "win_seconds=1"),
            IMAGE="my/image",
            **PLACES,
        )
    )
    template = "gs://my-bucket/templates/audio-tfrecords.json"
    assert command[:4] == ["gcloud", "dataflow", "flex-template", "run"]
    assert command[command.index("--template-file-gcs-location") + 1] == template
    # The text between ^^ is what separates the rest, by gcloud's rules.
    parameters = command[command.index("--parameters") + 1]
    assert parameters.startswith("^~^")
    given = dict(p.split("=", 1) for p in parameters[3:].split("~"))
    assert given == {
        "sdk_container_image": "my/image",
        "input": "gs://my-bucket/a b",
        "feature": feature.partition("=")[2],
        "win_seconds": "1",
    }
    assert set(given) <= {p["name"] for p in declared_parameters()}
    for wrong in ("a=b~c", "--input=x", "input"):
        done = run_script("dataflow/flex_run.sh", wrong, IMAGE="my/image", **PLACES)
        assert done.returncode == 2
        assert wrong in done.stderr


# The Flex template.


def declared_parameters():
    metadata = json.loads((DATAFLOW / "metadata.json").read_text())
    return list(metadata["parameters"])


def record_flags():
    """Every flag of ``record`` by its name."""
    return {each.singular: each for each in Record.known().values()}


def test_the_template_is_one_of_dataflow_s():
    dataflow = pytest.importorskip("google.cloud.dataflow")
    from google.protobuf import json_format

    metadata = json.loads((DATAFLOW / "metadata.json").read_text())
    for parameter in metadata["parameters"]:
        assert not set(parameter) - {
            *("name", "label", "helpText", "isOptional", "regexes", "paramType")
        }
    # A field or a type that the service does not know is refused.
    parsed = dataflow.TemplateMetadata.pb(dataflow.TemplateMetadata())
    json_format.ParseDict(metadata, parsed)
    assert len(parsed.parameters) == len(metadata["parameters"])
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict({**metadata, "parameter": []}, type(parsed)())


def test_every_flag_is_a_parameter_or_makes_no_sense_there():
    names = [parameter["name"] for parameter in declared_parameters()]
    assert len(names) == len(set(names))
    flags = record_flags()
    assert set(names) == (set(flags) - set(MAKES_NO_SENSE)) | set(OF_BEAM)
    assert set(MAKES_NO_SENSE) <= set(flags)
    for parameter in declared_parameters():
        option = flags.get(parameter["name"])
        required = option is not None and option.required
        assert parameter.get("isOptional", False) is not required
        if option is None:
            continue
        is_switch = isinstance(option.values, Flag)
        assert (parameter["paramType"] == "BOOLEAN") is is_switch
        assert (parameter["name"] in REPEATED) is option.repeats
        regexes = [f"^({'|'.join(option.choices)})$"] if option.choices else None
        regexes = ["^(true|false)?$"] if is_switch else regexes
        assert parameter["name"] in VALUES or parameter.get("regexes") == regexes


# Parameter -> what it takes, and what it does not. The launcher checks other values.
VALUES = {
    "input": (
        ["gs://b/s", "gs://b", "gs://b/*.wav; s3://c/list.txt"],
        ["", "/local", "gs://", "gs://b/s;", "http://b/s"],
    ),
    "output": (["gs://b/r", "s3://b/a/r"], ["gs://b", "gs://b/", "records", ""]),
    "recipe": (["gs://b/recipe.yaml"], ["recipe.yaml"]),
    "feature": (
        ["m=log_mel(n_fft=1024,n_mels=8)", "a=x()|y(); b=pkg.mod.name"],
        ["log_mel()x", "1a=x()", "a=x();", "a="],
    ),
    "encoding": (["mel=png", "a=raw; b=jpeg"], ["mel", "mel=", "mel=png;", "1=png"]),
    "skip_recorded": (["gs://b/a", "gs://b/a; s3://c/d"], ["records", "gs://b"]),
    "work_dir": (["gs://b/work"], ["/tmp"]),
    "sdk_container_image": (["registry/image:7"], ["an image", ""]),
    "disk_size_gb": (["50"], ["50GB", "0"]),
}


@pytest.mark.parametrize("name", VALUES)
def test_a_parameter_takes_what_its_flag_takes(name):
    (parameter,) = (each for each in declared_parameters() if each["name"] == name)
    (regex,) = parameter["regexes"]
    good, bad = VALUES[name]
    for value in good:
        assert re.fullmatch(regex, value), value
        needed = {"input": "gs://b/in", "output": "gs://b/out"}
        given = {**needed, name: value}
        command = to_command([f"--{n}={v}" for n, v in given.items()])
        parse_command(COMMANDS, command[: command.index("--")])
    for value in bad:
        assert not re.fullmatch(regex, value), value


def test_the_template_s_launcher_gives_flags_and_options():
    command = to_command(
        [
            "--input=gs://b/one; gs://b/two",
            "--runner=DataflowRunner",
            *("--output", "gs://b/out"),
            "--feature=m=log_mel(n_mels=8)|x();s=identity()",
            "--random_starts=true",
            "--overwrite=false",
            "--win_len=",
            "--win_seconds=0.5",
            "--template_location=gs://b/staging/job_object",
            "--sdk_container_image=registry/image:7",
        ]
    )
    at = command.index("--")
    args = parse_command(COMMANDS, command[:at])
    assert args.input == ["gs://b/one", "gs://b/two"]
    assert args.options == {
        "features": {"m": "log_mel(n_mels=8)|x()", "s": "identity()"},
        "random_starts": True,
        "win_seconds": 0.5,
    }
    wanted = {
        "runner": "DataflowRunner", "save_main_session": False,
        "template_location": "gs://b/staging/job_object",
        "sdk_container_image": "registry/image:7",
    }  # fmt: skip
    assert wanted.items() <= known_options(command[at + 1 :]).items()


# The estimate of the cost.

ASSUMED = cost.Assumptions(
    vcpu_hour=0.1, memory_gb_hour=0.01, disk_gb_hour=0.001, shuffle_gb=10,
    thousand_reads=1, vcpus=4, memory_gb=16, disk_gb=50, slower=2, busy=0.5,
    clip_seconds=3.6, clip_reads=2, clip_bytes=1e6,
)  # fmt: skip


def test_cost_of_a_job_by_hand():
    found = cost.estimate(cost.Work(100, 1000), 50, ASSUMED)
    # 100 h / 50 * 2 = 4 h to compute, 1000 * 3.6 s = 1 h to open, half of it idle.
    assert found.core_hours == pytest.approx(10)
    assert found.vcpu == pytest.approx(1.0)
    assert found.memory == pytest.approx(10 / 4 * 16 * 0.01)
    assert found.disk == pytest.approx(10 / 4 * 50 * 0.001)
    assert found.shuffle == pytest.approx(1000 * 1e6 / 1e9 * 10)
    assert found.reads == pytest.approx(2.0)
    assert found.total == pytest.approx(sum(found) - found.core_hours)


def test_cost_measures_a_recipe(tmp_path, capsys, monkeypatch):
    write_corpus(tmp_path / "in")
    monkeypatch.setattr(cost, "SAMPLE_SECONDS", 0.0)
    flags = "--win-len 500 --hop 100 --vcpu-hour 3600"
    assert cost.main(["--input", f"{tmp_path}/in", *flags.split()]) == 0
    rows = {
        s[:16].strip(): s[16:].split() for s in capsys.readouterr().out.splitlines()
    }
    assert rows["clips"][0] == "12"
    assert float(rows["vcpu, $"][0]) > 0
    assert cost.main(["--input", f"{tmp_path}/no", "--win-len", "500"]) == 2
    assert f"{tmp_path}/no" in capsys.readouterr().err


# The image.


def read_dockerfile(text):
    """Its instructions, with the values of ``ARG`` put in."""
    lines = [
        s for s in text.splitlines() if s.strip() and not s.lstrip().startswith("#")
    ]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    values = {}
    steps = []
    for line in whole.splitlines():
        filled = re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], line)
        name, *words = filled.split()
        if name == "ARG":
            key, _, value = words[0].partition("=")
            values[key] = value
        steps.append((name, words))
    return steps


def locked_versions():
    lines = (LAUNCH / "docker" / "requirements.txt").read_text().splitlines()
    parts = [line.partition("==") for line in lines if not line.startswith("#")]
    return {name: found for name, _, found in parts}


@pytest.fixture(scope="module")
def dockerfile():
    return read_dockerfile((LAUNCH / "docker" / "Dockerfile").read_text())


def test_the_image_has_one_python_and_one_beam(dockerfile):
    images = [words[0] for name, words in dockerfile if name == "FROM"]
    beam = locked_versions()["apache-beam"]
    python = next(i for i in images if i.startswith("python:")).split(":")[1]
    python = python.removesuffix("-slim")
    assert images[-1] == f"python:{python}-slim"
    assert f"apache/beam_python{python}_sdk:{beam}" in images
    assert any(
        i.startswith("apache/beam_flink") and i.endswith(f":{beam}") for i in images
    )
    assert any(f"/python{python.replace('.', '')}-template" in i for i in images)
    assert all(":" in image and "latest" not in image for image in images)
    supported = [c.split(" :: ")[-1] for c in requirements_of("classifiers")]
    assert python in supported
    # Who submits from the environment of these tests, submits to this image.
    assert beam == version("apache-beam")


def test_the_image_installs_what_setup_asks_for():
    locked = locked_versions()
    extras = requirements_of("extras_require")
    wanted = [*requirements_of("install_requires"), *extras["gcp"], *extras["aws"]]
    for text in wanted:
        requirement = Requirement(text)
        assert requirement.name in locked
        assert requirement.specifier.contains(locked[requirement.name]), text
    assert "google-cloud-dataflow-client" in locked
    assert "boto3" in locked


# Kubernetes.


def closed(schema):
    """The schema with fields that it does not name refused, as kubectl refuses them."""
    if isinstance(schema, list):
        return [closed(value) for value in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string"):
        return {"type": ["integer", "string"]}
    result = {key: closed(value) for key, value in schema.items()}
    if isinstance(schema.get("properties"), dict):
        result.setdefault("additionalProperties", False)
    return result


def read_schema(name):
    with gzip.open(REPOSITORY / "tests" / "data" / f"{name}.schema.json.gz") as file:
        return closed(json.load(file))


def problems(kind, value):
    """What a kind's schema has against a value."""
    if kind == "FlinkDeployment":
        schema = read_schema("flinkdeployment")
    else:
        schema = read_schema("kubernetes")
        package = "batch" if kind == "Job" else "core"
        schema["$ref"] = f"#/definitions/io.k8s.api.{package}.v1.{kind}"
    return [
        f"{'/'.join(map(str, error.absolute_path))}: {error.message}"
        for error in jsonschema.Draft7Validator(schema).iter_errors(value)
    ]


def read_manifest(name):
    """The one object of a manifest."""
    (value,) = yaml.safe_load_all((KUBERNETES / name).read_text())
    return dict(value)


def container_of(spec):
    """The one container of a pod."""
    (container,) = spec["containers"]
    return dict(container)


def test_manifests_are_what_the_cluster_takes():
    cluster, job = read_manifest("flinkdeployment.yaml"), read_manifest("job.yaml")
    assert (cluster["apiVersion"], cluster["kind"]) == (
        "flink.apache.org/v1beta1",
        "FlinkDeployment",
    )
    spec = cluster["spec"]
    assert problems("FlinkDeployment", {"spec": spec}) == []
    # The operator's schema requires nothing of a pod; Kubernetes does.
    template = spec["taskManager"]["podTemplate"]
    assert problems("PodTemplateSpec", template) == []
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert problems("Job", job) == []
    # The schemas can refuse.
    assert problems("FlinkDeployment", {"spec": spec | {"flinkVersion": "v9_9"}})
    assert problems("Job", {"spec": {}})


def test_cluster_job_and_image_fit_together(dockerfile):
    cluster, job = read_manifest("flinkdeployment.yaml"), read_manifest("job.yaml")
    spec, pod = cluster["spec"], job["spec"]["template"]["spec"]
    pool = container_of(spec["taskManager"]["podTemplate"]["spec"])
    container = container_of(pod)
    at = container["args"].index("--")
    options = known_options(container["args"][at + 1 :])
    minor = options["flink_version"]
    assert spec["flinkVersion"] == "v" + minor.replace(".", "_")
    assert spec["image"].startswith(f"flink:{minor}-")
    images = [words[0] for name, words in dockerfile if name == "FROM"]
    assert any(i.startswith(f"apache/beam_flink{minor}_job_server:") for i in images)
    copies = [words for name, words in dockerfile if name == "COPY"]
    assert any(options["flink_job_server_jar"] in words for words in copies)
    # The operator calls a cluster's REST service after the cluster.
    assert options["flink_master"] == cluster["metadata"]["name"] + "-rest:8081"
    assert options["environment_type"] == "EXTERNAL"
    port = pool["ports"][0]["containerPort"]
    assert options["environment_config"] == f"localhost:{port}"
    assert pool["args"] == ["-worker_pool"]
    slots = int(spec["flinkConfiguration"]["taskmanager.numberOfTaskSlots"])
    assert int(options["sdk_worker_parallelism"]) == slots
    assert int(pool["resources"]["requests"]["cpu"]) == slots
    assert options["parallelism"] % slots == 0
    assert pool["image"] == container["image"]
    assert pool["envFrom"] == container["envFrom"]
    users = {
        words.split("--uid ")[1].split()[0]
        for words in (" ".join(ws) for name, ws in dockerfile if name == "RUN")
        if "--uid" in words
    }
    for part in (pool, container):
        assert {str(part["securityContext"]["runAsUser"])} == users
        assert part["securityContext"]["runAsNonRoot"] is True
    # Two submitters would write the same shards.
    assert job["spec"]["backoffLimit"] == 0
    assert pod["restartPolicy"] == "Never"
