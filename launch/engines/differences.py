"""Says how the shards of two folders differ: in what they hold, or how it is packed.

differences.py EXPECTED FOUND
"""

import sys
from itertools import pairwise
from pathlib import Path

from beam_pipeline.storage.tfrecord import inflate_by_member


def members(path):
    """Returns (compressed bytes, content) of each member of a shard."""
    data = path.read_bytes()
    starts, contents, pieces = [], [], []
    with path.open("rb") as file:
        for piece in inflate_by_member(file):
            pieces.append(piece.content)
            if piece.ended:
                starts.append(piece.start)
                contents.append(b"".join(pieces))
                pieces = []
    packed = [data[start:stop] for start, stop in pairwise([*starts, len(data)])]
    return list(zip(packed, contents, strict=True))


def describe(expected, found):
    """Prints the members of two shards that differ."""
    print(expected.name)
    mine, other = members(expected), members(found)
    if len(mine) != len(other):
        print(f"  {len(mine)} members expected, {len(other)} found")
    for number, ((packed, content), (got, held)) in enumerate(
        zip(mine, other, strict=False)
    ):
        sizes = f"  member {number}: {len(packed)} bytes expected, {len(got)} found"
        if content != held:
            first = next(
                (
                    k
                    for k, (a, b) in enumerate(zip(content, held, strict=False))
                    if a != b
                ),
                min(len(content), len(held)),
            )
            print(
                f"{sizes}; what they hold, {len(content)} and {len(held)} bytes, "
                f"differs from byte {first} on"
            )
        elif packed != got:
            print(f"{sizes}; they hold the same {len(content)} bytes")


def main(expected, found):
    for mine in sorted(Path(expected).rglob("*.tfrecord.gz")):
        other = Path(found) / mine.relative_to(expected)
        if not other.exists():
            print(f"{mine.name}: missing")
        elif mine.read_bytes() != other.read_bytes():
            describe(mine, other)


if __name__ == "__main__":
    main(*sys.argv[1:])
