"""Recipes: every check with its message, the value that they are, and their JSON."""

import copy
import hashlib
import json
import math
import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline.audio.formats import DECODERS
from beam_pipeline.errors import OptionError, RecipeError, UnknownOption
from beam_pipeline.parameters import Bytes
from beam_pipeline.recipe.recipe import Recipe, recipe_options
from beam_pipeline.recipe.sections import (
    CLIP_FEATURES,
    DTYPES,
    ENCODINGS,
    MAX_RATE_HZ,
    ORDERS,
    RESERVED_NAMES,
    SHORT_CLIPS,
    TAILS,
)
from tests.raising import raises

# Options with values of every kind, some of them in another form than their JSON.
RICH = {
    "label_from": r"(?P<speaker>[^/]+)/(?P<class>[a-zä]+)_",
    "classes": 'owl, tit,"gull, herring",käuzchen',
    "events": "{folder}/{stem}.txt",
    "event_column": "Species",
    "event_targets": "class,multi_hot,mask:mel",
    "event_overlap": 1,
    "no_event": "tit",
    "path_column": "file",
    "column_names": "file,speaker,age",
    "delimiter": ";",
    "columns": "none",
    "splits": "train=7,eval=2,test=1",
    "group_by": "speaker",
    "stratify": True,
    "fingerprint": True,
    "sample_rate": 22050,
    "channels": 0,
    "dtype": "int16",
    "stream": "high_pass(cutoff_hz=50.0)",
    "win_seconds": 1,
    "hop_seconds": 0.25,
    "tail": "overlap",
    "max_windows": 100,
    "random_starts": True,
    "keep": "energy(above_db=-50.0)",
    "copies": 2,
    "augment": "noise()",
    "features": {"signal": "identity()", "mel": "log_mel(n_mels=64)"},
    "shard_bytes": 1 << 26,
    "num_elems": 10**12,
    "order": "listed",
    "seed": -(2**70),
    "allow_truncated": True,
    "allow_nonfinite": True,
}

WHOLE = (
    "sample_rate", "win_len", "hop", "max_windows", "elements_per_file", "shard_bytes",
    "num_shards", "num_elems",
)  # fmt: skip
FLAGS = (
    "random_starts", "allow_truncated", "allow_nonfinite", "mark_padding",
    "whole_clips", "stratify", "fingerprint", "hash_files",
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
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (RecipeError, str(raised.value))


# Values

REFUSED = [
    *((name, value) for name in WHOLE for value in (0, -1, -(10**12))),
    *((n, value) for n in (*WHOLE, "seed") for value in (1.0, "1", True, [1], {})),
    *((n, value) for n in SECONDS_OF for value in (0, -0.5, math.inf, "1", [1], True)),
    *((name, value) for name in FLAGS for value in ("false", 1, 0, None)),
    *((n, value) for n in CHOICES for value in ("", "Drop", "pad ", None, 3)),
    *(("channels", value) for value in ("", "Mix", "0", -1, 1.0, True, None)),
    *(
        ("label_from", v)
        for v in ("(", "(?P<class>", "", r"(\d)", r"(?P<k>a)", None, 3)
    ),
    *(("features", {name: "f()"}) for name in RESERVED_NAMES),
    *(("features", {n: "f()"}) for n in ("", "1a", "a b", "a-b", "a.b", "ä", "a\n", 3)),
    *(("features", value) for value in (["a"], "log_mel()", None, 3)),
    *(("encodings", value) for value in ("png", ["signal"], None, 3)),
    *(("encodings", {name: "tensor"}) for name in (*RESERVED_NAMES, 3)),
    *(("event_overlap", value) for value in (-0.1, 1.1, "1")),
    ("folds", 1),
    ("decoder", "soundfile,soundfile"),
    ("decoder", "sox"),
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


@pytest.mark.parametrize(
    ("name", "value"), [*((name, math.nan) for name in (*WHOLE, *SECONDS_OF))]
)
def test_not_a_number_is_refused(name, value):
    with raises(RecipeError, name):
        Recipe(**with_window(**{name: value}))


@pytest.mark.parametrize(
    ("name", "values"),
    [
        *((name, [1, 10**6]) for name in WHOLE),
        *((name, [1e-12, 1.0]) for name in SECONDS_OF),
        *CHOICES.items(),
        ("seed", [0, -1, 2**63, -(10**30)]),
        ("channels", ["mix", "keep", 0, 63]),
        ("label_from", ["folder", "name", "none", r"(?P<class>\d)_", "species"]),
        ("features", [{n: "f()"} for n in ("a", "_", "A9", "signal", "Class")]),
        ("encodings", [{"signal": encoding} for encoding in ENCODINGS]),
    ],
)
def test_values_that_are_held(name, values):
    for value in values:
        recipe = Recipe(**with_window(**{name: value}))
        assert getattr(recipe, name) == value
        assert recipe.to_json()[name] == value


@pytest.mark.parametrize(
    "names",
    [
        ["win_len", "win_seconds"],
        ["hop", "hop_seconds"],
        ["elements_per_file", "shard_bytes"],
        ["elements_per_file", "num_shards"],
        ["shard_bytes", "num_shards"],
        ["elements_per_file", "shard_bytes", "num_shards"],
    ],
)
def test_only_one_of_several_is_given(names):
    given_ = {name: 2.0 if "seconds" in name else 2 for name in names}
    expect_error(" and ".join(names), given_, **with_window(**given_))


def test_a_window_has_a_length():
    expect_error("win_len or win_seconds", None)
    expect_error("win_len or win_seconds", None, hop=3)


def test_reserved_names_are_those_of_every_example():
    assert {*CLIP_FEATURES, "num_classes"} == set(RESERVED_NAMES)


@pytest.mark.parametrize("value", ["gif", "", "PNG", None, 3, ["png"]])
def test_encodings_that_do_not_exist(value):
    with raises(RecipeError, "encodings: signal", value, naming=[*ENCODINGS]):
        Recipe(win_len=1, encodings={"signal": value})
    with raises(RecipeError, "features: a"):
        Recipe(win_len=1, features={"a": 3})


@pytest.mark.parametrize(
    ("features", "name", "facts"),
    [
        ({"log_mel": "f()", "x": "g()"}, "logmel", ["log_mel, x", "mean log_mel?"]),
        ({"log_mel": "f()"}, "signal", ["log_mel"]),
        ({"log_mel": "f()"}, "log_mel_mask", ["mean log_mel?"]),
        ({}, "log_mel", ["signal"]),
        ({}, "signl", ["mean signal?"]),
    ],
)
def test_an_encoding_of_an_unknown_feature(features, name, facts):
    options = {"features": features, "encodings": {name: "raw"}}
    expect_error("encodings", name, facts, win_len=1, **options)


def test_a_refused_value_is_shown_as_it_was_given():
    # Not as a recipe holds it: tuples, and shares of 1.
    expect_error("classes", "x,y,x", win_len=1, classes=["x", "y", "x"])
    expect_error("splits", "a=1,a=3", ["a"], win_len=1, splits="a=1,a=3")
    several = {"splits": "a=1,b=3", "folds": 2}
    expect_error("splits and folds", several, win_len=1, **several)
    for name, value in (("event_targets", "class"), ("event_column", "Species")):
        expect_error(name, value, ["`events`"], win_len=1, **{name: value})
    events = {"win_len": 1, "events": "e.csv"}
    expect_error("target_columns", "x,y", ["`events`"], **events, target_columns="x,y")
    expect_error("classes", "a,b", ["c"], **events, classes="a,b", no_event="c")


def test_an_option_has_one_name_and_its_singular():
    plural = Recipe(win_len=1, features={"a": "f()"}, encodings={"a": "raw"})
    assert Recipe(win_len=1, feature={"a": "f()"}, encoding={"a": "raw"}) == plural
    assert Recipe(win_len=1).replace(feature={"a": "f()"}).features == {"a": "f()"}
    with raises(OptionError, "features and feature"):
        Recipe(win_len=1, features={"a": "f()"}, feature={"b": "f()"})


@pytest.mark.parametrize("name", ["win_lem", "", "Win_len", "sha256"])
def test_names_of_no_option(name):
    for make in (Recipe, Recipe(win_len=1).replace):
        with pytest.raises(UnknownOption) as raised:
            make(**{"win_len": 1, name: 1})
        assert raised.value.args[0] == name


# A value


@pytest.mark.parametrize("name", ["win_len", "features", "seed"])
def test_a_recipe_is_frozen(name):
    recipe = Recipe(win_len=1)
    before = recipe.to_json()
    with pytest.raises(FrozenInstanceError, match=name):
        setattr(recipe, name, 2)
    with pytest.raises(FrozenInstanceError, match=name):
        delattr(recipe, name)
    assert recipe.to_json() == before


def test_what_is_given_and_its_json_are_copies():
    features, encodings = {"a": "f()"}, {"a": "raw"}
    recipe = Recipe(win_len=1, features=features, encodings=encodings)
    features["class"], encodings["a"] = "g()", "tensor"
    json_ = recipe.to_json()
    json_["win_len"], json_["features"]["b"], json_["encodings"]["a"] = 2, "g()", "png"
    again = Recipe(win_len=1, features={"a": "f()"}, encodings={"a": "raw"})
    assert recipe == again
    assert (recipe.features, recipe.encodings) == ({"a": "f()"}, {"a": "raw"})
    assert repr(again) == (
        "Recipe(win_len=1, features={'a': 'f()'}, encodings={'a': 'raw'})"
    )


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_recipe_is_pickled(protocol):
    recipe = Recipe(**RICH)
    again = pickle.loads(pickle.dumps(recipe, protocol))
    assert (again, hash(again)) == (recipe, hash(recipe))
    assert json.dumps(again.to_json()) == json.dumps(recipe.to_json())
    for name in recipe_options():
        assert getattr(again, name) == getattr(recipe, name)
    assert copy.deepcopy(recipe) == copy.copy(recipe) == recipe


def test_replace_changes_some_options():
    recipe = Recipe(**RICH)
    changed = recipe.replace(win_seconds=None, win_len=500, classes=["tit", "owl"])
    assert changed == Recipe(
        **{**RICH, "win_seconds": None, "win_len": 500, "classes": "tit,owl"}
    )
    assert recipe == Recipe(**RICH)  # unchanged
    assert recipe.replace() == recipe
    with raises(RecipeError, "win_len", 0):
        changed.replace(win_len=0)
    with raises(RecipeError, "win_len and win_seconds"):
        recipe.replace(win_len=500)


# JSON and its hash

COUNTS = st.none() | st.integers(1, 10**12)
SECONDS = st.none() | st.floats(1e-9, 1e9)
NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)


@st.composite
def recipes(draw):
    window = draw(st.sampled_from(["win_len", "win_seconds"]))
    hop = draw(st.sampled_from(["hop", "hop_seconds"]))
    shards = draw(st.sampled_from(["elements_per_file", "shard_bytes", "num_shards"]))
    features = draw(
        st.dictionaries(
            NAMES.filter(lambda n: n not in RESERVED_NAMES), st.text(), max_size=3
        )
    )
    encoded = st.sampled_from([*features] or ["signal"])
    lengths = {"win_len": st.integers(1, 10**9), "win_seconds": st.floats(1e-9, 1e9)}
    return Recipe(
        label_from=draw(st.sampled_from(["folder", "name", "none", "(?P<class>ä)"])),
        sample_rate=draw(st.none() | st.integers(1, MAX_RATE_HZ)),
        channels=draw(st.sampled_from(["mix", "keep", 0, 7])),
        dtype=draw(st.sampled_from(DTYPES)),
        tail=draw(st.sampled_from(TAILS)),
        max_windows=draw(COUNTS),
        random_starts=draw(st.booleans()),
        features=features,
        encodings=draw(st.dictionaries(encoded, st.sampled_from(ENCODINGS))),
        num_elems=draw(COUNTS),
        order=draw(st.sampled_from(ORDERS)),
        seed=draw(st.integers()),
        allow_truncated=draw(st.booleans()),
        allow_nonfinite=draw(st.booleans()),
        mark_padding=draw(st.booleans()),
        min_seconds=draw(st.none() | st.floats(1e-9, 1.0)),
        max_seconds=draw(st.none() | st.floats(1.0, 1e9)),
        short_clips=draw(st.none() | st.sampled_from(SHORT_CLIPS)),
        whole_clips=draw(st.booleans()),
        decoder=draw(st.permutations(DECODERS)),
        **{
            window: draw(lengths[window]),
            hop: draw(COUNTS if hop == "hop" else SECONDS),
            shards: draw(COUNTS),
        },
    )


@given(recipes())
def test_a_recipe_comes_back_from_its_json(recipe):
    values = json.loads(json.dumps(recipe.to_json(), ensure_ascii=False))
    again = Recipe(**values)
    assert again == recipe
    assert [*values] == [*recipe_options()]
    text = json.dumps(recipe.to_json(), sort_keys=True, separators=(",", ":"))
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert again.sha256() == recipe.sha256() == digest


@given(recipes(), recipes())
def test_hashes_are_equal_where_recipes_are(first, second):
    assert (first == second) == (first.sha256() == second.sha256())
    assert (first == second) == (hash(first) == hash(second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"win_seconds": 1}, {"win_seconds": 1.0}),
        ({"hop_seconds": 1}, {"hop_seconds": 1.0}),
        ({"events": "e", "event_overlap": 0}, {"events": "e", "event_overlap": 0.0}),
        ({"classes": ["a", "b"]}, {"classes": "a,b"}),
        ({"splits": {"a": 1, "b": 3}}, {"splits": "a=1,b=3"}),
        (
            {"features": {"a": "f()", "b": "g()"}},
            {"features": {"b": "g()", "a": "f()"}},
        ),
    ],
)
def test_ways_to_give_the_same(first, second):
    made = [Recipe(**with_window(**options)) for options in (first, second)]
    assert made[0] == made[1]
    assert made[0].sha256() == made[1].sha256()
    assert len({*made, Recipe(win_seconds=2.0)}) == 2
    assert made[0] != made[0].to_json()


def test_json_with_values_of_every_kind():
    recipe = Recipe(**RICH)
    assert Recipe(**json.loads(json.dumps(recipe.to_json()))) == recipe
    assert recipe.splits == {"train": 0.7, "eval": 0.2, "test": 0.1}
    assert recipe.classes == ("owl", "tit", "gull, herring", "käuzchen")


BASE = {"win_len": 100}
CHANGES = {
    "label_from": {"label_from": "name"},
    "label_separator": {"label_separator": ";"},
    "classes": {"classes": "a,b"},
    "events": {"events": "events.csv"},
    "event_column": {"events": "e.csv", "event_column": "Species"},
    "event_targets": {"events": "e.csv", "event_targets": "class"},
    "event_overlap": {"events": "e.csv", "event_overlap": 0.5},
    "no_event": {"events": "e.csv", "no_event": "drop"},
    "target_columns": {"target_columns": "x"},
    "path_column": {"path_column": "file"},
    "column_names": {"column_names": "path,class"},
    "delimiter": {"delimiter": ";"},
    "columns": {"columns": "none"},
    "split_column": {"split_column": "split"},
    "splits": {"splits": "train=1"},
    "folds": {"folds": 5},
    "group_by": {"group_by": "speaker", "splits": "train=2"},
    "stratify": {"stratify": True, "splits": "train=3"},
    "split_moves": {"split_moves": "train=9k3XnQ2b", "splits": "train=5"},
    "fingerprint": {"fingerprint": True},
    "sample_rate": {"sample_rate": 8000},
    "channels": {"channels": 0},
    "dtype": {"dtype": "int16"},
    "stream": {"stream": "gain()"},
    "win_len": {"win_len": 101},
    "win_seconds": {"win_len": None, "win_seconds": 100.0},
    "hop": {"hop": 100},
    "hop_seconds": {"hop_seconds": 100.0},
    "tail": {"tail": "pad"},
    "max_windows": {"max_windows": 1},
    "random_starts": {"random_starts": True},
    "keep": {"keep": "peak()"},
    "mark_padding": {"mark_padding": True},
    "min_seconds": {"min_seconds": 0.5},
    "max_seconds": {"max_seconds": 20.0},
    "short_clips": {"short_clips": "skip"},
    "windows_at": {"windows_at": "onsets", "events": "e.csv"},
    "copies": {"copies": 2, "augment": "noise()"},
    "augment": {"copies": 1, "augment": "noise()"},
    "features": {"features": {"signal": "identity()"}},
    "encodings": {"encodings": {"signal": "raw"}},
    "elements_per_file": {"elements_per_file": 1},
    "shard_bytes": {"shard_bytes": 1},
    "num_shards": {"num_shards": 1},
    "member_bytes": {"member_bytes": 1},
    "compression": {"compression": "none"},
    "num_elems": {"num_elems": 1},
    "order": {"order": "listed"},
    "seed": {"seed": 1},
    "allow_truncated": {"allow_truncated": True},
    "allow_nonfinite": {"allow_nonfinite": True},
    "whole_clips": {"whole_clips": True},
    "decoder": {"decoder": "pyav"},
    "loader": {"loader": "my_files.load"},
    "loader_suffixes": {"loader": "my_files.load", "loader_suffixes": ".npy"},
    "hash_files": {"hash_files": True},
}


def test_every_field_changes_the_hash():
    assert set(CHANGES) == set(recipe_options())
    prints = {Recipe(**{**BASE, **change}).sha256() for change in CHANGES.values()}
    assert len(prints | {Recipe(**BASE).sha256()}) == len(CHANGES) + 1


# Text to values


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("0", 0),
        ("1", 1),
        ("1b", 1),
        ("1B", 1),
        ("134217728", 1 << 27),
        ("128MiB", 1 << 27),
        ("128mib", 1 << 27),
        (" 128 MiB ", 1 << 27),
        ("1kB", 1000),
        ("1KiB", 1024),
        ("3MB", 3 * 10**6),
        ("2GB", 2 * 10**9),
        ("2GiB", 2 << 30),
        ("1TB", 10**12),
        ("1TiB", 1 << 40),
    ],
)
def test_bytes_with_a_unit(text, size):
    assert Bytes().parse(text) == size


@pytest.mark.parametrize(
    "text", ["", "B", "MiB", "1.5GB", "-1", "1M", "1k", "1PB", "1 2", "1iB", "1e6"]
)
def test_text_that_is_no_number_of_bytes(text):
    assert Bytes().parse(text) == text
    with raises(RecipeError, "shard_bytes", text):
        Recipe(win_len=1, shard_bytes=text)


@given(st.integers(0, 10**15), st.sampled_from(["", "b", "kB", "KiB", "MB", "MiB"]))
def test_bytes_are_exact(number, unit):
    factor = {"": 1, "b": 1, "kB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20}
    assert Bytes().parse(f"{number}{unit}") == number * factor[unit]


@pytest.mark.parametrize(
    ("text", "channels"),
    [("mix", "mix"), ("keep", "keep"), ("0", 0), ("12", 12), ("-1", -1),
     ("1.0", "1.0"), ("²", "²"), ("", "")],
)  # fmt: skip
def test_channels_of_a_flag(text, channels):
    assert recipe_options()["channels"].values.parse(text) == channels


@given(st.text())
def test_any_text_of_channels_is_taken_or_refused(text):
    value = recipe_options()["channels"].values.parse(text)
    if (isinstance(value, int) and value >= 0) or text in ("mix", "keep"):
        Recipe(win_len=1, channels=value)
    else:
        expect_error("channels", value, win_len=1, channels=value)
