"""Runs whose disk or processes fail: an error that helps, and nothing lost."""

import json

import numpy as np
import pytest
import soundfile

from beam_pipeline import record, verify
from beam_pipeline.errors import IncompleteRun, OutputError
from beam_pipeline.read.records import open_records
from beam_pipeline.run import local
from tests.data_sets import rejects_in, shards_in
from tests.processes import run_python
from tests.raising import raises


def write_noise(folder, clips=4, seconds=20):
    """Writes clips of noise, which GZIP cannot make small."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for k in range(clips):
        noise = rng.normal(0, 0.1, 8000 * seconds).astype(np.float32)
        soundfile.write(folder / f"{k}.wav", noise, 8000)
    return folder


@pytest.mark.parametrize("error", ["OSError(5, 'I/O error')", "ValueError('odd')"])
@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_others_ends_the_run(tmp_path, workers, error):
    write_noise(tmp_path / "in")
    code = (
        "import sys\n"
        "from beam_pipeline import record\n"
        "from beam_pipeline.storage.tfrecord import MemberWriter\n"
        f"def fail(*args): raise {error}\n"
        "MemberWriter.write_member = fail\n"
        "record(sys.argv[1], sys.argv[2], win_seconds=1, label_from='none',\n"
        f"       num_shards=2, workers={workers})\n"
    )
    places = tmp_path / "in", tmp_path / "out"
    done = run_python("-c", code, *places, status=1, TMPDIR=str(tmp_path))
    assert error.partition("'")[2].partition("'")[0] in done.stderr


def test_an_output_that_cannot_be_made_is_named(tmp_path):
    sounds = write_noise(tmp_path / "in", clips=1)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("nowhere")
    for output, why in (
        ("file/out", "is a file"),
        ("x" * 300, "too long"),
        ("link", "leads nowhere"),
    ):
        with raises(OutputError, naming=[tmp_path / output.partition("/")[0], why]):
            record(sounds, tmp_path / output, win_seconds=1, label_from="none")


def write_broken_flac(folder):
    """Writes three clips of 40 windows; the middle one breaks after 20 of them."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name in "abc":
        noise = rng.normal(0, 0.1, 40 * 4096).astype(np.float32)
        soundfile.write(folder / f"{name}.flac", noise, 8000)
    data = bytearray((folder / "b.flac").read_bytes())
    data[len(data) // 2] ^= 0xFF
    (folder / "b.flac").write_bytes(data)


@pytest.mark.parametrize("known", [False, True])
def test_whole_clips_leaves_no_window_of_a_clip_that_breaks(tmp_path, known):
    write_broken_flac(tmp_path / "in")
    source = tmp_path / "in"
    if known:  # the headers are not read, only what the table says
        source = tmp_path / "clips.csv"
        rows = [f"in/{name}.flac,163840,8000,1" for name in "abc"]
        source.write_text("\n".join(["filepath,frames,sample_rate_hz,channels", *rows]))
    found = {}
    for whole in (False, True):
        out = tmp_path / f"out_{whole}"
        record(
            source, out, win_len=4096, num_shards=5, order="listed", max_rejected=1,
            label_from="none", whole_clips=whole, workers=1,
        )  # fmt: skip
        names = [example["filepath"] for example in open_records(str(out))]
        found[whole] = {name: names.count(name) for name in set(names)}
        (stage,) = {line["stage"] for line in rejects_in(out)}
        assert stage == ("probe" if whole else "decode")
        recipe = json.loads((out / "metadata.json").read_text())["recipe"]
        assert recipe["whole_clips"] == whole
    a, b, c = (f"{'in/' * known}{name}.flac" for name in "abc")
    assert found[False].pop(b) in range(1, 39)
    assert found[True] == found[False] == {a: 40, c: 40}


@pytest.mark.parametrize("name", ["pages", "receipts"])
def test_what_is_deleted_in_the_work_folder_is_not_taken_for_nothing(
    tmp_path, monkeypatch, name
):
    """``rm -r`` deletes the files of a folder one by one, in any order."""
    sounds, out, wanted = write_noise(tmp_path / "in"), tmp_path / "out", tmp_path / "w"
    options = {"win_seconds": 1, "label_from": "none", "num_shards": 2, "workers": 1}
    options["max_rejected"] = "1"
    (sounds / "bad.wav").write_bytes(b"RIFF")
    record(sounds, wanted, **options)
    finish = local.finish_job

    def delete_and_finish(*args):
        deleted = list((out / "_work").rglob(f"{name}/*"))
        assert deleted
        for path in deleted:
            path.unlink()
        return finish(*args)

    with monkeypatch.context() as patch:
        patch.setattr(local, "finish_job", delete_and_finish)
        again = "Give the same command again"
        with raises(IncompleteRun, naming=[f"{out}/_work", "deleted", again]):
            record(sounds, out, **options)
    assert not (out / "metadata.json").exists()
    record(sounds, out, **options)
    assert shards_in(out) == shards_in(wanted)
    assert verify(out, deep=True) == []
    assert (out / "metadata.json").read_bytes() == (
        wanted / "metadata.json"
    ).read_bytes()
