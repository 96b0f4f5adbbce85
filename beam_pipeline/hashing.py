"""Stable hashes, which are equal in every process and on every machine."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def clip_key(seed: int, filepath: str, source: int = 0) -> int:
    """Returns a 64-bit hash of a clip's path and source under a seed."""
    return text_key(str(seed), f"{source}\0{filepath}")


def text_key(salt: str, text: str) -> int:
    """Returns a 64-bit hash of a text under a salt."""
    hasher = _salted(salt).copy()
    hasher.update(text.encode())
    return int.from_bytes(hasher.digest(), "big")


@cache
def _salted(salt: str) -> Any:
    import hashlib  # here: ``--help`` does without it

    # Copying a hasher costs half as much as making one.
    return hashlib.blake2b(digest_size=8, key=salt.encode()[:64])


def json_sha256(values: Mapping[str, Any]) -> str:
    """Returns the SHA-256 of JSON values with sorted keys, in hexadecimal."""
    import hashlib

    canonical = json.dumps(values, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def bytes_sha256(content: bytes) -> str:
    """Returns the SHA-256 of some bytes, in hexadecimal."""
    import hashlib

    return hashlib.sha256(content).hexdigest()


def hash64(
    key: int | npt.NDArray[np.uint64], k: npt.NDArray[np.int64]
) -> npt.NDArray[np.uint64]:
    """Returns the outputs with the numbers ``k`` of SplitMix64 with the seed ``key``.

    There may be a seed for each of ``k``.

    References
    ----------
    Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014.
    """
    import numpy as np  # here: ``--help`` and recipes do without it

    z: npt.NDArray[np.uint64] = np.uint64(key) + (
        k.astype(np.uint64) + np.uint64(1)
    ) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def unit_floats(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.float64]:
    """Returns 64-bit hashes as numbers in [0, 1).

    ``u = floor(word / 2**11) / 2**53``: a float64 holds the upper 53 bits exactly.
    """
    import numpy as np

    return (words >> np.uint64(11)).astype(np.float64) * 2.0**-53
