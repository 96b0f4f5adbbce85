"""The examples that a page shows: which ones, what they measure, and their sound."""

from __future__ import annotations

import base64
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from beam_pipeline.dataset.side_by_side import DataSets
from beam_pipeline.errors import InputError, OptionError
from beam_pipeline.permutation import Integers
from beam_pipeline.read.audit import codes_of
from beam_pipeline.read.records import open_records
from beam_pipeline.read.show import as_float, class_of, encode_sound
from beam_pipeline.read.sounds import Sounds

# Examples that are measured for each one that is shown.
_MEASURED_FOR_EACH = 5
_EXTREMES = 4
_ASKED_FOR = "asked for"
_FULL_SCALE = 0.999

# Browsers decode FLAC at these rates; faster sounds are slowed down by a whole factor.
_LOWEST_HZ, _HIGHEST_HZ = 8000, 96000
_LONGEST_S = 20.0


@dataclass(eq=False)
class Sample:
    """One example.

    Attributes
    ----------
    split, number : str, int
        Where it is: the position in the split.
    values : mapping
        The features of the example.
    why : list of str
        What it shows.
    label : str
        Its class, or classes.
    peak, clipped : float
        Of its sound: the largest magnitude; the share of samples at full scale. NaN
        without a sound.
    """

    split: str
    number: int
    values: Mapping[str, Any]
    why: list[str]
    label: str
    peak: float = float("nan")
    clipped: float = float("nan")

    @property
    def path(self) -> str:
        """Its file; empty without one."""
        return str(self.values.get("filepath", ""))


def draw_samples(
    data: DataSets,
    table: Any,
    clips: int,
    seed: int,
    paths: Sequence[str],
    examples: Mapping[str, Sequence[int]],
) -> list[Sample]:
    """Reads seeded examples of each class, and the loudest and the quietest ones.

    Parameters
    ----------
    table : pyarrow.Table
        The windows that are in the data set.
    clips : int
        How many examples will be shown; more are read, to be measured.
    paths : sequence of str
        Files of which the first example is read, too.
    examples : mapping
        Examples that are read, too: their numbers in each split.
    """
    chosen: dict[str, dict[int, list[str]]] = defaultdict(dict)
    for why, rows in _draw(table, clips * _MEASURED_FOR_EACH, seed, paths):
        some = table.select(["split", "record"]).take(rows).to_pydict()
        for split, number in zip(*some.values(), strict=True):
            chosen[split].setdefault(number, []).extend(why)
    for split, numbers in examples.items():
        for number in dict.fromkeys(numbers):
            chosen[split].setdefault(number, []).insert(0, _ASKED_FOR)
    samples = []
    for split, found in chosen.items():
        records = open_records(data.folders, split)[sorted(found)]
        for number, values in zip(sorted(found), records, strict=True):
            label = class_of(values, data.metadata.classes)
            samples.append(Sample(split, number, values, found[number], label))
    return samples


def _draw(
    table: Any, count: int, seed: int, paths: Sequence[str]
) -> Iterator[tuple[Sequence[str], Integers]]:
    """Yields rows of the table, and what they show."""
    of_label = np.zeros(len(table), np.int64)
    if "class" in table.column_names:
        _, of_label = codes_of(table["class"])
    # The rows of a class lie together.
    order = np.argsort(of_label, kind="stable")
    classes = np.split(order, np.flatnonzero(np.diff(of_label[order])) + 1)
    each, rng = max(2, count // len(classes)), np.random.default_rng(seed)
    for rows in classes:
        yield (), rng.choice(rows, min(each, len(rows)), replace=False)
    if "level_db" not in table.column_names:
        return
    levels = table["level_db"].to_numpy(zero_copy_only=False).astype(np.float64)
    order = np.argsort(levels, kind="stable")
    order = order[np.isfinite(levels[order])]
    yield ["quietest"], order[:_EXTREMES]
    yield ["loudest"], order[::-1][:_EXTREMES]
    values, codes = codes_of(table["path"])
    files = np.flatnonzero(np.isin(np.array(values.to_pylist(), object), paths))
    _, first = np.unique(codes, return_index=True)
    yield ["of a leak"], np.sort(first[files])


def measure(sounds: Sounds, samples: Sequence[Sample]) -> None:
    """Measures the sounds of examples.

    What can neither be read nor decoded again stays unmeasured.
    """
    for sample in samples:
        with suppress(InputError, OptionError):
            size = np.abs(as_float(sounds.of(sample.split, sample.number).samples))
            sample.peak = float(size.max(initial=0.0))
            sample.clipped = float(np.mean(size >= _FULL_SCALE))


def in_order(samples: Sequence[Sample], of_problems: Sequence[Sample]) -> list[Sample]:
    """Returns what to show first: asked for, of problems, extremes, of each class."""
    asked = [sample for sample in samples if _ASKED_FOR in sample.why]
    first = [*asked, *of_problems, *(sample for sample in samples if sample.why)]
    turns: Counter[str] = Counter()
    others: list[tuple[int, str, int, Sample]] = []
    for sample in samples:
        if sample not in first:
            turns[sample.label] += 1
            others.append((turns[sample.label], sample.label, len(others), sample))
    return [*dict.fromkeys(first), *(sample for *_, sample in sorted(others))]


def encode_sounds(
    sounds: Sounds, samples: Sequence[Sample], budget: int
) -> Iterator[tuple[Sample, dict[str, Any] | None]]:
    """Yields examples with their sounds, until the bytes of all sounds reach a budget.

    The sound is a dict with ``flac`` (base64), its rate and the one that it
    declares, ``gain`` and ``cut_s``; None if there is neither a signal nor an input.
    """
    for sample in samples:
        try:
            heard, rate = sounds.of(sample.split, sample.number)
        except (InputError, OptionError):
            yield sample, None
            continue
        signal = as_float(heard)
        if signal.ndim == 2:
            signal = signal.mean(axis=0)
        slowed = max(1, -(-rate // _HIGHEST_HZ))
        most = int(_LONGEST_S * rate)
        declared = max(rate // slowed, _LOWEST_HZ)
        flac, gain = encode_sound(signal[:most], declared, "FLAC")
        text = base64.b64encode(flac).decode()
        budget -= len(text)
        if budget < 0:
            return
        yield (
            sample,
            {
                "flac": text,
                "rate_hz": rate,
                "declared_hz": declared,
                "gain": gain,
                "cut_s": len(signal) / rate if len(signal) > most else None,
            },
        )
