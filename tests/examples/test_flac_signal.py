"""Signals as FLAC: exact or refused, the same bytes each time, damage named."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from beam_pipeline.errors import InputError
from beam_pipeline.examples import array_bytes as flac_signal
from beam_pipeline.examples.spec import FLAC, FeatureSpec, encoding_problem
from tests.raising import raises


def spec_of(dtype: str, shape: Any = (None,), rate: int | None = 8000) -> FeatureSpec:
    return FeatureSpec("x", dtype, shape, FLAC, rate_hz=rate)


def encode_flac(spec: FeatureSpec, values: Any) -> bytes:
    return flac_signal.encode_flac(spec.name, values, spec.rate_hz or 0)


def decode_flac(spec: FeatureSpec, data: bytes) -> Any:
    return flac_signal.decode_flac(data, spec.dtype, spec.shape or ())


def subtype_of(data: bytes) -> tuple[int, str]:
    with soundfile.SoundFile(io.BytesIO(data)) as file:
        return file.samplerate, file.subtype


@settings(max_examples=30)
@given(hnp.arrays(np.int16, st.tuples(st.integers(1, 8), st.integers(1, 70))))
def test_int16_is_exact(values: Any) -> None:
    spec = spec_of("int16", values.shape)
    data = encode_flac(spec, values)
    found = decode_flac(spec, data)
    assert found.dtype == np.int16
    np.testing.assert_array_equal(found, values)
    assert encode_flac(spec, values) == data
    floats = (values / 32768).astype("f4")
    same = encode_flac(spec_of("float32", values.shape), floats)
    assert same == data


@settings(max_examples=30)
@given(hnp.arrays(np.int32, 50, elements=st.integers(-(2**23), 2**23 - 1)))
def test_24_bits_are_exact_as_float32(values: Any) -> None:
    spec, floats = spec_of("float32"), (values / 2**23).astype("f4")
    found = decode_flac(spec, encode_flac(spec, floats))
    assert found.dtype == np.float32
    np.testing.assert_array_equal(found, floats)


def test_the_file_has_the_bits_and_the_rate_of_the_signal() -> None:
    wide = np.array([0.5, 2.0**-23], "f4")
    assert subtype_of(encode_flac(spec_of("float32"), wide)) == (8000, "PCM_24")
    narrow = np.array([[0.5, -1.0]], "f4")
    spec = spec_of("float32", (1, None), 44100)
    assert subtype_of(encode_flac(spec, narrow)) == (44100, "PCM_16")
    assert decode_flac(spec, encode_flac(spec, narrow)).tolist() == [[0.5, -1.0]]


@pytest.mark.parametrize("bad", [1.0, -1.1, 2.0**-24, np.nan, np.inf, 0.1])
def test_other_samples_are_refused(bad: float) -> None:
    with raises(InputError, naming=["Feature x", "16-bit or 24-bit", "int16", "raw"]):
        encode_flac(spec_of("float32"), np.array([0.0, bad], "f4"))


@pytest.mark.parametrize(
    ("spec", "word"),
    [
        (spec_of("float64"), "float32 or int16"),
        (spec_of("float32", ()), "shape (frames,)"),
        (spec_of("float32", (2, 3, 4)), "shape (frames,)"),
        (spec_of("int16", (9, None)), "1 to 8 channels"),
        (spec_of("int16", (None, 9)), "1 to 8 channels"),
        (spec_of("int16", rate=None), "one known sample rate"),
        (spec_of("int16", rate=384_001), "384001 Hz"),
        (spec_of("int16", rate=700_000), "700000 Hz"),
    ],
)
def test_features_that_flac_cannot_hold(spec: FeatureSpec, word: str) -> None:
    assert word in (encoding_problem(spec, FLAC) or "")
    assert encoding_problem(spec_of("int16", (8, None), 192_000), FLAC) is None


def test_damage_is_named() -> None:
    spec = spec_of("int16", (3000,))
    noise = np.random.default_rng(0).integers(-9000, 9000, 3000).astype(np.int16)
    data = encode_flac(spec, noise)
    with pytest.raises(ValueError, match=r"cannot be decoded|frames of 3000"):
        decode_flac(spec, data[:-2000])
    with pytest.raises(ValueError, match="cannot be decoded"):
        decode_flac(spec, b"no sound")
    with pytest.raises(ValueError, match=r"\(1, 3000\) instead of \(2999,\)"):
        decode_flac(spec_of("int16", (2999,)), data)
    stereo = encode_flac(spec_of("int16", (2, 1500)), noise.reshape(2, 1500))
    with pytest.raises(ValueError, match=r"\(2, 1500\) instead of"):
        decode_flac(spec, stereo)
    wav = io.BytesIO()
    soundfile.write(wav, noise, 8000, format="WAV")
    with pytest.raises(ValueError, match="not of FLAC"):
        decode_flac(spec, wav.getvalue())
    # STREAMINFO declares 2**36 - 1 frames; who believes it runs out of memory.
    huge = bytearray(data)
    huge[21] |= 0x0F
    huge[22:26] = b"\xff" * 4
    with pytest.raises(ValueError, match="bytes of memory"):
        decode_flac(spec, bytes(huge))
