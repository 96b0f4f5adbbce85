"""Tests FLAC streams that change in the middle, or only appear to change."""

import io
import json
import os
import shutil
import subprocess
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from beam_pipeline import record
from beam_pipeline.audio import flac
from beam_pipeline.audio.clip_reader import ClipReader
from beam_pipeline.audio.decoder import AudioInfo, Decoder, _decodes
from beam_pipeline.audio.probe import probe_audio
from beam_pipeline.errors import UnreadableAudio

CORPORA = os.environ.get("AUDIO_CORPORA")
TOOL = shutil.which("flac")
BITS = {"PCM_S8": 8, "PCM_16": 16, "PCM_24": 24}
FIRST = (16000, 1, "PCM_16")
BLOCK = 4096  # frames per block, as libsndfile writes them


def encode(frames, rate=16000, channels=1, subtype="PCM_16", seed=0, loudness=0.5):
    shape = (frames, channels)
    samples = np.random.default_rng(seed).uniform(-loudness, loudness, shape)
    file = io.BytesIO()
    soundfile.write(file, samples, rate, format="FLAC", subtype=subtype)
    return file.getvalue()


def first_block(data):
    return flac.read_stream_info(io.BytesIO(data)).first_block


def declare(data, frames):
    """Returns the file with another number of frames in its header, and no MD5."""
    fields = int.from_bytes(data[18:26], "big") >> 36 << 36 | frames
    return data[:18] + fields.to_bytes(8, "big") + bytes(16) + data[42:]


def joined(*files, frames):
    """Returns the first file with the blocks of all files: a stream that changes."""
    blocks = b"".join(file[first_block(file) :] for file in files)
    return declare(files[0][: first_block(files[0])] + blocks, frames)


def renumbered(*files):
    """Joins files of whole blocks and numbers the blocks consecutively.

    In the result, libsndfile can seek, also to the last block.
    """
    blocks = []
    for file in files:
        stream = flac.read_stream_info(io.BytesIO(file))
        assert stream.frames % BLOCK == 0
        starts = [at for at, _ in flac._block_headers(io.BytesIO(file), stream)]
        for start, stop in pairwise([*starts, len(file)]):
            block = file[start:stop]
            old = flac._coded_number(block)[1]
            end = next(
                n for n in range(17) if flac.parse_block_header(block[:n], stream)
            )
            number = chr(len(blocks)).encode()
            header = block[:4] + number + block[old : end - 1]
            header += bytes([flac._crc_8(header)])
            block = header + block[end:-2]
            blocks.append(block + flac._crc_16(block).to_bytes(2, "big"))
    head = files[0][: first_block(files[0])]
    return declare(head, BLOCK * len(blocks)) + b"".join(blocks)


def probe(data, **kwargs):
    return probe_audio(io.BytesIO(data), name="clip", **kwargs)


def change_in(data):
    file = io.BytesIO(data)
    return flac.find_change(file, flac.read_stream_info(file), _decodes)


def decode(data, info=None, block=5000):
    """Decodes a whole file block by block, without the probe."""
    out = np.empty(block, np.float32)
    with Decoder(io.BytesIO(data), "clip", info) as decoder:
        out = np.empty((block, decoder.info.channels), np.float32)
        while decoder.read_into(out) == block:
            pass
        return decoder.position


SECOND = [
    ((8000, 1, "PCM_16"), "sample rate from 16000 to 8000 Hz"),
    ((12345, 1, "PCM_16"), "sample rate from 16000 to 12345 Hz"),
    ((655350, 1, "PCM_16"), "sample rate from 16000 to 655350 Hz"),
    ((16000, 2, "PCM_16"), "number of channels from 1 to 2"),
    ((16000, 8, "PCM_16"), "number of channels from 1 to 8"),
    ((16000, 1, "PCM_24"), "bit depth from 16 to 24"),
    ((16000, 1, "PCM_S8"), "bit depth from 16 to 8"),
    (
        (44100, 2, "PCM_24"),
        "sample rate from 16000 to 44100 Hz and its number of channels from 1 to 2 "
        "and its bit depth from 16 to 24",
    ),
]


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("frames", [1, 4096, 30_001])
@pytest.mark.parametrize(("second", "change"), SECOND)
def test_probe_names_a_change_that_lasts(second, change, frames, known):
    total = (frames + 20_000) * known
    data = joined(encode(frames), encode(20_000, *second, seed=1), frames=total)
    for kwargs in ({}, {"allow_truncated": True, "allow_nonfinite": True}):
        with pytest.raises(UnreadableAudio) as caught:
            probe(data, **kwargs)
        assert caught.value.reason == f"changes its {change} at frame {frames}; " + (
            "split it there"
        )


@pytest.mark.parametrize("first", [(16000, 2, "PCM_24"), (8000, 1, "PCM_S8")])
def test_probe_names_a_change_to_less(first):
    data = joined(encode(9000, *first), encode(9000, *FIRST, seed=1), frames=18000)
    with pytest.raises(UnreadableAudio, match=r"at frame 9000;"):
        probe(data)


@pytest.mark.parametrize(("second", "change"), SECOND)
def test_change_that_is_reverted_is_found_when_decoding(second, change):
    middle = encode(5 * BLOCK, *second, seed=1)
    data = renumbered(encode(70 * BLOCK), middle, encode(70 * BLOCK, seed=2))
    info = AudioInfo(145 * BLOCK, *FIRST[:2], "FLAC", FIRST[2])
    expected = f"changes its {change} at frame {70 * BLOCK}; split it there"
    with pytest.raises(UnreadableAudio) as caught:
        decode(data, info)
    assert caught.value.reason == expected

    with ClipReader(io.BytesIO(data), info, name="clip") as clip:
        assert clip.read(0, 100_000).shape == (100_000,)
        with pytest.raises(UnreadableAudio) as caught:
            clip.read(65 * BLOCK, 71 * BLOCK)
    assert caught.value.reason == expected


@pytest.mark.parametrize("block", range(70, 75))
def test_block_after_a_seek_is_checked(block):
    middle = encode(5 * BLOCK, 8000, seed=1)
    data = renumbered(encode(70 * BLOCK), middle, encode(70 * BLOCK, seed=2))
    info = AudioInfo(145 * BLOCK, *FIRST[:2], "FLAC", FIRST[2])
    with (
        ClipReader(io.BytesIO(data), info, name="clip") as clip,
        pytest.raises(UnreadableAudio, match=f"at frame {70 * BLOCK};"),
    ):
        clip.read(block * BLOCK + 7, block * BLOCK + 8)


def test_probe_checks_the_last_block():
    data = renumbered(encode(70 * BLOCK), encode(BLOCK, 8000, seed=1))
    with pytest.raises(UnreadableAudio, match=f"at frame {70 * BLOCK};"):
        probe(data)


def test_whole_file_that_differs_from_its_header():
    data = bytearray(encode(20_000, 16000))
    fields = int.from_bytes(data[18:26], "big") ^ (16000 ^ 44100) << 44
    data[18:26] = fields.to_bytes(8, "big")
    match = r"sample rate from 44100 to 16000 Hz at frame 0, where its samples begin"
    with pytest.raises(UnreadableAudio, match=match):
        probe(bytes(data))


def test_local_file_is_checked_as_well(tmp_path):
    path = tmp_path / "clip.flac"
    parts = encode(20 * BLOCK), encode(BLOCK, 8000), encode(20 * BLOCK)
    path.write_bytes(renumbered(*parts))
    info = AudioInfo(41 * BLOCK, *FIRST[:2], "FLAC", FIRST[2])
    with (
        ClipReader(str(path), info, name="clip") as clip,
        pytest.raises(UnreadableAudio, match=f"at frame {20 * BLOCK};"),
    ):
        clip.read(0, info.frames)


def test_same_parameters_again_are_no_change():
    data = renumbered(encode(8 * BLOCK), encode(5 * BLOCK, seed=1))
    assert change_in(data) is None
    assert decode(data, probe(data)) == 13 * BLOCK


def test_files_joined_without_new_numbers_are_out_of_order():
    data = joined(encode(8 * BLOCK), encode(BLOCK, seed=1), frames=9 * BLOCK)
    assert change_in(data) is None
    with pytest.raises(UnreadableAudio, match="FLAC frame 0 follows, where 8 should"):
        decode(data)


@pytest.mark.parametrize("subtype", BITS)
@pytest.mark.parametrize("rate", [8000, 12345, 16000, 44100, 655350])
@pytest.mark.parametrize("channels", [1, 2, 8])
def test_noise_is_no_change(rate, channels, subtype):
    data = encode(100_000, rate, channels, subtype, loudness=1.0)
    assert change_in(data) is None
    assert decode(data, probe(data)) == 100_000


def disagreeing(data, stream):
    return [b for b in flac.find_blocks(data, stream) if not flac.agrees(b[1], stream)]


def test_samples_that_are_another_flac_file_are_no_change():
    inner = encode(400_000, 8000, 1, "PCM_S8", loudness=0.02)
    samples = np.frombuffer(inner, np.int8).astype(np.int16) << 8
    file = io.BytesIO()
    soundfile.write(file, samples, 16000, format="FLAC", subtype="PCM_S8")
    data = file.getvalue()
    stream = flac.read_stream_info(io.BytesIO(data))
    blocks = disagreeing(data, stream)
    assert len(blocks) > 50  # noise is stored without compression
    assert any(
        _decodes(flac.lone_block(file, offset, header, stream), header.frames)
        for offset, header in blocks
    )
    assert change_in(data) is None
    assert decode(data, probe(data)) == len(inner)
    whole = joined(data, encode(100, 8000, 1, "PCM_S8"), frames=len(inner) + 100)
    with pytest.raises(UnreadableAudio, match=f"8000 Hz at frame {len(inner)};"):
        probe(whole)


def with_blocks(data, *blocks):
    """Returns the file with metadata blocks, (type, content), after its first."""
    extra = b"".join(
        bytes([kind]) + len(content).to_bytes(3, "big") + content
        for kind, content in blocks
    )
    return data[:42] + extra + data[42:]


def id3(content):
    size = len(content)
    return b"ID3\3\0\0" + bytes(size >> 7 * i & 127 for i in (3, 2, 1, 0)) + content


@pytest.mark.parametrize("tags", [0, 1])
def test_tags_and_pictures_that_hold_blocks_are_no_change(tags):
    other = encode(30_000, 8000, 2)
    data = with_blocks(encode(20_000), (2, b"test" + other), (1, other))
    data = id3(other) * tags + data
    assert change_in(data) is None
    assert decode(data, probe(data)) == 20_000
    start = len(id3(other)) * tags
    both = data[:start] + declare(data[start:], 50_000) + other[first_block(other) :]
    with pytest.raises(UnreadableAudio, match="at frame 20000;"):
        probe(both)


@pytest.mark.parametrize("step", [1, 5, 1000, 1 << 21])
def test_search_finds_headers_however_they_are_read(step):
    other = encode(5 * BLOCK, 8000)
    data = with_blocks(encode(BLOCK), (2, b"test" + other))
    stream = flac.read_stream_info(io.BytesIO(data))
    data += other[first_block(other) :]
    wanted = [
        (at, header)
        for at, header in disagreeing(data, stream)
        if at >= stream.first_block  # without those in the metadata
    ]
    assert len(wanted) == 5
    search = flac.BlockSearch(stream)
    found = []
    for start in range(0, len(data), step):
        search.add(start, data[start : start + step])
        if start // step % 7 == 0:
            found += search.take()
    assert list(dict.fromkeys(found + search.take())) == wanted


def test_search_does_not_join_bytes_across_a_seek():
    data = encode(BLOCK, 8000)
    stream = replace(flac.read_stream_info(io.BytesIO(data)), sample_rate_hz=16000)
    at = stream.first_block
    search = flac.BlockSearch(stream)
    search.add(0, data[: at + 3])
    search.add(at + 100, data[at + 3 :])
    assert search.take() == []
    search.add(at, data[at:])
    assert [offset for offset, _ in search.take()] == [at]


def test_samples_that_look_like_a_block_of_the_same_stream():
    def header(number):
        return 0, flac.BlockHeader(16000, 1, 16, BLOCK, number, number + 1)

    assert flac._was_samples([header(4), header(77)], header(5)[1])
    assert not flac._was_samples([header(4), header(5)], header(6)[1])
    assert not flac._was_samples([header(4), header(5)], header(0)[1])
    assert not flac._was_samples([header(4), header(0)], header(1)[1])
    assert not flac._was_samples([header(4)], header(5)[1])


def test_metadata_without_end_is_no_stream():
    data = encode(100)
    assert flac.read_stream_info(io.BytesIO(data[:40])) is None
    assert flac.read_stream_info(io.BytesIO(data[:42])) is None
    assert flac.read_stream_info(io.BytesIO(b"RIFF")) is None
    assert flac.read_stream_info(io.BytesIO(data)) == flac.StreamInfo(
        16000, 1, 16, 100, first_block(data)
    )


def test_headers_of_a_stream_follow_each_other():
    data = encode(100_000, 44100, 2)
    file = io.BytesIO(data)
    stream = flac.read_stream_info(file)
    headers = [header for _, header in flac._block_headers(file, stream)]
    assert all(flac.agrees(header, stream) for header in headers)
    assert sum(header.frames for header in headers) == 100_000
    assert all(a.next_number == b.number for a, b in pairwise(headers))


@given(st.integers(0, 15), st.integers(0, 127))
@settings(max_examples=200, deadline=None)
def test_damaged_header_is_none(byte, flip):
    data = encode(5000)
    stream = flac.read_stream_info(io.BytesIO(data))
    block = bytearray(data[stream.first_block :][:16])
    whole = flac.parse_block_header(bytes(block), stream)
    assert whole == flac.BlockHeader(16000, 1, 16, 4096, 0, 1)
    length = next(
        n for n in range(17) if flac.parse_block_header(bytes(block[:n]), stream)
    )
    block[byte] ^= flip
    damaged = flac.parse_block_header(bytes(block), stream)
    assert damaged == (whole if byte >= length or not flip else None)


@pytest.mark.parametrize("number", [0, 0x7F, 0x80, 0x7FF, 0x800, 0xFFFF, 1 << 16])
def test_coded_number_is_utf_8(number):
    coded = chr(number).encode(errors="surrogatepass")
    data = bytes(4) + coded + bytes(8)
    assert flac._coded_number(data) == (number, 4 + len(coded))


def test_longest_coded_number():
    data = bytes(4) + b"\xfe" + b"\xbf" * 6
    assert flac._coded_number(data) == ((1 << 36) - 1, 11)
    assert flac._coded_number(data[:-1]) == (0, 0)
    assert flac._coded_number(bytes(4) + b"\xff" * 8) == (0, 0)
    assert flac._coded_number(bytes(4) + b"\x80" * 8) == (0, 0)


@pytest.mark.skipif(TOOL is None, reason="the tool flac is not installed")
@pytest.mark.parametrize(
    "options",
    [
        ["-0"],
        ["-8", "-b", "192"],
        ["-b", "16", "--lax"],
        ["-5", "-b", "65535", "--lax"],
        ["--picture=PICTURE"],
        ["--no-padding", "--no-seektable"],
        ["--disable-fixed-subframes", "--disable-constant-subframes", "-l", "0"],
    ],
)
def test_files_of_the_reference_encoder(options, tmp_path):
    picture = tmp_path / "picture.gif"
    picture.write_bytes(encode(9000, 8000))
    wav, path = tmp_path / "a.wav", tmp_path / "a.flac"
    noise = np.random.default_rng(0).uniform(-1, 1, (100_000, 2))
    soundfile.write(wav, noise, 44100)
    options = [o.replace("PICTURE", f"3|image/gif||8x8x8|{picture}") for o in options]
    subprocess.run([TOOL, "-s", *options, str(wav), "-o", str(path)], check=True)
    data = path.read_bytes()
    assert change_in(data) is None
    assert decode(data, probe(data)) == 100_000
    other = encode(5000, 44100, 1)
    fields_at = data.index(b"fLaC")
    assert fields_at == 0
    both = declare(data, 105_000) + other[first_block(other) :]
    with pytest.raises(UnreadableAudio, match="from 2 to 1 at frame 100000;"):
        probe(both)


@pytest.mark.skipif(not CORPORA, reason="AUDIO_CORPORA does not name a folder")
def test_real_files_do_not_change():
    paths = sorted(Path(CORPORA).rglob("*.flac"))
    assert paths
    for path in paths:
        data = path.read_bytes()
        assert change_in(data) is None
        decode(data, probe(data, allow_truncated=True))


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
@pytest.mark.parametrize(("rate", "channels"), [(8000, 1), (16000, 2), (16000, 1)])
def test_chained_ogg_is_refused(rate, channels, subtype):
    def ogg(*args, seed):
        samples = np.random.default_rng(seed).uniform(-0.5, 0.5, (30_000, args[1]))
        file = io.BytesIO()
        soundfile.write(file, samples, args[0], format="OGG", subtype=subtype)
        return bytearray(file.getvalue())

    first, second = ogg(16000, 1, seed=0), ogg(rate, channels, seed=1)
    assert first[14:18] != second[14:18]
    assert probe(bytes(first)).frames == 30_000
    match = rf"several Ogg streams .* the second begins at byte {len(first)};"
    with pytest.raises(UnreadableAudio, match=match):
        probe(bytes(first + second))


@pytest.mark.parametrize("back", [False, True])
def test_run_rejects_a_file_that_changes(tmp_path, back):
    sounds = tmp_path / "in" / "cat"
    sounds.mkdir(parents=True)
    (sounds / "good.flac").write_bytes(encode(32_000))
    parts = [encode(20 * BLOCK), encode(5 * BLOCK, 8000, seed=1)]
    parts += [encode(20 * BLOCK, seed=2)] * back
    (sounds / "bad.flac").write_bytes(renumbered(*parts))
    out = tmp_path / "out"
    metadata = record(
        str(tmp_path / "in"), str(out), win_len=16000, num_shards=1, max_rejected=1
    )
    (line,) = map(json.loads, (out / "rejected.jsonl").read_text().splitlines())
    assert metadata.rejected == 1
    assert (line["path"], line["error"]) == ("cat/bad.flac", "UnreadableAudio")
    # A seek to the last block may or may not find a change in the middle.
    assert line["stage"] in (("probe", "decode") if back else ("probe",))
    change = "changes its sample rate from 16000 to 8000 Hz at frame 81920"
    assert line["reason"].startswith(change)


def block_offsets(data):
    stream = flac.read_stream_info(io.BytesIO(data))
    found = flac.find_blocks(data[stream.first_block :], stream)
    return [stream.first_block + at for at, _ in found] + [len(data)]


@pytest.mark.parametrize("edit", ["left out", "doubled", "swapped"])
@pytest.mark.parametrize("at", [1, 5])
def test_block_that_is_out_of_order_is_named(edit, at):
    """libFLAC fills the gap with silence, or gives a block twice, without an error."""
    data = encode(8 * BLOCK)
    offsets = block_offsets(data)
    assert len(offsets) == 9
    blocks = [data[a:b] for a, b in pairwise(offsets)]
    if edit == "left out":
        del blocks[at]
    elif edit == "doubled":
        blocks.insert(at, blocks[at])
    else:
        blocks[at], blocks[at + 1] = blocks[at + 1], blocks[at]
    edited = data[: offsets[0]] + b"".join(blocks)
    match = "FLAC frame . follows, where . should"
    with pytest.raises(UnreadableAudio, match=match):
        decode(edited, AudioInfo(8 * BLOCK, 16000, 1, "FLAC", "PCM_16"))


def test_blocks_are_in_order_after_a_seek():
    data = encode(40 * BLOCK)
    info = probe(data)
    with ClipReader(io.BytesIO(data), info, name="clip") as clip:
        for start in (3 * BLOCK, 17 * BLOCK + 5, 39 * BLOCK):
            clip.read(start, start + 100)
