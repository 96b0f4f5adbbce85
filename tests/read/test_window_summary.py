"""The summary of the windows of a data set, against its table of windows."""

from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile

from beam_pipeline import Metadata, plan, record, window_table
from beam_pipeline.dataset import tables as written_table
from beam_pipeline.errors import InputError
from beam_pipeline.read.recorded_windows import QUANTILES, summarise_windows
from tests.raising import raises
from tests.sounds import RATE, write_corpus, write_sound


def by_hand(folder, split):
    """Frame by frame, and level by level."""
    table = window_table(folder, split).to_pandas()
    covered, without = 0, 0
    for _, rows in table.groupby(["clip", "path"]):
        kept = rows[rows["left_out"].isna()]
        stretches = [
            np.arange(round(start * RATE), round(start * RATE) + frames)
            for start, frames in zip(kept["start_s"], kept["valid_frames"], strict=True)
        ]
        covered += len(set(np.concatenate(stretches))) if stretches else 0
        without += not stretches
    levels = np.sort(table[table["copy"] == 0]["level_db"].dropna())
    ranks = [int(np.ceil(q * len(levels))) - 1 for q in QUANTILES]
    return (
        len(table),
        dict(Counter(table["left_out"].dropna())),
        without,
        covered / RATE,
        dict(zip(QUANTILES, levels[ranks].astype(float), strict=True)),
    )


def compare(folder):
    found = summarise_windows(folder, Metadata.load(folder))
    for split, summary in found.items():
        windows, left_out, without, audio_s, levels = by_hand(folder, split)
        assert (summary.windows, summary.clips_without) == (windows, without)
        assert summary.left_out == left_out
        assert summary.audio_s == pytest.approx(audio_s, rel=1e-12)
        assert summary.levels == pytest.approx(levels, abs=1e-4)
    return found


def write_quiet(path, frames):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, np.zeros(frames, np.float32), RATE)


OPTIONS = {
    "win_len": 500, "hop": 200, "tail": "pad", "keep": "energy(above_db=-10.85)",
    "splits": "train=.6,test=.4", "elements_per_file": 7,
}  # fmt: skip


@pytest.mark.parametrize("rows", [1, 30, 1 << 17])
@pytest.mark.parametrize("copies", [0, 2])
def test_a_summary_is_that_of_the_table(tmp_path, monkeypatch, rows, copies):
    monkeypatch.setattr(written_table, "_WINDOWS_IN_GROUP", rows)
    write_corpus(tmp_path / "in", frames=1100)
    for k in range(6):
        write_quiet(tmp_path / "in" / "owl" / f"quiet{k}.wav", 900)
    augment = {"copies": copies, "augment": "random_gain()"} if copies else {}
    record(tmp_path / "in", tmp_path / "out", **OPTIONS, **augment)
    found = compare(str(tmp_path / "out"))
    assert sum(split.clips_without for split in found.values()) >= 6
    assert all(split.left_out["keep"] for split in found.values())


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
    record(tmp_path / "in", tmp_path / "out", **chosen)
    for split, windows in compare(str(tmp_path / "out")).items():
        assert windows.audio_s == pytest.approx(summary.audio_seconds(split))
        assert bool(windows.left_out) == ("events" in options)


def test_hours_of_windows_that_overlap_and_pad(tmp_path):
    """Half a second in windows of a second that overlap by half: no second twice."""
    write_sound(tmp_path / "in" / "short.wav", RATE // 2)
    write_sound(tmp_path / "in" / "long.wav", 10 * RATE)
    chosen = {"win_seconds": 1, "hop_seconds": 0.5, "tail": "pad", "label_from": "none"}
    made = record(tmp_path / "in", tmp_path / "out", **chosen)
    found = summarise_windows(str(tmp_path / "out"), made)["records"]
    assert found.audio_s == 10.5
    assert made.splits["records"].seconds == 20


def test_tables_that_do_not_fit_are_refused(tmp_path):
    folder, path = str(tmp_path / "out"), tmp_path / "out" / "windows.parquet"
    write_corpus(tmp_path / "in", frames=1100)
    record(tmp_path / "in", folder, **OPTIONS)
    rows = pq.read_table(path)
    for wrong in (rows[:-1], pa.concat_tables([rows, rows])):
        pq.write_table(wrong, path)
        with raises(InputError, naming="windows.parquet"):
            summarise_windows(folder, Metadata.load(folder))
    path.write_bytes(b"PAR1 no table")
    with raises(InputError, naming=str(path)):
        summarise_windows(folder, Metadata.load(folder))
