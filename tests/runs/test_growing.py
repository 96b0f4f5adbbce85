"""A data set that grows, and a recipe that decides the classes of other data."""

import shutil
from pathlib import Path

import numpy as np
import pytest

from beam_pipeline import Metadata, open_records, plan, record
from beam_pipeline.cli.main import main
from beam_pipeline.dataset.side_by_side import given_recipe
from beam_pipeline.elements.record_examples import record_examples
from beam_pipeline.errors import (
    DataSetWarning,
    InputError,
    OutputError,
    RecipeError,
    TooManyRejected,
)
from beam_pipeline.read.verify import verify
from tests.data_sets import contents, rejects_in
from tests.raising import assert_names, raises
from tests.sounds import damage, write_sound

SPLITS = "train=.6,eval=.2,test=.2"
OPTIONS = {
    "win_len": 500, "splits": SPLITS, "group_by": "speaker", "columns": "none",
    "label_from": "(?P<class>[a-z]+)/(?P<speaker>[a-z]+)_", "workers": 1, "seed": 2,
}  # fmt: skip
SPEAKERS = ("ada", "bob", "cy", "dee", "eve", "flo", "gus", "hal")


def write_speaker(sounds, speaker, clips=2):
    for k in range(clips):
        path = sounds / ("owl", "tit")[k % 2] / f"{speaker}_{k}.wav"
        seed = SPEAKERS.index(speaker) * 10 + k
        write_sound(path, 1100 + 10 * k, seed=seed)


@pytest.fixture(scope="module")
def before(tmp_path_factory):
    """The sounds of six speakers in ``sounds``, and the data set ``first`` of them."""
    root = tmp_path_factory.mktemp("before")
    for speaker in SPEAKERS[:6]:
        write_speaker(root / "sounds", speaker)
    record(root / "sounds", root / "first", **OPTIONS)
    return root


@pytest.fixture
def root(before, tmp_path):
    return Path(shutil.copytree(before, tmp_path / "root"))


def record_more(root, name="second", **options):
    """Records what ``first`` does not hold, by its recipe."""
    first = root / "first"
    options = {"recipe": first, "skip_recorded": first, "workers": 1, **options}
    return record(root / "sounds", root / name, **options)


def flags_of(root, name="second"):
    """The same as a command."""
    places = {"input": "sounds", "recipe": "first", "skip-recorded": "first",
              "output": name}  # fmt: skip
    return ["record", *(f"--{flag}={root / path}" for flag, path in places.items())]


def held(*folders):
    """The split and the class of each file with examples; each is in one folder."""
    found = {}
    for folder in folders:
        for split in Metadata.load(folder).splits:
            here = {
                e["filepath"]: (split, e.get("class", ""))
                for e in open_records(folder, split)
            }
            assert not found.keys() & here.keys()
            found.update(here)
    return found


def test_new_files_are_recorded_beside_a_data_set(root):
    old = contents(root / "first")
    write_speaker(root / "sounds", "gus")
    write_speaker(root / "sounds", "ada", clips=3)  # one more clip of hers
    made = record_more(root)
    assert (made.clips, made.rejected) == (3, 0)
    new = held(root / "second")
    assert {*new} == {"owl/gus_0.wav", "tit/gus_1.wav", "owl/ada_2.wav"}
    assert new["owl/ada_2.wav"][0] == held(root / "first")["owl/ada_0.wav"][0]
    assert made.classes == Metadata.load(root / "first").classes
    assert contents(root / "first") == old
    assert verify(root / "second", deep=True) == []
    # As if only these files were there.
    for path in (root / "sounds").rglob("*.wav"):
        if str(path.relative_to(root / "sounds")) not in new:
            path.unlink()
    record(root / "sounds", root / "alone", recipe=root / "first", workers=1)
    assert contents(root / "alone") == contents(root / "second")


def test_a_recipe_decides_the_splits_of_groups(root):
    """Three training speakers stay in train: nothing is balanced again."""
    before = held(root / "first")
    assert Metadata.load(root / "first").recipe.split_moves == {}  # the hash fills all
    train = {path for path, (split, _) in before.items() if split == "train"}
    speakers = sorted({Path(path).name.partition("_")[0] for path in train})[:3]
    assert len(speakers) == 3
    for speaker in speakers:
        write_speaker(root / "again", speaker)
    for name, recipe in (
        ("a", root / "first"), ("b", Metadata.load(root / "first")),
        ("c", root / "first" / "metadata.json"),
    ):  # fmt: skip
        record(root / "again", root / name, recipe=recipe, workers=1)
        assert {split for split, _ in held(root / name).values()} == {"train"}
    flags = ["--input", str(root / "again"), "--output", str(root / "d")]
    assert main(["record", *flags, "--recipe", str(root / "first")]) == 0
    assert contents(root / "d") == contents(root / "a")
    # With other shares, the groups get splits anew.
    other = record(root / "again", root / "e", recipe=root / "first", splits="a=1,b=1")
    assert {*other.splits} == {"a", "b"}


def test_another_way_to_split_is_refused(root):
    options = {**OPTIONS, "skip_recorded": root / "first"}
    for changes in ({"seed": 1}, {"splits": "train=1,test=1"}, {}):
        with raises(RecipeError, naming=["first", "--recipe"]):
            record(root / "sounds", root / "second", **{**options, **changes})
    assert not (root / "second").exists()


def test_nothing_new_leaves_no_folder(root, cli):
    assert "nothing new" in cli(*flags_of(root)).out
    assert not (root / "second").exists()
    made = record_more(root, work_dir=root / "work")
    assert (made.splits, made.clips, made.rejected) == ({}, 0, 0)
    assert not any((root / name).exists() for name in ("second", "work"))


def test_bad_files_alone_follow_max_rejected(root, cli):
    (root / "sounds" / "owl" / "gus_0.wav").write_bytes(b"no sound")
    command = flags_of(root)
    assert "gus_0.wav" in cli(*command, status=3).err
    assert [reject["path"] for reject in rejects_in(root / "second")] == [
        "owl/gus_0.wav"
    ]
    assert_names(cli(*command, "--max-rejected", "1").err, "gus_0.wav", "rejected")
    assert not (root / "second").exists()
    # Some of each.
    write_speaker(root / "sounds", "hal")
    assert main([*command, "--max-rejected", "1"]) == 0
    assert Metadata.load(root / "second").rejected == 1
    assert len(held(root / "first", root / "second")) == 14
    # What was rejected is tried again.
    (root / "sounds" / "owl" / "gus_0.wav").unlink()
    write_speaker(root / "sounds", "gus", clips=1)
    command = flags_of(root, "third")
    assert main([*command, "--skip-recorded", str(root / "second")]) == 0
    assert {*held(root / "third")} == {"owl/gus_0.wav"}


def test_a_clip_that_broke_while_it_was_recorded_is_tried_again(tmp_path):
    write_sound(tmp_path / "in/a/good.wav", 160_000, seed=1)
    write_sound(tmp_path / "in/a/bad.flac", 200_000, seed=2)
    whole = (tmp_path / "in/a/bad.flac").read_bytes()
    damage(tmp_path / "in/a/bad.flac", 0.5, 4000)
    options = {"win_len": 150_000, "workers": 1}
    record(tmp_path / "in", tmp_path / "1", max_rejected=1, **options)
    (tmp_path / "in/a/bad.flac").write_bytes(whole)
    record(tmp_path / "in", tmp_path / "2", skip_recorded=[tmp_path / "1"], **options)
    assert {*held(tmp_path / "1")} == {"a/good.wav"}
    assert {*held(tmp_path / "2")} == {"a/bad.flac"}


def test_another_length_is_named(root):
    write_sound(root / "sounds/owl/ada_0.wav", 1101, seed=99)
    write_speaker(root / "sounds", "gus")
    with raises(InputError, naming=["ada_0.wav", "1100", "1101"]):
        record_more(root)
    assert not (root / "second").exists()


@pytest.mark.parametrize("channels", ["mix", "keep", 0])
def test_another_sound_of_the_same_name_and_length_is_named(tmp_path, channels):
    write_sound(tmp_path / "in/a.wav", 9000, rate=8000, seed=1)
    options = {"win_len": 500, "label_from": "none", "workers": 1, "channels": channels}
    record(tmp_path / "in", tmp_path / "1", **options)
    write_sound(tmp_path / "in/b.wav", 9000, rate=8000, seed=2)
    options["skip_recorded"] = tmp_path / "1"
    record(tmp_path / "in", tmp_path / "2", **options)
    assert {*held(tmp_path / "2")} == {"b.wav"}
    write_sound(tmp_path / "in/a.wav", 9000, rate=8000, seed=3)
    with raises(InputError, naming=["a.wav", "another sound", "further `input`"]):
        record(tmp_path / "in", tmp_path / "3", **options)
    assert not (tmp_path / "3").exists()


def test_another_root_is_asked_for(tmp_path):
    for name in "ab":
        write_sound(tmp_path / f"in/x/{name}.wav", 1000)
    options = {"win_len": 500, "label_from": "none", "workers": 1}
    record(tmp_path / "in", tmp_path / "1", **options)
    options["skip_recorded"] = tmp_path / "1"
    with pytest.warns(DataSetWarning, match=r"x/..wav.*root of the `input`"):
        record(tmp_path / "in/x", tmp_path / "2", **options)
    assert {*held(tmp_path / "2")} == {"a.wav", "b.wav"}


def test_a_group_of_another_split_is_rejected(tmp_path):
    def table(*rows):
        lines = ["path,speaker,part", *map(",".join, rows)]
        for path, *_ in rows:
            if not (tmp_path / path).exists():
                write_sound(tmp_path / path, 1000, seed=len(rows))
        (tmp_path / "clips.csv").write_text("\n".join(lines) + "\n")
        return tmp_path / "clips.csv"

    options = {
        "win_len": 500, "label_from": "none", "split_column": "part",
        "group_by": "speaker", "columns": "none", "workers": 1,
    }  # fmt: skip
    first = [("a.wav", "ada", "train"), ("b.wav", "bob", "test")]
    record(table(*first), tmp_path / "1", **options)
    more = [("c.wav", "ada", "test"), ("d.wav", "bob", "test")]
    made = record(
        table(*first, *more), tmp_path / "2", skip_recorded=tmp_path / "1",
        max_rejected=1, **options,
    )  # fmt: skip
    assert {*held(tmp_path / "2")} == {"d.wav"}
    (reject,) = rejects_in(tmp_path / "2")
    assert_names(reject["reason"], "ada", "train", "test")
    assert made.rejected == 1


def test_parts_and_inputs_are_told_apart(tmp_path):
    for name in ("one", "two"):
        write_sound(tmp_path / name / "x.wav", 4000, seed=len(name))
    options = {"win_len": 500, "label_from": "none", "workers": 1}
    record(tmp_path / "one", tmp_path / "1", **options)
    both = [tmp_path / "one", tmp_path / "two"]
    record(both, tmp_path / "2", skip_recorded=tmp_path / "1", **options)
    two = np.stack([e["signal"] for e in open_records(tmp_path / "2")])
    assert len(two) == 8
    (tmp_path / "t.csv").write_text("path,offset_s,duration_s\none/x.wav,0,0.1\n")
    record(tmp_path / "t.csv", tmp_path / "3", **options)
    with (tmp_path / "t.csv").open("a") as file:
        file.write("one/x.wav,0.3,0.1\n./one/x.wav,0,0.1\n")
    record(tmp_path / "t.csv", tmp_path / "4", skip_recorded=tmp_path / "3", **options)
    table = open_records(tmp_path / "4").table()
    assert table["start_s"].to_pylist() == [0.3]


def test_events_of_recorded_files_are_not_missing(tmp_path):
    for name in "ab":
        write_sound(tmp_path / f"in/{name}.wav", 2000, seed=ord(name))
    events = tmp_path / "events.csv"
    rows = [f"{name}.wav,0.01,0.05,owl" for name in "abc"]
    events.write_text("\n".join(["path,start_s,end_s,label", *rows[:2]]) + "\n")
    options = {
        "win_len": 500, "label_from": "none", "events": str(events), "workers": 1,
        "event_targets": "multi_hot",
    }  # fmt: skip
    record(tmp_path / "in", tmp_path / "1", **options)
    events.write_text("\n".join(["path,start_s,end_s,label", *rows]) + "\n")
    for name in "ab":
        (tmp_path / f"in/{name}.wav").unlink()
    write_sound(tmp_path / "in/c.wav", 2000)
    with pytest.warns(DataSetWarning, match="root"):
        made = record(
            tmp_path / "in", tmp_path / "2", skip_recorded=tmp_path / "1", **options
        )
    assert (made.clips, made.rejected) == (1, 0)


def test_a_run_continues_with_the_same_data_sets_only(root):
    write_speaker(root / "sounds", "gus")
    (root / "sounds/owl/hal_0.wav").write_bytes(b"no sound")
    with raises(TooManyRejected):
        record_more(root)
    with raises(OutputError, naming=["--skip-recorded", "first"]):
        record_more(root, skip_recorded=())
    made = record_more(root, max_rejected=1)
    assert (made.clips, made.rejected) == (3, 1)


def test_a_runner_of_beam_skips_the_same(root):
    on_beam = {"beam_args": ["--runner=DirectRunner"], "workers": None}
    made = record_more(root, "none", **on_beam)
    assert (made.splits, (root / "none").exists()) == ({}, False)
    write_speaker(root / "sounds", "gus")
    record_more(root, "here")
    record_more(root, "beam", **on_beam)
    assert contents(root / "beam") == contents(root / "here")


# A recipe of a data set for other data: its classes keep their numbers


@pytest.fixture(scope="module")
def birds(tmp_path_factory):
    """``a`` has owl and tit, ``b`` only tit, ``c`` only bat; ``out`` is of ``a``."""
    folder = tmp_path_factory.mktemp("birds")
    for path in ("a/owl/1", "a/tit/2", "b/tit/3", "c/bat/4"):
        write_sound(folder / f"{path}.wav", 1200, seed=int(path[-1]))
    record(folder / "a", folder / "out", win_len=500)
    return folder


def targets(folder):
    return {(e["class"], int(e["target"])) for e in open_records(folder)}


def test_classes_keep_their_numbers(birds, tmp_path):
    metadata = Metadata.load(birds / "out")
    made = record(birds / "b", tmp_path / "out", recipe=metadata)
    assert targets(tmp_path / "out") == {("tit", 1)}
    assert made.classes == ("owl", "tit")
    # Recorded twice, verified and planned like any other.
    assert record(birds / "b", tmp_path / "out", recipe=metadata) == made
    assert verify(tmp_path / "out", deep=True, input=birds / "b") == []
    summary, _ = plan(birds / "b", recipe=metadata)
    assert summary.example_format.classes == ("owl", "tit")


def test_another_class_is_rejected(birds, tmp_path):
    metadata = Metadata.load(birds / "out")
    with raises(TooManyRejected, naming=["bat/4.wav", "convert --classes"]):
        record(birds / "c", tmp_path / "out", recipe=metadata)
    # The options alone, with classes of their own:
    other = record(birds / "c", tmp_path / "out", recipe=metadata.recipe)
    assert other.classes == ("bat",)
    record(birds / "c", tmp_path / "named", recipe=metadata, classes="bat,owl")
    assert targets(tmp_path / "named") == {("bat", 0)}


def test_without_labels_there_are_no_classes(birds, tmp_path):
    recipe = birds / "out"
    made = record(birds / "c", tmp_path / "out", recipe=recipe, label_from="none")
    assert made.classes == ()
    # A data set without classes has none to bring.
    assert given_recipe(made) == made.recipe


def test_elements_have_no_recipe(birds, tmp_path):
    record_examples([{"x": 1}], tmp_path / "elements")
    made = Metadata.load(tmp_path / "elements")
    with raises(InputError, naming=["recipe", "audio"]):
        record(birds / "a", tmp_path / "out", recipe=made)
