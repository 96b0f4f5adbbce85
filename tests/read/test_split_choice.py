"""Splits, and several of them: what is chosen, the same in every reader."""

import pickle

import numpy as np
import pytest

from beam_pipeline import record
from beam_pipeline.dataset.metadata import Metadata, SplitEntry
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.choices import choose_splits
from beam_pipeline.read.records import mix, open_records
from beam_pipeline.read.replay import replay
from tests.raising import assert_names, raises
from tests.sounds import write_samples

SPLITS = ("train", "fold1", "b", "c")
METADATA = Metadata(
    recipe=None, features={}, classes=(), writer={},
    splits={name: SplitEntry(0) for name in SPLITS},
)  # fmt: skip


@pytest.mark.parametrize(
    ("split", "chosen"),
    [
        ("train", ["train"]),
        ("train+c", ["train", "c"]),
        (["c", "train"], ["c", "train"]),
        (("c", "b+train"), ["c", "b", "train"]),
        ("!fold1", ["train", "b", "c"]),
        (["!fold1", "!train"], ["b", "c"]),
        ("!train+!c", ["fold1", "b"]),
    ],
)
def test_what_is_chosen(split, chosen):
    assert choose_splits(METADATA, split) == tuple(chosen)


@pytest.mark.parametrize(
    ("split", "error", "facts"),
    [
        (None, InputError, ["train", "fold1"]),
        ("trian", InputError, ["trian", "train"]),
        ("!trian", InputError, ["trian", "train"]),
        ("train+", InputError, ["train"]),
        *((split, OptionError, ["at least one"]) for split in ([], 5, ["train", 0])),
        ("train+train", OptionError, ["twice"]),
        ("train+!c", OptionError, ["!"]),
        (["!train", "!fold1", "!b", "!c"], OptionError, ["no split"]),
    ],
)  # fmt: skip
def test_what_cannot_be_chosen(split, error, facts):
    with raises(error, naming=facts):
        choose_splits(METADATA, split)


@pytest.fixture(scope="module")
def folds(tmp_path_factory):
    """Three folds of clips at other levels, in shards of seven examples."""
    folder = tmp_path_factory.mktemp("folds")
    rng = np.random.default_rng(0)
    for k in range(12):
        sound = rng.normal(k / 40, 0.1, 400 + 60 * k).clip(-1, 1)
        write_samples(folder / "in" / "ab"[k % 2] / f"{k}.wav", sound, 8000)
    out = str(folder / "out")
    record(str(folder / "in"), out, win_len=50, folds=3, stratify=True,
           elements_per_file=7, features={"x": "identity()"})  # fmt: skip
    return out


@pytest.mark.parametrize("split", ["!fold1", "fold2", "fold1+fold0"])
def test_every_reader_gives_the_same_examples(folds, split, cli):
    def places(examples):
        return [(e["filepath"], int(e["win_start_idx"])) for e in examples]

    def of_tf(**options):
        elements = replay(folds, split=split, **options).as_numpy_iterator()
        return [(path.decode(), start) for path, start in places(elements)]

    records = open_records(folds, split)
    wanted = places(records)
    assert len(set(wanted)) == len(wanted) > 0
    if split == "!fold1":
        assert wanted == [
            place for fold in ("fold0", "fold2")
            for place in places(open_records(folds, fold))
        ]  # fmt: skip
    assert of_tf() == wanted
    shares = [of_tf(shard=(k, 3)) for k in range(3)]
    assert [e for share in shares for e in share] == wanted
    assert sorted(of_tf(shuffle=True)) == sorted(wanted)
    mixed = mix({folds: 1.0}, split=split, ends="stop").batches(10**6)
    (batch,) = mixed
    assert sorted(zip(batch["filepath"], batch["win_start_idx"], strict=True)) == (
        sorted(wanted)
    )
    said = cli("show", folds, "--split", split, "-n", "2").out
    for k in (0, len(records) // 2):
        assert_names(said, f"example {records.numbers[k]} of ", wanted[k][0])
    table = records.table()
    listed = table.filter(table["record"].is_valid())
    assert listed["path"].to_pylist() == [path for path, _ in wanted]
    some = records.where("path == 'a/2.wav'")
    assert [e["filepath"] for e in some] == [p for p, _ in wanted if p == "a/2.wav"]


def test_statistics_of_several_folds_are_those_of_all_their_examples(folds):
    values = np.stack([e["x"] for e in open_records(folds, "!fold1")]).astype(float)
    wanted = (values - values.mean()) / values.std()
    for split in ("!fold1", ["fold0", "fold2"]):
        found = [e["x"] for e in replay(folds, split=split, normalize=True)]
        np.testing.assert_allclose(found, wanted, atol=1e-5)
        (batch,) = open_records(folds, split).batches(10**6, normalize=True)
        np.testing.assert_allclose(batch["x"], wanted, atol=1e-5)
    # Another fold is evaluated with what its model was trained with.
    other = np.stack([e["x"] for e in open_records(folds, "fold1")])
    wanted = (other - values.mean()) / values.std()
    found = [
        e["x"]
        for e in replay(folds, split="fold1", normalize=["x"], statistics="!fold1")
    ]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    records = open_records(folds, "fold1", statistics="!fold1")
    (batch,) = pickle.loads(pickle.dumps(records))[:9].batches(9, normalize=True)
    np.testing.assert_allclose(batch["x"], wanted[:9], atol=1e-5)
