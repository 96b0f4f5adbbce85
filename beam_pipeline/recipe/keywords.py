"""Keywords of ``record``, ``plan`` and ``Recipe``, for type checkers and editors.

:mod:`.sections` and :mod:`.options` declare the options. A test compares these types
with them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

if TYPE_CHECKING:
    from beam_pipeline.storage.files import PathLike
    from beam_pipeline.transforms.augment import Augmentation
    from beam_pipeline.transforms.base import Transform
    from beam_pipeline.transforms.select import Placement, Selection
    from beam_pipeline.transforms.stream import ClipGain, StreamStep

# ``"a,b"`` or ``["a", "b"]``.
Names = str | Sequence[str]

Encoding = Literal[
    "float_list", "int64_list", "bytes_list", "raw", "tensor", "png", "jpeg",
    "float16", "bfloat16", "int8", "flac",
]  # fmt: skip


class RecipeKeywords(TypedDict, total=False):
    """The options that decide the bytes of a data set."""

    label_from: str | Mapping[str, str]
    label_separator: str | None
    classes: Names | None
    events: str | None
    event_column: str | None
    event_targets: Names
    event_overlap: float
    no_event: str
    target_columns: Names | None
    path_column: str | None
    column_names: Names | None
    delimiter: str | None
    columns: Names | None
    split_column: str | None
    splits: str | Mapping[str, float] | None
    folds: int | None
    group_by: Names | None
    stratify: bool
    fingerprint: bool
    hash_files: bool
    sample_rate: int | None
    channels: int | Literal["mix", "keep"]
    dtype: Literal["float32", "int16"]
    stream: str | StreamStep | ClipGain | Sequence[StreamStep | ClipGain]
    allow_truncated: bool
    allow_nonfinite: bool
    whole_clips: bool
    decoder: Names
    loader: str | Callable[[str], Any]
    loader_suffixes: Names | None
    win_len: int | Literal["clip"] | None
    win_seconds: float | None
    hop: int | None
    hop_seconds: float | None
    tail: Literal["drop", "pad", "overlap"]
    max_windows: int | None
    random_starts: bool
    keep: str | Selection | Sequence[Selection]
    mark_padding: bool
    min_seconds: float | None
    max_seconds: float | None
    short_clips: Literal["reject", "skip", "pad"] | None
    windows_at: str | Placement
    copies: int
    augment: str | Augmentation | Sequence[Augmentation]
    features: Mapping[str, str | Transform]
    feature: Mapping[str, str | Transform]  # as the flag
    encodings: Mapping[str, Encoding]
    encoding: Mapping[str, Encoding]
    elements_per_file: int | None
    shard_bytes: int | None
    num_shards: int | None
    member_bytes: int | None
    compression: Literal["gzip", "none"]
    num_elems: int | None
    order: Literal["shuffled", "listed", "mixed"]
    seed: int


class CarriedKeywords(RecipeKeywords, total=False):
    """What the recipe of a data set holds: also what no option gives."""

    split_moves: str | Mapping[int, str] | None


class RunKeywords(TypedDict, total=False):
    """The options of a run, which decide no byte of the data set."""

    max_rejected: int | str
    allow_unreadable: bool
    overwrite: bool
    skip_recorded: PathLike | Sequence[PathLike]
    workers: int | None
    work_dir: PathLike | None
    time_limit: float | None
    beam_args: Sequence[str]


class RecordKeywords(RecipeKeywords, RunKeywords, total=False):
    """Every keyword of ``record``."""
