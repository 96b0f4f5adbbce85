"""Labels, clips that go and splits of a finished data set, changed without decoding."""

import csv
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

from beam_pipeline import Metadata, audit, convert, open_records, record, report, verify
from beam_pipeline.cli.main import main
from beam_pipeline.errors import DataSetWarning, InputError, OptionError
from beam_pipeline.read.audit import write_clean_manifest
from tests.data_sets import examples_in, records_in
from tests.raising import raises
from tests.read.members import seal
from tests.reporting.test_report import reported
from tests.sounds import write_corpus, write_sound

pytestmark = [
    pytest.mark.filterwarnings(
        "ignore:split .* has no:beam_pipeline.errors.DataSetWarning"
    )
]

CLASSES = ("cat", "dog", "owl")
OPTIONS = {
    "win_len": 500, "label_from": "class", "workers": 1,
    "features": {"power": "mel(n_fft=64,hop=64,n_mels=8)"},
}  # fmt: skip
CLIPS = [(f"{c}/{c}_{i}.wav", c, f"s{i % 4}") for c in CLASSES for i in range(5)]
FIXED = {"cat/cat_1.wav": "bat", "dog/dog_2.wav": "owl", "owl/owl_0.wav": "owl"}
RIGHT = [(path, FIXED.get(path, label), who) for path, label, who in CLIPS]
HALVES = "train=.5,test=.5"
AGAIN = {"splits": "train=.6,test=.4", "stratify": True, "group_by": "speaker"}


def write_table(path, *rows):
    with path.open("w", newline="") as file:
        csv.writer(file).writerows(rows)
    return path


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corrections") / "sounds"
    write_corpus(folder, CLASSES, clips=5, frames=1000)
    shutil.copy(folder / "cat/cat_0.wav", folder / "owl/owl_4.wav")
    return folder


def recorded_from(sounds, rows, out, **options):
    name = f"{out.name}.csv"
    table = write_table(sounds / name, ("path", "class", "speaker"), *rows)
    record(table, out, **{**OPTIONS, **options})
    return out


@pytest.fixture(scope="module")
def wrong(sounds):
    return recorded_from(sounds, CLIPS, sounds.parent / "wrong")


@pytest.fixture(scope="module")
def labels(sounds):
    return write_table(sounds.parent / "fixed.csv", ("path", "label"), *FIXED.items())


def assert_as_recorded(made, wanted):
    one, other = Metadata.load(made), Metadata.load(wanted)
    assert records_in(made) == records_in(wanted)
    assert one.classes == other.classes
    for name in ("manifest.parquet", "windows.parquet"):
        assert pq.read_table(made / name).equals(pq.read_table(wanted / name))
    for split, entry in other.splits.items():
        ours = one.splits[split].statistics["features"]["power"]
        theirs = entry.statistics["features"]["power"]
        assert ours["mean"] == pytest.approx(theirs["mean"], rel=1e-12)
    assert one.recorded_with.split_moves == other.recipe.split_moves
    assert verify(made, deep=True) == []


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"labels": True, **AGAIN}, RIGHT),
        ({"splits": "train=.6,test=.4", "drop": []}, CLIPS),
        ({"labels": True, "drop": ["owl/owl_4.wav"]}, RIGHT[:-1]),
        ({"drop": [CLIPS[k][0] for k in (14, 13)], **AGAIN}, CLIPS[:-2]),
    ],
    ids=["all", "splits", "labels-drop", "drop-splits"],
)
def test_corrected_is_as_if_recorded_so(sounds, wrong, labels, tmp_path, options, rows):
    """Bytes, order and tables are those of a run with the right labels and splits."""
    options = {**options, **({"labels": labels} if "labels" in options else {})}
    convert(wrong, tmp_path / "made", **options)
    names = ("splits", "stratify", "group_by")
    asked = {name: options[name] for name in names if name in options}
    recorded_from(sounds, rows, tmp_path / "wanted", **asked)
    assert_as_recorded(tmp_path / "made", tmp_path / "wanted")


def test_a_corrected_data_set_is_a_data_set(sounds, wrong, labels, tmp_path, capsys):
    """What reads data sets reads it: audit, report, show, clean manifest, convert."""
    made = tmp_path / "made"
    (tmp_path / "bad.txt").write_text("dog/dog_1.wav\n\ndog/dog_0.wav\n")
    command = ["convert", str(wrong), str(made), "--labels", str(labels)]
    command += ["--drop", str(tmp_path / "bad.txt"), "--splits", "train=.5,test=.5"]
    assert main([*command, "--stratify", "--group-by", "speaker"]) == 0
    assert "2 clips relabelled, 2 left out" in capsys.readouterr().out
    found = audit(made)
    assert found.clips == 13
    assert (found.count("audio"), found.count("audio", mixed=True)) == (1, 1)
    assert found.not_compared == {}
    page = Path(report(made, tmp_path / "page.html")).read_text()
    assert "Same audio" in page
    assert main(["show", str(made), "-n", "1"]) == 0
    again = convert(made, tmp_path / "again", drop=["owl/owl_4.wav"])
    assert audit(tmp_path / "again").count("audio") == 0
    assert again.classes == ("bat", "cat", "dog", "owl")
    # New sounds get the splits and the classes of the corrected data set.
    write_sound(sounds / "new.wav", 1000, seed=77)
    more = write_table(
        sounds / "more.csv", ("path", "class", "speaker"), ("new.wav", "bat", "s1")
    )
    record(more, tmp_path / "more", recipe=made, workers=1)
    both = Metadata.load(tmp_path / "more")
    assert both.classes == again.classes
    (split,) = (name for name, entry in both.splits.items() if entry.examples)
    assert "s1" in open_records(made, split).table()["speaker"].to_pylist()


def assert_tables_fit(folder):
    """Each row of the tables is its example's; returns the files of each split."""
    found = {}
    for split in Metadata.load(folder).splits:
        records = open_records(folder, split)
        table = records[:].table() if records.is_whole else records.table()
        kept = [row for row in table.to_pylist() if row["left_out"] is None]
        examples = records.read(slice(None))
        for name, column in (("filepath", "path"), ("class", "class")):
            assert examples[name].tolist() == [row[column] for row in kept]
        rates = examples["fs"] * np.array([row["start_s"] for row in kept])
        assert examples["win_start_idx"].tolist() == rates.round().astype(int).tolist()
        found[split] = {row["path"] for row in kept}
    return found


def test_one_correction_after_the_other(sounds, tmp_path):
    """Windows that were left out, splits in any order, another seed."""
    write_sound(sounds / "quiet.wav", 1000, seed=3)
    samples, rate = soundfile.read(sounds / "quiet.wav")
    soundfile.write(sounds / "quiet.wav", np.r_[samples, 0 * samples], rate)
    rows = [("quiet.wav", "owl", "s9"), *CLIPS[:9]]
    options = {"keep": "energy(above_db=-60)", "splits": "train=.5,eval=.3,test=.2"}
    one = recorded_from(sounds, rows, tmp_path / "one", **options)
    assert_tables_fit(one)
    convert(one, tmp_path / "two", splits="z=.5,a=.5", drop=["dog/dog_3.wav"])
    two = assert_tables_fit(tmp_path / "two")
    convert(tmp_path / "two", tmp_path / "three", splits="b=.6,a=.4", seed=7)
    three = assert_tables_fit(tmp_path / "three")
    assert set().union(*two.values()) == set().union(*three.values())
    kept = [row for row in rows if row[0] != "dog/dog_3.wav"]
    again = {**options, "splits": "b=.6,a=.4", "seed": 7}
    wanted = recorded_from(sounds, kept, tmp_path / "wanted", **again)
    assert assert_tables_fit(wanted) == three


def test_other_targets_stay_and_a_file_is_in_one_split(sounds, tmp_path):
    """A target from a column is no class; a file may have two names."""
    write_sound(sounds / "far" / "long.wav", 4000, seed=6)
    head = ("path", "start_s", "duration_s", "class", "depth")
    names = ("far/long.wav", "./far/long.wav")
    parts = [(names[k % 2], k / 16, 1 / 16, "owl", k) for k in range(8)]
    table = write_table(sounds / "far.csv", head, *parts)
    options = {**OPTIONS, "target_columns": ["depth"]}
    record(table, tmp_path / "in", **options)
    labels = [{"path": name, "label": "tit"} for name in names]
    for seed in range(3):
        out = tmp_path / str(seed)
        made = convert(
            tmp_path / "in", out, labels=labels, splits="a=.5,b=.5", seed=seed
        )
        (split,) = (name for name, entry in made.splits.items() if entry.examples)
        found = open_records(out, split).read(slice(None))
        assert {*found["class"].tolist()} == {"tit"}
        assert {*found["target"].tolist()} == {*range(8)}


def test_copies_stay_where_splits_have_copies(sounds, tmp_path):
    table = write_table(sounds / "few.csv", ("path", "class", "speaker"), *CLIPS[:8])
    options = {**OPTIONS, "augment": "noise()", "copies": 1}
    record(table, tmp_path / "all", **options)
    metadata = convert(tmp_path / "all", tmp_path / "made", splits=HALVES)
    copies = {
        split: open_records(tmp_path / "made", split).table()["copy"].to_pylist()
        for split in metadata.splits
    }
    assert {*copies["train"]} == {0, 1}
    assert {*copies["test"]} == {0}
    assert verify(tmp_path / "made", deep=True) == []


def test_parts_of_files_and_several_classes(sounds, tmp_path):
    """Clips are named by their seconds; `labels` has a 1 for each new class."""
    write_sound(sounds / "long.wav", 4000, seed=5)
    parts = [
        ("long.wav", k / 8, 0.125, "cat;dog" if k % 2 else "dog") for k in range(4)
    ]
    head = ("path", "start_s", "duration_s", "class")
    table = write_table(sounds / "parts.csv", head, *parts)
    options = {**OPTIONS, "label_separator": ";", "order": "mixed"}
    record(table, tmp_path / "in", **options)
    fixed = write_table(
        tmp_path / "fixed.csv", ("path", "start_s", "end_s", "label"),
        ("long.wav", 0.2501, 0.375, "ant;dog"),
    )  # fmt: skip
    drop = write_table(tmp_path / "drop.csv", ("path", "start_s"), ("long.wav", 0.125))
    made = convert(tmp_path / "in", tmp_path / "out", labels=fixed, drop=drop)
    assert made.classes == ("ant", "cat", "dog")
    assert made.features["labels"].shape == (3,)
    records = open_records(tmp_path / "out")
    starts = (np.array(records.table()["start_s"]) // 0.125).tolist()
    found = dict(zip(starts, records.read(slice(None))["labels"].tolist(), strict=True))
    assert found == {0: [0, 0, 1], 2: [1, 0, 1], 3: [0, 1, 1]}
    assert len(records) == 6


ROW = {"path": "cat/cat_1.wav", "label": "bat"}


@pytest.mark.parametrize(
    ("options", "name", "facts"),
    [
        (
            {"labels": [{"path": "cat/cat_1.wav", "klass": "a"}]},
            "labels",
            ["label, class", "klass"],
        ),
        ({"labels": [{"name": "cat/cat_1.wav"}]}, "labels", ["name", "path"]),
        ({"labels": [ROW], "classes": CLASSES}, "classes", ["bat"]),
        ({"labels": "none.csv"}, "labels", ["none.csv"]),
        ({"labels": {"cat/cat_1.wav": "bat"}}, "labels", ["bat", "a list of dicts"]),
        ({"drop": [path for path, *_ in CLIPS]}, "drop", ["all clips"]),
        ({"drop": "."}, "drop", ["."]),
        ({"stratify": True}, "stratify", ["splits"]),
        ({"splits": "a=1", "group_by": "who"}, "group_by", ["who", "speaker"]),
        ({"group_by": "fs"}, "group_by", ["splits"]),
        ({"features": ["powre"]}, "features", ["powre", "power"]),
        ({"features": []}, "features", []),
        ({"schema": "x"}, "schema", ["metadata.json"]),
        ({"dtypes": {"fs": "int32"}}, "dtypes", ["metadata.json"]),
        ({"workers": 0}, "workers", [0]),
        ({"beam_args": ["--x=1"]}, "options of Beam", []),
    ],
)
def test_options_that_do_not_fit_are_refused(
    wrong, tmp_path, monkeypatch, options, name, facts
):
    monkeypatch.chdir(tmp_path)
    with raises(OptionError, name, naming=facts):
        convert(wrong, "out", **options)
    assert not Path("out").exists()


@pytest.mark.parametrize(
    ("rows", "facts"),
    [
        ([("cat/cat_1.wav", "owl"), ("cat/cat_9.wav", "owl")],
         ["line 3", "cat/cat_9.wav"]),
        ([("cat/cat_1.wav", "owl"), ("cat/cat_1.wav", "dog")],
         ["line 3", "line 2", "owl", "dog"]),
        ([("cat/cat_1.wav", "owl"), ("cat/cat_2.wav", "")], ["line 3", "label"]),
    ],
)  # fmt: skip
def test_a_line_that_cannot_be_used_is_named(wrong, tmp_path, rows, facts):
    table = write_table(tmp_path / "fixed.csv", ("path", "label"), *rows)
    with raises(InputError, naming=[table, *facts]):
        convert(wrong, tmp_path / "out", labels=table)
    memory = [{"path": path, "label": label} for path, label in rows]
    with raises(InputError, naming=["`labels`", f"row {len(rows)}"]):
        convert(wrong, tmp_path / "out", labels=memory)
    (tmp_path / "list.txt").write_text("cat/cat_1.wav\nnone.wav\n")
    with raises(InputError, naming=["list.txt", "line 2", "none.wav"]):
        convert(wrong, tmp_path / "out", drop=tmp_path / "list.txt")
    assert not (tmp_path / "out").exists()


def test_data_sets_that_do_not_fit(wrong, tmp_path):
    """Records are named by their numbers in the file, whatever is left out."""
    bad, out = tmp_path / "bad", tmp_path / "out"
    shutil.copytree(wrong, bad)
    seal(bad, lambda values: values["features"]["power"].update(shape=[9, 8]))
    first = open_records(wrong).table()["path"].to_pylist()
    number = next(k for k, path in enumerate(first) if path != first[0])
    with raises(InputError, naming=[f"record {number}:", "power"]):
        convert(bad, out, drop=first[:1])
    (bad / "manifest.parquet").unlink()
    with raises(OptionError, "drop", naming="manifest.parquet"):
        convert(bad, out, drop=first[:1])
    assert not out.exists()


def test_a_list_of_classes_and_splits_without_one(wrong, tmp_path):
    few = [path for path, label, _ in CLIPS if label == "owl"][1:]
    options = {"labels": [ROW], "classes": [*CLASSES, "bat"]}
    with pytest.warns(DataSetWarning, match="has no example of owl"):
        made = convert(wrong, tmp_path / "out", drop=few, splits=HALVES, **options)
    assert made.classes == (*CLASSES, "bat")


def test_several_data_sets_and_inputs(sounds, tmp_path):
    for name, clips in (("a", CLIPS[:6]), ("b", CLIPS[4:9])):
        recorded_from(sounds, clips, tmp_path / name)
    sets = [tmp_path / "a", tmp_path / "b"]
    fixed = {"dog/dog_0.wav": "cat", "cat/cat_4.wav": "dog"}
    labels = [{"path": path, "label": label} for path, label in fixed.items()]
    metadata = convert(sets, tmp_path / "both", labels=labels, splits=HALVES)
    examples = examples_in(tmp_path / "both")
    assert len(examples) == len([*examples_in(sets[0]), *examples_in(sets[1])])
    for example in examples:
        path = example["filepath"]
        assert example["class"] == fixed.get(path, path[:3])
        assert example["class"] == metadata.classes[example["target"]]
    # The same name below two inputs: the number of the input tells them apart.
    for name in "xy":
        write_sound(tmp_path / name / "owl" / "1.wav", 1000, seed=ord(name))
    record([tmp_path / "x", tmp_path / "y"], tmp_path / "xy", win_len=500, workers=1)
    labels = [{"path": "owl/1.wav", "input": 1, "label": "tit"}]
    made = convert(tmp_path / "xy", tmp_path / "z", labels=labels)
    table = open_records(tmp_path / "z").table().to_pylist()
    assert {(row["input"], row["class"]) for row in table} == {(0, "owl"), (1, "tit")}
    assert made.classes == ("owl", "tit")
    del labels[0]["input"]
    with raises(InputError, naming=["owl/1.wav", "inputs 0, 1", "column `input`"]):
        convert(tmp_path / "xy", tmp_path / "w", labels=labels)


def test_doubles_that_an_audit_finds_go(wrong, tmp_path):
    """The clean manifest is the table of `labels`, for its groups, and of `drop`."""
    clean = tmp_path / "clean.csv"
    convert(wrong, tmp_path / "one", labels=[{"path": "owl/owl_4.wav", "class": "cat"}])
    assert write_clean_manifest(tmp_path / "one", clean, drop_doubles=True).dropped == 1
    rows = list(csv.DictReader(clean.read_text().splitlines()))
    assert [row["path"] for row in rows if row["drop"] == "true"] == ["owl/owl_4.wav"]
    options = {"labels": clean, "drop": clean, "splits": HALVES}
    convert(tmp_path / "one", tmp_path / "two", **options)
    found = audit(tmp_path / "two")
    assert (found.count("audio"), found.clips) == (0, 14)
    # Without `drop`, both copies are in one split, under every seed.
    assert write_clean_manifest(wrong, tmp_path / "c.parquet").dropped == 0
    for seed in range(4):
        out = tmp_path / f"seed{seed}"
        convert(wrong, out, seed=seed, splits=HALVES, labels=tmp_path / "c.parquet")
        assert audit(out).leaks == 0


def test_a_report_says_what_it_did_not_look_for(wrong, tmp_path):
    """What a conversion left out is named, and not passed over in silence."""
    made = tmp_path / "some"
    convert(wrong, made, features=["power", "target"])
    shown = reported(made, clips=1)
    assert shown["problems"][0]["title"] == "Same audio within one split"
    assert any(text.startswith("rejects") for text in shown["unchecked"])
    for name in ("manifest.parquet", "windows.parquet"):
        (made / name).unlink()
    bare = reported(made, clips=1)
    assert [t.partition(":")[0] for t in bare["unchecked"]] == [
        "leaks", "silent audio", "clipped audio", "rejects, classes that a split lacks",
    ]  # fmt: skip
    with raises(InputError, naming="manifest.parquet"):
        audit(made)
