"""The layouts of folders in the docs give the splits and the classes."""

import pytest

from beam_pipeline import plan
from beam_pipeline.errors import DataSetWarning
from tests.sounds import write_sound

BY_PART = r"^(?P<class>[^/]+)/(?P<part>[^/]+)/"
BY_SPEAKER = r"^(?P<class>[^/]+)/(?P<speaker>[^/]+)/"
CLASSES = ("owl", "tit")


@pytest.mark.parametrize(
    ("names", "inputs", "options", "splits"),
    [
        (["owl/1", "tit/2"], "", {}, ["records"]),
        (
            ["train/owl/1", "train/tit/2", "test/owl/3", "test/tit/4"],
            {"train": "train", "test": "test"}, {}, ["test", "train"],
        ),
        (
            ["owl/train/1", "tit/train/2", "owl/test/3", "tit/test/4"],
            "", {"label_from": BY_PART, "split_column": "part"}, ["test", "train"],
        ),
        (
            ["owl/ada/1", "owl/bob/2", "tit/ada/3", "tit/bob/4"], "",
            {"label_from": BY_SPEAKER, "splits": "a=.5,b=.5", "group_by": "speaker"},
            None,
        ),
    ],
)  # fmt: skip
@pytest.mark.filterwarnings(f"ignore::{DataSetWarning.__module__}.DataSetWarning")
def test_layouts(tmp_path, names, inputs, options, splits):
    for name in names:
        write_sound(tmp_path / f"{name}.wav", 500)
    given = tmp_path / inputs if isinstance(inputs, str) else None
    sources = given or {name: tmp_path / path for name, path in inputs.items()}
    summary, rejects = plan(sources, win_len=500, **options)
    assert list(rejects) == []
    assert summary.example_format.classes == CLASSES
    assert splits is None or sorted(summary.layouts) == splits
    assert sum(layout.total for layout in summary.layouts.values()) == len(names)
