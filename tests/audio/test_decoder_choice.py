"""Which library decodes a file: what the recipe prefers, not what is installed."""

import struct

import numpy as np
import pyarrow.parquet as pq
import pytest

from beam_pipeline import open_records, record, verify
from beam_pipeline.errors import (
    ClipError,
    TruncatedAudio,
    UnreadableAudio,
)
from tests.audio import files
from tests.audio.test_av import KINDS, encoded
from tests.raising import raises

RATE = 16000
PYAV, EITHER = ("pyav",), ("pyav", "soundfile")
COMMON = {
    "wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "aiff": ("AIFF", "PCM_24"),
    "ogg": ("OGG", "VORBIS"), "mp3": ("MP3", "MPEG_LAYER_III"),
}  # fmt: skip


NOISE = files.noise(12_345, 2, level=0.7)


@pytest.fixture(scope="module")
def made():
    common = {
        name: files.encode(NOISE, RATE, format=form, subtype=subtype)
        for name, (form, subtype) in COMMON.items()
    }
    return {**common, "m4a": encoded(*KINDS["aac.m4a"])}


def probe(data, decoders, **options):
    return files.probe(data, decoders=decoders, **options)


def read(data, decoders):
    return files.read(data, decoders=decoders).T


@pytest.mark.parametrize("decoders", [PYAV, EITHER])
@pytest.mark.parametrize("name", COMMON)
def test_ffmpeg_decodes_what_both_know(name, decoders, made):
    assert probe(made[name], decoders).format == name
    samples = read(made[name], decoders)
    np.testing.assert_array_equal(samples, files.decoded_by_ffmpeg(made[name]).T)
    if name in ("wav", "flac", "aiff"):  # without loss both agree
        np.testing.assert_array_equal(samples, read(made[name], ("soundfile", "pyav")))


def test_the_next_one_decodes_what_the_first_does_not(made):
    caf = files.encode(NOISE, RATE, format="CAF", subtype="PCM_16")
    assert probe(caf, EITHER).format == "CAF"
    with raises(UnreadableAudio, naming=["pyav", "soundfile"]):
        probe(caf, PYAV)
    assert probe(made["m4a"], ("soundfile", "pyav")).format == "mp4"
    with raises(UnreadableAudio):
        probe(made["m4a"], ("soundfile",))


@pytest.mark.parametrize("decoders", [PYAV, EITHER])
@pytest.mark.parametrize("name", COMMON)
def test_a_cut_file_is_found(name, decoders, made):
    data = made[name]
    with raises((TruncatedAudio, UnreadableAudio)):
        probe(data[: len(data) // 2], decoders)
    with raises(ClipError):
        probe(data[:-9], decoders)
    if name == "wav":
        cut = probe(data[: len(data) // 2], decoders, allow_truncated=True)
        assert 0 < cut.frames < 12_345


def test_a_type_of_samples_that_pyav_does_not_convert_is_a_reject():
    data = bytearray(2000 * 8 + 44)
    data[:44] = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 16_036, b"WAVE", b"fmt ", 16, 1, 1, RATE,
        8 * RATE, 8, 64, b"data", 16_000,
    )  # fmt: skip
    for decoders in (PYAV, EITHER, ("soundfile", "pyav")):
        with raises(UnreadableAudio, path="clip"):
            probe(bytes(data), decoders)


def test_a_data_set_says_which_library_decoded(made, tmp_path):
    for name in ("wav", "mp3", "m4a"):
        path = tmp_path / "in" / "owl" / f"a.{name}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(made[name])
    metadata = record(
        tmp_path / "in", tmp_path / "out", win_len=1000, decoder="pyav,soundfile"
    )
    manifest = pq.read_table(tmp_path / "out/manifest.parquet").to_pydict()
    formats = dict(zip(manifest["path"], manifest["format"], strict=True))
    assert formats == {"owl/a.wav": "wav", "owl/a.mp3": "mp3", "owl/a.m4a": "mp4"}
    assert metadata.recipe.to_json()["decoder"] == "pyav,soundfile"
    assert "av" in metadata.writer
    assert verify(tmp_path / "out", deep=True, input=tmp_path / "in") == []
    first = open_records(tmp_path / "out").of_clip("owl/a.mp3")[0]
    samples = read(made["mp3"], PYAV).mean(axis=0)
    np.testing.assert_allclose(first["signal"], samples[:1000], atol=1e-7)
