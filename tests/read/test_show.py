"""show: what pictures of examples contain, read from the figures."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile

from beam_pipeline import record
from beam_pipeline.cli.main import main
from beam_pipeline.errors import InputError
from beam_pipeline.read.drawing import picture_path
from beam_pipeline.read.show import some_examples
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_sound

pytestmark = pytest.mark.runs

figure_module = pytest.importorskip("matplotlib.figure")

WIN_LEN = 1000
FEATURES = {
    "signal": "identity()",
    "level": "rms(frame=200,hop=100)",
    "mel": "log_mel(n_fft=256,hop=100,n_mels=5)",
    "spectrum": "fft(kind='magnitude')",
}


def each_peak(windows: np.ndarray) -> np.ndarray:
    """A value for each channel."""
    return np.abs(windows).max(axis=-1)


def four_dimensions(windows: np.ndarray) -> np.ndarray:
    """An array that is no picture, whether there are channels or not."""
    return np.zeros((len(windows), *windows.shape[1:-1], 2, 3, 4), np.float32)


def eleven(windows: np.ndarray) -> np.ndarray:
    """A few values without a time."""
    return windows.reshape(len(windows), -1)[:, :11]


OWN = {
    "peaks": "tests.read.test_show.each_peak",
    "cube": "tests.read.test_show.four_dimensions",
    "few": "tests.read.test_show.eleven",
}


@pytest.fixture
def draw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[dict[str, Any], dict[str, Any], list[str]]]:
    """Records a sound and draws its second window: panels by title, example, lines."""

    def run(number: int, **options: Any) -> tuple[Any, Any, list[str]]:
        write_sound(tmp_path / "in" / "cat" / "x.wav", 2 * WIN_LEN, channels=number)
        out = str(tmp_path / "out")
        metadata = record(
            str(tmp_path / "in"), out, win_len=WIN_LEN, order="listed", **options
        )
        figures = []
        real = figure_module.Figure.savefig

        def catch(figure: Any, *arguments: Any, **more: Any) -> None:
            figures.append(figure)
            real(figure, *arguments, **more)

        monkeypatch.setattr(figure_module.Figure, "savefig", catch)
        capsys.readouterr()
        picture = str(tmp_path / "x.png")
        assert main(["show", out, "-n", "1", "--plot", picture]) == 0
        said = capsys.readouterr().out.splitlines()
        (figure,) = figures
        panels = {a.get_title(): a for a in figure.axes if a.axison}
        ((_, example),) = some_examples(out, metadata, 1)
        return panels, example, said[said.index(f"drawn: {picture}") :]

    return run


def expect_lines(panel: Any, values: np.ndarray, xlabel: str) -> None:
    """The panel has one curve for each row of values."""
    assert panel.get_xlabel() == xlabel
    lines = panel.get_lines()
    assert len(lines) == len(values)
    for line, wanted in zip(lines, values, strict=True):
        np.testing.assert_array_equal(line.get_ydata(), wanted)


@pytest.mark.parametrize("channels", [1, 2, 3])
def test_every_channel_is_drawn(draw: Any, channels: int) -> None:
    panels, example, said = draw(channels, channels="keep", features=FEATURES)
    for name, label in (("signal", "time (s)"), ("level", "time (s)"),
                        ("spectrum", "frequency (Hz)")):  # fmt: skip
        panel = panels.pop(f"{name}: cat")
        assert example[name].shape[0] == channels
        expect_lines(panel, example[name], label)
        legend = panel.get_legend()
        shown = [] if legend is None else [t.get_text() for t in legend.get_texts()]
        assert shown == [f"channel {c}" for c in range(channels)][: len(shown)]
        assert bool(shown) == (channels > 1)
    for channel in range(channels):
        title = f"mel, channel {channel}: cat" if channels > 1 else "mel: cat"
        panel = panels.pop(title)
        (image,) = panel.get_images()
        np.testing.assert_array_equal(image.get_array(), example["mel"][channel].T)
        assert panel.get_xlabel() == "time (s)"
    assert panels == {}
    assert len(said) == 1


def test_windows_of_one_channel(draw: Any) -> None:
    panels, example, said = draw(1, features=FEATURES)
    assert list(panels) == ["level: cat", "mel: cat", "signal: cat", "spectrum: cat"]
    signal = panels["signal: cat"]
    expect_lines(signal, example["signal"][None], "time (s)")
    times = np.arange(WIN_LEN) / RATE + example["win_start_idx"] / RATE
    np.testing.assert_allclose(signal.get_lines()[0].get_xdata(), times)
    (image,) = panels["mel: cat"].get_images()
    np.testing.assert_array_equal(image.get_array(), example["mel"].T)
    assert len(said) == 1


def test_features_that_are_not_drawn_are_listed(draw: Any) -> None:
    features = FEATURES | OWN
    panels, example, said = draw(2, channels="keep", features=features)
    assert not any(title.startswith(("peaks", "cube")) for title in panels)
    assert said[1:] == ["not drawn: cube (3 dimensions), peaks (a value for each "
                        "channel)"]  # fmt: skip
    # A feature without an axis of time is drawn over its entries.
    expect_lines(panels["few: cat"], example["few"][None], "entry")


def test_channels_of_another_rate_are_curves(draw: Any) -> None:
    panels, example, _ = draw(2, channels="keep", features={"x": "downsample(ratio=2)"})
    expect_lines(panels["x: cat"], example["x"], "entry")


def test_the_first_of_many_channels_are_drawn(draw: Any) -> None:
    features = {"mel": FEATURES["mel"], "signal": "identity()"}
    panels, example, said = draw(10, channels="keep", features=features)
    assert list(panels) == [
        *(f"mel, channel {c}: cat" for c in range(8)), "signal, 8 of 10 channels: cat"
    ]  # fmt: skip
    expect_lines(
        panels["signal, 8 of 10 channels: cat"], example["signal"][:8], "time (s)"
    )
    assert said[1:] == [
        "not drawn: mel (those after the first 8), signal (those after the first 8)"
    ]


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("noext", "noext.png"), ("a.", "a.png"), ("x.svg", "x.svg"), ("X.PNG", "X.PNG"),
        ("x.txt", None), ("gone/x.png", None), ("file.png/x.png", None),
        ("folder.png", None),
    ],
)  # fmt: skip
def test_names_of_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, found: str | None
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file.png").write_bytes(b"")
    (tmp_path / "folder.png").mkdir()
    if found is not None:
        assert picture_path(name) == found
        return
    with raises(InputError, naming=[f"--plot {name}", name.partition("/")[0]]):
        picture_path(name)


def test_pictures_that_cannot_be_written(
    whole: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["show", str(whole), "--plot", "gone/x.png"]) == 2
    said = capsys.readouterr()
    assert said.out == ""  # nothing is read before
    assert_names(said.err, "audio-tfrecords: --plot gone/x.png")
    name = "x" * 300 + ".png"
    assert main(["show", str(whole), "--plot", str(tmp_path / name)]) == 2
    assert_names(capsys.readouterr().err, name, os.strerror(errno.ENAMETOOLONG))


def test_a_split_whose_clips_are_all_rejected_gives_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for split, seed in (("train", 0), ("test", 1)):
        write_sound(tmp_path / split / "cat" / "x.wav", WIN_LEN, seed=seed)
    loud = np.ones(WIN_LEN)
    soundfile.write(tmp_path / "train" / "cat" / "x.wav", loud, RATE)
    arguments = [
        "record", f"--input=train={tmp_path}/train", f"--input=test={tmp_path}/test",
        f"--output={tmp_path}/out", f"--win-len={WIN_LEN}", "--max-rejected=1",
        "--feature=x=tests.sounds.fail_on_loud",
    ]  # fmt: skip
    assert main(arguments) == 0
    (line,) = capsys.readouterr().err.splitlines()
    assert_names(line, "warning", "train")
