"""The flags of ``convert``."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

from beam_pipeline.errors import RecipeError
from beam_pipeline.parameters import comma_list, parse_bytes
from beam_pipeline.recipe.fields import parse_shares
from beam_pipeline.recipe.values import COMPRESSIONS, GZIP

# Options of ``convert`` in Python. The command line calls them --group-by and so on.
CONVERT_OPTIONS = (
    "features", "splits", "group_by", "seed", "schema", "dtypes", "classes",
    "elements_per_file",
    "shard_bytes", "num_shards", "multiple_of", "member_bytes", "compression",
    "overwrite", "workers",
)  # fmt: skip


def add_convert_flags(
    parser: argparse.ArgumentParser,
    flag_type: Callable[[Callable[[str], Any]], Callable[[str], Any]],
) -> None:
    """Adds the flags of ``convert``; ``flag_type`` makes the type of a flag."""
    parser.add_argument(
        "input_dir",
        nargs="+",
        metavar="DIR",
        help="folder of TFRecords; several data sets that belong together become one",
    )
    parser.add_argument(
        "output_dir",
        metavar="OUT",
        help="folder of the new data set: new or empty, and outside DIR",
    )

    def add(group: Any, flag: str, metavar: str, parse: Any, text: str) -> None:
        group.add_argument(flag, type=flag_type(parse), metavar=metavar, help=text)

    group = parser.add_argument_group("features")
    add(
        group, "--features", "NAMES", comma_list, "features a,b that stay; default: all"
    )
    add(
        group,
        "--schema",
        "FILE",
        str,
        "schema of TensorFlow Metadata, as text; default: schema.pbtxt in DIR, or else "
        "the first examples show the features",
    )
    add(
        group,
        "--dtypes",
        "NAME=DTYPE,...",
        _parse_dtypes,
        "dtypes of features; bytes with a numeric dtype become an array: data=float32",
    )
    add(
        group,
        "--classes",
        "NAMES",
        comma_list,
        "a longer list of classes, which begins with those of DIR",
    )
    group = parser.add_argument_group("splits", "Default: the splits of DIR.")
    add(
        group,
        "--splits",
        "SHARES",
        parse_shares,
        "share of each new split, train=.8,eval=.2; a hash assigns examples",
    )
    add(
        group,
        "--group-by",
        "FEATURE",
        str,
        "examples with the same value go to one split; default: filepath, if examples "
        "have it, otherwise each example goes by its place",
    )
    add(group, "--seed", "N", int, "another seed gives other splits; default: 0")
    group = parser.add_argument_group(
        "shards", "At most one of --elements-per-file, --shard-bytes and --num-shards."
    )
    add(group, "--elements-per-file", "N", int, "examples in a shard")
    add(
        group,
        "--shard-bytes",
        "BYTES",
        parse_bytes,
        "bytes of a shard before GZIP; default: 128MiB",
    )
    add(group, "--num-shards", "N", int, "number of shards of each split")
    add(
        group,
        "--multiple-of",
        "N",
        int,
        "number of shards becomes a multiple of this; default: 1",
    )
    add(
        group,
        "--member-bytes",
        "BYTES",
        parse_bytes,
        "bytes before GZIP that can be read on their own; default: 16KiB",
    )
    group.add_argument(
        "--compression", choices=COMPRESSIONS, help="of the shards; default: gzip"
    )
    group = parser.add_argument_group(
        "run",
        "How the job runs. These options do not change the data. Options of Beam "
        "follow a lone --.",
    )
    group.add_argument(
        "--overwrite", action="store_true", help="replace the data set in OUT"
    )
    add(
        group,
        "--workers",
        "N",
        int,
        "processes on this machine; default: one for each core, if the job is large",
    )
    parser.set_defaults(seed=0, multiple_of=1, compression=GZIP)


def _parse_dtypes(text: str) -> dict[str, str]:
    """Parses ``data=float32,label=int32``."""
    dtypes = {}
    for part in comma_list(text):
        name, equals, dtype = part.rpartition("=")
        if not (name and equals and dtype):
            raise RecipeError("dtypes", "must look like data=float32,label=int32", part)
        dtypes[name] = dtype
    return dtypes
