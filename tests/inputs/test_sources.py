"""sources.py on real folders, with names as people give them."""

import os
import sys

import pytest

from beam_pipeline import plan
from beam_pipeline.audio.formats import is_audio_name
from beam_pipeline.errors import DataSetWarning, InputError
from beam_pipeline.inputs.columns import SourceRow, label_of
from beam_pipeline.inputs.listing import Listing, survey
from beam_pipeline.inputs.sources import (
    FOLDER,
    GLOB,
    LIST,
    Input,
    locate,
    resolve_input,
    resolve_inputs,
)
from beam_pipeline.recipe.recipe import Recipe
from tests.raising import assert_names, raises
from tests.sounds import write_sound

linux = pytest.mark.skipif(
    sys.platform != "linux", reason="only Linux takes any bytes as a name"
)


def listed(inputs, label_from):
    recipe = Recipe(win_len=1, label_from=label_from)
    return list(Listing(survey(inputs, recipe), recipe).rows())


def row_of(row, source, filepath, label, problem=None):
    """A row that is its own group."""
    return SourceRow(row, source, filepath, label, problem, group=filepath, file=row)


def touch(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).touch()


def names_of(*texts, label_from="none"):
    """The names that are listed, in order."""
    inputs = resolve_inputs([str(text) for text in texts])
    rows = listed(inputs, label_from)
    assert [row.row for row in rows] == list(range(len(rows)))
    for row in rows:
        assert os.path.lexists(locate(inputs, row.source, row.filepath))
    return [row.filepath for row in rows]


def rows_of(*texts, label_from="folder"):
    return list(listed(resolve_inputs([str(t) for t in texts]), label_from))


# Folders


def test_folders_are_walked_in_the_order_of_names(tmp_path):
    touch(tmp_path, "b/2.wav", "b/10.wav", "b.wav", "a/z/1.wav", "a.wav", "a/b.wav",
          "B/1.wav", "ä.wav")  # fmt: skip
    (tmp_path / "empty.wav").mkdir()
    names = names_of(tmp_path)
    assert names == ["B/1.wav", "a.wav", "a/b.wav", "a/z/1.wav", "b.wav", "b/10.wav",
                     "b/2.wav", "ä.wav"]  # fmt: skip
    # Object stores list in this order, too.
    assert names == sorted(names, key=lambda name: name.encode())


@pytest.mark.parametrize(
    "name",
    ["a.wav", "a.WAV", "a.Flac", "a.b.mp3", "x/a.ogg", "a b.opus", "a#1.aiff",
     "e\u0301.wav", "é.wav", "中/🐈.wav", "a\nb.wav", " a .wav", "a\\b.wav", "-x.wav"],
)  # fmt: skip
def test_an_audio_suffix_in_any_case_is_taken(tmp_path, name):
    touch(tmp_path, name)
    assert names_of(tmp_path) == [name]


@pytest.mark.parametrize(
    "name",
    ["a", "wav", ".wav", "a.", "a.txt", "a.wav.txt", "a.wave1", ".hidden.wav",
     "x/.hidden.wav", ".git/a.wav", "x/.git/a.wav", "x/._a.wav"],
)  # fmt: skip
def test_other_and_hidden_names_are_ignored(tmp_path, name):
    assert not is_audio_name(name)
    touch(tmp_path, name, "good.wav")
    recipe = Recipe(win_len=1)
    listing = Listing(survey(resolve_inputs([str(tmp_path)]), recipe), recipe)
    assert [row.filepath for row in listing.rows()] == ["good.wav"]
    assert listing.summary()[:2] == (1, 1)


@pytest.mark.parametrize(
    "folder", ["[a]", "a*b", "a?b", "[!x]", "{a,b}", "**", "a'b \"c"]
)
def test_glob_characters_in_names_are_literal(tmp_path, folder):
    touch(tmp_path, f"{folder}/[1]*?.wav", "a/decoy.wav", "axb/decoy.wav")
    assert names_of(tmp_path / folder) == ["[1]*?.wav"]
    assert names_of(tmp_path / folder / "[1]*?.wav") == ["[1]*?.wav"]
    assert f"{folder}/[1]*?.wav" in names_of(tmp_path)


@linux
def test_a_name_that_is_no_text_is_a_row_with_a_problem(tmp_path):
    touch(tmp_path, "a/good.wav")
    os.close(os.open(bytes(tmp_path / "a") + b"/b\xffd.wav", os.O_CREAT))
    bad, good = sorted(rows_of(tmp_path), key=lambda row: row.problem is None)
    assert good == row_of(good.row, 0, "a/good.wav", "a")
    assert bad.filepath == r"a/b\xffd.wav"
    assert_names(bad.problem, "UTF-8")
    assert bad.filepath.encode()


@pytest.mark.parametrize("encoding", ["ascii", "iso8859-1"])
def test_names_in_a_locale_without_utf_8(tmp_path, monkeypatch, encoding):
    """They would be other texts, and so other examples, than on other machines."""
    touch(tmp_path, "a/good.wav", "a/caf\N{LATIN SMALL LETTER E WITH ACUTE}.wav")
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: encoding)
    bad, good = sorted(rows_of(tmp_path), key=lambda row: row.problem is None)
    assert good.filepath == "a/good.wav"
    assert_names(bad.problem, encoding, "PYTHONUTF8=1")


# Links


def test_link_loops_end(tmp_path):
    touch(tmp_path, "a/x.wav", "b/y.wav")
    (tmp_path / "a" / "up").symlink_to(tmp_path)
    (tmp_path / "a" / "self").symlink_to(tmp_path / "a")
    (tmp_path / "b" / "over").symlink_to(tmp_path / "a")
    assert names_of(tmp_path) == ["a/x.wav", "b/over/x.wav", "b/y.wav"]


# Globs


@pytest.mark.parametrize(("pattern", "names"), [
    ("*.wav", ["1.wav", "2.wav"]), ("?.wav", ["1.wav", "2.wav"]),
    ("[1].wav", ["1.wav"]), ("a/*", ["3.wav", "4.txt"]),
    ("*/*.wav", ["a/3.wav", "b/5.wav"]), ("a/3*", ["3.wav"]),
    ("**.wav", ["1.wav", "2.wav", "a/3.wav", "a/c/6.wav", "b/5.wav"]),
    ("**/*.wav", ["a/3.wav", "a/c/6.wav", "b/5.wav"]),
])  # fmt: skip
def test_globs_take_every_file_that_matches(tmp_path, pattern, names):
    touch(tmp_path, "1.wav", "2.wav", "a/3.wav", "a/4.txt", "b/5.wav", "a/c/6.wav")
    assert names_of(tmp_path / pattern) == names


@pytest.mark.parametrize("name", ["empty", "nothing*", "no*/where.wav"])
def test_an_input_without_a_clip_is_named_beside_others(tmp_path, name):
    touch(tmp_path, "in/1.wav", "empty/notes.md")
    for texts in ([tmp_path / "in", tmp_path / name], [tmp_path / name]):
        with raises(InputError, naming=[tmp_path / name, "--input"]):
            names_of(*texts)


@pytest.mark.parametrize("pattern", ["gs://b/x/*.wav", "s3://b/x/a?.wav"])
def test_remote_globs_are_not_looked_for_first(pattern):
    folder = pattern.rpartition("/")[0]
    assert resolve_input(pattern) == Input(GLOB, pattern, folder)


# Files and lists


def test_a_list_names_files_beside_it_or_anywhere(tmp_path):
    touch(tmp_path, "a/1.wav", "b c.wav", "#3.wav", "elsewhere/2.raw")
    text = f"\ufeffa/1.wav\r\n\n  b c.wav  \n# a comment\n{tmp_path}/elsewhere/2.raw"
    (tmp_path / "list.txt").write_bytes(text.encode())
    assert resolve_input(str(tmp_path / "list.txt")).kind == LIST
    assert names_of(tmp_path / "list.txt") == [
        "a/1.wav",
        "b c.wav",
        f"{tmp_path}/elsewhere/2.raw",
    ]


@pytest.mark.parametrize("times", [1, 2, 3])
def test_a_file_that_a_list_names_again_is_a_row_with_a_problem(tmp_path, times):
    (tmp_path / "a.wav").touch()
    lines = ["x.wav", "y.wav", *["x.wav"] * (times - 1)]
    (tmp_path / "list.txt").write_text("\n".join(lines))
    problem = "is listed twice: first as clip 1, counted from 0"
    assert rows_of(tmp_path / "a.wav", tmp_path / "list.txt", label_from="none") == [
        row_of(0, 0, "a.wav", None),
        row_of(1, 1, "x.wav", None),
        row_of(2, 1, "y.wav", None),
        *(
            row_of(3 + i, 1, "x.wav", None, problem)._replace(file=1)
            for i in range(times - 1)
        ),
    ]


def test_a_file_is_one_however_lists_and_folders_spell_it(tmp_path):
    touch(tmp_path, "a/x.wav", "b/x.wav", "b/y.wav")
    lines = ["../b/y.wav", "./x.wav", "sub/../x.wav", f"{tmp_path}/b/x.wav"]
    (tmp_path / "a" / "list.txt").write_text("\n".join(lines))
    rows = rows_of(tmp_path / "b", tmp_path / "a" / "list.txt", label_from="none")
    assert [(row.filepath, row.file) for row in rows] == [
        ("x.wav", 0), ("y.wav", 1), ("../b/y.wav", 1), ("x.wav", 3), ("x.wav", 3),
        (f"{tmp_path}/b/x.wav", 0),
    ]  # fmt: skip
    assert [row.row for row in rows if row.problem is None] == [0, 1, 3]


# Several inputs


@pytest.mark.parametrize(
    ("first", "second"),
    [("in", "in"), ("in", "in/"), ("in", "in/sub"), ("in", "in/a.wav"),
     ("in", "in/*.wav"), ("in", "in/sub/*"), ("in/sub/..", "in/sub"), ("in", "link"),
     ("in/a.wav", "in/a.wav"), ("in/*.wav", "in/*.wav")],
)  # fmt: skip
def test_inputs_that_overlap_are_refused(tmp_path, first, second):
    touch(tmp_path, "in/a.wav", "in/sub/b.wav")
    (tmp_path / "link").symlink_to(tmp_path / "in")
    texts = [f"{tmp_path}/{first}", f"{tmp_path}/{second}"]
    for pair in (texts, texts[::-1]):
        with raises(InputError, naming=["--input", *map(os.path.normpath, pair)]):
            resolve_inputs(pair)


@pytest.mark.parametrize(("first", "second"), [
    ("in", "in2"), ("in2", "in"), ("in/sub", "in/a.wav"), ("in", "in/list.txt"),
])  # fmt: skip
def test_inputs_beside_each_other(tmp_path, first, second):
    touch(tmp_path, "in/a.wav", "in/sub/b.wav", "in2/a.wav", "in/list.txt")
    assert len(resolve_inputs([f"{tmp_path}/{first}", f"{tmp_path}/{second}"])) == 2


@pytest.mark.parametrize("name", ["nowhere", "a.wav/b", "", "x.txt"])
def test_nothing_there(tmp_path, name):
    (tmp_path / "a.wav").touch()
    text = f"{tmp_path}/no/{name}" if name != "a.wav/b" else f"{tmp_path}/{name}"
    with raises(InputError, naming=[text, "--input"]):
        resolve_input(text)


def test_relative_paths_and_home_are_made_absolute(tmp_path, monkeypatch):
    touch(tmp_path, "in/a.wav")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    wanted = Input(FOLDER, f"{tmp_path}/in", f"{tmp_path}/in")
    assert [resolve_input(t) for t in ("in", "./in/", "~/in", "in/../in")] == [
        wanted
    ] * 4


# Classes


@pytest.mark.parametrize(("label_from", "filepath", "label"), [
    ("folder", "sea/tug/01.wav", "tug"), ("folder", "tug/01.wav", "tug"),
    ("folder", "01.wav", "root"), ("folder", "a b/x.wav", "a b"),
    ("name", "12_24346_tug.wav", "tug"), ("name", "x_y/1_2.b_cat.wav", "cat"),
    ("name", "_cat", "cat"), (r"(?P<class>\d)_", "7_theo_3.wav", "7"),
    (r"^(?P<class>[^/]+)/", "sea/tug/01.wav", "sea"),
    (r"(?P<class>täg)", "x/täg.wav", "täg"), ("none", "sea/tug/01.wav", None),
])  # fmt: skip
def test_classes_are_read_off_names(label_from, filepath, label):
    assert label_of(label_from, filepath, "/data/root/") == label


@pytest.mark.parametrize(("label_from", "filepath", "fact"), [
    ("name", "a_b/cat.wav", "--label-from"), ("name", "cat_.wav", "--label-from"),
    (r"(?P<class>\d)", "cat.wav", r"(?P<class>\d)"),
    (r"x(?P<class>\d*)", "x.wav", r"x(?P<class>\d*)"),
    (r"x|(?P<class>\d)", "x.wav", r"x|(?P<class>\d)"),
])  # fmt: skip
def test_a_name_without_a_class_is_a_row_with_a_problem(label_from, filepath, fact):
    with raises(ValueError, naming=fact):
        label_of(label_from, filepath, "/data")


# Layouts of folders that the docs show


BY_PART = r"^(?P<class>[^/]+)/(?P<part>[^/]+)/"
BY_SPEAKER = r"^(?P<class>[^/]+)/(?P<speaker>[^/]+)/"
CLASSES = ("owl", "tit")


@pytest.mark.parametrize(
    ("names", "inputs", "options", "splits"),
    [
        (["owl/1", "tit/2"], {}, {}, ["records"]),
        (
            ["train/owl/1", "train/tit/2", "test/owl/3", "test/tit/4"],
            {"train": "train", "test": "test"}, {}, ["test", "train"],
        ),
        (
            ["owl/train/1", "tit/train/2", "owl/test/3", "tit/test/4"],
            {}, {"label_from": BY_PART, "split_column": "part"}, ["test", "train"],
        ),
        (
            ["owl/ada/1", "owl/bob/2", "tit/ada/3", "tit/bob/4"], {},
            {"label_from": BY_SPEAKER, "splits": "a=.5,b=.5", "group_by": "speaker"},
            None,
        ),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings(f"ignore::{DataSetWarning.__module__}.DataSetWarning")
def test_layouts(tmp_path, names, inputs, options, splits):
    for name in names:
        write_sound(tmp_path / f"{name}.wav", 500)
    sources = {name: tmp_path / path for name, path in inputs.items()} or tmp_path
    summary, rejects = plan(sources, win_len=500, **options)
    assert list(rejects) == []
    assert summary.example_format.classes == CLASSES
    assert splits is None or sorted(summary.layouts) == splits
    assert sum(layout.total for layout in summary.layouts.values()) == len(names)
