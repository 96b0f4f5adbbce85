"""The examples that a page shows: which ones, what they measure, and their sound."""

from __future__ import annotations

import base64
import itertools
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from beam_pipeline.dataset.metadata import Metadata
from beam_pipeline.dataset.side_by_side import DataSets
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.read.example_view import as_float, encode_sound
from beam_pipeline.read.listening import Sounds, stored_signal
from beam_pipeline.read.records import open_records

# Examples that are measured for each one that is shown.
_MEASURED_FOR_EACH = 5
_EXTREMES = 4
ASKED_FOR = "asked for"
_FULL_SCALE = 0.999

# Browsers decode FLAC at these rates; faster sounds are slowed down by a whole factor.
_LOWEST_HZ, _HIGHEST_HZ = 8000, 96000
_LONGEST_S = 20.0

FloatArray = npt.NDArray[np.float64]

# Split, to the number of an example, to what it shows.
_Chosen = dict[str, dict[int, list[str]]]


@dataclass
class Sample:
    """One example.

    Attributes
    ----------
    split, number : str, int
        Where it is: the position in the split.
    label : str
        Its class, or classes.
    values : mapping
        The features of the example.
    peak, clipped, offset : float
        Of its signal: the largest magnitude; the share of samples at full scale; the
        mean over the root mean square. NaN without a signal.
    distance : float
        How far the means of its features are from those of the data set, in standard
        deviations; NaN without such features.
    why : list of str
        What it shows.
    """

    split: str
    number: int
    label: str
    values: Mapping[str, Any]
    peak: float = float("nan")
    clipped: float = float("nan")
    offset: float = float("nan")
    distance: float = float("nan")
    why: list[str] = field(default_factory=list)


def draw_samples(
    data: DataSets,
    table: Any,
    clips: int,
    seed: int,
    paths: Sequence[str] = (),
    examples: Mapping[str, Sequence[int]] | None = None,
) -> list[Sample]:
    """Reads seeded examples of each class, and the loudest and the quietest ones.

    Parameters
    ----------
    paths : sequence of str
        Files of which the first example is read, too.
    table : pyarrow.Table or None
        The table of windows; None if the data set has none.
    clips : int
        How many examples will be shown; more are read, to be measured.
    examples : mapping, optional
        Examples that are read, too: their numbers in each split.
    """
    metadata = data.metadata
    chosen = _draw(metadata, table, clips * _MEASURED_FOR_EACH, seed)
    if table is not None and paths:
        _add_paths(chosen, table, paths)
    for split, given in (examples or {}).items():
        for number in given:
            chosen[split].setdefault(number, []).insert(0, ASKED_FOR)
    samples = []
    for split, numbers in chosen.items():
        records = open_records(data.folders, split)
        for number in sorted(numbers):
            values = records[number]
            sample = Sample(split, number, _label_of(values, metadata), values)
            sample.why += numbers[number]
            _measure(sample, metadata)
            samples.append(sample)
    return samples


def _draw(metadata: Metadata, table: Any, count: int, seed: int) -> _Chosen:
    """Chooses examples of each class, the quietest and the loudest."""
    rng = np.random.default_rng(seed)
    chosen: _Chosen = defaultdict(dict)
    if table is None or "class" not in table.column_names:
        total = sum(split.examples for split in metadata.splits.values())
        for name, split in metadata.splits.items():
            share = -(-count * split.examples // max(total, 1))
            some = rng.permutation(split.examples)[:share]
            chosen[name].update((int(number), []) for number in some)
        return chosen
    labels, of_label = codes_of(table["class"])
    each = max(2, count // max(len(labels), 1))
    # The rows of a class lie together.
    order = np.argsort(of_label, kind="stable")
    bounds = np.searchsorted(of_label[order], np.arange(-1, len(labels) + 1))
    for first, last in itertools.pairwise(bounds.tolist()):
        picked = rng.choice(last - first, min(each, last - first), replace=False)
        _add(chosen, table, order[first + picked])
    levels = table["level_db"].to_numpy(zero_copy_only=False).astype(np.float64)
    order = np.argsort(levels, kind="stable")
    order = order[np.isfinite(levels[order])]
    _add(chosen, table, order[:_EXTREMES], "quietest")
    _add(chosen, table, order[::-1][:_EXTREMES], "loudest")
    return chosen


def _add(chosen: _Chosen, table: Any, rows: Any, *why: str) -> None:
    """Adds the examples in some rows of the table of windows."""
    some = table.select(["split", "record"]).take(np.asarray(rows, np.int64))
    for split, number in zip(*some.to_pydict().values(), strict=True):
        chosen[split].setdefault(number, []).extend(why)


def _add_paths(chosen: _Chosen, table: Any, paths: Sequence[str]) -> None:
    """Adds the first example of each of a few files."""
    names, codes = codes_of(table["path"])
    known = {name: code for code, name in enumerate(names)}
    wanted = np.isin(codes, [known[path] for path in paths if path in known])
    rows = np.flatnonzero(wanted)
    _, first = np.unique(codes[rows], return_index=True)
    _add(chosen, table, rows[np.sort(first)], "of a leak")


def codes_of(column: Any) -> tuple[list[str], npt.NDArray[np.int64]]:
    """Returns the texts in a column of Arrow, and the number of that of each row.

    Null has the number -1.
    """
    encoded = column.combine_chunks().dictionary_encode()
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False)
    return encoded.dictionary.to_pylist(), codes.astype(np.int64)


def _label_of(values: Mapping[str, Any], metadata: Metadata) -> str:
    """Returns the class of an example, or its classes."""
    if isinstance(values.get("class"), str):
        return str(values["class"])
    labels = values.get("labels")
    if labels is not None and np.shape(labels) == (len(metadata.classes),):
        found = [name for name, n in zip(metadata.classes, labels, strict=True) if n]
        return ", ".join(found)
    target = values.get("target")
    if metadata.classes and target is not None and np.ndim(target) == 0:
        number = int(target)
        if 0 <= number < len(metadata.classes):
            return metadata.classes[number]
    return ""


def _measure(sample: Sample, metadata: Metadata) -> None:
    """Measures the signal of an example, and the distance of its features."""
    found = stored_signal(sample.values, metadata)
    if found is not None:
        _measure_signal(sample, as_float(found[0]))
    entry = metadata.splits[sample.split].statistics.get("features", {})
    distances = [
        _distance(np.asarray(sample.values[name], np.float64), of)
        for name, of in entry.items()
        if "bins" in of and name in sample.values
    ]
    if distances:
        sample.distance = float(np.mean(distances))


def _measure_signal(sample: Sample, signal: FloatArray) -> None:
    size = np.abs(signal)
    rms = float(np.sqrt(np.mean(signal**2)))
    sample.peak = float(size.max(initial=0.0))
    sample.clipped = float(np.mean(size >= _FULL_SCALE))
    sample.offset = float(abs(signal.mean()) / rms) if rms else 0.0


def measure_sounds(sounds: Sounds, samples: Sequence[Sample]) -> None:
    """Measures the signals of examples that do not hold one.

    What cannot be decoded again stays unmeasured.
    """
    for sample in samples:
        if np.isnan(sample.peak):
            with suppress(InputError, OptionError):
                sound = sounds.of(sample.split, sample.number)
                _measure_signal(sample, as_float(sound.samples))


def _distance(value: FloatArray, statistics: Mapping[str, Any]) -> float:
    """The root mean square, over bins, of the standardised mean of a feature."""
    bins = statistics["bins"]
    mean, std = (np.array(bins[key], np.float64) for key in ("mean", "std"))
    if value.shape[-1:] != mean.shape:
        return 0.0
    means = value.reshape(-1, len(mean)).mean(axis=0)
    usable = std > 1e-7 * np.abs(mean)
    if not usable.any():
        return 0.0
    scaled = (means[usable] - mean[usable]) / std[usable]
    return float(np.sqrt(np.mean(scaled**2)))


def name_unusual(samples: Sequence[Sample]) -> None:
    """Marks the examples whose features are farthest from those of the data set."""
    known = [sample for sample in samples if np.isfinite(sample.distance)]
    for sample in sorted(known, key=lambda each: -each.distance)[:_EXTREMES]:
        sample.why.append("most unusual")


def encode_sounds(
    sounds: Sounds, samples: Sequence[Sample], budget: int
) -> Iterator[tuple[Sample, dict[str, Any] | None]]:
    """Yields examples with their sounds, until the bytes of all sounds reach a budget.

    The sound is a dict with ``flac`` (base64), its rate and the one that it
    declares, ``gain`` and ``cut_s``; None if there is neither a signal nor an input.
    """
    left = budget
    for sample in samples:
        try:
            sound = sounds.of(sample.split, sample.number)
        except (InputError, OptionError):
            yield sample, None
            continue
        signal = as_float(sound.samples)
        if signal.ndim == 2:
            signal = signal.mean(axis=0)
        slowed = max(1, -(-sound.rate // _HIGHEST_HZ))
        most = int(_LONGEST_S * sound.rate)
        cut = len(signal) / sound.rate if len(signal) > most else None
        rate = max(sound.rate // slowed, _LOWEST_HZ)
        flac, gain = encode_sound(signal[:most], rate, "FLAC")
        text = base64.b64encode(flac).decode()
        left -= len(text)
        if left < 0:
            return
        yield (
            sample,
            {
                "flac": text,
                "rate_hz": sound.rate,
                "declared_hz": rate,
                "gain": gain,
                "cut_s": cut,
            },
        )
