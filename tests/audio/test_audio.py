"""Tests the probe, decoder and clip reader with edited headers and real files."""

import io
import os
import struct

import numpy as np
import pytest
import soundfile
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline.audio.clip_reader import (
    ClipReader,
    output_frames,
    probe_audio,
    resample_start,
)
from beam_pipeline.audio.decoder import AudioInfo
from beam_pipeline.errors import (
    EmptyAudio,
    NonFiniteAudio,
    TruncatedAudio,
    UnreadableAudio,
)
from tests.audio.files import encode, noise, probe, read
from tests.raising import raises

# Rates from and to, and frames: up to 200,000, and clips that end half way.
RESAMPLED = [
    *((rates, min(200_000, 3 * rates[0])) for rates in (
        (44100, 16000), (48000, 16000), (22050, 44100), (8000, 44100), (44100, 8000),
        (192_000, 8000), (16000, 15999), (48000, 44100), (3002, 3001))),
    *(((48000, 44100), frames) for frames in (1, 2, 3, 10, 560, 1200, 69_040)),
]  # fmt: skip


def reader(data, **kwargs):
    allow = {"allow_nonfinite": True}
    return ClipReader(io.BytesIO(data), probe(data, **allow), name="clip", **kwargs)


def decode(data):
    """Returns all samples, shape (frames, channels), from one read of libsndfile."""
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        # Of an MP3, a read without a number stops early.
        return file.read(file.frames, dtype="float32", always_2d=True)


def put(data, offset, fmt, value):
    edited = bytearray(data)
    struct.pack_into(fmt, edited, offset, value)
    return bytes(edited)


# ---- probe


@pytest.mark.parametrize(("container", "subtype"), [
    ("WAV", "PCM_16"), ("WAV", "PCM_24"), ("WAV", "FLOAT"), ("WAV", "ULAW"),
    ("WAVEX", "PCM_16"), ("RF64", "PCM_16"), ("W64", "PCM_16"), ("AIFF", "PCM_16"),
    ("AU", "PCM_16"), ("CAF", "PCM_16"), ("NIST", "PCM_16"), ("FLAC", "PCM_16"),
    ("OGG", "VORBIS")])  # fmt: skip
def test_probe_counts_the_frames_that_decode_and_finds_cuts(container, subtype):
    data = encode(noise(30_001, 2), 16000, format=container, subtype=subtype)
    assert probe(data) == AudioInfo(30_001, 16000, 2, container, subtype)
    cut = data[:-3000]  # libsndfile refuses a CAF file that lacks 4096
    with raises(TruncatedAudio, path="clip"):
        probe(cut)
    kept = read(cut, allow_truncated=True)
    assert 0 < len(kept) < 30_000
    np.testing.assert_array_equal(kept, decode(data)[: len(kept)])


@pytest.mark.parametrize("missing", [0, 1, 2, 3, 4, 5])
def test_each_frame_that_is_declared_must_be_there(missing):
    data = encode(noise(100, 2), subtype="PCM_16")
    data = data[: len(data) - missing]
    if missing:
        with raises(TruncatedAudio, naming=["400", 400 - missing, "allow_truncated"]):
            probe(data)
    frames = 100 - -(-missing // 4)
    assert probe(data, allow_truncated=True).frames == frames


def _with_odd_chunk(data):
    return data[:36] + b"note" + struct.pack("<I", 3) + b"abc\0" + data[36:]


@pytest.mark.parametrize(
    ("data", "declared"),
    [
        (encode(noise(100), endian="BIG"), 200),  # RIFX
        (put(encode(noise(100), subtype="PCM_16"), 40, "<I", 201), 200),  # half a frame
        (_with_odd_chunk(encode(noise(100), subtype="PCM_16")), 200),
        (encode(np.zeros(101), subtype="PCM_U8")[:-1], 101),  # without its padding
    ],
    ids=["RIFX", "half a frame", "odd chunk", "no padding"],
)
def test_declared_sizes_of_wav(data, declared):
    frames = declared // (1 if declared == 101 else 2)
    assert probe(data).frames == frames
    with raises(TruncatedAudio, naming=[declared - 50, "allow_truncated"]):
        probe(data[:-50] if declared != 201 else data[:-51])


@pytest.mark.parametrize("size", [0xFFFFFFFF, 0xFFFFFFFF - 44, 0x7FFFFFFF, 0x7FFFF000])
@pytest.mark.parametrize("riff_size", [0, 0xFFFFFFFF])
def test_size_left_by_a_streaming_writer_is_unknown_length(size, riff_size):
    data = encode(noise(1000), subtype="PCM_16")
    assert data[36:40] == b"data"
    data = put(put(data, 40, "<I", size), 4, "<I", riff_size)
    assert probe(data).frames == 1000


def test_file_that_shrinks_after_the_probe_is_unreadable():
    data = encode(noise(1000), subtype="PCM_16")
    clip = ClipReader(io.BytesIO(data[:-400]), probe(data), name="clip")
    with clip, raises(UnreadableAudio, naming=["800", "1000"]):
        clip.read(500, 1000)


@pytest.mark.parametrize("container", ["WAV", "AIFF"])
def test_no_frames_is_empty(container):
    with raises(EmptyAudio, path="clip"):
        probe(encode(noise(0), format=container))


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("subtype", ["FLOAT", "DOUBLE"])
@pytest.mark.parametrize("frame", [0, 70000, 199_999])
def test_first_nonfinite_frame_is_named(value, subtype, frame):
    samples = noise(200_000, 2)
    samples[frame, 1] = value
    samples[-1] = value
    data = encode(samples, subtype=subtype)
    with raises(NonFiniteAudio, naming=frame):
        probe(data)
    assert probe(data, allow_nonfinite=True).frames == 200_000


def test_unreadable_files_are_errors(tmp_path):
    (tmp_path / "text.wav").write_text("no audio in here" * 9)
    (tmp_path / "empty.wav").touch()
    (tmp_path / "headless.raw").write_bytes(bytes(100))
    os.mkfifo(tmp_path / "pipe.wav")
    cases = {
        "text.wav": soundfile.LibsndfileError,
        "empty.wav": type(None),
        "headless.raw": (soundfile.LibsndfileError, TypeError),
        "missing.wav": FileNotFoundError,
        ".": type(None),
        "pipe.wav": type(None),
        "nul\0.wav": ValueError,
    }
    for file_name, cause in cases.items():
        with raises(UnreadableAudio, path=file_name) as caught:
            probe_audio(str(tmp_path / file_name), name=file_name)
        assert isinstance(caught.value.__cause__, cause), file_name
        assert ("0 bytes" in caught.value.reason) == (file_name == "empty.wav")


class Failing(io.BytesIO):
    """Raises when a read goes beyond the first ``good`` bytes."""

    def __init__(self, data, good, error):
        super().__init__(data)
        self.good, self.error = good, error

    def read(self, size=-1):
        if self.tell() + size > self.good:
            raise self.error
        return super().read(size)


def test_error_of_a_remote_file_is_its_reason():
    data = encode(noise(100_000), subtype="PCM_16")
    lost = OSError("connection lost")
    with raises(UnreadableAudio, path="clip", naming="connection lost"):
        probe_audio(Failing(data, 10, lost), name="clip")
    clip = ClipReader(Failing(data, 60_000, lost), probe(data), name="clip")
    with clip, raises(UnreadableAudio, naming=["0", "connection lost"]):
        clip.read(0, 100_000)
    flac = CLIPS["FLAC"]  # the probe reads its end before its middle
    with raises(UnreadableAudio, path="clip", naming="connection lost"):
        probe_audio(Failing(flac, len(flac) // 2, lost), name="clip")
    with raises(KeyError, naming="ours"):
        probe_audio(Failing(data, 30, KeyError("ours")), name="clip")


# ---- channels


def test_channels():
    data = encode(noise(3000, 3), subtype="FLOAT")
    whole = decode(data)
    with reader(data, channels="keep") as clip:
        np.testing.assert_array_equal(clip.read(10, 2000), whole[10:2000].T)
    with reader(data, channels=2) as clip:
        np.testing.assert_array_equal(clip.read(10, 2000), whole[10:2000, 2])
    with reader(data) as clip:
        mixed = clip.read(10, 2000)
    assert mixed.dtype == np.float32
    np.testing.assert_allclose(mixed, whole[10:2000].mean(axis=1), atol=1e-7)
    with raises(UnreadableAudio, naming=["3", "5"]):
        reader(data, channels=5)


def test_rates_that_no_filter_fits_are_an_error():
    with raises(UnreadableAudio, naming=["8000", 2**16 * 8000 + 1]):
        reader(encode(noise(9)), sample_rate_hz=2**16 * 8000 + 1)


# ---- ranges


@st.composite
def ranges(draw, frames):
    """Draws ranges whose starts never decrease; they may overlap or leave gaps."""
    starts = sorted(draw(st.lists(st.integers(0, frames), max_size=8)))
    lengths = st.sampled_from([0, 1, 2, 100, 5000, frames])
    return [(start, min(frames, start + draw(lengths))) for start in starts]


FRAMES = 40_000
CLIPS = {
    "WAV mono": encode(noise(FRAMES), subtype="PCM_16"),
    "WAV stereo": encode(noise(FRAMES, 2), subtype="PCM_24"),
    "FLAC": encode(noise(FRAMES, 2), format="FLAC"),
    "OGG": encode(noise(FRAMES), format="OGG", subtype="VORBIS"),
    "MP3": encode(noise(FRAMES, 2), 16000, format="MP3"),
}


@pytest.mark.parametrize("kind", CLIPS)
@settings(max_examples=30)
@given(data=st.data())
def test_ranges_equal_slices_of_the_whole(kind, data):
    whole = decode(CLIPS[kind])
    plan = data.draw(ranges(len(whole)))
    with reader(CLIPS[kind], channels="keep") as clip:
        pieces = [clip.read(start, stop) for start, stop in plan]
    for (start, stop), piece in zip(plan, pieces, strict=True):
        np.testing.assert_array_equal(piece.T, whole[start:stop])


class Counting(io.BytesIO):
    read_bytes = 0

    def read(self, size=-1):
        data = super().read(size)
        self.read_bytes += len(data)
        return data


@pytest.mark.parametrize("container", ["WAV", "FLAC"])
@pytest.mark.parametrize("rate", [None, 5000])
def test_far_start_and_big_gap_are_not_decoded(container, rate):
    data = encode(noise(600_000), format=container, subtype="PCM_16")
    file = Counting(data)
    with ClipReader(file, probe(data), name="clip", sample_rate_hz=rate) as clip:
        clip.read(150_000, 151_000)
        clip.read(350_000, 351_000)
    assert file.read_bytes < len(data) / 4


def test_raw_file_with_short_reads():
    class Dribble(io.BytesIO):
        def read(self, size=-1):
            return super().read(min(size, 1000) if size > 0 else size)

    data = CLIPS["WAV mono"]
    info = probe_audio(Dribble(data), name="clip")
    with ClipReader(Dribble(data), info, name="clip") as clip:
        np.testing.assert_array_equal(clip.read(0, FRAMES), decode(data)[:, 0])


# ---- resampling


@settings(max_examples=200)
@given(
    frames=st.one_of(st.integers(0, 3), st.integers(0, 20_000)),
    rates=st.tuples(st.integers(1, 96_000), st.integers(1, 96_000)).filter(
        lambda rates: 1 / 50 < rates[0] / rates[1] < 50
    ),
)
def test_output_frames_equals_the_length_from_soxr(frames, rates):
    resampled = soxr.resample(np.zeros(frames, np.float32), *rates)
    assert output_frames(frames, *rates) == len(resampled)


@pytest.mark.parametrize("channels", [1, 2])
@pytest.mark.parametrize(("rates", "frames"), RESAMPLED)
def test_resampling_equals_resampling_the_whole_file(rates, frames, channels):
    rng = np.random.default_rng(sum(rates))
    data = encode(noise(frames, channels), rates[0], subtype="FLOAT")
    whole = soxr.resample(decode(data), *rates).T
    end = whole.shape[1]
    for first in {0, 1 % end, end // 2, end - 1, *rng.integers(0, end, 4)}:
        second = min(first + 300, end)
        third = max(second, int(rng.integers(first, end + 1)))
        with reader(data, sample_rate_hz=rates[1], channels="keep") as clip:
            for start, stop in (
                (first, min(first + 700, end)), (second, third), (third, end)
            ):  # fmt: skip
                piece = clip.read(int(start), int(stop))
                wanted = whole[:, start:stop]
                np.testing.assert_allclose(piece, wanted, rtol=0, atol=1e-5)


@given(
    first=st.integers(0, 10**10),
    rates=st.tuples(st.integers(1, 200_000), st.integers(1, 200_000)),
)
def test_resample_start_is_where_the_grids_meet(first, rates):
    input_frame, output_frame = resample_start(first, *rates)
    assert input_frame * rates[1] == output_frame * rates[0]
    assert 0 <= output_frame <= first
    if input_frame:
        assert first - output_frame >= 255
        assert first * rates[0] // rates[1] - input_frame >= 256
