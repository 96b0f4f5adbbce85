"""Typed examples on this machine and on runners of Beam: the same bytes everywhere.

A script in another process records most of it: its class is in ``__main__``, and its
processes are forks, as long as Beam and TensorFlow are not imported.
"""

import itertools
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from beam_pipeline.dataset import element_set
from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.errors import IncompleteRun
from beam_pipeline.run import elements
from beam_pipeline.storage import files
from beam_pipeline.tfrecorder import Example, factory
from tests import loopback
from tests.data_sets import contents
from tests.processes import ROOT, forget_peak_memory, peak_memory_mib, run_python
from tests.tfrecorder.declared import declared

TYPED = ROOT / "launch" / "engines" / "typed"
ON_BEAM = ["--runner=FnApiRunner"]

# The class of the document, but its data depend on the label alone.
TOYS = """
import os
import signal

import numpy as np
from beam_pipeline.tfrecorder import IgnoreExampleException
from toy_example import ToyExample

class Toy(ToyExample):
    def load(self, fails=None, dies=None, **kwargs):
        if self.label % 7 == 3:
            raise IgnoreExampleException("its label is wrong")
        if self.label == fails:
            raise ValueError("it is bad")
        if self.label == dies:
            os.kill(os.getpid(), signal.SIGKILL)
        rng = np.random.default_rng(self.label)
        self.data = rng.random((self.label % 12, 3), np.float32)

    def split(self, size=5, **kwargs):
        chunks = []
        for start in range(0, len(self.data), size):
            chunks.append(type(self)(self.name, self.label))
            chunks[-1].data = self.data[start : start + size]
        return chunks

    @classmethod
    def from_csv_row(cls, row, **kwargs):
        return cls(row[0], int(row[1]))
"""

MAIN = """
import json
import sys

import toys
from beam_pipeline.tfrecorder import factory, tfrecordable

class OfScript(toys.Toy):
    @tfrecordable(dtype="int64")
    def twice(self):
        return 2 * self.label

def record(output, cls, kind, **options):
    options["examples_tfrecord_file_max_size_in_bytes"] = 3000
    if kind == "rows":
        return factory.generate_and_save_train_eval_test_tfrecords_files(
            output, cls, "list.csv", 1.0, **options
        )
    made = [cls(str(n), n) for n in range(150)]
    folds = {"many": made[:-1], "one": made[-1:], "none": []}
    return factory.generate_and_save_tfrecords_files_for_examples_dict(
        output, folds, **options
    )

def failed(output, **options):
    try:
        record(output, OfScript, "rows", **options)
    except Exception as error:
        return type(error).__name__, str(error)

if __name__ == "__main__":
    with open("list.csv", "w") as file:
        file.writelines(f"n{n},{n}\\n" for n in range(200))
    found = {}
    classes = {"module": toys.Toy, "script": OfScript}
    for run, cls, kind, options in json.load(open("runs.json")):
        output = f"{run}/{cls}/{kind}"
        found[output] = record(output, classes[cls], kind, **options)
    for name, options in json.load(open("failing.json")).items():
        found[name] = failed(f"failed/{name}", **options)
    print(json.dumps(found))
"""

RUNS = {
    "one": {"workers": 1},
    "two": {"workers": 2},
    "beam": {"beam_args": ON_BEAM},
    # Without Prism, which this runner would download.
    "direct": {"beam_args": ["--runner=DirectRunner", "--prism_location=none"]},
}
CASES = list(itertools.product(["module", "script"], ["rows", "instances"]))
RECORDED = [
    *(("one", *case) for case in CASES),
    ("two", "script", "rows"),
    ("two", "module", "instances"),
    ("beam", "script", "instances"),
    ("beam", "module", "rows"),
    ("direct", "script", "rows"),
]
FAILING = {
    "killed": {"workers": 2, "dies": 60},
    **{name: {**RUNS[name], "fails": 60} for name in ("one", "two", "beam")},
}


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """The script's folder, and what it found: the counts of each run, and the errors.

    Runs on this machine come first: after Beam, processes are no forks.
    """
    folder = tmp_path_factory.mktemp("toys")
    sources = {"toys.py": TOYS, "script.py": MAIN}
    for name, text in sources.items():
        (folder / name).write_text(text)
    runs = [(*case, RUNS[case[0]]) for case in RECORDED]
    for name, options in {"runs.json": runs, "failing.json": FAILING}.items():
        (folder / name).write_text(json.dumps(options))
    done = run_python("script.py", cwd=folder, path=[TYPED])
    return folder, json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(("run", "cls", "kind"), RECORDED[len(CASES) :])
def test_all_runners_write_the_same_bytes(run, cls, kind, recorded):
    folder, counts = recorded
    name = f"{cls}/{kind}"
    assert contents(folder / "one" / name) == contents(folder / run / name)
    assert counts[f"{run}/{name}"] == counts[f"one/{name}"]


def test_what_the_runs_wrote(recorded):
    folder, counts = recorded
    kept = [n for n in range(200) if n % 7 != 3]
    chunks = {"train": sum(-(-(n % 12) // 5) for n in kept), "eval": 0}
    assert counts["one/module/rows"] == chunks
    folds = counts["one/module/instances"]
    assert (folds["one"], folds["none"]) == (1, 0)
    out = folder / "one" / "module" / "rows"
    assert len(list((out / "train").glob("*.tfrecord.gz"))) > 3
    assert not (out / "_work").exists()
    rows = (out / "train" / "examples.csv").read_text().splitlines()
    assert sorted(rows) == sorted(f"n{n},{n}" for n in kept)
    log = (out / "log.txt").read_text().splitlines()
    assert log[0] == "class Toy"
    ignored = f"train: 200 sources, {200 - len(kept)} ignored"
    assert f"{ignored} by IgnoreExampleException, the first: its label is" in log[1]
    metadata = json.loads((out / "metadata.json").read_text())
    skipped = metadata["options"]["skipped"]
    assert skipped == {"train": {"sources": 29, "first": "its label is wrong"}}


@pytest.mark.parametrize("name", FAILING)
def test_errors_name_the_row_or_the_worker_on_every_runner(name, recorded):
    folder, found = recorded
    kind, message = found[name]
    if name == "killed":
        assert kind == "WorkerDied"
        for fact in ("SIGKILL", "writer ", "No data set was written."):
            assert fact in message
    else:
        assert kind == "ExampleError"
        assert message == "row ['n60', '60']: load() raised ValueError: it is bad"
    assert not (folder / "failed" / name).exists()


class Tone(Example):
    number = declared("number", "int32")
    data = declared("data", Example.Field.TYPE_ARRAY_FLOAT32)

    def __init__(self, number):
        self._number = number

    def load(self, size=8, **kwargs):
        self._data = np.full(size, self.number + 0.1, np.float32)

    def to_csv_row(self):
        return [self.number]


def record(output, count=200, **options):
    tones = [Tone(number) for number in range(count)]
    return factory.generate_and_save_tfrecords_files_for_examples_dict(
        output, {"train": tones, "eval": tones[:9]}, **options
    )


def test_steps_may_run_twice(tmp_path, monkeypatch):
    size = {"examples_tfrecord_file_max_size_in_bytes": 2000}
    record(tmp_path / "once", workers=1, **size)

    def twice(function, *args):
        function(*args)
        return function(*args)

    for module, name in (
        (element_set, "write_block"),
        (element_set, "lay_out"),
        (elements, "join_shard"),
        (element_set, "finish_elements"),
    ):
        monkeypatch.setattr(module, name, partial(twice, getattr(module, name)))
    record(tmp_path / "twice", beam_args=ON_BEAM, **size)
    assert contents(tmp_path / "once") == contents(tmp_path / "twice")


def lose_shards(*args, lay_out=element_set.lay_out):
    return itertools.islice(lay_out(*args), 1)


def lose_a_block(job, results, lay_out=element_set.lay_out):
    return lay_out(job, list(results)[1:])


def lose_sources(job, results, lay_out=element_set.lay_out):
    first, *others = results
    return lay_out(job, [replace(first, sources=55), *others])


@pytest.mark.parametrize(
    ("loses", "problem"),
    [
        (lose_shards, "200 examples in shards instead of 209"),
        (lose_a_block, "4 blocks instead of 5"),
        (lose_sources, "200 source examples instead of 209"),
    ],
)
@pytest.mark.parametrize("where", [{"workers": 1}, {"beam_args": ON_BEAM}])
def test_what_is_lost_is_noticed(where, loses, problem, tmp_path, monkeypatch):
    record(tmp_path / "out", count=2, workers=1)
    monkeypatch.setattr(element_set, "lay_out", loses)
    with pytest.raises(IncompleteRun, match=problem):
        record(tmp_path / "new", **where)
    assert not (tmp_path / "new").exists()
    if loses is not lose_shards:  # nothing was replaced yet
        before = (tmp_path / "out" / "metadata.json").read_bytes()
        with pytest.raises(IncompleteRun):
            record(tmp_path / "out", **where, overwrite=True)
        assert (tmp_path / "out" / "metadata.json").read_bytes() == before


def test_the_same_call_may_be_given_again_after_an_error(tmp_path, monkeypatch):
    def fail(*args, **options):
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(element_set, "finish_elements", fail)
        with pytest.raises(OSError, match="full"):
            record(tmp_path / "out", workers=1)
    assert list(tmp_path.iterdir()) == []
    assert record(tmp_path / "out", workers=1) == {"train": 200, "eval": 9}
    splits = Metadata.load(str(tmp_path / "out")).splits
    of_numbers = splits["train"].statistics["features"]["number"]
    assert (of_numbers["count"], of_numbers["mean"]) == (200, 99.5)


@pytest.mark.parametrize("where", [{"workers": 1}, {"beam_args": ON_BEAM}])
def test_memory_does_not_depend_on_the_number_of_rows(where, tmp_path):
    peaks = []
    for count in (70, 700):  # of 128 KiB each
        forget_peak_memory()
        record(tmp_path / f"{count}", count, size=1 << 15, **where)
        peaks.append(peak_memory_mib())
    assert peaks[1] < peaks[0] + 20


@pytest.mark.parametrize("loses", [lose_a_block, lose_sources])
def test_what_is_lost_replaces_nothing_in_a_store(loses, bucket, monkeypatch):
    output = f"s3://{bucket}/out"
    record(output, count=2, workers=1)
    before = {name: files.size(f"{output}/{name}") for name in files.list_files(output)}
    monkeypatch.setattr(element_set, "lay_out", loses)
    with pytest.raises(IncompleteRun):
        record(output, workers=1, overwrite=True)
    after = set(files.list_files(output))
    assert {name for name in before if "_work" not in name} <= after


@pytest.mark.parametrize(
    ("scheme", "where"), [("gs", {"workers": 2}), ("s3", {"beam_args": ON_BEAM})]
)
def test_outputs_in_an_object_store(scheme, where, bucket, tmp_path):
    size = {"examples_tfrecord_file_max_size_in_bytes": 4000}
    counts = record(tmp_path / "out", workers=1, **size)
    remote = f"{scheme}://{bucket}/out"
    assert record(remote, **where, **size) == counts
    assert loopback.contents_in(remote) == contents(tmp_path / "out")
    paths = factory.get_tfrecord_filepaths(f"{remote}/train")
    local = factory.get_tfrecord_filepaths(tmp_path / "out" / "train")
    names = [[path.rpartition("/")[2] for path in found] for found in (paths, local)]
    assert names[0] == names[1]
    here, there = (
        [
            [np.asarray(value).tolist() for value in element]
            for element in factory.generate_dataset(found)
        ]
        for found in (local, paths)
    )
    assert here == there
