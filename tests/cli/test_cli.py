"""The command line, by its output and exit status."""

import csv
import errno
import os
import re
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline import Metadata, __version__, record
from beam_pipeline.cli.main import COMMANDS, main
from beam_pipeline.cli.parser import make_parser, parse_command
from beam_pipeline.errors import InputError
from tests.processes import run_python
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_corpus, write_samples, write_sound


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cli") / "in"
    write_corpus(folder)
    return folder


@pytest.fixture(scope="module")
def whole(sounds):
    out = sounds.parent / "out"
    words = "--win-len 500 --elements-per-file 10"
    command = ["record", "--input", str(sounds), "--output", str(out)]
    assert main([*command, *words.split()]) == 0
    return out


@pytest.fixture
def folder(whole, tmp_path):
    """A copy, to be damaged."""
    return Path(shutil.copytree(whole, tmp_path / "out"))


# record and plan


def test_plan_counts_as_record_does_and_writes_nothing(sounds, tmp_path, cli):
    options = ["--input", sounds, "--win-len", 500, "--elements-per-file", 10]
    planned = cli("plan", *options).out
    assert os.listdir(tmp_path) == []
    out = cli("record", *options, "--output", tmp_path / "out").out
    assert_names(out, "12 clips", "0 rejected", "complete")
    split = Metadata.load(tmp_path / "out").splits["records"]
    seconds = f"{split.seconds:.2f}"  # of audio: windows neither overlap nor pad
    counts = [str(split.examples), "12", seconds, str(len(split.shards))]
    for text, wanted in ((planned, [*counts[:3], *counts[2:]]), (out, counts)):
        line = next(s for s in text.splitlines() if s.startswith("records"))
        assert line.split()[1 : len(wanted) + 1] == wanted


def test_errors_are_one_paragraph_with_their_status(tmp_path, cli):
    """Advice is spelled as flags, and each file is named."""
    places = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    places += ["--win-len", 500, "--short-clips", "reject"]
    write_corpus(tmp_path / "in")
    write_sound(tmp_path / "in" / "cat" / "short.wav", 499)
    (tmp_path / "in" / "cat" / "bad.wav").write_text("no sound")
    (tmp_path / "in" / "loop.wav").symlink_to("loop.wav")
    error = cli("record", *places, status=3).err
    assert_names(error, "cat/bad.wav", "loop.wav", "499", "--tail", "pad")
    assert_names(error, "--max-rejected", "3")
    assert "Traceback" not in error
    told = cli("plan", *places[:2], *places[4:], status=3).out
    assert_names(told, "cat/bad.wav", "499", "--tail", "pad")
    cli("record", *places, "--max-rejected", 3)
    with raises(InputError, naming=tmp_path / "no"):
        main(["plan", "--input", str(tmp_path / "no"), "--win-len", "5", "--debug"])


def test_names_break_no_line_of_a_plan(tmp_path, cli):
    write_sound(tmp_path / "in" / "two\nlines" / "a.wav", 600)
    (tmp_path / "in" / "bad\nname.wav").write_text("no sound")
    places = ["--input", tmp_path / "in", "--win-len", 500, "--max-rejected", 1]
    lines = cli("plan", *places).out.splitlines()
    assert [line for line in lines if line.startswith("two\\nlines ")]
    assert [line for line in lines if line.startswith("  bad\\nname.wav: ")]


def test_a_folder_that_cannot_be_listed_is_named(tmp_path, cli, monkeypatch):
    write_corpus(tmp_path / "in", clips=1)
    monkeypatch.chdir(tmp_path / "in")
    for _ in range(21):  # a path that is too long, for the owner of all files, too
        os.mkdir("z" * 200)
        os.chdir("z" * 200)
    monkeypatch.chdir(tmp_path)
    for dashes in ([], ["--", "--runner=FnApiRunner"]):
        words = "record --input in --output out --win-len 500"
        (line,) = cli(*words.split(), *dashes, status=2).err.splitlines()
        assert "/zzz" in line
        assert_names(line, os.strerror(errno.ENAMETOOLONG))
    assert not (tmp_path / "out").exists()


def test_a_recipe_from_a_file(sounds, whole, tmp_path, cli):
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text("win-len: 500\nelements_per_file: 10\n")
    words = ["record", "--input", sounds, "--output", tmp_path / "again"]
    cli(*words, "--recipe", recipe)
    assert Metadata.load(tmp_path / "again") == Metadata.load(whole)
    for text, fact in (("shard_bytes: many", "shard_bytes"), ("win_lne: 5", "win_lne")):
        recipe.write_text(f"win_len: 500\n{text}\n")
        error = cli("plan", "--input", sounds, "--recipe", recipe, status=2).err
        assert_names(error, fact)


# show and windows


def test_show_prints_and_draws(whole, sounds, tmp_path, cli):
    picture = tmp_path / "examples.png"
    printed = cli("show", whole, "-n", 2, "--plot", picture).out
    assert f"drawn: {picture}" in printed
    assert printed.count("filepath") == 2
    assert "float32 (500,)" in printed
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert_names(
        cli("show", whole, "--split", "train", status=2).err, "train", "records"
    )
    assert_names(cli("show", tmp_path, status=2).err, "metadata.json")
    # The split for training comes first, or else the largest.
    for splits, wanted in (("dev=1,train=1", "train"), ("a=.3,b=.7", "b")):
        out = tmp_path / wanted
        record(sounds, out, win_len=500, splits=splits, workers=1)
        text = cli("show", out, "-n", 1).out
        assert text.startswith(f"example 0 of {wanted}\n")


def test_show_chooses_by_clip_and_condition(whole, cli):
    def shown(*flags):
        lines = cli("show", whole, "-n", 2, *flags).out.splitlines()
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
        assert_names(cli("show", whole, *flags, status=2).err, *names)


def test_windows_sums_up_and_lists_them(tmp_path, cli, monkeypatch):
    write_corpus(tmp_path / "in", frames=1000)
    write_sound(tmp_path / "in" / "owl" / "last.wav", 800)
    silence = np.zeros(1200, np.float32)
    write_samples(tmp_path / "in" / "owl" / "silent.wav", silence, RATE)
    monkeypatch.chdir(tmp_path)
    words = "record --input in --output out --win-len 500 --hop 250 --tail pad"
    header, line, *_ = cli(*words.split(), "--keep=energy").out.splitlines()
    assert_names(header, "windows left out", "seconds of examples")
    assert line.split()[1:3] == ["51", "14"]
    windows = ["windows", tmp_path / "out"]
    header, line, _, ranks, levels = cli(*windows).out.splitlines()
    assert "left out: keep" in header
    assert line.split()[:5] == ["records", "55", "4", "51", "1"]
    assert ranks.split()[-2:] == ["99", "%"]
    assert levels.split()[1] == "-inf"
    assert -20 < float(levels.split()[-1]) < 0

    def listed(*flags):
        text = cli(*windows, "--csv", *flags).out
        return list(csv.DictReader(text.splitlines()))

    out = listed("--where", "left_out == 'keep'")
    assert [row["path"] for row in out] == ["owl/silent.wav"] * 4
    places = {(row["record"], row["shard"], row["level_db"]) for row in out}
    assert places == {("", "", "-inf")}
    assert len(listed()) == 55
    error = cli(*windows, "--split", "records", status=2).err
    assert_names(error, "--split", "--csv")


# convert


def test_convert_prints_what_it_did(folder, tmp_path, cli):
    new = tmp_path / "new"
    flags = (
        "--features signal,target --num-shards 3 --splits a=.5,b=.5 --group-by path "
        "--seed 1 --workers 1"
    )
    command = ["convert", folder, new, *flags.split()]
    out = cli(*command).out
    counts = [entry.examples for entry in Metadata.load(new).splits.values()]
    assert sum(counts) == Metadata.load(folder).splits["records"].examples
    assert_names(out, "a", "b", *counts, "signal", "target", new, "complete")
    assert_names(cli("convert", folder, new, status=2).err, "--overwrite", new)
    (folder / "metadata.json").unlink()
    (folder / "notes.txt").write_text("")
    words = "--overwrite --shard-bytes 9kB --dtypes fs=int32,target=int16"
    out = cli("convert", folder, new, *words.split()).out
    assert_names(out, f"{folder}: 5", "int16")


# The parser


NEEDED = "--input x --output y"


# What the parser refuses, which then names --help.
WRONG_USAGE = [
    # A misspelt flag is named before a missing one.
    ("record --inptu sounds --output o", ["--inptu", "--input"]),
    ("record --outptu=o", ["--outptu", "--output"]),
    ("plan --win-lenght 3", ["--win-lenght", "--win-len"]),
    ("show records --plto x.png", ["--plto", "--plot"]),
    ("recrod --input sounds", ["recrod", "record"]),
    ("record --runner=DirectRunner", ["--runner", "--"]),
    ("record --split-moves a=9k3XnQ2b", ["--split-moves"]),
    ("record --output y", ["--input"]),
    (f"record {NEEDED} more", ["more", "flag", "wildcards"]),
    (f"record {NEEDED} --tail cut", ["--tail", "cut"]),
    (f"record {NEEDED} --shard-bytes many", ["--shard-bytes", "many"]),
    (f"record {NEEDED} --hop x", ["--hop", "x"]),
    (f"record {NEEDED} --hop 0", ["--hop", "0"]),
    ("show out -n 0", ["-n", "0"]),
]


def test_values_may_look_like_anything():
    words = ["plan", "--input", "a--b", "--label-from", "(--x)", "--seed", "-3"]
    words += ["--encoding=a=png", "--encoding=b=a=b", "--encoding=c="]
    assert parse_command(COMMANDS, words).options == {
        "label_from": "(--x)", "seed": -3,
        "encodings": {"a": "png", "b": "a=b", "c": ""},
    }  # fmt: skip


@pytest.mark.parametrize(("arguments", "facts"), [
    *((words, [*facts, "--help"]) for words, facts in WRONG_USAGE),
    ("plan --input x --win-len 5 --hop-seconds 1 --hop 5", ["--hop and --hop-"]),
    ("show out -- --x", ["--x"]),
    ("plan --input x --win-len 5 -- --foo", ["--runner", "--foo"]),
    ("plan --input x --win-len 5 -- --runner=DirectRunner --foo", ["--foo"]),
    ("plan --input WHOLE/../in --win-seconds 1e9", ["--win-seconds", 1e9]),
    ("plan --input WHOLE/metadata.json --win-len 5", ["metadata.json", ".jsonl"]),
    ("verify WHOLE --repair --deep", ["--repair", "--deep"]),
    ("report WHOLE --output WHOLE/metadata.json/x.html", ["metadata.json", "path"]),
    ("report WHOLE --output /proc/x/y.html", ["/proc/x/y.html", "path"]),
    *((f"record --input WHOLE/../in --output new --win-len 5 --report {page}",
       [page.removeprefix("WHOLE/")])
      for page in ("WHOLE/metadata.json/x.html", f"{'x' * 300}.html")),
    ("show WHOLE --plot WHOLE/metadata.json/x.png", ["metadata.json", "path"]),
    ("show WHOLE --where 3", ["--where", "true or false"]),
    ("audit WHOLE --write-manifest WHOLE/metadata.json/x.csv", ["metadata.json"]),
    ("plan --input x --feature png", ["--feature", "NAME", "'png'"]),
    ("plan --input x --feature =png", ["--feature", "NAME", "'=png'"]),
    ("plan --input x --encoding a-b=png", ["--encoding", "NAME", "'a-b=png'"]),
    ("plan --input x --encoding a=b --encoding a=b", ["--encoding", "twice"]),
    ("convert WHOLE new --group-by fs", ["--group-by", "--splits"]),
    ("convert WHOLE new --dtypes fs", ["--dtypes", "fs"]),
    ("convert WHOLE new --num-shards 0", ["--num-shards", 0]),
    ("convert WHOLE new --num-shards 1 --elements-per-file 1",
     ["--num-shards", "--elements-per-file"]),
])  # fmt: skip
def test_errors_name_the_flags_of_their_command(
    whole, tmp_path, monkeypatch, cli, arguments, facts
):
    monkeypatch.chdir(tmp_path)
    words = [word.replace("WHOLE", str(whole)) for word in arguments.split()]
    error = cli(*words, status=2).err
    assert error.startswith("audio-tfrecords")
    assert "`--" not in error or "Beam" in error
    assert_names(error, *facts)
    assert os.listdir() == []


@pytest.mark.parametrize("words", [
    "record --input az://host/x --output out --win-len 500",
    "record --input az://host/x/*.wav --output out --win-len 500",
    "record --input in --output file://host/x --win-len 500",
    "record --input in --output out --work-dir file://host/x --win-len 500",
    "plan --input az://host/x --win-len 500",
    *(f"{command} az://host/x" for command in ("show", "status", "verify")),
])  # fmt: skip
def test_an_unknown_scheme_is_wrong_usage(tmp_path, monkeypatch, cli, words):
    monkeypatch.chdir(tmp_path)
    write_corpus(tmp_path / "in", clips=1)
    (line,) = cli(*words.split(), status=2).err.splitlines()
    (remote,) = (word.removesuffix("/*.wav") for word in words.split() if ":" in word)
    assert_names(line, remote, remote.partition(":")[0], "gs://", "s3://")
    assert os.listdir() == ["in"]
    (line,) = cli("status", "hdfs://host/x", status=2).err.splitlines()
    assert_names(line, "hdfs://")  # it is not installed


def test_a_current_folder_that_was_deleted(tmp_path, monkeypatch, cli):
    write_sound(tmp_path / "in" / "a.wav", 600)
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    words = ["--input", tmp_path / "in", "--win-len", 500, "--workers", 1]
    cli("record", "--output", tmp_path / "out", *words)


def test_help_and_version_need_no_heavy_library(cli):
    code = (
        "import sys; from beam_pipeline.cli.main import main\n"
        "try: main(['record', '--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('numpy', 'pyarrow', 'apache_beam', 'tensorflow', 'email',"
        " 'http.client', 'beam_pipeline.storage') if m in sys.modules])"
    )
    result = run_python("-c", code)
    assert result.stdout.rstrip().endswith("[]")
    assert cli("--version").out.strip() == __version__
    for name, parser in make_parser(COMMANDS, everything=False)[1].items():
        examples = parser.format_help().rpartition("\nexample")[2].splitlines()[1:]
        assert examples[0].startswith(f"  audio-tfrecords {name}")


def test_help_of_a_first_day_has_no_empty_sections(cli):
    text = cli("record", "--help").out
    titles = re.findall(r"^([a-z][a-z ]*):$", text, re.MULTILINE)
    assert "labels" in titles
    assert "columns" not in titles
    assert "\ncolumns:\n" in cli("record", "--help-all").out


# Modules of the current folder


HOSTILE = (
    "numpy", "isal", "soundfile", "pyarrow", "google_crc32c", "threadpoolctl", "scipy",
    "tensorflow", "apache_beam", "matplotlib", "obstore", "tqdm", "json", "colorsys",
)  # fmt: skip
SCRIPT = [Path(sys.executable).with_name("audio-tfrecords")]


@pytest.mark.parametrize(
    ("program", "command"), [(SCRIPT, "show"), (["-m", "beam_pipeline"], "record")]
)
def test_modules_in_the_current_folder(sounds, whole, tmp_path, program, command):
    """A transform there is found; what has the name of another module never runs."""
    for name in HOSTILE:
        (tmp_path / f"{name}.py").write_text("print('it runs')\nraise SystemExit(99)\n")
    (tmp_path / "mine.py").write_text("def half(windows):\n    return windows / 2\n")
    words = [command, whole]
    if command == "record":
        words = ["record", "--input", sounds, "--output", tmp_path / "out"]
        words += ["--win-len", "500", "--feature", "h=mine.half"]
    assert "it runs" not in run_python(*program, *words, cwd=tmp_path).stdout
    if command == "record":
        assert "h" in Metadata.load(tmp_path / "out").features
