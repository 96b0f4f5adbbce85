"""What ``launch`` holds for Dataflow, Docker and Kubernetes, as far as it can be read.

Neither docker nor gcloud nor kubectl is needed: images are compared with setup.py,
manifests with the schemas of Kubernetes and of Flink's operator, commands with the
flags that they give, and the job for Flink is sent to a REST server on loopback.
"""

from __future__ import annotations

import argparse
import ast
import copy
import fnmatch
import gzip
import http.server
import io
import json
import os
import re
import shlex
import subprocess
import threading
import zipfile
from collections.abc import Mapping
from dataclasses import fields
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import jsonschema
import pytest
import yaml
from packaging.requirements import Requirement

from beam_pipeline import Metadata
from beam_pipeline.cli import main as cli_main
from beam_pipeline.cli.commands import COMMANDS, Record
from beam_pipeline.cli.parser import parse_command
from beam_pipeline.parameters import Flag
from beam_pipeline.recipe.fields import Option
from launch.dataflow import cost
from launch.dataflow.main import OF_BEAM, RECOMMENDED, REPEATED, to_command
from tests.fake_dataflow import Ending, run_staged
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
    "time_limit": "only for processes of the machine that submits",
}


# Dataflow's scripts.


def run_script(
    name: str, *arguments: str, **variables: str
) -> subprocess.CompletedProcess[str]:
    """A script with these variables alone; it never gets to run anything."""
    return subprocess.run(
        ["bash", str(LAUNCH / name), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        env={"PATH": os.environ["PATH"], **variables},
    )


def shown(done: subprocess.CompletedProcess[str]) -> list[list[str]]:
    """The commands that a dry run shows."""
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.splitlines()]


def known_options(arguments: list[str]) -> dict[str, Any]:
    """Options of Beam by name; one that Beam does not know is an error."""
    from apache_beam.options.pipeline_options import PipelineOptions

    parser = argparse.ArgumentParser(allow_abbrev=False)
    for group in PipelineOptions.__subclasses__():
        group._add_argparse_args(parser)
    values, unknown = parser.parse_known_args(arguments)
    assert unknown == []
    return vars(values)


@pytest.mark.runs
def test_scripts_are_bash() -> None:
    scripts = sorted(LAUNCH.rglob("*.sh"))
    assert len(scripts) >= 5
    for script in scripts:
        subprocess.run(["bash", "-n", str(script)], check=True, timeout=30)


def test_the_engines_record_the_class_of_the_document() -> None:
    document = (REPOSITORY / "docs" / "coming-from-other-libraries.md").read_text()
    module = (LAUNCH / "engines" / "typed" / "toy_example.py").read_text()
    found = module.index("class ToyExample")
    assert f"{module[found:]}```" in document


@pytest.mark.runs
def test_submit_gives_the_recommended_options_and_passes_on_the_rest() -> None:
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
    options = known_options(command[at + 1 :])
    assert options["runner"] == "DataflowRunner"
    assert options["project"] == "my-project"
    assert options["region"] == "europe-west4"
    assert options["temp_location"] == "gs://my-bucket/tmp"
    assert options["staging_location"] == "gs://my-bucket/staging"
    assert options["job_name"] == "sounds"
    assert options["machine_type"] == "c3-standard-8"
    assert options["disk_size_gb"] == 30
    assert options["sdk_container_image"] == "registry/image:7"
    assert options["setup_file"] is None
    assert options["save_main_session"] is False
    assert options["labels"] == ["team=sounds"]
    assert options["max_num_workers"] == 2  # what is given counts more
    assert set(RECOMMENDED) <= set(command)


@pytest.mark.runs
def test_submit_without_an_image_takes_this_folder_along() -> None:
    (command,) = shown(run_script("dataflow/submit.sh", "--dry-run", **PLACES))
    options = known_options(command[command.index("--") + 1 :])
    assert options["sdk_container_image"] is None
    assert options["setup_file"] == str(REPOSITORY / "setup.py")


@pytest.mark.runs
@pytest.mark.parametrize("missing", sorted(PLACES))
def test_submit_asks_for_what_is_missing(missing: str) -> None:
    places = {name: value for name, value in PLACES.items() if name != missing}
    done = run_script("dataflow/submit.sh", "--dry-run", **places)
    assert done.returncode == 2
    assert missing in done.stderr
    assert done.stdout == ""
    assert run_script("dataflow/submit.sh", "--region").returncode == 2


@pytest.mark.runs
def test_flex_build_builds_pushes_and_writes_the_template() -> None:
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


@pytest.mark.runs
def test_flex_run_gives_the_template_its_parameters() -> None:
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


def declared_parameters() -> list[dict[str, Any]]:
    metadata = json.loads((DATAFLOW / "metadata.json").read_text())
    return list(metadata["parameters"])


def record_flags() -> dict[str, Option]:
    """Every flag of ``record`` by its name."""
    return {each.singular: each for each in Record.known().values()}


def test_the_template_is_one_of_dataflow_s() -> None:
    dataflow = pytest.importorskip("google.cloud.dataflow")
    from google.protobuf import json_format

    metadata = json.loads((DATAFLOW / "metadata.json").read_text())
    for parameter in metadata["parameters"]:
        assert not set(parameter) - {
            *("name", "label", "helpText", "isOptional", "regexes", "paramType"),
        }
    # A field or a type that the service does not know is refused.
    parsed = dataflow.TemplateMetadata.pb(dataflow.TemplateMetadata())
    json_format.ParseDict(metadata, parsed)
    assert len(parsed.parameters) == len(metadata["parameters"])
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict({**metadata, "parameter": []}, type(parsed)())


def test_every_flag_is_a_parameter_or_makes_no_sense_there() -> None:
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
        if option.choices:
            assert parameter["regexes"] == [f"^({'|'.join(option.choices)})$"]


# Parameter -> what it takes, and what it does not.
VALUES = {
    "input": (
        ["gs://b/s", "gs://b", "gs://b/*.wav; s3://c/list.txt"],
        ["", "/local", "gs://", "gs://b/s;", "http://b/s"],
    ),
    "output": (["gs://b/r", "s3://b/a/r"], ["gs://b", "gs://b/", "records", ""]),
    "recipe": (["gs://b/recipe.yaml"], ["recipe.yaml"]),
    "label_from": (["folder", "name", "none", "(?P<class>[a-z]+)_"], ["parent", ""]),
    "label_separator": ([";", " | "], [""]),
    "classes": (["a", "owl,tit"], ["", "a,,b"]),
    "events": (["gs://b/events.csv", "{folder}/{stem}.txt"], [""]),
    "event_column": (["Species"], [""]),
    "event_targets": (["class", "multi_hot,mask:mel"], ["hot", "class,", "mask:"]),
    "event_overlap": (["0", "0.5", ".5", "1", "1.0"], ["2", "-1", "x", ""]),
    "no_event": (["keep", "background"], [""]),
    "target_columns": (["age", "x,y"], ["", ","]),
    "path_column": (["file"], [""]),
    "column_names": (["path,class"], ["path,"]),
    "delimiter": ([",", ";"], ["", ",,"]),
    "columns": (["none", "a,b"], ["", ",a"]),
    "split_column": (["part"], [""]),
    "splits": (["train=.8,test=.2", "a=1"], ["train", "=1", "a=x", "a=1,"]),
    "folds": (["5"], ["0", "x"]),
    "group_by": (["speaker", "ship,day"], ["", "a,"]),
    "stratify": (["true", "false", ""], ["yes"]),
    "fingerprint": (["true", "false", ""], ["yes"]),
    "sample_rate": (["16000"], ["0", "16k", "-1", "16000.5"]),
    "channels": (["mix", "keep", "0", "12"], ["left", "-1", "1.5"]),
    "dtype": (["float32", "int16"], ["float64", "int"]),
    "stream": (["gain()|clip_gain(kind='rms')", "gain"], ["gain()|", " "]),
    "win_len": (["500"], ["0", "1.5", ""]),
    "win_seconds": (["1", "0.5", ".5"], ["1s", "", "-1", "1."]),
    "hop": (["250"], ["0", "x"]),
    "hop_seconds": (["0.25"], ["half"]),
    "tail": (["drop", "pad", "overlap"], ["cut", "dropped"]),
    "max_windows": (["3"], ["0"]),
    "random_starts": (["true", "false", ""], ["yes", "True"]),
    "allow_unreadable": (["true", "false", ""], ["yes"]),
    "keep": (["energy(above_db=-50)", "peak"], ["energy(", ""]),
    "copies": (["0", "12"], ["-1", "two"]),
    "augment": (["noise()|random_gain(low_db=-3)"], ["noise(|", ""]),
    "feature": (
        ["m=log_mel(n_fft=1024,n_mels=8)", "a=x()|y(); b=pkg.mod.name"],
        ["log_mel()x", "1a=x()", "a=x();", "a="],
    ),
    "encoding": (
        ["mel=png", "a=raw; b=jpeg"],
        ["", "mel", "mel=", "mel=png;", "1=png"],
    ),
    "elements_per_file": (["1000"], ["0"]),
    "shard_bytes": (["134217728", "128MiB", "1GB", "64 kB", "5b"], ["128 MX", "big"]),
    "num_shards": (["8"], ["0", "eight"]),
    "member_bytes": (["16384", "1MiB"], ["big"]),
    "compression": (["gzip", "none"], ["zip"]),
    "num_elems": (["100"], ["all"]),
    "order": (["shuffled", "listed"], ["random"]),
    "seed": (["0", "-7", "42"], ["x", "1.5"]),
    "allow_truncated": (["true", "false"], ["1"]),
    "allow_nonfinite": (["true", "false"], ["1"]),
    "mark_padding": (["true", "false"], ["1"]),
    "min_seconds": (["0.5", "3"], ["1s", "-1"]),
    "max_seconds": (["20", "1.5"], ["1s", "-1"]),
    "short_clips": (["reject", "skip", "pad"], ["drop"]),
    "windows_at": (
        ["grid", "onsets", "peaks", "sounds(above_db=-40)", "my.mod.Onsets()"],
        ["gird", "peaks(", ""],
    ),
    "whole_clips": (["true", "false"], ["1"]),
    "loader": (["my_files.load", "a.b.C(x=1)"], ["load", "a.", ".b"]),
    "hash_files": (["true", "false", ""], ["yes"]),
    "loader_suffixes": ([".npy", ".npy,.h5"], ["", ".npy,"]),
    "decoder": (["pyav", "soundfile", "pyav,soundfile"], ["ffmpeg", "pyav,"]),
    "max_rejected": (["0", "5", "1%", "2.5%", "100%"], ["-1", "101%", "few", "1.5"]),
    "overwrite": (["true", "false"], ["please"]),
    "skip_recorded": (["gs://b/a", "gs://b/a; s3://c/d"], ["records", "gs://b"]),
    "work_dir": (["gs://b/work"], ["/tmp"]),
    "sdk_container_image": (["registry/image:7"], ["an image", ""]),
    "disk_size_gb": (["50"], ["50GB", "0"]),
}


@pytest.mark.parametrize("parameter", declared_parameters(), ids=lambda p: p["name"])
def test_a_parameter_takes_what_its_flag_takes(parameter: dict[str, Any]) -> None:
    name = parameter["name"]
    (regex,) = parameter["regexes"]
    good, bad = VALUES[name]
    assert good
    for value in good:
        assert re.fullmatch(regex, value), value
        needed = {"input": "gs://b/in", "output": "gs://b/out"}
        given = {**needed, name: value}
        command = to_command([f"--{n}={v}" for n, v in given.items()])
        parse_command(COMMANDS, command[: command.index("--")])
    assert bad
    for value in bad:
        assert not re.fullmatch(regex, value), value


def test_the_template_s_launcher_gives_flags_and_options() -> None:
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
    options = known_options(command[at + 1 :])
    assert options["runner"] == "DataflowRunner"
    assert options["template_location"] == "gs://b/staging/job_object"
    assert options["sdk_container_image"] == "registry/image:7"
    assert options["save_main_session"] is False


# The estimate of the cost.

ASSUMED = cost.Assumptions(
    vcpu_hour=0.1, memory_gb_hour=0.01, disk_gb_hour=0.001, shuffle_gb=10,
    thousand_reads=1, vcpus=4, memory_gb=16, disk_gb=50, slower=2, busy=0.5,
    clip_seconds=3.6, clip_reads=2, clip_bytes=1e6,
)  # fmt: skip


def test_cost_of_a_job_by_hand() -> None:
    found = cost.estimate(cost.Work(100, 1000), 50, ASSUMED)
    # 100 h / 50 * 2 = 4 h to compute, 1000 * 3.6 s = 1 h to open, half of it idle.
    assert found.core_hours == pytest.approx(10)
    assert found.vcpu == pytest.approx(1.0)
    assert found.memory == pytest.approx(10 / 4 * 16 * 0.01)
    assert found.disk == pytest.approx(10 / 4 * 50 * 0.001)
    assert found.shuffle == pytest.approx(1000 * 1e6 / 1e9 * 10)
    assert found.reads == pytest.approx(2.0)
    assert found.total == pytest.approx(sum(found) - found.core_hours)


def test_cost_grows_with_the_work() -> None:
    assert cost.estimate(cost.Work(0, 0), 50, ASSUMED).total == 0
    one = cost.estimate(cost.Work(3 / 3600, 1), 50, ASSUMED)
    assert 0 < one.total < 0.1
    many = cost.estimate(cost.Work(3000 / 3600, 1000), 50, ASSUMED)
    assert many == pytest.approx(one.times(1000))
    assert cost.estimate(cost.Work(100, 0), 100, ASSUMED).core_hours == pytest.approx(
        cost.estimate(cost.Work(100, 0), 50, ASSUMED).core_hours / 2
    )


def test_the_table_names_a_thousand_hours() -> None:
    work = cost.Work(10, 500)
    table = cost.describe(work, 50, cost.estimate(work, 50, ASSUMED))
    lines = table.splitlines()
    rows = {line[:16].strip(): line[16:].split() for line in lines[2:]}
    assert rows["hours of audio"] == ["10.00", "1,000.00"]
    assert rows["clips"] == ["500", "50,000"]
    this, thousand = (float(v.replace(",", "")) for v in rows["total, $"])
    assert thousand == pytest.approx(100 * this, abs=0.51)
    nothing = cost.Work(0, 0)
    table = cost.describe(nothing, 50, cost.estimate(nothing, 50, ASSUMED))
    assert "1000 hours" not in table


def test_every_assumption_is_explained_and_an_option() -> None:
    assert set(cost.HELP) == {f.name for f in fields(cost.Assumptions)}


def test_cost_measures_a_recipe(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_corpus(tmp_path / "in")
    monkeypatch.setattr(cost, "SAMPLE_SECONDS", 0.0)
    flags = f"--input {tmp_path}/in --win-len 500 --hop 100 --vcpu-hour 3600"
    assert cost.main(flags.split()) == 0
    rows = {
        s[:16].strip(): s[16:].split() for s in capsys.readouterr().out.splitlines()
    }
    assert rows["clips"][0] == "12"
    assert float(rows["vcpu, $"][0]) > 0
    assert cost.main(f"--input {tmp_path}/no --win-len 500".split()) == 2
    assert f"{tmp_path}/no" in capsys.readouterr().err


# The image.


class Step(NamedTuple):
    """An instruction of a Dockerfile, and its words."""

    name: str
    words: list[str]


def read_dockerfile(text: str) -> list[Step]:
    """Its instructions, with the values of ``ARG`` put in."""
    lines = [
        s for s in text.splitlines() if s.strip() and not s.lstrip().startswith("#")
    ]
    whole = re.sub(r"\\\n", " ", "\n".join(lines))
    values: dict[str, str] = {}
    steps = []
    for line in whole.splitlines():
        filled = re.sub(r"\$\{(\w+)\}", lambda found: values[found[1]], line)
        name, *words = filled.split()
        if name == "ARG":
            key, _, value = words[0].partition("=")
            values[key] = value
        steps.append(Step(name, words))
    return steps


def call_in_setup(keyword: str) -> Any:
    """A literal argument of ``setup`` in setup.py."""
    tree = ast.parse((REPOSITORY / "setup.py").read_text())
    (call,) = (
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "setup"
    )
    (value,) = (k.value for k in call.keywords if k.arg == keyword)
    return ast.literal_eval(value)


def locked_versions() -> dict[str, str]:
    lines = (LAUNCH / "docker" / "requirements.txt").read_text().splitlines()
    parts = [line.partition("==") for line in lines if not line.startswith("#")]
    return {name: found for name, _, found in parts}


@pytest.fixture(scope="module")
def dockerfile() -> list[Step]:
    return read_dockerfile((LAUNCH / "docker" / "Dockerfile").read_text())


def test_the_image_has_one_python_and_one_beam(dockerfile: list[Step]) -> None:
    images = [step.words[0] for step in dockerfile if step.name == "FROM"]
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
    supported = [c.split(" :: ")[-1] for c in call_in_setup("classifiers")]
    assert python in supported
    # Who submits from the environment of these tests, submits to this image.
    assert beam == version("apache-beam")


def test_the_image_installs_what_setup_asks_for() -> None:
    locked = locked_versions()
    extras = call_in_setup("extras_require")
    wanted = [*call_in_setup("install_requires"), *extras["gcp"], *extras["aws"]]
    for text in wanted:
        requirement = Requirement(text)
        assert requirement.name in locked
        assert requirement.specifier.contains(locked[requirement.name]), text
    assert "google-cloud-dataflow-client" in locked
    assert "boto3" in locked


def test_what_the_image_copies_is_there(dockerfile: list[Step]) -> None:
    ignore = LAUNCH / "docker" / "Dockerfile.dockerignore"
    lines = [s for s in ignore.read_text().splitlines() if not s.startswith("#")]
    assert lines[0] == "*"
    kept = [line.removeprefix("!") for line in lines[1:]]
    stages = [step.words[-1] for step in dockerfile if step.name == "FROM"][:-1]
    copied = []
    for step in dockerfile:
        if step.name == "COPY" and step.words[0].startswith("--from="):
            assert step.words[0].removeprefix("--from=") in stages
        elif step.name == "COPY":
            copied += step.words[:-1]
    package = {
        f"{package.replace('.', '/')}/{name}"
        for package, names in call_in_setup("package_data").items()
        for name in names
    }
    package |= {
        str(path.relative_to(REPOSITORY))
        for path in (REPOSITORY / "beam_pipeline").rglob("*.py")
    }
    files = {name for name in copied if (REPOSITORY / name).is_file()} | package
    assert {name.partition("/")[0] for name in files} == {
        name.partition("/")[0] for name in copied
    }
    for name in files:
        assert (REPOSITORY / name).is_file()
        assert any(fnmatch.fnmatchcase(name, pattern) for pattern in kept), name
    for name in ("tests/sounds.py", "demo/sounds/a.wav", ".git/config"):
        assert not any(fnmatch.fnmatchcase(name, pattern) for pattern in kept)


def test_the_image_starts_as_worker_pool_and_launcher(dockerfile: list[Step]) -> None:
    entry = [step.words for step in dockerfile if step.name == "ENTRYPOINT"]
    assert entry == [['["/opt/apache/beam/boot"]']]
    environment = dict(
        word.split("=", 1)
        for step in dockerfile
        if step.name == "ENV"
        for word in step.words
    )
    main = environment["FLEX_TEMPLATE_PYTHON_PY_FILE"]
    copies = [step.words for step in dockerfile if step.name == "COPY"]
    (template,) = (w for w in copies if "launch/dataflow/main.py" in w)
    assert main == template[-1] + "main.py"
    assert "launch/dataflow/metadata.json" in template  # main.py reads it there
    runs = [" ".join(step.words) for step in dockerfile if step.name == "RUN"]
    assert any("pip check" in run for run in runs)
    assert any("--requirement /tmp/requirements.txt" in run for run in runs)


# Kubernetes.


def closed(schema: Any) -> Any:
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


def read_schema(name: str) -> Any:
    with gzip.open(REPOSITORY / "tests" / "data" / f"{name}.schema.json.gz") as file:
        return closed(json.load(file))


def problems(kind: str, value: Any) -> list[str]:
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


def read_manifest(name: str) -> dict[str, Any]:
    """The one object of a manifest."""
    (value,) = yaml.safe_load_all((KUBERNETES / name).read_text())
    return dict(value)


@pytest.fixture
def cluster() -> dict[str, Any]:
    return read_manifest("flinkdeployment.yaml")


@pytest.fixture
def job() -> dict[str, Any]:
    return read_manifest("job.yaml")


def spec_of(cluster: Mapping[str, Any]) -> dict[str, Any]:
    """What the operator's schema is about."""
    return {"spec": cluster["spec"]}


def pool_of(cluster: Mapping[str, Any]) -> dict[str, Any]:
    (pool,) = cluster["spec"]["taskManager"]["podTemplate"]["spec"]["containers"]
    return dict(pool)


def container_of(job: Mapping[str, Any]) -> dict[str, Any]:
    (container,) = job["spec"]["template"]["spec"]["containers"]
    return dict(container)


def test_manifests_are_what_the_cluster_takes(
    cluster: dict[str, Any], job: dict[str, Any]
) -> None:
    assert (cluster["apiVersion"], cluster["kind"]) == (
        "flink.apache.org/v1beta1",
        "FlinkDeployment",
    )
    assert problems("FlinkDeployment", spec_of(cluster)) == []
    # The operator's schema requires nothing of a pod; Kubernetes does.
    template = cluster["spec"]["taskManager"]["podTemplate"]
    assert problems("PodTemplateSpec", template) == []
    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "Job")
    assert problems("Job", job) == []


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("FlinkDeployment", "spec.flinkVersion", "v9_9"),
        ("FlinkDeployment", "spec.taskManagers", {}),
        ("FlinkDeployment", "spec.flinkConfiguration.slots", 4),
        ("FlinkDeployment", "spec.taskManager.resource.cpus", 1),
        ("FlinkDeployment", "spec.taskManager.podTemplate.spec.container", []),
        ("Job", "spec.backOffLimit", 0),
        ("Job", "spec.template.spec.containers", [{"image": "x"}]),
        ("Job", "spec.template.spec.volumes", [{"emptyDir": {}}]),
        ("Job", "spec.template", None),
    ],
)
def test_the_schemas_can_refuse(
    cluster: dict[str, Any], job: dict[str, Any], kind: str, path: str, value: Any
) -> None:
    whole = copy.deepcopy(job if kind == "Job" else spec_of(cluster))
    *names, last = path.split(".")
    inner = whole
    for name in names:
        inner = inner[name]
    inner[last] = value
    if value is None:
        del inner[last]
    assert problems(kind, whole) != []


def test_cluster_job_and_image_fit_together(
    cluster: dict[str, Any], job: dict[str, Any], dockerfile: list[Step]
) -> None:
    spec, pool, container = cluster["spec"], pool_of(cluster), container_of(job)
    at = container["args"].index("--")
    options = known_options(container["args"][at + 1 :])
    minor = options["flink_version"]
    assert spec["flinkVersion"] == "v" + minor.replace(".", "_")
    assert spec["image"].startswith(f"flink:{minor}-")
    images = [step.words[0] for step in dockerfile if step.name == "FROM"]
    assert any(i.startswith(f"apache/beam_flink{minor}_job_server:") for i in images)
    copies = [step.words for step in dockerfile if step.name == "COPY"]
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
        for words in (" ".join(s.words) for s in dockerfile if s.name == "RUN")
        if "--uid" in words
    }
    for part in (pool, container):
        assert {str(part["securityContext"]["runAsUser"])} == users
        assert part["securityContext"]["runAsNonRoot"] is True
    # Two submitters would write the same shards.
    assert job["spec"]["backoffLimit"] == 0
    assert job["spec"]["template"]["spec"]["restartPolicy"] == "Never"


class FakeFlink:
    """Flink's REST interface: takes a job's jar and runs the pipeline in it."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.jar = b""
        self.ending = Ending()

    def answer(self, method: str, path: str, body: bytes) -> Any:
        from apache_beam.metrics.monitoring_infos import int64_user_counter
        from apache_beam.portability.api import beam_job_api_pb2, beam_runner_api_pb2
        from google.protobuf import json_format

        self.requests.append(f"{method} {path}")
        if path == "/v1/config":
            return {"flink-version": "1.20.1"}
        if path == "/v1/jars/upload":
            self.jar = body[body.index(b"PK\x03\x04") :]
            return {"filename": "/uploads/1_beam.jar"}
        if path.endswith("/run"):
            with zipfile.ZipFile(io.BytesIO(self.jar)) as jar:
                described = jar.read("BEAM-PIPELINE/pipeline/pipeline.json")
            pipeline = json_format.Parse(described, beam_runner_api_pb2.Pipeline())
            self.ending = run_staged(pipeline.SerializeToString())
            return {"jobid": "1"}
        if path.endswith("/execution-result"):
            return {"status": {"id": "COMPLETED"}}
        if path.endswith("/exceptions"):
            texts = [{"timestamp": 0, "exception": e} for e in self.ending.errors]
            return {"all-exceptions": texts}
        if path.endswith("/accumulators"):
            counted = [
                int64_user_counter(c.namespace, c.name, c.value, ptransform=c.step)
                for c in self.ending.counters
            ]
            # Flink knows no counters that are committed.
            metrics = beam_job_api_pb2.MetricResults(attempted=counted)
            answer = beam_job_api_pb2.GetJobMetricsResponse(metrics=metrics)
            value = json_format.MessageToJson(answer)
            return {
                "user-task-accumulators": [
                    {"name": "__metricscontainers", "value": value}
                ]
            }
        return {"state": "FAILED" if self.ending.errors else "FINISHED"}


@pytest.mark.runs
def test_the_kubernetes_job_submits_to_flink(
    tmp_path: Path, job: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    flink = FakeFlink()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        timeout = 60

        def handle_any(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            data = json.dumps(flink.answer(self.command, self.path, body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_DELETE = handle_any  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    write_corpus(tmp_path / "in", classes=("cat",), clips=2)
    runner = tmp_path / "runner.jar"
    with zipfile.ZipFile(runner, "w") as jar:
        jar.writestr("META-INF/MANIFEST.MF", "Manifest-Version: 1.0\n")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    edits = {
        "--input": str(tmp_path / "in"),
        "--output": str(tmp_path / "out"),
        "--flink_master": f"localhost:{server.server_port}",
        "--flink_job_server_jar": str(runner),
    }
    arguments = []
    for argument in container_of(job)["args"]:
        name = argument.split("=")[0]
        arguments.append(f"{name}={edits[name]}" if name in edits else argument)
    arguments = [a.replace("--win-seconds=1", "--win-len=500") for a in arguments]
    try:
        assert cli_main.main(arguments) == 0, capsys.readouterr().err
    finally:
        server.shutdown()
        server.server_close()
    assert "windows 10" in capsys.readouterr().err
    assert Metadata.load(str(tmp_path / "out")).clips == 2
    assert "POST /v1/jars/1_beam.jar/run" in flink.requests
    # The workers have the package: nothing of it goes along.
    with zipfile.ZipFile(io.BytesIO(flink.jar)) as jar:
        assert not [name for name in jar.namelist() if "artifacts/" in name]
