"""audit: finds every planted leak, nothing where there is none; and its remedy."""

import json
import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
import soundfile
from hypothesis import example, given, settings
from hypothesis import strategies as st

from beam_pipeline import audit, record, record_examples
from beam_pipeline.audio.sketch import sketch_audio
from beam_pipeline.cli.main import main
from beam_pipeline.errors import InputError, OptionError, TooManyRejected
from beam_pipeline.read.audit import (
    KINDS,
    components_of,
    overlapping_parts,
    similar_sketches,
    write_clean_manifest,
)
from tests.audio.test_sketch import melody
from tests.inputs.test_manifests import write_csv
from tests.raising import assert_names, raises
from tests.sounds import RATE, damage, write_samples, write_sound


def counts(found):
    """(across, within) of each kind that has findings."""
    return {
        kind: (found.count(kind, across=True), found.count(kind, across=False))
        for kind in KINDS
        if found.count(kind)
    }


def paths(finding):
    return [(clip["split"], clip["path"]) for clip in finding["clips"]]


def status(folder, *flags):
    return main(["audit", str(folder), *flags])


def write_melody(path, seed, rate=16000, **options):
    write_samples(path, melody(seed, rate=rate), rate, **options)


# Clean data sets


@pytest.fixture
def speakers(tmp_path):
    for speaker in range(6):
        for label in "ab":
            for take in range(2):
                name = f"{label}/{label}_s{speaker}_{take}.wav"
                seed = 100 * speaker + 10 * take + (label == "b")
                write_sound(tmp_path / "in" / name, 1600, seed=seed)
    return tmp_path / "in"


@pytest.mark.parametrize(
    "options",
    [
        {"splits": "train=.5,test=.5", "group_by": "speaker", "stratify": True},
        {"folds": 2, "stratify": True},
        {"split_column": "speaker", "group_by": "speaker"},
        {"copies": 2, "augment": "noise()", "splits": "train=.8,test=.2"},
    ],
    ids=str,
)
def test_recorded_splits_are_clean(speakers, tmp_path, options):
    metadata = record(
        speakers, tmp_path / "o", win_len=800,
        label_from="(?P<class>[ab])_(?P<speaker>.+)_", **options,
    )  # fmt: skip
    found = audit(tmp_path / "o")
    assert counts(found) == {}
    assert (found.leaks, found.clips) == (0, 24)
    assert found.splits == tuple(metadata.splits)
    grouped = "group_by" in options
    assert [*found.not_compared] == ([] if grouped else ["group"])
    assert status(tmp_path / "o") == 0


def test_files_of_one_name_in_two_inputs_are_clean(speakers, tmp_path):
    """The same names in two folders are not the same files."""
    for take in range(2):
        more = tmp_path / "more" / "a" / f"a_s0_{take}.wav"
        write_sound(more, 1600, seed=1000 + take)
    inputs = {"train": speakers, "test": tmp_path / "more"}
    record(inputs, tmp_path / "inputs", win_len=800)
    assert counts(audit(tmp_path / "inputs")) == {}


# Planted leaks


@pytest.fixture
def planted(tmp_path):
    """Records rows (path, split, class, more columns)."""

    def record_rows(rows, **options):
        path = write_csv(tmp_path / "m.csv", rows)
        columns = {"label_from": "kind", "split_column": "part"}
        record(path, tmp_path / "o", **{
            "win_len": 400, **columns, **options})  # fmt: skip
        return audit(tmp_path / "o")

    return record_rows


def test_a_file_in_two_splits(tmp_path, planted, cli):
    write_melody(tmp_path / "x.wav", 0)
    rows = [
        {"path": "x.wav", "part": part, "kind": "a", "offset_s": at, "duration_s": 0.5}
        for part, at in (("train", 0), ("train", 0.5), ("test", 1))
    ]
    (finding,) = planted(rows)
    assert finding == {
        "kind": "file", "across": True, "detail": "",
        "clips": [
            {"split": split, "path": "x.wav", "start_s": at, "end_s": at + 0.5,
             "class": "a"}
            for split, at in (("test", 1.0), ("train", 0.0), ("train", 0.5))
        ],
    }  # fmt: skip
    said = cli("audit", tmp_path / "o", status=4).out
    assert_names(said, "3 clips in test, train", "same path: 1 across splits")
    assert_names(said, "same group: not recorded", "--group-by")
    assert_names(said, "same audio: none", "overlapping parts: none")
    assert said.splitlines()[-3:] == [
        "  test  x.wav  1 to 1.5 s  a",
        "  train  x.wav  0 to 0.5 s  a",
        "  train  x.wav  0.5 to 1 s  a",
    ]
    said = cli("audit", tmp_path / "o", "--json", status=4)
    assert_names(said.err, "3 clips", "1 across splits")
    assert json.loads(said.out) == finding


MELODY, COPY, QUIET = "x.wav", "copy.wav", "quiet.wav"


@pytest.mark.parametrize(
    ("rows", "wanted"),
    [
        # Parts overlap by 0.1 s, within a split and across splits.
        ([(MELODY, "a", 0, 0.5), (f"./{MELODY}", "a", 0.4, 0.5), (MELODY, "a", 1, 0.5)],
         {"parts": (0, 1)}),
        ([(MELODY, "a", 0, 0.5), (f"./{MELODY}", "b", 0.4, 0.5), (MELODY, "a", 1, 0.5)],
         {"file": (1, 0), "parts": (1, 0)}),
        # A row without a duration, and one with that of the file.
        ([(MELODY, "a", "", ""), (MELODY, "a", "", 2.0)],
         {"audio": (0, 1), "parts": (0, 1)}),
        # Equal audio is not listed again as similar audio.
        ([(MELODY, "a", "", ""), (COPY, "b", "", "")], {"audio": (1, 0)}),
        # Silence equals only silence of the same length.
        ([(QUIET, "a", "", 1), ("more.wav", "a", "", ""), (QUIET, "a", 1, 0.5)],
         {"audio": (0, 1)}),
    ],
)  # fmt: skip
def test_planted_findings(tmp_path, planted, rows, wanted):
    for name in (MELODY, COPY):
        write_melody(tmp_path / name, 0)
    for name, frames in ((QUIET, 32000), ("more.wav", 16000)):
        write_samples(tmp_path / name, np.zeros(frames), 16000)
    names = ("path", "part", "offset_s", "duration_s")
    found = planted(
        [{**dict(zip(names, row, strict=True)), "kind": "k"} for row in rows]
    )
    assert counts(found) == wanted
    assert status(tmp_path / "o") == (4 if found.leaks else 0)
    clips = {clip["path"] for clip in list(found)[-1]["clips"]}
    assert clips == {path for path, *_ in rows[:2]}


def test_a_group_in_two_splits(tmp_path, planted):
    rows = []
    for at, (part, speaker) in enumerate(
        [("train", "theo"), ("train", "ann"), ("test", "theo"), ("test", "bob")]
    ):
        write_melody(tmp_path / f"{at}.wav", at)
        rows.append({"path": f"{at}.wav", "part": part, "kind": "a",
                     "speaker": speaker, "day": 1})  # fmt: skip
    # With `group_by`, record rejects a group in two splits.
    with raises(TooManyRejected, naming=["2.wav", "theo, 1", "train"]):
        planted(rows, group_by="speaker,day")
    planted(rows, overwrite=True)
    (finding,) = audit(tmp_path / "o", "speaker,day")
    assert finding["detail"] == "theo, 1"
    assert paths(finding) == [("test", "2.wav"), ("train", "0.wav")]
    by_day = audit(tmp_path / "o", "day")
    assert counts(by_day) == {"group": (1, 0)}
    assert_names(str(by_day), "4 clips", "test, train")
    for flags, wanted in (
        ([], 0), (["--group-by", "speaker"], 4), (["--group-by", "path"], 0),
        (["--group-by", "spaeker"], 2),
    ):  # fmt: skip
        assert status(tmp_path / "o", *flags) == wanted
    with raises(OptionError, "group_by", "spaeker", naming=["path", "speaker"]):
        audit(tmp_path / "o", "spaeker")
    with raises(OptionError, "group_by", 3):
        audit(tmp_path / "o", 3)


@pytest.mark.parametrize(
    ("groups", "leaks"),
    [
        (("", "", "x"), 0),  # clips without a group are in none
        (("1.5", "", "", ""), 0),
        (("S ", "S", "", ""), 1),  # groups are compared in one spelling
    ],
)
def test_groups_of_a_column(tmp_path, planted, groups, leaks):
    rows = []
    for at, group in enumerate(groups):
        write_melody(tmp_path / f"{at}.wav", at)
        part = "train" if at in (0, 3) else "test"
        rows.append({"path": f"{at}.wav", "part": part, "kind": "a", "ship": group})
    planted(rows)
    found = audit(tmp_path / "o", "ship")
    assert "group" not in found.not_compared
    assert found.count("group", across=True) == leaks


@pytest.mark.parametrize(
    ("name", "subtype", "options"),
    [("1.wav", "PCM_16", {}), ("1.flac", "PCM_16", {"sample_rate": 8000}),
     ("1.wav", "FLOAT", {"channels": 0})],
)  # fmt: skip
def test_the_same_audio_under_another_name(tmp_path, name, subtype, options):
    write_melody(tmp_path / "train" / "a" / "x.wav", 0)
    write_melody(tmp_path / "train" / "a" / "y.wav", 1)
    write_melody(tmp_path / "test" / "a" / "z.wav", 2)
    sound, rate = soundfile.read(tmp_path / "train" / "a" / "x.wav")
    write_samples(tmp_path / "test" / "b" / name, sound, rate, subtype=subtype)
    record({split: tmp_path / split for split in ("train", "test")}, tmp_path / "o",
           win_len=400, **options)  # fmt: skip
    found = audit(tmp_path / "o")
    assert counts(found) == {"audio": (1, 0)}
    (finding,) = found
    assert [clip["class"] for clip in finding["clips"]] == ["b", "a"]
    assert finding["detail"] == "classes b, a"
    assert "same audio: 1 across splits, 1 with several classes" in found.describe()
    assert status(tmp_path / "o") == 4


@pytest.mark.parametrize(("rate", "kind"), [(None, "audio"), (12000, "similar")])
def test_the_same_audio_is_that_of_the_part_and_of_the_channel(
    tmp_path, planted, rate, kind
):
    """A part is resampled with what is around it, so that its first samples differ."""
    stereo = np.stack([melody(0), melody(1)], axis=1)
    write_samples(tmp_path / "x.wav", stereo, 16000, subtype="FLOAT")
    write_samples(tmp_path / "y.wav", stereo[8000:24000, 1], 16000, subtype="FLOAT")
    write_samples(tmp_path / "z.wav", stereo[8000:24000], 16000, subtype="FLOAT")
    base = {"part": "train", "kind": "a", "offset_s": 0.5, "duration_s": 1}
    whole = {**base, "offset_s": 0, "duration_s": "", "part": "test"}
    rows = [
        {**base, "path": "x.wav", "channel": 1},
        {**whole, "path": "y.wav", "channel": ""},
        {**base, "path": "x.wav", "channel": ""},
        {**whole, "path": "z.wav", "channel": ""},
        {**base, "path": "x.wav", "channel": 0},
    ]
    found = planted(rows, sample_rate=rate)
    same = sorted(paths(finding) for finding in found if finding["kind"] == kind)
    assert same == [[("test", n), ("train", "x.wav")] for n in ("y.wav", "z.wav")]
    # The clip of both channels overlaps both others.
    (parts,) = (finding for finding in found if finding["kind"] == "parts")
    assert len(parts["clips"]) == 3


def test_near_identical_audio_under_two_classes(tmp_path, planted):
    for seed, name in enumerate("xyz"):
        write_melody(tmp_path / f"{name}.wav", seed)
    write_melody(tmp_path / "x.mp3", 0, format="MP3")
    write_samples(tmp_path / "y.ogg", 0.3 * melody(1), 16000)
    names = {"x.wav": ("train", "a"), "x.mp3": ("train", "b"), "y.wav": ("train", "a"),
             "y.ogg": ("test", "a"), "z.wav": ("test", "b")}  # fmt: skip
    rows = [{"path": name, "part": part, "kind": kind}
            for name, (part, kind) in names.items()]  # fmt: skip
    found = planted(rows)
    assert counts(found) == {"similar": (1, 1)}
    leak, double = found
    assert paths(leak) == [("test", "y.ogg"), ("train", "y.wav")]
    assert sorted(paths(double)) == [("train", "x.mp3"), ("train", "x.wav")]
    assert "classes " in double["detail"]
    counts_said = "1 across splits, 1 within one split, 1 with several classes"
    assert f"near-identical audio in the first 2 s: {counts_said}" in str(found)


# What is recorded


def test_what_was_not_compared_is_said(tmp_path, cli):
    """Silence and short clips have no sketch; other data sets have no clips at all."""
    write_samples(tmp_path / "in" / "a.wav", np.zeros(16000), 16000)
    write_melody(tmp_path / "in" / "b.wav", 0)
    write_sound(tmp_path / "in" / "c.wav", 100)
    for name, words in (
        ("some", "none; 2 clips are silent, steady, or too short"),
        ("none", "not compared; all clips are silent, steady, or too short"),
    ):
        record(tmp_path / "in", tmp_path / name, win_len=100, label_from="none")
        (tmp_path / "in" / "b.wav").unlink(missing_ok=True)
        said = cli("audit", tmp_path / name).out
        assert f"near-identical audio in the first 2 s: {words}\n" in said
        assert_names(said, "same path: none", "same audio: none", "--group-by")
    record_examples([{"x": 1}], tmp_path / "dicts")
    said = cli("audit", tmp_path / "dicts", status=2).err
    assert_names(said, "dicts has no manifest.parquet")
    (tmp_path / "none" / "windows.parquet").unlink()
    assert (
        "none has no windows.parquet" in cli("audit", tmp_path / "none", status=2).err
    )


def sounds_of(folder):
    table = pq.read_table(folder / "manifest.parquet").sort_by("path")
    return table.select(["path", "window_hash", "start_sketch"]).to_pylist()


def test_shards_workers_and_engines_do_not_change_what_is_compared(tmp_path):
    for seed in range(4):
        write_melody(tmp_path / "in" / f"{seed}.wav", seed, subtype="FLOAT")
    asked = {"win_len": 3000, "hop": 2000, "label_from": "none"}
    record(tmp_path / "in", tmp_path / "plain", workers=1, **asked)
    plain = sounds_of(tmp_path / "plain")
    for seed, row in enumerate(plain):
        sound = melody(seed)
        end = (len(sound) - 3000) // 2000 * 2000 + 3000  # of the last window
        assert row["start_sketch"] == sketch_audio(sound[:end], 16000)
    for number, options in enumerate([
        {"elements_per_file": 3}, {"order": "mixed", "elements_per_file": 16},
        {"order": "listed", "workers": 2}, {"copies": 2, "augment": "noise()"},
        {"beam_args": ["--runner=FnApiRunner"]},
    ]):  # fmt: skip
        record(tmp_path / "in", tmp_path / str(number), **asked, **options)
        assert sounds_of(tmp_path / str(number)) == plain, options


def test_the_start_is_compared_where_windows_leave_it_out(tmp_path):
    """The windows of the copy, which is cut by 0.25 s, are at other places."""
    sound = melody(5, 6)
    write_samples(tmp_path / "in" / "x.flac", sound, 16000)
    write_samples(tmp_path / "in" / "y.ogg", sound[4000:], 16000)
    write_melody(tmp_path / "in" / "z.wav", 1)
    record(tmp_path / "in", tmp_path / "o", win_len=400, max_windows=2,
           random_starts=True, label_from="none")  # fmt: skip
    (finding,) = audit(tmp_path / "o")
    assert finding["kind"] == "similar"
    assert sorted(path for _, path in paths(finding)) == ["x.flac", "y.ogg"]


def test_damage_before_the_first_window_is_no_reject(tmp_path):
    path = tmp_path / "in" / "bad.flac"
    write_sound(path, 160_000)
    damage(path, 0.013, 1000)
    (tmp_path / "in" / "bad.txt").write_text("15.0\t15.1\ta\n")
    record(tmp_path / "in", tmp_path / "o", win_len=400, events="{stem}.txt",
           windows_at="events")  # fmt: skip
    (row,) = sounds_of(tmp_path / "o")
    assert (row["window_hash"] is None, row["start_sketch"]) == (False, None)


def test_the_text_shows_the_first_of_many(tmp_path, planted, monkeypatch):
    sound = write_sound(tmp_path / "0.wav", 52_000)
    write_samples(tmp_path / "1.wav", sound, RATE)
    rows = [
        {"path": f"{at % 2}.wav", "part": "ab"[at % 2], "kind": "k",
         "offset_s": at // 2 * 0.25, "duration_s": 0.25}
        for at in range(52)
    ]  # fmt: skip
    for at in range(10):
        write_sound(tmp_path / f"c{at}.wav", 2000, seed=1)
        rows.append({**rows[at // 9], "path": f"c{at}.wav", "offset_s": 0})
    found = planted(rows)
    assert counts(found) == {"audio": (27, 0)}
    text = found.describe()
    assert text.count("same audio across splits\n") == 20
    assert_names(text, "... and 7 more of same audio", "--json")
    monkeypatch.setattr("beam_pipeline.read.audit.FINDINGS_SHOWN", 99)
    assert_names(found.describe(), "b  c9.wav", "a  ... and 6 more")


# Arithmetic


def groups_of(pairs, count):
    """The smallest member of each item's group; joins one pair after the other."""
    group = list(range(count))
    for one, other in pairs:
        old, new = sorted((group[one], group[other]), reverse=True)
        group = [new if value == old else value for value in group]
    return group


def smallest(numbers):
    """Renames groups to their smallest members."""
    first = {}
    return [first.setdefault(number, at) for at, number in enumerate(numbers)]


clips = st.lists(
    st.tuples(
        st.integers(0, 2),  # file
        st.integers(0, 60),  # start
        st.integers(1, 20),  # frames
        st.integers(-1, 2),  # channel
    ),
    max_size=12,
)


def overlaps_of(rows, rate=8000):
    """The groups of clips: file, start, frames, channel."""
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    names = ("file", "start", "frames", "channel")
    table = dict(zip(names, columns, strict=True))
    rates = np.full(len(rows), rate)
    return smallest(overlapping_parts(pa.table({**table, "sample_rate_hz": rates})))


@given(clips, st.sampled_from([1, 400, 1000, 8000]))
def test_overlaps_are_those_of_all_pairs(rows, rate):
    pairs = []
    for i, (file_i, start_i, frames_i, channel_i) in enumerate(rows):
        for j, (file_j, start_j, frames_j, channel_j) in enumerate(rows):
            beside = -1 not in (channel_i, channel_j) and channel_i != channel_j
            if i == j or file_i != file_j or beside:
                continue
            shared = min(start_i + frames_i, start_j + frames_j) - max(start_i, start_j)
            shortest = min(frames for other, _, frames, _ in rows if other == file_i)
            if shared > min(int(rate * 0.005), shortest // 2):
                pairs.append((i, j))
    assert overlaps_of(rows, rate) == groups_of(pairs, len(rows))


@given(st.lists(st.tuples(*[st.integers(-1, 4)] * 3), min_size=1, max_size=12))
def test_components_are_those_of_all_pairs(rows):
    pairs = [
        (i, k)
        for i, one in enumerate(rows)
        for k, other in enumerate(rows)
        if any(a == b != -1 for a, b in zip(one, other, strict=True))
    ]
    found = components_of(list(np.array(rows).T))
    assert smallest(found) == groups_of(pairs, len(rows))


# Sketches that are alike


def all_alike(sketches):
    """The groups of sketches, by the rule alone: each pair, at each offset."""
    pairs = []
    for i, one in enumerate(sketches):
        for j, other in enumerate(sketches[:i]):
            a, b = (np.frombuffer(s, ">u2").astype(int) for s in (one, other))
            least = max(5, 0.4 * min(np.count_nonzero(a), np.count_nonzero(b)))
            for offset in range(1 - len(b), len(a)):
                x = a[max(offset, 0) :][: len(b) - max(-offset, 0)]
                y = b[max(-offset, 0) :][: len(x)]
                both = (x != 0) & (y != 0)
                n = both.sum()
                differ = sum(int(v).bit_count() for v in (x ^ y)[both])
                if n >= least and differ <= min(8 * n - 16.8 * n**0.5, 4.8 * n):
                    pairs.append((i, j))
    return groups_of(pairs, len(sketches))


@st.composite
def families(draw):
    """Sketches; many are copies of others with some bits changed, or cut off."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))

    def new():
        words = rng.integers(1, 1 << 16, rng.integers(1, 84))
        return words * (rng.random(len(words)) > 0.1)

    found = [new() for _ in range(draw(st.integers(1, 4)))]
    for _ in range(draw(st.integers(0, 8))):
        words = found[rng.integers(len(found))].copy()
        flips = rng.random((len(words), 16)) < rng.uniform(0, 0.12)
        words ^= (words != 0) * (flips @ (1 << np.arange(16)))
        found.append(words[rng.integers(0, len(words) // 2 + 1) :])
    return [words.astype(">u2").tobytes() for words in found]


@settings(max_examples=50)
@given(families())
@example([])
@example([b"", b"ab"])
def test_alike_are_those_of_all_pairs(sketches):
    """All that are found are alike; all are found that have 10 words or more."""
    found, complete = similar_sketches(sketches)
    assert complete
    found, alike = smallest(found), all_alike(sketches)
    assert all(alike[i] == alike[first] for i, first in enumerate(found))
    if all(len(sketch) >= 20 for sketch in sketches):
        assert found == alike


@pytest.mark.parametrize("words", [4, 5, 10, 40, 83])
def test_the_limit_is_exact(words):
    """The first words are equal, and others differ in as many bits as may be."""
    most = int(min(8 * words - 16.8 * words**0.5, 4.8 * words)) if words > 4 else 0
    one = np.random.default_rng(3).integers(1, 1 << 16, words)
    for differ in (most, most + 1):
        changed = np.unpackbits(one.astype(">u2").view(np.uint8))
        changed[len(changed) - differ :] ^= 1
        pair = [one.astype(">u2").tobytes(), np.packbits(changed).tobytes()]
        alike = words > 4 and differ <= most
        assert smallest(similar_sketches(pair)[0]) == ([0, 0] if alike else [0, 1])


def test_too_many_equal_places_are_incomplete(monkeypatch):
    monkeypatch.setattr("beam_pipeline.read.audit.NEIGHBOURS", 24)
    words = np.random.default_rng(0).integers(1, 1 << 16, (40, 60))

    def compare():
        groups, complete = similar_sketches([w.astype(">u2").tobytes() for w in words])
        return smallest(groups) == list(range(40)), complete

    assert compare() == (True, True)
    words = words % (1 << 12) + (7 << 12)  # the bits that are equal to begin with
    assert compare() == (True, False)


def test_a_large_family_is_one_group():
    rng = np.random.default_rng(0)
    words = np.tile(rng.integers(1, 1 << 16, 83), (2000, 1))
    words[np.arange(2000), rng.integers(0, 83, 2000)] ^= 1 << rng.integers(0, 16, 2000)
    found, _ = similar_sketches([row.astype(">u2").tobytes() for row in words])
    assert len(set(found.tolist())) == 1


# The remedy: a manifest of groups


OPTIONS = {"win_len": 400, "splits": "train=.5,test=.5"}


@pytest.fixture(scope="module")
def leaky(tmp_path_factory):
    """Eight recordings, of which three are copies of others, one in another class."""
    folder = tmp_path_factory.mktemp("leaky")
    for number in range(5):
        path = folder / "in" / "owl" / f"{number}.wav"
        write_sound(path, 2000 + 10 * number, seed=number)
    for source, copy in (("0", "owl/a"), ("0", "owl/b"), ("1", "tit/c")):
        target = folder / "in" / f"{copy}.wav"
        target.parent.mkdir(exist_ok=True)
        shutil.copy(folder / "in" / "owl" / f"{source}.wav", target)
    record(folder / "in", folder / "out", seed=2, **OPTIONS)
    assert audit(folder / "out").leaks
    return folder


def columns_of(path):
    table = pq.read_table(path) if path.suffix == ".parquet" else pa.csv.read_csv(path)
    return {row["path"]: row for row in table.to_pylist()}


def test_a_clean_manifest_has_no_leaks(leaky, tmp_path):
    manifest = tmp_path / "clean.csv"
    written = write_clean_manifest(leaky / "out", manifest, leaky / "in")
    assert written == (8, 5, 0, 2)
    found = {path.split("/in/")[1]: row for path, row in columns_of(manifest).items()}
    assert {*found["owl/0.wav"]} == {"path", "group", "class"}
    assert [found[f"owl/{name}.wav"]["group"] for name in "0ab"] == ["owl/0.wav"] * 3
    assert found["tit/c.wav"]["group"] == found["owl/1.wav"]["group"]
    assert found["tit/c.wav"]["class"] == "tit"
    options = {"label_from": "class", "group_by": "group", **OPTIONS}
    for seed in range(4):
        out = tmp_path / str(seed)
        metadata = record(manifest, out, seed=seed, **options)
        assert metadata.clips == 8
        assert audit(out).leaks == 0


def test_doubles_are_dropped_if_their_class_is_clear(leaky, cli):
    manifest = leaky / "in" / "clean.parquet"
    command = ["audit", leaky / "out", "--input", leaky / "in"]
    command += ["--write-manifest", manifest, "--drop-doubles"]
    said = cli(*command, status=4).err  # the data set still leaks
    assert_names(said, "6 clips", "5 groups", "2 doubles", "2 clips")
    # Beside its files, names are those of before.
    assert {*columns_of(manifest)} == {*(f"owl/{k}.wav" for k in range(5)), "tit/c.wav"}
    said = cli(*command, status=2).err  # it exists
    assert_names(said, "--write-manifest", "clean.parquet")
    manifest.unlink()
    for few in ([*command[:2], "--drop-doubles"], command[:4]):
        assert_names(cli(*few, status=2).err, "--write-manifest", few[2])


def test_of_several_data_sets(leaky, tmp_path):
    """The first of doubles is the one of the first data set."""
    sounds = Path(shutil.copytree(leaky / "in" / "owl", tmp_path / "in" / "owl"))
    record(tmp_path / "in", tmp_path / "one", seed=2, **OPTIONS)
    shutil.copy(sounds / "2.wav", sounds / "0new.wav")
    more = {"recipe": tmp_path / "one", "skip_recorded": tmp_path / "one"}
    record(tmp_path / "in", tmp_path / "two", **more)
    both, manifest = [tmp_path / "one", tmp_path / "two"], tmp_path / "in" / "clean.csv"
    written = write_clean_manifest(both, manifest, tmp_path / "in", drop_doubles=True)
    assert (written.clips, written.groups, written.dropped) == (5, 5, 3)
    assert {*columns_of(manifest)} == {f"owl/{k}.wav" for k in range(5)}


def test_groups_and_columns_stay(tmp_path):
    for number in range(4):
        write_sound(tmp_path / "in" / f"{number}.wav", 4000, seed=number % 3)
    rows = [
        {"path": f"in/{n}.wav", "start_s": s, "end_s": s + 0.2, "who": who, "x": x}
        for n, s, who, x in (
            (0, 0.0, "ada", 1.5), (0, 0.25, "ada", None), (1, 0.0, "bob", 2.0),
            (2, 0.1, "cy", 0.1), (3, 0.0, "dan", 7.0),
        )
    ]  # fmt: skip
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "rows.parquet")
    options = {**OPTIONS, "label_from": "none", "group_by": "who"}
    record(tmp_path / "rows.parquet", tmp_path / "out", **options)
    manifest = tmp_path / "clean.csv"
    written = write_clean_manifest(
        tmp_path / "out", manifest, tmp_path / "rows.parquet"
    )
    assert written == (5, 3, 0, 0)
    table = pa.csv.read_csv(manifest).to_pylist()
    assert {*table[0]} == {"path", "group", "start_s", "duration_s", "who", "x"}
    found = {(row["path"], row["start_s"]): row for row in table}
    assert found["in/0.wav", 0.25]["group"] == "ada"
    assert found["in/3.wav", 0.0]["group"] == "ada"  # dan, with the same audio
    assert found["in/1.wav", 0.0]["group"] == "bob"
    assert found["in/0.wav", 0.25]["duration_s"] == 0.2
    options |= {"group_by": "group", "columns": "who,x"}
    metadata = record(manifest, tmp_path / "again", **options)
    assert metadata.clips == 5
    # Whoever is in no finding is in the same split as before.
    before, after = (
        pq.read_table(tmp_path / name / "manifest.parquet").to_pylist()
        for name in ("out", "again")
    )
    for who in ("bob", "cy"):
        assert len({row["split"] for row in before + after if row["who"] == who}) == 1


def test_what_cannot_be_written(leaky, tmp_path):
    out = leaky / "out"
    with raises(OptionError, "write_manifest", "x.json"):
        write_clean_manifest(out, "x.json", leaky / "in")
    two = tmp_path / "two"
    record([leaky / "in" / "owl", leaky / "in" / "tit"], two, win_len=400)
    with raises(InputError, naming=["input", "2"]):
        write_clean_manifest(two, tmp_path / "x.csv", leaky / "in")
    some = Path(shutil.copytree(leaky / "in", tmp_path / "some"))
    (some / "owl" / "3.wav").unlink()
    with raises(InputError, naming=["input", some / "owl" / "3.wav"]):
        write_clean_manifest(out, tmp_path / "x.csv", some)
    assert not (tmp_path / "x.csv").exists()
