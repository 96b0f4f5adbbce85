"""Decodes one open file forward: with libsndfile, with ffmpeg, or by a loader.

A loader is a function of the user. The samples of its file are in memory while it is
open, and nothing here knows the format::

    loader(path) -> (samples, sample_rate_hz)      float32 (frames,), (channels, frames)

ffmpeg's log is off unless the program turns it on: PyAV sees to that when it is
imported.
"""

from __future__ import annotations

import abc
import contextlib
import io
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from numbers import Real
from typing import TYPE_CHECKING, Any, BinaryIO, TypeVar

import numpy as np
import soundfile

from beam_pipeline.arrays import Array, FloatArray
from beam_pipeline.audio import formats
from beam_pipeline.errors import (
    ClipError,
    EmptyAudio,
    NonFiniteAudio,
    Unreadable,
    UnreadableAudio,
    check_answered,
    is_of_machine,
    read_error,
)
from beam_pipeline.process import Marks
from beam_pipeline.text import shown

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
_UNKNOWN_FORMAT = 1  # libsndfile's error
SEEK_GAP = 1 << 14  # frames; shorter gaps are decoded and dropped

_PCM_FORMATS = {"WAV", "WAVEX", "RF64", "W64", "AIFF", "AU", "CAF", "NIST"}
_INT16_SCALE = np.float32(1 / 32768)
_RAW_SAMPLES = 1 << 15
_BUFFER_BYTES = 1 << 13
_ENDLESS_BYTES = 1 << 44
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


def check_finite(block: np.ndarray, start: int, name: str) -> None:
    """Raises ``NonFiniteAudio`` if samples of frames from ``start`` on are not finite.

    ``block`` has the shape (frames, channels).
    """
    if not np.isfinite(block).all():
        bad = start + int(np.argmin(np.isfinite(block).all(axis=1)))
        raise NonFiniteAudio(
            name, f"has a sample that is NaN or infinite at frame {bad}"
        )


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
        count: int = check_answered(super().readinto(buffer))
        return count


class ForwardDecoder(abc.ABC):
    """Decodes an open file forward, from its first frame.

    ``position`` is the frame that the next read begins with.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.info: AudioInfo
        self.position = 0

    @cached_property
    def scratch(self) -> np.ndarray:
        """A buffer for one block, shape (frames, channels), that callers may use."""
        frames = max(1, _BLOCK_SAMPLES // self.info.channels)
        return np.empty((frames, self.info.channels), np.float32)

    def agreed(
        self, probed: AudioInfo | None, header: AudioInfo, is_exact: bool
    ) -> AudioInfo:
        """Returns what is known of the file, of which ``header`` was found.

        Parameters
        ----------
        probed
            What a probe found, or what a table lists, which has no format.
        header
            Its number of frames is compared only if ``is_exact``.

        Raises
        ------
        UnreadableAudio
            The file is not what was probed or listed.
        """
        if probed is None:
            return header
        known = replace(header, frames=probed.frames)
        if probed.format and known != probed:
            raise UnreadableAudio(
                self.name,
                f"changed after its header was read: it was {probed}, and now it is "
                f"{known}",
            )
        by = "its probe found" if probed.format else "its row in the table says"
        for field in ("sample_rate_hz", "channels", "frames"):
            found, listed = getattr(header, field), getattr(probed, field)
            if found != listed and (field != "frames" or is_exact):
                raise UnreadableAudio(
                    self.name, f"has {field} {found}, but {by} {listed}"
                )
        return known

    @abc.abstractmethod
    def read_into(self, out: np.ndarray) -> int:
        """Decodes into C-ordered ``out``; returns fewer frames only at the end."""

    def blocks(self) -> Iterator[np.ndarray]:
        """Yields the rest of the samples, shape (frames, channels), in blocks.

        The next block may overwrite one. Raises ``UnreadableAudio`` if decoding fails.
        """
        count = len(self.scratch)
        while count == len(self.scratch):
            count = self.read_into(self.scratch)
            yield self.scratch[:count]

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
    """Decodes an open file with libsndfile, forward from its first frame.

    Parameters
    ----------
    file
        Open, seekable and binary; it stays open.
    name
        Name of the file in errors.
    probed
        What a probe found, or what a table lists, which has no format.
    flac_frames
        How many frames libsndfile believes a FLAC file to have; 0: it decodes to the
        end. Default: those that were probed, or that the file declares.

    Raises
    ------
    UnreadableAudio
        libsndfile does not open the file, or it is not what was probed or listed.
    """

    def __init__(
        self,
        file: BinaryIO,
        name: str,
        probed: AudioInfo | None = None,
        flac_frames: int | None = None,
    ) -> None:
        super().__init__(name)
        self._callbacks: Callbacks | None = None
        self._sound: Any = None
        if probed is not None and probed.format == "FLAC":
            flac_frames = probed.frames if probed.frames < UNKNOWN_FRAMES else 0
        self._sound = self._call("not readable as audio", self._open, file, flac_frames)
        header = AudioInfo(
            frames=self._sound.frames,
            sample_rate_hz=self._sound.samplerate,
            channels=self._sound.channels,
            format=self._sound.format,
            subtype=self._sound.subtype,
        )
        self._seeks = finds_frames(header)
        self._raw: np.ndarray | None = None
        try:
            if header.format in formats.REFUSED:
                raise UnreadableAudio(
                    name, f"is a file of {header.format}, which is not read; convert it"
                )
            is_listed = probed is not None and not probed.format
            is_exact = is_listed and has_exact_length(header)
            self.info = self.agreed(probed, header, is_exact)
        except UnreadableAudio:
            self.close()
            raise

    def _open(self, file: BinaryIO, flac_frames: int | None) -> Any:
        if not file.seek(0, os.SEEK_END):
            raise UnreadableAudio(self.name, "not readable as audio: it has 0 bytes")
        stream, header = formats.find_mpeg(file), formats.read_flac_header(file)
        file.seek(0)
        # With a descriptor, libsndfile would hide the errors of reads, or take them for
        # the end of the file.
        self._callbacks = Callbacks(file, stream is not None and not stream.declared)
        if header is not None and flac_frames not in (None, header.frames):
            self._callbacks.declare(header, flac_frames)
        return _ForwardSoundFile(self._callbacks)

    def read_into(self, out: np.ndarray) -> int:
        """Decodes into C-ordered ``out``; returns fewer frames only at the end.

        Other types than float32 are scaled as libsndfile does: float64 like float32,
        integers to their full scale. It does not scale floats to integers.
        """
        stop = self.position + len(out)
        frames = self._call(
            f"decoding failed in frames {self.position} to {stop} of "
            f"{self.info.frames}",
            self._decode,
            out,
        )
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
            self.seek(frame)
        super().skip_to(frame)

    def seek(self, frame: int) -> None:
        """Moves to ``frame`` and decodes none before it."""
        self._call(f"cannot seek to frame {frame}", self._sound.seek, frame)
        self.position = frame

    def close(self) -> None:
        """Closes libsndfile's handle; the file object stays open."""
        if self._sound is not None:
            self._sound.close()

    def _call(self, failed: str, function: Callable[..., _T], *args: object) -> _T:
        """Calls a function of libsndfile; ``failed`` begins the reason of an error."""
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
            if failure.code == _UNKNOWN_FORMAT:
                text = "no decoder knows its format; convert it, for example to FLAC"
        elif isinstance(failure, soundfile.SoundFileError):
            text = str(failure)
        elif isinstance(failure, OSError):
            raise read_error(self.name, failed, failure) from failure
        else:
            raise failure
        raise UnreadableAudio(self.name, f"{failed}: {text}") from failure


class _ForwardSoundFile(soundfile.SoundFile):  # type: ignore[misc]
    """A SoundFile that does not seek before and after each read.

    SoundFile asks for the position before a read and seeks afterwards. In MP3, the seek
    changes the samples that follow. In FLAC, it takes four times as long as decoding
    for blocks of 1000 frames. SoundFile does neither in files that are not seekable.
    """

    def seekable(self) -> bool:
        return False


class Callbacks:
    """Wraps a file object for libsndfile: complete reads, and no exceptions.

    cffi prints an exception in a callback and continues as if it had returned 0. So the
    first exception is stored in ``failure``, and the caller raises it.

    An ``endless`` file seems to be very long. libsndfile estimates the length of an MP3
    without a header from its size and the bitrate of its first frame, and decodes no
    further; of a file whose bitrate varies, it would lose up to half.
    """

    def __init__(self, file: BinaryIO, endless: bool = False) -> None:
        self.file = file
        self.failure: BaseException | None = None
        self._endless = endless
        self._is_beyond = False  # where the file has no bytes
        self._declared = 0, b""
        self._position = file.tell()

    def declare(self, header: formats.FlacHeader, frames: int) -> None:
        """Makes a FLAC file declare this number of frames; 0: unknown."""
        self._declared = header.at, header.with_frames(frames)

    def readinto(self, buffer: Any) -> int:
        count = len(buffer)
        if self._is_beyond:  # libmpg123 looks for a tag before the end
            count = min(count, _ENDLESS_BYTES - self._position)
            buffer[:count] = bytes(count)
            self._position += count
            return count
        if self.failure is not None:
            return 0
        try:
            # libsndfile would take fewer bytes as the end.
            data = formats.read_whole(self.file, count)
            buffer[: len(data)] = data
        except BaseException as error:
            self.failure = error
            return 0
        at, declared = self._declared
        for offset, byte in enumerate(declared, at - self._position):
            if 0 <= offset < len(data):
                buffer[offset : offset + 1] = bytes([byte])
        self._position += len(data)
        return len(data)

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        self._is_beyond = self._endless and whence == os.SEEK_END
        if self._is_beyond:
            self._position = _ENDLESS_BYTES + offset
        elif self.failure is None:
            try:
                self._position = self.file.seek(offset, whence)
            except BaseException as error:
                self.failure = error
        return self.tell()

    def tell(self) -> int:
        return self._position if self.failure is None else -1


_NOTHING: FloatArray = np.empty((0, 1), np.float32)


# Of ffmpeg

# Containers that declare the length of each stream.
_DECLARE_LENGTH = frozenset({"mp4", "asf", "wavpack", "tta", "flac", "caf"})
# Of the times of two packets: some containers round to milliseconds. A packet is mostly
# 20 ms long, or longer.
MOST_GAP_S = 0.015


class AvDecoder(ForwardDecoder):
    """Decodes the first audio stream of an open file with ffmpeg.

    Samples are those of ffmpeg's command line. The edit list and the delay that the
    container declares are applied; the last packet is not cut to the declared length.
    Integers become floats by a power of two, as in libsndfile. One packet is decoded at
    a time, by one thread.

    Parameters
    ----------
    file
        Open, seekable and binary; it stays open.
    name
        Name of the file in errors.
    container
        A key of :data:`.formats.DEMUXERS`.
    probed
        What a probe found, or what a table lists, which has no format.

    Attributes
    ----------
    is_cut
        Whether decoding ended at a packet that is not complete.

    Raises
    ------
    UnreadableAudio
        PyAV is not installed, ffmpeg cannot decode the file, or the file is not what
        was probed or listed.
    """

    def __init__(
        self, file: BinaryIO, name: str, container: str, probed: AudioInfo | None = None
    ) -> None:
        super().__init__(name)
        if not formats.is_installed():
            raise UnreadableAudio(
                name,
                f"not readable as audio without PyAV, which decodes {container} files "
                f"of this kind; `pip install {formats.LIBRARY}` adds it",
            )
        self._blocks = self._decode()
        self._container: Any = None
        self._stream: Any = None
        self._first: tuple[int, int] | None = None  # rate and channels
        self.is_cut = False
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            try:
                codec = self._open(file, container)
            except _failures() as error:
                raise _error_of(name, "not readable as audio", error) from error
            # A decoder may find another rate than the container declares.
            self._ready: FloatArray = next(self._blocks, _NOTHING)
            layout = codec.sample_rate, codec.layout.nb_channels
            rate, channels = self._first or layout
            header = AudioInfo(UNKNOWN_FRAMES, rate, channels, container, codec.name)
            self.info = self.agreed(probed, header, False)
            stack.pop_all()

    @property
    def declared_s(self) -> float | None:
        """The seconds that the container declares for the stream; None: it does not."""
        if self.info.format == "matroska":
            # The length of its longest stream.
            length = self._container.duration
            is_alone = len(self._container.streams) == 1
            return length / 1e6 if length and is_alone else None
        if self.info.format not in _DECLARE_LENGTH or self._stream.duration is None:
            return None
        return float(self._stream.duration * self._stream.time_base)

    def blocks(self) -> Iterator[FloatArray]:
        while len(block := self._take(UNKNOWN_FRAMES)):
            yield block

    def read_into(self, out: np.ndarray) -> int:
        out = out.reshape(-1, self.info.channels)
        done = 0
        while done < len(out) and len(taken := self._take(len(out) - done)):
            out[done : done + len(taken)] = taken
            done += len(taken)
        return done

    def close(self) -> None:
        if self._container is not None:
            self._blocks.close()
            self._container.close()

    def _take(self, most: int) -> FloatArray:
        """Returns some of the next frames; none only at the end.

        It decodes no packet before its frames are needed: the one after the last frame
        of a cut file may be broken.
        """
        if not len(self._ready):
            self._ready = next(self._blocks, _NOTHING)
        taken, self._ready = self._ready[:most], self._ready[most:]
        self.position += len(taken)
        return taken

    def _open(self, file: BinaryIO, container: str) -> Any:
        """Opens the first audio stream; returns its codec."""
        import av

        file.seek(0)
        # Tags may be in any encoding.
        self._container = av.open(
            file, "r", format=formats.DEMUXERS[container], metadata_errors="replace"
        )
        if not self._container.streams.audio:
            raise UnreadableAudio(self.name, "holds no audio stream")
        self._stream = self._container.streams.audio[0]
        codec = self._stream.codec_context
        if codec is None:
            raise UnreadableAudio(
                self.name, "not readable as audio: ffmpeg has no decoder for its codec"
            )
        codec.thread_count = 1
        # Otherwise FLAC, WavPack and TTA with wrong checksums are decoded.
        codec.options = {"err_detect": "crccheck+explode"}
        return codec

    def _decode(self) -> Generator[FloatArray]:
        """Yields the samples of each packet."""
        decoded, failures = 0, _failures()
        end_s: float | None = None
        try:
            for packet in self._container.demux(self._stream):
                if packet.is_corrupt:
                    self.is_cut = True
                    raise UnreadableAudio(
                        self.name, f"the packet after frame {decoded} is not complete"
                    )
                for frame in packet.decode():
                    if frame.samples:
                        self._refuse_change(frame, decoded)
                        end_s = self._refuse_gap(frame, decoded, end_s)
                        decoded += frame.samples
                        yield self._as_floats(frame)
        except failures as error:
            reason = f"decoding failed after frame {decoded}"
            raise _error_of(self.name, reason, error) from error

    def _refuse_change(self, frame: Any, decoded: int) -> None:
        found = frame.sample_rate, frame.layout.nb_channels
        self._first = self._first or found
        if found != self._first:
            raise UnreadableAudio(
                self.name,
                f"changes at frame {decoded} from {self._first[0]} Hz and "
                f"{self._first[1]} channels to {found[0]} Hz and {found[1]} channels; "
                "split it there",
            )

    def _refuse_gap(
        self, frame: Any, decoded: int, end_s: float | None
    ) -> float | None:
        """Returns where a frame ends; raises if it does not begin at the last end."""
        start_s = None if frame.pts is None else float(frame.pts * frame.time_base)
        if start_s is None:
            start_s = end_s
        elif end_s is not None and abs(start_s - end_s) > MOST_GAP_S:
            raise UnreadableAudio(
                self.name,
                f"its time jumps after frame {decoded} from {end_s:.3f} to "
                f"{start_s:.3f} s; packets between are lost, or do not belong here",
            )
        return None if start_s is None else start_s + frame.samples / frame.sample_rate

    def _as_floats(self, frame: Any) -> FloatArray:
        """Returns the samples of a frame, shape (frames, channels), at a scale of 1."""
        try:
            values: Array = frame.to_ndarray()
        except ValueError as error:  # of a type that PyAV does not convert
            raise UnreadableAudio(
                self.name, f"not readable as audio: {error}"
            ) from error
        channels = frame.layout.nb_channels
        values = values.T if frame.format.is_planar else values.reshape(-1, channels)
        if values.dtype == np.uint8:
            values = values.astype(np.int16) - 128
            scale = 1 / 128
        elif values.dtype.kind == "i":
            scale = -1 / np.iinfo(values.dtype).min
        else:
            return values.astype(np.float32, copy=False)
        return np.multiply(values, np.float32(scale), dtype=np.float32)


def _failures() -> tuple[type[Exception], ...]:
    from av.error import FFmpegError

    return FFmpegError, OSError


def _error_of(name: str, failed: str, error: Exception) -> ClipError:
    """Returns the error of a file; ffmpeg's own numbers of errors are about it."""
    if isinstance(error, _failures()[0]):
        text = getattr(error, "strerror", None) or str(error)
        return UnreadableAudio(name, f"{failed}: {text}")
    return read_error(name, failed, error)


_MOST_RATE_HZ = 1 << 40


@dataclass(frozen=True)
class Loader:
    """A loader, and its expression in the recipe, which names it.

    Attributes
    ----------
    load : callable
        From the path of a local file to ``(samples, sample_rate_hz)``.
    name : str
        ``package.module.function``; the format of the files that it reads.
    allow_nonfinite : bool
        Whether samples may be NaN or infinite.
    """

    load: Callable[[str], Any]
    name: str
    allow_nonfinite: bool = False

    def probe(self, source: Source, name: str) -> AudioInfo:
        """Returns what a file holds, by loading it.

        Parameters and errors are those of :meth:`read`.

        Raises
        ------
        EmptyAudio
            The file holds no frames.
        """
        _, info = self.read(source, name)
        if info.frames == 0:
            raise EmptyAudio(name, "holds no frames")
        return info

    def read(self, source: Source, name: str) -> tuple[FloatArray, AudioInfo]:
        """Returns all samples of a file, and what it holds.

        Parameters
        ----------
        source
            Local path, or open seekable binary file, of which the loader gets a copy.
        name
            Name of the file in errors.

        Returns
        -------
        samples : numpy.ndarray, shape (frames, channels), float32
        info : AudioInfo

        Raises
        ------
        UnreadableAudio
            The loader raises, or returns anything else than it should.
        NonFiniteAudio
            The file holds samples that are NaN or infinite.
        """
        with local_path(source, name) as path:
            returned = self._call(path, name)
        is_pair = isinstance(returned, tuple) and len(returned) == 2
        samples, given = returned if is_pair else (None, None)
        rate = _as_rate(given)
        if (
            not isinstance(samples, np.ndarray)
            or samples.dtype != np.float32
            or samples.ndim not in (1, 2)
            or (samples.ndim == 2 and not len(samples))
            or rate is None
        ):
            parts = returned if isinstance(returned, tuple) else (returned,)
            raise UnreadableAudio(
                name,
                f"the loader {self.name} returned {', '.join(map(_shown, parts))}, but "
                "must return (samples, sample_rate_hz) with samples of float32 and "
                "shape (frames,) or (channels, frames), and a whole number of Hz",
            )
        frames = samples[:, np.newaxis] if samples.ndim == 1 else samples.T
        if not self.allow_nonfinite:
            check_finite(frames, 0, name)
        # A clip has its dtype in place of the name of a subtype.
        info = AudioInfo(len(frames), rate, frames.shape[1], self.name, "float32")
        return frames, info

    def _call(self, path: str, name: str) -> Any:
        try:
            return self.load(path)
        except Exception as first:  # the loader's own code may raise anything
            error = first
        if not is_of_machine(error):
            # Libraries hide errors of reads. What the file holds fails every time.
            _read_all(path, name)
            try:
                return self.load(path)
            except Exception as second:
                error = second
        kind = Unreadable if is_of_machine(error) else UnreadableAudio
        raise kind(
            name, f"the loader {self.name} raised {type(error).__name__}: {error}"
        ) from error


class LoadedDecoder(ForwardDecoder):
    """The samples of a file that a loader has read, as a decoder gives them."""

    def __init__(
        self, source: Source, name: str, loader: Loader, probed: AudioInfo
    ) -> None:
        super().__init__(name)
        self._samples, header = loader.read(source, name)
        self.info = self.agreed(probed, header, is_exact=True)

    def read_into(self, out: np.ndarray) -> int:
        block = self._samples[self.position : self.position + len(out)]
        # Of one channel, the block may have one axis.
        out.reshape(-1, self.info.channels)[: len(block)] = block
        self.position += len(block)
        Marks.progress()
        return len(block)

    def skip_to(self, frame: int) -> None:
        self.position = frame

    def close(self) -> None:
        self._samples = self._samples[:0]


@contextlib.contextmanager
def local_path(source: Source, name: str) -> Iterator[str]:
    """Yields the path of a source: of a remote file, a copy, for the ``with`` block.

    The copy has the suffix of the file's name.
    """
    if isinstance(source, str):
        with opened(source, name):
            pass  # raises if there is no such file, or a pipe
        yield source
        return
    suffix = os.path.splitext(name)[1]
    with tempfile.NamedTemporaryFile(prefix="audio-tfrecords-", suffix=suffix) as copy:
        with formats.naming_reads(name):
            source.seek(0)
            shutil.copyfileobj(source, copy)
        copy.flush()
        yield copy.name


def _read_all(path: str, name: str) -> None:
    """Reads a file to its end; raises a ClipError if the system cannot."""
    with formats.naming_reads(name), open(path, "rb", 0) as file:
        while file.read(1 << 20):
            Marks.progress()


def _shown(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} and shape {value.shape}"
    return f"{shown(value, 200)} of type {type(value).__name__}"


def _as_rate(value: Any) -> int | None:
    """Returns a rate in whole Hz, also one that is a float; None for anything else."""
    if not isinstance(value, Real):
        return None
    number = float(value)
    is_rate = number.is_integer() and 0 < number <= _MOST_RATE_HZ
    return int(number) if is_rate else None
