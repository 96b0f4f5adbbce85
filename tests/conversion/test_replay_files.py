import numpy as np
import pytest
import tensorflow as tf

from beam_pipeline import record_examples, replay_files
from beam_pipeline.errors import InputError, OptionError
from tests.conversion.test_foreign import example_of, write
from tests.raising import raises


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
    labelled = {"as_supervised": ("image", "label")}
    pairs = replay_files(foreign, **labelled)
    assert [int(label) for _, label in pairs] == [i % 3 for i in range(20)]
    unordered = replay_files(foreign, **labelled, deterministic=False)
    images = {image.numpy() for image, _ in unordered}
    assert images == {e["image"].numpy() for e in found}


@pytest.mark.parametrize(
    ("paths", "options", "error", "fact"),
    [
        (["x.tfr"], {}, InputError, "x.tfr"),
        ([], {}, OptionError, "filenames"),
        (None, {"features": ["lable"]}, InputError, "label"),
        (None, {"batch_size": 0}, OptionError, "batch_size"),
        (None, {"batch_size": "4"}, OptionError, "batch_size"),
        (None, {"shuffle": -1}, OptionError, "shuffle"),
        (None, {"dtypes": {"lable": "int32"}}, OptionError, "label"),
    ],
)
def test_wrong_arguments(foreign, paths, options, error, fact):
    with raises(error, naming=fact):
        replay_files(foreign if paths is None else paths, **options)


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


def test_narrow_integers_hold_what_is_stored(tmp_path):
    path = write(tmp_path / "x.tfrecord", example_of(a=5), example_of(a=300))
    assert [int(e["a"]) for e in replay_files(path, dtypes={"a": "int16"})] == [5, 300]
    with pytest.raises(tf.errors.InvalidArgumentError, match="int8 cannot hold"):
        list(replay_files(path, dtypes={"a": "int8"}))
