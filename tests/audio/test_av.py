"""Files that ffmpeg decodes, compared with its own decoders: it alone, or by choice.

Which library decodes is what the recipe prefers, not what is installed.
"""

import functools
import io
import struct
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
import soxr

from beam_pipeline import open_records, record, verify
from beam_pipeline.audio.clip_reader import ClipReader, open_decoder, probe_audio
from beam_pipeline.audio.decoder import AudioInfo
from beam_pipeline.dataset.job import writer_versions
from beam_pipeline.errors import (
    ClipError,
    EmptyAudio,
    NonFiniteAudio,
    TruncatedAudio,
    UnreadableAudio,
)
from tests.audio import files
from tests.audio.files import decoded_by_ffmpeg, encode, probe, read
from tests.audio.test_audio import Failing
from tests.raising import raises

av = pytest.importorskip("av")

RATE = 16000
# Name -> container of PyAV, codec, sample format, channels, options.
KINDS = {
    "aac.m4a": ("mp4", "aac", "fltp", 2, {}),
    "fast.m4a": ("mp4", "aac", "fltp", 1, {"movflags": "+faststart"}),
    "parts.m4a": ("mp4", "aac", "fltp", 1, {"movflags": "frag_keyframe+empty_moov"}),
    "5.1.m4a": ("mp4", "aac", "fltp", 6, {}),
    "alac.m4a": ("mp4", "alac", "s16p", 2, {}),
    "alac32.m4a": ("mp4", "alac", "s32p", 1, {}),
    "pcm8.mov": ("mov", "pcm_u8", "u8", 2, {}),
    "pcm16.mov": ("mov", "pcm_s16le", "s16", 2, {}),
    "float.mov": ("mov", "pcm_f32le", "flt", 1, {}),
    "double.mov": ("mov", "pcm_f64le", "dbl", 1, {}),
    "opus.webm": ("webm", "libopus", "flt", 2, {}),
    "live.webm": ("webm", "libopus", "flt", 1, {"live": "1"}),
    "flac.mka": ("matroska", "flac", "s16", 1, {}),
    "wma.wma": ("asf", "wmav2", "fltp", 2, {}),
    "adts.aac": ("adts", "aac", "fltp", 1, {}),
    "wavpack.wv": ("wv", "wavpack", "s16p", 1, {}),
    "tta.tta": ("tta", "tta", "s16", 1, {}),
    "pcm16.voc": ("voc", "pcm_s16le", "s16", 2, {}),
    "alac.caf": ("caf", "alac", "s16p", 2, {}),
}
CONTAINERS = {
    "m4a": "mp4", "mov": "mp4", "webm": "matroska", "mka": "matroska", "wma": "asf",
    "aac": "adts", "wv": "wavpack", "tta": "tta", "amr": "amr", "voc": "voc",
    "caf": "caf",
}  # fmt: skip
PYAV, EITHER = ("pyav",), ("pyav", "soundfile")
# What both libraries decode.
COMMON = {
    "wav": ("WAV", "PCM_16"), "flac": ("FLAC", "PCM_16"), "aiff": ("AIFF", "PCM_24"),
    "ogg": ("OGG", "VORBIS"), "mp3": ("MP3", "MPEG_LAYER_III"),
}  # fmt: skip
DATA = Path(__file__).parents[1] / "data"
LAYOUTS = {1: "mono", 2: "stereo", 6: "5.1"}


noise = functools.partial(files.noise, level=0.7)


def add_audio(container, codec, kind, samples, rate):
    """Adds a stream; returns what writes samples, shape (frames, channels), to it."""
    layout = LAYOUTS[samples.shape[1]]
    stream = container.add_stream(codec, rate=rate, layout=layout, format=kind)
    if codec == "wmav2":
        stream.codec_context.bit_rate = 96_000

    def write():
        planes = np.ascontiguousarray(samples.T)
        frame = av.AudioFrame.from_ndarray(planes, "fltp", layout)
        frame.sample_rate, frame.pts = rate, 0
        container.mux([*stream.encode(frame), *stream.encode(None)])

    return write


def add_video(container):
    stream = container.add_stream("mpeg4", rate=10)
    stream.width = stream.height = 32
    picture = av.VideoFrame.from_ndarray(np.zeros((32, 32, 3), np.uint8))
    return lambda: container.mux([*stream.encode(picture), *stream.encode(None)])


def encoded(form, codec, kind, channels, options, frames=12_345, rate=RATE):
    with tempfile.NamedTemporaryFile() as file:  # faststart reads it again
        with av.open(file.name, "w", format=form, options=options) as container:
            add_audio(container, codec, kind, noise(frames, channels), rate)()
        return file.read()


def amr(frames):
    """AMR of a sample rate of 8 kHz; the frames of mode 7 are noise."""
    rng = np.random.default_rng(1)
    return b"#!AMR\n" + b"".join(b"\x3c" + rng.bytes(31) for _ in range(frames))


@pytest.fixture(scope="module")
def made():
    files = {name: encoded(*kind) for name, kind in KINDS.items()}
    for name, (form, subtype) in COMMON.items():
        files[name] = encode(noise(12_345, 2), RATE, format=form, subtype=subtype)
    return {**files, "amr.amr": amr(40)}


NAMES = [*KINDS, "amr.amr"]
each = pytest.mark.parametrize("name", NAMES)


@each
def test_samples_are_those_of_ffmpeg(made, name):
    found, expected = read(made[name]), decoded_by_ffmpeg(made[name])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-7, strict=True)
    container = CONTAINERS[name.rpartition(".")[2]]
    if name == "amr.amr":
        rate, channels, codec = 8000, 1, "amrnb"
    else:
        _, codec, _, channels, _ = KINDS[name]
        rate = 48_000 if codec == "libopus" else RATE
    info = AudioInfo(len(found), rate, channels, container, codec.removeprefix("lib"))
    assert probe(made[name]) == info


# What declares a length: others seem to be shorter files.
DECLARED = sorted(set(NAMES) - {"live.webm", "adts.aac", "amr.amr"})


@each
@pytest.mark.parametrize("share", [0.02, 0.3, 0.5, 0.9])
def test_cut_files_are_rejected_or_read_as_far_as_they_go(made, name, share):
    whole = read(made[name])
    data = made[name][: int(share * len(made[name]))]
    kept = None
    with suppress(TruncatedAudio, UnreadableAudio):
        kept = probe(data).frames
    if name in DECLARED and kept is not None:  # a quarter of a second may be missing
        assert kept >= len(whole) - RATE // 4
    try:
        found = read(data, block=1000, allow_truncated=True)
    except (UnreadableAudio, EmptyAudio):
        return  # what describes the sound is missing
    assert len(found) <= len(whole)
    same = max(0, len(found) - 2048)  # codecs smooth the end
    np.testing.assert_array_equal(found[:same], whole[:same])


@pytest.mark.parametrize(("more", "accepted"), [(3999, True), (4001, False)])
def test_blocks_that_are_missing_are_found_by_the_declared_length(made, more, accepted):
    """A quarter of a second is 4000 frames."""
    data = made["wavpack.wv"]
    assert data[12:16] == (12_345).to_bytes(4, "little")
    longer = data[:12] + (12_345 + more).to_bytes(4, "little") + data[16:]
    if not accepted:
        with raises(TruncatedAudio, naming="allow_truncated"):
            probe(longer)
    found = probe(longer, allow_truncated=not accepted)
    assert found == probe(data)


@pytest.mark.parametrize("name", ["flac.mka", "wavpack.wv", "tta.tta"])
@pytest.mark.parametrize("seed", range(5))
def test_wrong_checksums_are_found(made, name, seed):
    data = bytearray(made[name])
    data[np.random.default_rng(seed).integers(1000, 20_000)] ^= 1
    with raises(UnreadableAudio, naming="decoding failed after frame"):
        read(bytes(data))


def test_nan_is_found():
    file = io.BytesIO()
    samples = noise(5000, 1)
    samples[1234] = np.nan
    with av.open(file, "w", format="mov") as container:
        add_audio(container, "pcm_f32le", "flt", samples, RATE)()
    with raises(NonFiniteAudio, naming=1234):
        probe(file.getvalue())
    assert probe(file.getvalue(), allow_nonfinite=True).frames == 5000


def test_a_video_gives_its_first_sound():
    file, first, second = io.BytesIO(), noise(4000, 2), noise(6000, 1, seed=9)
    with av.open(file, "w", format="mp4") as container:
        for write in (
            add_video(container),
            add_audio(container, "alac", "s16p", first, RATE),
            add_audio(container, "alac", "s16p", second, 8000),
        ):
            write()
    assert probe(file.getvalue()) == AudioInfo(4000, RATE, 2, "mp4", "alac")
    np.testing.assert_allclose(read(file.getvalue()), first, atol=4e-5)


def test_a_video_without_sound_is_rejected():
    file = io.BytesIO()
    with av.open(file, "w", format="mp4") as container:
        add_video(container)()
    with raises(UnreadableAudio, naming="audio stream"):
        probe(file.getvalue())


def test_a_change_of_rate_is_rejected():
    data = encoded("adts", "aac", "fltp", 1, {})
    other = encoded("adts", "aac", "fltp", 1, {}, rate=32000)
    with raises(UnreadableAudio, naming=[RATE, 32000]):
        probe(data + other)


def misread():
    """Files that libsndfile refuses or reads as noise: name -> data, samples."""
    # One block of FLAC of 12 bits, which neither library writes.
    levels = np.random.default_rng(0).integers(-2048, 2048, (4096, 1))
    sound = np.sin(np.arange(8 * 4096 + 100) * 0.1)[:, None] / 2
    caf = encode(sound, RATE, subtype="ALAC_20", format="CAF")
    ogg = encoded("ogg", "flac", "s16", 2, {})
    return {
        "flac": ((DATA / "bits12.flac").read_bytes(), levels / 2048),
        "caf": (caf, sound),
        "ogg": (ogg, np.rint(noise(12_345, 2) * 32768) / 32768),
    }


@pytest.mark.parametrize("name", ["flac", "caf", "ogg"])
def test_what_libsndfile_misreads_is_decoded_by_ffmpeg(name, monkeypatch):
    data, samples = misread()[name]
    for decoders in (("soundfile", "pyav"), ("pyav", "soundfile"), ("pyav",)):
        info = probe(data, decoders=decoders)
        assert (info.format, info.frames) == (name, len(samples))
    np.testing.assert_allclose(read(data), samples, atol=4e-5)
    with raises(UnreadableAudio, naming="not" if name in ("flac", "ogg") else "pyav"):
        probe(data, decoders=("soundfile",))
    monkeypatch.setitem(sys.modules, "av", None)
    with raises(UnreadableAudio, naming="pip install av"):
        probe(data)


def test_tags_around_the_sound_are_no_damage(made):
    id3 = b"ID3\x04\0\0\0\0\0\x0a" + bytes(10)
    data = made["adts.aac"]
    assert probe(id3 + data + b"TAG" + bytes(125)) == probe(data)


def test_a_file_that_changed_after_the_probe(made):
    info = probe(made["fast.m4a"])
    for other, fact in (("wma.wma", "not readable"), ("aac.m4a", "changed after its")):
        with raises(UnreadableAudio, naming=fact):
            ClipReader(io.BytesIO(made[other]), info, name="clip")


def test_a_listed_length_is_compared_when_it_is_read(made):
    info = probe(made["aac.m4a"])
    listed = AudioInfo(info.frames, RATE, 2, "", "")
    with open_decoder(io.BytesIO(made["aac.m4a"]), "clip", listed) as decoder:
        assert decoder.info == info
    for wrong in (AudioInfo(1, 8000, 2, "", ""), AudioInfo(1, RATE, 1, "", "")):
        with raises(UnreadableAudio, naming="row in the table"):
            open_decoder(io.BytesIO(made["aac.m4a"]), "clip", wrong)
    long = AudioInfo(info.frames + 1, RATE, 2, "", "")
    reader = ClipReader(io.BytesIO(made["aac.m4a"]), long, name="clip")
    with reader, raises(UnreadableAudio, naming=[info.frames, info.frames + 1]):
        reader.read(0, info.frames + 1)


@pytest.mark.parametrize("good", [0, 3000, 40_000])
def test_what_the_store_raises_is_not_a_damaged_file(good):
    data = encoded(*KINDS["fast.m4a"], frames=200_000)
    for allowed in (False, True):
        file = Failing(data, good, KeyError("ours"))
        with pytest.raises(KeyError, match="ours"):
            probe_audio(file, name="clip", allow_truncated=allowed)
        file = Failing(data, good, OSError("lost"))
        with raises(UnreadableAudio, naming="lost"):
            probe_audio(file, name="clip", allow_truncated=allowed)


@pytest.mark.parametrize("decoders", [PYAV, EITHER])
@pytest.mark.parametrize("name", COMMON)
def test_ffmpeg_decodes_what_both_know(name, decoders, made):
    assert probe(made[name], decoders=decoders).format == name
    samples = read(made[name], decoders=decoders)
    np.testing.assert_array_equal(samples, decoded_by_ffmpeg(made[name]))
    if name in ("wav", "flac", "aiff"):  # without loss both agree
        np.testing.assert_array_equal(samples, read(made[name]))


def test_the_next_one_decodes_what_the_first_does_not(made):
    caf = encode(noise(12_345, 2), RATE, format="CAF", subtype="PCM_16")
    assert probe(caf, decoders=EITHER).format == "CAF"
    with raises(UnreadableAudio, naming=["pyav", "soundfile"]):
        probe(caf, decoders=PYAV)
    assert probe(made["aac.m4a"], decoders=("soundfile", "pyav")).format == "mp4"
    with raises(UnreadableAudio):
        probe(made["aac.m4a"], decoders=("soundfile",))


@pytest.mark.parametrize("decoders", [PYAV, EITHER])
@pytest.mark.parametrize("name", COMMON)
def test_a_cut_file_is_found(name, decoders, made):
    data = made[name]
    with raises((TruncatedAudio, UnreadableAudio)):
        probe(data[: len(data) // 2], decoders=decoders)
    with raises(ClipError):
        probe(data[:-9], decoders=decoders)
    if name == "wav":
        cut = probe(data[: len(data) // 2], decoders=decoders, allow_truncated=True)
        assert 0 < cut.frames < 12_345


def test_a_type_of_samples_that_pyav_does_not_convert_is_a_reject():
    data = bytearray(2000 * 8 + 44)
    data[:44] = struct.pack(
        "<4sI4s4sIHHIIHH4sI", b"RIFF", 16_036, b"WAVE", b"fmt ", 16, 1, 1, RATE,
        8 * RATE, 8, 64, b"data", 16_000,
    )  # fmt: skip
    for decoders in (PYAV, EITHER, ("soundfile", "pyav")):
        with raises(UnreadableAudio, path="clip"):
            probe(bytes(data), decoders=decoders)


def test_a_data_set_says_which_library_decoded(made, tmp_path, monkeypatch):
    folder = tmp_path / "in"
    (folder / "owl").mkdir(parents=True)
    for name in ("wav", "mp3", "aac.m4a", "opus.webm"):
        (folder / f"owl/a.{name.rpartition('.')[2]}").write_bytes(made[name])
    options = {"win_len": 1000, "sample_rate": 8000, "decoder": "pyav,soundfile"}
    metadata = record(folder, tmp_path / "out", **options)
    manifest = pq.read_table(tmp_path / "out/manifest.parquet").to_pydict()
    assert dict(zip(manifest["path"], manifest["format"], strict=True)) == {
        "owl/a.wav": "wav", "owl/a.mp3": "mp3", "owl/a.m4a": "mp4",
        "owl/a.webm": "matroska",
    }  # fmt: skip
    assert metadata.recipe.to_json()["decoder"] == "pyav,soundfile"
    assert metadata.writer == writer_versions(ffmpeg=True)
    assert verify(tmp_path / "out", deep=True, input=folder) == []
    for name in ("mp3", "aac.m4a"):
        clip = open_records(tmp_path / "out").of_clip(f"owl/a.{name[-3:]}")
        samples = read(made[name], decoders=EITHER).mean(axis=1)
        expected = soxr.resample(samples, RATE, 8000)
        found = np.concatenate([example["signal"] for example in clip])
        np.testing.assert_allclose(found, expected[: len(found)], atol=2e-5)
    monkeypatch.setitem(sys.modules, "av", None)
    metadata = record(folder, tmp_path / "less", win_len=1000, max_rejected=2)
    assert metadata.writer == writer_versions()
    assert (metadata.splits["records"].clips, metadata.rejected) == (2, 2)
