"""Codecs: against libsndfile, sample by sample."""

import io
import subprocess
import sys

import numpy as np
import pytest
import soundfile

from beam_pipeline.errors import RecipeError
from beam_pipeline.hashing import bytes_sha256
from beam_pipeline.transforms.codecs import KINDS, Codec
from beam_pipeline.transforms.expressions import (
    AUGMENTATION,
    format_steps,
    parse_augment,
)
from tests.raising import raises
from tests.transform_checks import noise
from tests.transforms.test_augment import random_keys

RATE = 16000
SUBTYPES = {"mulaw": "ULAW", "alaw": "ALAW"}


def coded(windows, *kinds, rate=RATE, **options):
    step = Codec(kinds=kinds, **options)
    return step.augment(windows, random_keys(len(windows)), rate)


@pytest.mark.parametrize("kind", SUBTYPES)
def test_every_sample_of_16_bits_is_libsndfile_s(kind):
    samples = np.arange(-32768, 32768).astype(np.int16)
    file = io.BytesIO()
    soundfile.write(file, samples, 8000, format="WAV", subtype=SUBTYPES[kind])
    file.seek(0)
    expected = soundfile.read(file, dtype="float32")[0]
    windows = (samples / 32768).astype(np.float32).reshape(4, -1)
    np.testing.assert_array_equal(coded(windows, kind).ravel(), expected)
    assert len(np.unique(expected)) == {"mulaw": 255, "alaw": 256}[kind]


@pytest.mark.parametrize("kind", SUBTYPES)
def test_samples_are_rounded_and_clipped(kind):
    windows = np.float32([[-3e38, -1.5, -1.00001, 0.99999, 1, 3e38]])
    ends = coded(np.float32([[-1, -1, -1, 32767 / 32768, 32767 / 32768, 1]]), kind)
    np.testing.assert_array_equal(coded(windows, kind), ends)
    between = coded(np.float32([[5000.4, 5000.6]]) / 32768, kind)
    np.testing.assert_array_equal(
        between, coded(np.float32([[5000, 5001]]) / 32768, kind)
    )


@pytest.mark.parametrize("kind", KINDS)
def test_silence(kind):
    level = 8 / 32768 if kind == "alaw" else 0
    assert (coded(np.zeros((2, 3000), np.float32), kind) == np.float32(level)).all()


@pytest.mark.parametrize("frames", [1, 2, 575, 576, 577, 1152, 1153, 4000])
@pytest.mark.parametrize("kind", ["mp3", "vorbis"])
def test_files_have_the_length_of_the_window_and_no_delay(kind, frames):
    x = np.convolve(noise(frames + 3), np.ones(4, np.float32), "valid")
    windows = np.stack([x, -x])
    out = coded(windows, kind)
    assert out.shape == windows.shape
    if frames > 500:
        lags = [np.dot(out[0, 100:-100], x[100 + k : frames - 100 + k])
                for k in range(-99, 100)]  # fmt: skip
        assert abs(int(np.argmax(lags)) - 99) <= 1
        error = out.astype(np.float64) - windows
        assert np.square(error).mean() < 0.2 * np.square(windows).mean()


def test_more_compression_loses_more():
    windows = noise(2, 8000)
    for kind in ("mp3", "vorbis"):
        best, worst = (coded(windows, kind, compression=c) for c in (0, 0.99))
        errors = [np.square(out - windows).mean() for out in (best, worst)]
        assert 3 * errors[0] < errors[1]


@pytest.mark.parametrize("shape", [(3000,), (2, 3000)])
def test_a_window_has_the_same_bytes_whatever_is_beside_it(shape):
    windows, keys = noise(12, *shape), random_keys(12)
    windows.flags.writeable = False
    step = Codec(kinds=KINDS)
    out = step.augment(windows, keys, RATE)
    assert (out.dtype, out.shape) == (np.float32, windows.shape)
    kinds = step.drawn(keys, 3000, RATE)["kind"].tolist()
    assert set(kinds) == set(KINDS)
    for at, kind in enumerate(kinds):
        alone = step.augment(windows[at : at + 1].copy(), keys[at : at + 1], RATE)
        np.testing.assert_array_equal(alone[0], out[at])
        np.testing.assert_array_equal(coded(windows[at : at + 1], kind)[0], out[at])
    if len(shape) == 2:
        one = step.augment(windows[:, 1].copy(), keys, RATE)
        np.testing.assert_array_equal(one, out[:, 1])
    assert step.augment(windows[:0], keys[:0], RATE).shape == (0, *shape)


def test_another_process_gives_the_same_bytes():
    code = (
        "import numpy as np\n"
        "from beam_pipeline.transforms.codecs import KINDS, Codec\n"
        "from beam_pipeline.hashing import bytes_sha256\n"
        "x = np.random.default_rng(0).normal(0, 0.1, (8, 5000)).astype('f4')\n"
        "keys = np.arange(8, dtype=np.uint64)\n"
        "made = Codec(kinds=KINDS).augment(x, keys, 16000)\n"
        "print(bytes_sha256(made.tobytes()))\n"
    )
    said = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    x = np.random.default_rng(0).normal(0, 0.1, (8, 5000)).astype("f4")
    made = Codec(kinds=KINDS).augment(x, np.arange(8, dtype=np.uint64), 16000)
    assert said.stdout.strip() == bytes_sha256(made.tobytes())


def test_each_kind_is_as_likely():
    step = Codec(kinds=("mulaw", "mulaw", "alaw"))
    kinds = step.drawn(random_keys(3000), 1, RATE)["kind"].tolist()
    assert abs(kinds.count("mulaw") - 2000) < 130


def test_text_stands_for_it():
    text = format_steps("codec(kinds=['mp3'])", AUGMENTATION)
    assert text == "codec(kinds=('mp3',),compression=0.5)"
    assert parse_augment(text) == (Codec(kinds=("mp3",)),)


@pytest.mark.parametrize(
    ("make", "field", "value"),
    [
        (lambda: Codec(kinds=()), "kinds", ()),
        (lambda: Codec(kinds="mp3"), "kinds", "mp3"),
        (lambda: Codec(kinds=("mp3", "gsm")), "kinds", ("mp3", "gsm")),
        (lambda: Codec(compression=1.0), "compression", 1.0),
        (lambda: coded(np.float32([[0, np.nan]]), "mulaw"), "kinds", None),
        (lambda: coded(noise(1, 9), "mulaw", "mp3", rate=12345), "kinds", "mp3"),
    ],
)
def test_errors(make, field, value):
    with raises(RecipeError, field, value):
        make()
