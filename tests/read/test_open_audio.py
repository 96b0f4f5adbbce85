"""Windows of new recordings: they are what ``record`` would have stored."""

import csv
import warnings

import numpy as np
import pytest
import soundfile

from beam_pipeline import open_audio, open_records, record
from beam_pipeline.errors import DataSetWarning, InputError, OptionError
from tests.raising import raises
from tests.sounds import damage, write_samples
from tests.transform_checks import EVERY_CALL

RATE = 16000
OF_TRAINING = {"class", "target", "index"}


def write_noise(path, frames, channels=1, rate=RATE):
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
            open_audio(samples, like, sample_rate=RATE),
            [{**e, "filepath": "samples.wav"} for e in open_audio(path, like)],
        )
    stereo = np.stack([samples, samples])
    made = open_audio(stereo, like, sample_rate=RATE)
    mono = [example["signal"] for example in open_audio(path, like)]
    np.testing.assert_array_equal([example["signal"] for example in made], mono)
    with raises(OptionError, naming=["sample_rate", None]):
        open_audio(samples, like)
    with raises(OptionError, naming=["source", stereo.T.shape, "samples.T"]):
        open_audio(stereo.T, like, sample_rate=RATE)
    with raises(OptionError, naming=["source", "(2, 2, 2)"]):
        open_audio(np.zeros((2, 2, 2)), like, sample_rate=RATE)
    with raises(OptionError, naming=["sample_rate", 8000]):
        open_audio(path, like, sample_rate=8000)


def test_another_rate_becomes_that_of_the_data_set(like, tmp_path):
    write_noise(tmp_path / "in/x.wav", 60_000, rate=44_100)
    audio = open_audio(tmp_path / "in", like)
    record(tmp_path / "in", tmp_path / "out", recipe=like, sample_rate=RATE,
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
