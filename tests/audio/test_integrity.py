"""Damaged files are recorded completely, or are named rejects: MP3, Ogg, FLAC, PCM."""

import io
import struct

import numpy as np
import pytest
import soundfile

from beam_pipeline.audio.clip_reader import ClipReader, open_decoder, probe_audio
from beam_pipeline.audio.decoder import AudioInfo
from beam_pipeline.audio.formats import find_container, find_mpeg
from beam_pipeline.errors import ClipError, TruncatedAudio, UnreadableAudio
from tests.audio import files
from tests.audio.files import probe, read
from tests.raising import raises

RATE = 16000
BLOCK = 4096  # frames of a FLAC block, as libsndfile writes them


def encode(container, subtype=None, channels=1, frames=20_000, seed=0, **kwargs):
    rate = 8000 if container == "WVE" else RATE
    options = {"subtype": subtype, "format": container, **kwargs}
    return files.encode(files.chirp(frames, channels, seed), rate, **options)


def frames_of(data):
    """Offsets of the frames of an MP3 without tags, and the end."""
    stream = find_mpeg(io.BytesIO(data))
    offsets = [0]
    while offsets[-1] < len(data):
        offsets.append(offsets[-1] + stream.frame_length(data, offsets[-1]))
    assert offsets[-1] == len(data)
    return offsets


MP3 = encode("MP3", channels=2)
OFFSETS = frames_of(MP3)
BARE = MP3[OFFSETS[1] :]  # without the encoder's header
either = pytest.mark.parametrize("data", [MP3, BARE], ids=["header", "bare"])
TAG_1 = b"TAG" + bytes(125)
TAG_2 = b"ID3\4\0\0\0\0\0\x10" + bytes(16)
APE = bytes(8) + b"APETAGEX" + struct.pack("<IIII", 2000, 32 + 8, 0, 0) + bytes(8)
JUNK = np.random.default_rng(1).bytes(3000)


# ---- MP3


def test_whole_mp3_is_as_long_as_what_was_encoded():
    assert probe(MP3) == AudioInfo(20_000, RATE, 2, "MP3", "MPEG_LAYER_III")


def test_mp3_of_varying_bitrate_without_a_header_is_read_to_its_end():
    """libsndfile estimates its length, from the first frame, and loses the rest."""
    with soundfile.SoundFile(io.BytesIO(BARE)) as sound:
        assert sound.frames < 576 * (len(OFFSETS) - 2)
    info = probe(BARE)
    assert info.frames == 576 * (len(OFFSETS) - 2)
    delay = 576 + 529  # of the encoder and of the decoder, which the header declares
    bare = read(BARE, info)[delay : delay + 20_000]
    np.testing.assert_allclose(bare, read(MP3), atol=1e-6)


@pytest.mark.parametrize(
    ("before", "after"),
    [(TAG_2, b""), (TAG_2 * 2, TAG_1), (b"", APE + TAG_1), (TAG_2, bytes(100))],
)
@either
def test_tags_of_mp3_are_no_damage(data, before, after):
    np.testing.assert_array_equal(read(before + data + after), read(data))


@either
@pytest.mark.parametrize("frame", [2, 20])
def test_gap_in_mp3_is_named_with_its_offset(data, frame):
    at = frames_of(data)[frame]
    for damaged in (
        data[:at] + bytes(50) + data[at:],  # inserted
        data[:at] + data[at + 50 :],  # removed
        data[:at] + data[at - 300 : at] + data[at:],  # doubled
        data[:at] + b"\0" + data[at + 1 :],  # overwritten
    ):
        for allow in (False, True):
            with raises(UnreadableAudio, path="clip") as caught:
                probe(damaged, allow_truncated=allow)
            named = caught.value.reason.partition("byte ")[2].split()[0].strip(",")
            assert at - 300 <= int(named) <= at + 1500
        listed = AudioInfo(20_000, RATE, 2, format="", subtype="")  # by a table
        with raises(UnreadableAudio, naming=named):
            open_decoder(io.BytesIO(damaged), "clip", listed)


def test_mp3_that_has_other_frames_than_its_header_declares():
    a, b = OFFSETS[10], OFFSETS[11]
    frames = len(OFFSETS) - 2
    with raises(TruncatedAudio, naming=[frames, frames - 1]):
        probe(MP3[:a] + MP3[b:])
    with raises(TruncatedAudio, naming=[frames, frames - 3]):
        probe(MP3[: OFFSETS[-4]])
    with raises(UnreadableAudio, naming=[frames, frames + 1]):
        probe(MP3[:b] + MP3[a:])
    with raises(UnreadableAudio, naming=[frames, "split"]):
        probe(MP3 + MP3)


@either
@pytest.mark.parametrize("missing", [1, 40, 500])
def test_cut_mp3_is_read_up_to_its_end(data, missing):
    cut = data[:-missing]
    with raises(TruncatedAudio, naming="allow_truncated"):
        probe(cut)
    info = probe(cut, allow_truncated=True)
    whole, kept = read(data), read(cut, info)
    assert len(whole) - 1152 - missing * 3 < info.frames < len(whole)
    np.testing.assert_allclose(kept[:-576], whole[: len(kept) - 576], atol=1e-6)


def test_bytes_that_an_mp3_does_not_need_are_not_read():
    np.testing.assert_array_equal(read(MP3 + JUNK), read(MP3))
    with raises(UnreadableAudio, naming=len(BARE)):
        probe(BARE + JUNK)


@either
def test_a_damaged_mp3_does_not_count_as_thousands_of_hours(data):
    at = frames_of(data)[5]
    with raises(UnreadableAudio) as caught:
        probe(data[:at] + bytes(9) + data[at + 9 :])
    assert caught.value.seconds is None
    with raises(TruncatedAudio) as caught:
        probe(data[: at - 3])
    assert 0 < caught.value.seconds < 1


# ---- Ogg


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_the_end_of_ogg_is_checked(subtype):
    data = encode("OGG", subtype, frames=80_000)
    pages = [at for at in range(len(data)) if data.startswith(b"OggS\0", at)]
    assert len(pages) > 4
    at, after = pages[3], pages[4]
    for end in (after, after + 10):
        with raises(TruncatedAudio, naming=[end, "marked as the last"]):
            probe(data[:end])
        info = probe(data[:end], allow_truncated=True)
        assert 0 < info.frames < 80_000
    assert probe(data + JUNK).frames == 80_000
    lacks_a_page = data[:at] + data[after:]
    with raises(UnreadableAudio, naming=80_000):  # libogg leaves out damaged pages
        read(lacks_a_page)


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
@pytest.mark.parametrize("channels", [1, 2])
def test_chained_ogg_is_refused(channels, subtype):
    first = encode("OGG", subtype)
    second = encode("OGG", subtype, channels, seed=1)
    assert first[14:18] != second[14:18]
    assert probe(first).frames == 20_000
    with raises(UnreadableAudio, naming=["several Ogg streams", "split"]):
        probe(first + second)


# ---- FLAC


def declare(data, frames):
    """Returns the file with another number of frames in its header, and no MD5."""
    fields = int.from_bytes(data[18:26], "big") >> 36 << 36 | frames
    return data[:18] + fields.to_bytes(8, "big") + bytes(16) + data[42:]


@pytest.mark.parametrize(
    ("frames", "declared"),
    [(40_000, 16_000), (9 * BLOCK, 8 * BLOCK), (3 * BLOCK + 1, 3 * BLOCK), (50, 1)],
)
def test_flac_that_holds_more_than_it_declares_is_read_to_its_end(frames, declared):
    data = encode("FLAC", frames=frames)
    short = declare(data, declared)
    assert probe(short).frames == frames
    np.testing.assert_array_equal(read(short), read(data))
    info = probe(short)
    with ClipReader(io.BytesIO(short), info, name="clip", channels="keep") as clip:
        start = frames - frames // 8  # after a seek beyond the declared end
        last = clip.read(start, frames).T
    np.testing.assert_array_equal(last, read(data)[start:])


def test_flac_that_holds_less_than_it_declares_is_cut():
    whole = encode("FLAC", frames=40_000)
    data = declare(whole, 50_000)
    with raises(TruncatedAudio, naming=[50_000, "allow_truncated"]):
        probe(data)
    info = probe(data, allow_truncated=True)
    assert 40_000 - BLOCK <= info.frames <= 40_000
    unknown = declare(data, 0)
    assert probe(unknown).frames == 40_000
    np.testing.assert_array_equal(read(unknown), read(whole))


def test_bytes_after_flac_are_not_read_but_a_second_stream_is_refused():
    data = encode("FLAC", frames=40_000)
    for after in (TAG_1, JUNK, bytes(9)):
        np.testing.assert_array_equal(read(data + after), read(data))
    for second in (encode("FLAC", seed=1), encode("FLAC", "PCM_24", 2)):
        with raises(UnreadableAudio, naming=["FLAC streams", len(data), "split"]):
            probe(data + second)
    tagged = TAG_2 + data
    np.testing.assert_array_equal(read(tagged), read(data))
    with raises(UnreadableAudio, naming=["FLAC streams", len(tagged)]):
        probe(tagged + data)


def test_every_bit_of_a_flac_frame_is_checked():
    data = bytearray(encode("FLAC", frames=40_000))
    for at in np.random.default_rng(0).integers(9000, len(data) - 100, 20):
        data[at] ^= 4
        with raises(UnreadableAudio, naming=["decoding failed in frames", 40_000]):
            read(bytes(data), AudioInfo(40_000, RATE, 1, "FLAC", "PCM_16"))
        data[at] ^= 4


# ---- containers that declare a size


@pytest.mark.parametrize(("container", "subtype", "endian"), [
    ("HTK", "PCM_16", None), ("CAF", "ALAC_16", None), ("NIST", "ULAW", None),
    ("NIST", "ALAW", None), ("AU", "PCM_24", "LITTLE")])  # fmt: skip
def test_cut_file_is_not_taken_for_a_whole_one(container, subtype, endian):
    data = encode(container, subtype, endian=endian)
    assert probe(data).frames == 20_000
    for missing in (4, 5000):
        with pytest.raises(ClipError):
            probe(data[:-missing])


@pytest.mark.parametrize("container", ["AVR", "SVX", "MPC2K", "WVE"])
def test_formats_of_old_computers_are_refused(container):
    data = encode(container, "ALAW" if container == "WVE" else "PCM_16")
    with raises(UnreadableAudio, path="clip", naming=[container, "convert"]):
        probe(data)


@pytest.mark.parametrize(("container", "subtype", "endian"), [
    *((container, "PCM_16", None) for container in ("W64", "NIST", "WAV", "AU")),
    ("NIST", "ULAW", None), ("AU", "PCM_16", "LITTLE")])  # fmt: skip
def test_bytes_after_the_samples_are_not_recorded(container, subtype, endian):
    data = encode(container, subtype, endian=endian)
    np.testing.assert_array_equal(read(data + JUNK), read(data))


@pytest.mark.parametrize("container", ["WAV", "WAVEX", "RF64", "W64", "WAV/BIG"])
@pytest.mark.parametrize(("subtype", "bits"), [("PCM_16", 16), ("FLOAT", 32)])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_that_do_not_fit_their_frames_are_not_read_as_noise(
    container, subtype, bits, channels
):
    container, _, order = container.partition("/")
    data = bytearray(encode(container, subtype, channels, endian=order or None))
    assert probe(bytes(data)).frames == 20_000
    at = data.index(b"fmt ") + (24 if container == "W64" else 8) + 14
    for bit in range(16):
        wrong = bits ^ 1 << bit
        if -(-wrong // 8) == bits // 8 or wrong == 0:
            continue  # also a number of bits for such samples; or none
        struct.pack_into(f"{'>' if order else '<'}H", data, at, wrong)
        with raises(UnreadableAudio):
            probe(bytes(data))


def test_a_program_that_writes_the_bytes_of_a_sample_for_those_of_a_frame():
    data = bytearray(encode("WAV", "PCM_16", 2))
    wanted = read(data)
    at = data.index(b"fmt ") + 8
    for second, frame in ((32_000, 2), (99, 3), (0, 0)):  # others agree on no size
        struct.pack_into("<IH", data, at + 8, second, frame)
        np.testing.assert_array_equal(read(data), wanted)


@pytest.mark.parametrize("blocks", [25, 26])
def test_a_byte_that_fills_up_gsm_is_no_sound(blocks, tmp_path):
    path = tmp_path / "gsm.wav"
    soundfile.write(path, np.zeros(320 * blocks), 8000, "GSM610")
    info = probe_audio(str(path), name="gsm.wav")
    assert info.frames == 320 * blocks
    assert len(soundfile.read(path)[0]) == 320 * (blocks + blocks % 2)


@pytest.mark.parametrize(("start", "container"), [
    (b"OggS", "ogg"), (b"fLaC", "flac"), (b"RIFF\0\0\0\0WAVE", "wav"),
    (b"FORM\0\0\0\0AIFF", "aiff"), (b"caff" + bytes(24) + b"alac", "caf"),
    (b"\xff\xf1", None), (b"", None),
])  # fmt: skip
def test_a_file_may_end_within_its_header(start, container):
    for more in range(40):
        found, _ = find_container(io.BytesIO(start + bytes(more)))
        assert found == container
