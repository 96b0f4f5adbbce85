"""verify: every file that readers open is checked, and what is damaged is named."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from beam_pipeline import open_records, verify
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.rejects import lost_audio
from beam_pipeline.errors import VerificationError
from beam_pipeline.read.audit import audit
from beam_pipeline.read.replay import replay
from beam_pipeline.read.table import window_table
from beam_pipeline.read.window_summary import summarise_windows
from beam_pipeline.reporting.page import report
from tests.raising import assert_names
from tests.read.members import seal

pytestmark = pytest.mark.runs

# The metadata, a shard, and each file beside them.
KINDS = ["metadata.json", "schema.pbtxt", "manifest.parquet", "windows.parquet",
         "members.index", "rejected.jsonl", "shard"]  # fmt: skip


def file_of(folder: Path, kind: str) -> Path:
    return min(folder.rglob("*.tfrecord.gz")) if kind == "shard" else folder / kind


def problems(folder: Path) -> str:
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
def test_every_byte_of_every_file(whole: Path, kind: str, data: st.DataObject) -> None:
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
def test_files_that_are_not_there(folder: Path, kind: str, how: str) -> None:
    path = file_of(folder, kind)
    content = path.read_bytes()
    path.unlink()
    facts: list[Any] = [path.name]
    if how == "gone":
        facts += ["is missing"]
    elif how == "folder":
        path.mkdir()
        facts += ["is a folder"]
    else:
        other = file_of(folder, "shard" if kind != "shard" else "windows.parquet")
        path.write_bytes(other.read_bytes())
        other.write_bytes(content)
        facts += [other.name]
    assert_names("\n".join(verify(folder)), *facts)


def test_a_shard_in_the_place_of_another_is_named(
    folder: Path, shards: list[Path]
) -> None:
    first, second, *_ = shards
    first.write_bytes(second.read_bytes())
    assert_names("\n".join(verify(folder)), f"it is {second.relative_to(folder)}")


def test_shards_that_are_not_in_the_metadata(folder: Path) -> None:
    shard = file_of(folder, "shard")
    more = shard.with_name("more-00000-of-00001.tfrecord.gz")
    shutil.copy(shard, more)
    (line,) = verify(folder)
    assert_names(line, more.name, "not in metadata.json")


@pytest.mark.parametrize(
    ("examples", "facts"),
    [("shard", ["records", "expected"]), ("split", ["split", "together"])],
)
def test_wrong_counts(folder: Path, examples: str, facts: list[str]) -> None:
    def edit(values: Any) -> None:
        split = values["splits"]["train"]
        counted = split if examples == "split" else split["shards"][0]
        counted["examples"] += 1

    seal(folder, edit)
    assert_names("\n".join(verify(folder)), "train", *facts)


class Opened:
    """Names of files below a folder that are opened while the block runs."""

    watching: ClassVar[Path | None] = None
    names: ClassVar[set[str]] = set()
    hooked: ClassVar[bool] = False

    @classmethod
    def hook(cls, event: str, arguments: tuple[Any, ...]) -> None:
        if cls.watching is None or event not in ("open", "mmap.__new__"):
            return
        path = Path(str(arguments[0]))
        if path.is_relative_to(cls.watching) and path.is_file():
            cls.names.add(str(path.relative_to(cls.watching)))


@pytest.fixture
def opened(folder: Path) -> Iterator[set[str]]:
    if not Opened.hooked:
        sys.addaudithook(Opened.hook)
        Opened.hooked = True
    Opened.watching, Opened.names = folder, set()
    yield Opened.names
    Opened.watching = None


def test_readers_open_only_files_that_are_checked(
    folder: Path, opened: set[str], tmp_path: Path
) -> None:
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
