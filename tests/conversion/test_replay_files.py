from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import record_examples, replay_files
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.storage import files
from tests.conversion.test_foreign import example_of, write


@pytest.fixture
def foreign(tmp_path):
    """Files of another program: one compressed, one not."""
    records = [
        example_of(
            image=[b"jpeg%d" % i],
            label=[i % 3],
            box=[0.0, 1.0 * i],
            words=[b"a"] * (i % 2 + 1),
        )
        for i in range(20)
    ]
    return [
        write(tmp_path / "a.tfrecord", *records[:12]),
        write(tmp_path / "b.tfrec", *records[12:], compressed=True),
    ]


def test_what_the_first_examples_show(foreign):
    found = list(replay_files(foreign))
    assert [int(e["label"]) for e in found] == [i % 3 for i in range(20)]
    assert found[3]["image"].numpy() == b"jpeg3"
    assert found[3]["box"].numpy().tolist() == [0.0, 3.0]
    assert [len(e["words"]) for e in found] == [i % 2 + 1 for i in range(20)]


def test_files_in_a_store_are_those_of_a_local_folder(foreign, bucket):
    remote = [f"s3://{bucket}/{Path(path).name}" for path in foreign]
    for path, there in zip(foreign, remote, strict=True):
        files.write_bytes(there, Path(path).read_bytes())
    for options in ({}, {"shuffle": 7, "seed": 3}, {"shuffle": True}):
        here = [e["image"].numpy() for e in replay_files(foreign, **options)]
        assert [e["image"].numpy() for e in replay_files(remote, **options)] == here
        assert len({*here}) == 20
    both = replay_files([foreign[0], remote[1]])
    assert [int(e["label"]) for e in both] == [i % 3 for i in range(20)]
    with pytest.raises(InputError, match=r"c\.tfrecord does not exist"):
        replay_files(f"s3://{bucket}/c.tfrecord")


def test_labelled_and_unlabelled_ordered_and_not(foreign):
    labelled = replay_files(foreign, as_supervised=("image", "label"))
    assert [int(label) for _, label in labelled] == [i % 3 for i in range(20)]
    unordered = replay_files(
        foreign, as_supervised=("image", "label"), deterministic=False
    )
    assert sorted(image.numpy() for image, _ in unordered) == sorted(
        b"jpeg%d" % i for i in range(20)
    )


def test_batches_are_ragged_where_lengths_differ(foreign):
    (first, *_) = replay_files(foreign, batch_size=4)
    assert first["label"].shape == (4,)
    assert first["words"].row_lengths().numpy().tolist() == [1, 2, 1, 2]
    fixed = replay_files(
        foreign, features=["label", "box"], batch_size=8, drop_remainder=True
    )
    assert fixed.element_spec["box"].shape == (8, 2)
    assert len(list(fixed)) == 2


def test_shuffled(foreign):
    orders = [
        [e["image"].numpy() for e in replay_files(foreign, shuffle=True, seed=seed)]
        for seed in (0, 0, 1)
    ]
    assert orders[0] == orders[1] != orders[2]
    assert sorted(orders[0]) == sorted(b"jpeg%d" % i for i in range(20))


def test_dtypes_and_a_schema(tmp_path):
    values = np.arange(6, dtype=np.float32)
    path = write(tmp_path / "x.tfr", example_of(data=values.tobytes(), label=7))
    (found,) = replay_files(path, dtypes={"data": "float32", "label": "int32"})
    assert found["data"].numpy().tolist() == values.tolist()
    assert found["label"].dtype == tf.int32
    schema = tmp_path / "schema.pbtxt"
    schema.write_text(
        'feature { name: "label" type: INT shape {} presence { min_count: 1 } }'
    )
    (found,) = replay_files(path, schema=schema)
    assert set(found) == {"label"}


def test_files_of_our_own_have_metadata(tmp_path):
    rows = [{"x": np.full((2, 3), i, np.int16), "n": i} for i in range(10)]
    folder = record_examples(rows, tmp_path / "out", 4)
    files = sorted(str(p) for p in (tmp_path / "out").glob("*.gz"))
    found = list(replay_files(files[1:]))
    assert [int(e["n"]) for e in found] == [4, 5, 6, 7, 8, 9]
    assert found[0]["x"].numpy().tolist() == rows[4]["x"].tolist()
    assert folder == str(tmp_path / "out")


@pytest.mark.parametrize(
    ("options", "error", "word"),
    [
        ({"features": ["lable"]}, InputError, "label"),
        ({"batch_size": 0}, OptionError, "batch_size"),
        ({"dtypes": {"lable": "int32"}}, OptionError, "label"),
    ],
)
def test_wrong_arguments(foreign, options, error, word):
    with pytest.raises(error, match=word):
        replay_files(foreign, **options)


def test_files_that_are_not_there(tmp_path):
    with pytest.raises(InputError, match=r"x\.tfr"):
        replay_files(tmp_path / "x.tfr")
    with pytest.raises(InputError, match="no files"):
        replay_files([])


def test_narrow_integers_hold_what_is_stored(tmp_path):
    path = write(tmp_path / "x.tfrecord", example_of(a=5), example_of(a=300))
    assert [int(e["a"]) for e in replay_files(path, dtypes={"a": "int16"})] == [5, 300]
    with pytest.raises(tf.errors.InvalidArgumentError, match="int8 cannot hold"):
        list(replay_files(path, dtypes={"a": "int8"}))
