"""What a file holds, and a clip as a stream of float32 frames.

The probe chooses the decoder. By default, libsndfile decodes all that it reads right,
and ffmpeg the rest. A recipe may prefer ffmpeg, or allow only one of them. Never does
what is installed decide. The length of a file is that of its header if the header can
be trusted.

The reader mixes or picks channels, and soxr resamples. Frames are always read forward
and in blocks, so memory does not grow with the length of a file.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, BinaryIO, TypeVar

import numpy as np
import soxr

from beam_pipeline.audio import formats
from beam_pipeline.audio.decoder import (
    SAMPLE_BYTES,
    SEEK_GAP,
    UNKNOWN_FRAMES,
    AudioInfo,
    AvDecoder,
    Decoder,
    ForwardDecoder,
    LoadedDecoder,
    Loader,
    Source,
    check_finite,
    has_exact_length,
    opened,
)
from beam_pipeline.errors import ClipError, EmptyAudio, TruncatedAudio, UnreadableAudio

# No codec packs more frames into one byte of a file (digital silence in FLAC has 5
# thousand). A header that claims more is not trusted; for an unknown length, it claims
# 2**63 - 1.
_FRAMES_PER_BYTE = 1 << 16
# Frames; precision with which the end of a cut file is found. MP3 frames have once or
# twice as many.
_CUT_BLOCK = {"MP3": 576, "FLAC": 1 << 12}
# Bytes and frames. libsndfile decodes the byte that fills up an odd number of bytes as
# one block more, of noise.
_GSM_BLOCK = (65, 320)
# Encoders count their delay, and decoders of WMA leave out the last block (128 ms).
_LENGTH_TOLERANCE_S = 0.25
_LONGEST_FLAC_BLOCK = (1 << 16) - 1  # frames
# Of two rates: for a thousand times more, the filter of soxr takes hours.
_MOST_RATIO = 1 << 16


def ffmpeg_container(
    file: BinaryIO, name: str, decoders: Sequence[str] = formats.DECODERS
) -> str | None:
    """Returns the container of a file that ffmpeg decodes; None: libsndfile does.

    Parameters
    ----------
    file
        Open, seekable and binary. The position changes.
    name
        Name of the file in errors.
    decoders
        The decoders that may be used, the preferred one first.

    Raises
    ------
    UnreadableAudio
        The file cannot be read; only ffmpeg may be used, and it has not been tested
        with this container; or only libsndfile may be used, and it would read noise.
    """
    with formats.naming_reads(name):
        container, is_foreign = formats.find_container(file)
    if formats.PYAV not in decoders:
        if is_foreign and container == "caf":
            raise UnreadableAudio(
                name,
                "libsndfile reads Apple Lossless of 20 or 32 bits wrongly; add pyav to "
                "`decoder`",
            )
        return None
    if decoders[0] == formats.SOUNDFILE:
        return container if is_foreign else None
    if formats.SOUNDFILE not in decoders:
        if container is None:
            raise UnreadableAudio(
                name,
                "not readable as audio: `decoder` pyav does not read its container, "
                f"only {', '.join(formats.DEMUXERS)}; add soundfile",
            )
        return container
    if container is None or not formats.is_installed():
        return container  # what is installed does not choose: it is rejected
    try:
        AvDecoder(file, name, container).close()
    except UnreadableAudio:
        if not is_foreign:
            return None
    return container


def open_decoder(
    file: BinaryIO,
    name: str,
    probed: AudioInfo | None = None,
    decoders: Sequence[str] = formats.DECODERS,
) -> ForwardDecoder:
    """Returns the decoder of an open file, which stays open.

    Parameters
    ----------
    probed
        What a probe found, or what a table lists, which has no format.
    decoders
        See :func:`ffmpeg_container`. A probe has chosen already.

    Raises
    ------
    UnreadableAudio
        No decoder opens the file, or it is not what was probed or listed.
    """
    if probed is None or not probed.format:
        container = ffmpeg_container(file, name, decoders)
    else:
        container = probed.format if probed.format in formats.DEMUXERS else None
    if probed is not None and not probed.format:
        formats.inspect(file, name)  # no probe has read the file
    if container is None:
        return Decoder(file, name, probed)
    return AvDecoder(file, name, container, probed)


def probe_audio(
    source: Source,
    *,
    name: str,
    allow_truncated: bool = False,
    allow_nonfinite: bool = False,
    decoders: Sequence[str] = formats.DECODERS,
) -> AudioInfo:
    """Finds out what a file holds, from its header if the header can be trusted.

    What the header declares is compared with what is there:

    - PCM containers: the declared bytes, and those that are present.
    - FLAC: the last declared frame is decoded, and what follows it. A file that holds
      more than it declares is as long as what it holds.
    - Ogg: the last page must be flagged as the last one, and must belong to a stream
      that begins at the start of the file.
    - Other files (MP3, whose header is an estimate; ADPCM; unknown lengths) are decoded
      once to count their frames.
    - Files that ffmpeg decodes are decoded once, too.

    Samples stored as floats are searched for NaN and infinity. The probe does not find
    damage in the middle of a file; decoding does, as far as the format allows.

    Parameters
    ----------
    source
        Local path, or open seekable binary file, which stays open.
    name
        Name of the file in errors.
    allow_truncated
        Whether to accept a file that ends early, with the frames that are present.
    allow_nonfinite
        Whether to accept NaN and infinite samples.
    decoders
        See :func:`ffmpeg_container`.

    Raises
    ------
    UnreadableAudio
        The file cannot be read, is not audio, or cannot be decoded.
    EmptyAudio
        The file holds no frames.
    TruncatedAudio
        The file declares more frames than it holds.
    NonFiniteAudio
        The file holds samples that are NaN or infinite as float32.
    """
    with opened(source, name) as file:
        container = ffmpeg_container(file, name, decoders)
        probe = _Probe(file, name, allow_truncated, allow_nonfinite)
        if container is None:
            info = probe.with_libsndfile()
        else:
            info = probe.with_ffmpeg(container)
    with adding_length(info):
        if info.frames == 0:
            raise EmptyAudio(name, "holds no frames")
    return info


@contextlib.contextmanager
def adding_length(info: AudioInfo, is_known: bool = True) -> Iterator[None]:
    """Adds the length of a file to a ClipError from the ``with`` block."""
    try:
        yield
    except ClipError as error:
        if is_known and error.seconds is None and info.frames < UNKNOWN_FRAMES:
            error.seconds = info.frames / max(info.sample_rate_hz, 1)
        raise


def check_output(
    info: AudioInfo, channels: str | int, to_hz: int | None = None, *, name: str
) -> None:
    """Checks that a file has a channel, and can be resampled to a rate.

    Raises
    ------
    ValueError
        ``channels`` is not ``"mix"``, ``"keep"`` or an integer from 0.
    UnreadableAudio
        ``channels`` is the number of a channel that the file does not have, or the
        rates differ so much that soxr would take hours.
    """
    rates = info.sample_rate_hz, to_hz or info.sample_rate_hz
    if max(rates) > _MOST_RATIO * min(rates):
        raise UnreadableAudio(
            name,
            f"cannot be resampled from {rates[0]} to {rates[1]} Hz: one rate may be at "
            f"most {_MOST_RATIO} times the other; give another `sample_rate`",
        )
    if isinstance(channels, int) and channels >= info.channels:
        raise UnreadableAudio(
            name,
            f"has {info.channels} channels, and no channel {channels} (the first "
            "channel is 0)",
        )


@dataclass
class _Probe:
    """A file that is probed, and what is accepted of it.

    ``cut`` says how it ends early, if it does.
    """

    file: BinaryIO
    name: str
    allow_truncated: bool
    allow_nonfinite: bool

    def __post_init__(self) -> None:
        self.cut, self.data = formats.inspect(self.file, self.name)

    def check_whole(self) -> None:
        if self.cut is not None and not self.allow_truncated:
            raise TruncatedAudio(
                self.name,
                f"ends early: {self.cut}; --allow-truncated (allow_truncated=True) "
                "accepts such files",
            )

    def with_ffmpeg(self, container: str) -> AudioInfo:
        """Returns what the file holds; decodes it once.

        It ends early if its last packet is not complete, or if it lacks more than
        0.25 s of the length that its container declares.
        """
        data = self.data
        if self.cut is None and data is not None and data.declared > data.present:
            self.cut = data.lack
        with AvDecoder(self.file, self.name, container) as decoder:
            try:
                _count_frames(decoder, finite=not self.allow_nonfinite)
            except UnreadableAudio as error:
                if not decoder.is_cut:
                    raise
                self.cut = self.cut or error.reason
            info = replace(decoder.info, frames=decoder.position)
            declared_s = decoder.declared_s
        seconds = info.frames / info.sample_rate_hz
        # FLAC declares its frames, and half of one is for the rounding of seconds.
        tolerance_s = _LENGTH_TOLERANCE_S
        if info.format in formats.COMMON:
            tolerance_s = 0.5 / info.sample_rate_hz
        if declared_s is not None and seconds < declared_s - tolerance_s:
            self.cut = self.cut or (
                f"it declares {declared_s:g} s of sound, but {seconds:g} s are decoded"
            )
        self.check_whole()
        return info

    def with_libsndfile(self) -> AudioInfo:
        """Returns what the file holds, if libsndfile opens it."""
        with self._decoder() as decoder:
            info = decoder.info
        most = self.file.seek(0, os.SEEK_END) * _FRAMES_PER_BYTE
        is_known = has_exact_length(info) and info.frames <= most
        data = self.data
        frame_bytes = SAMPLE_BYTES.get(info.subtype, 0) * info.channels or 1
        # A frame, or a byte of a codec's data, is missing.
        if data and data.declared // frame_bytes > data.present // frame_bytes:
            self.cut = f"{data.lack} ({info.frames} frames)"
        elif self.cut is not None and info.format == "MP3":
            info, is_known = self._counted_until_error(info), True
        elif info.format == "FLAC" and 0 < info.frames < UNKNOWN_FRAMES:
            declared, info = info.frames, self._end_of_flac(info)
            is_known = True
            if info.frames < declared:
                self.cut = (
                    f"its header declares {declared} frames, but {info.frames} can be "
                    "decoded"
                )
        with adding_length(info, is_known):
            self.check_whole()
            floats = info.subtype in ("FLOAT", "DOUBLE") and not self.allow_nonfinite
            if floats or not is_known:
                with self._decoder() as decoder:
                    info = replace(info, frames=_count_frames(decoder, finite=floats))
        return info if data is None else _without_more(data, info)

    def _decoder(self, flac_frames: int | None = None) -> Decoder:
        return Decoder(self.file, self.name, flac_frames=flac_frames)

    def _end_of_flac(self, info: AudioInfo) -> AudioInfo:
        """Returns what a FLAC file holds that declares a number of frames.

        Raises ``UnreadableAudio`` if a second stream follows the first.
        """
        beyond = info.frames + _LONGEST_FLAC_BLOCK
        with self._decoder(beyond) as decoder, _until_damage():
            decoder.seek(info.frames - 1)
            decoder.read_into(decoder.scratch)
        if decoder.position == info.frames:
            return info
        if decoder.position > info.frames:
            with self._decoder(0) as decoder:
                return replace(info, frames=_count_frames(decoder, finite=False))
        second = formats.find_second_flac(self.file)
        if second is not None:
            raise UnreadableAudio(
                self.name,
                "holds several FLAC streams in sequence, but only the first would be "
                f"read; the second begins at byte {second}; split the file",
            )
        return self._counted_until_error(info)

    def _counted_until_error(self, info: AudioInfo) -> AudioInfo:
        """Returns the frames that decode before the first error, in whole blocks."""
        with self._decoder() as decoder, _until_damage():
            block = decoder.scratch[: _CUT_BLOCK[info.format]]
            while decoder.position < info.frames:
                decoder.fill(block[: info.frames - decoder.position])
        return replace(info, frames=decoder.position)


@contextlib.contextmanager
def _until_damage() -> Iterator[None]:
    """Ends the ``with`` block where nothing more can be decoded, with the position."""
    try:
        yield
    except UnreadableAudio as error:
        if isinstance(error.__cause__, OSError):
            raise


def _without_more(data: formats.DataSize, info: AudioInfo) -> AudioInfo:
    """Leaves out frames that libsndfile reads beyond the end of the samples."""
    if (info.format, info.subtype) == ("WAV", "GSM610"):
        block_bytes, block_frames = _GSM_BLOCK
    elif info.subtype in SAMPLE_BYTES:
        block_bytes, block_frames = SAMPLE_BYTES[info.subtype] * info.channels, 1
    else:
        return info
    most = data.declared // block_bytes * block_frames
    return replace(info, frames=min(info.frames, most))


def _count_frames(decoder: ForwardDecoder, *, finite: bool) -> int:
    """Counts the frames; if ``finite``, raises ``NonFiniteAudio`` for other samples."""
    for block in decoder.blocks():
        if finite:
            check_finite(block, decoder.position - len(block), decoder.name)
    return decoder.position


_RESAMPLE_BLOCK = 1 << 14  # frames at the higher of the two rates

# Up to this number, soxr repeats its filter phases exactly. Beyond it, soxr
# interpolates between phases and its clock drifts, so that a stream that starts later
# differs.
_EXACT_PHASES = 2048
_PRE_ROLL = 256  # frames of the lower rate; see resample_start


def output_frames(frames: int, sample_rate_hz: int, to_hz: int | None) -> int:
    """Returns the number of frames of a whole clip after resampling.

    Computes ``floor(frames / (sample_rate_hz / to_hz) + 1/2)`` in double precision, as
    soxr does. With the exact ratio, some clips that end half way between two output
    frames would differ by one (2 853 360 frames from 48000 to 44100 Hz give 2 621 524).

    Examples
    --------
    >>> output_frames(44100, 44100, 16000)
    16000
    >>> output_frames(44100, 44100, None)
    44100
    """
    if to_hz is None or to_hz == sample_rate_hz:
        return frames
    return int(frames / (sample_rate_hz / to_hz) + 0.5)


def resample_start(first: int, from_hz: int, to_hz: int) -> tuple[int, int]:
    """Returns where to start resampling to obtain output frame ``first``.

    Parameters
    ----------
    first
        First output frame to read.
    from_hz, to_hz
        The native rate and the output rate.

    Returns
    -------
    input_frame, output_frame : int
        Frames of equal time, multiples of ``from_hz / gcd`` and of ``to_hz / gcd``, so
        that a new stream has the phases of one that started at 0. They are at least
        256 frames of the lower rate before ``first``, or 0.

    Notes
    -----
    A new soxr HQ stream that starts in the middle of white noise at full scale
    differs from the whole clip by more than 1e-5 for 73 to 91 frames of the lower
    rate, and by more than 1e-6 for at most 95 (17 ratios from 1/31 to 48); 256
    leaves a margin. Rates that need more than 2048 filter phases start at 0, because
    soxr's clock drifts with them.
    """
    common = gcd(from_hz, to_hz)
    from_step, to_step = from_hz // common, to_hz // common
    if to_step > _EXACT_PHASES:
        return 0, 0
    pre_roll = -(-_PRE_ROLL * max(from_step, to_step) // to_step)
    steps = max(0, (first * from_step // to_step - pre_roll) // from_step)
    return steps * from_step, steps * to_step


class ClipReader:
    """Reads ranges of one clip, forward, at the output rate.

    Memory holds at most twice the range and a few blocks. Two readers return the same
    bytes for the same sequence of reads. Without resampling, samples do not depend on
    how they are cut into ranges.

    Parameters
    ----------
    source
        Local path, or open seekable binary file, which stays open.
    info
        Result of :func:`probe_audio` for the file.
    name
        Name of the file in errors.
    sample_rate_hz
        Output rate; ``None`` keeps the native one.
    channels
        ``"mix"``: mean of the channels; ``"keep"``: all; ``k``: channel k, from 0.
    decoders
        See :func:`ffmpeg_container`.
    loader
        Reads the file in place of a decoder.

    Raises
    ------
    UnreadableAudio
        The file does not open, has changed since the probe, or lacks the channel.
    """

    def __init__(
        self,
        source: Source,
        info: AudioInfo,
        *,
        name: str,
        sample_rate_hz: int | None = None,
        channels: str | int = "mix",
        decoders: Sequence[str] = formats.DECODERS,
        loader: Loader | None = None,
    ) -> None:
        check_output(info, channels, sample_rate_hz, name=name)
        to_hz = sample_rate_hz or info.sample_rate_hz
        self._keeps_channels = channels == "keep"
        self._rows = info.channels if self._keeps_channels else 1
        with contextlib.ExitStack() as stack:
            decoder: ForwardDecoder
            if loader is not None:
                decoder = LoadedDecoder(source, name, loader, info)
            else:
                file = stack.enter_context(opened(source, name))
                decoder = open_decoder(file, name, info, decoders)
            stack.enter_context(decoder)
            self._resources = stack.pop_all()
        native = _NativeFrames(decoder, channels)
        self._signal: _NativeFrames | _ResampledFrames = native
        if to_hz != info.sample_rate_hz:
            self._signal = _ResampledFrames(native, info, to_hz, self._rows)
        self._start = 0  # of the last range
        self._stop = 0  # of the frames decoded so far
        self._last = np.empty((self._rows, 0), np.float32)  # ends at self._stop

    def read(self, start: int, stop: int) -> np.ndarray:
        """Returns frames ``start`` to ``stop`` at the output rate.

        Parameters
        ----------
        start, stop
            ``start`` must not be less than in the read before, and ``stop`` not more
            than `output_frames`. Ranges may overlap or leave gaps.

        Returns
        -------
        np.ndarray, shape=(stop - start,) or (channels, stop - start), dtype=float32
            Samples as libsndfile scales them, in [-1, 1]. The array is read-only,
            because the next range may overlap. Two dimensions for ``channels="keep"``.

        Raises
        ------
        UnreadableAudio
            Decoding fails or ends before ``stop``; the reason names the frame.
        """
        out = np.empty((self._rows, stop - start), np.float32)
        self._start = start
        known = max(0, min(stop, self._stop) - start)
        if known:
            first = self._last.shape[1] - (self._stop - start)
            out[:, :known] = self._last[:, first : first + known]
        if stop > max(start, self._stop):
            self._signal.read_into(start + known, out[:, known:])
            # The next range may begin anywhere in this one.
            self._last = out
            self._stop = stop
        out.flags.writeable = False
        return out if self._keeps_channels else out[0]

    def close(self) -> None:
        """Closes the decoder and the local file; a file object stays open."""
        self._resources.close()

    def __enter__(self) -> ClipReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _NativeFrames:
    """Frames at the native rate, with the channels mixed or picked."""

    def __init__(self, decoder: ForwardDecoder, channels: str | int) -> None:
        self._decoder = decoder
        self._channels = channels

    def read_into(self, first: int, out: np.ndarray) -> None:
        """Fills ``out``, shape (rows, frames), with the frames from ``first``."""
        self._decoder.skip_to(first)
        if self._decoder.info.channels == 1:
            self._decoder.fill(out[0])
            return
        done = 0
        while done < out.shape[1]:
            block = self._decoder.scratch[: out.shape[1] - done]
            self._decoder.fill(block)
            self._combine(block, out[:, done : done + len(block)])
            done += len(block)

    def _combine(self, block: np.ndarray, out: np.ndarray) -> None:
        if isinstance(self._channels, int):
            out[0] = block[:, self._channels]
        elif self._channels == "keep":
            out[:] = block.T
        else:
            # By column, because numpy's mean over a short last axis is 10 times slower.
            np.add(block[:, 0], block[:, 1], out=out[0])
            for channel in range(2, block.shape[1]):
                out[0] += block[:, channel]
            out[0] /= np.float32(block.shape[1])


class _ResampledFrames:
    """Frames at another rate, within 1e-6 of what soxr makes of the whole clip."""

    def __init__(
        self, native: _NativeFrames, info: AudioInfo, to_hz: int, rows: int
    ) -> None:
        self._native = native
        self._frames = info.frames
        self._rates = info.sample_rate_hz, to_hz
        self._rows = rows
        self._block = max(1, _RESAMPLE_BLOCK * info.sample_rate_hz // max(self._rates))
        self._stream: Any = None
        self._next_input = 0
        self._first_ready = 0  # number of the first output frame in self._ready
        self._ready = np.empty((0, rows), np.float32)

    def read_into(self, first: int, out: np.ndarray) -> None:
        """Fills ``out``, shape (rows, frames), with the frames from ``first``."""
        input_frame, output_frame = resample_start(first, *self._rates)
        if self._stream is None or input_frame > self._next_input + SEEK_GAP:
            self._stream = soxr.ResampleStream(*self._rates, self._rows, "float32")
            self._next_input, self._first_ready = input_frame, output_frame
            self._ready = self._ready[:0]
        done = 0
        while True:
            drop = min(len(self._ready), first + done - self._first_ready)
            taken = self._ready[drop : drop + out.shape[1] - done]
            out[:, done : done + len(taken)] = taken.T
            done += len(taken)
            self._first_ready += drop + len(taken)
            self._ready = self._ready[drop + len(taken) :]
            if done == out.shape[1]:
                return
            self._ready = self._resample_block()

    def _resample_block(self) -> np.ndarray:
        count = min(self._block, self._frames - self._next_input)
        assert count > 0, "a clip yielded fewer frames than output_frames"
        last = self._next_input + count == self._frames
        # soxr flushes with silence and rounds the length itself. Additional silence
        # before the flush ensures that the last frame is returned for every start.
        silence = -(-self._rates[0] // self._rates[1]) if last else 0
        block = np.zeros((self._rows, count + silence), np.float32)
        self._native.read_into(self._next_input, block[:, :count])
        self._next_input += count
        resampled: np.ndarray = self._stream.resample_chunk(
            np.ascontiguousarray(block.T), last
        )
        return resampled


_T = TypeVar("_T")
