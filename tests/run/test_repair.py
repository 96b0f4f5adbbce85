"""verify --repair: the bytes of before, or nothing is touched."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import soundfile

from beam_pipeline import record, record_examples, repair, verify
from beam_pipeline.cli.main import main
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError, VerificationError
from tests.raising import assert_names, raises
from tests.sounds import write_corpus, write_sound

pytestmark = pytest.mark.runs

SIDE_FILES = (
    "members.index", "windows.parquet", "manifest.parquet", "schema.pbtxt",
    "rejected.jsonl",
)  # fmt: skip


def contents(folder: Path) -> dict[str, bytes]:
    """The files below a folder, by name."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture(scope="module")
def sounds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Sounds; one is rejected by its header, and one fails while it is recorded."""
    folder = tmp_path_factory.mktemp("sounds")
    write_corpus(folder)
    write_sound(folder / "cat" / "short.wav", 100)
    write_sound(folder / "owl" / "loud.wav", 4000, seed=5)
    samples, rate = soundfile.read(folder / "owl" / "loud.wav")
    samples[1600] = 0.95
    soundfile.write(folder / "owl" / "loud.wav", samples, rate)
    return folder


@pytest.fixture(scope="module")
def recorded(sounds: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("whole") / "out"
    record(
        str(sounds), str(folder), win_len=500, elements_per_file=12, max_rejected=2,
        splits="train=.5,test=.5", stratify=True, keep="energy(above_db=-10.9)",
        fingerprint=True, features={"x": "tests.sounds:fail_on_loud"},
    )  # fmt: skip
    metadata = Metadata.load(folder)
    assert metadata.rejected == 2
    assert all(split.left_out for split in metadata.splits.values())
    return folder


@pytest.fixture
def folder(recorded: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(recorded, tmp_path / "out"))


def shards_of(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.tfrecord.gz"))


def damage(path: Path, how: str) -> None:
    content = bytearray(path.read_bytes())
    if how == "gone":
        path.unlink()
        return
    if how == "byte":
        content[len(content) // 2] ^= 1
    elif how == "cut":
        del content[len(content) // 2 :]
    elif how == "empty":
        content.clear()
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["gone", "byte", "cut", "empty"])
def test_shards_get_their_bytes_back(
    folder: Path, recorded: Path, sounds: Path, how: str
) -> None:
    doomed = shards_of(folder)[:2]
    others = {p: p.stat().st_mtime_ns for p in folder.rglob("*") if p not in doomed}
    for path in doomed:
        damage(path, how)
    names = [str(path.relative_to(folder)) for path in doomed]
    assert repair(folder, sounds) == names
    assert contents(folder) == contents(recorded)
    kept = {path: path.stat().st_mtime_ns for path in others if path.is_file()}
    assert kept.items() <= others.items()


@pytest.mark.parametrize("name", ["members.index", "windows.parquet"])
def test_a_file_beside_the_shards(
    folder: Path, recorded: Path, sounds: Path, name: str
) -> None:
    (folder / name).unlink()
    assert repair(folder, sounds) == [name]
    assert contents(folder) == contents(recorded)


@pytest.mark.parametrize("how", ["cut", "empty"])
def test_all_files_beside_the_shards(
    folder: Path, recorded: Path, sounds: Path, how: str
) -> None:
    for name in SIDE_FILES:
        damage(folder / name, how)
    assert {*repair(folder, sounds)} == {*SIDE_FILES}
    assert contents(folder) == contents(recorded)


def test_everything_but_the_metadata(
    folder: Path, recorded: Path, sounds: Path
) -> None:
    names = {*contents(recorded)} - {"metadata.json"}
    for name in names:
        (folder / name).unlink()
    replaced = repair(folder, [str(sounds)], workers=2)
    assert {*replaced} == names
    assert contents(folder) == contents(recorded)
    assert verify(folder, deep=True) == []
    assert repair(folder, sounds) == []


def test_windows_that_do_not_fit(folder: Path, recorded: Path, sounds: Path) -> None:
    path = folder / "windows.parquet"
    table = pq.read_table(path)
    pq.write_table(table.slice(1).append_column("more", table["start"].slice(1)), path)
    assert repair(folder, sounds) == ["windows.parquet"]
    assert contents(folder) == contents(recorded)


# What cannot be repaired.


def refused(folder: Path, source: Path, *facts: object) -> None:
    """Expects an error that names the facts, and that nothing is touched."""
    before = contents(folder)
    with raises(VerificationError, naming=["nothing was replaced", folder, *facts]):
        repair(folder, source)
    assert contents(folder) == before


def test_inputs_that_changed(folder: Path, sounds: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(sounds, tmp_path / "in"))
    first, *_ = shards_of(folder)
    damage(first, "gone")
    damage(folder / "schema.pbtxt", "gone")
    manifest = pq.read_table(folder / "manifest.parquet").to_pylist()
    split = first.parent.name
    path = next(row["path"] for row in manifest if row["split"] == split)
    number = [row["path"] for row in manifest].index(path)
    old = (copy / path).read_bytes()
    write_sound(copy / path, 2600, seed=77)
    refused(folder, copy, "manifest.parquet", path, f"clip {number}", "frames")
    frames = manifest[number]["frames"]
    write_sound(copy / path, frames, seed=77)
    refused(folder, copy, f"{split}/{first.name}", copy / path)
    (copy / path).write_bytes(old)
    write_sound(copy / "cat" / "more.wav", 2500)
    refused(folder, copy, "clips", 14, 15)
    (copy / "cat" / "more.wav").unlink()
    (copy / "notes.txt").touch()
    refused(folder, copy, "files that are no audio", 0, 1)
    (copy / "notes.txt").unlink()
    assert len(repair(folder, copy)) == 2


def test_other_versions_are_named(
    folder: Path, sounds: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, *_ = shards_of(folder)
    damage(first, "gone")
    text = (folder / "metadata.json").read_text()
    entry = Metadata.load(folder).splits[first.parent.name].shards[0]
    other = text.replace('"numpy": "', '"numpy": "0.').replace(entry.sha256, "0" * 64)
    (folder / "metadata.json").write_text(other)
    refused(folder, sounds, "numpy", entry.file)
    # Other versions alone are no reason, if the bytes are the same.
    (folder / "metadata.json").write_text(text.replace('"numpy": "', '"numpy": "0.'))
    assert repair(folder, sounds) == [entry.file]


def test_a_manifest_that_was_changed(folder: Path, sounds: Path) -> None:
    path = folder / "manifest.parquet"
    table = pq.read_table(path)
    level = table["native_frames"].to_pylist()
    level[0] += 1
    column = table.column_names.index("native_frames")
    pq.write_table(table.set_column(column, table.field(column), [level]), path)
    refused(folder, sounds, "native_frames", "delete it")
    path.unlink()
    assert repair(folder, sounds) == ["manifest.parquet"]


def test_metadata_that_are_damaged(folder: Path, sounds: Path) -> None:
    path = folder / "metadata.json"
    path.write_text(path.read_text()[:-100])
    with raises(InputError, naming=[path, "overwrite", "record"]):
        repair(folder, sounds)
    path.unlink()
    with raises(InputError, naming=[folder, "metadata.json"]):
        repair(folder, sounds)


@pytest.mark.parametrize("name", ["rejected.jsonl", "members.index", "shard"])
def test_a_folder_in_place_of_a_file_is_named(
    folder: Path, recorded: Path, sounds: Path, name: str
) -> None:
    path = shards_of(folder)[-1] if name == "shard" else folder / name
    path.unlink()
    path.mkdir()
    facts = [path, "is a folder", "Move the folder away"]
    with raises(InputError, naming=facts):
        verify(folder)
    with raises(InputError, naming=facts):
        repair(folder, str(sounds))
    path.rmdir()
    assert repair(folder, str(sounds)) == [str(path.relative_to(folder))]
    assert contents(folder) == contents(recorded)


def test_other_recorders_are_refused(tmp_path: Path, sounds: Path) -> None:
    record_examples([{"x": 1}], tmp_path / "out")
    with raises(InputError, naming=[tmp_path, "record_examples"]):
        repair(tmp_path / "out", sounds)


def test_killed_at_any_moment(folder: Path, recorded: Path, sounds: Path) -> None:
    """Before the second file is replaced, the first is whole; the next one goes on."""
    before = contents(recorded)
    doomed = [*shards_of(folder), folder / "members.index"]
    for path in doomed:
        path.unlink()
    code = (
        "import os, signal, sys\n"
        "from beam_pipeline.storage import files\n"
        "moves, move = [0], files.move\n"
        "def dying(draft, target):\n"
        "    if '_work' not in target:\n"
        "        moves[0] += 1\n"
        "        if moves[0] == 2:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "    move(draft, target)\n"
        "files.move = dying\n"
        "from beam_pipeline import repair\n"
        "repair(sys.argv[1], sys.argv[2])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, folder, sounds],
        cwd=Path(__file__).parents[2], env={**os.environ, "PYTHONPATH": "."},
    )  # fmt: skip
    assert done.returncode == -signal.SIGKILL
    found = contents(folder)
    assert any(name.startswith("_work/") for name in found)
    whole = {n: c for n, c in found.items() if not n.startswith("_work/")}
    assert whole.items() <= before.items()
    assert len(whole) == len(before) - len(doomed) + 1
    assert repair(folder, sounds)
    assert contents(folder) == before


def test_files_of_others_in_the_work_folder_stay(folder: Path, sounds: Path) -> None:
    notes = folder / "_work" / "notes.txt"
    notes.parent.mkdir()
    notes.write_text("mine")
    damage(shards_of(folder)[0], "gone")
    assert repair(folder, sounds)
    assert notes.read_text() == "mine"


def test_the_command(
    folder: Path, sounds: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first, *_ = shards_of(folder)
    damage(first, "byte")
    call = ["verify", str(folder), "--repair"]
    assert main(call) == 2
    assert_names(capsys.readouterr().err, "--repair", "--input")
    assert main(call[:2]) == 4
    assert main([*call, "--input", str(sounds)]) == 0
    assert_names(capsys.readouterr().out, f"repaired: {first.parent.name}/{first.name}")
    assert main([*call, "--deep", "--input", str(sounds), "--sample", "5"]) == 0
    assert_names(capsys.readouterr().out, "nothing to repair")
    assert main([*call[:2], "--input", str(sounds)]) == 2
    assert_names(capsys.readouterr().err, "--input", "--deep", "--repair")
