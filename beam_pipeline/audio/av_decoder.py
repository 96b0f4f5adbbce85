"""Decodes one open file forward with ffmpeg, and finds out what it holds.

ffmpeg's log is off unless the program turns it on: PyAV sees to that when it is
imported.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.decoder import UNKNOWN_FRAMES, AudioInfo, ForwardDecoder
from beam_pipeline.audio.formats import DEMUXERS, LIBRARY, is_installed
from beam_pipeline.errors import ClipError, UnreadableAudio, read_error

_Samples = npt.NDArray[np.float32]
_NOTHING: _Samples = np.empty((0, 1), np.float32)


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
        if not is_installed():
            raise UnreadableAudio(
                name,
                f"not readable as audio without PyAV, which decodes {container} files "
                f"of this kind; `pip install {LIBRARY}` adds it",
            )
        self._blocks = self._decode()
        self._container: Any = None
        self._stream: Any = None
        self._first: tuple[int, int] | None = None  # rate and channels
        self.is_cut = False
        with contextlib.ExitStack() as stack:
            stack.callback(self.close)
            try:
                self._open(file, container)
            except _failures() as error:
                raise _error_of(name, "not readable as audio", error) from error
            # A decoder may find another rate than the container declares.
            self._ready: _Samples = next(self._blocks, _NOTHING)
            self.info = self.agreed(probed, self._header(container), False)
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

    def blocks(self) -> Iterator[_Samples]:
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

    def _take(self, most: int) -> _Samples:
        """Returns some of the next frames; none only at the end.

        It decodes no packet before its frames are needed: the one after the last frame
        of a cut file may be broken.
        """
        if not len(self._ready):
            self._ready = next(self._blocks, _NOTHING)
        taken, self._ready = self._ready[:most], self._ready[most:]
        self.position += len(taken)
        return taken

    def _open(self, file: BinaryIO, container: str) -> None:
        import av

        file.seek(0)
        # Tags may be in any encoding.
        self._container = av.open(
            file, "r", format=DEMUXERS[container], metadata_errors="replace"
        )
        if not self._container.streams.audio:
            raise UnreadableAudio(self.name, "holds no audio stream")
        self._stream = self._container.streams.audio[0]
        if self._stream.codec_context is None:
            raise UnreadableAudio(
                self.name, "not readable as audio: ffmpeg has no decoder for its codec"
            )
        self._stream.codec_context.thread_count = 1
        # Otherwise FLAC, WavPack and TTA with wrong checksums are decoded.
        self._stream.codec_context.options = {"err_detect": "crccheck+explode"}

    def _header(self, container: str) -> AudioInfo:
        codec = self._stream.codec_context
        rate, channels = self._first or (codec.sample_rate, codec.layout.nb_channels)
        return AudioInfo(UNKNOWN_FRAMES, rate, channels, container, codec.name)

    def _decode(self) -> Generator[_Samples]:
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

    def _as_floats(self, frame: Any) -> _Samples:
        """Returns the samples of a frame, shape (frames, channels), at a scale of 1."""
        try:
            values: npt.NDArray[Any] = frame.to_ndarray()
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
