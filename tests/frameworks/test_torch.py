"""PyTorch: its DataLoader over Records, and batches of tensors."""

import warnings
from collections import Counter

import numpy as np
import pytest

from beam_pipeline import record_examples
from beam_pipeline.errors import OptionError
from beam_pipeline.read.records import open_records
from tests.frameworks.conftest import COUNT, need, numbers_on_disk

torch = need("torch")
need("torchdata")
from torch.utils.data import DataLoader  # noqa: E402
from torchdata.stateful_dataloader import StatefulDataLoader  # noqa: E402

from beam_pipeline.read.torch import find_rank  # noqa: E402


@pytest.fixture(autouse=True)
def no_warnings():
    """Of read-only arrays, for example, or of forks with threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", "'set_vital' is deprecated")  # torchdata
        yield


def numbers_of(batches):
    return [batch["number"].tolist() for batch in batches]


def flat(lists):
    return [number for numbers in lists for number in numbers]


def assert_equals(batch, records):
    """Each row of a batch of tensors is the example of its number."""
    numbers = batch["number"].tolist()
    assert batch["text"] == [f"ä{number}" for number in numbers]
    place = {number: at for at, number in enumerate(numbers_on_disk(records))}
    for row, number in enumerate(numbers):
        example = records[place[number]]
        assert set(batch) == set(example)
        for name, value in example.items():
            if name != "text":
                got = batch[name][row].numpy()
                assert got.dtype == value.dtype
                np.testing.assert_array_equal(got, value)


@pytest.mark.parametrize("method", [None, "fork", "spawn"])
def test_a_data_loader_over_records(records, method):
    # Each spawned worker imports PyTorch, which takes seconds.
    count = 1 if method == "spawn" else 2
    workers = {"num_workers": count, "multiprocessing_context": method}
    workers = workers if method else {}
    loader = DataLoader(records, shuffle=True, batch_size=8, **workers)
    assert len(loader) == -(-COUNT // 8)
    batches = list(loader)
    assert sorted(flat(numbers_of(batches))) == list(range(COUNT))
    assert flat(numbers_of(batches)) != numbers_on_disk(records)
    assert_equals(batches[0], records)
    assert type(batches[0]["x"]) is torch.Tensor
    batches[0]["x"] += 1  # belongs to the caller


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_data_loader_never_drops_a_feature(everything, first, workers):
    """Whichever example of a batch is the first."""
    place = {number: at for at, number in enumerate(numbers_on_disk(everything))}
    records = open_records(everything.folder, features=["number", "maybe"])
    some = records[[place[first], place[2], place[3]]]  # those that 3 divides lack it
    with pytest.raises((TypeError, RuntimeError), match="NoneType"):
        list(DataLoader(some, batch_size=3, num_workers=workers))
    whole = records[[place[1], place[2]]]
    (batch,) = DataLoader(whole, batch_size=2, num_workers=workers)
    assert batch["maybe"].tolist() == [1, 2]
    (examples,) = DataLoader(some, batch_size=3, collate_fn=list)
    lacking = [example["maybe"] is None for example in examples]
    assert lacking == [first == 0, False, True]


def test_tensors_of_all_types(tmp_path):
    need("ml_dtypes")
    import ml_dtypes

    made = [
        {
            "half": np.full(3, k, ml_dtypes.bfloat16),
            "texts": np.array(["a", "b"], object),
            "large": np.uint64(2**63 + k),
        }
        for k in range(4)
    ]
    record_examples(made, str(tmp_path / "out"), num_shards=1)
    (batch,) = open_records(str(tmp_path / "out")).to_torch(4)
    assert batch["half"].dtype == torch.bfloat16
    assert sorted(batch["half"][:, 0].tolist()) == [0, 1, 2, 3]
    assert batch["large"].dtype == torch.uint64
    assert batch["texts"] == [["a", "b"]] * 4


def test_each_pass_is_the_next_epoch_of_batches(records):
    dataset = records.to_torch(4, shuffle="global", seed=3)
    same = records.batches(4, shuffle="global", seed=3)
    for epoch in range(3):
        assert dataset.epoch == epoch
        assert numbers_of(DataLoader(dataset, batch_size=None)) == numbers_of(same)
    dataset.set_epoch(1)
    again = records.batches(4, shuffle="global", seed=3, epoch=1)
    assert numbers_of(DataLoader(dataset, batch_size=None)) == numbers_of(again)


@pytest.mark.parametrize(
    ("shuffle", "workers", "method", "persistent"),
    [
        ("global", 0, None, False), (False, 0, None, False), (False, 2, "fork", False),
        ("global", 1, "fork", False), ("global", 2, "fork", True),
        ("global", 1, "spawn", True),
    ],
)  # fmt: skip
def test_each_pass_is_an_epoch_of_every_example(
    records, shuffle, workers, method, persistent
):
    dataset = records.to_torch(3, shuffle=shuffle, seed=3)
    loader = DataLoader(
        dataset, batch_size=None, num_workers=workers, persistent_workers=persistent,
        multiprocessing_context=method,
    )  # fmt: skip
    first, second = list(loader), list(loader)
    assert_equals(first[1], records)
    passes = [flat(numbers_of(batches)) for batches in (first, second)]
    assert all(sorted(numbers) == list(range(COUNT)) for numbers in passes)
    assert (passes[0] != passes[1]) == bool(shuffle)
    assert dataset.epoch == 2
    dataset.set_epoch(0)
    assert flat(numbers_of(loader)) == passes[0]


def test_ranks_and_workers_share_the_examples(records, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    seen = Counter()
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        dataset = records.to_torch(4, shuffle="global")
        loader = DataLoader(dataset, batch_size=None, num_workers=2)
        seen.update(flat(numbers_of(loader)))
    assert seen == Counter(range(COUNT))


@pytest.mark.parametrize("workers", [0, 2])
def test_all_ranks_give_the_same_number_of_whole_batches(records, workers):
    # 49 examples for 3 ranks: 16, 16 and 17, and for 6 workers: 8 or 9.
    counts = set()
    for rank in range(3):
        dataset = records[:49].to_torch(8, drop_remainder=True, rank=(rank, 3))
        batches = list(DataLoader(dataset, batch_size=None, num_workers=workers))
        assert {len(batch["number"]) for batch in batches} == {8}
        counts.add(len(batches))
        assert dataset.epoch == 1
    assert counts == {2}
    dataset = records[:17].to_torch(9, drop_remainder=True, rank=(1, 2))
    assert list(dataset) == []  # the other one has 8


def test_the_rank_is_that_of_torch_distributed(records, tmp_path, monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "3")
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1
    )
    try:
        assert find_rank() == (0, 1)
    finally:
        torch.distributed.destroy_process_group()
    assert find_rank() == (1, 3)


@pytest.mark.parametrize("rank", [2, (3, 3), (-1, 2), (0, 1, 2), (0.5, 2)])
def test_a_rank_that_is_none_is_named(records, rank):
    with pytest.raises(OptionError, match=r"^rank: must be \(index, count\).*got "):
        records.to_torch(4, rank=rank)


def test_features_of_varying_shape_are_lists(everything):
    (batch,) = everything.to_torch(COUNT)
    for row, number in enumerate(batch["number"].tolist()):
        assert batch["list"][row].tolist() == list(range(number % 4))
        value = batch["maybe"][row]
        assert value is None if number % 3 == 0 else value == number


# States


@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_a_state_after_an_epoch_goes_on_with_the_next_one(
    records, workers, drop_remainder
):
    def make():
        dataset = records.to_torch(
            16, shuffle="global", seed=1, drop_remainder=drop_remainder
        )
        return StatefulDataLoader(dataset, batch_size=None, num_workers=workers)

    straight = make()
    wanted = [numbers_of(straight) for _ in range(5)]
    loader = make()
    for _ in range(3):
        list(loader)
    state = loader.state_dict()
    loader = make()
    loader.load_state_dict(state)
    assert [numbers_of(loader) for _ in range(2)] == wanted[3:]


def test_the_epochs_of_a_loaded_state_go_on(records):
    """Also if the first pass is left early, and back in the same loader."""

    def make():
        dataset = records.to_torch(16, shuffle="global", seed=1)
        return StatefulDataLoader(dataset, batch_size=None)

    loader = make()
    wanted, states = [], []
    for _ in range(4):
        numbers = []
        for batch in loader:
            numbers.append(batch["number"].tolist())
            if len(numbers) == 2:
                states.append(loader.state_dict())
        wanted.append(numbers)
    for other in (make(), loader):
        other.load_state_dict(states[2])
        assert next(iter(other))["number"].tolist() == wanted[2][2]
        assert numbers_of(other) == wanted[2]  # left early, so it is repeated
        assert numbers_of(other) == wanted[3]
