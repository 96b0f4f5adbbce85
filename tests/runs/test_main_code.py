"""Steps that a script defines: from ``python script.py`` to the data set and back."""

import json
import pickle
import re

import numpy as np
import pytest

from beam_pipeline import Metadata, open_records, record
from beam_pipeline.errors import RecipeError
from beam_pipeline.read.verify import verify
from beam_pipeline.storage.tfrecord import SUFFIX
from beam_pipeline.transforms import own_code
from beam_pipeline.transforms.steps import parse_transform
from tests.data_sets import shards_in
from tests.processes import run_python
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_corpus, write_samples, write_sound

STEPS = """
import os
import signal
from dataclasses import dataclass

import numpy as np
from beam_pipeline import record
from beam_pipeline.transforms import per_window

GAIN = np.float32(3)

def helper(windows):
    return np.abs(windows).max(axis=-1)

def scaled(windows):
    if "DIE" in os.environ and windows.max() > 0.9:
        os.kill(os.getpid(), signal.SIGKILL)
    return helper(windows) * GAIN

@per_window
def first(window):
    return window[:3] * GAIN

@dataclass(frozen=True)
class Level:
    by: float = 1.0

    def __call__(self, windows, sample_rate_hz):
        return (self.by * helper(windows) * sample_rate_hz).astype(np.float32)

@dataclass(frozen=True)
class Loud:
    above: float

    def keep(self, windows, sample_rate_hz):
        return helper(windows) > self.above

def features():
    return {"scaled": scaled, "first": first, "level": Level(2.0)}

def recorded(output, steps=None, loud=None, **options):
    return record(
        "in", output, win_len=1000, order="listed", num_shards=3, workers=2,
        features=steps or features(), keep=loud or Loud(0.05), **options
    )
"""

FIRST = """
import pickle
import steps_module
from beam_pipeline.examples.window_steps import WindowSteps
from beam_pipeline.examples.features import FeatureSet
from beam_pipeline.errors import WorkerDied

if __name__ == "__main__":
    try:
        recorded("killed")
    except WorkerDied:
        print("died")
    del os.environ["DIE"]
    recipe = recorded("own").recipe
    level = Level(2.0)
    for number, value in enumerate(
        (recipe, FeatureSet({"level": level}), WindowSteps((Loud(0.25),), (Loud(0.5),)))
    ):
        with open(f"{number}.pickle", "wb") as file:
            pickle.dump(value, file)
    recorded("module", steps_module.features(), steps_module.Loud(0.05))
    recorded("beam", beam_args=["--runner=FnApiRunner"])
"""

SECOND = """
from beam_pipeline import verify
from beam_pipeline.errors import AudioTFRecordsError

def refused(function, *args, **options):
    try:
        function(*args, **options)
    except AudioTFRecordsError as error:
        print(type(error).__name__, error)

if __name__ == "__main__":
    GAIN = np.float32(4)
    refused(recorded, "killed")
    refused(recorded, "own")
    changed = [scaled, first, Level, Loud]
    refused(verify, "own", deep=True, input="in", functions=changed)
    GAIN = np.float32(3)
    recorded("killed")
    given = [scaled, first, Level(), Loud(0.0)]
    assert verify("own", deep=True, input="in", functions=given) == []
"""


def run_script(folder, text, **environment):
    (folder / "script.py").write_text(text)
    return run_python("script.py", cwd=folder, **environment).stdout


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """A folder in which two scripts ran, what they printed, and the shards between."""
    folder = tmp_path_factory.mktemp("main")
    write_corpus(folder / "in", clips=2)
    loud = folder / "in" / "zoo" / "1.wav"  # the last one
    write_sound(loud, 2000)
    write_samples(loud, np.full(2000, 0.95), RATE)
    (folder / "steps_module.py").write_text(STEPS)
    first = run_script(folder, STEPS + FIRST, DIE="1")
    # The worker that lived may have been killed between a shard and its receipt.
    receipts = {p.stem + SUFFIX for p in (folder / "killed").rglob("receipts/*.json")}
    between = {
        p.name: p.stat().st_mtime_ns
        for p in shards(folder / "killed")
        if p.name in receipts
    }
    # Other lines above, and other functions around.
    second = run_script(folder, "# A script\n\n" + STEPS + SECOND)
    return folder, first, between, second


def shards(folder):
    return sorted(folder.glob(f"*{SUFFIX}"))


def assert_same_shards(one, other):
    assert shards_in(one) == shards_in(other) != {}


def test_the_bytes_are_those_of_functions_in_a_module(ran):
    folder, *_ = ran
    assert_same_shards(folder / "module", folder / "own")
    texts = []
    for name in ("own", "module"):
        values = json.loads((folder / name / "metadata.json").read_text())
        for hashed in ("sha256", "recipe_sha256", "files"):
            del values[hashed]
        text = json.dumps(values)
        texts.append(re.sub(r"__main__(\.\w+)\['\w{64}'\]", r"steps_module\1", text))
    assert texts[0] == texts[1]
    example = open_records(folder / "own")[0]
    assert example["scaled"] == np.float32(3) * example["level"] / (2 * RATE)


def test_an_engine_writes_the_same(ran):
    folder, *_ = ran
    assert_same_shards(folder / "own", folder / "beam")
    texts = [(folder / name / "metadata.json").read_text() for name in ("own", "beam")]
    assert texts[0] == texts[1]


def test_a_run_continues_with_the_same_code_alone(ran):
    folder, first, between, second = ran
    assert first == "died\n"
    assert 0 < len(between) < 3
    now = {p.name: p.stat().st_mtime_ns for p in shards(folder / "killed")}
    assert between.items() <= now.items()
    assert_same_shards(folder / "module", folder / "killed")
    unfinished, finished, verified = second.splitlines()
    assert_names(unfinished, "OutputError", "killed", "features", "first")
    assert_names(finished, "OutputError", "own", "features", "first")
    assert_names(verified, "RecipeError", "first", "changed")


def test_another_process_has_no_code(ran, monkeypatch, cli):
    folder, *_ = ran
    monkeypatch.setattr(own_code, "_given", {})
    own, sounds = str(folder / "own"), str(folder / "in")
    assert verify(own, deep=True) == []
    with raises(RecipeError, naming=["first", "functions=[first]", "module"]):
        verify(own, deep=True, input=sounds)
    with raises(RecipeError, naming=["Loud", "record", "module"]):
        record(sounds, own, recipe=Metadata.load(own))
    again = ["record", "--input", sounds, "--output", own]
    said = cli(*again, "--recipe", f"{own}/metadata.json", status=2).err
    assert_names(said, "Loud", "--keep")
    (text,) = {
        value
        for name, value in Metadata.load(own).recipe.features.items()
        if name == "first"
    }
    with raises(RecipeError, "feature", text, naming="first"):
        parse_transform(text)
    with raises(RecipeError, "feature", naming=["first", "Python"]):
        parse_transform("__main__.first")


def test_what_is_pickled_brings_the_code(ran, monkeypatch):
    folder, *_ = ran

    def loaded(number):
        monkeypatch.setattr(own_code, "_given", {})
        monkeypatch.setattr(own_code, "_received", {})
        return pickle.loads((folder / f"{number}.pickle").read_bytes())

    windows = np.full((2, 5), 0.5, np.float32)
    steps = loaded(2)
    (selection,), (augmentation,) = steps.selections, steps.augmentations
    assert (selection.above, augmentation.above) == (0.25, 0.5)
    assert selection.keep(windows, 10).tolist() == [True, True]
    level = loaded(1).transforms["level"]
    assert level(windows, 10).tolist() == [10.0, 10.0]
    recipe = loaded(0)
    assert recipe == Metadata.load(folder / "own").recipe
    level = parse_transform(recipe.features["level"])
    assert level(windows, 10).tolist() == [10.0, 10.0]
    again = pickle.loads(pickle.dumps(own_code.ByValue((level,))))
    assert again == (level,)
    assert type(again[0]) is type(level)  # not another class of the same name


def test_nothing_in_a_data_set_is_code(ran):
    folder, *_ = ran
    names = {p.name for p in (folder / "own").rglob("*")}
    assert not {n for n in names if "work" in n or "pickle" in n}
    for path in (folder / "own").iterdir():
        assert b"cloudpickle" not in path.read_bytes()
    recipe = json.loads((folder / "own" / "metadata.json").read_text())["recipe"]
    expression = recipe["features"]["scaled"]
    assert re.fullmatch(r"__main__\.scaled\['[0-9a-f]{64}'\]", expression)
