"""A clip as a stream of float32 frames: channels mixed or picked, resampled by soxr.

Frames are always read forward and in blocks, so memory does not grow with the length
of a file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from math import gcd
from typing import Any

import numpy as np
import soxr

from beam_pipeline.audio.decoder import (
    SEEK_GAP,
    AudioInfo,
    ForwardDecoder,
    Source,
    opened,
)
from beam_pipeline.audio.formats import DECODERS
from beam_pipeline.audio.loader import LoadedDecoder, Loader
from beam_pipeline.audio.probe import check_output, open_decoder

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
        Result of :func:`.probe.probe_audio` for the file.
    name
        Name of the file in errors.
    sample_rate_hz
        Output rate; ``None`` keeps the native one.
    channels
        ``"mix"``: mean of the channels; ``"keep"``: all; ``k``: channel k, from 0.
    decoders
        See :func:`.probe.ffmpeg_container`.
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
        decoders: Sequence[str] = DECODERS,
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
