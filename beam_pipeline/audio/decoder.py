"""Decodes one open file forward with libsndfile, which no other module uses."""

from __future__ import annotations

import abc
import contextlib
import errno
import io
import os
import stat
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np
import soundfile

from beam_pipeline.audio import flac, mpeg
from beam_pipeline.audio.callbacks import Callbacks
from beam_pipeline.audio.condition import check_stream
from beam_pipeline.audio.containers import Condition
from beam_pipeline.audio.decoder_noise import call_quietly
from beam_pipeline.errors import UnreadableAudio, read_error
from beam_pipeline.marks import Marks

if TYPE_CHECKING:
    from typing import Self

_T = TypeVar("_T")

Source = str | BinaryIO
"""A local path, or an open seekable binary file (for remote files)."""

# Subtypes that store every sample in the same number of bytes.
SAMPLE_BYTES = {
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
UNKNOWN_FRAMES = 1 << 62
DecodingError: type[Exception] = soundfile.LibsndfileError
SEEK_GAP = 1 << 14  # frames; shorter gaps are decoded and dropped

_PCM_FORMATS = {"WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "CAF", "NIST"}
_INT16_SCALE = np.float32(1 / 32768)
_RAW_SAMPLES = 1 << 15
_BUFFER_BYTES = 1 << 13
_BLOCK_SAMPLES = 1 << 17  # of all channels; 512 KiB of float32


@dataclass(frozen=True, slots=True)
class AudioInfo:
    """Properties of a file, as the probe found them.

    Attributes
    ----------
    frames
        Number of frames that decode, at the native rate.
    sample_rate_hz
        Native rate.
    channels
        Number of channels.
    format, subtype
        libsndfile's names, e.g. ``"WAV"`` and ``"PCM_16"``; for a file that
        libsndfile does not open, ffmpeg's, e.g. ``"mp4"`` and ``"aac"``.
    """

    frames: int
    sample_rate_hz: int
    channels: int
    format: str
    subtype: str


def is_pcm(info: AudioInfo) -> bool:
    """Whether a file is a PCM container with samples of a fixed size."""
    return info.format in _PCM_FORMATS and info.subtype in SAMPLE_BYTES


def has_exact_length(info: AudioInfo) -> bool:
    """Whether the header's number of frames is exact and not an estimate."""
    known = info.format in ("FLAC", "OGG") or is_pcm(info)
    return known and info.frames < UNKNOWN_FRAMES


def may_break(info: AudioInfo) -> bool:
    """Whether decoding may fail in a file that the probe did not decode to its end."""
    return not info.format or (has_exact_length(info) and not is_pcm(info))


def finds_frames(info: AudioInfo) -> bool:
    """Whether a frame can be found without those before it, with the same samples.

    libFLAC cannot seek in a file of unknown length. After a seek, MP3 and Vorbis give
    different samples (Vorbis: 13 % of seeks, and still 2 % with a lead of 65536
    frames), and Opus guarantees nothing. These are read from the start.
    """
    return is_pcm(info) or (info.format == "FLAC" and info.frames < UNKNOWN_FRAMES)


@contextlib.contextmanager
def opened(source: Source, name: str) -> Iterator[BinaryIO]:
    """Opens a source for the ``with`` block; leaves file objects open."""
    if not isinstance(source, str):
        yield source
        return
    try:
        # Opening a pipe would block until it has a writer.
        if not stat.S_ISREG(os.stat(source).st_mode):
            raise UnreadableAudio(name, "cannot be opened: not a regular file")
        file = io.BufferedReader(_LocalFile(source), _BUFFER_BYTES)
    except (OSError, ValueError) as error:
        raise read_error(name, "cannot be opened", error) from error
    with file:
        yield file


class _LocalFile(io.FileIO):
    """A local file; a read that would have to wait (EAGAIN) fails like others."""

    def readinto(self, buffer: Any) -> int:
        count = super().readinto(buffer)
        if count is None:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return count


class ForwardDecoder(abc.ABC):
    """Decodes an open file forward, from its first frame.

    ``position`` is the frame that the next read begins with.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.info: AudioInfo
        self.position = 0
        self._scratch: np.ndarray | None = None

    @property
    def scratch(self) -> np.ndarray:
        """A buffer for one block, shape (frames, channels), that callers may use."""
        if self._scratch is None:
            frames = max(1, _BLOCK_SAMPLES // self.info.channels)
            self._scratch = np.empty((frames, self.info.channels), np.float32)
        return self._scratch

    @abc.abstractmethod
    def read_into(self, out: np.ndarray) -> int:
        """Decodes into C-ordered ``out``; returns fewer frames only at the end."""

    def fill(self, out: np.ndarray) -> None:
        """Decodes into all of ``out``; raises ``UnreadableAudio`` if it cannot."""
        if self.read_into(out) < len(out):
            raise UnreadableAudio(
                self.name,
                f"only {self.position} of {self.info.frames} frames can be decoded",
            )

    def skip_to(self, frame: int) -> None:
        """Moves forward to ``frame``."""
        while self.position < frame:
            self.fill(self.scratch[: frame - self.position])

    @abc.abstractmethod
    def close(self) -> None:
        """Frees the decoder; the file object stays open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Decoder(ForwardDecoder):
    """Decodes an open file with libsndfile, forward from its first frame."""

    def __init__(
        self, file: BinaryIO, name: str, probed: AudioInfo | None = None
    ) -> None:
        super().__init__(name)
        self._callbacks: Callbacks | None = None
        self._flac: flac.StreamInfo | None = None
        self._search: flac.BlockSearch | None = None
        self._sound: Any = None
        self._mpeg: mpeg.MpegStream | None = None
        self._mpeg = self._call("cannot be read", _find_mpeg, file)
        if probed is not None and not probed.format:
            # From a manifest, which has no formats. No probe has read the file.
            condition = self._call("cannot be read", _condition_of, file)
            if condition.damage is not None:
                raise UnreadableAudio(name, condition.damage)
        self._sound = self._call("not readable as audio", self._open, file)
        header = AudioInfo(
            frames=self._sound.frames,
            sample_rate_hz=self._sound.samplerate,
            channels=self._sound.channels,
            format=self._sound.format,
            subtype=self._sound.subtype,
        )
        self.info = probed or header
        if header.format == "FLAC" and self._flac is None:
            self.close()
            raise UnreadableAudio(name, "has incomplete FLAC metadata blocks")
        if not self.info.format:
            self.info = replace(self.info, format=header.format, subtype=header.subtype)
            for field in ("sample_rate_hz", "channels", "frames"):
                found, listed = getattr(header, field), getattr(self.info, field)
                if found != listed and (field != "frames" or has_exact_length(header)):
                    self.close()
                    raise UnreadableAudio(
                        name,
                        f"has {field} {found}, but its row in the table says {listed}",
                    )
        if replace(header, frames=self.info.frames) != self.info:
            self.close()
            raise UnreadableAudio(
                name,
                f"changed after its header was read: it was {self.info}, and now it is "
                f"{header}",
            )
        self._seeks = finds_frames(header)
        self._raw: np.ndarray | None = None

    def read_into(self, out: np.ndarray) -> int:
        """Decodes into C-ordered ``out``; returns fewer frames only at the end.

        Other types than float32 are scaled as libsndfile does: float64 like float32,
        integers to their full scale. It does not scale floats to integers.
        """
        stop = self.position + len(out)
        try:
            frames = self._call(
                f"decoding failed in frames {self.position} to {stop}"
                f" of {self.info.frames}",
                self._decode,
                out,
            )
        finally:
            self.refuse_change()
        self.position += frames
        Marks.progress()
        return frames

    def _decode(self, out: np.ndarray) -> int:
        if self.info.subtype != "PCM_16" or out.dtype != np.float32:
            return len(self._sound.read(len(out), out=out))
        # numpy scales 16-bit samples three times as fast as libsndfile; both scale
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

    def skip_to(self, frame: int) -> None:
        """Moves forward to ``frame``."""
        if self._seeks and frame - self.position > SEEK_GAP:
            try:
                self._call(f"cannot seek to frame {frame}", self._sound.seek, frame)
            finally:
                self.refuse_change()
            self.position = frame
        super().skip_to(frame)

    def holds_frame(self, frame: int) -> bool:
        """Whether ``frame`` can be decoded; the decoder must not be used afterwards."""
        try:
            return self._call(f"frame {frame} cannot be read", self._read_one, frame)
        except UnreadableAudio as error:
            if not isinstance(error.__cause__, DecodingError):
                raise
            return False
        finally:
            self.refuse_change()

    def _read_one(self, frame: int) -> bool:
        self._sound.seek(frame)
        return len(self._sound.read(1, out=self.scratch[:1])) == 1

    def refuse_change(self) -> None:
        """Raises ``UnreadableAudio`` if a FLAC stream changes in the bytes read.

        So it does if a block is missing. Does nothing for other formats.
        """
        if self._search is None:
            return
        for offset, header in self._search.take():
            if self._flac is not None:
                self._call(
                    "its frame headers cannot be read",
                    self._check_block,
                    offset,
                    header,
                    self._flac,
                )
        for jump in self._search.take_jumps():
            self._call("its frames cannot be read", self._check_jump, jump)

    def _check_block(
        self, offset: int, header: flac.BlockHeader, stream: flac.StreamInfo
    ) -> None:
        """Raises ``UnreadableAudio`` if the header is real and changes the stream."""
        assert self._callbacks is not None
        file = self._callbacks.file
        position = file.tell()
        block = flac.lone_block(file, offset, header, stream)
        if _decodes(block, header.frames):
            change = flac.find_change(file, stream, _decodes)
            if change is not None:
                raise UnreadableAudio(self.name, f"{change}; split it there") from None
            self._flac = None  # the whole file was searched
        file.seek(position)

    def _check_jump(self, jump: flac.Jump) -> None:
        """Raises ``UnreadableAudio`` if a block is missing or out of its order."""
        assert self._callbacks is not None
        file = self._callbacks.file
        position = file.tell()
        if flac.is_jump(file, jump):
            raise UnreadableAudio(
                self.name,
                f"is damaged: at byte {jump.stop}, FLAC frame {jump.number} follows, "
                f"where {jump.expected} should",
            )
        file.seek(position)

    def close(self) -> None:
        """Closes libsndfile's handle; the file object stays open."""
        if self._sound is not None:
            self._sound.close()

    def _open(self, file: BinaryIO) -> Any:
        if not file.seek(0, os.SEEK_END):
            raise UnreadableAudio(self.name, "not readable as audio: it has 0 bytes")
        self._flac = flac.read_stream_info(file)
        endless = self._mpeg is not None and self._mpeg.declared is None
        file.seek(0)
        if self._flac is not None:
            self._search = flac.BlockSearch(self._flac)
        # With a descriptor, libsndfile would hide the errors of reads, or take them for
        # the end of the file.
        self._callbacks = Callbacks(file, self._search, endless)
        return _ForwardSoundFile(self._callbacks)

    def _call(self, failed: str, function: Callable[..., _T], *args: object) -> _T:
        """Calls a function of libsndfile; ``failed`` begins the reason of an error."""
        failure: BaseException | None = None
        try:
            if self._mpeg is not None:
                result, printed = call_quietly(function, *args)
                if printed is not None:
                    raise UnreadableAudio(self.name, f"{failed}: {printed}")
            else:
                result = function(*args)
        except (soundfile.SoundFileError, OSError) as error:
            failure = error
        if self._callbacks is not None and self._callbacks.failure is not None:
            failure = self._callbacks.failure
        if failure is None:
            return result
        if isinstance(failure, soundfile.LibsndfileError):
            text = failure.error_string
        elif isinstance(failure, soundfile.SoundFileError):
            text = str(failure)
        elif isinstance(failure, OSError):
            raise read_error(self.name, failed, failure) from failure
        else:
            raise failure
        raise UnreadableAudio(self.name, f"{failed}: {text}") from failure


def _condition_of(file: BinaryIO) -> Condition:
    return check_stream(file, file.seek(0, os.SEEK_END))


def _find_mpeg(file: BinaryIO) -> mpeg.MpegStream | None:
    return mpeg.find_stream(file, file.seek(0, os.SEEK_END))


def _decodes(data: bytes, frames: int) -> bool:
    """Whether the bytes of an audio file decode to this number of frames."""
    try:
        with _ForwardSoundFile(io.BytesIO(data)) as sound:
            return len(sound.read(frames, dtype="int32")) == frames
    except soundfile.LibsndfileError:
        return False


class _ForwardSoundFile(soundfile.SoundFile):  # type: ignore[misc]
    """A SoundFile that does not seek before and after each read.

    SoundFile asks for the position before a read and seeks afterwards. In MP3, the seek
    changes the samples that follow. In FLAC, it takes four times as long as decoding
    for blocks of 1000 frames. SoundFile does neither in files that are not seekable.
    """

    def seekable(self) -> bool:
        return False
