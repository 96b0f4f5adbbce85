"""Files are added to a finished data set: what is there stays, and readers see all."""

from __future__ import annotations

import json
import pickle
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile

import beam_pipeline
from beam_pipeline import Metadata, open_records, record, replay
from beam_pipeline.api import plan, write_template
from beam_pipeline.cli.main import main
from beam_pipeline.conversion.convert import convert
from beam_pipeline.dataset import add_generation
from beam_pipeline.elements.record_examples import record_examples
from beam_pipeline.errors import (
    DataSetWarning,
    InputError,
    OptionError,
    OutputError,
    RecipeError,
    TooManyRejected,
)
from beam_pipeline.read.audit import audit
from beam_pipeline.read.index_members import index_data_set
from beam_pipeline.read.verification import verify
from beam_pipeline.read.verify import find_problems
from beam_pipeline.run.repair import repair
from beam_pipeline.storage import files
from tests.raising import assert_names, raises
from tests.runs.killed import record_and_kill
from tests.sounds import RATE, write_corpus, write_sound

pytestmark = pytest.mark.runs

REPOSITORY = Path(__file__).parents[2]
SCHEMA = json.loads(
    (Path(beam_pipeline.__file__).parent / "dataset/metadata.schema.json").read_text()
)
SHARES = {"train": 0.6, "test": 0.4}
OPTIONS: Any = {
    "win_len": 500,
    "hop": 250,
    "splits": SHARES,
    "features": {"mel": "log_mel(n_fft=256,n_mels=8)"},
    "elements_per_file": 40,
}


def write_more(folder: Path, first: int = 20, clips: int = 3) -> None:
    """Writes clips of the classes of the corpus, with other names."""
    for label in ("cat", "dog"):
        for i in range(first, first + clips):
            path = folder / label / f"{label}_{i}.wav"
            write_sound(path, 2000 + 90 * i, seed=1000 * len(label) + i)


def copy_all(target: Path, *sources: Path) -> Path:
    for source in sources:
        shutil.copytree(source, target, dirs_exist_ok=True)
    return target


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Inputs in ``in``, others in ``more``, and the data set ``out`` of the first."""
    folder = tmp_path_factory.mktemp("before")
    write_corpus(folder / "in")
    write_more(folder / "more")
    record(folder / "in", folder / "out", **OPTIONS)
    return folder


@pytest.fixture
def work(before: Path, tmp_path: Path) -> Path:
    """A copy of the data set, beside links to its inputs."""
    shutil.copytree(before / "out", tmp_path / "out")
    for name in ("in", "more"):
        (tmp_path / name).symlink_to(before / name)
    return tmp_path


def state(folder: Path) -> dict[str, tuple[bytes, int]]:
    """Bytes and times of all files but the metadata."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != "metadata.json"
    }


def content(folder: Path) -> dict[str, bytes]:
    """Bytes of all files."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def write_content(folder: Path, found: dict[str, bytes]) -> Path:
    for name, data in found.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def whole(example: dict[str, Any]) -> tuple[Any, ...]:
    """All of an example but its number."""
    return tuple(
        (name, value.tobytes() if isinstance(value, np.ndarray) else value)
        for name, value in sorted(example.items())
        if name not in ("index", "num_classes")
    )


def examples(folder: Path, split: str) -> Counter[tuple[Any, ...]]:
    return Counter(whole(each) for each in open_records(folder, split))


def replayed(folder: Path, split: str) -> Counter[tuple[Any, ...]]:
    found = replay(str(folder), split=split).as_numpy_iterator()
    texts = (
        {n: v.decode() if isinstance(v, bytes) else v for n, v in each.items()}
        for each in found
    )
    return Counter(map(whole, texts))


def assert_sound(folder: Path) -> Metadata:
    """The data set verifies, and its files agree with each other."""
    metadata = Metadata.load(folder)
    assert verify(folder, deep=True) == []
    jsonschema.validate(json.loads((folder / "metadata.json").read_text()), SCHEMA)
    assert not (folder / "_work").exists()
    for split, entry in metadata.splits.items():
        records = open_records(folder, split)
        table = records.table()
        held = table.filter(table["record"].is_valid())
        assert held.num_rows == len(records) == entry.examples
        for row in (0, len(records) - 1):
            told, example = held.slice(row, 1).to_pylist()[0], records[row]
            assert (told["path"], told["clip"]) == (
                example["filepath"], example["index"],
            )  # fmt: skip
    return metadata


def test_an_append_equals_two_recordings_and_one_of_all(work: Path) -> None:
    old = state(work / "out")
    first = Metadata.load(work / "out")
    metadata = record(work / "more", work / "out", append=True)
    assert assert_sound(work / "out") == metadata
    # What was there is there, byte by byte and second by second.
    now = state(work / "out")
    assert {name: now[name] for name in old} == old
    assert (work / "out" / "metadata-a000.json").read_text() == json.dumps(
        first.to_json(), indent=2, ensure_ascii=False
    ) + "\n"
    # Two recordings with the same recipe.
    record(work / "more", work / "two", **OPTIONS)
    for split in SHARES:
        both = examples(work / "two", split)
        with_old = {s.file for s in first.splits[split].shards}
        assert with_old < {s.file for s in metadata.splits[split].shards}
        both += examples_of_first(work, split)
        assert examples(work / "out", split) == both
        assert replayed(work / "out", split) == both
    # One recording of all: the same counts, and exactly the same statistics.
    copy_all(work / "all", work / "in", work / "more")
    once = record(work / "all", work / "once", **OPTIONS)
    assert (metadata.clips, metadata.classes) == (once.clips, once.classes)
    for split, entry in once.splits.items():
        ours = metadata.splits[split]
        assert_same_statistics(ours.statistics, entry.statistics)
        assert ours.examples_per_class == entry.examples_per_class
        assert (ours.examples, ours.clips) == (entry.examples, entry.clips)
        assert ours.seconds == pytest.approx(entry.seconds)
    # Numbers continue.
    indices = {int(e["index"]) for s in SHARES for e in open_records(work / "out", s)}
    assert indices == set(range(18))
    rows = pq.read_table(work / "out" / "manifest-a001.parquet").to_pylist()
    for split in SHARES:
        at = first.splits[split].examples
        for row in rows:
            if row["split"] == split:
                assert row["first_index"] == at
                at += row["windows"]
        assert at == metadata.splits[split].examples


def assert_same_statistics(found: Any, wanted: Any, rel: float = 1e-13) -> None:
    """They are equal, but for sums within a block, whose bounds are those of shards."""
    assert found["windows"] == wanted["windows"]
    for name, ours in found["features"].items():
        theirs = wanted["features"][name]
        assert {k for k in ours if ours[k] != theirs[k]} <= {"mean", "std", "bins"}
        for key in ("mean", "std"):
            assert ours[key] == pytest.approx(theirs[key], rel)
            np.testing.assert_allclose(ours["bins"][key], theirs["bins"][key], rel)


def examples_of_first(work: Path, split: str) -> Counter[tuple[Any, ...]]:
    """The examples before anything was added."""
    record(work / "in", work / "first", **OPTIONS)
    return examples(work / "first", split)


def test_two_appends_and_the_readers_of_before(work: Path) -> None:
    out = work / "out"
    opened = open_records(out, "train")
    pickled = pickle.dumps(opened)
    part = iter(replay(str(out), split="train", batch_size=4))
    part_before = next(part)["index"].shape[0]
    expected = [whole(example) for example in opened]
    record(work / "more", out, append=True)
    write_more(work / "later", first=40, clips=2)
    metadata = record(work / "later", out, append=True, workers=2, num_shards=None)
    assert [g.clips for g in metadata.generations] == [12, 6, 4]
    assert [whole(example) for example in opened] == expected
    assert opened.table().num_rows == len(opened) == len(expected)
    assert part_before + sum(b["index"].shape[0] for b in part) == len(expected)
    again = pickle.loads(pickled)
    assert [whole(example) for example in again] == expected
    assert again.table() == opened.table()
    now = open_records(out, "train")
    assert len(now) > len(expected)
    assert [whole(example) for example in now[: len(expected)]] == expected
    assert_sound(out)
    # The index of members can be made again.
    for name in ("members.index", "members-a001.index", "members-a002.index"):
        (out / name).rename(work / name)
    index_data_set(str(out))
    for name in ("members.index", "members-a001.index", "members-a002.index"):
        assert (out / name).read_bytes() == (work / name).read_bytes()
    # Recording the same data set again is no append: the readers refuse it.
    shutil.rmtree(out)
    record(work / "in", out, **{**OPTIONS, "seed": 1})
    with raises(InputError, naming="metadata.json has changed"):
        opened.read(range(len(opened)))


def test_nothing_new_and_known_files(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = work / "out"
    old = content(out)
    found: list[Metadata] = []
    metadata = record(work / "in", out, append=True, known="skip", found=found.append)
    assert found == [metadata]
    with raises(InputError, naming=["12 of 12 clips", "dog/dog_0.wav", "7 more"]):
        record(work / "in", out, append=True)
    assert main(["record", "--input", f"{work}/in", "--output", f"{out}",
                 "--append", "--known", "skip"]) == 0  # fmt: skip
    assert_names(capsys.readouterr().out, "nothing to add")
    grown = copy_all(work / "grown", work / "in", work / "more")
    with raises(InputError, naming=["12 of 18 clips", "cat/cat_0.wav", "`known`"]):
        record(grown, out, append=True)
    assert content(out) == old  # and no work folder
    write_sound(grown / "cat" / "cat_1.wav", 2700, seed=3)
    with raises(InputError, naming=["cat/cat_1.wav", "2700", "2600", "header"]):
        record(grown, out, append=True, known="skip")
    assert content(out) == old
    copy_all(grown, work / "in")
    assert main(["record", "--input", f"{grown}", "--output", f"{out}", "--append",
                 "--known=skip"]) == 0  # fmt: skip
    assert_names(capsys.readouterr().out, "6 clips new", "12 known clips skipped")
    by_folder = content(out)
    assert_sound(out)
    # It is the same as the append of the new files alone, but for the count of known.
    other = write_content(work / "other", old)
    record(work / "more", other, append=True)
    alone = content(other)
    del alone["metadata.json"], by_folder["metadata.json"]
    assert alone == by_folder


def test_what_is_not_the_data_sets_is_named(work: Path) -> None:
    out, more = work / "out", work / "more"
    old = content(out)
    for options, name in [
        ({"win_len": 400}, "win_len"),
        ({"seed": 1}, "seed"),
        ({"splits": {"train": 0.5, "test": 0.5}}, "splits"),
        ({"features": {"mel": "log_mel(n_fft=256,n_mels=9)"}}, "features"),
        ({"allow_truncated": True}, "allow_truncated"),
        ({"num_elems": 5}, "num_elems"),
    ]:
        with raises(RecipeError, name, naming="must be that of the data set"):
            record(more, out, append=True, **options)
    with raises(OptionError, "append", naming="overwrite"):
        record(more, out, append=True, overwrite=True)
    with raises(OptionError, "append", naming="retry"):
        record(more, out, append=True, retry=True)
    with raises(OptionError, "known", "skip", naming="append"):
        record(more, work / "new", win_len=1, known="skip")
    with raises(OptionError, "known", "maybe", naming="refuse or skip"):
        record(more, out, append=True, known="maybe")
    with raises(OptionError, "append", naming="plan"):
        plan(more, win_len=1, append=True)
    template = ["--runner=DataflowRunner", "--template_location=x"]
    with raises(OptionError, "append", naming="template_location"):
        write_template(more, out, win_len=1, append=True, beam_args=template)
    with raises(InputError, naming=["nowhere", "no finished data set"]):
        record(more, work / "nowhere", append=True)
    assert content(out) == old
    record_examples([{"x": 1}], work / "elements")
    with raises(InputError, naming=["record_examples", "elements"]):
        record(more, work / "elements", append=True)
    record(more, work / "few", win_len=500, num_elems=3)
    with raises(RecipeError, "num_elems", 3, naming="record all"):
        record(work / "in", work / "few", append=True)
    # Inputs give splits as those of the data set did.
    assert not (work / "few" / "_work").exists()
    record(more, work / "one", win_len=500)
    with raises(InputError, naming=["one has no splits", "train"]):
        record({"train": work / "in"}, work / "one", append=True)
    record({"train": more}, work / "given", win_len=500)
    with raises(InputError, naming=["train", "SPLIT=INPUT"]):
        record(work / "in", work / "given", append=True)
    # The same options are no other ones.
    record(more, out, append=True, **OPTIONS)


def test_new_classes(work: Path) -> None:
    out = work / "out"
    old = content(out)
    write_sound(work / "new" / "bee" / "bee_1.wav", 3000, seed=7)
    write_sound(work / "new" / "ant" / "ant_1.wav", 3000, seed=8)
    write_sound(work / "new" / "cat" / "cat_77.wav", 3000, seed=9)
    with raises(InputError, naming=["class ant", "ant/ant_1.wav", "`new_classes`"]):
        record(work / "new", out, append=True)
    assert content(out) == old
    metadata = record(work / "new", out, append=True, new_classes="add")
    assert metadata.classes == ("cat", "dog", "owl", "ant", "bee")
    assert_names((out / "schema.pbtxt").read_text(), "owl", "bee")
    assert_sound(out)
    for split in metadata.splits:
        records = open_records(out, split)
        for example in records:
            assert metadata.classes[int(example["target"])] == example["class"]
        bees = records.where("class == 'bee'")
        assert len(bees) == metadata.splits[split].examples_per_class["bee"]
    write_sound(work / "more2" / "bee" / "bee_2.wav", 3000, seed=7)
    assert record(work / "more2", out, append=True).classes == metadata.classes


def test_classes_that_cannot_be_added(tmp_path: Path) -> None:
    write_corpus(tmp_path / "in", clips=1)
    write_more(tmp_path / "more")
    more = {"append": True, "new_classes": "add"}
    record(tmp_path / "in", tmp_path / "a", win_len=500, classes="cat,dog,owl")
    with raises(RecipeError, "classes", "cat,dog,owl"):
        record(tmp_path / "more", tmp_path / "a", **more)
    record(tmp_path / "in", tmp_path / "b", win_len=500, label_separator="+")
    with raises(RecipeError, "label_separator", "+"):
        record(tmp_path / "more", tmp_path / "b", **more)
    assert record(tmp_path / "more", tmp_path / "b", append=True).clips == 9


def split_of(out: Path, column: str) -> dict[str, set[str]]:
    """The splits of each value of a column of all manifests."""
    splits: dict[str, set[str]] = {}
    for path in sorted(out.glob("manifest*.parquet")):
        for row in pq.read_table(path).to_pylist():
            splits.setdefault(row[column], set()).add(row["split"])
    return splits


def write_table(folder: Path, name: str, clips: list[tuple[str, ...]]) -> Path:
    """A table of clips (class, speaker, split), with the files."""
    lines = ["path,class,speaker,part,score"]
    for i, (label, speaker, part) in enumerate(clips):
        write_sound(folder / f"{name}{i}.wav", 2000 + 50 * i, seed=i + len(name))
        lines.append(f"{name}{i}.wav,{label},{speaker},{part},{i}")
    (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return folder / f"{name}.csv"


@pytest.mark.parametrize(
    "options",
    [
        {"splits": SHARES, "stratify": True},
        {"folds": 3, "stratify": True},
        {"split_column": "part"},
    ],
    ids=["stratified", "folds", "by column"],
)
def test_groups_and_splits_are_stable(tmp_path: Path, options: Any) -> None:
    clips = [("ab"[i % 2], f"s{i % 6}", ("train", "test")[i % 2]) for i in range(12)]
    first = write_table(tmp_path, "first", clips)
    options = {**options, "win_len": 500, "group_by": "speaker", "label_from": "class"}
    metadata = record(first, tmp_path / "out", columns="speaker,score", **options)
    moves = metadata.recipe.splits.moves if metadata.recipe else None
    assert (moves is None) == ("split_column" in options)
    old = split_of(tmp_path / "out", "group")
    more = [
        ("a", f"s{i}", ("train", "test")[i % 2]) for i in (*range(6), *range(8, 14))
    ]
    second = write_table(tmp_path, "more", more)
    metadata = record(second, tmp_path / "out", append=True)
    now = split_of(tmp_path / "out", "group")
    assert all(len(splits) == 1 for splits in now.values())
    assert {group: now[group] for group in old} == old
    assert audit(tmp_path / "out").leaks == 0
    assert metadata.recipe is not None
    assert metadata.recipe.splits.moves == moves
    assert_sound(tmp_path / "out")
    if "split_column" in options:
        third = write_table(
            tmp_path, "third", [("a", "s1", "train"), ("a", "s1", "test")]
        )
        metadata = record(third, tmp_path / "out", append=True, max_rejected=1)
        (line,) = (tmp_path / "out" / "rejected-a002.jsonl").read_text().splitlines()
        assert_names(line, "third0.wav", "group s1", "is in test")


def test_columns_keep_their_types(tmp_path: Path) -> None:
    first = write_table(tmp_path, "first", [("a", "s", "p")] * 3)
    out = tmp_path / "out"
    record(first, out, win_len=500, label_from="class", columns="score,speaker")
    more = write_table(tmp_path, "more", [("a", "7", "p")] * 2)
    record(more, out, append=True)
    assert {e["speaker"] for e in open_records(out)} == {"s", "7"}
    worse = write_table(tmp_path, "worse", [("a", "s", "p")] * 2)
    worse.write_text(worse.read_text().replace("p,1", "p,1.5"))
    metadata = record(worse, out, append=True, max_rejected=1)
    (line,) = (out / "rejected-a002.jsonl").read_text().splitlines()
    assert_names(line, "worse1.wav", "1.5", "score")
    assert metadata.rejected == 1
    (tmp_path / "less.csv").write_text("path,class,score\nmore0.wav,a,1\n")
    with raises(RecipeError, "columns", "speaker"):
        record(tmp_path / "less.csv", out, append=True)


def test_parts_of_a_known_file(tmp_path: Path) -> None:
    write_sound(tmp_path / "long.wav", 8 * RATE, seed=1)
    rows = "path,offset_s,duration_s\nlong.wav,{},{}\nlong.wav,{},{}\n"
    (tmp_path / "a.csv").write_text(rows.format(0, 1, 2, 1.5))
    (tmp_path / "b.csv").write_text(rows.format(2, 1.5, 5, 1))
    (tmp_path / "c.csv").write_text(rows.format(2.5, 2, 7, 1))
    out = tmp_path / "out"
    record(tmp_path / "a.csv", out, win_len=500, label_from="none", columns="none")
    with raises(InputError, naming=["1 of 2 clips", "long.wav"]):
        record(tmp_path / "b.csv", out, append=True)
    assert record(tmp_path / "b.csv", out, append=True, known="skip").clips == 3
    assert audit(out).kinds["parts"].leaks == 0
    record(tmp_path / "c.csv", out, append=True)
    (finding,) = audit(out).kinds["parts"]
    assert sorted(clip.interval[0] for clip in finding.clips) == [2.0, 2.5]
    assert set(split_of(out, "file")) == {0}
    assert_sound(out)


def test_rates_that_do_not_fit(tmp_path: Path) -> None:
    write_sound(tmp_path / "in" / "a.wav", 4000)
    write_sound(tmp_path / "more" / "b.wav", 8000, rate=16000)
    seconds = {"win_seconds": 0.1, "label_from": "none"}
    record(tmp_path / "in", tmp_path / "out", **seconds)
    # A rate that is given now would be refused, so the error does not ask for one.
    with raises(InputError, naming=["b.wav has 16000 Hz", "8000 Hz", "Resample"]):
        record(tmp_path / "more", tmp_path / "out", append=True)
    mel = {"features": {"m": "log_mel(n_fft=64,n_mels=4)"}, "label_from": "none"}
    record(tmp_path / "in", tmp_path / "mel", win_len=500, **mel)
    with raises(RecipeError, naming=["a.wav", "b.wav"]):
        record(tmp_path / "more", tmp_path / "mel", append=True)
    record(tmp_path / "in", tmp_path / "any", win_len=500, label_from="none")
    assert record(tmp_path / "more", tmp_path / "any", append=True).clips == 2


def test_events_and_copies(tmp_path: Path) -> None:
    events = ["file,start_s,end_s,label"]
    for name in ("a", "b", "c", "d"):
        write_sound(tmp_path / ("in" if name < "c" else "more") / f"{name}.wav", 4000)
        events.append(f"{name}.wav,0.1,0.3,{'xy'[name in 'bd']}")
    (tmp_path / "one.csv").write_text("\n".join(events[:3]) + "\n")
    (tmp_path / "all.csv").write_text("\n".join(events) + "\n")
    out = tmp_path / "out"
    record(tmp_path / "in", out, win_len=500, label_from="none", copies=1,
           augment="noise()", events=str(tmp_path / "one.csv"))  # fmt: skip
    metadata = record(
        tmp_path / "more", out, append=True, events=str(tmp_path / "all.csv")
    )
    assert (metadata.clips, metadata.rejected) == (4, 0)
    assert_sound(out)
    copies = Counter(int(e["copy"]) for e in open_records(out))
    assert copies == {0: 32, 1: 32}
    per_class = metadata.splits["records"].examples_per_class
    assert per_class["x"] == per_class["y"] > 0


def cut_wav(path: Path) -> bytes:
    """Cuts a file off; returns what it was."""
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])
    return data


def broken_flac(path: Path, seed: int = 0) -> bytes:
    """Writes a FLAC whose middle is damaged; returns what it should be."""
    noise = np.random.default_rng(seed).uniform(-0.5, 0.5, 6000)
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, noise, RATE)
    data = path.read_bytes()
    path.write_bytes(data[:3000] + bytes(4000) + data[7000:])
    return data


def rejected(folder: Path, generation: str = "") -> list[str]:
    lines = (folder / f"rejected{generation}.jsonl").read_text().splitlines()
    return list(dict.fromkeys(json.loads(line)["path"] for line in lines))


def test_rejects_are_listed_and_tried_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sounds, out = tmp_path / "in", tmp_path / "out"
    write_corpus(sounds)
    good = cut_wav(sounds / "cat" / "cat_1.wav")
    cut_wav(sounds / "dog" / "dog_2.wav")
    flac = broken_flac(sounds / "owl" / "late.flac")
    (sounds / "owl" / "no.wav").write_text("not a sound")
    record(sounds, out, max_rejected=4, **OPTIONS)
    old = state(out)
    names = ["cat/cat_1.wav", "dog/dog_2.wav", "owl/late.flac", "owl/no.wav"]
    assert rejected(out) == names
    # An append takes none of them, and adds its own.
    write_more(sounds)
    (sounds / "cat" / "bad.wav").write_text("not a sound")
    with raises(TooManyRejected, naming=["1 of 7 clips", "cat/bad.wav"]):
        record(sounds, out, append=True, known="skip")
    assert state(out).keys() - old.keys() == {
        name for name in state(out) if name.startswith("_work/")
    }
    metadata = record(sounds, out, append=True, known="skip", max_rejected=1)
    assert (metadata.clips, metadata.rejected) == (21, 5)
    assert rejected(out, "-a001") == [*names, "cat/bad.wav"]
    # Nothing is repaired: nothing changes.
    before = content(out)
    assert record(sounds, out, retry=True) == metadata
    words = ["record", "--input", f"{sounds}", "--output", f"{out}", "--retry"]
    assert main(words) == 0
    said = capsys.readouterr().out
    assert_names(said, "no rejected clip (5)", f"plan --recipe {out}/metadata.json")
    assert content(out) == before
    (sounds / "cat" / "cat_1.wav").write_bytes(good)
    (sounds / "owl" / "late.flac").write_bytes(flac)
    assert main(words) == 0
    assert_names(capsys.readouterr().out, "5 clips tried again")
    metadata = assert_sound(out)
    assert (metadata.clips, metadata.rejected) == (21, 3)
    left = ["dog/dog_2.wav", "owl/no.wav", "cat/bad.wav"]
    assert sorted(rejected(out, "-a002")) == sorted(left)
    metadata = record(sounds, out, retry=True, allow_truncated=True)
    assert (metadata.clips, metadata.rejected) == (21, 2)
    assert metadata.generations[-1].options == {"allow_truncated": True}
    assert metadata.recipe is not None
    assert metadata.recipe.audio.allow_truncated is False
    assert_sound(out)
    # All as if it had been recorded at once, from files that are whole.
    for name in rejected(out, "-a003"):
        (sounds / name).unlink()
    once = record(sounds, tmp_path / "once", **OPTIONS, allow_truncated=True)
    for split, entry in once.splits.items():
        assert examples(out, split) == examples(tmp_path / "once", split)
        assert metadata.splits[split].clips == entry.clips
        assert_same_statistics(metadata.splits[split].statistics, entry.statistics)
    assert audit(out).clips == 19
    convert(str(out), str(tmp_path / "one"))
    for split in metadata.splits:
        table = open_records(tmp_path / "one", split).table()
        columns = ["record", "path", "start_s", "left_out", "clip"]
        wanted = open_records(out, split).table().select(columns)
        assert table.select(columns).to_pylist() == wanted.to_pylist()
    assert {n: state(out)[n] for n in old} == old


def test_a_data_set_of_an_earlier_version(work: Path) -> None:
    """Without exact statistics, those in the metadata are merged."""
    out = work / "out"
    exact = record(work / "more", copy_all(work / "exact", out), append=True)
    (out / "statistics.json").write_text('{"splits": {"train": 1}}')
    with raises(InputError, naming=["statistics.json", "damaged"]):
        record(work / "more", out, append=True)
    (out / "statistics.json").unlink()
    metadata = record(work / "more", out, append=True)
    for split, entry in exact.splits.items():
        (wanted,) = entry.statistics["features"].values()
        (found,) = metadata.splits[split].statistics["features"].values()
        assert found["count"] == wanted["count"]
        assert found["nonfinite_share"] == wanted["nonfinite_share"]
        for name in ("mean", "std", "min", "max"):
            assert found[name] == pytest.approx(wanted[name], rel=1e-9)
            np.testing.assert_allclose(
                found["bins"][name], wanted["bins"][name], rtol=1e-9
            )
        spread = wanted["std"]
        for q, value in wanted["quantiles"].items():
            assert found["quantiles"][q] == pytest.approx(value, abs=0.3 * spread)
        windows = metadata.splits[split].statistics["windows"]
        assert windows == entry.statistics["windows"]


def test_damage_in_an_added_shard_is_found(work: Path) -> None:
    out = work / "out"
    metadata = record(work / "more", out, append=True)
    shard = metadata.splits["train"].shards[-1].file
    assert "-a001-" in shard
    data = bytearray((out / shard).read_bytes())
    data[len(data) // 2] ^= 1
    (out / shard).write_bytes(data)
    assert any(shard in line for line in find_problems(str(out), metadata))
    with raises(InputError, naming=["were added", "restore"]):
        repair(out, work / "in")
    with raises(InputError, naming=["were added", "`input`"]):
        verify(out, deep=True, input=work / "in")
    (out / shard).unlink()
    assert list(find_problems(str(out), metadata)) == [f"{shard}: is missing"]


# A process that runs an append once, counting the files that it makes; then on other
# copies, where it kills itself as it is about to make one of them.


def test_killed_at_any_moment_and_continued(work: Path) -> None:
    old, first = state(work / "out"), Metadata.load(work / "out")
    # While shards are written, while they are published, and right before the switch.
    names = ("undisturbed", "early", "late", "last")
    undisturbed, *killed = (copy_all(work / name, work / "out") for name in names)
    record_and_kill(work / "more", undisturbed, killed, append=True)
    for folder in killed:
        now = state(folder)
        assert {name: now[name] for name in old} == old
        assert Metadata.load(folder) == first
        assert list(find_problems(str(folder), first)) == []
        assert (folder / "_work" / "job.json").exists()
        assert main(["status", str(folder)]) == 0
        if folder.name == "late":  # other commands destroy nothing
            record(work / "in", folder, **OPTIONS)
            with raises(OutputError, naming=["_work", "unfinished", "delete"]):
                record(work / "in", folder, append=True)
            assert (folder / "_work" / "job.json").exists()
        record(work / "more", folder, append=True)
        assert content(folder) == content(undisturbed)


def test_killed_after_the_switch(work: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The work folder is still there, and the same command only empties it."""
    out = work / "out"
    with monkeypatch.context() as patched:
        patched.setattr(add_generation, "clear_work", lambda work: None)
        record(work / "more", out, append=True)
    wanted = content(out)
    assert (out / "_work" / "switch.json").exists()
    found: list[Metadata] = []
    metadata = record(work / "more", out, append=True, found=found.append)
    assert found == [metadata]
    assert content(out) == {n: d for n, d in wanted.items() if "_work" not in n}


def test_files_of_an_unfinished_append_are_not_the_data_sets(work: Path) -> None:
    out = work / "out"
    (out / "train" / "train-a001-00000-of-00009.tfrecord.gz").write_bytes(b"stale")
    (out / "manifest-a001.parquet").write_bytes(b"stale")
    (out / "windows-a002.parquet").write_bytes(b"stale")
    (out / "members-a001.index.tmp-0a1b").write_bytes(b"stale")
    (out / "metadata.json.tmp-17").write_bytes(b"stale")
    metadata = assert_sound(out)
    record(work / "more", out, append=True)
    assert not (out / "train" / "train-a001-00000-of-00009.tfrecord.gz").exists()
    assert not (out / "windows-a002.parquet").exists()
    assert not list(out.glob("*.tmp-*"))
    assert assert_sound(out) != metadata
    # A data set with generations can be replaced, and is not recorded again by chance.
    with raises(OutputError, naming="files were added"):
        record(work / "in", out, **OPTIONS)
    record(work / "in", out, overwrite=True, **OPTIONS)
    assert content(out) == content_of_first(work)


def content_of_first(work: Path) -> dict[str, bytes]:
    record(work / "in", work / "first", **OPTIONS)
    return content(work / "first")


def test_another_append_in_between_is_noticed(
    work: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, metadata = work / "out", work / "out" / "metadata.json"
    old = metadata.read_bytes()

    def interrupted(*args: Any) -> None:
        monkeypatch.undo()
        with raises(OutputError, naming=["Another run", "out"]):
            record(work / "in", out, append=True, work_dir=work / "other")
        metadata.write_bytes(old + b"\n")  # as a run on another machine may do

    monkeypatch.setattr(add_generation, "check_nothing_lost", interrupted)
    with raises(OutputError, naming=["has changed", "again"]):
        record(work / "more", out, append=True)
    assert metadata.read_bytes() == old + b"\n"
    assert list(find_problems(str(out), Metadata.load(out))) == []
    record(work / "more", out, append=True)
    assert assert_sound(out).clips == 18


def test_a_runner_of_beam_adds_the_same(work: Path) -> None:
    other = copy_all(work / "other", work / "out")
    record(work / "more", other, append=True)
    out, beam_args = work / "out", ["--runner=DirectRunner"]
    record(work / "more", out, append=True, beam_args=beam_args)
    assert content(out) == content(other)
    before = content(out)
    record(work / "more", out, append=True, known="skip", beam_args=beam_args)
    assert content(out) == before
    grown = copy_all(work / "grown", work / "in")
    write_more(grown, first=50, clips=1)
    with raises(InputError, naming=["12 of 14", "`known`"]):
        record(grown, out, append=True, beam_args=beam_args)
    assert content(out) == before


def test_a_data_set_in_a_store(work: Path, bucket: str) -> None:
    out = f"s3://{bucket}/out"
    for name, data in content(work / "out").items():
        files.write_bytes(f"{out}/{name}", data)
    record(work / "more", out, append=True)
    other = copy_all(work / "other", work / "out")
    record(work / "more", other, append=True)
    found = {name: files.read_bytes(f"{out}/{name}") for name in files.list_files(out)}
    assert found == content(other)
    assert len(open_records(out, "train")) == len(open_records(other, "train"))


def test_lost_statistics_are_named(work: Path) -> None:
    (work / "out" / "statistics.json").unlink()
    with pytest.warns(DataSetWarning, match="has no statistics.json"):
        record(work / "more", work / "out", append=True)


@pytest.mark.parametrize(
    ("name", "how"),
    [("rejected.jsonl", ""), ("windows.parquet", ""),
     ("schema.pbtxt", ""), ("shard", ""), ("shard", "longer")],
)  # fmt: skip
def test_nothing_is_added_to_what_is_damaged(work: Path, name: str, how: str) -> None:
    if name == "shard":
        name = next(Metadata.load(work / "out").shards()).file
    path = work / "out" / name
    path.write_bytes(path.read_bytes() + b"x") if how else path.unlink()
    found = state(work / "out")
    with raises(OutputError, naming=[name, "damaged", "verify"]):
        record(work / "more", work / "out", append=True)
    assert state(work / "out") == found


def test_a_retry_knows_the_other_parts_of_a_file(tmp_path: Path) -> None:
    """Only the part that was rejected is tried again; no clip is recorded twice."""
    write_sound(tmp_path / "a.wav", 4000, seed=1)
    table = tmp_path / "in.csv"
    table.write_text("path,offset_s,duration_s\na.wav,0,0.2\na.wav,0.4,0.2\n")
    options = {"win_len": 800, "label_from": "none", "max_rejected": 1}
    record(table, tmp_path / "out", **options)
    assert len(open_records(tmp_path / "out")) == 2
    write_sound(tmp_path / "a.wav", 8000, seed=1)
    record(table, tmp_path / "out", retry=True)
    records = open_records(tmp_path / "out")
    starts = [int(records[i]["win_start_idx"]) for i in range(len(records))]
    assert len(records) == 4, starts
    assert verify(str(tmp_path / "out")) == []
