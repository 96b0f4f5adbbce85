"""Bytes of a data set for each way to store its signal.

::

    python -m tests.benchmarks.encodings FOLDER [--win-len FRAMES]
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from beam_pipeline import record

WAYS: dict[str, dict[str, Any]] = {
    "float_list": {},
    "raw": {"encodings": {"signal": "raw"}},
    "raw, int16": {"dtype": "int16"},
    "float16": {"encodings": {"signal": "float16"}},
    "bfloat16": {"encodings": {"signal": "bfloat16"}},
    "int8": {"encodings": {"signal": "int8"}},
    "flac": {"encodings": {"signal": "flac"}},
    "opus": {"encodings": {"signal": "opus"}},
    "vorbis": {"encodings": {"signal": "vorbis"}},
}


def main() -> None:
    """Prints a row for each way."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--win-len", type=int, default=4000)
    args = parser.parse_args()
    print("| stored as | examples | bytes an example, after GZIP | seconds |")
    for name, options in WAYS.items():
        with tempfile.TemporaryDirectory() as folder:
            begin = time.perf_counter()
            metadata = record(
                args.folder,
                Path(folder) / "out",
                win_len=args.win_len,
                label_from="none",
                max_rejected="100%",
                workers=1,
                **options,
            )
            seconds = time.perf_counter() - begin
        (split,) = metadata.splits.values()
        size = sum(shard.bytes for shard in split.shards) / split.examples
        print(f"| {name} | {split.examples} | {size:.0f} | {seconds:.1f} |")


if __name__ == "__main__":
    main()
