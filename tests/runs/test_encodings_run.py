"""Whole runs with encodings: what is replayed, and what else reads the data set."""

import io
import json
from operator import itemgetter

import numpy as np
import pytest
import soundfile

from beam_pipeline import (
    Metadata,
    convert,
    open_audio,
    open_records,
    record,
    record_examples,
)
from beam_pipeline.encodings import CODECS
from beam_pipeline.errors import OptionError, RecipeError, TooManyRejected
from beam_pipeline.read.replay import replay
from beam_pipeline.read.verify import verify
from beam_pipeline.transforms import per_window
from tests.data_sets import contents, problems_in, rejects_in
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_corpus, write_samples, write_sound

MEL = "log_mel(n_fft=128,hop=64,n_mels=12)"
FEATURES = {
    "mel": MEL,
    "level": MEL,
    "image": f"{MEL}|as_image()",
    "photo": f"{MEL}|as_image()",
    "pixels": f"{MEL}|as_image()",
    "spectrum": "tests.sounds.spectrum",
    "pcm": "identity(dtype='int16')",
    "text": "tests.sounds.name_of_level",
    "first": "tests.sounds.first_sample",
    "both": "tests.sounds.level_and_sign",
    **dict.fromkeys(("x", "plain", "half", "brain", "byte"), "identity()"),
}
ENCODINGS = {
    "mel": "tensor",
    "level": "raw",
    "image": "png",
    "photo": "jpeg",
    "pixels": "int64_list",
    "spectrum": "tensor",
    "pcm": "tensor",
    "text": "tensor",
    "first": "tensor",
    "both/level": "float16",
    "plain": "raw",
    "half": "float16",
    "brain": "bfloat16",
    "byte": "int8",
}
# What is lost, relative to the value, or to the peak of the window.
BOUNDS = {"half": 2.0**-11, "both/level": 2.0**-11, "brain": 2.0**-8, "byte": 1 / 254}
OPTIONS = {
    "win_len": 500, "splits": "train=.5,test=.5", "features": FEATURES,
    "elements_per_file": 8,
}  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two data sets of ``in``: ``out`` with these encodings, ``plain`` without."""
    root = tmp_path_factory.mktemp("encodings")
    write_corpus(root / "in")
    record(root / "in", root / "out", workers=1, **OPTIONS, encodings=ENCODINGS)
    record(root / "in", root / "plain", workers=1, **OPTIONS)
    return root


def examples_of(folder, **options):
    return list(replay(str(folder), split="train", **options).as_numpy_iterator())


def expect_equal(found, plain):
    """Every value is that of the default encoding; a JPEG is that of its pixels.

    Compact values are near it.
    """
    assert list(found) == list(plain)
    for name, value in plain.items():
        if name in BOUNDS:
            assert found[name].dtype == np.float32
            size = np.abs(value).max() if name == "byte" else np.abs(value)
            error = np.abs(found[name] - value)
            assert error.max() > 0
            assert (error <= BOUNDS[name] * size + 2.0**-25).all()
            continue
        wanted = np.asarray(value)
        if name == "photo":
            photo = CODECS["jpeg"].encode("photo", wanted, None)
            wanted = CODECS["jpeg"].decode(photo, "uint8", wanted.shape)
            assert (wanted != value).any()
        assert np.asarray(found[name]).dtype == wanted.dtype
        np.testing.assert_array_equal(found[name], wanted)


def test_the_specs_differ_in_their_encodings_alone(runs):
    made = [Metadata.load(runs / name) for name in ("out", "plain")]
    found, plain = ({n: s.encoding for n, s in m.features.items()} for m in made)
    assert found == {**plain, **ENCODINGS}
    assert all(plain[name] != encoding for name, encoding in ENCODINGS.items())
    found, plain = (m.splits["train"].statistics for m in made)
    assert found == plain


def test_replay_restores_every_encoding(runs):
    dataset = replay(str(runs / "out"), split="train")
    for name, spec in Metadata.load(runs / "out").features.items():
        assert tuple(dataset.element_spec[name].shape) == spec.shape
    found, plain = examples_of(runs / "out"), examples_of(runs / "plain")
    assert len(found) == len(plain) == int(dataset.cardinality()) > 20
    for one, other in zip(found, plain, strict=True):
        expect_equal(one, other)
    assert {one["text"] for one in found} == {"läut".encode()}


def test_records_and_batches_restore_the_same(runs):
    assert problems_in(runs / "out") == []
    records = open_records(runs / "out", "train")
    for one, other in zip(records, examples_of(runs / "out"), strict=True):
        for name in ENCODINGS.keys() - {"text"}:
            np.testing.assert_array_equal(one[name], other[name])
    batches = examples_of(runs / "out", batch_size=8)
    for name in BOUNDS:
        found = np.concatenate([batch[name] for batch in batches])
        np.testing.assert_array_equal(found, [example[name] for example in records])


@pytest.mark.parametrize("batch_size", [None, 7])
def test_encoded_features_stay_as_they_are_stored(runs, batch_size):
    names = ["image", "photo", "pcm"]
    found = examples_of(runs / "out", encoded=names, batch_size=batch_size)
    plain = examples_of(runs / "plain", batch_size=batch_size)
    for one, other in zip(found, plain, strict=True):
        for name in names:
            stored, values = one[name], other[name]
            if batch_size is None:
                stored, values = [stored], [values]
            encode = CODECS[ENCODINGS[name]].encode
            assert list(stored) == [encode(name, value, None) for value in values]
        np.testing.assert_array_equal(one["mel"], other["mel"])


def test_the_recipe_of_the_data_set_repeats_it(runs, tmp_path, cli):
    recipe = runs / "out" / "metadata.json"
    words = ["--input", runs / "in", "--recipe", recipe]
    out = tmp_path / "out"
    cli("record", *words, "--output", out)
    wanted, found = contents(runs / "out"), contents(out)
    differing = {name for name in wanted if found[name] != wanted[name]}
    assert found.keys() == wanted.keys()
    assert differing <= {"metadata.json"}  # its recipe lists the classes
    assert json.loads(recipe.read_text())["recipe"]["encodings"] == (
        dict(sorted(ENCODINGS.items()))
    )
    # The same again is complete; another encoding is another data set.
    assert_names(cli("record", *words, "--output", out).out, "complete")
    other = [*words, "--output", out, "--encoding", "image=tensor"]
    said = cli("record", *other, status=2).err
    assert_names(said, "--encoding", "image", "'tensor'", "'png'")
    assert contents(out) == found


def giving(*names):
    """Features that a function gives under these names."""

    def give(windows):
        return {name: np.zeros(len(windows), np.float32) for name in names}

    return {"both": give}


@pytest.mark.parametrize(
    ("features", "encodings", "field", "facts"),
    [
        (FEATURES, {"mel": "png"}, "encodings: mel",
         ["float32", "(6, 12)", "uint8", "|as_image()", "'png'"]),
        (FEATURES, {"image": "png", "text": "raw"}, "encodings: text",
         ["string", "()"]),
        (FEATURES, {"imaeg": "png"}, "encodings", ["did you mean image?", "'imaeg'"]),
        (FEATURES, {"class": "tensor"}, "encodings", ["'class'"]),
        (FEATURES, {"image": "gif"}, "encodings: image", ["png", "jpeg", "'gif'"]),
        (giving("level"), {"both/lvel": "raw"}, "encodings", ["both/level"]),
        (giving("level"), {"both": "raw"}, "encodings", ["both/level"]),
        *((giving(*names), {}, "feature both: give", ["identifiers", *names])
          for names in ([], ["a b"], [1])),
        ({"both": "tests.sounds.level_and_sign|normalize()"}, {}, "feature both",
         ["must end with this step"]),
    ],
)  # fmt: skip
def test_features_and_encodings_that_cannot_be_end_a_run_before_it_writes(
    runs, tmp_path, features, encodings, field, facts
):
    options = {**OPTIONS, "features": features, "encodings": encodings}
    with raises(RecipeError, field, naming=facts):
        record(runs / "in", tmp_path / "out", **options)
    assert not (tmp_path / "out").exists()


# Signals as sounds


def in_all_readers(sounds, folder, *others):
    """An example after the other, as each reader gives it; of the last as stored."""
    readers = (
        open_records(folder),
        *map(open_records, others),
        open_audio(sounds, folder),
        replay(folder).as_numpy_iterator(),
        replay(folder, encoded=["signal"]).as_numpy_iterator(),
    )
    order = itemgetter("index", "win_start_idx")
    return zip(*(sorted(reader, key=order) for reader in readers), strict=True)


@pytest.mark.parametrize(
    ("encoding", "win_len"),
    [("flac", "clip"), ("flac", 700), ("opus", "clip"), ("vorbis", "clip")],
)
def test_signals_are_the_same_in_all_readers(tmp_path, encoding, win_len):
    sounds = write_corpus(tmp_path / "in", classes=("cat",), clips=2, frames=5000)
    wide = tmp_path / "in/cat/wide.wav"
    sounds["cat/wide.wav"] = write_sound(wide, 1999, subtype="PCM_24")
    options = {"win_len": win_len, "encodings": {"signal": encoding}}
    folder = tmp_path / "out"
    metadata = record(tmp_path / "in", folder, **options)
    spec = metadata.features["signal"]
    assert (spec.dtype, spec.encoding, spec.rate_hz) == ("float32", encoding, RATE)
    assert Metadata.load(folder).features == metadata.features
    assert problems_in(folder) == []
    assert replay(folder).element_spec["signal"].shape == spec.shape
    convert(folder, tmp_path / "copy")
    for example, *same, stored in in_all_readers(
        tmp_path / "in", folder, tmp_path / "copy"
    ):
        start, signal = example["win_start_idx"], example["signal"]
        meant = sounds[example["filepath"]][start : start + len(signal)]
        assert signal.shape == meant.shape
        lost = 0 if encoding == "flac" else 0.3
        assert np.linalg.norm(signal - meant) <= lost * np.linalg.norm(meant)
        for other in same:
            np.testing.assert_array_equal(other["signal"], signal)
        assert soundfile.info(io.BytesIO(stored["signal"])).samplerate == RATE
        if encoding == "flac":
            sound, _ = soundfile.read(io.BytesIO(stored["signal"]), dtype="float32")
            np.testing.assert_array_equal(sound, signal)


@pytest.mark.parametrize(
    ("encoding", "level", "facts"),
    [
        ("float16", 70_000.0, ["float16 cannot hold"]),
        ("flac", 0.1, ["16-bit or 24-bit", "raw", "examples 0 to 4 of 5 are missing"]),
    ],
)
def test_clips_that_an_encoding_cannot_hold_are_rejected(
    tmp_path, encoding, level, facts
):
    write_corpus(tmp_path / "in", classes=("cat",), clips=2)
    odd = np.full(2600, level, np.float32)
    write_samples(tmp_path / "in/cat/odd.wav", odd, RATE, subtype="FLOAT")
    options = {"win_len": 500, "encodings": {"signal": encoding}}
    with raises(TooManyRejected, naming="cat/odd.wav"):
        record(tmp_path / "in", tmp_path / "out", workers=1, **options)
    made = record(tmp_path / "in", tmp_path / "out", max_rejected=1, **options)
    (reject,) = rejects_in(tmp_path / "out")
    assert (reject["path"], reject["stage"]) == ("cat/odd.wav", "encode")
    assert_names(reject["reason"], *facts)
    assert made.splits["records"].examples == 10
    assert problems_in(tmp_path / "out") == []


@pytest.mark.parametrize(("channels", "dtype"), [("mix", "float32"), ("keep", "int16")])
def test_an_example_holds_the_file_of_its_clip(tmp_path, channels, dtype):
    folder, rates = tmp_path / "out", {}
    for number, suffix in enumerate(("wav", "flac", "ogg", "mp3")):
        frames = np.random.default_rng(number).uniform(-1, 1, (4000 + number, 2))
        rates[f"{suffix}.{suffix}"] = rate = 8000 * (1 + number)
        write_samples(tmp_path / f"in/{suffix}.{suffix}", frames, rate)
    options = {
        "win_len": "clip", "channels": channels, "dtype": dtype, "workers": 1,
    }  # fmt: skip
    record(tmp_path / "in", tmp_path / "raw", **options)
    options["encodings"] = {"signal": "original"}
    record(tmp_path / "in", folder, **options)
    assert verify(folder, deep=True, input=tmp_path / "in") == []
    for example, *same, stored in in_all_readers(
        tmp_path / "in", folder, tmp_path / "raw"
    ):
        assert example["fs"] == rates[example["filepath"]]
        assert example["signal"].dtype == dtype
        for other in same:
            np.testing.assert_array_equal(other["signal"], example["signal"])
        file = tmp_path / "in" / example["filepath"]
        assert stored["signal"] == file.read_bytes()


def test_files_that_do_not_give_the_signal_are_rejected(tmp_path):
    write_sound(tmp_path / "in/good.wav", 2600)
    write_sound(tmp_path / "in/fast.wav", 2600, rate=2 * RATE)
    write_sound(tmp_path / "in/left.wav", 2600, channels=2)
    options = {
        "encodings": {"signal": "original"}, "sample_rate": RATE, "channels": 0,
        "max_rejected": "2",
    }  # fmt: skip
    record(tmp_path / "in", tmp_path / "out", win_len="clip", **options)
    found = {
        reject["path"]: reject["reason"] for reject in rejects_in(tmp_path / "out")
    }
    assert list(found) == ["fast.wav", "left.wav"]
    for reason in found.values():
        assert_names(reason, "at its own sample rate", "all channels")
    for wrong in (
        {"win_len": 700},
        {"win_len": "clip", "copies": 1, "augment": "noise()"},
        {"win_len": "clip", "features": {"signal": "gain(gain_db=1)"}},
    ):
        with raises(RecipeError, naming=["encodings: signal", "without copies"]):
            record(tmp_path / "in", tmp_path / "two", **(options | wrong))


def test_sounds_need_one_sample_rate(tmp_path):
    for rate in (RATE, 2 * RATE):
        write_sound(tmp_path / f"in/{rate}.wav", 2600, rate=rate)
    flac = {"encodings": {"signal": "flac"}}
    with raises(RecipeError, naming=["one sample rate", "signal=flac"]):
        record(tmp_path / "in", tmp_path / "out", win_len=700, **flac)
    rows = [{"x": np.zeros(5, np.int16)}]  # elements have none
    with raises(OptionError, naming=["x", "only `record`"]):
        record_examples(rows, tmp_path / "out", encodings={"x": "flac"})
    with raises(OptionError, naming=["encodings: x", "only `record`"]):
        record_examples(rows, tmp_path / "out", encodings={"x": "original"})


def other_keys(windows):
    """Gives another feature for what is not silent."""
    return {"loud" if windows.any() else "quiet": windows.max(-1)}


def test_a_function_that_gives_other_features_for_sound_is_an_error(runs, tmp_path):
    with raises(TooManyRejected, naming=["both/loud", "both/quiet"]):
        record(
            runs / "in", tmp_path / "out", win_len=500, features={"both": other_keys}
        )


def test_a_function_of_one_window_may_give_several():
    made = per_window(lambda window: {"top": window.max(), "ends": window[[0, -1]]})(
        np.arange(6, dtype=np.float32).reshape(2, 3)
    )
    assert made["top"].tolist() == [2, 5]
    assert made["ends"].tolist() == [[0, 2], [3, 5]]
