"""Runs in a daemonic process, which may start no others, and in several threads."""

import multiprocessing
from concurrent.futures import ThreadPoolExecutor

from beam_pipeline import Metadata, record
from beam_pipeline.errors import OptionError
from tests.raising import raises
from tests.sounds import write_corpus


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
