"""Warnings about data sets that are as asked for, but probably not as meant."""

import shutil
import warnings

import numpy as np
import pytest

from beam_pipeline import Metadata, open_records, plan, record, verify
from beam_pipeline.errors import DataSetWarning
from beam_pipeline.recipe.recipe import Recipe
from tests.raising import assert_names
from tests.sounds import write_samples


def write_clips(folder, rates=(8000, 8000, 8000)):
    """Writes a clip of 100 frames for each rate, each of its own class."""
    for k, rate in enumerate(rates):
        sound = np.full(100, k / 10, np.float32)
        write_samples(folder / f"class{k}" / f"{k}.wav", sound, rate)
    return folder


def said_by(call, folder, source="in", **options):
    """The warnings of `plan` or `record`."""
    args = [folder / "in" if source == "in" else source]
    args += [folder / "out"] * (call is record)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", DataSetWarning)
        call(*args, win_len=10, **options)
    found = [each for each in caught if each.category is DataSetWarning]
    assert {warning.filename for warning in found} <= {__file__}
    return [str(warning.message) for warning in found]


EMPTY = (
    "has no clip at all. There are few files or groups; `stratify` gives each split "
    "some, if there are enough"
)
DECIDED = Recipe(win_len=10, splits="a=1,b=1,c=1", group_by="kind", split_moves={})
KINDS = "(?P<class>(?P<kind>[a-z])[a-z]*)"
# Sample rates of clips, options, and the facts of each warning.
CASES = [
    ((8000, 8001, 16000), {}, [["3 sample rates", "8,000, 8,001, 16,000 Hz"]]),
    ((8000, 16000), {"sample_rate": 8000}, []),
    ((8000, 8000, 8000), {"num_elems": 29}, []),
    ((8000, 8000, 8000), {"num_elems": 30}, []),
    ((8000, 8000, 8000), {"num_elems": 31},
     [["split records has 30 examples", "`num_elems` asks for 31"]]),
    ((8000, 8000, 8000),
     {"splits": "a=1,b=1,c=1", "group_by": "kind", "label_from": KINDS},
     [[EMPTY], [EMPTY]]),
    # Of an earlier data set, or moved already.
    *(((8000, 8000, 8000),
       {"splits": "a=1,b=1,c=1", "group_by": "kind", "label_from": KINDS, **given},
       [["has no clip at all"]] * 2)
      for given in ({"recipe": DECIDED}, {"stratify": True})),
]  # fmt: skip


@pytest.mark.parametrize("call", [plan, record])
@pytest.mark.parametrize(("rates", "options", "wanted"), CASES)
def test_what_is_probably_not_meant(tmp_path, call, rates, options, wanted):
    write_clips(tmp_path / "in", rates)
    found = said_by(call, tmp_path, **options)
    for text, facts in zip(found, wanted, strict=True):
        assert_names(text, *facts)
        assert ("`stratify`" in text) == (EMPTY in facts)
    # A complete data set says the same.
    assert said_by(call, tmp_path, **options) == found


@pytest.mark.parametrize("call", [plan, record])
def test_classes(tmp_path, call):
    write_clips(tmp_path / "in")
    paths = sorted((tmp_path / "in").rglob("*.wav"))
    table = [
        {"path": str(path), "kind": path.parent.name, "part": part, "level": level}
        for path, part, level in zip(paths, "aab", (0.5, 1.5, 2.0), strict=True)
    ]
    options = {"label_from": "kind", "split_column": "part"}
    assert said_by(call, tmp_path, table, **options) == [
        "split a has no example of class2",
        "split b has no example of class0, class1",
    ]
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    (found,) = said_by(call, tmp_path, table, label_from="level")
    assert_names(found, "3", "0.5, 1.5, 2.0", "`target_columns` level")
    for row in table:
        row["level"] = round(row["level"])
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert said_by(call, tmp_path, table, label_from="level") == []


def test_on_the_command_line(tmp_path, cli):
    write_clips(tmp_path / "in", (8000, 16000))
    places = ["--input", tmp_path / "in", "--output", tmp_path / "out"]
    said = cli("record", *places, "--win-len", 10, "--num-elems", 31).err
    assert [line for line in said.splitlines() if "warning" in line] == [
        "audio-tfrecords: warning: split records has 20 examples. --num-elems asks for "
        "31",
        "audio-tfrecords: warning: clips have 2 sample rates (8,000, 16,000 Hz), so "
        "windows of as many frames differ in seconds. Give --sample-rate",
    ]


def write_loud(folder):
    """Writes floats, some beyond full scale; returns how many int16 cannot hold."""
    beyond = 0
    for k in range(6):
        noise = np.random.default_rng(k).normal(0, 0.4, 1000).astype(np.float32)
        noise[:3] = 1, -1, 1 - 2.0**-16  # clipped, held, rounded to 32768
        write_samples(folder / f"{k}.wav", noise, 8000, subtype="FLOAT")
        beyond += int((noise >= 1 - 2.0**-16).sum() + (noise < -1 - 2.0**-16).sum())
    return beyond


def test_clipped_samples(tmp_path):
    beyond = write_loud(tmp_path / "in")
    chosen = {"dtype": "int16", "elements_per_file": 100, "label_from": "none"}
    (warning,) = said_by(record, tmp_path, **chosen)
    assert_names(warning, f"{beyond} of the 6,000 values of signal in records")
    assert_names(warning, "int16", "`stream`")
    found = Metadata.load(tmp_path / "out").splits["records"].statistics
    assert found["features"]["signal"]["clipped"] == beyond
    stored = np.array([e["signal"] for e in open_records(tmp_path / "out")])
    held = 6  # the sample of -1 in each clip
    assert np.isin(stored, (-32768, 32767)).sum() == beyond + held
    assert verify(tmp_path / "out", deep=True) == []


def test_samples_beyond_full_scale_that_are_kept(tmp_path):
    write_loud(tmp_path / "in")
    assert said_by(record, tmp_path, label_from="none") == []
    statistics = Metadata.load(tmp_path / "out").splits["records"].statistics
    stored = np.array([e["signal"] for e in open_records(tmp_path / "out")])
    assert statistics["windows"]["samples_beyond"] == np.sum(np.abs(stored) > 1) > 0
    assert "clipped" not in statistics["features"]["signal"]
