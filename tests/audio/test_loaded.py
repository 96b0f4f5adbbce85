"""Loaders: a user's function reads files that no decoder reads."""

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from beam_pipeline import open_records, plan, record, verify
from beam_pipeline.audio.clip_reader import ClipReader
from beam_pipeline.audio.decoder import AudioInfo, Loader
from beam_pipeline.dataset.job import code_of
from beam_pipeline.errors import (
    EmptyAudio,
    NonFiniteAudio,
    RecipeError,
    UnreadableAudio,
)
from beam_pipeline.recipe.recipe import Recipe
from tests.data_sets import rejects_in
from tests.raising import assert_names, raises
from tests.sounds import write_sound

MODULE = """
import os
from dataclasses import dataclass
import numpy as np

def load(path):
    calls = path + ".calls"
    with open(calls if os.path.exists(calls) else os.devnull, "a") as file:
        file.write("x")
    return np.load(path), 8000

@dataclass(frozen=True)
class Load:
    rate: int = 8000

    def __call__(self, path):
        return load(path)[0], self.rate
"""
SAMPLES = {
    f"a/{k}.npy": np.random.default_rng(k).uniform(-1, 1, (2, 1000)).astype("f4")
    for k in range(3)
}


@pytest.fixture
def corpus(tmp_path, monkeypatch):
    (tmp_path / "code").mkdir()
    (tmp_path / "code/loaders_of_mine.py").write_text(MODULE)
    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    monkeypatch.delitem(sys.modules, "loaders_of_mine", raising=False)
    (tmp_path / "in/a").mkdir(parents=True)
    for name, samples in SAMPLES.items():
        np.save(tmp_path / "in" / name, samples)
    return tmp_path


# Without a run


def load_as(returned):
    return Loader(lambda path: returned, "m:f")


THREE = np.zeros(3, "f4")
MUST_NOT_RETURN = [
    (1, "int"), ((THREE,), ["array", "(3,)"]), (([0.0], 8000), "list"),
    ((np.zeros(3), 8000), ["float64", "float32"]), ((np.zeros(3, "i2"), 8000), "int16"),
    ((np.zeros((1, 3, 1), "f4"), 8000), ["(1, 3, 1)", "channels"]),
    ((np.zeros((0, 3), "f4"), 8000), "(0, 3)"), ((THREE, 0), "0"),
    ((THREE, 8000.5), "8000.5"), ((THREE, "8000"), "'8000'"),
    ((THREE, None), "None"),
]  # fmt: skip


@pytest.mark.parametrize(("returned", "facts"), MUST_NOT_RETURN)
def test_what_a_loader_must_not_return(returned, facts):
    with raises(UnreadableAudio, path="x.npy", naming=facts) as caught:
        load_as(returned).probe(io.BytesIO(), "x.npy")
    assert_names(str(caught.value), "m:f")


@pytest.mark.parametrize("rate", [8000, 8000.0, np.int32(8000), np.float64(8000)])
@pytest.mark.parametrize("shape", [(1,), (5,), (1, 5), (2, 5)])
def test_what_a_loader_may_return(rate, shape):
    info = load_as((np.zeros(shape, "f4"), rate)).probe(io.BytesIO(), "x")
    channels = 1 if len(shape) == 1 else shape[0]
    assert info == AudioInfo(shape[-1], 8000, channels, "m:f", "float32")


def test_no_frames_and_numbers_that_are_none():
    with raises(EmptyAudio, path="x"):
        load_as((np.zeros((2, 0), "f4"), 1)).probe(io.BytesIO(), "x")
    samples = np.zeros((2, 5), "f4")
    samples[1, 3] = np.inf
    with raises(NonFiniteAudio, path="x", naming="frame 3"):
        load_as((samples, 1)).probe(io.BytesIO(), "x")
    allowed = Loader(lambda path: (samples, 1), "m:f", allow_nonfinite=True)
    assert allowed.probe(io.BytesIO(), "x").frames == 5


def test_a_file_that_is_not_local_becomes_a_copy():
    seen = []

    def load(path):
        seen.append(path)
        return np.frombuffer(Path(path).read_bytes(), "f4"), 4

    content = io.BytesIO(np.arange(9, dtype="f4").tobytes())
    content.seek(7)
    assert Loader(load, "m:f").probe(content, "x/y.h5").frames == 9
    assert seen[0].endswith(".h5")
    assert not Path(seen[0]).exists()


@pytest.mark.parametrize("found", [(4, 8000, 1), (5, 8001, 1), (5, 8000, 2)])
def test_a_loader_that_gives_something_else_than_it_gave_before(found):
    loader, before = (
        load_as((np.zeros(5, "f4"), 8000)),
        AudioInfo(*found, "m:f", "float32"),
    )
    with raises(UnreadableAudio, path="x"):
        ClipReader(io.BytesIO(), before, name="x", loader=loader)


def test_suffixes_need_a_loader():
    with raises(RecipeError, "loader_suffixes", ".npy"):
        Recipe(win_len=1, loader_suffixes=".npy")
    recipe = Recipe(win_len=1, loader="m:f", loader_suffixes=[".NPY", "x.h5"])
    names = ("a.npy", "a.NpY", "a/x.H5", "y.h5", "npy")
    assert [recipe.loads(n) for n in names] == [True, True, True, False, False]


# Whole runs

LOAD = "loaders_of_mine.load"


@pytest.mark.parametrize("loader", [LOAD, "loaders_of_mine.Load(rate=8000)"])
def test_from_files_to_examples(corpus, loader):
    write_sound(corpus / "in/b/x.wav", 1000)
    (corpus / "in/notes.txt").write_text("no sound")
    out = corpus / "out"
    metadata = record(
        corpus / "in", out, win_len=300, channels=1, loader=loader,
        loader_suffixes=".npy", max_rejected=1, num_shards=2,
    )  # fmt: skip
    assert (metadata.clips, metadata.rejected, metadata.ignored_files) == (4, 1, 1)
    (reject,) = rejects_in(out)
    assert reject["path"] == "b/x.wav"
    assert_names(reject["reason"], "no channel 1")
    records = open_records(out)
    assert len(records) == 9
    for found in records:
        start = found["win_start_idx"]
        expected = SAMPLES[found["filepath"]][1, start : start + 300]
        np.testing.assert_array_equal(found["signal"], expected)
    manifest = pq.read_table(out / "manifest.parquet").to_pylist()
    assert {(r["format"], r["subtype"], r["channels"]) for r in manifest} == {
        (loader, "float32", 2)
    }
    assert verify(out, deep=True, input=corpus / "in") == []


def test_without_suffixes_it_reads_every_file(corpus):
    (corpus / "in/a/notes.txt").write_text("no sound")
    (corpus / "in/a/.hidden").write_text("no sound")
    summary, (reject,) = plan(corpus / "in", win_len=300, loader=LOAD)
    assert summary.listing.clips == 4
    assert (reject.filepath, reject.stage) == ("a/notes.txt", "probe")
    assert_names(reject.reason, LOAD, "ValueError", "pickle")


def test_a_changed_loader_is_another_job(corpus):
    recipe = Recipe(win_len=1, loader=LOAD)
    before = code_of(recipe)
    path = corpus / "code/loaders_of_mine.py"
    path.write_text(path.read_text() + "\n")
    assert before.keys() == code_of(recipe).keys() == {"loaders_of_mine"}
    assert before != code_of(recipe)
