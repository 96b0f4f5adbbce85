"""New recordings, scored by models, become tables of detections."""

import inspect
import shutil
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline import open_records, record
from beam_pipeline.cli.main import main
from beam_pipeline.errors import DataSetWarning, InputError, OptionError, UnknownOption
from beam_pipeline.read.predict import join_windows, model_of, predict, windows_above
from tests.processes import forget_peak_memory, peak_memory_mib
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_corpus, write_samples, write_sound

# Detections


def by_hand(starts, length, scores, threshold, gap):
    """Joins windows one by one; times are whole frames."""
    found = []
    for target in range(scores.shape[1]):
        held = []  # first frame, end, best score
        for start, score in zip(starts, scores[:, target].tolist(), strict=True):
            if score < threshold:
                continue
            if held and start - held[-1][1] <= gap:
                held[-1][1:] = [start + length, max(score, held[-1][2])]
            else:
                held.append([start, start + length, score])
        found += [(start, target, end, best) for start, end, best in held]
    return sorted(found)


@given(
    st.lists(st.integers(0, 60), max_size=12, unique=True).map(sorted),
    st.integers(1, 9),
    st.integers(0, 9),
    st.integers(1, 3),
    st.integers(0, 2**32 - 1),
    st.sampled_from([7, 8000, 44100]),
)
def test_windows_are_joined_as_by_hand(starts, length, gap, classes, seed, rate):
    scores = np.random.default_rng(seed).integers(0, 4, (len(starts), classes)) / 4
    frames = np.array(starts, float)
    windows = windows_above(frames / rate, (frames + length) / rate, scores, 0.5)
    assert len(windows) == (scores >= 0.5).sum()
    joined = join_windows(windows, gap / rate)
    expected = by_hand(starts, length, scores, 0.5, gap)
    assert joined.tolist() == [
        (start / rate, end / rate, target, best)
        for start, target, end, best in expected
    ]


# Recordings


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A data set, `records`, of three classes, and recordings with sounds in silence.

    `night/a.wav` has a loud sound from 1 to 2 s and one from 4 to 4.5 s.
    """
    folder = tmp_path_factory.mktemp("predict")
    write_corpus(folder / "sounds", clips=1, frames=RATE)
    record(folder / "sounds", folder / "records", win_len=RATE // 2, workers=1)
    write_night(folder / "night" / "a.wav", 6)
    write_night(folder / "night" / "hill" / "b.wav", 3)
    (folder / "night" / "bad.wav").write_bytes(b"RIFF, but nothing else")
    source = f"import numpy as np\n\n\n{inspect.getsource(loud)}"
    (folder / "my_model.py").write_text(source)
    return folder


def write_night(path, seconds):
    night = np.zeros(round(seconds * RATE))
    for first, last in ((1, 2), (4, 4.5)):
        night[round(first * RATE) : round(last * RATE)] = 0.5
    write_samples(path, night, RATE)


def loud(signals):
    """The peak is the score of `dog`."""
    peak = np.abs(signals).max(axis=1)
    return np.stack([0 * peak, peak, 0.1 + 0 * peak], axis=1)


EVENTS = [("a.wav", 1.0, 2.0), ("a.wav", 4.0, 4.5), ("hill/b.wav", 1.0, 2.0)]


def test_each_window_has_the_scores_of_the_model(folder):
    options = {"each_window": True, "threshold": 0.0, "batch_size": 5}
    night = folder / "night" / "a.wav"
    table = predict(loud, night, like=folder / "records", **options)
    assert len(table) == 3 * 12
    record(night, folder / "again", win_len=RATE // 2, workers=1)
    signals = open_records(folder / "again").read(slice(None))["signal"]
    scores = table.column("score").to_numpy().reshape(12, 3)
    np.testing.assert_array_equal(scores, loud(signals))
    assert table.column("class").to_pylist() == ["cat", "dog", "owl"] * 12
    starts = table.column("start_s").to_pylist()
    assert starts == np.repeat(np.arange(12) / 2, 3).tolist()


def test_a_gap_that_is_short_is_closed(folder):
    given = {"like": folder / "records", "threshold": 0.4, "max_gap_seconds": 2.0}
    (row,) = predict(loud, folder / "night" / "a.wav", **given).to_pylist()
    assert (row["start_s"], row["end_s"]) == (1.0, 4.5)


def test_recordings_of_one_path_in_two_inputs_stay_apart(folder, tmp_path):
    nights = [tmp_path / name for name in ("north", "south")]
    for night in nights:
        write_night(night / "a.wav", 6)
    table = predict(loud, nights, like=folder / "records", threshold=0.4)
    assert table.column("input").to_pylist() == [0, 0, 1, 1]
    assert table.column("start_s").to_pylist() == [1.0, 4.0, 1.0, 4.0]
    assert table.column("end_s").to_pylist() == [2.0, 4.5, 2.0, 4.5]


COMMAND = (
    "predict", "--model", "my_model:loud", "--like", "records", "--input", "night",
    "--threshold", "0.4",
)  # fmt: skip


def test_on_the_command_line(folder, monkeypatch, cli):
    monkeypatch.chdir(folder)
    command = [*COMMAND, "--raven", "tables", "--output"]
    said = cli(*command, "found.csv", status=3)
    got = "the model gets signal, not normalised (without --normalize)"
    assert said.out == f"found.csv: 3 detections in 2 recordings; {got}\n  dog: 3\n"
    assert "1 of 3 recordings could not be scored" in said.err
    assert "--max-rejected is 0" in said.err
    assert "bad.wav is left out: " in said.err
    corrected = Path("tables/a.selections.txt")
    corrected.write_text("corrected")
    said = cli(*command, "found.parquet", status=2).err
    assert_names(said, "--raven", "tables", "a.selections.txt")
    assert corrected.read_text() == "corrected"
    assert not Path("found.parquet").exists()
    for path in ("found.csv/more/a.csv", "tables/a.csv --raven found.csv"):
        said = cli(*command[:-3], "--output", *path.split(), status=2).err
        assert_names(said, "found.csv", "a part of the path is a file")
    Path("night.csv").write_text("path\nnight/a.wav\n")
    same = [*COMMAND[:-3], "night.csv", "--output", "./night.csv"]
    assert_names(cli(*same, status=2).err, "--output", "./night.csv")
    shutil.rmtree("tables")
    cli(*command, "found.parquet", "--max-rejected", 1)
    scaled = "--output", "scaled.csv", "--normalize", "--max-rejected", 1
    assert_names(cli(*COMMAND, *scaled).out, "signal, normalised")
    lines = Path("found.csv").read_text().splitlines()
    assert lines[0] == '"path","start_s","end_s","class","score"'
    assert len(lines) == 4
    rows = pyarrow.parquet.read_table("found.parquet").to_pylist()
    assert [(*row.values(),) for row in rows] == [(*e, "dog", 0.5) for e in EVENTS]


@pytest.mark.parametrize(
    "events", ["found.csv", "tables/{folder}/{stem}.selections.txt"]
)
def test_detections_are_events_again(folder, tmp_path, monkeypatch, events):
    folder = shutil.copytree(folder, tmp_path / "own")
    monkeypatch.chdir(folder)
    (folder / "night" / "bad.wav").unlink()
    write_night(folder / "night" / "quiet.wav", 0.9)
    places = "--output found.csv --raven night/tables"
    assert main([*COMMAND, *places.split()]) == 0
    record("night", "again", win_len=RATE // 2, events=events, classes=["dog"],
           overwrite=True, workers=1)  # fmt: skip
    for example in open_records("again"):
        is_loud = np.abs(example["signal"]).max() > 0.4
        assert example["labels"].tolist() == [is_loud]
    assert len(predict(loud, "night", like="records", threshold=0.4)) == 3


# Models


@pytest.mark.parametrize(
    ("model", "error", "words"),
    [
        ("c.keras", InputError, "c.keras: there is no such file"),
        ("b.txt", OptionError, r"must be a file \.keras, \.pt2, \.pt, or a function"),
        (":f", OptionError, "module:function"),
        ("no_such_module:f", OptionError, "No module named 'no_such_module'"),
        ("tests.sounds:no_such", OptionError, "has no attribute 'no_such'"),
        ("tests.sounds:__name__", OptionError, "got 'tests.sounds'"),
    ],
)
def test_a_model_that_cannot_be_loaded(tmp_path, monkeypatch, model, error, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "b.txt").touch()
    with pytest.raises(error, match=words):
        model_of(model)


def not_a_number(signals):
    scores = np.zeros((len(signals), 3))
    scores[1, 2] = np.nan
    return scores


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (lambda x: x[:, :2], r"shape \(\d+, 2\) for a.wav at 0 s.*cat, dog, owl"),
        (lambda x: x[0, :3], r"shape \(3,\)"),
        (not_a_number, "NaN or infinity for a.wav at 0.5 s"),
        (lambda x: 1j * x[:, :3], "complex64 for a.wav at 0 s.*real numbers"),
        (lambda x: x @ x, "fails on a.wav at 0 s.*signal, float32 of shape"),
    ],
)
def test_scores_that_cannot_be_right(folder, model, words):
    with pytest.raises(InputError, match=words):
        predict(model, folder / "night" / "a.wav", like=folder / "records")


@pytest.mark.parametrize(("score", "threshold"), [(-2.5, 0.5), (3.5, 0.5), (0.9, 50)])
def test_scores_of_another_scale_are_named(folder, recwarn, score, threshold):
    def model(signals):
        return np.full((len(signals), 3), score)

    night, like = folder / "night" / "a.wav", folder / "records"
    predict(model, night, like=like, threshold=3 if abs(score) > 1 else 0.5)
    assert not recwarn
    told = rf"from {score} to {score}, but `threshold` is {threshold}.* as the model"
    with pytest.warns(DataSetWarning, match=told):
        predict(model, night, like=like, threshold=threshold)


def test_wrong_arguments_are_named(folder, tmp_path):
    night, like = folder / "night" / "a.wav", folder / "records"
    with pytest.raises(OptionError, match=r"model: must be a file .*got 7"):
        predict(7, night, like=like)
    with pytest.raises(UnknownOption, match="treshold; did you mean threshold"):
        predict(loud, night, like=like, treshold=0.1)
    with raises(InputError, naming=["class", "signal"]):
        predict(loud, night, like=like, feature="class")
    with raises(InputError, naming=[tmp_path, "no audio file"]):
        predict(loud, tmp_path, like=like)


@pytest.mark.parametrize("model", ["my_model:loud", Path("my_model:loud")])
def test_windows_may_begin_elsewhere(folder, monkeypatch, model):
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    options = {"threshold": 0.4, "hop_seconds": 0.25, "each_window": True}
    table = predict(model, "night/a.wav", like="records", **options)
    starts = table.column("start_s").to_pylist()
    assert starts == [0.75, 1.0, 1.25, 1.5, 1.75, 3.75, 4.0, 4.25]
    found = ["--output", "found.csv", "--each-window", "--hop-seconds", "0.25"]
    assert main([*COMMAND, "--max-rejected=1", *found]) == 0
    assert len(Path("found.csv").read_text().splitlines()) == 1 + 8 + 5


def test_memory_does_not_grow_with_the_length_of_a_recording(folder, tmp_path):
    peaks = []
    for minutes in (1, 1, 10):
        night = tmp_path / f"{minutes}.wav"
        write_sound(night, 60 * RATE * minutes)
        forget_peak_memory()
        before = peak_memory_mib()
        predict(loud, night, like=folder / "records")
        peaks.append(peak_memory_mib() - before)
    assert peaks[2] < peaks[1] + 10  # the samples alone take 19 MB
