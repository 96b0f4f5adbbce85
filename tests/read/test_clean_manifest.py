"""The remedy for what an audit finds: a manifest; and a data set's own as an input."""

import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline import Metadata, audit, open_records, record
from beam_pipeline.cli.main import main
from beam_pipeline.dataset.tables import manifest_fields
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.inputs.columns import PartColumns, is_own_manifest, part_in_seconds
from beam_pipeline.inputs.table_files import ColumnType
from beam_pipeline.read.audit import write_clean_manifest
from beam_pipeline.recipe.recipe import Audio
from beam_pipeline.transforms.base import seconds_to_frames
from tests.raising import assert_names, raises
from tests.sounds import write_sound

OPTIONS = {"win_len": 400, "splits": "train=.5,test=.5"}


@pytest.fixture(scope="module")
def leaky(tmp_path_factory):
    """Eight recordings, of which three are copies of others, one in another class."""
    folder = tmp_path_factory.mktemp("leaky")
    for number in range(5):
        path = folder / "in" / "owl" / f"{number}.wav"
        write_sound(path, 2000 + 10 * number, seed=number)
    for source, copy in (("0", "owl/a"), ("0", "owl/b"), ("1", "tit/c")):
        target = folder / "in" / f"{copy}.wav"
        target.parent.mkdir(exist_ok=True)
        shutil.copy(folder / "in" / "owl" / f"{source}.wav", target)
    record(folder / "in", folder / "out", seed=2, **OPTIONS)
    assert audit(folder / "out").leaks
    return folder


def rows_of(path):
    table = pq.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path)
    return {row["path"]: row for row in table.to_pylist()}


def test_a_clean_manifest_has_no_leaks(leaky, tmp_path):
    manifest = tmp_path / "clean.csv"
    written = write_clean_manifest(leaky / "out", manifest, leaky / "in")
    assert written == (8, 5, 0, 2)
    found = {path.split("/in/")[1]: row for path, row in rows_of(manifest).items()}
    assert {*found["owl/0.wav"]} == {"path", "group", "class"}
    assert [found[f"owl/{name}.wav"]["group"] for name in "0ab"] == ["owl/0.wav"] * 3
    assert found["tit/c.wav"]["group"] == found["owl/1.wav"]["group"]
    assert found["tit/c.wav"]["class"] == "tit"
    options = {"label_from": "class", "group_by": "group", **OPTIONS}
    for seed in range(4):
        out = tmp_path / str(seed)
        metadata = record(manifest, out, seed=seed, **options)
        assert metadata.clips == 8
        assert audit(out).leaks == 0


def test_doubles_are_dropped_if_their_class_is_clear(leaky, capsys):
    manifest = leaky / "in" / "clean.parquet"
    command = ["audit", str(leaky / "out"), "--input", str(leaky / "in")]
    command += ["--write-manifest", str(manifest), "--drop-doubles"]
    assert main(command) == 4  # the data set still leaks
    assert_names(capsys.readouterr().err, "6 clips", "5 groups", "2 doubles", "2 clips")
    # Beside its files, names are those of before.
    assert {*rows_of(manifest)} == {*(f"owl/{k}.wav" for k in range(5)), "tit/c.wav"}
    assert main(command) == 2  # it exists
    assert_names(capsys.readouterr().err, "--write-manifest", "clean.parquet")
    manifest.unlink()
    assert main([*command[:2], "--drop-doubles"]) == 2
    assert main([*command[:4]]) == 2
    assert_names(
        capsys.readouterr().err, "--drop-doubles", "--write-manifest", "--input"
    )


def test_of_several_data_sets(leaky, tmp_path):
    """The first of doubles is the one of the first data set."""
    sounds = Path(shutil.copytree(leaky / "in" / "owl", tmp_path / "in" / "owl"))
    record(tmp_path / "in", tmp_path / "one", seed=2, **OPTIONS)
    shutil.copy(sounds / "2.wav", sounds / "0new.wav")
    more = {"recipe": tmp_path / "one", "skip_recorded": tmp_path / "one"}
    record(tmp_path / "in", tmp_path / "two", **more)
    both, manifest = [tmp_path / "one", tmp_path / "two"], tmp_path / "in" / "clean.csv"
    written = write_clean_manifest(both, manifest, tmp_path / "in", drop_doubles=True)
    assert (written.clips, written.groups, written.dropped) == (5, 5, 3)
    assert {*rows_of(manifest)} == {f"owl/{k}.wav" for k in range(5)}


def test_groups_and_columns_stay(tmp_path):
    for number in range(4):
        write_sound(tmp_path / "in" / f"{number}.wav", 4000, seed=number % 3)
    rows = [
        {"path": f"in/{n}.wav", "start_s": s, "end_s": s + 0.2, "who": who, "x": x}
        for n, s, who, x in (
            (0, 0.0, "ada", 1.5), (0, 0.25, "ada", None), (1, 0.0, "bob", 2.0),
            (2, 0.1, "cy", 0.1), (3, 0.0, "dan", 7.0),
        )
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    options = {**OPTIONS, "label_from": "none", "group_by": "who"}
    record(tmp_path / "rows.parquet", tmp_path / "out", **options)
    manifest = tmp_path / "clean.csv"
    written = write_clean_manifest(
        tmp_path / "out", manifest, tmp_path / "rows.parquet"
    )
    assert written == (5, 3, 0, 0)
    table = pa.csv.read_csv(manifest).to_pylist()
    assert {*table[0]} == {"path", "group", "start_s", "duration_s", "who", "x"}
    found = {(row["path"], row["start_s"]): row for row in table}
    assert found["in/0.wav", 0.25]["group"] == "in/0.wav"  # ada and dan
    assert found["in/3.wav", 0.0]["group"] == "in/0.wav"
    assert found["in/1.wav", 0.0]["group"] == "bob"
    assert found["in/0.wav", 0.25]["duration_s"] == 0.2
    options |= {"group_by": "group", "columns": "who,x"}
    metadata = record(manifest, tmp_path / "again", **options)
    assert metadata.clips == 5
    # Whoever is in no finding is in the same split as before.
    before, after = (
        pq.read_table(tmp_path / name / "manifest.parquet").to_pylist()
        for name in ("out", "again")
    )
    for who in ("bob", "cy"):
        assert len({row["split"] for row in before + after if row["who"] == who}) == 1


def test_what_cannot_be_written(leaky, tmp_path):
    out = leaky / "out"
    with raises(OptionError, "write_manifest", "x.json"):
        write_clean_manifest(out, "x.json", leaky / "in")
    two = tmp_path / "two"
    record([leaky / "in" / "owl", leaky / "in" / "tit"], two, win_len=400)
    with raises(InputError, naming=["input", "2"]):
        write_clean_manifest(two, tmp_path / "x.csv", leaky / "in")
    (tmp_path / "empty").mkdir()
    with raises(InputError, naming=["input", str(tmp_path / "empty")]):
        write_clean_manifest(out, tmp_path / "x.csv", tmp_path / "empty")
    assert not (tmp_path / "x.csv").exists()


# A data set's own manifest


def test_the_own_manifest_is_an_input(tmp_path):
    write_sound(tmp_path / "a.wav", 8000, seed=1)
    write_sound(tmp_path / "b.wav", 4001, seed=2, channels=2)
    names = ("path", "offset_s", "duration_s", "kind", "snr")
    values = [
        ("a.wav", 0.1, 0.3, "x", 1.5),
        ("a.wav", 0.5, None, "y", None),
        ("b.wav", None, None, "x", 2.5),
    ]
    rows = [dict(zip(names, row, strict=True)) for row in values]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    options = {"win_len": 500, "sample_rate": 16000}
    record(tmp_path / "rows.parquet", tmp_path / "out", label_from="kind", **options)
    own = tmp_path / "own.parquet"
    shutil.copy(tmp_path / "out" / "manifest.parquet", own)
    record(own, tmp_path / "again", label_from="class", **options)
    before, after = (Metadata.load(tmp_path / name) for name in ("out", "again"))
    assert [*after.shards()] == [*before.shards()]
    assert after.features == before.features
    tables = [
        pq.read_table(tmp_path / n / "manifest.parquet") for n in ("out", "again")
    ]
    assert str(tables[0].to_pylist()) == str(tables[1].to_pylist())
    # At another rate, parts are the same seconds.
    record(own, tmp_path / "low", label_from="class", win_len=100, sample_rate=4000)
    ends = {e["win_start_idx"] + 100 for e in open_records(tmp_path / "low")}
    assert max(ends) == 2000


@pytest.mark.parametrize("columns", [[], [("index", ColumnType("int64"))]])
def test_an_own_manifest_is_known_by_its_columns(columns):
    names = [*manifest_fields(Audio(), columns)]
    assert is_own_manifest(names)
    assert not is_own_manifest(names[1:])
    assert PartColumns.of(names, "path", "x").in_frames
    assert PartColumns.of(names, "path", "x").names() == {"start", "frames", "channel"}


@pytest.mark.parametrize(
    "wrong", [{"start": None}, {"sample_rate_hz": 0}, {"frames": "x"}]
)
def test_a_wrong_row_is_named(wrong):
    row = {**dict.fromkeys(manifest_fields(Audio()), 1), "channel": None, **wrong}
    part = PartColumns.of([*row], "path", "x")
    with pytest.raises(ValueError, match=next(iter(wrong))):
        part.read(row)


@given(
    st.integers(0, 10**9), st.integers(1, 10**9), st.sampled_from([8000, 11025, 44100])
)
def test_seconds_of_a_part_give_its_frames(start, frames, rate):
    offset_s, duration_s = part_in_seconds(start, frames, rate, 2 * 10**9 + 1, rate)
    assert seconds_to_frames(offset_s, rate) == start
    assert duration_s is not None
    assert seconds_to_frames(duration_s, rate) == frames
