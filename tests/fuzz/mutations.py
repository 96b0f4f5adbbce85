"""Ways to damage a file, each drawn from a generator of random numbers."""

from itertools import pairwise

_EXTREMES = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF)
_HEADER_BYTES = 256


def _place(rng, data):
    """An offset, half of the time in the header."""
    end = min(len(data), _HEADER_BYTES) if rng.random() < 0.5 else len(data)
    return int(rng.integers(end)) if end else 0


def _stretch(rng, data):
    start = _place(rng, data)
    return start, min(len(data), start + int(2 ** rng.uniform(0, 13)))


def flip_bits(rng, data):
    out = bytearray(data)
    for _ in range(int(2 ** rng.uniform(0, 5))):
        out[_place(rng, data)] ^= 1 << int(rng.integers(8))
    return bytes(out)


def set_bytes(rng, data):
    out = bytearray(data)
    for _ in range(int(rng.integers(1, 9))):
        out[_place(rng, data)] = int(rng.integers(256))
    return bytes(out)


def set_field(rng, data):
    """Sets a number of 1 to 8 bytes in the header to an extreme."""
    size = int(rng.choice([1, 2, 4, 8]))
    order = "little" if rng.random() < 0.5 else "big"
    value = int(rng.choice(_EXTREMES)) & (1 << 8 * size) - 1
    at = int(rng.integers(min(len(data), _HEADER_BYTES)))
    return data[:at] + value.to_bytes(size, order) + data[at + size :]


def cut(rng, data):
    return data[: int(rng.integers(len(data)))]


def cut_a_little(rng, data):
    return data[: max(0, len(data) - int(2 ** rng.uniform(0, 11)))]


def cut_start(rng, data):
    return data[int(2 ** rng.uniform(0, 11)) :]


def edit_stretch(rng, data):
    """Clears, replaces, removes, doubles or precedes a stretch by noise."""
    start, stop = _stretch(rng, data)
    noise = rng.bytes(stop - start)
    before, inside, after = data[:start], data[start:stop], data[stop:]
    edited = (bytes(stop - start), noise, b"", inside * 2, noise + inside)
    return before + edited[int(rng.integers(len(edited)))] + after


def swap(rng, data):
    places = sorted(int(at) for at in rng.integers(len(data) + 1, size=4))
    a, b, c, d = places
    return data[:a] + data[c:d] + data[b:c] + data[a:b] + data[d:]


def surround(rng, data):
    """Puts noise or zeros before the file, or after it."""
    size = int(2 ** rng.uniform(0, 12))
    more = rng.bytes(size) if rng.random() < 0.5 else bytes(size)
    return data + more if rng.random() < 0.6 else more + data


def repeat(rng, data):
    """The file, and after it the file again or a part of it."""
    return data + data[: int(rng.integers(1, len(data) + 1))]


def frames_of(data):
    """Returns the offsets of Ogg pages or MP3 frames, and the end."""
    for sync in (b"OggS\0", data[:2]):
        if data.count(sync) > 3 and sync[:1] in b"O\xff":
            offsets = [0]
            while (at := data.find(sync, offsets[-1] + 1)) >= 0:
                offsets.append(at)
            return [*offsets, len(data)]
    return []


def edit_frames(rng, data):
    """Removes, doubles or swaps whole frames of a compressed stream."""
    offsets = frames_of(data)
    if len(offsets) < 6:
        return edit_stretch(rng, data)
    parts = [data[a:b] for a, b in pairwise(offsets)]
    at = int(rng.integers(1, len(parts) - 1))
    match int(rng.integers(3)):
        case 0:
            del parts[at]
        case 1:
            parts.insert(at, parts[at])
        case _:
            parts[at], parts[at + 1] = parts[at + 1], parts[at]
    return b"".join(parts)


# Some are drawn more often than others.
MUTATIONS = (
    *(flip_bits, set_bytes, set_field, set_field, cut, cut_a_little, cut_start),
    *([edit_stretch] * 5),
    *(swap, surround, surround, repeat, edit_frames),
)
