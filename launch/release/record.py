"""Records and reads synthesised sounds with the installed package.

python record.py SOUNDS OUTPUT
"""

import sys
from pathlib import Path

import beam_pipeline
from beam_pipeline import open_records, record
from beam_pipeline.transforms import LogMel


def main(sounds: str, output: str) -> None:
    """Prints what was recorded and read."""
    metadata = record(sounds, output, win_seconds=0.5, features={"mel": LogMel()})
    records = open_records(output)
    assert len(records) == metadata.splits["records"].examples > 0
    shapes = {example["mel"].shape for example in records}
    where = Path(beam_pipeline.__file__).parents[1].name
    print(f"{len(records)} examples of shapes {shapes}, by the package in {where}")


if __name__ == "__main__":
    main(*sys.argv[1:])
