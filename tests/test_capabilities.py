"""What docs/capabilities.md promises: its commands, its tests, and plain tests of some.

Most of its rows are shown by tests beside their subject. Here are those that a newcomer
would write: files, the options of a row, and what comes out.
"""

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
import soundfile

from beam_pipeline import Metadata, Recipe, open_records, record
from beam_pipeline.cli.main import COMMANDS, Job, main
from beam_pipeline.cli.parser import parse_command
from beam_pipeline.recipe.recipe import RunOptions
from tests.processes import forget_peak_memory, peak_memory_mib
from tests.sounds import RATE, write_sound

PAGE = Path(__file__).parents[1] / "docs" / "capabilities.md"
COLUMNS = 4


def rows_of_the_page():
    """The cells of all rows, without those of headers."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")]
    rows = [re.split(r"(?<!\\)\|", line.strip("| ")) for line in lines]
    cells = [[cell.replace(r"\|", "|").strip() for cell in row] for row in rows]
    return [row for row in cells if row[0] != "you want to"]


ROWS = rows_of_the_page()


def test_each_row_has_a_command_a_page_and_a_test():
    assert len(ROWS) > 100
    for row in ROWS:
        assert len(row) == COLUMNS, row
        assert all(row), row
        assert ".md" in row[2], row
        assert "](../tests/" in row[3], row
    wishes = [wish for wish, *_ in ROWS]
    assert len(set(wishes)) == len(wishes)


def test_linked_tests_exist():
    functions = {}
    for *_, cell in ROWS:
        links = re.findall(r"\[(\w+)\]\(\.\./(tests/[\w/]+\.py)\)", cell)
        assert len(links) == cell.count("]("), cell
        for name, file in links:
            if file not in functions:
                text = (PAGE.parents[1] / file).read_text()
                found = re.findall(r"^ *def (\w+)\(", text, re.MULTILINE)
                functions[file] = set(found)
            assert name.startswith("test_"), cell
            assert name in functions[file], (name, file)


def commands_in(cell):
    """The arguments of each command of a cell; options alone are those of record."""
    found = []
    for code in re.findall(r"`([^`]+)`", cell):
        words = shlex.split(code)
        words = words[: words.index("--")] if "--" in words else words
        if words[0].startswith("--"):
            words = ["audio-tfrecords", "record", *words]
            for flag in ("--input", "--output"):
                words += [] if flag in words else [flag, "x"]
        if words[0] == "audio-tfrecords" and "--help" not in words:
            found.append(words[1:])
    return found


def test_commands_are_accepted():
    """Each command is parsed, and its options make a recipe and settings of a run."""
    commands = [words for row in ROWS for words in commands_in(row[1])]
    assert len(commands) > 70
    for words in commands:
        args = parse_command(COMMANDS, words)
        if not isinstance(args, Job) or args.recipe is not None:
            continue
        options = dict(args.options)
        of_the_run = set(RunOptions.__dataclass_fields__) & set(options)
        RunOptions(**{name: options.pop(name) for name in of_the_run})
        if not {"win_len", "win_seconds"} & set(options):
            options["win_len"] = 16000
        if not re.search(r"\bmy_\w+:", " ".join(words)):  # a module of the reader
            Recipe(**options)


def starts(folder):
    return [int(example["win_start_idx"]) for example in open_records(folder)]


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    """A file of 10,500 frames."""
    path = tmp_path_factory.mktemp("sound") / "owl" / "1.wav"
    write_sound(path, 10_500)
    return path


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ("--win-len 1000 --max-windows 3", range(0, 3000, 1000)),
        ("--win-seconds 0.125 --hop-seconds 0.25", range(0, 9501, 2000)),
        ("--win-len 1000 --hop 250 --tail drop", range(0, 9501, 250)),
        ("--win-len 1000 --tail pad", range(0, 10_001, 1000)),
        ("--win-len 1000 --tail overlap", [*range(0, 10_000, 1000), 9500]),
    ],
)
def test_windows_begin_where_the_options_say(sound, tmp_path, flags, expected):
    places = ["--input", str(sound), "--output", str(tmp_path / "out")]
    assert main(["record", *places, *flags.split()]) == 0
    samples, _ = soundfile.read(sound, dtype="float32")
    padded = np.concatenate([samples, np.zeros(1000, np.float32)])
    assert starts(tmp_path / "out") == list(expected)
    for example in open_records(tmp_path / "out"):
        start = int(example["win_start_idx"])
        np.testing.assert_array_equal(example["signal"], padded[start : start + 1000])


def test_random_starts_are_drawn_by_the_seed(sound, tmp_path):
    options = {"win_len": 1000, "max_windows": 5, "random_starts": True}
    for seed in (1, 2):
        record(sound, tmp_path / f"{seed}", seed=seed, **options)
    first, other = starts(tmp_path / "1"), starts(tmp_path / "2")
    assert first != other
    assert len(first) == len(other) == 5
    assert first == sorted(first)
    assert first != [*range(0, 5000, 1000)]


def test_classes_have_the_order_that_was_given(tmp_path):
    for name in ("cargo", "tug"):
        write_sound(tmp_path / "in" / name / "1.wav", 1000)
    classes = ["tug", "passenger", "cargo"]
    record(tmp_path / "in", tmp_path / "out", win_len=1000, classes=classes)
    assert Metadata.load(tmp_path / "out").class_names == classes
    targets = {e["class"]: int(e["target"]) for e in open_records(tmp_path / "out")}
    assert targets == {"tug": 0, "cargo": 2}


def test_memory_does_not_grow_with_the_length_of_a_file(tmp_path):
    peaks = []
    for number, minutes in enumerate((1, 1, 10)):  # the first one imports Beam
        path = tmp_path / f"{number}.wav"
        write_sound(path, 60 * RATE * minutes)
        forget_peak_memory()
        before = peak_memory_mib()
        # Of 10 minutes, the windows take 150 MB, and the samples 19 MB.
        record(path, tmp_path / f"{number}", win_len=RATE, hop=RATE // 8,
               features={"first": "tests.sounds.first_sample"},
               beam_args=["--runner=FnApiRunner"])  # fmt: skip
        peaks.append(peak_memory_mib() - before)
    assert peaks[2] < peaks[1] + 10
