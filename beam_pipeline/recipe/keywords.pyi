"""Keywords of ``record``, for type checkers and editors.

Written from the declared options by ``python -m tests.recipe.test_keywords``.
"""

from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, TypedDict

from beam_pipeline.transforms.base import Transform

Names = str | Sequence[str]
Path = str | PathLike[str]
# An expression, a step, or several of them.
Steps = Any

class RecordKeywords(TypedDict, total=False):
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
    hash_files: bool
    sample_rate: int | None
    channels: int | Literal["mix", "keep"]
    dtype: Literal["float32", "int16"]
    stream: Steps
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
    keep: Steps
    mark_padding: bool
    min_seconds: float | None
    max_seconds: float | None
    short_clips: Literal["reject", "skip", "pad"] | None
    windows_at: Steps
    copies: int
    augment: Steps
    features: Mapping[str, str | Transform]
    feature: Mapping[str, str | Transform]
    encodings: Mapping[str, Literal["float_list", "int64_list", "bytes_list", "raw", "tensor", "png", "jpeg", "float16", "bfloat16", "int8", "flac", "opus", "vorbis", "original"]]
    encoding: Mapping[str, Literal["float_list", "int64_list", "bytes_list", "raw", "tensor", "png", "jpeg", "float16", "bfloat16", "int8", "flac", "opus", "vorbis", "original"]]
    elements_per_file: int | None
    shard_bytes: int | str | None
    num_shards: int | None
    member_bytes: int | str | None
    compression: Literal["gzip", "gzip:1", "gzip:2", "gzip:3", "gzip:4", "gzip:5", "gzip:6", "gzip:7", "gzip:8", "gzip:9", "none"]
    num_elems: int | None
    order: Literal["shuffled", "listed", "mixed"]
    seed: int
    max_rejected: int | str
    allow_unreadable: bool
    overwrite: bool
    skip_recorded: Path | Sequence[Path]
    workers: int | None
    work_dir: Path | None
    time_limit: float | None
    beam_args: Sequence[str]
