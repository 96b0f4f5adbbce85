"""Augmentations by what codecs lose: G.711 in whole numbers, MP3 and Vorbis."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from beam_pipeline.errors import RecipeError
from beam_pipeline.transforms.augment import Drawn, Keys, draw_whole
from beam_pipeline.transforms.base import INT16_SCALE, FloatArray, as_float32, real

Whole = npt.NDArray[np.int64]

# The names of libsndfile.
_FILES = {"mp3": ("MP3", "MPEG_LAYER_III"), "vorbis": ("OGG", "VORBIS")}

# MP3 does not have 1.
_MOST_COMPRESSION = 0.99


@dataclass(frozen=True, kw_only=True)
class Codec:
    """Encodes and decodes each window with a codec, chosen at random.

    ``mulaw`` and ``alaw`` are G.711, the 8 bits a sample of telephones: samples are
    rounded to 16 bits, and then to one of 255 or 256 levels, whose distance grows with
    the level. The result is that of libsndfile, on every machine. Nothing is filtered
    or resampled. In A-law, which has no level 0, silence becomes ``8 / 32768``.

    ``mp3`` and ``vorbis`` are those of libsndfile, each window and each channel by
    itself. Silence stays silence, and nothing is delayed. The same libsndfile gives the
    same bytes in any run and process; as for files that are decoded, another kind of
    processor may round the last bit otherwise.

    The channels of a window share the codec. Samples beyond full scale are clipped.

    Attributes
    ----------
    kinds : tuple of str
        ``mulaw``, ``alaw``, ``mp3``, ``vorbis``; each is as likely. A name may be there
        several times.
    compression : float
        libsndfile's level of compression for MP3 and Vorbis: from 0, the best sound, to
        0.99, the smallest files.

    Raises
    ------
    RecipeError
        If there is no kind, or an unknown one, or the compression is out of its range;
        in a call, if a sample is NaN or infinite, or a codec does not have the sample
        rate.

    References
    ----------
    ITU-T Recommendation G.711, Pulse code modulation (PCM) of voice frequencies, 1988.

    Examples
    --------
    >>> windows, keys = np.float32([[0.5, 0.001]]), np.array([1], np.uint64)
    >>> Codec(kinds=("mulaw",)).augment(windows, keys, 8000) * 32768
    array([[16764.,    32.]], dtype=float32)
    """

    kinds: tuple[str, ...] = ("mulaw", "alaw")
    compression: float = 0.5

    def __post_init__(self) -> None:
        kinds = self.kinds
        if not isinstance(kinds, tuple | list) or not kinds:
            raise RecipeError("kinds", "must be one or more names, in ()", kinds)
        for kind in kinds:
            if kind not in KINDS:
                raise RecipeError("kinds", f"must be of {', '.join(KINDS)}", kinds)
        object.__setattr__(self, "kinds", tuple(kinds))
        object.__setattr__(self, "compression", real("compression", self.compression))
        if not 0 <= self.compression <= _MOST_COMPRESSION:
            raise RecipeError(
                "compression",
                f"must be between 0 and {_MOST_COMPRESSION}",
                self.compression,
            )

    def augment(
        self, windows: FloatArray, keys: Keys, sample_rate_hz: int
    ) -> FloatArray:
        windows = as_float32(windows)
        if not np.isfinite(windows).all():
            raise RecipeError(
                "kinds", "cannot encode NaN and infinity, which are in a window", None
            )
        for kind in {*self.kinds} & {*_FILES}:
            _check_rate(kind, sample_rate_hz)
        chosen = draw_whole(keys, 0, len(self.kinds)).tolist()
        out = np.clip(windows, -1, 1)
        for window, number in zip(out, chosen, strict=True):
            for channel in window.reshape(-1, window.shape[-1]):
                self._code(self.kinds[number], channel, sample_rate_hz)
        return out

    def drawn(self, keys: Keys, frames: int, sample_rate_hz: int) -> Drawn:
        """The codec of each window."""
        return {"kind": np.array(self.kinds)[draw_whole(keys, 0, len(self.kinds))]}

    def _code(self, kind: str, samples: FloatArray, sample_rate_hz: int) -> None:
        """Encodes and decodes samples (frames,) from -1 to 1, in place."""
        if kind in _FILES:
            samples[:] = _through_file(samples, kind, sample_rate_hz, self.compression)
        else:
            rounded = np.rint(samples * np.float32(INT16_SCALE)).astype(np.int64)
            # Places in a table that begins at -32768.
            places = np.minimum(rounded, INT16_SCALE - 1) + INT16_SCALE
            samples[:] = _table(kind)[places]


def _mulaw(samples: Whole) -> Whole:
    """Samples of 16 bits after G.711 with mu-law."""
    # The two lowest bits of a sample do not count.
    biased = np.minimum(np.abs(samples) // 4, 8158) + 33
    segment = _bits(biased) - 6
    step = 1 << (segment + 1)
    level = (biased // step) * step + step // 2 - 33
    return np.asarray(np.sign(samples) * 4 * level)


def _alaw(samples: Whole) -> Whole:
    """Samples of 16 bits after G.711 with A-law."""
    # The four lowest bits of a sample do not count.
    magnitude = np.minimum(np.abs(samples) // 16, 2047)
    segment = np.maximum(_bits(magnitude) - 5, 0)
    step = 1 << segment
    level = (magnitude // step) * 2 * step + step
    return np.asarray(np.where(samples < 0, -1, 1) * 8 * level)


def _bits(values: Whole) -> Whole:
    """The number of bits of whole numbers, 0 for 0."""
    return np.frexp(values.astype(np.float64))[1].astype(np.int64)


def _through_file(
    samples: FloatArray, kind: str, sample_rate_hz: int, compression: float
) -> FloatArray:
    """Samples that libsndfile has written to a file in memory, and read again."""
    import soundfile  # here: other steps do without it

    container, subtype = _FILES[kind]
    file = io.BytesIO()
    soundfile.write(
        file,
        samples,
        sample_rate_hz,
        format=container,
        subtype=subtype,
        compression_level=compression,
    )
    file.seek(0)
    decoded: FloatArray = soundfile.read(file, dtype="float32")[0]
    return decoded


@functools.cache
def _check_rate(kind: str, sample_rate_hz: int) -> None:
    """Raises RecipeError if a codec does not have a sample rate."""
    import soundfile

    try:
        _through_file(np.zeros(1, np.float32), kind, sample_rate_hz, 0.5)
    except soundfile.LibsndfileError as error:
        raise RecipeError(
            "kinds", f"{kind} cannot have {sample_rate_hz} Hz ({error})", kind
        ) from error


_TABLES: dict[str, Callable[[Whole], Whole]] = {"mulaw": _mulaw, "alaw": _alaw}

KINDS = (*_TABLES, *_FILES)


@functools.cache
def _table(kind: str) -> FloatArray:
    """What each sample becomes, from -32768 to 32767."""
    samples = np.arange(-INT16_SCALE, INT16_SCALE)
    return (_TABLES[kind](samples) / INT16_SCALE).astype(np.float32)
