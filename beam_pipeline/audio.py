"""Audio files in, float32 frames out: probe, channels, resampling, streaming.

The only module that knows libsndfile and soxr. Whatever the source is, frames are
read forward and in blocks, so memory does not grow with the length of a file.
"""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from math import gcd
from typing import Any, BinaryIO, TypeVar

import numpy as np
import soundfile
import soxr

from beam_pipeline.containers import DataSize, find_data_size, ogg_ends_properly
from beam_pipeline.errors import (
    EmptyAudio,
    NonFiniteAudio,
    TruncatedAudio,
    UnreadableAudio,
)

_T = TypeVar("_T")

Source = str | BinaryIO
"""A local path, or an open seekable binary file (remote stores)."""

# Subtypes that store every sample in the same number of bytes.
_SAMPLE_BYTES = {
    "PCM_S8": 1,
    "PCM_U8": 1,
    "PCM_16": 2,
    "PCM_24": 3,
    "PCM_32": 4,
    "FLOAT": 4,
    "DOUBLE": 8,
    "ULAW": 1,
    "ALAW": 1,
}
_PCM_FORMATS = {"WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "CAF", "NIST"}

# No codec packs more frames into a byte of file than this (digital silence in FLAC
# comes to 5 thousand): a header that claims more, as one of unknown length does
# with its 2**63 - 1, is not believed.
_FRAMES_PER_BYTE = 1 << 16

_UNKNOWN_FRAMES = 1 << 62

_INT16_SCALE = np.float32(1 / 32768)
_RAW_SAMPLES = 1 << 15
_BLOCK_SAMPLES = 1 << 17  # of all channels; 512 KiB of float32
_RESAMPLE_BLOCK = 1 << 14  # frames at the higher of the two rates
_CUT_BLOCK = 1 << 12  # frames; how closely the end of a cut FLAC file is found
_SEEK_GAP = 1 << 14  # frames; shorter gaps are read and dropped

# soxr repeats its filter phases exactly up to this many; beyond it interpolates
# between them and its clock drifts, so that a stream which starts later differs.
_EXACT_PHASES = 2048
_PRE_ROLL = 256  # frames of the lower rate; see resample_start


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """What the probe found out about a file.

    Attributes
    ----------
    frames
        Frames that really decode, at the native rate.
    sample_rate_hz
        Native rate.
    channels
        Number of channels.
    format, subtype
        libsndfile's names, such as ``"WAV"`` and ``"PCM_16"``.
    """

    frames: int
    sample_rate_hz: int
    channels: int
    format: str
    subtype: str


def probe_audio(
    source: Source,
    *,
    name: str,
    allow_truncated: bool = False,
    allow_nonfinite: bool = False,
) -> AudioInfo:
    """Find out what a file holds, from its header wherever that can be trusted.

    PCM containers: the declared size is compared with the bytes present. FLAC: the
    last frame is decoded. Ogg: the last page must say that it is the last. All
    else (MP3, whose header is an estimate; ADPCM; unknown lengths) is decoded once
    to count its frames. Samples stored as floats are searched for NaN and infinity.
    Damage in the middle of a file is found when it is decoded.

    Parameters
    ----------
    source
        Local path, or open seekable binary file, which is not closed.
    name
        What errors call the file.
    allow_truncated
        Accept a file that ends early, with the frames that are there.
    allow_nonfinite
        Accept NaN and infinite samples.

    Raises
    ------
    UnreadableAudio
        The file cannot be read, is not audio, or fails to decode.
    EmptyAudio
        It holds no frames.
    TruncatedAudio
        It declares more frames than it holds.
    NonFiniteAudio
        It holds NaN or infinite samples, as float32.
    """
    with _opened(source, name) as file:
        info, file_bytes, cut = _read_header(file, name)
        if cut is not None and not allow_truncated:
            raise TruncatedAudio(name, f"ends early: {cut}")
        floats = info.subtype in ("FLOAT", "DOUBLE") and not allow_nonfinite
        if floats or not _has_known_length(info, file_bytes):
            with _Decoder(file, name) as decoder:
                info = replace(info, frames=_count_frames(decoder, finite=floats))
    if info.frames == 0:
        raise EmptyAudio(name, "holds no frames")
    return info


def check_channel(info: AudioInfo, channels: str | int, *, name: str) -> None:
    """Raise ``UnreadableAudio`` if ``channels`` names one that the file lacks.

    Raises
    ------
    ValueError
        ``channels`` is not ``"mix"``, ``"keep"`` or a number from 0.
    UnreadableAudio
        It is a number and the file has no such channel.
    """
    if channels in ("mix", "keep"):
        return
    if not isinstance(channels, int) or channels < 0:
        raise ValueError(
            f"channels must be 'mix', 'keep' or a number from 0; got {channels!r}"
        )
    if channels >= info.channels:
        raise UnreadableAudio(
            name,
            f"has {info.channels} channels, channel {channels} was asked for "
            "(the first is 0)",
        )


def output_frames(frames: int, sample_rate_hz: int, to_hz: int | None) -> int:
    """Number of frames that resampling makes of a whole clip.

    ``floor(frames / (sample_rate_hz / to_hz) + 1/2)`` in double precision: the
    exact ratio would be one off from soxr for some clips that end half way between
    two output frames (2 853 360 frames from 48000 to 44100 Hz give 2 621 524).

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
    """Where to start resampling so that output frame ``first`` comes out right.

    Parameters
    ----------
    first
        First output frame that is wanted.
    from_hz, to_hz
        The two rates.

    Returns
    -------
    input_frame, output_frame : int
        A place where both grids meet, a multiple of ``from_hz / gcd`` and of
        ``to_hz / gcd``, so that a fresh stream has the phases of one that started
        at 0. It lies at least 256 frames of the lower rate before ``first`` or at 0.

    Notes
    -----
    A fresh soxr HQ stream that starts in the middle of white noise at full scale
    differs from the whole clip by more than 1e-5 for 73 to 91 frames of the lower
    rate, and by more than 1e-6 for at most 95 (17 ratios from 1/31 to 48); 256
    leaves a margin. Rates that need more than 2048 filter phases have no such
    place: soxr's clock drifts there, so they start at 0.
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

    Memory is bounded by twice the range and a few blocks. Two readers given the
    same reads return the same bytes; without resampling the samples do not depend
    on how they are cut into ranges.

    Parameters
    ----------
    source
        Local path, or open seekable binary file, which is not closed.
    info
        What `probe_audio` said about it.
    name
        What errors call the file.
    sample_rate_hz
        Output rate; ``None`` keeps the native one.
    channels
        ``"mix"``: mean of the channels; ``"keep"``: all; ``k``: channel k, from 0.

    Raises
    ------
    UnreadableAudio
        The file does not open, is not the one probed, or lacks the channel.
    """

    def __init__(
        self,
        source: Source,
        info: AudioInfo,
        *,
        name: str,
        sample_rate_hz: int | None = None,
        channels: str | int = "mix",
    ) -> None:
        check_channel(info, channels, name=name)
        to_hz = sample_rate_hz or info.sample_rate_hz
        self._frames = output_frames(info.frames, info.sample_rate_hz, to_hz)
        self._keeps_channels = channels == "keep"
        self._rows = info.channels if self._keeps_channels else 1
        with contextlib.ExitStack() as stack:
            file = stack.enter_context(_opened(source, name))
            decoder = stack.enter_context(_Decoder(file, name, info))
            self._resources = stack.pop_all()
        native = _NativeFrames(decoder, channels)
        self._signal: _NativeFrames | _ResampledFrames = native
        if to_hz != info.sample_rate_hz:
            self._signal = _ResampledFrames(native, info, to_hz, self._rows)
        self._start = 0  # of the last range
        self._stop = 0  # of what was decoded so far
        self._kept = np.empty((self._rows, 0), np.float32)  # ends at self._stop

    def read(self, start: int, stop: int) -> np.ndarray:
        """Frames ``start`` to ``stop`` at the output rate.

        Parameters
        ----------
        start, stop
            ``start`` is not less than that of the read before; ranges may overlap
            or leave gaps; ``stop`` is not beyond `output_frames`.

        Returns
        -------
        np.ndarray, shape=(stop - start,) or (channels, stop - start), dtype=float32
            In [-1, 1] as libsndfile scales it; not to be written to, because the
            next range may overlap. Two dimensions for ``channels="keep"``.

        Raises
        ------
        ValueError
            The range breaks the rules above.
        UnreadableAudio
            Decoding fails or ends before ``stop``; the reason says at which frame.
        """
        if not self._start <= start <= stop <= self._frames:
            raise ValueError(
                f"a range must start at {self._start} or later and end by "
                f"{self._frames}; got {start} to {stop}"
            )
        out = np.empty((self._rows, stop - start), np.float32)
        self._start = start
        known = max(0, min(stop, self._stop) - start)
        if known:
            first = self._kept.shape[1] - (self._stop - start)
            out[:, :known] = self._kept[:, first : first + known]
        if stop > max(start, self._stop):
            self._signal.read_into(start + known, out[:, known:])
            # The next range may begin anywhere in this one.
            self._kept = out
            self._stop = stop
        out.flags.writeable = False
        return out if self._keeps_channels else out[0]

    def close(self) -> None:
        """Close what was opened; a file object that was passed in stays open."""
        self._resources.close()

    def __enter__(self) -> ClipReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _NativeFrames:
    """Frames at the native rate, mixed down or picked."""

    def __init__(self, decoder: _Decoder, channels: str | int) -> None:
        self._decoder = decoder
        self._channels = channels

    def read_into(self, first: int, out: np.ndarray) -> None:
        """Fill ``out``, shape (rows, frames), with the frames from ``first``."""
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
            # Column by column: numpy's mean over a short last axis is 10 times slower.
            np.add(block[:, 0], block[:, 1], out=out[0])
            for channel in range(2, block.shape[1]):
                out[0] += block[:, channel]
            out[0] /= np.float32(block.shape[1])


class _ResampledFrames:
    """Frames at another rate, as if the whole clip went through soxr at once."""

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
        self._first_ready = 0  # output frame number of the first of self._ready
        self._ready = np.empty((0, rows), np.float32)

    def read_into(self, first: int, out: np.ndarray) -> None:
        """Fill ``out``, shape (rows, frames), with the frames from ``first``."""
        input_frame, output_frame = resample_start(first, *self._rates)
        if self._stream is None or input_frame > self._next_input + _SEEK_GAP:
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
        # soxr flushes with silence and rounds the length by itself. A little silence
        # of our own before that makes sure of the last frame wherever we started.
        silence = -(-self._rates[0] // self._rates[1]) if last else 0
        block = np.zeros((self._rows, count + silence), np.float32)
        self._native.read_into(self._next_input, block[:, :count])
        self._next_input += count
        resampled: np.ndarray = self._stream.resample_chunk(
            np.ascontiguousarray(block.T), last
        )
        return resampled


class _Decoder:
    """libsndfile on an open file, read forward from its first frame."""

    def __init__(
        self, file: BinaryIO, name: str, probed: AudioInfo | None = None
    ) -> None:
        self.name = name
        self._callbacks: _Callbacks | None = None
        self.position = 0
        self._sound: Any = None
        self._sound = self._call("not readable as audio", self._open, file)
        header = AudioInfo(
            frames=self._sound.frames,
            sample_rate_hz=self._sound.samplerate,
            channels=self._sound.channels,
            format=self._sound.format,
            subtype=self._sound.subtype,
        )
        self.info = probed or header
        if replace(header, frames=self.info.frames) != self.info:
            self.close()
            raise UnreadableAudio(
                name, f"changed since it was probed: {self.info} is now {header}"
            )
        # libFLAC cannot seek in a file of unknown length. A seek in MP3 or Vorbis
        # gives other samples (Vorbis: 13 % of seeks, and still 2 % with a lead of
        # 65536 frames), and Opus promises nothing: those are read from their start.
        self._seeks = _is_pcm(header) or (
            header.format == "FLAC" and header.frames < _UNKNOWN_FRAMES
        )
        self._scratch: np.ndarray | None = None
        self._raw: np.ndarray | None = None

    @property
    def scratch(self) -> np.ndarray:
        """A buffer for one block, shape (frames, channels), for anyone's use."""
        if self._scratch is None:
            frames = max(1, _BLOCK_SAMPLES // self.info.channels)
            self._scratch = np.empty((frames, self.info.channels), np.float32)
        return self._scratch

    def read_into(self, out: np.ndarray) -> int:
        """Decode into C-ordered ``out``; fewer frames than asked mean the end."""
        stop = self.position + len(out)
        frames = self._call(
            f"decoding failed in frames {self.position} to {stop}"
            f" of {self.info.frames}",
            self._decode,
            out,
        )
        self.position += frames
        return frames

    def _decode(self, out: np.ndarray) -> int:
        if self.info.subtype != "PCM_16":
            return len(self._sound.read(len(out), out=out))
        # numpy scales 16-bit samples three times as fast as libsndfile, and both do it
        # exactly.
        if self._raw is None:
            frames = max(1, _RAW_SAMPLES // self.info.channels)
            self._raw = np.empty((frames, self.info.channels), np.int16)
        out = out.reshape(-1, self.info.channels)
        done = 0
        while done < len(out):
            raw = self._sound.read(out=self._raw[: len(out) - done])
            if len(raw) == 0:
                break
            np.multiply(raw, _INT16_SCALE, out=out[done : done + len(raw)])
            done += len(raw)
        return done

    def fill(self, out: np.ndarray) -> None:
        """Decode into all of ``out`` or raise ``UnreadableAudio``."""
        if self.read_into(out) < len(out):
            raise UnreadableAudio(
                self.name,
                f"decoding ended at frame {self.position} of {self.info.frames}",
            )

    def skip_to(self, frame: int) -> None:
        """Move forward to ``frame``."""
        if self._seeks and frame - self.position > _SEEK_GAP:
            self._call(f"cannot seek to frame {frame}", self._sound.seek, frame)
            self.position = frame
        while self.position < frame:
            self.fill(self.scratch[: frame - self.position])

    def holds_frame(self, frame: int) -> bool:
        """Whether ``frame`` can be decoded; the decoder is of no more use then."""
        try:
            self._sound.seek(frame)
            return len(self._sound.read(1, out=self.scratch[:1])) == 1
        except soundfile.LibsndfileError:
            return False

    def close(self) -> None:
        if self._sound is not None:
            self._sound.close()

    def __enter__(self) -> _Decoder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _open(self, file: BinaryIO) -> Any:
        if isinstance(file, io.FileIO):
            os.lseek(file.fileno(), 0, os.SEEK_SET)
            return _ForwardSoundFile(file.fileno(), closefd=False)
        file.seek(0)
        self._callbacks = _Callbacks(file)
        return _ForwardSoundFile(self._callbacks)

    def _call(self, failed: str, function: Callable[..., _T], *args: object) -> _T:
        """Call into libsndfile; ``failed`` begins the reason if that goes wrong."""
        failure: BaseException | None = None
        try:
            result = function(*args)
        except (soundfile.SoundFileError, OSError) as error:
            failure = error
        if self._callbacks is not None and self._callbacks.failure is not None:
            failure = self._callbacks.failure
        if failure is None:
            return result
        if isinstance(failure, soundfile.LibsndfileError):
            text = failure.error_string
        elif isinstance(failure, soundfile.SoundFileError | OSError):
            text = str(failure)
        else:
            raise failure
        raise UnreadableAudio(self.name, f"{failed}: {text}") from failure


class _ForwardSoundFile(soundfile.SoundFile):  # type: ignore[misc]
    """A SoundFile that does not seek around each read.

    SoundFile asks for the position before a read and seeks to it afterwards. In an
    MP3 that seek changes the samples that follow; in FLAC it costs four times the
    decoding for blocks of 1000 frames. It does neither for what cannot seek.
    """

    def seekable(self) -> bool:
        return False


class _Callbacks:
    """A file object as libsndfile wants it: whole reads, and no exceptions.

    cffi prints an exception of a callback and goes on as if it had returned 0, so
    the first one is kept for the caller to raise.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.failure: BaseException | None = None

    def read(self, count: int) -> bytes:
        # A raw file may return less than it has, which libsndfile takes for the end.
        data = self._guard(b"", self._file.read, count)
        while 0 < len(data) < count:
            more = self._guard(b"", self._file.read, count - len(data))
            if not more:
                break
            data += more
        return data

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._guard(-1, self._file.seek, offset, whence)

    def tell(self) -> int:
        return self._guard(-1, self._file.tell)

    def _guard(self, otherwise: _T, function: Callable[..., _T], *args: int) -> _T:
        if self.failure is None:
            try:
                return function(*args)
            except BaseException as error:
                self.failure = error
        return otherwise


@contextlib.contextmanager
def _opened(source: Source, name: str) -> Iterator[BinaryIO]:
    """The source as an open file; file objects are left open.

    Local files come unbuffered, so that libsndfile can share their descriptor.
    """
    if not isinstance(source, str):
        yield source
        return
    try:
        # Opening a pipe would wait for its writer.
        if not stat.S_ISREG(os.stat(source).st_mode):
            raise UnreadableAudio(name, "cannot be opened: not a regular file")
        file = open(source, "rb", buffering=0)  # noqa: SIM115
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise UnreadableAudio(name, f"cannot be opened: {reason}") from error
    with file:
        yield file


def _read_header(file: BinaryIO, name: str) -> tuple[AudioInfo, int, str | None]:
    """The header's claims, the file's size, and how it ends early if it does."""
    with _reading(name):
        file_bytes = file.seek(0, os.SEEK_END)
        data = find_data_size(file, file_bytes)
    with _Decoder(file, name) as decoder:
        info = decoder.info
        lacks_last_frame = (
            info.format == "FLAC"
            and 0 < info.frames < _UNKNOWN_FRAMES
            and not decoder.holds_frame(info.frames - 1)
        )
    cut: str | None = None
    if data is not None and _lacks_frames(data, info):
        cut = (
            f"its header declares {data.declared} bytes of samples, "
            f"{data.present} are there ({info.frames} frames)"
        )
    elif lacks_last_frame:
        with _Decoder(file, name) as decoder:
            frames = _count_until_error(decoder)
        if frames < info.frames:
            cut = f"its header declares {info.frames} frames, {frames} decode"
            info = replace(info, frames=frames)
    elif info.format == "OGG":
        with _reading(name):
            if not ogg_ends_properly(file, file_bytes):
                cut = f"no page says it is the last; {info.frames} frames are there"
    elif info.frames == 0 and data is not None and data.present > 0:
        # A recorder that was killed leaves this, and so does one that recorded
        # nothing and wrote its notes behind; libsndfile takes it for the second.
        raise EmptyAudio(
            name,
            "holds no frames: its header declares no samples, yet "
            f"{data.present} bytes follow (repair the header if they are samples)",
        )
    return info, file_bytes, cut


@contextlib.contextmanager
def _reading(name: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnreadableAudio(name, f"cannot be read: {error}") from error


def _is_pcm(info: AudioInfo) -> bool:
    return info.format in _PCM_FORMATS and info.subtype in _SAMPLE_BYTES


def _has_known_length(info: AudioInfo, file_bytes: int) -> bool:
    """Whether the header's number of frames is more than an estimate."""
    trusted = info.format in ("FLAC", "OGG") or _is_pcm(info)
    return trusted and info.frames <= file_bytes * _FRAMES_PER_BYTE


def _lacks_frames(data: DataSize, info: AudioInfo) -> bool:
    """Whether more is missing than a part of a frame or a padding byte."""
    frame_bytes = _SAMPLE_BYTES.get(info.subtype, 1) * info.channels
    return data.declared - data.present > max(1, frame_bytes - 1)


def _count_frames(decoder: _Decoder, *, finite: bool) -> int:
    """Number of frames that decode; raises ``NonFiniteAudio`` when asked to."""
    while True:
        frames = decoder.read_into(decoder.scratch)
        block = decoder.scratch[:frames]
        if finite and not np.isfinite(block).all():
            bad = int(np.argmin(np.isfinite(block).all(axis=1)))
            raise NonFiniteAudio(
                decoder.name,
                f"frame {decoder.position - frames + bad} is NaN or infinite",
            )
        if frames < len(decoder.scratch):
            return decoder.position


def _count_until_error(decoder: _Decoder) -> int:
    """Number of frames that decode before the first error, in whole blocks."""
    block = decoder.scratch[:_CUT_BLOCK]
    try:
        while decoder.position < decoder.info.frames:
            wanted = block[: decoder.info.frames - decoder.position]
            if decoder.read_into(wanted) < len(wanted):
                break
    except UnreadableAudio as error:
        if not isinstance(error.__cause__, soundfile.LibsndfileError):
            raise  # the store failed, which says nothing about the file
    return decoder.position
