"""verify: every file that readers open is checked, and what is damaged is named."""

import shutil
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import soundfile
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_pipeline import open_records, record, record_examples, verify
from beam_pipeline.dataset.metadata import Metadata, load_index
from beam_pipeline.dataset.tables import lost_audio
from beam_pipeline.encodings import INT64_LIST
from beam_pipeline.errors import InputError, OptionError, VerificationError
from beam_pipeline.examples.serialisation import ExampleEncoder
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.read.audit import audit
from beam_pipeline.read.replay import replay
from beam_pipeline.read.window_table import summarise_windows, window_table
from beam_pipeline.reporting.page import report
from beam_pipeline.storage.tfrecord import SUFFIX, read_any_records
from tests.raising import assert_names, raises
from tests.read.conftest import WIN_LEN
from tests.read.members import index_data_set, seal, write_shard
from tests.sounds import RATE, damage, write_samples, write_sound

# The metadata, a shard, and each file beside them.
KINDS = ["metadata.json", "schema.pbtxt", "manifest.parquet", "windows.parquet",
         "members.index", "rejected.jsonl", "shard"]  # fmt: skip


def file_of(folder, kind):
    return min(folder.rglob("*.tfrecord.gz")) if kind == "shard" else folder / kind


def problems(folder):
    try:
        return "\n".join(verify(folder))
    except VerificationError as error:  # the metadata cannot be read
        return str(error)


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
@settings(
    max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture],
    deadline=None,
)  # fmt: skip
def test_every_byte_of_every_file(whole, kind, data):
    path = file_of(whole, kind)
    content = path.read_bytes()
    position = data.draw(st.integers(0, len(content) - 1))
    flipped = data.draw(st.sampled_from([1, 2, 4, 128, 255]))
    damaged = bytearray(content)
    if data.draw(st.booleans()):
        damaged[position] ^= flipped
    else:
        del damaged[position:]
    try:
        path.write_bytes(damaged)
        found = problems(whole)
    finally:
        path.write_bytes(content)
    assert_names(found, path.name)


@pytest.mark.parametrize("kind", KINDS[1:])
@pytest.mark.parametrize("how", ["gone", "swapped", "folder"])
def test_files_that_are_not_there(folder, kind, how):
    path = file_of(folder, kind)
    content = path.read_bytes()
    path.unlink()
    if how == "gone":
        facts = ["is missing"]
    elif how == "folder":
        path.mkdir()
        facts = ["is a folder"]
    else:
        other = file_of(folder, "shard" if kind != "shard" else "windows.parquet")
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
        facts = [other.name]
    for options in ({}, {"deep": True}):
        assert_names("\n".join(verify(folder, **options)), path.name, *facts)


def test_shards_in_other_places(folder):
    """One that is not in the metadata; one in the place of another."""
    first, second, *_ = sorted(folder.rglob("*.tfrecord.gz"))
    more = first.with_name("more-00000-of-00001.tfrecord.gz")
    shutil.copy(first, more)
    (line,) = verify(folder)
    assert_names(line, more.name, "not in metadata.json")
    first.write_bytes(second.read_bytes())
    assert_names("\n".join(verify(folder)), f"{first.name}: its SHA-256 differs")


@pytest.mark.parametrize(
    ("examples", "facts"),
    [("shard", ["records", "expected"]), ("split", ["split", "together"])],
)
def test_wrong_counts(folder, examples, facts):
    def edit(values):
        split = values["splits"]["train"]
        counted = split if examples == "split" else split["shards"][0]
        counted["examples"] += 1

    seal(folder, edit)
    assert_names("\n".join(verify(folder)), "train", *facts)


@pytest.fixture
def opened(folder):
    """Names of files of the copy that are opened."""
    names, watching = set(), [True]

    def hook(event, arguments):
        if watching and event in ("open", "mmap.__new__"):
            path = Path(str(arguments[0]))
            if path.is_relative_to(folder) and path.is_file():
                names.add(str(path.relative_to(folder)))

    sys.addaudithook(hook)  # which cannot be taken away
    yield names
    watching.clear()


def test_readers_open_only_files_that_are_checked(folder, opened, tmp_path):
    records = open_records(folder, "train")
    assert records[0]
    assert len(list(records.batches(4, normalize=True))) > 1
    assert records.table().num_rows
    assert len(list(replay(str(folder), split="test").take(2))) == 2
    window_table(folder, sources=True)
    audit(folder)
    metadata = Metadata.load(folder)
    summarise_windows(str(folder), metadata)
    lost_audio(str(folder), metadata)
    report(str(folder), tmp_path / "report.html")
    checked = {"metadata.json", *metadata.files}
    checked |= {shard.file for shard in metadata.shards()}
    assert {"manifest.parquet", "windows.parquet", "members.index"} <= opened
    assert opened <= checked


# Deep.


def rewrite_shard(folder, change):
    """Changes the records of the first shard of train; the checksums fit.

    Returns the file and the split.
    """
    path = min(folder.glob("train/*.tfrecord.gz"))
    with open(path, "rb") as file:
        records = change(list(read_any_records(file)))
    name = f"train/{path.name}"
    entry = write_shard(folder, name.removesuffix(SUFFIX), records, 3)

    def edit(values):
        shard = values["splits"]["train"]["shards"][0]
        shard.update(bytes=entry.bytes, sha256=entry.sha256)

    seal(folder, edit)
    index_data_set(str(folder))
    seal(folder)
    return name, "train"


def found_in(folder, **options):
    return "\n".join(verify(folder, deep=True, **options))


def test_a_whole_data_set(whole, sounds):
    assert verify(whole, deep=True) == []
    assert verify(whole, deep=True, input=str(sounds), sample=10**6) == []
    assert verify(whole) == []


@pytest.fixture(scope="module")
def varied(sounds, tmp_path_factory):
    """The corpus with events; a long clip, and one that is damaged in its middle.

    The last bits of resampled frames depend on where a shard begins.
    """
    folder = tmp_path_factory.mktemp("varied") / "in"
    shutil.copytree(sounds, folder)
    write_sound(folder / "cat" / "cat_8.wav", 90_000)
    path = folder / "cat" / "cat_9.flac"
    write_sound(path, 4000)
    damage(path, 0.88, 200)
    samples, rate = soundfile.read(folder / "owl" / "owl_3.wav")
    (folder / "owl" / "owl_3.wav").unlink()
    write_samples(folder / "owl" / "owl_3.ogg", samples, rate)  # read from its start
    for sound in folder.rglob("*.*"):
        sound.with_suffix(".txt").write_text("0.01\t0.05\tcat\n")
    return folder


@pytest.mark.parametrize(
    "options",
    [
        {"random_starts": True, "max_windows": 3},
        {"tail": "pad", "compression": "none", "dtype": "int16"},
        {"features": {"i": "log_mel(n_fft=256,n_mels=8)|as_image()"},
         "encodings": {"i": "png"}, "folds": 3, "stratify": True},
        {"features": {"i": "log_mel(n_fft=256,n_mels=8)|as_image()", "f": "fft()"},
         "encodings": {"i": "jpeg", "f": "tensor"}},
        {"sample_rate": 4000, "stream": "high_pass(cutoff_hz=50)"},
        {"sample_rate": 3000, "hop": 300, "order": "mixed", "elements_per_file": 50,
         "copies": 1, "augment": "random_gain()", "keep": "energy(above_db=-15.1)"},
        {"events": "{folder}/{stem}.txt", "no_event": "drop"},
    ],
    ids=str,
)  # fmt: skip
def test_recipes_of_all_kinds(varied, tmp_path, options):
    record(varied, tmp_path, win_len=WIN_LEN, max_rejected=13, **options)
    assert verify(tmp_path, deep=True, input=varied, sample=60) == []
    table = window_table(tmp_path)
    lost = table.filter(pc.equal(table["left_out"], "rejected"))
    assert {*lost["path"].to_pylist()} <= {"cat/cat_9.flac"}


def test_elements(tmp_path):
    rows = [
        {"x": np.arange(k % 5, dtype=np.float32), "y": np.float64(k), "t": f"n{k}",
         "z": np.full((2, 3), k, np.int16)}
        for k in range(50)
    ]  # fmt: skip
    record_examples(rows, tmp_path, elements_per_file=20)
    assert verify(tmp_path) == verify(tmp_path, deep=True) == []
    with raises(InputError, naming=["input", tmp_path]):
        verify(tmp_path, deep=True, input="sounds/")


# Damage to shards.


def test_the_first_damaged_example_is_named_by_file_byte_and_number(folder, sounds):
    path = min(folder.glob("train/*.tfrecord.gz"))
    shard = load_index(str(folder))[f"train/{path.name}"]
    content = bytearray(path.read_bytes())
    spans = [shard.span(int(shard.member_of(number))) for number in (2, 7)]
    for span in spans:
        content[span.offset + span.size // 2] ^= 255
    path.write_bytes(content)
    first, last = spans[0].first, shard.examples - 1
    wanted = f"byte {spans[0].offset}:", f"examples {first} to {last} of train"
    assert_names(found_in(folder), f"train/{path.name}", *wanted)
    # Of all its windows that are compared with the sources, one names it again.
    found = found_in(folder, input=sounds, sample=10**6)
    assert found.count(path.name) == 3


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
def test_other_examples_with_checksums_that_fit(folder, change, facts):
    count = Metadata.load(folder).splits["train"].shards[0].examples

    def keeping_count(records):
        changed = change(records)
        return changed if facts[0] == "records" else (changed + records)[:count]

    file, _ = rewrite_shard(folder, keeping_count)
    assert_names(found_in(folder), file, *facts)


MORE = FeatureSpec("more", "int64", (), INT64_LIST)


def test_a_class_that_does_not_fit_its_target(folder, monkeypatch):
    # Same lengths: the record stays well-formed.
    rewrite_shard(
        folder, lambda records: [r.replace(b"\x03owl", b"\x03cat") for r in records]
    )
    text = found_in(folder)
    assert_names(text, "target is", "its class 'cat'", "class is 'cat'", "'owl'")
    monkeypatch.setattr("beam_pipeline.read.verify.MOST_LINES", 1)
    first, more = found_in(folder).splitlines()
    assert first == text.splitlines()[0]
    assert_names(more, f"{text.count(chr(10))} more problems")


# Damage to the tables.


def edit_table(path, name, row, value):
    """Sets a value of a table; the checksums fit."""
    table = pq.read_table(path)
    values = table[name].to_pylist()
    values[row] = value
    place = table.schema.get_field_index(name)
    column = pa.array(values, table.schema.field(name).type)
    pq.write_table(table.set_column(place, table.schema.field(name), column), path)
    seal(path.parent)


def kept_row(folder):
    """The row of the first window of test that is in the data set."""
    left_out = pq.read_table(folder / "windows.parquet")["left_out"].to_pylist()
    return left_out.index(None)


@pytest.mark.parametrize(
    ("file", "name", "value", "facts"),
    [
        ("windows", "start", 7, ["win_start_idx", 7]),
        ("windows", "copy", 5, ["copy", 5]),
        ("windows", "left_out", "keep", ["metadata.json", "split", "examples"]),
        ("manifest", "path", "no.wav", ["filepath", "no.wav"]),
        ("manifest", "index", 77, ["index", 77]),
        ("manifest", "class", "cow", ["class", "cow"]),
        ("manifest", "sample_rate_hz", 7, ["fs", 7]),
        ("manifest", "split", "more", ["metadata.json", "split", "examples"]),
        ("manifest", "windows", 1, ["windows.parquet", "manifest.parquet"]),
    ],
)
def test_examples_of_other_rows(folder, file, name, value, facts):
    row = kept_row(folder) if file == "windows" else clip_of(folder, kept_row(folder))
    edit_table(folder / f"{file}.parquet", name, row, value)
    assert list(verify(folder)) == []
    assert_names(found_in(folder), *facts)


def clip_of(folder, window):
    counts = np.cumsum(pq.read_table(folder / "manifest.parquet")["windows"])
    return int(np.searchsorted(counts, window, "right"))


OF_FILES = ["channels", "native_frames", "native_sample_rate_hz", "frames", "format",
            "subtype"]  # fmt: skip


@pytest.mark.parametrize("name", OF_FILES)
def test_what_the_manifest_says_of_a_file(folder, sounds, name):
    """Only the file itself shows that it is wrong; what is missing shows at once."""
    path, row = folder / "manifest.parquet", clip_of(folder, kept_row(folder))
    table = pq.read_table(path)
    value = table[name].to_pylist()[row]
    edit_table(path, name, row, value + ("x" if isinstance(value, str) else 1))
    assert found_in(folder) == ""
    found = found_in(folder, input=str(sounds), sample=10**6)
    assert_names(found, path.name, f"{name} is")
    edit_table(path, name, 0, None)
    assert_names(found_in(folder), path.name, f"column {name}")
    pq.write_table(table.drop_columns([name]), path)
    seal(folder)
    assert_names(found_in(folder), path.name, name)


# The sources.


def test_sources_that_changed(folder, sounds, tmp_path):
    copy = Path(shutil.copytree(sounds, tmp_path / "in"))
    path, options = copy / "owl" / "owl_1.wav", {"input": str(copy), "sample": 10**6}
    write_sound(path, 2600, seed=3)
    lines = verify(folder, deep=True, **options)
    for line in lines:
        assert_names(line, "owl/owl_1.wav")
    assert_names("\n".join(lines), "other bytes", "leaves it out")
    assert verify(folder, deep=True, input=str(copy), sample=0) == []
    write_sound(path, 2700, seed=201)
    assert_names(found_in(folder, **options), "owl/owl_1.wav", 2700, 2600)
    path.write_bytes(b"RIFF")
    assert_names(found_in(folder, **options), "owl/owl_1.wav", "read")
    path.unlink()
    assert_names(found_in(folder, **options), "owl/owl_1.wav", "do not have it")
    for path in copy.rglob("*.wav"):
        path.write_bytes(b"RIFF")
    lines = verify(folder, deep=True, **options)
    splits = Metadata.load(folder).splits.values()
    assert len(lines) == sum(split.examples for split in splits)
    some = [verify(folder, deep=True, input=str(copy), sample=4) for _ in range(2)]
    assert some[0] == some[1] == [line for line in lines if line in some[0]]
    assert len(some[0]) == 4
    with raises(InputError, naming=[copy / "owl", "input"]):
        verify(folder, deep=True, input=str(copy / "owl"))


def test_a_step_that_fails_now_is_named(tmp_path):
    write_sound(tmp_path / "in" / "x.wav", 3000)
    options = {"features": {"own": "tests.sounds.fail_on_loud"}, "win_len": WIN_LEN}
    record(tmp_path / "in", tmp_path / "out", label_from="none", **options)
    write_samples(tmp_path / "in" / "x.wav", np.full(3000, 0.95), RATE)
    assert verify(tmp_path / "out", deep=True) == []
    found = found_in(tmp_path / "out", input=tmp_path / "in", sample=1)
    assert_names(found, "x.wav", "too loud")


def test_the_index_is_needed_for_a_sample(folder, sounds):
    (folder / "members.index").unlink()
    missing, line = verify(folder, deep=True, input=str(sounds), sample=1)
    assert_names(missing, "members.index", "is missing", "audio-tfrecords convert")
    assert_names(line, "members.index", "audio-tfrecords convert")
    index_data_set(str(folder))
    assert verify(folder, deep=True, input=str(sounds), sample=1) == []


def test_wrong_calls(whole, tmp_path):
    for option, wrong in (
        ("input", {"input": "sounds/"}), ("sample", {"deep": True, "sample": 5}),
        ("sample", {"deep": True, "input": "sounds/", "sample": -1}),
    ):  # fmt: skip
        with raises(OptionError, option):
            verify(whole, **wrong)
    with raises(InputError, naming=tmp_path):
        verify(tmp_path, deep=True)
    (tmp_path / "metadata.json").write_text("{")
    with raises(VerificationError, naming="metadata.json"):
        verify(tmp_path, deep=True)
