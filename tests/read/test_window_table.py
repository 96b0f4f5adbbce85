"""records.table(), where() and of_clip() against the examples; sums of the table."""

import csv
import hashlib
import shutil
from collections import Counter
from itertools import chain

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from beam_pipeline import (
    Metadata,
    open_records,
    plan,
    record,
    record_examples,
    verify,
    window_table,
)
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.window_table import QUANTILES, summarise_windows
from beam_pipeline.storage import pages
from tests.raising import raises
from tests.sounds import RATE, write_corpus, write_samples, write_sound

WIN_LEN = 500


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Two splits with copies; windows are padded, quiet ones and clips are left out."""
    base = tmp_path_factory.mktemp("table")
    sounds = write_corpus(base / "in", clips=5)
    for k in range(6):
        name = f"owl/quiet{k}.wav"
        sounds[name] = np.zeros(900, np.float32)
        write_samples(base / "in" / name, sounds[name])
    lines = [f"{name},{i},{i / 4},{name[:3]}" for i, name in enumerate(sounds)]
    (base / "in" / "list.csv").write_text(
        "\n".join(["path,number,snr,class", *lines]) + "\n"
    )
    record(
        str(base / "in" / "list.csv"), str(base / "out"), win_len=WIN_LEN, hop=400,
        tail="pad", keep="energy(above_db=-10.85)", splits="train=.6,test=.4",
        copies=1, augment="random_gain(low_db=-3)", elements_per_file=7,
        label_from="class", columns="number,snr",
    )  # fmt: skip
    return str(base / "out")


@pytest.mark.parametrize("split", ["train", "test"])
def test_the_table_says_what_the_examples_are(folder, split):
    records = open_records(folder, split)
    entry = Metadata.load(folder).splits[split]
    table = records.table().to_pandas()
    assert len(table) == entry.examples + entry.left_out
    assert (table["left_out"] == "keep").sum() == entry.left_out > 0
    assert set(table["split"]) == {split}
    held = table[table["left_out"].isna()]
    assert held["record"].tolist() == list(range(len(records)))
    places = [(s.file, i) for s in entry.shards for i in range(s.examples)]
    assert list(zip(held["shard"], held["position"], strict=True)) == places
    for (_, row), example in zip(held.iterrows(), records, strict=True):
        assert row["path"] == example["filepath"]
        assert row["class"] == example["class"]
        assert row["clip"] == example["index"]
        assert row["copy"] == example.get("copy", 0)
        assert row["sample_rate_hz"] == example["fs"] == RATE
        assert row["start_s"] == example["win_start_idx"] / RATE
        assert row["end_s"] == row["start_s"] + row["valid_frames"] / RATE
        assert row["number"] == example["number"]
        assert row["snr"] == example["snr"]
        signal = example["signal"]
        assert not signal[row["valid_frames"] :].any()
        if row["copy"] == 0:
            level = 10 * np.log10((signal.astype(np.float64) ** 2).mean())
            assert row["level_db"] == pytest.approx(level, abs=0.006)
    out = table[~table["left_out"].isna()]
    assert (out["level_db"] <= -10.8).all()
    assert out[["record", "shard", "position"]].isna().all(axis=None)


def test_the_table_of_all_splits_is_that_of_each(folder):
    parts = [window_table(folder, name) for name in Metadata.load(folder).splits]
    assert window_table(folder).equals(pa.concat_tables(parts).unify_dictionaries())
    with raises(InputError, naming=["tset", "train", "test"]):
        window_table(folder, "tset")
    with raises(InputError, naming=f"{folder}/train"):
        window_table(f"{folder}/train")


def test_conditions_choose_what_pandas_chooses(folder):
    records = open_records(folder, "train")
    table = records.table().to_pandas()
    held = table[table["left_out"].isna()].reset_index()
    for condition, met in [
        ("class == 'owl' and snr > 2", (held["class"] == "owl") & (held["snr"] > 2)),
        ("not (end_s - start_s < 500 / 8000)",
         ~(held["end_s"] - held["start_s"] < 500 / 8000)),
    ]:  # fmt: skip
        chosen = records.where(condition)
        assert chosen.numbers.tolist() == np.flatnonzero(met).tolist(), condition
        assert chosen.table()["record"].to_pylist() == chosen.numbers.tolist()
    # Views narrow down.
    owls = records[::-1].where("class == 'owl'").where("copy == 0")
    numbers = np.flatnonzero((held["class"] == "owl") & (held["copy"] == 0))
    assert owls.numbers.tolist() == numbers[::-1].tolist()
    path = owls[0]["filepath"]
    clip = np.flatnonzero((held["path"] == path) & (held["copy"] == 0))
    assert owls.of_clip(path).numbers.tolist() == clip[::-1].tolist()
    assert owls.where("copy == 1").table().num_rows == 0
    with raises(InputError, naming=["cat_77.wav", ".wav"]):
        records.of_clip("cat_77.wav")
    for path in (3, None):
        with raises(OptionError, naming=["path", "text", repr(path)]):
            records.of_clip(path)


def test_empty_cells_of_a_manifest_are_missing(tmp_path):
    names = list(write_corpus(tmp_path / "in", clips=1))
    cells = ["1.5,loud", ",", "-2,"]
    lines = [f"{n},{c}" for n, c in zip(names, cells, strict=True)]
    table = tmp_path / "in" / "list.csv"
    table.write_text("\n".join(["path,snr,note", *lines]) + "\n")
    record(table, tmp_path / "out", win_len=WIN_LEN)
    records = open_records(tmp_path / "out")
    paths = np.array(records.table()["path"].to_pylist())
    for condition, wanted in [
        ("snr is None", names[1:2]), ("snr != 1.5", names[2:]),
        ("note is None", names[1:]), ("note != 'loud'", []), ("note == ''", []),
    ]:  # fmt: skip
        chosen = records.where(condition).numbers.tolist()
        assert chosen == np.flatnonzero(np.isin(paths, wanted)).tolist(), condition
    assert [e["note"] for e in records.of_clip(names[1])[:1]] == [""]


@pytest.mark.parametrize("name", ["windows.parquet", "manifest.parquet"])
@pytest.mark.parametrize("content", ["garbage", "middle", "columns", "rows", None])
def test_a_damaged_file_is_named(folder, tmp_path, name, content):
    shutil.copytree(folder, tmp_path / "copy")
    path = tmp_path / "copy" / name
    whole = path.read_bytes()
    if content == "middle":
        path.write_bytes(whole[:4] + b"\xff" * 200 + whole[204:])
    elif content == "columns":
        pq.write_table(pa.table({"frames": [1]}), path)
    elif content == "rows":
        pq.write_table(pq.read_table(path)[:-1], path)
    elif content is None:
        path.unlink()
    else:
        path.write_text(content)
    records = open_records(str(tmp_path / "copy"), "train")
    facts = ["windows.parquet"] if content == "rows" else [name, "the data set again"]
    with raises(InputError, naming=facts):
        records.where("copy == 0")


@pytest.mark.parametrize("moment", ["before", "while", "unfinished"])
def test_a_data_set_that_was_recorded_again_is_not_mixed(
    folder, tmp_path, monkeypatch, moment
):
    """Without the comparison, the new table chose among the old examples."""
    out, opened = shutil.copytree(folder, tmp_path / "out"), pages.read_parquet
    records, path = open_records(out, "train"), out / "metadata.json"

    def record_again():
        path.unlink() if moment == "unfinished" else path.write_text("another one")

    def read_late(*args, **options):
        record_again()
        return opened(*args, **options)

    if moment == "before":
        record_again()
    else:
        monkeypatch.setattr(pages, "read_parquet", read_late)
    uses = [lambda: records.where("start_s == 0"), records.table]
    for use in (*uses, lambda: records.of_clip("cat/cat_0.wav")):
        with raises(InputError, naming=["metadata.json", "open it again"]) as caught:
            use()
        assert "estore" not in str(caught.value)
        monkeypatch.undo()


def test_other_data_have_places_only(tmp_path):
    folder = record_examples(
        [{"x": i} for i in range(3)], tmp_path, elements_per_file=2
    )
    records = open_records(folder)
    table = records.table()
    assert table.column_names == ["record", "split", "shard", "position"]
    assert summarise_windows(folder, Metadata.load(folder)) == {}
    assert table["position"].to_pylist() == [0, 1, 0]
    assert records.where("position == 1").numbers.tolist() == [1]
    for ask in (lambda: records.of_clip("x"), lambda: records.source(0)):
        with raises(InputError, naming=[folder, "audio files"]):
            ask()


# Where examples come from: the same samples, cut out of the file by other tools.


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sources") / "in"
    write_sound(folder / "a/one.wav", 1700, seed=1)
    write_sound(folder / "b/two.flac", 2100, channels=2, seed=2)
    write_sound(folder / "b/three.wav", 900, channels=2, seed=3, subtype="PCM_24")
    return folder


def cut(source, length):
    """Returns what soundfile reads at the told place, padded with zeros."""
    samples, rate = soundfile.read(
        source.file, source.frames, source.first_frame, dtype="float32", always_2d=True
    )
    assert rate == source.sample_rate_hz
    assert samples.shape == (source.frames, source.channels)
    assert source.first_frame / rate == pytest.approx(source.start_s, abs=1e-12)
    assert (source.first_frame + source.frames) / rate == pytest.approx(source.end_s)
    channel = samples[:, 0]
    if source.channel is not None:
        channel = samples[:, source.channel]
    elif source.channels == 2:
        channel = (samples[:, 0] + samples[:, 1]) / np.float32(2)
    return np.pad(channel, (0, length - len(channel)))


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"tail": "pad", "hop": 170},
        {"tail": "overlap", "order": "listed"},
        {"random_starts": True, "max_windows": 2},
        {"hash_files": True, "keep": "energy(above_db=-10.85)", "hop": 100},
    ],
)
def test_the_samples_at_the_told_place_are_those_of_the_example(
    sounds, tmp_path, options
):
    record(sounds, tmp_path / "out", win_len=400, label_from="none", **options)
    records = open_records(tmp_path / "out")
    assert len(records) > 5
    for i, found in enumerate(records):
        source = records.source(i, input=sounds)
        assert source.path == found["filepath"]
        np.testing.assert_array_equal(found["signal"], cut(source, 400))
        digest = None
        if "hash_files" in options:
            digest = hashlib.sha256((sounds / source.path).read_bytes()).hexdigest()
        assert (source.sha256, source.copy, source.input) == (digest, 0, 0)
        assert records.source(i) == source._replace(file=None)


def test_parts_of_files_channels_and_copies(sounds, tmp_path, monkeypatch):
    monkeypatch.chdir(sounds)
    rows = [
        {"path": "b/two.flac", "offset_s": 0.0313, "duration_s": 0.12, "channel": 1},
        {"path": "b/two.flac", "offset_s": 0.1, "duration_s": None, "channel": None},
        {"path": str(sounds / "a/one.wav"), "offset_s": 0.05, "duration_s": 0.1},
    ]
    record(
        rows, tmp_path / "out", win_len=400, label_from="none", copies=1,
        augment="noise()", hash_files=True,
    )  # fmt: skip
    records = open_records(tmp_path / "out")
    seen = set()
    for i, found in enumerate(records):
        source = records.source(i, input=".")
        assert source.copy == found["copy"]
        seen.add((source.path, source.channel, source.copy))
        if source.copy == 0:
            np.testing.assert_array_equal(found["signal"], cut(source, 400))
    assert len(seen) == 6
    view = records[[3, 1]]
    assert view.source(0) == records.source(3)
    assert view.source(-1) == records.source(1)
    with pytest.raises(IndexError):
        view.source(2)
    with raises(OptionError, "input", 3):
        view.source(0, input=3)
    manifest = pq.read_table(tmp_path / "out/manifest.parquet")
    assert manifest.schema.field("file_sha256").type == "string"
    assert manifest["file_sha256"].null_count == 0


@pytest.mark.parametrize("rate", [4000, 11025])
def test_resampled_windows_touch_these_frames(sounds, tmp_path, rate):
    record(sounds, tmp_path / "out", win_len=200, sample_rate=rate, label_from="none")
    records = open_records(tmp_path / "out")
    for i, found in enumerate(records):
        source = records.source(i)
        start = found["win_start_idx"] / rate
        assert source.start_s == pytest.approx(start)
        first, stop = source.first_frame, source.first_frame + source.frames
        assert first <= start * RATE + 1e-6 < first + 1
        assert stop - 1 < source.end_s * RATE + 1e-6
        assert stop >= source.end_s * RATE - 1e-6
        assert source.sample_rate_hz == RATE


def test_verify_names_a_file_whose_bytes_have_changed(sounds, tmp_path):
    shutil.copytree(sounds, tmp_path / "in")
    options = {"win_len": 400, "label_from": "none", "hash_files": True}
    record(tmp_path / "in", tmp_path / "out", **options)
    assert verify(tmp_path / "out", deep=True, input=tmp_path / "in") == []
    with (tmp_path / "in/a/one.wav").open("ab") as file:
        file.write(b"note")  # which changes no sample
    problems = verify(tmp_path / "out", deep=True, input=tmp_path / "in")
    assert problems
    assert all("a/one.wav" in line and "file_sha256" in line for line in problems)
    with raises(InputError, naming=tmp_path):
        open_records(tmp_path / "out").source(0, input=tmp_path)


def test_a_table_with_sources(sounds, tmp_path, cli):
    record(sounds, tmp_path / "out", win_len=400, label_from="none", hash_files=True)
    plain = window_table(tmp_path / "out")
    table = window_table(tmp_path / "out", sources=True)
    more = ["native_start", "native_frames", "native_sample_rate_hz", "channels",
            "file_sha256"]  # fmt: skip
    assert table.column_names == [*plain.column_names, *more]
    said = cli("windows", tmp_path / "out", "--csv", "--sources").out
    lines = list(csv.DictReader(said.splitlines()))
    assert [int(line["native_start"]) for line in lines] == (
        table["native_start"].to_pylist()
    )
    cli("windows", tmp_path / "out", "--sources", status=2)


# The summary of the windows of a data set


def test_a_summary_is_that_of_the_table(folder):
    """Window by window, and level by level."""
    found = summarise_windows(folder, Metadata.load(folder))
    for split, summary in found.items():
        table = window_table(folder, split).to_pandas()
        assert summary.windows == len(table)
        assert summary.left_out == Counter(table["left_out"].dropna())
        assert summary.left_out["keep"]
        clips = table.groupby(["clip", "path"])["left_out"]
        without = sum(of_clip.notna().all() for _, of_clip in clips)
        assert summary.clips_without == without
        levels = np.sort(table[table["copy"] == 0]["level_db"].dropna())
        ranks = [int(np.ceil(q * len(levels))) - 1 for q in QUANTILES]
        of_ranks = levels[ranks].astype(float)
        assert summary.levels == dict(zip(QUANTILES, of_ranks, strict=True))
    assert sum(split.clips_without for split in found.values()) >= 6


EVENTS = {
    "events": "events.csv", "event_targets": "class", "no_event": "drop",
    "event_overlap": 0.01,
}  # fmt: skip


@pytest.mark.parametrize(
    "options",
    [
        {"hop": 200},
        {"hop": 700, "tail": "overlap"},
        {"max_windows": 3, "random_starts": True},
        {"num_elems": 11},
        {"copies": 2, "augment": "random_gain()", "num_elems": 17},
        {"hop": 250, **EVENTS},
    ],
    ids=str,
)
def test_the_plan_says_how_much_audio_there_will_be(tmp_path, monkeypatch, options):
    monkeypatch.chdir(tmp_path)
    sounds = write_corpus(tmp_path / "in", frames=2222)
    rows = [
        f"{name},{start},{start + 0.05},owl" for name in sounds for start in (0, 0.2)
    ]
    (tmp_path / "events.csv").write_text("\n".join(["path,start_s,end_s,label", *rows]))
    chosen = {"win_len": 500, "tail": "pad", "splits": "train=.6,test=.4", **options}
    summary, _ = plan(tmp_path / "in", **chosen)
    metadata = record(tmp_path / "in", tmp_path / "out", **chosen)
    for split in metadata.splits:
        covered, table = 0, window_table(tmp_path / "out", split).to_pandas()
        for _, rows in table.groupby("clip"):
            kept = rows[rows["left_out"].isna()]
            starts = (kept["start_s"] * RATE).round().astype(int)
            windows = zip(starts, kept["valid_frames"], strict=True)
            covered += len({*chain.from_iterable(range(s, s + n) for s, n in windows)})
        assert covered / RATE == pytest.approx(summary.audio_seconds(split))
