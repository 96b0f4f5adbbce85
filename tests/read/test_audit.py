"""audit: finds every planted leak, and nothing in data sets without leaks."""

import json
import shutil

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from beam_pipeline import record
from beam_pipeline.api import plan
from beam_pipeline.cli import main
from beam_pipeline.dataset.manifest import arrow_type, manifest_fields
from beam_pipeline.errors import InputError, OptionError, TooManyRejected
from beam_pipeline.plan import clip_audio
from beam_pipeline.read.audit import (
    KINDS,
    alike,
    audit,
    describe_overlaps,
    overlapping_parts,
)
from beam_pipeline.recipe.recipe import Recipe
from beam_pipeline.storage import files
from tests.audio.test_fingerprint import melody
from tests.inputs.test_manifests import write_csv
from tests.raising import assert_names, raises
from tests.sounds import RATE, write_sound

pytestmark = pytest.mark.runs

COUNTS = dict.fromkeys(KINDS, 0)


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
    return main.main(["audit", str(folder), *flags])


def write_melody(path, seed, rate=16000, **options):
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, melody(seed, rate=rate), rate, **options)


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
        {},
        {"splits": "train=.5,test=.5"},
        {"folds": 3},
        {"splits": "train=.5,test=.5", "group_by": "speaker"},
        {"splits": "train=.5,test=.5", "group_by": "speaker", "stratify": True},
        {"folds": 2, "stratify": True},
        {"split_column": "speaker", "group_by": "speaker"},
        {"copies": 2, "augment": "noise()", "splits": "train=.8,test=.2"},
    ],
    ids=str,
)
def test_recorded_splits_are_clean(speakers, tmp_path, options):
    metadata = record(
        speakers, tmp_path / "o", win_len=800, fingerprint=True,
        label_from="(?P<class>[ab])_(?P<speaker>.+)_", **options,
    )  # fmt: skip
    found = audit(tmp_path / "o")
    assert counts(found) == {}
    assert (found.leaks, found.clips) == (0, 24)
    assert found.splits == tuple(metadata.splits)
    grouped = "group_by" in options
    assert found.not_compared == ({} if grouped else {"group": "group_by"})
    assert status(tmp_path / "o") == 0


def test_an_input_for_each_split_is_clean(speakers, tmp_path):
    """The same names in two folders are not the same files."""
    for label in "ab":
        write_sound(tmp_path / "more" / label / f"{label}_s0_0.wav", 1600, seed=1000)
        seed = 1001 if label == "a" else 1002
        write_sound(tmp_path / "more" / label / f"{label}_s0_1.wav", 1600, seed=seed)
    shutil.rmtree(tmp_path / "more" / "b")
    record({"train": speakers, "test": tmp_path / "more"}, tmp_path / "o",
           win_len=800, fingerprint=True)  # fmt: skip
    assert counts(audit(tmp_path / "o")) == {}


@pytest.mark.parametrize("options", [{"splits": "train=.5,test=.5"}, {"folds": 2}, {}])
@pytest.mark.parametrize("rate", [None, 3000])
def test_parts_side_by_side_are_clean(speakers, tmp_path, options, rate):
    rows = [
        {"path": f"a/a_s{speaker}_0.wav", "offset_s": offset, "duration_s": 0.0667}
        for speaker in range(6)
        for offset in (0.0, 0.0667, 0.1333)
    ]
    path = write_csv(speakers / "m.csv", rows)
    record(path, tmp_path / "o", win_len=100, fingerprint=True, sample_rate=rate,
           label_from="none", **options)  # fmt: skip
    assert counts(audit(tmp_path / "o")) == {}


# Planted leaks


@pytest.fixture
def planted(tmp_path):
    """Records rows (path, split, class, more columns) with fingerprints."""

    def record_rows(rows, **options):
        path = write_csv(tmp_path / "m.csv", rows)
        columns = {"label_from": "kind", "split_column": "part"}
        record(path, tmp_path / "o", **{
            "win_len": 400, "fingerprint": True, **columns, **options})  # fmt: skip
        return audit(tmp_path / "o")

    return record_rows


def test_a_file_in_two_splits(tmp_path, planted, capsys):
    write_melody(tmp_path / "x.wav", 0)
    rows = [
        {"path": "x.wav", "part": part, "kind": "a", "offset_s": at, "duration_s": 0.5}
        for part, at in (("train", 0), ("train", 0.5), ("test", 1))
    ]
    found = planted(rows)
    assert counts(found) == {"file": (1, 0)}
    (finding,) = found
    assert finding == {
        "kind": "file", "across": True, "detail": "",
        "clips": [
            {"split": split, "path": "x.wav", "start_s": at, "end_s": at + 0.5,
             "class": "a"}
            for split, at in (("test", 1.0), ("train", 0.0), ("train", 0.5))
        ],
    }  # fmt: skip
    capsys.readouterr()
    assert status(tmp_path / "o") == 4
    assert capsys.readouterr().out.splitlines() == [
        "3 clips in test, train",
        "same path: 1 across splits",
        "same group: not recorded; name columns of the manifest with --group-by",
        "same audio: none",
        "overlapping parts: none",
        "near-identical audio: none",
        "",
        "same path across splits",
        "  test  x.wav  1 to 1.5 s  a",
        "  train  x.wav  0 to 0.5 s  a",
        "  train  x.wav  0.5 to 1 s  a",
    ]


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
        ([(MELODY, "a", "", ""), (COPY, "a", "", "")], {"audio": (0, 1)}),
        # Silence equals only silence of the same length.
        ([(QUIET, "a", "", 1), ("more.wav", "a", "", ""), (QUIET, "a", 1, 0.5)],
         {"audio": (0, 1)}),
    ],
)  # fmt: skip
def test_planted_findings(tmp_path, planted, rows, wanted):
    for name in (MELODY, COPY):
        write_melody(tmp_path / name, 0)
    for name, frames in ((QUIET, 32000), ("more.wav", 16000)):
        soundfile.write(tmp_path / name, np.zeros(frames), 16000)
    names = ("path", "part", "offset_s", "duration_s")
    found = planted(
        [{**dict(zip(names, row, strict=True)), "kind": "k"} for row in rows]
    )
    assert counts(found) == wanted
    assert status(tmp_path / "o") == (4 if found.leaks else 0)
    clips = {clip["path"] for clip in list(found)[-1]["clips"]}
    assert clips == {path for path, *_ in rows[:2]}
    line = "overlapping parts: 1 " + (
        "across splits" if found.leaks else "within one split"
    )
    assert describe_overlaps(tmp_path / "o") == (line if "parts" in wanted else "")


def test_record_prints_overlapping_parts(tmp_path, capsys):
    write_melody(tmp_path / "x.wav", 0)
    for starts, told in (((0, 0.5), False), ((0, 0.4), True)):
        rows = [{"path": "x.wav", "offset_s": s, "duration_s": 0.5} for s in starts]
        table = write_csv(tmp_path / "m.csv", rows)
        out = str(tmp_path / f"o{told}")
        assert main.main(["record", "--input", str(table), "--output", out, "--win-len",
                         "400", "--label-from", "none"]) == 0  # fmt: skip
        words = "overlapping parts: 1 within one split"
        assert (words in capsys.readouterr().out) == told


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
    assert status(tmp_path / "o") == 0
    # By other columns of the manifest.
    assert status(tmp_path / "o", "--group-by", "speaker") == 4
    by_day = audit(tmp_path / "o", "day")
    assert counts(by_day) == {"group": (1, 0)}
    assert repr(by_day).startswith("<Audit of 4 clips in test, train; ")
    assert "; same group: 1 across splits; same audio: " in repr(by_day)
    (finding,) = audit(tmp_path / "o", group_by="day")
    assert finding["detail"] == "1"
    assert len(finding["clips"]) == 4
    assert status(tmp_path / "o", "--group-by", "path") == 0
    assert status(tmp_path / "o", "--group-by", "spaeker") == 2
    with raises(OptionError, "group_by", "spaeker", naming=["path", "speaker"]):
        audit(tmp_path / "o", "spaeker")


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


@pytest.mark.parametrize("how", ["copy", "flac", "float"])
@pytest.mark.parametrize("options", [{}, {"sample_rate": 8000}, {"channels": 0}])
def test_the_same_audio_under_another_name(tmp_path, how, options):
    write_melody(tmp_path / "train" / "a" / "x.wav", 0)
    write_melody(tmp_path / "train" / "a" / "y.wav", 1)
    for name in ("b", "a"):
        (tmp_path / "test" / name).mkdir(parents=True)
    write_melody(tmp_path / "test" / "a" / "z.wav", 2)
    source, target = tmp_path / "train" / "a" / "x.wav", tmp_path / "test" / "b"
    if how == "copy":
        shutil.copy(source, target / "1.wav")
    else:
        sound, rate = soundfile.read(source)
        name, subtype = ("1.flac", "PCM_16") if how == "flac" else ("1.wav", "FLOAT")
        soundfile.write(target / name, sound, rate, subtype=subtype)
    record({split: tmp_path / split for split in ("train", "test")}, tmp_path / "o",
           win_len=400, fingerprint=True, **options)  # fmt: skip
    found = audit(tmp_path / "o")
    assert counts(found) == {"audio": (1, 0)}
    (finding,) = found
    assert [clip["class"] for clip in finding["clips"]] == ["b", "a"]
    assert finding["detail"].endswith("; classes b, a")
    assert "same audio: 1 across splits, 1 with several classes" in found.describe()
    assert status(tmp_path / "o") == 4


def test_the_same_audio_is_that_of_the_part_and_of_the_channel(tmp_path, planted):
    stereo = np.stack([melody(0), melody(1)], axis=1)
    soundfile.write(tmp_path / "x.wav", stereo, 16000, subtype="FLOAT")
    soundfile.write(tmp_path / "y.wav", stereo[8000:24000, 1], 16000, subtype="FLOAT")
    soundfile.write(tmp_path / "z.wav", stereo[8000:24000], 16000, subtype="FLOAT")
    base = {"part": "train", "kind": "a", "offset_s": 0.5, "duration_s": 1}
    whole = {**base, "offset_s": 0, "duration_s": "", "part": "test"}
    rows = [
        {**base, "path": "x.wav", "channel": 1},
        {**whole, "path": "y.wav", "channel": ""},
        {**base, "path": "x.wav", "channel": ""},
        {**whole, "path": "z.wav", "channel": ""},
        {**base, "path": "x.wav", "channel": 0},
    ]
    found = planted(rows, sample_rate=12000)
    audio = [paths(finding) for finding in found if finding["kind"] == "audio"]
    assert audio == [[("test", name), ("train", "x.wav")] for name in
                     ("y.wav", "z.wav")] or audio == [
        [("test", name), ("train", "x.wav")] for name in ("z.wav", "y.wav")
    ]  # fmt: skip
    # The clip of both channels overlaps both others.
    (parts,) = (finding for finding in found if finding["kind"] == "parts")
    assert len(parts["clips"]) == 3


def test_near_identical_audio_under_two_classes(tmp_path, planted):
    write_melody(tmp_path / "x.wav", 0)
    write_melody(tmp_path / "y.wav", 1)
    write_melody(tmp_path / "z.wav", 2)
    write_melody(tmp_path / "x.mp3", 0, format="MP3")
    soundfile.write(tmp_path / "y.ogg", 0.3 * melody(1), 16000)
    names = {"x.wav": ("train", "a"), "x.mp3": ("train", "b"), "y.wav": ("train", "a"),
             "y.ogg": ("test", "a"), "z.wav": ("test", "b")}  # fmt: skip
    rows = [{"path": name, "part": part, "kind": kind}
            for name, (part, kind) in names.items()]  # fmt: skip
    found = planted(rows)
    assert counts(found) == {"similar": (1, 1)}
    leak, double = found
    assert paths(leak) == [("test", "y.ogg"), ("train", "y.wav")]
    assert leak["detail"].endswith(" of 512 bits differ from the first")
    assert sorted(paths(double)) == [("train", "x.mp3"), ("train", "x.wav")]
    assert "; classes " in double["detail"]
    counts_said = "1 across splits, 1 within one split, 1 with several classes"
    assert f"near-identical audio: {counts_said}" in str(found)


def test_clips_without_examples_are_not_in_the_data_set(tmp_path):
    for name in ("a/x.wav", "b/x.wav", "c/x.wav"):
        write_melody(tmp_path / "in" / name, 0)
    record(tmp_path / "in", tmp_path / "o", win_len=400, fingerprint=True, num_elems=1)
    assert (audit(tmp_path / "o").clips, counts(audit(tmp_path / "o"))) == (1, {})


# What is recorded


def test_without_fingerprints_it_says_so(speakers, tmp_path, capsys):
    record(speakers, tmp_path / "o", win_len=800)
    assert status(tmp_path / "o") == 0
    assert capsys.readouterr().out.splitlines() == [
        "24 clips in records",
        "same path: none",
        "same group: not recorded; name columns of the manifest with --group-by",
        "same audio: not recorded; record with --fingerprint",
        "overlapping parts: none",
        "near-identical audio: not recorded; record with --fingerprint",
    ]


def test_fingerprints_change_nothing_but_the_manifest(speakers, tmp_path):
    for name, options in (("plain", {}), ("more", {"fingerprint": True})):
        record(speakers, tmp_path / name, win_len=800, **options)
    for path in (tmp_path / "plain").glob("*.gz"):
        assert path.read_bytes() == (tmp_path / "more" / path.name).read_bytes()
    plain, more = (
        pq.read_table(tmp_path / name / "manifest.parquet")
        for name in ("plain", "more")
    )
    assert more.drop_columns(["content", "sketch"]) == plain


def test_a_plan_decodes_nothing_for_fingerprints(speakers, monkeypatch):
    def fail(*_):
        raise AssertionError("decoded")

    monkeypatch.setattr(clip_audio, "fingerprint_clip", fail)
    summary, rejects = plan(speakers, win_len=800, fingerprint=True)
    assert (summary.listing.clips, rejects) == (24, [])


def test_what_does_not_decode_is_a_reject_of_the_probe(speakers, tmp_path):
    path = speakers / "a" / "bad.flac"
    write_sound(path, 40_000)
    content = bytearray(path.read_bytes())
    content[20_000:30_000] = bytes(10_000)
    path.write_bytes(content)
    record(speakers, tmp_path / "o", win_len=800, fingerprint=True, max_rejected=1)
    (line,) = (tmp_path / "o" / "rejected.jsonl").read_text().splitlines()
    assert (json.loads(line)["path"], json.loads(line)["stage"]) == (
        "a/bad.flac", "probe"
    )  # fmt: skip


# The command


def synthetic(folder, rows, fingerprint=False):
    """A data set with a manifest of these rows and no shards."""
    recipe = Recipe(win_len=100, fingerprint=fingerprint)
    defaults = {
        "input": 0, "class": "a", "split": "train", "group": None, "start": 0,
        "frames": RATE, "sample_rate_hz": RATE, "channels": 1, "channel": None,
        "native_frames": RATE, "native_sample_rate_hz": RATE, "format": "WAV",
        "subtype": "PCM_16", "first_index": 0, "windows": 1,
    }  # fmt: skip
    filled = [
        {**defaults, "path": f"{at}.wav", "file": at, "index": at, **row}
        for at, row in enumerate(rows)
    ]
    names = manifest_fields(recipe)
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in names.items()])
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(filled, schema), folder / "manifest.parquet")


@pytest.fixture
def data_set(speakers, tmp_path):
    record(speakers, tmp_path / "o", win_len=800)
    return tmp_path / "o"


def test_all_findings_as_json(data_set, capsys):
    rows = [{"file": at // 2, "split": ("test", "train")[at % 2]} for at in range(60)]
    synthetic(data_set, rows)
    assert status(data_set, "--json") == 4
    said = capsys.readouterr()
    assert_names(said.err, "30")
    lines = [json.loads(line) for line in said.out.splitlines()]
    assert [line["kind"] for line in lines] == ["file"] * 30 + ["parts"] * 30
    assert lines[0] == {
        "kind": "file", "across": True, "detail": "",
        "clips": [
            {"split": split, "path": path, "start_s": 0.0, "end_s": 1.0, "class": "a"}
            for split, path in (("test", "0.wav"), ("train", "1.wav"))
        ],
    }  # fmt: skip


def test_the_text_shows_the_first_of_many(data_set, capsys):
    synthetic(data_set, [{"file": at // 2, "split": "ab"[at % 2]} for at in range(60)])
    assert status(data_set) == 4
    out = capsys.readouterr().out
    assert out.count("same path across splits") == 20
    assert_names(out, "10", "--json")
    synthetic(data_set, [{"file": 0, "split": "ab"[at == 9]} for at in range(10)])
    assert status(data_set) == 4
    out = capsys.readouterr().out

    assert_names(out, "2.wav", "9.wav", "6")


def test_a_manifest_of_another_version(data_set, capsys):
    path = data_set / "manifest.parquet"
    table = pq.read_table(path)
    pq.write_table(table.drop_columns(["file"]), path)
    assert status(data_set) == 2
    assert_names(capsys.readouterr().err, "manifest.parquet", "no column 'file'")
    path.write_bytes(b"PAR1")
    with raises(InputError, naming="manifest.parquet"):
        audit(data_set)
    path.unlink()
    with raises(InputError, naming="manifest.parquet"):
        audit(data_set)
    with raises(InputError, naming=data_set / "a"):
        audit(data_set / "a")


def test_in_an_object_store(data_set, bucket):
    synthetic(data_set, [{"file": 0, "split": split} for split in ("a", "b")])
    for name in ("metadata.json", "manifest.parquet"):
        content = (data_set / name).read_bytes()
        files.write_bytes(f"s3://{bucket}/o/{name}", content)
    assert counts(audit(f"s3://{bucket}/o")) == counts(audit(data_set)) == {
        "file": (1, 0), "parts": (1, 0)
    }  # fmt: skip


# Arithmetic


clips = st.lists(
    st.tuples(
        st.integers(0, 2),  # file
        st.integers(0, 60),  # start
        st.integers(1, 20),  # frames
        st.integers(-1, 2),  # channel
    ),
    max_size=12,
)


def table_of(rows, rate=8000):
    """Clips as an audit reads them: file, start, frames, channel."""
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    names = ("file", "start", "frames", "channel")
    rates = np.full(len(rows), rate)
    return pa.table({**dict(zip(names, columns, strict=True)), "sample_rate_hz": rates})


@pytest.mark.parametrize(("shared", "overlaps"), [(0, False), (40, False), (41, True)])
def test_seconds_are_rounded_in_tables(shared, overlaps):
    rows = [(0, 0, 1000, -1), (0, 1000 - shared, 1000, -1)]
    one, other = overlapping_parts(table_of(rows))
    assert (one == other) == overlaps


@given(clips, st.sampled_from([1, 400, 1000, 8000]))
def test_overlaps_are_those_of_all_pairs(rows, rate):
    found = overlapping_parts(table_of(rows, rate))
    group = list(range(len(rows)))
    for i, (file_i, start_i, frames_i, channel_i) in enumerate(rows):
        for j, (file_j, start_j, frames_j, channel_j) in enumerate(rows):
            beside = -1 not in (channel_i, channel_j) and channel_i != channel_j
            if i == j or file_i != file_j or beside:
                continue
            shared = min(start_i + frames_i, start_j + frames_j) - max(start_i, start_j)
            shortest = min(frames for other, _, frames, _ in rows if other == file_i)
            if shared > min(int(rate * 0.005), shortest // 2):
                old, new = sorted((group[i], group[j]), reverse=True)
                group = [new if value == old else value for value in group]
    first = {}
    assert [first.setdefault(number, at) for at, number in enumerate(found)] == group


OF_SETS = ("number", "rows", "clips", "first", "across", "mixed", "differ")


@given(st.lists(st.tuples(*[st.integers(-1, 3)] * 4), max_size=12))
def test_sets_are_clips_of_equal_numbers(rows):
    names = ("split", "class", "content")
    columns = np.array(rows, np.int64).reshape(-1, 4).T
    texts = [[None if n == -1 else str(n) for n in each] for each in columns[1:]]
    clips = pa.table(
        dict(zip(names, texts, strict=True)),
        pa.schema([(name, pa.string()) for name in names]),
    )
    sets = {}
    for row in rows:
        if row[0] != -1:
            sets.setdefault(row[0], []).append(row)
    wanted = []
    for number, some in sets.items():
        places = [at for at, row in enumerate(rows) if row[0] == number]
        several = [len({row[k] for row in some}) > 1 for k in (1, 2, 3)]
        found = (number, places, len(some), places[0], *several)
        if len(some) > 1:
            wanted.append(dict(zip(OF_SETS, found, strict=True)))
    wanted.sort(key=lambda each: (not each["across"], each["first"]))
    assert alike(columns[0], clips).to_pylist() == wanted
