"""Data sets of a stranger: errors that name the file, no code, and little memory."""

import io
import os
import shutil
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beam_pipeline import open_records, record, verify
from beam_pipeline.cli.main import main
from beam_pipeline.cli.parser import printable
from beam_pipeline.dataset.folders import read_run_error
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.progress import read_progress
from beam_pipeline.dataset.tables import lost_audio
from beam_pipeline.errors import (
    AudioTFRecordsError,
    InputError,
    OutputError,
    VerificationError,
)
from beam_pipeline.pipeline.finish import find_finished
from beam_pipeline.planning.shards import Shard
from beam_pipeline.read.show import show
from beam_pipeline.storage import tfrecord
from beam_pipeline.storage.files import draft_path, private_folder
from tests.raising import assert_names, raises
from tests.read.members import seal
from tests.sounds import write_corpus


@pytest.mark.parametrize(
    "name",
    ["metadata.json", "manifest.parquet", "windows.parquet", "rejected.jsonl",
     "schema.pbtxt"],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_never_ends_is_not_read(folder, name, kind):
    (folder / name).unlink()
    if kind == "pipe":
        os.mkfifo(folder / name)
    else:
        (folder / name).symlink_to("/dev/zero")
    with raises(AudioTFRecordsError, naming=[name, "pipe or a device"]):
        raise VerificationError(verify(str(folder), deep=True))


@pytest.mark.parametrize("text", ["[" * 10**5, "9" * 10**6, '{"a":' * 10**5, "\xff{"])
def test_crafted_json(folder, text):
    for name in ("metadata.json", "rejected.jsonl"):
        path = folder / name
        before = path.read_bytes()
        path.write_bytes(text.encode("latin-1"))
        if name == "metadata.json":
            with raises(AudioTFRecordsError, naming=path):
                verify(folder)
        else:
            assert_names("\n".join(verify(folder)), name, "SHA-256")
            metadata = replace(Metadata.load(folder), rejected=1)
            with raises(InputError, naming=path):
                lost_audio(str(folder), metadata)
        path.write_bytes(before)


def test_a_recipe_is_not_looked_at(folder, tmp_path, monkeypatch):
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    seal(folder, lambda values: values["recipe"]["features"].update(signal="evil.f"))
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    for command in ("verify", "verify --deep", "show", "audit", "status"):
        assert main([*command.split(), "."]) == 0, command
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(
    ("name", "column", "value"),
    [
        ("manifest", "path", 1),
        ("manifest", "split", None),
        ("manifest", "frames", 1 << 60),
        ("manifest", "frames", -1),
        ("manifest", "windows", 1 << 60),
        ("manifest", "sample_rate_hz", 0),
        ("manifest", "path", [1]),
        ("windows", "start", "a"),
    ],
)
def test_crafted_tables(folder, name, column, value):
    path = folder / f"{name}.parquet"
    table = pq.read_table(path)
    at = table.column_names.index(column)
    pq.write_table(table.set_column(at, column, pa.array([value] * len(table))), path)
    text = "\n".join(verify(folder, deep=True))
    assert_names(text, path.name, *([column] if value != 1 << 60 else []))


def bomb(start):
    """A small member that inflates to a record of 384 MiB, or to its beginning."""
    file = io.BytesIO()
    file.close = file.flush
    writer = tfrecord.MemberWriter(file)
    writer.write(start)
    for _ in range(96):
        writer.write(bytes(4 << 20))
    writer.close()
    return file.getvalue()


def header(length):
    packed = struct.pack("<Q", length)
    return packed + struct.pack("<I", tfrecord.masked_crc32c(packed))


READERS = {
    "verify": verify,
    "verify deeply": lambda folder: verify(folder, deep=True),
    "records": lambda folder: [str(open_records(folder, "test")[0])],
    "show": lambda folder: list(map(str, show(folder, 1, split="test").records)),
}


@pytest.mark.parametrize("read", READERS)
def test_damaged_shards_and_bombs_are_named(folder, read):
    """Bombs take little memory: a record that is too long is read up to the limit."""
    shard = min(folder.rglob("*.gz"))
    bombs = [bomb(b""), bomb(header(384 << 20)), bomb(header(1 << 60))]
    for content in (b"", shard.read_bytes()[:100], *bombs):
        assert len(content) < 1 << 20
        shard.write_bytes(content)
        tracemalloc.start()
        try:
            found = "\n".join(READERS[read](folder))
        except (AudioTFRecordsError, ValueError) as error:
            found = str(error)
        held = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert_names(found, shard.name)
        assert held < 2 * tfrecord.MOST_BYTES


def test_the_limit_may_be_raised(monkeypatch):
    floor = tfrecord.MOST_BYTES
    assert tfrecord.most_bytes(0) == tfrecord.most_bytes(floor // 16) == floor
    assert tfrecord.most_bytes(floor) == 16 * floor
    assert tfrecord.too_long(floor, 0) is None
    assert_names(str(tfrecord.too_long(floor + 1, 7)), floor + 1, floor, 7)
    for text, most in [("1", floor), ("x", floor), (str(1 << 40), 1 << 40)]:
        monkeypatch.setenv(tfrecord.VARIABLE, text)
        assert tfrecord.most_bytes(0) == most


# Terminals.


def test_names_do_not_command_the_terminal(folder, capsys):
    def edit(values):
        values["classes"][0] = "\x1b]0;owned\x07"
        values["splits"]["\x1b[2J\u202e"] = values["splits"].pop("train")

    seal(folder, edit)
    (folder / "\x1b[31m-00000-of-00001.tfrecord.gz").touch()
    for command in (["verify"], ["verify", "--deep"], ["show"], ["audit", "--json"]):
        main([*command, str(folder)])
        out = "".join(capsys.readouterr())
        assert printable(out) == out


def test_what_is_printed_of_a_text():
    assert printable("a\tb\nc é 漢\u00a0") == "a\tb\nc é 漢\u00a0"
    assert printable("\x1b[2J\x7f\x9b\u202e\udcff") == (
        r"\u001b[2J\u007f\u009b\u202e\udcff"
    )


# Folders of runs.


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("error.json", '{"error": "did_you_mean", "args": ["a", ["b"]]}'),
        ("error.json", '{"error": "Iterable", "args": []}'),
        ("error.json", "[" * 10**5),
        ("error.json", "[]"),
        ("plan.json", '{"splits": 3}'),
        ("plan.json", '{"splits": {"a": {"shards": 1000000000000, "total": 1}}}'),
        ("plan.json", "{"),
    ],
)
def test_the_state_of_a_run(tmp_path, name, text):
    (tmp_path / "job.json").write_text("{}")
    path = tmp_path / name
    path.write_text(text)
    read = read_run_error if name == "error.json" else read_progress
    with raises(InputError, naming=[path, "Delete it"]):
        read(str(tmp_path))


@pytest.mark.parametrize("text", ["[" * 10**5, "[]", '{"shard": 1}', '{"shard": {}}'])
def test_crafted_receipts_are_none(tmp_path, text):
    path = tmp_path / "receipts" / "records-00000-of-00001.json"
    path.parent.mkdir()
    path.write_text(text)
    shard = Shard("records-00000-of-00001", "records", 0, 1)
    assert find_finished(shard, str(tmp_path), str(tmp_path)) is None


def test_a_work_folder_that_leads_elsewhere(folder, tmp_path):
    mine = tmp_path / "mine"
    (mine / "drafts").mkdir(parents=True)
    (mine / "drafts" / "notes.txt").write_text("mine")
    (folder / "_work").symlink_to(mine)
    sounds = tmp_path / "in"
    write_corpus(sounds, clips=1)
    with raises(OutputError, naming=[folder / "_work", "symbolic link"]):
        record(str(sounds), str(folder), win_len=500, overwrite=True)
    assert (mine / "drafts" / "notes.txt").read_text() == "mine"


def test_drafts_are_for_this_user_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = Path(draft_path("s3://bucket/x", "draft"))
    own = Path(private_folder())
    assert path.parent.parent == own
    assert [p.stat().st_mode & 0o777 for p in (own, path.parent)] == [0o700, 0o700]
    own.chmod(0o755)
    with raises(OutputError, naming=[own, "TMPDIR"]):
        private_folder()
    shutil.rmtree(own)
    own.symlink_to(tmp_path)
    with raises(OutputError, naming=own):
        private_folder()
