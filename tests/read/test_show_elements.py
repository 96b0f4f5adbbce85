"""show on data sets of elements: lines, protobuf text, and pictures."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf
from google.protobuf import text_format

from beam_pipeline import Metadata, record_dataset, record_examples
from beam_pipeline.cli.main import main
from beam_pipeline.read.show import some_records

figure_module = pytest.importorskip("matplotlib.figure")

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
OPTIONS = {"encodings": {"image": "png", "alone": "png"}}


@pytest.fixture
def folder(tmp_path):
    return record_examples(ROWS, tmp_path / "out", **OPTIONS)


def said_by_show(capsys, *arguments):
    capsys.readouterr()
    assert main(["show", *arguments]) == 0
    return capsys.readouterr().out


def test_lines(folder, capsys):
    lines = said_by_show(capsys, folder, "-n", "2").splitlines()
    assert lines.count("example 0") == lines.count("example 1") == 1
    second = lines[lines.index("example 1") :]
    assert [" ".join(line.split()) for line in second if "shape" not in line] == [
        "example 1",
        "age 1",
        "movies string (1,) ['Alien']",
        "ratings float32 (2,) [0.5, 1.5] from 0.5 to 1.5",
        "member True",
        "flags bool (2,) [ True, False]",
        f"image uint8 (5, 6, 3) {_pixels(IMAGES[1])}",
        f"grey uint8 (4, 6) {_pixels(GREY)}",
        f"alone uint8 (4, 6, 1) {_pixels(GREY)}",
        "matrix float64 (2, 3) [0., 2., 4., 6., ...] from 0 to 10",
        "cube float64 (2, 2, 2) [0., 0., 0., 0., ...] from 0 to 0",
        "varied float32 (2, 3) [1., 1., 1., 1., ...] from 1 to 1",
        "some 'x'",
    ]
    first = lines[: lines.index("example 1")]
    assert not any(line.split()[0] == "some" for line in first)
    assert any(line.split() == ["movies", "string", "(0,)", "[]"] for line in first)


def _pixels(array):
    four = np.array2string(array.ravel()[:4], separator=", ")[1:-1]
    text = f"[{four}, ...] from {array.min()} to {array.max()}"
    return " ".join(text.split())


def test_text_is_the_record(folder, capsys):
    text = said_by_show(capsys, folder, "--text", "-n", "2")
    metadata = Metadata.load(folder)
    records = [record for _, record in some_records(folder, metadata, 2)]
    parts = text.split("# example ")[1:]
    assert [part.split("\n", 1)[0] for part in parts] == ["0", "1"]
    for part, record in zip(parts, records, strict=True):
        parsed = text_format.Parse(part.split("\n", 1)[1], tf.train.Example())
        assert parsed == tf.train.Example.FromString(record)
        keys = [line.split('"')[1] for line in part.splitlines() if "key:" in line]
        assert keys == sorted(keys)


def test_text_of_sequences(tmp_path, capsys):
    rows = [{"clip": 3, "frames": [[0.5, 1.5], [2.5, 3.5]]}]
    folder = record_examples(rows, tmp_path / "out", sequences=["frames"])
    text = said_by_show(capsys, folder, "--text").split("\n", 1)[1]
    parsed = text_format.Parse(text, tf.train.SequenceExample())
    assert parsed.context.feature["clip"].int64_list.value == [3]
    frames = parsed.feature_lists.feature_list["frames"].feature
    assert [list(frame.float_list.value) for frame in frames] == rows[0]["frames"]
    lines = said_by_show(capsys, folder).splitlines()
    assert lines[2].split()[:4] == ["frames", "float32", "(2,", "2)"]


@pytest.fixture
def figures(monkeypatch):
    """The figures that are drawn."""
    drawn = []
    real = figure_module.Figure.savefig

    def catch(figure, *arguments, **more):
        drawn.append(figure)
        real(figure, *arguments, **more)

    monkeypatch.setattr(figure_module.Figure, "savefig", catch)
    return drawn


def test_pictures(folder, tmp_path, capsys, figures):
    said = said_by_show(capsys, folder, "-n", "2", "--plot", str(tmp_path / "x.png"))
    assert said.splitlines()[-2:] == [
        f"drawn: {tmp_path}/x.png",
        "not drawn: age (a single value), movies (a list of string), "
        "ratings (no values), member (a single value), cube (3 dimensions), "
        "some (string)",
    ]
    panels = [axes for axes in figures[0].axes if axes.axison]
    titles = [axes.get_title() for axes in panels]
    names = ["flags", "image", "grey", "alone", "matrix", "varied"]
    assert titles == [*names, "ratings", *names]
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


def test_titles_name_the_class_or_the_file(tmp_path, capsys, figures):
    rows = [
        {"x": [1, 2], "class": "cat", "filepath": "a/b.wav"},
        {"x": [1, 2], "class": "", "filepath": "a/b.wav"},
    ]
    folder = record_examples(rows, tmp_path / "out")
    said_by_show(capsys, folder, "-n", "2", "--plot", str(tmp_path / "x.png"))
    assert [axes.get_title() for axes in figures[0].axes] == ["x: cat", "x: b"]


def test_nothing_to_draw(tmp_path, capsys):
    folder = record_examples([{"a": 1, "t": ["x"]}], tmp_path / "out")
    capsys.readouterr()
    assert main(["show", folder, "--plot", str(tmp_path / "x.png")]) == 2
    assert "no signal, spectrum or image" in capsys.readouterr().err


@pytest.mark.parametrize("flags", [[], ["--text"]])
def test_tuples_and_examples_without_features(tmp_path, capsys, flags):
    ds = tf.data.Dataset.from_tensors((tf.ragged.constant([[1], []]), 7))
    folder = record_dataset(ds, tmp_path / "out")
    assert "0/row_splits_0" in said_by_show(capsys, folder, *flags)
    folder = record_examples([{}], tmp_path / "none", dtypes={"a": "int64"})
    assert said_by_show(capsys, folder, *flags)
