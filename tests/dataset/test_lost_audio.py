"""How much audio is lost with rejected clips."""

import json

import pytest

from beam_pipeline import Metadata, plan, verify
from beam_pipeline.dataset.tables import lost_audio
from tests.data_sets import rejects_in
from tests.sounds import RATE, damage, write_sound

FRAMES = 40_000


@pytest.fixture
def corpus(tmp_path):
    folder = tmp_path / "in"
    for name in ("good", "cut", "cut_in_the_middle"):
        write_sound(folder / f"a/{name}.flac", FRAMES, seed=1)
    damage(folder / "a/cut_in_the_middle.flac")
    write_sound(folder / "a/short.wav", 100)
    write_sound(folder / "a/truncated.wav", FRAMES)
    path = folder / "a/truncated.wav"
    path.write_bytes(path.read_bytes()[: 44 + 2 * 4000])
    (folder / "a/none.wav").write_text("no sound")
    return folder


def test_rejects_tell_their_seconds(corpus, tmp_path, cli):
    out = tmp_path / "out"
    flags = ["--win-len", "500", "--hop", "250", "--max-rejected", "9"]
    flags += ["--short-clips", "reject"]
    said = cli("record", "--input", corpus, "--output", out, *flags).out
    lines = {line["path"]: line for line in rejects_in(out)}
    assert lines["a/short.wav"]["seconds"] == 100 / RATE
    assert lines["a/truncated.wav"]["seconds"] == 4000 / RATE
    assert lines["a/none.wav"]["seconds"] is None
    late = lines["a/cut_in_the_middle.flac"]
    lost = int(late["reason"].partition("examples ")[2].split()[0])
    # From the first window that is missing to the end of the last one.
    assert late["seconds"] == (FRAMES - 250 * lost) / RATE
    known = [line["seconds"] for line in lines.values() if line["seconds"]]
    words = f"4 rejected ({sum(known):.2f} seconds, 1 of unknown length)"
    assert words in said
    assert lost_audio(str(out), Metadata.load(out)) in words
    said = cli("plan", "--input", corpus, *flags).out
    assert "3 rejected (0.51 seconds, 1 of unknown length)" in said
    assert verify(out, deep=True, input=corpus) == []


def test_a_part_of_a_file_counts_alone(tmp_path):
    write_sound(tmp_path / "a.wav", 8000)
    (tmp_path / "x.wav").write_text("no sound")
    rows = [
        {"path": "a.wav", "offset_s": 0.5, "duration_s": 0.01, "channel": None},
        {"path": "a.wav", "offset_s": 0.25, "duration_s": None, "channel": 3},
        {"path": "a.wav", "offset_s": 0.75, "duration_s": 3},
        {"path": "x.wav", "offset_s": 0.0, "duration_s": 1},
    ]
    (tmp_path / "m.jsonl").write_text("\n".join(map(json.dumps, rows)))
    _, rejects = plan(
        tmp_path / "m.jsonl", win_len=500, label_from="none", short_clips="reject"
    )
    assert [reject.seconds for reject in rejects] == [0.01, 0.75, 0.25, None]
