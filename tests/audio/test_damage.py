"""Damaged files of every format are recorded completely, or are named rejects."""

import io
import os
import struct
import subprocess
import sys
import threading

import numpy as np
import pytest
import soundfile

from beam_pipeline.audio import mpeg
from beam_pipeline.audio.clip_reader import ClipReader
from beam_pipeline.audio.decoder import AudioInfo, Decoder
from beam_pipeline.audio.probe import probe_audio
from beam_pipeline.errors import ClipError, TruncatedAudio, UnreadableAudio
from tests.raising import raises

RATE = 16000


def chirp(frames=20_000, channels=1):
    """A sound that never repeats."""
    time = np.arange(frames) / RATE
    sound = 0.4 * np.sin(2 * np.pi * (200 + 900 * time) * time)[:, None]
    return sound + np.random.default_rng(0).normal(0, 0.05, (frames, channels))


def encode(container, subtype=None, channels=1, frames=20_000, **kwargs):
    file = io.BytesIO()
    samples, rate = chirp(frames, channels), 8000 if container == "WVE" else RATE
    soundfile.write(file, samples, rate, subtype, format=container, **kwargs)
    return file.getvalue()


def probe(data, **kwargs):
    return probe_audio(io.BytesIO(data), name="clip", **kwargs)


def read(data, info):
    with ClipReader(io.BytesIO(data), info, name="clip", channels="keep") as clip:
        return clip.read(0, info.frames).T


def frames_of(data):
    """Offsets of the frames of an MP3 without tags, and the end."""
    stream = mpeg.find_stream(io.BytesIO(data), len(data))
    offsets = [0]
    while offsets[-1] < len(data):
        offsets.append(offsets[-1] + stream.lengths[data[offsets[-1] + 2]])
    assert offsets[-1] == len(data)
    return offsets


MP3 = encode("MP3", channels=2)
OFFSETS = frames_of(MP3)
BARE = MP3[OFFSETS[1] :]  # without the encoder's header
TAG_1 = b"TAG" + bytes(125)
TAG_2 = b"ID3\4\0\0\0\0\0\x10" + bytes(16)
APE = b"APETAGEX" + struct.pack("<IIII", 2000, 32 + 8, 0, 0) + bytes(8)


# ---- MP3


def test_whole_mp3_is_as_long_as_what_was_encoded():
    info = probe(MP3)
    assert info == AudioInfo(20_000, RATE, 2, "MP3", "MPEG_LAYER_III")


def test_mp3_of_varying_bitrate_without_a_header_is_read_to_its_end():
    """libsndfile estimates its length, from the first frame, and loses the rest."""
    with soundfile.SoundFile(io.BytesIO(BARE)) as sound:
        assert sound.frames < 576 * (len(OFFSETS) - 2)
    info = probe(BARE)
    assert info.frames == 576 * (len(OFFSETS) - 2)
    whole, bare = read(MP3, probe(MP3)), read(BARE, info)
    delay = 576 + 529  # of the encoder and of the decoder, which the header declares
    np.testing.assert_allclose(bare[delay : delay + 20_000], whole, atol=1e-6)


@pytest.mark.parametrize(
    ("before", "after"),
    [(TAG_2, b""), (TAG_2 * 2, TAG_1), (b"", APE + TAG_1), (TAG_2, bytes(100))],
)
@pytest.mark.parametrize("data", [MP3, BARE], ids=["header", "bare"])
def test_tags_of_mp3_are_no_damage(data, before, after):
    if APE in after:
        after = bytes(8) + after  # the value of its only item
    tagged = before + data + after
    np.testing.assert_array_equal(read(tagged, probe(tagged)), read(data, probe(data)))


@pytest.mark.parametrize("data", [MP3, BARE], ids=["header", "bare"])
@pytest.mark.parametrize("frame", [2, 5, 20])
@pytest.mark.parametrize(
    "edit",
    [
        lambda data, at: data[:at] + bytes(50) + data[at:],
        lambda data, at: data[:at] + data[at + 50 :],
        lambda data, at: data[:at] + data[at - 300 : at] + data[at:],
        lambda data, at: data[:at] + b"\0" + data[at + 1 :],
    ],
    ids=["inserted", "removed", "doubled", "overwritten"],
)
def test_gap_in_mp3_is_named_with_its_offset(data, frame, edit):
    at = frames_of(data)[frame]
    for allow in (False, True):
        with raises(UnreadableAudio, path="clip") as caught:
            probe(edit(data, at), allow_truncated=allow)
        named = int(caught.value.reason.partition("byte ")[2].split()[0].strip(","))
        assert at - 300 <= named <= at + 1500


def test_mp3_frame_that_was_left_out_or_doubled_is_found():
    """Nothing but the bit reservoir and the header tell that a frame is missing."""
    a, b = OFFSETS[10], OFFSETS[11]
    left_out, doubled = MP3[:a] + MP3[b:], MP3[:b] + MP3[a:]
    for data in (left_out, left_out[OFFSETS[1] :]):
        with raises(UnreadableAudio, naming="sound data"):
            probe(data)
    with raises(UnreadableAudio, naming=[len(OFFSETS) - 2, len(OFFSETS) - 1]):
        probe(doubled)


@pytest.mark.parametrize("data", [MP3, BARE], ids=["header", "bare"])
@pytest.mark.parametrize("missing", [1, 40, 500])
def test_cut_mp3_names_both_numbers(data, missing):
    cut = data[:-missing]
    with raises(TruncatedAudio, naming="allow_truncated"):
        probe(cut)
    info = probe(cut, allow_truncated=True)
    whole = read(data, probe(data))
    kept = read(cut, info)
    assert len(whole) - 1152 - missing * 3 < info.frames < len(whole)
    np.testing.assert_allclose(kept[:-576], whole[: len(kept) - 576], atol=1e-6)


def test_mp3_without_its_last_frames_is_truncated_if_a_header_counts_them():
    cut = MP3[: OFFSETS[-4]]
    frames = len(OFFSETS) - 2
    with raises(TruncatedAudio, naming=[frames, frames - 3]):
        probe(cut)


def test_two_mp3_in_sequence_are_refused():
    with raises(UnreadableAudio, naming=[len(OFFSETS) - 2, "split"]):
        probe(MP3 + MP3)


def test_bytes_that_an_mp3_does_not_need_are_not_read():
    junk = np.random.default_rng(1).bytes(3000)
    np.testing.assert_array_equal(
        read(MP3 + junk, probe(MP3 + junk)), read(MP3, probe(MP3))
    )
    with raises(UnreadableAudio, naming=len(BARE)):
        probe(BARE + junk)


def test_mp3_whose_length_is_listed_is_checked_when_it_is_opened():
    at = OFFSETS[9]
    data = MP3[:at] + bytes(50) + MP3[at:]
    listed = AudioInfo(20_000, RATE, 2, format="", subtype="")
    with raises(UnreadableAudio, naming=at):
        Decoder(io.BytesIO(data), "clip", listed)


# ---- Ogg


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_damaged_page_of_ogg_is_named(subtype):
    data = encode("OGG", subtype, frames=80_000)
    pages = [at for at in range(len(data)) if data.startswith(b"OggS\0", at)]
    assert len(pages) > 4
    at, after = pages[3], pages[4]
    flipped = bytearray(data)
    flipped[at + 60] ^= 1
    for damaged in (
        bytes(flipped),
        data[:at] + data[after:],
        data[:after] + data[at:],
        data[:at] + b"x" + data[at:],
    ):
        with raises(UnreadableAudio, path="clip", naming="Ogg page"):
            probe(damaged, allow_truncated=True)
    with raises(TruncatedAudio, naming=after):
        probe(data[: after + 10])
    info = probe(data[: after + 10], allow_truncated=True)
    assert 0 < info.frames < 80_000
    assert probe(data + b"junk" * 50).frames == 80_000


# ---- containers that declare a size


@pytest.mark.parametrize(
    "container",
    ["AVR", "SVX", "MAT4", "MAT5", "MPC2K", "VOC", "SDS", "WVE", "HTK", "CAF/ALAC_16"],
)
@pytest.mark.parametrize("channels", [1, 2])
def test_cut_file_of_an_old_system_is_not_taken_for_a_whole_one(container, channels):
    if channels == 2 and container in ("SVX", "SDS", "WVE", "HTK"):
        pytest.skip("has one channel")
    subtype = "ALAW" if container == "WVE" else "PCM_16"
    container, _, codec = container.partition("/")
    data = encode(container, codec or subtype, channels)
    whole = probe(data)
    assert whole.frames == 20_000
    for missing in (4, 5000):
        with pytest.raises(ClipError):
            probe(data[:-missing])
    if container not in ("HTK", "CAF"):
        info = probe(data[:-5000], allow_truncated=True)
        assert 0 < info.frames < 20_000
        np.testing.assert_array_equal(
            read(data[:-5000], info), read(data, whole)[: info.frames]
        )


@pytest.mark.parametrize(
    "container", ["W64", "NIST", "AVR", "SVX", "VOC", "MPC2K", "MAT5", "WAV", "AU"]
)
def test_bytes_after_the_samples_are_not_recorded(container):
    data = encode(container, "PCM_16")
    more = data + np.random.default_rng(2).bytes(999)
    assert probe(more).frames == 20_000
    np.testing.assert_array_equal(read(more, probe(more)), read(data, probe(data)))


@pytest.mark.parametrize("container", ["WAV", "WAVEX", "RF64", "W64", "WAV/BIG"])
@pytest.mark.parametrize("subtype", ["PCM_16", "PCM_24", "PCM_32", "FLOAT"])
@pytest.mark.parametrize("channels", [1, 2])
def test_samples_that_do_not_fit_their_frames_are_not_read_as_noise(
    container, subtype, channels
):
    container, _, order = container.partition("/")
    data = encode(container, subtype, channels, endian=order or None)
    assert probe(data).frames == 20_000
    bits = int(subtype[-2:]) if subtype != "FLOAT" else 32
    at = data.index(b"fmt ") + (24 if container == "W64" else 8) + 14
    sign = ">" if order else "<"
    assert struct.unpack_from(f"{sign}H", data, at) == (bits,)
    for bit in range(16):
        changed = bytearray(data)
        wrong = bits ^ 1 << bit
        struct.pack_into(f"{sign}H", changed, at, wrong)
        if -(-wrong // 8) == bits // 8 or wrong == 0:
            continue  # also a number of bits for such samples; or none
        with pytest.raises(UnreadableAudio):
            probe(bytes(changed))
    if bits == 24:
        with raises(UnreadableAudio, naming=["25 bits", f"{3 * channels} bytes"]):
            struct.pack_into(f"{sign}H", changed := bytearray(data), at, 25)
            probe(bytes(changed))


def test_a_program_that_writes_the_bytes_of_a_sample_for_those_of_a_frame():
    data = bytearray(encode("WAV", "PCM_16", 2))
    wanted = read(data, probe(data))
    at = data.index(b"fmt ") + 8
    for second, frame in ((32_000, 2), (99, 3), (0, 0)):  # others agree on no size
        struct.pack_into("<IH", data, at + 8, second, frame)
        np.testing.assert_array_equal(read(data, probe(data)), wanted)


def test_apple_lossless_that_the_decoder_repeats_is_refused():
    data = encode("CAF", "ALAC_16")
    start = data.index(b"data") + 16
    sizes = data[data.index(b"pakt") + 36 :]
    first = (sizes[0] & 0x7F) << 7 | sizes[1]
    second = start + first
    damaged = data[:second] + b"\xff" * 3000 + data[second + 3000 :]
    with soundfile.SoundFile(io.BytesIO(damaged)) as sound:
        samples = sound.read(8192)
    np.testing.assert_array_equal(samples[:4096], samples[4096:])
    with raises(UnreadableAudio, naming=4096):
        probe(damaged)


def test_apple_lossless_whose_table_does_not_fit_is_refused():
    data = encode("CAF", "ALAC_16")
    for field, value in ((12, 4), (20, 99), (36, 0x81)):
        at = data.index(b"pakt") + field
        with pytest.raises(UnreadableAudio):
            probe(data[: at + 7] + bytes([value]) + data[at + 8 :])


def test_packet_of_a_sample_dump_that_fails_its_checksum_is_named(capfd):
    data = encode("SDS", "PCM_16")
    at = 21 + 127 * 10
    damaged = data[: at + 50] + b"\1\2" + data[at + 52 :]
    with raises(UnreadableAudio, naming=at):
        probe(damaged)
    assert capfd.readouterr() == ("", "")


# ---- what decoders print

SCRIPT = """
import sys, io
from beam_pipeline.audio.probe import probe_audio
from beam_pipeline.errors import ClipError
for path in sys.argv[1:]:
    try:
        print(probe_audio(path, name="clip", allow_truncated=True).frames)
    except ClipError as error:
        print(error)
"""


def test_decoders_print_nothing_and_their_errors_are_reasons(tmp_path):
    broken = bytearray(MP3)
    broken[OFFSETS[9] + 14] = 0xFF  # side information
    (tmp_path / "cut.mp3").write_bytes(MP3[: OFFSETS[9] + 17])
    (tmp_path / "broken.mp3").write_bytes(bytes(broken))
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *sorted(map(str, tmp_path.iterdir()))],
        capture_output=True,
        text=True,
        check=True,
    )
    broken_line, cut_line = done.stdout.splitlines()
    assert done.stderr == ""
    assert int(cut_line) > 0
    assert broken_line.startswith("clip: decoding failed in frames 0 to ")
    assert broken_line.endswith("big_values too large!")


FORKED = """
import os, sys
from beam_pipeline.audio.probe import probe_audio
broken, good = sys.argv[1:]
probe_audio(good, name="clip")
child = os.fork() == 0
for _ in range(20):
    if child:
        probe_audio(good, name="clip")
    else:
        try:
            probe_audio(broken, name="clip")
        except Exception as error:
            assert "big_values" in str(error), error
if child:
    os._exit(0)
print(os.waitstatus_to_exitcode(os.wait()[1]))
"""


def test_forked_processes_do_not_read_what_each_others_decoders_print(tmp_path):
    broken = bytearray(MP3)
    broken[OFFSETS[9] + 14] = 0xFF
    (tmp_path / "broken.mp3").write_bytes(bytes(broken))
    (tmp_path / "good.mp3").write_bytes(MP3)
    done = subprocess.run(
        [sys.executable, "-c", FORKED, tmp_path / "broken.mp3", tmp_path / "good.mp3"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("0\n", "")


def test_what_others_print_meanwhile_is_not_lost(capfd):
    """Decodes a cut file, of which libmpg123 prints a warning, while others print."""
    cut = MP3[: OFFSETS[9] + 17]
    lines = 300
    stop = threading.Event()

    def decode():
        while not stop.is_set():
            probe(cut, allow_truncated=True)

    threads = [threading.Thread(target=decode) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(lines):
        os.write(2, b"line %d\n" % number)
        print("python", number, file=sys.stderr)
        if number % 100 == 0:
            subprocess.run(["sh", "-c", "echo child >&2"], check=True)
    stop.set()
    for thread in threads:
        thread.join()
    printed = capfd.readouterr().err.splitlines()
    assert sum(line.startswith("line ") for line in printed) == lines
    assert sum(line.startswith("python ") for line in printed) == lines
    assert printed.count("child") == 3
    assert len(printed) == 2 * lines + 3
