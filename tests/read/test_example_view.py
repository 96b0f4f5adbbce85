"""An example as HTML: what is drawn, played and listed; it is small and safe."""

import base64
import io
import sys
import wave
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from beam_pipeline.read.example_view import describe_value, encode_sound, view_example
from beam_pipeline.recipe.recipe import Recipe

RATE = 8000
VOID = {"img"}


class Page(HTMLParser):
    """The tags of a page with their attributes, and its texts; all tags close."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.texts, self.open = [], [], []
        self.cells = {"th": [], "td": []}
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)
        if self.open[-1] in self.cells:
            self.cells[self.open[-1]].append(data)

    def all(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]

    @property
    def rows(self):
        """The table, as a dict."""
        return dict(zip(self.cells["td"][::2], self.cells["td"][1::2], strict=True))


def content_of(url, kind):
    head, _, content = url.partition(",")
    assert head == f"data:{kind};base64"
    return base64.b64decode(content, validate=True)


def played(page):
    (audio,) = page.all("audio")
    assert "controls" in audio
    with wave.open(io.BytesIO(content_of(audio["src"], "audio/wav"))) as file:
        pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
        return file.getframerate(), pcm.reshape(-1, file.getnchannels()).T


def pixels_of(attrs):
    image = Image.open(io.BytesIO(content_of(attrs["src"], "image/png")))
    return np.asarray(image.convert("RGB") if image.mode == "P" else image)


def tone(frames=2000):
    return (0.5 * np.sin(np.arange(frames) * 0.3)).astype(np.float32)


def drawn(page):
    """The size of the drawing, and how many of its pixels are not white."""
    (image,) = page.all("img")
    pixels = pixels_of(image)
    return pixels.shape[:2], int((pixels[..., :3] < 250).any(axis=-1).sum())


def test_a_signal_is_played_and_drawn():
    signal = tone()
    page = Page(view_example({"signal": signal, "fs": np.int64(RATE)}, {}))
    rate, pcm = played(page)
    assert rate == RATE
    np.testing.assert_array_equal(pcm[0], np.round(signal.astype(float) * 32767))
    assert drawn(page)[1] > 1000
    assert page.rows == {"fs": str(RATE)}


def test_without_matplotlib_values_are_listed(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    page = Page(view_example({"x": tone(), "fs": np.int64(RATE)}, {}))
    played(page)
    assert page.all("img") == []
    assert page.rows["x"] == describe_value(tone())
    assert any("install matplotlib" in text for text in page.texts)


OWN = {"x": "no.such.thing"}


@pytest.mark.parametrize(
    ("frames", "fs", "options", "rate"),
    [
        (2000, 8000, None, 8000),
        (2000, None, None, None),
        (2000, None, {"sample_rate": 16000}, 16000),
        # Transforms change it. The user's own code is not run.
        (2000, 8000, {"features": {"x": "identity()"}}, 8000),
        (1000, 8000, {"features": {"x": "resample(rate_hz=4000)"}}, 4000),
        (2000, 8000, {"features": {"x": "peak_gain()|identity()"}}, 8000),
        (1000, 8000, {"features": OWN}, None),
        (2000, 8000, {"features": OWN}, 8000),
    ],
)
def test_the_rate_of_a_signal(frames, fs, options, rate):
    example = {"x": tone(frames)} | ({} if fs is None else {"fs": np.int64(fs)})
    chosen = None if options is None else Recipe(win_len=2000, **options)
    page = Page(view_example(example, {}, chosen))
    assert drawn(page)[1] > 1000
    if rate is None:
        assert page.all("audio") == []
    else:
        assert played(page)[0] == rate


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_channels(channels):
    signal = np.stack([tone() / (k + 1) for k in range(channels)])
    page = Page(view_example({"signal": signal, "fs": np.int64(RATE)}, {}))
    _, pcm = played(page)
    assert len(pcm) == (channels if channels <= 2 else 1)
    drawn(page)
    assert any("mean of 3 channels" in text for text in page.texts) == (channels == 3)


def test_long_signals_are_cut_and_said_to_be():
    signal = tone(10 * 48000)
    text = view_example({"signal": signal, "fs": np.int64(48000)}, {})
    _, pcm = played(Page(text))
    assert pcm.shape == (1, 64000)
    assert "the first 1.33 s of 10 s" in text


@pytest.mark.parametrize(
    ("samples", "pcm"),
    [
        (np.array([0, 0.5, -1, np.nan], np.float32), [0, 16384, -32767, 0]),
        (np.array([0, 2, -1, np.inf], np.float64), [0, 32767, -16384, 16384]),
        (np.array([0, 16384, -32768], np.int16), [0, 16384, -32767]),
        (np.array([128, 255, 0], np.uint8), [0, 32511, -32767]),
    ],
)
def test_samples_become_16_bits(samples, pcm):
    with wave.open(io.BytesIO(encode_sound(samples, RATE, "WAV")[0])) as file:
        read = np.frombuffer(file.readframes(10), "<i2")
    np.testing.assert_array_equal(read, pcm)


@pytest.mark.parametrize(
    "array",
    [
        np.ones((12, 24), np.float32), np.full((5, 17), 3 - 4j, np.complex64),
        np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8),
    ],
)  # fmt: skip
def test_spectra_and_pictures_are_drawn(array):
    size, coloured = drawn(Page(view_example({"array": array}, {})))
    assert coloured > size[0] * size[1] / 10


def test_texts_are_escaped():
    hostile = "<script>alert('1')</script>&\""
    example = {"class": hostile, "filepath": f"a/{hostile}", hostile: hostile}
    text = view_example(example, {})
    assert "<script" not in text
    page = Page(text)
    assert page.all("script") == []
    assert page.texts.count(hostile) == 3  # the class, and a name with its value


def test_other_values_are_in_the_table():
    example = {
        "fs": np.int64(8000), "level": np.float32(-31.4159), "mask": np.array([True]),
        "many": np.arange(60), "none": np.zeros((0, 3)), "half": np.float16(0.5),
        "names": np.array(["a", "b"], object), "raw": b"\x00\xff",
        "nan": np.float32("nan"),
    }  # fmt: skip
    page = Page(view_example(example, {}))
    assert page.rows == {
        "fs": "8000", "level": "-31.4159", "mask": "bool (1,) [ True]", "half": "0.5",
        "many": "int64 (60,) [0, 1, 2, 3, ...] from 0 to 59",
        "none": "float64 (0, 3) []",
        "names": "string (2,) ['a', 'b']", "raw": "b'\\x00\\xff'", "nan": "nan",
    }  # fmt: skip


def test_whatever_it_holds_it_stays_small():
    rng = np.random.default_rng(0)
    example = {f"signal{k}": tone(200_000) for k in range(5)}
    example |= {f"noise{k}": rng.normal(size=(600, 256)) for k in range(9)}
    example |= {f"text{k}": "<" * 10_000 for k in range(500)}
    example["fs"] = np.int64(48000)
    text = view_example(example, {})
    assert len(text.encode()) < 1_000_000
    assert any("more" in words for words in Page(text).texts)


@pytest.mark.parametrize(
    "value", [np.full((4, 100), np.nan), np.full(100, np.inf), np.zeros((300, 2, 2, 2))]
)
def test_odd_arrays_are_shown_somehow(value):
    Page(view_example({"x": value, "fs": np.int64(RATE)}, {}))
    assert describe_value(value)
