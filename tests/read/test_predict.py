"""Windows of new recordings, as ``record`` stores them; and what models score them."""

import csv
import inspect
import shutil
import warnings
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline import open_audio, open_records, record
from beam_pipeline.cli.main import main
from beam_pipeline.errors import DataSetWarning, InputError, OptionError
from beam_pipeline.read.predict import join_windows, model_of, predict, windows_above
from tests.processes import forget_peak_memory, peak_memory_mib
from tests.raising import assert_names, raises
from tests.sounds import RATE, damage, write_corpus, write_samples, write_sound
from tests.transform_checks import EVERY_CALL

WIDE = 16000
OF_TRAINING = {"class", "target", "index"}


def write_noise(path, frames, channels=1, rate=WIDE):
    rng = np.random.default_rng(frames)
    write_samples(path, 0.1 * rng.standard_normal((frames, channels)), rate)


@pytest.fixture(scope="module")
def sounds(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sounds")
    for k in range(4):
        write_noise(folder / f"{'ab'[k % 2]}/{k}.wav", 20_000 + 3000 * k)
    return folder


@pytest.fixture(scope="module")
def like(sounds, tmp_path_factory):
    out = tmp_path_factory.mktemp("records") / "out"
    record(
        sounds, out, win_seconds=0.25, hop_seconds=0.125,
        features={"mel": "log_mel(n_mels=16)", "signal": "identity()"},
        encodings={"mel": "float16"},  # it rounds
    )  # fmt: skip
    return out


def check_same(made, stored):
    """Compares windows with examples, by recording and start, bit for bit."""
    of = {(e["filepath"], int(e["win_start_idx"])): e for e in stored}
    seen = [(e["filepath"], int(e["win_start_idx"])) for e in made]
    assert sorted(seen) == sorted(of)
    for example in made:
        other = of[example["filepath"], int(example["win_start_idx"])]
        assert set(example) == set(other) - {"class", "target"}
        for name in set(example) - OF_TRAINING:
            np.testing.assert_array_equal(example[name], other[name], strict=True)


def columns_of(batches):
    every = list(batches)
    return {name: np.concatenate([b[name] for b in every]) for name in every[0]}


@pytest.mark.parametrize("channels", [1, 2])
def test_every_transform_gives_what_is_recorded(tmp_path, channels):
    for k in range(2):
        write_noise(tmp_path / f"in/{k}.wav", 30_000 + 1000 * k, channels)
    calls = [c for c in EVERY_CALL if channels == 1 or "as_image" not in c]
    features = {f"f{k}": call for k, call in enumerate(calls)}
    options = {"channels": "keep"} if channels > 1 else {}
    out = tmp_path / "out"
    record(tmp_path / "in", out, win_len=8000, features=features, copies=1, **options)
    stored = open_records(out).where("copy == 0")
    audio = open_audio(tmp_path / "in", out)
    assert len(audio) == len(stored) == 6
    check_same(audio, stored)
    places = stored.read(slice(None))
    numbers = np.lexsort((places["win_start_idx"], places["filepath"]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataSetWarning)  # its own statistics
        wanted = columns_of(iter(stored[numbers].batches(4, normalize=True)))
    made = columns_of(audio.batches(4, normalize=True))
    for name in features:
        np.testing.assert_array_equal(made[name], wanted[name])


def test_windows_are_a_sequence(sounds, like):
    audio = open_audio(sounds, like)
    examples, table = list(audio), audio.table().to_pydict()
    assert len(audio) == len(examples) == len(table["path"]) > 20
    starts = [e["win_start_idx"] / e["fs"] for e in examples]
    assert table["start_s"] == starts
    assert np.allclose(np.subtract(table["end_s"], starts), 0.25)
    for i in (0, 1, len(audio) - 1, -1, -len(audio)):
        for name, value in audio[i].items():
            np.testing.assert_array_equal(value, examples[i][name])
    for wrong in (len(audio), -len(audio) - 1):
        with raises(IndexError, naming=[f"no window {wrong}", f"{len(audio)} windows"]):
            audio[wrong]


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_batches_have_every_window_once(sounds, like, size):
    audio = open_audio(sounds, like, features=["mel"])
    every = list(audio.batches(size))
    assert {len(batch["mel"]) for batch in every[:-1]} <= {size}
    made, table = columns_of(iter(every)), audio.table().to_pydict()
    assert list(made) == ["mel", "path", "input", "start_s", "end_s"]
    for name, column in table.items():
        assert made[name].tolist() == column
    np.testing.assert_array_equal(made["mel"], [e["mel"] for e in audio])


def test_samples_are_a_recording(sounds, like, tmp_path):
    path = sounds / "a/0.wav"
    for dtype in ("float32", "float64", "int16", "int32"):
        samples = soundfile.read(path, dtype=dtype)[0]
        check_same(
            open_audio(samples, like, sample_rate=WIDE),
            [{**e, "filepath": "samples.wav"} for e in open_audio(path, like)],
        )
    stereo = np.stack([samples, samples])
    made = open_audio(stereo, like, sample_rate=WIDE)
    mono = [example["signal"] for example in open_audio(path, like)]
    np.testing.assert_array_equal([example["signal"] for example in made], mono)
    with raises(OptionError, naming=["sample_rate", None]):
        open_audio(samples, like)
    with raises(OptionError, naming=["source", stereo.T.shape, "samples.T"]):
        open_audio(stereo.T, like, sample_rate=WIDE)
    with raises(OptionError, naming=["source", "(2, 2, 2)"]):
        open_audio(np.zeros((2, 2, 2)), like, sample_rate=WIDE)
    with raises(OptionError, naming=["sample_rate", 8000]):
        open_audio(path, like, sample_rate=8000)


def test_another_rate_becomes_that_of_the_data_set(like, tmp_path):
    write_noise(tmp_path / "in/x.wav", 60_000, rate=44_100)
    audio = open_audio(tmp_path / "in", like)
    record(tmp_path / "in", tmp_path / "out", recipe=like, sample_rate=WIDE,
           label_from="none", num_shards=1)  # fmt: skip
    check_same(audio, open_records(tmp_path / "out"))
    np.testing.assert_array_equal(audio[7]["mel"], list(audio)[7]["mel"])


def test_what_chooses_windows_for_training_is_left_out(tmp_path):
    write_noise(tmp_path / "in/a/0.wav", 40_000)
    with open(tmp_path / "events.csv", "w") as file:
        rows = csv.writer(file)
        rows.writerows([("path", "start_s", "end_s", "label"),
                        ("a/0.wav", 0.5, 0.6, "click")])  # fmt: skip
    out = tmp_path / "out"
    record(
        tmp_path / "in", out, win_len=4000, events=str(tmp_path / "events.csv"),
        windows_at="onsets", copies=2, augment="noise()",
        keep="energy(above_db=-90)", features={"mel": "log_mel()"},
        event_targets=["multi_hot", "mask:mel"],
    )  # fmt: skip
    audio = open_audio(tmp_path / "in", out)
    assert audio.classes == ("click",)
    assert audio.table()["start_s"].to_pylist() == [k / 4 for k in range(10)]
    assert set(next(iter(audio))) == {"mel", "filepath", "fs", "index", "win_start_idx"}
    quiet = open_audio(tmp_path / "in", out, keep="energy(above_db=0)", hop=1000)
    assert len(quiet) == 37
    assert list(quiet) == []
    with raises(InputError, naming=["Window 3", "keep"]):
        quiet[3]


def test_what_cannot_be_read_is_named(like, tmp_path):
    write_noise(tmp_path / "in/good.wav", 9000)
    (tmp_path / "in/bad.wav").write_bytes(b"RIFF")
    write_noise(tmp_path / "in/short.wav", 100)
    write_noise(tmp_path / "in/broken.flac", 600_000)
    damage(tmp_path / "in/broken.flac", 0.8, 64)
    with pytest.warns(DataSetWarning) as found:
        audio = open_audio(tmp_path / "in", like)
    assert [r.filepath for r in audio.rejects] == ["bad.wav", "short.wav"]
    assert all(str(w.message).startswith(r.filepath)
               for w, r in zip(found, audio.rejects, strict=True))  # fmt: skip
    with pytest.warns(DataSetWarning, match=r"broken.flac is read in part"):
        made = [e["filepath"] for e in audio]
    assert audio.rejects[-1].filepath == "broken.flac"
    known = list(audio.rejects)
    with warnings.catch_warnings():
        warnings.simplefilter("error", DataSetWarning)
        assert [e["filepath"] for e in audio] == made
    assert audio.rejects == known  # a recording that is read again is named once
    assert made.count("good.wav") == 3
    assert 0 < made.count("broken.flac") < 298


def test_statistics_of_another_data_set(sounds, like, tmp_path):
    write_noise(tmp_path / "in/x.wav", 20_000)
    new = tmp_path / "new"
    record(tmp_path / "in", new, recipe=like, label_from="none")
    records = open_records(new, statistics=str(like))
    made = records.read(slice(None))["mel"]
    known = open_records(like).metadata.splits["records"].statistics["features"]["mel"]
    bins = known["bins"]
    wanted = (made - np.array(bins["mean"])) / np.array(bins["std"])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batch = next(iter(records.batches(99, normalize=["mel"])))
    np.testing.assert_allclose(batch["mel"], wanted, rtol=1e-5, atol=1e-6)
    audio = open_audio(tmp_path / "in", like)
    (scored,) = audio.batches(99, normalize=True)
    np.testing.assert_array_equal(scored["mel"], batch["mel"])
    with pytest.warns(DataSetWarning, match="statistics"):
        next(iter(open_records(new).batches(9, normalize=True)))
    for name, feature, facts in (
        ("other", {"mel": "log_mel(n_mels=8)"}, ["mel", "(12, 16)", 8]),
        ("signals", {"signal": "identity()"}, ["mel"]),
    ):
        record(sounds, tmp_path / name, win_len=4000, features=feature)
        wrong = open_records(new, features=["mel"], statistics=tmp_path / name)
        with raises(InputError, naming=facts):
            wrong.batches(9, normalize=True)


def test_what_is_refused(sounds, like, tmp_path):
    with raises(OptionError, naming=["win_len", 5]):
        open_audio(sounds, like, win_len=5)
    with raises(InputError, naming=["feature", "mell", "mel"]):
        open_audio(sounds, like, features=["mell"])
    with raises(InputError, naming=tmp_path / "no"):
        open_audio(tmp_path / "no", like)
    with raises(InputError, naming=tmp_path / "none"):
        open_audio(sounds, tmp_path / "none")


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
        (lambda x: 1j * x[:, :3], "complex64 of shape .* a.wav at 0 s.*real numbers"),
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
    with raises(OptionError, "treshold", 0.1):
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
