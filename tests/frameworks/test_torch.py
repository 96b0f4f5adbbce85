"""PyTorch: its DataLoader over Records, and batches of tensors."""

import warnings
from collections import Counter

import numpy as np
import pytest

from beam_pipeline import record_examples
from beam_pipeline.errors import InputError
from beam_pipeline.read.records import open_records
from tests.frameworks.conftest import COUNT, need, numbers_on_disk

torch = need("torch")
from torch.utils.data import DataLoader  # noqa: E402

from beam_pipeline.read.torch import find_rank  # noqa: E402


@pytest.fixture(autouse=True)
def no_warnings():
    """Of read-only arrays, for example, or of forks with threads."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
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
            "list": np.arange(k, dtype=np.float32),
            **({"maybe": np.float32(k)} if k else {}),
        }
        for k in range(4)
    ]
    record_examples(made, str(tmp_path / "out"), num_shards=1)
    (batch,) = open_records(str(tmp_path / "out")).to_torch(4)
    assert batch["half"].dtype == torch.bfloat16
    assert sorted(batch["half"][:, 0].tolist()) == [0, 1, 2, 3]
    assert batch["large"].dtype == torch.uint64
    assert batch["texts"] == [["a", "b"]] * 4
    assert sorted(map(len, batch["list"])) == [0, 1, 2, 3]
    assert batch["maybe"].count(None) == 1


def test_each_pass_is_the_next_epoch_of_batches(records):
    dataset = records.to_torch(4, shuffle="global", seed=3)
    same = records.batches(4, shuffle="global", seed=3)
    assert len(dataset) == len(same)
    assert_equals(next(iter(records.to_torch(4, shuffle="global"))), records)
    for _ in range(3):
        assert numbers_of(DataLoader(dataset, batch_size=None)) == numbers_of(same)
    next(iter(dataset))
    again = records.to_torch(4, shuffle="global", seed=3)
    again.load_state_dict(dataset.state_dict())
    assert numbers_of(again) == numbers_of(same)[1:]
    with pytest.raises(InputError, match="num_workers=0"):
        list(DataLoader(dataset, batch_size=None, num_workers=1))


def test_ranks_share_the_examples(records, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    seen = Counter()
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        seen.update(flat(numbers_of(records.to_torch(4, shuffle="global"))))
    assert seen == Counter(range(COUNT))


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
