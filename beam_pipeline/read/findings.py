"""What an audit found: clusters of clips, and how they read as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from beam_pipeline.audio.fingerprint import SKETCH_BITS
from beam_pipeline.inputs.splits import GROUP_SEPARATOR

Integers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

FILE, GROUP, AUDIO, PARTS, SIMILAR = "file", "group", "audio", "parts", "similar"
TITLES = {
    FILE: "same path",
    GROUP: "same group",
    AUDIO: "same audio",
    PARTS: "overlapping parts",
    SIMILAR: "near-identical audio",
}

FINDINGS_SHOWN = 20
CLIPS_SHOWN = 3  # of each split


class FoundClip(NamedTuple):
    """A clip that something was found of; ``interval`` is in seconds of its file."""

    split: str
    filepath: str
    interval: tuple[float, float]
    label: str | None


class Finding(NamedTuple):
    """Clips that have something in common, and whether they are in several splits."""

    kind: str
    across: bool
    clips: tuple[FoundClip, ...]
    detail: str

    def to_json(self) -> dict[str, Any]:
        """The finding as JSON values."""
        return {
            "kind": self.kind,
            "across": self.across,
            "detail": self.detail,
            "clips": [
                {
                    "split": clip.split,
                    "path": clip.filepath,
                    "start_s": clip.interval[0],
                    "end_s": clip.interval[1],
                    "class": clip.label,
                }
                for clip in self.clips
            ],
        }


@dataclass(frozen=True)
class Clusters:
    """Sets of clips: cluster k is ``rows[bounds[k] : bounds[k + 1]]``."""

    rows: Integers
    bounds: Integers

    def __len__(self) -> int:
        return len(self.bounds) - 1

    def select(self, wanted: Mask) -> Clusters:
        """Those that are wanted."""
        sizes = np.diff(self.bounds)
        rows = self.rows[np.repeat(wanted, sizes)]
        return Clusters(rows, np.r_[0, np.cumsum(sizes[wanted])])

    def differing(self, values: Integers) -> Mask:
        """For each cluster, whether its clips differ in a value."""
        if not len(self):
            return np.zeros(0, np.bool_)
        of_rows, firsts = values[self.rows], self.bounds[:-1]
        least = np.minimum.reduceat(of_rows, firsts)
        differ: Mask = np.maximum.reduceat(of_rows, firsts) > least
        return differ


NOTHING = Clusters(np.zeros(0, np.int64), np.zeros(1, np.int64))


def _none() -> Mask:
    return np.zeros(0, np.bool_)


@dataclass(frozen=True)
class Findings:
    """All findings of a kind; iterating makes them one by one, leaks first.

    Attributes
    ----------
    kind : str
        A key of ``TITLES``.
    missing : str
        Why it was not checked; empty where it was.
    complete : bool
        False if there may be more, because too many clips are alike to compare all.
    clusters : Clusters
        The clips of each finding.
    across, mixed : numpy.ndarray of bool
        For each, whether its clips are in several splits, and under several classes.
    """

    kind: str
    missing: str = ""
    complete: bool = True
    clusters: Clusters = NOTHING
    across: Mask = field(default_factory=_none)
    mixed: Mask = field(default_factory=_none)
    table: Any = None

    def __len__(self) -> int:
        return len(self.clusters)

    @property
    def leaks(self) -> int:
        """How many are over several splits."""
        return int(self.across.sum())

    def __iter__(self) -> Iterator[Finding]:
        rows, bounds = self.clusters.rows, self.clusters.bounds
        for k in np.lexsort((rows[bounds[:-1]], ~self.across)):
            clips = self.table.take(rows[bounds[k] : bounds[k + 1]]).to_pydict()
            yield _finding(self.kind, bool(self.across[k]), bool(self.mixed[k]), clips)


def _finding(
    kind: str, across: bool, mixed: bool, values: Mapping[str, Sequence[Any]]
) -> Finding:
    names = ("split", "path", "start", "frames", "sample_rate_hz", "class")
    clips = tuple(
        FoundClip(split, path, (start / rate, (start + frames) / rate), label)
        for split, path, start, frames, rate, label in zip(
            *(values[name] for name in names), strict=True
        )
    )
    details = []
    if kind == GROUP:
        details.append(values["group"][0].replace(GROUP_SEPARATOR, ", "))
    elif kind == AUDIO:
        details.append(values["content"][0].hex())
    elif kind == SIMILAR:
        sketches = np.frombuffer(b"".join(values["sketch"]), np.uint8)
        bits = np.unpackbits(sketches.reshape(len(clips), -1), axis=1)
        most = int((bits[0] != bits).sum(axis=1).max())
        details.append(f"{most} of {SKETCH_BITS} bits differ from the first")
    if mixed:
        classes = dict.fromkeys(str(clip.label) for clip in clips)
        details.append(f"under the classes {', '.join(classes)}")
    return Finding(kind, across, clips, "; ".join(details))


@dataclass(frozen=True)
class Audit:
    """What was found in a data set, by kind, in the order of ``TITLES``."""

    clips: int
    splits: tuple[str, ...]
    kinds: dict[str, Findings]

    @property
    def leaks(self) -> int:
        """How many findings are over several splits."""
        return sum(found.leaks for found in self.kinds.values())

    def __iter__(self) -> Iterator[Finding]:
        for found in self.kinds.values():
            yield from found


def summarise_audit(found: Audit) -> str:
    """A line for each kind."""
    lines = [f"{found.clips:,} clips in {', '.join(found.splits)}"]
    return "\n".join([*lines, *map(summarise_findings, found.kinds.values())])


def describe_audit(found: Audit) -> str:
    """The summary, then a few findings of each kind with a few clips each."""
    lines = [summarise_audit(found)]
    for some in found.kinds.values():
        for finding in islice(some, FINDINGS_SHOWN):
            lines += ["", *_describe(finding)]
        if len(some) > FINDINGS_SHOWN:
            left = len(some) - FINDINGS_SHOWN
            lines += [
                "",
                f"... and {left:,} more of {TITLES[some.kind]}; --json has all",
            ]
    return "\n".join(lines)


def summarise_findings(found: Findings) -> str:
    title = TITLES[found.kind]
    if found.missing:
        return f"{title}: {found.missing}"
    counts = [
        f"{count:,} {where}"
        for count, where in (
            (found.leaks, "across splits"),
            (len(found) - found.leaks, "within one"),
            (int(found.mixed.sum()), "under two classes"),
        )
        if count
    ]
    more = "" if found.complete else "; many clips are alike, not all were compared"
    return f"{title}: {', '.join(counts) or 'none'}{more}"


def _describe(finding: Finding) -> Iterator[str]:
    where = "across splits" if finding.across else f"within {finding.clips[0].split}"
    detail = f": {finding.detail}" if finding.detail else ""
    yield f"{TITLES[finding.kind]} {where}{detail}"
    shown: Counter[str] = Counter()
    for clip in finding.clips:
        shown[clip.split] += 1
        if shown[clip.split] <= CLIPS_SHOWN:
            first, last = clip.interval
            label = "" if clip.label is None else f"  {clip.label}"
            yield f"  {clip.split}  {clip.filepath}  {first:g} to {last:g} s{label}"
    for split, count in shown.items():
        if count > CLIPS_SHOWN:
            yield f"  {split}  ... and {count - CLIPS_SHOWN:,} more"
