"""verify --deep: what it finds in data sets that were changed behind its back."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_pipeline import open_records, record, record_examples
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError, OptionError, VerificationError
from beam_pipeline.examples.encoding import ExampleEncoder
from beam_pipeline.examples.spec import INT64_LIST, FeatureSpec
from beam_pipeline.read import example_check
from beam_pipeline.read.index_members import index_data_set
from beam_pipeline.read.verification import verify
from beam_pipeline.storage.tfrecord import SUFFIX, read_records
from tests.raising import assert_names, raises
from tests.read.members import write_shard
from tests.sounds import RATE, write_corpus, write_sound

pytestmark = pytest.mark.runs

WIN_LEN = 500
TARGETS = "tests.read.test_deep_verify:fails_if_called"


def fails_if_called(windows: np.ndarray) -> np.ndarray:
    """Raises, except on silence, once ``armed`` is set."""
    if fails_if_called.armed and windows.any():  # type: ignore[attr-defined]
        raise AssertionError("verify ran the recipe")
    return windows[:, :3]


fails_if_called.armed = False  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sounds")
    write_corpus(folder)
    write_sound(folder / "cat" / "short.wav", 100)
    return folder


@pytest.fixture(scope="module")
def whole(sounds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data set with splits, copies, windows left out, a cut and a reject."""
    folder = tmp_path_factory.mktemp("whole") / "out"
    record(
        str(sounds), str(folder), win_len=WIN_LEN, elements_per_file=12, num_elems=40,
        splits="train=.5,test=.5", copies=1, augment="random_gain()",
        keep="energy(above_db=-10.9)", max_rejected=1, member_bytes=8000,
        features={"signal": "identity()", "mel": "log_mel(n_fft=256,n_mels=8)"},
    )  # fmt: skip
    metadata = Metadata.load(folder)
    assert all(split.left_out for split in metadata.splits.values())
    assert metadata.rejected == 1
    return folder


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "out"))


def shards_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.tfrecord.gz"))


def edit_metadata(folder: Path, edit: Callable[[Any], Any]) -> None:
    path = folder / "metadata.json"
    values = json.loads(path.read_text())
    edit(values)
    path.write_text(json.dumps(values))


def rewrite_shard(
    folder: Path, change: Callable[[list[bytes]], list[bytes]]
) -> tuple[str, str]:
    """Changes the records of the first shard of train; the checksums fit.

    Returns the file and the split.
    """
    path = shards_of(folder / "train")[0]
    with open(path, "rb") as file:
        records = change(list(read_records(file)))
    name = f"train/{path.name}"
    entry = write_shard(folder, name.removesuffix(SUFFIX), records, 3)

    def edit(values: Any) -> None:
        shard = values["splits"]["train"]["shards"][0]
        shard.update(bytes=entry.bytes, sha256=entry.sha256)

    edit_metadata(folder, edit)
    index_data_set(str(folder))
    return name, "train"


def found_in(folder: Path, **options: Any) -> str:
    return "\n".join(verify(folder, deep=True, **options))


def test_a_whole_data_set(whole: Path, sounds: Path) -> None:
    assert verify(whole, deep=True) == []
    assert verify(whole, deep=True, input=str(sounds), sample=10**6) == []
    assert verify(whole) == []


@pytest.mark.parametrize(
    "options",
    [
        {"random_starts": True, "max_windows": 3},
        {"tail": "pad", "compression": "none", "dtype": "int16"},
        {"tail": "overlap", "hop": 300, "order": "listed", "label_from": "none"},
        {"features": {"i": "log_mel(n_fft=256,n_mels=8)|as_image()"},
         "encodings": {"i": "png"}, "folds": 3, "stratify": True},
        {"features": {"i": "log_mel(n_fft=256,n_mels=8)|as_image()", "f": "fft()"},
         "encodings": {"i": "jpeg", "f": "tensor"}},
        {"label_from": r"(?P<class>[a-z]+)_(?P<who>\d)", "group_by": "who",
         "splits": "train=.5,test=.5"},
        {"sample_rate": 4000, "stream": "high_pass(cutoff_hz=50)"},
    ],
    ids=str,
)  # fmt: skip
def test_recipes_of_all_kinds(sounds: Path, tmp_path: Path, options: Any) -> None:
    record(str(sounds), str(tmp_path), win_len=WIN_LEN, max_rejected=13, **options)
    assert verify(tmp_path, deep=True, input=str(sounds), sample=40) == []


def test_windows_that_were_resampled_are_decoded_again(tmp_path: Path) -> None:
    """The last bits of resampled frames depend on where a shard begins."""
    write_sound(tmp_path / "in/long.wav", 90_000)
    write_sound(tmp_path / "in/short.wav", 20_000, seed=1)
    options = {"win_len": 400, "hop": 300, "sample_rate": 3000, "copies": 1}
    record(
        tmp_path / "in",
        tmp_path / "out",
        elements_per_file=50,
        augment="random_gain()",
        keep="energy(above_db=-15.1)",
        **options,
    )
    assert verify(tmp_path / "out", deep=True, input=tmp_path / "in") == []


def test_tables_events_and_late_rejects(tmp_path: Path) -> None:
    rows = []
    for k in range(4):
        write_sound(tmp_path / "in" / f"{k}.wav", 3000, seed=k)
        rows.append(
            {"path": f"in/{k}.wav", "class": "cat;owl" if k % 2 else "cat",
             "day": k, "level": None if k == 1 else k / 3, "place": "" if k else "x"}
        )  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "clips.parquet")
    (tmp_path / "in" / "3.txt").write_text("0.1\t0.2\towl\n")
    for k in range(3):
        (tmp_path / "in" / f"{k}.txt").write_text("0\t0.05\tcat\n0.3\t0.31\towl\n")
    table = str(tmp_path / "clips.parquet")
    with pytest.raises(OptionError):
        verify(tmp_path, input=table)
    record(table, str(tmp_path / "a"), win_len=WIN_LEN, label_from="class",
           label_separator=";")  # fmt: skip
    assert verify(tmp_path / "a", deep=True, input=table, sample=50) == []
    for k, options in enumerate(
        [{}, {"event_targets": "multi_hot"}, {"no_event": "drop"}]
    ):
        out = tmp_path / f"e{k}"
        sounds = str(tmp_path / "in")
        record(sounds, str(out), win_len=WIN_LEN, events="{stem}.txt", **options)
        assert verify(out, deep=True, input=sounds, sample=50) == []


def test_clips_that_failed_in_the_middle(tmp_path: Path) -> None:
    for k in range(4):
        write_sound(tmp_path / "in" / "a" / f"{k}.flac", 4000, seed=k)
    path = tmp_path / "in" / "a" / "2.flac"
    content = bytearray(path.read_bytes())
    content[-900:-700] = bytes(200)
    path.write_bytes(content)
    sounds, out = str(tmp_path / "in"), tmp_path / "out"
    record(sounds, str(out), win_len=WIN_LEN, max_rejected=1)
    assert Metadata.load(out).rejected == 1
    assert verify(out, deep=True, input=sounds, sample=50) == []
    edit_metadata(out, lambda values: values["inputs"].update(rejected=0))
    assert_names(found_in(out), "metadata.json", "rejected", 0, 1)


def test_elements(tmp_path: Path) -> None:
    rows = [
        {"x": np.arange(k % 5, dtype=np.float32), "y": np.float64(k), "t": f"n{k}",
         "z": np.full((2, 3), k, np.int16)}
        for k in range(50)
    ]  # fmt: skip
    record_examples(rows, tmp_path, elements_per_file=20)
    assert verify(tmp_path, deep=True) == []
    with raises(InputError, naming=["input", tmp_path]):
        verify(tmp_path, deep=True, input="sounds/")
    edit_metadata(
        tmp_path,
        lambda v: v["splits"]["records"]["statistics"]["features"]["y"].update(mean=1),
    )
    assert_names(found_in(tmp_path), "metadata.json", "y", "mean", 1, 24.5)


def test_verifying_runs_no_code(
    sounds: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record(str(sounds), str(tmp_path), win_len=WIN_LEN, max_rejected=1,
           features={"own": TARGETS})  # fmt: skip
    monkeypatch.setattr(fails_if_called, "armed", True)
    assert verify(tmp_path, deep=True) == []
    assert "AssertionError" in found_in(tmp_path, input=str(sounds), sample=1)


# Damage to shards.


def test_a_damaged_example_is_named_by_file_byte_and_number(folder: Path) -> None:
    (path, *_) = shards_of(folder / "train")
    source = open_records(folder, "train")._source
    content = bytearray(path.read_bytes())
    expected = []
    for number in (2, 7):
        _, _, span = source.places.find_one(number)
        content[span.offset + span.size // 2] ^= 255
        expected.append((number, span.offset))
    path.write_bytes(content)
    text = found_in(folder)
    for number, offset in expected:
        assert_names(text, f"train/{path.name}", number, f"byte {offset}")
    assert len([line for line in text.splitlines() if "metadata.json" in line]) == 0


def test_a_shard_that_was_cut_off(folder: Path) -> None:
    (path, *_) = shards_of(folder / "train")
    source = open_records(folder, "train")._source
    _, _, span = source.places.find_one(5)
    size = path.stat().st_size
    path.write_bytes(path.read_bytes()[: span.offset + 3])
    text = found_in(folder)
    assert_names(text, f"train/{path.name}", size, span.offset + 3)
    assert_names(text, f"byte {span.offset}", 5)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda r: [r[1], r[0], *r[2:]], ["example 0 of train", "example 1 of train"]),
        (lambda r: [*r[:3], r[2], *r[4:]], ["example 3 of train"]),
        (lambda r: [*r[:4], r[5]], ["records", "expected"]),
        (lambda r: [*r, r[0]], ["records", "expected"]),
        (lambda r: [*r[:2], b"\xff", *r[3:]], ["example 2 of train", "byte"]),
        (lambda r: [*r[:2], b"", *r[3:]], ["example 2 of train", "lacks feature"]),
        (
            lambda r: [*r[:2], r[2] + ExampleEncoder([MORE]).encode(1, {"more": 7})[0]],
            ["example 2 of train", "more"],
        ),
    ],
    ids=["swapped", "doubled", "fewer", "more", "no example", "empty", "more features"],
)
def test_other_examples_with_checksums_that_fit(
    folder: Path, change: Callable[[list[bytes]], list[bytes]], facts: list[str]
) -> None:
    count = Metadata.load(folder).splits["train"].shards[0].examples

    def keeping_count(records: list[bytes]) -> list[bytes]:
        changed = change(records)
        return changed if facts[0] == "records" else (changed + records)[:count]

    file, _ = rewrite_shard(folder, keeping_count)
    assert_names(found_in(folder), file, *facts)


MORE = FeatureSpec("more", "int64", (), INT64_LIST)


@pytest.mark.parametrize("block", [1, 2, 5])
def test_a_wrong_value_in_any_block(
    folder: Path, monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr(example_check, "BLOCK_EXAMPLES", block)
    assert verify(folder, deep=True) == []
    file, split = rewrite_shard(
        folder, lambda records: [r.replace(b"owl_1", b"owl_2") for r in records]
    )
    lines = [line for line in verify(folder, deep=True) if "filepath" in line]
    owls = open_records(folder, split).of_clip("owl/owl_1.wav").numbers
    expected = [n for n in owls.tolist() if n < shard_examples(folder)]
    assert expected
    for line, number in zip(lines, expected, strict=True):
        assert_names(line, file, f"example {number} of train", "manifest.parquet")


def shard_examples(folder: Path) -> int:
    return Metadata.load(folder).splits["train"].shards[0].examples


def test_a_class_that_does_not_fit_its_target(folder: Path) -> None:
    # Same lengths: the record stays well-formed.
    rewrite_shard(
        folder, lambda records: [r.replace(b"\x03owl", b"\x03cat") for r in records]
    )
    text = found_in(folder)
    assert_names(text, "target", "class 'owl'", "class 'cat'")


# Damage to the files beside them.


def edit_table(path: Path, edit: Callable[[dict[str, list[Any]]], Any]) -> None:
    table = pq.read_table(path)
    schema = table.schema
    columns = {name: table[name].to_pylist() for name in table.column_names}
    edit(columns)
    pq.write_table(pa.table(columns, schema=schema), path)


def set_at(name: str, row: int, value: Any) -> Callable[[Any], Any]:
    def edit(columns: Any) -> None:
        columns[name][row] = value

    return edit


def leave_out(reason: str) -> Callable[[Any], Any]:
    def edit(columns: Any) -> None:
        columns["left_out"][columns["left_out"].index(None)] = reason

    return edit


def swap_rows(columns: dict[str, list[Any]]) -> None:
    for values in columns.values():
        values[0], values[1] = values[1], values[0]


def drop_last(columns: dict[str, list[Any]]) -> None:
    for values in columns.values():
        values.pop()


@pytest.mark.parametrize(
    ("file", "edit", "facts"),
    [
        ("windows", set_at("start", 3, 7), ["row 3", "frame 7"]),
        ("windows", set_at("copy", 0, 1), ["row 0", "copy 1"]),
        ("windows", set_at("frames", 1, 3), ["row 1", "3 frames"]),
        ("windows", leave_out("keep"), ["metadata.json", "left_out"]),
        ("windows", leave_out("rejected"), ["rejected.jsonl"]),
        ("windows", leave_out("else"), ["'else'"]),
        ("windows", set_at("start", 0, None), ["start"]),
        ("windows", swap_rows, ["row 0", "row 1"]),
        ("windows", drop_last, ["rows"]),
        ("manifest", set_at("windows", 2, 1), ["rows"]),
        ("manifest", set_at("frames", 0, 99999), ["row 0", "windows"]),
        ("manifest", set_at("path", 0, "no.wav"), ["no.wav"]),
        ("manifest", set_at("index", 0, 77), ["index is", "77"]),
        ("manifest", set_at("first_index", 1, 3), ["row 1", "first_index is 3"]),
        ("manifest", set_at("split", 0, "train"), ["row", "first_index"]),
        ("manifest", set_at("sample_rate_hz", 0, 0), ["sample_rate_hz"]),
        ("manifest", swap_rows, ["row 1", "order"]),
    ],
)
def test_damaged_tables(folder: Path, file: str, edit: Any, facts: list[str]) -> None:
    edit_table(folder / f"{file}.parquet", edit)
    text = found_in(folder)
    assert_names(text, f"{file}.parquet", *facts)


OF_FILES = ["file", "channels", "native_frames", "native_sample_rate_hz"]


@pytest.mark.parametrize("name", [*OF_FILES, "frames", "first_index", "format"])
def test_a_column_that_lacks_numbers_or_texts(folder: Path, name: str) -> None:
    edit_table(folder / "manifest.parquet", set_at(name, 0, None))
    assert_names(found_in(folder), "manifest.parquet", f"column {name}")
    table = pq.read_table(folder / "manifest.parquet")
    pq.write_table(table.drop_columns([name]), folder / "manifest.parquet")
    assert_names(found_in(folder), "manifest.parquet", name)


@pytest.mark.parametrize("name", [*OF_FILES, "format", "subtype"])
def test_what_the_manifest_says_of_a_file(
    folder: Path, sounds: Path, name: str
) -> None:
    """Only the file itself shows that it is wrong."""
    edit_table(folder / "manifest.parquet", change_first(name))
    assert found_in(folder) == ""
    found = found_in(folder, input=str(sounds), sample=10**6)
    assert_names(found, "manifest.parquet", f"{name} is")


def change_first(name: str) -> Callable[[Any], Any]:
    def edit(columns: Any) -> None:
        row = next(k for k, count in enumerate(columns["windows"]) if count)
        value = columns[name][row]
        columns[name][row] = value + ("x" if isinstance(value, str) else 1)

    return edit


@pytest.mark.parametrize("file", ["manifest.parquet", "metadata.json"])
def test_no_window_is_decoded_again_where_tables_differ(
    folder: Path, sounds: Path, file: str
) -> None:
    if file == "metadata.json":
        edit_metadata(folder, lambda values: values["classes"].__setitem__(0, "cow"))
    else:
        edit_table(folder / file, set_at("split", 0, "train"))
    assert_names(found_in(folder, input=str(sounds)), file)


@pytest.mark.parametrize("file", ["windows.parquet", "manifest.parquet"])
@pytest.mark.parametrize("how", ["gone", "empty", "cut", "other"])
def test_tables_that_cannot_be_read(folder: Path, file: str, how: str) -> None:
    path = folder / file
    if how == "gone":
        path.unlink()
    elif how == "other":
        pq.write_table(pa.table({"start": ["a"]}), path)
    else:
        path.write_bytes(path.read_bytes()[: 100 if how == "cut" else 0])
    assert_names(found_in(folder), file)


@pytest.mark.parametrize(
    ("file", "content", "facts"),
    [
        ("schema.pbtxt", b"", ["'mel'", "'signal'"]),
        ("schema.pbtxt", b"feature {", ["schema.pbtxt"]),
        ("schema.pbtxt", None, ["is missing"]),
        ("rejected.jsonl", b"", ["0 clips", "manifest.parquet"]),
        ("rejected.jsonl", b"{}\n", ["line 1"]),
        ("rejected.jsonl", b"[" * 100_000, ["line 1"]),
        ("rejected.jsonl", None, ["is missing"]),
    ],
)
def test_damaged_texts(folder: Path, file: str, content: Any, facts: list[str]) -> None:
    path = folder / file
    path.unlink()
    if content is not None:
        path.write_bytes(content)
    assert_names(found_in(folder), file, *facts)


@pytest.mark.parametrize(
    ("key", "value", "facts"),
    [
        ("clips", 3, ["clips is 3"]),
        ("seconds", 1.5, ["seconds is 1.5"]),
        ("left_out", 0, ["left_out is 0"]),
        ("examples_per_class", {"cat": 1, "dog": 0, "owl": 0}, ["class 'cat' has 1"]),
        ("seconds_per_class", {"cat": 9.5}, ["'cat' has 9.5", "'dog' has None"]),
    ],
)
def test_wrong_counts(folder: Path, key: str, value: Any, facts: list[str]) -> None:
    edit_metadata(folder, lambda values: values["splits"]["train"].update({key: value}))
    assert_names(found_in(folder), "metadata.json", "split train", *facts)


def test_seconds_of_several_classes(sounds: Path, tmp_path: Path) -> None:
    """A clip of several classes counts for each; rates and lengths differ."""
    rows = ["path,label", "cat/cat_0.wav,a|b", "dog/dog_0.wav,b", "owl/owl_0.wav,a"]
    (tmp_path / "in.csv").write_text("\n".join(rows))
    for path in ("cat/cat_0.wav", "dog/dog_0.wav", "owl/owl_0.wav"):
        (tmp_path / path).parent.mkdir()
        shutil.copy(sounds / path, tmp_path / path)
    out = tmp_path / "out"
    record(str(tmp_path / "in.csv"), str(out), win_len="clip", label_from="label",
           label_separator="|")  # fmt: skip
    assert found_in(out) == ""
    edit_metadata(
        out, lambda values: values["splits"]["records"]["seconds_per_class"].update(b=1)
    )
    assert_names(found_in(out), "'b' has 1 seconds")


@pytest.mark.parametrize(
    ("axis", "key", "value"), [(1, "size", 9), (0, "size", None), (1, "values", [1.0])]
)
def test_axes_of_another_size(folder: Path, axis: int, key: str, value: Any) -> None:
    edit_metadata(
        folder,
        lambda values: values["features"]["mel"]["axes"][axis].update({key: value}),
    )
    name = ("time", "mel_band")[axis]
    assert_names(found_in(folder), "metadata.json", "feature mel", f"axis {name}")


def leaves(values: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    items: Any = values.items() if isinstance(values, dict) else ()
    if isinstance(values, list):
        items = enumerate(values)
    for key, inner in items:
        yield from leaves(inner, (*path, key))
    if not isinstance(values, dict | list):
        yield path


def test_each_wrong_statistic(folder: Path) -> None:
    text = (folder / "metadata.json").read_text()
    known = json.loads(text)["splits"]["test"]["statistics"]["features"]["mel"]
    for path in leaves(known):
        values = json.loads(text)
        inner = values["splits"]["test"]["statistics"]["features"]["mel"]
        for key in path[:-1]:
            inner = inner[key]
        value = inner[path[-1]]
        inner[path[-1]] = value + 1 if isinstance(value, int) else 1.01 * value + 0.01
        (folder / "metadata.json").write_text(json.dumps(values))
        (line,) = verify(folder, deep=True)
        assert_names(line, "metadata.json", "test", "mel", path[0])


# The sources.


def test_sources_that_changed(folder: Path, sounds: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(sounds, tmp_path / "in"))
    options = {"input": str(copy), "sample": 10**6}
    assert found_in(folder, **options) == ""
    write_sound(copy / "owl" / "owl_1.wav", 2600, seed=3)
    lines = verify(folder, deep=True, **options)
    assert lines
    for line in lines:
        assert_names(line, "owl/owl_1.wav")
    assert_names("\n".join(lines), "signal", "mel", "leaves it out")
    assert verify(folder, deep=True, input=str(copy), sample=0) == []
    write_sound(copy / "owl" / "owl_1.wav", 2700, seed=201)
    assert_names(found_in(folder, **options), "owl/owl_1.wav", 2700, 2600)
    (copy / "owl" / "owl_1.wav").write_bytes(b"RIFF")
    assert_names(found_in(folder, **options), "owl/owl_1.wav", "read")
    (copy / "owl" / "owl_1.wav").unlink()
    assert_names(found_in(folder, **options), "owl/owl_1.wav", "clip number")


def test_a_sample_is_that_of_its_seed(
    folder: Path, sounds: Path, tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(sounds, tmp_path / "in"))
    for path in copy.rglob("*_?.wav"):
        write_sound(path, 2500 + 100 * int(path.stem[-1]), seed=50, rate=RATE)
    drawn = [
        verify(folder, deep=True, input=str(copy), sample=4, seed=seed)
        for seed in (0, 0, 1)
    ]
    assert drawn[0] == drawn[1] != drawn[2]
    assert [len(lines) for lines in drawn] == [4, 4, 4]


def test_the_index_is_needed_for_a_sample(folder: Path, sounds: Path) -> None:
    (folder / "members.index").unlink()
    assert verify(folder, deep=True) == []
    (line,) = verify(folder, deep=True, input=str(sounds), sample=1)
    assert_names(line, "members.index", "audio-tfrecords index")


def test_wrong_calls(whole: Path, tmp_path: Path) -> None:
    for option in ("sample", "seed"):
        with raises(OptionError, naming=option):
            verify(whole, deep=True, **{option: -1})
    with raises(InputError, naming=tmp_path):
        verify(tmp_path, deep=True)
    (tmp_path / "metadata.json").write_text("{")
    with raises(VerificationError, naming="metadata.json"):
        verify(tmp_path, deep=True)


def test_sums_in_another_order_are_equal(whole: Path) -> None:
    digests = set()
    for block in (1, 3, 256):
        example_check.BLOCK_EXAMPLES, before = block, example_check.BLOCK_EXAMPLES
        try:
            digests.add(hashlib.sha256("".join(verify(whole, deep=True)).encode()))
        finally:
            example_check.BLOCK_EXAMPLES = before
    assert len({digest.hexdigest() for digest in digests}) == 1
