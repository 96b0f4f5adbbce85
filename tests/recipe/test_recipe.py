"""Recipes: every check with its message, the value that they are, and their JSON."""

import hashlib
import inspect
import json
import math

import numpy as np
import pytest

from beam_pipeline import plan, record, write_template
from beam_pipeline.encodings import ENCODINGS
from beam_pipeline.errors import InputError, OptionError, RecipeError, UnknownOption
from beam_pipeline.recipe.canonical import read_recipe, split_options
from beam_pipeline.recipe.recipe import (
    DTYPES,
    ORDERS,
    RESERVED_NAMES,
    TAILS,
    Recipe,
    RunOptions,
    options_of,
    recipe_options,
)
from tests.raising import raises
from tests.sounds import write_sound

# Options with values of every kind, some of them in another form than their JSON.
RICH = {
    "label_from": r"(?P<speaker>[^/]+)/(?P<class>[a-zä]+)_",
    "classes": 'owl, tit,"gull, herring",käuzchen',
    "events": "{folder}/{stem}.txt",
    "event_targets": "class,multi_hot,mask:mel",
    "event_overlap": 1,
    "no_event": "tit",
    "column_names": "file,speaker,age",
    "columns": "none",
    "splits": "train=7,eval=2,test=1",
    "group_by": "speaker",
    "channels": 0,
    "stream": "high_pass(cutoff_hz=50.0)",
    "win_seconds": 1,
    "hop_seconds": 0.25,
    "copies": 2,
    "augment": "noise()",
    "features": {"signal": "identity()", "mel": "log_mel(n_mels=64)"},
    "encodings": {"mel": "tensor"},
    "decoder": ["pyav"],
    "loader": "my_files.load",
    "loader_suffixes": ".npy",
    "split_moves": "train=9k3XnQ2b",
    "shard_bytes": 1 << 26,
    "num_elems": 10**12,
    "seed": -(2**70),
}

WHOLE = (
    "sample_rate", "win_len", "hop", "max_windows", "elements_per_file", "shard_bytes",
    "num_shards", "num_elems",
)  # fmt: skip
FLAGS = (
    "random_starts", "allow_truncated", "allow_nonfinite", "mark_padding",
    "whole_clips", "stratify", "hash_files",
)  # fmt: skip
CHOICES = {"tail": TAILS, "order": ORDERS, "dtype": DTYPES}
SECONDS_OF = ("win_seconds", "hop_seconds")


def with_window(**options):
    """Options with a window, unless they say something of its length."""
    return options if {"win_len", "win_seconds"} & set(options) else {
        "win_len": 100, **options
    }  # fmt: skip


def expect_error(field, value, facts=(), **options):
    """The recipe is refused, naming the field, the value and some facts."""
    naming = [field, repr(value), *facts]
    with raises(RecipeError, field, value, naming=naming) as raised:
        Recipe(**options)
    assert raised.value.exit_status == 2


# Values

REFUSED = [
    *((name, value) for name in WHOLE for value in (0, -1, -(10**12))),
    *((n, value) for n in (*WHOLE, "seed") for value in (1.0, "1", True, [1], {})),
    *((n, value) for n in SECONDS_OF for value in (0, -0.5, math.inf, "1", [1], True)),
    *((name, value) for name in FLAGS for value in ("false", 1, 0, None)),
    *((n, value) for n in CHOICES for value in ("", "Drop", "pad ", None, 3)),
    *(("channels", value) for value in ("", "Mix", "0", -1, 1.0, True, None)),
    *(("label_from", value) for value in ("", None, 3)),
    *(("features", {name: "f()"}) for name in RESERVED_NAMES),
    *(("features", {n: "f()"}) for n in ("", "1a", "a b", "a-b", "a.b", "ä", "a\n")),
    *(("features", value) for value in (["a"], "log_mel()", None, 3)),
    *(("encodings", value) for value in ("png", ["signal"], None, 3)),
    *(("encodings", {name: "tensor"}) for name in RESERVED_NAMES),
    *(("event_overlap", value) for value in (-0.1, 1.1, "1")),
    *((n, v) for n in (*WHOLE, *SECONDS_OF) for v in (math.nan, np.bool_(True))),
    ("folds", 1),
    *(("decoder", value) for value in ("", "sox", "soundfile,soundfile")),
    ("loader_suffixes", ".npy"),
    ("delimiter", ",,"),
    ("splits", "rubbish"),
    ("classes", "x,y,x"),
]


@pytest.mark.parametrize(("name", "value"), REFUSED)
def test_values_that_are_refused(name, value):
    got = value
    if isinstance(value, dict) and value and name not in WHOLE:
        (got,) = value  # the name of a feature
    expect_error(name, got, CHOICES.get(name, ()), **with_window(**{name: value}))


def test_whole_numbers_may_be_those_of_numpy():
    recipe = Recipe(win_len=np.int64(500), channels=np.int32(1), seed=np.uint8(3))
    assert recipe == Recipe(win_len=500, channels=1, seed=3)
    assert type(recipe.win_len) is int


EVENTS = {"windows_at": "onsets", "events": "e.csv"}


@pytest.mark.parametrize(("options", "field", "facts"), [
    # Windows at events and at sounds are no grid.
    ({"windows_at": "", "events": "e.csv"}, "windows_at", ()),
    ({"windows_at": "events"}, "windows_at", ()), ({**EVENTS, "hop": 1}, "hop", ()),
    ({**EVENTS, "hop_seconds": 0.5}, "hop_seconds", ()),
    ({**EVENTS, "max_windows": 3}, "max_windows", ()),
    ({"windows_at": "peaks()", "hop": 1}, "hop", ()),
    ({"windows_at": "peaks", "tail": "pad"}, "tail", ()),
    ({"windows_at": "sounds()", "max_windows": 3}, "max_windows", ()),
    ({"windows_at": "sounds()", "win_len": "clip"}, "windows_at", ()),
    # One option decides.
    ({"hop": 2, "hop_seconds": 2.0}, "hop and hop_seconds", ()),
    ({"elements_per_file": 2, "shard_bytes": 2, "num_shards": 3},
     "elements_per_file and shard_bytes and num_shards", [2, 3]),
    # Whole clips have one window each.
    ({"win_len": "clip", "hop": 100}, "hop", ["`win_len` is clip", "100"]),
    ({"win_len": "clip", "win_seconds": 1.0}, "win_len and win_seconds", ()),
    ({"win_len": "clip", "events": "{stem}.txt"}, "win_len", "`events` is given"),
    ({"win_len": "clip", "short_clips": "pad"}, "short_clips", ()),
    ({"win_len": "klip"}, "win_len", ["whole number", "clip", "klip"]),
    # Limits of the length of clips.
    ({"min_seconds": 0}, "min_seconds", 0), ({"max_seconds": -1}, "max_seconds", -1),
    ({"min_seconds": 3, "max_seconds": 2}, "max_seconds", [2, "--min-seconds", 3]),
    ({"short_clips": "drop"}, "short_clips", ["drop", "skip"]),
])  # fmt: skip
def test_options_that_do_not_go_together(options, field, facts):
    with raises(RecipeError, field, naming=facts):
        Recipe(**{"win_len": 1, **options})


def test_a_window_has_a_length():
    expect_error("win_len or win_seconds", None)
    expect_error("win_len or win_seconds", None, hop=3)


@pytest.mark.parametrize("value", ["gif", "", "PNG", None, 3, ["png"]])
def test_encodings_that_do_not_exist(value):
    with raises(RecipeError, "encodings: signal", value, naming=[*ENCODINGS]):
        Recipe(win_len=1, encodings={"signal": value})
    with raises(RecipeError, "features: a"):
        Recipe(win_len=1, features={"a": 3})


@pytest.mark.parametrize(("features", "name", "facts"), [
    ({"log_mel": "f()", "x": "g()"}, "logmel", ["log_mel, x", "mean log_mel?"]),
    ({"log_mel": "f()"}, "signal", ["log_mel"]),
    ({"log_mel": "f()"}, "log_mel_mask", ["mean log_mel?"]),
    ({}, "log_mel", ["signal"]), ({}, "signl", ["mean signal?"]),
])  # fmt: skip
def test_an_encoding_of_an_unknown_feature(features, name, facts):
    options = {"features": features, "encodings": {name: "raw"}}
    expect_error("encodings", name, facts, win_len=1, **options)


def test_a_refused_value_is_shown_as_it_was_given():
    # Not as a recipe holds it: tuples, and shares of 1.
    expect_error("classes", "x,y,x", win_len=1, classes=["x", "y", "x"])
    expect_error("splits", "a=1,a=3", ["a"], win_len=1, splits="a=1,a=3")
    for typo in ("train=.8,test=.3", "train=.8,test=.1", "a=.5"):
        expect_error("splits", typo, ["1"], win_len=1, splits=typo)
    assert Recipe(win_len=1, splits="a=.33,b=.33,c=.33").splits["a"] == 0.33
    several = {"splits": "a=1,b=3", "folds": 2}
    expect_error("splits and folds", several, win_len=1, **several)
    for name, value in (("event_targets", "class"), ("event_column", "Species")):
        expect_error(name, value, ["`events`"], win_len=1, **{name: value})
    events = {"win_len": 1, "events": "e.csv"}
    expect_error("target_columns", "x,y", ["`events`"], **events, target_columns="x,y")
    expect_error("classes", "a,b", ["c"], **events, classes="a,b", no_event="c")
    # A class may be nearly a keyword, if it is listed.
    expect_error("no_event", "deep", ["keep", "`classes`"], **events, no_event="deep")
    assert Recipe(**events, classes="a,deep", no_event="deep").no_event == "deep"


def test_an_option_has_one_name_and_its_singular():
    plural = Recipe(win_len=1, features={"a": "f()"}, encodings={"a": "raw"})
    assert Recipe(win_len=1, feature={"a": "f()"}, encoding={"a": "raw"}) == plural
    assert Recipe(win_len=1).replace(feature={"a": "f()"}).features == {"a": "f()"}
    with raises(OptionError, "features and feature"):
        Recipe(win_len=1, features={"a": "f()"}, feature={"b": "f()"})


# JSON and its hash


def test_a_recipe_comes_back_from_its_json():
    recipe = Recipe(**RICH)
    values = json.loads(json.dumps(recipe.to_json(), ensure_ascii=False))
    again = Recipe(**values)
    assert again == recipe
    assert [*values] == [*recipe_options()]
    text = json.dumps(recipe.to_json(), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert again.sha256() == recipe.sha256() == digest
    assert recipe.splits == {"train": 7, "eval": 2, "test": 1}
    assert recipe.hashed_shares() == {"train": 0.7, "eval": 0.2, "test": 0.1}
    assert recipe.classes == ("owl", "tit", "gull, herring", "käuzchen")


@pytest.mark.parametrize(("first", "second"), [
    ({"win_seconds": 1}, {"win_seconds": 1.0}),
    ({"hop_seconds": 1}, {"hop_seconds": 1.0}),
    ({"events": "e", "event_overlap": 0}, {"events": "e", "event_overlap": 0.0}),
    ({"classes": ["a", "b"]}, {"classes": "a,b"}),
    ({"splits": {"a": 1, "b": 3}}, {"splits": "a=1,b=3"}),
    ({"features": {"a": "f()", "b": "g()"}}, {"features": {"b": "g()", "a": "f()"}}),
])  # fmt: skip
def test_ways_to_give_the_same(first, second):
    made = [Recipe(**with_window(**options)) for options in (first, second)]
    assert made[0] == made[1]
    assert made[0].sha256() == made[1].sha256()
    assert len({*made, Recipe(win_seconds=2.0)}) == 2
    assert made[0] != made[0].to_json()


# Keywords


def test_a_misspelt_keyword_is_corrected():
    with pytest.raises(UnknownOption) as raised:
        record("in", "out", win_lenght=1)
    assert str(raised.value) == "no option win_lenght; did you mean win_len?"
    with pytest.raises(UnknownOption) as raised:
        split_options(None, {"overwirte": True})
    assert str(raised.value) == "no option overwirte; did you mean overwrite?"
    with raises(UnknownOption, "split_moves", naming="splits"):
        split_options(None, {"win_len": 1, "folds": 2, "split_moves": {}})


@pytest.mark.parametrize("function", [record, plan, write_template])
def test_help_lists_every_keyword_with_its_default(function):
    found = inspect.signature(function).parameters
    options = [*recipe_options().values(), *options_of(RunOptions)]
    for option in options:
        assert option.help.endswith((".", "...")), option
        if option.is_carried:
            assert option.name not in found
        else:
            assert found[option.name].default == option.default
    assert inspect.Parameter.VAR_KEYWORD not in {p.kind for p in found.values()}


OLD = {"folds": 2, "split_moves": "fold0=9k3XnQ2b"}
ALTERNATIVES = [
    ({"win_seconds": 1}, {"win_len": 100}, {"win_len": 100}),
    ({"win_len": 1, "hop": 50}, {"hop_seconds": 1}, {"win_len": 1, "hop_seconds": 1}),
    ({"win_len": 1, "splits": "a=1"}, {"folds": 3}, {"win_len": 1, "folds": 3}),
    ({"win_len": 1, "num_shards": 3}, {"shard_bytes": 5},
     {"win_len": 1, "shard_bytes": 5}),
    ({"win_len": 1, "seed": 3}, {}, {"win_len": 1, "seed": 3}),
    ({"win_len": 1, "classes": "a"}, {"label_from": "none"},
     {"win_len": 1, "label_from": "none"}),
    # Moved groups are those of one hash.
    ({"win_len": 1, **OLD}, {"folds": 2, "stratify": True},
     {"win_len": 1, **OLD, "stratify": True}),
    ({"win_len": 1, **OLD}, {"folds": 3}, {"win_len": 1, "folds": 3}),
    ({"win_len": 1, **OLD}, {"seed": 3}, {"win_len": 1, "folds": 2, "seed": 3}),
    ({"win_len": 1, **OLD}, {"group_by": ["x"]},
     {"win_len": 1, "folds": 2, "group_by": "x"}),
    ({"win_len": 1, **OLD}, {"split_column": "x"}, {"win_len": 1, "split_column": "x"}),
]  # fmt: skip


@pytest.mark.parametrize(("before", "given", "made"), ALTERNATIVES)
def test_an_option_takes_the_place_of_its_alternatives(before, given, made):
    for recipe in (before, Recipe(**before)):  # as in a file, and of a data set
        assert split_options(recipe, given)[0] == Recipe(**made)


def test_arguments_that_are_no_options_are_checked(tmp_path):
    write_sound(tmp_path / "in" / "a" / "x.wav", 500)
    for wrong in (3, {"win_len": 1}):
        with raises(OptionError, "recipe", wrong):
            plan(str(tmp_path / "in"), recipe=wrong)
    for wrong in (3, None, ""):
        with raises(OptionError, "input", wrong, naming="a list of dicts"):
            plan(wrong, win_len=1)
        with raises(OptionError, "output", wrong, naming="a path"):
            record(str(tmp_path / "in"), wrong, win_len=1)


# Text to values


@pytest.mark.parametrize(("name", "text", "value"), [
    *(("channels", text, text) for text in ("mix", "keep", "1.0", "²", "")),
    ("channels", "12", 12), ("channels", "-1", -1),
    *(("shard_bytes", text, 1 << 27) for text in ("134217728", "128MiB", "128mib")),
    ("shard_bytes", " 128 MiB ", 1 << 27), ("shard_bytes", "1b", 1),
    ("shard_bytes", "1kB", 1000), ("shard_bytes", "1KiB", 1024),
    ("shard_bytes", "3MB", 3 * 10**6), ("shard_bytes", "2GB", 2 * 10**9),
    ("shard_bytes", "1TiB", 1 << 40),
])  # fmt: skip
def test_text_of_a_flag(name, text, value):
    assert recipe_options()[name].values.parse(text) == value


@pytest.mark.parametrize(
    "text", ["", "B", "MiB", "1.5GB", "-1", "1M", "1k", "1PB", "1 2", "1iB", "1e6"]
)
def test_text_that_is_no_number_of_bytes(text):
    assert recipe_options()["shard_bytes"].values.parse(text) == text
    with raises(RecipeError, "shard_bytes", text):
        Recipe(win_len=1, shard_bytes=text)


# Files


def read(folder, text):
    (folder / "r.yaml").write_text(text)
    return read_recipe(str(folder / "r.yaml"))


def test_yaml_and_json_with_names_of_flags_or_fields(tmp_path):
    wanted = {
        "win_seconds": 1.0,
        "hop": None,
        "shard_bytes": 1 << 20,
        "channels": 0,
        "keep": "energy()",
        "features": {"x": "rms()", "y": "lufs()"},
        "encodings": {"x": "raw"},
    }
    text = (
        "win-seconds: 1\nhop: ~\nshard_bytes: 1MiB\nchannels: '0'\nkeep: energy()\n"
        "features:\n  x: rms()\n  y: lufs()\nencodings: {x: raw}\n"
    )
    assert read(tmp_path, text) == wanted
    assert read(tmp_path, json.dumps(wanted)) == wanted
    assert read(tmp_path, "features: &f {x: rms()}\n") == {"features": {"x": "rms()"}}


@pytest.mark.parametrize(("text", "facts"), [
    ("features: {x: rms(), x: lufs()}\n", ["x", "line 1"]),
    ('{"hop": 1,\n"hop": 2}', ["hop", "line 2"]),
    ("win-seconds: 1\nwin_seconds: 0.3\n", ["win-seconds", "win_seconds"]),
    ("win-second: 1\n", ["win-second", "win-seconds"]),
    ("win_second: 1\n", ["win_second", "win_seconds"]),
    ("featurs: {x: rms()}\n", ["featurs", "features"]),
    ("feature: {x: rms()}\nfeatures: {}\n", ["feature", "features"]),
    ("split_moves: ''\n", ["split_moves"]),
    ("windows: {}\n", ["windows", "windows_at"]), ("zzz: 1\n", ["zzz"]),
    ("1: 1\n", ["1"]),
    # Files that hold no recipe.
    ("", ["None"]), ("- 1", ["['1']"]), ("{", ["YAML", "JSON"]),
    ("? [a]\n: 1\n? {b: 1}\n: 2\n", ["YAML", "JSON"]), ("a: &a [*a]\n", ["a"]),
    ("format_version: 1\n", ["format_version"]),
    ("win_len: 1\n---\nwin_len: 2\n", ["YAML", "JSON"]),
])  # fmt: skip
def test_files_that_are_refused(tmp_path, text, facts):
    with raises(InputError, naming=[f"{tmp_path}/r.yaml", *facts]):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("text", "name", "facts"),
    [
        ("features: log_mel()", "features", ["'log_mel()'"]),
        ("features:", "features", ["''"]),
        ("features: {x: {log_mel: {n_mels: 3}}}", "features: x",
         ["{'log_mel': {'n_mels': '3'}}"]),
        ("encodings: {x: 3}", "encodings: x", ["'3'"]),
        ("augment: [noise(), speed()]", "augment", ["['noise()', 'speed()']"]),
        ("shard-bytes: many", "shard_bytes", ["'many'"]),
        ("win-seconds: long", "win_seconds", ["'long'"]),
    ],
)  # fmt: skip
def test_values_in_a_file_that_are_refused(tmp_path, text, name, facts):
    with raises(RecipeError, f"{tmp_path}/r.yaml: {name}", naming=facts):
        read(tmp_path, text)


def test_places_without_a_file(tmp_path):
    with raises(InputError, naming=tmp_path / "gone"):
        read_recipe(str(tmp_path / "gone"))
    with raises(InputError, naming=[tmp_path, "folder", "metadata.json"]):
        read_recipe(str(tmp_path))


def test_names_in_a_list_are_text(tmp_path):
    text = (
        "classes: [yes, no, 007, 010, 2.50, 1:30, ~]\ngroup-by: [1, on]\nhop: 010\n"
        "features: {on: rms()}\n"
    )
    assert read(tmp_path, text) == {
        "classes": "yes,no,007,010,2.50,1:30,~",
        "group_by": "1,on",
        "hop": 10,
        "features": {"on": "rms()"},
    }
