"""Files, runs and readers in gs:// and s3:// on loopback; a proxy can fail."""

import errno
import io
import multiprocessing
import os
import pickle
import tempfile
import time

import boto3
import numpy as np
import pytest
import soundfile
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_pipeline import Metadata, record
from beam_pipeline.audio.clip_reader import ClipReader, probe_audio
from beam_pipeline.cli.main import main
from beam_pipeline.encodings import INT64_LIST, RAW
from beam_pipeline.errors import InputError, OutputError, StoreError
from beam_pipeline.examples.spec import FeatureSpec
from beam_pipeline.inputs.columns import SourceRow
from beam_pipeline.process import Marks, new_state
from beam_pipeline.read.records import open_records
from beam_pipeline.read.replay import replay
from beam_pipeline.storage import claim, files, object_store
from beam_pipeline.storage.object_store import FIRST_BYTES, StoreReader
from tests import loopback
from tests.data_sets import contents, shards_of
from tests.loopback import point_at, refusing_port, upload_folder
from tests.raising import assert_names, raises
from tests.read.members import make
from tests.sounds import write_corpus

SCHEMES = ("s3", "gs")
NOISE = np.random.default_rng(0).bytes(5 * FIRST_BYTES + 17)


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize(
    "size", [0, 1, FIRST_BYTES - 1, FIRST_BYTES, FIRST_BYTES + 1, len(NOISE)]
)
def test_written_bytes_are_read_back(bucket, scheme, size):
    path = f"{scheme}://{bucket}/folder/ü b%*?.bin"
    assert files.size(path) == -1
    files.write_bytes(path, NOISE[:size])
    assert files.size(path) == size
    assert files.exists(path)
    assert files.read_bytes(path) == NOISE[:size]
    with files.open_read(path) as file:
        file.seek(-1, os.SEEK_END) if size else None
        assert file.read() == NOISE[:size][-1:]
        assert file.read() == b""
        assert files.modified_ns(file) == files.modified_ns(path) > 0


@pytest.mark.parametrize("share", [1.0, 0.3, 0.0])
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    first=st.sampled_from([1, 100, FIRST_BYTES, 10 * FIRST_BYTES]),
    moves=st.lists(
        st.tuples(
            st.one_of(st.none(), st.integers(0, len(NOISE) + 10)),
            st.integers(0, 3 * FIRST_BYTES),
        ),
        max_size=8,
    ),
)
def test_random_reads_equal_reads_in_memory(bucket, share, first, moves):
    path = f"s3://{bucket}/noise"
    if files.size(path) < 0:
        files.write_bytes(path, NOISE)
    reader, memory = StoreReader(path, first, share), io.BytesIO(NOISE)
    for seek, count in moves:
        if seek is not None:
            assert reader.seek(seek) == memory.seek(seek)
        assert reader.read(count) == memory.read(count)
        assert reader.tell() == memory.tell() or reader.tell() == len(NOISE)


def test_names_are_listed_in_the_order_of_a_local_folder(bucket, tmp_path):
    names = ["b/2.wav", "b.wav", "a/z/1.wav", "a.wav", "a/b.wav", "a-b.wav", "B/1", "ä"]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    upload_folder(tmp_path, f"gs://{bucket}/in")
    files.write_bytes(f"gs://{bucket}/inside", b"not below in/")
    found = list(files.list_files(f"gs://{bucket}/in"))
    assert found == list(files.list_files(str(tmp_path)))
    assert found == sorted(names)
    assert list(files.list_files(f"gs://{bucket}/in/")) == found
    assert list(files.list_files(f"gs://{bucket}/nothing")) == []
    assert not files.is_folder(f"gs://{bucket}/nothing")
    assert files.is_folder(f"gs://{bucket}/in")


def test_deleting_a_folder_leaves_its_neighbours(bucket):
    for name in ("a/1", "a/2/3", "ab/1"):
        files.write_bytes(f"s3://{bucket}/{name}", b"x")
    files.delete_below(f"s3://{bucket}/a")
    files.delete_below(f"s3://{bucket}/a")
    files.delete([f"s3://{bucket}/none"])
    assert list(files.list_files(f"s3://{bucket}")) == ["ab/1"]


def test_a_missing_object_is_a_file_not_found_error(bucket):
    with raises(FileNotFoundError, naming=f"gs://{bucket}/none.wav") as raised:
        files.read_bytes(f"gs://{bucket}/none.wav")
    assert raised.value.filename == f"gs://{bucket}/none.wav"


def test_failed_requests_are_repeated(bucket, proxy):
    path = f"s3://{bucket}/noise"
    proxy.refuse = 2
    files.write_bytes(path, NOISE)
    proxy.refuse = 2
    proxy.cut = 1
    assert files.read_bytes(path) == NOISE
    assert proxy.refuse == proxy.cut == 0


def test_missing_credentials_cost_no_waiting(store_port, proxy, bucket, monkeypatch):
    files.write_bytes(f"s3://{bucket}/private", b"x")
    files.write_bytes(f"s3://{bucket}/public", b"x")
    owner = boto3.client("s3", endpoint_url=f"http://127.0.0.1:{store_port}")
    owner.put_object_acl(Bucket=bucket, Key="public", ACL="public-read")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "GOOGLE_BEARER_TOKEN"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", "/nowhere")
    object_store._client.cache_clear()
    object_store._machine_has_role.cache_clear()
    assert files.size(f"s3://{bucket}/public") == 1
    assert files.read_bytes(f"gs://{bucket}/public") == b"x"
    with raises(StoreError, naming=["AWS_ACCESS_KEY_ID", f"s3://{bucket}/private"]):
        files.read_bytes(f"s3://{bucket}/private")


@pytest.mark.parametrize("scheme", SCHEMES)
@pytest.mark.parametrize("denied", ["", "/in/cat", "/in/cat/cat_1.wav"])
def test_no_access_ends_the_run_and_rejects_no_clip(
    bucket, proxy, tmp_path, capsys, scheme, denied
):
    write_corpus(tmp_path / "in", clips=2)
    remote = f"{scheme}://{bucket}/in"
    upload_folder(tmp_path / "in", remote)
    proxy.deny = f"/{bucket}{denied}"
    out = tmp_path / "out"
    flags = ["--input", remote, "--output", str(out), "--win-len", "500"]
    assert main(["record", *flags, "--max-rejected", "100%"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert_names(line, bucket)
    assert ("AWS_ACCESS_KEY_ID" if scheme == "s3" else "GOOGLE_APPLICATION") in line

    assert not (out / "rejected.jsonl").exists()


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_missing_bucket_is_an_error(bucket, tmp_path, capsys, scheme):
    write_corpus(tmp_path / "in", ("cat",), clips=1)
    missing, local = f"{scheme}://no-{bucket}/x", str(tmp_path / "in")
    window = ["--win-len", "500"]
    for arguments in (
        ["record", "--input", missing, "--output", str(tmp_path / "out"), *window],
        ["record", "--input", local, "--output", missing, *window],
        ["plan", "--input", missing, *window],
        ["status", missing],
        ["show", missing],
        ["verify", missing],
    ):
        assert main(arguments) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert_names(line, f"no-{bucket}")
    assert not (tmp_path / "out").exists()


def test_a_dead_store_is_named_with_the_cause(monkeypatch, capsys):
    monkeypatch.setitem(object_store._RETRIES, "max_retries", 1)
    object_store._client.cache_clear()
    with refusing_port() as port:
        point_at(port, monkeypatch)
        for command in ("status", "verify", "show"):
            assert main([command, "s3://bucket/records"]) == 1
            (line,) = capsys.readouterr().err.splitlines()
            assert_names(line, os.strerror(errno.ECONNREFUSED), "s3://bucket/records")
    object_store._client.cache_clear()


@pytest.mark.parametrize("suffix", [".wav", ".flac"])
def test_a_stretch_of_a_long_file_needs_few_bytes(bucket, proxy, tmp_path, suffix):
    path = tmp_path / f"long{suffix}"
    noise = np.random.default_rng(1).integers(-99, 99, 8000, dtype=np.int16)
    soundfile.write(path, np.tile(noise, 3600), 8000, subtype="PCM_16")
    remote = f"s3://{bucket}/long{suffix}"
    object_store.upload(str(path), remote)
    whole = path.stat().st_size
    proxy.reset()
    info = probe_audio(StoreReader(remote), name="long")
    probing = proxy.bytes_sent
    proxy.reset()
    first, stop = 8000 * 1800, 8000 * 1810
    reader = StoreReader(remote, share=stop / info.frames)
    with ClipReader(reader, info, name="long") as clip:
        found = clip.read(first, stop)
    wanted = soundfile.read(path, start=first, stop=stop, dtype="float32")[0]
    np.testing.assert_array_equal(found, wanted)
    assert probing < 6 * FIRST_BYTES
    assert proxy.bytes_sent < whole * 10 / 3600 + 6 * FIRST_BYTES
    assert proxy.bytes_sent < whole / 50


def test_to_wait_for_a_store_is_no_work_on_a_clip(bucket, monkeypatch):
    """So a store that is slow exceeds no time limit."""
    path = f"s3://{bucket}/long"
    files.write_bytes(path, NOISE)
    state = new_state()
    during = []

    class Watched:
        """The answer to a request, which notes what is marked while it is awaited."""

        def __init__(self, *arguments):
            self._request = begin(*arguments)

        def result(self):
            during.append(state.mark())
            return self._request.result()

    begin = object_store._begin
    monkeypatch.setattr(object_store, "_begin", Watched)
    with Marks.kept_in(state):
        Marks.mark(SourceRow(0, 0, "long", None, None, ""), "decode")
        seen = {state.mark().serial}
        reader = StoreReader(path)
        for offset in (0, len(NOISE) - 1):
            reader.seek(offset)
            assert reader.read(1) == NOISE[offset : offset + 1]
            seen.add(state.mark().serial)
    assert during == [None, None]
    assert len(seen) == 3


def test_short_clips_do_not_wait_for_each_other(bucket, proxy, tmp_path):
    write_corpus(tmp_path / "in", ("a",), clips=60)
    upload_folder(tmp_path / "in", f"s3://{bucket}/in")
    proxy.reset()
    proxy.delay_s = 0.05
    record(f"s3://{bucket}/in", str(tmp_path / "out"), win_len=500, num_shards=1)
    # One request for the header of each clip and one for its samples.
    reads = proxy.count("GET")
    assert reads < 2.5 * 60
    assert proxy.at_once > 8


def test_a_data_set_in_a_store_has_the_bytes_of_a_local_one(bucket, proxy, tmp_path):
    write_corpus(tmp_path / "in")
    (tmp_path / "in" / "cat" / "bad.wav").write_bytes(b"RIFF and no more")
    (tmp_path / "in" / "notes.txt").write_text("not audio")
    options = {"win_len": 500, "num_shards": 5, "max_rejected": 1}
    record(tmp_path / "in", tmp_path / "out", **options)
    remote_in, remote = f"gs://{bucket}/in", f"gs://{bucket}/a/out"
    upload_folder(tmp_path / "in", remote_in)
    proxy.reset()
    record(remote_in, remote, workers=2, **options)
    assert loopback.contents_in(remote) == contents(tmp_path / "out")
    shards = [path for method, path in proxy.requests
              if method == "PUT" and "tfrecord.gz" in path]  # fmt: skip
    assert len(shards) == 5, "each shard is sent once, under its last name"
    assert all("_work" not in path for path in shards)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_inputs_of_every_kind_are_read_from_a_store(bucket, tmp_path, scheme):
    write_corpus(tmp_path / "in", clips=2)
    root = f"{scheme}://{bucket}/in"
    upload_folder(tmp_path / "in", root)
    files.write_bytes(f"{root}/some.txt", b"cat/cat_0.wav\ncat/none.wav\n")
    found = {}
    for name in ("", "/*/*_0.wav", "/**/cat*", "/cat/cat_0.wav", "/some.txt"):
        out = tmp_path / f"out{len(found)}"
        metadata = record(root + name, out, win_len=500, max_rejected=1)
        found[name] = metadata.clips, metadata.rejected
    # A missing object of a list is a reject.
    assert found == {"": (6, 0), "/*/*_0.wav": (3, 0), "/**/cat*": (2, 0),
                     "/cat/cat_0.wav": (1, 0), "/some.txt": (2, 1)}  # fmt: skip
    with raises(InputError, naming=[f"{root}/none", "--input"]):
        record(f"{root}/none", str(tmp_path / "none"), win_len=500)


def test_a_run_in_a_store_is_continued(bucket, proxy, tmp_path, monkeypatch):
    write_corpus(tmp_path / "in")
    options = {"win_len": 500, "num_shards": 4, "workers": 1}
    record(str(tmp_path / "in"), str(tmp_path / "out"), **options)
    remote = f"s3://{bucket}/out"
    monkeypatch.setitem(object_store._RETRIES, "max_retries", 1)
    object_store._client.cache_clear()
    upload = object_store.upload
    uploads = []

    def fail_at_the_third(local_path, path):
        uploads.append(path)
        if len(uploads) == 3:
            proxy.refuse = 10**9
        upload(local_path, path)

    monkeypatch.setattr(object_store, "upload", fail_at_the_third)
    monkeypatch.setattr(claim, "WATCH_S", 0.1)  # of the run that could not end its own
    drafts = tmp_path / "drafts"
    drafts.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(drafts))
    with raises(StoreError, naming=[f"{remote}/records-", "503"]):
        record(str(tmp_path / "in"), remote, **options)
    assert not list(drafts.rglob("*.gz"))
    proxy.refuse = 0
    receipts = list(files.list_files(f"{remote}/_work/receipts"))
    assert len(receipts) == 2
    with pytest.raises(InputError):
        Metadata.load(remote)
    uploads[:] = [""] * 3
    record(str(tmp_path / "in"), remote, **options)
    assert len([path for path in uploads if path.endswith(".gz")]) == 2
    assert loopback.contents_in(remote) == contents(tmp_path / "out")


def test_a_finished_data_set_in_a_store_is_recognised(bucket, tmp_path):
    write_corpus(tmp_path / "in", clips=2)
    paths = f"s3://{bucket}/in", f"s3://{bucket}/out"
    upload_folder(tmp_path / "in", paths[0])
    time.sleep(1.1)  # the store's times are in seconds
    found = []
    metadata = record(*paths, win_len=500)
    assert record(*paths, win_len=500, found=found.append) == metadata
    assert found == [metadata]
    time.sleep(1.1)
    upload_folder(tmp_path / "in", paths[0])
    with raises(OutputError, naming="--overwrite"):
        record(*paths, win_len=500)


@pytest.mark.parametrize("scheme", SCHEMES)
def test_a_list_whose_answer_is_cut_is_an_error(bucket, proxy, scheme):
    for number in range(30):
        object_store.write(f"{scheme}://{bucket}/in/{number:05}-{'x' * 100}", b"")
    proxy.cut = 99
    with raises(StoreError, naming=f"{scheme}://{bucket}/in"):
        list(object_store.list_files(f"{scheme}://{bucket}/in"))


# Readers

COUNT = 150
NUMBER = FeatureSpec("number", "int64", (), INT64_LIST)
SOUND = FeatureSpec("noise", "int16", (300,), RAW)
COLUMNS = {
    "number": np.arange(COUNT),
    "noise": np.random.default_rng(0).integers(-9999, 9999, (COUNT, 300), np.int16),
}


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    root = tmp_path_factory.mktemp("local")
    return make(root, [NUMBER, SOUND], COLUMNS, {"records": (80, 70)})


@pytest.fixture(params=["s3", "gs"])
def folder(request, bucket, local):
    """The data set in a store."""
    folder = f"{request.param}://{bucket}/set"
    upload_folder(local, folder)
    return folder


def check(records, wanted):
    batch = records.read(wanted)
    assert batch["number"].tolist() == list(wanted)
    assert np.array_equal(batch["noise"], COLUMNS["noise"][wanted])


def test_neighbours_are_one_request(folder, proxy, monkeypatch):
    records = open_records(folder)
    proxy.reset()
    check(records, range(COUNT))
    assert proxy.count("GET") == len(proxy.requests) == 2
    assert records[7]["number"] == 7
    assert proxy.bytes_sent < 1.1 * sum(map(files.size, shards_of(folder)))
    assert [int(example["number"]) for example in records] == list(range(COUNT))
    monkeypatch.setattr(records._reader, "_gap", 0)
    proxy.reset()
    proxy.delay_s = 0.1
    check(records, [39, 1, 11, 4, 25])
    assert proxy.count("GET") == 5
    assert proxy.at_once > 1


def test_what_is_not_there(folder, bucket):
    scheme = folder.partition("://")[0]
    with raises(InputError, naming="no folder"):
        open_records(f"{scheme}://{bucket}/nothing")
    records = open_records(folder)
    object_store.delete(shards_of(folder)[:1])
    with pytest.raises(InputError, match=r"00000-of-00002.*cannot be read: .*no such"):
        records[0]
    object_store.delete([f"{folder}/members.index"])
    with pytest.raises(InputError, match=f"`audio-tfrecords convert {folder} NEW"):
        open_records(folder)


def test_another_process_rewrites_the_folder(folder):
    """With objects of the same size, which are seen by their tags."""
    records = open_records(folder)
    path = shards_of(folder)[0]
    assert records[3]["number"] == 3
    content = bytearray(files.read_bytes(path))
    content[4] ^= 1  # the time in the header of GZIP, which no reader looks at
    files.write_bytes(path, bytes(content))
    with pytest.raises(InputError, match=r"00000-of-00002.*changed since it was first"):
        records[3]
    files.write_bytes(path, bytes(content[:-1]))
    with pytest.raises(InputError, match=r"00000-of-00002.*bytes instead of"):
        open_records(folder)[3]


@pytest.mark.filterwarnings("ignore:.*multi-threaded:DeprecationWarning")
def test_a_fork_after_reading(folder):
    """The client does not survive it: the child gets an error, and does not hang."""
    records = open_records(folder)
    check(records, [1, 2])
    pickled = pickle.dumps(records[10:20])

    def work():
        for use in (
            lambda: check(records, [39, 0, 5]),
            lambda: pickle.loads(pickled)[0],
            lambda: files.size(folder),
            lambda: files.read_bytes(f"{folder}/metadata.json"),
        ):
            with pytest.raises(StoreError, match=r"before a fork.*'spawn'"):
                use()

    child = multiprocessing.get_context("fork").Process(target=work, daemon=True)
    child.start()
    child.join(30)
    assert child.exitcode == 0
    check(records, [3])


def elements_of(folder, **options):
    tf.random.set_seed(1)
    return [
        (element["number"].tolist(), element["noise"].tolist())
        for element in replay(folder, **options).as_numpy_iterator()
    ]


@pytest.mark.parametrize(
    "options",
    [{"repeat": 2}, {"batch_size": 7, "shard": (1, 2)}, {"shuffle": True, "seed": 3}],
    ids=str,
)
def test_the_elements_are_those_of_a_local_folder(folder, local, options):
    wanted = elements_of(str(local), **options)
    assert elements_of(folder, **options) == wanted
    assert len(wanted) == replay(folder, **options).cardinality()
