"""Examples for people: lines, protobuf text, pictures, HTML for notebooks, sounds."""

import base64
import io
import os
import sys
import wave
from xml.etree import ElementTree

import numpy as np
import pytest
import soundfile
import tensorflow as tf
from google.protobuf import text_format
from PIL import Image

from beam_pipeline import open_records, record, record_dataset, record_examples, show
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read import example_view
from beam_pipeline.recipe.recipe import Recipe
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_sound

WIN_LEN = 1000
FEATURES = {
    "signal": "identity()",
    "half": "downsample(ratio=2)",
    "level": "rms(frame=200,hop=100)",
    "mel": "log_mel(n_fft=256,hop=100,n_mels=5)",
    "spectrum": "fft(kind='magnitude')",
    "cube": "tests.read.test_show.four_dimensions",
}


def four_dimensions(windows):
    """An array that is no picture, whether there are channels or not."""
    return np.zeros((len(windows), *windows.shape[1:-1], 2, 3, 4), np.float32)


# Lines and pictures.


def panels_of(example, records):
    """The panels of an example by title."""
    figure = example_view.draw_examples([example], records.metadata)
    return {a.get_title(): a for a in figure.axes if a.axison}


def titles_of(records):
    """What is above each example."""
    figure = example_view.draw_examples([*records], records.metadata)
    return [part.get_suptitle() for part in figure.subfigs]


def expect_lines(panel, values, xlabel):
    """The panel has one curve for each row of values."""
    assert panel.get_xlabel() == xlabel
    for line, wanted in zip(panel.get_lines(), values, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), wanted)


@pytest.mark.parametrize("channels", [1, 3, 10])
def test_every_channel_is_drawn(tmp_path, channels):
    write_sound(tmp_path / "in" / "cat" / "x.wav", 2 * WIN_LEN, channels=channels)
    options = {"channels": "keep"} if channels > 1 else {}
    record(tmp_path / "in", tmp_path / "out", win_len=WIN_LEN, order="listed",
           features=FEATURES, **options)  # fmt: skip
    records = show(tmp_path / "out", 9).records
    assert records.numbers.tolist() == [0, 1]
    example = records[1]
    panels = panels_of(example, records)
    assert "cube" not in panels
    rows = {n: np.reshape(example[n], (channels, -1)) for n in FEATURES if n != "mel"}
    seen, many = min(channels, 8), channels > 8
    if not many:  # more than eight channels are no sound, but an image
        expect_lines(panels["signal"], rows["signal"], "time (s)")
        times = (WIN_LEN + np.arange(WIN_LEN)) / RATE
        xs = panels["signal"].get_lines()[0].get_xdata()
        np.testing.assert_allclose(xs, times)
        expect_lines(panels["half"], rows["half"], "time (s)")
    expect_lines(panels["level"], rows["level"][:8], "time (s)")
    expect_lines(panels["spectrum"], rows["spectrum"][:8], "frequency (Hz)")
    legend = panels["level"].get_legend()
    shown = [] if legend is None else [t.get_text() for t in legend.get_texts()]
    assert shown == [f"channel {c}" for c in range(seen) if channels > 1]
    mel = np.reshape(example["mel"], (channels, -1, 5))
    for c in range(seen):
        title = f"mel, channel {c}" if channels > 1 else "mel"
        (image,) = panels[title].get_images()
        np.testing.assert_array_equal(image.get_array(), mel[c].T)
        assert panels[title].get_xlabel() == "time (s)"


RNG = np.random.default_rng(0)
IMAGES = [RNG.integers(0, 256, (4 + n, 6, 3), np.uint8) for n in range(2)]
GREY = RNG.integers(0, 256, (4, 6), np.uint8)
ROWS = [
    {
        "age": n,
        "movies": ["Alien"] * n,
        "ratings": [0.5, 1.5] * n,
        "member": True,
        "flags": [True, False],
        "image": IMAGES[n],
        "grey": GREY,
        "alone": GREY[..., None],
        "matrix": np.arange(6.0).reshape(2, 3) * (n + 1),
        "cube": np.zeros((2, 2, 2)),
        "varied": np.ones((1 + n, 2 + n), np.float32),
        "some": "x" if n else None,
    }
    for n in range(2)
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("elements") / "out"
    return record_examples(ROWS, out, encodings={"image": "png", "alone": "png"})


def test_lines(folder, cli):
    def pixels(array):
        four = np.array2string(array.ravel()[:4], separator=", ")[1:-1]
        text = f"[{four}, ...] from {array.min()} to {array.max()}"
        return " ".join(text.split())

    lines = cli("show", folder, "-n", "2").out.splitlines()
    assert lines.count("example 0") == lines.count("example 1") == 1
    at = lines.index("example 1")
    assert [" ".join(line.split()) for line in lines[at:] if "shape" not in line] == [
        "example 1",
        "age 1",
        "movies string (1,) ['Alien']",
        "ratings float32 (2,) [0.5, 1.5] from 0.5 to 1.5",
        "member True",
        "flags bool (2,) [ True, False]",
        f"image uint8 (5, 6, 3) {pixels(IMAGES[1])}",
        f"grey uint8 (4, 6) {pixels(GREY)}",
        f"alone uint8 (4, 6, 1) {pixels(GREY)}",
        "matrix float64 (2, 3) [0., 2., 4., 6., ...] from 0 to 10",
        "cube float64 (2, 2, 2) [0., 0., 0., 0., ...] from 0 to 0",
        "varied float32 (2, 3) [1., 1., 1., 1., ...] from 1 to 1",
        "some 'x'",
    ]
    assert not any(line.split()[0] == "some" for line in lines[:at])
    assert any(line.split() == ["movies", "string", "(0,)", "[]"] for line in lines)


def test_text_is_the_record(folder, tmp_path, cli):
    text = cli("show", folder, "--text", "-n", "2").out
    stored = open_records(folder).serialised([0, 1])
    parts = text.split("# example ")[1:]
    for number, (part, record_) in enumerate(zip(parts, stored, strict=True)):
        title, body = part.split("\n", 1)
        assert title == str(number)
        parsed = text_format.Parse(body, tf.train.Example())
        assert parsed == tf.train.Example.FromString(record_)
        keys = [line.split('"')[1] for line in part.splitlines() if "key:" in line]
        assert keys == sorted(keys)
    rows = [{"clip": 3, "frames": [[0.5, 1.5], [2.5, 3.5]]}]
    steps = record_examples(rows, tmp_path / "out", sequences=["frames"])
    text = cli("show", steps, "--text").out.split("\n", 1)[1]
    parsed = text_format.Parse(text, tf.train.SequenceExample())
    assert parsed.context.feature["clip"].int64_list.value == [3]
    frames = parsed.feature_lists.feature_list["frames"].feature
    assert [list(frame.float_list.value) for frame in frames] == rows[0]["frames"]
    lines = cli("show", steps).out.splitlines()
    assert lines[2].split()[:4] == ["frames", "float32", "(2,", "2)"]


def test_pictures(folder):
    records = open_records(folder)
    figure = example_view.draw_examples([*records], records.metadata)
    panels = [axes for axes in figure.axes if axes.axison]
    names = ["flags", "image", "grey", "alone", "matrix", "varied"]
    assert [axes.get_title() for axes in panels] == [*names, "ratings", *names]
    for n, axes in ((0, panels[1]), (1, panels[8])):
        (image,) = axes.get_images()
        np.testing.assert_array_equal(image.get_array(), IMAGES[n])
        assert image.origin == "upper"
    for axes in panels[2:4]:
        (image,) = axes.get_images()
        np.testing.assert_array_equal(image.get_array(), GREY)
        assert image.get_clim() == (0, 255)
    (image,) = panels[4].get_images()
    np.testing.assert_array_equal(image.get_array(), ROWS[0]["matrix"].T)
    (line,) = panels[6].get_lines()
    assert line.get_ydata().tolist() == [0.5, 1.5]


def test_examples_without_arrays_are_no_picture(tmp_path):
    records = open_records(record_examples([{"a": 1, "t": ["x"]}], tmp_path / "out"))
    with raises(InputError, naming="no signal, spectrum or image"):
        example_view.plot_examples(
            [*records], records.metadata, str(tmp_path / "x.png")
        )


def test_a_file_is_looked_for_in_all_splits(tmp_path):
    for k, name in enumerate("ab"):
        write_sound(tmp_path / name / "owl;tit" / "x.wav", WIN_LEN, seed=k)
    write_sound(tmp_path / "b" / "cow" / "y.wav", WIN_LEN, seed=2)
    inputs, out = {"train": tmp_path / "a", "test": tmp_path / "b"}, tmp_path / "out"
    record(inputs, out, win_len=WIN_LEN, label_separator=";",
           features={"mel": FEATURES["mel"]})  # fmt: skip
    shown = show(out, 9, clip="owl;tit/x.wav")
    assert repr(shown).count("labels         int64 (3,) [0, 1, 1]") == 2
    assert_names(repr(shown), "to 1: owl, tit")
    assert_names(shown._repr_html_(), "<strong>owl, tit, x.wav, from")
    assert repr(show(out)).startswith("example 0 of train\n")
    assert titles_of(shown.records[:1]) == ["owl, tit, x.wav, from 0.000 s"]
    shown.plot(tmp_path / "x.png")
    assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
    for name in ("x", "x.gif"):
        with raises(OptionError, "plot", str(tmp_path / name)):
            shown.plot(tmp_path / name)
    with raises(InputError, naming="b/X.wav"):
        show(out, clip="b/X.wav")
    with raises(OptionError, naming="n"):
        show(out, 0)


@pytest.mark.parametrize("flags", [[], ["--text"]])
def test_tuples_and_examples_without_features(tmp_path, cli, flags):
    ds = tf.data.Dataset.from_tensors((tf.ragged.constant([[1], []]), 7))
    folder = record_dataset(ds, tmp_path / "out")
    assert "0/row_splits_0" in cli("show", folder, *flags).out
    folder = record_examples([{}], tmp_path / "none", dtypes={"a": "int64"})
    assert cli("show", folder, *flags).out


# HTML.


class Page:
    """The tags and texts of a page, of which all tags close."""

    def __init__(self, text):
        self.root = ElementTree.fromstring(text.replace("<audio controls", "<audio"))
        self.texts = [*self.root.itertext()]

    def all(self, tag):
        return [each.attrib for each in self.root.iter(tag)]

    @property
    def rows(self):
        """The table, as a dict."""
        cells = ["".join(cell.itertext()) for cell in self.root.iter("td")]
        return dict(zip(cells[::2], cells[1::2], strict=True))

    def content(self, tag, kind):
        (attrs,) = self.all(tag)
        head, _, content = attrs["src"].partition(",")
        assert head == f"data:{kind};base64"
        return io.BytesIO(base64.b64decode(content, validate=True))

    def played(self):
        with wave.open(self.content("audio", "audio/wav")) as file:
            pcm = np.frombuffer(file.readframes(file.getnframes()), "<i2")
            return file.getframerate(), pcm.reshape(-1, file.getnchannels()).T

    def coloured(self):
        """Which part of the drawing is not white."""
        image = Image.open(self.content("img", "image/png")).convert("RGB")
        return float((np.asarray(image) < 250).any(axis=-1).mean())


def tone(frames=2000):
    return (0.5 * np.sin(np.arange(frames) * 0.3)).astype(np.float32)


FS = np.int64(RATE)


@pytest.mark.parametrize(
    ("signal", "fact"),
    [
        (tone(), None),
        (np.stack([tone(), tone() / 2]), None),
        (np.stack([tone(), tone() / 2, tone() / 3]), "mean of 3 channels"),
        (tone(80_000), "the first 8 s of 10 s"),
    ],
    ids=["mono", "stereo", "three", "long"],
)
def test_a_signal_is_played_and_drawn(signal, fact):
    page = Page(example_view.view_example({"signal": signal, "fs": FS}))
    rate, pcm = page.played()
    assert rate == RATE
    heard = np.atleast_2d(signal).astype(float)[:, :64000]
    if len(heard) > 2:
        heard = heard.mean(0, keepdims=True)
    np.testing.assert_allclose(pcm, heard * 32767, atol=0.51)
    assert page.coloured() > 0.02
    assert page.rows == {"fs": str(RATE)}
    assert fact is None or any(fact in text for text in page.texts)


def test_without_matplotlib_values_are_listed(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    page = Page(example_view.view_example({"x": tone(), "fs": FS}))
    assert page.played()
    assert page.all("img") == []
    assert page.rows["x"] == example_view.describe_value(tone())
    assert any("install matplotlib" in text for text in page.texts)


@pytest.mark.parametrize(
    "array",
    [
        np.ones((12, 24), np.float32), np.full((5, 17), 3 - 4j, np.complex64),
        np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8),
    ],
)  # fmt: skip
def test_spectra_and_pictures_are_drawn(array):
    assert Page(example_view.view_example({"array": array})).coloured() > 0.1


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
    page = Page(example_view.view_example(example, Metadata(chosen, {}, (), {})))
    assert page.coloured() > 0.02
    assert (page.played()[0] if page.all("audio") else None) == rate


def test_texts_are_escaped():
    hostile = "<script>alert('1')</script>&\""
    example = {"class": hostile, "filepath": f"a/{hostile}", hostile: hostile}
    page = Page(example_view.view_example(example))
    assert page.all("script") == []
    assert page.texts.count(hostile) == 3  # the class, and a name with its value


def odd_examples():
    rng = np.random.default_rng(0)
    many = {f"signal{k}": tone(200_000) for k in range(5)}
    many |= {f"noise{k}": rng.normal(size=(600, 256)) for k in range(9)}
    many |= {f"text{k}": "<" * 10_000 for k in range(500)}
    yield many
    yield {"x": np.full((4, 100), np.nan)}
    yield {"x": np.full(100, np.inf)}
    yield {"x": np.zeros((300, 2, 2, 2))}


@pytest.mark.parametrize("example", [*odd_examples()], ids=lambda e: f"{len(e)} values")
def test_whatever_it_holds_it_stays_small(example):
    text = example_view.view_example({**example, "fs": np.int64(48000)})
    assert len(text.encode()) < 1_000_000
    assert any("more" in words for words in Page(text).texts) == (len(example) > 1)


# Examples to listen to, saved as WAV files.


MEL = {"mel": "log_mel(n_fft=256,hop=100,n_mels=5)"}


@pytest.fixture(scope="module")
def stereo(tmp_path_factory):
    folder = tmp_path_factory.mktemp("heard") / "stereo"
    for k, name in enumerate(["a b/night, 1.wav", "ö/x.wav"]):
        write_sound(folder / name, 4 * WIN_LEN, channels=2, seed=k)
    return folder


def saved(cli, out, folder, *flags):
    cli("show", out, "-n", 99, "--save-wav", folder, *flags)
    return sorted(folder.iterdir())


@pytest.mark.parametrize(
    ("options", "subtype"),
    [
        ({}, "FLOAT"),
        ({"dtype": "int16"}, "PCM_16"),
        ({"channels": "keep"}, "FLOAT"),
        ({"stream": "gain(gain_db=30)"}, "FLOAT"),  # far beyond full scale
        ({"features": {"x": "identity()", **MEL}, "encodings": {"x": "float16"}},
         "FLOAT"),
        ({"features": {"half": "downsample(ratio=2)"}}, "FLOAT"),
    ],
)  # fmt: skip
def test_a_file_holds_the_samples_of_its_example(
    options, subtype, stereo, tmp_path, cli
):
    record(stereo, tmp_path / "out", win_len=WIN_LEN, **options)
    paths = saved(cli, tmp_path / "out", tmp_path / "wav")
    records = open_records(tmp_path / "out")
    assert len(paths) == len(records) == 8
    (name,) = {"signal", "x", "half"} & set(records.features)
    for path, example in zip(paths, records, strict=True):
        samples, rate = soundfile.read(path, dtype="float64")
        exact = np.asarray(example[name]).astype(np.float64).T
        scale = 32768 if subtype == "PCM_16" else 1
        np.testing.assert_array_equal(samples, exact / scale)
        assert soundfile.info(path).subtype == subtype
        assert rate == (RATE // 2 if name == "half" else RATE)


def test_names_say_split_number_clip_and_second(stereo, tmp_path, cli):
    options = {"win_len": WIN_LEN, "copies": 1, "augment": "random_gain()"}
    record(f"train={stereo}", tmp_path / "out", **options)
    names = [path.name for path in saved(cli, tmp_path / "out", tmp_path / "wav")]
    examples = open_records(tmp_path / "out", "train")
    assert len(names) == len(examples) == 16
    for number, (name, example) in enumerate(zip(names, examples, strict=True)):
        clip = "a_b_night_1" if "night" in example["filepath"] else "ö_x"
        second = f"{example['win_start_idx'] / RATE:g}"
        copy = "-copy1" if example["copy"] else ""
        assert name == f"train-{number:06}-{clip}-{second}s{copy}.wav"


def test_spectra_are_no_sound(stereo, tmp_path, cli):
    record(stereo, tmp_path / "mel", win_len=WIN_LEN, features=MEL)
    save = ["--save-wav", str(tmp_path / "wav")]
    said = cli("show", tmp_path / "mel", *save, status=2).err
    assert_names(said, tmp_path / "mel", "no feature of samples")
    assert not (tmp_path / "wav").exists()


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
    content, _ = example_view.encode_sound(samples, RATE, "WAV")
    read, _ = soundfile.read(io.BytesIO(content), dtype="int16")
    np.testing.assert_array_equal(read, pcm)


def test_elements_with_a_sample_rate_are_heard(tmp_path, monkeypatch, cli):
    monkeypatch.chdir(tmp_path)
    sound = np.linspace(-1, 1, 100, dtype=np.float32)
    record_examples([{"sound": sound, "sample_rate": 8000}], "out")
    said = cli("show", "out", "--save-wav", "gs://bucket/x", status=2).err
    assert_names(said, "gs://bucket/x")
    said = cli("show", "out", "--save-wav", "out/metadata.json", status=2).err
    assert_names(said, "out/metadata.json", "file")
    assert os.listdir() == ["out"]
    (path,) = saved(cli, "out", tmp_path / "wav")
    samples, rate = soundfile.read(path, dtype="float32")
    np.testing.assert_array_equal(samples, sound)
    assert (path.name, rate) == ("records-000000.wav", 8000)
