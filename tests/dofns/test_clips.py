"""Probe and CutWindows in pipelines: against ``record``, and slices by hand."""

import os
from pathlib import Path

import numpy as np
import pytest
import soundfile

from beam_pipeline import record
from beam_pipeline.audio.clip_reader import probe_audio
from beam_pipeline.dofns import CutWindows, Probe
from beam_pipeline.errors import InputError, RecipeError, UnreadableAudio
from beam_pipeline.write.shard import BLOCK_BYTES
from tests.pipelines import drive, exact, found_values, run_step, stored_values
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_sound


def signals_of(elements):
    return [element["signal"].tobytes() for element in elements]


def write_flac(path, frames, broken=()):
    noise = np.random.default_rng(3).uniform(-0.5, 0.5, frames)
    soundfile.write(path, noise, RATE)
    if broken:
        content = bytearray(path.read_bytes())
        first, stop = (int(share * len(content)) for share in broken)
        content[first:stop] = bytes(stop - first)
        path.write_bytes(content)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """Files of several formats, and one that is longer than a block."""
    folder = tmp_path_factory.mktemp("mixed")
    write_sound(folder / "a" / "mono.wav", 2500)
    write_sound(folder / "a" / "stereo.wav", 2750, channels=2, seed=1)
    write_sound(folder / "b" / "float.wav", 1999, seed=2, subtype="FLOAT")
    write_sound(folder / "b" / "one.wav", 1000, seed=3, subtype="PCM_24")
    write_sound(folder / "long.wav", BLOCK_BYTES // 4 + 70_001, seed=4)
    write_flac(folder / "b" / "x.flac", 3001)
    return folder


NAMES = ["a/mono.wav", "a/stereo.wav", "b/float.wav", "b/one.wav", "b/x.flac",
         "long.wav"]  # fmt: skip


# Probe


def test_probe_is_probe_audio(mixed):
    elements, wanted = [], []
    for name in NAMES:
        path = str(mixed / name)
        info = probe_audio(path, name=path)
        probed = {
            "filepath": path, "frames": info.frames, "fs": RATE,
            "channels": 2 if "stereo" in name else 1, "seconds": info.frames / RATE,
            "format": info.format, "subtype": info.subtype,
        }  # fmt: skip
        labelled = {"filepath": path, "label": "owl", "frames": "few"}
        elements += [path, Path(path), labelled]
        wanted += [probed, probed, {**labelled, **probed}]
    found, rejects, _ = run_step(elements, Probe())
    assert exact(found) == exact(wanted)
    assert rejects == []


@pytest.fixture
def bad(tmp_path):
    """A good file and six bad ones; path -> the name of its error."""
    write_sound(tmp_path / "good.wav", 2000)
    (tmp_path / "text.wav").write_text("this is no sound")
    (tmp_path / "empty.wav").touch()
    soundfile.write(tmp_path / "none.wav", np.zeros(0), RATE)
    whole = (tmp_path / "good.wav").read_bytes()
    (tmp_path / "cut.wav").write_bytes(whole[:1000])
    samples = np.zeros(2000, np.float32)
    samples[1234] = np.nan
    soundfile.write(tmp_path / "nan.wav", samples, RATE, subtype="FLOAT")
    errors = {
        "text.wav": "UnreadableAudio", "empty.wav": "UnreadableAudio",
        "none.wav": "EmptyAudio", "cut.wav": "TruncatedAudio",
        "nan.wav": "NonFiniteAudio", "missing.wav": "UnreadableAudio",
    }  # fmt: skip
    return {str(tmp_path / name): error for name, error in errors.items()}


@pytest.mark.parametrize("make", [Probe, lambda **k: CutWindows(win_len=100, **k)])
def test_bad_files_are_rejects(bad, make):
    good = str(Path(next(iter(bad))).with_name("good.wav"))
    found, rejects, counters = run_step([*bad, good], make())
    assert {element["filepath"] for element in found} == {good}
    assert [(r["path"], r["error"]) for r in rejects] == list(bad.items())
    for reject in rejects:
        assert reject.keys() == {"path", "stage", "error", "reason"}
        assert reject["stage"] == "probe"
        assert reject["reason"]
        assert reject["path"] not in reject["reason"]
    assert counters["rejected_UnreadableAudio"] == 3
    assert counters["rejected_EmptyAudio"] == 1
    allowed = drive(
        make(allow_truncated=True, allow_nonfinite=True),
        [path for path in bad if "cut" in path or "nan" in path],
    )
    assert {os.path.basename(e["filepath"]) for e in allowed} == {"cut.wav", "nan.wav"}
    path = next(iter(bad))
    with raises(UnreadableAudio, path=path):
        drive(make(on_error="raise"), [path])
    with raises(UnreadableAudio, naming="text.wav"):
        run_step([path], make(on_error="raise"))


@pytest.mark.parametrize("element", [None, 3, "", {}, {"path": "x.wav"}, b"x.wav",
                                     {"filepath": None}, ["x.wav"]])  # fmt: skip
@pytest.mark.parametrize("dofn", [Probe(), CutWindows(win_len=1)])
def test_what_is_no_path(dofn, element):
    with raises(InputError, naming="filepath"):
        drive(dofn, [element])


# CutWindows


@pytest.mark.parametrize(
    "options",
    [
        {"win_len": 700, "hop": 430, "tail": "pad", "channels": 0},
        {"win_seconds": 0.2, "sample_rate": 11025, "hop_seconds": 0.15},
        {"win_len": 900, "random_starts": True, "seed": 7, "max_windows": 9},
        {"win_len": 9000, "sample_rate": 16_000, "tail": "overlap",
         "stream": "high_pass(cutoff_hz=50)|clip_gain(kind='rms')"},
    ],
    ids=lambda options: "-".join(options),
)  # fmt: skip
def test_windows_are_those_that_record_stores(mixed, tmp_path, options):
    out = tmp_path / "out"
    metadata = record(mixed, out, num_shards=1, max_rejected=10, **options)
    wanted = stored_values(out, metadata, "signal")
    found, rejects, _ = run_step(NAMES, CutWindows(**options, root=str(mixed)))
    assert found_values(found, "signal") == wanted
    short = {r["path"] for r in rejects}
    assert short | {name for name, _ in wanted} == set(NAMES)
    assert all(reject["error"] == "ShortClip" for reject in rejects)


def test_the_keys_of_an_element_stay(mixed):
    element = {"filepath": mixed / "b" / "one.wav", "index": 7, "label": "owl"}
    found = drive(CutWindows(win_len=600, tail="pad"), [element])
    path = str(mixed / "b" / "one.wav")
    samples = soundfile.read(path, dtype="float32")[0]
    last = np.concatenate([samples[600:], np.zeros(200, np.float32)])
    shared = {"filepath": path, "index": 7, "label": "owl"}
    assert exact(found) == exact([
        {**shared, "signal": samples[:600], "fs": RATE, "win_start_idx": 0},
        {**shared, "signal": last, "fs": RATE, "win_start_idx": 600},
    ])  # fmt: skip


def test_damage_in_the_middle_leaves_the_windows_before_it(tmp_path):
    frames, size = 3 * BLOCK_BYTES // 4, 1000
    whole, broken = tmp_path / "whole.flac", tmp_path / "broken.flac"
    write_flac(whole, frames)
    write_flac(broken, frames, broken=(0.6, 0.61))
    found, rejects, _ = run_step([str(broken)], CutWindows(win_len=size))
    (reject,) = rejects
    assert reject["path"] == str(broken)
    assert (reject["stage"], reject["error"]) == ("decode", "UnreadableAudio")
    total = frames // size
    assert 0 < len(found) < 0.6 * total
    assert_names(reject["reason"], f"windows {len(found)} to {total - 1} of {total}")
    wanted = drive(CutWindows(win_len=size), [whole])
    assert signals_of(found) == signals_of(wanted[: len(found)])


def test_memory_holds_one_block(tmp_path):
    """A window shares the memory of its block, and nobody can write into it."""
    write_sound(tmp_path / "x.wav", BLOCK_BYTES)
    dofn = CutWindows(win_len=1000, hop=10)
    dofn.setup()
    made = dofn.process(tmp_path / "x.wav")
    first, second = next(made)["signal"], next(made)["signal"]
    assert np.shares_memory(first, second)
    owner = first
    while getattr(owner, "base", None) is not None:  # a view may have an owner between
        owner = owner.base
    assert owner.nbytes <= BLOCK_BYTES
    assert not first.flags.writeable
    made.close()
    dofn.teardown()


# Options


@pytest.mark.parametrize(("options", "field"), [
    ({}, "win_len or win_seconds"), ({"win_len": 1, "hop": -1}, "hop"),
    ({"win_len": 1, "on_error": "drop"}, "on_error"),
])  # fmt: skip
def test_options_are_checked_at_once(options, field):
    with pytest.raises(RecipeError) as caught:
        CutWindows(**options)
    assert str(caught.value).startswith(field.partition(" ")[0])
    with raises(RecipeError, "on_error", "warn"):
        Probe(on_error="warn")
