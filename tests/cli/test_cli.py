"""The command line, by its output and exit status."""

from __future__ import annotations

import csv
import errno
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from beam_pipeline import __version__
from beam_pipeline.cli.main import main
from beam_pipeline.dataset.metadata import Metadata
from tests.raising import assert_names
from tests.sounds import RATE, write_corpus, write_sound

pytestmark = pytest.mark.runs

REPOSITORY = Path(__file__).parents[2]
COMMANDS = (
    "record", "plan", "convert", "show", "verify", "audit", "transforms", "status"
)  # fmt: skip


def run(*arguments: object, cwd: Path = REPOSITORY) -> subprocess.CompletedProcess:
    """Runs the command in a new process."""
    return subprocess.run(
        [sys.executable, "-m", "beam_pipeline", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
    )


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    write_corpus(tmp_path / "in")
    status = main(
        f"record --input {tmp_path}/in --output {tmp_path}/out --win-len 500 "
        "--elements-per-file 10".split()
    )
    assert status == 0
    return tmp_path / "out"


def test_record_prints_what_it_did(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path / "in")
    arguments = f"record --input {tmp_path}/in --output {tmp_path}/out --win-len 500"
    assert main(arguments.split()) == 0
    out = capsys.readouterr().out
    assert_names(out, "12", "0")
    assert "complete" in out
    metadata = Metadata.load(str(tmp_path / "out"))
    assert f"{metadata.splits['records'].examples}" in out


def test_plan_counts_as_record_does_and_writes_nothing(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = sorted(recorded.parent.rglob("*"))
    arguments = ["--input", str(recorded.parent / "in"), "--win-len", "500"]
    assert main(["plan", *arguments, "--elements-per-file", "10"]) == 0
    printed = capsys.readouterr().out
    split = Metadata.load(str(recorded)).splits["records"]
    line = next(s for s in printed.splitlines() if s.startswith("records"))
    assert line.split()[1:6] == [
        str(split.examples),
        "12",
        f"{split.seconds:.2f}",  # of audio: windows neither overlap nor pad
        f"{split.seconds:.2f}",
        str(len(split.shards)),
    ]
    assert sorted(recorded.parent.rglob("*")) == before


def test_show_prints_and_draws(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    picture = tmp_path / "examples.png"
    assert main(["show", str(recorded), "-n", "2", "--plot", str(picture)]) == 0
    printed = capsys.readouterr().out
    assert printed.count("filepath") == 2
    assert "float32 (500,)" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert main(["show", str(recorded), "--split", "train"]) == 2
    assert_names(capsys.readouterr().err, "train", "records")


def test_show_chooses_by_clip_and_condition(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def shown(*flags: str) -> list[str]:
        capsys.readouterr()
        assert main(["show", str(recorded), "-n", "2", *flags]) == 0
        lines = capsys.readouterr().out.splitlines()
        return [line for line in lines if "filepath" in line or "win_start" in line]

    path = "  filepath       'dog/dog_3.wav'"
    starts = [f"  win_start_idx  {start}" for start in (0, 1000, 1500)]
    assert shown("--clip", "dog/dog_3.wav") == [path, starts[0], path, starts[1]]
    later = ("--clip", "dog/dog_3.wav", "--where", "start_s > 0.15 and class == 'dog'")
    assert shown(*later) == [path, starts[2], path, "  win_start_idx  2000"]
    for flags, names in (
        (["--clip", "dog/dog.wav"], ["dog/dog.wav"]),
        (["--where", "start_s > 10"], ["records", "no such example"]),
        (["--where", "starts > 10"], ["starts", "start_s"]),
    ):
        assert main(["show", str(recorded), *flags]) == 2
        assert_names(capsys.readouterr().err, *names)


def test_show_begins_with_the_split_for_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path / "in", clips=2)
    for splits, wanted in (("dev=1,train=1", "train"), ("a=.3,b=.7", "b")):
        out = str(tmp_path / wanted)
        io = ["--input", str(tmp_path / "in"), "--output", out, "--win-len", "500"]
        assert main(["record", *io, "--splits", splits]) == 0
        capsys.readouterr()
        assert main(["show", out, "-n", "1"]) == 0
        assert capsys.readouterr().out.startswith(f"example 0 of {wanted}\n")


def test_verify_finds_a_changed_byte_a_missing_and_a_foreign_shard(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["verify", str(recorded)]) == 0
    shards = sorted(recorded.glob("*.gz"))
    content = bytearray(shards[0].read_bytes())
    content[len(content) // 2] ^= 1
    shards[0].write_bytes(content)
    shards[1].unlink()
    (recorded / "records-00007-of-00009.tfrecord.gz").write_bytes(b"")
    assert main(["verify", str(recorded)]) == 4
    err = capsys.readouterr().err
    assert shards[0].name in err
    assert_names(err, shards[1].name)
    assert_names(err, "00007-of-00009.tfrecord.gz")


def test_verify_names_the_shard_that_replaced_another(
    recorded: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, second = sorted(recorded.glob("*.gz"))[:2]
    sizes = first.stat().st_size, second.stat().st_size
    assert sizes[0] != sizes[1]
    first.write_bytes(second.read_bytes())
    capsys.readouterr()
    assert main(["verify", str(recorded)]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert_names(line, first.name, *sizes, second.name)
    first.write_bytes(second.read_bytes()[:100])
    assert main(["verify", str(recorded)]) == 4
    err = capsys.readouterr().err
    assert_names(err, first.name, "100", sizes[0])


@pytest.mark.parametrize(
    ("old", "new", "facts"),
    [
        ("{", "[", ["metadata.json", "JSONDecodeError"]),
        ('"splits": {', '"splits": {"x": [], ', []),
        ('"writer"', '"written"', ["writer"]),
        ('"format_version": 1', '"format_version": null', []),
        ('"examples": ', '"examples": true, "old": ', []),
        ('"bytes": ', '"bytes": null, "old": ', []),
        ('"sha256": "', '"sha256": 1, "old": "', []),
    ],
)
def test_damaged_metadata_do_not_verify(
    recorded: Path, capsys: pytest.CaptureFixture[str], old: str, new: str, facts: list
) -> None:
    path = recorded / "metadata.json"
    path.write_text(path.read_text().replace(old, new))
    capsys.readouterr()
    assert main(["verify", str(recorded)]) == 4
    err = capsys.readouterr().err
    assert_names(err, *facts)
    assert "metadata.json" in err
    path.unlink()
    assert main(["verify", str(recorded)]) == 2


@pytest.mark.parametrize(
    ("key", "value"),
    [("examples", "6"), ("bytes", None), ("sha256", 7), ("file", 1), ("bytes", True)],
)
def test_metadata_of_a_wrong_kind_do_not_verify(
    recorded: Path, capsys: pytest.CaptureFixture[str], key: str, value: object
) -> None:
    path = recorded / "metadata.json"
    values = json.loads(path.read_text())
    values["splits"]["records"]["shards"][1][key] = value
    path.write_text(json.dumps(values))
    capsys.readouterr()
    assert main(["verify", str(recorded)]) == 4
    (line,) = capsys.readouterr().err.splitlines()
    assert_names(line, "metadata.json", "1", key)
    assert_names(line, repr(value))


@pytest.mark.parametrize("number", ["0", "-1"])
def test_show_needs_at_least_one_example(
    recorded: Path, capsys: pytest.CaptureFixture[str], number: str
) -> None:
    with pytest.raises(SystemExit) as raised:
        main(["show", str(recorded), "-n", number])
    assert raised.value.code == 2
    assert_names(capsys.readouterr().err, "-n", number)


def test_a_folder_that_cannot_be_listed_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_corpus(tmp_path / "in", clips=10)
    monkeypatch.chdir(tmp_path / "in")
    for _ in range(21):  # a path that is too long, for the owner of all files, too
        os.mkdir("z" * 200)
        os.chdir("z" * 200)
    monkeypatch.chdir(tmp_path)
    places = f"--input {tmp_path}/in --output {tmp_path}/out --win-len 500".split()
    for dashes in ([], ["--", "--runner=FnApiRunner"]):
        assert main(["record", *places, *dashes]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert "/zzz" in line
        assert_names(line, os.strerror(errno.ENAMETOOLONG))
    assert not (tmp_path / "out").exists()


def test_a_link_to_itself_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path / "in", clips=1)
    (tmp_path / "in" / "loop.wav").symlink_to("loop.wav")
    places = f"--input {tmp_path}/in --output {tmp_path}/out --win-len 500".split()
    assert main(["record", *places]) == 3
    assert_names(capsys.readouterr().err, "loop.wav")
    assert main(["record", *places, "--max-rejected", "1"]) == 0


@pytest.mark.parametrize(
    ("arguments", "facts"),
    [
        (["record", "--win-lne", "5"], ["--win-len"]),
        (["record", "more"], ["more"]),
        (["record", "--runner=DirectRunner"], ["--runner", "--"]),
        (["record", "--tail", "cut"], ["--tail", "cut"]),
        (["record", "--shard-bytes", "many"], ["--shard-bytes", "many"]),
        (["record", "--hop", "x"], ["--hop", "x"]),
        (["recrod"], ["recrod", "record"]),
    ],
)
def test_wrong_usage_ends_with_2(
    arguments: list[str], facts: list, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = ["--input", "x", "--output", "y"] if arguments[0] == "record" else []
    with pytest.raises(SystemExit) as raised:
        main([*arguments, *needed])
    assert raised.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert_names(line, *facts, "--help")


def test_errors_are_one_paragraph_with_their_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    assert main(["record", *places, "--win-len", "500"]) == 2
    assert_names(capsys.readouterr().err, tmp_path / "in")
    write_corpus(tmp_path / "in")
    (tmp_path / "in" / "cat" / "bad.wav").write_text("no sound")
    assert main(["record", *places, "--win-len", "500"]) == 3
    err = capsys.readouterr().err
    assert "cat/bad.wav" in err
    assert_names(err, "--max-rejected", "1")
    assert "Traceback" not in err
    assert main(["record", *places, "--win-len", "500", "--max-rejected", "1"]) == 0
    with pytest.raises(SystemExit) as raised:
        main(["record", *places, "--win-len", "500", "--hop", "0"])
    assert raised.value.code == 2
    assert main(["show", str(tmp_path / "in")]) == 2
    assert_names(capsys.readouterr().err, "metadata.json")
    assert main(["plan", *places[:2], "--win-len", "500"]) == 3
    assert "cat/bad.wav" in capsys.readouterr().out


def test_advice_is_spelled_as_flags(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path / "in")
    write_sound(tmp_path / "in" / "cat" / "short.wav", 499)
    places = ["--input", str(tmp_path / "in"), "--output", str(tmp_path / "out")]
    assert main(["plan", *places[:2], "--win-len", "500"]) == 3
    assert_names(capsys.readouterr().out, "499", "--tail", "pad")
    assert main(["record", *places, "--win-len", "500"]) == 3
    assert_names(capsys.readouterr().err, "499", "--tail", "pad")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("plan --input in --win-len 500 --hop-seconds 1 --hop 5", "--hop and --hop-"),
        ("show out --input in", "--input: needs --save-wav"),
    ],
)
def test_errors_name_the_flags_of_their_command(
    recorded: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: str,
    said: str,
) -> None:
    monkeypatch.chdir(recorded.parent)
    words = [recorded.name if w == "out" else w for w in arguments.split()]
    assert main(words) == 2
    error = capsys.readouterr().err
    assert error.startswith("audio-tfrecords: ")
    assert said in error
    assert "`" not in error


@pytest.mark.parametrize("scheme", ["az", "http", "ftp", "foo", "file"])
def test_an_unknown_scheme_is_wrong_usage(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], scheme: str
) -> None:
    write_corpus(tmp_path / "in", clips=1)
    remote, inside, out = f"{scheme}://host/x", str(tmp_path / "in"), tmp_path / "out"
    window = ["--win-len", "500"]
    for arguments in (
        ["record", "--input", remote, "--output", str(out), *window],
        ["record", "--input", f"{remote}/*.wav", "--output", str(out), *window],
        ["record", "--input", inside, "--output", remote, *window],
        ["record", *f"--input {inside} --output {out} --work-dir {remote}".split(),
         *window],
        ["plan", "--input", remote, *window],
        ["show", remote],
        ["status", remote],
        ["verify", remote],
    ):  # fmt: skip
        assert main(arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert f"{remote}" in line
        assert_names(line, scheme)
        for known in ("gs://", "s3://"):
            assert known in line
    assert not out.exists()


def test_a_file_system_that_is_not_installed_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "hdfs://host/x"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert_names(line, "hdfs://")


def test_debug_shows_where_an_error_comes_from(tmp_path: Path) -> None:
    result = run("plan", "--input", tmp_path / "no", "--win-len", "5", "--debug")
    assert result.returncode == 1
    assert "Traceback" in result.stderr


def test_a_recipe_from_a_file_and_from_a_data_set(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("win-len: 500\nelements_per_file: 10\n")
    for number, path in enumerate((recipe, recorded / "metadata.json")):
        out = tmp_path / f"again{number}"
        places = ["--input", str(tmp_path / "in"), "--output", str(out)]
        assert main(["record", *places, "--recipe", str(path)]) == 0
        made, before = Metadata.load(out), Metadata.load(recorded)
        assert [*made.shards()] == [*before.shards()]
        # The recipe of a data set brings its classes; all else is equal.
        found = [*before.classes] if number else None
        assert made.recipe == before.recipe.replace(classes=found)
        assert replace(made, recipe=before.recipe) == before
    recipe.write_text("win_len: 500\nshard-bytes: 1MiB\nchannels: '0'\n")
    out = str(tmp_path / "units")
    places = ["--input", str(tmp_path / "in"), "--output", out]
    assert main(["record", *places, "--recipe", str(recipe)]) == 0
    made = Metadata.load(out).recipe
    assert (made.shard_bytes, made.channels) == (1 << 20, 0)
    recipe.write_text("win_len: 500\nshard_bytes: many\n")
    assert main(["plan", *places[:2], "--recipe", str(recipe)]) == 2
    assert_names(capsys.readouterr().err, "shard_bytes", "many")
    recipe.write_text("win_lne: 500\n")
    out = str(tmp_path / "wrong")
    places = ["--input", str(tmp_path / "in"), "--output", out]
    assert main(["record", *places, "--recipe", str(recipe)]) == 2
    assert "win_lne" in capsys.readouterr().err


def test_a_transform_in_the_current_folder_is_found(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in", classes=("cat",))
    (tmp_path / "mine.py").write_text("def half(windows):\n    return windows / 2\n")
    places = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    result = run(
        *["record", *places, "--win-len", "500", "--feature", "h=mine.half"],
        cwd=tmp_path,
    )
    assert result.returncode == 0, result.stderr
    assert (
        "h" in json.loads((tmp_path / "out" / "metadata.json").read_text())["features"]
    )


def test_help_and_version_need_no_heavy_library(tmp_path: Path) -> None:
    code = (
        "import sys; from beam_pipeline.cli.main import main\n"
        "try: main(['record', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'pyarrow', 'apache_beam', 'tensorflow', 'email',"
        " 'http.client') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.rstrip().endswith("[]")
    assert run("--version").stdout.strip() == __version__
    for command in COMMANDS:
        shown = run(command, "--help").stdout
        examples = shown.rpartition("\nexample")[2].splitlines()[1:]
        assert examples[0].startswith(f"  audio-tfrecords {command}")


def test_convert_prints_what_it_did(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Metadata.load(str(recorded)).splits["records"].examples
    capsys.readouterr()
    command = (
        f"convert {recorded} {tmp_path}/new --features signal,target --num-shards 3 "
        "--splits a=.5,b=.5 --group-by target --seed 1 --workers 1"
    )
    assert main(command.split()) == 0
    said = capsys.readouterr()
    metadata = Metadata.load(str(tmp_path / "new"))
    counts = [entry.examples for entry in metadata.splits.values()]
    assert sum(counts) == before
    assert_names(said.out, "a", "b", *counts, "signal", "target", tmp_path / "new")
    assert "complete" in said.out
    assert main(["convert", str(recorded), str(tmp_path / "new")]) == 2
    assert_names(capsys.readouterr().err, "--overwrite", tmp_path / "new")
    assert main([*command.split(), "--overwrite"]) == 0


def test_convert_counts_the_files_that_it_ignores(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (recorded / "metadata.json").unlink()
    (recorded / "notes.txt").write_text("")
    command = ["convert", str(recorded), str(tmp_path / "new"), "--shard-bytes", "9kB"]
    assert main([*command, "--dtypes", "fs=int32,target=int16"]) == 0
    assert_names(capsys.readouterr().out, f"{recorded}: 5", "int16")


def test_convert_spells_options_as_flags(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong: list[tuple[str, list[object]]] = [
        ("--features sginal", ["--features", "signal"]),
        ("--group-by fs", ["--group-by", "--splits"]),
        ("--schema x", ["--schema"]),
        ("--dtypes fs", ["--dtypes", "fs"]),
        ("--num-shards 0", ["--num-shards", 0]),
        ("--num-shards 1 --elements-per-file 1",
         ["--num-shards", "--elements-per-file"]),
        ("-- --x=1", ["--runner"]),
    ]  # fmt: skip
    for flags, facts in wrong:
        capsys.readouterr()
        arguments = ["convert", str(recorded), str(tmp_path / "new"), *flags.split()]
        try:
            status = main(arguments)
        except SystemExit as error:
            status = error.code
        assert status == 2
        assert_names(capsys.readouterr().err, *facts)
        assert not (tmp_path / "new").exists()


HOSTILE = (
    "numpy", "isal", "soundfile", "pyarrow", "google_crc32c", "threadpoolctl", "scipy",
    "tensorflow", "apache_beam", "matplotlib", "obstore", "tqdm", "json", "colorsys",
)  # fmt: skip


@pytest.mark.parametrize(
    "program",
    [
        [Path(sys.executable).with_name("audio-tfrecords")],
        [sys.executable, "-m", "beam_pipeline"],
    ],
    ids=["script", "module"],
)
def test_modules_in_the_current_folder_never_run(
    recorded: Path, tmp_path: Path, program: list
) -> None:
    hostile = tmp_path / "hostile"
    hostile.mkdir()
    for name in HOSTILE:
        (hostile / f"{name}.py").write_text("print('it runs')\nraise SystemExit(99)\n")
    for arguments in (
        ["show", recorded, "-n", "1"],
        ["verify", recorded],
        ["audit", recorded],
        ["status", recorded],
        ["index", recorded],
        ["transforms", "fft"],
        ["plan", "--input", tmp_path / "in", "--win-len", "500"],
    ):
        environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
        result = subprocess.run(
            [*program, *map(str, arguments)],
            capture_output=True, text=True, check=False, cwd=hostile, env=environment,
        )  # fmt: skip
        assert result.returncode == 0, result.stderr
        assert "it runs" not in result.stdout


def test_installed_modules_come_before_those_in_the_current_folder(
    tmp_path: Path,
) -> None:
    (tmp_path / "numpy.py").write_text("def halve(windows):\n    return windows / 2\n")
    result = run("transforms", "numpy.halve", cwd=tmp_path)
    assert result.returncode == 2
    assert "numpy has no halve" in result.stderr


def test_windows_sums_up_and_lists_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_corpus(tmp_path / "in", frames=1000)
    write_sound(tmp_path / "in" / "owl" / "last.wav", 800)
    silence = np.zeros(1200, np.float32)
    soundfile.write(tmp_path / "in" / "owl" / "silent.wav", silence, RATE)
    out = tmp_path / "out"
    arguments = ["--input", str(tmp_path / "in"), "--output", str(out)]
    more = "--win-len 500 --hop 250 --tail pad --keep energy"
    assert main(["record", *arguments, *more.split()]) == 0
    header, line, *_ = capsys.readouterr().out.splitlines()
    assert "clips without one" in header
    assert "seconds of audio" in header
    assert line.split()[1:4] == ["51", "14", "1"]

    assert main(["windows", str(out)]) == 0
    header, line, _, ranks, levels = capsys.readouterr().out.splitlines()
    assert "left out: keep" in header
    assert line.split()[:5] == ["records", "55", "4", "51", "1"]
    assert ranks.split()[-2:] == ["99", "%"]
    assert levels.split()[1] == "-inf"
    assert -20 < float(levels.split()[-1]) < 0

    assert main(["windows", str(out), "--csv", "--where", "left_out == 'keep'"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert [row["path"] for row in rows] == ["owl/silent.wav"] * 4
    assert {(row["record"], row["shard"], row["level_db"]) for row in rows} == {
        ("", "", "-inf")
    }
    assert main(["windows", str(out), "--csv"]) == 0
    rows = list(csv.DictReader(capsys.readouterr().out.splitlines()))
    assert len(rows) == 55
    kept = [row["record"] for row in rows if not row["left_out"]]
    assert kept == [str(k) for k in range(51)]
    assert main(["windows", str(out), "--split", "records"]) == 2
    assert_names(capsys.readouterr().err, "--split", "--csv")
