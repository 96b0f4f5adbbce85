"""Recipes: every check with its message, the value that they are, and their JSON."""

import copy
import hashlib
import json
import math
import pickle
from dataclasses import FrozenInstanceError

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from beam_pipeline.audio.formats import DECODERS
from beam_pipeline.errors import RecipeError, UnknownOption
from beam_pipeline.parameters import parse_bytes
from beam_pipeline.recipe.example_sections import (
    DTYPES,
    MAX_RATE_HZ,
    ORDERS,
)
from beam_pipeline.recipe.recipe import (
    SECTIONS,
    Recipe,
    check_names,
    recipe_options,
)
from beam_pipeline.recipe.values import CLIP_FEATURES, ENCODINGS, RESERVED_NAMES
from beam_pipeline.recipe.window_section import SHORT_CLIPS, TAILS
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


def expect_error(field, value, facts=(), **options):
    """The recipe is refused, naming the field, the value and some facts."""
    with raises(
        RecipeError, field, value, naming=[field, repr(value), *facts]
    ) as raised:
        Recipe(**options)
    assert raised.value.exit_status == 2
    again = pickle.loads(pickle.dumps(raised.value))
    assert (type(again), str(again)) == (RecipeError, str(raised.value))


# Values


@pytest.mark.parametrize("value", [0, -1, -(10**12)])
@pytest.mark.parametrize("name", WHOLE)
def test_lengths_and_counts_are_at_least_one(name, value):
    options = {"win_len": 100, name: value}
    expect_error(name, value, **options)
    Recipe(**{**options, name: 1})


@pytest.mark.parametrize("value", [1.0, "1", True, float("nan"), [1]])
@pytest.mark.parametrize("name", [*WHOLE, "seed"])
def test_lengths_and_counts_are_whole_numbers(name, value):
    if value != value:
        with raises(RecipeError, name, math.nan):
            Recipe(**{"win_len": 100, name: value})
        return
    expect_error(name, value, **{"win_len": 100, name: value})


@pytest.mark.parametrize("seed", [0, -1, 2**63, -(10**30)])
def test_any_whole_number_is_a_seed(seed):
    assert Recipe(win_len=1, seed=seed).shards.seed == seed


@pytest.mark.parametrize("value", [0, 0.0, -0.5, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["win_seconds", "hop_seconds"])
def test_seconds_are_positive_and_finite(name, value):
    base = {} if name == "win_seconds" else {"win_len": 100}
    expect_error(name, value, **base, **{name: value})
    Recipe(**base, **{name: 1e-12})


@pytest.mark.parametrize("name", ["win_seconds", "hop_seconds"])
def test_seconds_are_not_nan(name):
    base = {} if name == "win_seconds" else {"win_len": 100}
    with raises(RecipeError, name, math.nan):
        Recipe(**base, **{name: math.nan})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("win_seconds", "1"),
        ("win_seconds", [1]),
        ("win_seconds", True),
        ("random_starts", "false"),
        ("allow_truncated", 1),
        ("allow_nonfinite", None),
        ("mark_padding", 1),
        ("whole_clips", "yes"),
        ("label_from", None),
        ("label_from", 3),
        ("features", ["a"]),
        ("features: a", {"a": 3}),
        ("features", {3: "identity()"}),
    ],
)
def test_values_of_a_wrong_type_are_refused(name, value):
    base = {} if name == "win_seconds" else {"win_len": 100}
    with raises(RecipeError, name):
        Recipe(**base, **{name.partition(":")[0]: value})


@pytest.mark.parametrize(
    ("section", "name", "choices"),
    [
        ("windows", "tail", TAILS),
        ("shards", "order", ORDERS),
        ("audio", "dtype", DTYPES),
    ],
)
def test_choices(section, name, choices):
    for choice in choices:
        recipe = Recipe(win_len=1, **{name: choice})
        assert getattr(getattr(recipe, section), name) == choice
    for value in ("", "Drop", choices[0] + " ", None, 3):
        expect_error(name, value, choices, win_len=1, **{name: value})


@pytest.mark.parametrize("value", ["", "Mix", "0", "-1", -1, 1.0, True, None])
def test_channels_that_are_none(value):
    expect_error("channels", value, ["mix", "keep"], win_len=1, channels=value)


@pytest.mark.parametrize("value", ["mix", "keep", 0, 1, 63])
def test_channels(value):
    assert Recipe(win_len=1, channels=value).audio.channels == value


# Values together


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
    base = {} if names[0].startswith("win") else {"win_len": 2}
    field = " and ".join(names)
    expect_error(field, given_, **base, **given_)


def test_a_window_has_a_length():
    expect_error("win_len or win_seconds", None)
    expect_error("win_len or win_seconds", None, hop=3)


# Classes


@pytest.mark.parametrize("text", ["folder", "name", "none", r"(?P<class>\d)_"])
def test_label_from(text):
    assert Recipe(win_len=1, label_from=text).labels.label_from == text


@pytest.mark.parametrize("text", ["(", "(?P<class>", "", r"(\d)", r"(?P<klass>\d)"])
def test_label_from_without_a_class(text):
    expect_error("label_from", text, win_len=1, label_from=text)


# Features


@pytest.mark.parametrize("name", [*CLIP_FEATURES, "num_classes"])
def test_reserved_names(name):
    assert name in RESERVED_NAMES
    expect_error("features", name, ["class"], win_len=1, features={name: "f()"})


@pytest.mark.parametrize("name", ["", "1a", "a b", "a-b", "a.b", "ä", "a\n"])
def test_names_that_are_no_identifiers(name):
    expect_error("features", name, win_len=1, features={name: "f()"})


@pytest.mark.parametrize("name", ["a", "_", "A9", "signal", "Class"])
def test_names_that_are(name):
    recipe = Recipe(win_len=1, features={name: "f()"})
    assert recipe.features.expressions == {name: "f()"}


def test_features_are_a_copy():
    features = {"a": "f()"}
    recipe = Recipe(win_len=1, features=features)
    features["class"] = "g()"
    assert recipe.features.expressions == {"a": "f()"}


# Encodings


@pytest.mark.parametrize("encoding", ENCODINGS)
def test_encodings(encoding):
    features = {"a": "f()", "b": "g()"}
    recipe = Recipe(win_len=1, features=features, encodings={"b": encoding})
    assert recipe.features.encodings == {"b": encoding}
    # Without features, there is the signal.
    recipe = Recipe(win_len=1, encodings={"signal": encoding})
    assert recipe.features.encodings == {"signal": encoding}


def test_encodings_are_a_copy():
    encodings = {"signal": "raw"}
    recipe = Recipe(win_len=1, encodings=encodings)
    encodings["signal"] = "tensor"
    recipe.to_json()["encodings"]["signal"] = "tensor"
    assert recipe.features.encodings == {"signal": "raw"}
    assert recipe.to_json()["encodings"] == {"signal": "raw"}


@pytest.mark.parametrize("value", ["gif", "", "PNG", None, 3, ["png"]])
def test_encodings_that_do_not_exist(value):
    with raises(RecipeError, "encodings: signal", value, naming=[*ENCODINGS]):
        Recipe(win_len=1, encodings={"signal": value})


@pytest.mark.parametrize("value", ["png", ["signal"], None, 3])
def test_encodings_are_by_feature(value):
    expect_error("encodings", value, win_len=1, encodings=value)


@pytest.mark.parametrize("name", RESERVED_NAMES)
def test_an_encoding_of_what_is_no_feature_of_the_recipe(name):
    expect_error("encodings", name, win_len=1, encodings={name: "tensor"})


@pytest.mark.parametrize(
    ("features", "name", "facts"),
    [
        ({"log_mel": "f()", "x": "g()"}, "logmel", ["log_mel, x", "mean log_mel?"]),
        ({"log_mel": "f()"}, "signal", ["log_mel"]),
        ({"log_mel": "f()"}, "log_mel_mask", ["mean log_mel?"]),
        ({}, "log_mel", ["signal"]),
        ({}, "signl", ["mean signal?"]),
        ({}, 3, []),
    ],
)
def test_an_encoding_of_an_unknown_feature(features, name, facts):
    encodings = {name: "raw"}
    expect_error(
        "encodings", name, facts, win_len=1, features=features, encodings=encodings
    )


def test_a_recipe_with_an_encoding():
    other = Recipe(win_len=1, encodings={"signal": "raw"})
    assert other.replace(seed=1).features.encodings == {"signal": "raw"}
    assert repr(other) == "Recipe(win_len=1, encodings={'signal': 'raw'})"


def test_a_refused_value_is_shown_as_it_was_given():
    # Not as the sections hold it: tuples, and shares of 1.
    expect_error("classes", "x,y,x", win_len=1, classes=["x", "y", "x"])
    expect_error("splits", "a=1,a=3", ["a"], win_len=1, splits="a=1,a=3")
    several = {"splits": "a=1,b=3", "folds": 2}
    expect_error("splits and folds", several, win_len=1, **several)
    for name, value in (("event_targets", "class"), ("event_column", "Species")):
        expect_error(name, value, ["`events`"], win_len=1, **{name: value})
    events = {"win_len": 1, "events": "e.csv"}
    expect_error("target_columns", "x,y", ["`events`"], **events, target_columns="x,y")
    expect_error("classes", "a,b", ["c"], **events, classes="a,b", no_event="c")


# A value


@pytest.mark.parametrize("name", ["win_len", "windows", "_json", "anything"])
def test_a_recipe_is_frozen(name):
    recipe = Recipe(win_len=1)
    before = recipe.to_json()
    with pytest.raises(FrozenInstanceError, match=name):
        setattr(recipe, name, 2)
    with pytest.raises(FrozenInstanceError, match=name):
        delattr(recipe, name)
    assert recipe.to_json() == before
    for section in SECTIONS:
        with pytest.raises(FrozenInstanceError):
            getattr(recipe, section).anything = 2


def test_its_json_is_a_copy():
    recipe = Recipe(win_len=1, features={"a": "f()"})
    json_ = recipe.to_json()
    json_["win_len"] = 2
    json_["features"]["b"] = "g()"
    assert recipe == Recipe(win_len=1, features={"a": "f()"})
    assert recipe.to_json()["win_len"] == 1


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_recipe_is_pickled(protocol):
    recipe = Recipe(**RICH)
    again = pickle.loads(pickle.dumps(recipe, protocol))
    assert (again, hash(again)) == (recipe, hash(recipe))
    assert json.dumps(again.to_json()) == json.dumps(recipe.to_json())
    for section in SECTIONS:
        assert getattr(again, section) == getattr(recipe, section)
    with pytest.raises(FrozenInstanceError):
        again.win_len = 2
    assert copy.deepcopy(recipe) == copy.copy(recipe) == recipe


def test_equal_recipes_have_equal_hashes():
    first = Recipe(win_seconds=1, classes=["a", "b"], events="e.csv", event_overlap=0)
    second = Recipe(win_seconds=1.0, classes="a,b", events="e.csv")
    assert first == second
    assert (hash(first), first.sha256()) == (hash(second), second.sha256())
    assert len({first, second, Recipe(win_seconds=2.0)}) == 2
    assert first != Recipe(win_seconds=1.0)
    assert first != first.to_json()


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
    with pytest.raises(UnknownOption):
        recipe.replace(win_lenght=500)


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
def test_a_recipe_comes_back_from_json(recipe):
    values = json.loads(json.dumps(recipe.to_json()))
    again = Recipe(**values)
    assert again == recipe
    assert again.sha256() == recipe.sha256()
    assert {*recipe_options()} == {*values}


@given(recipes(), recipes())
def test_hashes_are_equal_where_recipes_are(first, second):
    assert (first == second) == (first.sha256() == second.sha256())


@given(recipes())
def test_the_hash_is_of_sorted_json(recipe):
    text = json.dumps(recipe.to_json(), sort_keys=True, separators=(",", ":"))
    assert recipe.sha256() == hashlib.sha256(text.encode()).hexdigest()


def test_the_json_of_a_recipe_has_all_options_and_gives_it_again():
    recipe = Recipe(**RICH)
    text = json.dumps(recipe.to_json(), ensure_ascii=False)
    assert [*json.loads(text)] == [*recipe_options()]
    assert Recipe(**json.loads(text)) == recipe
    overlaps = [Recipe(**BASE, event_overlap=overlap) for overlap in (0, 0.0)]
    assert overlaps[0].sha256() == overlaps[1].sha256()


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
    "loader": {"loader": "my_files:load"},
    "loader_suffixes": {"loader": "my_files:load", "loader_suffixes": ".npy"},
    "hash_files": {"hash_files": True},
}


def test_every_field_changes_the_hash():
    assert list(CHANGES) == list(recipe_options())
    prints = {Recipe(**{**BASE, **change}).sha256() for change in CHANGES.values()}
    assert len(prints | {Recipe(**BASE).sha256()}) == len(CHANGES) + 1


@pytest.mark.parametrize("name", ["win_seconds", "hop_seconds"])
def test_a_second_is_a_second(name):
    base = {} if name == "win_seconds" else BASE
    whole, real = Recipe(**base, **{name: 1}), Recipe(**base, **{name: 1.0})
    assert whole == real
    assert whole.sha256() == real.sha256()


def test_the_order_of_features_does_not_matter():
    first = Recipe(win_len=1, features={"a": "f()", "b": "g()"})
    second = Recipe(win_len=1, features={"b": "g()", "a": "f()"})
    assert first.sha256() == second.sha256()


@pytest.mark.parametrize("name", ["win_lem", "", "Win_len", "sha256"])
def test_fields_that_do_not_exist_are_named(name):
    for make in (lambda values: Recipe(**values), check_names):
        with pytest.raises(UnknownOption) as raised:
            make({"win_len": 1, name: 1})
        assert raised.value.args[0] == name


# Text to values

CHANNELS = recipe_options()["channels"][1].values


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
def test_parse_bytes(text, size):
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    "text", ["", "B", "MiB", "1.5GB", "-1", "1M", "1k", "1PB", "1 2", "1iB", "1e6"]
)
def test_text_that_is_no_number_of_bytes(text):
    with raises(RecipeError, "shard_bytes", text):
        parse_bytes(text)


@given(st.integers(0, 10**15), st.sampled_from(["", "b", "kB", "KiB", "MB", "MiB"]))
def test_bytes_are_exact(number, unit):
    factor = {"": 1, "b": 1, "kB": 10**3, "KiB": 2**10, "MB": 10**6, "MiB": 2**20}
    assert parse_bytes(f"{number}{unit}") == number * factor[unit]


@pytest.mark.parametrize(
    ("text", "channels"),
    [("mix", "mix"), ("keep", "keep"), ("0", 0), ("12", 12), ("-1", -1),
     ("1.0", "1.0"), ("²", "²"), ("", "")],
)  # fmt: skip
def test_channels_of_a_flag(text, channels):
    assert CHANNELS.parse(text) == channels


@given(st.text())
def test_any_text_of_channels_is_taken_or_refused(text):
    assume(text not in ("mix", "keep"))
    value = CHANNELS.parse(text)
    if isinstance(value, int) and value >= 0:
        Recipe(win_len=1, channels=value)
    else:
        expect_error("channels", value, win_len=1, channels=value)
