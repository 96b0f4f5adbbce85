"""open_records: any example of a data set, without TensorFlow."""

import copy
import os
import pickle
import resource
import sys
import threading
import tracemalloc
import warnings
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.dataset.metadata import (
    Metadata,
    ShardEntry,
    ShardIndex,
    SplitEntry,
    load_index,
    write_index,
)
from beam_pipeline.encodings import BYTES_LIST, FLOAT_LIST, INT64_LIST, RAW
from beam_pipeline.errors import DamagedRecord, InputError, OptionError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.read import members
from beam_pipeline.read.records import Example, Records, open_records
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage.tfrecord import compress_member
from tests.processes import run_python
from tests.raising import assert_names, raises
from tests.read.members import make, seal

NUMBER = FeatureSpec("number", "int64", (), INT64_LIST)
TEXT = FeatureSpec("text", "string", (), BYTES_LIST)
NOISE = FeatureSpec("noise", "int16", (100,), RAW)
SIZES = (5, 1, 0, 9, 8)
COUNT = sum(SIZES)
COLUMNS = {
    "number": np.arange(COUNT),
    "text": [f"ü{k % 4}" for k in range(COUNT)],
    "noise": np.random.default_rng(0).integers(-9999, 9999, (COUNT, 100), np.int16),
}
# Examples in a member, and whether there is GZIP.
FORMS = {
    "one": (1, True), "three": (3, True), "whole": (100, True), "plain": (1, False),
    "plain, three": (3, False),
}  # fmt: skip


@pytest.fixture(scope="module", params=list(FORMS))
def folder(request, tmp_path_factory):
    """The same examples: one a member, three, a member each shard; without GZIP."""
    return numbered(tmp_path_factory.mktemp("records"), *FORMS[request.param])


def numbered(root, per_member=1, gzip=True):
    specs, splits = [NUMBER, TEXT, NOISE], {"train": SIZES, "test": (4,), "none": ()}
    return make(root, specs, COLUMNS, splits, per_member, gzip=gzip)


@pytest.fixture
def plain_folder(tmp_path):
    return numbered(tmp_path)


def numbers(records):
    return [int(example["number"]) for example in records]


def check(example, number, kind=Example):
    assert type(example) is kind
    assert list(example) == ["number", "text", "noise"]
    assert example["number"] == number
    assert type(example["number"]) is np.int64
    assert example["text"] == f"ü{number % 4}"
    assert example["noise"].dtype == np.int16
    assert np.array_equal(example["noise"], COLUMNS["noise"][number])
    example["noise"][:] = 0  # it belongs to whoever read it


def test_every_example_by_its_number(folder):
    records = open_records(folder, "train")
    assert len(records) == COUNT
    for number in [*range(COUNT), 0, -1, -COUNT, np.int64(7)]:
        check(records[number], number % COUNT)


def test_iterating_is_in_the_order_on_disk(folder, monkeypatch):
    records = open_records(folder, "train")
    assert numbers(records) == list(range(COUNT))
    monkeypatch.setattr("beam_pipeline.read.records.AHEAD_EXAMPLES", 4)
    for number, example in enumerate(records):
        check(example, number)
    assert numbers(reversed(records)) == list(range(COUNT))[::-1]


@settings(max_examples=25)
@given(st.data())
def test_views_choose_as_numpy_does(folder, data):
    records, expected = open_records(folder, "train"), np.arange(COUNT)
    for _ in range(data.draw(st.integers(1, 3))):
        count = len(expected)
        bound = st.none() | st.integers(-count - 2, count + 2)
        key = data.draw(
            st.builds(slice, bound, bound, st.none() | st.sampled_from([-2, -1, 1, 3]))
            | st.lists(st.booleans(), min_size=count, max_size=count).map(np.array)
            | (
                st.lists(st.integers(-count, count - 1), max_size=30)
                if count
                else st.just([])
            )
        )
        picked = np.array(key, np.int64) if isinstance(key, list) else key
        if isinstance(key, np.ndarray) and not count:
            picked = key = slice(None)
        records, expected = records[key], expected[picked]
        assert isinstance(records, Records)
        assert len(records) == len(expected)
        assert records.numbers.tolist() == expected.tolist()
    assert numbers(records) == expected.tolist()
    every = records.read(range(len(records)))
    assert every["number"].tolist() == expected.tolist()
    assert np.array_equal(every["noise"], COLUMNS["noise"][expected])


@settings(max_examples=25)
@given(st.lists(st.integers(-COUNT, COUNT - 1), max_size=60))
def test_a_batch_is_in_the_order_asked_for(folder, wanted):
    records = open_records(folder, "train")
    batch = records.read(wanted)
    assert list(batch) == ["number", "text", "noise"]
    assert batch["number"].dtype == np.int64
    assert batch["number"].tolist() == [k % COUNT for k in wanted]
    assert batch["text"].dtype == object
    assert batch["text"].tolist() == [f"ü{k % COUNT % 4}" for k in wanted]
    assert batch["noise"].shape == (len(wanted), 100)
    assert np.array_equal(batch["noise"], COLUMNS["noise"][wanted or []])
    assert batch["noise"].flags.writeable
    assert batch["number"].flags.writeable
    for example, k in zip(records.__getitems__(wanted), wanted, strict=True):
        check(example, k % COUNT, dict)


def test_bad_keys_are_refused(plain_folder):
    records = open_records(plain_folder, "train")
    for key, match in [
        ([0, COUNT], "no example 23, only 23 examples of split train"),
        ([-COUNT - 1], "no example -24"),
        ([True], "a mask of 23 values"),
        ([0.5], "by a slice, a list of numbers"),
        ("text", "not by 'text'"),
        ([[1]], "by a slice, a list of numbers"),
    ]:
        with pytest.raises(IndexError, match=match):
            records[key]
        with pytest.raises(IndexError, match=match):
            records.read(key)
    with pytest.raises(IndexError, match="not by 3"):
        records.read(3)
    with pytest.raises(IndexError, match="not by True"):
        records[True]
    for key in (2, -3):
        with pytest.raises(IndexError, match=f"no example {key}, only 2 examples"):
            records[:2][key]
    assert records[np.array(3)]["number"] == 3
    assert records.read(slice(2, 4))["number"].tolist() == [2, 3]


def test_features_are_chosen(plain_folder):
    with raises(OptionError):
        open_records(plain_folder, "train", [])
    with raises(InputError, naming=["nose", "noise"]):
        open_records(plain_folder, "test", ["nose"])
    some = open_records(plain_folder, "test", features=["noise"])
    assert list(some[1]) == list(some.features) == list(some.read([1, 2])) == ["noise"]
    assert list(open_records(plain_folder, "test", "text")[0]) == ["text"]


def test_a_split_without_examples(plain_folder):
    empty = open_records(plain_folder, "none")
    assert (len(empty), list(empty)) == (0, [])
    assert empty.read([])["noise"].shape == (0, 100)


def test_copies_of_an_example_are_ordinary_dicts(plain_folder):
    example = open_records(plain_folder, "test")[0]
    copies = copy.copy(example), pickle.loads(pickle.dumps(example)), example | {}
    for other in copies:
        assert list(other) == list(example)
        assert np.array_equal(other["noise"], COLUMNS["noise"][0])
    assert [type(other) for other in copies] == [Example, Example, dict]
    assert Example(example)._repr_html_()


def test_what_records_say_of_themselves(plain_folder):
    records = open_records(Path(plain_folder), "train")
    assert (records.split, records.folder) == ("train", plain_folder)
    assert (records.classes, records.num_classes) == ((), 0)
    facts = ["23", "train", plain_folder, *COLUMNS, records.fingerprint[:12]]
    assert_names(repr(records), *facts)
    assert_names(repr(records[:2]), "2 of 23")
    assert_names(records._repr_html_(), "23", *COLUMNS)
    assert repr(records[:2]) != repr(records[1:3])


# Bad input.


def test_without_a_data_set(plain_folder, tmp_path):
    for nothing in (tmp_path / "nothing", f"{plain_folder}/metadata.json"):
        with raises(InputError, naming=nothing):
            open_records(nothing, "train")


@pytest.mark.parametrize("counts", [[3, 1], [4]])
def test_an_index_whose_counts_are_wrong(plain_folder, counts):
    metadata = Metadata.load(plain_folder)
    (entry,) = metadata.splits["test"].shards
    offsets = np.arange(len(counts)) * 10
    write_index(plain_folder, [ShardIndex.make(entry, offsets, np.array(counts))])
    with pytest.raises(DamagedRecord, match=r"test-00000.*example"):
        open_records(plain_folder, "test").read(range(4))


@pytest.mark.parametrize("form", FORMS)
def test_no_damage_goes_unseen(form, tmp_path):
    """Whatever byte of a shard changes, every example is right or an error."""
    folder = numbered(tmp_path, *FORMS[form])
    records = open_records(folder, "test")
    path = Path(folder, records.metadata.splits["test"].shards[0].file)
    content, told = path.read_bytes(), list[tuple[int, tuple[Any, ...]]]()
    rng = np.random.default_rng(3)
    places = [*range(20), *rng.integers(0, len(content), 200), len(content) - 1]
    for place in map(int, places):
        damaged = bytearray(content)
        damaged[place] ^= int(rng.integers(1, 256))
        path.write_bytes(damaged)
        fresh = open_records(folder, "test")
        for number in range(4):
            try:
                check(fresh[number], number)
            except DamagedRecord as error:
                told.append((number, error.args))  # the error keeps the shard open
    assert len(told) > 100
    assert issubclass(DamagedRecord, ValueError)
    assert {(args[0], args[2] - number) for number, args in told} == {(str(path), 0)}
    assert "cannot be read" in str(pickle.loads(pickle.dumps(DamagedRecord(*"abcd"))))


def test_an_example_of_another_type(plain_folder):
    other = FeatureSpec("number", "float32", (), FLOAT_LIST)
    seal(
        Path(plain_folder),
        lambda values: values["features"].update(number=other.to_json()),
    )
    with raises(DamagedRecord, naming=["number", "int64_list", "float_list"]):
        open_records(plain_folder, "train")[3]


def test_a_shard_that_is_gone_or_has_another_size(plain_folder):
    records = open_records(plain_folder, "train")
    first, second, _, fourth, _ = records.metadata.splits["train"].shards
    Path(plain_folder, first.file).unlink()
    with open(Path(plain_folder, second.file), "ab") as file:
        file.write(b"more")
    assert records[6]["number"] == 6
    for number, shard, fact in ((0, first, "No such"), (5, second, "instead of")):
        with raises(InputError, naming=[shard.file, fact]):
            records[number]
    os.truncate(Path(plain_folder, fourth.file), 100)  # which is open
    with raises(DamagedRecord, naming=fourth.file):
        records[7]


# Processes and threads.


def test_threads_share_records(folder, monkeypatch):
    """Few files open, and eight threads that ask for all of them."""
    monkeypatch.setattr(members, "MOST_OPEN", 2)
    records = open_records(folder, "train")

    def work(seed):
        rng = np.random.default_rng(seed)
        for _ in range(40):
            wanted = rng.integers(0, COUNT, 6)
            batch = records.read(wanted)
            assert np.array_equal(batch["noise"], COLUMNS["noise"][wanted])
            check(records[int(wanted[0])], wanted[0])

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(work, range(8)))  # which raises what a thread has raised
    finally:
        sys.setswitchinterval(interval)


def test_few_files_stay_open(tmp_path, monkeypatch):
    monkeypatch.setattr(members, "MOST_OPEN", 3)
    sizes = {"train": (1,) * 20}
    records = open_records(make(tmp_path, [NUMBER], COLUMNS, sizes))
    before = len(os.listdir("/proc/self/fd"))
    assert numbers(records) == list(range(20))
    assert len(os.listdir("/proc/self/fd")) <= before + 3
    del records
    assert len(os.listdir("/proc/self/fd")) <= before


def total(records):
    return int(records.read(range(len(records)))["number"].sum())


@pytest.mark.parametrize("form", ["one", "three"])
def test_a_fork_in_the_middle_of_reading(form, tmp_path):
    """While other threads hold the locks, and with files open."""
    records = open_records(numbered(tmp_path, *FORMS[form]), "train")
    stop = threading.Event()

    def read():
        while not stop.is_set():
            total(records)

    with ThreadPoolExecutor(2) as pool, warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pool.submit(read), pool.submit(read)
        try:
            for _ in range(10):
                child = os.fork()
                if child == 0:
                    os._exit(0 if total(records) == sum(range(COUNT)) else 1)
                assert os.waitpid(child, 0)[1] == 0
        finally:
            stop.set()


def test_records_go_to_other_processes(plain_folder):
    records = open_records(plain_folder, "train", ["number"])
    for view in (records, records[3:9], records[[7, 7, 0]], records[::-2]):
        sent = pickle.dumps(view)
        assert len(sent) < 500
        found = pickle.loads(sent)
        assert list(found.features) == ["number"]
        assert numbers(found) == numbers(view)


def test_neighbours_are_read_at_once(plain_folder, monkeypatch):
    reads = []
    pread = os.pread
    monkeypatch.setattr(
        os, "pread", lambda *args: reads.append(args[1:]) or pread(*args)
    )
    records = open_records(plain_folder, "train")
    records.read(range(COUNT))
    assert len(reads) == 4  # shards with examples
    shards = [s for s in records.metadata.splits["train"].shards if s.examples]
    assert sum(size for size, _ in reads) == sum(shard.bytes for shard in shards)
    reads.clear()
    monkeypatch.setattr(members, "LOCAL_GAP", 0)
    open_records(plain_folder, "train").read([22, 15, 17, 16])
    assert len(reads) == 2


# Shards that request gigabytes, hang or change: errors that name the file.


def replace_member(folder, number, member):
    """Puts other bytes in the place of a member of the only shard."""
    (shard,) = load_index(folder).values()
    spans = [shard.span(k) for k in range(len(shard.offsets) - 1)]
    path = Path(folder, shard.file)
    content = path.read_bytes()
    members = [content[s.offset : s.offset + s.size] for s in spans]
    members[number] = member
    sizes = np.array([len(m) for m in members])
    path.write_bytes(b"".join(members))
    size = int(sizes.sum())
    seal(
        Path(folder),
        lambda values: values["splits"]["a"]["shards"][0].update(bytes=size),
    )
    counts = np.array([span.examples for span in spans])
    offsets = np.cumsum(sizes) - sizes
    shard = replace(shard, bytes=size)
    write_index(folder, [ShardIndex.make(shard, offsets, counts)])
    return path, int(offsets[number])


@pytest.mark.parametrize("kind", ["pipe", "device", "folder"])
def test_a_shard_that_is_no_regular_file(tmp_path, kind):
    folder = make(tmp_path, [NUMBER, NOISE], COLUMNS, {"a": [3, 3]}, 3)
    first, _ = sorted(Path(folder, "a").iterdir())
    first.unlink()
    if kind == "pipe":
        os.mkfifo(first)
    elif kind == "device":
        first.symlink_to("/dev/zero")
    else:
        first.mkdir()
    records = open_records(folder)
    assert records[3]["number"] == 3
    for read in (lambda: records[0], lambda: records.read([0, 5])):
        with raises(InputError, naming=[first, "instead of"]):
            read()


@pytest.mark.parametrize("per_member", [1, 3])
@pytest.mark.parametrize(
    "read",
    [
        lambda records: records[1],
        lambda records: records.read([1, 2]),
        lambda records: records.serialised([1]),
        lambda records: next(iter(records)),
        lambda records: next(iter(records.batches(2))),
    ],
)
def test_open_shards_of_a_folder_that_was_recorded_again(
    tmp_path, monkeypatch, read, per_member
):
    """The files that are open are the old ones, whose names new files have now."""
    monkeypatch.setattr(members, "CHECK_SECONDS", 0)
    specs = [NUMBER, NOISE]
    folder = make(tmp_path, specs, COLUMNS, {"a": [6]}, per_member)
    records, unread = open_records(folder), open_records(folder)
    pickled = pickle.dumps(records)
    read(records)
    (path,) = Path(folder, "a").iterdir()
    for file in (path, Path(folder, "metadata.json")):
        file.unlink()
    facts = [path, "metadata.json", "open it again"]
    with raises(InputError, naming=facts):
        read(records)
    columns = {**COLUMNS, "number": 7 + np.arange(COUNT)}
    make(tmp_path, specs, columns, {"a": [6]}, per_member)
    for opened in (records, records, unread):
        with raises(InputError, naming=facts):
            read(opened)
    with raises(InputError, naming=[folder, "metadata.json"]):
        pickle.loads(pickled)
    assert open_records(folder)[1]["number"] == 8


READS = {
    "single": lambda records: records[2],
    "together": lambda records: records.read([0, 1, 2, 3]),
    "iteration": list,
}


@pytest.mark.parametrize("per_member", [1, 2])
@pytest.mark.parametrize("states", [0, 2000, (64 << 20) - 1, 2**32 - 1])
@pytest.mark.parametrize("way", READS)
def test_a_member_that_lies_about_its_length(tmp_path, per_member, states, way):
    """It takes as much memory as the records are long that it may hold."""
    folder = make(tmp_path, [NUMBER, NOISE, TEXT], COLUMNS, {"a": [6]}, per_member)
    bomb = compress_member(bytes(64 << 20))[:-4] + states.to_bytes(4, "little")
    path, offset = replace_member(folder, 2 // per_member, bomb)
    records = open_records(folder)
    tracemalloc.start()
    try:
        with raises(DamagedRecord, naming=[path, offset, 2]):
            READS[way](records)
        held = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert held < (300 << 20 if states == (64 << 20) - 1 else 4 << 20)
    assert [records[number]["number"] for number in (0, 5)] == [0, 5]


# Size and speed.


def test_importing_is_light():
    code = "import sys, beam_pipeline.read.records, beam_pipeline.read.batches as _"
    done = run_python("-c", f"{code}\nprint(*sys.modules)")
    heavy = {"tensorflow", "apache_beam", "tfx_bsl", "pyarrow", "pandas", "scipy"}
    ours = {"beam_pipeline.transforms.base", "beam_pipeline.planning.clips"}
    assert (heavy | ours) & set(done.stdout.split()) == set()


def test_a_million_examples_open_at_once(tmp_path):
    shards, each = 100, 10_000
    counts = np.tile([1, 3], each // 4)
    offsets = np.arange(len(counts)) * (each * 1000 // len(counts))
    entries = [
        ShardEntry(f"train/train-{k:05d}-of-00100.tfrecord.gz", each, each * 1000, "0")
        for k in range(shards)
    ]
    split = SplitEntry(shards * each, 1, 1.0, shards=tuple(entries))
    metadata = Metadata(Recipe(win_len=1), {"number": NUMBER}, (), {"train": split})
    Path(tmp_path, "metadata.json").write_bytes(metadata.to_text())
    indices = [ShardIndex.make(entry, offsets, counts) for entry in entries]
    write_index(str(tmp_path), indices)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    records = open_records(tmp_path)
    assert len(records) == 1_000_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20 << 10
