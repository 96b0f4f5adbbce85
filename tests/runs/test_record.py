"""Whole runs: from files to shards to what a reader finds in them."""

import multiprocessing
import os
import shutil
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import apache_beam as beam
import numpy as np
import pyarrow.parquet as pq
import pytest
import soundfile
from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.fn_api_runner import FnApiRunner

from beam_pipeline import Metadata, record
from beam_pipeline.dataset.job import Job, writer_versions
from beam_pipeline.errors import (
    OptionError,
    OutputError,
    RecipeError,
    TooManyRejected,
    WorkerDied,
)
from beam_pipeline.inputs.sources import resolve_inputs
from beam_pipeline.pipeline.graph import finish, plan_shards, write_shards
from beam_pipeline.recipe.recipe import Recipe
from tests.data_sets import contents, examples_in, problems_in, rejects_in, shards_in
from tests.processes import run_python
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_corpus, write_samples, write_sound


def expect_complete(examples, sounds, win_len, hop):
    """Every whole window of every sound is there once, sample by sample."""
    found = Counter((e["filepath"], int(e["win_start_idx"])) for e in examples)
    wanted = Counter(
        (name, start)
        for name, samples in sounds.items()
        for start in range(0, len(samples) - win_len + 1, hop)
    )
    assert found == wanted
    for example in examples:
        start = int(example["win_start_idx"])
        samples = sounds[example["filepath"]][start : start + win_len]
        np.testing.assert_array_equal(example["signal"], samples)


def test_a_folder_becomes_a_complete_data_set(out, tmp_path):
    sounds = write_corpus(tmp_path / "in")
    # Of several blocks.
    sounds["owl/long.wav"] = write_sound(tmp_path / "in/owl/long.wav", 600_000)
    (tmp_path / "in" / "notes.md").write_text("not a sound")
    metadata = record(tmp_path / "in", out, win_len=500, hop=250, num_shards=3)
    examples = examples_in(out)
    expect_complete(examples, sounds, 500, 250)
    names = sorted(sounds)
    for example in examples:
        assert example["class"] == example["filepath"].split("/")[0]
        assert metadata.classes[int(example["target"])] == example["class"]
        assert names[int(example["index"])] == example["filepath"]
        assert example["fs"] == RATE
    assert metadata.classes == ("cat", "dog", "owl")
    assert (metadata.clips, metadata.rejected, metadata.ignored_files) == (13, 0, 1)
    split = metadata.splits["records"]
    assert split.clips == 13
    assert split.examples == len(examples) == sum(split.examples_per_class.values())
    assert split.seconds == pytest.approx(len(examples) * 500 / RATE)
    sizes = [shard.examples for shard in split.shards]
    assert max(sizes) - min(sizes) <= 1
    assert problems_in(out) == []
    assert not (out / "_work").exists()
    # Metadata hold no path, and name the writer.
    text = (out / "metadata.json").read_text()
    assert str(tmp_path) not in text
    assert metadata.recipe.sha256() in text
    assert metadata.writer == writer_versions()
    manifest = pq.read_table(out / "manifest.parquet").to_pylist()
    assert {row["path"]: row["frames"] for row in manifest} == {
        name: len(samples) for name, samples in sounds.items()
    }
    assert [row["first_index"] for row in manifest] == list(
        np.cumsum([0] + [row["windows"] for row in manifest])[:-1]
    )


def test_elements_per_file_and_num_elems_are_exact(corpus, out):
    metadata = record(corpus, out, win_len=500, elements_per_file=4, num_elems=10)
    split = metadata.splits["records"]
    assert [shard.examples for shard in split.shards] == [4, 4, 2]
    assert [shard.file for shard in split.shards] == [
        f"records-0000{k}-of-00003.tfrecord.gz" for k in range(3)
    ]
    examples = examples_in(out)
    assert len(examples) == split.examples == 10
    assert split.clips == len({example["filepath"] for example in examples})
    classes = Counter(example["class"] for example in examples)
    assert +Counter(split.examples_per_class) == classes


def test_listed_order_is_the_order_of_names(out, tmp_path):
    sounds = write_corpus(tmp_path / "in")
    record(tmp_path / "in", out, win_len=500, order="listed")
    places = [(e["filepath"], int(e["win_start_idx"])) for e in examples_in(out)]
    assert places == sorted(places)
    assert {name for name, _ in places} == set(sounds)


SHARED = {
    "win_len": 500, "elements_per_file": 7,
    "features": {"mel": "log_mel(n_fft=256,hop=64,n_mels=8)", "signal": "identity()"},
}  # fmt: skip


@pytest.fixture(scope="module")
def by_one(tmp_path_factory):
    """The sounds in ``in``, and the data set ``out`` that one worker made of them."""
    root = tmp_path_factory.mktemp("by_one")
    write_corpus(root / "in")
    record(root / "in", root / "out", workers=1, **SHARED)
    return root


@pytest.mark.parametrize("workers", [1, 3])
def test_the_same_bytes_from_any_number_of_workers(by_one, out, workers):
    told = []
    totals = []

    def watch(total):
        totals.append(total)
        return lambda examples, seconds: told.append((examples, seconds))

    metadata = record(by_one / "in", out, workers=workers, watch=watch, **SHARED)
    assert contents(out) == contents(by_one / "out")
    # Progress counts every window.
    split = metadata.splits["records"]
    assert totals == [(split.examples, split.seconds)]
    assert told[-1] == (split.examples, pytest.approx(split.seconds))


def test_a_runner_of_beam_is_taken_as_asked(by_one, out):
    record(by_one / "in", out, beam_args=["--runner=FnApiRunner"], **SHARED)
    assert contents(out) == contents(by_one / "out")


def test_a_script_with_threads_and_no_main_guard_writes_the_same_bytes(
    by_one, tmp_path
):
    """From a folder elsewhere, under another hash seed, with workers."""
    folder = tmp_path / "two" / "below"
    shutil.copytree(by_one / "in", folder / "in")
    (folder / "script.py").write_text(
        "import threading\n"
        "from beam_pipeline import record\n"
        "threading.Thread(target=threading.Event().wait, daemon=True).start()\n"
        f"record('in', 'out', workers=2, **{SHARED})\n"
        "print('once')\n"
    )
    done = run_python("script.py", cwd=folder, PYTHONHASHSEED="1")
    assert done.stdout == "once\n"
    assert contents(folder / "out") == contents(by_one / "out")


def test_a_dead_worker_ends_the_run_without_metadata(corpus, out):
    features = {"x": "tests.sounds.die"}
    with raises(WorkerDied, naming="SIGKILL"):
        record(
            corpus, out, win_len=500, elements_per_file=7, workers=2, features=features
        )
    assert not (out / "metadata.json").exists()


def test_finished_shards_are_not_written_again(corpus, out):
    loud = corpus / "cat" / "cat_9.wav"
    write_samples(loud, np.full(1000, 0.95), RATE, subtype="PCM_16")
    options = {
        "win_len": 500,
        "elements_per_file": 7,
        "features": {"x": "tests.sounds.fail_on_loud"},
    }
    places = corpus, out
    with raises(TooManyRejected, naming=["--max-rejected", "1"]):
        record(*places, **options)
    assert rejects_in(out)[0]["path"] == "cat/cat_9.wav"
    assert "too loud" in rejects_in(out)[0]["reason"]
    before = {p.name: p.stat().st_mtime_ns for p in out.glob("*.gz")}
    metadata = record(*places, max_rejected=1, **options)
    after = {p.name: p.stat().st_mtime_ns for p in out.glob("*.gz")}
    # Only the shards with windows of the loud clip are tried again.
    changed = {name for name in after if before[name] != after[name]}
    assert 1 <= len(changed) <= 2
    split = metadata.splits["records"]
    assert metadata.rejected == 1
    assert split.clips == 12
    assert split.examples == len(examples_in(out))
    assert split.examples == sum(split.examples_per_class.values())
    assert problems_in(out) == []


@pytest.mark.parametrize("by", ["time", "content"])
def test_a_file_that_changed_since_the_run_was_cut_off_is_read_again(out, tmp_path, by):
    sounds = write_corpus(tmp_path / "in")
    (tmp_path / "in" / "cat" / "bad.wav").write_text("no sound")
    places = tmp_path / "in", out
    options = {"win_len": 500, "elements_per_file": 7, "hash_files": by == "content"}
    with pytest.raises(TooManyRejected):
        record(*places, **options)
    path = tmp_path / "in" / "dog" / "dog_1.wav"
    time_ns = path.stat().st_mtime_ns
    sounds["dog/dog_1.wav"] = write_sound(path, len(sounds["dog/dog_1.wav"]), seed=99)
    if by == "content":
        os.utime(path, ns=(time_ns, time_ns))
    record(*places, max_rejected=1, **options)
    expect_complete(examples_in(out), sounds, 500, 500)


def test_int16_is_kept(out, tmp_path):
    write_sound(tmp_path / "in" / "a" / "x.wav", 2000)
    samples, _ = soundfile.read(tmp_path / "in" / "a" / "x.wav", dtype="int16")
    record(tmp_path / "in", out, win_len=1000, dtype="int16")
    for example in examples_in(out):
        start = int(example["win_start_idx"])
        assert example["signal"].dtype == np.int16
        np.testing.assert_array_equal(example["signal"], samples[start : start + 1000])


NAN = np.where(np.arange(2000) == 1234, np.nan, 0)
UNREADABLE = ("UnreadableAudio", [])
# How each bad file is made beside a good one of 2000 frames, its error and the facts.
BAD_FILES = {
    "dead link.wav": (lambda path: path.symlink_to("nowhere.wav"), *UNREADABLE),
    "empty.wav": (lambda path: path.touch(), *UNREADABLE),
    "nan.wav": (lambda path: write_samples(path, NAN, RATE, subtype="FLOAT"),
                "NonFiniteAudio", [1234]),
    "no frames.wav": (lambda path: write_samples(path, np.zeros(0), RATE),
                      "EmptyAudio", []),
    "short.wav": (lambda path: write_sound(path, 999), "ShortClip", [999, 1000]),
    "text.wav": (lambda path: path.write_text("this is no sound"), *UNREADABLE),
    "truncated.wav": (
        lambda path: path.write_bytes(path.with_name("good.wav").read_bytes()[:1000]),
        "TruncatedAudio", [4000]),
    "video.mp4": (lambda path: path.write_bytes(b"\0\0\0\x18ftypmp42" + bytes(100)),
                  *UNREADABLE),
}  # fmt: skip


def bad_folder(tmp_path, *names):
    write_sound(tmp_path / "in/a/good.wav", 2000)
    for name in names:
        BAD_FILES[name][0](tmp_path / "in/a" / name)
    return tmp_path / "in"


def test_bad_files_are_named_with_the_reason(out, tmp_path):
    folder = bad_folder(tmp_path, *BAD_FILES)
    options = {"win_len": 1000, "short_clips": "reject"}
    with raises(TooManyRejected, naming=["8", "9", "a/empty.wav"]):
        record(folder, out, **options)
    assert not (out / "metadata.json").exists()
    metadata = record(folder, out, max_rejected="90%", **options)
    found = {line["path"]: line for line in rejects_in(out)}
    assert found.keys() == {f"a/{name}" for name in BAD_FILES}
    for name, (_, error, facts) in BAD_FILES.items():
        line = found[f"a/{name}"]
        assert (line["error"], line["stage"]) == (error, "probe")
        assert_names(line["reason"], *facts)
    assert metadata.splits["records"].examples == 2


def test_truncated_and_not_finite_files_are_taken_if_allowed(out, tmp_path):
    folder = bad_folder(tmp_path, "truncated.wav")
    record(folder, out, win_len=100, allow_truncated=True)
    frames = {e["filepath"] for e in examples_in(out)}
    assert frames == {"a/good.wav", "a/truncated.wav"}


def test_a_run_without_a_good_file_is_in_nobodys_way(out, tmp_path):
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "x.wav").write_text("no sound")
    with raises(TooManyRejected, naming=["1", "x.wav"]):
        record(str(tmp_path / "bad"), out, win_len=1000)
    assert (out / "rejected.jsonl").exists()
    # Nothing came of it, so that nothing is in the way of another.
    write_corpus(tmp_path / "in", clips=1)
    record(tmp_path / "in", out, win_len=500)
    assert (out / "rejected.jsonl").read_text() == ""


def test_what_was_there_before_is_not_touched(corpus, out):
    places = corpus, out
    out.mkdir()
    (out / "thesis.txt").write_text("five years of work")
    for overwrite in (False, True):
        with raises(OutputError, naming="thesis.txt"):
            record(*places, win_len=500, overwrite=overwrite)
    (out / "thesis.txt").unlink()
    record(*places, win_len=500)
    before = contents(out)
    with raises(OutputError, naming=[places[1], "--overwrite"]):
        record(*places, win_len=501)
    assert contents(out) == before
    with pytest.raises(RecipeError):
        record(*places, win_len=500, hop=-1, overwrite=True)
    assert contents(out) == before
    record(*places, win_len=250, elements_per_file=10, overwrite=True)
    assert problems_in(out) == []


def test_a_file_that_changes_during_the_run_is_not_recorded(out, tmp_path):
    sounds = write_corpus(tmp_path / "in")
    recipe = Recipe(win_len=500, num_shards=3)
    inputs = tuple(resolve_inputs([f"{tmp_path}/in"]))
    job = Job(inputs, f"{tmp_path}/out", str(tmp_path / "work"), recipe, "100%")
    with beam.Pipeline(runner=FnApiRunner(), options=PipelineOptions([])) as pipeline:
        once = pipeline | "Once" >> beam.Create([inputs], reshuffle=False)
        work = plan_shards(once, job)
        changed = work | beam.Map(change_cats, tmp_path / "in")
        _ = finish(once, write_shards(changed, job), job)
    metadata = Metadata.load(out)
    assert metadata.rejected == 4
    lines = rejects_in(out)
    assert {line["path"] for line in lines} == {f"cat/cat_{i}.wav" for i in range(4)}
    assert {line["error"] for line in lines} == {"UnreadableAudio"}
    assert len(sounds) == 12


def change_cats(work, folder):
    for path in Path(folder, "cat").iterdir():
        os.utime(path, ns=(0, 1))
    return work


ENGINES = [{"workers": 2}, {"beam_args": ["--runner=FnApiRunner"]}]


class TestShardsOfEarlierPlans:
    """Whatever changed between two runs, the output holds the metadata's shards."""

    @pytest.mark.parametrize("engine", ENGINES)
    def test_after_a_file_is_mended(self, corpus, out, tmp_path, engine):
        (corpus / "cat" / "bad.wav").write_text("no sound")
        options = {"win_len": 500, "elements_per_file": 15}
        with pytest.raises(TooManyRejected):
            record(corpus, out, **options, **engine)
        stale = {*shards_in(out)}
        write_sound(corpus / "cat" / "bad.wav", 9000)
        metadata = record(corpus, out, **options, **engine)
        assert record(corpus, out, **options, **engine) == metadata  # it is complete
        record(corpus, tmp_path / "fresh", **options)
        assert stale - {*shards_in(tmp_path / "fresh")}
        assert contents(out) == contents(tmp_path / "fresh")

    @pytest.mark.parametrize("work", [None, "work"])
    def test_of_splits_that_vanished_and_nothing_else(
        self, tmp_path, work, run_cut_off
    ):
        names = list(write_corpus(tmp_path / "in", clips=2))
        table, out = tmp_path / "in" / "all.csv", tmp_path / "out"

        def write_table(*splits):
            rows = [f"{n},{s}" for n, s in zip(names, splits * 9, strict=False)]
            table.write_text("\n".join(["path,split", *rows]))

        options = {"win_len": 500, "split_column": "split"}
        options |= {} if work is None else {"work_dir": tmp_path / work}
        write_table("train", "eval", "test")
        run_cut_off(table, out, **options)
        mine = [
            "mine.tfrecord.gz",
            "records-00002-of-00002.tfrecord.gz",
            "train-00000-of-00002.tfrecord.gz",
            "eval/train-00000-of-00002.tfrecord.gz",
            "eval/eval-00000-of-00002.tfrecord.gz.bak",
        ]
        for name in mine:
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text("precious")
        write_table("train", "train")
        record(table, out, **options)
        assert (out / "train" / "train-00000-of-00001.tfrecord.gz").exists()
        assert not (out / "eval" / "eval-00000-of-00001.tfrecord.gz").exists()
        assert not (out / "test").exists()
        assert [name for name in mine if not (out / name).exists()] == []
        assert not (out / "_work").exists()
        assert not (tmp_path / "work").exists()

    def test_of_another_output_stay(self, corpus, tmp_path, run_cut_off):
        options = {"win_len": 500, "work_dir": tmp_path / "work"}
        run_cut_off(corpus, tmp_path / "a", **options)
        other = {"win_len": 500, "elements_per_file": 15}
        run_cut_off(corpus, tmp_path / "b", **other)
        before = contents(tmp_path)
        with raises(OutputError, naming=[tmp_path / "a", "--work-dir", "--overwrite"]):
            record(corpus, tmp_path / "b", **options)
        assert contents(tmp_path) == before


def _record(sounds, folder):
    """Records with and without options that need other processes."""
    for option in ({"workers": 2}, {"time_limit": 5.0}):
        (name,) = option
        with raises(OptionError, name, naming="daemonic"):
            record(sounds, folder / name, win_len=500, **option)
        assert not (folder / name).exists()
    record(sounds, folder / "default", win_len=500)


def test_a_daemonic_process_records_alone_or_refuses(tmp_path):
    write_corpus(tmp_path / "in", clips=1)
    process = multiprocessing.get_context("spawn").Process(
        target=_record, args=(str(tmp_path / "in"), tmp_path), daemon=True
    )
    process.start()
    process.join()
    assert process.exitcode == 0
    assert Metadata.load(tmp_path / "default").splits


def test_threads_of_one_process_record_at_once(tmp_path):
    write_corpus(tmp_path / "in")
    options = {"win_len": 500, "num_shards": 3, "workers": 1}
    alone = record(tmp_path / "in", tmp_path / "alone", **options)
    folders = [tmp_path / f"out{k}" for k in range(4)]
    with ThreadPoolExecutor(len(folders)) as pool:
        made = pool.map(lambda out: record(tmp_path / "in", out, **options), folders)
        assert list(made) == [alone] * len(folders)
